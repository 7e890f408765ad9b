"""Rows that may be more than memory holds: spooled to a temporary file, and sorted.

A `RowSpool` keeps few rows in memory, and many in a temporary file without a name, as a
compressed Arrow IPC stream; each pass reads it batch by batch. A `RowSorter` sorts runs
of rows in memory and merges them from such files; `merge_runs` merges runs that are
stored elsewhere.
"""

import bisect
import collections
import io
import os
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from transforms.storage.retry import persistently

# Rows of a batch, about.
BATCH_ROWS = 1 << 14
# Batches are kept in memory up to this size.
_HELD_BYTES = 8 << 20
# Rows that are sorted at once.
_RUN_ROWS = 1 << 18
# Each run is an open file.
_MOST_RUNS = 128


class RowSpool:
    """Rows in the order in which they were appended, to be read any number of times.

        >>> spool = RowSpool(pa.schema({"size": pa.int64()}))
        >>> spool.append(pa.record_batch({"size": [1, 2]}))
        >>> len(spool), [batch.num_rows for batch in spool.batches()]
        (2, [2])

    Its temporary file is removed with it.

    Attributes:
      schema: of the rows.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0
        self._rows = 0
        self._file: Any = None
        self._writer: pa.RecordBatchStreamWriter | None = None

    @classmethod
    def of(cls, table: pa.Table) -> Self:
        """Returns the rows of a table."""
        spool = cls(table.schema)
        for batch in table.to_batches(max_chunksize=BATCH_ROWS):
            spool.append(batch)
        return spool

    def __len__(self) -> int:
        return self._rows

    def append(self, batch: pa.RecordBatch) -> None:
        """Appends rows; must not be called once they were read.

        Raises:
          OSError: the temporary file cannot be written.
        """
        if not batch.num_rows:
            return
        self._rows += batch.num_rows
        if self._file is None and self._held_bytes + batch.nbytes <= _HELD_BYTES:
            self._held.append(batch)
            self._held_bytes += batch.nbytes
            return
        self.spill()
        self._write(batch)

    def spill(self) -> None:
        """Takes the rows that are in memory to the temporary file."""
        batches, self._held = self._held, []
        for batch in batches:
            self._write(batch)

    def _write(self, batch: pa.RecordBatch) -> None:
        if self._writer is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the rows
            weakref.finalize(self, self._file.close)
            options = pa.ipc.IpcWriteOptions(compression="lz4")
            self._writer = pa.ipc.new_stream(self._file, self.schema, options=options)
        self._writer.write_batch(batch)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yields all rows, batch by batch.

        Raises:
          OSError: the temporary file cannot be read.
        """
        yield from self._held
        if self._file is None:
            return
        if self._writer is not None:
            self._writer.close()
            self._writer = None
            self._file.flush()
        with pa.ipc.open_stream(_Reading(self._file.fileno())) as reader:
            yield from reader

    def table(self) -> pa.Table:
        """Returns all rows at once."""
        return pa.Table.from_batches(self.batches(), self.schema)


class _Reading(io.RawIOBase):
    """A pass over a file: others may read and write it at the same time."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._place = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        length = os.fstat(self._descriptor).st_size if size in (None, -1) else size
        request = self._descriptor, int(length or 0), self._place
        data = persistently(lambda: os.pread(*request), path=tempfile.gettempdir())
        self._place += len(data)
        return data


class RowSorter:
    """Sorts rows by the bytes of one column; rows of equal keys stay as they came.

        >>> sorter = RowSorter(pa.schema({"path": pa.binary()}), "path")
        >>> sorter.add(pa.record_batch({"path": [b"b", b"a"]}))
        >>> [row["path"] for row in sorter.sorted().table().to_pylist()]
        [b'a', b'b']

    Args:
      schema: of the rows.
      key: the name of a binary column without nulls.
      unique: whether to keep only the last one of rows with equal keys.
      run_rows: how many rows are sorted at once, at least.
    """

    def __init__(
        self,
        schema: pa.Schema,
        key: str,
        *,
        unique: bool = False,
        run_rows: int = _RUN_ROWS,
    ) -> None:
        self._schema = schema
        self._key = key
        self._unique = unique
        self._run_rows = run_rows
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = 0
        # Of sorted rows: their first key, and all of them.
        self._runs: list[tuple[bytes, RowSpool]] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Takes rows."""
        self._pending.append(batch)
        self._pending_rows += batch.num_rows
        if self._pending_rows >= self._run_rows:
            self._end_run()

    def sorted(self) -> RowSpool:
        """Returns all rows in order."""
        self._end_run()
        if len(self._runs) > 1:
            self._merge()
        return self._runs[0][1] if self._runs else RowSpool(self._schema)

    def _merge(self) -> None:
        """Makes one run of all."""
        out = RowSpool(self._schema)
        runs = [SortedRun(first, rows.batches()) for first, rows in self._runs]
        for batch in merge_runs(runs, self._key, self._in_order):
            out.append(batch)
        self._runs = [(min(first for first, _ in self._runs), out)]

    def _end_run(self) -> None:
        if not self._pending_rows:
            return
        rows = self._in_order(self._pending)
        self._pending, self._pending_rows = [], 0
        spool = RowSpool(self._schema)
        for start in range(0, rows.num_rows, BATCH_ROWS):
            spool.append(rows.slice(start, BATCH_ROWS))
        self._runs.append((rows[self._key][0].as_py(), spool))
        if len(self._runs) == 1:
            return
        # One may be in memory; of many, only what is merged at the time.
        for _, run in self._runs[-2:]:
            run.spill()
        if len(self._runs) == _MOST_RUNS:
            self._merge()
            self._runs[0][1].spill()

    def _in_order(self, batches: Iterable[pa.RecordBatch]) -> pa.RecordBatch:
        """Returns rows in one sorted batch."""
        rows = in_order(batches, self._key)
        keys = rows[self._key]
        if self._unique and len(keys) > 1:
            is_last = pc.not_equal(keys.slice(0, len(keys) - 1), keys.slice(1))
            if not pc.all(is_last).as_py():
                rows = rows.filter(pa.array([*is_last.to_pylist(), True]))
        return rows


