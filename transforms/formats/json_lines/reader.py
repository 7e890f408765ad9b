"""JSON lines as a table format: one object per line, blocks that end at line ends.

cut.py          bytes, also of an array -> pieces of whole lines, and which are rows
values.py       values -> the type of each column, and what does not have it
reader.py       lines -> columns, and the lines that are refused; files -> lines

Arrow's parser reads a whole block; where it fails, or where its values might not be
exact, Python's parser reads the lines, which is slow. Both give the same values.

Objects are flattened to columns `outer/inner`, lists are kept. A key that is missing
is a missing value, as null is; one that the sample has not seen is no column.
"""

import dataclasses
import io
import re
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.json

from transforms.core.json_text import json_nesting, openings
from transforms.core.model import Block
from transforms.core.reasons import FaultError, Rejection
from transforms.core.rows.column import FLOAT64_EXACT
from transforms.core.rows.text_cells import is_text
from transforms.errors import ConservationError, InputError
from transforms.formats.columnar.arrow_batches import (
    PIECE_BYTES,
    SAMPLE_BYTES,
    joined_sample,
)
from transforms.formats.columnar.arrow_types import flat_columns
from transforms.formats.input_files import Unpacked, begins_packed, open_content
from transforms.formats.json_lines.cut import (
    HEAD_BYTES,
    Lines,
    cut,
    is_array,
    item_lines,
    lines_of,
)
from transforms.formats.json_lines.values import (
    NO_COLUMNS,
    ROW_NESTING,
    JsonType,
    clashes,
    columns_in,
    largest,
    merged,
    of_column,
    of_value,
    parse_line,
    typed_members,
    without_faults,
)
from transforms.formats.raw_rows import Complaint, RawRows, rejecter, rejection_of
from transforms.formats.table import (
    InputFile,
    Planned,
    SourceFile,
    TableReader,
    only,
    read_in_turn,
    reading,
    spread,
)
from transforms.storage.files import storage

# Places at which a larger source is sampled, and the most files of a smaller one that
# are looked into: each takes 2 ms.
_PLACES, _MOST_FILES = 64, 512
# Percent of unreadable lines from which on the file is not JSON lines at all.
_UNREAD_IN_100 = 90
# Arrow's parser takes this word for a number; Python's parser does not.
_SHORT_INFINITY = re.compile(rb"[:\[,]\s*-?Inf(?!inity)")


def learned(data: bytes) -> JsonType:
    """Returns the type of the rows of whole lines."""
    lines = lines_of(data)
    table = _by_arrow(lines, None)
    if table is not None and table.num_columns:
        # Not in one piece: Arrow fails to join lists of nulls.
        kind = merged(map(of_column, table.to_struct_array().chunks))
        if kind.is_plain:
            return kind
    return merged(map(of_value, without_faults(parse_line, lines)))


def columns_of(
    lines: Lines, kind: JsonType
) -> tuple[dict[str, pa.Array], npt.NDArray[np.int64], list[Complaint]]:
    """Reads lines by either parser: flat columns, of which lines, and those refused."""
    if kind.is_plain and kind.members:
        table = _by_arrow(lines, pa.schema(list(kind.arrow)))
        flat = flat_columns(table) if table is not None else {}
        if flat and all(map(_is_exact, flat.values())):
            return flat, np.arange(len(lines)), []
    rows: list[dict[str, Any]] = []
    indices: list[int] = []
    refused: list[Complaint] = []
    for index, line in enumerate(lines):
        try:
            rows.append(typed_members(parse_line(line), kind))
            indices.append(index)
        except FaultError as error:
            refused.append((index, *error.fault))
    return columns_in(rows, kind), np.array(indices, np.int64), refused


