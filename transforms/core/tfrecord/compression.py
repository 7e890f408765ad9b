"""gzip and zlib streams: detected by content, decompressed in bounded memory.

    gzip member   1f 8b 08 flags mtime(4) xfl os [extra] [name] [comment] [crc16]
                  deflate data   crc32 of the content (4, LE)   its size (4, LE)
    zlib stream   78 xx   deflate data   adler32 of the content (4, BE)

A TFRecord file is compressed as a whole, never record by record; several gzip
members in a row are one stream, of which this program writes one member. zlib streams
are read only. Sources: RFC 1950, 1951 and 1952.
"""

import contextlib
import enum
import os
import stat
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO, cast

import google_crc32c

from transforms.core.files import open_stream
from transforms.core.tfrecord.frame import framed_length
from transforms.core.tfrecord.walk import Fetch, LostRange
from transforms.errors import InputError, SpecError, TFRecordError, source_error

Source = str | os.PathLike[str] | BinaryIO

_PEEK_BYTES = 1 << 16
# Most bytes that one call returns, whatever the ratio: it bounds a reader's memory.
STEP_BYTES = 1 << 20
# Small, because zlib hands the unused rest of its input back as a copy: with many
# tiny members in a row that copy is the whole cost.
_INPUT_BYTES = 1 << 16

# Part of the format of output: another level gives other bytes.
_LEVEL = 6
_GZIP_MAGIC = b"\x1f\x8b"
# mtime 0, no name, no extra flags, operating system 255 "unknown": the bytes are a
# function of the content (and of the zlib that deflates it).
_GZIP_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_GZIP_TRAILER = struct.Struct("<II")

_UNSUPPORTED = {
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bz2",
    b"\xfd7zXZ\x00": "xz",
    b"\xff\x06\x00\x00sNaPpY": "snappy",
    b"\x04\x22\x4d\x18": "lz4",
}


class StoredBytes:
    """A file as stored, compressed or not: counted and checksummed while it is read."""

    def __init__(self, file: BinaryIO, path: str) -> None:
        self._file = file
        self._path = path
        self._head = b""
        self.size_read = 0
        self.crc32c = 0
        self._stamp = _stamp(file)

    def peek(self, size: int) -> bytes:
        """Returns the next `size` bytes, fewer only at the end, without using them."""
        while len(self._head) < size and (more := self._fetch(_PEEK_BYTES)):
            self._head += more
        return self._head[:size]

    def read(self, size: int) -> bytes:
        """Returns 1 to `size` bytes, or b"" at the end."""
        if self._head:
            data, self._head = self._head[:size], self._head[size:]
            return data
        return self._fetch(size)

    def _fetch(self, size: int) -> bytes:
        try:
            data = self._file.read(size)
        except OSError as error:
            raise InputError(
                f"{self._path}: cannot be read at byte {self.size_read:,}: "
                f"{error.strerror or error}"
            ) from error
        self.size_read += len(data)
        self.crc32c = google_crc32c.extend(self.crc32c, data)
        return data

    def check_unchanged(self) -> None:
        """Raises InputError if the file was written to since the start."""
        if _stamp(self._file) != self._stamp:
            raise InputError(
                f"{self._path}: the file changed while it was read. Read it again "
                "when its writer is done."
            )


def source_name(source: Source) -> str:
    """Returns what messages call a source of stored bytes."""
    if isinstance(source, str | os.PathLike):
        return os.fspath(source)
    return str(getattr(source, "name", "<stream>"))


@contextlib.contextmanager
def opened(source: Source, path: str) -> Iterator[BinaryIO]:
    """Opens a source of stored bytes, compressed or not; closes only what it opened.

    Raises:
      SourceError: it cannot be opened.
    """
    if not isinstance(source, str | os.PathLike):
        yield source
        return
    try:
        # Unbuffered: reads are large, and a buffer would copy each of them again.
        file = open(source, "rb", buffering=0, opener=open_stream)  # noqa: SIM115
    except OSError as error:
        raise source_error(
            f"{path}: cannot be opened: {error.strerror or error}.", error
        ) from error
    with file:
        yield cast(BinaryIO, file)


