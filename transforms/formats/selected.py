"""A selection of a source's rows, by a list of places in the work folder."""

import dataclasses
import functools
import hashlib
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from transforms import files
from transforms.core.model import Block, Reading
from transforms.core.placing.placement import UInt64s
from transforms.core.placing.selection import select_rows
from transforms.core.schema import Schema
from transforms.formats.listing import HeldListing
from transforms.formats.source import Source

__all__ = ["SelectedSource"]


@dataclasses.dataclass(frozen=True, slots=True)
class SelectedSource(Source):
    """The rows of another source whose places are listed; the rest is skipped.

    Attributes:
      source: the other.
      places: path of an Arrow IPC file with a column of `selection.place_hashes`,
        ascending.
      digest: of that list.
      listing: as that of the other.
    """

    source: Source
    places: str
    digest: str
    listing: str | HeldListing

    @property
    def schema(self) -> Schema:  # type: ignore[override]
        """The features of every row."""
        return self.source.schema

    @property
    def many_origins(self) -> bool:  # type: ignore[override]
        """Whether batches carry each row's own origin."""
        return self.source.many_origins

    @property
    def origins_name_rows(self) -> bool:  # type: ignore[override]
        """Whether a row's origin alone says where it is."""
        return self.source.origins_name_rows

    def inputs(self) -> Iterator[int]:
        """Yields what the other source does."""
        return self.source.inputs()

    def blocks(self, number: int) -> Iterator[Block]:
        """Yields what the other source does."""
        return self.source.blocks(number)

    def read(self, block: Block) -> Iterator[Reading]:
        """Yields the listed rows of a block, and how many were skipped."""
        wanted = _places(self.places, self.digest)
        for reading in self.source.read(block):
            yield select_rows(reading, wanted, self.schema)

    def planned_digest(self) -> bytes:
        """Returns a digest of the list and of all that planning decided."""
        planned = self.source.planned_digest() + self.digest.encode()
        return hashlib.blake2b(planned, digest_size=16).digest()

    def facts_of(self, block: Block, *, by_position: bool) -> bytes:
        """Returns what the other source does."""
        return self.source.facts_of(block, by_position=by_position)

    def listed_as(self, number: int) -> tuple[str, int] | None:
        """Returns what the other source does: the blocks are the same."""
        return self.source.listed_as(number)


# Asked for every block; mapped, so that all workers of a machine share it.
@functools.lru_cache(maxsize=1)
def _places(path: str, _digest: str) -> UInt64s:
    table = pa.ipc.open_file(files.mapped(path)).read_all()
    return np.asarray(table[0].combine_chunks())
