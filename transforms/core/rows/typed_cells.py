"""Typed columns as single values of a kind, by their Arrow type.

| kind      | taken as it is     | taken with a check                               |
| --------- | ------------------ | ------------------------------------------------ |
| int64     | integers, bools,   | uint64, decimals, floats: whole, inside int64;   |
|           | durations (count)  | text by the rules of `text_cells`                |
| float     | float16, float32   | other numbers and text: finite stays finite;     |
|           |                    | rounded; integers, and other whole ones up to    |
|           |                    | 2^53, that float32 does not hold as the feature  |
|           |                    | says                                             |
| bool      | bools              | text by its rules. Never a number                |
| text      | text, bools, dates,| bytes: UTF-8. Floats become the shortest decimal |
|           | times, numbers     | that reads back as the same number               |
| label     | as text            | as text                                          |
| bytes     | bytes, text        |                                                  |
| timestamp | integers (counts)  | dates, timestamps, no zone is UTC; text by rules |
| image     | inline: bytes, or the `bytes` of a struct of `bytes` and `path`; else  |
|           | text, or the `path` of such a struct                                  |

Columns have plain types (see `common_type`): no dictionaries, runs, views, extensions.
"""

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import (
    is_bytes,
    is_list,
    is_number,
    numpy_mask,
    numpy_type,
    raw_values,
)
from transforms.core.reasons import Reason
from transforms.core.rows.column import (
    Column,
    fault,
    first_fault,
    is_large,
    narrowed,
    nothing_fits,
    unheld,
)
from transforms.core.rows.common_type import plain_array
from transforms.core.rows.text_cells import (
    PER_SECOND,
    coerce,
    exact_integers,
    not_utf8,
    rescaled,
    without_missing,
)
from transforms.core.schema import Feature, InexactIntegers, Kind, row_type


def valid_text(column: pa.Array) -> Column:
    """Returns a typed column of texts or bytes as string; what is not UTF-8 is bad.

    Not all of Arrow's readers check: a string column of Parquet may hold any bytes.
    """
    data, types = column, pa.types
    if types.is_string(column.type) or types.is_fixed_size_binary(column.type):
        data = column.cast(pa.binary())
    try:
        return Column(data.cast(pa.string()))
    except pa.ArrowInvalid:
        bad = not_utf8(data)
    if bad is None:
        # The texts are valid, but too many for offsets of 32 bits.
        return Column(narrowed(data, pa.string()))
    sound = Column(data).without(bad, Reason.INVALID_ENCODING)
    return Column(narrowed(sound.values, pa.string()), sound.faults)


def scalars(column: pa.Array, feature: Feature) -> Column:
    """Returns a column's values as single values of the feature's kind.

    The feature's shape does not count: this is for each of a list's values too. The
    column is of a plain type; see `common_type`.
    """
    kind = column.type
    target = row_type(Feature("", feature.kind, inline=feature.inline))
    if pa.types.is_null(kind):
        return Column(pa.nulls(len(column), target))
    if is_list(kind):
        return nothing_fits(column, target, Reason.WRONG_SHAPE)
    if is_image_struct(kind) and feature.kind is not Kind.IMAGE:
        # A file that is no image: its path is a text, and it itself is bytes.
        field = "path" if feature.kind is Kind.TEXT else "bytes"
        return scalars(plain_array(pc.struct_field(column, field)), feature)
    if pa.types.is_string(kind) and feature.kind in _OF_TEXT:
        return coerce(column, feature)
    cells = _RULES[feature.kind](column, feature)
    return nothing_fits(column, target, Reason.WRONG_TYPE) if cells is None else cells


def _int64(column: pa.Array, _: Feature) -> Column | None:
    """Returns numbers, bools and durations as int64; None for other types."""
    kind = column.type
    is_count = pa.types.is_boolean(kind) or pa.types.is_duration(kind)
    return integers(column, pa.int64()) if is_count or is_number(kind) else None


