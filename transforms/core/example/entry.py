"""The bytes before a feature's values: one map entry of a tf.train.Example.

    0a E  0a N name  12 F  kind G  0a L  payload
    |     |          |     |       |
    |     |          |     |       +- the list's field 1, L bytes
    |     |          |     +- bytes_list 0a, float_list 12 or int64_list 1a, G bytes
    |     |          +- the entry's value, a Feature of F bytes
    |     +- the entry's key, N bytes
    +- Features.feature, an entry of E bytes

E, N, F, G and L are varints, and all but N are sums of L and constants: the bytes
before a payload depend on its size alone. As long as no varint changes its width, they
have one layout, in which only the bytes of four varints differ.

Sources: TensorFlow, `tensorflow/core/example/feature.proto`; Protocol Buffers,
"Encoding" (maps are repeated entries of a key, field 1, and a value, field 2).

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
import enum
import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.arrays import binary_values, offsets_of
from transforms.core.example.record_parts import (
    DataBuffers,
    Store,
    Words,
    join,
    taken_views,
)

MAX_VARINT_BYTES = 10

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
# Prefixes of smaller payloads are kept in a table that is indexed by size.
_TABLE_BYTES = 1 << 13


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


class ListKind(enum.Enum):
    """The tag of the list inside a Feature."""

    BYTES = b"\x0a"
    FLOAT = b"\x12"
    INT64 = b"\x1a"


class Form(enum.Enum):
    """The form of a payload, which decides the bytes directly before it."""

    # One value of L bytes, which may be 0: always `0a L`.
    SINGLE = enum.auto()
    # Packed numbers: `0a L`, left out of an empty list.
    PACKED = enum.auto()
    # Whole fields, `0a size value` each: no bytes before them.
    REPEATED = enum.auto()


class PrefixLayout(NamedTuple):
    """The prefix of all payloads of a range of sizes.

    Attributes:
      template: the prefix of the smallest size.
      fields: (position, width, delta) of each varint that depends on the size L: it is
        that of L + delta. Empty for a single size.
    """

    template: bytes
    fields: Sequence[tuple[int, int, int]] = ()


def varint_stores(position: int, width: int, varints: Varints) -> list[Store]:
    """Returns the typed arrays that put varints of `width` bytes at a position.

    The bytes of the words are cut into runs of 8, 4, 2 and 1, largest first, so
    that each run is an aligned element of the words in a smaller integer type.
    """
    stores: list[Store] = []
    for words, size in ((varints.low, min(width, 8)), (varints.high, width - 8)):
        done = 0
        while words is not None and done < size:
            step = 1 << (size - done).bit_length() - 1
            cells = words.view(f"<u{step}")[done // step :: 8 // step]
            stores.append((position + done, cells, 0))
            done += step
        position += 8
    return stores


class Entry:
    """The map entry of one feature, without its payload."""

    def __init__(self, name: str, kind: ListKind, form: Form) -> None:
        key = name.encode()
        self._key = b"\x0a" + varint(len(key)) + key
        self._kind = kind.value
        self._form = form
        self.layout = functools.lru_cache(maxsize=1000)(self._layout)
        self._table = pa.array([], pa.large_binary())

    def prefix(self, size: int) -> bytes:
        """Returns the bytes before a payload of `size` bytes."""
        tail = b"\x0a" + varint(size) if self._has_inner(size) else b""
        tail = self._kind + varint(len(tail) + size) + tail
        tail = self._key + b"\x12" + varint(len(tail) + size) + tail
        return b"\x0a" + varint(len(tail) + size) + tail

    def views(
        self, sizes: npt.NDArray[np.int64], largest: int, buffers: DataBuffers
    ) -> tuple[Words, npt.NDArray[np.int64]]:
        """Returns the prefixes of n payloads as views (n, 2), and their sizes (n)."""
        if largest >= _TABLE_BYTES:
            prefixes = self._prefixes(sizes)
            views = DataBuffers().views_of(prefixes)
            widths = np.diff(offsets_of(prefixes))
        else:
            if len(self._table) <= largest:
                count = max(256, 1 << largest.bit_length())
                self._table = self._prefixes(np.arange(count))
            prefixes = self._table
            views = taken_views(DataBuffers().views_of(prefixes), sizes)
            widths = np.diff(offsets_of(prefixes)).take(sizes)
        return buffers.renumbered(views, prefixes.buffers()[2]), widths

    def _has_inner(self, size: int) -> bool:
        return self._form is Form.SINGLE or (self._form is Form.PACKED and size > 0)

    def _layout(self, smallest: int, largest: int) -> PrefixLayout | None:
        """Returns the one layout of all sizes of a range; None if it has several."""
        template = self.prefix(smallest)
        if smallest == largest:
            return PrefixLayout(template)
        end = len(template)
        # Widths never shrink as the size grows: if both ends agree, all between do.
        if len(self.prefix(largest)) != end:
            return None
        fields, at = [], 1
        # What is between E and F, F and G, G and L.
        for gap in (len(self._key) + 1, 1, 1):
            rest = enumerate(template[at:], 1)
            width = next(n for n, byte in rest if byte < 0x80)
            fields.append((at, width, end - at - width))
            at += width + gap
        if self._has_inner(smallest):
            fields.append((at, end - at, 0))
        return PrefixLayout(template, fields)

    def _prefixes(self, sizes: Longs) -> pa.LargeBinaryArray:
        """Returns the prefixes of payloads of n sizes."""
        heads: list[Words] = []
        buffers, around = DataBuffers(), sizes
        key = buffers.views_of(pa.array([self._key]))
        for tag in (b"\x0a", self._kind, b"\x12", b"\x0a"):
            head = Varints.of(around.view(np.uint64)).tagged(tag)
            views, widths = head.views(), head.sizes
            if not heads and self._form is not Form.SINGLE:
                present = (sizes > 0) & (self._form is Form.PACKED)
                views, widths = views * present[:, None], widths * present
            around = around + widths
            heads.insert(0, views)
            if len(heads) == 3:
                around = around + len(self._key)
                heads.insert(0, np.broadcast_to(key, views.shape))
        joined = join(np.stack(heads, axis=1), buffers)
        bounds = offsets_of(joined)[:: len(heads)]
        return binary_values(joined.buffers()[2], bounds.copy())
