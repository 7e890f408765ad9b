"""The TFRecord frame: lengths, masked checksums, chunks of records, names of damage.

    offset  bytes
    0       8      length of the payload, uint64 little-endian      } header
    8       4      masked CRC32C of those 8 bytes, uint32 LE        }
    12      n      payload
    12 + n  4      masked CRC32C of the payload, uint32 LE            footer

The mask is `rotate_right(crc, 15) + 0xa282ead8 mod 2**32`. Source: TensorFlow,
`tensorflow/core/lib/io/record_writer.h` and `lib/hash/crc32c.h`.

CRC32Cs of joined pieces follow from those of the pieces: a CRC register is linear over
XOR, and Z^k moves it over k bytes of zero:

    crc(a + b) = Z^|b|(crc(a)) ^ crc(b)
    Z^k(s) = Z^k(s & 0xff) ^ Z^k(s & 0xff00) ^ Z^k(s & 0xff0000) ^ Z^k(s & 0xff000000)

So each digit of k, to base 16, costs four look-ups. Source: zlib, `crc32_combine`.

A chunk of framed records is parsed with whole-array operations:

    chunk    | header | payload | footer | header | payload | footer | head...
    starts            ^                           ^
    lengths           |<- n_0 ->|                 |<- n_1 ->|

1. Boundaries: guess that the next records are as long as this one, and check many
   headers at once; where that fails, walk header by header.
2. Headers: sort the records by length, and look up the checksum of each distinct one.
3. Payloads: copy all records of one length at once, and checksum the copies.
"""

import functools
import itertools
import struct
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt

_Longs = npt.NDArray[np.int64]
_Words = npt.NDArray[np.uint32]

HEADER_BYTES = 12
FOOTER_BYTES = 4
OVERHEAD_BYTES = HEADER_BYTES + FOOTER_BYTES
# CRCs of data that contains its own CRCs, as nested records do, are weak; hence a mask.
MASK_DELTA = 0xA282EAD8
# A longer length counts as damage, before any memory is allocated for it.
DEFAULT_MAX_RECORD_BYTES = 1 << 30

DAMAGE_KINDS = {
    "length-crc": "the checksum of the length does not match",
    "data-crc": "the checksum of the payload does not match",
    "too-long": "the length is above the limit for a record",
    "truncated": "the file ends inside a record",
    "compression": "the compressed stream is damaged",
    "trailing": "bytes after the end of the compressed stream",
    "empty": "the file holds no record",
}
_DIGIT_BITS = 4
_DIGITS = 1 << _DIGIT_BITS
_BYTES = 4


# Larger payloads are checksummed in place: copying them costs more than the calls.
LARGE_BYTES = 1 << 13
# The shortest run of equal lengths for which an array operation pays.
_RUN_RECORDS = 8
_LENGTH = struct.Struct("<Q")


def mask(crc: int) -> int:
    """Returns the masked form in which TFRecord stores a CRC32C."""
    return (((crc >> 15) | (crc << 17)) + MASK_DELTA) & 0xFFFFFFFF


def mask_all(crcs: _Words) -> _Words:
    """Returns the masked forms of n CRC32Cs, as `mask` does for one."""
    return ((crcs >> np.uint32(15)) | (crcs << np.uint32(17))) + np.uint32(MASK_DELTA)


def unmask_all(masked: _Words) -> _Words:
    """Inverse of `mask_all`."""
    rotated = masked - np.uint32(MASK_DELTA)
    return (rotated >> np.uint32(17)) | (rotated << np.uint32(15))


def header(length: int) -> bytes:
    """Returns the 12 header bytes of a payload of `length` bytes."""
    prefix = struct.pack("<Q", length)
    return prefix + footer(prefix)


