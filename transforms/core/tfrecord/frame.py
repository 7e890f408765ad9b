"""The TFRecord frame: lengths, masked checksums, names of damage.

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
"""

import functools
import struct

import google_crc32c
import numpy as np
import numpy.typing as npt

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

_Crcs = npt.NDArray[np.uint32]
_Sizes = npt.NDArray[np.int64]


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
    return prefix + struct.pack("<I", mask(google_crc32c.value(prefix)))


def length_crcs(lengths: npt.NDArray[np.integer]) -> _Words:
    """Returns the masked CRC32Cs that the headers of n lengths, 0 or more, carry."""
    # Apart from a constant, a CRC is linear over XOR: each 16 bits of a length change
    # it independently, so a lookup a part replaces a call a length.
    crcs = _length_crc_table(0).take(lengths & 0xFFFF)
    largest = int(lengths.max(initial=0))
    for part in range(1, 4):
        if largest >> 16 * part:
            crcs ^= _length_crc_table(part).take(lengths >> 16 * part & 0xFFFF)
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
    return struct.pack("<I", mask(google_crc32c.value(data)))


def frame(data: bytes) -> bytes:
    """Returns one framed record."""
    return header(len(data)) + data + footer(data)


def after_zeros(crcs: _Crcs, counts: _Sizes) -> _Crcs:
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


def joined_crc(crcs: _Crcs, sizes: _Sizes) -> int:
    """Returns the CRC32C of n pieces that are joined in their order.

    Args:
      crcs: of the pieces.
      sizes: of the pieces, in bytes.
    """
    behind = np.cumsum(sizes[::-1])[::-1] - sizes
    return int(np.bitwise_xor.reduce(after_zeros(crcs, behind)))


@functools.cache
def _operators(digit: int) -> _Crcs:
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


def _applied(operator: _Crcs, values: _Crcs) -> _Crcs:
    """Returns what an operator, a row for each byte, makes of values."""
    found = np.zeros_like(values)
    for byte in range(_BYTES):
        found ^= operator[byte][values >> np.uint32(8 * byte) & np.uint32(255)]
    return found
