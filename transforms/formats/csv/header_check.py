"""The header of CSV files: whether there is one, its names, what cells below suggest.

It is data where the name of every column of numbers is a number itself; or where there
is no column of numbers and every name is like the cells below it: it occurs among them,
or is a date above dates, or true or false above bools. What is missing says nothing.

Consecutive integers are names, 0 to n, 1 to n or years: pandas writes such headers, and
so do tables with a column a year. That is worth a note.

So are cells that suggest another delimiter, decimal character, quote or `--trim`.
"""

import collections
import dataclasses
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import numpy_mask
from transforms.core.infer.columns import infer_columns
from transforms.core.reasons import Reason
from transforms.core.rows.text_cells import (
    DECIMAL,
    MISSING_WORDS,
    NUMBER_WORD,
    ZERO_LED,
)
from transforms.core.schema import Kind
from transforms.errors import (
    InputError,
    bounded,
    first_few,
    shortened,
)
from transforms.formats.csv.scan import WHITESPACE, CsvDialect
from transforms.formats.raw_rows import RawRows, as_numbers, with_nulls
from transforms.formats.table import listed

_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([ Tt][0-9:.]+([Zz]|[+-][0-9:]+)?)?$"
_BOOL = r"^(?i:true|false)$"
# Cells that a date or a bool in the first row is compared with.
_FIRST_CELLS = 256
_SHOWN_NAMES = 4
_SHOWN_CHARS = 40
# Numbers outside are rather ids or amounts than names of years.
_FIRST_YEAR, _LAST_YEAR = 1500, 2200
# The first cells, of the first columns, that suggest a setting if 90 of 100 do.
_LOOKED_AT_CELLS, _LOOKED_AT_COLUMNS = 200, 256
_MOST_IN_100 = 90
_BLANK_AT_END = r"^[ \t]|[ \t]$"
# Numbers with a decimal comma, and perhaps points between thousands.
_WITH_COMMA = r"^[ \t]*[+-]?([0-9]+|[0-9]{1,3}(\.[0-9]{3})+),[0-9]+[ \t]*$"
_GROUPED = r"^[ \t]*[+-]?[0-9]{1,3}(\.[0-9]{3})+[ \t]*$"
_WHOLE = r"^[ \t]*[+-]?[0-9]+[ \t]*$"
_ENGLISH = r"^[ \t]*[+-]?[0-9]{1,3}(,[0-9]{3})+[ \t]*$"
# Numbers with a sign for currency or percent, or with one between thousands.
_DRESSED = (
    r"^[ \t]*[-+(−]?[$€£¥]? ?((0|[1-9][0-9]*)([.,][0-9]+)?"
    r"|[1-9][0-9]{0,2}(([,'’ \x{a0}\x{202f}][0-9]{3})+(\.[0-9]+)?"
    r"|([.'’ \x{a0}\x{202f}][0-9]{3})+(,[0-9]+)?))[ \x{a0}]?[-%$€£¥)]?[ \t]*$"
)
_IN_QUOTES = r'"[^"]*"'
_NUMBER_AMONG_BLANKS = r"(^|[ \t])[+-]?[0-9][0-9.]*([ \t]|$)"
# Cells with line ends are few up to 1 in 100.
_FEW_IN_100 = 1
# Files that are looked at again, and how many of the bad ones a message names.
_MOST_FILES = 1000
_MOST_NAMED = 6
_MOST_BYTES = 120
_OTHER_DELIMITERS = ";\t|,"
_OTHER_QUOTES = "'`\""
_SHOWN_PLACES = 8
# A longer name is content: it has another delimiter, or another encoding.
_MOST_CHARS = 10_000


