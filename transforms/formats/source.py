"""What the stages ask of an input format: blocks of its inputs, and their rows.

A new format is one module beside this one and one line in `beam_pipeline.plan`.
Sources travel to the workers: frozen, small, and without open files.
"""

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

from transforms.core.model import Batch, Block, Rejection
from transforms.core.schema import Schema

__all__ = ["Source"]


@runtime_checkable
class Source(Protocol):
    """A planned source: where the inputs lie and how their rows are typed."""

    @property
    def schema(self) -> Schema:
        """The features of every row."""

    @property
    def many_origins(self) -> bool:
        """Whether a batch spans several origins, each row with its own."""

    def inputs(self) -> Iterator[int]:
        """Yields the number of each input that `blocks` can cut by itself."""

    def blocks(self, number: int) -> Iterator[Block]:
        """Yields the blocks of one input, in source order."""

    def read(self, block: Block) -> tuple[Batch, list[Rejection]]:
        """Returns the typed rows of a block, and the rows that do not fit."""
