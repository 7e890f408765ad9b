"""Decompress gzip, zstd, bzip2 and xz streams in bounded steps.

Each is detected by its content, gives at most 1 MiB per call, whatever the ratio, and
raises where the stream is damaged, ends early, or is followed by other bytes: a
reader that reaches the end has seen every checksum that the format has.

gzip is unpacked by `Inflater`, bzip2 and xz by Python's modules, zstd by Arrow.
"""

import bz2
import io
import lzma
import zlib
from collections.abc import Callable
from typing import Protocol

import pyarrow as pa

from transforms.core.tfrecord.compression import STEP_BYTES, Compression, Inflater
from transforms.errors import DamageError

Read = Callable[[int], bytes]

_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_BZIP2_MAGIC = b"BZh"
_XZ_MAGIC = b"\xfd7zXZ\x00"
_MAGICS = {"gzip": _GZIP_MAGIC, "zstd": _ZSTD_MAGIC, "bzip2": _BZIP2_MAGIC}
_MAGICS["xz"] = _XZ_MAGIC

_INPUT_BYTES = 1 << 16
# xz -9 wants 65 MiB.
_XZ_MEMORY_BYTES = 1 << 27


class ByteReader(Protocol):
    """Gives the content of a stream."""

    def read(self, size: int, /) -> bytes:
        """Returns 1 to `size` bytes (1 MiB at most), or b"" after a complete stream.

        Raises:
          DamageError: the stream is damaged, ends early, or other bytes follow it.
        """


def packing(head: bytes) -> str:
    """Returns how a file that begins with `head` (6 bytes) is packed; "" for not."""
    found = (name for name, magic in _MAGICS.items() if head.startswith(magic))
    return next(found, "")


def unpacker(name: str, read: Read) -> ByteReader:
    """Returns the content of what `read` gives.

    Args:
      name: as `packing` gives it; "" passes the bytes through.
      read: gives at most that many stored bytes, b"" at the end.
    """
    if name == "gzip":
        return Inflater(read, Compression.GZIP)
    if name == "zstd":
        return _Zstd(read)
    if name == "bzip2":
        return _Stepped(read, bz2.BZ2Decompressor, name)
    if name == "xz":
        return _Stepped(read, _new_xz, name)
    return Plain(read)


class Plain:
    """What is not packed."""

    def __init__(self, read: Read) -> None:
        self._read = read

    def read(self, size: int, /) -> bytes:
        """See `ByteReader`."""
        return self._read(min(size, STEP_BYTES))


class Deflated:
    """One raw deflate stream, as zip has them; RFC 1951."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._inflate = zlib.decompressobj(-15)
        self._input = b""

    def read(self, size: int, /) -> bytes:
        """See `ByteReader`."""
        while not self._inflate.eof:
            self._input = self._input or self._read(_INPUT_BYTES)
            ended = not self._input
            try:
                output = self._inflate.decompress(self._input, min(size, STEP_BYTES))
            except zlib.error as error:
                raise _damage("deflate", f"is damaged ({error})") from error
            self._input = self._inflate.unconsumed_tail
            if output:
                return output
            if ended and not self._inflate.eof:
                raise _damage("deflate", "ends early")
        if self._inflate.unused_data or self._read(1):
            raise _damage("deflate", "is followed by other bytes")
        return b""


class _Decompressor(Protocol):
    """What `bz2` and `lzma` share."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


def _new_xz() -> lzma.LZMADecompressor:
    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY_BYTES)


class _Stepped:
    """bzip2 and xz; several streams in a row are one."""

    def __init__(self, read: Read, new: Callable[[], _Decompressor], name: str) -> None:
        self._read = read
        self._new = new
        self._name = name
        self._current = new()

    def read(self, size: int, /) -> bytes:
        given = b""
        while True:
            if self._current.eof:
                given = self._next_stream()
                if not given:
                    return b""
            elif self._current.needs_input and not given:
                given = self._read(_INPUT_BYTES)
                if not given:
                    raise _damage(self._name, "ends early")
            try:
                output = self._current.decompress(given, min(size, STEP_BYTES))
            except (OSError, lzma.LZMAError, EOFError, ValueError) as error:
                raise _damage(self._name, f"is damaged ({error})") from error
            given = b""
            if output:
                return output

    def _next_stream(self) -> bytes:
        """Returns how a further stream begins, ready for it; b"" for the end."""
        magic = _MAGICS[self._name]
        rest = self._current.unused_data or self._read(_INPUT_BYTES)
        # xz pads with zeros, in fours; tapes pad anything.
        while rest and not rest.strip(b"\0"):
            rest = self._read(_INPUT_BYTES)
        rest = rest.lstrip(b"\0")
        while rest and len(rest) < len(magic) and (more := self._read(_INPUT_BYTES)):
            rest += more
        if rest and not rest.startswith(magic):
            raise _damage(self._name, "is followed by other bytes")
        if rest:
            self._current = self._new()
        return rest


class _Zstd:
    """zstd, unpacked by Arrow, which notices where a frame is damaged or cut off."""

    def __init__(self, read: Read) -> None:
        stored = pa.PythonFile(_Stored(read), "r")
        self._stream = pa.CompressedInputStream(stored, "zstd")

    def read(self, size: int, /) -> bytes:
        try:
            return self._stream.read(min(size, STEP_BYTES))
        except OSError as error:
            # Errors of the system have a number; without one the error is Arrow's.
            if error.errno is not None:
                raise
            raise _damage("zstd", f"is damaged or ends early ({error})") from error


class _Stored(io.RawIOBase):
    """What `read` gives, as a file that Arrow can read."""

    def __init__(self, read: Read) -> None:
        super().__init__()
        self._read = read

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        return self._read(size)


def _damage(name: str, what: str) -> DamageError:
    return DamageError(f"the {name} stream {what}")
