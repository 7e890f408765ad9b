"""The graph on one screen: what a planned job does on Beam."""

import dataclasses
import datetime
import platform
from fractions import Fraction

import apache_beam as beam

from beam_pipeline.planning.plan import Plan
from beam_pipeline.version import deciding_versions
from transforms.core.model import Batch, Block, PlaceFacts, ReadFacts, Segment
from transforms.core.placing.placement import Sharding, SplitSource
from transforms.core.placing.vocabulary import Vocabulary
from transforms.core.schema import Kind
from transforms.formats.source import Source
from transforms.shards.write_shard import ShardLayout
from transforms.stages.commit import CommitDataset, Publication
from transforms.stages.leak_check import CheckLeaks
from transforms.stages.list import ListBlocks
from transforms.stages.place import PlaceRows
from transforms.stages.read import ReadBlocks
from transforms.stages.reuse import ReuseBlocks
from transforms.stages.shard_counts import CountShards
from transforms.stages.stratify import AwaitStrata, TakeStrata
from transforms.stages.write import WriteShards
from transforms.work.store import Store

__all__ = ["Job", "build", "make_job"]


@dataclasses.dataclass(frozen=True)
class Job:
    """What the stages are given; each of them gets its own values only.

    Attributes:
      source: where rows come from.
      sharding: where rows go.
      layout: what decides the bytes of a shard.
      store: the work folder.
      publication: what is published, and where.
      vocabularies: class names that are known beforehand, by label feature.
      keeps_work: whether the next run finds the segments of this one.
      resumes: whether an earlier run has left any.
    """

    source: Source
    sharding: Sharding
    layout: ShardLayout
    store: Store
    publication: Publication
    vocabularies: dict[str, Vocabulary]
    split_table: str
    split_lock: str
    leak_check: CheckLeaks | None
    fingerprint_units: bool
    keeps_work: bool
    resumes: bool


def build(
    pipeline: beam.Pipeline, job: Job, *, between: beam.PTransform | None = None
) -> beam.PCollection[str]:
    """Adds the whole job to a pipeline; returns the digest of what it publishes.

    Args:
      pipeline: any Beam pipeline.
      job: the planned job; its work folder must exist.
      between: own steps from Batch to Batch, one for one, between read and place.
    """
    store = job.store
    kept = store if job.keeps_work else None
    blocks = pipeline | "List" >> ListBlocks(job.source, kept)
    strata = None
    if job.sharding.rule.source is SplitSource.STRATIFIED:
        stratified = _strata(blocks, job, between)
        blocks = blocks | "Await strata" >> AwaitStrata(stratified)
        strata = beam.pvalue.AsSingleton(stratified)
    by_position = not job.sharding.shuffle
    # A user's step may depend on more than the block, so nothing can be reused.
    reused = None
    if job.resumes and strata is None and between is None:
        reused = blocks | "Reuse" >> ReuseBlocks(job.source, store, by_position)
        blocks = reused.fresh
    read = blocks | "Read" >> ReadBlocks(
        job.source, store, remembered=between is None, by_position=by_position
    )
    batches: beam.PCollection[Batch] = read.batches
    if between is not None:
        batches = batches | "Between" >> between
    schema = job.layout.schema
    placed = batches | "Place" >> PlaceRows(
        schema,
        job.sharding,
        store,
        strata=strata,
        table=job.split_table,
        lock=job.split_lock,
        with_fingerprints=job.fingerprint_units,
    )
    place_facts, segments, prints = placed.facts, placed.segments, placed.fingerprints
    if reused is not None:
        placing = reused.facts | "Placed before" >> beam.Filter(_is_placed)
        place_facts = (place_facts, placing) | "Join facts" >> beam.Flatten()
        segments = (segments, reused.segments) | "Join segments" >> beam.Flatten()
        prints = (prints, reused.fingerprints) | "Join prints" >> beam.Flatten()
    shard_counts = beam.pvalue.AsSingleton(
        place_facts | "Count shards" >> CountShards(job.vocabularies)
    )
    written = (
        segments
        # ((split, shard), segment) -> ((split, shard), [segment, ...]), in any order
        | "Group by shard" >> beam.GroupByKey()
        | "Write" >> WriteShards(job.layout, store, shard_counts)
    )
    # Only the shard counts need the names, of which there may be a million.
    numbers = placed.facts | "Without names" >> beam.Map(_without_names)
    facts = [
        *(read.facts, read.rejects, numbers, placed.rejects),
        *(written.shards, written.rejects),
        *(() if reused is None else (reused.facts, reused.rejects)),
    ]
    if job.leak_check is not None:
        found = (prints, written.fingerprints)
        facts.append(
            found
            | "Flatten fingerprints" >> beam.Flatten()
            | "Check leaks" >> job.leak_check
        )
    return (
        facts
        | "Flatten facts" >> beam.Flatten()
        | "Commit" >> CommitDataset(job.publication, store, shard_counts)
    )


