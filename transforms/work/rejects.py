"""Reject logs: the rejections of one task, sorted in bounded memory.

A log is sorted by (source, row). It consists of pieces, each one Arrow IPC message of
`PIECE_SCHEMA`:

    key     binary        orders by source, in UTF-8, and row; see `_key`
    line    large_binary  the line of `rejects.jsonl`, with its line end
    offset  int64         where in the log the record of the kept item is
    size    int64         of that record as TFRecord frames it; 0 for none
"""

import collections
import hashlib
import io
import tempfile
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.model import Rejection, RejectLog
from transforms.core.reasons import Reason
from transforms.errors import bounded
from transforms.storage.drafts import CountedSink
from transforms.storage.files import storage
from transforms.storage.retry import persistently, storing
from transforms.storage.row_spool import RowSorter, RowSpool

PIECE_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("line", pa.large_binary()),
        ("offset", pa.int64()),
        ("size", pa.int64()),
    ]
)
# What is sorted: a record is empty where items are not kept.
_ROW_SCHEMA = pa.schema(
    [("key", pa.binary()), ("line", pa.large_binary()), ("record", pa.large_binary())]
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
# Behind a key while rows are sorted: how many came before. Ties stay as they came.
_NUMBER_BYTES = 8

# Key, line, and the rejection itself where its item is kept.
_Entry = tuple[bytes, bytes, Rejection | None]
_Pieces = tuple[tuple[int, int], ...]


class RejectGatherer:
    """Collects the rejections of one task, in any order and in bounded memory.

    A second attempt at the task replaces the file of the first with the same bytes.
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
        # Each flush is sorted by itself.
        self._sorter = RowSorter(_ROW_SCHEMA, "key", run_rows=1)
        self._rows = self._line_bytes = self._item_bytes = 0

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
            position = rejection.source, rejection.row or 0
            example = self._examples.get(of)
            if example is None or position < example[0]:
                text = rejection.in_words()
                if rejection.part:
                    text = f"{rejection.reason}: {text}"
                self._examples[of] = position, bounded(text, _EXAMPLE_BYTES)
            line = f"{rejection.to_json()}\n".encode("utf-8", "replace")
            kept = rejection if self._keep_items else None
            row = rejection.row or 0
            if self._by_line:
                hashed = hashlib.blake2b(line, digest_size=_HASH_BYTES).digest()
                row = int.from_bytes(hashed)
            number = self._rows.to_bytes(_NUMBER_BYTES)
            self._entries.append((_key(rejection.source, row) + number, line, kept))
            self._rows += 1
            self._held_bytes += len(line)
            if kept is not None:
                self._held_bytes += len(kept.raw or b"")
            if self._held_bytes >= _SORTED_BYTES or len(self._entries) >= _SORTED_ROWS:
                self._flush()

    def finish(self) -> RejectLog | None:
        """Returns the log; None where there was no rejection."""
        self._flush()
        return self._finished(self._sorter.sorted()) if self._rows else None

    def _flush(self) -> None:
        entries, self._entries, self._held_bytes = self._entries, [], 0
        if not entries:
            return
        keys, lines, rejections = zip(*entries, strict=True)
        self._line_bytes += sum(map(len, lines))
        records = pa.array([b""] * len(entries), pa.large_binary())
        if self._keep_items:
            records = _records(rejections)
            self._item_bytes += int(pc.sum(pc.binary_length(records)).as_py())
        columns = [pa.array(keys, pa.binary()), pa.array(lines, pa.large_binary())]
        batch = pa.record_batch([*columns, records], schema=_ROW_SCHEMA)
        with storing(tempfile.gettempdir(), size=batch.nbytes):
            self._sorter.add(batch)

    def _finished(self, rows: RowSpool) -> RejectLog:
        """Returns the log, in a file unless it is small enough to travel inline."""
        path, payload, crc = "", b"", 0
        if self._path and self._line_bytes + self._item_bytes > _INLINE_BYTES:
            path = self._path
            with storing(path, size=self._line_bytes + self._item_bytes):
                first, pieces, crc = persistently(
                    lambda: self._to_file(rows), path=path
                )
        else:
            buffer = io.BytesIO()
            first, pieces = _write_pieces(rows, buffer)
            payload = buffer.getvalue()
        return RejectLog(
            counts=dict(sorted(self._counts.items())),
            examples={of: text for of, (_, text) in sorted(self._examples.items())},
            parts=dict(sorted(self._parts.items())),
            task=self._task,
            first=first,
            pieces=pieces,
            item_bytes=self._item_bytes,
            payload=payload,
            path=path,
            crc32c=crc,
        )

    def _to_file(self, rows: RowSpool) -> tuple[bytes, _Pieces, int]:
        with storage(self._path).create(attempts=self._attempts, durable=False) as file:
            log = CountedSink(file)
            first, pieces = _write_pieces(rows, log)
        return first, pieces, log.crc32c


def _write_pieces(
    rows: RowSpool, log: "io.BytesIO | CountedSink"
) -> tuple[bytes, _Pieces]:
    """Writes sorted rows as a log; returns its first key, and where its pieces are."""
    first, pieces = b"", []
    for batch in rows.batches():
        for start in range(0, batch.num_rows, PIECE_ROWS):
            keys, lines, records = batch.slice(start, PIECE_ROWS).columns
            keys = pc.binary_slice(keys, 0, -_NUMBER_BYTES)
            first = first or keys[0].as_py()
            sizes = pc.binary_length(records).to_numpy()
            offsets = log.tell() + np.cumsum(sizes) - sizes
            log.write(b"".join(records.to_pylist()))
            columns = [keys, lines, pa.array(offsets), pa.array(sizes)]
            piece = pa.record_batch(columns, schema=PIECE_SCHEMA)
            message = piece.serialize().to_pybytes()
            pieces.append((log.tell(), len(message)))
            log.write(message)
    return first, tuple(pieces)


def _key(source: str, row: int) -> bytes:
    """Returns bytes that order as (source, row) do.

    The row is 1-based; 0 for items that are no rows, or a hash of the line. No source
    ends within another one: a byte 0 in it is followed by 1.
    """
    encoded = source.encode("utf-8", "replace").replace(b"\0", b"\0\1")
    return encoded + b"\0\0" + row.to_bytes(_ROW_BYTES)


def _records(rejections: Sequence[Rejection]) -> pa.LargeBinaryArray:
    """Returns a framed record with the item of each of n rejections."""
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
    offsets = pa.py_buffer(framed.offsets)
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(rejections), [None, offsets, framed.buffer]
    )


def read_log(log: RejectLog, offset: int, size: int) -> bytes:
    """Returns some bytes of a log; raises OSError.

    No file is held open: there may be thousands of logs.
    """
    if not log.path:
        return log.payload[offset : offset + size]
    return storage(log.path).read_range(offset, offset + size)


def read_lines(log: RejectLog) -> Iterator[bytes]:
    """Yields the lines of a log, each as `rejects.jsonl` has it; raises OSError."""
    for offset, size in log.pieces:
        yield from read_piece(log, offset, size)["line"].to_pylist()


def read_piece(log: RejectLog, offset: int, size: int) -> pa.RecordBatch:
    """Returns a piece of a log; raises OSError."""
    message = read_log(log, offset, size)
    return pa.ipc.read_record_batch(pa.py_buffer(message), PIECE_SCHEMA)
