"""The stage `read`: a block -> its typed rows, and the rows that do not fit."""

import dataclasses
from collections.abc import Iterator

import apache_beam as beam

from transforms.core.model import Batch, Block, ReadFacts, Reading, RejectLog
from transforms.formats.source import Source
from transforms.store import Store

__all__ = ["FACTS", "REJECTS", "ReadBlocks"]

FACTS = "facts"
REJECTS = "rejects"


@dataclasses.dataclass
class ReadBlocks(beam.PTransform):
    """Reads the rows of each block under the source's schema.

    Input: blocks. Outputs: `batches`, one a block or piece of a block, even where it
    has no row left; `facts`, a ReadFacts for each; `rejects`, a RejectLog for each
    with rejects.
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
        for reading in self.source.read(block):
            yield from self._outputs(reading)

    def _outputs(self, reading: Reading) -> Iterator[Batch | beam.pvalue.TaggedOutput]:
        batch, rejections = reading.batch, reading.rejections
        piece = batch.block
        rejected = sum(not rejection.part for rejection in rejections)
        read = batch.rows.num_rows + rejected + sum(reading.skipped.values())
        self.rows_read.inc(read)
        facts = ReadFacts(
            piece.origin,
            piece.start,
            read,
            skipped=reading.skipped,
            parts=reading.parts,
            parts_gone=reading.parts_gone,
        )
        yield beam.pvalue.TaggedOutput(FACTS, facts)
        if rejections:
            self.rows_rejected.inc(rejected)
            key = f"read\0{piece.origin}\0{piece.start}"
            log: RejectLog = self.store.put_rejects(key, rejections)
            yield beam.pvalue.TaggedOutput(REJECTS, log)
        yield batch
