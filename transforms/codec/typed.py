"""Rows and Arrow batches to Examples under a schema.

What a value may be, `transforms.core.rows.values` decides, of columns of Arrow, too.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.codec.schemas import NOTHING, Coding, CodingFeature, Row, RowError
from transforms.core.arrays import is_bytes, numpy_mask
from transforms.core.example.encoder import encode_examples
from transforms.core.rows.column import complaint, reason_of
from transforms.core.rows.common_type import plain
from transforms.core.rows.conform import contract_faults, filling_of
from transforms.core.rows.python_kinds import OddValueError, plain_values, python_value
from transforms.core.rows.record_columns import record_columns
from transforms.core.rows.tensors import PROTO
from transforms.core.rows.values import (
    family_of_column,
    fitted_column,
    misfit,
    strict_cast,
)
from transforms.core.schema import Missing, Unknown
from transforms.errors import SHOWN_CHARS, EncodingError, bounded


def encode_typed(rows: Sequence[Row], coding: Coding) -> list[bytes]:
    """Returns n rows as n Examples; the schema has all of their keys.

    Raises:
      RowError: a value does not fit its feature.
    """
    columns = {}
    for coded in coding.features:
        values = [row.get(coded.feature.name) for row in rows]
        if coded.ids is not None:
            values = _numbered(values, coded)
        try:
            column = fitted_column(values, coded.feature)
        except OddValueError as error:
            index = max(error.index, 0)
            raise RowError(misfit(values, coded.given, error), index) from error
        columns[coded.feature.name] = _completed(column, coded)
    return _records(columns, coding, len(rows))


def _records(
    columns: Mapping[str, pa.Array], coding: Coding, count: int
) -> list[bytes]:
    features = [coded.feature for coded in coding.features]
    if not features:
        return [NOTHING] * count
    rows = pa.table(dict(columns))
    return encode_examples(pa.record_batch(record_columns(rows, features)))


def _completed(column: pa.Array, each: CodingFeature) -> pa.Array:
    """Returns a column with missing values filled in; refuses what is beyond limits."""
    feature = each.feature
    fill: Any = feature.constant
    if fill is None and feature.missing is Missing.FILL:
        fill = feature.fill
    if column.null_count and fill is not None:
        if each.ids is not None:
            (fill,) = _numbered([fill], each)
        places = pa.array(np.zeros(len(column), np.int64))
        column = pc.coalesce(column, filling_of(fill, feature).take(places))
    elif column.null_count and feature.missing is Missing.REJECT:
        raise RowError(
            f"feature {feature.name!r} must have a value; it has none",
            int(np.argmax(numpy_mask(column.is_null()))),
        )
    # What is said of other values is for sources that are read.
    for faults in contract_faults(column, feature) if each.is_class else ():
        index = int(np.argmax(faults))
        shown = bounded(repr(column[index].as_py()), SHOWN_CHARS)
        why = complaint(feature, reason_of(int(faults[index])))
        raise RowError(f"feature {feature.name!r} cannot hold {shown}: {why}", index)
    return column


def _numbered(values: list[Any], each: CodingFeature) -> list[Any]:
    """Returns class ids in the place of class names."""
    ids = each.ids
    assert ids is not None, "only labels with a vocabulary have names"
    unknown = len(ids) if each.given.unknown is Unknown.OOV else None

    def number(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [number(item) for item in value]
        if not isinstance(value, str):
            return value
        return ids.get(value, unknown if unknown is not None else value)

    out = [number(value) for value in plain_values(values)]
    for index, value in enumerate(out):
        if isinstance(value, str):
            raise RowError(
                f"feature {each.given.name!r} cannot hold "
                f"{bounded(repr(value), SHOWN_CHARS)}: it is no class of the "
                f"vocabulary ({len(ids):,} names)",
                index,
            )
    return out


def encode_table(rows: pa.RecordBatch, coding: Coding | None) -> list[bytes]:
    """Returns the n rows of an Arrow batch as n Examples.

    Raises:
      EncodingError: a column or a value does not fit; names row, feature and value.
    """
    if coding is None:
        return encode_examples(rows) if rows.num_columns else []
    names = rows.schema.names
    places = {name: index for index, name in enumerate(names)}
    odd = sorted(places.keys() - coding.names)
    if odd or len(places) < len(names):
        raise EncodingError(
            f"A batch must have the columns of the schema, each once; found "
            f"{bounded(', '.join(odd or names), 300)}. Drop the others, or rename them."
        )
    columns = {}
    try:
        for coded in coding.features:
            position = places.get(coded.feature.name)
            column = (
                pa.nulls(rows.num_rows) if position is None else rows.column(position)
            )
            columns[coded.feature.name] = _typed(column, coded)
        return _records(columns, coding, rows.num_rows)
    except RowError as error:
        raise EncodingError(bounded(f"row {error.index + 1}: {error}")) from error


def _typed(column: pa.Array, each: CodingFeature) -> pa.Array:
    """Returns a column of any Arrow type as the feature's, as strictly as values."""
    column = plain(column)
    if each.ids is not None and family_of_column(column.type) == "text":
        column = pa.array(_numbered(column.to_pylist(), each))
    feature = each.feature
    if feature.encoding == PROTO and is_bytes(column.type):
        # Serialised tensors, as `decode_table` gives them.
        return _completed(column, each)
    try:
        return _completed(strict_cast(column, feature), each)
    except OddValueError as error:
        shown = bounded(repr(python_value(column[error.index])), SHOWN_CHARS)
        raise RowError(
            f"feature {each.given.name!r} of kind {each.given.kind} cannot hold "
            f"{shown} (of a column of {bounded(str(column.type), 80)}): {error}",
            error.index,
        ) from error
