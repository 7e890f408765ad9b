"""Load and check the images of rows, ahead of their use where reads wait."""

import collections
import concurrent.futures
import contextlib
import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core import this_worker
from transforms.core.image.policy import ImagePolicy
from transforms.core.placing.shard_rows import ShardRows
from transforms.core.schema import Feature
from transforms.core.segment import STAMP_COLUMN
from transforms.shards.image_reading import load_image
from transforms.shards.image_window import ImageWindows
from transforms.shards.load_pace import FAR, HERE, LoadTimes, Pace
from transforms.shards.loaded_images import (
    ImageColumn,
    Images,
    Loaded,
    LoadedImage,
    loaded_items,
)
from transforms.storage.paths import is_remote

__all__ = ["ImageLoader"]

_MAX_IMAGES = 512
# Of what rows have beside their images; boxes may be many.
_MAX_ROW_BYTES = 4 << 20
# Of the local files of this process; those in stores always wait.
_times = LoadTimes()

_Value = str | bytes | None
_Values = list[_Value | list[_Value]]
_Chunk = tuple[pa.Table, npt.NDArray[np.int64], Images]


class ImageLoader:
    """Loads the images of a shard, chunk by chunk.

        with ImageLoader(rows, images, root=root, policy=policy) as loader:
            for table, positions, columns in loader.chunks():
                loader.keep_until(written(columns))

    Where reads wait, threads read the next chunk while one is being used; elsewhere the
    calling thread reads, into a buffer where that is possible. How the rows are cut
    depends on that and on the size of the images before; what is written does not.

    Args:
      rows: of one shard.
      images: features whose columns hold paths, relative to `root`, or images.
      root: the folder of paths that are not absolute.
      policy: what is done to the images.
    """

    def __init__(
        self,
        rows: ShardRows,
        images: Sequence[Feature],
        *,
        root: str,
        policy: ImagePolicy,
    ) -> None:
        self._rows = rows
        self._images = images
        self._root = root
        self._policies = [
            policy.for_masks() if feature.mask else policy for feature in images
        ]
        self._far = _are_far(rows, images, root)
        beside = rows.table.drop_columns([feature.name for feature in images])
        fitting = _MAX_ROW_BYTES * len(rows) // max(beside.nbytes, 1)
        self._most_rows = max(fitting, 1)
        self._open = contextlib.ExitStack()
        self._windows: ImageWindows | None = None
        seen = not (self._far or this_worker.is_elsewhere())
        if seen and _are_files(rows, images) and ImageWindows.suits(policy):
            self._windows = ImageWindows(root, self._policies[0])

    def __enter__(self) -> "ImageLoader":
        if self._windows is not None:
            self._open.enter_context(self._windows)
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def keep_until(self, writing: concurrent.futures.Future[None]) -> None:
        """Keeps the bytes of the last chunk until they are written."""
        if self._windows is not None:
            self._windows.keep_until(writing)

    def chunks(self) -> Iterator[_Chunk]:
        """Yields rows, their positions and their images, in the rows' order."""
        rows, far = self._rows, self._far
        start = mean = 0
        ahead: collections.deque[_Pending] = collections.deque()
        with _Threads() as threads:
            while start < len(rows) or ahead:
                while start < len(rows) and len(ahead) < 2:
                    due = not far and _times.is_due()
                    # Threads that load would disturb the measurement.
                    if due and ahead:
                        break
                    here = _times.pace == HERE
                    if due and here and self._windows is not None:
                        chunk = self._fill(self._windows, start, mean)
                        start += len(chunk[0])
                        yield chunk
                        mean = _mean_size(chunk)
                        continue
                    pace = FAR if far else _times.pace
                    count = pace.first
                    if mean:
                        count = min(max(pace.chunk_bytes // mean, 1), _MAX_IMAGES)
                    count = min(count, self._most_rows)
                    ahead.append(self._begin(threads, start, count, is_due=due))
                    start += count
                if ahead:
                    chunk = ahead.popleft().finish()
                    mean = _mean_size(chunk)
                    yield chunk

    def _fill(self, windows: ImageWindows, start: int, mean: int) -> _Chunk:
        """Returns the next rows whose images a window holds."""
        offered = min(windows.most_rows(mean), self._most_rows)
        table, positions = self._rows.take(start, start + offered)
        paths = table[self._images[0].name].to_pylist()
        column = windows.fill(paths, _stamps(table), _times)
        count = len(column)
        return table.slice(0, count), positions[:count], [column]

    def _begin(
        self, threads: "_Threads", start: int, count: int, *, is_due: bool
    ) -> "_Pending":
        """Begins to load rows; measures the first ones if that is due."""
        table, positions = self._rows.take(start, start + count)
        load = _Load.of(table, self._images, self._root, self._policies)
        pending = _Pending(table, positions, len(self._images))
        at = 0
        if is_due and _times.pace != HERE:
            pending.parts.append(_times.begin(lambda: load(0, 1)))
            at = 1
        if is_due and _times.is_due():
            single = (load(row, row + 1) for row in range(at, len(table)))
            measured = _times.measure(single)
            pending.parts.extend(measured)
            at += len(measured)
        pace = FAR if self._far else _times.pace
        for row in range(at, len(table), pace.task):
            pending.parts.append(threads.run(pace, load, row, row + pace.task))
        return pending


def _stamps(table: pa.Table) -> list[int]:
    """Returns the stamps of the rows' files; 0 where there is none."""
    if STAMP_COLUMN not in table.column_names:
        return [0] * len(table)
    stamps: list[int] = table[STAMP_COLUMN].to_pylist()
    return stamps


def _mean_size(chunk: _Chunk) -> int:
    table, _, images = chunk
    size = sum(
        each.total_bytes if isinstance(each, ImageColumn) else sum(map(_size, each))
        for each in images
    )
    return max(size // max(len(table), 1), 1)


@dataclasses.dataclass(frozen=True, slots=True)
class _Load:
    """Loads the images of some rows of a chunk.

    Attributes:
      values: of each image feature in each row.
      stamps: of the rows' files; 0 where there is none.
      root: see `ImageLoader`.
      policies: what is done to the images, for each image feature.
    """

    values: list[_Values]
    stamps: list[int]
    root: str
    policies: Sequence[ImagePolicy]

    @classmethod
    def of(
        cls,
        table: pa.Table,
        images: Sequence[Feature],
        root: str,
        policies: Sequence[ImagePolicy],
    ) -> "_Load":
        """Returns it for the rows of a table."""
        values = [table[feature.name].to_pylist() for feature in images]
        return cls(values, _stamps(table), root, policies)

    def __call__(self, start: int, stop: int) -> list[list[Loaded]]:
        """Returns the images of the rows from `start` to `stop`."""
        stamps = self.stamps[start:stop]
        return [
            [
                [load_image(each, stamp, self.root, policy) for each in value]
                if isinstance(value, list)
                else load_image(value, stamp, self.root, policy)
                for value, stamp in zip(values[start:stop], stamps, strict=True)
            ]
            for values, policy in zip(self.values, self.policies, strict=True)
        ]


class _Threads:
    """Runs tasks at a pace, in threads that end with it."""

    def __init__(self) -> None:
        self._pace: Pace | None = None
        self._pool: concurrent.futures.ThreadPoolExecutor | None = None

    def run(self, pace: Pace, load: _Load, start: int, stop: int) -> "_Part":
        """Begins to load rows, or loads them at once if the pace has no threads."""
        if not pace.threads:
            return load(start, stop)
        if self._pool is None or self._pace != pace:
            self.close()
            self._pool = concurrent.futures.ThreadPoolExecutor(pace.threads)
            self._pace = pace
        return self._pool.submit(load, start, stop)

    def close(self) -> None:
        """Ends the threads when they have done what they have begun."""
        if self._pool is not None:
            self._pool.shutdown()

    def __enter__(self) -> "_Threads":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _are_far(rows: ShardRows, images: Sequence[Feature], root: str) -> bool:
    """Whether images are fetched over a network.

    Looks at the first row: a table names all its images in one way.
    """
    if is_remote(root):
        return True
    table, _ = rows.take(0, 1)
    firsts = [table[feature.name][0].as_py() for feature in images if len(table)]
    named = [each for first in firsts for each in _as_list(first)]
    return any(isinstance(each, str) and is_remote(each) for each in named)


def _are_files(rows: ShardRows, images: Sequence[Feature]) -> bool:
    """Whether each row has one image, in a file."""
    if len(images) != 1 or images[0].is_list:
        return False
    column = rows.table[images[0].name]
    return pa.types.is_string(column.type) and not column.null_count


def _as_list(value: _Value | list[_Value]) -> list[_Value]:
    return value if isinstance(value, list) else [value]


def _size(loaded: Loaded) -> int:
    if isinstance(loaded, LoadedImage):
        return len(loaded.data)
    return sum(len(item.data) for item in loaded_items(loaded))


_Part = list[list[Loaded]] | concurrent.futures.Future[list[list[Loaded]]]


@dataclasses.dataclass(frozen=True, slots=True)
class _Pending:
    """Rows whose images are loaded, or being loaded by threads, part by part."""

    table: pa.Table
    positions: npt.NDArray[np.int64]
    features: int
    parts: list[_Part] = dataclasses.field(default_factory=list)

    def finish(self) -> _Chunk:
        images: list[list[Loaded]] = [[] for _ in range(self.features)]
        for part in self.parts:
            loaded = part if isinstance(part, list) else part.result()
            for each, more in zip(images, loaded, strict=True):
                each += more
        return self.table, self.positions, [*images]
