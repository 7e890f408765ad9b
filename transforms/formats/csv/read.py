"""Read a block of a CSV file as text columns, and find the rows that cannot be read."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import numpy_mask
from transforms.core.model import Block, Rejection, Skipped
from transforms.core.reasons import Reason
from transforms.core.rows.column import Mask, not_utf8
from transforms.errors import ConservationError, bounded, shortened
from transforms.formats.csv.dialect import (
    WHITESPACE,
    CsvDialect,
    file_encoding,
    is_scannable,
    to_utf8,
    whole_to_utf8,
)
from transforms.formats.csv.header import equal_to, repeats_header
from transforms.formats.csv.records import (
    END_MARK,
    Records,
    locate,
    malformed,
    parse,
    trimmed,
)
from transforms.formats.table import Complaint, RawRows, only, rejection_of

# Column -> its cells, and which of them are not valid text; None for none.
_Texts = dict[str, tuple[pa.Array, Mask | None]]


def read_raw(
    data: bytes | pa.Buffer,
    block: Block,
    dialect: CsvDialect,
    columns: Sequence[str],
    wanted: Sequence[str],
    beside: Sequence[str] = (),
) -> RawRows:
    """Returns the records of a block as columns of text.

    A row with another number of fields, or with a cell that is not valid text, is
    refused; only the columns wanted are looked at. Those beside are of text too, or
    binary where one of their cells is not valid text. A record that says the header
    again, as in files that were joined, is skipped, and so is a lone Ctrl-Z.

    Args:
      data: the file's bytes from `block.start` to `block.stop`.
      block: as `iter_blocks` gave it.
      dialect: how the file is written.
      columns: the names of all columns of the file.
      wanted: the names of the columns to return.
      beside: and of other columns to return.

    Raises:
      InputError: the file has no column of a wanted name.
      ConservationError: the data holds another number of records than the block.
    """
    only(dict.fromkeys(columns), wanted, block.origin)
    source = _Source(data, block, dialect)
    # The parser counts records only if it parses a column.
    asked = [*wanted, *beside] or columns[:1]
    records, texts = _texts(source, columns, asked)
    if len(records) != block.rows:
        raise ConservationError(
            f"{block.origin}, bytes {block.start} to {block.stop}: the scan counted "
            f"{block.rows} records, the parser {len(records)}; the file has perhaps "
            f"changed since it was listed"
        )
    first = block.first_row
    numbers = records.indices + first
    refused: list[Complaint] = [
        (first + index, Reason.FIELD_COUNT, _miscount(fields, len(columns)))
        for index, fields in records.miscounted
    ]
    no_rows = _no_rows(source, records, texts, columns)
    skipped = {Skipped.END_MARK: len(records.end_marks)}
    unread = np.isin(records.indices, malformed(source.utf8, dialect))
    del records
    refused += [
        (number, Reason.MALFORMED, _loose(dialect))
        for number in numbers[unread].tolist()
    ]
    for skip, these in no_rows.items():
        skipped[skip] = skipped.get(skip, 0) + int(these.sum())
        unread |= these
    for name in wanted or columns[:1]:
        text, mask = texts.get(name, (None, None))
        if mask is None:
            continue
        for place in np.flatnonzero(mask & ~unread).tolist():
            message = source.undecodable(name, text[place])
            refused.append((int(numbers[place]), Reason.INVALID_ENCODING, message))
        unread |= mask
    found = {name: _as_string(*texts[name]) for name in wanted}
    for name in beside:
        text, mask = texts[name]
        found[name] = _as_string(text, None) if mask is None else text
    if unread.any():
        fits = pa.array(~unread)
        found = {name: column.filter(fits) for name, column in found.items()}
        numbers = numbers[~unread]
    return RawRows(
        block,
        found,
        numbers,
        refused,
        source.rejections,
        skipped={str(reason): count for reason, count in skipped.items() if count},
    )


class _Source:
    """The bytes of a block, as in the file and as UTF-8."""

    def __init__(
        self, data: bytes | pa.Buffer, block: Block, dialect: CsvDialect
    ) -> None:
        self.block = block
        self.dialect = dialect
        head = bytes(memoryview(data)[:4]) if block.start == 0 else b""
        self.encoding = file_encoding(head, dialect, block.origin)
        self.raw: bytes | pa.Buffer = data
        self.scannable = is_scannable(self.encoding, dialect)
        if self.scannable:
            self.utf8 = data
            if self.encoding != "utf-8":
                self.utf8 = to_utf8(bytes(data), self.encoding)
            return
        # The block is the whole file: leave out the header and rows beyond a limit.
        text = whole_to_utf8(bytes(data), self.encoding, block.origin)
        skip = dialect.leading
        bounds, _, _ = locate(text, dialect, np.array([skip, skip + block.rows]))
        self.utf8 = self.raw = text[bounds[0] : bounds[1]]

    def undecodable(self, column: str, cell: pa.Scalar) -> str:
        """Returns the message for a cell that is not valid text."""
        value = cell.as_py()
        # Undo `to_utf8`, to show the bytes that are in the file.
        lone = "surrogateescape" if self.encoding == "utf-8" else "surrogatepass"
        raw = value.decode("utf-8", lone).encode(self.encoding, "surrogateescape")
        shown = shortened(raw.decode(self.encoding, "backslashreplace"))
        return bounded(f"column {column!r} holds '{shown}': not valid {self.encoding}")

    def rejections(self, complaints: Sequence[Complaint]) -> list[Rejection]:
        """Returns a rejection for each complaint; complaints ascend by row."""
        if not complaints:
            return []
        view = memoryview(self.raw)
        first = self.block.first_row
        indices = np.array([row - first for row, _, _ in complaints], np.int64)
        places = [array.tolist() for array in locate(self.raw, self.dialect, indices)]
        # The blanks before the next record are not its own.
        ends = b"\r\n \t" if self.dialect.delimiter == WHITESPACE else b"\r\n"
        out = []
        for complaint, start, stop, lines in zip(complaints, *places, strict=True):
            record = bytes(view[start:stop]).rstrip(ends)
            if not self.scannable:
                record = record.decode().encode(self.encoding)
            line = self.block.first_line + lines
            out.append(rejection_of(self.block.origin, complaint, record, line=line))
        return out


def _texts(
    source: _Source, columns: Sequence[str], wanted: Sequence[str]
) -> tuple[Records, _Texts]:
    """Returns the records, and each column with a mask of what is not valid text."""
    records = parse(source.utf8, columns, wanted, source.dialect)
    texts: _Texts = {}
    for name, cells in zip(wanted, records.columns, strict=True):
        try:
            text, mask = cells.cast(pa.string()), None
        except pa.ArrowInvalid:
            text, mask = cells, not_utf8(cells)
        if source.dialect.trim:
            text = trimmed(text) if mask is None else _trimmed_bytes(text, mask)
        texts[name] = text, mask
    return records, texts


def _no_rows(
    source: _Source,
    records: Records,
    texts: _Texts,
    columns: Sequence[str],
) -> dict[Skipped, Mask]:
    """Returns which records of the right length are not rows, by reason."""
    found = [text for text, _ in texts.values()]
    if len(columns) == 1:
        # In a table of one column a row may equal the name; hardly a lone Ctrl-Z.
        marks = equal_to(found[0], END_MARK)
        if not pc.any(marks).as_py():
            return {}
        return {Skipped.END_MARK: numpy_mask(marks)}
    if not source.dialect.header or source.dialect.columns is not None:
        return {}
    place_of = {name: place for place, name in enumerate(columns)}
    places = [place_of[name] for name in texts]
    repeats = repeats_header(found, places, columns)
    if repeats is None:
        return {}
    if len(texts) < len(columns):
        repeats[repeats] = _confirmed(source, records.indices[repeats], columns)
    return {Skipped.REPEATED_HEADER: repeats}


def _confirmed(
    source: _Source, indices: npt.NDArray[np.int64], columns: Sequence[str]
) -> Mask:
    """Tells which of the records hold the header's names in all of their fields."""
    starts, stops, _ = locate(source.utf8, source.dialect, indices)
    view = memoryview(source.utf8)
    text = b"\n".join(
        bytes(view[start:stop]) for start, stop in zip(starts, stops, strict=True)
    )
    found = parse(text, columns, columns, source.dialect).columns
    if source.dialect.trim:
        found = tuple(_trimmed_bytes(cells, not_utf8(cells)) for cells in found)
    repeats = repeats_header(found, range(len(columns)), columns)
    return np.zeros(len(indices), np.bool_) if repeats is None else repeats


def _trimmed_bytes(text: pa.Array, undecodable: Mask | None) -> pa.Array:
    """Returns a binary column trimmed, but for what is not valid text."""
    cells = trimmed(_as_string(text, undecodable)).cast(pa.binary())
    if undecodable is None:
        return cells
    return pc.if_else(pa.array(undecodable), text, cells)


def _as_string(text: pa.Array, undecodable: Mask | None) -> pa.Array:
    if undecodable is not None:
        text = pc.if_else(pa.array(undecodable), pa.scalar(None, text.type), text)
    return text.cast(pa.string()) if pa.types.is_binary(text.type) else text


def _loose(dialect: CsvDialect) -> str:
    return (
        f"text follows a closing quote ({dialect.quote}) in this row; where quotes are "
        f"part of the text, say --quote ''"
    )


def _miscount(found: int, expected: int) -> str:
    fields = "1 field" if found == 1 else f"{found} fields"
    return f"row has {fields}, {expected} expected"
