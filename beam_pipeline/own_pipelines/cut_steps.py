"""The steps of `WriteDataset` that cut sorted runs into ranges of shards."""

import secrets
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from apache_beam.pvalue import TaggedOutput

from beam_pipeline.own_pipelines.commit_rows import ComparedKeys, Refused
from beam_pipeline.own_pipelines.parameters import raising_of_rows
from beam_pipeline.own_pipelines.rows_plan import RowsDraft, RowsPlan
from transforms import files
from transforms.core.model import ShardKey
from transforms.core.placing.leakage import Fingerprints
from transforms.errors import ConservationError
from transforms.gather.bundle import GatheredBundle
from transforms.gather.cuts import Cut, even_bounds
from transforms.gather.exact_cuts import find_cuts
from transforms.gather.merge_runs import merge_ranges
from transforms.gather.row_runs import RowRange, cut_run
from transforms.gather.shard_of_runs import check_keys
from transforms.publishing.shared_run import SharedRun

_ShardRange = tuple[ShardKey, RowRange]
# Split, part of the hashes, group of runs.
_MergeKey = tuple[str, int, int]
_ToMerge = TaggedOutput[Literal["merge"], tuple[_MergeKey, RowRange]]
_OfKeys = TaggedOutput[Literal["keys"], _ShardRange]
_OfRefused = TaggedOutput[Literal["refused"], Refused]
_OfUnits = TaggedOutput[Literal["units"], Fingerprints]


def cut_large_parts(bundle: GatheredBundle, draft: RowsDraft) -> Iterator[_ShardRange]:
    """Gives ranges of runs by split and number of a large part."""
    _check_attempt(bundle, draft.gathered.attempts)
    bounds = {name: each.large_bounds for name, each in draft.cuttings.items()}
    for run in bundle.runs:
        yield from cut_run(run, bounds)


@raising_of_rows()
def find_cuts_of_part(
    element: tuple[ShardKey, Iterable[RowRange]],
    draft: RowsDraft,
    run: SharedRun,
    unique: bool,
) -> tuple[str, Sequence[Cut]]:
    """Returns a split and where a large part of it is to be cut."""
    (split, number), ranges = element
    try:
        cuts = find_cuts(
            draft.cuttings[split].large[number],
            list(ranges),
            draft.schema,
            draft.types,
            files.read_range,
            unique=unique,
        )
    except FileNotFoundError as error:
        raise run.is_gone() from error
    return split, cuts


def cut_by_shard(
    bundle: GatheredBundle, plan: RowsPlan
) -> Iterator[_ShardRange | _ToMerge | _OfKeys | _OfUnits | _OfRefused]:
    """Gives ranges of runs by shard, by group to merge, and by part of the keys.

    Beside them, where units went, and what the bundle has refused.
    """
    _check_attempt(bundle, plan.attempts)
    if bundle.rejects is not None:
        yield _OfRefused("refused", Refused(bundle.rejects))
    for run in bundle.runs:
        if plan.merging is None:
            yield from cut_run(run, plan.bounds)
            continue
        group = plan.merging.group_of(run)
        parts = dict.fromkeys(plan.bounds, even_bounds(plan.merging.parts))
        for (split, part), found in cut_run(run, parts):
            yield _ToMerge("merge", ((split, part, group), found))
    for run in bundle.keys:
        for key, found in cut_run(run, {"": plan.key_bounds}):
            yield _OfKeys("keys", (key, found))
    for units in bundle.units:
        yield _OfUnits("units", units)


def _check_attempt(bundle: GatheredBundle, counted: frozenset[str]) -> None:
    if not bundle.attempts <= counted:
        raise ConservationError(
            "Every bundle that is written must be one that was counted; the engine has "
            "given one of another attempt. Nothing was committed. Run again; where the "
            "engine does so each time, put beam.Reshuffle() before WriteDataset."
        )


def merge_group(
    element: tuple[_MergeKey, Iterable[RowRange]], plan: RowsPlan, run: SharedRun
) -> Iterator[_ShardRange]:
    """Merges runs of one group, and gives their ranges by shard."""
    (split, _, _), ranges = element
    store, word = run.store, secrets.token_hex(8)
    try:
        merged = merge_ranges(
            list(ranges),
            split,
            files.read_range,
            lambda number, pieces: store.put_rows(f"{word}-{number}", pieces),
        )
    except FileNotFoundError as error:
        raise run.is_gone() from error
    for each in merged:
        yield from cut_run(each, plan.bounds)


def compare_keys(element: tuple[ShardKey, Iterable[RowRange]]) -> ComparedKeys:
    """Returns the keys that rows of a part have in common."""
    return ComparedKeys(check_keys([*element[1]], files.read_range))
