"""Load and check the images of rows, ahead of their use where reads wait."""

import collections
import concurrent.futures
import dataclasses
import hashlib
import os
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, Union

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms import files
from transforms.core.image.check import ImageInfo
from transforms.core.image.notes import ImageNote, contradicts_suffix
from transforms.core.image.policy import (
    ImagePolicy,
    PreparedImage,
    prepare_image,
    too_many_bytes,
)
from transforms.core.model import Reason, Rejection
from transforms.core.placing.shard_rows import ShardRows
from transforms.core.reasons import Fault
from transforms.core.schema import Feature
from transforms.core.segment import STAMP_COLUMN
from transforms.errors import SpecError
from transforms.shards import decoder_pool
from transforms.shards.load_pace import FAR, LoadTimes, Pace
from transforms.storage.limits import TooLargeError
from transforms.storage.paths import is_remote, plain, without_access

__all__ = ["DERIVED", "Images", "Loaded", "LoadedImage", "load_ahead", "loaded_items"]

_FORMS: tuple[Literal["NFC", "NFD"], ...] = ("NFC", "NFD")
_MAX_IMAGES = 512
# Of the local files of this process; those in stores always wait.
_times = LoadTimes()
_CHANGED = "it has another size or time than when it was listed"

# The value of an image feature in a row: an image, a list of them, or None.
Loaded = Union["LoadedImage", list["LoadedImage | None"], None]
# The images of each row, by feature.
Images = list[list[Loaded]]
_Value = str | bytes | None
_Values = list[_Value | list[_Value]]
_Chunk = tuple[pa.Table, npt.NDArray[np.int64], Images]


@dataclasses.dataclass(frozen=True, slots=True)
class LoadedImage:
    """An image that was read.

    Attributes:
      data: the file, as it was found.
      result: the image after the policy, or the reason for its refusal.
      name: of the file, empty where the row itself holds the image.
    """

    data: bytes
    result: PreparedImage | Fault
    name: str = ""

    @property
    def is_sound(self) -> bool:
        """Whether it has no fault."""
        return isinstance(self.result, PreparedImage)

    @property
    def prepared(self) -> PreparedImage:
        """The image, which has no fault."""
        assert isinstance(self.result, PreparedImage)
        return self.result

    @property
    def facts(self) -> ImageInfo:
        """The facts of an image that has no fault."""
        return self.prepared.info

    @property
    def notes(self) -> tuple[ImageNote, ...]:
        """What is worth counting about an image that has no fault."""
        notes = self.prepared.notes
        if self.name and contradicts_suffix(self.name, self.prepared.source.format):
            notes = (*notes, ImageNote.SUFFIX)
        return notes

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


def loaded_items(loaded: Loaded) -> "list[LoadedImage]":
    """Returns the images of a feature in a row: none, one or several."""
    each = loaded if isinstance(loaded, list) else [loaded]
    return [item for item in each if item is not None]


_COLORSPACES = {1: "Grayscale", 2: "GrayscaleAlpha", 3: "RGB", 4: "RGBA"}
# What features may be derived from an image, by the name in `Feature.derived`.
DERIVED: Mapping[str, Callable[[LoadedImage], int | str]] = {
    "height": lambda image: image.facts.height,
    "width": lambda image: image.facts.width,
    "depth": lambda image: image.facts.depth,
    "format": lambda image: image.facts.format,
    # As ImageNet's scripts write it.
    "codec": lambda image: image.facts.format.upper(),
    "colorspace": lambda image: _COLORSPACES[image.facts.depth],
    "sha256": lambda image: hashlib.sha256(image.prepared.data).hexdigest(),
}


