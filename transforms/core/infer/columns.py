"""Infer the kind of each column: of texts by `texts`, of others by their Arrow type.

| Arrow type                       | feature                                          |
| -------------------------------- | ------------------------------------------------ |
| integers, durations              | int64                                            |
| float64                          | int64 if all values are whole and inside int64,  |
|                                  | and one is beyond 2^24; else float               |
| other floats                     | float                                            |
| bool                             | bool                                             |
| decimal, time                    | text, which holds all of it                      |
| string, and null                 | text                                             |
| date                             | timestamp in s                                   |
| timestamp                        | timestamp in its own unit                        |
| binary                           | image (inline) if 99 of 100 values start as such |
|                                  | files do, else bytes                             |
| struct of bytes and path         | image (inline), or bytes if most of its values   |
|                                  | start otherwise                                  |
| list of images                   | image (inline), shape (None,), (n,) where fixed  |
| list of those                    | the item's kind, shape (None,), (n,) where fixed |
| list of lists                    | (None, None); (n, m) and (None, m) where fixed   |
| FixedShapeTensor of float32,     | that list, of the tensor's shape                 |
| int64                            |                                                  |
| FixedShapeTensor of others       | tensor, raw, of the tensor's shape and dtype     |
| dictionary, run-end encoded      | as what they hold                                |

float32 holds whole numbers up to 2^24; a float64 column that is float does not take
whole numbers up to 2^53 that float32 does not hold, unless 1 in 100 of the numbers
beyond 2^24 has a fraction (`transforms.core.infer.evidence`).

Readers flatten structs; other structs, maps and unions have no feature. Which column
is the label, and whether float64 becomes int64, is decided in `evidence`.
"""

import dataclasses
import functools
from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa

from transforms.core.arrays import (
    chunks_of,
    is_bytes,
    is_list,
    numpy_mask,
    numpy_type,
    raw_values,
    values_and_rows,
)
from transforms.core.infer.evidence import (
    Cells,
    Evidence,
    Found,
    Inference,
    LargeNumbers,
    are_images,
    examples_of,
    extent_of,
    image_starts,
    inference,
)
from transforms.core.infer.texts import TextTally, add_texts
from transforms.core.reasons import Reason
from transforms.core.rows.column import FLOAT32_EXACT, NO_PLACES, complaint, unheld
from transforms.core.rows.common_type import FILES, plain_array, plain_type
from transforms.core.rows.conform import cast
from transforms.core.rows.typed_cells import is_image_struct
from transforms.core.schema import Feature, Kind
from transforms.errors import InputError, SpecError, nearest


def infer_columns(
    columns: Mapping[str, Cells],
    *,
    label_column: str | None = None,
) -> Inference:
    """Returns a feature for each raw column, in the mapping's order.

    Args:
      columns: name to n values.
      label_column: the column to predict. It becomes a label if it is text, and keeps
        its kind otherwise.

    Raises:
      SpecError: there is no column of the label's name.
      InputError: no feature can hold a column's type; names column and type.
    """
    if label_column is not None and label_column not in columns:
        raise SpecError(
            f"the label must be a column of the source; there is no {label_column!r}"
            f"{nearest(label_column, columns)}"
        )
    rows = len(next(iter(columns.values()), ()))
    return infer_batches([columns], label_column=label_column, rows=rows)


def infer_batches(
    batches: Iterable[Mapping[str, Cells]],
    *,
    label_column: str | None = None,
    rows: int | None = None,
) -> Inference:
    """Returns a feature for each raw column, from all rows of all batches.

    Memory: one batch. The type of a column is that of the first batch that has it.

    Args:
      batches: name to values; see `infer_columns`.
      label_column: likewise.
      rows: the number of rows of all batches, if known: then the rest of a column that
        is certainly text is not looked at.
    """
    typed: dict[str, Found] = {}
    texts: dict[str, TextTally] = {}
    order: dict[str, None] = {}
    for batch in batches:
        order.update(dict.fromkeys(batch))
        others = {k: v for k, v in batch.items() if not pa.types.is_string(v.type)}
        for name, (feature, evidence) in infer_typed(others).items():
            if name in typed:
                feature, before = typed[name]
                evidence = before.merge(evidence)
            typed[name] = (feature, evidence)
        cells = {name: batch[name] for name in batch if name not in others}
        add_texts(cells, texts, rows)
    found = typed | {name: tally.found(name) for name, tally in texts.items()}
    return inference({name: found[name] for name in order}, label_column)


def infer_typed(columns: Mapping[str, Cells]) -> dict[str, Found]:
    """Returns a feature for each column of a typed source, in the mapping's order.

    A float64 column is float here; `inference` makes int64 of one of whole numbers.

    Args:
      columns: name to n values.

    Raises:
      InputError: no feature can hold a column's type; names column and type.
    """
    inferred = {}
    for name, given in columns.items():
        kind = plain_type(given.type, FILES)
        parts = list(map(plain_array, chunks_of(given))) or [pa.nulls(0, kind)]
        feature, remark = _inferred(name, pa.chunked_array(parts, kind))
        evidence = functools.reduce(
            Evidence.merge, [_cast_part(part, feature) for part in parts]
        )
        remark = "; ".join(filter(None, (remark, evidence.remark)))
        inferred[name] = (feature, dataclasses.replace(evidence, remark=remark))
    return inferred


