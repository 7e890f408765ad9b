"""The stages `write` and `catalogue`: segments -> shards and catalogues."""

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindows

from transforms.core.catalogue import CataloguePart
from transforms.core.model import ShardFile, ShardKey
from transforms.core.placing.sharding import ShardCounts
from transforms.core.reasons import Reason
from transforms.core.segment import Segment, in_source_order
from transforms.core.vocabulary import (
    load_classes,
)
from transforms.errors import BeamTFRecordError
from transforms.shards.record_log import (
    PartKey,
    catalogue_part_of,
    catalogue_parts,
    write_catalogue_part,
)
from transforms.shards.shard_job import ShardJob, ShardLayout, ShardTask
from transforms.shards.write_shard import ShardGroup
from transforms.stages.job_plan import JobPlan, PlanInput, Stage
from transforms.work.receipts import FinishedShards, ShardDone, keep_shards

CATALOGUE = "catalogue"
FINGERPRINTS = "fingerprints"
REJECTS = "rejects"
# Faults that can be repaired without a change of the file's stamp (permissions, say).
_MAY_HEAL = frozenset((Reason.UNREADABLE, Reason.CHANGED_DURING_RUN))


@dataclasses.dataclass
class WriteShards(Stage):
    """Writes each shard as one TFRecord file.

    Input: (shard, its packed segments) after the GroupByKey. Outputs: `shards`, a
    ShardFile for each; `rejects`, a RejectLog for each shard with rejects;
    `catalogue`, (part, (shard, its rows)) for each where there is a catalogue. Small
    shards are made durable in groups. A retry writes the same bytes under the same
    name. Counters: rows_written, rows_rejected.

    Attributes:
      plan: of the job.
      shard_counts: the one ShardCounts of the job.
    """

    plan: PlanInput
    shard_counts: beam.pvalue.AsSingleton

    def expand(self, shards: beam.PCollection[tuple[ShardKey, Iterable[bytes]]]) -> Any:
        """Writes each shard by itself."""
        return shards | "Write file" >> (
            beam.ParDo(_WriteFile(), self.plan, self.shard_counts)
            .with_output_types(ShardFile)
            .with_outputs(REJECTS, FINGERPRINTS, CATALOGUE, main="shards")
        )


class _WriteFile(beam.DoFn):
    """Writes shards in groups, or takes those of an earlier run; gives their facts."""

    def __init__(self) -> None:
        super().__init__()
        self.rows_written = beam.metrics.Metrics.counter("write", "rows_written")
        self.rows_rejected = beam.metrics.Metrics.counter("write", "rows_rejected")

    def setup(self) -> None:
        self.finished: FinishedShards | None = None
        self.group: ShardGroup | None = None

    def start_bundle(self) -> None:
        self._discard()

    def process(
        self,
        element: tuple[ShardKey, Iterable[bytes]],
        plan: JobPlan,
        shard_counts: ShardCounts,
    ) -> Iterator[Any]:
        plan.store.check_worker()
        key, segments = element[0], in_source_order(element[1])
        self.store = plan.store
        if self.finished is None:
            self.finished = FinishedShards(plan.store)
        if self.group is None:
            classes = load_classes(shard_counts.classes, plan.store.get)
            job = ShardJob(shard_counts, classes, plan.layout, plan.store)
            self.group = ShardGroup(job)
            self.parts = catalogue_parts(shard_counts)
        input_digest = _input_digest(key, segments, shard_counts, plan.layout)
        done = self.finished.find(input_digest) if input_digest else None
        if done is not None:
            yield from self._outputs(done)
            return
        rows = sum(segment.rows for segment in segments)
        size = sum(segment.size for segment in segments)
        task = ShardTask(key, segments, rows, size, known_as=input_digest)
        with self._kept_on_error():
            self.group.add(task)
        if self.group.is_full:
            for done in self._finish():
                yield from self._outputs(done)

    def finish_bundle(self) -> Iterator[Any]:
        for done in self._finish():
            for output in self._outputs(done):
                yield _in_global_window(output)

    def teardown(self) -> None:
        self._discard()

    def _discard(self) -> None:
        group, self.group = self.group, None
        if group is not None:
            group.discard()

    @contextlib.contextmanager
    def _kept_on_error(self) -> Iterator[None]:
        """Finishes the shards that are written: the next run reuses them."""
        try:
            with self.store.at_work():
                yield
        except Exception:
            with contextlib.suppress(BeamTFRecordError, OSError):
                self._finish_group()
            raise

    def _finish(self) -> list[ShardDone]:
        if self.group is None:
            return []
        with self._kept_on_error():
            return self._finish_group()

    def _finish_group(self) -> list[ShardDone]:
        """Finishes the group, which is there; leaves a receipt of its shards."""
        assert self.group is not None
        shards = [(task.known_as, done) for task, done in self.group.finish()]
        lasting = []
        for known_as, done in shards:
            for log in done.rejects:
                self.rows_rejected.inc(log.items)
            may_heal = any(log.counts.keys() & _MAY_HEAL for log in done.rejects)
            if known_as and not may_heal:
                lasting.append((known_as, done))
        keep_shards(self.store, lasting)
        return [done for _, done in shards]

    def _outputs(self, done: ShardDone) -> Iterator[Any]:
        self.rows_written.inc(done.shard.records)
        for log in done.rejects:
            yield beam.pvalue.TaggedOutput(REJECTS, log)
        if done.fingerprints is not None:
            yield beam.pvalue.TaggedOutput(FINGERPRINTS, done.fingerprints)
        if done.rows is not None:
            shard = done.shard
            key = catalogue_part_of(self.parts, shard.split, shard.index)
            yield beam.pvalue.TaggedOutput(CATALOGUE, (key, (shard.index, done.rows)))
        yield done.shard


