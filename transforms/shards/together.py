"""Encode many small shards together, make them durable, then give them their names.

Of a shard of some hundred rows, the calls cost more than the rows.
"""

import contextlib
import logging
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from transforms.core.rows.record_columns import count_parts, record_columns
from transforms.errors import BeamTFRecordError
from transforms.shards.shard_job import ShardJob, ShardTask, most_rows
from transforms.shards.shard_records import Written
from transforms.shards.write_shard import (
    EncodedShard,
    ShardDraft,
    draft_shard,
    finished_drafts,
    write_shard,
)
from transforms.storage.drafts import discard_all, most_drafts, publish_together
from transforms.work.receipts import ShardDone

# A group of large files gains nothing, and keeps their names from appearing.
_BYTES = 64 << 20
# Larger shards gain nothing from their neighbours, which then only take memory.
_TOGETHER_BYTES = 1 << 22

_log = logging.getLogger(__name__)


class ShardGroup:
    """Shards of one job that get their names together.

        group = ShardGroup(ShardJob(shard_counts, classes, layout, store))
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
        self._drafts: list[tuple[ShardTask, ShardDraft]] = []

    def add(self, task: ShardTask) -> None:
        """Takes a shard; writes it now, or together with others.

        Errors are those of `write_shard`, for any shard of the group. Those before it
        are written then and can be finished; those behind it are dropped.
        """
        if not self._fits_together([*self._waiting, task]):
            self._write_waiting()
        self._waiting.append(task)

    def _fits_together(self, tasks: Sequence[ShardTask]) -> bool:
        """Whether shards are so few and small that one chunk holds the rows of all."""
        schema = self._job.layout.schema
        if schema.loaded:
            # Images are loaded for one shard at a time.
            return False
        rows = sum(task.rows for task in tasks)
        size = sum(task.size for task in tasks)
        return rows <= most_rows(len(schema.features)) and size <= _TOGETHER_BYTES

    @property
    def is_full(self) -> bool:
        """Whether the group should be finished before another shard is added."""
        shards = len(self._drafts) + len(self._waiting)
        size = sum(draft.done.shard.bytes for _, draft in self._drafts)
        size += sum(task.size for task in self._waiting)
        files = shards * self._job.layout.derived.files_per_shard
        return files >= most_drafts() or size >= _BYTES

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
        drafted, self._drafts = self._drafts, []
        drafts = [draft for _, draft in drafted]
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
            return [(task, write_shard(task, self._job)) for task, _ in drafted]
        finished = finished_drafts(drafts, self._job.store)
        return [(task, done) for (task, _), done in zip(drafted, finished, strict=True)]

    def discard(self) -> None:
        """Removes the files of the group."""
        drafted, self._drafts, self._waiting = self._drafts, [], []
        discard_all([file for _, draft in drafted for file in draft.files])

    def _write_waiting(self) -> None:
        tasks, self._waiting = self._waiting, []
        encoded: Sequence[EncodedShard | None] = [None] * len(tasks)
        if len(tasks) > 1:
            with contextlib.suppress(BeamTFRecordError, OSError, pa.ArrowException):
                encoded = encode_shards(tasks, self._job)
        for task, shard in zip(tasks, encoded, strict=True):
            self._drafts.append((task, draft_shard(task, self._job, shard)))


def encode_shards(tasks: Sequence[ShardTask], job: ShardJob) -> list[EncodedShard]:
    """Returns the content of shards, whose rows are encoded as those of one.

    Args:
      tasks: at least one; together they are small.
      job: that they are of.

    Raises:
      BeamTFRecordError, OSError: something is wrong with one of them.
    """
    rows, lengths = job.load(tasks)
    layout, features = job.layout, job.layout.schema.features
    table, positions = rows.take(0, len(rows))
    columns = record_columns(table, features)
    schema = layout.record_schema
    batch = pa.record_batch([columns[name] for name in schema.names], schema)
    framed = layout.encoder.encode_framed(batch)
    bounds = np.concatenate(([0], np.cumsum(lengths)))
    places = framed.offsets[bounds].tolist()
    placed = rows.without_values()
    encoded = []
    for index, count in enumerate(lengths):
        start, stop = places[index : index + 2]
        first, last = bounds[index : index + 2].tolist()
        out = Written.nothing(tasks[index], job)
        out.log.add(framed.offsets[first : last + 1], framed.buffer)
        out.note_repeated(rows, layout, first, last)
        own = {name: array.slice(first, count) for name, array in columns.items()}
        out.log.add_rows(placed, positions[first:last], own.__getitem__)
        if count:
            out.held.update(count_parts(table.slice(first, count), features))
            out.summaries.add(own)
        records = framed.buffer.slice(start, stop - start)
        encoded.append(EncodedShard(records, count, out))
    return encoded