def _stamp(file: BinaryIO) -> tuple[int, int] | None:
    """Returns size and time of a stored file; None where it is no regular file."""
    try:
        status = os.fstat(file.fileno())
    except (OSError, AttributeError):
        return None
    regular = stat.S_ISREG(status.st_mode)
    return (status.st_size, status.st_mtime_ns) if regular else None


class Compression(enum.StrEnum):
    """How a whole TFRecord file is compressed. TensorFlow reads exactly these."""

    NONE = "none"
    GZIP = "gzip"
    ZLIB = "zlib"


def parse_compression(name: str) -> Compression:
    """Returns the member of that name; SpecError names the choices otherwise."""
    try:
        return Compression(name)
    except ValueError:
        choices = ", ".join(Compression)
        raise SpecError(
            f"compression must be one of {choices}; found {name!r}"
        ) from None


def detect(head: bytes, *, path: str = "") -> Compression:
    """Returns how a file that begins with `head` (12 bytes or more) is compressed.

    A valid TFRecord header is looked for first, because a length may look like the
    start of a compressed stream: 376 begins with 78 01, 35,615 with 1f 8b.

    Raises:
      TFRecordError: no TFRecord reader reads the compression of the content.
    """
    if framed_length(head) is not None:
        return Compression.NONE
    if head.startswith(_GZIP_MAGIC):
        return Compression.GZIP
    for magic, name in _UNSUPPORTED.items():
        if head.startswith(magic):
            raise TFRecordError(
                f"{path}: unsupported compression: {name}. TFRecord files are plain, "
                "gzip or zlib; unpack it first.",
                path=path,
                record=0,
                offset=0,
                kind="compression",
            )
    # RFC 1950: method 8 (deflate) in the low bits, no preset dictionary, and the two
    # bytes a multiple of 31.
    if len(head) >= 2 and head[0] & 0x8F == 0x08 and not head[1] & 0x20:
        # Five zero bytes are the upper part of a length whose checksum is damaged;
        # deflate data practically never has them.
        plausible = head[3:8] != bytes(5)
        if plausible and int.from_bytes(head[:2], "big") % 31 == 0:
            return Compression.ZLIB
    return Compression.NONE


class Inflater:
    """Reads the content of a gzip or zlib stream, at most 1 MiB a call.

    Args:
      read: returns at most that number of stored bytes, b"" at the end.
      compression: GZIP or ZLIB.
      path: for messages.
    """

    def __init__(
        self,
        read: Callable[[int], bytes],
        compression: Compression,
        *,
        path: str = "",
    ) -> None:
        self._read = read
        self._compression = compression
        self._path = path
        self._input = b""
        self._inflate = self._new_inflate()
        # Zeros behind the last member.
        self.padding_bytes = 0

    def read(self, size: int) -> bytes:
        """Returns 1 to min(size, 1 MiB) bytes, or b"" after a complete stream.

        Raises:
          TFRecordError: kind "compression" (the data, a checksum, a size or header
            flags are wrong), "truncated" (the stream does not end) or "trailing"
            (other bytes than zeros or a further gzip member follow).
        """
        size = min(size, STEP_BYTES)
        while not (self._inflate.eof and self._at_end()):
            if not self._input:
                self._input = self._read(_INPUT_BYTES)
            ended = not self._input
            try:
                output = self._inflate.decompress(self._input, size)
            except zlib.error as error:
                raise self._error(
                    "compression", f"the stream is damaged ({error})"
                ) from error
            if self._inflate.eof:
                self._input = self._inflate.unused_data
            else:
                self._input = self._inflate.unconsumed_tail
            if output:
                return output
            if ended and not self._inflate.eof:
                raise self._error("truncated", "the stream ends early")
        return b""

    def _at_end(self) -> bool:
        """True at the end of the file; otherwise ready for the next member."""
        while len(self._input) < 2 and (more := self._read(_INPUT_BYTES)):
            self._input += more
        if not self._input:
            return True
        if self._compression is Compression.GZIP:
            if _GZIP_MAGIC.startswith(self._input[:2]):
                self._inflate = self._new_inflate()
                return False
            while not self._input.strip(b"\0"):
                # Tapes and some stores pad gzip files to whole blocks.
                self.padding_bytes += len(self._input)
                self._input = self._read(_INPUT_BYTES)
                if not self._input:
                    return True
        raise self._error("trailing", "other bytes follow the end of the stream")

    # zlib does not export the class of its objects, hence the quotes.
    def _new_inflate(self) -> "zlib._Decompress":
        gzip = self._compression is Compression.GZIP
        # 15: the largest window; 16 more selects the gzip header and trailer.
        return zlib.decompressobj(31 if gzip else 15)

    def _error(self, kind: str, what: str) -> TFRecordError:
        return TFRecordError(
            f"{self._path}: {self._compression}: {what}. Fetch or write it again.",
            path=self._path,
            kind=kind,
        )


