"""The parts of records, runs and Arrow binary views, and their CRC32Cs.

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

Of records of known layout, only the bytes that vary cost a look-up for their CRC32Cs. A
call of a CRC function costs about 200 ns, several times what a small record costs
otherwise. A CRC register is linear over XOR, though, so that each byte of a record
changes it independently of all others. Write Z(s) for the register s after one more
byte of zero, and Z^k for k of them. Then:

    Z(a ^ b) = Z(a) ^ Z(b)                              linear
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

A run thus costs a look-up for each byte that `stores` puts into its template, and a
constant for the template. A part of few values costs one, and four to move the register
over it; another part of varying size costs one for each byte of its longest value,
and four to move the register over it and over the run behind it.

Sources: Castagnoli et al., "Optimization of Cyclic Redundancy-Check Codes with 24 and
32 Parity Bits" (the polynomial); zlib, `crc32_combine` (Z^k as a linear operator);
Kounavis and Berry, "Novel Table Lookup-Based Algorithms for High-Performance CRC
Generation" (a table for each distance: "slicing").
"""

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Sequence

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.arrays import binary_values, offsets_of

Words = npt.NDArray[np.uint64]
Store = tuple[int, npt.NDArray[np.generic], int]
"""Values in every row of a run: the position of the first; n values, or n rows of them;
the bytes from one of a row to the next, 0 where they are neighbours."""

INLINE_BYTES = 12

_SIZE = np.uint64(0xFFFFFFFF)
# Rows of a run are filled in blocks of this size, while they are in the cache.
_BLOCK_BYTES = 1 << 22

Mask = npt.NDArray[np.bool_]
# Measured costs in ns: of n rows' CRCs by look-ups, and of a CRC call a record.
_START_NS = 20_000
_LOOK_UP_START_NS = 1_700
_LOOK_UP_NS = 1.2
_CALL_NS = 110
_CALL_BYTE_NS = 0.18
# Bytes from the start of a varying part to the next one; bounds the table to 4 MiB.
_MAX_DISTANCE = 4_000

# Rows of the table before that of d = 0.
_LEAD = INLINE_BYTES
_REGISTER_BYTES = 4

_Bytes = npt.NDArray[np.uint8]
_Longs = npt.NDArray[np.int64]
_Registers = npt.NDArray[np.uint32]


@dataclasses.dataclass(slots=True)
class DataBuffers:
    """The buffers that the long views of one join point into."""

    buffers: list[pa.Buffer] = dataclasses.field(default_factory=list)

    def add(self, buffer: pa.Buffer) -> int:
        """Adds a buffer and returns its number."""
        self.buffers.append(buffer)
        return len(self.buffers) - 1

    def renumbered(self, views: Words, buffer: pa.Buffer) -> Words:
        """Adds the buffer of views in which it is number 0; updates the views."""
        sizes = views[:, 0] & _SIZE
        if int(sizes.max(initial=0)) > INLINE_BYTES:
            number = self.add(buffer)
            if number:
                views[:, 1] += (sizes > INLINE_BYTES) * np.uint64(number)
        return views

    def views_of(self, values: pa.Array) -> Words:
        """Returns the views of n texts or bytes, without copying their data.

        The values span less than 2**31 bytes; the views of nulls are arbitrary.
        """
        count = len(values)
        data = values.buffers()[2]
        if not count or data is None:
            return np.zeros((count, 2), np.uint64)
        # View offsets have 32 bits: count them from the first value instead.
        offsets = offsets_of(values)
        first, last = int(offsets[0]), int(offsets[-1])
        data = data.slice(first, last - first)
        cast = binary_values(data, offsets - first).cast(pa.binary_view())
        words = np.frombuffer(cast.buffers()[1], np.uint64, count * 2, cast.offset * 16)
        return self.renumbered(words.reshape(count, 2), data)


def view_sizes(views: Words) -> npt.NDArray[np.int64]:
    """Returns the sizes in bytes of n views."""
    return (views[:, 0] & _SIZE).view(np.int64)


def taken_views(views: Words, rows: npt.NDArray[np.integer]) -> Words:
    """Returns the views at n rows."""
    # As complex128, the 16 bytes of a view are one element, which halves the time.
    taken = views.view(np.complex128)[:, 0].take(rows)
    return taken.view(np.uint64).reshape(-1, 2)


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


