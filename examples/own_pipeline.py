"""A pipeline of one's own: rows are made, scored, written as a dataset, and read again.

    python examples/own_pipeline.py out/scored
    python examples/own_pipeline.py out/scored --direct_num_workers=2 \
        --direct_running_mode=multi_processing

The rows are measured penguins that a generator draws, in the place of a source such as
`beam.io.ReadFromBigQuery`. What follows the output are Beam's flags. The runner that is
inside Beam is the default: plain `beam.Pipeline()` would first download another one.
"""

import argparse
import random
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from beam_tfrecord import ReadDataset, WriteDataset

# Bill length in mm, and body mass in g, of each species: mean and deviation.
SPECIES = {
    "Adelie": ((38.8, 2.7), (3_700, 460)),
    "Chinstrap": ((48.8, 3.3), (3_730, 380)),
    "Gentoo": ((47.5, 3.1), (5_080, 500)),
}
PART_ROWS = 1_000


def penguins(part: int) -> Iterator[dict[str, Any]]:
    """Yields 1,000 rows; those of one part are the same in every attempt."""
    drawn = random.Random(part)
    for number in range(PART_ROWS):
        species = drawn.choice(list(SPECIES))
        bill, mass = SPECIES[species]
        yield {
            "id": f"{part:03d}-{number:04d}",
            "species": species,
            "bill_mm": round(drawn.gauss(*bill), 1),
            # Not every penguin was weighed.
            "mass_g": None if drawn.random() < 0.02 else round(drawn.gauss(*mass)),
        }


def score(row: dict[str, Any]) -> dict[str, Any]:
    """Adds how sure a model is that the penguin is a Gentoo: here, by its mass."""
    mass = row["mass_g"]
    gentoo = None if mass is None else min(max((mass - 3_500) / 2_000, 0.0), 1.0)
    return {**row, "gentoo": gentoo}


def main() -> None:
    """Writes the dataset, then prints the rows that are surest to be Gentoos."""
    parser = argparse.ArgumentParser(description="Writes scored rows as a dataset.")
    parser.add_argument("output", help="the dataset's folder")
    parser.add_argument("--parts", type=int, default=10, help="of 1,000 rows each")
    given, flags = parser.parse_known_args()
    options = PipelineOptions(flags)

    with beam.Pipeline(runner="FnApiRunner", options=options) as pipeline:
        (
            pipeline
            | "Parts" >> beam.Create(range(given.parts))
            | "Read" >> beam.FlatMap(penguins)
            | "Score" >> beam.Map(score)
            | "Write"
            >> WriteDataset(
                given.output,
                label="species",
                splits={"train": 0.9, "test": 0.1},
                key="id",
            )
            | "Show result" >> beam.Map(print)
        )

    with beam.Pipeline(runner="FnApiRunner", options=options) as pipeline:
        (
            pipeline
            | "Read"
            >> ReadDataset(given.output, split="test", columns=["species", "gentoo"])
            | "Surest" >> beam.combiners.Top.Of(3, key=lambda row: row["gentoo"] or 0)
            | "Rows" >> beam.FlatMap(list)
            | "Show rows" >> beam.Map(print)
        )


if __name__ == "__main__":
    main()
