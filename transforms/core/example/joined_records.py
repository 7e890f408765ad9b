"""Records of a chunk: entries side by side, wrapped as Examples and framed.

    length: 8  crc: 4  |  0a T: 2 to 6  |  entry  entry ...  |  crc of payload: 4

Parts of the same bytes in every row, except for values at fixed positions, are runs;
all other parts are one Arrow binary view a row.

Of records of known layout, only the bytes that vary cost a look-up for their CRC32Cs,
as `frame.py` has it: a call of a CRC function costs about 200 ns, several times what a
small record costs otherwise. A run costs a look-up for each byte that `stores` puts
into its template, and a constant for the template. A part of few values costs one, and
four to move the register over it; another part of varying size costs one for each byte
of its longest value, and four to move the register over it and over the run behind it.
"""

import dataclasses
import itertools
from collections.abc import Sequence

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.arrays import binary_values, numpy_mask, raw_values
from transforms.core.example.payload import Payload, PayloadColumn, few_values
from transforms.core.example.record_parts import (
    INLINE_BYTES,
    DataBuffers,
    Entry,
    RecordPart,
    Repeated,
    Run,
    Store,
    join,
    matrix_views,
    varint_stores,
    view_sizes,
)
from transforms.core.example.wire import Longs, Mask, Varints, Words
from transforms.core.tfrecord.frame import (
    FOOTER_BYTES,
    HEADER_BYTES,
    after_few_zeros,
    crc_distances,
    crc_look_up,
    length_crcs,
    mask_all,
)

# Measured costs in ns: of n rows' CRCs by look-ups, and of a CRC call a record.
_START_NS = 20_000
_LOOK_UP_START_NS = 1_700
_LOOK_UP_NS = 1.2
_CALL_NS = 110
_CALL_BYTE_NS = 0.18
# Bytes from the start of a varying part to the next one; bounds the table to 4 MiB.
_MAX_DISTANCE = 4_000


class JoinedRecords:
    """The n records of a chunk: collected entry by entry, then joined."""

    def __init__(self, rows: int) -> None:
        self.buffers = DataBuffers()
        self._rows = rows
        self._parts: list[RecordPart] = []
        self._fixed = 0
        self._varying: Longs | None = None
        self._needs_footers = False

    @property
    def totals(self) -> Longs | int:
        """Bytes of each record so far: n of them, or one int where all are equal."""
        return self._fixed if self._varying is None else self._varying + self._fixed

    def add(self, entry: Entry, payload: Payload) -> None:
        """Adds an entry to the end of every record that has a value for it."""
        present = payload.present
        sizes = payload.smallest if payload.sizes is None else payload.sizes
        layout = entry.layout(payload.smallest, payload.largest)
        if layout is not None:
            self._open_run(present).append(layout.template, layout.stores(sizes))
            self.add_size(len(layout.template) + sizes, present)
        else:
            assert payload.sizes is not None  # one size always has one layout
            views, widths = entry.views(payload.sizes, payload.largest, self.buffers)
            self._append(views, present)
            self.add_size(widths + sizes, present)
        if payload.stores is not None:
            self._open_run(present).append(bytes(payload.smallest), payload.stores)
        elif payload.views is not None:
            self._append(payload.views, present)

    def add_column(
        self, column: PayloadColumn, array: pa.Array, first_row: int
    ) -> None:
        """Adds the entries of a column; raises EncodingError as `payload` does.

        `first_row` is the number of the array's first row, for errors.
        """
        few = few_values(array)
        if few is None:
            payload = column.payload(array, first_row, self.buffers)
            if payload is not None:
                self.add(column.entry, payload)
            return
        entries = JoinedRecords(len(few))
        entries.add_column(column, few, 0)
        values = binary_values(*entries.finish())
        present = numpy_mask(array.is_valid()) if array.null_count else None
        codes = array.indices if present is None else array.indices.fill_null(0)
        views = self.buffers.views_of(values)
        part = Repeated(values, views, raw_values(codes).astype(np.int64), present)
        self._parts.append(part)
        self.add_size(part.row_sizes())

    def add_fixed(self, template: bytes, stores: Sequence[Store]) -> None:
        """Adds neighbouring entries that every record has, of one size in all."""
        self._open_run(None).append(template, stores)
        self._fixed += len(template)

    def add_size(self, sizes: Longs | int, present: Mask | None = None) -> None:
        """Counts bytes of each record, of entries that are added or kept elsewhere."""
        if present is not None:
            sizes = sizes * present
        if isinstance(sizes, int):
            self._fixed += sizes
        elif self._varying is None:
            self._varying = sizes
        else:
            self._varying = self._varying + sizes

    def surround(self, *, framed: bool) -> None:
        """Puts the Example around the entries and, if asked for, the frame, too."""
        totals = self.totals
        sizes = np.full(1, totals) if isinstance(totals, int) else totals
        tags = Varints.of(sizes.view(np.uint64))
        if isinstance(tags.sizes, int):
            template = bytearray(b"\x0a") + bytes(tags.sizes)
            self._prepend(template, varint_stores(1, tags.sizes, tags))
        else:
            self._parts.insert(0, tags.tagged(b"\x0a").views())
        if framed:
            self._frame(sizes + tags.sizes + 1)

    def _frame(self, lengths: Longs) -> None:
        """Puts the frame around records of n lengths, or one that all have."""
        crcs = record_crcs(self._parts, self._rows)
        header = (0, lengths.astype("<u8"), 0), (8, length_crcs(lengths), 0)
        self._prepend(bytearray(HEADER_BYTES), header)
        self._needs_footers = crcs is None
        footer = [] if crcs is None else [(0, mask_all(crcs), 0)]
        self._open_run(None).append(bytes(FOOTER_BYTES), footer)

    def finish(self) -> tuple[pa.Buffer, Longs]:
        """Returns the bytes of the records and their n + 1 offsets."""
        data, offsets = self._joined()
        if self._needs_footers:
            _write_footers(data, offsets)
        return data, offsets

    def _joined(self) -> tuple[pa.Buffer, Longs]:
        rows, parts = self._rows, self._parts
        if not parts:
            return pa.py_buffer(b""), np.zeros(rows + 1, np.int64)
        if len(parts) == 1 and isinstance(parts[0], Run) and parts[0].present is None:
            matrix = parts[0].matrix(rows)
            width = matrix.shape[1]
            return pa.py_buffer(matrix), np.arange(rows + 1, dtype=np.int64) * width
        views = np.empty((rows, len(parts), 2), np.uint64)
        # As complex128, the 16 bytes of a view are one element.
        cells = views.view(np.complex128)
        for index, part in enumerate(parts):
            if isinstance(part, np.ndarray):
                own = part
            else:
                own = self._views(part) if isinstance(part, Run) else part.row_views()
            cells[:, index] = np.ascontiguousarray(own).view(np.complex128)
        joined = join(views, self.buffers)
        bounds = np.frombuffer(joined.buffers()[1], np.int64, rows * len(parts) + 1)
        return joined.buffers()[2], bounds[:: len(parts)].copy()

    def _views(self, run: Run) -> Words:
        """Returns the run of every row as views (n, 2), of size 0 where absent."""
        matrix = run.matrix(self._rows)
        number = self.buffers.add(pa.py_buffer(matrix))
        views = matrix_views(matrix, number)
        if run.present is not None:
            views[:, 0] *= run.present
        return views

    def _open_run(self, present: Mask | None) -> Run:
        """Returns the run at the end of the records, if need be a new one.

        Bytes share a run only if they are present in the same rows: those of one entry,
        or of neighbouring entries without nulls.
        """
        last = self._parts[-1] if self._parts else None
        if isinstance(last, Run) and last.present is present:
            return last
        run = Run(present)
        self._parts.append(run)
        return run

    def _append(self, views: Words, present: Mask | None) -> None:
        if present is not None:
            views *= present[:, None]
        self._parts.append(views)

    def _prepend(self, template: bytearray, stores: Sequence[Store]) -> None:
        """Puts bytes before all parts; a single element is the same in every record."""
        for at, cells, _ in stores:
            if len(cells) < self._rows:
                template[at : at + cells.itemsize] = cells.tobytes()
        kept = [store for store in stores if len(store[1]) == self._rows]
        run = Run(None, template, kept)
        first = self._parts[0] if self._parts else None
        if isinstance(first, Run) and first.present is None:
            run.append(first.template, first.stores)
            self._parts[0] = run
        else:
            self._parts.insert(0, run)


