"""Read many image files into one buffer, and check them there.

    | file | file | file | ...  | free |        at most 8 MiB, used again and again

A plain JPEG goes from the buffer to its shard without a copy; see `plain_jpegs`. What
is unusual about a file, or cannot be read this way, is left to `load_image`.
"""

import collections
import concurrent.futures
from collections.abc import Iterable, Iterator

import google_crc32c
import numpy as np

from transforms import files
from transforms.core import this_worker
from transforms.core.image.notes import contradicts_suffix
from transforms.core.image.plain_jpegs import PlainJpeg, find_plain_jpegs
from transforms.core.image.policy import ImagePolicy
from transforms.shards.image_reading import full_path, load_image, prepare
from transforms.shards.load_pace import HERE, LoadTimes
from transforms.shards.loaded_images import ImageColumn, LoadedImage, Payload
from transforms.storage.limits import TooLargeError

__all__ = ["ImageWindows"]

_WINDOW_BYTES = 8 << 20
# Rows that are offered to a window: at first, and at most.
_FIRST_ROWS, _MAX_ROWS = 512, 4096
# Files are checked together that fit into the processor's cache.
_GROUP_BYTES = 1 << 19


# Buffers that no shard uses: a new one costs as much as many images.
_spare: collections.deque[memoryview] = collections.deque()


