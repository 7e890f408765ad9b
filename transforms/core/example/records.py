"""Records of a chunk: entries side by side, wrapped as Examples and framed.

    length: 8  crc: 4  |  0a T: 2 to 6  |  entry  entry ...  |  crc of payload: 4

Parts of the same bytes in every row, except for values at fixed positions, are runs;
all other parts are one Arrow binary view a row.

Neighbouring float columns are encoded together: k entries of `0a E 0a N name 12 F 12 G
0a 04  value`. Their bytes are the same in every record but for the values, which one
table takes. A column costs a fraction of a microsecond a chunk so, and some thirty by
itself.
"""

import itertools
from collections.abc import Collection, Sequence

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.arrays import binary_values, numpy_mask, raw_values
from transforms.core.example.entry import Entry, PrefixLayout, Varints, varint_stores
from transforms.core.example.payload import Payload, PayloadColumn, few_values
from transforms.core.example.record_parts import (
    INLINE_BYTES,
    DataBuffers,
    Mask,
    RecordPart,
    Repeated,
    Run,
    Store,
    Words,
    join,
    matrix_views,
    record_crcs,
)
from transforms.core.tfrecord.frame import (
    FOOTER_BYTES,
    HEADER_BYTES,
    length_crcs,
    mask_all,
)

Sizes = npt.NDArray[np.int64]
Step = tuple[int, PayloadColumn]
"""A column by itself: its index in the schema, and the feature."""

# Fewer columns are stored one by one: CRCs by look-ups know only of such, and they pay
# for records up to about that size.
_LEAST_COLUMNS = 256
_VALUE_BYTES = 4


class JoinedRecords:
    """Collects the parts of n records, then joins them."""

    def __init__(self, rows: int) -> None:
        self.buffers = DataBuffers()
        self._rows = rows
        self._parts: list[RecordPart] = []
        self._fixed = 0
        self._varying: Sizes | None = None
        self._needs_footers = False

    @property
    def totals(self) -> Sizes | int:
        """Bytes of each record so far: n of them, or one int where all are equal."""
        return self._fixed if self._varying is None else self._varying + self._fixed

    def add(self, entry: Entry, payload: Payload) -> None:
        """Adds an entry to the end of every record that has a value for it."""
        present = payload.present
        sizes = payload.smallest if payload.sizes is None else payload.sizes
        layout = entry.layout(payload.smallest, payload.largest)
        if layout is not None:
            _store_layout(self._open_run(present), layout, sizes)
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

    def add_size(self, sizes: Sizes | int, present: Mask | None = None) -> None:
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

    def _frame(self, lengths: Sizes) -> None:
        """Puts the frame around records of n lengths, or one that all have."""
        crcs = record_crcs(self._parts, self._rows)
        header = (0, lengths.astype("<u8"), 0), (8, length_crcs(lengths), 0)
        self._prepend(bytearray(HEADER_BYTES), header)
        self._needs_footers = crcs is None
        footer = [] if crcs is None else [(0, mask_all(crcs), 0)]
        self._open_run(None).append(bytes(FOOTER_BYTES), footer)

    def finish(self) -> tuple[pa.Buffer, Sizes]:
        """Returns the bytes of the records and their n + 1 offsets."""
        data, offsets = self._joined()
        if self._needs_footers:
            _write_footers(data, offsets)
        return data, offsets

    def _joined(self) -> tuple[pa.Buffer, Sizes]:
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


def _store_layout(run: Run, layout: PrefixLayout, sizes: Sizes | int) -> None:
    """Appends a prefix to a run, with the varints that count the payload in it."""
    stores: list[Store] = []
    for position, width, delta in layout.fields:
        counts = Varints.of(np.asarray(sizes + delta).view(np.uint64))
        stores += varint_stores(position, width, counts)
    run.append(layout.template, stores)


def _write_footers(data: pa.Buffer, offsets: Sizes) -> None:
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


class FloatColumns:
    """The entries of k float32 columns, one after another in the records.

    Args:
      columns: the features, each with its index in the schema.
    """

    def __init__(self, columns: Sequence[Step]) -> None:
        self._indices = [index for index, _ in columns]
        template = bytearray()
        positions = []
        for _, column in columns:
            template += column.entry.prefix(_VALUE_BYTES)
            positions.append(len(template))
            template += bytes(_VALUE_BYTES)
        self._template = bytes(template)
        self._spans = _spans(positions)

    def add(self, chunk: pa.RecordBatch, record: JoinedRecords) -> bool:
        """Adds the entries to all records; false if a value is missing."""
        columns = chunk.select(self._indices)
        try:
            cells = columns.to_tensor(row_major=True).to_numpy()
        except pa.ArrowTypeError:
            # "Can only convert a RecordBatch with no nulls": Arrow looks for them in
            # less time than the number of nulls of each column takes.
            return False
        stores = [
            (position, cells[:, first:stop], step)
            for position, first, stop, step in self._spans
        ]
        record.add_fixed(self._template, stores)
        return True


def steps_of(
    columns: Sequence[Step],
    schema: pa.Schema,
    *,
    lacking: Collection[int] = (),
) -> list[Step | FloatColumns]:
    """Returns columns, with long runs of float32 columns as `FloatColumns`.

    Args:
      columns: in the order of their entries.
      schema: of all columns.
      lacking: indices in the schema of columns with missing values, which stay single.
    """
    types = schema.types
    out: list[Step | FloatColumns] = []

    def is_table_column(step: Step) -> bool:
        return types[step[0]] == pa.float32() and step[0] not in lacking

    for together, steps in itertools.groupby(columns, is_table_column):
        run = [*steps]
        long = together and len(run) >= _LEAST_COLUMNS
        out += [FloatColumns(run)] if long else run
    return out


def _spans(positions: Sequence[int]) -> list[tuple[int, int, int, int]]:
    """Returns ascending positions as spans of even distances.

    A span is its first position, which of the positions are in it (first and stop),
    and their distance.
    """
    spans, start = [], 0
    steps = [*np.diff(positions).tolist(), 0]
    for stop, step in enumerate(steps, 1):
        if step != steps[start] or not step:
            spans.append((positions[start], start, stop, steps[start]))
            start = stop
    return spans
