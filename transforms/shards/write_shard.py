"""Write one shard as a file: rows in order, encoded, framed, renamed."""

import contextlib
import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import google_crc32c
import numpy as np
import pyarrow as pa

from transforms.core.files import ShardName
from transforms.core.manifest import FileFacts
from transforms.core.model import ShardFile
from transforms.core.tfrecord import TFRecordWriter
from transforms.shards.allocation import return_freed_memory
from transforms.shards.image_rows import store_fingerprints
from transforms.shards.shard_job import ShardJob, ShardTask
from transforms.shards.shard_records import Written, write_images, write_rows
from transforms.storage.drafts import Draft, discarded_on_error, written
from transforms.storage.files import storage
from transforms.storage.retry import persistently, storing
from transforms.work.receipts import ShardDone
from transforms.work.store import Store

# What is free in pieces is of no use to a shard of more rows, which takes new memory.
_LARGE_BYTES = 32 << 20


class EncodedShard(NamedTuple):
    """What is in the file of a shard, ready to be written.

    Attributes:
      framed: its records, in the bytes of a TFRecord file.
      records: how many there are.
      facts: of them.
    """

    framed: pa.Buffer
    records: int
    facts: Written


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
    path, store = _path_of(task, job), job.store

    def work() -> _Content:
        with written(_draft_of(os.path.basename(path), job)) as draft:
            content = _content(task, job, draft, None)
            # Last look before the file gets its name: a stopped run must put nothing
            # more.
            store.check_goes_on()
        return content

    with storing(path):
        done, indexes, rows = persistently(work, path=path)
        # One by one: a disk that fails now and then would fail at one of several.
        for name, data in indexes.items():
            store.announce(name)
            index_path = os.path.join(store.dataset, name)
            storage(index_path).write_file(memoryview(data), attempts=store.attempts)
    return finished_drafts([ShardDraft((), done, rows)], store)[0]


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
    path = _path_of(task, job)
    with storing(path):
        return persistently(lambda: _drafted(task, job, encoded), path=path)


def finished_drafts(drafts: Sequence[ShardDraft], store: Store) -> list[ShardDone]:
    """Stores what shards with names have beside their files; returns all facts."""
    streams = [draft.rows for draft in drafts if draft.rows is not None]
    stored = iter(store.put_streams(streams))
    return [
        draft.done
        if draft.rows is None
        else dataclasses.replace(draft.done, rows=next(stored))
        for draft in drafts
    ]


def _path_of(task: ShardTask, job: ShardJob) -> str:
    split, number = task.key
    layout = job.layout
    index, count = job.shard_counts.numbering(split, number)
    name = str(ShardName(layout.name, split, index, count, layout.compression))
    return os.path.join(job.store.dataset, name)


def _drafted(
    task: ShardTask, job: ShardJob, encoded: EncodedShard | None
) -> ShardDraft:
    with contextlib.ExitStack() as drafts:
        draft = _draft_of(os.path.basename(_path_of(task, job)), job)
        files = [drafts.enter_context(discarded_on_error(draft))]
        done, indexes, rows = _content(task, job, draft, encoded)
        for name, data in indexes.items():
            beside = discarded_on_error(_draft_of(name, job))
            files.append(drafts.enter_context(beside))
            files[-1].write(memoryview(data))
        return ShardDraft(files, done, rows)


def _draft_of(name: str, job: ShardJob) -> Draft:
    job.store.announce(name)
    path = os.path.join(job.store.dataset, name)
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
        statistics=out.summaries.facts,
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
        values, positions = zip(*out.prints, strict=True)
        prints = store_fingerprints(
            task.key,
            rows,
            values=values,
            positions=np.array(positions),
            store=job.store,
        )
    rejected = out.rejects.finish()
    logs = () if rejected is None else (rejected,)
    return ShardDone(shard, logs, prints), indexes, out.log.piece()
