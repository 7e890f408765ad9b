"""Planning CSV files: a sample of them, their schema, what their shards will hold."""

import difflib
import os
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from beam_pipeline.sources import Inputs, PlannedSource, portions_of, rule_of
from beam_pipeline.spec import Spec
from transforms import files
from transforms.core.coerce import coerce
from transforms.core.encoder import ExampleEncoder
from transforms.core.frame import OVERHEAD_BYTES
from transforms.core.infer import infer_features
from transforms.core.placement import (
    SplitRule,
    SplitSource,
    is_split_name,
    usual_order,
)
from transforms.core.schema import Feature, Kind, Schema
from transforms.errors import SpecError
from transforms.formats.csv import CsvDialect, Sample, sample_blocks
from transforms.formats.csv_sample import SAMPLE_BYTES
from transforms.formats.csv_table import CsvTable

__all__ = ["plan_csv"]

# Rows whose records are encoded to learn how large records are.
_SIZED_ROWS = 20_000


def plan_csv(spec: Spec, inputs: Inputs) -> PlannedSource:
    """Plans CSV files: samples them and infers their schema.

    Raises:
      SourceError: they cannot be read as CSV under one header.
      SpecError: a setting makes no sense for them.
    """
    if spec.preset != "default" or spec.feature_names:
        raise SpecError("preset and feature_names are for images; CSV has its header.")
    tabs = all(entry.path.lower().endswith(".tsv") for entry in inputs.entries)
    dialect = CsvDialect(
        delimiter=("\t" if tabs else ",") if spec.delimiter is None else spec.delimiter,
        header=spec.header,
        columns=None if spec.columns is None else tuple(spec.columns),
        encoding=spec.encoding,
    )
    sample = sample_blocks(
        [
            (entry.path, entry.size, _opener(os.path.join(inputs.root, entry.path)))
            for entry in inputs.entries
        ],
        dialect,
    )
    columns = tuple(sample.columns)
    if spec.split_column and spec.split_column not in columns:
        near = difflib.get_close_matches(spec.split_column, columns, n=1, cutoff=0.0)
        raise SpecError(
            f"split_column must be a column of the source; found "
            f"{spec.split_column!r}; the nearest name is {near[0]!r}."
        )
    inference = infer_features(
        {k: v for k, v in sample.columns.items() if k != spec.split_column},
        label_column=spec.label_column,
    )
    schema = Schema(inference.features)
    rule, portions = _csv_rule(spec, sample)
    total_rows = _total_rows(sample, inputs)
    rows = round(total_rows)
    if spec.limit is not None:
        rows = min(rows, spec.limit)
    fraction = rows / total_rows if total_rows else 0.0
    row_bytes = _record_bytes(sample, schema)
    sizes = [entry.size for entry in inputs.entries]
    listing = pa.table(
        {
            "path": [entry.path for entry in inputs.entries],
            "position": np.cumsum([0, *sizes[:-1]]),
            "stamp": pa.array([entry.stamp for entry in inputs.entries], pa.int64()),
        }
    )
    return PlannedSource(
        make=lambda path: CsvTable(
            root=inputs.root,
            listing=path,
            dialect=dialect,
            columns=columns,
            schema=schema,
            split_column=spec.split_column or "",
            block_bytes=_block_bytes(inputs.bytes),
            limit=spec.limit,
        ),
        listing=listing,
        schema=schema,
        rule=rule,
        records={name: round(rows * share) for name, share in portions.items()},
        record_bytes={
            name: round(rows * row_bytes * share) for name, share in portions.items()
        },
        input_bytes={name: max(round(inputs.bytes * fraction), 1) for name in portions},
        classes={},
        skipped=inputs.skipped,
        expected_rows=None,
        rows_bytes=inputs.bytes,
        evidence=dict(zip(schema.names, inference.evidence, strict=True)),
        layout=f"CSV of {len(columns)} columns",
    )


def _opener(path: str) -> Callable[[], object]:
    return lambda: files.open_input(path)


def _csv_rule(spec: Spec, sample: Sample) -> tuple[SplitRule, dict[str, float]]:
    if not spec.split_column:
        rule = rule_of(spec)
        return rule, portions_of(rule)
    counts: dict[str, int] = {}
    for item in sample.columns[spec.split_column].value_counts().to_pylist():
        # Cells that name no split are rejects, row by row, when they are read.
        if item["values"] and is_split_name(item["values"]):
            counts[item["values"]] = item["counts"]
    total = sum(counts.values()) or 1
    names = tuple(usual_order(counts))
    return SplitRule(SplitSource.COLUMN, names), {
        name: counts[name] / total for name in names
    }


def _total_rows(sample: Sample, inputs: Inputs) -> float:
    """Returns how many rows there are: exact where all of them were sampled."""
    seen = sample.rows + sample.miscounted
    if inputs.bytes <= SAMPLE_BYTES or not sample.sampled_bytes:
        return seen
    return inputs.bytes * seen / sample.sampled_bytes


def _record_bytes(sample: Sample, schema: Schema) -> float:
    """Returns the mean size of a framed record, from some rows of the sample."""
    columns = []
    fits = np.ones(min(sample.rows, _SIZED_ROWS), bool)
    for feature in schema.features:
        # A class id takes less than the name; the estimate may be too high by that.
        kind = Kind.TEXT if feature.kind is Kind.LABEL else feature.kind
        texts = sample.columns[feature.source_column].slice(0, _SIZED_ROWS)
        coerced = coerce(texts.combine_chunks(), Feature(feature.name, kind))
        columns.append(coerced.values)
        if coerced.bad is not None:
            fits &= ~coerced.bad
    if not fits.any():
        return 0.0
    rows = pa.record_batch(columns, names=schema.names).filter(pa.array(fits))
    encoded = ExampleEncoder(rows.schema).encode(rows)
    return len(encoded.buffers()[2]) / len(encoded) + OVERHEAD_BYTES


def _block_bytes(total: int) -> int:
    """Returns the size of blocks: from the input alone, never from the workers.

    Blocks times shards stays under half a million: with shards of 150 MB of records,
    about three times their text, that is total ** 2 / (50 MB * block).
    """
    wanted = total * total // (50_000_000 * 500_000)
    size = 8 << 20
    while size < wanted and size < 256 << 20:
        size *= 2
    return size
