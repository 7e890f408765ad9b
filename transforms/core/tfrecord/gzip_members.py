"""gzip files of TFRecords that are read at random: a member for every 64 KiB.

    member   record record ... record | member   record ...
             at least 65,536 bytes of content; it ends where a record ends

Readers of gzip read the members as one stream, to the end. A reader that knows where a
member begins unpacks that alone. The address of a record is that of BGZF (SAM/BAM
format specification, section 4.1.1), whose blocks are smaller:

    stored bytes before its member << 16 | content before it in its member

A record begins less than 65,536 bytes behind the start of its member, because the
member ends with the first record that reaches so far.
"""

import array
import struct
import zlib
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from transforms.core.tfrecord.frame import HEADER_BYTES, OVERHEAD_BYTES
from transforms.errors import TFRecordError

__all__ = ["MEMBER_BYTES", "MemberDeflater", "unpack_record"]

# Part of the format of output: other sizes give other bytes.
MEMBER_BYTES = 1 << 16

_LEVEL = 6
_WITHIN_BITS = 16
_LENGTH = struct.Struct("<Q")
# mtime 0, no name, no extra flags, operating system 255 "unknown": the bytes are a
# function of the content (and of the zlib that deflates it).
_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_TRAILER = struct.Struct("<II")


class MemberDeflater:
    """Makes gzip members out of framed records.

    The bytes depend on the records alone, not on how they are divided among calls.
    """

    def __init__(self) -> None:
        self._addresses = array.array("Q")
        self._stored = 0
        self._start_member()
        # Of the record at the end of what was added: its first bytes while they are
        # less than a length, or else how many bytes are still to come.
        self._head = b""
        self._missing = 0

    def add(self, data: bytes) -> bytes:
        """Returns stored bytes that are ready once `data` is added; often b""."""
        out: list[bytes] = []
        whole = memoryview(data)
        begin = place = 0
        while place < len(whole):
            if not self._missing:
                place = self._read_length(whole, place, place - begin)
                if not self._missing:
                    break
            step = min(self._missing, len(whole) - place)
            place += step
            self._missing -= step
            if not self._missing and self._size + place - begin >= MEMBER_BYTES:
                out.append(self._deflated(whole[begin:place]))
                out.append(self._end_member())
                begin = place
        out.append(self._deflated(whole[begin:]))
        return b"".join(out)

    def finish(self) -> bytes:
        """Returns the last stored bytes; a file without a record is one member."""
        return self._end_member() if self._size or not self._stored else b""

    def addresses(self) -> npt.NDArray[np.uint64]:
        """Returns the address of each of n records, and behind them the file's end."""
        found = np.frombuffer(self._addresses, np.uint64)
        return np.append(found, np.uint64(self._stored << _WITHIN_BITS))

    def _read_length(self, whole: memoryview, place: int, inside: int) -> int:
        """Reads the length of a record, or a part of it; returns where that ends."""
        if not self._head:
            within = self._size + inside
            self._addresses.append(self._member << _WITHIN_BITS | within)
            if len(whole) - place >= _LENGTH.size:
                self._missing = _LENGTH.unpack_from(whole, place)[0] + OVERHEAD_BYTES
                return place
        taken = bytes(whole[place : place + _LENGTH.size - len(self._head)])
        self._head += taken
        if len(self._head) == _LENGTH.size:
            (length,) = _LENGTH.unpack(self._head)
            self._missing = length + OVERHEAD_BYTES - _LENGTH.size
            self._head = b""
        return place + len(taken)

    def _start_member(self) -> None:
        self._member = self._stored
        self._deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, -15)
        self._prefix = _HEADER
        self._crc32 = 0
        self._size = 0

    def _deflated(self, data: memoryview) -> bytes:
        if not len(data):
            return b""
        self._crc32 = zlib.crc32(data, self._crc32)
        self._size += len(data)
        return self._emitted(self._deflate.compress(data))

    def _end_member(self) -> bytes:
        trailer = _TRAILER.pack(self._crc32, self._size & 0xFFFFFFFF)
        ended = self._emitted(self._deflate.flush() + trailer)
        self._start_member()
        return ended

    def _emitted(self, stored: bytes) -> bytes:
        prefix, self._prefix = self._prefix, b""
        self._stored += len(prefix) + len(stored)
        return prefix + stored


def unpack_record(
    fetch: Callable[[int, int], bytes], address: int, following: int, *, path: str = ""
) -> bytes:
    """Returns one framed record of a gzip file, header and footer included.

    Its checksums are those of the record; this function does not check them.

    Args:
      fetch: returns the stored bytes from one offset to another.
      address: of the record.
      following: address of the next record, or the end of the file.
      path: of the file, for messages.

    Raises:
      TFRecordError: the member is damaged, or the addresses are those of another file.
    """
    begin, within = address >> _WITHIN_BITS, address & (MEMBER_BYTES - 1)
    after = following >> _WITHIN_BITS
    if after > begin:
        size, stop = 0, after
    else:
        size, stop = following & (MEMBER_BYTES - 1), begin + _member_bound(MEMBER_BYTES)
    inflate = zlib.decompressobj(31)
    try:
        content = inflate.decompress(fetch(begin, stop), size)
    except zlib.error as error:
        raise _not_there(path, begin, f"the data is damaged ({error})") from error
    record = content[within:]
    if len(record) >= HEADER_BYTES:
        (length,) = _LENGTH.unpack_from(record)
        if len(record) == length + OVERHEAD_BYTES:
            return record
    raise _not_there(path, begin, f"no record begins {within:,} bytes behind its start")


def _member_bound(size: int) -> int:
    """Returns the most stored bytes that so much content takes (zlib's bound)."""
    return size + (size >> 12) + (size >> 14) + (size >> 25) + 64


def _not_there(path: str, begin: int, what: str) -> TFRecordError:
    return TFRecordError(
        f"{path}: gzip member at byte {begin:,}: {what}. Make its index again, or see "
        f"what 'beam-tfrecord repair' can save.",
        path=path,
        offset=begin,
        kind="compression",
    )
