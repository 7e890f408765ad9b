"""Decode Examples of one layout to columns, with whole-array operations.

Most files hold records of one layout: the same features in the same order, one value
each. An array of cursors, one a record, then walks over all of them at once:

    0a L                                        Example: L bytes of Features
      0a E  0a k name  12 F                     entry: E bytes; a Feature of F bytes
        tag K  0a P  payload                    its list: K bytes; P bytes of value
        ...
    tag: 0a bytes, 12 float (P = 4), 1a int64 (one varint of P bytes)

Every byte outside the payloads must equal that of the layout, and every length must
end where the one around it ends. A record that differs anywhere is left to protobuf,
so the result is protobuf's for the output of any writer.
"""

import dataclasses
from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt

from transforms.core.example.varint import MAX_VARINT_BYTES, varint

__all__ = ["Layout", "LayoutReader", "learn_layout"]

_Longs = npt.NDArray[np.int64]
_Mask = npt.NDArray[np.bool_]

_TAGS = {0x0A: "bytes_list", 0x12: "float_list", 0x1A: "int64_list"}
# Lengths are read from 4 bytes: 28 bits. Longer records are left to protobuf.
_MAX_BYTES = 1 << 28
# Appended to the data, so that reading a whole word at the last byte stays inside it.
_PADDING = 32


@dataclasses.dataclass(frozen=True, slots=True)
class Layout:
    """The features of a record in their order: (key in UTF-8, tag of its list)."""

    entries: tuple[tuple[bytes, int], ...]

    @property
    def kinds(self) -> dict[str, str]:
        """The list's field in the message, by the feature's name."""
        return {key.decode(): _TAGS[tag] for key, tag in self.entries}


def learn_layout(data: bytes) -> Layout | None:
    """Returns the layout of one Example that protobuf has parsed; None if it has none.

    A layout has at least one feature, no key twice, and one value a feature.
    """
    entries: list[tuple[bytes, int]] = []
    if data[:1] != b"\x0a":
        return None
    size, position = _varint_at(data, 1)
    if position + size != len(data):
        return None
    while position < len(data):
        if data[position] != 0x0A:
            return None
        size, position = _varint_at(data, position + 1)
        stop = position + size
        if stop > len(data) or data[position : position + 1] != b"\x0a":
            return None
        size, start = _varint_at(data, position + 1)
        key = data[start : start + size]
        # Behind the key come 12, the Feature's length, the tag of its list.
        _, tag = _varint_at(data, start + size + 1)
        if tag >= stop or data[tag] not in _TAGS:
            return None
        entries.append((key, data[tag]))
        position = stop
    keys = {key for key, _ in entries}
    return Layout(tuple(entries)) if 0 < len(keys) == len(entries) else None


def _varint_at(data: bytes, position: int) -> tuple[int, int]:
    """Returns the length at a position and where it ends.

    Without a length of at most 4 bytes it returns the length of the data twice, which
    no layout has.
    """
    value = 0
    for index, byte in enumerate(data[position : position + 4]):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value, position + index + 1
    return len(data), len(data)


