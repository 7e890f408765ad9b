"""The parts of records: prefixes of features, runs, and Arrow binary views.

The bytes before a feature's values, in its map entry of a tf.train.Example:

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

A run is neighbouring bytes of fixed layout in every record of a chunk. A view is a word
of 16 bytes:

    size <= 12   | size: 4 | the bytes themselves, zero padded: 12     |
    size > 12    | size: 4 | 0: 4 | buffer number: 4 | offset in it: 4 |

n records of P parts each are n * P views in row order. One cast to `large_binary`
copies every part to its place at about 4 ns a part; the data buffer of the result is
the records one after another. A part of size 0 is an absent part.

Arrow's specification ("Variable-size Binary View Layout") puts the first four bytes of
a long value behind its size; the cast does not read them, so they stay 0. In this
module n views are a uint64 array of shape (n, 2).
"""

import dataclasses
import enum
import functools
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.arrays import binary_values, offsets_of
from transforms.core.example.wire import Longs, Mask, Varints, Words, varint
from transforms.core.tfrecord.frame import crc_distances, crc_look_up

Store = tuple[int, npt.NDArray[np.generic], int]
"""Values in every row of a run: the position of the first; n values, or n rows of them;
the bytes from one of a row to the next, 0 where they are neighbours."""

Views = tuple[Words, pa.Buffer | None]
"""n Arrow binary views, and the buffer that long ones point into, by a number."""

INLINE_BYTES = 12

# Prefixes of smaller payloads are kept in a table that is indexed by size.
_TABLE_BYTES = 1 << 13

_SIZE = np.uint64(0xFFFFFFFF)
# Rows of a run are filled in blocks of this size, while they are in the cache.
_BLOCK_BYTES = 1 << 22


def matrix_views(matrix: npt.NDArray[np.uint8], number: int) -> Words:
    """Returns the views of the rows of a contiguous (n, width) matrix.

    `number` is the matrix's buffer number, for rows too long for inline views.
    """
    count, width = matrix.shape
    if width <= INLINE_BYTES:
        cells = np.zeros((count, 16), np.uint8)
        cells[:, 0] = width
        cells[:, 4 : 4 + width] = matrix
        return cells.view(np.uint64)
    views = np.empty((count, 2), np.uint64)
    views[:, 0] = width
    # The offset is the upper half of the second word: its step is width << 32.
    stop = number + ((count * width) << 32)
    views[:, 1] = np.arange(number, stop, width << 32, dtype=np.uint64)[:count]
    return views


