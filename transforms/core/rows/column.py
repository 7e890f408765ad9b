"""The cells of a column after conversion: values, and why some do not fit.

Shared by `text_cells`, `typed_cells`, `nested` and `tensors`. Among what does not fit
are integers that float32 cannot represent exactly: it has a significand of 24 bits, and
holds every whole number up to 2^24, every second one up to 2^25, every fourth one up to
2^26. Beyond 2^53 a float64 has such gaps too, so that a whole float64 need not come
from a whole number.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import numpy_mask, raw_values
from transforms.core.reasons import Fault, Reason
from transforms.core.schema import Feature, Kind
from transforms.errors import EncodingError, bounded, shortened

Mask = npt.NDArray[np.bool_]
# For each of n cells: 0 if it fits, else the number of the reason; see `reason_of`. One
# byte a cell: most columns have no faults, and those that do are filtered by masks.
Faults = npt.NDArray[np.uint8]

Doubles = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]

FLOAT32_EXACT = 2**24
"""float32 holds every whole number up to here."""
FLOAT32_MAX = float(np.finfo(np.float32).max)
"""The largest finite float32."""
FLOAT64_EXACT = 2**53
"""float64 holds every whole number up to here."""

NO_PLACES = np.zeros(0, np.int64)
_REASONS = tuple(Reason)
_NUMBERS: Mapping[Reason, int] = {r: i for i, r in enumerate(_REASONS, start=1)}

# No list of a tf.train.Example holds nulls.
NULL_IN_LIST = (
    "a list must hold no nulls; name a value for them with fill in features, such as "
    '{fill: 0} or {fill: ""}'
)
NULL_INSIDE = "it must hold no nulls; put values in their place in the source"
# By kind, and last where the kind makes no difference.
_COMPLAINTS: Mapping[tuple[Kind | None, Reason], str] = {
    (Kind.INT64, Reason.NOT_AN_INTEGER): (
        "not an integer (a whole decimal number, no leading zeros)"
    ),
    (Kind.INT64, Reason.OUT_OF_RANGE): "outside int64, -2^63 to 2^63-1",
    (Kind.FLOAT, Reason.NOT_A_NUMBER): (
        "not a decimal number (no leading zeros, no separators)"
    ),
    (Kind.FLOAT, Reason.OUT_OF_RANGE): (
        "outside float32 (at most 3.4028235e38; integers only where it is exact)"
    ),
    (Kind.BOOL, Reason.NOT_A_BOOL): "not a bool (true or false, in any case)",
    (Kind.TIMESTAMP, Reason.OUT_OF_RANGE): (
        "outside int64 in the feature's unit, or finer than the unit"
    ),
    (None, Reason.NOT_AN_INTEGER): "not an integer",
    (None, Reason.NOT_A_NUMBER): "not a number",
    (None, Reason.NOT_FLOAT32): (
        "in a --spec file (the command spec writes one), give the feature kind: int64 "
        "or kind: text, or kind: float to accept that"
    ),
    (None, Reason.NOT_A_BOOL): "not a bool",
    (None, Reason.OUT_OF_RANGE): "out of range",
    (None, Reason.NOT_A_TIMESTAMP): (
        "not a date and time (ISO 8601, as in 2024-05-01 13:30:00)"
    ),
    (None, Reason.MISSING_VALUE): "a value is needed here",
    (None, Reason.UNKNOWN_LABEL): "not in the vocabulary that was given",
    (None, Reason.BAD_SPLIT): "not the name of a split (letters, digits, _ and -)",
    (None, Reason.INVALID_ENCODING): "not valid UTF-8",
}
# What the contract of a feature says, and the field of the feature that has it.
_RULES: Mapping[Reason, tuple[str, str]] = {
    Reason.BELOW_MIN: ("less than the min of", "at_least"),
    Reason.ABOVE_MAX: ("more than the max of", "at_most"),
    Reason.NOT_ALLOWED: ("not among the allowed", "allowed"),
    Reason.NO_MATCH: ("it must match the pattern", "matches"),
}
_RULE_BYTES = 200


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """n values of a kind, and the cells that did not fit.

    Attributes:
      values: null where missing or bad.
      faults: why cells do not fit; None where all do.
      pointed: for texts that become int64, whether one has a point or an exponent.
    """

    values: pa.Array
    faults: Faults | None = None
    pointed: bool = False

    @property
    def bad(self) -> Mask | None:
        """Which cells do not fit, as n bools; None when all fit."""
        return None if self.faults is None else self.faults > 0

    def reason_at(self, index: int) -> Reason:
        """Returns why the bad cell at `index` does not fit."""
        assert self.faults is not None, "no cell is bad"
        return reason_of(int(self.faults[index]))

    def cells_with(self, reason: Reason) -> Mask:
        """Returns n bools, true where the cell does not fit for this reason."""
        if self.faults is None:
            return np.zeros(len(self.values), np.bool_)
        return self.faults == _NUMBERS[reason]

    def without(self, bad: Mask, reason: Reason) -> "Column":
        """Returns the cells with those that are bad made null, for one reason."""
        faults = fault(bad, reason)
        if faults is None:
            return self
        none = pa.scalar(None, self.values.type)
        values = pc.if_else(pa.array(bad), none, self.values)
        return Column(values, first_fault(self.faults, faults), self.pointed)


def reason_of(number: int) -> Reason:
    """Returns the reason that is in `Faults` as this number, from 1 on."""
    return _REASONS[number - 1]


def number_of(reason: Reason) -> int:
    """Returns the number that stands for a reason in `Faults`; see `reason_of`."""
    return _NUMBERS[reason]


def fault(mask: Mask, reason: Reason) -> Faults | None:
    """Returns faults of one reason where the mask is true; None for none."""
    return mask * np.uint8(_NUMBERS[reason]) if mask.any() else None


def first_fault(*faults: Faults | None) -> Faults | None:
    """Returns each cell's first fault; None if no cell has one."""
    out: Faults | None = None
    for some in faults:
        if some is not None:
            out = some if out is None else np.where(out > 0, out, some)
    return out