def _write_footers(data: pa.Buffer, offsets: Longs) -> None:
    """Writes the masked CRC32C of n framed payloads into their last four bytes."""
    starts = offsets[:-1] + HEADER_BYTES
    sizes = offsets[1:] - FOOTER_BYTES - starts
    count = len(sizes)
    if int(sizes.min()) > INLINE_BYTES:
        # One call creates the bytes objects of all payloads, at a third of the cost of
        # slicing them one by one. Only long views point into the data, hence the test.
        views = np.empty((count, 2), np.uint64)
        views[:, 0] = sizes
        views[:, 1] = starts << 32
        payloads = pa.Array.from_buffers(
            pa.binary_view(), count, [None, pa.py_buffer(views), data], 0
        ).to_numpy(zero_copy_only=False)
    else:
        bounds = np.ravel((starts, starts + sizes), "F")
        payloads = binary_values(data, bounds).to_numpy(zero_copy_only=False)[::2]
    crcs = np.fromiter(map(google_crc32c.value, payloads.tolist()), np.uint32, count)
    # Overlapping words, one that begins at every byte: footers have any alignment.
    words = np.ndarray((data.size - 3,), "<u4", data, 0, (1,))
    words[offsets[1:] - FOOTER_BYTES] = mask_all(crcs)


def record_crcs(
    parts: Sequence[RecordPart], rows: int
) -> npt.NDArray[np.uint32] | None:
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
            registers = after_few_zeros(registers, piece.ends)
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
    sizes: Longs | int
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
    def ends(self) -> Longs | int:
        """Bytes from the start to the end of the fixed run behind."""
        return self.sizes + self.behind

    @property
    def look_ups(self) -> int:
        """Bytes to look up in every row; those of the register are among them."""
        if isinstance(self.part, Repeated):
            return 1 + FOOTER_BYTES
        if not isinstance(self.part, Run):
            return self.width + FOOTER_BYTES
        stored = sum(
            cells.itemsize * (cells.size // len(cells))
            for _, cells, _ in self.part.stores
        )
        return stored if self.is_behind else stored + FOOTER_BYTES

    def contribution(self) -> npt.NDArray[np.uint32]:
        """Returns what the bytes change in the register after the run behind."""
        if isinstance(self.part, Run):
            crcs = self.part.crcs(self.behind)
            return crcs if self.part.present is None else crcs * self.part.present
        if isinstance(self.part, Repeated):
            return self.part.crcs(self.behind)
        crcs = np.zeros(len(self.part), np.uint32)
        cells = self.part.view(np.uint8).reshape(-1, 16)[:, 16 - INLINE_BYTES :]
        distances = crc_distances(self.ends)
        for position in range(self.width):
            crcs ^= crc_look_up(distances, position, cells[:, position])
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
