"""Keras 3: a PyDataset over a split, for any backend and without TensorFlow."""

from beam_pipeline.reader_programs.facts import Facts
from beam_pipeline.reader_programs.parts import decoding, literal

__all__ = ["program"]

_IMPORTS = """\
import math

import keras
import numpy as np
from beam_tfrecord import open_dataset"""
_IMAGE_IMPORTS = """\
import io
import math

import keras
import numpy as np
from beam_tfrecord import open_dataset
from PIL import Image"""


def program(facts: Facts) -> str:
    """Returns the program."""
    features = facts.arrays
    facts.check(features, "keras")
    returned, batch, target = "inputs", "inputs", ""
    if facts.label:
        returned = f"inputs, inputs.pop({literal(facts.label)})"
        batch, target = "inputs, target", ", and what is to be predicted"
    prepare = "\n        rows = [prepare(row) for row in rows]" if facts.image else ""
    return f"""\
{facts.heading}
{_IMAGE_IMPORTS if facts.image else _IMPORTS}

{facts.choice(features)}

{decoding(facts.image)}
class Batches(keras.utils.PyDataset):
    \"\"\"Batches of a split, in another order in each epoch.\"\"\"

    def __init__(self, rows, size=32, **options):
        super().__init__(**options)
        self.rows, self.size, self.epoch = rows, size, 0
        self.shuffled = rows.shuffled(seed=1, epoch=0)

    def __len__(self):
        return math.ceil(len(self.rows) / self.size)

    def __getitem__(self, index):
        \"\"\"Feature name -> array{target}.\"\"\"
        rows = self.shuffled[index * self.size : (index + 1) * self.size]{prepare}
        inputs = {{name: np.stack([row[name] for row in rows]) for name in COLUMNS}}
        return {returned}

    def on_epoch_end(self):
        self.epoch += 1
        self.shuffled = self.rows.shuffled(seed=1, epoch=self.epoch)


if __name__ == "__main__":
    dataset = {facts.opening(features)}{facts.class_note}
    # workers are threads that prepare batches ahead of model.fit(batches, epochs=...)
    batches = Batches(dataset[{literal(facts.split.name)}].select(COLUMNS), workers=2)
    print(len(batches.rows), "records,", len(batches), "batches")
    {batch} = batches[0]
    for name, values in inputs.items():
        print(name, values.dtype, values.shape)
"""