class LayoutReader:
    """Decodes n records of one layout.

    Args:
      data: bytes that hold the records.
      starts, lengths: int64 arrays of n: where each record is.
      layout: of the records.
      wanted: names of the features to decode; None for all. The numbers of the others
        are not decoded, and may be lists.

    Attributes:
      matches: bool array of n: whether the record has the layout.
      columns: by key, for each record: an int64 or float32 array of n, or for bytes a
        pair of int64 arrays of n, start and stop in `data`. The values of records that
        do not match are meaningless.
    """

    def __init__(
        self,
        data: bytes,
        starts: _Longs,
        lengths: _Longs,
        layout: Layout,
        wanted: Collection[str] | None = None,
    ) -> None:
        longest = max(len(key) for key, _ in layout.entries)
        padded = data + bytes(_PADDING + longest)
        self._bytes: npt.NDArray[np.uint8] = np.frombuffer(padded, np.uint8)
        count = len(padded) - 7
        # Overlapping words, one that begins at every byte of the data: a read at n
        # cursors is one indexing.
        self._words: Any = np.ndarray((count,), "<u8", padded, 0, (1,))
        self._floats: Any = np.ndarray((count,), "<f4", padded, 0, (1,))
        self._starts = starts
        self._stops = starts + lengths
        self.matches: _Mask = (lengths > 0) & (lengths < _MAX_BYTES)
        self.columns: dict[str, Any] = {}

        cursor = self._expect(starts, b"\x0a")
        cursor = self._last_length(cursor, self._stops)
        for key, tag in layout.entries:
            name = key.decode()
            is_wanted = wanted is None or name in wanted
            cursor, column = self._entry(cursor, key, tag, is_wanted=is_wanted)
            if is_wanted:
                self.columns[name] = column
        self._require(cursor == self._stops)

    def _entry(
        self, cursor: _Longs, key: bytes, tag: int, *, is_wanted: bool
    ) -> tuple[_Longs, Any]:
        """Returns where the entries end, and their values if they are wanted."""
        cursor = self._expect(cursor, b"\x0a")
        size, cursor = self._length(cursor)
        stop = cursor + size
        self._require(stop <= self._stops)
        # Cursors of records that do not match must stay inside the data as well.
        stop = np.where(self.matches, stop, cursor)
        cursor = self._expect(cursor, b"\x0a" + varint(len(key)) + key + b"\x12")
        cursor = self._last_length(cursor, stop)
        cursor = self._expect(cursor, bytes([tag]))
        cursor = self._last_length(cursor, stop)
        cursor = self._expect(cursor, b"\x0a")
        cursor = self._last_length(cursor, stop)
        self._require(cursor <= stop)
        if tag == 0x0A:
            return stop, (cursor, stop)
        if not is_wanted:
            # Numbers are whole where the last one ends with the list.
            if tag == 0x12:
                self._require((stop - cursor) % 4 == 0)
            else:
                self._require((stop == cursor) | (self._bytes[stop - 1] < 0x80))
            return stop, None
        if tag == 0x12:
            self._require(stop - cursor == 4)
            return stop, self._floats[cursor]
        return stop, self._integers(cursor, stop - cursor)

    def _require(self, holds: _Mask) -> None:
        self.matches &= holds

    def _expect(self, cursor: _Longs, literal: bytes) -> _Longs:
        """Requires these bytes at the cursor; returns what is behind them."""
        # The cursor of a record that does not match goes back to its start, so that no
        # later read leaves the data.
        cursor = np.where(self.matches, cursor, self._starts)
        for offset in range(0, len(literal), 8):
            part = literal[offset : offset + 8]
            mask = np.uint64((1 << 8 * len(part)) - 1)
            wanted = np.uint64(int.from_bytes(part, "little"))
            self._require(self._words[cursor + offset] & mask == wanted)
        return cursor + len(literal)

    def _length(self, cursor: _Longs) -> tuple[_Longs, _Longs]:
        """Returns the lengths at the cursor, and what is behind them."""
        value = self._bytes[cursor].astype(np.int64)
        if not (value & 0x80).any():
            return value, cursor + 1
        word = self._words[cursor].astype(np.int64)
        value = word & 0x7F
        size = np.ones(len(cursor), np.int64)
        more = (word & 0x80) != 0
        for index in range(1, 4):
            group = (word >> (8 * index)) & 0xFF
            value |= np.where(more, (group & 0x7F) << (7 * index), 0)
            size += more
            more &= group >= 0x80
        self._require(~more)
        return value, cursor + size

    def _last_length(self, cursor: _Longs, stop: _Longs) -> _Longs:
        """Requires a length that counts to `stop`; returns what is behind it."""
        value, cursor = self._length(cursor)
        self._require(cursor + value == stop)
        return cursor

    def _integers(self, cursor: _Longs, sizes: _Longs) -> _Longs:
        """Returns the varints at the cursor, which must have exactly these sizes."""
        self._require((sizes >= 1) & (sizes <= MAX_VARINT_BYTES))
        cursor = np.where(self.matches, cursor, self._starts)
        sizes = np.where(self.matches, sizes, 1)
        value = np.zeros(len(cursor), np.uint64)
        for index in range(int(sizes.max(initial=0))):
            byte = self._bytes[cursor + index]
            inside = index < sizes
            last = index == sizes - 1
            self._require(~inside | ((byte < 0x80) == last))
            group = (byte & np.uint8(0x7F)).astype(np.uint64)
            value |= np.where(inside, group << np.uint64(7 * index), np.uint64(0))
        return value.view(np.int64)