def present_faults(
    faults: Faults | None, present: Mask | None
) -> tuple[Faults | None, Mask | None]:
    """Returns the faults of rows that are present, and which rows are absent or bad.

    None if there are none.
    """
    absent = None if present is None else ~present
    if faults is not None and present is not None:
        faults = faults * present
    if faults is None or not faults.any():
        return None, absent
    return faults, faults > 0 if absent is None else absent | (faults > 0)


def complaint(feature: Feature, reason: Reason, *, absent: bool = False) -> str:
    """Returns what is wrong with a cell, to follow "column 'x' holds 'y': ".

    Args:
      feature: that the cell does not fit.
      reason: why.
      absent: whether the cell is missing, and not a value in its list.
    """
    has_items = feature.is_list or feature.kind in (Kind.BOX, Kind.TENSOR)
    if reason is Reason.MISSING_VALUE and has_items and not absent:
        can_fill = feature.is_list and not feature.is_ragged
        return NULL_IN_LIST if can_fill else NULL_INSIDE
    if reason in _RULES:
        rule, field = _RULES[reason]
        limit = getattr(feature, field)
        if feature.kind is Kind.TIMESTAMP:
            limit = pa.scalar(limit, pa.timestamp(feature.unit)).cast(pa.string())
        return f"{rule} {bounded(str(limit), _RULE_BYTES)}"
    for kind in (feature.kind, None):
        if (kind, reason) in _COMPLAINTS:
            return _COMPLAINTS[kind, reason]
    sizes = ", ".join("any" if n is None else str(n) for n in feature.shape)
    shape = f" of shape [{sizes}]" if feature.shape else ""
    return f"it cannot be {feature.kind}{shape}"


@dataclasses.dataclass(frozen=True, slots=True)
class Misfit:
    """A column with cells that do not fit.

    Attributes:
      feature: what they were to become.
      raw: the column as the source has it; n values.
      faults: n of them: why a cell does not fit. See `transforms.core.rows.column`.
    """

    feature: Feature
    raw: pa.Array
    faults: Faults

    @property
    def bad(self) -> Mask:
        """Which cells do not fit, as n bools."""
        return self.faults > 0

    def complaint(self, index: int) -> Fault:
        """Returns the reason why the bad cell at `index` does not fit, and words."""
        reason = reason_of(int(self.faults[index]))
        shown = _shown(self.raw[index])
        column = self.feature.source_column
        where = f"column {column!r} holds {shown}: "
        why = complaint(self.feature, reason, absent=not self.raw[index].is_valid)
        if why in (NULL_IN_LIST, NULL_INSIDE):
            why = f"{why}, or leave the column out with --drop {column!r}"
        if reason is Reason.NOT_FLOAT32:
            lost = "float32 would round a number in it"
            if not self.feature.is_list:
                number = float(python_value(self.raw[index]))
                lost = f"as float32 {number:.0f} would become {np.float32(number):.0f}"
            why = f"{lost}; {why}"
        return Fault(reason, bounded(where + why))


