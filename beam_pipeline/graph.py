"""A planned job, and its graph on Beam; also that of the rows of a pipeline.

convert        List > Read > ---------------- Place > Group > Write > Commit
WriteDataset   Spool > Plan, which all behind it take > Admit > Place > ...
"""

import contextlib
import dataclasses
import datetime
import functools
import platform
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from beam_pipeline.planning.like import SHARED, Like, new_features
from beam_pipeline.planning.plan import Plan
from beam_pipeline.planning.request import derived_settings
from beam_pipeline.settings.spec import Spec
from beam_pipeline.version import deciding_versions
from transforms.core.model import Batch, Block, PlaceFacts
from transforms.core.placing.sharding import ShardCounts
from transforms.core.placing.splitting import SplitSource
from transforms.core.schema import Schema
from transforms.core.segment import Segment
from transforms.errors import ConservationError
from transforms.formats.source import Source
from transforms.reading.row_filter import RowFilter, row_filter
from transforms.shards.shard_job import ShardLayout
from transforms.stages.commit import CommitDataset, commit_dataset
from transforms.stages.job_plan import (
    DriftRule,
    JobPlan,
    LeakRule,
    PlanInput,
    Publication,
)
from transforms.stages.place import CountShards, PlaceRows
from transforms.stages.read import ListBlocks, ReadBlocks, ReuseBlocks
from transforms.stages.splits import CheckLeaks, TakeStrata, await_strata
from transforms.stages.write import WriteCatalogue, WriteShards
from transforms.work.store import Store


@dataclasses.dataclass(frozen=True)
class Job:
    """A planned job.

    Attributes:
      source: where rows come from.
      plan: what the stages behind the rows need.
      resumes: whether an earlier run has left segments in the work folder.
      row_filter: of `where`; None without it.
    """

    source: Source
    plan: JobPlan
    resumes: bool
    row_filter: RowFilter | None = None


def _leak_rule(plan: Plan) -> LeakRule | None:
    """Returns what leaks between splits are looked for, if there may be any."""
    splits = plan.splits
    files = plan.planned.schema.loaded and len(splits.rule.names) > 1
    if not files and not splits.with_fingerprints:
        return None
    makes_lock = bool(splits.lock_path)
    return LeakRule(splits.identity, keyed=splits.keyed, make_lock=makes_lock)


def _shares(plan: Plan) -> dict[str, Fraction]:
    """Returns the shares of the splits; empty where anything else decides them."""
    rule = plan.sharding.rule
    shared = rule.source in (SplitSource.SHARES, SplitSource.STRATIFIED)
    if plan.splits.lock is not None or not shared:
        return {}
    return dict(zip(rule.names, rule.proportions(), strict=True))


def drift_rule(like: Like | None, spec: Spec, schema: Schema) -> DriftRule | None:
    """Returns what the commit looks for beside an earlier dataset; None for nothing.

    Args:
      like: the earlier one.
      spec: of the job.
      schema: of its rows.
    """
    if like is None:
        return None
    says_classes = spec.vocabulary is not None or any(
        said.vocabulary for said in spec.features.values()
    )
    new = tuple(new_features(like, schema))
    return DriftRule(new, like.model.classes, strict=not says_classes)


def run_facts(spec: Spec, notes: Sequence[str]) -> dict[str, Any]:
    """Returns what a manifest states of each run: it decides no byte of the shards.

    Args:
      spec: of the job.
      notes: that planning has made.
    """
    return {
        "spec": spec.to_json(),
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "notes": notes,
        "versions": {
            "apache-beam": beam.version.__version__,
            "python": platform.python_version(),
            **deciding_versions(),
        },
    }


def make_job(plan: Plan, store: Store, *, resumes: bool = False) -> Job:
    """Returns a plan with what its stages need besides.

    Args:
      plan: of the job.
      store: its work folder, made.
      resumes: whether an earlier run has left segments in the work folder.
    """
    spec, planned = plan.spec, plan.planned
    source: Source = planned.make(store.listing)
    leaks = _leak_rule(plan)
    locks = {"split_lock": plan.splits.lock_digest}
    policy = dataclasses.replace(spec.image_policy, mask_classes=planned.mask_classes)
    layout = ShardLayout(
        name=str(spec.name),
        schema=planned.schema,
        sharding=plan.sharding,
        compression=spec.compression,
        root=plan.inputs.root,
        image_policy=policy,
        many_origins=source.many_origins,
        origins_name_rows=source.reader.origins_name_rows,
        fingerprints=leaks is not None,
        derived=derived_settings(spec, planned.schema),
    )
    publication = Publication(
        directory=plan.directory,
        seen=plan.seen,
        job=plan.digest,
        layout=layout,
        settings=plan.settings,
        inputs=plan.inputs.facts(),
        run={
            **run_facts(spec, planned.notes),
            "request": dataclasses.asdict(plan.request),
            "workers": plan.workers,
            **({"locks": locks} if spec.split_lock else {}),
        },
        skipped=planned.skipped,
        expected_rows=planned.expected_rows,
        max_reject_rate=spec.max_reject_rate,
        like=drift_rule(plan.like, spec, planned.schema),
        shared_settings=SHARED if spec.part else (),
        min_records=spec.min_records,
        max_records=spec.max_records,
        label_map=planned.label_map,
        shares=_shares(plan),
    )
    table, lock = plan.splits.tables_in(store)
    job_plan = JobPlan(
        store,
        publication,
        plan.vocabularies,
        table=table,
        lock=lock,
        with_fingerprints=plan.splits.with_fingerprints,
        leaks=leaks,
    )
    chosen = row_filter(spec.where, planned.schema) if spec.where else None
    return Job(source, job_plan, resumes, chosen)


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
        strata = beam.pvalue.AsSingleton(stratified)
        blocks = blocks | "Await strata" >> beam.Map(await_strata, strata)
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
    return place_and_write(
        batches,
        plan,
        [read.facts, read.rejects],
        strata=strata,
        reused=reused,
        catalogue=plan.layout.derived.catalogue,
        leaks=plan.leaks is not None,
        commit=commit_dataset,
    )


def place_and_write(
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
        placing = reused.facts | "Placed before" >> beam.Filter(isinstance, PlaceFacts)
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
