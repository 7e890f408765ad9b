"""Beam: `ReadDataset` in a pipeline."""

from beam_pipeline.reader_programs.facts import Facts, decoding, literal

_IMPORTS = "import apache_beam as beam\nfrom beam_tfrecord import ReadDataset"
_IMAGE_IMPORTS = """\
import io

import apache_beam as beam
import numpy as np
from beam_tfrecord import ReadDataset
from PIL import Image"""


def program(facts: Facts) -> str:
    """Returns the program."""
    features = facts.batched
    facts.check(features, "beam")
    prepare = '\n            | "Prepare" >> beam.Map(prepare)' if facts.image else ""
    choice = facts.choice(features).partition("# in place of")[0].rstrip()
    split = literal(facts.split.name)
    return f"""\
{facts.heading}
{_IMAGE_IMPORTS if facts.image else _IMPORTS}

# a missing value is None; labels are names, or ids with labels="ids"
{choice}

{decoding(facts.image)}
def show(batches):
    \"\"\"Prints batches, which are lists of rows.\"\"\"
    for batch in batches:
        print(len(batch), "rows of", list(batch[0]))


if __name__ == "__main__":
    # this runs here; options name another runner, whose machines see the path
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        batches = (
            pipeline
            | "Read" >> ReadDataset({literal(facts.directory)}, {split}, COLUMNS)
            # rows come in no order; a shard is read by one worker, so spread them
            | "Spread" >> beam.Reshuffle(){prepare}
            | "Batch" >> beam.BatchElements(min_batch_size=32, max_batch_size=32)
        )
        one = batches | "Choose" >> beam.combiners.Sample.FixedSizeGlobally(1)
        one | "Show" >> beam.Map(show)
"""
