"""Rejects: a log of each task, in bounded memory, and the files that all logs become.

A log is an Arrow IPC stream of `LOG_SCHEMA`, in the order in which rejections came; the
files have the rows of all logs, sorted:

    key     binary        orders by source, in UTF-8, and row; see `_key`
    line    large_binary  the line of `rejects.jsonl`, with its line end
    record  large_binary  the kept item as TFRecord frames it; empty for none

    rejects.jsonl    the lines, in the order of (source, row)
    rejects.items    the items, where they are kept: TFRecord of tf.train.Example, a
                     record for each line, with the features source, row, reason,
                     sha256, size and bytes

The names of items do not hold the word tfrecord: what reads `*.tfrecord*` must not find
them. Version 0.2 has written more than 64 MB as rejects-00000-of-00003.jsonl and so on.
"""

import collections
import contextlib
import functools
import hashlib
import io
import json
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.manifest import REJECTS_NAME, FileFacts
from transforms.core.model import RejectLog
from transforms.core.reasons import Reason, Rejection
from transforms.core.tfrecord.frame import HEADER_BYTES, framed_length
from transforms.errors import StorageError, TargetError, bounded
from transforms.storage import folders
from transforms.storage.drafts import CountedSink, Sink
from transforms.storage.files import storage
from transforms.storage.paths import is_remote
from transforms.storage.retry import persistently, storing
from transforms.storage.row_spool import RowSorter, RowSpool

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
# Of a line, to order by instead of its row.
_HASH_BYTES = 7
_ROW_BYTES = 8
_NAME = re.compile(r"rejects(?:-\d{5,}-of-\d{5,})?\.(?:jsonl|items)")
# Longer than any line; of a record only the start is looked at.
_HEAD_BYTES = 1 << 20
_LINE_KEYS = {"source", "row", "line", "stage", "reason", "message", "sha256"}
# A tf.train.Example whose first feature is `bytes`, or `reason` without those.
_ITEM = re.compile(
    rb"(?:\n[\x80-\xff]*[\x00-\x7f]){2}\n(?:\x05bytes|\x06reason)", re.DOTALL
)

