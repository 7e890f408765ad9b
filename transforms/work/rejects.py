"""Reject logs: the rejections of one task, collected in bounded memory.

A log consists of runs, each sorted by (source, row); a run consists of pieces, each one
Arrow IPC message of `PIECE_SCHEMA`:

    key     binary        orders by source, in UTF-8, and row; see `_key`
    line    large_binary  the line of `rejects.jsonl`, with its line end
    offset  int64         where in the log the record of the kept item is
    size    int64         of that record as TFRecord frames it; 0 for none

Most tasks find their rejections in order and write one run. Where they do not, a run
is what is sorted at a time, and `transforms.work.reject_files` merges them.

What is sorted at a time is also what is written at a time, each in a file of the
attempt's own, so that a disk that fails in passing can be given it again; the log is
made of these files at the end.
"""

import collections
import contextlib
import hashlib
import itertools
import operator
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.model import Rejection, RejectLog
from transforms.core.reasons import Reason
from transforms.errors import StorageError, bounded
from transforms.storage.drafts import CountedSink
from transforms.storage.files import storage
from transforms.storage.retry import persistently, storing

PIECE_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("line", pa.large_binary()),
        ("offset", pa.int64()),
        ("size", pa.int64()),
    ]
)
# Longer items are not kept; their size and their sha256 are.
MAX_KEPT_BYTES = 16 << 20
# The features of a kept item's record. Absent: row of a file, bytes of an item that is
# too long, or could not be read.
_RECORD_SCHEMA = pa.schema(
    [
        ("source", pa.string()),
        ("row", pa.int64()),
        ("reason", pa.string()),
        ("sha256", pa.string()),
        ("size", pa.int64()),
        ("bytes", pa.large_binary()),
    ]
)
# Of the example of a reason, which only messages show.
_EXAMPLE_BYTES = 300
# The limits of what is sorted at a time: rejections, or bytes of lines and items.
_SORTED_ROWS = 16_384
_SORTED_BYTES = 8 << 20
# The size of a piece. A merge holds one or two pieces of every run in memory.
PIECE_ROWS = 256
# A log of more bytes than this is written to a file.
_INLINE_BYTES = 1 << 14
# Of a line, to order by instead of its row.
_HASH_BYTES = 7
_ROW_BYTES = 8
_COPIED_BYTES = 8 << 20

_first = operator.itemgetter(0)
# Key, line, and the rejection itself where its item is kept.
_Entry = tuple[bytes, bytes, Rejection | None]


class RejectGatherer:
    """Collects the rejections of one task, in any order and in bounded memory.

    A context: `log` is there after it, None where there was no rejection. A second
    attempt at the task replaces the file of the first with the same bytes.
    """

    def __init__(
        self,
        task: str,
        path: str,
        *,
        attempts: str,
        keep_items: bool = False,
        by_line: bool = False,
    ) -> None:
        """Starts a log.

        Args:
          task: what only this task has.
          path: of the file, where one is needed; empty to have none, however long
            the log is.
          attempts: a folder for the unfinished file, on the same file system.
          keep_items: whether the items themselves are kept.
          by_line: whether rejections of one source and row are in the order of their
            lines, not as they come; for items that are in no order.
        """
        self.log: RejectLog | None = None
        self._task = task
        self._path = path
        self._attempts = attempts
        self._keep_items = keep_items
        self._by_line = by_line
        self._entries: list[_Entry] = []
        self._held_bytes = 0
        self._counts: collections.Counter[Reason] = collections.Counter()
        # Of each reason, and of each kind of part, the first in the order of sources
        # and rows, with its place.
        self._examples: dict[str, tuple[tuple[str, int], str]] = {}
        self._parts: collections.Counter[str] = collections.Counter()
        self._runs: list[tuple[bytes, list[tuple[int, int]]]] = []
        self._last = b""
        self._line_bytes = self._item_bytes = self._size = 0
        # The end of the log, and the files that hold what comes before it.
        self._held: list[bytes] = []
        self._written: list[str] = []
        self._crc = 0

    def add(self, rejections: Iterable[Rejection]) -> None:
        """Adds some rejections.

        Raises:
          StorageError: they could not be written, though it was tried again.
        """
        for rejection in rejections:
            if rejection.part:
                self._parts[rejection.part] += 1
            else:
                self._counts[rejection.reason] += 1
            of = rejection.part or rejection.reason
            place = rejection.source, rejection.row or 0
            known = self._examples.get(of)
            if known is None or place < known[0]:
                text = rejection.in_words()
                if rejection.part:
                    text = f"{rejection.reason}: {text}"
                self._examples[of] = place, bounded(text, _EXAMPLE_BYTES)
            line = f"{rejection.to_json()}\n".encode("utf-8", "replace")
            kept = rejection if self._keep_items else None
            row = rejection.row or 0
            if self._by_line:
                hashed = hashlib.blake2b(line, digest_size=_HASH_BYTES).digest()
                row = int.from_bytes(hashed)
            self._entries.append((_key(rejection.source, row), line, kept))
            self._held_bytes += len(line)
            if kept is not None:
                self._held_bytes += len(kept.raw or b"")
            if self._held_bytes >= _SORTED_BYTES or len(self._entries) >= _SORTED_ROWS:
                self._flush()
                if self._spills:
                    self._write_held()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self._flush()
                self._finish()
        finally:
            # What cannot be removed goes with the folder of attempts.
            with contextlib.suppress(OSError, StorageError):
                for path in self._written:
                    storage(path).remove_file()
        if error is None and self._runs:
            self.log = RejectLog(
                counts=dict(sorted(self._counts.items())),
                examples={of: text for of, (_, text) in sorted(self._examples.items())},
                parts=dict(sorted(self._parts.items())),
                task=self._task,
                runs=tuple((first, tuple(pieces)) for first, pieces in self._runs),
                line_bytes=self._line_bytes,
                item_bytes=self._item_bytes,
                payload=b"".join(self._held),
                path=self._path if self._spills else "",
                crc32c=self._crc,
            )

    @property
    def _spills(self) -> bool:
        return bool(self._path) and self._size > _INLINE_BYTES

    def _flush(self) -> None:
        entries, self._entries, self._held_bytes = self._entries, [], 0
        if not entries:
            return
        entries.sort(key=_first)
        first = entries[0][0]
        if not self._runs or first < self._last:
            self._runs.append((first, []))
        self._last = entries[-1][0]
        for start in range(0, len(entries), PIECE_ROWS):
            self._write_piece(entries[start : start + PIECE_ROWS])

    def _write_piece(self, entries: Sequence[_Entry]) -> None:
        keys, lines, rejections = zip(*entries, strict=True)
        self._line_bytes += sum(map(len, lines))
        ends: npt.NDArray[np.int64] = np.zeros(len(entries) + 1, np.int64)
        if self._keep_items:
            records, ends = _records(rejections)
            ends = ends + self._size
            self._item_bytes += len(records)
            self._append(records)
        piece = pa.record_batch(
            [
                pa.array(keys, pa.binary()),
                pa.array(lines, pa.large_binary()),
                pa.array(ends[:-1]),
                pa.array(np.diff(ends)),
            ],
            schema=PIECE_SCHEMA,
        )
        message = piece.serialize().to_pybytes()
        self._runs[-1][1].append((self._size, len(message)))
        self._append(message)

    def _append(self, data: bytes) -> None:
        self._size += len(data)
        self._held.append(data)

    def _write_held(self) -> None:
        """Writes the end of the log to a file of this attempt."""
        name = f"{os.getpid()}-{secrets.token_hex(8)}.rejects"
        path = os.path.join(self._attempts, name)
        storage(path).write_file(*self._held, attempts=self._attempts, durable=False)
        self._written.append(path)
        self._held = []

    def _finish(self) -> None:
        """Writes the log to a file unless it is small enough to travel inline."""
        if not self._spills:
            return
        held, self._held = self._held, []
        with storing(self._path, size=self._size):
            persistently(lambda: self._join(held), path=self._path)

    def _join(self, held: Sequence[bytes]) -> None:
        with storage(self._path).create(attempts=self._attempts, durable=False) as file:
            log = CountedSink(file)
            for data in itertools.chain(*map(_pieces_of, self._written), held):
                log.write(data)
        self._crc = log.crc32c


