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
from transforms.core.model import Batch
from transforms.core.placement import Sharding
from transforms.formats.source import Source
from transforms.list import ListBlocks
from transforms.place import PlaceRows
from transforms.read import ReadBlocks
from transforms.shard_file import ShardLayout
from transforms.store import Store
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
      classes: class names that are known beforehand, by label feature.
    """

    source: Source
    sharding: Sharding
    layout: ShardLayout
    store: Store
    publication: Publication
    classes: dict[str, tuple[str, ...]]


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
    read = (
        pipeline
        | "List" >> ListBlocks(job.source)
        | "Read" >> ReadBlocks(job.source, store)
    )
    batches: beam.PCollection[Batch] = read.batches
    if between is not None:
        batches = batches | "Between" >> between
    schema = job.layout.schema
    placed = batches | "Place" >> PlaceRows(schema, job.sharding, store)
    census = beam.pvalue.AsSingleton(
        placed.facts | "Take census" >> TakeCensus(job.classes)
    )
    written = (
        placed.segments
        # ((split, shard), segment) -> ((split, shard), [segment, ...]), in any order
        | "Group by shard" >> beam.GroupByKey()
        | "Write" >> WriteShards(job.layout, store, census)
    )
    return (
        (read.facts, read.rejects, placed.facts, written.shards, written.rejects)
        | "Flatten facts" >> beam.Flatten()
        | "Commit" >> CommitDataset(job.publication, store, census)
    )


def make_job(plan: Plan) -> Job:
    """Returns what the stages are given for a plan; each its own values only."""
    spec, planned = plan.spec, plan.planned
    source = planned.make(plan.listing_path)
    started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
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
            image_check=spec.image_check,
        ),
        store=Store(plan.work_folder, inline=plan.inline),
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
        ),
        classes=planned.classes,
    )
