"""The stages `list` and `read`: a source -> its blocks -> their typed rows."""

import dataclasses
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam

from transforms.core.model import (
    Batch,
    Block,
    Piece,
    ReadFacts,
    Reading,
    RejectLog,
    task_of,
)
from transforms.formats.source import Source
from transforms.stages.job_plan import Stage
from transforms.storage.paths import Access
from transforms.work.receipts import keep_block
from transforms.work.store import Store
from transforms.work.worker_check import WorkerRules, check_worker

FACTS = "facts"
REJECTS = "rejects"


class _BatchCoder(beam.coders.Coder):
    """Pickles batches; says about how large one is without pickling it.

    Beam measures the first dozen elements that a stage gives, and some of the others,
    also where the next stage takes them as they are.
    """

    def encode(self, value: Batch) -> bytes:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)

    def decode(self, encoded: bytes) -> Batch:
        batch: Batch = pickle.loads(encoded)
        return batch

    def estimate_size(self, value: Batch) -> int:
        return int(value.rows.nbytes)

    def is_deterministic(self) -> bool:
        return False

    def to_type_hint(self) -> type[Batch]:
        return Batch


beam.coders.registry.register_coder(Batch, _BatchCoder)


@dataclasses.dataclass
class ReadBlocks(Stage):
    """Reads the rows of each block under the source's schema.

    Input: blocks. Outputs: `batches`, one a block or piece of a block, even where it
    has no row left; `facts`, a ReadFacts for each; `rejects`, a RejectLog for each
    with rejects.
    A retry gives the same batches. Counters: rows_read, rows_rejected.

    Attributes:
      source: what the blocks are of.
      store: where long reject logs go.
      remembered: whether to leave receipts of the blocks for later runs.
      by_position: whether rows go by how much input is before them.
      row_filter: moves rows that are no records from a reading to what it has skipped;
        None where all rows are.
    """

    source: Source
    store: Store
    remembered: bool = False
    by_position: bool = False
    row_filter: Callable[[Reading], Reading] | None = None

    def expand(self, blocks: beam.PCollection[Block]) -> Any:
        """Reads each block by itself."""
        return blocks | "Read rows" >> (
            beam.ParDo(_ReadRows(self))
            .with_output_types(Batch)
            .with_outputs(FACTS, REJECTS, main="batches")
        )


class _ReadRows(beam.DoFn):
    def __init__(self, stage: ReadBlocks) -> None:
        super().__init__()
        self.source = stage.source
        self.store = stage.store
        self.remembered = stage.remembered
        self.by_position = stage.by_position
        self.row_filter = stage.row_filter
        self.rows_read = beam.metrics.Metrics.counter("read", "rows_read")
        self.rows_rejected = beam.metrics.Metrics.counter("read", "rows_rejected")

    def setup(self) -> None:
        self.store.check_worker()

    def process(self, block: Block) -> Iterator[Any]:
        input_digest = ""
        if self.remembered:
            input_digest = self.source.input_digest(block, by_position=self.by_position)
        pieces = 0
        for number, reading in enumerate(self.source.read(block)):
            yield from self._outputs(reading, input_digest, number)
            pieces += 1
        if input_digest and not self.store.inline:
            keep_block(self.store, input_digest, pieces)

    def _outputs(
        self, reading: Reading, input_digest: str, number: int
    ) -> Iterator[Batch | beam.pvalue.TaggedOutput]:
        if self.row_filter is not None:
            reading = self.row_filter(reading)
        batch, rejections = reading.batch, reading.rejections
        block = batch.block
        task = task_of("read", block.origin, block.start)
        log: RejectLog | None = self.store.put_rejects(task, rejections)
        rejected = 0 if log is None else log.items
        read = batch.rows.num_rows + rejected + sum(reading.skipped.values())
        self.rows_read.inc(read)
        facts = ReadFacts(
            block.origin,
            block.start,
            read,
            skipped=reading.skipped,
            parts=reading.parts,
            parts_gone=reading.parts_gone,
            roundings=reading.roundings,
        )
        yield beam.pvalue.TaggedOutput(FACTS, facts)
        if log is not None:
            self.rows_rejected.inc(rejected)
            yield beam.pvalue.TaggedOutput(REJECTS, log)
        if input_digest:
            piece = Piece(input_digest, number, facts, log)
            batch = dataclasses.replace(batch, piece=piece)
        yield batch


@dataclasses.dataclass
class ListBlocks(Stage):
    """Cuts the inputs of a source into blocks.

    Input: the pipeline's begin. Output: every block of the source once, spread over
    the workers. A retry gives the same blocks: they depend on the input alone.

    Attributes:
      source: what to list.
      rules: what is asked of the workers; see `transforms.work.store.Store`.
    """

    source: Source
    rules: WorkerRules | None = None

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection[Block]:
        """Fans out over the inputs, then over their blocks."""
        return (
            begin
            | "Start" >> beam.Create([0])
            | "Number inputs"
            >> beam.FlatMap(_inputs, self.source, self.rules, Access())
            | "Spread inputs" >> beam.Reshuffle()
            | "Cut blocks" >> beam.FlatMap(_blocks, self.source, self.rules, Access())
            | "Spread blocks" >> beam.Reshuffle()
        )


def _inputs(
    _start: int, source: Source, rules: WorkerRules | None, _access: Access
) -> Iterator[int]:
    # Where the access is unpickled, the places of the source can be reached.
    check_worker(rules)
    yield from source.inputs()


def _blocks(
    number: int, source: Source, rules: WorkerRules | None, _access: Access
) -> Iterator[Block]:
    check_worker(rules)
    yield from source.blocks(number)