def _by_arrow(lines: Lines, schema: pa.Schema | None) -> pa.Table | None:
    """Returns the rows by Arrow's parser; None where it fails or would be wrong.

    Arrow ignores line ends. If every line starts with "{" and ends with "}", and there
    are as many objects as lines, then each line is one object: inside one, "{" never
    follows "}" directly.
    """
    data = lines.data
    if not (lines.plain and len(lines)) or _has_deep_line(lines):
        return None
    if b"Inf" in data and _SHORT_INFINITY.search(data):
        return None
    # Arrow's parser does not check the encoding.
    if not is_text(data):
        return None
    try:
        table = pyarrow.json.read_json(
            pa.BufferReader(data),
            read_options=pyarrow.json.ReadOptions(
                use_threads=False, block_size=len(data) + 1
            ),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=schema,
                unexpected_field_behavior="infer" if schema is None else "ignore",
            ),
        )
    except pa.ArrowException:
        return None
    return table if table.num_rows == len(lines) else None


def _has_deep_line(lines: Lines) -> bool:
    """Tells whether a line is nested too deep, which Arrow's parser accepts."""
    opened = openings(np.frombuffer(lines.data, np.uint8))
    # Most lines open one object and nothing else: then counting brackets suffices.
    if np.count_nonzero(opened) - len(lines) < ROW_NESTING:
        return False
    # NumPy's sums by pieces would make integers of all bytes first.
    edges = np.append(lines.starts, len(lines.data))
    most = np.diff(np.searchsorted(np.flatnonzero(opened), edges)).max()
    return most > ROW_NESTING and json_nesting(lines.data) > ROW_NESTING


