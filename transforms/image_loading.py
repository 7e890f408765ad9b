"""Images: read and checked by a few threads, ahead of where they are needed."""

import concurrent.futures
import dataclasses
import hashlib
import os
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms import files
from transforms.core.image import Check, ImageFault, ImageInfo, check_image
from transforms.core.model import Reason, Rejection
from transforms.core.segment import STAMP_COLUMN
from transforms.core.shard import ShardRows

__all__ = ["LoadedImage", "load_ahead"]

_THREADS = 2
# A thread takes so many images at a time: handing over one by one costs more.
_TASK_IMAGES = 16
# Images of a chunk: so many at first, then as many as make up so many bytes.
_FIRST_IMAGES = 8
_MAX_IMAGES = 512
_CHUNK_BYTES = 8 << 20
_CHANGED = "it has another size or time than when it was listed"

_Chunk = tuple[pa.Table, npt.NDArray[np.int64], list["LoadedImage"]]


@dataclasses.dataclass(frozen=True, slots=True)
class LoadedImage:
    """An image that was read: its bytes, and its facts or its fault."""

    data: bytes
    info: ImageInfo | ImageFault

    def rejection(self, origin: str, fault: ImageFault) -> Rejection:
        """Returns the reject that the fault makes of the file `origin`."""
        unread = not self.data and fault.reason is not Reason.EMPTY_FILE
        return Rejection(
            source=origin,
            row=None,
            line=None,
            stage="write",
            reason=fault.reason,
            message=fault.message,
            sha256=None if unread else hashlib.sha256(self.data).hexdigest(),
        )


def load_ahead(
    rows: ShardRows, column: str, *, root: str, check: Check
) -> Iterator[_Chunk]:
    """Yields chunks of rows, their positions and their images, in the rows' order.

    While a chunk is being used the next one is read. How the rows are cut depends on
    the size of the images before; what is written does not.

    Args:
      rows: of one shard.
      column: holds the paths of the images, relative to `root`.
      root: their folder.
      check: see `check_image`.
    """

    def load(paths: list[str], stamps: list[int]) -> list[LoadedImage]:
        return [
            _load(os.path.join(root, path), stamp, check)
            for path, stamp in zip(paths, stamps, strict=True)
        ]

    def begin(start: int, count: int) -> _Pending:
        table, positions = rows.take(start, start + count)
        paths, stamps = table[column].to_pylist(), table[STAMP_COLUMN].to_pylist()
        tasks = [
            pool.submit(load, paths[i : i + _TASK_IMAGES], stamps[i : i + _TASK_IMAGES])
            for i in range(0, len(paths), _TASK_IMAGES)
        ]
        return _Pending(table, positions, tasks)

    with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
        count = _FIRST_IMAGES
        start, pending = 0, None
        while start < len(rows) or pending is not None:
            following = begin(start, count) if start < len(rows) else None
            start += count
            if pending is not None:
                chunk = pending.finish()
                size = sum(len(image.data) for image in chunk[2])
                mean = max(size // len(chunk[2]), 1)
                count = min(max(_CHUNK_BYTES // mean, 1), _MAX_IMAGES)
                yield chunk
            pending = following


@dataclasses.dataclass(frozen=True, slots=True)
class _Pending:
    table: pa.Table
    positions: npt.NDArray[np.int64]
    tasks: list[concurrent.futures.Future[list[LoadedImage]]]

    def finish(self) -> _Chunk:
        images = [image for task in self.tasks for image in task.result()]
        return self.table, self.positions, images


def _load(path: str, stamp: int, check: Check) -> LoadedImage:
    try:
        data, found = files.read_stamped(path)
    except FileNotFoundError:
        # A link that led nowhere when it was listed has no time of its own.
        missing = stamp == files.stamp(0, 0)
        reason = Reason.UNREADABLE if missing else Reason.CHANGED_DURING_RUN
        return LoadedImage(b"", ImageFault(reason, "there is no such file"))
    except OSError as error:
        return LoadedImage(b"", ImageFault(Reason.UNREADABLE, str(error.strerror)))
    if stamp and found != stamp:
        return LoadedImage(data, ImageFault(Reason.CHANGED_DURING_RUN, _CHANGED))
    return LoadedImage(data, check_image(data, check))
