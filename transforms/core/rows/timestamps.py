"""Convert dates and times to counts of a unit since 1970-01-01 00:00:00 UTC.

| from                    | taken as                                                |
| ----------------------- | ------------------------------------------------------- |
| date                    | its first instant, UTC                                  |
| timestamp with a zone   | the instant that it is                                  |
| timestamp without       | UTC: no local zone is ever looked at                    |
| integer                 | the count itself, in the feature's unit (see `scalars`) |
| text                    | ISO 8601, below                                         |

    2024-05-01    2024-05-01 13:30    2024-05-01T13:30:00.5    2024-05-01T13:30:00+02:00

Of text: years 0000 to 9999 of the Gregorian calendar; between date and time a space, T
or t; seconds may be left out, fractions have any number of digits; behind it Z, z,
+hh, +hhmm, +hh:mm, or nothing, which is UTC. Spaces and tabs around it are ignored,
`MISSING_WORDS` are missing. No leap second, no 24:00, no day beyond the month's end.

An instant is refused (OUT_OF_RANGE) where int64 or the unit cannot hold it exactly:
13:30:00.5 is no whole number of seconds. Source: ISO 8601:2004, RFC 3339.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import numpy_mask, offsets_of, raw_values
from transforms.core.reasons import Reason
from transforms.core.rows.coerce import trimmed, without_missing
from transforms.core.rows.column import (
    Column,
    Mask,
    fault,
    first_fault,
    without,
)

DEFAULT_UNIT = "s"
PER_SECOND: Mapping[str, int] = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}

_DAY = 86_400
_NANO = 10**9
_FORM = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"([ Tt][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?"
    r"([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)?)?$"
)
_TAIL = r"^(?P<fraction>\.[0-9]+)?(?P<zone>[Zz]|[+-][0-9]{2}:?[0-9]{0,2})?$"
_MINUTES_END, _SECONDS_END = 16, 19

Ints = npt.NDArray[np.int64]


def instants(column: pa.Array, unit: str) -> Column | None:
    """Returns n dates, timestamps or texts as int64 counts of the unit.

    None where the column's type is another. No unit means `DEFAULT_UNIT`.
    """
    kind = column.type
    scale = PER_SECOND[unit or DEFAULT_UNIT]
    if pa.types.is_string(kind):
        return _of_text(column, scale)
    if pa.types.is_timestamp(kind):
        return _rescaled(column, PER_SECOND[kind.unit], scale)
    if pa.types.is_date64(kind):
        return _rescaled(column, 1000, scale)
    if pa.types.is_date32(kind):
        days = column.cast(pa.int32()).cast(pa.int64())
        return _multiplied(days, _DAY * scale)
    return None


def _rescaled(column: pa.Array, found: int, wanted: int) -> Column:
    counts = column.cast(pa.int64())
    if wanted >= found:
        return _multiplied(counts, wanted // found)
    each = found // wanted
    whole, rest = np.divmod(raw_values(counts), each)
    lost = (rest != 0) & numpy_mask(counts.is_valid())
    absent = ~numpy_mask(counts.is_valid())
    values = pa.array(whole, pa.int64(), mask=absent)
    return without(values, lost, Reason.OUT_OF_RANGE)


def _multiplied(counts: pa.Array, factor: int) -> Column:
    if factor == 1:
        return Column(counts)
    try:
        return Column(pc.multiply_checked(counts, factor))
    except pa.ArrowInvalid:
        most = (2**63 - 1) // factor
    beyond = numpy_mask(
        pc.or_(pc.greater(counts, most), pc.less(counts, -(2**63 // factor)))
    )
    return without(pc.multiply(counts, factor), beyond, Reason.OUT_OF_RANGE)


def _of_text(column: pa.Array, scale: int) -> Column:
    texts = trimmed(without_missing(column))
    form = pc.match_substring_regex(texts, _FORM)
    rows = np.flatnonzero(numpy_mask(form))
    seconds, nanos, sound, fine = _parsed(texts.take(pa.array(rows)))
    each = _NANO // scale
    fraction, finer = np.divmod(nanos, each)
    inside = _in_int64(seconds, fraction, scale) & (finer == 0) & fine
    counts = np.zeros(len(texts), np.int64)
    # This wraps where an instant is outside int64; those cells are null.
    counts[rows] = seconds * np.int64(scale) + fraction
    bad = numpy_mask(texts.is_valid())
    bad[rows] = ~sound
    beyond = np.zeros(len(texts), np.bool_)
    beyond[rows] = sound & ~inside
    absent = bad | beyond | ~numpy_mask(texts.is_valid())
    return Column(
        pa.array(counts, pa.int64(), mask=absent),
        first_fault(
            fault(bad, Reason.NOT_A_TIMESTAMP), fault(beyond, Reason.OUT_OF_RANGE)
        ),
    )


def _in_int64(seconds: Ints, fraction: Ints, scale: int) -> Mask:
    """Tells where seconds * scale + fraction is in int64; 0 <= fraction < scale."""
    low, least = divmod(-(2**63), scale)
    high, most = divmod(2**63 - 1, scale)
    above = (seconds > low) | ((seconds == low) & (fraction >= least))
    return above & ((seconds < high) | ((seconds == high) & (fraction <= most)))


def _parsed(texts: pa.StringArray) -> tuple[Ints, Ints, Mask, Mask]:
    """Returns seconds and nanoseconds of texts of the right form, and two masks.

    The masks tell whether the calendar has such a time, and if nanoseconds hold it.
    """
    starts = offsets_of(texts)
    lengths = np.diff(starts)
    data = np.frombuffer(texts.buffers()[2] or b"\0", np.uint8)

    def digits(first: int, count: int, where: Mask | bool = True) -> Ints:
        out = np.zeros(len(texts), np.int64)
        for at in range(first, first + count):
            out = out * 10 + (data.take(starts[:-1] + at, mode="clip") - ord("0"))
        return np.where(where, out, 0)

    timed = lengths >= _MINUTES_END
    colon = data.take(starts[:-1] + _MINUTES_END, mode="clip") == ord(":")
    with_seconds = (lengths >= _SECONDS_END) & colon
    days, sound = _days(digits(0, 4), digits(5, 2), digits(8, 2))
    hours, minutes = digits(11, 2, timed), digits(14, 2, timed)
    second = digits(17, 2, with_seconds)
    sound &= (hours < 24) & (minutes < 60) & (second < 60)
    seconds = days * _DAY + hours * 3600 + minutes * 60 + second
    nanos = np.zeros(len(texts), np.int64)
    fine = np.ones(len(texts), np.bool_)
    ends = np.where(with_seconds, _SECONDS_END, np.where(timed, _MINUTES_END, 10))
    tailed = np.flatnonzero(lengths > ends)
    if len(tailed):
        cut = _tails(texts.take(pa.array(tailed)), with_seconds[tailed])
        nanos[tailed], fine[tailed] = _nanos(cut.field("fraction"))
        offset, possible = _offset(cut.field("zone"))
        seconds[tailed] -= offset
        sound[tailed] &= possible
    return seconds, nanos, sound, fine


def _days(years: Ints, months: Ints, days: Ints) -> tuple[Ints, Mask]:
    """Returns days since 1970-01-01, and whether the calendar has them."""
    sound = (months >= 1) & (months <= 12) & (days >= 1)
    month = (years - 1970) * 12 + np.where(sound, months, 1) - 1
    first = month.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    after = (month + 1).astype("datetime64[M]").astype("datetime64[D]")
    out = first + days - 1
    return out, sound & (out < after.astype(np.int64))


def _tails(texts: pa.StringArray, with_seconds: Mask) -> pa.StructArray:
    after_minutes = pc.utf8_slice_codeunits(texts, _MINUTES_END)
    after_seconds = pc.utf8_slice_codeunits(texts, _SECONDS_END)
    tails = pc.if_else(pa.array(with_seconds), after_seconds, after_minutes)
    return pc.extract_regex(tails, _TAIL)


def _nanos(fractions: pa.StringArray) -> tuple[Ints, Mask]:
    """Returns texts like ".25" as nanoseconds, and whether those hold all of it."""
    figures = pc.utf8_rpad(pc.utf8_slice_codeunits(fractions, 1), 9, "0")
    nanos = pc.utf8_slice_codeunits(figures, 0, 9).cast(pa.int64()).to_numpy()
    rest = pc.ascii_rtrim(pc.utf8_slice_codeunits(figures, 9), "0")
    return nanos, numpy_mask(pc.equal(rest, ""))


def _offset(zones: pa.StringArray) -> tuple[Ints, Mask]:
    """Returns texts like "+0130", "-05" and "Z" as seconds, and if there are such."""
    figures = pc.utf8_rpad(pc.replace_substring(zones, ":", ""), 5, "0")
    figures = pc.if_else(pc.match_substring_regex(zones, "^[+-]"), figures, "+0000")
    hours = pc.utf8_slice_codeunits(figures, 1, 3).cast(pa.int64()).to_numpy()
    minutes = pc.utf8_slice_codeunits(figures, 3, 5).cast(pa.int64()).to_numpy()
    sign = np.where(numpy_mask(pc.starts_with(figures, "-")), -1, 1)
    return sign * (hours * 3600 + minutes * 60), (hours < 24) & (minutes < 60)
