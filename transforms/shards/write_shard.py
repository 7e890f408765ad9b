"""Write shards as files: rows in order, encoded, framed, synced, renamed.

Of a shard of some hundred rows, the calls cost more than the rows: small shards are
encoded together, made durable together, and then get their names.
"""

import contextlib
import dataclasses
import logging
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import google_crc32c
import pyarrow as pa

from transforms.core.arrays import return_freed_memory
from transforms.core.files import ShardName
from transforms.core.manifest import FileFacts
from transforms.core.model import ShardFile
from transforms.core.tfrecord.writer import TFRecordWriter
from transforms.errors import BeamTFRecordError
from transforms.shards.image_rows import store_fingerprints
from transforms.shards.shard_job import ShardJob, ShardTask
from transforms.shards.shard_records import (
    EncodedShard,
    Written,
    encode_shards,
    most_rows,
    write_images,
    write_rows,
)
from transforms.storage.drafts import (
    Draft,
    discard_all,
    discarded_on_error,
    most_drafts,
    publish_together,
    written,
)
from transforms.storage.files import storage
from transforms.storage.retry import persistently, storing
from transforms.work.receipts import ShardDone
from transforms.work.store import Store

# What is free in pieces is of no use to a shard of more rows, which takes new memory.
_LARGE_BYTES = 32 << 20


# The facts of a shard, its indexes by their names, and its rows of the catalogue.
_Content = tuple[ShardDone, Mapping[str, pa.Buffer], pa.Buffer | None]


class ShardDraft(NamedTuple):
    """A shard that is written in full and does not have its name yet.

    Attributes:
      files: the shard's, and those of its indexes.
      done: what is true of it once it has its name, but for those rows.
      rows: its rows of the catalogue, an Arrow stream; None for none.
    """

    files: Sequence[Draft]
    done: ShardDone
    rows: pa.Buffer | None


def write_shard(task: ShardTask, job: ShardJob) -> ShardDone:
    """Writes one shard; returns the facts of its file and the rows that it refused.

    Raises:
      StorageError: it could not be written, or what it is made of not be read, though
        it was tried again; nothing has appeared under its name.
      EncodingError: a value cannot become part of a tf.train.Example.
    """
    path, store = _shard_path(task, job), job.store

    def work() -> _Content:
        with written(_announced_draft(os.path.basename(path), job)) as draft:
            content = _content(task, job, draft, None)
            # Last look before the file gets its name: a stopped run must put nothing
            # more.
            store.check_goes_on()
        return content

    with storing(path):
        done, indexes, rows = persistently(work, path=path)
        # One by one: a disk that fails now and then would fail at one of several.
        for name, data in indexes.items():
            store.write_beside(name, data.to_pybytes())
    return _finished([ShardDraft((), done, rows)], store)[0]


def draft_shard(
    task: ShardTask, job: ShardJob, encoded: EncodedShard | None = None
) -> ShardDraft:
    """Writes one shard that `ShardGroup` makes durable and names, together with others.

    Args:
      task: the shard.
      job: that it is of.
      encoded: its content, where that is known already.

    Errors are those of `write_shard`.
    """
    path = _shard_path(task, job)

    def work() -> ShardDraft:
        with contextlib.ExitStack() as drafts:
            draft = _announced_draft(os.path.basename(path), job)
            files = [drafts.enter_context(discarded_on_error(draft))]
            done, indexes, rows = _content(task, job, draft, encoded)
            for name, data in indexes.items():
                beside = discarded_on_error(_announced_draft(name, job))
                files.append(drafts.enter_context(beside))
                files[-1].write(memoryview(data))
            return ShardDraft(files, done, rows)

    with storing(path):
        return persistently(work, path=path)


def _finished(drafts: Sequence[ShardDraft], store: Store) -> list[ShardDone]:
    """Stores what shards with names have beside their files; returns all facts."""
    streams = [draft.rows for draft in drafts if draft.rows is not None]
    stored = iter(store.put_streams(streams))
    return [
        draft.done
        if draft.rows is None
        else dataclasses.replace(draft.done, rows=next(stored))
        for draft in drafts
    ]


def _shard_path(task: ShardTask, job: ShardJob) -> str:
    """Returns the path of a task's shard in the dataset that is being built."""
    split, number = task.key
    layout = job.layout
    index, count = job.shard_counts.numbering(split, number)
    name = str(ShardName(layout.name, split, index, count, layout.compression))
    return os.path.join(job.store.dataset, name)


def _announced_draft(name: str, job: ShardJob) -> Draft:
    """Returns a new draft for a file of the dataset; its name is announced before."""
    path = job.store.announce(name)
    return storage(path).draft(attempts=job.store.attempts)


def _content(
    task: ShardTask, job: ShardJob, file: Draft, encoded: EncodedShard | None
) -> _Content:
    """Writes the records of a shard; returns its facts, indexes and catalogue rows."""
    layout, (split, number) = job.layout, task.key
    out = Written.nothing(task, job) if encoded is None else encoded.facts
    if encoded is None:
        if task.size >= _LARGE_BYTES:
            return_freed_memory()
        rows, _ = job.load([task])
        out.note_repeated(rows, layout, 0, len(rows))
    with TFRecordWriter(file, compression=layout.compression) as writer:
        if encoded is not None:
            writer.write_framed(encoded.framed, records=encoded.records)
        elif layout.schema.loaded:
            write_images(rows, layout, writer, out)
        else:
            write_rows(rows, layout, writer, out)
    facts = writer.facts()
    if encoded is None:
        # The values go before the derived files are made.
        rows = rows.without_values()
        if task.size >= _LARGE_BYTES:
            return_freed_memory()
    name = os.path.basename(file.path)
    indexes = out.log.indexes(name)
    shard = ShardFile(
        name=name,
        split=split,
        index=job.shard_counts.numbering(split, number)[0],
        records=facts.records,
        bytes=facts.stored_bytes,
        payload_bytes=facts.payload_bytes,
        crc32c=facts.crc32c,
        statistics=out.facts,
        parts=dict(out.held),
        parts_gone=dict(out.gone),
        image_notes=dict(out.notes),
        indexes=tuple(
            FileFacts(name, data.size, google_crc32c.value(data))
            for name, data in indexes.items()
        ),
        repeated=out.repeated,
        repeated_example=out.repeated_example,
    )
    prints = None
    if out.prints:
        prints = store_fingerprints(task.key, rows, out.prints, job.store)
    rejected = out.rejects.finish()
    logs = () if rejected is None else (rejected,)
    return ShardDone(shard, logs, prints), indexes, out.log.piece()


# A group of large files gains nothing, and keeps their names from appearing.
_BYTES = 64 << 20
# Larger shards gain nothing from their neighbours, which then only take memory.
_TOGETHER_BYTES = 1 << 22

_log = logging.getLogger(__name__)


class ShardGroup:
    """Shards of one job that are written, and get their names together.

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
        finished = _finished(drafts, self._job.store)
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
