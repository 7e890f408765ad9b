"""Varints, for single values and for whole columns.

A varint holds 7 bits a byte, the lowest first; every byte but the last has its top
bit set. A negative int64 is stored as its two's complement and takes ten bytes.

    1      01
    300    ac 02
    -1     ff ff ff ff ff ff ff ff ff 01

Source: Protocol Buffers, "Encoding". Columns are encoded as uint64 words: three shifts
and masks spread the 7-bit groups of a value to one a byte:

    56 bits -> 2 x 28 -> 4 x 14 -> 8 x 7, each group in the low bits of its own bytes
"""

import dataclasses

import numpy as np
import numpy.typing as npt

MAX_VARINT_BYTES = 10

Words = npt.NDArray[np.uint64]
Longs = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_SIGN = 0x8080808080808080
_SIGNS = np.uint64(_SIGN)
# Continuation bits of the first eight bytes, indexed by the length of the varint.
_CONTINUATION: Words = np.array(
    [_SIGN & ((1 << 8 * max(size - 1, 0)) - 1) for size in range(9)] + [_SIGN] * 2,
    dtype=np.uint64,
)
_LOW_56_BITS = np.uint64((1 << 56) - 1)
# (smaller values need no such step, mask of the bits that stay, that move, shift)
_SPREAD = tuple(
    (limit, np.uint64(stay), np.uint64(move), np.uint64(shift))
    for limit, stay, move, shift in (
        (1 << 28, 0x000000000FFFFFFF, 0x00FFFFFFF0000000, 4),
        (1 << 14, 0x00003FFF00003FFF, 0x0FFFC0000FFFC000, 2),
        (1 << 7, 0x007F007F007F007F, 0x3F803F803F803F80, 1),
    )
)

# By the size of a varint: its bytes among the first eight, and the top bits of those
# that are not its last.
_WITHIN = np.array(
    [(1 << 8 * min(size, 8)) - 1 for size in range(MAX_VARINT_BYTES + 1)], np.uint64
)
_CONTINUED = np.array(
    [
        _SIGN & ((1 << 8 * min(max(size - 1, 0), 8)) - 1)
        for size in range(MAX_VARINT_BYTES + 1)
    ],
    np.uint64,
)
# Groups of 7, 14 and 28 bits: (those that stay, those that move, by how many bits).
_JOIN = tuple(
    (np.uint64(stay), np.uint64(move), np.uint64(shift))
    for stay, move, shift in (
        (0x007F007F007F007F, 0x7F007F007F007F00, 1),
        (0x00003FFF00003FFF, 0x3FFF00003FFF0000, 2),
        (0x000000000FFFFFFF, 0x0FFFFFFF00000000, 4),
    )
)


def varint(value: int) -> bytes:
    """Returns the varint of an integer in [0, 2**64)."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint_size(value: int) -> int:
    """Returns the length in bytes of the varint of an integer in [0, 2**64)."""
    return max((value.bit_length() + 6) // 7, 1)


@dataclasses.dataclass(frozen=True, slots=True)
class Varints:
    """The varints of n values.

    Attributes:
      sizes: int64 array of n, each 1 to 10; a plain int where all are equal.
      low: uint64 array of n: bytes 0 to 7 as a little-endian word.
      high: bytes 8 and 9 likewise; None where no varint is that long.
    """

    sizes: npt.NDArray[np.int64] | int
    low: Words
    high: Words | None

    @classmethod
    def of(cls, values: Words) -> "Varints":
        """Encodes a uint64 array of n >= 1 values."""
        top = int(values.max())
        longest = varint_size(top)
        shortest = longest if longest == 1 else varint_size(int(values.min()))
        if longest == 1:
            return cls(1, values, None)
        sizes: npt.NDArray[np.int64] | int = shortest
        if shortest < longest:
            sizes = np.full(len(values), shortest, np.int64)
            for size in range(shortest, longest):
                sizes += values >= np.uint64(1 << 7 * size)
        low = values & _LOW_56_BITS
        for limit, stay, move, shift in _SPREAD:
            if top >= limit:
                moved = low & move
                moved <<= shift
                low &= stay
                low |= moved
        low |= _CONTINUATION[sizes]
        if longest <= 8:
            return cls(sizes, low, None)
        # Bits 56 to 62 are byte 8. Bit 63, the sign, is byte 9. It also stays where it
        # is, as the continuation bit of byte 8: only varints of ten bytes have it.
        high = values >> np.uint64(56)
        high += (high & np.uint64(0x80)) << np.uint64(1)
        return cls(sizes, low, high)

    def tagged(self, tag: bytes) -> "Varints":
        """Returns the varints with a byte before each; they have seven at most."""
        low = self.low << np.uint64(8) | np.uint64(tag[0])
        return Varints(self.sizes + 1, low, None)

    def views(self) -> Words:
        """Returns n Arrow binary views, all inline, as a uint64 array (n, 2).

        byte 0    4                          14   16
             size | the varint, zero padded  | 0  |
        """
        out = np.empty((len(self.low), 2), np.uint64)
        np.left_shift(self.low, np.uint64(32), out=out[:, 0])
        out[:, 0] |= (
            np.uint64(self.sizes)
            if isinstance(self.sizes, int)
            else self.sizes.view(np.uint64)
        )
        np.right_shift(self.low, np.uint64(32), out=out[:, 1])
        if self.high is not None:
            out[:, 1] |= self.high << np.uint64(32)
        return out


def read_varints(
    octets: npt.NDArray[np.uint8], words: Words, starts: Longs, sizes: Longs
) -> tuple[Longs, Mask]:
    """Reads n varints of 1 to 10 bytes; tells which have exactly the sizes given.

    Args:
      octets: uint8 at every byte.
      words: uint64 (little-endian) at every byte.
      starts, sizes: of the varints.
    """
    words = words[starts]
    words &= _WITHIN[sizes]
    right = words & _SIGNS == _CONTINUED[sizes]
    words &= ~_SIGNS
    for stay, move, shift in _JOIN:
        moved = words & move
        if moved.any():
            words &= stay
            words |= moved >> shift
    long = np.flatnonzero(sizes > 8)
    if len(long):
        last = sizes[long] == MAX_VARINT_BYTES
        low = octets[starts[long] + 8].astype(np.uint64)
        high = octets[starts[long] + 9].astype(np.uint64)
        # More bits than an int64 has are for protobuf to judge.
        right[long] &= np.where(last, (low >= 0x80) & (high <= 1), low < 0x80)
        low = (low & np.uint64(0x7F)) << np.uint64(56)
        words[long] |= low | np.where(last, high << np.uint64(63), np.uint64(0))
    return words.view(np.int64), right
