"""Listings that travel with a source, instead of a file in the work folder."""

import abc
import dataclasses
from typing import Self

import pyarrow as pa

__all__ = ["HeldListing", "InlineListing"]


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
