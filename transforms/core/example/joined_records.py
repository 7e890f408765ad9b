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

import math
from collections.abc import Sequence
from typing import TypeGuard

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.arrays import binary_values, numpy_mask, offsets_of, raw_values
from transforms.core.example.payload import (
    MAX_EXAMPLE_BYTES,
    Payload,
    PayloadColumn,
    few_values,
)
from transforms.core.example.record_parts import (
    INLINE_BYTES,
    Entry,
    RecordPart,
    Repeated,
    Run,
    Store,
    Varying,
    join,
    varint_stores,
)
from transforms.core.example.wire import Longs, Mask, Varints, varint
from transforms.core.tfrecord.frame import (
    FOOTER_BYTES,
    HEADER_BYTES,
    after_few_zeros,
    length_crcs,
    mask_all,
)
from transforms.errors import EncodingError

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
        self._rows = rows
        self._parts: list[RecordPart] = []
        self._lengths: Longs = np.empty(0, np.int64)
        self._needs_footers = False

    def add(self, entry: Entry, payload: Payload) -> None:
        """Adds an entry to the end of every record that has a value for it."""
        present = payload.present
        sizes = payload.smallest if payload.sizes is None else payload.sizes
        layout = entry.layout(payload.smallest, payload.largest)
        if layout is not None:
            self._open_run(present).append(layout.template, layout.stores(sizes))
        else:
            assert payload.sizes is not None  # one size always has one layout
            self._append(entry.prefixes(payload.sizes, payload.largest), present)
        if payload.stores is not None:
            self._open_run(present).append(bytes(payload.smallest), payload.stores)
        elif payload.part is not None:
            self._append(payload.part, present)

    def add_column(
        self, column: PayloadColumn, array: pa.Array, first_row: int
    ) -> None:
        """Adds the entries of a column; raises EncodingError as `payload` does.

        `first_row` is the number of the array's first row, for errors.
        """
        few = few_values(array)
        if few is None:
            payload = column.payload(array, first_row)
            if payload is not None:
                self.add(column.entry, payload)
            return
        entries = JoinedRecords(len(few))
        entries.add_column(column, few, 0)
        present = numpy_mask(array.is_valid()) if array.null_count else None
        codes = array.indices if present is None else array.indices.fill_null(0)
        codes = raw_values(codes).astype(np.int64)
        values = entries.finish()
        self._parts.append(Repeated(values, Varying.of(values), codes, present))

    def add_fixed(self, template: bytes, stores: Sequence[Store]) -> None:
        """Adds neighbouring entries that every record has, of one size in all."""
        self._open_run(None).append(template, stores)

    def surround(self, first_row: int, elsewhere: Longs | int = 0) -> None:
        """Puts the Example around the entries.

        Args:
          first_row: the number of the first record, for errors.
          elsewhere: bytes of each record's entries that are kept elsewhere.

        Raises EncodingError: a record would be too large.
        """
        totals: Longs = np.atleast_1d(
            sum((part.sizes for part in self._parts), elsewhere)
        )
        _check_size(totals, first_row)
        tags = Varints.of(totals.view(np.uint64))
        if isinstance(tags.sizes, int):
            template = bytearray(b"\x0a") + bytes(tags.sizes)
            self._prepend(template, varint_stores(1, tags.sizes, tags))
        else:
            self._parts.insert(0, Varying(tags.tagged(b"\x0a").views()))
        self._lengths = totals + tags.sizes + 1

    def frame(self) -> None:
        """Puts the frame around the records."""
        crcs = record_crcs(self._parts, self._rows)
        lengths = self._lengths
        header = (0, lengths.astype("<u8"), 0), (8, length_crcs(lengths), 0)
        self._prepend(bytearray(HEADER_BYTES), header)
        self._needs_footers = crcs is None
        footer = [] if crcs is None else [(0, mask_all(crcs), 0)]
        self._open_run(None).append(bytes(FOOTER_BYTES), footer)

    def finish(self) -> pa.LargeBinaryArray:
        """Returns the records, whose bytes are one after another."""
        joined = self._joined()
        if self._needs_footers:
            _write_footers(joined.buffers()[2], offsets_of(joined))
        return joined

    def _joined(self) -> pa.LargeBinaryArray:
        rows, parts = self._rows, self._parts
        if not parts:
            return binary_values(b"", np.zeros(rows + 1, np.int64))
        if len(parts) == 1 and _is_in_all(parts[0]):
            matrix = parts[0].matrix(rows)
            ends = np.arange(rows + 1, dtype=np.int64) * matrix.shape[1]
            return binary_values(matrix, ends)
        return join(parts, rows)

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

    def _append(self, part: Varying, present: Mask | None) -> None:
        if present is not None:
            part.words *= present[:, None]
        self._parts.append(part)

    def _prepend(self, template: bytearray, stores: Sequence[Store]) -> None:
        """Puts bytes before all parts; a single element is the same in every record."""
        for at, cells, _ in stores:
            if len(cells) < self._rows:
                template[at : at + cells.itemsize] = cells.tobytes()
        kept = [store for store in stores if len(store[1]) == self._rows]
        run = Run(None, template, kept)
        first = self._parts[0] if self._parts else None
        if first is not None and _is_in_all(first):
            run.append(first.template, first.stores)
            self._parts[0] = run
        else:
            self._parts.insert(0, run)


def _check_size(totals: Longs, first_row: int) -> None:
    """Raises EncodingError where an Example of these entries would be too large."""
    largest = int(totals.max())
    if largest + 1 + len(varint(largest)) > MAX_EXAMPLE_BYTES:
        row = first_row + int(np.argmax(totals)) + 1
        raise EncodingError(
            f"a serialised tf.train.Example must not exceed {MAX_EXAMPLE_BYTES} bytes; "
            f"row {row} of the batch (counted from 1) takes {largest}; leave a feature "
            "out, or keep large values in files"
        )


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
    # The register moves over a part and over the run behind it, which every row has, at
    # once.
    moves: list[list[RecordPart]] = []
    for part in parts:
        if moves and _is_in_all(part) and not _is_in_all(moves[-1][-1]):
            moves[-1].append(part)
        else:
            moves.append([part])
    if not _pays(moves, rows):
        return None
    registers = np.full(1, 0xFFFFFFFF, np.uint32)
    for first, *runs in moves:
        behind = sum(run.width for run in runs)
        registers = after_few_zeros(registers, first.sizes + behind)
        registers = registers ^ first.crcs(behind)
        for run in runs:
            registers = registers ^ run.crcs(0)
    return np.broadcast_to(~registers, rows)


def _is_in_all(part: RecordPart) -> TypeGuard[Run]:
    """Returns whether a part is a run that every record has."""
    return isinstance(part, Run) and part.present is None


def _pays(moves: Sequence[Sequence[RecordPart]], rows: int) -> bool:
    """Returns whether look-ups cost less than a call for each record."""
    look_ups, longest = 0.0, 0
    for parts in moves:
        width = sum(part.width for part in parts)
        longest += width
        # Four of a move are those of the register.
        look_ups += sum(part.look_ups for part in parts) + FOOTER_BYTES
        if width > _MAX_DISTANCE or look_ups == math.inf:
            return False
    by_look_ups = _START_NS + look_ups * (_LOOK_UP_START_NS + _LOOK_UP_NS * rows)
    return by_look_ups < rows * (_CALL_NS + _CALL_BYTE_NS * longest)