def load_ahead(
    rows: ShardRows, images: Sequence[Feature], *, root: str, policy: ImagePolicy
) -> Iterator[_Chunk]:
    """Yields chunks of rows, their positions and their images, in the rows' order.

    Where reads wait, threads read the next chunk while one is being used; elsewhere the
    calling thread reads. How the rows are cut depends on that and on the size of the
    images before; what is written does not.

    Args:
      rows: of one shard.
      images: features whose columns hold paths, relative to `root`, or images.
      root: the folder of paths that are not absolute.
      policy: what is done to the images.
    """
    far = _are_far(rows, images, root)
    with _Threads() as threads:

        def begin(start: int, count: int) -> _Pending:
            table, positions = rows.take(start, start + count)
            load = _Load.of(table, images, root, policy)
            pending = _Pending(table, positions, len(images))
            at = 0
            if not far and _times.is_due():
                measured = _times.measure(lambda row: load(row, row + 1), len(table))
                pending.parts.extend(measured)
                at = len(measured)
            pace = FAR if far else _times.pace
            for row in range(at, len(table), pace.task):
                pending.parts.append(threads.run(pace, load, row, row + pace.task))
            return pending

        start = mean = 0
        ahead: collections.deque[_Pending] = collections.deque()
        while start < len(rows) or ahead:
            while start < len(rows) and len(ahead) < 2:
                # Threads that load would disturb the measurement.
                if ahead and not far and _times.is_due():
                    break
                pace = FAR if far else _times.pace
                count = pace.first
                if mean:
                    count = min(max(pace.chunk_bytes // mean, 1), _MAX_IMAGES)
                ahead.append(begin(start, count))
                start += count
            chunk = ahead.popleft().finish()
            size = sum(_size(row) for each in chunk[2] for row in each)
            mean = max(size // max(len(chunk[0]), 1), 1)
            yield chunk


@dataclasses.dataclass(frozen=True, slots=True)
class _Load:
    """Loads the images of some rows of a chunk.

    Attributes:
      values: of each image feature in each row.
      stamps: of the rows' files; 0 where there is none.
      root, policy: see `load_ahead`.
    """

    values: list[_Values]
    stamps: list[int]
    root: str
    policy: ImagePolicy

    @classmethod
    def of(
        cls, table: pa.Table, images: Sequence[Feature], root: str, policy: ImagePolicy
    ) -> "_Load":
        """Returns it for the rows of a table."""
        stamps = (
            table[STAMP_COLUMN].to_pylist()
            if STAMP_COLUMN in table.column_names
            else [0] * len(table)
        )
        values = [table[feature.name].to_pylist() for feature in images]
        return cls(values, stamps, root, policy)

    def __call__(self, start: int, stop: int) -> Images:
        """Returns the images of the rows from `start` to `stop`."""
        stamps = self.stamps[start:stop]
        return [
            [
                [_load(each, stamp, self.root, self.policy) for each in value]
                if isinstance(value, list)
                else _load(value, stamp, self.root, self.policy)
                for value, stamp in zip(values[start:stop], stamps, strict=True)
            ]
            for values in self.values
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


def _as_list(value: _Value | list[_Value]) -> list[_Value]:
    return value if isinstance(value, list) else [value]


def _size(loaded: Loaded) -> int:
    if isinstance(loaded, LoadedImage):
        return len(loaded.data)
    return sum(len(item.data) for item in loaded_items(loaded))


_Part = Images | concurrent.futures.Future[Images]


@dataclasses.dataclass(frozen=True, slots=True)
class _Pending:
    """Rows whose images are loaded, or being loaded by threads, part by part."""

    table: pa.Table
    positions: npt.NDArray[np.int64]
    features: int
    parts: list[_Part] = dataclasses.field(default_factory=list)

    def finish(self) -> _Chunk:
        images: Images = [[] for _ in range(self.features)]
        for part in self.parts:
            loaded = part if isinstance(part, list) else part.result()
            for each, more in zip(images, loaded, strict=True):
                each += more
        return self.table, self.positions, images


def _load(
    value: _Value, stamp: int, root: str, policy: ImagePolicy
) -> LoadedImage | None:
    if value is None:
        return None
    if isinstance(value, bytes):
        return LoadedImage(value, _prepare(value, policy))
    try:
        data, found = _read(value, root, policy.max_bytes)
    except TooLargeError as large:
        if stamp and files.stamp(large.size, large.modified_ns) != stamp:
            return LoadedImage(b"", Fault(Reason.CHANGED_DURING_RUN, _CHANGED))
        return LoadedImage(b"", too_many_bytes(large.size, policy.max_bytes))
    except FileNotFoundError:
        # A link that was dangling when it was listed has no time of its own.
        missing = stamp in (0, files.stamp(0, 0))
        reason = Reason.UNREADABLE if missing else Reason.CHANGED_DURING_RUN
        return LoadedImage(b"", Fault(reason, "there is no such file"))
    except OSError as error:
        found_out = str(error.strerror or error)
        return LoadedImage(b"", Fault(Reason.UNREADABLE, found_out))
    except SpecError as error:
        return LoadedImage(b"", Fault(Reason.UNREADABLE, str(error)))
    if stamp and found != stamp:
        return LoadedImage(data, Fault(Reason.CHANGED_DURING_RUN, _CHANGED))
    return LoadedImage(data, _prepare(data, policy), value)


def _prepare(data: bytes, policy: ImagePolicy) -> PreparedImage | Fault:
    return prepare_image(data, policy, foreign=decoder_pool.SHARED.prepare)


def _read(path: str, root: str, limit: int) -> tuple[bytes, int]:
    """Returns a file and its stamp; the stamp is 0 for a file in a store."""
    if "://" not in path:
        return _read_named(path, root, limit)
    path = plain(path)
    if not is_remote(path):
        return _read_named(path, root, limit)
    # Its path is in a cell, so no listing has its stamp.
    return files.read_stamped(path, limit)[0], 0


def _read_named(path: str, root: str, limit: int) -> tuple[bytes, int]:
    """Returns a file and its stamp; tries both Unicode forms of its name.

    Tables say é with one character where the file system may have two, or the reverse.
    """
    # The result of `os.path.join`, in a tenth of the time.
    whole = path if not root or path.startswith("/") else f"{root}/{path}"
    try:
        return files.read_stamped(whole, limit)
    except FileNotFoundError:
        for form in _FORMS:
            other = os.path.join(root, unicodedata.normalize(form, path))
            if files.exists(other):
                return files.read_stamped(other, limit)
        raise
