"""The stage `gather`: rows of a pipeline -> sorted runs, one element a bundle."""

import dataclasses
import itertools
import secrets
from collections.abc import Iterable, Sequence
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from transforms import files
from transforms.core.model import Rejection, task_of
from transforms.gather.bundle import BundleRows, GatheredBundle, GatherRule
from transforms.publishing.shared_run import SharedRun
from transforms.work.rejects import RejectGatherer

ROWS_ORIGIN = "rows"
"""What the account of a job calls the rows of a pipeline."""


_WORD_BYTES = 8


@dataclasses.dataclass
class GatherRows(beam.PTransform):
    """Sorts rows into runs, and counts what they hold.

    Input: rows, one by one or as Arrow batches. Output: a GatheredBundle for each
    bundle with rows. The stage has no side input: engines break the fusion of stages
    there, and each row would cross to the engine and back. Each attempt writes files
    of its own, and only what it has returned names them. Rows that no run holds are
    rejects. Counters: rows_gathered, rows_rejected.

    Attributes:
      rule: what rows are known by.
      run: that they are rows of.
      overwrite: whether the run may replace a dataset. A worker looks at the target
        before it takes the first row.
    """

    rule: GatherRule
    run: SharedRun
    overwrite: bool

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, rows: beam.PCollection[Any]) -> beam.PCollection[GatheredBundle]:
        """Gathers each bundle by itself."""
        return rows | "Sort" >> beam.ParDo(
            _SortRows(self.rule, self.run, self.overwrite)
        ).with_output_types(GatheredBundle)


class _SortRows(beam.DoFn):
    def __init__(self, rule: GatherRule, run: SharedRun, overwrite: bool) -> None:
        super().__init__()
        self.rule = rule
        self.run = run
        self.overwrite = overwrite
        self.rows_gathered = beam.metrics.Metrics.counter("gather", "rows_gathered")
        self.rows_rejected = beam.metrics.Metrics.counter("gather", "rows_rejected")

    def setup(self) -> None:
        self.store = self.run.begin(overwrite=self.overwrite)

    def start_bundle(self) -> None:
        self.attempt, self.runs = secrets.token_hex(_WORD_BYTES), itertools.count()
        self.rejects: RejectGatherer | None = None
        self.bundle = BundleRows(self.rule, self._store, files.sizes_of, self._reject)

    def process(self, element: Any) -> None:
        self.bundle.add(element)

    def finish_bundle(self) -> Iterable[WindowedValue]:
        found = self.bundle.finish()
        if found is not None:
            self.rows_gathered.inc(found.tally.rows)
            self.rows_rejected.inc(found.refusals.total)
            log = None
            if self.rejects is not None:
                self.rejects.__exit__(None, None, None)
                log = self.rejects.log
            named = dataclasses.replace(
                found, attempts=frozenset((self.attempt,)), rejects=log
            )
            yield GlobalWindows.windowed_value(named)

    def _reject(self, rejections: Sequence[Rejection]) -> None:
        if self.rejects is None:
            # Each bundle has a log of its own, in a folder of its attempt.
            store = self.run.open_attempt()
            self.rejects = store.gather_rejects(task_of("place", ROWS_ORIGIN, 0))
        self.rejects.add(rejections)

    def _store(self, pieces: Sequence[pa.Buffer]) -> str:
        return self.store.put_rows(f"{self.attempt}-{next(self.runs)}", pieces)
