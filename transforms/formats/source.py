"""What the stages ask of an input format: blocks of its inputs, and their rows.

A new format is one module beside this one and one line in `beam_pipeline.plan.FORMATS`.
Sources travel to the workers: frozen, small, and without open files.
"""

import abc
from collections.abc import Iterator
from typing import ClassVar

from transforms.core.model import Block, Reading
from transforms.core.schema import Schema

__all__ = ["Source"]


class Source(abc.ABC):
    """A planned source: where the inputs lie and how their rows are typed.

    Attributes:
      schema: the features of every row.
      many_origins: whether a batch spans several origins, each row with its own.
    """

    schema: Schema
    many_origins: ClassVar[bool]

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