class ImageWindows:
    """Two buffers: one is filled while the other one's images are being written.

        with ImageWindows(root, policy) as windows:
            column = windows.fill(paths, stamps, times)
            windows.keep_until(writing)

    Args:
      root: the folder of paths that are not absolute.
      policy: what is done to the images; one that `suits`.
    """

    def __init__(self, root: str, policy: ImagePolicy) -> None:
        self._root = root
        self._policy = policy
        self._buffers: list[memoryview] = []
        self._writing: list[concurrent.futures.Future[None] | None] = [None, None]

    def __enter__(self) -> "ImageWindows":
        return self

    def __exit__(self, *_: object) -> None:
        _spare.extend(self._buffers)
        self._buffers.clear()

    @staticmethod
    def suits(policy: ImagePolicy) -> bool:
        """Whether plain JPEGs are stored as they are under a policy."""
        return policy.is_passive and policy.check == "structure"

    @staticmethod
    def most_rows(mean_bytes: int) -> int:
        """Returns how many rows to offer to `fill`.

        Args:
          mean_bytes: of an image; 0 where that is not known.
        """
        if not mean_bytes:
            return _FIRST_ROWS
        return min(_WINDOW_BYTES // mean_bytes + 1, _MAX_ROWS)

    def fill(
        self, paths: list[str], stamps: list[int], times: LoadTimes
    ) -> ImageColumn:
        """Returns the images of the first rows, at least one, which fit into a buffer.

        The buffer is used again by the next call but one. If the first files wait, it
        ends with them: threads are to read the others.

        Args:
          paths: of n >= 1 rows.
          stamps: of the files when they were listed; 0 where that is not known.
          times: measures the first files, and decides.
        """
        self._writing.reverse()
        if self._writing[0] is not None:
            self._writing[0].result()
            self._writing[0] = None
        self._buffers.reverse()
        if len(self._buffers) < 2:
            self._buffers.insert(0, _spare_buffer())
        window = _Window(self._buffers[0], self._root, self._policy)
        rows = zip(paths, stamps, strict=True)
        times.measure(window.checked(rows))
        if times.pace == HERE:
            rest = zip(paths[len(window) :], stamps[len(window) :], strict=True)
            collections.deque(window.add_all(rest), maxlen=0)
        return window.column()

    def keep_until(self, writing: concurrent.futures.Future[None]) -> None:
        """Keeps the images of the last call until they are written.

        That must be before the buffers are left.
        """
        self._writing[0] = writing


def _spare_buffer() -> memoryview:
    try:
        return _spare.pop()
    except IndexError:
        return memoryview(bytearray(_WINDOW_BYTES))


class _Window:
    """A buffer that is being filled."""

    def __init__(self, buffer: memoryview, root: str, policy: ImagePolicy) -> None:
        self._buffer = buffer
        self._array = np.frombuffer(buffer, np.uint8)
        self._root = root
        self._policy = policy
        self._end = 0
        # Where the files start that are not checked.
        self._unchecked = 0
        self._names: list[str] = []
        self._bounds: list[tuple[int, int]] = []
        # Of the rows that were checked.
        self._plain: list[PlainJpeg | None] = []
        self._payloads: list[Payload] = []
        self._crcs: list[int] = []
        self._others: dict[int, LoadedImage] = {}
        self._other_bytes = 0

    def __len__(self) -> int:
        """Rows so far."""
        return len(self._bounds)

    def add_all(self, rows: Iterable[tuple[str, int]]) -> Iterator[None]:
        """Reads the next files until one does not fit; yields after each.

        Args:
          rows: path and stamp of each.
        """
        limit = self._policy.max_bytes
        for path, stamp in rows:
            start = self._end
            try:
                size = self._read(path, stamp)
            except TooLargeError as large:
                fits = large.size < len(self._buffer) and large.size <= limit
                if fits and start:
                    return
                size = -1
            except OSError:
                size = -1
            if size < 0 or size > limit:
                self._add_other(path, stamp)
            else:
                self._end += size
            self._names.append(path)
            self._bounds.append((start, self._end))
            if self._end - self._unchecked >= _GROUP_BYTES:
                self.check()
            yield
            if self._other_bytes >= len(self._buffer):
                return

    def checked(self, rows: Iterable[tuple[str, int]]) -> Iterator[None]:
        """As `add_all`; checks each file at once."""
        for _ in self.add_all(rows):
            self.check()
            yield

    def _read(self, path: str, stamp: int) -> int:
        """Reads a file; returns its size, or -1 if another way is to be tried."""
        if "://" in path or this_worker.is_elsewhere():
            return -1
        size, found = files.read_into(
            full_path(path, self._root), self._buffer[self._end :]
        )
        return size if stamp in (0, found) else -1

    def _add_other(self, path: str, stamp: int) -> None:
        image = load_image(path, stamp, self._root, self._policy)
        assert image is not None
        self._others[len(self)] = image
        self._other_bytes += len(image.data)

    def check(self) -> None:
        """Checks the files that were read since the last call."""
        first = len(self._plain)
        bounds = self._bounds[first:]
        if not bounds:
            return
        self._unchecked = self._end
        found = find_plain_jpegs(
            self._buffer, bounds, max_pixels=self._policy.max_pixels
        )
        for row, ((start, stop), plain) in enumerate(
            zip(bounds, found, strict=True), first
        ):
            name = self._names[row]
            if plain is None or contradicts_suffix(name, "jpeg"):
                self._plain.append(None)
                self._payloads.append(self._other(row, name, start, stop))
                self._crcs.append(google_crc32c.value(self._payloads[-1]))
            else:
                self._plain.append(plain)
                self._payloads.append(self._buffer[start:stop])
                # google_crc32c takes no memoryview.
                self._crcs.append(google_crc32c.value(self._array[start:stop]))

    def _other(self, row: int, name: str, start: int, stop: int) -> bytes:
        """Returns the payload of an image that is no plain JPEG."""
        image = self._others.get(row)
        if image is None:
            data = bytes(self._buffer[start:stop])
            image = LoadedImage(data, prepare(data, self._policy), name)
            self._others[row] = image
            self._other_bytes += len(data)
        return image.prepared.data if image.is_sound else b""

    def column(self) -> ImageColumn:
        """Returns the images of all rows."""
        self.check()
        crcs = np.array(self._crcs, np.uint32)
        return ImageColumn(self._payloads, crcs, self._plain, self._others)
