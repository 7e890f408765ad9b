"""The stage `reuse`: blocks that an earlier run has placed, and the others."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import apache_beam as beam

from transforms.core import segment
from transforms.core.model import Block
from transforms.formats.source import Source
from transforms.work.receipts import find_block
from transforms.work.store import Store

__all__ = ["FACTS", "FINGERPRINTS", "REJECTS", "SEGMENTS", "ReuseBlocks"]

FACTS = "facts"
FINGERPRINTS = "fingerprints"
REJECTS = "rejects"
SEGMENTS = "segments"


@dataclasses.dataclass
class ReuseBlocks(beam.PTransform):
    """Reuses what an earlier run stored for a block, if that is complete.

    Input: blocks. Outputs: `fresh`, the blocks still to be read; for the others, what
    `read` and `place` gave: `facts`, `rejects`, `segments`, `fingerprints`.
    Counters: blocks_reused.

    Attributes:
      source: of the blocks.
      store: the work folder that the earlier run left.
      by_position: whether rows go by how much input is before them.
    """

    source: Source
    store: Store
    by_position: bool = False

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, blocks: beam.PCollection[Block]) -> Any:
        """Looks up each block by itself."""
        return blocks | "Look up" >> (
            beam.ParDo(_LookUp(self))
            .with_output_types(Block)
            .with_outputs(FACTS, REJECTS, SEGMENTS, FINGERPRINTS, main="fresh")
        )


class _LookUp(beam.DoFn):
    def __init__(self, stage: ReuseBlocks) -> None:
        super().__init__()
        self.source = stage.source
        self.store = stage.store
        self.by_position = stage.by_position
        self.reused = beam.metrics.Metrics.counter("reuse", "blocks_reused")

    def setup(self) -> None:
        self.store.check_worker()

    def process(self, block: Block) -> Iterator[Any]:
        input_digest = self.source.input_digest(block, by_position=self.by_position)
        pieces = find_block(self.store, input_digest)
        if pieces is None:
            yield block
            return
        self.reused.inc()
        for piece in pieces:
            for fact in (piece.read, piece.placed):
                yield beam.pvalue.TaggedOutput(FACTS, fact)
            for log in piece.rejects:
                yield beam.pvalue.TaggedOutput(REJECTS, log)
            for key, each in piece.segments:
                yield beam.pvalue.TaggedOutput(SEGMENTS, (key, segment.pack(each)))
            if piece.fingerprints is not None:
                yield beam.pvalue.TaggedOutput(FINGERPRINTS, piece.fingerprints)
