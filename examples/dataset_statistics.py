"""Statistics of a dataset as a table: count, missing, mean, min, max, and classes.

    python examples/dataset_statistics.py out/penguins --label species --split train

    feature         count   missing   mean      min    max
    species         289     0
    bill_depth_mm   287     2         17.1307   13.1   21.5
    body_mass_g     287     2         4219.69   2700   6300

    species     records
    Adelie      126
    Gentoo      108
    Chinstrap   55

Flags of Beam may follow, such as --runner. Only counts and sums of each batch of rows
leave the workers. Lists count by their items.
"""

import argparse
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.compute as pc
from apache_beam.options.pipeline_options import PipelineOptions

from beam_tfrecord import ReadDataset

# Column -> what is known of its values.
Statistics = dict[str, dict[str, Any]]


def count(batch: pa.RecordBatch, label: str | None) -> Statistics:
    """Returns the statistics of one batch of rows."""
    out: Statistics = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        missing = column.null_count
        found: dict[str, Any] = {"count": len(column) - missing, "missing": missing}
        if name == label:
            pairs = column.drop_null().value_counts().to_pylist()
            found["classes"] = Counter({p["values"]: p["counts"] for p in pairs})
        while hasattr(column.type, "value_type"):
            column = column.flatten()
        if pa.types.is_boolean(column.type):
            column = column.cast(pa.int64())
        if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
            extent = pc.min_max(column).as_py()
            found["number"] = len(column) - column.null_count
            found["sum"] = pc.sum(column.cast(pa.float64())).as_py() or 0.0
            found["min"] = extent["min"]
            found["max"] = extent["max"]
        out[name] = found
    return out


def merged(parts: Iterable[Statistics]) -> Statistics:
    """Returns the statistics of all batches from those of some."""
    join = {"min": min, "max": max}
    out: Statistics = {}
    for part in parts:
        for name, found in part.items():
            known = out.setdefault(name, {})
            for key, value in found.items():
                if known.get(key) is None:
                    known[key] = value
                elif value is not None:
                    known[key] = join.get(key, lambda a, b: a + b)(known[key], value)
    return out


def table(rows: Iterable[Iterable[str]]) -> str:
    """Returns rows of texts in aligned columns."""
    rows = [list(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "   ".join(
            f"{text:{width}}" for text, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in rows
    )


def shown(statistics: Statistics) -> str:
    """Returns the tables that are printed."""
    head = ["feature", "count", "missing", "mean", "min", "max"]
    rows = [head, *(_cells(name, found) for name, found in statistics.items())]
    tables = [table(rows)]
    for name, found in statistics.items():
        if "classes" in found:
            classes = sorted(found["classes"].items(), key=lambda pair: -pair[1])
            cells = [(str(value), str(number)) for value, number in classes]
            tables.append(table([(name, "records"), *cells]))
    return "\n\n".join(tables)


def _cells(name: str, found: Mapping[str, Any]) -> list[str]:
    numbers = [""] * 3
    if found.get("number"):
        mean = found["sum"] / found["number"]
        numbers = [f"{each:.6g}" for each in (mean, found["min"], found["max"])]
    return [name, str(found["count"]), str(found["missing"]), *numbers]


def main() -> None:
    """Reads the command line, then the dataset."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dataset")
    parser.add_argument("--split")
    parser.add_argument("--label", help="the column whose values are counted")
    given, flags = parser.parse_known_args()
    # Beam's default would first look for another runner on the network.
    options = PipelineOptions(["--runner=FnApiRunner", *flags])
    with beam.Pipeline(options=options) as pipeline:
        (
            pipeline
            | ReadDataset(given.dataset, given.split, batches=True)
            | "Count" >> beam.Map(count, given.label)
            | "Merge" >> beam.CombineGlobally(merged)
            | "Show" >> beam.Map(shown)
            | "Print" >> beam.Map(print)
        )


if __name__ == "__main__":
    main()
