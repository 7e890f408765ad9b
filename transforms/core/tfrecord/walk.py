"""Walk over framed records: where they begin, which are sound, what a file keeps.

A chunk of framed records is parsed with whole-array operations:

    chunk    | header | payload | footer | header | payload | footer | head...
    starts            ^                           ^
    lengths           |<- n_0 ->|                 |<- n_1 ->|

1. Boundaries: guess that the next records are as long as this one, and check many
   headers at once; where that fails, walk header by header.
2. Headers: sort the records by length, and look up the checksum of each distinct one.
3. Payloads: copy all records of one length at once, and checksum the copies.

Of a damaged file every sound record is kept:

    header ok, payload ok      kept
    header ok, payload not     skipped as a whole, if a header follows it or the file
                               ends there
    else                       skipped up to the next record whose header and payload
                               have the right checksums

Checksums alone decide. So where a payload holds framed records and is damaged, these
may count as records of the file. A whole record is lost if a damaged one claims it, and
a header or the end of the file follows it. Each byte is read a bounded number
of times, and a few steps of 1 MiB are held at once.
"""

import dataclasses
import itertools
import struct
from collections.abc import Callable, Iterator
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt

from transforms.core.tfrecord.frame import (
    DEFAULT_MAX_RECORD_BYTES,
    FOOTER_BYTES,
    HEADER_BYTES,
    OVERHEAD_BYTES,
    framed_length,
    header,
    length_crcs,
    mask_all,
    stored_crc,
)

# Returns the bytes from one offset to another, both within the content.
Fetch = Callable[[int, int], bytes]
_Longs = npt.NDArray[np.int64]
_Words = npt.NDArray[np.uint32]

# Larger payloads are checksummed in place: copying them costs more than the calls.
LARGE_BYTES = 1 << 13
# The shortest run of equal lengths for which an array operation pays.
_RUN_RECORDS = 8

_STEP_BYTES = 1 << 20
# Behind damage the steps start small, because more damage may be near.
_FIRST_STEP_BYTES = 1 << 16
# How many times the content's bytes may be read in vain, of records that a sound header
# claims. Only crafted files need more than once.
_MAX_READS = 16

_LENGTH = struct.Struct("<Q")
_LENGTH_BYTES = 8
_EMPTY_CRC = int.from_bytes(header(0)[_LENGTH_BYTES:], "little")


def boundaries(data: bytes | memoryview) -> tuple[_Longs, _Longs, int]:
    """Returns starts and lengths of whole payloads, and where the last record ends.

    Lengths are not checked: behind damage the answer is meaningless, which
    `first_damage` finds out.
    """
    limit = len(data) - OVERHEAD_BYTES
    pieces: list[_Longs] = []
    position = 0
    # Bytes to walk before the next guess; it grows with each wrong one, so that files
    # of varying lengths are not slowed down by guesses.
    patience = 0
    unpack = _LENGTH.unpack_from
    while position <= limit:
        (length,) = unpack(data, position)
        stride = length + OVERHEAD_BYTES
        room = (len(data) - position) // stride
        if room == 0:
            break
        run = _run_records(data, position, length, room)
        if run >= _RUN_RECORDS:
            end = position + run * stride
            pieces.append(np.arange(position, end, stride, dtype=np.int64))
            position = end
            patience = 0
            continue
        patience = 4 * patience + _RUN_RECORDS * stride
        stop = min(limit, position + patience)
        walked: list[int] = []
        append = walked.append
        while position <= stop:
            append(position)
            position += unpack(data, position)[0] + OVERHEAD_BYTES
        if position > len(data):
            position = walked.pop()
            pieces.append(np.array(walked, np.int64))
            break
        pieces.append(np.array(walked, np.int64))
    headers = np.concatenate(pieces) if pieces else np.empty(0, np.int64)
    lengths = np.diff(headers, append=position) - OVERHEAD_BYTES
    return headers + HEADER_BYTES, lengths, position


def _run_records(
    data: bytes | memoryview, position: int, length: int, room: int
) -> int:
    """Returns how many of the next `room` records have this length, 1 or more."""
    count = 8 * _RUN_RECORDS
    while True:
        count = min(count, room)
        stride = length + OVERHEAD_BYTES
        lengths: Any = np.ndarray((count,), "<u8", data, position, (stride,))
        same = lengths == length
        if not same.all():
            return int(same.argmin())
        if count == room:
            return room
        count *= 8