def _in_global_window(output: Any) -> Any:
    """Returns an output as `finish_bundle` has to give it."""
    if isinstance(output, beam.pvalue.TaggedOutput):
        value = GlobalWindows.windowed_value(output.value)
        return beam.pvalue.TaggedOutput(output.tag, value)
    return GlobalWindows.windowed_value(output)


def _input_digest(
    key: ShardKey,
    segments: Sequence[Segment],
    shard_counts: ShardCounts,
    layout: ShardLayout,
) -> str:
    """Returns a digest of what decides a shard, in one job; empty for unknown.

    Args:
      key, segments: of the shard.
      shard_counts: of the job.
      layout: of the job.
    """
    if not all(segment.input_digest for segment in segments):
        return ""
    classes = [
        (name, names.input_digest)
        for name, names in sorted(shard_counts.classes.items())
    ]
    facts = [
        *(key, shard_counts.numbering(*key), classes),
        [(seg.origin, seg.start, seg.rows, seg.input_digest) for seg in segments],
    ]
    if layout.derived.are_any:
        facts.append(dataclasses.astuple(layout.derived))
    text = json.dumps(facts).encode()
    return hashlib.blake2b(text, digest_size=16).hexdigest()


@dataclasses.dataclass
class WriteCatalogue(Stage):
    """Writes the parts of the catalogue.

    Input: (part, (shard, its rows)). Output: a CataloguePart for each part. A retry
    writes the same bytes under the same name.

    Attributes:
      plan: of the job.
      shard_counts: the one ShardCounts of the job.
    """

    plan: PlanInput
    shard_counts: beam.pvalue.AsSingleton

    def expand(
        self, rows: beam.PCollection[tuple[PartKey, tuple[int, Segment]]]
    ) -> beam.PCollection[CataloguePart]:
        """Gathers the rows of each part, and writes it."""
        return (
            rows
            | "Group by part" >> beam.GroupByKey()
            | "Write part"
            >> beam.Map(_write_catalogue_part, self.plan, self.shard_counts)
        )


def _write_catalogue_part(
    element: tuple[PartKey, Iterable[tuple[int, Segment]]],
    plan: JobPlan,
    shard_counts: ShardCounts,
) -> CataloguePart:
    """Writes one Parquet file of the catalogue: the records of a range of shards."""
    plan.store.check_worker()
    classes = load_classes(shard_counts.classes, plan.store.get)
    return write_catalogue_part(
        *element, layout=plan.layout, store=plan.store, classes=classes
    )
