"""Find the next record header in arbitrary bytes.

A header proves itself: its 8 bytes of length carry a checksum of 4. All bytes of a
stretch are tested at once as the start of a header, the cheapest test first:

    offset  0 .. w-1   the low bytes of the length: anything
            w .. 7     zero, as no record can be longer than 256**w - 1 bytes
            8 .. 11    the checksum of the length, for the few places that are left

Noise thus costs a few passes over booleans. So do zeros: where the whole length is
zero, the first byte of its checksum is tested in the same way.
"""

import functools

import google_crc32c
import numpy as np
import numpy.typing as npt

from transforms.core.tfrecord.frame import (
    HEADER_BYTES,
    MASK_DELTA,
    OVERHEAD_BYTES,
    header,
    length_crcs,
)

__all__ = ["header_places", "length_of"]

_Longs = npt.NDArray[np.int64]
_Words = npt.NDArray[np.uint32]

_LENGTH_BYTES = 8
_EMPTY_CRC_BYTE = header(0)[_LENGTH_BYTES]


def header_places(data: bytes, room: int, max_record_bytes: int) -> _Longs:
    """Returns where in `data` valid headers of records that fit begin, ascending.

    Args:
      data: n bytes.
      room: bytes from the start of `data` to the end of the file, n or more.
      max_record_bytes: a longer record counts as damage.
    """
    count = len(data) - HEADER_BYTES + 1
    largest = min(max_record_bytes, room - OVERHEAD_BYTES)
    if count <= 0 or largest < 0:
        return np.empty(0, np.int64)
    octets = np.frombuffer(data, np.uint8)
    width = (largest.bit_length() + 7) // 8
    places = np.flatnonzero(_plausible(octets, count, width))
    at_every_byte: npt.NDArray[np.uint64] = np.ndarray((count,), "<u8", data, 0, (1,))
    lengths = at_every_byte[places]
    fits = lengths <= np.uint64(largest)
    places, lengths = places[fits], lengths[fits]
    fits = lengths.astype(np.int64) <= room - OVERHEAD_BYTES - places
    places, lengths = places[fits], lengths[fits]
    words: _Words = np.ndarray((len(data) - 3,), "<u4", data, 0, (1,))
    sound: npt.NDArray[np.bool_] = words[places + _LENGTH_BYTES] == length_crcs(lengths)
    return places[sound]


def _plausible(
    octets: npt.NDArray[np.uint8], count: int, width: int
) -> npt.NDArray[np.bool_]:
    """Returns for each of `count` places whether a length may start there."""
    zero = octets == 0
    plausible = np.ones(count, np.bool_)
    for byte in range(width, _LENGTH_BYTES):
        plausible &= zero[byte : byte + count]
    if not plausible.any():
        return plausible
    empty = plausible.copy()
    for byte in range(width):
        empty &= zero[byte : byte + count]
    crc_bytes = octets[_LENGTH_BYTES : _LENGTH_BYTES + count]
    plausible &= ~empty | (crc_bytes == _EMPTY_CRC_BYTE)
    return plausible


def length_of(crc: int) -> int:
    """Returns the one length below 2**32 whose header has this masked checksum.

    It inverts the CRC by Gaussian elimination over its bits.
    """
    rotated = (crc - MASK_DELTA) & 0xFFFFFFFF
    rest = ((rotated >> 17) | (rotated << 15)) & 0xFFFFFFFF
    pivots, zero = _crc_pivots()
    rest ^= zero
    length = 0
    while rest:
        change, bits = pivots[rest.bit_length()]
        rest ^= change
        length ^= bits
    return length


@functools.cache
def _crc_pivots() -> tuple[dict[int, tuple[int, int]], int]:
    """Returns highest bit -> (change of the CRC, bits of the length that cause it).

    For four bytes, a CRC of 32 bits is a permutation: each bit has one entry. Also
    returns the CRC of length 0.
    """
    zero = google_crc32c.value(bytes(_LENGTH_BYTES))
    pivots: dict[int, tuple[int, int]] = {}
    for bit in range(32):
        bits = 1 << bit
        change = google_crc32c.value(bits.to_bytes(_LENGTH_BYTES, "little")) ^ zero
        while known := pivots.get(change.bit_length()):
            change ^= known[0]
            bits ^= known[1]
        pivots[change.bit_length()] = change, bits
    return pivots, zero
