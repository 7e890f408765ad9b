"""Values of many records at once: where they are in the bytes, decoded to arrays.

    int64   packed varints           float   packed, 4 bytes each, little-endian
    bytes   0a L value  0a L value ...

Source: Protocol Buffers, "Encoding".
"""

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.example.varint import MAX_VARINT_BYTES

Longs = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_NO_ROWS: Longs = np.empty(0, np.int64)
_SIGNS = np.uint64(0x8080808080808080)
# By the size of a varint: its bytes among the first eight, and the top bits of those
# that are not its last.
_WITHIN = np.array(
    [(1 << 8 * min(size, 8)) - 1 for size in range(MAX_VARINT_BYTES + 1)], np.uint64
)
_CONTINUED = np.array(
    [
        int(_SIGNS) & ((1 << 8 * min(max(size - 1, 0), 8)) - 1)
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
# Lists of bytes are split value by value, in all records at once. Behind this many
# values, a handful of longer lists is left to protobuf.
_MANY_VALUES, _FEW_LISTS = 64, 16


class PaddedBytes:
    """Bytes with room behind them, as arrays with an item at every byte.

    Args:
      data: the bytes.
      padding: zeros behind them: a read at any cursor then stays inside.

    Attributes:
      data: the bytes and the padding.
      bytes: the same as uint8.
      words: uint64 (little-endian) at every byte.
      floats: float32 at every byte.
    """

    def __init__(self, data: bytes, padding: int = 16) -> None:
        self.data = data + bytes(padding)
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


@dataclasses.dataclass(frozen=True, slots=True)
class Values:
    """The values of one feature in m records.

    Attributes:
      counts: int64 array of m: how many values each record has; None: one each.
      items: all values in the records' order: int64, or float32; of bytes, the start
        and the stop of each.
      bad: which of the m records protobuf must decide; the rest is then unusable.
    """

    counts: Longs | None
    items: Any
    bad: Longs = dataclasses.field(default_factory=lambda: _NO_ROWS)


def read_values(padded: PaddedBytes, kind: str, starts: Longs, stops: Longs) -> Values:
    """Returns the numbers that m records hold, packed, between starts and stops.

    Args:
      padded: holds them.
      kind: "int64_list" or "float_list".
      starts, stops: int64 arrays of m.
    """
    sizes = stops - starts
    if kind == "float_list":
        return _floats(padded, starts, sizes)
    if len(sizes) and sizes.min() >= 1 and sizes.max() <= MAX_VARINT_BYTES:
        items, ends_there = _varints(padded, starts, sizes)
        if ends_there.all():
            return Values(None, items)
    return _packed_integers(padded.data, starts, stops)


def _floats(padded: PaddedBytes, starts: Longs, sizes: Longs) -> Values:
    if (sizes == 4).all():
        return Values(None, padded.floats[starts])
    odd = np.flatnonzero(sizes % 4)
    if len(odd):
        return Values(None, None, odd)
    data = _joined(padded.data, starts, starts + sizes)
    return Values(sizes // 4, np.frombuffer(data, "<f4").astype(np.float32, copy=False))


def _varints(padded: PaddedBytes, starts: Longs, sizes: Longs) -> tuple[Longs, Mask]:
    """Reads varints of 1 to 10 bytes; tells which have exactly the sizes given."""
    words = padded.words[starts]
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
        low = padded.bytes[starts[long] + 8].astype(np.uint64)
        high = padded.bytes[starts[long] + 9].astype(np.uint64)
        # More bits than an int64 has are for protobuf to judge.
        right[long] &= np.where(last, (low >= 0x80) & (high <= 1), low < 0x80)
        low = (low & np.uint64(0x7F)) << np.uint64(56)
        words[long] |= low | np.where(last, high << np.uint64(63), np.uint64(0))
    return words.view(np.int64), right


def _packed_integers(data: bytes, starts: Longs, stops: Longs) -> Values:
    joined = PaddedBytes(_joined(data, starts, stops))
    bounds = np.concatenate(([0], np.cumsum(stops - starts)))
    size = int(bounds[-1])
    ends = np.flatnonzero(joined.bytes[:size] < 0x80)
    filled = np.flatnonzero(stops > starts)
    whole = joined.bytes[bounds[filled + 1] - 1] < 0x80
    if not whole.all():
        return Values(None, None, filled[~whole])
    begins = np.concatenate(([0], ends[:-1] + 1)) if len(ends) else ends
    sizes = ends + 1 - begins
    wrong = sizes > MAX_VARINT_BYTES
    items, right = _varints(joined, begins, np.minimum(sizes, MAX_VARINT_BYTES))
    wrong |= ~right
    if wrong.any():
        bad = np.searchsorted(bounds, begins[wrong], "right") - 1
        return Values(None, None, np.unique(bad))
    return Values(np.diff(np.searchsorted(ends, bounds)), items)


def split_bytes(padded: PaddedBytes, starts: Longs, stops: Longs) -> Values:
    """Returns where the values are in m lists of bytes between starts and stops."""
    found: list[tuple[Longs, Longs, Longs]] = []
    bad: list[Longs] = []
    rows, cursor = np.arange(len(starts)), starts
    while True:
        going = cursor < stops[rows]
        rows, cursor = rows[going], cursor[going]
        if not len(rows):
            break
        if len(found) >= _MANY_VALUES and len(rows) <= _FEW_LISTS:
            bad.append(rows)
            break
        sizes, begin = padded.lengths(cursor + 1)
        ends = begin + sizes
        right = (padded.bytes[cursor] == 0x0A) & (ends <= stops[rows])
        bad.append(rows[~right])
        rows, cursor = rows[right], ends[right]
        found.append((rows, begin[right], cursor))
    wrong = np.concatenate(bad) if bad else _NO_ROWS
    if len(wrong):
        return Values(None, None, wrong)
    if not found:
        return Values(np.zeros(len(starts), np.int64), (_NO_ROWS, _NO_ROWS))
    rows, begins, ends = (np.concatenate(each) for each in zip(*found, strict=True))
    order = np.argsort(rows, kind="stable")
    counts = np.bincount(rows, minlength=len(starts))
    return Values(counts, (begins[order], ends[order]))


def _joined(data: bytes, starts: Longs, stops: Longs) -> bytes:
    """Returns the pieces [start, stop) of `data` one after another."""
    if not len(starts):
        return b""
    pieces = gathered(data, starts, stops)
    joined = pieces.buffers()[2]
    return b"" if joined is None else joined.to_pybytes()


def gathered(data: bytes, starts: Longs, stops: Longs) -> pa.LargeBinaryArray:
    """Returns the n pieces [start, stop) of `data` as one array.

    Two pieces are the same or do not overlap, as the values of records do.
    """
    if (starts[1:] < stops[:-1]).any():
        return _gathered_anyhow(data, starts, stops)
    # Pieces and the gaps between them are the items of one array over the same bytes.
    # Taking every second item copies each piece once.
    bounds = np.empty(2 * len(starts), np.int64)
    bounds[0::2] = starts
    bounds[1::2] = stops
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    both = pa.Array.from_buffers(pa.large_binary(), max(len(bounds) - 1, 0), buffers)
    return both.take(pa.array(np.arange(0, len(bounds), 2)))


def _gathered_anyhow(data: bytes, starts: Longs, stops: Longs) -> pa.LargeBinaryArray:
    """Returns pieces in any order, or that occur more than once."""
    order = np.lexsort((stops, starts))
    starts, stops = starts[order], stops[order]
    differs = (starts[1:] != starts[:-1]) | (stops[1:] != stops[:-1])
    first = np.concatenate(([True], differs))
    places = np.empty_like(order)
    places[order] = np.cumsum(first) - 1
    return gathered(data, starts[first], stops[first]).take(pa.array(places))