def _is_exact(column: pa.Array) -> bool:
    """Tells whether no double may be the rounded value of an integer, or infinite."""
    while pa.types.is_list(column.type):
        column = column.flatten()
    return not pa.types.is_float64(column.type) or largest(column) < FLOAT64_EXACT


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
        is_small = sum(file.size for file in files) <= SAMPLE_BYTES
        chosen = spread(files, _MOST_FILES if is_small else _PLACES)
        samples = [
            (file.origin, *_sampled(file, len(chosen), is_small=is_small))
            for file in read_in_turn(chosen)
        ]
        kinds = [(name, merged(map(learned, texts))) for name, texts, *_ in samples]
        if self.full:
            kinds += [
                (f.origin, merged(learned(text) for text, _, _ in _pieces(f, None)))
                for f in files
            ]
        kind = _agreed(kinds)
        types = kind.columns(chosen[0].origin)
        rows, complaints = 0, list[str]()
        parts: list[dict[str, pa.Array]] = []
        for origin, texts, *_ in samples:
            for text in texts:
                columns, places, refused = columns_of(lines_of(text), kind)
                parts.append(columns)
                rows += len(places)
                complaints += [f"{origin}: {message}" for _, _, message in refused]
        unread, lines = len(complaints), rows + len(complaints)
        if unread and (not types or unread * 100 >= lines * _UNREAD_IN_100):
            raise InputError(
                f"Each line of JSON lines, or item of an array, must be an object that "
                f"can be read; {unread:,} of {lines:,} sampled lines are not. "
                f"{complaints[0]}"
            )
        if not types or not rows:
            raise InputError(
                f"JSON lines must hold objects with members, which become columns; "
                f"{chosen[0].origin} holds none. Leave the file out."
            )
        complete = all(ended for *_, ended in samples) and len(chosen) == len(files)
        sample = joined_sample(
            types,
            parts,
            total_rows=lines if complete else None,
            sampled_bytes=sum(stored for _, _, stored, _ in samples),
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
        with open_content(file) as stream:
            if not isinstance(stream, Unpacked):
                for _, block in cut(stream, file.origin, block_bytes, limit_rows):
                    yield file.placed(block)
                return
        pieces = () if limit_rows is None else _pieces(file, limit_rows)
        yield file.whole(rows=sum(block.rows for _, block, _ in pieces))

    def read(
        self, file: SourceFile, block: Block, columns: Sequence[str]
    ) -> Iterator[RawRows]:
        """Yields the rows of a block; those of a compressed file in pieces."""
        head = _first_bytes(file)
        if not begins_packed(head):
            stamp = block.stamp
            data = storage(file.path).read_range(block.start, block.stop, stamp=stamp)
            if is_array(head):
                items = item_lines([data], file.origin, block.start, level=1)
                data = b"".join(items)
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
            with reading(file.path):
                data = storage(file.path).read_bytes(stamp=file.stamp)
            if begins_packed(data):
                yield from super(JsonLinesReader, self).read_whole(
                    [file], columns, block_bytes=block_bytes
                )
                continue
            for piece, block in cut(io.BytesIO(data), file.origin, block_bytes):
                yield self._raw(piece, file.placed(block), columns)

    def _raw(self, data: bytes, block: Block, wanted: Sequence[str]) -> RawRows:
        lines = lines_of(data)
        if len(lines) != block.rows:
            raise ConservationError(
                f"{block.origin}, from byte {block.start} on: {block.rows} lines were "
                f"counted, now there are {len(lines)}; the file has perhaps changed "
                f"since it was listed"
            )
        columns, places, refused = self._columns(lines, [*wanted, *self.beside])
        if refused and self.beside:
            columns, places, refused = self._columns(lines, wanted)
            # Null for what does not fit: it refuses no row.
            others, there, _ = self._columns(lines, self.beside)
            at = np.searchsorted(there, places)
            taken = pa.array(at, mask=np.isin(places, there, invert=True))
            columns |= {name: others[name].take(taken) for name in self.beside}
        first = block.first_row

        def rejection(complaint: Complaint) -> Rejection:
            index = complaint[0] - first
            line = block.first_line + int(lines.numbers[index])
            return rejection_of(block.origin, complaint, lines[index], line=line)

        return RawRows(
            block,
            only(columns, [*wanted, *self.beside], block.origin),
            places + first,
            [(index + first, reason, message) for index, reason, message in refused],
            rejecter(rejection),
        )

    def _columns(self, lines: Lines, names: Sequence[str]) -> Any:
        """Returns what `columns_of` does, of the rows' types of these columns alone."""
        return columns_of(lines, self.kind.only(frozenset(names)) or NO_COLUMNS)


def _sampled(
    file: InputFile, count: int, *, is_small: bool
) -> tuple[list[bytes], int, bool]:
    """Returns whole lines of one of `count` files, each with a share of the sample.

    All lines, where the files are so small that the sample has room for all.

    Returns:
      Pieces of the content; how many bytes of the file they take; whether they are all
      of it.
    """
    budget = max(SAMPLE_BYTES // count, 1 << 16)
    head = _first_bytes(file)
    is_packed = begins_packed(head)
    is_whole = not is_packed and (is_small or file.size <= budget)
    pieces: list[bytes] = []
    if is_whole or is_packed or is_array(head):
        size = used = 0
        for data, _, now in _pieces(file, None, min(budget, PIECE_BYTES)):
            if size >= budget and not is_whole:
                return pieces, used, False
            pieces.append(data)
            size, used = size + len(data), now
        return pieces, min(used, file.size), True
    places = max(1, _PLACES // count)
    length = budget // places
    with file.open() as stream:
        data, _ = next(cut(stream, file.origin, length))
        pieces.append(data)
        for index in range(1, places):
            stream.seek(max(file.size * index // places, len(data)))
            text = stream.read(length)
            # From the first whole line to the last.
            pieces.append(text[text.find(b"\n") + 1 : text.rfind(b"\n") + 1])
    return pieces, sum(map(len, pieces)), False


def _first_bytes(file: SourceFile) -> bytes:
    """Returns the bytes that show whether a file is compressed, or an array."""
    with storage(file.path).open_input() as stream:
        return stream.read(HEAD_BYTES)


def _pieces(
    file: SourceFile, limit: int | None, piece_bytes: int = PIECE_BYTES
) -> Iterator[tuple[bytes, Block, int]]:
    """Reads a file's content in pieces; yields how much of the file is read, too."""
    with open_content(file) as stream:
        for data, block in cut(stream, file.origin, piece_bytes, limit):
            used = block.stop
            if isinstance(stream, Unpacked):
                # The piece is a copy: the stream may drop its own bytes.
                stream.forget(stream.tell())
                used = stream.consumed
            yield data, block, used


def _agreed(kinds: Sequence[tuple[str, JsonType]]) -> JsonType:
    """Returns the type of the rows of all files.

    Raises:
      InputError: a column is of one type in one file and of another in the next.
    """
    whole = JsonType()
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
    return whole if whole.name == "object" else NO_COLUMNS
