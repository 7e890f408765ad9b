"""Compressed files, which are read from their start to their end.

gzip and zstd streams, told by their first bytes, are unpacked in bounded memory and
must end as they say: a file that was cut off is an error, never a shorter table.
"""

import contextlib
import io
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any

import pyarrow as pa

from transforms.core.tfrecord.compression import Compression, Inflater
from transforms.errors import InputError, TFRecordError
from transforms.formats.table import SourceFile

# What unpacks a stream of a path, by how it begins. What zstd's lacks is an OSError.
UNPACKERS: Mapping[bytes, Callable[[IO[bytes], str], Any]] = {
    b"\x1f\x8b": lambda file, path: Inflater(file.read, Compression.GZIP, path=path),
    b"\x28\xb5\x2f\xfd": lambda file, _: pa.CompressedInputStream(
        pa.PythonFile(file, "r"), "zstd"
    ),
}
_PIECE_BYTES = 1 << 20


def begins_packed(data: bytes) -> bool:
    """Whether a file is compressed, by its first bytes, four or more."""
    return data.startswith(tuple(UNPACKERS))


class Unpacked:
    """The content of a compressed file, to be read once from its start.

    Bytes from the last `forget` on are kept: `seek` goes back among them, and `take`
    returns them.
    """

    def __init__(self, file: IO[bytes], origin: str) -> None:
        head = file.read(4)
        file.seek(0)
        self._file = file
        self._origin = origin
        makers = (make for mark, make in UNPACKERS.items() if head.startswith(mark))
        self._source = next(makers)(file, origin)
        self._kept = bytearray()
        self._begin = 0
        self._position = 0

    @property
    def consumed(self) -> int:
        """Bytes of the compressed file that were read so far."""
        return self._file.tell()

    def read(self, size: int, /) -> bytes:
        """Returns up to `size` bytes, none at the end; raises InputError."""
        offset = self._position - self._begin
        if offset == len(self._kept):
            try:
                piece = self._source.read(min(size, _PIECE_BYTES))
            except TFRecordError as error:
                # It names the file and the remedy.
                raise InputError(f"A compressed file must be whole. {error}") from error
            except (OSError, pa.ArrowException) as error:
                raise InputError(
                    f"A compressed file must be whole; {self._origin} is not: "
                    f"{error}. Fetch or write it again."
                ) from error
            self._kept += piece
        data = bytes(self._kept[offset : offset + size])
        self._position += len(data)
        return data

    def seek(self, position: int, /) -> int:
        """Goes to a byte that is still kept."""
        if not self._begin <= position <= self._begin + len(self._kept):
            raise io.UnsupportedOperation("only what is kept can be read again")
        self._position = position
        return position

    def tell(self) -> int:
        """Returns the position in the content."""
        return self._position

    def take(self, start: int, stop: int) -> bytes:
        """Returns bytes [start, stop) of the content, which must be kept."""
        return bytes(self._kept[start - self._begin : stop - self._begin])

    def forget(self, position: int) -> None:
        """Lets go of everything before a position."""
        del self._kept[: position - self._begin]
        self._begin = position


@contextlib.contextmanager
def open_content(file: SourceFile) -> Iterator["Unpacked | io.BufferedReader"]:
    """Opens a file as it is, or its content where it is compressed.

    Raises:
      OSError: also when it has changed since it was listed.
    """
    with file.open() as stored:
        packed = begins_packed(stored.read(4))
        stored.seek(0)
        yield Unpacked(stored, file.origin) if packed else stored


def content_of(file: SourceFile, most: int) -> bytes:
    """Returns the content of a file, unpacked where it is compressed, up to a limit.

    Raises:
      InputError: it has more; a compressed one is not unpacked further.
      OSError: also when it has changed since it was listed.
    """
    content = bytearray()
    with open_content(file) as stream:
        while len(content) <= most and (piece := stream.read(_PIECE_BYTES)):
            content += piece
    if len(content) > most:
        raise InputError(
            f"A file that is parsed as a whole must have at most {most:,} bytes; "
            f"{file.path!r} has more. Cut it into several files."
        )
    return bytes(content)
