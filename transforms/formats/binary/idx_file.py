"""One IDX file: its header, its size, and random access to its items.

The layout is that of http://yann.lecun.com/exdb/mnist, all numbers big-endian:

    00 00 | type, 1 | dimensions, 1 | size of each dimension, 4 | values, row-major
    types: 08 uint8, 09 int8, 0B int16, 0C int32, 0D float32, 0E float64
"""

import contextlib
import dataclasses
import math
import struct
from collections.abc import Iterator

import numpy as np

from transforms import files
from transforms.errors import InputError
from transforms.formats.binary.layout import MAX_RECORD_BYTES
from transforms.formats.unpacked import Unpacked, is_packed, open_unpacked

__all__ = ["IdxFile", "IdxHeader", "open_idx", "parse_header"]

_TYPES = {
    0x08: "uint8",
    0x09: "int8",
    0x0B: "int16",
    0x0C: "int32",
    0x0D: "float32",
    0x0E: "float64",
}
_MAX_DIMENSIONS = 8
_MAX_HEADER_BYTES = 4 + 4 * _MAX_DIMENSIONS
# Of a compressed file, given out at once.
_PIECE_BYTES = 4 << 20
_SKIP_BYTES = 1 << 20
# Deflate's densest code: 258 bytes from two bits.
_MAX_DEFLATE_RATIO = 1032


@dataclasses.dataclass(frozen=True, slots=True)
class IdxHeader:
    """The header of a file: everything before the values.

    Attributes:
      dtype: of the values, as NumPy names it.
      count: of the first dimension.
      shape: of the others.
    """

    dtype: str
    count: int
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Bytes of the header itself."""
        return 8 + 4 * len(self.shape)

    @property
    def item_bytes(self) -> int:
        """Bytes of each of the `count` items."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


def parse_header(head: bytes, origin: str) -> IdxHeader:
    """Returns what the first bytes of a file say.

    Args:
      head: 36 bytes, or all there are.
      origin: of the file, for messages.

    Raises:
      InputError: they are no IDX header, or an item is empty or over 1 GiB.
    """
    if len(head) < 8 or head[:2] != b"\0\0" or head[2] not in _TYPES:
        raise InputError(
            f"An IDX file starts with 00 00, a type and the number of dimensions; "
            f"{origin} starts with {head[:8].hex(' ') or 'nothing'}. It is damaged or "
            f"of another format."
        )
    dimensions = head[3]
    stop = 4 + 4 * dimensions
    if not 1 <= dimensions <= _MAX_DIMENSIONS or len(head) < stop:
        raise InputError(
            f"An IDX file has 1 to {_MAX_DIMENSIONS} dimensions and the size of each; "
            f"{origin} says {dimensions} and has {len(head)} bytes of header."
        )
    count, *shape = struct.unpack(f">{dimensions}I", head[4:stop])
    header = IdxHeader(_TYPES[head[2]], count, tuple(shape))
    if not 0 < header.item_bytes <= MAX_RECORD_BYTES:
        raise InputError(
            f"An item of an IDX file has 1 to {MAX_RECORD_BYTES} bytes; {origin} says "
            f"{' x '.join(map(str, shape))} of {header.dtype}. It is damaged."
        )
    return header


@dataclasses.dataclass(frozen=True, slots=True)
class IdxFile:
    """A file whose header has been read.

    Attributes:
      header: what it says.
      origin: of the file, for messages.
      path: where it is.
      packed: whether it is compressed, by its content.
    """

    header: IdxHeader
    origin: str
    path: str
    packed: bool

    def check_size(self) -> None:
        """Raises InputError if the file cannot hold its items (fault row 133).

        Of a compressed file that is certain only once all of it has been read; one
        that could not hold them at deflate's best is refused here.
        """
        size = files.size_of(self.path)
        expected = self.header.size + self.header.count * self.header.item_bytes
        if self.packed:
            if expected > size * _MAX_DEFLATE_RATIO:
                raise self._wrong_size(f"{size} compressed bytes")
        elif size != expected:
            raise self._wrong_size(f"{size} bytes")

    def items(self, first: int, count: int, *, stamp: int = 0) -> bytes:
        """Returns `count` items from number `first` on; raises OSError, InputError."""
        size = self.header.item_bytes
        if not self.packed:
            start = self.header.size + first * size
            return files.read_range(self.path, start, start + count * size, stamp=stamp)
        with self._unpacked(stamp) as stream:
            for skipped in _steps(self.header.size + first * size, _SKIP_BYTES):
                self._take(stream, skipped)
            items = self._take(stream, count * size)
            self._check_end(stream, first + count)
        return items

    def pieces(self, count: int, *, stamp: int = 0) -> Iterator[tuple[int, bytes, int]]:
        """Yields the first `count` items of a compressed file.

        Yields:
          The number of a piece's first item, its items, and how many bytes of the file
          as it is stored were read before it.

        Raises:
          InputError: the file is damaged, or has another size than its header says;
            the latter is seen where all items are asked for.
          OSError: it cannot be read, or has another stamp than one given.
        """
        size = self.header.item_bytes
        step = max(1, _PIECE_BYTES // size)
        with self._unpacked(stamp) as stream:
            self._take(stream, self.header.size)
            for first in range(0, count, step):
                before = stream.consumed
                items = self._take(stream, min(step, count - first) * size)
                yield first, items, before
            self._check_end(stream, count)

    def _unpacked(self, stamp: int) -> contextlib.AbstractContextManager[Unpacked]:
        return open_unpacked(self.path, self.origin, stamp=stamp)

    def _check_end(self, stream: Unpacked, items_read: int) -> None:
        if items_read == self.header.count and stream.read(1):
            raise self._wrong_size("more")

    def _take(self, stream: Unpacked, size: int) -> bytes:
        parts = []
        while size:
            part = stream.read(size)
            if not part:
                raise self._wrong_size("less")
            stream.forget(stream.tell())
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _wrong_size(self, found: str) -> InputError:
        header = self.header
        return InputError(
            f"{self.origin} says it holds {header.count} items of {header.item_bytes} "
            f"bytes after {header.size} bytes of header, so "
            f"{header.size + header.count * header.item_bytes} bytes; it has {found}. "
            f"It is cut off or damaged; fetch or write it again."
        )


def open_idx(path: str, origin: str) -> IdxFile:
    """Returns a file by its header; raises InputError, OSError."""
    packed = is_packed(path)
    if not packed:
        with files.open_input(path) as plain:
            head = plain.read(_MAX_HEADER_BYTES)
    else:
        head = b""
        with open_unpacked(path, origin) as stream:
            while len(head) < _MAX_HEADER_BYTES:
                part = stream.read(_MAX_HEADER_BYTES - len(head))
                if not part:
                    break
                head += part
    return IdxFile(parse_header(head, origin), origin, path, packed)


def _steps(total: int, step: int) -> Iterator[int]:
    for start in range(0, total, step):
        yield min(step, total - start)