def integers(column: pa.Array, target: pa.DataType) -> Column:
    """Returns numbers, bools, durations or texts as integers of a type."""
    kind = column.type
    faults = None
    if pa.types.is_decimal(kind):
        column = decimal_text(column)
    if pa.types.is_string(column.type):
        coerced = coerce(column, Feature("", Kind.INT64))
        if pa.types.is_uint64(target):
            coerced = exact_integers(without_missing(column), target)
        column, faults = coerced.values, coerced.faults
    elif pa.types.is_floating(kind):
        numbers = raw_values(column).astype(np.float64, copy=False)
        present = numpy_mask(column.is_valid())
        # NaN and infinities are not whole.
        whole = np.isfinite(numbers) & (np.floor(numbers) == numbers)
        inside = (numbers >= -(2.0**63)) & (numbers < 2.0**63)
        fits = whole & inside & present
        column = pa.array(np.where(fits, numbers, 0).astype(np.int64), mask=~fits)
        not_whole = fault(~whole & present, Reason.NOT_AN_INTEGER)
        faults = first_fault(not_whole, fault(~inside & present, Reason.OUT_OF_RANGE))
    elif pa.types.is_boolean(kind):
        column = column.cast(pa.uint8())
    elif pa.types.is_duration(kind):
        column = column.cast(pa.int64())
    elif not pa.types.is_integer(kind):
        return scalars(column, Feature("", Kind.INT64))
    try:
        return Column(column.cast(target), faults)
    except pa.ArrowInvalid:
        limits, numbers = np.iinfo(numpy_type(target)), raw_values(column)
    beyond = (numbers < limits.min) | (numbers > limits.max)
    beyond &= numpy_mask(column.is_valid())
    cells = Column(column, faults).without(beyond, Reason.OUT_OF_RANGE)
    return Column(cells.values.cast(target, safe=False), cells.faults)


def decimal_text(column: pa.Array) -> pa.Array:
    """Returns decimals as texts of all their digits, without an exponent."""
    if column.type.scale < 0:
        # Arrow would write 1.23E+4, which is no integer.
        column = column.cast(pa.decimal256(76, 0))
    return column.cast(pa.string())


def _float(column: pa.Array, feature: Feature) -> Column | None:
    """Returns numbers as float32, or refuses what it rounds; None for other types."""
    kind = column.type
    if pa.types.is_float32(kind):
        return Column(column)
    if pa.types.is_boolean(kind):
        return nothing_fits(column, pa.float32(), Reason.NOT_A_NUMBER)
    if pa.types.is_decimal(kind):
        return coerce(decimal_text(column), feature)
    if not is_number(kind):
        return None
    cells = narrow_floats(column, pa.float32())
    if feature.inexact_integers is InexactIntegers.ROUND or not is_large(cells.values):
        return cells
    if pa.types.is_integer(kind):
        # These are known to the last digit beyond 2^53, too.
        lost = exact_floats(column, pa.float32()).cells_with(Reason.OUT_OF_RANGE)
    else:
        lost = unheld(raw_values(column).astype(np.float64, copy=False))
        lost &= numpy_mask(column.is_valid())
    return cells.without(lost, Reason.NOT_FLOAT32)


def narrow_floats(column: pa.Array, target: pa.DataType) -> Column:
    """Returns numbers as floats, rounded: what is finite stays so, or does not fit."""
    values = column.cast(target, safe=False)
    infinite = np.isinf(raw_values(values))
    if not infinite.any():
        return Column(values)
    infinite &= np.isfinite(raw_values(column)) & numpy_mask(column.is_valid())
    return Column(values).without(infinite, Reason.OUT_OF_RANGE)


def exact_floats(column: pa.Array, target: pa.DataType) -> Column:
    """Returns integers as floats; those that the float type does not hold are bad."""
    exact = raw_values(column)
    with np.errstate(over="ignore"):
        rounded = exact.astype(numpy_type(target))
    # One more than the largest integer is a power of two, which a float holds. A float
    # of that size was rounded up, and converting it back would be undefined.
    limit = 2.0 ** (8 * exact.itemsize - (exact.dtype.kind == "i"))
    wide = rounded.astype(np.float64)
    beyond = wide >= limit
    present = numpy_mask(column.is_valid())
    lost = beyond | (np.where(beyond, 0.0, wide).astype(exact.dtype) != exact)
    values = pa.array(rounded, target, mask=~present)
    return Column(values).without(lost & present, Reason.OUT_OF_RANGE)


