"""The stage `read`: a block -> its typed rows, and the rows that do not fit."""

import dataclasses
from collections.abc import Iterator

import apache_beam as beam

from transforms.core.model import Batch, Block, ReadFacts, RejectLog
from transforms.formats.source import Source
from transforms.store import Store

__all__ = ["FACTS", "REJECTS", "ReadBlocks"]

FACTS = "facts"
REJECTS = "rejects"


@dataclasses.dataclass
class ReadBlocks(beam.PTransform):
    """Reads the rows of each block under the source's schema.

    Input: blocks. Outputs: `batches`, one a block, even where it has no row left;
    `facts`, a ReadFacts a block; `rejects`, a RejectLog for each block with rejects.
    A retry gives the same batches. Counters: rows_read, rows_rejected.

    Attributes:
      source: what the blocks are of.
      store: where long reject logs go.
    """

    source: Source
    store: Store

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, blocks: beam.PCollection[Block]) -> beam.pvalue.DoOutputsTuple:
        """Reads each block by itself."""
        return blocks | "Read rows" >> (
            beam.ParDo(_ReadRows(self.source, self.store))
            .with_output_types(Batch)
            .with_outputs(FACTS, REJECTS, main="batches")
        )


class _ReadRows(beam.DoFn):
    def __init__(self, source: Source, store: Store) -> None:
        super().__init__()
        self.source = source
        self.store = store
        self.rows_read = beam.metrics.Metrics.counter("read", "rows_read")
        self.rows_rejected = beam.metrics.Metrics.counter("read", "rows_rejected")

    def process(self, block: Block) -> Iterator[Batch | beam.pvalue.TaggedOutput]:
        batch, rejections = self.source.read(block)
        read = batch.rows.num_rows + len(rejections)
        self.rows_read.inc(read)
        yield beam.pvalue.TaggedOutput(
            FACTS, ReadFacts(block.origin, block.start, read)
        )
        if rejections:
            self.rows_rejected.inc(len(rejections))
            key = f"read\0{block.origin}\0{block.start}"
            log: RejectLog = self.store.put_rejects(key, rejections)
            yield beam.pvalue.TaggedOutput(REJECTS, log)
        yield batch
