"""Load and check the images of rows; in a store or to be changed, by threads."""

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
from transforms.shards.loaded_images import (
    ImageColumn,
    Images,
    Loaded,
    LoadedImage,
    loaded_items,
)
from transforms.storage.file_systems import CONNECTIONS
from transforms.storage.paths import is_remote

_MAX_IMAGES = 512
# Of what rows have beside their images; boxes may be many.
_MAX_ROW_BYTES = 4 << 20
# Rows of the first chunk of a shard, and bytes of the images of each further one. Reads
# from a store wait for the network: more of them are begun at once.
_FIRST_ROWS, _CHUNK_BYTES = 8, 8 << 20
_FAR_FIRST_ROWS, _FAR_CHUNK_BYTES = 128, 32 << 20
# Images that are changed are decoded, which two threads do side by side.
_DECODING_THREADS = 2

_Value = str | bytes | None
_Values = list[_Value | list[_Value]]
_Chunk = tuple[pa.Table, npt.NDArray[np.int64], Images]


class ImageLoader:
    """Loads the images of a shard, chunk by chunk.

        with ImageLoader(rows, images, root=root, policy=policy) as loader:
            for table, positions, columns in loader.chunks():
                loader.keep_until(written(columns))

    From a store, or where images are changed, threads load the next chunk while one is
    being used. Otherwise the calling thread reads, into a buffer where that is
    possible. How the rows are cut depends on that and on the size of the images before;
    what is written does not.

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
        self._most_rows: int = max(fitting, 1)
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
        if self._far:
            yield from self._chunks_ahead(
                CONNECTIONS, _FAR_FIRST_ROWS, _FAR_CHUNK_BYTES
            )
            return
        if not all(policy.is_passive for policy in self._policies):
            yield from self._chunks_ahead(_DECODING_THREADS, _FIRST_ROWS, _CHUNK_BYTES)
            return
        start = mean = 0
        while start < len(self._rows):
            if self._windows is not None:
                chunk = self._fill(self._windows, start, mean)
            else:
                count = self._count(mean, _FIRST_ROWS, _CHUNK_BYTES)
                table, positions, load = self._taken(start, count)
                chunk = table, positions, [*load(0, len(table))]
            start += len(chunk[0])
            mean = _mean_size(chunk)
            yield chunk

    def _chunks_ahead(
        self, most: int, first: int, chunk_bytes: int
    ) -> Iterator[_Chunk]:
        """Does so with threads, which load the next chunk while one is being used."""
        start = mean = 0
        ahead: list[_Pending] = []
        with concurrent.futures.ThreadPoolExecutor(most) as threads:
            while start < len(self._rows) or ahead:
                while start < len(self._rows) and len(ahead) < 2:
                    count = self._count(mean, first, chunk_bytes)
                    table, positions, load = self._taken(start, count)
                    rows = [
                        threads.submit(load, row, row + 1) for row in range(len(table))
                    ]
                    ahead.append(_Pending(table, positions, rows))
                    start += len(table)
                chunk = ahead.pop(0).finish(len(self._images))
                mean = _mean_size(chunk)
                yield chunk

    def _count(self, mean: int, first: int, chunk_bytes: int) -> int:
        """Returns how many rows to load, given the mean size of the images before."""
        count = min(max(chunk_bytes // mean, 1), _MAX_IMAGES) if mean else first
        return min(count, self._most_rows)

    def _taken(
        self, start: int, count: int
    ) -> tuple[pa.Table, npt.NDArray[np.int64], "_Load"]:
        """Returns the next rows, their positions, and what loads their images."""
        table, positions = self._rows.take(start, start + count)
        load = _Load.of(table, self._images, self._root, self._policies)
        return table, positions, load

    def _fill(self, windows: ImageWindows, start: int, mean: int) -> _Chunk:
        """Returns the next rows whose images a window holds."""
        offered = min(windows.most_rows(mean), self._most_rows)
        table, positions = self._rows.take(start, start + offered)
        paths = table[self._images[0].name].to_pylist()
        column = windows.fill(paths, _stamps(table))
        count = len(column)
        return table.slice(0, count), positions[:count], [column]


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


@dataclasses.dataclass(frozen=True, slots=True)
class _Pending:
    """Rows whose images threads are loading, row by row."""

    table: pa.Table
    positions: npt.NDArray[np.int64]
    loading: list[concurrent.futures.Future[list[list[Loaded]]]]

    def finish(self, features: int) -> _Chunk:
        """Waits for the images."""
        images: list[list[Loaded]] = [[] for _ in range(features)]
        for row in self.loading:
            for each, more in zip(images, row.result(), strict=True):
                each += more
        return self.table, self.positions, [*images]
