"""The steps of `WriteDataset` that see the target and counts, and decide the shards."""

import secrets
from collections.abc import Iterable, Sequence
from typing import Any

import apache_beam as beam

from beam_pipeline.own_pipelines.known_rows import Given
from beam_pipeline.own_pipelines.parameters import raising_of_rows
from beam_pipeline.own_pipelines.rows_plan import (
    RowsDraft,
    RowsPlan,
    draft_rows,
    merge_bundles,
    plan_rows,
)
from transforms.gather.bundle import GatheredBundle
from transforms.gather.cuts import Cut
from transforms.publishing.shared_run import Seen, SharedRun

_WORD_BYTES = 8
# Counts that wait until they are merged.
_MERGED_AT_ONCE = 64


def look_at_target(run: SharedRun, *, overwrite: bool) -> beam.PTransform:
    """Returns the stage that gives, for any one element, what is at the target."""
    look = _Look(_LookAtTarget(), run, overwrite)
    return look.with_output_types(tuple[None, Seen | GatheredBundle])


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


def without_runs(bundle: GatheredBundle) -> tuple[None, Seen | GatheredBundle]:
    """Returns what `draft_bundles` needs of a bundle."""
    return None, bundle.without_runs()


@raising_of_rows()
def draft_bundles(
    element: tuple[None, Iterable[Seen | GatheredBundle]],
    run: SharedRun,
    given: Given,
    **options: Any,
) -> RowsDraft:
    """Returns what is decided once all rows are counted; see `draft_rows`."""
    # An engine may start a process for this step alone, and the plan names it.
    run.check_worker()
    store = run.store
    parts: list[GatheredBundle] = []
    for found in element[1]:
        if isinstance(found, Seen):
            seen = found
            continue
        parts.append(found)
        if len(parts) == _MERGED_AT_ONCE:
            parts = [merge_bundles(parts, store)]
    merged = merge_bundles(parts, store)
    return draft_rows(merged, seen=seen, given=given.whole(), **options)


@raising_of_rows()
def plan_shards(
    draft: RowsDraft,
    found: Sequence[tuple[str, Sequence[Cut]]],
    run: SharedRun,
    given: Given,
    **options: Any,
) -> RowsPlan:
    """Returns all that is decided; see `plan_rows`."""
    run.check_worker()
    return plan_rows(
        draft,
        found,
        directory=run.directory,
        store=run.store,
        names=None if given.names is None else given.names.get(),
        **options,
    )
