"""Load the images of a shard in the order of its rows, and check them.

    rows -> an image of each, in order -> chunk of rows and ImageColumns
            here, or by threads, which are some images ahead

Threads load where they save time: from a store each read waits for the network, and
images that are changed are decoded, which threads do side by side. How rows are cut
into chunks changes nothing that is written.
"""

import dataclasses
import functools
import hashlib
import itertools
import operator
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Union

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.image.formats import ImageInfo, ImageNote, contradicts_suffix
from transforms.core.image.policy import (
    ImagePolicy,
    PreparedImage,
    prepare_image,
    too_many_bytes,
)
from transforms.core.placing.leakage import fingerprint_image
from transforms.core.placing.sharding import ShardRows
from transforms.core.reasons import Fault, Reason, Rejection
from transforms.core.schema import Feature, Kind, record_type
from transforms.core.segment import STAMP_COLUMN
from transforms.core.statistics import Statistics
from transforms.errors import SpecError, bounded
from transforms.shards import decoders
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

# The value of an image feature in a row: an image, a list of them, or None.
Loaded = Union["LoadedImage", list["LoadedImage | None"], None]


class LoadedImage(NamedTuple):
    """An image that was read.

    Attributes:
      data: the file, as it was found.
      result: the image after the policy, or the reason for its refusal.
      name: of the file, empty where the row itself holds the image.
      crc32c: of the image after the policy; 0 where there is none.
      size: bytes of the file, or of the image after the policy if those are more.
    """

    data: bytes
    result: PreparedImage | Fault
    name: str = ""
    crc32c: int = 0
    size: int = 0

    @property
    def prepared(self) -> PreparedImage:
        """The image, which has no fault."""
        assert isinstance(self.result, PreparedImage)
        return self.result

    @property
    def notes(self) -> tuple[ImageNote, ...]:
        """What is worth counting about an image that has no fault."""
        prepared = self.prepared
        if self.name and contradicts_suffix(self.name, prepared.source.format):
            return (*prepared.notes, ImageNote.SUFFIX)
        return prepared.notes

    def rejection(
        self, origin: str, row: int | None, fault: Fault, path: str = ""
    ) -> Rejection:
        """Returns the rejection of an item for this fault.

        Args:
          origin: the item's file.
          row: its 0-based row there; None where the item is the image file itself.
          fault: what is wrong.
          path: of the image, where the item is a row that names it.
        """
        unread = not self.data and fault.reason is not Reason.EMPTY_FILE
        return Rejection(
            source=origin,
            row=None if row is None else row + 1,
            line=None,
            stage="write",
            reason=fault.reason,
            message=(
                f"image {without_access(path)!r}: {fault.message}"
                if path
                else fault.message
            ),
            sha256=None if unread else hashlib.sha256(self.data).hexdigest(),
            raw=None if unread else self.data,
        )


_COLORSPACES = {1: "Grayscale", 2: "GrayscaleAlpha", 3: "RGB", 4: "RGBA"}
# What features may be derived from the facts of an image, by the name in
# `Feature.derived`.
_OF_FACTS: Mapping[str, Callable[[ImageInfo], int | str]] = {
    "height": operator.attrgetter("height"),
    "width": operator.attrgetter("width"),
    "depth": operator.attrgetter("depth"),
    "format": operator.attrgetter("format"),
    # As ImageNet's scripts write it.
    "codec": lambda facts: facts.format.upper(),
    "colorspace": lambda facts: _COLORSPACES[facts.depth],
}


class ImageColumn:
    """The images of a feature in n rows.

    Attributes:
      values: of each row: an image, a list of images and None, or None.
      are_single: whether each row has one image, and no list.
      images: all of them, in their order.
      rows: of each image.
    """

    def __init__(self, values: Sequence[Loaded]) -> None:
        self.values = values
        self.images = [loaded for loaded in values if isinstance(loaded, LoadedImage)]
        self.are_single = len(self.images) == len(values)
        self.rows: Sequence[int] = range(len(values))
        if not self.are_single:
            items = [
                (row, image)
                for row, value in enumerate(values)
                for image in (value if isinstance(value, list) else (value,))
                if image is not None
            ]
            self.rows = [row for row, _ in items]
            self.images = [image for _, image in items]

    def __len__(self) -> int:
        return len(self.values)

    @functools.cached_property
    def prepared(self) -> list[PreparedImage]:
        """What the policy has made of every image; none may have a fault."""
        return [image.prepared for image in self.images]

    @property
    def payloads(self) -> list[bytes]:
        """The bytes of every image in a record."""
        return [prepared.data for prepared in self.prepared]

    @property
    def crcs(self) -> npt.NDArray[np.uint32]:
        """CRC32C of each of the payloads."""
        return np.array([image.crc32c for image in self.images], np.uint32)

    def take(self, rows: Sequence[int]) -> "ImageColumn":
        """Returns the images of some rows."""
        return ImageColumn([self.values[row] for row in rows])

    def array(self, values: Sequence[object], feature: Feature) -> pa.Array:
        """Returns a column of a feature, given its value for every image."""
        if not self.are_single:
            remaining = iter(values)
            values = [
                [None if image is None else next(remaining) for image in value]
                if isinstance(value, list)
                else (None if value is None else next(remaining))
                for value in self.values
            ]
        return pa.array(values, record_type(feature))

    def derived(self, feature: Feature) -> pa.Array:
        """Returns the column of a feature that is derived from the images.

        That is "sha256", or a fact such as "height" or "colorspace".
        """
        if feature.derived == "sha256":
            values: list[object] = [
                hashlib.sha256(payload).hexdigest() for payload in self.payloads
            ]
        else:
            derive = _OF_FACTS[feature.derived]
            values = [derive(prepared.info) for prepared in self.prepared]
        return self.array(values, feature)

    @property
    def statistics(self) -> Statistics:
        """What is true of the payloads; the range is that of their sizes."""
        sizes = list(map(len, self.payloads))
        counts = [
            sum(image is not None for image in value)
            for value in self.values
            if isinstance(value, list)
        ]
        return Statistics(
            sum(value is not None for value in self.values),
            min(sizes, default=None),
            max(sizes, default=None),
            fewest=min(counts, default=None),
            most=max(counts, default=None),
        )

    def fingerprints(self) -> list[int]:
        """Returns the fingerprint of every image's file; see `fingerprint_image`."""
        return [
            fingerprint_image(
                image.data, image.crc32c if payload is image.data else None
            )
            for image, payload in zip(self.images, self.payloads, strict=True)
        ]


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
