"""CRC32Cs of joined pieces, from the CRC32Cs and sizes of the pieces.

A CRC register is linear over XOR. Z^k moves it over k bytes of zero:

    crc(a + b) = Z^|b|(crc(a)) ^ crc(b)
    Z^k(s) = Z^k(s & 0xff) ^ Z^k(s & 0xff00) ^ Z^k(s & 0xff0000) ^ Z^k(s & 0xff000000)

So each digit of k, to base 16, costs four look-ups. Source: zlib, `crc32_combine`.
"""

import functools

import google_crc32c
import numpy as np
import numpy.typing as npt

_DIGIT_BITS = 4
_DIGITS = 1 << _DIGIT_BITS
_BYTES = 4

_Crcs = npt.NDArray[np.uint32]
_Sizes = npt.NDArray[np.int64]


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
