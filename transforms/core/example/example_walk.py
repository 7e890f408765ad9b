"""Find the values of serialised Examples, with whole-array operations.

Writers put the features of all records in one order, and leave out those that a record
lacks. An array of cursors, one a record, walks over all records at once, feature by
feature: what comes next in one record is looked for in all of them, and the cursor of a
record that has something else stays where it is:

    0a T                                        Example: T bytes of Features
      0a E  0a k name  12 F                     entry: E bytes; a Feature of F bytes
        tag K  0a P  payload                    its list: K bytes; P bytes of value
        ...
    tag: 0a bytes, 12 float (packed), 1a int64 (packed varints)
    F = 0: a feature without type   K = 0: an empty list
    bytes: 0a P payload occurs once for each value

Every byte outside the payloads must be accounted for, and every length must end where
the one around it ends. A record that differs anywhere, or has a key twice, is left to
protobuf, so the result is protobuf's for the output of any writer.

Sources: Protocol Buffers, "Encoding".
"""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from transforms.core.example.wire import (
    MOST_KEY_BYTES,
    Longs,
    Mask,
    PaddedBytes,
    Words,
    varint,
)

TAGS = {0x0A: "bytes_list", 0x12: "float_list", 0x1A: "int64_list"}
_BYTES_TAG = 0x0A
# A key in UTF-8, and the tag of its list; None for a feature without a type.
Typed = tuple[bytes, int | None]
# Records whose next features are compared, where they differ: the least key comes
# first, as in the usual order of features.
_COMPARED = 8
# A step that moves fewer cursors is a poor one, as is one that moves fewer than one in
# `_LEAST_SHARE` of those that are left; after so many of these protobuf reads the rest.
FEW_RECORDS = 16
_LEAST_SHARE, _MOST_POOR_STEPS = 64, 64


@dataclasses.dataclass(frozen=True, slots=True)
class Spans:
    """Where the values of one feature are, in records that a step found it in.

    Attributes:
      rows: int64 array of m: those records, ascending; None: all.
      starts, stops: int64 arrays of m: the packed numbers, or the single value.
      are_lists: whether they are lists of bytes, of another number of values than one.
    """

    rows: Longs | None
    starts: Longs
    stops: Longs
    are_lists: bool = False

    def __len__(self) -> int:
        return len(self.starts)

    def among(self, records: Mask) -> "Spans":
        """Returns the spans of some records."""
        kept = np.flatnonzero(records if self.rows is None else records[self.rows])
        rows = kept if self.rows is None else self.rows[kept]
        return Spans(rows, self.starts[kept], self.stops[kept], self.are_lists)


def walk(
    padded: PaddedBytes, starts: Longs, lengths: Longs
) -> tuple[Mask, list[tuple[Typed, Spans]]]:
    """Returns which of n records are regular, and where their values are.

    Args:
      padded: bytes that hold the records.
      starts, lengths: int64 arrays of n: where each record is.

    Returns:
      A mask of n, and features with their spans, in the steps' order. Spans of records
      that are not regular are meaningless.
    """
    cursors = _Cursors(padded, starts, starts + lengths)
    steps = list(cursors)
    return cursors.fits, steps


