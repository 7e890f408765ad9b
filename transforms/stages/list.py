"""The stage `list`: a source -> its blocks."""

import dataclasses
from collections.abc import Iterator

import apache_beam as beam

from transforms.core.model import Block
from transforms.formats.source import Source
from transforms.storage.paths import Access
from transforms.work.receipts import find_blocks, keep_blocks
from transforms.work.store import Store
from transforms.work.worker_check import WorkerRules, check_worker

__all__ = ["ListBlocks"]


@dataclasses.dataclass
class ListBlocks(beam.PTransform):
    """Cuts the inputs of a source into blocks.

    Input: the pipeline's begin. Output: every block of the source once, spread over
    the workers. A retry gives the same blocks: they depend on the input alone.

    Attributes:
      source: what to list.
      store: where the blocks of each input are kept for later runs; None for nowhere.
      rules: what is asked of the workers; see `transforms.work.store.Store`.
    """

    source: Source
    store: Store | None = None
    rules: WorkerRules | None = None

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection[Block]:
        """Fans out over the inputs, then over their blocks."""
        return (
            begin
            | "Start" >> beam.Create([0])
            | "Number inputs"
            >> beam.FlatMap(_inputs, self.source, self.rules, Access())
            | "Spread inputs" >> beam.Reshuffle()
            | "Cut blocks"
            >> beam.FlatMap(_blocks, self.source, self.store, self.rules, Access())
            | "Spread blocks" >> beam.Reshuffle()
        )


def _inputs(
    _start: int, source: Source, rules: WorkerRules | None, _access: Access
) -> Iterator[int]:
    # Where the access is unpickled, the places of the source can be reached.
    check_worker(rules)
    yield from source.inputs()


def _blocks(
    number: int,
    source: Source,
    store: Store | None,
    rules: WorkerRules | None,
    _access: Access,
) -> Iterator[Block]:
    check_worker(rules)
    listed = None if store is None else source.listed_as(number)
    if store is None or listed is None:
        yield from source.blocks(number)
        return
    blocks = find_blocks(store, *listed)
    if blocks is None:
        blocks = list(source.blocks(number))
        keep_blocks(store, *listed, blocks)
    yield from blocks
