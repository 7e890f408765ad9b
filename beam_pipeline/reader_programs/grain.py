"""Grain: a MapDataset over a split, with Grain's own shuffle and threads."""

from beam_pipeline.reader_programs.facts import Facts, decoding, literal

_IMPORTS = "import grain\nfrom beam_tfrecord import open_dataset"
_IMAGE_IMPORTS = """\
import io

import grain
import numpy as np
from beam_tfrecord import open_dataset
from PIL import Image"""


def program(facts: Facts) -> str:
    """Returns the program."""
    features = facts.batched
    facts.check(features, "grain")
    prepare = "\n        .map(prepare)" if facts.image else ""
    return f"""\
{facts.heading}
{_IMAGE_IMPORTS if facts.image else _IMPORTS}

# batch() takes no None and no lists of different lengths
{facts.choice(features)}

{decoding(facts.image)}
if __name__ == "__main__":
    dataset = {facts.opening(features)}{facts.class_note}
    rows = dataset[{literal(facts.split.name)}].select(COLUMNS)
    batches = (
        grain.MapDataset.source(rows)
        .shuffle(seed=1){prepare}
        .batch(32)
        # an epoch; .repeat() before it goes on for ever
        .to_iter_dataset(grain.ReadOptions(num_threads=4, prefetch_buffer_size=128))
    )
    print(len(rows), "records")
    # iter(batches).get_state() says where it is, for a checkpoint
    for name, values in next(iter(batches)).items():
        print(name, values.dtype, values.shape)
"""
