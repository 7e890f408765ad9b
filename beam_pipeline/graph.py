"""The graphs on one screen: what a planned job does on Beam, and rows of a pipeline.

convert        List > Read > ---------------- Place > Group > Write > Commit
WriteDataset   Spool > Plan, which all behind it take > Admit > Place > ...
"""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from beam_pipeline.job import Job
from transforms.core.model import Batch, Block, PlaceFacts, ReadFacts, Segment
from transforms.core.placing.placement import SplitSource
from transforms.core.placing.shard_rows import ShardCounts
from transforms.errors import ConservationError
from transforms.rows.tally import SpooledBundle
from transforms.stages.commit import CommitDataset, commit_job
from transforms.stages.job_plan import JobPlan, PlanInput
from transforms.stages.leak_check import CheckLeaks
from transforms.stages.place import PlaceRows, ReuseBlocks
from transforms.stages.read import ListBlocks, ReadBlocks
from transforms.stages.spool import AdmitRows
from transforms.stages.stratify import AwaitStrata, TakeStrata
from transforms.stages.write import CountShards, WriteCatalogue, WriteShards


@contextlib.contextmanager
def views_made_once(options: PipelineOptions) -> Iterator[None]:
    """Has options give the same view each time that Beam asks for it.

    Beam asks for a few of them at every step of a graph, and makes a parser of flags
    for each: a quarter of a second in all.
    """
    vars(options)["view_as"] = functools.lru_cache(64)(options.view_as)
    try:
        yield
    finally:
        vars(options).pop("view_as", None)


def build(
    pipeline: beam.Pipeline, job: Job, *, between: beam.PTransform | None = None
) -> beam.PCollection[str]:
    """Adds the whole job to a pipeline; returns the digest of what it publishes.

    Args:
      pipeline: any Beam pipeline.
      job: the planned job; its work folder must exist.
      between: own steps from Batch to Batch, at most one for each, between read and
        place. They may drop rows, and add some where rows have keys.
    """
    plan, sharding = job.plan, job.plan.layout.sharding
    store, publication = plan.store, plan.publication
    blocks = pipeline | "List" >> ListBlocks(job.source, store.rules)
    strata = None
    if sharding.rule.source is SplitSource.STRATIFIED:
        stratified = _strata(blocks, job, between)
        blocks = blocks | "Await strata" >> AwaitStrata(stratified)
        strata = beam.pvalue.AsSingleton(stratified)
    by_position = not sharding.shuffle
    # A user's step may depend on more than the block, so nothing can be reused.
    reused = None
    if job.resumes and strata is None and between is None:
        reused = blocks | "Reuse" >> ReuseBlocks(job.source, store, by_position)
        blocks = reused.fresh
    read = blocks | "Read" >> ReadBlocks(
        job.source,
        store,
        remembered=between is None,
        by_position=by_position,
        row_filter=job.row_filter,
    )
    batches: beam.PCollection[Batch] = read.batches
    if between is not None:
        publication = dataclasses.replace(
            publication, steps="add" if sharding.keyed else "drop"
        )
        plan = dataclasses.replace(plan, publication=publication)
        batches = (
            batches
            | "Between" >> between
            | "Check rows" >> beam.Map(_checked, keyed=sharding.keyed)
        )
    return _place_and_write(
        batches,
        plan,
        [read.facts, read.rejects],
        strata=strata,
        reused=reused,
        catalogue=plan.layout.derived.catalogue,
        leaks=plan.leaks is not None,
        commit=commit_job,
    )


def build_rows(
    bundles: beam.PCollection[SpooledBundle],
    plan: beam.PCollection[JobPlan],
    facts: list[beam.PCollection[Any]],
    *,
    catalogue: bool,
    commit: Callable[[list[Any], ShardCounts, JobPlan], Any],
) -> beam.PCollection[Any]:
    """Adds what follows when rows are spooled and planned; returns what is committed.

    Args:
      bundles: the spooled rows.
      plan: of them, one element.
      facts: of the source that the rows were read from, if there is one.
      catalogue: whether there may be one.
      commit: commits the facts of the whole job.
    """
    planned = beam.pvalue.AsSingleton(plan)
    pieces, admitted = bundles | "Admit" >> AdmitRows(planned)
    return _place_and_write(
        pieces,
        planned,
        [admitted, *facts],
        catalogue=catalogue,
        leaks=True,
        commit=commit,
    )