def _bool(column: pa.Array, _: Feature) -> Column | None:
    """Returns bools; numbers do not fit, not even 0 and 1; None for other types."""
    if pa.types.is_boolean(column.type):
        return Column(column)
    if is_number(column.type):
        return nothing_fits(column, pa.bool_(), Reason.NOT_A_BOOL)
    return None


def _text(column: pa.Array, _: Feature) -> Column | None:
    """Returns values as text, instants in UTC; None for types that have no text."""
    kind = column.type
    if is_bytes(kind) or pa.types.is_fixed_size_binary(kind):
        return valid_text(column)
    if pa.types.is_decimal(kind):
        return Column(decimal_text(column))
    if pa.types.is_floating(kind):
        # Arrow's own cast writes 10000000001 as 1.0000000001e+10.
        texts = raw_values(column).astype(str)
        return Column(pa.array(texts, pa.string(), mask=~numpy_mask(column.is_valid())))
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        column = column.cast(pa.timestamp(kind.unit, "UTC"))
    elif pa.types.is_duration(kind) or pa.types.is_nested(kind):
        return None
    try:
        return Column(column.cast(pa.string()))
    except pa.ArrowException:
        # Dates before the year 1 and their like, which ISO 8601 does not write.
        return None


def _bytes(column: pa.Array, feature: Feature) -> Column | None:
    """Returns bytes; None for other types, and for texts where images are due."""
    kind = column.type
    is_image = feature.kind is Kind.IMAGE
    if is_image and pa.types.is_string(kind):
        return None
    if is_bytes(kind) or pa.types.is_fixed_size_binary(kind):
        target = pa.large_binary() if is_image else pa.binary()
        return Column(narrowed(column, target))
    return None


def is_image_struct(kind: pa.DataType) -> bool:
    """Tells whether values are images, or other files, as Hugging Face stores them."""
    return pa.types.is_struct(kind) and {f.name for f in kind} == {"bytes", "path"}


def _image(column: pa.Array, feature: Feature) -> Column | None:
    """Returns bytes of images in the table, or else paths; None for other types."""
    if is_image_struct(column.type):
        field, other = ("bytes", "path") if feature.inline else ("path", "bytes")
        cells = scalars(plain_array(pc.struct_field(column, field)), feature)
        has_other = pc.struct_field(column, other).is_valid()
        elsewhere = numpy_mask(pc.and_(cells.values.is_null(), has_other))
        # The row has an image, but not in the field that the feature reads.
        lacking = fault(elsewhere, Reason.MISSING_VALUE)
        return Column(cells.values, first_fault(cells.faults, lacking))
    if feature.inline:
        return _bytes(column, feature)
    if not is_bytes(column.type):
        return None
    cells = valid_text(column)
    # An empty path is none, for it would name the folder.
    none = pa.scalar(None, pa.string())
    return Column(
        pc.if_else(pc.equal(cells.values, ""), none, cells.values), cells.faults
    )


def _timestamp(column: pa.Array, feature: Feature) -> Column | None:
    """Returns times in the feature's unit since 1970, in UTC; None for other types."""
    kind = column.type
    scale = PER_SECOND[feature.unit or "s"]
    if pa.types.is_integer(kind):
        return _int64(column, feature)
    if pa.types.is_date(kind):
        column = column.cast(pa.timestamp("s" if pa.types.is_date32(kind) else "ms"))
    elif not pa.types.is_timestamp(kind):
        return None
    return rescaled(column.cast(pa.int64()), PER_SECOND[column.type.unit], scale)


_OF_TEXT = (Kind.INT64, Kind.FLOAT, Kind.BOOL, Kind.TIMESTAMP)
_RULES: Mapping[Kind, Callable[[pa.Array, Feature], Column | None]] = {
    Kind.INT64: _int64,
    Kind.FLOAT: _float,
    Kind.BOOL: _bool,
    Kind.TEXT: _text,
    Kind.LABEL: _text,
    Kind.BYTES: _bytes,
    Kind.IMAGE: _image,
    Kind.FILE: _image,
    Kind.TIMESTAMP: _timestamp,
}
