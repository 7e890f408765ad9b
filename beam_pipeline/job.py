"""The graph on one screen: what a planned job does on Beam."""

import dataclasses
import datetime
import platform
from fractions import Fraction

import apache_beam as beam

from beam_pipeline.planning.derived import derived_settings
from beam_pipeline.planning.plan import Plan
from beam_pipeline.version import deciding_versions
from transforms.core.model import Batch, Block, PlaceFacts, ReadFacts, Segment
from transforms.core.placing.placement import SplitSource
from transforms.core.schema import Kind
from transforms.errors import ConservationError
from transforms.formats.source import Source
from transforms.shards.shard_job import ShardLayout
from transforms.stages.commit import CommitDataset, Publication
from transforms.stages.leak_check import CheckLeaks
from transforms.stages.place import PlaceRows, ReuseBlocks
from transforms.stages.read import ListBlocks, ReadBlocks
from transforms.stages.shard_counts import CountShards
from transforms.stages.stratify import AwaitStrata, TakeStrata
from transforms.stages.write import WriteCatalogue, WriteShards
from transforms.work.store import Store


@dataclasses.dataclass(frozen=True)
class Job:
    """A plan, and what its stages need besides; each stage gets its own values only.

    Attributes:
      plan: of the job.
      store: the work folder.
      source: where rows come from.
      layout: where rows go, and what decides the bytes of a shard.
      publication: what is published, and where.
      leak_check: the stage that looks for leaks between splits, if there may be any.
      resumes: whether an earlier run has left segments in the work folder.
    """

    plan: Plan
    store: Store
    source: Source
    layout: ShardLayout
    publication: Publication
    leak_check: CheckLeaks | None
    resumes: bool


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
    store, splits = job.store, job.plan.splits
    kept = store if job.publication.keeps_work else None
    blocks = pipeline | "List" >> ListBlocks(job.source, kept, store.rules)
    strata = None
    sharding = job.layout.sharding
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
    )
    batches: beam.PCollection[Batch] = read.batches
    publication = job.publication
    if between is not None:
        publication = dataclasses.replace(
            publication, steps="add" if sharding.keyed else "drop"
        )
        batches = (
            batches
            | "Between" >> between
            | "Check rows" >> beam.Map(_checked, keyed=sharding.keyed)
        )
    placed = batches | "Place" >> PlaceRows(
        job.layout.schema,
        sharding,
        store,
        strata=strata,
        table=splits.table_in(store),
        lock=splits.lock_in(store),
        with_fingerprints=splits.with_fingerprints,
    )
    place_facts, segments, prints = placed.facts, placed.segments, placed.fingerprints
    if reused is not None:
        placing = reused.facts | "Placed before" >> beam.Filter(_is_placed)
        place_facts = (place_facts, placing) | "Join facts" >> beam.Flatten()
        segments = (segments, reused.segments) | "Join segments" >> beam.Flatten()
        prints = (prints, reused.fingerprints) | "Join prints" >> beam.Flatten()
    shard_counts = beam.pvalue.AsSingleton(
        place_facts | "Count shards" >> CountShards(job.plan.vocabularies, store)
    )
    written = (
        segments
        # ((split, shard), segment) -> ((split, shard), [segment, ...]), in any order
        | "Group by shard" >> beam.GroupByKey()
        | "Write" >> WriteShards(job.layout, store, shard_counts)
    )
    # Only the shard counts need the names and the rows of each shard. There may be a
    # million of them a batch, and the commit gathers what it gets in one place.
    totals = placed.facts | "Totals" >> beam.Map(_totals)
    facts = [
        *(read.facts, read.rejects, totals, placed.rejects),
        *(written.shards, written.rejects),
    ]
    if job.layout.derived.catalogue:
        facts.append(
            written.catalogue
            | "Catalogue" >> WriteCatalogue(job.layout, store, shard_counts)
        )
    if reused is not None:
        before = reused.facts | "Totals before" >> beam.Map(_totals)
        facts += [before, reused.rejects]
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
        | "Commit" >> CommitDataset(publication, store, shard_counts)
    )


def _checked(batch: Batch, *, keyed: bool) -> Batch:
    """Returns what a step of the user has returned, which must be a batch of rows."""
    if not isinstance(batch, Batch):
        raise ConservationError(
            f"A step between reading and writing must return batches; it returned a "
            f"{type(batch).__name__}. Return the batch, or one that was made of it: "
            f"dataclasses.replace(batch, rows=...)."
        )
    batch.check()
    if not keyed:
        batch.check_places()
    return batch


def _is_placed(fact: ReadFacts | PlaceFacts) -> bool:
    return isinstance(fact, PlaceFacts)


def _totals(facts: ReadFacts | PlaceFacts) -> ReadFacts | PlaceFacts:
    """Returns facts with all rows placed as those of one shard, and without names."""
    if not isinstance(facts, PlaceFacts):
        return facts
    total = sum(facts.rows.values())
    return dataclasses.replace(facts, rows={("", 0): total}, labels={})


def _strata(
    blocks: beam.PCollection[Block], job: Job, between: beam.PTransform | None
) -> beam.PCollection[Segment]:
    """Reads all rows once more, to count classes and find where each is cut."""
    batches = blocks | "Read first" >> ReadBlocks(job.source, job.store)
    batches = batches.batches
    if between is not None:
        batches = (
            batches
            | "Between first" >> between
            | "Check first" >> beam.Map(_checked, keyed=True)
        )
    lock = job.plan.splits.lock_in(job.store)
    taking = TakeStrata(job.layout.sharding.rule, job.store, lock=lock)
    return batches | "Stratify" >> taking


def _leak_check(plan: Plan, source: Source, store: Store) -> CheckLeaks | None:
    """Returns the stage that looks for leaks between splits, if there may be any."""
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
        root=plan.inputs.root if source.origins_name_rows else None,
    )


def _shares(plan: Plan) -> dict[str, Fraction]:
    """Returns the shares of the splits; empty where anything else decides them."""
    rule = plan.sharding.rule
    shared = rule.source in (SplitSource.SHARES, SplitSource.STRATIFIED)
    if plan.splits.lock is not None or not shared:
        return {}
    return dict(zip(rule.names, rule.proportions(), strict=True))


def make_job(
    plan: Plan, store: Store, *, resumes: bool = False, token: str = ""
) -> Job:
    """Returns a plan with what its stages need besides.

    Args:
      plan: of the job.
      store: its work folder, made.
      resumes: whether an earlier run has left segments in the work folder.
      token: see `transforms.stages.commit.Publication`.
    """
    spec, planned = plan.spec, plan.planned
    source: Source = planned.make(store.listing)
    started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    leak_check = _leak_check(plan, source, store)
    layout = ShardLayout(
        name=plan.name,
        schema=planned.schema,
        sharding=plan.sharding,
        compression=spec.compression,
        root=plan.inputs.root,
        image_policy=spec.image_policy,
        many_origins=source.many_origins,
        origins_name_rows=source.origins_name_rows,
        fingerprints=leak_check is not None,
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
            "spec": spec.to_json(),
            "started": started,
            "request": plan.request.to_json(),
            "workers": plan.workers,
            **({"locks": dict(plan.locks)} if plan.locks else {}),
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
        shares=_shares(plan),
        verified=spec.verify,
        token=token,
    )
    return Job(plan, store, source, layout, publication, leak_check, resumes)
