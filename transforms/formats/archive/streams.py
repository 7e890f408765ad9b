"""Decompress gzip, zstd, bzip2 and xz streams in bounded steps.

Each is detected by its content, gives at most 1 MiB per call, whatever the ratio, and
raises where the stream is damaged, ends early, or is followed by other bytes: a
reader that reaches the end has seen every checksum that the format has.

    zstd frame   28 b5 2f fd   descriptor [window] [dictionary] [content size]
                 blocks        [xxh64 of the content (4, LE)]
    its block    last(1) type(2) size(21), LE   data of that size; one byte if type 1

Source: RFC 8878 (zstd); the formats of bzip2 and xz are those of Python's modules.
"""

import bz2
import lzma
import zlib
from collections.abc import Callable
from typing import Protocol

import zstandard

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
# The window that the zstd tool unpacks without an option; xz -9 wants 65 MiB.
_ZSTD_WINDOW_BYTES = 1 << 27
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
    """zstd, fed block by block: one block never gives more than 128 KiB.

    The library neither says that a stream ends early nor bounds what a piece of input
    gives; who walks the blocks knows both.
    """

    def __init__(self, read: Read) -> None:
        self._read = read
        self._input = bytearray()
        self._output = b""
        self._frame: zstandard.ZstdDecompressionObj | None = None
        self._checked = False
        self._started = False
        self._library = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES)

    def read(self, size: int, /) -> bytes:
        while not self._output:
            if self._frame is None and not self._begin_frame():
                return b""
            if self._frame is not None:
                self._output = self._block()
        given, self._output = self._output[:size], self._output[size:]
        return given

    def _begin_frame(self) -> bool:
        """Feeds the header of a frame, or skips a frame of none; False at the end."""
        if not self._fill(4):
            if not self._input.strip(b"\0") and self._started:
                return False
            raise _damage("zstd", "ends early")
        magic = int.from_bytes(self._input[:4], "little")
        if magic == 0 and self._started:
            del self._input[:4]
            return True
        if 0x184D2A50 <= magic <= 0x184D2A5F:
            size = int.from_bytes(self._take(8)[4:], "little")
            while size:
                size -= len(self._take(min(size, _INPUT_BYTES)))
        elif magic == int.from_bytes(_ZSTD_MAGIC, "little"):
            flags = self._need(5)[4]
            single = flags >> 5 & 1
            content = (single, 2, 4, 8)[flags >> 6]
            header = self._take(5 + (1 - single) + (0, 1, 2, 4)[flags & 3] + content)
            self._checked = bool(flags & 4)
            self._frame = self._library.decompressobj()
            self._feed(header)
        else:
            where = "is followed by other bytes" if self._started else "is damaged"
            raise _damage("zstd", where)
        self._started = True
        return True

    def _block(self) -> bytes:
        head = self._take(3)
        field = int.from_bytes(head, "little")
        last, kind, size = field & 1, field >> 1 & 3, field >> 3
        if kind == 3 or size > 1 << 17:
            raise _damage("zstd", "is damaged (a block that cannot be)")
        data = head + self._take(1 if kind == 1 else size)
        if last and self._checked:
            data += self._take(4)
        output = self._feed(data)
        if last:
            if self._frame is not None and not self._frame.eof:
                raise _damage("zstd", "is damaged (a frame does not end)")
            self._frame = None
        return output

    def _feed(self, data: bytes) -> bytes:
        assert self._frame is not None
        try:
            return self._frame.decompress(data)
        except zstandard.ZstdError as error:
            raise _damage("zstd", f"is damaged ({error})") from error

    def _fill(self, size: int) -> bool:
        while len(self._input) < size and (more := self._read(_INPUT_BYTES)):
            self._input += more
        return len(self._input) >= size

    def _need(self, size: int) -> bytearray:
        if not self._fill(size):
            raise _damage("zstd", "ends early")
        return self._input

    def _take(self, size: int) -> bytes:
        given = bytes(self._need(size)[:size])
        del self._input[:size]
        return given


def _damage(name: str, what: str) -> DamageError:
    return DamageError(f"the {name} stream {what}")
