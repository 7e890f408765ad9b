"""Rows that may be more than memory holds: spooled to a temporary file, and sorted.

A `RowSpool` keeps few rows in memory, and many in a temporary file without a name, as a
compressed Arrow IPC stream; each pass reads it batch by batch. A `RowSorter` sorts runs
of rows in memory and merges them from such files. It sorts the files of a source and
the rejects of a job.
"""

import bisect
import io
import os
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from transforms.storage.retry import persistently

# Rows of a batch, about.
BATCH_ROWS = 1 << 14
# Batches are kept in memory up to this size.
_HELD_BYTES = 4 << 20
# Of rows that are sorted at once: more than memory keeps, so that a run is in a file.
_RUN_BYTES = 8 << 20
# Of a run, what a merge has in memory.
_BATCH_BYTES = 1 << 18
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
        while self._held:
            self._write(self._held.pop(0))
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
    """Sorts rows by the bytes of one column; rows of equal keys stay side by side.

        >>> sorter = RowSorter(pa.schema({"path": pa.binary()}), "path")
        >>> sorter.add(pa.record_batch({"path": [b"b", b"a"]}))
        >>> [row["path"] for row in sorter.sorted().table().to_pylist()]
        [b'a', b'b']

    Args:
      schema: of the rows.
      key: the name of a binary column without nulls.
      unique: whether to keep only the last one of rows with equal keys.
    """

    def __init__(self, schema: pa.Schema, key: str, *, unique: bool = False) -> None:
        self._schema = schema
        self._key = key
        self._unique = unique
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._runs: list[RowSpool] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Takes rows; raises OSError where the temporary file cannot be written."""
        if not batch.num_rows:
            return
        self._pending.append(batch)
        self._pending_bytes += batch.nbytes
        if self._pending_bytes >= _RUN_BYTES:
            self._end_run()

    def sorted(self) -> RowSpool:
        """Returns all rows in order."""
        self._end_run()
        return self._runs[0] if len(self._runs) == 1 else self._merged()

    def _end_run(self) -> None:
        if not self._pending:
            return
        rows = self._in_order(self._pending)
        self._pending, self._pending_bytes = [], 0
        size = min(max(rows.num_rows * _BATCH_BYTES // rows.nbytes, 1), BATCH_ROWS)
        run = RowSpool(self._schema)
        for start in range(0, rows.num_rows, size):
            run.append(rows.slice(start, size))
        self._runs.append(run)
        if len(self._runs) == _MOST_RUNS:
            self._runs = [self._merged()]

    def _merged(self) -> RowSpool:
        """Returns the rows of all runs in order; holds a batch of each in memory."""
        out = RowSpool(self._schema)
        heads = [(next(left), left) for left in (run.batches() for run in self._runs)]
        while heads:
            bound = min(rows[self._key][-1].as_py() for rows, _ in heads)
            taken, others = [], []
            for rows, left in heads:
                stop = self._count_up_to(rows, bound)
                taken.append(rows.slice(0, stop))
                rest = rows.slice(stop) if stop < len(rows) else next(left, None)
                if rest is not None:
                    others.append((rest, left))
            out.append(self._in_order(taken))
            heads = others
        return out

    def _count_up_to(self, rows: pa.RecordBatch, bound: bytes) -> int:
        """Returns how many sorted rows have keys that are at most `bound`."""
        keys, places = rows[self._key], range(len(rows))
        return bisect.bisect_right(places, bound, key=lambda n: keys[n].as_py())

    def _in_order(self, batches: Iterable[pa.RecordBatch]) -> pa.RecordBatch:
        """Returns rows in one sorted batch."""
        (rows,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
        rows = rows.take(pc.array_sort_indices(rows[self._key]))
        keys = rows[self._key]
        if self._unique and len(keys) > 1:
            is_last = pc.not_equal(keys.slice(0, len(keys) - 1), keys.slice(1))
            if not pc.all(is_last).as_py():
                rows = rows.filter(pa.array([*is_last.to_pylist(), True]))
        return rows
