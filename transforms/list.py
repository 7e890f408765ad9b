"""The stage `list`: a source -> its blocks."""

import dataclasses
from collections.abc import Iterator

import apache_beam as beam

from transforms.core.model import Block
from transforms.formats.source import Source

__all__ = ["ListBlocks"]


@dataclasses.dataclass
class ListBlocks(beam.PTransform):
    """Cuts the inputs of a source into blocks.

    Input: the pipeline's begin. Output: every block of the source once, spread over
    the workers. A retry gives the same blocks: they depend on the input alone.

    Attributes:
      source: what to list.
    """

    source: Source

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection[Block]:
        """Fans out over the inputs, then over their blocks."""
        return (
            begin
            | "Start" >> beam.Create([0])
            | "Number inputs" >> beam.FlatMap(_inputs, self.source)
            | "Spread inputs" >> beam.Reshuffle()
            | "Cut blocks" >> beam.FlatMap(_blocks, self.source)
            | "Spread blocks" >> beam.Reshuffle()
        )


def _inputs(start: int, source: Source) -> Iterator[int]:
    yield from source.inputs()


def _blocks(number: int, source: Source) -> Iterator[Block]:
    yield from source.blocks(number)
