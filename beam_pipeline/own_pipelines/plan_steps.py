"""The steps of `WriteDataset` that see the target and counts, and decide the shards."""

import secrets
from collections.abc import Iterable
from typing import Any

import apache_beam as beam

from beam_pipeline.own_pipelines.known_rows import Given
from beam_pipeline.own_pipelines.parameters import raising_of_rows
from beam_pipeline.own_pipelines.rows_plan import merge_bundles, plan_rows
from transforms.publishing.shared_run import Seen, SharedRun
from transforms.rows.tally import SpooledBundle
from transforms.stages.job_plan import JobPlan

_WORD_BYTES = 8
# Counts that wait until they are merged.
_MERGED_AT_ONCE = 64


def look_at_target(run: SharedRun, *, overwrite: bool) -> beam.PTransform:
    """Returns the stage that gives, for any one element, what is at the target."""
    look = _Look(_LookAtTarget(), run, overwrite)
    return look.with_output_types(tuple[None, Seen | SpooledBundle])


class _LookAtTarget(beam.DoFn):
    @raising_of_rows()
    def process(
        self, _: bytes, run: SharedRun, overwrite: bool, word: str = ""
    ) -> list[tuple[None, Seen]]:
        return [(None, run.look(word, overwrite=overwrite))]


class _Look(beam.ParDo):
    """Looks at the target, with a word for the submission.

    A second run of one pipeline object has another word; repeated attempts have the
    same. It would not do to draw it where the function is pickled: workers do so too.
    """

    def to_runner_api_parameter(self, *arguments: Any, **options: Any) -> Any:
        """Returns the stage as the runner gets it, each time that the pipeline runs."""
        self.kwargs = {**self.kwargs, "word": secrets.token_hex(_WORD_BYTES)}
        self.args[0].prepare()
        return super().to_runner_api_parameter(*arguments, **options)


def without_rows(bundle: SpooledBundle) -> tuple[None, Seen | SpooledBundle]:
    """Returns what `plan_bundles` needs of a bundle."""
    return None, bundle.without_rows()


@raising_of_rows()
def plan_bundles(
    element: tuple[None, Iterable[Seen | SpooledBundle]],
    run: SharedRun,
    given: Given,
    **options: Any,
) -> JobPlan:
    """Returns all that is decided once all rows are counted; see `plan_rows`."""
    # An engine may start a process for this step alone, and the plan names it.
    run.check_worker()
    parts: list[SpooledBundle] = []
    for found in element[1]:
        if isinstance(found, Seen):
            seen = found
            continue
        parts.append(found)
        if len(parts) == _MERGED_AT_ONCE:
            parts = [merge_bundles(parts)]
    return plan_rows(
        merge_bundles(parts), seen=seen, run=run, given=given.whole(), **options
    )
