"""Walk over the records of a file by their headers: its index, and what is sound in it.

    index/NAME.u64   n + 1 unsigned integers of 64 bits, little-endian: where each of
                     the n records begins, and where the file ends
    index/NAME.idx   the same as text: a line "OFFSET SIZE" a record

A reader gets record i from the bytes [i] to [i + 1]. Arrow's offsets have this form,
too, so the file can be mapped and used as it is.

Of a damaged file every sound record is kept:

    header ok, payload ok      kept
    header ok, payload not     skipped as a whole, if a header follows it or the file
                               ends there
    else                       skipped up to the next record whose header and payload
                               have the right checksums

Checksums alone decide. So where a payload holds framed records and is damaged, these
may count as records of the file. A whole record is lost if a damaged one claims it, and
a header or the end of the file follows it. A damaged gzip stream is unpacked up to its
first fault. Each byte is read a bounded number of times, and a few steps of 1 MiB are
held at once.
"""

import dataclasses
import zlib
from collections.abc import Callable, Iterator

import google_crc32c
import numpy as np
import numpy.typing as npt

from transforms.core.tfrecord.compression import framed_length
from transforms.core.tfrecord.frame import (
    DAMAGE_KINDS,
    DEFAULT_MAX_RECORD_BYTES,
    FOOTER_BYTES,
    HEADER_BYTES,
    OVERHEAD_BYTES,
    boundaries,
    first_damage,
    header,
    length_crcs,
    stored_crc,
)
from transforms.errors import TFRecordError

# Returns the bytes from one offset to another, both within the content.
Fetch = Callable[[int, int], bytes]
Offsets = npt.NDArray[np.uint64]

_STEP_BYTES = 1 << 20
# Headers of longer records are read one by one, without what is between them.
_LONG_BYTES = 1 << 14
_LINES_TOGETHER = 1 << 16
# Behind damage the steps start small, because more damage may be near.
_FIRST_STEP_BYTES = 1 << 16
_STORED_BYTES = 1 << 16
# How many times the content's bytes may be read in vain, of records that a sound header
# claims. Only crafted files need more than once.
_MAX_READS = 16

_LENGTH_BYTES = 8
_EMPTY_CRC = int.from_bytes(header(0)[_LENGTH_BYTES:], "little")


def index_file(shard: str) -> str:
    """Returns the name of a shard's index, below the dataset's folder.

    >>> index_file("rows-train.tfrecord-00000-of-00001")
    'index/rows-train.tfrecord-00000-of-00001.u64'
    """
    return f"index/{shard}.u64"


def text_index_file(shard: str) -> str:
    """Returns the name of a shard's index as text, below the dataset's folder.

    >>> text_index_file("rows-train.tfrecord-00000-of-00001")
    'index/rows-train.tfrecord-00000-of-00001.idx'
    """
    return f"index/{shard}.idx"


def text_index(offsets: Offsets) -> bytes:
    r"""Returns an index as text, which DALI and vahidk's `tfrecord` read.

    A line a record: where it begins, and its size with header and footer, as in DALI's
    `tools/tfrecord2idx` and vahidk's `tfrecord2idx.py`.

    >>> text_index(np.array([0, 20, 37], np.uint64))
    b'0 20\n20 17\n'
    """
    out = []
    # Lines take many times their bytes until they are joined.
    for first in range(0, len(offsets) - 1, _LINES_TOGETHER):
        places = offsets[first : first + _LINES_TOGETHER + 1]
        pairs = zip(places[:-1].tolist(), np.diff(places).tolist(), strict=True)
        out.append("".join(f"{start} {size}\n" for start, size in pairs).encode())
    return b"".join(out)


def parse_index(data: bytes | memoryview, *, path: str, size: int) -> memoryview:
    """Returns the n + 1 offsets of an index; nothing is copied.

    Args:
      data: content of the index.
      path: of the index, for messages.
      size: bytes of the file that it is of.

    Raises:
      TFRecordError: it is damaged, or of another file.
    """
    view = memoryview(data).cast("B")
    offsets = view[: len(view) // 8 * 8].cast("Q")
    if len(view) % 8 or not _is_of(np.frombuffer(offsets, np.uint64), size):
        raise TFRecordError(
            f"{path} must be the index of its file, which has {size:,} bytes; it is "
            f"damaged, or that of another file.",
            path=path,
            kind="truncated",
        )
    return offsets


def _is_of(offsets: Offsets, size: int) -> bool:
    """Tells whether records of these offsets fill a file."""
    if not len(offsets) or offsets[0] or offsets[-1] != size or offsets.max() > size:
        return False
    return bool((offsets[1:] >= offsets[:-1] + np.uint64(OVERHEAD_BYTES)).all())


def scan_records(read: Fetch, size: int, *, path: str) -> npt.NDArray[np.uint64]:
    """Returns the n + 1 offsets of a file, from the headers of its records.

    Memory is that of the offsets. Arguments and errors are those of `record_ends`.
    """
    pieces = [np.zeros(1, np.int64), *record_ends(read, size, path=path)]
    return np.concatenate(pieces).view(np.uint64)


def record_ends(
    read: Fetch, size: int, *, path: str
) -> Iterator[npt.NDArray[np.int64]]:
    """Yields where the records of a file end, from their headers, some at a time.

    Payloads are not checked.

    Args:
      read: returns the bytes from one offset to another.
      size: bytes of the file, which is not compressed.
      path: of the file, for messages.

    Raises:
      TFRecordError: a header is damaged, or the last record is not whole.
    """
    position = count = 0
    step = _STEP_BYTES
    while position < size:
        data = read(position, min(position + step, size))
        starts, lengths, stop = boundaries(data)
        if len(starts):
            crcs = np.ndarray((len(data) - 3,), "<u4", data, 0, (1,))
            wrong = crcs[starts - FOOTER_BYTES] != length_crcs(lengths)
        else:
            # A record that is longer than what was read.
            length = framed_length(data)
            wrong = np.full(1, length is None)
            starts, lengths = np.full(1, HEADER_BYTES), np.full(1, length or 0)
            stop = int(lengths[0]) + OVERHEAD_BYTES
        ends = starts + lengths + FOOTER_BYTES
        kind = "length-crc" if len(data) >= HEADER_BYTES else "truncated"
        if not wrong.any() and position + stop > size:
            wrong[-1], kind = True, "truncated"
        if wrong.any():
            first = int(wrong.argmax())
            record, at = count + first, position + int(starts[first]) - HEADER_BYTES
            raise TFRecordError(
                f"{path}: record {record:,} at byte {at:,}: {DAMAGE_KINDS[kind]}. "
                f"{record:,} records before it have sound headers. Fetch the file "
                f"again, or see what 'beam-tfrecord repair' can save.",
                path=path,
                record=record,
                offset=at,
                kind=kind,
            )
        yield ends + position
        count += len(starts)
        position += stop
        step = HEADER_BYTES if stop > _LONG_BYTES * len(starts) else _STEP_BYTES


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
    for start in range(0, size, _STORED_BYTES):
        stop = min(start + _STORED_BYTES, size)
        data = fetch(start, stop)
        while data:
            before = inflate.copy()
            try:
                write(inflate.decompress(data, _STEP_BYTES))
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
