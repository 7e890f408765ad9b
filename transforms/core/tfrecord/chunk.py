"""Parse a chunk of framed records with whole-array operations.

    chunk    | header | payload | footer | header | payload | footer | head...
    starts            ^                           ^
    lengths           |<- n_0 ->|                 |<- n_1 ->|

1. Boundaries: guess that the next records are as long as this one, and check many
   headers at once; where that fails, walk header by header.
2. Headers: sort the records by length, and look up the checksum of each distinct one.
3. Payloads: copy all records of one length at once, and checksum the copies.
"""

import itertools
import struct
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt

from transforms.core.tfrecord.frame import (
    FOOTER_BYTES,
    HEADER_BYTES,
    OVERHEAD_BYTES,
    length_crcs,
    mask_all,
)

_Longs = npt.NDArray[np.int64]
_Words = npt.NDArray[np.uint32]

# Larger payloads are checksummed in place: copying them costs more than the calls.
LARGE_BYTES = 1 << 13
# The shortest run of equal lengths for which an array operation pays.
_RUN_RECORDS = 8
_LENGTH = struct.Struct("<Q")


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
    data: bytes, starts: _Longs, lengths: _Longs, max_record_bytes: int
) -> tuple[int, str] | None:
    """Returns index and kind of the first damaged record; None if all are good."""
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
        before = _damage_before(data, starts, lengths, max_record_bytes, first)
        return before or (first, "length-crc")
    if ordered[-1] > max_record_bytes:
        first = int((lengths > max_record_bytes).argmax())
        before = _damage_before(data, starts, lengths, max_record_bytes, first)
        return before or (first, "too-long")
    crcs = _payload_crcs(data, begins, ordered, edges)
    wrong = words[begins + ordered] != mask_all(crcs)
    if wrong.any():
        return int(order[wrong].min()), "data-crc"
    return None


def _damage_before(
    data: bytes, starts: _Longs, lengths: _Longs, max_record_bytes: int, first: int
) -> tuple[int, str] | None:
    if first == 0:
        return None
    return first_damage(data, starts[:first], lengths[:first], max_record_bytes)


def _payload_crcs(
    data: bytes, begins: _Longs, lengths: _Longs, edges: npt.NDArray[np.intp]
) -> _Words:
    """Returns the CRC32C of each payload.

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
    """Returns the payloads of one length, 1 or more, at `starts`."""
    # Overlapping items, one beginning at every byte: NumPy's own fancy indexing then
    # copies whole payloads, and `tolist` makes bytes of them.
    count = len(data) - length + 1
    items: Any = np.ndarray((count,), f"V{length}", data, 0, (1,))
    payloads: list[bytes] = items[starts].tolist()
    return payloads
