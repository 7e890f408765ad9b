"""Values as Protocol Buffers store them, to and from arrays: varints, floats, bytes.

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
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.arrays import binary_values

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

# By the size of a varint: its bytes among the first eight.
_WITHIN = np.array(
    [(1 << 8 * min(size, 8)) - 1 for size in range(MAX_VARINT_BYTES + 1)], np.uint64
)
# Behind the longest key that a walk looks for come at most 32 bytes of lengths.
MOST_KEY_BYTES = 1024
_PADDING = MOST_KEY_BYTES + 32
# Lists of bytes are split value by value, in all records at once. Behind this many
# values, a handful of longer lists is left to protobuf.
_MANY_VALUES, _FEW_LISTS = 64, 16


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
    """Integers encoded as protobuf varints, in arrays of n.

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
        """Encodes a uint64 array of n values."""
        top = int(values.max(initial=0))
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
    right = words & _SIGNS == _CONTINUATION[sizes]
    words &= ~_SIGNS
    for _, stay, move, shift in reversed(_SPREAD):
        moved = words & move << shift
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


class PaddedBytes:
    """Serialised bytes as arrays with an item at every byte, and room behind them.

    Args:
      data: the bytes. Behind them come zeros: a read at any cursor stays inside.

    Attributes:
      data: the bytes and the padding.
      bytes: the same as uint8.
      words: uint64 (little-endian) at every byte.
      floats: float32 at every byte.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data + bytes(_PADDING)
        self.bytes: npt.NDArray[np.uint8] = np.frombuffer(self.data, np.uint8)
        count = len(self.data) - 7
        # The items overlap: a read at n cursors is one indexing.
        self.words: Any = np.ndarray((count,), "<u8", self.data, 0, (1,))
        self.floats: Any = np.ndarray((count,), "<f4", self.data, 0, (1,))

    def lengths(self, cursor: Longs) -> tuple[Longs, Longs]:
        """Reads n lengths, and where each ends; a length of over 28 bits is 2**62."""
        value = self.bytes[cursor].astype(np.int64)
        if not (value & 0x80).any():
            return value, cursor + 1
        word = self.words[cursor].astype(np.int64)
        value = word & 0x7F
        size = np.ones(len(cursor), np.int64)
        more = (word & 0x80) != 0
        for index in range(1, 4):
            group = (word >> (8 * index)) & 0xFF
            value |= np.where(more, (group & 0x7F) << (7 * index), 0)
            size += more
            more &= group >= 0x80
        value[more] = 1 << 62
        return value, cursor + size


# How many values each of m lists has, None for one each; and all values in order.
Counted = tuple[Longs | None, npt.NDArray[Any]]


class OddListsError(Exception):
    """Lists that are stored in an unusual way: protobuf must read them, if it can.

    Attributes:
      lists: int64 array: which of the lists.
    """

    def __init__(self, lists: Longs) -> None:
        super().__init__(f"{len(lists):,} lists")
        self.lists = lists


def _refuse(lists: Longs) -> None:
    """Raises OddListsError if there are any such lists."""
    if len(lists):
        raise OddListsError(lists)


def read_floats(padded: PaddedBytes, starts: Longs, stops: Longs) -> Counted:
    """Reads m packed lists of floats; those of no multiple of 4 bytes are odd."""
    sizes = stops - starts
    if (sizes == 4).all():
        return None, padded.floats[starts]
    _refuse(np.flatnonzero(sizes % 4))
    data = _joined(padded.data, starts, stops)
    return sizes // 4, np.frombuffer(data, "<f4").astype(np.float32, copy=False)


def read_integers(padded: PaddedBytes, starts: Longs, stops: Longs) -> Counted:
    """Reads m >= 1 packed lists of varints; those with a broken one are odd."""
    sizes = stops - starts
    if sizes.min() >= 1 and sizes.max() <= MAX_VARINT_BYTES:
        items, ends_there = read_varints(padded.bytes, padded.words, starts, sizes)
        if ends_there.all():
            return None, items
    joined = PaddedBytes(_joined(padded.data, starts, stops))
    bounds = np.concatenate(([0], np.cumsum(sizes)))
    ends = np.flatnonzero(joined.bytes[: int(bounds[-1])] < 0x80)
    filled = np.flatnonzero(sizes)
    whole = joined.bytes[bounds[filled + 1] - 1] < 0x80
    _refuse(filled[~whole])
    sizes = np.diff(ends, prepend=-1)
    begins = ends + 1 - sizes
    wrong = sizes > MAX_VARINT_BYTES
    items, right = read_varints(
        joined.bytes, joined.words, begins, np.minimum(sizes, MAX_VARINT_BYTES)
    )
    wrong |= ~right
    _refuse(np.unique(np.searchsorted(bounds, begins[wrong], "right") - 1))
    return np.diff(np.searchsorted(ends, bounds)), items


def split_bytes(
    padded: PaddedBytes, starts: Longs, stops: Longs
) -> tuple[Longs, Longs, Longs]:
    """Splits m >= 1 lists of bytes; those that are not bytes alone are odd.

    Returns how many values each list has, and start and stop of all values.
    """
    spans: list[tuple[Longs, Longs, Longs]] = []
    bad: list[Longs] = []
    rows, cursor = np.arange(len(starts)), starts
    while len(rows):
        going = cursor < stops[rows]
        rows, cursor = rows[going], cursor[going]
        if len(spans) >= _MANY_VALUES and len(rows) <= _FEW_LISTS:
            bad.append(rows)
            break
        sizes, begin = padded.lengths(cursor + 1)
        ends = begin + sizes
        right = (padded.bytes[cursor] == 0x0A) & (ends <= stops[rows])
        bad.append(rows[~right])
        rows, cursor = rows[right], ends[right]
        spans.append((rows, begin[right], cursor))
    _refuse(np.concatenate(bad))
    rows, begins, ends = (np.concatenate(chunks) for chunks in zip(*spans, strict=True))
    order = np.argsort(rows, kind="stable")
    counts = np.bincount(rows, minlength=len(starts))
    return counts, begins[order], ends[order]


def gathered(data: bytes, starts: Longs, stops: Longs) -> pa.LargeBinaryArray:
    """Reads the n values [start, stop) of `data` as one array.

    Two are the same or do not overlap, as the values of records do.
    """
    if (starts[1:] < stops[:-1]).any():
        # In any order, or more than once. An empty piece may begin where another does.
        keys = 2 * starts + (stops > starts)
        _, first, places = np.unique(keys, return_index=True, return_inverse=True)
        return gathered(data, starts[first], stops[first]).take(pa.array(places))
    # Pieces and the gaps between them are the items of one array over the same bytes.
    # Taking every second item copies each piece once.
    bounds = np.empty(2 * len(starts), np.int64)
    bounds[0::2] = starts
    bounds[1::2] = stops
    both = binary_values(data, bounds)
    return both.take(pa.array(np.arange(0, len(bounds), 2)))


def _joined(data: bytes, starts: Longs, stops: Longs) -> bytes:
    """Reads the lists [start, stop) of `data`, one after another."""
    joined: bytes = gathered(data, starts, stops).buffers()[2].to_pybytes()
    return joined
