"""Convert text columns to typed columns, and find the rows that do not fit.

Two paths give the same values. The fast one casts the column unchanged and looks for
the few texts that Arrow reads more generously than the rules below allow. When the cast
fails or such a text occurs, the exact path decides every cell by pattern.

| kind  | accepted                                          | missing            |
| ----- | ------------------------------------------------- | ------------------ |
| int64 | whole decimals inside int64: 7, 7.0, 1.5e3        | null, `MISSING_WORDS` |
| float | decimals, `nan`, `[+-]inf`, `[+-]infinity`        | null, `MISSING_WORDS` |
| bool  | `true`, `false` in any case                       | null, `MISSING_WORDS` |
| other | any text                                          | null               |

Spaces and tabs around numbers are ignored. A leading zero is refused because a number
would silently lose it; a decimal beyond float32 because it would become infinite; a
whole number that float32 does not hold where the feature says so.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import numpy_mask, offsets_of, raw_values
from transforms.core.reasons import Reason
from transforms.core.rows.column import Column, fault, first_fault, without
from transforms.core.rows.float32 import FLOAT32_EXACT, unheld_texts
from transforms.core.schema import Feature, InexactIntegers, Kind, row_type

Texts = TypeVar("Texts", pa.Array, pa.ChunkedArray, pa.Array | pa.ChunkedArray)

MISSING_WORDS = ("NA", "N/A", "null", "None")

# Patterns for RE2 on text trimmed of spaces and tabs; `$` is the end of the text.
INTEGER = r"^[+-]?(0|[1-9][0-9]*)$"
DECIMAL = r"^[+-]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$"
NUMBER_WORD = r"^(?i:nan|[+-]?inf|[+-]?infinity)$"
ZERO_LED = r"^[+-]?0[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?$"
# The same with a decimal comma, and perhaps points between thousands. Without a comma
# such a number begins with another digit than 0: 0.217 has a decimal point.
_GROUPED = r"^[+-]?([1-9][0-9]{0,2}(\.[0-9]{3})+|[0-9]{1,3}(\.[0-9]{3})+,[0-9]*)$"
_WITH_COMMA = r"^[+-]?([0-9]+(,[0-9]*)?|,[0-9]+)([eE][+-]?[0-9]+)?$"
_PARTS = (
    r"^(?P<sign>[+-]?)(?P<whole>[0-9]*)\.?(?P<fraction>[0-9]*)"
    r"(?:[eE](?P<exponent>[+-]?[0-9]+))?$"
)

# Cells that are cast first, since a failing cast of a whole column is slow.
_PROBE_CELLS = 256
# More text of those cells is left to the exact rules: Arrow repeats a cell that it does
# not cast in its error, and to put 50 MB there takes as long as to write them.
_PROBE_BYTES = 1 << 20
# Cells that are looked at together: the arrays of a step stay in the cache.
_PIECE_CELLS = 16_384
# The bits of a float64 that float32 lacks, and their value halfway between two float32.
_BEYOND_FLOAT32 = np.uint64(2**29 - 1)
_HALFWAY = np.uint64(2**28)
_LEAST_NORMAL = 2.0**-126

_INT64_MAX = "9223372036854775807"
_INT64_MIN = "9223372036854775808"
# A number of more digits is outside int64.
_MANY_DIGITS = 25
# Digits of an exponent that are read: longer ones are out of range in any case.
_EXPONENT_CHARS = 8

_TARGETS: Mapping[Kind, pa.DataType] = {
    Kind.INT64: pa.int64(),
    Kind.FLOAT: pa.float32(),
    Kind.BOOL: pa.bool_(),
}


def coerce(column: pa.Array, feature: Feature) -> Column:
    """Returns a string column of n cells as n values of the feature's kind.

    Null cells are missing. Never raises for what a cell holds.
    """
    kind = feature.kind
    if kind not in _TARGETS:
        # Every text fits. Readers have found those that are not valid UTF-8.
        return Column(column.cast(row_type(feature)))
    found = _coerced(column, kind)
    return without_unheld(found, column, feature) if kind is Kind.FLOAT else found


def _coerced(column: pa.Array, kind: Kind) -> Column:
    values = cast_plain(column, kind)
    if values is not None:
        return Column(values)
    column = without_missing(column)
    if kind is Kind.BOOL:
        return _exact_bool(column)
    column = trimmed(column)
    # Try again: missing words and spaces may have been all that failed.
    values = cast_plain(column, kind)
    if values is not None:
        return Column(values)
    if kind is Kind.FLOAT:
        return exact_float(column, pa.float32())
    values = cast_plain(_without_point_zero(column), kind)
    if values is not None:
        return Column(values, pointed=True)
    return _exact_int64(column)


def without_unheld(found: Column, column: pa.Array, feature: Feature) -> Column:
    """Returns floats without whole numbers that float32 does not hold, if they count.

    Args:
      found: the floats.
      column: the texts that they are from.
      feature: says what becomes of such numbers.
    """
    if feature.inexact_integers is not InexactIntegers.REJECT:
        return found
    unheld = unheld_texts(column, found.values)
    if unheld is None:
        return found
    rest = without(found.values, unheld, Reason.NOT_FLOAT32)
    return Column(rest.values, first_fault(rest.faults, found.faults))


def without_missing(column: pa.Array) -> pa.Array:
    """Returns the column with the words that mean "no number" made null."""
    words = pc.is_in(column, value_set=pa.array(MISSING_WORDS))
    if not pc.any(words).as_py():
        return column
    return pc.if_else(words, pa.scalar(None, pa.string()), column)


def with_points(
    columns: Mapping[str, Texts], features: Iterable[Feature], decimal: str
) -> Mapping[str, Texts]:
    """Returns the columns; numbers with a decimal comma have a decimal point instead.

    What has a decimal point gets a comma, and is no number then. Only columns of text
    that become numbers change.

    Args:
      columns: of any types, by name.
      features: what they become.
      decimal: the decimal character of the source, "." or ",".
    """
    if decimal == ".":
        return columns
    out = dict(columns)
    for feature in features:
        name = feature.source_column
        if feature.kind not in (Kind.INT64, Kind.FLOAT) or feature.pattern:
            continue
        column = columns.get(name)
        if column is None or not pa.types.is_string(column.type):
            continue
        if isinstance(column, pa.ChunkedArray):
            chunks = [_pointed(chunk, feature.separator) for chunk in column.chunks]
            out[name] = pa.chunked_array(chunks, pa.string())
        else:
            out[name] = _pointed(column, feature.separator)
    return out


def _pointed(column: pa.StringArray, separator: str) -> pa.StringArray:
    if separator:
        lists = pc.split_pattern(column, separator)
        items = _pointed(lists.values, "")
        lists = pa.ListArray.from_arrays(lists.offsets, items)
        joined = pc.binary_join(lists, separator)
        return pc.if_else(column.is_valid(), joined, column)
    texts = trimmed(column)
    grouped = pc.match_substring_regex(texts, _GROUPED)
    number = pc.or_(grouped, pc.match_substring_regex(texts, _WITH_COMMA))
    other = pc.match_substring_regex(texts, DECIMAL)
    whole = pc.replace_substring(texts, ".", "")
    whole = pc.replace_substring_regex(whole, r"^([+-]?)0+([0-9])", r"\1\2")
    pointed = pc.replace_substring(pc.if_else(grouped, whole, texts), ",", ".")
    refused = pc.replace_substring(texts, ".", ",")
    return pc.case_when(pc.make_struct(number, other), pointed, refused, column)


def trimmed(column: pa.Array) -> pa.Array:
    """Returns the column without the spaces and tabs around its texts."""
    return pc.ascii_trim(column, " \t")


def in_int64(integers: pa.Array) -> pa.Array:
    """Tells, for texts that match `INTEGER`, which are inside int64."""
    digits = pc.ascii_ltrim(integers, "+-")
    length = pc.binary_length(digits)
    limit = pc.if_else(pc.starts_with(integers, "-"), _INT64_MIN, _INT64_MAX)
    # Digits of equal length without leading zeros compare as text as they do as
    # numbers.
    return pc.or_kleene(
        pc.less(length, 19),
        pc.and_kleene(pc.equal(length, 19), pc.less_equal(digits, limit)),
    )


def cast_plain(column: pa.Array, kind: Kind) -> pa.Array | None:
    """Returns texts cast to a kind, or None if any needs the exact rules.

    Args:
      column: the texts; null stays null.
      kind: int64, float or bool.
    """
    probe = column.slice(0, _PROBE_CELLS)
    offsets = offsets_of(probe)
    if offsets[-1] - offsets[0] > _PROBE_BYTES:
        return None
    try:
        # Each failing cell costs Arrow a microsecond, and it tries all of them: try a
        # few cells first.
        pc.cast(probe, _TARGETS[kind])
        values = pc.cast(column, _TARGETS[kind])
    except pa.ArrowInvalid:
        return None
    if kind is Kind.BOOL:
        # Arrow takes 1 and 0 too; the words have four letters or five.
        shortest = pc.min(pc.binary_length(column)).as_py()
        return values if shortest is None or shortest >= 4 else None
    if zero_led(column):
        return None
    # Arrow reads 1e39 as infinite and nan(1) as a number.
    if kind is Kind.FLOAT and not pc.all(pc.is_finite(values), min_count=0).as_py():
        return None
    return values


def plain_doubles(column: pa.Array) -> pa.DoubleArray | None:
    """Returns texts as float64 that round to the same float32 as the texts do.

    None if a text is not a plain number, or if rounding twice may give another float32
    than rounding once: halfway between two of them, and below the smallest normal one.
    None, too, if a number is so large that float32 lacks whole numbers.
    """
    try:
        pc.cast(column.slice(0, _PROBE_CELLS), pa.float64())
        doubles = pc.cast(column, pa.float64())
    except pa.ArrowInvalid:
        return None
    values = raw_values(doubles)
    sizes = np.abs(values)
    sure = (values.view(np.uint64) & _BEYOND_FLOAT32) != _HALFWAY
    sure &= sizes < FLOAT32_EXACT
    sure &= (sizes >= _LEAST_NORMAL) | (sizes == 0)
    return doubles if sure.all() and not zero_led(column) else None


def zero_led(column: pa.Array) -> bool:
    """Tells if a cell may start like 007, -01 or 0x1f; the cast has accepted all."""
    data_buffer = column.buffers()[2]
    if len(column) == column.null_count or data_buffer is None:
        return False
    data = np.frombuffer(data_buffer, np.uint8)
    pieces = range(0, len(column), _PIECE_CELLS)
    return any(
        _zero_led(offsets_of(column.slice(start, _PIECE_CELLS)), data)
        for start in pieces
    )


def _zero_led(offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8]) -> np.bool_:
    """Tells it of the n cells whose n + 1 offsets are given."""
    at, ends = offsets[:-1], offsets[1:]
    first = data.take(at, mode="clip")
    signed = (first == ord("-")) | (first == ord("+"))
    if signed.any():
        at = at + signed
        first = data.take(at, mode="clip")
    # Null cells are empty here or held what the cast did not look at; either way a
    # false alarm costs only time.
    suspects = np.flatnonzero((first == ord("0")) & (ends - at > 1))
    second = data.take(at[suspects] + 1, mode="clip")
    return ((second != ord(".")) & (second | 0x20 != ord("e"))).any()


def _exact_bool(column: pa.Array) -> Column:
    index = pc.index_in(pc.ascii_lower(column), value_set=pa.array(["false", "true"]))
    bad = numpy_mask(pc.and_(pc.is_valid(column), pc.is_null(index)))
    return Column(pc.cast(index, pa.bool_()), fault(bad, Reason.NOT_A_BOOL))


def _without_point_zero(column: pa.Array) -> pa.Array:
    """Returns texts without the `.0` at their end, as pandas writes whole floats."""
    ends = pc.ends_with(column, ".0")
    return pc.if_else(ends, pc.utf8_slice_codeunits(column, 0, -2), column)


def _exact_int64(column: pa.Array) -> Column:
    nothing = pa.scalar(None, pa.string())
    form = pc.match_substring_regex(column, INTEGER)
    integers = pc.if_else(form, column, nothing)
    others = np.flatnonzero(numpy_mask(pc.invert(form)))
    whole = _whole_decimals(column.take(pa.array(others)))
    pointed = whole.null_count < len(whole)
    if pointed:
        places = np.full(len(column), -1)
        places[others] = np.arange(len(others))
        moved = whole.take(pa.array(places, mask=places < 0))
        integers = pc.coalesce(integers, moved)
    inside = in_int64(integers)
    fitting = pc.if_else(inside, integers, nothing)
    values = pc.cast(pc.ascii_ltrim(fitting, "+"), pa.int64())
    beyond = numpy_mask(pc.invert(inside))
    bad = numpy_mask(pc.and_(column.is_valid(), values.is_null()))
    faults = first_fault(
        fault(beyond, Reason.OUT_OF_RANGE), fault(bad, Reason.NOT_AN_INTEGER)
    )
    return Column(values, faults, pointed)


def _whole_decimals(texts: pa.Array) -> pa.Array:
    """Returns decimals that are whole as texts that match `INTEGER`, others as null.

    Exact: no number passes through a float. Those outside int64 come out as some other
    number outside int64.
    """
    nothing = pa.scalar(None, pa.string())
    decimal = pc.match_substring_regex(texts, DECIMAL)
    texts = pc.if_else(decimal, texts, nothing)
    # A whole number has a whole double: only the texts of whole doubles are parsed.
    doubles = pc.cast(texts, pa.float64())
    texts = pc.if_else(pc.equal(pc.floor(doubles), doubles), texts, nothing)
    found = np.flatnonzero(numpy_mask(texts.is_valid()))
    if not len(found):
        return texts
    parts = pc.extract_regex(texts.take(pa.array(found)), _PARTS)
    sign, whole, fraction, exponent = (pc.struct_field(parts, i) for i in range(4))
    digits = pc.binary_join_element_wise(whole, fraction, "")
    ends = pc.binary_length(digits)
    digits = pc.ascii_rtrim(digits, "0")
    trailing = pc.subtract(ends, pc.binary_length(digits))
    digits = pc.ascii_ltrim(digits, "0")
    # The number is `digits` followed by `zeros` zeros; a negative count is a fraction.
    zeros = pc.subtract(pc.add(_exponents(exponent), trailing), _lengths(fraction))
    is_many = pc.greater(pc.add(_lengths(digits), zeros), _MANY_DIGITS)
    padding = pc.max_element_wise(pc.if_else(is_many, 0, zeros), 0)
    padded = pc.binary_join_element_wise(
        sign, digits, pc.binary_repeat("0", padding), ""
    )
    out = pc.if_else(is_many, "9" * _MANY_DIGITS, padded)
    out = pc.if_else(pc.less(zeros, 0), nothing, out)
    out = pc.if_else(pc.equal(digits, ""), "0", out)
    places = np.full(len(texts), -1)
    places[found] = np.arange(len(found))
    return out.take(pa.array(places, mask=places < 0))


def _lengths(texts: pa.Array) -> pa.Array:
    return pc.cast(pc.binary_length(texts), pa.int64())


def _exponents(texts: pa.Array) -> pa.Array:
    """Returns exponents as int64, "" as 0; very long ones are cut to eight digits."""
    digits = pc.ascii_ltrim(texts, "+-0")
    size = pc.if_else(
        pc.greater(pc.binary_length(digits), _EXPONENT_CHARS),
        "9" * _EXPONENT_CHARS,
        digits,
    )
    numbers = pc.cast(pc.if_else(pc.equal(size, ""), "0", size), pa.int64())
    return pc.if_else(pc.starts_with(texts, "-"), pc.negate(numbers), numbers)


def exact_float(column: pa.Array, target: pa.DataType) -> Column:
    """Returns texts as float32 or float64, each decided by pattern.

    Args:
      column: texts, trimmed and without `MISSING_WORDS`.
      target: the type.
    """
    decimal = pc.match_substring_regex(column, DECIMAL)
    # Only the few cells that are no decimals are matched with the second pattern.
    bad = numpy_mask(pc.invert(decimal))
    others = np.flatnonzero(bad)
    words = pc.match_substring_regex(column.take(pa.array(others)), NUMBER_WORD)
    bad[others[numpy_mask(words)]] = False
    numbers = pc.if_else(pa.array(bad), pa.scalar(None, pa.string()), column)
    values = pc.cast(numbers, target)
    beyond = numpy_mask(pc.and_(decimal, pc.is_inf(values)))
    rest = without(values, beyond, Reason.OUT_OF_RANGE)
    not_numbers = fault(bad, Reason.NOT_A_NUMBER)
    return Column(rest.values, first_fault(rest.faults, not_numbers))


def with_nulls(
    columns: Mapping[str, Texts], words: Sequence[str]
) -> Mapping[str, Texts]:
    """Returns the columns; texts that are one of the words are null.

    Spaces and tabs around them do not count, as around numbers. Columns of another
    type than string stay as they are.

    Args:
      columns: of any types, by name.
      words: the texts; "" is for empty texts that are not null, such as quoted cells.
    """
    if not words:
        return columns
    known = trimmed(pa.array(words, pa.string()))
    return {name: _with_nulls(column, known) for name, column in columns.items()}


def _with_nulls(column: Texts, words: pa.StringArray) -> Texts:
    if not pa.types.is_string(column.type):
        return column
    found = pc.is_in(trimmed(column), value_set=words)
    if not pc.any(found).as_py():
        return column
    return pc.if_else(found, pa.scalar(None, pa.string()), column)