def python_value(value: pa.Scalar, *, items: int | None = None) -> Any:
    """Returns a cell as a Python value; as text where Python has no such value.

    Args:
      value: the cell.
      items: how many items of a list are wanted, the first ones; None for all.
    """
    try:
        is_list = isinstance(value, pa.ListScalar) and not isinstance(
            value, pa.MapScalar
        )
        if is_list and value.is_valid:
            return value.values[:items].to_pylist()
        return value.as_py()
    except (OverflowError, ValueError, KeyError):
        # Python's times end with the year 9999, and know no zones but the named ones.
        return f"{getattr(value, 'value', 'a value')} of type {value.type}"


def blamed_of(misfits: Sequence[Misfit], count: int) -> npt.NDArray[np.int64]:
    """Returns for each of n rows the first misfit that is true of it, or -1."""
    blamed = np.full(count, -1, np.int64)
    for index in reversed(range(len(misfits))):
        blamed[misfits[index].bad] = index
    return blamed


def _shown(value: pa.Scalar) -> str:
    """Returns a cell that does not fit for messages: 'x', "12 bytes", "nothing"."""
    native = python_value(value)
    if native is None:
        return "nothing"
    if isinstance(native, bytes):
        try:
            native = native.decode()
        except UnicodeDecodeError:
            return f"{len(native)} bytes"
    text = shortened(str(native))
    return repr(text) if isinstance(native, str) else text


def nothing_fits(column: pa.Array, kind: pa.DataType, reason: Reason) -> Column:
    """Returns null cells; each one that was not missing is bad."""
    present = numpy_mask(column.is_valid())
    return Column(pa.nulls(len(column), kind), fault(present, reason))


def narrowed(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Returns texts or bytes with offsets of 32 bits."""
    try:
        return column.cast(kind)
    except pa.ArrowInvalid as error:
        raise too_large(column) from error


def too_large(column: pa.Array) -> EncodingError:
    """Returns the error for a column whose texts are over 2 GiB."""
    return EncodingError(
        "the texts of a column must be under 2 GiB in one batch of rows; found "
        f"{column.nbytes} bytes in {len(column)} rows; write the source with "
        "smaller row groups or record batches"
    )


def is_large(values: pa.Array) -> bool:
    """Tells whether one of n numbers is 2^24 or more from 0; NaN does not count."""
    extent = pc.min_max(values).as_py()
    least, most = extent["min"], extent["max"]
    return least is not None and (least <= -FLOAT32_EXACT or most >= FLOAT32_EXACT)


def large_places(values: pa.Array) -> Places:
    """Returns the places of finite numbers that are 2^24 or more from 0."""
    if not is_large(values):
        return NO_PLACES
    numbers = raw_values(values)
    large = (np.abs(numbers) >= FLOAT32_EXACT) & np.isfinite(numbers)
    if values.null_count:
        large &= np.asarray(values.is_valid().to_numpy(zero_copy_only=False), bool)
    return np.flatnonzero(large)


def unheld(numbers: Doubles) -> Mask:
    """Tells which numbers are whole, in 2^24 to 2^53, and not held by float32."""
    inside = is_beyond_float32(numbers)
    # Numbers outside might overflow float32, which NumPy warns of.
    rounded = np.where(inside, numbers, 0).astype(np.float32)
    return inside & (rounded != numbers) & (np.floor(numbers) == numbers)


def is_beyond_float32(numbers: Doubles) -> Mask:
    """Returns which numbers are above 2^24, where float32 skips integers, to 2^53."""
    size = np.abs(numbers)
    return (size > FLOAT32_EXACT) & (size <= FLOAT64_EXACT)
