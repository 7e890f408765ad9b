"""Load the images of a shard in the order of its rows, and check them.

    rows -> an image of each, in order -> chunk of rows and ImageColumns
            here, or by threads, which are some images ahead

Threads load where they save time: from a store each read waits for the network, and
images that are changed are decoded, which threads do side by side. How rows are cut
into chunks changes nothing that is written.
"""

import dataclasses
import itertools
import os
from collections.abc import Iterator, Sequence
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.image.policy import ImagePolicy, prepare_image, too_many_bytes
from transforms.core.placing.sharding import ShardRows
from transforms.core.reasons import Fault, Reason
from transforms.core.schema import Feature, Kind
from transforms.core.segment import STAMP_COLUMN
from transforms.errors import SpecError, bounded
from transforms.shards import decoders
from transforms.shards.image_rows import ImageColumn, Loaded, LoadedImage
from transforms.storage import paths, visibility
from transforms.storage.buckets import CONNECTIONS
from transforms.storage.files import read_ahead, storage
from transforms.storage.paths import is_remote, plain, spellings, without_access
from transforms.storage.protocol import TooLargeError
from transforms.storage.visibility import unseen

# A chunk ends behind so many bytes of images. Its rows take as much at most, by the
# mean of the shard: boxes may be many, and images may be in the rows.
_CHUNK_BYTES = 16 << 20
_CHUNK_ROWS = 2048
# Each may have a process for its decoder.
_DECODING_THREADS = 4

_Chunk = tuple[pa.Table, npt.NDArray[np.int64], list[ImageColumn]]


def load_images(
    rows: ShardRows, images: Sequence[Feature], *, root: str, policy: ImagePolicy
) -> Iterator[_Chunk]:
    """Yields the rows of a shard, their positions and their images, in their order.

    Images that the rows hold themselves are not among the rows.

    Args:
      rows: of one shard.
      images: features whose columns hold paths, relative to `root`, or images.
      root: the folder of paths that are not absolute.
      policy: what is done to the images.
    """
    by_bytes = _CHUNK_BYTES * len(rows) // max(rows.table.nbytes, 1)
    most = max(min(by_bytes, _CHUNK_ROWS), 1)
    inside = [feature.name for feature in images if feature.inline]
    beside = dataclasses.replace(rows, table=rows.table.drop_columns(inside))
    start, size, total = 0, 0, len(rows)
    loaded: list[tuple[Loaded, ...]] = []
    loading = [_load_column(rows, image, root, policy, most) for image in images]
    for stop, row in enumerate(zip(*loading, strict=True), 1):
        loaded.append(row)
        for value in row:
            # The usual case first.
            if isinstance(value, LoadedImage):
                size += value.size
            elif value is not None:
                size += sum(item.size for item in value if item is not None)
        if size >= _CHUNK_BYTES or stop == start + most or stop == total:
            columns = [ImageColumn(column) for column in zip(*loaded, strict=True)]
            yield *beside.take(start, stop), columns
            start, size, loaded = stop, 0, []


def _load_column(
    rows: ShardRows, image: Feature, root: str, policy: ImagePolicy, count: int
) -> Iterator[Loaded]:
    """Yields what an image feature has in each row, `count` rows taken at a time."""
    own = _policy_of(image, policy)
    threads = 0
    if _is_far(rows, image, root):
        threads = CONNECTIONS
    elif not own.is_passive:
        threads = _DECODING_THREADS
    # A stamp is of the image, and not of the file of its mask.
    is_stamped = STAMP_COLUMN in rows.table.column_names and not image.mask
    table = rows.table.select([image.name, *([STAMP_COLUMN] if is_stamped else ())])
    columns = dataclasses.replace(rows, table=table)

    def values() -> Iterator[tuple[Any, int]]:
        for start in range(0, len(rows), count):
            taken, _ = columns.take(start, start + count)
            unknown = itertools.repeat(0)
            stamps = taken[STAMP_COLUMN].to_pylist() if is_stamped else unknown
            yield from zip(taken[image.name].to_pylist(), stamps, strict=False)

    def load(item: tuple[Any, int]) -> Loaded:
        value, stamp = item
        if isinstance(value, list):
            return [load_image(one, stamp, root, own) for one in value]
        return load_image(value, stamp, root, own)

    return read_ahead(load, values(), far=threads > 0, threads=threads)


def _policy_of(feature: Feature, policy: ImagePolicy) -> ImagePolicy:
    """Returns the policy for a feature: files stay as they are, masks keep values."""
    if feature.kind is Kind.FILE:
        return policy.for_files()
    if feature.mask:
        return policy.for_masks(of_image=bool(feature.derived_from))
    return policy


def _is_far(rows: ShardRows, image: Feature, root: str) -> bool:
    """Whether images are fetched over a network.

    Looks at the first row: a table names all its images in one way.
    """
    table, _ = rows.take(0, 1)
    first = table[image.name][0].as_py() if len(table) else None
    names = first if isinstance(first, list) else [first]
    return is_remote(root) or any(isinstance(n, str) and is_remote(n) for n in names)


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
        data, name, fault = value, "", None
    else:
        name = value
        data, fault = _read_listed(value, stamp, root, policy.max_bytes)
    result = fault or prepare_image(data, policy, foreign=decoders.SHARED.prepare)
    if isinstance(result, Fault):
        return LoadedImage(data, result, name, size=len(data))
    if policy.any_file:
        # No suffix contradicts what it is.
        name = ""
    # Computed at once, while the bytes are in the processor's cache.
    crc = google_crc32c.value(result.data)
    return LoadedImage(data, result, name, crc, max(len(data), len(result.data)))


def _read_listed(
    path: str, stamp: int, root: str, limit: int
) -> tuple[bytes, Fault | None]:
    """Returns a file, and what is wrong with it; see `load_image`."""
    data, fault = b"", None
    try:
        data, found = _read(path, root, limit)
    except TooLargeError as large:
        found = paths.stamp(large.size, large.modified_ns)
        fault = too_many_bytes(large.size, limit)
    except FileNotFoundError:
        # A link that was dangling when it was listed has no time of its own.
        missing = stamp in (0, paths.stamp(0, 0))
        reason = Reason.UNREADABLE if missing else Reason.CHANGED_DURING_RUN
        tried = without_access(_full_path(path, root))
        return b"", Fault(reason, bounded(f"there is no file {tried!r}"))
    except (OSError, SpecError) as error:
        said = getattr(error, "strerror", None) or error
        return b"", Fault(Reason.UNREADABLE, str(said))
    if stamp and found != stamp:
        changed = "it has another size or time than when it was listed"
        return data, Fault(Reason.CHANGED_DURING_RUN, changed)
    return data, fault


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