def header_note(
    origin: str,
    fields: Sequence[str],
    columns: Sequence[pa.ChunkedArray],
    null_values: tuple[str, ...],
    decimal: str,
) -> str:
    """Returns a note about a file's first row; "" if there is nothing to say.

    Args:
      origin: the file.
      fields: k texts, the fields of its first row.
      columns: k columns of texts, sampled from all files.
      null_values: texts that mean missing.
      decimal: the decimal character of numbers.

    Raises:
      InputError: the first row is data, or has another number of fields.
    """
    if len(fields) != len(columns):
        raise InputError(
            f"{origin}: {len(columns)} columns are named, but the first row has "
            f"{len(fields)}: {listed(fields)}. If it is a header, say --header"
        )
    row = {str(index): pa.array([text]) for index, text in enumerate(fields)}
    plain = [cell[0].as_py() for cell in as_numbers(row, decimal).values()]
    absent = {"", *MISSING_WORDS, *null_values}
    says = [field.strip(" \t") not in absent for field in fields]
    numbers = [_is_number(field) for field in plain]
    said = [*itertools.compress(zip(fields, columns, strict=True), says)]
    are_alike = bool(said) and all(itertools.starmap(_is_alike, said))
    if not any(numbers) and not are_alike:
        return ""
    named = {str(index): column for index, column in enumerate(columns)}
    cells = as_numbers(with_nulls(named, null_values), decimal)
    numeric = [
        index
        for index, feature in enumerate(infer_columns(cells).features)
        if feature.kind in (Kind.INT64, Kind.FLOAT)
    ]
    if numeric:
        are_numbers = all(numbers[i] or not says[i] for i in numeric)
        if not are_numbers or not any(numbers[i] for i in numeric):
            return ""
        if _are_consecutive(fields) or (
            len(numeric) > 1 and _are_consecutive([fields[i] for i in numeric])
        ):
            return (
                f"{origin}: the first row, {listed(fields)}, was taken for the "
                f"header; if it is data, say --no-header"
            )
        why = "each column of numbers has a number there"
    elif are_alike:
        why = "each column has a value of its own there"
    else:
        return ""
    raise InputError(
        f"{origin}: the first row must hold the names of the columns; it holds "
        f"{listed(fields)}, and {why}. If the file has no header, say --no-header; "
        f"if these are the names, say --header"
    )


def cell_notes(
    columns: Mapping[str, pa.ChunkedArray], dialect: CsvDialect, decimal: str
) -> list[str]:
    """Returns notes on the settings that the first cells of each column suggest.

    Args:
      columns: sampled texts, by name.
      dialect: how they were read.
      decimal: the decimal character that was assumed.
    """
    heads = {
        name: column.slice(0, _LOOKED_AT_CELLS).drop_null()
        for name, column in itertools.islice(columns.items(), _LOOKED_AT_COLUMNS)
    }
    heads = {name: cells for name, cells in heads.items() if len(cells) > 1}
    notes: list[str] = []
    if len(columns) == 1 and heads:
        notes += _delimiter_note(*next(iter(heads.items())), dialect)
    if not dialect.trim:
        padded = [
            name
            for name, cells in heads.items()
            if _most(cells, _BLANK_AT_END)
            and not _most(pc.ascii_trim(cells, " \t"), f"{DECIMAL}|{ZERO_LED}")
        ]
        if padded:
            notes.append(
                f"nearly all cells of {listed(padded)} begin or end with a space, "
                f"which stays in the values; --trim removes it"
            )
    return [*notes, *_number_notes(heads, decimal)]


def _delimiter_note(
    name: str, cells: pa.ChunkedArray, dialect: CsvDialect
) -> Iterator[str]:
    """Yields a note on the only column if its cells look like several."""
    plain = pc.replace_substring_regex(cells, _IN_QUOTES, "q")
    counts = {mark: _usual_count(plain, re.escape(mark)) for mark in ";|,\t"}
    words = _usual_count(plain, r"[^ \t]+")
    sep = next((mark for mark, count in counts.items() if count), "")
    if words > 1 + counts.get(sep, 0) and sep in ("", "\t"):
        sep = WHITESPACE if sep or _most(plain, _NUMBER_AMONG_BLANKS) else ""
    if sep and sep not in dialect.delimiters:
        shown = sep if sep == WHITESPACE else repr(sep)
        yield (
            f"the only column, {name[:_SHOWN_CHARS]!r}, looks like several in nearly "
            f"all rows; to read them, say --delimiter {shown}"
        )


def _usual_count(cells: pa.ChunkedArray, pattern: str) -> int:
    """Returns how often nearly all cells hold a pattern; 0 where they differ."""
    counts = pc.count_substring_regex(cells, pattern).to_numpy()
    usual = int(np.bincount(counts).argmax())
    same = int((counts == usual).sum())
    return usual if same * 100 >= _MOST_IN_100 * len(counts) else 0


