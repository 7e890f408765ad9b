"""Reject logs: the rejections of one task, sorted; all of them merged in a file."""

import collections
import heapq
import json
import os
from collections.abc import Iterable, Iterator, Sequence

import google_crc32c

from transforms import files
from transforms.core.manifest import FileFacts
from transforms.core.model import Reason, Rejection, RejectLog

__all__ = ["reject_log", "write_rejects"]

_WRITE_BYTES = 1 << 20


def reject_log(rejections: Sequence[Rejection]) -> RejectLog:
    """Returns the rejections as one log, sorted by (source, row)."""
    counts: collections.Counter[Reason] = collections.Counter()
    parts: collections.Counter[str] = collections.Counter()
    for rejection in rejections:
        if rejection.part:
            parts[rejection.part] += 1
        else:
            counts[rejection.reason] += 1
    ordered = sorted(rejections, key=lambda r: (r.source, r.row or 0))
    lines = "".join(rejection.to_json() + "\n" for rejection in ordered)
    return RejectLog(
        dict(sorted(counts.items())),
        lines.encode("utf-8", "replace"),
        parts=dict(sorted(parts.items())),
    )


def write_rejects(
    logs: Sequence[RejectLog], folder: str, name: str, *, attempts: str
) -> FileFacts:
    """Merges the sorted logs into one file; memory does not grow with them.

    Args:
      logs: of all tasks.
      folder, name: of the file.
      attempts: a folder for the unfinished file, on the same file system.
    """
    size = crc = 0
    path = os.path.join(folder, name)
    with files.create(path, attempts=attempts) as file:
        for piece in _pieces(heapq.merge(*map(_lines, logs), key=_order)):
            file.write(piece)
            size += len(piece)
            crc = google_crc32c.extend(crc, piece)
    return FileFacts(name, size, crc)


def _lines(log: RejectLog) -> Iterator[bytes]:
    if not log.path:
        yield from log.lines.splitlines(keepends=True)
        return
    offset, end = 0, files.size_of(log.path)
    rest = b""
    # Read in pieces, and no file held open: there may be thousands of logs.
    while offset < end:
        stop = min(offset + _WRITE_BYTES, end)
        *whole, rest = (rest + files.read_range(log.path, offset, stop)).split(b"\n")
        yield from (line + b"\n" for line in whole)
        offset = stop


def _order(line: bytes) -> tuple[str, int]:
    item = json.loads(line)
    return item["source"], item["row"] or 0


def _pieces(lines: Iterable[bytes]) -> Iterator[bytes]:
    gathered: list[bytes] = []
    size = 0
    for line in lines:
        gathered.append(line)
        size += len(line)
        if size >= _WRITE_BYTES:
            yield b"".join(gathered)
            gathered, size = [], 0
    if gathered:
        yield b"".join(gathered)
