"""PyTorch: a DataLoader over a split, which is a map-style dataset as it is."""

from beam_pipeline.reader_programs.facts import Facts, decoding, literal

_IMPORTS = (
    "from beam_tfrecord import open_dataset\nfrom torch.utils.data import DataLoader"
)
_IMAGE_IMPORTS = """\
import io

import numpy as np
from beam_tfrecord import open_dataset
from PIL import Image
from torch.utils.data import DataLoader, default_collate"""
_COLLATE = '''
def collate(rows):
    """Makes a batch: feature name -> tensor, or list of texts."""
    return default_collate([prepare(row) for row in rows])

'''


def program(facts: Facts) -> str:
    """Returns the program."""
    features = facts.batched
    facts.check(features, "torch")
    split = facts.split.name
    functions = collate = ""
    if facts.image:
        functions = decoding(facts.image, channels_first=True) + _COLLATE
        collate = "\n        collate_fn=collate,"
    return f"""\
{facts.heading}
{_IMAGE_IMPORTS if facts.image else _IMPORTS}

# DataLoader takes no None, no datetimes and no lists of different lengths
{facts.choice(features)}

{functions}
if __name__ == "__main__":  # the processes of DataLoader may import this file
    dataset = {facts.opening(features)}{facts.class_note}
    rows = dataset[{literal(split)}].select(COLUMNS)
    # to go on at a step of an epoch: without shuffle=True, and instead of rows
    # rows.shuffled(seed=1, epoch=3)[step * 32 :], which is the same order each time
    loader = DataLoader(
        rows,
        batch_size=32,
        shuffle=True,{collate}
        num_workers=2,  # no record comes twice: each worker is given its positions
        prefetch_factor=4,
    )
    print(len(rows), "records,", len(loader), "batches")
    for name, values in next(iter(loader)).items():
        print(name, getattr(values, "dtype", ""), getattr(values, "shape", values[:3]))
"""
