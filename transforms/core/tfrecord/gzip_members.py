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

from transforms.core.tfrecord.chunk import boundaries
from transforms.core.tfrecord.frame import HEADER_BYTES, OVERHEAD_BYTES
from transforms.errors import TFRecordError

__all__ = [
    "MEMBER_BYTES",
    "Addresses",
    "MemberDeflater",
    "parse_addresses",
    "scan_members",
    "unpack_records",
]

# Part of the format of output: other sizes give other bytes.
MEMBER_BYTES = 1 << 16

Addresses = npt.NDArray[np.uint64]
# Returns the stored bytes from one offset to another, fewer at the end of the file.
Fetch = Callable[[int, int], bytes]

_Longs = npt.NDArray[np.int64]

_LEVEL = 6
_STEP_BYTES = 1 << 20
_WITHIN_BITS = 16
_WITHIN = np.uint64(MEMBER_BYTES - 1)
_LENGTH = struct.Struct("<Q")
# mtime 0, no name, no extra flags, operating system 255 "unknown": the bytes are a
# function of the content (and of the zlib that deflates it).
_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_TRAILER = struct.Struct("<II")


class _RecordFinder:
    """Finds the records of a stream that comes in parts."""

    def __init__(self) -> None:
        # Of a record that has begun: its first bytes while they are less than a
        # length, or else how many bytes are still to come.
        self._head = b""
        self._missing = 0

    def feed(self, data: memoryview) -> tuple[_Longs, _Longs]:
        """Returns where records begin, and where they end, in the next part."""
        place = 0
        first: list[int] = []
        if self._head:
            taken = bytes(data[: _LENGTH.size - len(self._head)])
            self._head += taken
            place = len(taken)
            if len(self._head) == _LENGTH.size:
                self._missing = self._whole(self._head) - _LENGTH.size
                self._head = b""
        if self._missing:
            step = min(self._missing, len(data) - place)
            place += step
            self._missing -= step
            if not self._missing:
                first.append(place)
        if place == len(data):
            return np.empty(0, np.int64), np.array(first, np.int64)
        starts, lengths, stop = boundaries(data[place:])
        starts = starts + (place - HEADER_BYTES)
        ends = np.concatenate((first, starts + lengths + OVERHEAD_BYTES))
        rest = data[place + stop :]
        if len(rest):
            starts = np.append(starts, place + stop)
            if len(rest) < _LENGTH.size:
                self._head = bytes(rest)
            else:
                self._missing = self._whole(rest) - len(rest)
        return starts, ends.astype(np.int64)

    @staticmethod
    def _whole(head: bytes | memoryview) -> int:
        return int(_LENGTH.unpack_from(head)[0]) + OVERHEAD_BYTES


class MemberDeflater:
    """Makes gzip members out of framed records.

    The bytes depend on the records alone, not on how they are divided among calls.
    """

    def __init__(self) -> None:
        self._addresses = array.array("Q")
        self._records = _RecordFinder()
        self._stored = 0
        self._start_member()

    def add(self, data: bytes) -> bytes:
        """Returns stored bytes that are ready once `data` is added; often b""."""
        out: list[bytes] = []
        whole = memoryview(data)
        starts, ends = self._records.feed(whole)
        begin = 0
        while True:
            # A record that is longer than a member may have been added in parts.
            least = max(begin + MEMBER_BYTES - self._size, begin + 1)
            last = int(np.searchsorted(ends, least))
            is_full = last < len(ends)
            cut = int(ends[last]) if is_full else len(whole)
            self._note(starts[(starts >= begin) & (starts < cut)] - begin)
            out.append(self._deflated(whole[begin:cut]))
            if not is_full:
                return b"".join(out)
            out.append(self._end_member())
            begin = cut

    def finish(self) -> bytes:
        """Returns the last stored bytes; a file without a record is one member."""
        return self._end_member() if self._size or not self._stored else b""

    def addresses(self) -> Addresses:
        """Returns the address of each of n records, and behind them the file's end."""
        found = np.array(self._addresses, np.uint64)
        return np.append(found, np.uint64(self._stored << _WITHIN_BITS))

    def _note(self, starts: _Longs) -> None:
        found = starts + (self._member << _WITHIN_BITS | self._size)
        self._addresses.frombytes(found.astype(np.uint64).tobytes())

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


