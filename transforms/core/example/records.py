"""Records of a chunk: entries side by side, wrapped as Examples and framed.

    length: 8  crc: 4  |  0a T: 2 to 6  |  entry  entry ...  |  crc of payload: 4

Parts of the same bytes in every row, except for values at fixed positions, are runs;
all other parts are one Arrow binary view a row.
"""

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.example.entry import Entry, PrefixLayout, Store, varint_stores
from transforms.core.example.payload import Payload
from transforms.core.example.varint import Varints
from transforms.core.example.views import (
    INLINE_BYTES,
    DataBuffers,
    Words,
    join,
    matrix_views,
)
from transforms.core.tfrecord.frame import (
    FOOTER_BYTES,
    HEADER_BYTES,
    length_crcs,
    mask_all,
)

__all__ = ["Records", "write_footers"]

# Rows of a run are filled in blocks of this size, while they are in the cache.
_RUN_BLOCK_BYTES = 1 << 22

Mask = npt.NDArray[np.bool_]
Sizes = npt.NDArray[np.int64]


class _Run:
    """Neighbouring bytes of fixed layout: a template, and columns to store in it."""

    def __init__(self, present: Mask | None = None) -> None:
        self.template = bytearray()
        self.stores: list[Store] = []
        self.present = present

    def matrix(self, rows: int) -> npt.NDArray[np.uint8]:
        """Returns the run of all rows as a uint8 array (rows, width)."""
        width = len(self.template)
        out = np.frombuffer(bytearray(self.template) * rows, np.uint8)
        block = max(_RUN_BLOCK_BYTES // width, 64)
        for start in range(0, rows, block):
            count = min(block, rows - start)
            for position, cells in self.stores:
                np.ndarray(
                    (count, *cells.shape[1:]),
                    cells.dtype,
                    out,
                    start * width + position,
                    (width, cells.itemsize)[: cells.ndim],
                )[:] = cells[start : start + count]
        return out.reshape(rows, width)


class Records:
    """Collects the parts of n records, then joins them."""

    def __init__(self, rows: int) -> None:
        self.buffers = DataBuffers()
        self._rows = rows
        self._parts: list[_Run | Words] = []
        self._fixed = 0
        self._varying: Sizes | None = None

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
            _store_layout(self._open_run(present), layout, payload.sizes)
            self._count(len(layout.template) + sizes, present)
        else:
            assert payload.sizes is not None  # one size always has one layout
            views, widths = entry.views(payload.sizes, payload.largest, self.buffers)
            self._append(views, present)
            self._count(widths + sizes, present)
        if payload.stores is not None:
            run = self._open_run(present)
            position = len(run.template)
            run.stores += [(position + at, cells) for at, cells in payload.stores]
            run.template += bytes(payload.smallest)
        elif payload.views is not None:
            self._append(payload.views, present)

    def surround(self, *, framed: bool) -> None:
        """Puts the Example around the entries and, if asked for, the frame around it.

        The footer is left zero, for `write_footers`.
        """
        totals = self.totals
        sizes = np.full(1, totals) if isinstance(totals, int) else totals
        tags = Varints.of(sizes.view(np.uint64))
        lead = HEADER_BYTES if framed else 0
        lengths = sizes + tags.sizes + 1
        stores: list[Store] = []
        if framed:
            stores = [(0, lengths.astype("<u8")), (8, length_crcs(lengths))]
        if isinstance(tags.sizes, int):
            width = lead + 1 + tags.sizes
            stores += varint_stores(lead + 1, tags.sizes, tags)
            template = bytearray(width)
            template[lead] = 0x0A
            if len(sizes) == 1:
                for position, cells in stores:
                    template[position : position + cells.itemsize] = cells.tobytes()
                stores = []
            self._prepend(template, stores)
        else:
            # All rows store 8 bytes for the varint; each view ends with its own varint.
            run = _Run()
            run.template += bytes(lead) + b"\x0a" + bytes(8)
            run.stores = [*stores, (lead + 1, tags.low)]
            views = self._views(run)
            views[:, 0] -= (8 - tags.sizes).view(np.uint64)
            self._parts.insert(0, views)
        if framed:
            self._open_run(None).template += bytes(FOOTER_BYTES)

    def finish(self) -> tuple[pa.Buffer, Sizes]:
        """Returns the bytes of the records and their n + 1 offsets."""
        rows, parts = self._rows, self._parts
        if not parts:
            return pa.py_buffer(b""), np.zeros(rows + 1, np.int64)
        if len(parts) == 1 and isinstance(parts[0], _Run) and parts[0].present is None:
            matrix = parts[0].matrix(rows)
            width = matrix.shape[1]
            return pa.py_buffer(matrix), np.arange(rows + 1, dtype=np.int64) * width
        views = np.empty((rows, len(parts), 2), np.uint64)
        for index, part in enumerate(parts):
            views[:, index] = self._views(part) if isinstance(part, _Run) else part
        joined = join(views, self.buffers)
        offsets = np.frombuffer(joined.buffers()[1], np.int64, views.size // 2 + 1)
        offsets = offsets[:: len(parts)].copy()
        return joined.buffers()[2], offsets

    def _views(self, run: _Run) -> Words:
        """Returns the run of every row as views (n, 2), of size 0 where absent."""
        matrix = run.matrix(self._rows)
        number = self.buffers.add(pa.py_buffer(matrix))
        views = matrix_views(matrix, number)
        if run.present is not None:
            views[:, 0] *= run.present
        return views

    def _open_run(self, present: Mask | None) -> _Run:
        """Returns the run at the end of the records, if need be a new one.

        Bytes share a run only if they are present in the same rows: those of one entry,
        or of neighbouring entries without nulls.
        """
        last = self._parts[-1] if self._parts else None
        if isinstance(last, _Run) and last.present is present:
            return last
        run = _Run(present)
        self._parts.append(run)
        return run

    def _append(self, views: Words, present: Mask | None) -> None:
        if present is not None:
            views[:, 0] *= present
        self._parts.append(views)

    def _prepend(self, template: bytearray, stores: list[Store]) -> None:
        first = self._parts[0] if self._parts else None
        if not isinstance(first, _Run) or first.present is not None:
            first = _Run()
            self._parts.insert(0, first)
        moved = [(at + len(template), cells) for at, cells in first.stores]
        first.template = template + first.template
        first.stores = stores + moved

    def _count(self, sizes: Sizes | int, present: Mask | None) -> None:
        if present is not None:
            sizes = sizes * present
        if isinstance(sizes, int):
            self._fixed += sizes
        elif self._varying is None:
            self._varying = sizes
        else:
            self._varying = self._varying + sizes


def _store_layout(run: _Run, layout: PrefixLayout, sizes: Sizes | None) -> None:
    """Appends a prefix to a run, with the varints that count the payload in it."""
    start = len(run.template)
    run.template += layout.template
    if sizes is None:
        return
    for field in layout.fields:
        counts = Varints.of((sizes + field.delta).view(np.uint64))
        run.stores += varint_stores(start + field.position, field.width, counts)


def write_footers(data: pa.Buffer, offsets: Sizes) -> None:
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
        ends = starts + sizes
        whole = memoryview(data)
        payloads = np.array(
            [bytes(whole[start:end]) for start, end in zip(starts, ends, strict=True)],
            object,
        )
    crcs = np.fromiter(map(google_crc32c.value, payloads.tolist()), np.uint32, count)
    # Overlapping words, one that begins at every byte: footers have any alignment.
    words = np.ndarray((data.size - 3,), "<u4", data, 0, (1,))
    words[offsets[1:] - FOOTER_BYTES] = mask_all(crcs)
