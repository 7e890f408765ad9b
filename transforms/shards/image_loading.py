"""Load the images of a shard in the order of its rows, and check them.

    rows -> some rows -> an image of each, in order -> chunk of rows and ImageColumns
                         by threads, which load the next rows meanwhile, or here

Threads load where they save time: from a store each read waits for the network, and
images that are changed are decoded, which threads do side by side. How rows are cut
into chunks changes nothing that is written.
"""

import collections
import concurrent.futures
import contextlib
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.image.policy import ImagePolicy, prepare_image, too_many_bytes
from transforms.core.model import Reason
from transforms.core.placing.shard_rows import ShardRows
from transforms.core.reasons import Fault
from transforms.core.schema import Feature, Kind
from transforms.core.segment import STAMP_COLUMN
from transforms.errors import SpecError, bounded
from transforms.shards import decoders
from transforms.shards.image_rows import ImageColumn, Loaded, LoadedImage
from transforms.storage import entries, visibility
from transforms.storage.buckets import CONNECTIONS
from transforms.storage.entries import TooLargeError
from transforms.storage.files import storage
from transforms.storage.paths import is_remote, plain, spellings, without_access
from transforms.storage.visibility import unseen

# Of what the rows of a chunk have beside their images; boxes may be many.
_MAX_ROW_BYTES = 4 << 20


class _Way(NamedTuple):
    """How images are loaded.

    Attributes:
      threads: that load them; 0 for the calling one.
      first_rows: in the first chunk.
      chunk_bytes: of images in a further one, if they are as large as those before.
        Where they are larger, it ends at a third more.
      max_rows: in any.
    """

    threads: int
    first_rows: int
    chunk_bytes: int
    max_rows: int


_READ = _Way(0, first_rows=8, chunk_bytes=12 << 20, max_rows=2048)
# Two threads decode side by side.
_DECODED = _Way(2, first_rows=8, chunk_bytes=8 << 20, max_rows=512)
# Reads from a store wait for the network: more of them are begun at once.
_FETCHED = _Way(CONNECTIONS, first_rows=128, chunk_bytes=32 << 20, max_rows=512)

_CHANGED = "it has another size or time than when it was listed"

_Chunk = tuple[pa.Table, npt.NDArray[np.int64], list[ImageColumn]]
# Rows, their positions, and the images of each, which come in the rows' order.
_Begun = tuple[pa.Table, npt.NDArray[np.int64], Iterator[tuple[Loaded, ...]]]


