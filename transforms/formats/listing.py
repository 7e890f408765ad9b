"""The listing of a source's inputs: a file of the work folder, or within the source.

The file is an Arrow IPC file whose batches have `BATCH_ROWS` rows, but for the last:
who wants some rows reads the batches that hold them.
"""

import abc
import contextlib
import dataclasses
import functools
from collections.abc import Iterator
from typing import Any, Self

import pyarrow as pa

from transforms.core.arrays import regrouped
from transforms.storage.drafts import CountedSink
from transforms.storage.files import storage
from transforms.storage.paths import is_remote
from transforms.storage.retry import persistently, storing
from transforms.storage.row_spool import BATCH_ROWS, RowSpool

# Up to this size, a worker that asks again and again has it in memory.
_HELD_BYTES = 16 << 20
# A longer one in a store is not fetched whole.
_WHOLE_BYTES = 64 << 20


class HeldListing(abc.ABC):
    """A listing that needs no file in a work folder; small, and sent to the workers."""

    @abc.abstractmethod
    def table(self) -> pa.Table:
        """Returns the listing as the format draws it."""


@dataclasses.dataclass(frozen=True, slots=True)
class InlineListing(HeldListing):
    """A listing within the source itself.

        >>> listing = InlineListing.of(pa.table({"path": ["a.csv"]}))
        >>> listing.table().to_pylist()
        [{'path': 'a.csv'}]

    Attributes:
      data: an Arrow IPC stream, compressed.
    """

    data: bytes

    @classmethod
    def of(cls, table: pa.Table) -> Self:
        """Returns the listing that gives this table."""
        out = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_stream(out, table.schema, options=options) as writer:
            writer.write_table(table)
        return cls(out.getvalue().to_pybytes())

    def table(self) -> pa.Table:
        """Returns the listing as the format draws it."""
        return pa.ipc.open_stream(self.data).read_all()


class OpenListing:
    """A listing whose rows are read as they are asked for.

    Attributes:
      count: how many rows it has.
    """

    def __init__(self, table: pa.Table | None, reader: Any) -> None:
        """Takes a listing that is held, or the reader of one that is stored."""
        self._table = table
        self._reader = reader
        if table is not None:
            self.count = table.num_rows
            return
        self._batches = reader.num_record_batches
        self.count = 0
        if self._batches:
            last = reader.get_batch(self._batches - 1)
            self.count = (self._batches - 1) * BATCH_ROWS + last.num_rows

    def rows(self, start: int, stop: int) -> pa.Table:
        """Returns the rows [start, stop)."""
        if self._table is not None:
            return self._table.slice(start, stop - start)
        first = start // BATCH_ROWS
        batches = [
            self._reader.get_batch(number)
            for number in range(first, min(-(-stop // BATCH_ROWS), self._batches))
        ]
        table = pa.Table.from_batches(batches, self._reader.schema)
        return table.slice(start - first * BATCH_ROWS, stop - start)

    def pieces(self) -> Iterator[pa.Table]:
        """Yields all rows, some at a time."""
        size = self.count if self._table is not None else BATCH_ROWS
        for start in range(0, self.count, max(size, 1)):
            yield self.rows(start, start + size)


@contextlib.contextmanager
def opened(listing: str | HeldListing) -> Iterator[OpenListing]:
    """Opens a listing: one that is held, or the path of one that is stored.

    Raises:
      OSError, StorageError: it cannot be read.
    """
    if isinstance(listing, HeldListing):
        yield OpenListing(listing.table(), None)
        return
    entry = storage(listing).stat_entry("")
    if entry.size <= _HELD_BYTES:
        yield _held(listing, entry.size, entry.modified_ns)
        return
    is_long = is_remote(listing) and entry.size > _WHOLE_BYTES
    source = (
        storage(listing).open_unbuffered() if is_long else storage(listing).mapped()
    )
    with source:
        yield OpenListing(None, pa.ipc.open_file(source))


@functools.lru_cache(maxsize=2)
def _held(path: str, _size: int, _modified_ns: int) -> OpenListing:
    """Returns a listing that is read into memory.

    A mapped file would keep the work folder from being removed, on NFS.
    """
    stored = pa.ipc.open_file(pa.py_buffer(storage(path).read_bytes()))
    return OpenListing(stored.read_all(), None)


def write_listing(rows: RowSpool, path: str, *, attempts: str) -> None:
    """Writes a listing to a file, batch by batch.

    Args:
      rows: of the listing.
      path, attempts: see `StoredPath.create`.

    Raises:
      StorageError: it could not be written; nothing has appeared.
    """

    def once() -> None:
        with (
            storage(path).create(attempts=attempts, durable=False) as sink,
            pa.ipc.new_file(CountedSink(sink), rows.schema) as writer,
        ):
            for batch in regrouped(rows.batches(), BATCH_ROWS):
                writer.write_batch(batch)

    with storing(path):
        persistently(once, path=path)
