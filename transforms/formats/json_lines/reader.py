"""JSON lines as a table format: one object per line, blocks that end at line ends.

cut.py          bytes, also of an array -> pieces of whole lines, and which are rows
types.py        values -> the type of each column
parse.py        lines -> columns, and the lines that are refused
reader.py       all of this as the reader of a table format

Objects are flattened to columns `outer/inner`, lists are kept. A key that is missing
is a missing value, as null is; one that the sample has not seen is no column.
"""

import dataclasses
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.json

from transforms.core.model import Block, Rejection
from transforms.errors import ConservationError, InputError
from transforms.formats.columnar.arrow_batches import (
    PIECE_BYTES,
    SAMPLE_BYTES,
    joined_sample,
)
from transforms.formats.json_lines.cut import (
    HEAD_BYTES,
    Lines,
    cut,
    is_array,
    items_of_block,
    lines_of,
)
from transforms.formats.json_lines.parse import (
    check_names,
    columns_of,
    learned,
    leaves_of,
)
from transforms.formats.json_lines.types import (
    NO_COLUMNS,
    JsonType,
    clashes,
    merged,
)
from transforms.formats.raw_rows import rejecter, rejection_of
from transforms.formats.table import (
    Complaint,
    InputFile,
    Planned,
    RawRows,
    SourceFile,
    TableReader,
    only,
    read_in_turn,
    unreadable,
)
from transforms.formats.whole_files import Unpacked, begins_packed, open_content
from transforms.storage.files import storage

# Places at which a larger source is sampled, and the most files of a smaller one that
# are looked into: each takes 2 ms.
_PLACES, _MOST_FILES = 64, 512
# Percent of unreadable lines from which on the file is not JSON lines at all.
_UNREAD_IN_100 = 90
# With fewer rows, a column that is missing cannot be told from one that is rare.
_TELLING_ROWS = 20