class ImageLoader:
    """Loads the images of a shard, chunk by chunk.

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
        self._policies = [_policy_of(feature, policy) for feature in images]
        beside = rows.table.drop_columns([feature.name for feature in images])
        fitting = _MAX_ROW_BYTES * len(rows) // max(beside.nbytes, 1)
        self._most_rows: int = max(fitting, 1)
        self._way = _READ
        if _are_far(rows, images, root):
            self._way = _FETCHED
        elif not all(policy.is_passive for policy in self._policies):
            self._way = _DECODED
        # Mean bytes of an image in the chunk before.
        self._mean = 0

    def chunks(self) -> Iterator[_Chunk]:
        """Yields rows, their positions and their images, in the rows' order."""
        most = self._way.chunk_bytes * 4 // 3
        for table, positions, loading in self._begun():
            start = size = 0
            loaded: list[tuple[Loaded, ...]] = []
            for stop, row in enumerate(loading, 1):
                loaded.append(row)
                for value in row:
                    # The usual case first.
                    if isinstance(value, LoadedImage):
                        size += value.size
                    elif value is not None:
                        size += sum(item.size for item in value if item is not None)
                if stop == len(table) or size >= most:
                    self._mean = max(size // len(loaded), 1)
                    columns = [ImageColumn(item) for item in zip(*loaded, strict=True)]
                    yield table[start:stop], positions[start:stop], columns
                    start, size, loaded = stop, 0, []

    def _begun(self) -> Iterator[_Begun]:
        """Yields the rows whose images are loaded next, by threads or when asked."""
        start = 0
        begun: collections.deque[_Begun] = collections.deque()
        with contextlib.ExitStack() as stack:
            load_all: Callable[..., Iterator[Loaded]] = map
            if self._way.threads:
                threads = concurrent.futures.ThreadPoolExecutor(self._way.threads)
                load_all = stack.enter_context(threads).map
            ahead = 1 if self._way.threads else 0
            while start < len(self._rows) or begun:
                while start < len(self._rows) and len(begun) <= ahead:
                    table, positions = self._rows.take(start, start + self._count())
                    stamps = _stamps(table)
                    # They are of the image, and not of the file of its mask.
                    unknown = itertools.repeat(0)
                    loading = [
                        load_all(
                            _load_list if feature.is_list else load_image,
                            table[feature.name].to_pylist(),
                            unknown if feature.mask else stamps,
                            itertools.repeat(self._root),
                            itertools.repeat(policy),
                        )
                        for feature, policy in zip(
                            self._images, self._policies, strict=True
                        )
                    ]
                    begun.append((table, positions, zip(*loading, strict=True)))
                    start += len(table)
                yield begun.popleft()

    def _count(self) -> int:
        """Returns how many rows to take next, given the images before."""
        way = self._way
        if not self._mean:
            return min(way.first_rows, self._most_rows)
        return min(max(way.chunk_bytes // self._mean, 1), way.max_rows, self._most_rows)


def _policy_of(feature: Feature, policy: ImagePolicy) -> ImagePolicy:
    """Returns the policy for a feature: files stay as they are, masks keep values."""
    if feature.kind is Kind.FILE:
        return policy.for_files()
    if feature.mask:
        return policy.for_masks(of_image=bool(feature.derived_from))
    return policy


def _stamps(table: pa.Table) -> list[int]:
    """Returns the stamps of the rows' files; 0 where there is none."""
    if STAMP_COLUMN not in table.column_names:
        return [0] * len(table)
    stamps: list[int] = table[STAMP_COLUMN].to_pylist()
    return stamps


def _are_far(rows: ShardRows, images: Sequence[Feature], root: str) -> bool:
    """Whether images are fetched over a network.

    Looks at the first row: a table names all its images in one way.
    """
    if is_remote(root):
        return True
    table, _ = rows.take(0, 1)
    firsts = [table[feature.name][0].as_py() for feature in images if len(table)]
    named = [
        name
        for first in firsts
        for name in (first if isinstance(first, list) else [first])
    ]
    return any(isinstance(name, str) and is_remote(name) for name in named)


def load_image(
    value: str | bytes | None, stamp: int, root: str, policy: ImagePolicy
) -> LoadedImage | None:
    """Returns an image, or what is wrong with it; None where there is none.

    Kinds that TensorFlow does not read are decoded by a process of their own.

    Args:
      value: the image, or its path.
      stamp: of the file when it was listed; 0 if that is not known.
      root: the folder of paths that are not absolute.
      policy: what is done to the image.
    """
    if value is None:
        return None
    if isinstance(value, bytes):
        data, name = value, ""
    else:
        name = value
        try:
            data, read_stamp = _read(value, root, policy.max_bytes)
        except TooLargeError as large:
            if stamp and entries.stamp(large.size, large.modified_ns) != stamp:
                return LoadedImage(b"", Fault(Reason.CHANGED_DURING_RUN, _CHANGED))
            return LoadedImage(b"", too_many_bytes(large.size, policy.max_bytes))
        except FileNotFoundError:
            # A link that was dangling when it was listed has no time of its own.
            missing = stamp in (0, entries.stamp(0, 0))
            reason = Reason.UNREADABLE if missing else Reason.CHANGED_DURING_RUN
            tried = without_access(_full_path(value, root))
            fault = Fault(reason, bounded(f"there is no file {tried!r}"))
            return LoadedImage(b"", fault)
        except OSError as error:
            found_out = str(error.strerror or error)
            return LoadedImage(b"", Fault(Reason.UNREADABLE, found_out))
        except SpecError as error:
            return LoadedImage(b"", Fault(Reason.UNREADABLE, str(error)))
        if stamp and read_stamp != stamp:
            fault = Fault(Reason.CHANGED_DURING_RUN, _CHANGED)
            return LoadedImage(data, fault, size=len(data))
    result = prepare_image(data, policy, foreign=decoders.SHARED.prepare)
    if isinstance(result, Fault):
        return LoadedImage(data, result, name, size=len(data))
    if policy.any_file:
        # No suffix contradicts what it is.
        name = ""
    # Computed at once, while the bytes are in the processor's cache.
    crc = google_crc32c.value(result.data)
    return LoadedImage(data, result, name, crc, max(len(data), len(result.data)))


def _load_list(
    values: list[str | bytes | None] | None, stamp: int, root: str, policy: ImagePolicy
) -> Loaded:
    """Returns the images of a list as `load_image` does."""
    if values is None:
        return None
    return [load_image(value, stamp, root, policy) for value in values]


def _read(path: str, root: str, limit: int) -> tuple[bytes, int]:
    """Returns a file and its stamp, which is 0 for a file that a cell names in a store.

    Tries the other spellings of the name, too.

    Raises:
      WorkerError: the path is of another machine's disk.
    """
    if "://" in path:
        path = plain(path)
        if is_remote(path):
            return storage(path).read_stamped(limit)[0], 0
    full = _full_path(path, root)
    if visibility.is_elsewhere() and (never := unseen(full)):
        raise never
    try:
        return storage(full).read_stamped(limit)
    except FileNotFoundError:
        for spelling in spellings(path)[1:]:
            other = os.path.join(root, spelling)
            if storage(other).exists():
                return storage(other).read_stamped(limit)
        if never := unseen(full, root):
            raise never from None
        raise


def _full_path(path: str, root: str) -> str:
    """Returns the result of `os.path.join`, in a tenth of the time."""
    return path if not root or path.startswith("/") else f"{root}/{path}"
