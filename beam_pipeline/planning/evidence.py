"""Sample statistics that support a declared feature."""

import dataclasses
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.infer.evidence import (
    EXAMPLE_ITEMS,
    EXAMPLES,
    Evidence,
    example_text,
    extent_of,
    first_distinct,
)
from transforms.core.rows.conform import Misfit, conform
from transforms.core.rows.python_kinds import python_value
from transforms.core.schema import Feature, Kind, Missing, Schema
from transforms.errors import bounded
from transforms.storage.paths import without_access

Columns = Mapping[str, pa.Array | pa.ChunkedArray]

# Rows to look at; fewer for kinds whose values are large.
_ROWS = 100_000
_ROWS_OF_LARGE = 256
_LARGE = frozenset([Kind.BYTES, Kind.IMAGE, Kind.TENSOR])
# Of random large values float32 makes a few in 100 equal by chance, which harms nobody.
# Of ids and seconds in a row it leaves one in 8 to one in 128.
_LEFT_IN_100 = 50
_MEASURED = frozenset([Kind.INT64, Kind.FLOAT, Kind.TIMESTAMP])


def evidence_of(
    feature: Feature, columns: Columns, origins: pa.Array, *, are_paths: bool = False
) -> Evidence:
    """Returns what a sample holds for a feature, and what of it does not fit.

    Args:
      feature: with a column, or a pattern over the paths of files.
      columns: raw columns by name, n values each.
      origins: paths of files; what a pattern without a column is matched against.
      are_paths: whether the values are paths of images, as those of images are: what
        they say of how to reach their place is not shown.
    """
    feature = dataclasses.replace(feature, missing=Missing.OMIT)
    raw: dict[str, pa.Array] = {}
    if feature.pattern and not feature.column:
        count = len(origins)
    else:
        column = _head(columns[feature.source_column], feature)
        raw, count = {feature.source_column: column}, len(column)
        origins = pa.nulls(count, pa.string())
    misfits: list[Misfit] = []
    if feature.kind is Kind.IMAGE:
        values = raw[feature.source_column]
    else:
        rows, misfits = conform(raw, Schema((feature,)), count, origins)
        values = rows.column(0)
    shown = values if feature.pattern else raw[feature.source_column]
    bad = sum(int(misfit.bad.sum()) for misfit in misfits)
    odd: list[str] = []
    for misfit in misfits:
        odd += _examples(misfit.raw.filter(pa.array(misfit.bad)))
    is_measured = feature.kind in _MEASURED
    minimum, maximum = extent_of(values) if is_measured else (None, None)
    return Evidence(
        sampled=count,
        missing=shown.null_count,
        misfits=bad,
        minimum=minimum,
        maximum=maximum,
        examples=_examples(shown, are_paths=are_paths),
        misfit_examples=tuple(odd[:EXAMPLES]),
    )


def with_classes(evidence: Evidence, column: pa.Array | pa.ChunkedArray) -> Evidence:
    """Returns the evidence for a label, with how many class names there are."""
    while pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        column = pc.list_flatten(column)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    names = pc.unique(column).drop_null()
    return dataclasses.replace(evidence, distinct=len(names), examples=_examples(names))


def rounding_notes(evidence: Mapping[str, Evidence]) -> tuple[str, ...]:
    """Returns a sentence for each feature whose values float32 hardly tells apart."""
    return tuple(
        bounded(
            f"float32 makes {facts.told_apart:,} of {facts.large:,} distinct values of "
            f"{name!r} that were sampled, all of 2^24 and more; kind: text keeps them, "
            f"and so does kind: int64 of whole numbers"
        )
        for name, facts in evidence.items()
        if facts.large and facts.told_apart * 100 <= facts.large * _LEFT_IN_100
    )


def _head(column: pa.Array | pa.ChunkedArray, feature: Feature) -> pa.Array:
    part = column.slice(0, _ROWS_OF_LARGE if feature.kind in _LARGE else _ROWS)
    return part.combine_chunks() if isinstance(part, pa.ChunkedArray) else part


def _examples(values: pa.Array, *, are_paths: bool = False) -> tuple[str, ...]:
    def text(value: pa.Scalar) -> str:
        found = python_value(value, items=EXAMPLE_ITEMS)
        return _text(found, are_paths=are_paths)

    return first_distinct(values.slice(0, _ROWS_OF_LARGE), text)


def _text(value: object, *, are_paths: bool) -> str:
    if isinstance(value, dict):
        value = value.get("bytes") or value.get("path") or ""
    if are_paths and isinstance(value, list):
        value = [without_access(str(each)) for each in value]
    elif are_paths and isinstance(value, str):
        value = without_access(value)
    return example_text(value)