@dataclasses.dataclass(frozen=True, slots=True)
class JsonLinesReader(TableReader):
    """Files of JSON lines, plain or compressed.

    Attributes:
      kind: the type of the rows, once it is known.
      full: whether types are learned from all rows of all files, not from a sample.
      null_values: see `TableReader`.
      beside: see `TableReader`.
    """

    title: ClassVar[str] = "JSON lines"
    content: ClassVar[Literal["none", "read", "all"]] = "all"

    kind: JsonType = NO_COLUMNS
    full: bool = False
    null_values: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()

    def plan(self, files: Sequence[InputFile]) -> Planned:
        """Samples places spread evenly; of compressed files the first rows."""
        chosen = list(files)
        is_small = sum(file.size for file in files) <= SAMPLE_BYTES
        most = _MOST_FILES if is_small else _PLACES
        if len(files) > most:
            chosen = [files[i * len(files) // most] for i in range(most)]
        texts = [
            _texts(file, SAMPLE_BYTES, len(chosen), is_small=is_small)
            for file in read_in_turn(chosen)
        ]
        kinds = [
            (file.origin, merged(map(learned, text.pieces)))
            for file, text in zip(chosen, texts, strict=True)
        ]
        if self.full:
            kinds += [
                (f.origin, merged(learned(p) for p, _, _ in _pieces(f, None)))
                for f in files
            ]
        kind = _agreed(kinds)
        unread, lines, complaint = 0, 0, ""
        by_file: dict[str, list[dict[str, pa.Array]]] = {}
        for file, text in zip(chosen, texts, strict=True):
            for piece in text.pieces:
                found = lines_of(piece)
                columns, _, refused = columns_of(piece, found, kind)
                by_file.setdefault(file.origin, []).append(columns)
                unread, lines = unread + len(refused), lines + len(found)
                if refused and not complaint:
                    complaint = f"{file.origin}: {refused[0][2]}"
        parts = [part for of_file in by_file.values() for part in of_file]
        rows = sum(map(_rows_in, parts))
        if not lines:
            raise InputError(
                f"JSON lines must hold an object on each line; {chosen[0].origin} "
                f"holds no line. Leave the file out."
            )
        if unread and (not rows or unread * 100 >= lines * _UNREAD_IN_100):
            raise InputError(
                f"Each line of JSON lines, or item of an array, must be an object that "
                f"can be read; {unread:,} of {lines:,} sampled lines are not. "
                f"{complaint}"
            )
        if not rows:
            raise InputError(
                f"The objects of JSON lines must have members, which become columns; "
                f"those of {chosen[0].origin} give no column. Leave the file out."
            )
        _check_presence(by_file)
        complete = all(text.ended for text in texts) and len(chosen) == len(files)
        types = {name: inner.arrow for name, inner in leaves_of(kind)}
        sample = joined_sample(
            types,
            parts,
            total_rows=rows + unread if complete else None,
            sampled_bytes=sum(text.stored_bytes for text in texts),
            complete=complete,
            unread=unread,
        )
        if not (complete or self.full):
            note = (
                f"the columns are the keys of {rows:,} sampled lines; what only other "
                f"lines have is left out, and --infer full looks at all lines first"
            )
            sample = dataclasses.replace(sample, notes=(note,))
        return Planned(dataclasses.replace(self, kind=kind), sample)

    def giving(self, beside: Sequence[str]) -> Self:
        """Returns the reader that gives columns `beside`."""
        return dataclasses.replace(self, beside=tuple(beside))

    def blocks(
        self, file: InputFile, *, block_bytes: int, limit_rows: int | None
    ) -> Iterator[Block]:
        """Yields blocks of whole lines; a compressed file is one block."""
        if not begins_packed(_head(file)):
            with file.open() as stream:
                for _, block in cut(stream, file.origin, block_bytes, limit_rows):
                    yield file.placed(block)
            return
        rows = 0
        if limit_rows is not None:
            rows = sum(piece.rows for _, piece, _ in _pieces(file, limit_rows))
        yield file.whole(rows=rows)

    def read(
        self, file: SourceFile, block: Block, columns: Sequence[str]
    ) -> Iterator[RawRows]:
        """Yields the rows of a block; those of a compressed file in pieces."""
        head = _head(file)
        if not begins_packed(head):
            stamp = block.stamp
            data = storage(file.path).read_range(block.start, block.stop, stamp=stamp)
            if is_array(head):
                data = items_of_block(data, block)
            yield self._raw(data, block, columns)
            return
        used = 0
        for data, piece, now in _pieces(file, block.rows or None):
            now = min(now, block.stop)
            placed = dataclasses.replace(
                piece,
                stop=piece.start + now - used,
                position=block.position + used,
                stamp=block.stamp,
            )
            used = now
            yield self._raw(data, placed, columns)

    def read_whole(
        self, files: Sequence[InputFile], columns: Sequence[str], *, block_bytes: int
    ) -> Iterator[RawRows]:
        """Yields the rows of small files, each of which is opened once."""
        for file in read_in_turn(files):
            try:
                data = storage(file.path).read_bytes(stamp=file.stamp)
            except OSError as error:
                raise unreadable(file.path, error) from error
            if begins_packed(data):
                yield from super(JsonLinesReader, self).read_whole(
                    [file], columns, block_bytes=block_bytes
                )
                continue
            for piece, block in cut(io.BytesIO(data), file.origin, block_bytes):
                yield self._raw(piece, file.placed(block), columns)

    def _raw(self, data: bytes, block: Block, wanted: Sequence[str]) -> RawRows:
        only(dict(leaves_of(self.kind)), wanted, block.origin)
        lines = lines_of(data)
        if len(lines) != block.rows:
            raise ConservationError(
                f"{block.origin}, from byte {block.start} on: {block.rows} lines were "
                f"counted, now there are {len(lines)}; the file has perhaps changed "
                f"since it was listed"
            )
        asked = [*wanted, *self.beside]
        columns, places, refused = columns_of(data, lines, self._only(asked))
        if refused and self.beside:
            columns, places, refused = columns_of(data, lines, self._only(wanted))
            columns |= self._beside(data, lines, places)
        selected = {name: columns[name] for name in asked}
        first = block.first_row
        return RawRows(
            block,
            selected,
            places + first,
            [(index + first, reason, message) for index, reason, message in refused],
            rejecter(_rejection, data, lines, block),
        )

    def _beside(
        self, data: bytes, lines: Lines, places: npt.NDArray[np.int64]
    ) -> dict[str, pa.Array]:
        """Returns the columns `beside` of these lines; null for what does not fit."""
        columns, there, _ = columns_of(data, lines, self._only(self.beside))
        at = np.searchsorted(there, places)
        taken = pa.array(at, mask=np.isin(places, there, invert=True))
        return {name: columns[name].take(taken) for name in self.beside}

    def _only(self, wanted: Sequence[str]) -> JsonType:
        """Returns the type of rows that have the wanted columns alone."""
        members = [
            (name, kept)
            for name, inner in self.kind.members
            if (kept := inner.only(frozenset(wanted), name)) is not None
        ]
        return JsonType("object", tuple(members))


@dataclasses.dataclass(frozen=True, slots=True)
class _Texts:
    """Whole lines of one file.

    Attributes:
      pieces: whole lines of the content.
      stored_bytes: bytes of the file that the pieces take.
      ended: whether the pieces are the whole file.
    """

    pieces: list[bytes]
    stored_bytes: int
    ended: bool


def _texts(file: InputFile, sample_bytes: int, count: int, *, is_small: bool) -> _Texts:
    """Returns lines of one of `count` files, each with an equal share of the sample.

    All lines, where the files are so small that the sample has room for all.
    """
    budget = max(sample_bytes // count, 1 << 16)
    head = _head(file)
    is_packed = begins_packed(head)
    is_whole = not is_packed and (is_small or file.size <= budget)
    if is_whole or is_packed or is_array(head):
        pieces: list[bytes] = []
        size = used = 0
        for data, _, now in _pieces(file, None, min(budget, PIECE_BYTES)):
            if size >= budget and not is_whole:
                return _Texts(pieces, used, False)
            pieces.append(data)
            size, used = size + len(data), now
        return _Texts(pieces, min(used, file.size), True)
    with file.open() as stream:
        places = max(1, _PLACES // count)
        first, _ = next(cut(stream, file.origin, budget // places))
        pieces = [first]
        for index in range(1, places):
            stream.seek(max(file.size * index // places, len(first)))
            text = stream.read(budget // places)
            # From the first whole line to the last.
            text = text[text.find(b"\n") + 1 : text.rfind(b"\n") + 1]
            if text:
                pieces.append(text)
    return _Texts(pieces, sum(map(len, pieces)), False)


def _head(file: SourceFile) -> bytes:
    with storage(file.path).open_input() as stream:
        return stream.read(HEAD_BYTES)


def _pieces(
    file: SourceFile, limit: int | None, piece_bytes: int = PIECE_BYTES
) -> Iterator[tuple[bytes, Block, int]]:
    """Yields pieces of a file's content, and how much of the file was read so far."""
    with open_content(file) as stream:
        for data, block in cut(stream, file.origin, piece_bytes, limit):
            used = block.stop
            if isinstance(stream, Unpacked):
                # The piece is a copy: the stream may drop its own bytes.
                stream.forget(stream.tell())
                used = stream.consumed
            yield data, block, used


def _rejection(
    data: bytes, lines: Lines, block: Block, complaint: Complaint
) -> Rejection:
    """Returns the rejection of a row, with its line."""
    index = complaint[0] - block.first_row
    line = data[int(lines.starts[index]) : int(lines.stops[index])]
    number = block.first_line + int(lines.numbers[index])
    return rejection_of(block.origin, complaint, line.rstrip(b"\r"), line=number)


def _rows_in(part: dict[str, pa.Array]) -> int:
    """Returns how many rows the columns of a piece have."""
    return len(next(iter(part.values()), ()))


def _agreed(kinds: Sequence[tuple[str, JsonType]]) -> JsonType:
    """Returns the type of the rows of all files.

    Raises:
      InputError: a column is of one type in one file and of another in the next, or
        there is none, or two have one name.
    """
    whole = JsonType("null")
    seen: list[tuple[str, JsonType]] = []
    for origin, kind in kinds:
        for before, earlier in seen:
            facts = [
                f"{path[:60]!r} is {a.name} in {before} and {b.name} in {origin}"
                for path, a, b in clashes(earlier, kind)
            ]
            if facts:
                raise InputError(
                    f"all files of a source must have the same columns; "
                    f"{'; '.join(facts[:8])}. Convert them one by one, or write them "
                    f"again alike."
                )
        together = merged([whole, kind])
        if together != whole:
            seen.append((origin, kind))
        whole = together
    check_names(whole)
    return whole if whole.name == "object" else NO_COLUMNS


def _check_presence(by_file: Mapping[str, Sequence[dict[str, pa.Array]]]) -> None:
    """Raises InputError if all rows of one file have a column, and none of another."""
    full: dict[str, str] = {}
    empty: dict[str, str] = {}
    for origin, parts in by_file.items():
        rows = sum(map(_rows_in, parts))
        for name in parts[0] if rows >= _TELLING_ROWS else ():
            nulls = sum(batch[name].null_count for batch in parts)
            if nulls in (0, rows):
                (empty if nulls else full).setdefault(name, origin)
    for name in full:
        if name in empty:
            raise InputError(
                f"all files of a source must have the same columns; every row of "
                f"{full[name]} has {name!r}, and none of {empty[name]}. Convert them "
                f"one by one, or write them again alike."
            )
