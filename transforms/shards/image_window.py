"""Read many image files into one buffer, and check them there.

    | file | file | file | ...  | free |        at most 16 MiB, used again and again

A plain JPEG goes from the buffer to its shard without a copy. What
is unusual about a file, or cannot be read this way, is left to `load_image`.
"""

import concurrent.futures
from collections.abc import Sequence

import google_crc32c
import numpy as np

from transforms import files
from transforms.core.image.policy import ImagePolicy
from transforms.shards.allocation import spare_buffers
from transforms.shards.image_reading import full_path, load_image, prepare
from transforms.shards.loaded_images import (
    ImageColumn,
    LoadedImage,
    Payload,
    PlainJpeg,
    plain_jpeg,
)

_WINDOW_BYTES = 16 << 20
# Rows that are offered to a window: at first, and at most.
_FIRST_ROWS, _MAX_ROWS = 512, 4096
# Files are checked together that fit into the processor's cache.
_GROUP_BYTES = 1 << 19


class ImageWindows:
    """Two buffers: one is filled while the other one's images are being written.

        with ImageWindows(root, policy) as windows:
            column = windows.fill(paths, stamps)
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
        spare_buffers.extend(self._buffers)
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

    def fill(self, paths: Sequence[str], stamps: Sequence[int]) -> ImageColumn:
        """Returns the images of the first rows, at least one, which fit into a buffer.

        The buffer is used again by the next call but one.

        Args:
          paths: of n >= 1 rows.
          stamps: of the files when they were listed; 0 where that is not known.
        """
        self._writing.reverse()
        if self._writing[0] is not None:
            self._writing[0].result()
            self._writing[0] = None
        self._buffers.reverse()
        if len(self._buffers) < 2:
            self._buffers.insert(0, _spare_buffer())
        window = _Window(self._buffers[0], self._root, self._policy, paths, stamps)
        while window.add():
            pass
        return window.column()

    def keep_until(self, writing: concurrent.futures.Future[None]) -> None:
        """Keeps the images of the last call until they are written.

        That must be before the buffers are left.
        """
        self._writing[0] = writing


def _spare_buffer() -> memoryview:
    try:
        return spare_buffers.pop()
    except IndexError:
        return memoryview(bytearray(_WINDOW_BYTES))


class _Window:
    """A buffer that is being filled.

    Args:
      buffer: for the bytes of the files.
      root, policy: see `ImageWindows`.
      paths, stamps: of the rows that are offered.
    """

    def __init__(
        self,
        buffer: memoryview,
        root: str,
        policy: ImagePolicy,
        paths: Sequence[str],
        stamps: Sequence[int],
    ) -> None:
        self._buffer = buffer
        self._root = root
        self._policy = policy
        self._names = paths
        self._stamps = stamps
        # No file has an empty path: `load_image` looks at the name.
        self._paths = ["" if "://" in each else full_path(each, root) for each in paths]
        self._end = 0
        # Of the rows so far.
        self._plain: list[PlainJpeg | None] = []
        self._payloads: list[Payload] = []
        self._crcs: list[int] = []
        self._others: dict[int, LoadedImage] = {}
        self._other_bytes = 0

    def column(self) -> ImageColumn:
        """Returns the images of all rows."""
        crcs = np.array(self._crcs, np.uint32)
        return ImageColumn(self._payloads, crcs, self._plain, self._others)

    def add(self) -> bool:
        """Reads and checks the next group of files; returns False for none."""
        first = len(self._plain)
        paths = self._paths[first:]
        if not paths or self._other_bytes >= len(self._buffer):
            return False
        found = files.read_into(paths, self._buffer[self._end :], _GROUP_BYTES)
        if not found:
            if self._end:
                return False
            # The file is larger than the buffer.
            found = [(-1, 0)]
        rows = range(first, first + len(found))
        for row, (size, stamp) in zip(rows, found, strict=True):
            start = self._end
            self._end = stop = start + max(size, 0)
            name, listed = self._names[row], self._stamps[row]
            image = plain = None
            if size < 0 or listed not in (0, stamp) or size > self._policy.max_bytes:
                image = load_image(name, listed, self._root, self._policy)
                assert image is not None
            else:
                data = bytes(self._buffer[start:stop])
                result = prepare(data, self._policy)
                plain = plain_jpeg(data, result, name)
                if plain is None:
                    image = LoadedImage(data, result, name)
            self._plain.append(plain)
            if image is None:
                self._payloads.append(self._buffer[start:stop])
            else:
                self._others[row] = image
                self._other_bytes += len(image.data)
                data = image.prepared.data if image.is_sound else b""
                self._payloads.append(data)
            self._crcs.append(google_crc32c.value(data))
        return True
