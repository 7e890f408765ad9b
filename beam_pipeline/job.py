"""The graph on one screen: what a planned job does on Beam."""

import dataclasses
import datetime
import platform

import apache_beam as beam
import pyarrow as pa

from beam_pipeline.plan import Plan
from beam_pipeline.version import __version__
from transforms.census import TakeCensus
from transforms.commit import CommitDataset, Publication
from transforms.core.model import Batch, Block
from transforms.core.placing.placement import Sharding, SplitSource
from transforms.core.placing.vocabulary import Vocabulary
from transforms.core.schema import Kind
from transforms.formats.source import Source
from transforms.list import ListBlocks
from transforms.place import PlaceRows
from transforms.read import ReadBlocks
from transforms.settle import SettleSplits
from transforms.shard_file import ShardLayout
from transforms.store import Store
from transforms.stratify import AwaitStrata, TakeStrata
from transforms.write import WriteShards

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
    """

    source: Source
    sharding: Sharding
    layout: ShardLayout
    store: Store
    publication: Publication
    vocabularies: dict[str, Vocabulary]
    split_table: str
    split_lock: str
    settle: SettleSplits | None
    fingerprint_units: bool


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
    blocks = pipeline | "List" >> ListBlocks(job.source)
    strata = None
    if job.sharding.rule.source is SplitSource.STRATIFIED:
        strata = _strata(blocks, job, between)
        blocks = blocks | "Await strata" >> AwaitStrata(strata)
    read = blocks | "Read" >> ReadBlocks(job.source, store)
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
    census = beam.pvalue.AsSingleton(
        placed.facts | "Take census" >> TakeCensus(job.vocabularies)
    )
    written = (
        placed.segments
        # ((split, shard), segment) -> ((split, shard), [segment, ...]), in any order
        | "Group by shard" >> beam.GroupByKey()
        | "Write" >> WriteShards(job.layout, store, census)
    )
    facts = [
        *(read.facts, read.rejects, placed.facts, placed.rejects),
        *(written.shards, written.rejects),
    ]
    if job.settle is not None:
        found = (placed.fingerprints, written.fingerprints)
        facts.append(
            found | "Flatten fingerprints" >> beam.Flatten() | "Settle" >> job.settle
        )
    return (
        facts
        | "Flatten facts" >> beam.Flatten()
        | "Commit" >> CommitDataset(job.publication, store, census)
    )


def _strata(
    blocks: beam.PCollection[Block], job: Job, between: beam.PTransform | None
) -> beam.pvalue.AsSingleton:
    """Reads all rows a first time to find where each class is cut."""
    batches = blocks | "Read first" >> ReadBlocks(job.source, job.store)
    batches = batches.batches
    if between is not None:
        batches = batches | "Between first" >> between
    taking = TakeStrata(job.sharding.rule, job.store, lock=job.split_lock)
    return beam.pvalue.AsSingleton(batches | "Stratify" >> taking)


def _settle(plan: Plan, source: Source, store: Store) -> SettleSplits | None:
    """Returns the stage that looks at where everything went, if it has to."""
    splits = plan.splits
    images = plan.planned.schema.of_kind(Kind.IMAGE) and len(splits.rule.names) > 1
    if not images and not splits.with_fingerprints:
        return None
    return SettleSplits(
        store,
        identity=splits.identity,
        keyed=splits.keyed,
        lock=splits.lock_in(store),
        make_lock=bool(splits.lock_path),
        table=splits.table_in(store),
        root=plan.inputs.root if source.many_origins else None,
    )


def make_job(plan: Plan) -> Job:
    """Returns what the stages are given for a plan; each its own values only."""
    spec, planned = plan.spec, plan.planned
    source = planned.make(plan.listing_path)
    started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    store = Store(plan.work_folder, inline=plan.inline)
    settle = _settle(plan, source, store)
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
            fingerprints=settle is not None,
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
                "workers": plan.workers,
                "versions": {
                    "beam-tfrecord": __version__,
                    "apache-beam": beam.version.__version__,
                    "pyarrow": pa.__version__,
                    "python": platform.python_version(),
                },
            },
            skipped=planned.skipped,
            expected_rows=planned.expected_rows,
            max_reject_rate=spec.max_reject_rate,
            allow_empty=spec.allow_empty,
            label_map=planned.label_map,
        ),
        vocabularies=plan.vocabularies,
        split_table=plan.splits.table_in(store),
        split_lock=plan.splits.lock_in(store),
        settle=settle,
        fingerprint_units=plan.splits.with_fingerprints,
    )