def _pieces_of(path: str) -> Iterator[bytes]:
    size = storage(path).size_of()
    for start in range(0, size, _COPIED_BYTES):
        yield storage(path).read_range(start, min(start + _COPIED_BYTES, size))


def _key(source: str, row: int) -> bytes:
    """Returns bytes that order as (source, row) do.

    The row is 1-based; 0 for items that are no rows, or a hash of the line. No source
    ends within another one: a byte 0 in it is followed by 1.
    """
    encoded = source.encode("utf-8", "replace").replace(b"\0", b"\0\1")
    return encoded + b"\0\0" + row.to_bytes(_ROW_BYTES)


def _records(
    rejections: Sequence[Rejection],
) -> tuple[bytes, npt.NDArray[np.int64]]:
    """Returns framed records with the items of n rejections, and n + 1 offsets."""
    # Here, because few jobs keep items.
    from transforms.core.example.encoder import ExampleEncoder

    raw = [rejection.raw for rejection in rejections]
    sizes = [None if item is None else len(item) for item in raw]
    columns = {
        "source": [r.source.encode("utf-8", "replace").decode() for r in rejections],
        "row": [rejection.row for rejection in rejections],
        "reason": [str(rejection.reason) for rejection in rejections],
        "sha256": [rejection.sha256 for rejection in rejections],
        "size": sizes,
        "bytes": [
            item if item is not None and len(item) <= MAX_KEPT_BYTES else None
            for item in raw
        ],
    }
    batch = pa.RecordBatch.from_pydict(columns, schema=_RECORD_SCHEMA)
    framed = ExampleEncoder(_RECORD_SCHEMA).encode_framed(batch)
    return framed.buffer.to_pybytes(), framed.offsets


def read_log(log: RejectLog, offset: int, size: int) -> bytes:
    """Returns some bytes of a log; raises OSError.

    No file is held open: there may be thousands of logs.
    """
    if not log.path:
        return log.payload[offset : offset + size]
    return storage(log.path).read_range(offset, offset + size)


def read_lines(log: RejectLog) -> Iterator[bytes]:
    """Yields the lines of a log, each as `rejects.jsonl` has it; raises OSError."""
    for _, pieces in log.runs:
        for offset, size in pieces:
            yield from read_piece(log, offset, size)["line"].to_pylist()


def read_piece(log: RejectLog, offset: int, size: int) -> pa.RecordBatch:
    """Returns a piece of a log; raises OSError."""
    message = read_log(log, offset, size)
    return pa.ipc.read_record_batch(pa.py_buffer(message), PIECE_SCHEMA)