def _place_and_write(
    rows: beam.PCollection[Any],
    plan: PlanInput,
    facts: list[beam.PCollection[Any]],
    *,
    catalogue: bool,
    leaks: bool,
    commit: Callable[[list[Any], ShardCounts, JobPlan], Any],
    strata: beam.pvalue.AsSingleton | None = None,
    reused: Any = None,
) -> beam.PCollection[Any]:
    """Adds what places, writes and commits rows, whoever has read them.

    Args:
      rows: batches, or spooled pieces.
      plan: of the job.
      facts: of what has read the rows.
      catalogue: whether there may be one.
      leaks: whether the plan may ask for leaks between splits.
      commit: commits the facts of the whole job.
      strata: for a stratified split, where the Strata of all rows are stored.
      reused: what earlier runs have read and placed.
    """
    placed = rows | "Place" >> PlaceRows(plan, strata)
    place_facts, segments, prints = placed.facts, placed.segments, placed.fingerprints
    if reused is not None:
        placing = reused.facts | "Placed before" >> beam.Filter(_is_placed)
        place_facts = (place_facts, placing) | "Join facts" >> beam.Flatten()
        segments = (segments, reused.segments) | "Join segments" >> beam.Flatten()
        prints = (prints, reused.fingerprints) | "Join prints" >> beam.Flatten()
    counts = place_facts | "Count" >> CountShards(plan)
    shard_counts = beam.pvalue.AsSingleton(counts)
    written = (
        segments
        # ((split, shard), segment) -> ((split, shard), [segment, ...]), in any order
        | "Group by shard" >> beam.GroupByKey()
        | "Write" >> WriteShards(plan, shard_counts)
    )
    facts = [*facts, placed.facts, placed.rejects, written.shards, written.rejects]
    if catalogue:
        catalogued = written.catalogue | "Catalogue" >> WriteCatalogue(
            plan, shard_counts
        )
        facts.append(catalogued)
    if reused is not None:
        facts += [reused.facts, reused.rejects]
    if leaks:
        prints = (prints, written.fingerprints) | "Join all prints" >> beam.Flatten()
        facts.append(prints | "Check leaks" >> CheckLeaks(plan))
    return (
        facts
        | "Flatten facts" >> beam.Flatten()
        | "Commit" >> CommitDataset(plan, counts, commit)
    )


def _checked(batch: Batch, *, keyed: bool) -> Batch:
    """Returns what a step of the user has returned, which must be a batch of rows."""
    if not isinstance(batch, Batch):
        raise ConservationError(
            f"A step between reading and writing must return batches; it returned a "
            f"{type(batch).__name__}. Return the batch, or one that was made of it: "
            f"dataclasses.replace(batch, rows=...)."
        )
    batch.check(keyed=keyed)
    return batch


def _is_placed(fact: ReadFacts | PlaceFacts) -> bool:
    return isinstance(fact, PlaceFacts)


def _strata(
    blocks: beam.PCollection[Block], job: Job, between: beam.PTransform | None
) -> beam.PCollection[Segment]:
    """Reads all rows once more, to count classes and find where each is cut."""
    batches = blocks | "Read first" >> ReadBlocks(
        job.source, job.plan.store, row_filter=job.row_filter
    )
    batches = batches.batches
    if between is not None:
        batches = (
            batches
            | "Between first" >> between
            | "Check first" >> beam.Map(_checked, keyed=True)
        )
    rule = job.plan.layout.sharding.rule
    taking = TakeStrata(rule, job.plan.store, lock=job.plan.lock)
    return batches | "Stratify" >> taking
