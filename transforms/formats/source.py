"""The interface of an input format to the stages: blocks, and their rows.

A new format is one module beside this one and one entry in `registry.FORMATS`.
Sources travel to the workers: frozen, small, and without open files.
"""

import abc
import dataclasses
import hashlib
import pickle
from collections.abc import Iterator
from typing import ClassVar

import pyarrow as pa

from transforms.core.model import Block, Reading
from transforms.core.schema import Schema
from transforms.formats.listing import HeldListing


class Source(abc.ABC):
    """A planned source: where the inputs are and how their rows are typed.

    Attributes:
      schema: the features of every row.
      many_origins: whether a batch spans several origins, each row with its own.
      origins_name_rows: whether a row's origin alone says where it is, as that of an
        image in a tree does.
      listing: of the inputs: the path of the file that holds it, or itself.
    """

    schema: Schema
    many_origins: ClassVar[bool]
    origins_name_rows: ClassVar[bool]
    listing: str | HeldListing

    @abc.abstractmethod
    def inputs(self) -> Iterator[int]:
        """Yields the number of each input that `blocks` can cut by itself."""

    @abc.abstractmethod
    def blocks(self, number: int) -> Iterator[Block]:
        """Yields the blocks of one input, in source order."""

    @abc.abstractmethod
    def read(self, block: Block) -> Iterator[Reading]:
        """Yields what became of the rows of a block, in source order.

        Most formats yield once. What can only be read from its beginning, a compressed
        file or an archive, is one block and yields piece after piece, each with a
        block of its own in its batch: (origin, start) tells all pieces of a job apart.
        """

    def input_digest(self, block: Block, *, by_position: bool) -> str:
        """Returns a digest of what decides the rows of a block: of equal ones, equal.

        Args:
          block: of this source.
          by_position: whether it matters how much input is before each row.
        """
        digest = hashlib.blake2b(self.planned_digest(), digest_size=16)
        digest.update(self.facts_of(block, by_position=by_position))
        return digest.hexdigest()

    def planned_digest(self) -> bytes:
        """Returns a digest of all that planning decided; not of the listing."""
        # That it is a dataclass is what makes it travel; mypy cannot know.
        plain = dataclasses.replace(self, listing="")  # type: ignore[type-var]
        return hashlib.blake2b(pickle.dumps(plain), digest_size=16).digest()

    def facts_of(self, block: Block, *, by_position: bool) -> bytes:
        """Returns what the rows of a block depend on, beside what was planned."""
        if not by_position:
            block = dataclasses.replace(block, position=0)
        return repr(dataclasses.astuple(block)).encode("utf-8", "surrogatepass")

    def listed_as(self, number: int) -> tuple[str, int] | None:
        """Returns a digest of what decides the blocks of an input, and its position.

        The position, in bytes of input, is not part of the digest. None: the blocks
        are as quickly cut as looked up.
        """
        return None


def run_facts(run: pa.Table, *, by_position: bool) -> bytes:
    """Returns what a listing says of the files of a run of it."""
    if not by_position:
        run = run.drop_columns("position")
    (rows,) = run.combine_chunks().to_batches() or [None]
    return b"" if rows is None else rows.serialize().to_pybytes()