def first_damage(
    data: bytes, starts: _Longs, lengths: _Longs
) -> tuple[int, str] | None:
    """Walks over checksums; returns index and kind of the first damage, or None."""
    words: _Words = np.ndarray((len(data) - 3,), "<u4", data, 0, (1,))
    order = np.argsort(lengths)
    ordered = lengths[order]
    edges = np.flatnonzero(np.diff(ordered, prepend=-1))
    counts = np.diff(edges, append=len(ordered))
    expected = np.repeat(length_crcs(ordered[edges]), counts)
    begins = starts[order]

    wrong = words[begins - FOOTER_BYTES] != expected
    if wrong.any():
        first = int(order[wrong].min())
        # Behind a wrong length no boundary is to be trusted; those before it are.
        before = first_damage(data, starts[:first], lengths[:first]) if first else None
        return before or (first, "length-crc")
    crcs = _payload_crcs(data, begins, ordered, edges)
    wrong = words[begins + ordered] != mask_all(crcs)
    if wrong.any():
        return int(order[wrong].min()), "data-crc"
    return None


def _payload_crcs(
    data: bytes, begins: _Longs, lengths: _Longs, edges: npt.NDArray[np.intp]
) -> _Words:
    """Returns the CRC32C of each payload that is walked over.

    Args:
      data: the bytes that hold them.
      begins: n positions in `data`, in the order of the lengths.
      lengths: n lengths, ascending.
      edges: where in them each distinct length begins.
    """
    value = google_crc32c.value
    crcs = np.zeros(len(begins), np.uint32)
    # An array operation pays only for lengths that repeat.
    split = len(begins) if len(edges) * 8 <= len(begins) else 0
    split = min(split, int(np.searchsorted(lengths, LARGE_BYTES)))
    for start, stop in itertools.pairwise([*edges[edges < split].tolist(), split]):
        if length := int(lengths[start]):
            payloads = gather(data, begins[start:stop], length)
            crcs[start:stop] = np.fromiter(
                map(value, payloads), np.uint32, stop - start
            )
    if split < len(begins):
        stops = (begins + lengths)[split:].tolist()
        pairs = zip(begins[split:].tolist(), stops, strict=True)
        # Slices of an array share memory, slices of bytes copy it; for small payloads
        # the copy is the cheaper of the two.
        view: Any = data
        if lengths[-1] >= LARGE_BYTES:
            view = np.frombuffer(data, np.uint8)
        crcs[split:] = [value(view[begin:end]) for begin, end in pairs]
    return crcs


def gather(data: bytes, starts: _Longs, length: int) -> list[bytes]:
    """Copies payloads of one length, 1 or more, from the starts that a walk gave."""
    # Overlapping items, one beginning at every byte: NumPy's own fancy indexing then
    # copies whole payloads, and `tolist` makes bytes of them.
    count = len(data) - length + 1
    items: Any = np.ndarray((count,), f"V{length}", data, 0, (1,))
    payloads: list[bytes] = items[starts].tolist()
    return payloads


@dataclasses.dataclass(frozen=True, slots=True)
class Kept:
    """Sound records: bytes [start, stop) of the content, framing included.

    Attributes:
      start, stop: where they are.
      records: how many.
    """

    start: int
    stop: int
    records: int


@dataclasses.dataclass(frozen=True, slots=True)
class LostRange:
    """Bytes [start, stop) that are left out.

    Attributes:
      start, stop: where they are.
      kind: a word of `frame.DAMAGE_KINDS`.
      of: "file" (as stored) or "content" (of a compressed file, unpacked).
    """

    start: int
    stop: int
    kind: str
    of: str = "file"