def _number_notes(heads: Mapping[str, pa.ChunkedArray], decimal: str) -> Iterator[str]:
    """Yields notes on columns of texts that look like numbers."""
    number = f"{_WITH_COMMA}|{_GROUPED}|{_WHOLE}"
    commas = {
        name: cells.filter(with_comma)[0].as_py().strip()
        for name, cells in heads.items()
        if decimal == "."
        and pc.any(with_comma := pc.match_substring_regex(cells, _WITH_COMMA)).as_py()
        and _most(cells, number)
        and not pc.all(
            pc.match_substring_regex(cells.filter(with_comma), _ENGLISH)
        ).as_py()
    }
    if commas:
        grouped = [name for name, cells in heads.items() if _most(cells, _GROUPED)]
        more = f", and those of {listed(grouped)} as fractions" if grouped else ""
        yield (
            f"columns hold numbers with decimal commas, which are read as texts{more}: "
            f"{_with_cells(commas)}; --decimal , reads them as numbers"
        )
    dressed = {}
    for name, cells in as_numbers(heads, decimal).items():
        is_plain = pc.match_substring_regex(pc.ascii_trim(cells, " \t"), DECIMAL)
        odd = heads[name].filter(pc.invert(is_plain))
        few = len(odd) * 100 <= len(cells) * (100 - _MOST_IN_100)
        if not few and name not in commas and _most(heads[name], _DRESSED):
            odd = odd.filter(pc.match_substring_regex(odd, _DRESSED))
            dressed[name] = odd[0].as_py().strip()
    if dressed:
        yield (
            f"columns hold numbers with a currency, percent or thousands separators, "
            f"which are read as texts: {_with_cells(dressed)}; numbers are written "
            f"as 1234{decimal}5"
        )


def _with_cells(columns: Mapping[str, str]) -> str:
    """Returns columns for a note, each with a cell: "'price' (1,50), 'tax' (0,20)"."""
    shown = [f"{name[:_SHOWN_CHARS]!r} ({cell})" for name, cell in columns.items()]
    return first_few(shown, _SHOWN_NAMES)


def _most(cells: pa.ChunkedArray, pattern: str) -> bool:
    """Tells whether nearly all cells hold a pattern."""
    count = pc.sum(pc.match_substring_regex(cells, pattern)).as_py()
    return count * 100 >= _MOST_IN_100 * len(cells)


@dataclasses.dataclass(slots=True)
class LineEnds:
    """What cells with line ends say of the quote setting: whether it swallows rows.

    Attributes:
      cells: how many there are.
      rows: how many cells of the column were looked at.
      example: one of them, that holds whole rows if one does; empty for none.
      place: the lines of its row, and the file.
    """

    cells: int = 0
    rows: int = 0
    example: str = ""
    place: str = ""
    _swallowed: bool = False

    def add(
        self, raw: RawRows, column: pa.Array, width: int, dialect: CsvDialect
    ) -> None:
        """Looks at the cells of a column in a piece; a table has `width` columns."""
        self.rows += len(column)
        # To search the cells one by one takes fifty times as long.
        texts = column.buffers()[2]
        if not texts or b"\n" not in texts.to_pybytes():
            return
        at = np.flatnonzero(numpy_mask(pc.match_substring(column, "\n")))
        self.cells += len(at)
        if not len(at) or self._swallowed:
            return
        cells = {index: column[index].as_py() for index in at.tolist()}
        whole = (i for i, cell in cells.items() if _holds_rows(cell, width, dialect))
        index = next(whole, int(at[0]))
        self._swallowed = _holds_rows(cells[index], width, dialect)
        if self.example and not self._swallowed:
            return
        numbers = raw.numbers if raw.places is None else raw.places
        (row,) = raw.rejections([(int(numbers[index]), Reason.MALFORMED, "")])
        self.example, self.place = cells[index], row.source
        if raw.block.first_line and row.line and row.raw:
            last = row.line + row.raw.count(b"\n")
            self.place = f"lines {row.line:,} to {last:,} of {row.source}"

    def note(self, name: str) -> str:
        """Returns a note if a quote has perhaps made whole lines a part of a cell.

        It has where few cells hold line ends, or one holds the delimiters of whole
        rows.
        """
        few = self.cells * 100 <= _FEW_IN_100 * self.rows
        if not self.cells or not (few or self._swallowed):
            return ""
        return bounded(
            f"{self.cells:,} of {self.rows:,} sampled cells of "
            f"{name[:_SHOWN_CHARS]!r} hold line ends, such as "
            f"{shortened(self.example)!r} in {self.place}; if quotes are part of the "
            f"texts, say --quote ''"
        )


def _holds_rows(cell: str, width: int, dialect: CsvDialect) -> bool:
    """Whether a cell has the lines and delimiters of rows that a quote swallowed."""
    lines = sum(bool(line.strip()) for line in cell.split("\n"))
    delimiters = sum(map(cell.count, dialect.delimiters))
    return width > 1 and lines > 1 and delimiters >= (lines - 1) * (width - 1)


def _is_number(field: str) -> bool:
    """Whether a field of the first row is a number, nan, or one with leading zeros."""
    text = field.strip(" \t")
    return any(re.search(form, text) for form in (DECIMAL, NUMBER_WORD, ZERO_LED))


