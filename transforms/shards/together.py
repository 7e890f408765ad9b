"""Encode many small shards together, make them durable, then give them their names.

Of a shard of some hundred rows, the calls cost more than the rows.
"""

import dataclasses
import logging
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from transforms.core.rows.record_columns import (
    count_parts,
    number_labels,
    record_columns,
)
from transforms.core.schema import Schema
from transforms.core.statistics import summarize_feature_parts
from transforms.errors import BeamTFRecordError
from transforms.shards.record_log import EncodedShard, RecordLog
from transforms.shards.shard_job import ShardJob, ShardTask, most_rows, repeated_keys
from transforms.shards.write_shard import (
    ShardDraft,
    draft_shard,
    finished_drafts,
)
from transforms.storage.drafts import (
    discard_all,
    most_drafts,
    publish_together,
)
from transforms.work.receipts import ShardDone

# A group of large files gains nothing, and keeps their names from appearing.
_BYTES = 64 << 20
# Larger shards gain nothing from their neighbours, which then only take memory.
_TOGETHER_BYTES = 1 << 22

_log = logging.getLogger(__name__)


class ShardGroup:
    """Shards of one job that get their names together.

        group = ShardGroup(ShardJob(load, shard_counts, classes, layout, store))
        group.add(ShardTask(("train", 0), segments, rows=100, size=9_000))
        if group.is_full:
            for task, finished in group.finish():
                ...

    Small shards wait until they are encoded together. Where that fails, each is encoded
    by itself, which says what is wrong with which. All files are synced before any is
    renamed. Where one sync fails for a moment, the whole group is written again, each
    shard by itself.
    """

    def __init__(self, job: ShardJob) -> None:
        self._job = job
        self._waiting: list[ShardTask] = []
        self._waiting_rows = 0
        self._waiting_bytes = 0
        self._drafts: list[tuple[ShardTask, ShardDraft]] = []
        self._bytes = 0

    def add(self, task: ShardTask) -> None:
        """Takes a shard; writes it now, or together with others.

        Errors are those of `write_shard`, for any shard of the group. Those before it
        are written then and can be finished; those behind it are dropped.
        """
        rows, size = self._waiting_rows + task.rows, self._waiting_bytes + task.size
        if not are_encoded_together(rows, size, self._job.layout.schema):
            self._write_waiting()
        self._waiting.append(task)
        self._waiting_rows += task.rows
        self._waiting_bytes += task.size

    @property
    def is_full(self) -> bool:
        """Whether the group should be finished before another shard is added."""
        shards = len(self._drafts) + len(self._waiting)
        return (
            shards * self._job.layout.derived.files_per_shard >= most_drafts()
            or self._bytes + self._waiting_bytes >= _BYTES
        )

    def finish(self) -> list[tuple[ShardTask, ShardDone]]:
        """Makes the shards durable and names them; the group is empty then.

        Returns:
          The facts of the shards, in the order in which they were added.

        Raises:
          StorageError: a shard could not be made durable, or not get its name.
          CommitError: the run was stopped; nothing was named.
          BeamTFRecordError: see `add`.
        """
        self._write_waiting()
        tasks, drafts = self._take()
        try:
            # Last look before files get names: a stopped run must put nothing more.
            publish_together(
                [file for draft in drafts for file in draft.files],
                check=self._job.store.check_goes_on,
            )
        except OSError as error:
            # One that may pass.
            _log.warning(
                "%r: %s; the %d shards of its group are written again",
                *(error.filename, error.strerror or error, len(drafts)),
            )
            finished = [draft.write_again() for draft in drafts]
        else:
            finished = finished_drafts(drafts, self._job.store)
        return [*zip(tasks, finished, strict=True)]

    def discard(self) -> None:
        """Removes the files of the group."""
        self._take_waiting()
        discard_all([file for draft in self._take()[1] for file in draft.files])

    def _write_waiting(self) -> None:
        tasks = self._take_waiting()
        for task, encoded in zip(tasks, self._encoded(tasks), strict=True):
            draft = draft_shard(task, self._job, encoded)
            self._drafts.append((task, draft))
            self._bytes += draft.content.done.shard.bytes

    def _encoded(
        self, tasks: Sequence[ShardTask]
    ) -> Sequence[EncodedShard] | Sequence[None]:
        by_themselves = [None] * len(tasks)
        if len(tasks) < 2:
            return by_themselves
        try:
            return encode_shards(tasks, self._job)
        except (BeamTFRecordError, OSError, pa.ArrowException):
            return by_themselves

    def _take_waiting(self) -> list[ShardTask]:
        tasks, self._waiting = self._waiting, []
        self._waiting_rows = self._waiting_bytes = 0
        return tasks

    def _take(self) -> tuple[list[ShardTask], list[ShardDraft]]:
        found, self._drafts, self._bytes = self._drafts, [], 0
        return [task for task, _ in found], [draft for _, draft in found]


def are_encoded_together(rows: int, size: int, schema: Schema) -> bool:
    """Whether shards are so few and small that one chunk holds the rows of all.

    Images are loaded for one shard at a time.

    Args:
      rows: of all shards.
      size: bytes of their sources.
      schema: of the rows.
    """
    if schema.loaded:
        return False
    return rows <= most_rows(len(schema.features)) and size <= _TOGETHER_BYTES


def encode_shards(tasks: Sequence[ShardTask], job: ShardJob) -> list[EncodedShard]:
    """Returns the content of shards, whose rows are encoded as those of one.

    Of a small shard the calls cost more than the rows.

    Args:
      tasks: at least one; see `are_encoded_together`.
      job: that they are of.

    Raises:
      BeamTFRecordError, OSError: something is wrong with one of them.
    """
    loaded = job.load([task.source for task in tasks])
    features = job.layout.schema.features
    table = number_labels(loaded.rows.table, features, job.classes)
    rows = dataclasses.replace(loaded.rows, table=table)
    table, positions = rows.take(0, len(rows))
    columns = record_columns(table, features)
    schema = job.layout.record_schema
    batch = pa.record_batch([columns[name] for name in schema.names], schema)
    framed = job.layout.encoder.encode_framed(batch)
    bounds = np.concatenate(([0], np.cumsum(loaded.lengths)))
    facts = {
        feature.name: summarize_feature_parts(feature, columns, bounds)
        for feature in job.layout.schema.stored
    }
    places = framed.offsets[bounds].tolist()
    numbering = job.shard_counts.numbering
    placed = rows.without_values()
    encoded = []
    for index, count in enumerate(loaded.lengths):
        start, stop = places[index : index + 2]
        first, last = bounds[index : index + 2].tolist()
        part = table.slice(first, count)
        log = RecordLog(job.layout, numbering(*tasks[index].key)[0])
        log.add(framed.offsets[first : last + 1], framed.buffer)
        repeated = repeated_keys(rows, job, first, last)
        own = {name: array.slice(first, count) for name, array in columns.items()}
        log.add_rows(placed, positions[first:last], own.__getitem__)
        statistics = {name: each[index] for name, each in facts.items() if count}
        encoded.append(
            EncodedShard(
                framed=framed.buffer.slice(start, stop - start),
                records=count,
                statistics=statistics,
                parts=count_parts(part, features) if count else {},
                log=log,
                repeated=repeated[0],
                repeated_example=repeated[1],
            )
        )
    return encoded