def _is_placed(fact: ReadFacts | PlaceFacts) -> bool:
    return isinstance(fact, PlaceFacts)


def _without_names(facts: PlaceFacts) -> PlaceFacts:
    return dataclasses.replace(facts, labels={})


def _strata(
    blocks: beam.PCollection[Block], job: Job, between: beam.PTransform | None
) -> beam.PCollection[Segment]:
    """Reads all rows a first time to find where each class is cut."""
    batches = blocks | "Read first" >> ReadBlocks(job.source, job.store)
    batches = batches.batches
    if between is not None:
        batches = batches | "Between first" >> between
    taking = TakeStrata(job.sharding.rule, job.store, lock=job.split_lock)
    return batches | "Stratify" >> taking


def _leak_check(plan: Plan, source: Source, store: Store) -> CheckLeaks | None:
    """Returns the stage that looks at where everything went, if it has to."""
    splits = plan.splits
    images = plan.planned.schema.of_kind(Kind.IMAGE) and len(splits.rule.names) > 1
    if not images and not splits.with_fingerprints:
        return None
    return CheckLeaks(
        store,
        identity=splits.identity,
        keyed=splits.keyed,
        lock=splits.lock_in(store),
        make_lock=bool(splits.lock_path),
        table=splits.table_in(store),
        root=plan.inputs.root if source.many_origins else None,
    )


def _shares(plan: Plan) -> dict[str, Fraction]:
    """Returns the shares of splits where nothing else has a say."""
    rule = plan.sharding.rule
    alone = plan.selection is None and plan.splits.lock is None
    if not alone or rule.source not in (SplitSource.SHARES, SplitSource.STRATIFIED):
        return {}
    return dict(zip(rule.names, rule.proportions(), strict=True))


def make_job(plan: Plan, store: Store, *, resumes: bool = False) -> Job:
    """Returns what the stages are given for a plan; each its own values only.

    Args:
      plan: of the job.
      store: its work folder, made.
      resumes: whether an earlier run has left segments in the work folder.
    """
    spec, planned = plan.spec, plan.planned
    source: Source = planned.make(store.listing)
    started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    if plan.selection is not None:
        source = plan.selection.of(source, store)
    leak_check = _leak_check(plan, source, store)
    return Job(
        source=source,
        sharding=plan.sharding,
        layout=ShardLayout(
            name=plan.name,
            schema=planned.schema,
            seed=spec.seed,
            shuffle=spec.shuffle,
            compression=spec.compression,
            root=plan.inputs.root,
            image_policy=spec.image_policy,
            many_origins=source.many_origins,
            keyed=plan.splits.keyed,
            fingerprints=leak_check is not None,
        ),
        store=store,
        publication=Publication(
            directory=plan.directory,
            seen=plan.seen,
            job=plan.digest,
            name=plan.name,
            schema=planned.schema,
            compression=spec.compression,
            splits=planned.rule.names,
            settings=plan.settings,
            inputs=plan.inputs.facts(),
            run={
                "spec": spec.to_json(),
                "started": started,
                "request": plan.request.to_json(),
                "workers": plan.workers,
                "notes": planned.notes,
                "versions": {
                    "apache-beam": beam.version.__version__,
                    "python": platform.python_version(),
                    **deciding_versions(),
                },
            },
            skipped=planned.skipped,
            expected_rows=planned.expected_rows,
            max_reject_rate=spec.max_reject_rate,
            allow_empty=spec.allow_empty,
            label_map=planned.label_map,
            new_lock=plan.splits.new_lock_in(store) if plan.splits.lock_path else "",
            keeps_work=spec.keep_work,
            selected=0 if plan.selection is None else len(plan.selection.places),
            shares=_shares(plan),
            verified=spec.verify,
        ),
        vocabularies=plan.vocabularies,
        split_table=plan.splits.table_in(store),
        split_lock=plan.splits.lock_in(store),
        leak_check=leak_check,
        fingerprint_units=plan.splits.with_fingerprints,
        keeps_work=spec.keep_work,
        resumes=resumes,
    )
