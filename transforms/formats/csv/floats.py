"""Columns of floats that are parsed as numbers, without texts in between.

    bytes of a block -> do they hold 007?           -> one parse to float32
                     -> is a value one whose text    -> None: the rules of
                        the rules must look at?         `transforms.core.rows.coerce`

Arrow reads a text to float32 in the same way from a file and from a column of texts.
So the values are those of the rules, but where the rules refuse what Arrow takes
(`007`, `nan(1)`), or count what float32 rounds. Blocks with such cells are read as
text.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.arrays import raw_values
from transforms.core.rows.float32 import FLOAT32_EXACT
from transforms.formats.csv.dialect import CsvDialect
from transforms.formats.csv.records import Records, parse_plain

_ZERO, _POINT = ord("0"), ord(".")
# A text without an exponent that becomes 0, and is not, has more zeros in a row.
_MANY_ZEROS = b"0" * 30


def parse_floats(
    data: bytes | pa.Buffer,
    names: Sequence[str],
    wanted: Sequence[str],
    floats: tuple[str, ...],
    dialect: CsvDialect,
) -> Records | None:
    """Parses whole records of UTF-8 text, some columns as float32.

    None where `parse`, and the rules for texts, may find something else in a column of
    floats than a plain number, or a record that is no row.

    Args:
      data: the records; no header, no byte order mark.
      names: the names of the file's columns.
      wanted: the distinct columns to return, in this order.
      floats: those of them that are to be float32.
      dialect: how the file is written.
    """
    if 2 * len(floats) < len(names) or len(names) < 2 or dialect.trim:
        # The look at all bytes would cost more than what it saves.
        return None
    if all(map(_is_number, floats)):
        # A record that repeats the header could pass for numbers.
        return None
    if _has_leading_zeros(np.frombuffer(data, np.uint8)):
        return None
    try:
        kinds = dict.fromkeys(wanted, pa.string())
        kinds |= dict.fromkeys(floats, pa.float32())
        records = parse_plain(data, names, kinds, dialect)
    except pa.ArrowInvalid:
        return None
    return records if _are_plain(_values_of(records), data) else None


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True


def _has_leading_zeros(data: npt.NDArray[np.uint8]) -> bool:
    """Tells whether some digits may start with a 0: 007 or -01, not 0.5 or 1e-07."""
    digits = (data - np.uint8(_ZERO)) < 10
    led = (data[:-1] == _ZERO) & digits[1:]
    led[1:] &= ~(digits[:-2] | (data[:-2] == _POINT))
    places = np.flatnonzero(led)
    if not len(places):
        return False
    # The digits of an exponent may.
    before = data.take(places - 1, mode="clip")
    signed = (before == ord("-")) | (before == ord("+"))
    before = np.where(signed, data.take(places - 2, mode="clip"), before)
    exponents = (before | 0x20 == ord("e")) & (places > 0)
    return not bool(exponents.all())


def _values_of(records: Records) -> npt.NDArray[np.float32]:
    """Returns the values of all floats that are there."""
    columns = [c for c in records.columns if pa.types.is_float32(c.type)]
    numbers = pa.concat_arrays(columns)
    return raw_values(numbers.drop_null() if numbers.null_count else numbers)


def _are_plain(values: npt.NDArray[np.float32], data: bytes | pa.Buffer) -> bool:
    """Tells whether all values are finite, below 2^24, and 0 only where the text is."""
    sizes = np.abs(values)
    # NaN and infinities are not below it.
    if not (sizes < FLOAT32_EXACT).all():
        return False
    if sizes.all():
        return True
    text = bytes(data)
    return b"e" not in text and b"E" not in text and _MANY_ZEROS not in text