# Of the number of a rejection among all.
_NUMBER_BYTES = 8


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
        self._rows = RowSpool(LOG_SCHEMA)
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
        if not len(self._rows):
            return None
        path, payload = "", b""
        counted = self._write(pa.MockOutputStream())
        is_long = bool(self._path) and counted.tell() > _INLINE_BYTES
        if is_long:
            path = f"{self._path}-{counted.crc32c:08x}.rejects"
            with storing(path, size=counted.tell()):
                persistently(lambda: self._to_file(path), path=path)
        else:
            sink = io.BytesIO()
            self._write(sink)
            payload = sink.getvalue()
        return RejectLog(
            counts=dict(sorted(self._counts.items())),
            examples={of: text for of, (_, text) in sorted(self._examples.items())},
            parts=dict(sorted(self._parts.items())),
            task=self._task,
            first=self._first,
            has_items=self._keep_items,
            payload=payload,
            path=path,
            crc32c=counted.crc32c if is_long else 0,
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
            self._rows.append(batch)

    def _write(self, sink: Sink) -> CountedSink:
        counted = CountedSink(sink)
        with pa.ipc.new_stream(counted, LOG_SCHEMA) as stream:
            for rows in self._rows.batches():
                stream.write_batch(rows)
        return counted

    def _to_file(self, path: str) -> None:
        with storage(path).create(attempts=self._attempts, durable=False) as file:
            self._write(file)


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
    return ExampleEncoder(_RECORD_SCHEMA).encode_framed(batch)


def read_log(log: RejectLog) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a log; raises OSError."""
    file = storage(log.path).open_input() if log.path else pa.BufferReader(log.payload)
    with file, pa.ipc.open_stream(file) as reader:
        yield from reader


def read_lines(log: RejectLog) -> Iterator[bytes]:
    """Yields the lines of a log, each as `rejects.jsonl` has it; raises OSError."""
    for rows in read_log(log):
        yield from rows["line"].to_pylist()


def is_rejects_name(name: str) -> bool:
    """Whether a file of a dataset holds lines of rejects."""
    return name.endswith(".jsonl") and _NAME.fullmatch(name) is not None


def is_items_name(name: str) -> bool:
    """Whether a file of a dataset holds rejected items."""
    return name.endswith(".items") and _NAME.fullmatch(name) is not None


def write_rejects(
    logs: Sequence[RejectLog],
    folder: str,
    *,
    attempts: str,
    name: str = REJECTS_NAME,
    announce: Callable[[str], object] = lambda _name: None,
) -> list[FileFacts]:
    """Writes the rows of all logs, in order, into one file, or two.

    Memory does not grow with them.

    Args:
      logs: of all tasks, in any order.
      folder: of the files.
      attempts: a folder for unfinished files, on the same file system.
      name: of the file of lines.
      announce: called with the name of each file before any is written.

    Raises:
      OSError: they could not be written.
      StorageError: nor could they when it was tried again.
    """
    names = [name]
    if any(log.has_items for log in logs):
        names.append(items_beside(name))
    for file_name in names:
        announce(file_name)
    # An earlier try may have finished some of the files: they are replaced.
    write = functools.partial(_write_files, logs, folder, names, attempts)
    return persistently(write, path=folder)


def check_left(path: str) -> list[str]:
    """Returns the files beside a target that a failed run has written, if any.

    Args:
      path: see `leave_rejects`.

    Raises:
      TargetError: one of them is something else, which a run would replace or remove.
    """
    is_left = {file: _is_left(file) for file in (path, items_beside(path))}
    for file, left in is_left.items():
        if left is False:
            raise TargetError(
                f"Rejects of a run that fails are left in {file!r}; what is there now "
                f"was not written by such a run. Move it away, or choose another "
                f"output."
            )
    return [file for file, left in is_left.items() if left]


def _is_left(path: str) -> bool | None:
    """Whether `leave_rejects` may have written a file; None where there is none."""
    if not is_remote(path):
        status = folders.status_of(path)
        if status is not None and not stat.S_ISREG(status.st_mode):
            return False
    try:
        with storage(path).open_input() as file:
            head = file.read(_HEAD_BYTES)
    except FileNotFoundError:
        return None
    except IsADirectoryError:
        return False
    if not head:
        return True
    if path.endswith(".items"):
        is_framed = framed_length(head) is not None
        return is_framed and _ITEM.match(head, HEADER_BYTES) is not None
    try:
        fields = json.loads(head.partition(b"\n")[0])
    except (ValueError, RecursionError):
        return False
    return isinstance(fields, dict) and fields.keys() - {"part"} == _LINE_KEYS


def leave_rejects(logs: Sequence[RejectLog], path: str, *, attempts: str) -> None:
    """Writes the rows of the logs of a job that was not committed; see `write_rejects`.

    Items go beside it, under `.items` for `.jsonl`. Items that an earlier try left are
    removed.

    Raises:
      TargetError: a file of somebody else is there.
      OSError: they could not be written.
      StorageError: nor could they when it was tried again.
    """
    folder, name = os.path.split(path)
    if (items := items_beside(path)) in check_left(path):
        storage(items).remove_file()
    write_rejects(logs, folder, attempts=attempts, name=name)


def remove_left(path: str) -> None:
    """Removes what `leave_rejects` has written, by exactly these names.

    The dataset is published: what cannot be removed stays, and that is no failure; nor
    is a file of somebody else.
    """
    with contextlib.suppress(OSError, StorageError, TargetError):
        for file in check_left(path):
            storage(file).remove_file()


def items_beside(path: str) -> str:
    """Returns where a failed run leaves the items of the rejections at a path."""
    return f"{path.removesuffix('.jsonl')}.items"


def _write_files(
    logs: Sequence[RejectLog], folder: str, names: Sequence[str], attempts: str
) -> list[FileFacts]:
    """Writes all rejects in order: one file of JSON lines, and one of their items."""
    rows = sorted_rows(logs)
    with contextlib.ExitStack() as stack:
        paths = [os.path.join(folder, name) for name in names]
        sinks = [
            CountedSink(stack.enter_context(storage(path).create(attempts=attempts)))
            for path in paths
        ]
        for batch in rows.batches():
            for sink, column in zip(sinks, ("line", "record"), strict=False):
                sink.write(b"".join(batch[column].to_pylist()))
    return [
        FileFacts(name, sink.tell(), sink.crc32c)
        for name, sink in zip(names, sinks, strict=True)
    ]


def sorted_rows(logs: Sequence[RejectLog]) -> RowSpool:
    """Returns the rows of all logs in the order of (source, row).

    Where that is equal, in the order of the logs' tasks, and as they came.

    Raises:
      OSError: a log cannot be read.
    """
    sorter, count = RowSorter(LOG_SCHEMA, "key"), 0
    for log in sorted(logs, key=lambda log: log.task.encode("utf-8", "surrogatepass")):
        for rows in read_log(log):
            numbers = range(count, count + rows.num_rows)
            count += rows.num_rows
            ends = pa.array([n.to_bytes(_NUMBER_BYTES) for n in numbers], pa.binary())
            keys = pc.binary_join_element_wise(rows["key"], ends, b"")
            sorter.add(rows.set_column(0, "key", keys))
    return sorter.sorted()