def in_order(batches: Iterable[pa.RecordBatch], key: str) -> pa.RecordBatch:
    """Returns rows in one sorted batch; those of equal keys stay as they came."""
    rows = _joined(batches)
    keys = rows[key]
    return rows if _is_ascending(keys) else rows.take(pc.array_sort_indices(keys))


def _joined(batches: Iterable[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def _is_ascending(keys: pa.BinaryArray) -> bool:
    if len(keys) < 2:
        return True
    before, behind = keys.slice(0, len(keys) - 1), keys.slice(1)
    return bool(pc.all(pc.less_equal(before, behind)).as_py())


class SortedRun:
    """Sorted rows that are being merged.

    Attributes:
      first: a key that no row is before.
      last: the last key of the rows at hand.
    """

    def __init__(self, first: bytes, batches: Iterator[pa.RecordBatch]) -> None:
        """Makes a run; no batch is taken before its turn.

        Args:
          first: see above.
          batches: of the rows: one at least, and none of them empty.
        """
        self.first = first
        self.last = b""
        self._batches = batches
        self._at_hand: pa.RecordBatch | None = None
        # Rows of the batch that was taken last.
        self._size = 0

    def advance(self, key: str) -> None:
        """Takes the next batch, where few rows are at hand.

        So runs stay close together, and many rows are merged at a time.
        """
        left = self._at_hand
        if left is not None and 2 * left.num_rows >= self._size:
            return
        batch = next(self._batches, None)
        if batch is None:
            return
        self._size = batch.num_rows
        self.last = batch[key][-1].as_py()
        self._at_hand = (
            _joined([left, batch]) if left is not None and left.num_rows else batch
        )

    @property
    def is_done(self) -> bool:
        """Whether nothing is left."""
        return self._at_hand is None or not self._at_hand.num_rows

    def up_to(self, bound: bytes, key: str) -> pa.RecordBatch:
        """Takes the rows at hand whose keys are at most `bound`."""
        assert self._at_hand is not None
        rows, keys = self._at_hand, self._at_hand[key]
        stop = len(keys)
        if self.last > bound:
            places = range(stop)
            stop = bisect.bisect_right(places, bound, key=lambda n: keys[n].as_py())
        self._at_hand = rows.slice(stop)
        return rows.slice(0, stop)


def merge_runs(
    runs: Sequence[SortedRun],
    key: str,
    join: Callable[[Iterable[pa.RecordBatch]], pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of all runs in order; holds a batch of each that is begun.

    Args:
      runs: which have no key in common, or each has it once: such rows come in the
        order of the runs.
      key: the name of a binary column without nulls.
      join: makes one sorted batch of several.
    """
    order = {run: number for number, run in enumerate(runs)}
    waiting = collections.deque(sorted(order, key=lambda run: run.first))
    begun: list[SortedRun] = []
    while waiting or begun:
        bound = min((run.last for run in begun), default=b"")
        while waiting and (not begun or waiting[0].first <= bound):
            run = waiting.popleft()
            run.advance(key)
            begun.append(run)
            bound = min(active.last for active in begun)
        begun.sort(key=order.__getitem__)
        parts = [batch for run in begun if (batch := run.up_to(bound, key)).num_rows]
        yield parts[0] if len(parts) == 1 else join(parts)
        # Before there are more rows in memory.
        del parts
        for run in begun:
            run.advance(key)
        begun = [run for run in begun if not run.is_done]
