"""Reject logs: the rejections of one task, in bounded memory.

A log is an Arrow IPC stream of `LOG_SCHEMA`, in the order in which rejections came; the
files of rejects (`transforms.work.reject_files`) sort the rows of all logs:

    key     binary        orders by source, in UTF-8, and row; see `_key`
    line    large_binary  the line of `rejects.jsonl`, with its line end
    record  large_binary  the kept item as TFRecord frames it; empty for none
"""

import collections
import hashlib
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from transforms.core.model import Rejection, RejectLog
from transforms.core.reasons import Reason
from transforms.errors import bounded
from transforms.storage.drafts import CountedSink
from transforms.storage.files import storage
from transforms.storage.retry import persistently, storing

LOG_SCHEMA = pa.schema(
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
# Bytes of lines and items that are put into the log together.
_BATCH_BYTES = 1 << 20
# A log of more bytes than this is written to a file.
_INLINE_BYTES = 1 << 14
_COPY_BYTES = 8 << 20
# Of a line, to order by instead of its row.
_HASH_BYTES = 7
_ROW_BYTES = 8


class RejectGatherer:
    """Collects the rejections of one task, in bounded memory.

    The file of a log is named by its bytes as well: a second attempt at the task writes
    the same file, or leaves that of the first as it is.
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
          path: what the file's path begins with, where one is needed; empty to have
            none, however long the log is.
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
        self._entries: list[tuple[bytes, bytes, Rejection | None]] = []
        self._waiting_bytes = 0
        self._log: Any = None
        self._writer: pa.RecordBatchStreamWriter | None = None
        self._counts: collections.Counter[Reason] = collections.Counter()
        # Of each reason, and of each kind of part, the first in the order of sources
        # and rows, with its place.
        self._examples: dict[str, tuple[tuple[str, int], str]] = {}
        self._parts: collections.Counter[str] = collections.Counter()
        self._first = b""

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
            key = _key(rejection.source, row)
            self._first = min(self._first or key, key)
            self._entries.append((key, line, kept))
            self._waiting_bytes += len(line) + (len(kept.raw or b"") if kept else 0)
            if self._waiting_bytes >= _BATCH_BYTES:
                self._flush()

    def finish(self) -> RejectLog | None:
        """Returns the log, in a file unless it is small enough to travel inline.

        None where there was no rejection.
        """
        if self._entries:
            self._flush()
        if self._writer is None:
            return None
        with self._log:
            self._writer.close()
            path, payload, crc = "", b"", 0
            if self._path and (size := self._sink.tell()) > _INLINE_BYTES:
                crc = self._sink.crc32c
                path = f"{self._path}-{crc:08x}.rejects"
                with storing(path, size=size):
                    persistently(lambda: self._to_file(path), path=path)
            else:
                payload = b"".join(self._pieces())
        return RejectLog(
            counts=dict(sorted(self._counts.items())),
            examples={of: text for of, (_, text) in sorted(self._examples.items())},
            parts=dict(sorted(self._parts.items())),
            task=self._task,
            first=self._first,
            has_items=self._keep_items,
            payload=payload,
            path=path,
            crc32c=crc,
        )

    def _flush(self) -> None:
        entries, self._entries, self._waiting_bytes = self._entries, [], 0
        keys, lines, rejections = zip(*entries, strict=True)
        records = pa.array([b""] * len(entries), pa.large_binary())
        if self._keep_items:
            records = _records(rejections)
        columns = [pa.array(keys, pa.binary()), pa.array(lines, pa.large_binary())]
        batch = pa.record_batch([*columns, records], schema=LOG_SCHEMA)
        with storing(tempfile.gettempdir(), size=batch.nbytes):
            if self._writer is None:
                self._log = tempfile.SpooledTemporaryFile(_INLINE_BYTES)  # noqa: SIM115
                weakref.finalize(self, self._log.close)
                self._sink = CountedSink(self._log)
                self._writer = pa.ipc.new_stream(self._sink, LOG_SCHEMA)
            self._writer.write_batch(batch)

    def _pieces(self) -> Iterator[bytes]:
        self._log.seek(0)
        while piece := self._log.read(_COPY_BYTES):
            yield piece

    def _to_file(self, path: str) -> None:
        with storage(path).create(attempts=self._attempts, durable=False) as file:
            for piece in self._pieces():
                file.write(piece)


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


def read_log(log: RejectLog) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a log; raises OSError."""
    file = storage(log.path).open_input() if log.path else pa.BufferReader(log.payload)
    with file, pa.ipc.open_stream(file) as reader:
        yield from reader


def read_lines(log: RejectLog) -> Iterator[bytes]:
    """Yields the lines of a log, each as `rejects.jsonl` has it; raises OSError."""
    for rows in read_log(log):
        yield from rows["line"].to_pylist()
