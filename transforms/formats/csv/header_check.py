"""Decide whether the first row of a CSV file is a header or data.

It is data where the name of every column of numbers is a number itself; or where there
is no column of numbers and every name is like the cells below it: it occurs among them,
or is a date above dates, or true or false above bools. What is missing says nothing.

Consecutive integers are names, 0 to n, 1 to n or years: pandas writes such headers, and
so do tables with a column a year. That is worth a note.
"""

import dataclasses
import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.infer.columns import infer_columns
from transforms.core.rows.coerce import (
    DECIMAL,
    MISSING_WORDS,
    NUMBER_WORD,
    ZERO_LED,
    with_points,
)
from transforms.core.rows.null_values import with_nulls
from transforms.core.schema import Feature, Kind
from transforms.errors import InputError, first_few
from transforms.formats.csv.header import equal_to

__all__ = ["HeaderCheck"]

_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([ Tt][0-9:.]+([Zz]|[+-][0-9:]+)?)?$"
_BOOL = r"^(?i:true|false)$"
# Cells that a date or a bool in the first row is compared with.
_FIRST_CELLS = 256
_SHOWN_NAMES = 4
_SHOWN_CHARS = 40
# Numbers outside are rather ids or amounts than names of years.
_FIRST_YEAR, _LAST_YEAR = 1500, 2200


@dataclasses.dataclass(frozen=True, slots=True)
class HeaderCheck:
    """Judges first rows where no setting says whether they are headers.

    Attributes:
      null_values: texts that mean missing.
      decimal: the decimal character of numbers.
    """

    null_values: tuple[str, ...] = ()
    decimal: str = "."

    def note(
        self, origin: str, fields: Sequence[str], columns: Sequence[pa.ChunkedArray]
    ) -> str:
        """Returns a note about a file's first row; "" if there is nothing to say.

        Args:
          origin: the file.
          fields: k texts, the fields of its first row.
          columns: k columns of texts, sampled from all files.

        Raises:
          InputError: the first row is data.
        """
        row = {str(place): pa.array([text]) for place, text in enumerate(fields)}
        plain = [cell[0].as_py() for cell in self._pointed(row).values()]
        absent = {"", *MISSING_WORDS, *self.null_values}
        silent = [field.strip(" \t") in absent for field in fields]
        numbers = [_is_number(field) for field in plain]
        if not any(numbers) and not _all_alike(fields, columns, silent):
            return ""
        numeric = self._numeric(columns)
        if numeric:
            if not all(numbers[i] or silent[i] for i in numeric):
                return ""
            if not any(numbers[i] for i in numeric):
                return ""
            if _are_consecutive(fields) or (
                len(numeric) > 1 and _are_consecutive([fields[i] for i in numeric])
            ):
                return (
                    f"{origin}: the first row, {_shown(fields)}, was taken for the "
                    f"header; if it is data, say --no-header"
                )
            why = "each column of numbers has a number there"
        elif _all_alike(fields, columns, silent):
            why = "each column has a value of its own there"
        else:
            return ""
        raise InputError(
            f"{origin}: the first row must hold the names of the columns; it holds "
            f"{_shown(fields)}, and {why}. If the file has no header, say --no-header; "
            f"if these are the names, say --header"
        )

    def _numeric(self, columns: Sequence[pa.ChunkedArray]) -> list[int]:
        """Returns the indices of the columns of numbers."""
        named = {str(index): column for index, column in enumerate(columns)}
        named = self._pointed(with_nulls(named, self.null_values))
        features = infer_columns(named).features
        return [
            index
            for index, feature in enumerate(features)
            if feature.kind in (Kind.INT64, Kind.FLOAT)
        ]

    def _pointed(self, columns: Mapping[str, Any]) -> Mapping[str, Any]:
        features = [Feature(name, Kind.FLOAT) for name in columns]
        return with_points(columns, features, self.decimal)


def _is_number(field: str) -> bool:
    text = field.strip(" \t")
    return any(re.search(form, text) for form in (DECIMAL, NUMBER_WORD, ZERO_LED))


def _all_alike(
    fields: Sequence[str], columns: Sequence[pa.ChunkedArray], silent: Sequence[bool]
) -> bool:
    """Tells whether each field that is not missing is like the cells of its column."""
    said = [
        (field, column)
        for field, column, none in zip(fields, columns, silent, strict=True)
        if not none
    ]
    return bool(said) and all(_is_alike(field, column) for field, column in said)


def _is_alike(field: str, column: pa.ChunkedArray) -> bool:
    for form in (_DATE, _BOOL):
        if re.search(form, field.strip(" \t")):
            cells = column.slice(0, _FIRST_CELLS).drop_null()
            alike = pc.match_substring_regex(pc.ascii_trim(cells, " \t"), form)
            if len(cells) and pc.all(alike).as_py():
                return True
    return any(
        bool(pc.any(equal_to(chunk, field)).as_py())
        for chunk in column.chunks
        if len(chunk)
    )


def _are_consecutive(fields: Sequence[str]) -> bool:
    """Tells whether two or more names are 0 to n, 1 to n, or consecutive years."""
    if len(fields) < 2 or not all(re.fullmatch("0|[1-9][0-9]{0,8}", f) for f in fields):
        return False
    numbers = [int(field) for field in fields]
    first, last = numbers[0], numbers[-1]
    step = 1 if last > first else -1
    if any(after - before != step for before, after in itertools.pairwise(numbers)):
        return False
    if min(first, last) >= _FIRST_YEAR and max(first, last) <= _LAST_YEAR:
        return True
    return first in (0, 1) and step == 1


def _shown(fields: Sequence[str]) -> str:
    return first_few([repr(field[:_SHOWN_CHARS]) for field in fields], _SHOWN_NAMES)
