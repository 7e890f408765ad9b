"""The TFRecord frame: lengths, masked checksums and their algebra, names of damage.

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

Those of records of known layout follow from the bytes that vary, because each byte
changes the register independently of all others. Of a register s and bytes m:

    after(s, m) = Z^|m|(s) ^ after(0, m)                a register, then the bytes m
    after(0, m) = T[|m| - 1][m[0]] ^ T[|m| - 2][m[1]] ^ ... ^ T[0][m[-1]]
    T[d][b] = after(0, the byte b and d zeros)          a table: a row for each d
    crc(m) = ~after(0xffffffff, m)

A register is combined with the next four bytes by XOR, the lowest byte first. So Z^k(s)
is what the four bytes of s themselves contribute as the first of k bytes:

    Z^k(s) = T[k - 1][s & 255] ^ T[k - 2][s >> 8 & 255]
             ^ T[k - 3][s >> 16 & 255] ^ T[k - 4][s >> 24]

For k < 4 this holds with rows of negative d, a byte that is still inside the register:
T[-1][b] = b, T[-2][b] = b << 8, T[-3][b] = b << 16 and T[-4][b] = b << 24. Rows before
those are 0: bytes of zero behind the end of a short value look themselves up there.

Sources: Castagnoli et al., "Optimization of Cyclic Redundancy-Check Codes with 24 and
32 Parity Bits" (the polynomial); Kounavis and Berry, "Novel Table Lookup-Based
Algorithms for High-Performance CRC Generation" (a table for each distance: "slicing").
"""

import functools
import struct

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
# Rows of the table of distances before that of d = 0: as many bytes may be behind the
# end of a row's.
_LEAD = 12


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


def framed_length(head: bytes) -> int | None:
    """Returns the length in the header that `head` begins with.

    None where the first 12 bytes are no header with the right checksum.
    """
    if len(head) < HEADER_BYTES:
        return None
    (length,) = struct.unpack_from("<Q", head)
    return length if header(length) == head[:HEADER_BYTES] else None


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


def after_few_zeros(registers: _Words, count: _Longs | int) -> _Words:
    """Returns Z^count of CRC registers by their distances: of some thousand at most."""
    cells = registers.astype("<u4", copy=False).view(np.uint8).reshape(-1, 4)
    distances = crc_distances(count)
    first, *others = (
        crc_look_up(distances, index, cells[:, index]) for index in range(_BYTES)
    )
    for other in others:
        first ^= other
    return first


def crc_distances(end: _Longs | int) -> tuple[_Words, _Longs | int]:
    """Returns what `crc_look_up` needs of a place, once for all positions before it.

    Args:
      end: bytes from the start of a piece to the place where the register is wanted;
        one int, or each row's.

    Returns:
      The table, and the place in its rows; each row's in the flat table.
    """
    farthest = end if isinstance(end, int) else int(end.max())
    table = _distance_table(1 << max(farthest - 1, 0).bit_length())
    return table, end if isinstance(end, int) else end << 8


def crc_look_up(
    distances: tuple[_Words, _Longs | int], position: int, column: npt.NDArray[np.uint8]
) -> _Words:
    """Returns what the bytes at a position change in the register.

    Args:
      distances: of the place where the register is wanted.
      position: of the bytes in the piece, at most `_LEAD` after the end of a row's.
      column: the byte of each row.
    """
    table, end = distances
    # The row for the byte at position p, with end - p - 1 bytes behind it, if end is 0.
    row = _LEAD - position - 1
    # "clip" leaves out a test of each index: all are inside.
    crcs: _Words
    if isinstance(end, int):
        crcs = table[row + end].take(column, mode="clip")
    else:
        crcs = table[row:].reshape(-1).take(end + column, mode="clip")
    return crcs


@functools.cache
def _distance_table(count: int) -> _Words:
    """Returns the rows T[-12] to T[count - 1] as (count + 12, 256); count is 2**k."""
    if count > 1:
        half = _distance_table(count // 2)
        farther = after_few_zeros(half[_LEAD:].reshape(-1), count // 2)
        return np.concatenate((half, farther.reshape(-1, 256)))
    bytes_ = np.arange(256, dtype=np.uint32)
    table = np.zeros((_LEAD + 1, 256), np.uint32)
    for index in range(_BYTES):
        table[_LEAD - 1 - index] = bytes_ << np.uint32(8 * index)
    zero = google_crc32c.value(b"\0")
    table[_LEAD] = [google_crc32c.value(bytes([byte])) ^ zero for byte in range(256)]
    return table