def length_crcs(lengths: npt.NDArray[np.integer]) -> _Words:
    """Returns the masked CRC32Cs that the headers of n lengths, 0 or more, carry."""
    # Apart from a constant, a CRC is linear over XOR: each 16 bits of a length change
    # it independently, so a lookup a part replaces a call a length.
    crcs = _length_crc_table(0).take(lengths & 0xFFFF)
    largest = int(lengths.max(initial=0))
    for index in range(1, 4):
        if largest >> 16 * index:
            crcs ^= _length_crc_table(index).take(lengths >> 16 * index & 0xFFFF)
    return mask_all(crcs)


@functools.cache
def _length_crc_table(part: int) -> _Words:
    """Returns what each value of 16 bits of a length contributes to its CRC32C.

    `part` counts them from the lowest; the constant, the CRC of 0, is in part 0.
    """
    zero = google_crc32c.value(bytes(8))
    table = np.array([0 if part else zero], np.uint32)
    for bit in range(16 * part, 16 * part + 16):
        crc = google_crc32c.value(struct.pack("<Q", 1 << bit)) ^ zero
        table = np.concatenate((table, table ^ np.uint32(crc)))
    return table


def footer(data: bytes) -> bytes:
    """Returns the 4 footer bytes of a payload."""
    return stored_crc(google_crc32c.value(data))


def stored_crc(crc: int) -> bytes:
    """Returns the 4 bytes in which a CRC32C is stored: masked, little-endian."""
    return struct.pack("<I", mask(crc))


def frame(data: bytes) -> bytes:
    """Returns one framed record."""
    return header(len(data)) + data + footer(data)


def after_zeros(crcs: _Words, counts: _Longs) -> _Words:
    """Returns Z^count of n CRC32Cs, each with its own count of 0 or more.

    >>> first, second = (google_crc32c.value(text) for text in (b"ab", b"cde"))
    >>> moved = after_zeros(np.array([first], np.uint32), np.array([3]))
    >>> int(moved[0]) ^ second == google_crc32c.value(b"abcde")
    True
    """
    digit, largest = 0, int(counts.max(initial=0))
    while largest:
        table = _operators(digit)
        rows = (counts >> _DIGIT_BITS * digit & _DIGITS - 1) * (_BYTES * 256)
        cells = np.ascontiguousarray(crcs, "<u4").view(np.uint8).reshape(-1, _BYTES)
        # "clip" leaves out a test of each index: all are inside.
        crcs = table.take(rows + cells[:, 0], mode="clip")
        for byte in range(1, _BYTES):
            index = rows + (256 * byte)
            index += cells[:, byte]
            crcs ^= table.take(index, mode="clip")
        digit, largest = digit + 1, largest >> _DIGIT_BITS
    return crcs


def joined_crc(crcs: _Words, sizes: _Longs) -> int:
    """Returns the CRC32C of n pieces that are joined in their order.

    Args:
      crcs: of the pieces.
      sizes: of the pieces, in bytes.
    """
    behind = np.cumsum(sizes[::-1])[::-1] - sizes
    return int(np.bitwise_xor.reduce(after_zeros(crcs, behind)))


@functools.cache
def _operators(digit: int) -> _Words:
    """Returns Z^(d * 16**digit) of each byte in each of its four places, flat.

    The index is (d * 4 + place) * 256 + byte.
    """
    shifts = np.arange(0, 32, 8, dtype=np.uint32)
    places = np.arange(256, dtype=np.uint32) << shifts[:, None]
    powers = [places]
    if digit:
        below = _operators(digit - 1).reshape(_DIGITS, _BYTES, 256)
        one = _applied(below[1], below[_DIGITS - 1])
    else:
        zero = google_crc32c.value(b"\0")
        one = places >> np.uint32(8)
        one[0] = [google_crc32c.value(bytes([byte])) ^ zero for byte in range(256)]
    for _ in range(1, _DIGITS):
        powers.append(_applied(one, powers[-1]))
    return np.stack(powers).reshape(-1)


def _applied(operator: _Words, values: _Words) -> _Words:
    """Returns what an operator, a row for each byte, makes of values."""
    product = np.zeros_like(values)
    for byte in range(_BYTES):
        product ^= operator[byte][values >> np.uint32(8 * byte) & np.uint32(255)]
    return product


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