def join(views: Words, buffers: DataBuffers) -> pa.LargeBinaryArray:
    """Returns the n * P parts of an (n, P, 2) array of views, in row order.

    The data buffer of the result is new, and may be written to.
    """
    parts = views.shape[0] * views.shape[1]
    array = pa.Array.from_buffers(
        pa.binary_view(), parts, [None, pa.py_buffer(views), *buffers.buffers], 0
    )
    return array.cast(pa.large_binary())


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


@dataclasses.dataclass(frozen=True, slots=True)
class Repeated:
    """A part that has few different values, as a column of classes has.

    Attributes:
      values: the k values.
      views: theirs, among the buffers of the records.
      codes: int64 array of n: the value of each row.
      present: bool array of n; None where every row has the part.
    """

    values: pa.LargeBinaryArray
    views: Words
    codes: _Longs
    present: Mask | None

    def row_sizes(self) -> _Longs:
        """Returns the bytes of the part in each row."""
        sizes: _Longs = view_sizes(self.views).take(self.codes)
        return sizes if self.present is None else sizes * self.present

    def row_views(self) -> Words:
        """Returns the part of each row, of size 0 where absent."""
        views = taken_views(self.views, self.codes)
        if self.present is not None:
            views *= self.present[:, None]
        return views

    def crcs(self, behind: int) -> _Registers:
        """Returns this part's share of each record's CRC; `behind` bytes follow it."""
        zeros = bytes(behind)
        changes = np.array(
            [
                google_crc32c.value(value + zeros)
                ^ google_crc32c.value(bytes(len(value) + behind))
                for value in self.values.to_pylist()
            ],
            np.uint32,
        ).take(self.codes)
        return changes if self.present is None else changes * self.present


RecordPart = Run | Words | Repeated
"""The same part of n records; Words are n views."""


def record_crcs(parts: Sequence[RecordPart], rows: int) -> _Registers | None:
    """Returns the CRC32Cs of n >= 1 records; None where calls are the faster way.

    A record is its row of every part, one after another. Calls are faster where many
    bytes vary, as in tables, or rows are few. Values of more than 12 bytes are not
    inside their views and are left to calls as well.
    """
    pieces = [_Piece.of(part) for part in parts]
    for piece, following in itertools.pairwise(pieces):
        if following.is_fixed and not piece.is_fixed:
            piece.behind = following.width
            following.is_behind = True
    if not _pays(pieces, rows):
        return None
    registers = np.full(1, 0xFFFFFFFF, np.uint32)
    for piece in pieces:
        if not piece.is_behind:
            registers = _after_zeros(registers, piece.ends)
        registers = registers ^ piece.contribution()
    return np.broadcast_to(~registers, rows)


