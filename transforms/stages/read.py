"""The stages by which rows come: listed and read of a source, or spooled and admitted.

List, Read      a source -> its blocks -> their typed rows
Reuse           blocks that an earlier run has read -> what it has stored of them
Spool, Admit    rows of a pipeline -> pieces of them, once they are counted
"""

import dataclasses
import pickle
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Literal

import apache_beam as beam
import pyarrow as pa
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from transforms.core import segment
from transforms.core.model import (
    Batch,
    Block,
    Piece,
    PlaceFacts,
    ReadFacts,
    Reading,
    RejectLog,
    task_of,
)
from transforms.core.reasons import Rejection
from transforms.core.segment import Segment
from transforms.errors import ConservationError
from transforms.formats.source import Source
from transforms.publishing.target import SharedRun
from transforms.rows.spool import Spool, SpooledBundle
from transforms.rows.typed_rows import RowRule
from transforms.stages.job_plan import JobPlan, PlanInput, Stage
from transforms.storage.files import sizes_of
from transforms.storage.paths import Access
from transforms.work.receipts import find_block, keep_block
from transforms.work.rejects import RejectGatherer
from transforms.work.store import Store
from transforms.work.worker_check import WorkerRules, check_worker

FACTS: Final = "facts"
FINGERPRINTS = "fingerprints"
REJECTS = "rejects"
SEGMENTS = "segments"
_WORD_BYTES = 8
_blocks_reused = beam.metrics.Metrics.counter("reuse", "blocks_reused")


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
    """Reads a block: gives its batches, facts and rejects, and remembers it as read."""

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
            >> beam.FlatMap(_input_numbers, self.source, self.rules, Access())
            | "Spread inputs" >> beam.Reshuffle()
            | "Cut blocks"
            >> beam.FlatMap(_blocks_of_input, self.source, self.rules, Access())
            | "Spread blocks" >> beam.Reshuffle()
        )


def _input_numbers(
    _start: int, source: Source, rules: WorkerRules | None, _access: Access
) -> Iterator[int]:
    """Yields the numbers by which `_blocks_of_input` finds the inputs of a source."""
    # Where the access is unpickled, the places of the source can be reached.
    check_worker(rules)
    yield from source.inputs()


def _blocks_of_input(
    number: int, source: Source, rules: WorkerRules | None, _access: Access
) -> Iterator[Block]:
    """Yields the blocks of one input; needs the access for its URI parameters."""
    check_worker(rules)
    yield from source.blocks(number)


@dataclasses.dataclass
class SpoolRows(Stage):
    """Stores rows as they come, and counts what they hold.

    Input: rows, one by one or as Arrow batches. Output: a SpooledBundle for each
    bundle with rows. The stage has no side input: engines break the fusion of stages
    there, and each row would cross to the engine and back. Each attempt writes files
    of its own, and only what it has returned names them. Rows that no piece holds are
    rejects. Counters: rows_gathered, rows_rejected.

    Attributes:
      rule: what rows are known by.
      run: that they are rows of.
      overwrite: whether the run may replace a dataset. A worker looks at the target
        before it takes the first row.
    """

    rule: RowRule
    run: SharedRun
    overwrite: bool

    def expand(self, rows: beam.PCollection[Any]) -> beam.PCollection[SpooledBundle]:
        """Spools each bundle by itself."""
        return rows | "Store rows" >> beam.ParDo(
            _StoreRows(self.rule, self.run, self.overwrite)
        ).with_output_types(SpooledBundle)


class _StoreRows(beam.DoFn):
    """Spools the rows of a bundle as pieces; gives the SpooledBundle of them."""

    def __init__(self, rule: RowRule, run: SharedRun, overwrite: bool) -> None:
        super().__init__()
        self.rule = rule
        self.run = run
        self.overwrite = overwrite
        self.rows_gathered = beam.metrics.Metrics.counter("gather", "rows_gathered")
        self.rows_rejected = beam.metrics.Metrics.counter("gather", "rows_rejected")

    def setup(self) -> None:
        self.store = self.run.begin(overwrite=self.overwrite)

    def start_bundle(self) -> None:
        self.word = secrets.token_hex(_WORD_BYTES)
        self.rejects: RejectGatherer | None = None
        self.spool = Spool(self.word, self.rule, self._put, sizes_of, self._reject)

    def process(self, element: Any) -> None:
        self.spool.add(element)

    def finish_bundle(self) -> Iterable[WindowedValue]:
        bundle = self.spool.finish()
        if bundle is not None:
            self.rows_gathered.inc(bundle.tally.rows)
            self.rows_rejected.inc(bundle.refused)
            if self.rejects is not None:
                bundle = dataclasses.replace(bundle, rejects=self.rejects.finish())
            yield GlobalWindows.windowed_value(bundle)

    def _put(self, name: str, messages: Sequence[pa.Buffer]) -> str:
        return self.store.put_rows(name, messages)

    def _reject(self, rejections: Sequence[Rejection]) -> None:
        if self.rejects is None:
            # Each attempt has a log of its own.
            self.rejects = self.store.gather_rejects(task_of("place", self.word, 0))
        self.rejects.add(rejections)