class _Cursors:
    """Cursors of n records.

    The cursor of a record that turned out not to be regular is at its end.
    """

    def __init__(self, padded: PaddedBytes, starts: Longs, stops: Longs) -> None:
        self._padded = padded
        self._stops = stops
        self._seen: dict[bytes, Mask] = {}
        size, places = padded.lengths(np.minimum(starts + 1, stops))
        fits = (padded.bytes[starts] == 0x0A) & (places + size == stops)
        self.fits: Mask = fits | (starts == stops)
        self._places: Longs = np.where(fits, places, stops)

    def __iter__(self) -> Iterator[tuple[Typed, Spans]]:
        poor, are_alike = 0, True
        while len(left := np.flatnonzero(self._places < self._stops)):
            if poor > _MOST_POOR_STEPS:
                self._refuse(left)
                return
            few = left[:1] if are_alike else left[:: -(-len(left) // _COMPARED)]
            heads = {row: self._head(row) for row in few.tolist()}
            valid = [head for head in heads.values() if head is not None]
            first = min(valid, key=lambda head: (head[0], head[1] or 0), default=None)
            spans = [] if first is None else self._step(*first)
            moved = sum(map(len, spans))
            are_alike = are_alike and moved == len(left)
            poor += moved < FEW_RECORDS or moved * _LEAST_SHARE < len(left)
            if first is not None and moved:
                yield from ((first, found) for found in spans if len(found))
            else:
                # It is no entry, or one of wrong lengths.
                odd = [row for row, head in heads.items() if head in (first, None)]
                self._refuse(np.array(odd))

    def _head(self, row: int) -> Typed | None:
        """Returns the key and the tag at a cursor; None where no entry begins."""
        data, offset = self._padded.data, int(self._places[row])
        size, at = _length_at(data, offset + 1)
        stop = at + size
        if data[offset] != 0x0A or data[at] != 0x0A or stop > self._stops[row]:
            return None
        size, at = _length_at(data, at + 1)
        if size > MOST_KEY_BYTES:
            return None  # protobuf reads it
        key = data[at : at + size]
        # Behind the key come 12, the Feature's length, the tag of its list.
        size, at = _length_at(data, at + size + 1)
        tag = data[at] if size else None
        if at > stop or not (tag is None or tag in TAGS):
            return None
        try:
            key.decode()
        except UnicodeDecodeError:
            return None
        return key, tag

    def _step(self, key: bytes, tag: int | None) -> list[Spans]:
        """Moves over the entries of one feature; returns where its values are.

        Refuses records that have had the key before: the last one wins.
        """
        begins, ends, here = self._plain_entries(key, tag)
        spans = [Spans(None, begins, ends)]
        if here.all():
            # The spans keep theirs: cursors move on.
            self._places = ends.copy()
        else:
            left = self._maybe_here(np.flatnonzero(~here), key)
            self._places = np.where(here, ends, self._places)
            several: list[Spans] = []
            if len(left):
                single, *several = self._entries(left, key, tag)
                here[single.rows] = True
                begins[single.rows] = single.starts
                ends[single.rows] = single.stops
            spans = [spans[0].among(here), *several]
            for lists in several:
                here[lists.rows] = True
        seen = self._seen.get(key)
        if seen is not None:
            self._refuse(np.flatnonzero(here & seen))
            here |= seen
        self._seen[key] = here
        return spans

    def _plain_entries(self, key: bytes, tag: int | None) -> tuple[Longs, Longs, Mask]:
        """Returns payloads of entries of less than 128 bytes, and which records do."""
        head = _plain_head(key, tag)
        words, places = self._padded.words, self._places
        first = words[places]
        sizes = (first >> np.uint64(8) & np.uint64(0xFF)).astype(np.intp)
        wrong = (first ^ head.table[0][sizes]) & head.masks[0]
        for index in range(1, len(head.masks)):
            word = words[places + 8 * index]
            table = head.table[index]
            word ^= table if len(table) == 1 else table[sizes]
            word &= head.masks[index]
            wrong |= word
        ends = places + (sizes + 2)
        return places + head.size, ends, (wrong == 0) & (ends <= self._stops)

    def _maybe_here(self, rows: Longs, key: bytes) -> Longs:
        """Returns those of some records whose next entry may have the key."""
        places = self._places[rows]
        named = self._holds(places + 2, b"\x0a" + varint(len(key)) + key + b"\x12")
        # The length of a longer entry takes more bytes.
        named |= self._padded.bytes[places + 1] >= 0x80
        return rows[named]

    def _entries(self, rows: Longs, key: bytes, tag: int | None) -> list[Spans]:
        """Moves the cursors of some records over their entries of any size.

        Returns spans of single values, and behind them those of lists of bytes.
        """
        padded, stops = self._padded, self._stops[rows]
        places = self._places[rows]
        literal = b"\x0a" + varint(len(key)) + key + b"\x12"
        # Only lengths move these positions, so all reads stay within the padding.
        sizes, at = padded.lengths(places + 1)
        ends = at + sizes
        right = (padded.bytes[places] == 0x0A) & (places < stops) & (ends <= stops)
        right &= self._holds(at, literal)
        sizes, at = padded.lengths(at + len(literal))
        right &= at + sizes == ends
        if tag is None:
            right &= at == ends
            self._places[rows[right]] = ends[right]
            return [Spans(rows[right], ends[right], ends[right])]
        right &= (at < ends) & (padded.bytes[at] == tag)
        sizes, at = padded.lengths(at + 1)
        right &= at + sizes == ends
        empty = at == ends
        right &= empty | (padded.bytes[at] == 0x0A)
        sizes, begins = padded.lengths(at + 1)
        whole = ~empty & (begins + sizes == ends)
        if tag != _BYTES_TAG:
            right &= whole | empty
            begins = np.where(empty, ends, begins)
            whole = right
        self._places[rows[right]] = ends[right]
        single, others = right & whole, right & ~whole
        return [
            Spans(rows[single], begins[single], ends[single]),
            Spans(rows[others], at[others], ends[others], are_lists=True),
        ]

    def _holds(self, places: Longs, literal: bytes) -> Mask:
        """Tells where these bytes are at the places."""
        here = np.ones(len(places), np.bool_)
        for offset in range(0, len(literal), 8):
            chunk = literal[offset : offset + 8]
            mask = np.uint64((1 << 8 * len(chunk)) - 1)
            expected = np.uint64(int.from_bytes(chunk, "little"))
            here &= self._padded.words[places + offset] & mask == expected
        return here

    def _refuse(self, rows: Longs) -> None:
        self.fits[rows] = False
        self._places[rows] = self._stops[rows]


def _length_at(data: bytes, position: int) -> tuple[int, int]:
    """Returns the length at a position, and where it ends; 2**62 for over 28 bits."""
    value = 0
    for index, byte in enumerate(data[position : position + 4]):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value, position + index + 1
    return 1 << 62, position


@dataclasses.dataclass(frozen=True, slots=True)
class _PlainHead:
    """Words of 8 bytes to walk over what is before a payload, of entries of E < 128.

    Attributes:
      size: how many bytes it has.
      table: for each word an array of 256: the word by E; of 1 where it is constant.
      masks: for each word, its bytes that are before the payload.
    """

    size: int
    table: Sequence[Words]
    masks: Sequence[np.uint64]


@functools.lru_cache(maxsize=1 << 12)
def _plain_head(key: bytes, tag: int | None) -> _PlainHead:
    """Returns the words to walk over, by the feature's name and its list's tag."""
    first = b"\x0a\0\x0a" + varint(len(key)) + key
    template = first + bytes([0x12, 0, *([] if tag is None else [tag, 0, 0x0A, 0])])
    size = len(template)
    most = min(size - 2, 127) if tag is None else 127
    count = -(-size // 8)
    cells = np.tile(np.frombuffer(template.ljust(8 * count, b"\0"), np.uint8), (256, 1))
    lengths = np.arange(256)
    places = [1, *range(len(first) + 1, size, 2)]
    for offset in places:
        # Each length counts the bytes behind it: to the end of the entry.
        cells[:, offset] = lengths + 1 - offset
    # Lengths that an entry cannot have: the word then differs in the length itself.
    cells[(lengths < size - 2) | (lengths > most), 1] ^= 0xFF
    table: Any = cells.view("<u8")
    varying = {offset // 8 for offset in places}
    inside = np.minimum(size - 8 * np.arange(count), 8).tolist()
    return _PlainHead(
        size,
        [
            table[: 256 if index in varying else 1, index].copy()
            for index in range(count)
        ],
        [np.uint64((1 << 8 * width) - 1) for width in inside],
    )