def _is_alike(field: str, column: pa.ChunkedArray) -> bool:
    """Whether a field is a date or bool as its column's cells, or one of them."""
    for form in (_DATE, _BOOL):
        if re.search(form, field.strip(" \t")):
            cells = column.slice(0, _FIRST_CELLS).drop_null()
            alike = pc.match_substring_regex(pc.ascii_trim(cells, " \t"), form)
            if len(cells) and pc.all(alike).as_py():
                return True
    same = pc.is_in(column, value_set=pa.array([field], column.type))
    return bool(pc.any(same).as_py())


def _are_consecutive(fields: Sequence[str]) -> bool:
    """Tells whether two or more names are 0 to n, 1 to n, or consecutive years."""
    if len(fields) < 2 or not all(re.fullmatch("0|[1-9][0-9]{0,8}", f) for f in fields):
        return False
    numbers = [int(field) for field in fields]
    steps = {*np.diff(numbers).tolist()}
    are_years = min(numbers) >= _FIRST_YEAR and max(numbers) <= _LAST_YEAR
    if steps == {1}:
        return are_years or numbers[0] in (0, 1)
    return are_years and steps == {-1}


def naming_others(
    error: InputError, files: Iterable[tuple[str, Callable[[], tuple[str, ...]]]]
) -> InputError:
    """Returns the error of a file whose header does not fit, naming all such files.

    The columns that most files have are taken for those of the source.

    Args:
      error: of the first one.
      files: (origin, function) of each; the function returns the names of the file's
        columns, or raises InputError.
    """
    faults: dict[str, str] = {}
    columns: dict[str, tuple[str, ...]] = {}
    for origin, names_of in itertools.islice(files, _MOST_FILES):
        try:
            columns[origin] = names_of()
        except InputError as fault:
            faults[origin] = str(fault).split("; ")[0].split(". ")[0]
        except OSError:
            return error
    counts = collections.Counter(columns.values())
    usual, count = next(iter(counts.most_common(1)), ((), 0))
    if 2 * count <= len(columns):
        # No columns are usual: what is wrong is likely the job.
        return error
    looked_at = len(faults) + len(columns)
    for origin, names in columns.items():
        if names != usual:
            faults[origin] = f"{origin}: other columns than most files"
    if len(faults) < 2:
        return error
    named = [bounded(text, _MOST_BYTES) for _, text in sorted(faults.items())]
    return InputError(
        f"{len(faults):,} of {looked_at:,} files do not fit the others: "
        f"{first_few(named, _MOST_NAMED)}. Correct them, or leave them out with "
        f"--exclude. Where only the delimiter or the encoding differs, convert them by "
        f"themselves and join the datasets with 'beam-tfrecord merge'."
    )


def check_marks(names: Sequence[str], dialect: CsvDialect, origin: str) -> None:
    """Raises InputError where names show another delimiter or quote."""
    for mark in _OTHER_DELIMITERS if len(names) == 1 else "":
        if mark in names[0] and mark != dialect.delimiter:
            raise InputError(
                f"{origin}: the header is one column, {names[0][:60]!r}, with "
                f"{dialect.delimiter!r} as the delimiter; is it {mark!r}? Say so with "
                f"--delimiter; if other files have another, convert this one by itself "
                f"and join the datasets with 'beam-tfrecord merge'."
            )
    for mark in _OTHER_QUOTES:
        if mark != dialect.quote and all(
            len(name) > 1 and name[0] == name[-1] == mark for name in names
        ):
            raise InputError(
                f"{origin}: all names of the header are in {mark}, with "
                f"{dialect.quote or 'none'} as the quote, {names[0][:60]} say; is it "
                f"{mark}? Say so with --quote"
            )


def check_header_names(names: Sequence[str], origin: str) -> None:
    """Raises InputError for a header's name that is empty, repeated or too long."""
    longest = max(names, key=len)
    if len(longest) > _MOST_CHARS:
        raise InputError(
            f"{origin}: a column's name must have at most {_MOST_CHARS:,} characters; "
            f"one in the header has {len(longest):,} and begins with {longest[:20]!r}. "
            f"Check --encoding, --delimiter and --quote; if the file has no header, "
            f"say --no-header"
        )
    counts = collections.Counter(names)
    odd = next((name for name in names if not name or counts[name] > 1), None)
    if odd is None:
        return
    places = [number for number, name in enumerate(names, start=1) if name == odd]
    shown = ", ".join(map(str, places[:_SHOWN_PLACES]))
    raise InputError(
        f"{origin}: every column must have a name of its own; {odd!r} is that of "
        f"column {shown}. Correct it, or give all names with --columns; if the file "
        f"has no header, say --no-header"
    )
