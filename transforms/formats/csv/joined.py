"""Small CSV files joined to one text, which is parsed once.

A file joins where its bytes begin with the header record of the first one, as that has
it, and its text is UTF-8. What follows the header must begin with a record: then no
record of the joined text spans two files, and the parser finds in it what it finds in
each file by itself. All others are read one by one.
"""

import contextlib
import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.model import Block
from transforms.core.reasons import Rejection
from transforms.core.rows.text_cells import is_text
from transforms.errors import InputError
from transforms.formats.csv.blocks import scanned
from transforms.formats.csv.dialect import WHITESPACE, CsvDialect
from transforms.formats.csv.read import read_raw
from transforms.formats.raw_rows import Complaint, RawRows
from transforms.formats.table import SMALL_BYTES, InputFile

_BOM = b"\xef\xbb\xbf"
# Files that are joined: each takes some hundred bytes until then.
_MOST_FILES = 4096
_ENDS = (b"\n", b"\r")
_LINE_END = re.compile(rb"\r?\n|\Z").match


@dataclasses.dataclass(frozen=True, slots=True)
class JoinedFiles:
    """The records of several files, end to end.

    Attributes:
      dialect: how they are written.
      files: k files.
      text: their records, without headers; each file's last one has a line end.
      starts: for each file, where its records start in it.
      first_line: the 1-based line on which they start, in each.
      first_rows: int64 array of k + 1: the number of records before each file's.
      first_lines: int64 array of k: how many lines of `text` end before each file's.
    """

    dialect: CsvDialect
    files: tuple[InputFile, ...]
    text: bytes
    starts: npt.NDArray[np.int64]
    first_line: int
    first_rows: npt.NDArray[np.int64]
    first_lines: npt.NDArray[np.int64]


def read_joined(
    joined: JoinedFiles,
    names: Sequence[str],
    wanted: Sequence[str],
    beside: Sequence[str],
) -> RawRows:
    """Returns the rows of all files; see `read_raw`."""
    inputs, first_rows = joined.files, joined.first_rows
    rows = int(first_rows[-1])
    # Any start but 0, where the text would begin with the header.
    block = Block(inputs[0].origin, 1, 1 + len(joined.text), rows=rows)
    raw = read_raw(joined.text, block, joined.dialect, names, wanted, beside)
    places = raw.numbers
    owners = np.searchsorted(first_rows, places, side="right") - 1
    numbers = places - first_rows[owners]
    origins = pa.array([file.origin for file in inputs], pa.string())
    sizes = np.array([file.size for file in inputs], np.int64)
    shares = numbers * (sizes - joined.starts)[owners]
    shares //= np.diff(first_rows)[owners]
    begins = np.array(
        [
            file.position_at(start)
            for file, start in zip(inputs, joined.starts.tolist(), strict=True)
        ]
    )

    def reject(complaints: Sequence[Complaint]) -> list[Rejection]:
        assert raw.reject is not None
        out = []
        for complaint, rejection in zip(
            complaints, raw.reject(complaints), strict=True
        ):
            number = complaint[0]
            owner = int(np.searchsorted(first_rows, number, side="right")) - 1
            assert rejection.line is not None
            before = int(joined.first_lines[owner]) - joined.first_line + 1
            out.append(
                dataclasses.replace(
                    rejection,
                    source=inputs[owner].origin,
                    row=number - int(first_rows[owner]) + 1,
                    line=rejection.line - before,
                )
            )
        return out

    return dataclasses.replace(
        raw,
        block=dataclasses.replace(
            block,
            start=int(joined.starts[0]),
            stop=int(joined.starts[0] + (sizes - joined.starts).sum()),
            position=int(begins[0]),
        ),
        numbers=numbers,
        reject=reject,
        origins=origins.take(pa.array(owners)),
        places=places,
        positions=begins[owners] + shares,
    )


def may_join(size: int, dialect: CsvDialect) -> bool:
    """Tells whether a file of this size, written so, can be joined to others."""
    return (
        size <= SMALL_BYTES
        and dialect.header
        and not dialect.sep_line
        and dialect.delimiter != WHITESPACE
        and not dialect.escape
        and dialect.encoding == "utf-8"
    )


def join_files(
    contents: Iterable[tuple[InputFile, CsvDialect, bytes | None]],
    header_of: Callable[[bytes, InputFile], bytes],
    *,
    most_bytes: int,
) -> Iterator[InputFile | JoinedFiles]:
    """Yields files joined where they can be, and the others; in their order.

    A compressed file is never joined: its bytes are no text.

    Args:
      contents: files, how they are written, and all of their bytes; None for one that
        is not to be joined.
      header_of: returns the header record of a file with these bytes, see `Header`;
        raises InputError where it is not that of the source.
      most_bytes: of text that are joined; the last file may go beyond.
    """
    joining: _Joining | None = None
    for file, dialect, data in contents:
        if data is not None and (joining is None or joining.dialect != dialect):
            if joining is not None:
                yield from joining.flush()
            header = b""
            # The reader of single files says a fault again, where it should.
            with contextlib.suppress(InputError):
                header = header_of(data, file)
            joining = _Joining(dialect, header) if header else None
        if joining is None:
            yield file
            continue
        body = None if data is None else joining.body_of(data)
        if (
            body is None
            or joining.size >= most_bytes
            or len(joining.files) == _MOST_FILES
        ):
            yield from joining.flush()
        if body is None:
            yield file
        else:
            joining.add(file, *body)
    if joining is not None:
        yield from joining.flush()


class _Joining:
    """Files that wait until no other can join them."""

    def __init__(self, dialect: CsvDialect, header: bytes) -> None:
        self.dialect = dialect
        self.header = header
        lines = header.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        self.first_line = 2 + lines.count(b"\n")
        self._clear()

    def _clear(self) -> None:
        self.files: list[InputFile] = []
        self.bodies: list[bytes] = []
        self.starts: list[int] = []
        self.size = 0

    def body_of(self, data: bytes) -> tuple[bytes, int] | None:
        """Returns the records of a file, and where they start; None if it cannot join.

        No records are a body, too.
        """
        start = len(_BOM) if data.startswith(_BOM) else 0
        if not data.startswith(self.header, start):
            return None
        end = _LINE_END(data, start + len(self.header))
        if end is None:
            return None
        start = end.end()
        body = data[start:]
        if body[:1] in _ENDS or not (body.isascii() or is_text(body)):
            return None
        return (body if not body or body[-1:] in _ENDS else body + b"\n"), start

    def add(self, file: InputFile, body: bytes, start: int) -> None:
        """Adds a file; one without records has nothing to add."""
        if body:
            self.files.append(file)
            self.bodies.append(body)
            self.starts.append(start)
            self.size += len(body)

    def flush(self) -> Iterator[InputFile | JoinedFiles]:
        """Yields the files that wait, as one; each by itself where quotes forbid it."""
        files, bodies, starts = self.files, self.bodies, self.starts
        self._clear()
        if len(files) < 2:
            yield from files
            return
        text = b"".join(bodies)
        begins = np.cumsum([0, *map(len, bodies)])
        records, lines, _, scan = scanned(text, self.dialect)
        # Where files begin, records must begin; the last ones end with the text.
        records = np.append(records, len(text))
        first_rows = np.searchsorted(records, begins)
        if scan.inside or (records[first_rows] != begins).any():
            yield from files
            return
        yield JoinedFiles(
            self.dialect,
            tuple(files),
            text,
            np.array(starts, np.int64),
            self.first_line,
            first_rows,
            np.searchsorted(lines, begins[:-1]),
        )
