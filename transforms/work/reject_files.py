"""The rejects of a job as files: the rows of all logs, sorted.

    rejects.jsonl    the lines, in the order of (source, row)
    rejects.items    the items, where they are kept: TFRecord of tf.train.Example, a
                     record for each line, with the features source, row, reason,
                     sha256, size and bytes

The names of items do not hold the word tfrecord: what reads `*.tfrecord*` must not find
them. Version 0.2 has written more than 64 MB as rejects-00000-of-00003.jsonl and so on.
"""

import contextlib
import functools
import json
import os
import re
import stat
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.manifest import REJECTS_NAME, FileFacts
from transforms.core.model import RejectLog
from transforms.core.tfrecord.compression import is_frame_header
from transforms.core.tfrecord.frame import HEADER_BYTES
from transforms.errors import StorageError, TargetError
from transforms.storage import folders
from transforms.storage.drafts import CountedSink
from transforms.storage.files import storage
from transforms.storage.paths import is_remote
from transforms.storage.retry import persistently
from transforms.storage.row_spool import RowSorter, RowSpool
from transforms.work.rejects import LOG_SCHEMA, read_log

_NAME = re.compile(r"rejects(-\d{5,}-of-\d{5,})?\.jsonl")
_ITEMS_NAME = re.compile(r"rejects(-\d{5,}-of-\d{5,})?\.items")

# Longer than any line; of a record only the start is looked at.
_HEAD_BYTES = 1 << 20
_LINE_KEYS = {"source", "row", "line", "stage", "reason", "message", "sha256"}
# A tf.train.Example whose first feature is `bytes`, or `reason` without those.
_ITEM = re.compile(
    rb"(?:\n[\x80-\xff]*[\x00-\x7f]){2}\n(?:\x05bytes|\x06reason)", re.DOTALL
)

# Of the number of a rejection among all.
_NUMBER_BYTES = 8


def is_rejects_name(name: str) -> bool:
    """Whether a file of a dataset holds lines of rejects."""
    return bool(_NAME.fullmatch(name))


def is_items_name(name: str) -> bool:
    """Whether a file of a dataset holds rejected items."""
    return bool(_ITEMS_NAME.fullmatch(name))


def write_rejects(
    logs: Sequence[RejectLog],
    folder: str,
    *,
    attempts: str,
    name: str = REJECTS_NAME,
    announce: Callable[[str], None] = lambda _name: None,
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
    write = functools.partial(_write, logs, folder, names, attempts)
    return persistently(write, path=folder)


def check_left(path: str) -> list[str]:
    """Returns the files beside a target that a failed run has written, if any.

    Args:
      path: see `leave_rejects`.

    Raises:
      TargetError: one of them is something else, which a run would replace or remove.
    """
    paths = (path, items_beside(path))
    is_left = {file: _is_left(file) for file in paths}
    for file in paths:
        if is_left[file] is False:
            raise TargetError(
                f"Rejects of a run that fails are left in {file!r}; what is there now "
                f"was not written by such a run. Move it away, or choose another "
                f"output."
            )
    return [file for file in paths if is_left[file]]


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
        is_framed = is_frame_header(head[:HEADER_BYTES])
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


def _write(
    logs: Sequence[RejectLog], folder: str, names: Sequence[str], attempts: str
) -> list[FileFacts]:
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