@dataclasses.dataclass
class AdmitRows(Stage):
    """Lets through the pieces that the plan counts, and says what came.

    Input: SpooledBundles. Outputs: `pieces`, of rows, spread over the workers; `facts`,
    of each bundle: what was read, unless a source says so, and refused.

    Attributes:
      plan: of the job.
    """

    plan: PlanInput

    def expand(self, bundles: beam.PCollection[SpooledBundle]) -> Any:
        """Admits each bundle by itself."""
        admitted = bundles | "Look up" >> (
            beam.FlatMap(_admit, self.plan)
            .with_output_types(tuple[str, Segment])
            .with_outputs(FACTS, main="pieces")
        )
        # As beam.Reshuffle does it, in fewer steps: a piece has a name of its own.
        pieces = (
            admitted.pieces
            | "Spread pieces" >> beam.GroupByKey()
            | "Take pieces" >> beam.FlatMap(_pieces_of_group)
        )
        return pieces, admitted.facts


def _pieces_of_group(named: tuple[str, Iterable[Segment]]) -> Iterable[Segment]:
    """Returns the pieces under one name: one, unless an engine gave it twice."""
    return named[1]


_Fact = beam.pvalue.TaggedOutput[Literal["facts"], ReadFacts | PlaceFacts | RejectLog]


def _admit(
    bundle: SpooledBundle, plan: JobPlan
) -> Iterator[tuple[str, Segment] | _Fact]:
    """Yields pieces and facts of a bundle; ConservationError if it was not counted."""
    plan.store.check_worker()
    assert plan.spooled is not None, "rows of a pipeline have types"
    named = {(piece.origin, piece.crc32c) for piece in bundle.pieces}
    if not named | {(bundle.word, 0)} <= plan.spooled.pieces:
        raise ConservationError(
            "Every bundle that is written must be one that was counted; the engine has "
            "given one of another attempt. Nothing was committed. Run again; where the "
            "engine does so each time, put beam.Reshuffle() before WriteDataset."
        )
    facts: list[ReadFacts | PlaceFacts | RejectLog] = [
        # What was refused was not placed, and has a place among the facts.
        PlaceFacts(bundle.word, 0, {}, labels={})
    ]
    if not plan.spooled.has_source:
        facts.append(ReadFacts(bundle.word, 0, bundle.received))
    if bundle.rejects is not None:
        facts.append(bundle.rejects)
    for fact in facts:
        yield _Fact(FACTS, fact)
    for piece in bundle.pieces:
        yield piece.origin, piece


@dataclasses.dataclass
class ReuseBlocks(Stage):
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

    def expand(self, blocks: beam.PCollection[Block]) -> Any:
        """Looks up each block by itself."""
        return blocks | "Look up" >> (
            beam.FlatMap(_look_up, self.source, self.store, self.by_position)
            .with_output_types(Block)
            .with_outputs(FACTS, REJECTS, SEGMENTS, FINGERPRINTS, main="fresh")
        )


def _look_up(
    block: Block, source: Source, store: Store, by_position: bool
) -> Iterator[Any]:
    """Yields what an earlier run has made of a block, or else the block itself."""
    store.check_worker()
    input_digest = source.input_digest(block, by_position=by_position)
    pieces = find_block(store, input_digest)
    if pieces is None:
        yield block
        return
    _blocks_reused.inc()
    for piece in pieces:
        for fact in (piece.read, piece.placed):
            yield beam.pvalue.TaggedOutput(FACTS, fact)
        for log in piece.rejects:
            yield beam.pvalue.TaggedOutput(REJECTS, log)
        for key, stored in piece.segments:
            yield beam.pvalue.TaggedOutput(SEGMENTS, (key, segment.pack(stored)))
        if piece.fingerprints is not None:
            yield beam.pvalue.TaggedOutput(FINGERPRINTS, piece.fingerprints)
