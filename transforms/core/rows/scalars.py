"""Convert typed columns to single values of a kind; find those that do not fit.

| kind      | taken as it is     | taken with a check                               |
| --------- | ------------------ | ------------------------------------------------ |
| int64     | integers, bools,   | uint64, decimals, floats: whole, inside int64;   |
|           | durations (count)  | text by the rules of `coerce`                    |
| float     | float16, float32   | float64: finite stays finite; integers: exactly  |
|           |                    | what float32 holds; decimals and text: rounded,  |
|           |                    | whole float64 and text as the feature says       |
| bool      | bools              | text by the rules of `coerce`. Never a number    |
| text      | text, bools, dates,| bytes: UTF-8. Floats become the shortest decimal |
|           | times, numbers     | that reads back as the same number               |
| label     | text, bools, dates,| bytes: UTF-8. Never a float: it names no class   |
|           | integers, decimals |                                                  |
| bytes     | bytes, text        |                                                  |
| timestamp | see `timestamps`   |                                                  |
| image     | inline: bytes, or the `bytes` of a struct of `bytes` and `path`; else  |
|           | text, or the `path` of such a struct                                  |

Dictionaries, run-end encoded columns and extension types count as what they hold.
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
from transforms.core.rows.coerce import coerce
from transforms.core.rows.column import (
    Column,
    fault,
    first_fault,
    narrowed,
    nothing_fits,
    plain,
    present_faults,
    taken,
    valid_text,
    without,
)
from transforms.core.rows.float32 import is_large, unheld
from transforms.core.rows.timestamps import instants
from transforms.core.schema import Feature, InexactIntegers, Kind

_INT64_MAX = 2**63 - 1


def scalars(column: pa.Array, feature: Feature) -> Column:
    """Returns a column's values as single values of the feature's kind.

    The feature's shape does not count: this is for each of a list's values too.
    """
    column = plain(column)
    if pa.types.is_dictionary(column.type):
        return _scalars_of_dictionary(column, feature)
    target = _TARGETS[feature.kind]
    if feature.kind is Kind.IMAGE and feature.inline:
        target = pa.large_binary()
    if pa.types.is_null(column.type):
        return Column(pa.nulls(len(column), target))
    if is_list(column.type):
        return nothing_fits(column, target, Reason.WRONG_SHAPE)
    if is_image_struct(column.type) and feature.kind is not Kind.IMAGE:
        # A file that is no image: its path is a text, and it itself is bytes.
        field = "path" if feature.kind is Kind.TEXT else "bytes"
        return scalars(pc.struct_field(column, field), feature)
    found = _RULES[feature.kind](column, feature)
    return nothing_fits(column, target, Reason.WRONG_TYPE) if found is None else found


def _scalars_of_dictionary(column: pa.Array, feature: Feature) -> Column:
    """Checks each distinct value once."""
    distinct = scalars(column.dictionary, feature)
    values = taken(distinct.values, column.indices)
    if distinct.faults is None:
        return Column(values)
    at = pc.fill_null(column.indices, 0).to_numpy()
    absent = numpy_mask(column.is_null())
    return Column(values, present_faults(distinct.faults.take(at), absent))


def _coerced(column: pa.Array, feature: Feature) -> Column:
    plain_feature = Feature(
        feature.name, feature.kind, inexact_integers=feature.inexact_integers
    )
    return coerce(column, plain_feature)


def _int64(column: pa.Array, feature: Feature) -> Column | None:
    kind = column.type
    if pa.types.is_uint64(kind):
        beyond = numpy_mask(pc.greater(column, pa.scalar(_INT64_MAX, kind)))
        values = pc.cast(column, pa.int64(), safe=False)
        return without(values, beyond, Reason.OUT_OF_RANGE)
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return Column(column.cast(pa.int64()))
    if pa.types.is_duration(kind):
        return Column(column.cast(pa.int64()))
    if pa.types.is_decimal(kind):
        return _coerced(_decimal_text(column), feature)
    if pa.types.is_string(kind):
        return _coerced(column, feature)
    if pa.types.is_floating(kind):
        return _whole_floats(column)
    return None


def _whole_floats(column: pa.Array) -> Column:
    numbers = raw_values(column).astype(np.float64, copy=False)
    present = numpy_mask(column.is_valid())
    # NaN and infinities are not whole.
    whole = np.isfinite(numbers) & (np.floor(numbers) == numbers)
    inside = (numbers >= -(2.0**63)) & (numbers < 2.0**63)
    fits = whole & inside & present
    values = pa.array(np.where(fits, numbers, 0).astype(np.int64), mask=~fits)
    faults = first_fault(
        fault(~whole & present, Reason.NOT_AN_INTEGER),
        fault(~inside & present, Reason.OUT_OF_RANGE),
    )
    return Column(values, faults)


def _decimal_text(column: pa.Array) -> pa.Array:
    if column.type.scale < 0:
        # Arrow would write 1.23E+4, which is no integer.
        column = column.cast(pa.decimal256(76, 0))
    return column.cast(pa.string())


def _float(column: pa.Array, feature: Feature) -> Column | None:
    kind = column.type
    if pa.types.is_float32(kind):
        return Column(column)
    if pa.types.is_floating(kind):
        return _narrow_floats(column, feature)
    if pa.types.is_integer(kind):
        return _integers_as_floats(column)
    if pa.types.is_decimal(kind):
        if kind.scale <= 0:
            return _integral_decimals_as_floats(column, feature)
        return _coerced(_decimal_text(column), feature)
    if pa.types.is_string(kind):
        return _coerced(column, feature)
    if pa.types.is_boolean(kind):
        return nothing_fits(column, pa.float32(), Reason.NOT_A_NUMBER)
    return None


def _narrow_floats(column: pa.Array, feature: Feature) -> Column:
    values = column.cast(pa.float32())
    infinite = np.isinf(raw_values(values))
    cells = Column(values)
    if infinite.any():
        infinite &= numpy_mask(pc.is_finite(column))
        cells = without(values, infinite, Reason.OUT_OF_RANGE)
    if feature.inexact_integers is InexactIntegers.ROUND or not is_large(values):
        return cells
    lost = unheld(raw_values(column).astype(np.float64, copy=False))
    lost &= numpy_mask(column.is_valid())
    rest = without(cells.values, lost, Reason.NOT_FLOAT32)
    return Column(rest.values, first_fault(cells.faults, rest.faults))


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
    back = np.where(beyond, 0.0, wide).astype(exact.dtype)
    present = numpy_mask(column.is_valid())
    lost = (beyond | (back != exact)) & present
    return without(pa.array(rounded, target, mask=~present), lost, Reason.OUT_OF_RANGE)


def _integers_as_floats(column: pa.Array) -> Column:
    try:
        # Checks that they are within 2^24, below which float32 holds every integer.
        return Column(column.cast(pa.float32()))
    except pa.ArrowInvalid:
        return exact_floats(column, pa.float32())


def _integral_decimals_as_floats(column: pa.Array, feature: Feature) -> Column:
    try:
        return _integers_as_floats(column.cast(pa.int64()))
    except pa.ArrowInvalid:
        cells = _coerced(_decimal_text(column), feature)
    # One by one: decimals beyond int64 are hardly ever read as floats.
    pairs = zip(column.to_pylist(), cells.values.to_pylist(), strict=True)
    lost = np.array(
        [a is not None and b is not None and int(a) != int(b) for a, b in pairs],
        np.bool_,
    )
    rest = without(cells.values, lost, Reason.OUT_OF_RANGE)
    return Column(rest.values, first_fault(cells.faults, rest.faults))


def _bool(column: pa.Array, feature: Feature) -> Column | None:
    kind = column.type
    if pa.types.is_boolean(kind):
        return Column(column)
    if pa.types.is_string(kind):
        return _coerced(column, feature)
    if is_number(kind):
        return nothing_fits(column, pa.bool_(), Reason.NOT_A_BOOL)
    return None


def _text(column: pa.Array, feature: Feature) -> Column | None:
    kind = column.type
    if is_bytes(kind) or pa.types.is_fixed_size_binary(kind):
        return valid_text(column)
    if pa.types.is_floating(kind) and feature.kind is Kind.LABEL:
        return None
    if pa.types.is_decimal(kind):
        return Column(_decimal_text(column))
    if pa.types.is_floating(kind):
        # Arrow's own cast writes 10000000001 as 1.0000000001e+10.
        texts = raw_values(column).astype(str)
        return Column(pa.array(texts, pa.string(), mask=~numpy_mask(column.is_valid())))
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        column = column.cast(pa.timestamp(kind.unit, "UTC"))
    elif not (is_number(kind) or pa.types.is_boolean(kind) or _is_day_or_time(kind)):
        return None
    try:
        return Column(column.cast(pa.string()))
    except pa.ArrowInvalid:
        # Dates before the year 1 and their like, which ISO 8601 does not write.
        return None


def _is_day_or_time(kind: pa.DataType) -> bool:
    return (
        pa.types.is_date(kind) or pa.types.is_time(kind) or pa.types.is_timestamp(kind)
    )


def _bytes(column: pa.Array, _: Feature) -> Column | None:
    kind = column.type
    if is_bytes(kind) or pa.types.is_fixed_size_binary(kind):
        return Column(narrowed(column, pa.binary()))
    return None


def is_image_struct(kind: pa.DataType) -> bool:
    """Tells whether values are images, or other files, as Hugging Face stores them."""
    return pa.types.is_struct(kind) and {f.name for f in kind} == {"bytes", "path"}


def _image(column: pa.Array, feature: Feature) -> Column | None:
    kind = column.type
    wanted, other = ("bytes", "path") if feature.inline else ("path", "bytes")
    if is_image_struct(kind):
        found = scalars(pc.struct_field(column, wanted), feature)
        elsewhere = pc.and_(
            found.values.is_null(), pc.struct_field(column, other).is_valid()
        )
        # The row has an image, but not in the field that the feature reads.
        lacking = fault(numpy_mask(elsewhere), Reason.MISSING_VALUE)
        return Column(found.values, first_fault(found.faults, lacking))
    if not feature.inline:
        return _paths(column) if is_bytes(kind) else None
    if pa.types.is_string(kind):
        return None
    if is_bytes(kind) or pa.types.is_fixed_size_binary(kind):
        return Column(column.cast(pa.large_binary()))
    return None


def _paths(column: pa.Array) -> Column:
    """Returns texts as paths: an empty one is none, for it would name the folder."""
    found = valid_text(column)
    none = pa.scalar(None, found.values.type)
    paths = pc.if_else(pc.equal(found.values, ""), none, found.values)
    return Column(paths, found.faults)


def _timestamp(column: pa.Array, feature: Feature) -> Column | None:
    if pa.types.is_integer(column.type):
        return _int64(column, feature)
    return instants(column, feature.unit)


_RULES: Mapping[Kind, Callable[[pa.Array, Feature], Column | None]] = {
    Kind.INT64: _int64,
    Kind.FLOAT: _float,
    Kind.BOOL: _bool,
    Kind.TEXT: _text,
    Kind.LABEL: _text,
    Kind.BYTES: _bytes,
    Kind.IMAGE: _image,
    Kind.TIMESTAMP: _timestamp,
}

_TARGETS: Mapping[Kind, pa.DataType] = {
    Kind.INT64: pa.int64(),
    Kind.FLOAT: pa.float32(),
    Kind.BOOL: pa.bool_(),
    Kind.TEXT: pa.string(),
    Kind.LABEL: pa.string(),
    Kind.BYTES: pa.binary(),
    Kind.IMAGE: pa.string(),
    Kind.TIMESTAMP: pa.int64(),
}