def _inferred(name: str, column: Cells) -> tuple[Feature, str]:
    """Returns the feature of a column by its Arrow type, and a remark or ""."""
    kind = column.type
    if isinstance(kind, pa.FixedShapeTensorType):
        return _tensor_feature(name, kind)
    shape: list[int | None] = []
    while is_list(kind):
        is_fixed = pa.types.is_fixed_size_list(kind)
        shape.append(kind.list_size if is_fixed else None)
        kind = kind.value_type
    # A record stores the lengths of lists of lists, but not those of deeper lists.
    if len(shape) > 2 and None in shape[1:]:
        raise _unusable(name, column.type)
    if None in shape[1:]:
        shape = [None, None]
    if is_image_struct(kind) and len(shape) < 2:
        starts = image_starts(column)
        # Most of the first files are others.
        if sum(starts) * 2 < len(starts):
            return Feature(name, Kind.BYTES, shape=tuple(shape)), ""
        return Feature(name, Kind.IMAGE, inline=True, shape=tuple(shape)), ""
    scalar_kind = _scalar_kind(kind)
    if scalar_kind is None:
        raise _unusable(name, column.type)
    if scalar_kind is Kind.BYTES and len(shape) < 2 and are_images(column):
        return Feature(name, Kind.IMAGE, inline=True, shape=tuple(shape)), ""
    unit = ""
    if scalar_kind is Kind.TIMESTAMP:
        unit = kind.unit if pa.types.is_timestamp(kind) else "s"
    return Feature(name, scalar_kind, shape=tuple(shape), unit=unit), _type_remark(kind)


def _unusable(name: str, kind: pa.DataType) -> InputError:
    """Returns the error of a column whose Arrow type no feature can hold."""
    return InputError(
        f"column {name!r} must be of single values, lists of them, or lists of lists "
        f"of them, to become a feature; found {str(kind)[:200]}; leave it out with "
        f"--drop {name!r}; or declare numbers of one shape as kind: tensor in a --spec"
    )


def _tensor_feature(name: str, kind: pa.FixedShapeTensorType) -> tuple[Feature, str]:
    """Returns the feature of a tensor column, axes as permuted, and a remark or ""."""
    order = kind.permutation or range(len(kind.shape))
    shape = tuple(kind.shape[i] for i in order)
    if pa.types.is_float32(kind.value_type):
        return Feature(name, Kind.FLOAT, shape=shape), ""
    if pa.types.is_int64(kind.value_type):
        return Feature(name, Kind.INT64, shape=shape), ""
    dtype = "bool"
    if not pa.types.is_boolean(kind.value_type):
        dtype = numpy_type(kind.value_type).name
    feature = Feature(name, Kind.TENSOR, shape=shape, dtype=dtype, encoding="raw")
    return feature, f"stored as the tensor's raw {dtype} values"


def _scalar_kind(kind: pa.DataType) -> Kind | None:
    """Returns the kind for single values of an Arrow type; None where there is none."""
    types = pa.types
    if types.is_boolean(kind):
        return Kind.BOOL
    if types.is_integer(kind) or types.is_duration(kind):
        return Kind.INT64
    if types.is_floating(kind):
        return Kind.FLOAT
    if types.is_date(kind) or types.is_timestamp(kind):
        return Kind.TIMESTAMP
    if types.is_string(kind) or types.is_null(kind):
        return Kind.TEXT
    if is_bytes(kind) or types.is_fixed_size_binary(kind):
        return Kind.BYTES
    return Kind.TEXT if types.is_decimal(kind) or types.is_time(kind) else None


def _type_remark(kind: pa.DataType) -> str:
    """Returns what values of a type become that users may not expect, or ""."""
    if pa.types.is_decimal(kind):
        return f"{kind} is exact as text; kind: float would round it to 24 bits"
    if pa.types.is_time(kind):
        return f"{kind} is a time of day, as text"
    if pa.types.is_duration(kind):
        return f"{kind} is counted in {kind.unit}"
    if pa.types.is_timestamp(kind) and kind.tz is None:
        return "without a time zone in the source; taken as UTC"
    return ""


def _cast_part(part: pa.Array, feature: Feature) -> Evidence:
    """Casts part of a column to its feature; counts missing values and misfits."""
    cells = cast(part, feature)
    bad = np.zeros(len(part), np.bool_) if cells.bad is None else cells.bad
    whole, numbers, remark = False, None, ""
    leaf = part.type
    while is_list(leaf):
        leaf = leaf.value_type
    # Columns of float32 and float16 lose nothing as a FloatList; float64 may.
    is_double = feature.kind is Kind.FLOAT and pa.types.is_float64(leaf)
    # Of float64 the extent of its own values: float32 would round its limits.
    values, rows = values_and_rows(part) if is_double else (cells.values, NO_PLACES)
    low, high = extent_of(values)
    if is_double:
        doubles, numbers = raw_values(values), LargeNumbers()
        if values.null_count:
            present = numpy_mask(values.is_valid())
            doubles, rows = doubles[present], rows[present]
        inside = (doubles >= -(2.0**63)) & (doubles < 2.0**63)
        whole = bool((inside & (np.floor(doubles) == doubles)).all())
        if max(-(low or 0), high or 0) >= FLOAT32_EXACT:
            lost = np.zeros_like(bad)
            lost[rows[unheld(doubles)]] = True
            # Rows that are bad in any case do not count as lost.
            lost &= ~bad
            numbers = LargeNumbers.of(doubles, int(lost.sum()), examples_of(part, lost))
    if feature.is_list and cells.cells_with(Reason.MISSING_VALUE).any():
        remark = complaint(feature, Reason.MISSING_VALUE)
    misfits = int(bad.sum())
    return Evidence(
        sampled=len(part),
        missing=cells.values.null_count - misfits,
        misfits=misfits,
        minimum=low,
        maximum=high,
        examples=examples_of(part),
        misfit_examples=examples_of(part, bad) if misfits else (),
        remark=remark,
        exact_text=pa.types.is_decimal(leaf),
        whole=whole,
        numbers=numbers,
    )
