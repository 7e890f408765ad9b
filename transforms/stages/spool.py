"""The stages of a pipeline's rows: spooled, then admitted once they are counted."""

import dataclasses
import secrets
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Literal

import apache_beam as beam
import pyarrow as pa
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from transforms.core.model import (
    PlaceFacts,
    ReadFacts,
    Rejection,
    RejectLog,
    Segment,
    task_of,
)
from transforms.errors import ConservationError
from transforms.publishing.shared_run import SharedRun
from transforms.rows.spool import Spool
from transforms.rows.tables import RowRule
from transforms.rows.tally import SpooledBundle
from transforms.stages.job_plan import JobPlan, PlanInput, Stage
from transforms.storage.files import sizes_of
from transforms.work.rejects import RejectGatherer

FACTS: Final = "facts"
_WORD_BYTES = 8


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
            | "Take pieces" >> beam.FlatMap(_pieces)
        )
        return pieces, admitted.facts


def _pieces(named: tuple[str, Iterable[Segment]]) -> Iterable[Segment]:
    return named[1]


_Fact = beam.pvalue.TaggedOutput[Literal["facts"], ReadFacts | PlaceFacts | RejectLog]


def _admit(
    bundle: SpooledBundle, plan: JobPlan
) -> Iterator[tuple[str, Segment] | _Fact]:
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