def unpack_records(
    fetch: Fetch, addresses: Addresses, *, path: str
) -> tuple[bytes, _Longs]:
    """Returns neighbouring records of a gzip file, without what is before them.

    Their checksums are not checked.

    Args:
      fetch: of the file.
      addresses: of m >= 1 records and of what is behind the last.
      path: of the file, for messages.

    Returns:
      Content that holds the framed records, and m + 1 offsets in it: where each begins,
      and where the last one ends.

    Raises:
      TFRecordError: a member is damaged, or the addresses are those of another file.
    """
    members = (addresses >> np.uint64(_WITHIN_BITS)).astype(np.int64)
    within = (addresses & _WITHIN).astype(np.int64)
    begins, numbers = np.unique(members[:-1], return_inverse=True)
    first, last, end = int(begins[0]), int(begins[-1]), int(members[-1])
    # Records of the last member may follow; then its end is not known.
    is_open = end == last
    stored = fetch(first, last + _stored_bound(MEMBER_BYTES) if is_open else end)
    bounds = [*(begins - first).tolist(), len(stored)]
    parts: list[bytes] = []
    for index, begin in enumerate(bounds[:-1]):
        most = int(within[-1]) if is_open and index == len(begins) - 1 else 0
        inflate = zlib.decompressobj(31)
        try:
            parts.append(inflate.decompress(stored[begin : bounds[index + 1]], most))
        except zlib.error as error:
            raise _not_there(path, first + begin, f"damaged ({error})") from error
    before = np.cumsum([0, *map(len, parts)])
    offsets = np.append(before[numbers] + within[:-1], before[-1])
    wrong = np.flatnonzero(np.diff(offsets) < OVERHEAD_BYTES)
    if len(wrong):
        place = int(wrong[0])
        what = f"no record begins {int(within[place]):,} bytes behind its start"
        raise _not_there(path, int(members[place]), what)
    return b"".join(parts), offsets


def parse_addresses(data: bytes | memoryview, *, path: str, size: int) -> Addresses:
    """Returns the n + 1 addresses of an index; nothing is copied.

    Args:
      data: content of the index; a buffer will do.
      path: of the index, for messages.
      size: stored bytes of the file that it is of.

    Raises:
      TFRecordError: it is damaged, or of another file.
    """
    whole = memoryview(data).cast("B")
    found = np.frombuffer(whole[: len(whole) // 8 * 8], np.uint64)
    ends_there = len(found) > 0 and int(found[-1]) == size << _WITHIN_BITS
    if len(whole) % 8 or not ends_there or not _ascend(found):
        raise TFRecordError(
            f"{path} must be the index of its file, which has {size:,} bytes; it is "
            f"damaged, or that of another file.",
            path=path,
            kind="truncated",
        )
    return found


def _ascend(addresses: Addresses) -> bool:
    begins_there = len(addresses) == 1 or addresses[0] == 0
    return bool(begins_there and (addresses[1:] > addresses[:-1]).all())


def scan_members(fetch: Fetch, size: int, *, path: str) -> Addresses:
    """Returns the n + 1 addresses of a gzip file, all of which is unpacked for it.

    Memory is that of the addresses. Checksums of records are not checked.

    Args:
      fetch: of the file.
      size: its stored bytes.
      path: of the file, for messages.

    Raises:
      TFRecordError: it is damaged, or its members are too long for addresses.
    """
    records = _RecordFinder()
    found = [np.empty(0, np.uint64)]
    begin = place = content = 0
    stored = b""
    inflate = zlib.decompressobj(31)
    while stored or place < size:
        if not stored:
            stored = fetch(place, min(place + _STEP_BYTES, size))
            place += len(stored)
        if not stored:
            raise _not_there(path, begin, "the file ends early")
        try:
            part = inflate.decompress(stored, _STEP_BYTES)
        except zlib.error as error:
            raise _not_there(path, begin, f"damaged ({error})") from error
        starts = records.feed(memoryview(part))[0] + content
        if len(starts) and starts[-1] >= MEMBER_BYTES:
            raise _not_there(
                path,
                begin,
                "it holds more than 64 KiB of records, which cannot be read one by one",
                kind="too-long",
            )
        found.append((starts + (begin << _WITHIN_BITS)).astype(np.uint64))
        content += len(part)
        stored = inflate.unused_data if inflate.eof else inflate.unconsumed_tail
        if inflate.eof:
            begin, content = place - len(stored), 0
            inflate = zlib.decompressobj(31)
    if content:
        raise _not_there(path, begin, "the file ends early")
    found.append(np.array([size << _WITHIN_BITS], np.uint64))
    return np.concatenate(found)


def _stored_bound(size: int) -> int:
    """Returns the most stored bytes that so much content takes (zlib's bound)."""
    return size + (size >> 12) + (size >> 14) + (size >> 25) + 64


def _not_there(
    path: str, begin: int, what: str, *, kind: str = "compression"
) -> TFRecordError:
    return TFRecordError(
        f"{path}: gzip member at byte {begin:,}: {what}. 'beam-tfrecord verify' shows "
        f"all damage.",
        path=path,
        offset=begin,
        kind=kind,
    )
