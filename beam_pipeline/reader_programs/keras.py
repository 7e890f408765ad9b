"""Keras 3: a PyDataset over a split, for any backend and without TensorFlow."""

from collections.abc import Sequence

from beam_pipeline.reader_programs.facts import Facts, decoding, literal
from transforms.core.manifest import FeatureFacts

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
    features = _read(facts)
    facts.check(features, "keras")
    names = [each.feature.name for each in features]
    inputs = [name for name in names if name != facts.label]
    one = len(inputs) == 1
    returned = f"batch[{literal(inputs[0])}]" if one else "batch"
    what = "An array" if one else "Feature name -> array"
    if inputs == [facts.image]:
        what = "Images"
    if facts.label in names:
        target = literal(facts.label)
        returned += f", batch[{target}]" if one else f", batch.pop({target})"
        what += ", and what is to be predicted"
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
        \"\"\"{what}.\"\"\"
        rows = self.shuffled[index * self.size : (index + 1) * self.size]{prepare}
        batch = {{name: np.stack([row[name] for row in rows]) for name in rows[0]}}
        return {returned}

    def on_epoch_end(self):
        self.epoch += 1
        self.shuffled = self.rows.shuffled(seed=1, epoch=self.epoch)


if __name__ == "__main__":
    dataset = {facts.opening(features)}{facts.class_note}
    # workers are threads that prepare batches ahead of model.fit(batches, epochs=...)
    batches = Batches(dataset[{literal(facts.split.name)}].select(COLUMNS), workers=2)
    print(len(batches.rows), "records,", len(batches), "batches")
{_first_batch(inputs, facts.label if facts.label in names else "")}\
{_training(facts)}"""


def _read(facts: Facts) -> Sequence[FeatureFacts]:
    """Returns what batches hold: of images no size or depth, which is no input."""
    if not facts.image:
        return facts.arrays
    names = (facts.image, facts.label)
    return [each for each in facts.arrays if each.feature.name in names]


def _first_batch(inputs: Sequence[str], label: str) -> str:
    """Returns the lines that print the first batch."""
    if len(inputs) != 1:
        target = ", target" if label else ""
        return f"""\
    inputs{target} = batches[0]
    for name, values in inputs.items():
        print(name, values.dtype, values.shape)
"""
    (name,) = map(literal, inputs)
    if not label:
        return f"""\
    values = batches[0]
    print({name}, values.dtype, values.shape)
"""
    return f"""\
    values, target = batches[0]
    print({name}, values.dtype, values.shape)
    print({literal(label)}, target.dtype, target.shape)
"""


def _training(facts: Facts) -> str:
    """Returns the lines that train a small model and use it; "" without classes."""
    if facts.classified is None:
        return ""
    image, label = literal(facts.image), literal(facts.label)
    validation = validated = ""
    if facts.validation:
        split = literal(facts.validation)
        validation = f"\n    validation = Batches(dataset[{split}].select(COLUMNS))"
        validated = ", validation_data=validation"
    return f"""
    # a small model, to be replaced by yours{validation}
    classes = dataset.classes[{label}]
    model = keras.Sequential(
        [
            keras.layers.Conv2D(16, 3, strides=2, activation="relu"),
            keras.layers.Conv2D(32, 3, strides=2, activation="relu"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(len(classes), activation="softmax"),
        ]
    )
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(batches{validated}, epochs=1)

    # of a file: prepare({{{image}: open("photo.jpg", "rb").read()}})
    row = prepare(dataset[{literal(facts.unseen)}][0])
    scores = model.predict(row[{image}][None], verbose=0)[0]
    print(classes[row[{label}]], "is taken for", classes[scores.argmax()])
"""