@dataclasses.dataclass(slots=True)
class _Piece:
    """A part of the records.

    Attributes:
      part: of n rows.
      sizes: bytes of each row; one int where all are equal.
      width: the most bytes of a row.
      is_fixed: whether it is a run that every row has.
      behind: bytes of the fixed run directly behind a part of varying size.
      is_behind: whether it is that run, over which the register has moved already.
    """

    part: RecordPart
    sizes: _Longs | int
    width: int
    is_fixed: bool = False
    behind: int = 0
    is_behind: bool = False

    @classmethod
    def of(cls, part: RecordPart) -> "_Piece":
        if not isinstance(part, Run):
            sizes = part.row_sizes() if isinstance(part, Repeated) else view_sizes(part)
            return cls(part, sizes, int(sizes.max()))
        width = len(part.template)
        if part.present is None:
            return cls(part, width, width, is_fixed=True)
        return cls(part, part.present * width, width)

    @property
    def ends(self) -> _Longs | int:
        """Bytes from the start to the end of the fixed run behind."""
        return self.sizes + self.behind

    @property
    def look_ups(self) -> int:
        """Bytes to look up in every row; those of the register are among them."""
        if isinstance(self.part, Repeated):
            return 1 + _REGISTER_BYTES
        if not isinstance(self.part, Run):
            return self.width + _REGISTER_BYTES
        stored = sum(
            cells.itemsize * (cells.size // len(cells))
            for _, cells, _ in self.part.stores
        )
        return stored if self.is_behind else stored + _REGISTER_BYTES

    def contribution(self) -> _Registers:
        """Returns what the bytes change in the register after the run behind."""
        if isinstance(self.part, Run):
            crcs = _of_run(self.part, self.width + self.behind)
            return crcs if self.part.present is None else crcs * self.part.present
        if isinstance(self.part, Repeated):
            return self.part.crcs(self.behind)
        crcs = np.zeros(len(self.part), np.uint32)
        cells = self.part.view(np.uint8).reshape(-1, 16)[:, 16 - INLINE_BYTES :]
        ending = _ending(self.ends)
        for position in range(self.width):
            crcs ^= _look_up(ending, position, cells[:, position])
        return crcs


def _pays(pieces: Sequence[_Piece], rows: int) -> bool:
    """Returns whether the look-ups cost less than a call for each record."""
    if any(
        piece.width + piece.behind > _MAX_DISTANCE
        or (isinstance(piece.part, np.ndarray) and piece.width > INLINE_BYTES)
        # Spread values are hundreds, whose look-ups cost more than a call.
        or (isinstance(piece.part, Run) and any(s[2] for s in piece.part.stores))
        for piece in pieces
    ):
        return False
    look_ups = sum(piece.look_ups for piece in pieces)
    longest = sum(piece.width for piece in pieces)
    by_look_ups = _START_NS + look_ups * (_LOOK_UP_START_NS + _LOOK_UP_NS * rows)
    return by_look_ups < rows * (_CALL_NS + _CALL_BYTE_NS * longest)


def _of_run(run: Run, end: int) -> _Registers:
    """Returns what a run's bytes change in the register `end` bytes after its start.

    One register for all rows where the run has no stores.
    """
    constant = bytearray(run.template)
    columns: list[tuple[int, _Bytes]] = []
    for at, cells, _ in run.stores:
        width = cells.itemsize * (cells.size // len(cells))
        constant[at : at + width] = bytes(width)
        stored = np.ascontiguousarray(cells).view(np.uint8).reshape(-1, width)
        columns += [(at + index, stored[:, index]) for index in range(width)]
    zeros = bytes(end - len(constant))
    # Apart from the register's start and end, which the CRC of zeros has as well.
    crc = google_crc32c.value(bytes(constant) + zeros)
    crcs = np.full(1, crc ^ google_crc32c.value(bytes(end)), np.uint32)
    ending = _ending(end)
    for position, column in columns:
        crcs = crcs ^ _look_up(ending, position, column)
    return crcs


def _after_zeros(registers: _Registers, count: _Longs | int) -> _Registers:
    """Returns the registers after `count` more bytes of zero, 0 or more: Z^count."""
    cells = registers.astype("<u4", copy=False).view(np.uint8).reshape(-1, 4)
    ending = _ending(count)
    first, *others = (
        _look_up(ending, index, cells[:, index]) for index in range(_REGISTER_BYTES)
    )
    for other in others:
        first ^= other
    return first


def _ending(end: _Longs | int) -> tuple[_Registers, _Longs | int]:
    """Returns what `_look_up` needs of a place, once for all positions before it.

    Args:
      end: bytes from the start of a piece to the place where the register is wanted;
        one int, or each row's.

    Returns:
      The table, and the place in its rows; each row's in the flat table.
    """
    farthest = end if isinstance(end, int) else int(end.max())
    table = _table(1 << max(farthest - 1, 0).bit_length())
    return table, end if isinstance(end, int) else end << 8


def _look_up(
    ending: tuple[_Registers, _Longs | int], position: int, column: _Bytes
) -> _Registers:
    """Returns what the bytes at a position change in the register.

    Args:
      ending: of the place where the register is wanted.
      position: of the bytes in the piece, at most `_LEAD` after the end of a row's.
      column: the byte of each row.
    """
    table, end = ending
    # The row for the byte at position p, with end - p - 1 bytes behind it, if end is 0.
    row = _LEAD - position - 1
    # "clip" leaves out a test of each index: all are inside.
    crcs: _Registers
    if isinstance(end, int):
        crcs = table[row + end].take(column, mode="clip")
    else:
        crcs = table[row:].reshape(-1).take(end + column, mode="clip")
    return crcs


@functools.cache
def _table(count: int) -> _Registers:
    """Returns the rows T[-12] to T[count - 1] as (count + 12, 256); count is 2**k."""
    if count > 1:
        half = _table(count // 2)
        farther = _after_zeros(half[_LEAD:].reshape(-1), count // 2)
        return np.concatenate((half, farther.reshape(-1, 256)))
    bytes_ = np.arange(256, dtype=np.uint32)
    table = np.zeros((_LEAD + 1, 256), np.uint32)
    for index in range(_REGISTER_BYTES):
        table[_LEAD - 1 - index] = bytes_ << np.uint32(8 * index)
    zero = google_crc32c.value(b"\0")
    table[_LEAD] = [google_crc32c.value(bytes([byte])) ^ zero for byte in range(256)]
    return table