class Deflater:
    """Makes one gzip member.

    The bytes depend on the content alone, not on how it is divided among calls.
    """

    def __init__(self) -> None:
        # The header and the trailer are made here: zlib's own state the system.
        self._deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, -15)
        self._crc32 = 0
        self._size = 0

    def add(self, data: bytes | memoryview) -> Iterator[bytes]:
        """Adds `data`; yields stored bytes that are ready, about 1 MiB at a time."""
        view = memoryview(data)
        for start in range(0, len(view), STEP_BYTES):
            chunk = view[start : start + STEP_BYTES]
            if not self._size:
                yield _GZIP_HEADER
            self._crc32 = zlib.crc32(chunk, self._crc32)
            self._size += len(chunk)
            yield self._deflate.compress(chunk)

    def finish(self) -> bytes:
        """Returns the last stored bytes."""
        header = b"" if self._size else _GZIP_HEADER
        trailer = _GZIP_TRAILER.pack(self._crc32, self._size & 0xFFFFFFFF)
        return header + self._deflate.flush() + trailer


def unpack(
    fetch: Fetch, size: int, write: Callable[[bytes], object]
) -> LostRange | None:
    """Unpacks a gzip stream up to its first fault.

    Args:
      fetch: of the stored bytes.
      size: of them.
      write: takes the content, at most 1 MiB a call.

    Returns:
      The stored bytes from the fault on, None for no fault. A stream that only ends
      early has none of them.
    """
    inflate, is_new = zlib.decompressobj(31), True
    for start in range(0, size, _INPUT_BYTES):
        stop = min(start + _INPUT_BYTES, size)
        data = fetch(start, stop)
        while data:
            before = inflate.copy()
            try:
                write(inflate.decompress(data, STEP_BYTES))
            except zlib.error:
                at = stop - len(data)
                if is_new and at:
                    return LostRange(at, size, "trailing")
                # An error discards what the call had unpacked in front of it.
                at += _write_before_fault(before, data, write)
                return LostRange(at, size, "compression")
            is_new = inflate.eof
            data = inflate.unused_data if inflate.eof else inflate.unconsumed_tail
            if inflate.eof:
                inflate = zlib.decompressobj(31)
    write(inflate.flush())
    return None if is_new else LostRange(size, size, "truncated")


# zlib does not export the class of its objects, hence the quotes.
def _write_before_fault(
    inflate: "zlib._Decompress", data: bytes, write: Callable[[bytes], object]
) -> int:
    """Writes what is unpacked in front of a fault; returns where in `data` that is."""
    for offset in range(len(data)):
        try:
            write(inflate.decompress(data[offset : offset + 1]))
        except zlib.error:
            return offset
    return len(data)