class Salvage:
    """Walks over the bytes of some content.

    Args:
      fetch: of the content.
      size: of it.
    """

    def __init__(self, fetch: Fetch, size: int) -> None:
        self._fetch = fetch
        self._size = size
        self._reads_left = _MAX_READS * size

    def __iter__(self) -> Iterator[Kept | LostRange]:
        """Yields what is kept and what is skipped, in order and without a gap."""
        position = 0
        while position < self._size:
            for stop, records in self._runs(position):
                yield Kept(position, stop, records)
                position = stop
            if position < self._size:
                skipped = self._damaged(position)
                yield skipped
                position = skipped.stop

    def _runs(self, position: int) -> Iterator[tuple[int, int]]:
        """Yields (end, records) of sound records, up to the first damaged one.

        They follow one another from `position` on.
        """
        step = _FIRST_STEP_BYTES
        while position < self._size:
            data = self._fetch(position, min(position + step, self._size))
            starts, lengths, _ = boundaries(data)
            if not len(starts):
                end = self._end_of_record(position)
                if end is None:
                    return
                yield end, 1
                position = end
            else:
                damage = first_damage(data, starts, lengths)
                good = len(starts) if damage is None else damage[0]
                if good:
                    position += int(starts[good - 1] + lengths[good - 1]) + FOOTER_BYTES
                    yield position, good
                if damage is not None:
                    return
            step = min(2 * step, _STEP_BYTES)

    def _damaged(self, position: int) -> LostRange:
        """Returns the bytes from a damaged record to the next one."""
        length = self._length_at(position)
        if length is not None:
            end = position + length + OVERHEAD_BYTES
            if end == self._size or self._length_at(end) is not None:
                return LostRange(position, end, "data-crc")
            kind = "data-crc" if end < self._size else "truncated"
        elif position + OVERHEAD_BYTES > self._size:
            kind = "truncated"
        else:
            data = self._fetch(position, position + HEADER_BYTES)
            kind = "length-crc" if framed_length(data) is None else "too-long"
        return LostRange(position, self._next_record(position + 1), kind)

    def _next_record(self, start: int) -> int:
        """Returns where the next sound record begins, or the end of the content."""
        step = _FIRST_STEP_BYTES
        while start < self._size and self._reads_left > 0:
            stop = min(start + step, self._size)
            data = self._fetch(start, min(stop + HEADER_BYTES - 1, self._size))
            for offset in header_places(data, self._size - start).tolist():
                if self._end_of_record(start + offset) is not None:
                    return start + int(offset)
                self._reads_left -= self._length_at(start + offset) or 0
                if self._reads_left <= 0:
                    break
            start = stop
            step = min(2 * step, _STEP_BYTES)
        return self._size

    def _length_at(self, position: int) -> int | None:
        """Returns the length in a sound header within the limit; None for others."""
        if position + OVERHEAD_BYTES > self._size:
            return None
        length = framed_length(self._fetch(position, position + HEADER_BYTES))
        is_within = length is not None and length <= DEFAULT_MAX_RECORD_BYTES
        return length if is_within else None

    def _end_of_record(self, position: int) -> int | None:
        """Returns where the record at a position ends; None: it is damaged."""
        length = self._length_at(position)
        if length is None or position + length + OVERHEAD_BYTES > self._size:
            return None
        crc, start = 0, position + HEADER_BYTES
        stop = start + length
        for begin in range(start, stop, _STEP_BYTES):
            data = self._fetch(begin, min(begin + _STEP_BYTES, stop))
            crc = google_crc32c.extend(crc, data)
        end = stop + FOOTER_BYTES
        return end if self._fetch(stop, end) == stored_crc(crc) else None


def header_places(data: bytes, room: int) -> npt.NDArray[np.int64]:
    """Returns where in `data` sound headers of records that fit begin, ascending.

    Args:
      data: n bytes.
      room: bytes from the start of `data` to the end of the file, n or more.
    """
    count = len(data) - HEADER_BYTES + 1
    largest = min(DEFAULT_MAX_RECORD_BYTES, room - OVERHEAD_BYTES)
    if count <= 0 or largest < 0:
        return np.empty(0, np.int64)
    lengths: npt.NDArray[np.uint64] = np.ndarray((count,), "<u8", data, 0, (1,))
    crcs: npt.NDArray[np.uint32] = np.ndarray(
        (count,), "<u4", data, _LENGTH_BYTES, (1,)
    )
    # Zeros are frequent in files with holes, and their checksum is known.
    plausible = (lengths <= np.uint64(largest)) & (
        (lengths != 0) | (crcs == _EMPTY_CRC)
    )
    places = np.flatnonzero(plausible)
    # NumPy 2.0 looks nothing up by unsigned 64 bits.
    sizes = lengths[places].astype(np.int64)
    is_sound = crcs[places] == length_crcs(sizes)
    fitting: npt.NDArray[np.int64] = places[
        is_sound & (places + sizes + OVERHEAD_BYTES <= room)
    ]
    return fitting