@dataclasses.dataclass(slots=True)
class Run:
    """A template, and columns to store in it.

    Attributes:
      present: bool array of n; None where every row has the run.
      template: the bytes of one row; those that `stores` cover are arbitrary.
      stores: the values in it.
    """

    present: Mask | None = None
    template: bytearray = dataclasses.field(default_factory=bytearray)
    stores: list[Store] = dataclasses.field(default_factory=list)

    @property
    def width(self) -> int:
        """The most bytes of a row."""
        return len(self.template)

    @property
    def sizes(self) -> Longs | int:
        """Bytes of each row; one int where all are equal."""
        return self.width if self.present is None else self.present * self.width

    @property
    def look_ups(self) -> float:
        """Bytes to look up in every row for CRCs."""
        # Spread values are hundreds, whose look-ups cost more than a call.
        spread = any(step for _, _, step in self.stores)
        stored = sum(cells.nbytes // len(cells) for _, cells, _ in self.stores)
        return math.inf if spread else stored

    def append(self, template: bytes | bytearray, stores: Iterable[Store] = ()) -> None:
        """Adds bytes to the end, with the stores in them."""
        start = len(self.template)
        self.stores += [
            (start + position, cells, step) for position, cells, step in stores
        ]
        self.template += template

    def matrix(self, rows: int) -> npt.NDArray[np.uint8]:
        """Returns the run of all rows as a uint8 array (rows, width)."""
        width = len(self.template)
        out = np.frombuffer(bytearray(self.template) * rows, np.uint8)
        block = max(_BLOCK_BYTES // width, 64)
        for start in range(0, rows, block):
            count = min(block, rows - start)
            for position, cells, step in self.stores:
                np.ndarray(
                    (count, *cells.shape[1:]),
                    cells.dtype,
                    out,
                    start * width + position,
                    (width, step or cells.itemsize)[: cells.ndim],
                )[:] = cells[start : start + count]
        return out.reshape(rows, width)

    def views(self, rows: int, number: int) -> Views:
        """Returns the run of each row, of size 0 where absent."""
        matrix = self.matrix(rows)
        words = matrix_views(matrix, number)
        if self.present is not None:
            words[:, 0] *= self.present
        return words, pa.py_buffer(matrix) if self.width > INLINE_BYTES else None

    def crcs(self, behind: int) -> npt.NDArray[np.uint32]:
        """Returns the run's share of each record's CRC; `behind` bytes follow it.

        One register for all rows where the run has no stores.
        """
        end = len(self.template) + behind
        constant = bytearray(self.template)
        columns: list[tuple[int, npt.NDArray[np.uint8]]] = []
        for at, cells, _ in self.stores:
            width = cells.nbytes // len(cells)
            constant[at : at + width] = bytes(width)
            stored = np.ascontiguousarray(cells).view(np.uint8).reshape(-1, width)
            columns += [(at + index, stored[:, index]) for index in range(width)]
        crcs = np.full(1, _change(constant, behind), np.uint32)
        distances = crc_distances(end)
        for position, column in columns:
            crcs = crcs ^ crc_look_up(distances, position, column)
        return crcs if self.present is None else crcs * self.present


@dataclasses.dataclass
class Varying:
    """A part of any size in each row.

    Attributes:
      words: n views, as a uint64 array of shape (n, 2).
      data: what long views point into.
    """

    words: Words
    data: pa.Buffer | None = None

    @classmethod
    def of(cls, values: pa.Array) -> "Varying":
        """Returns n texts or bytes, without copying their data.

        The values span less than 2**31 bytes; the views of nulls are arbitrary.
        """
        count = len(values)
        data = values.buffers()[2]
        if not count or data is None:
            return cls(np.zeros((count, 2), np.uint64))
        # View offsets have 32 bits: count them from the first value instead.
        offsets = offsets_of(values)
        first, last = int(offsets[0]), int(offsets[-1])
        data = data.slice(first, last - first)
        cast = binary_values(data, offsets - first).cast(pa.binary_view())
        words = np.frombuffer(cast.buffers()[1], np.uint64, count * 2, cast.offset * 16)
        return cls(words.reshape(count, 2), data)

    def taken(self, rows: npt.NDArray[np.integer]) -> "Varying":
        """Returns the values at n rows."""
        # As complex128, the 16 bytes of a view are one element, which halves the time.
        taken = self.words.view(np.complex128)[:, 0].take(rows)
        return Varying(taken.view(np.uint64).reshape(-1, 2), self.data)

    @functools.cached_property
    def sizes(self) -> Longs:
        """Bytes of each row."""
        return (self.words[:, 0] & _SIZE).view(np.int64)

    @functools.cached_property
    def width(self) -> int:
        """The most bytes of a row."""
        return int(self.sizes.max(initial=0))

    @property
    def look_ups(self) -> float:
        """Bytes to look up in every row for CRCs: they must be inside the views."""
        return self.width if self.width <= INLINE_BYTES else math.inf

    def views(self, rows: int, number: int) -> Views:
        """Returns the part of each row, once: the views are updated."""
        if self.data is None or self.width <= INLINE_BYTES:
            return self.words, None
        if number:
            self.count_from(number)
        return self.words, self.data

    def count_from(self, number: int) -> None:
        """Gives the buffer that long views point into a number."""
        self.words[:, 1] += (self.sizes > INLINE_BYTES) * np.uint64(number)

    def crcs(self, behind: int) -> npt.NDArray[np.uint32]:
        """Returns this part's share of each record's CRC; `behind` bytes follow it."""
        crcs = np.zeros(len(self.words), np.uint32)
        cells = self.words.view(np.uint8).reshape(-1, 16)[:, 16 - INLINE_BYTES :]
        distances = crc_distances(self.sizes + behind)
        for position in range(self.width):
            crcs ^= crc_look_up(distances, position, cells[:, position])
        return crcs


@dataclasses.dataclass(frozen=True)
class Repeated:
    """A part that has few different values, as a column of classes has.

    Attributes:
      values: the k values.
      few: their views.
      codes: int64 array of n: the value of each row.
      present: bool array of n; None where every row has the part.
    """

    values: pa.LargeBinaryArray
    few: Varying
    codes: Longs
    present: Mask | None

    # Bytes to look up in every row for CRCs: a value has one.
    look_ups = 1

    @functools.cached_property
    def sizes(self) -> Longs:
        """Bytes of each row."""
        sizes: Longs = self.few.sizes.take(self.codes)
        return sizes if self.present is None else sizes * self.present

    @property
    def width(self) -> int:
        """The most bytes of a row."""
        return int(self.sizes.max())

    def views(self, rows: int, number: int) -> Views:
        """Returns the part of each row, of size 0 where absent."""
        self.few.count_from(number)
        part = self.few.taken(self.codes)
        if self.present is not None:
            part.words *= self.present[:, None]
        return part.words, part.data

    def crcs(self, behind: int) -> npt.NDArray[np.uint32]:
        """Returns this part's share of each record's CRC; `behind` bytes follow it."""
        changes = [_change(value, behind) for value in self.values.to_pylist()]
        crcs = np.array(changes, np.uint32).take(self.codes)
        return crcs if self.present is None else crcs * self.present


def _change(data: bytes | bytearray, behind: int) -> int:
    """Returns what bytes of any row change in a CRC register `behind` bytes later."""
    # The register's start and end are in the CRC of zeros as well.
    crc: int = google_crc32c.value(bytes(data) + bytes(behind))
    return crc ^ int(google_crc32c.value(bytes(len(data) + behind)))


RecordPart = Run | Varying | Repeated
"""The same part of n records."""


def join(parts: Sequence[RecordPart], rows: int) -> pa.LargeBinaryArray:
    """Returns n rows of all parts, one after another.

    The data buffer of the result is new, and may be written to.
    """
    views = np.empty((rows, len(parts), 2), np.uint64)
    # As complex128, the 16 bytes of a view are one element.
    cells = views.view(np.complex128)
    buffers: list[pa.Buffer] = []
    for index, part in enumerate(parts):
        words, data = part.views(rows, len(buffers))
        cells[:, index] = np.ascontiguousarray(words).view(np.complex128)
        if data is not None:
            buffers.append(data)
    array = pa.Array.from_buffers(
        pa.binary_view(), rows * len(parts), [None, pa.py_buffer(views), *buffers], 0
    )
    joined = array.cast(pa.large_binary())
    ends = offsets_of(joined)[:: len(parts)].copy()
    return binary_values(joined.buffers()[2] or b"", ends)


class ListKind(enum.Enum):
    """The tag of the list inside a Feature."""

    BYTES = b"\x0a"
    FLOAT = b"\x12"
    INT64 = b"\x1a"


class PrefixLayout(NamedTuple):
    """The prefix of all payloads of a range of sizes.

    Attributes:
      template: the prefix of the smallest size.
      fields: (position, width, delta) of each varint that depends on the size L: it is
        that of L + delta. Empty for a single size.
    """

    template: bytes
    fields: Sequence[tuple[int, int, int]] = ()

    def stores(self, sizes: Longs | int) -> list[Store]:
        """Returns the varints that count payloads of n sizes, or of one for all."""
        stores: list[Store] = []
        for position, width, delta in self.fields:
            counts = Varints.of(np.asarray(sizes + delta).view(np.uint64))
            stores += varint_stores(position, width, counts)
        return stores


def varint_stores(position: int, width: int, varints: Varints) -> list[Store]:
    """Returns varints of `width` bytes as stores at a position of a run.

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
    """The part of records before the payload of one feature: its map entry."""

    def __init__(self, name: str, kind: ListKind, *, is_list: bool) -> None:
        key = name.encode()
        key = b"\x0a" + varint(len(key)) + key
        # Behind each of these a varint counts all bytes that follow it.
        self._tags = b"\x0a", key + b"\x12", kind.value, b"\x0a"
        # The bytes from which on the list states its size: it leaves out that of no
        # numbers, and several bytes are whole fields, `0a size value`.
        of_lists = math.inf if kind is ListKind.BYTES else 1
        self._least_stated = of_lists if is_list else 0
        self.layout = functools.lru_cache(maxsize=1000)(self._layout)
        self._table = Varying(np.empty((0, 2), np.uint64))

    def prefix(self, size: int) -> bytes:
        """Returns the bytes before a payload of `size` bytes."""
        out = b""
        for tag in reversed(self._tags_of(size)):
            out = tag + varint(len(out) + size) + out
        return out

    def prefixes(self, sizes: Longs, largest: int) -> Varying:
        """Returns the bytes before n payloads."""
        if largest >= _TABLE_BYTES:
            return self._prefixes(sizes)
        if len(self._table.words) <= largest:
            count = max(256, 1 << largest.bit_length())
            self._table = self._prefixes(np.arange(count))
        return self._table.taken(sizes)

    def _tags_of(self, size: int) -> Sequence[bytes]:
        """Returns the bytes before each varint, by the size of the payload."""
        return self._tags if size >= self._least_stated else self._tags[:-1]

    def _layout(self, smallest: int, largest: int) -> PrefixLayout | None:
        """Returns the one layout of all sizes of a range; None if it has several."""
        template = self.prefix(smallest)
        if smallest == largest:
            return PrefixLayout(template)
        end = len(template)
        # Widths never shrink as the size grows: if both ends agree, all between do.
        if len(self.prefix(largest)) != end:
            return None
        fields, at = [], 0
        for tag in self._tags_of(smallest):
            at += len(tag)
            rest = enumerate(template[at:], 1)
            width = next(n for n, byte in rest if byte < 0x80)
            fields.append((at, width, end - at - width))
            at += width
        return PrefixLayout(template, fields)

    def _prefixes(self, sizes: Longs) -> Varying:
        """Returns the prefixes of payloads of n sizes."""
        heads: list[RecordPart] = []
        around = sizes
        for tag in reversed(self._tags):
            head = Varints.of(around.view(np.uint64)).tagged(tag[-1:])
            words, widths = head.views(), head.sizes
            if not heads and self._least_stated:
                present = sizes >= self._least_stated
                words, widths = words * present[:, None], widths * present
            around = around + widths + len(tag[:-1])
            heads.insert(0, Varying(words))
            if tag[:-1]:
                heads.insert(0, Run(None, bytearray(tag[:-1])))
        return Varying.of(join(heads, len(sizes)))
