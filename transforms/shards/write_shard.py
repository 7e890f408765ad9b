"""Write one shard as a file: rows in order, encoded, framed, renamed."""

import contextlib
import dataclasses
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import google_crc32c
import numpy as np
import pyarrow as pa

from transforms.core.manifest import FileFacts
from transforms.core.model import ShardFile
from transforms.core.naming import ShardName
from transforms.core.placing.shard_rows import ShardRows
from transforms.core.rows.record_columns import number_labels
from transforms.core.statistics import Summaries
from transforms.core.tfrecord import TFRecordWriter
from transforms.shards.allocation import return_freed_memory
from transforms.shards.image_rows import store_fingerprints
from transforms.shards.record_log import EncodedShard, RecordLog
from transforms.shards.shard_job import ShardJob, ShardTask, repeated_keys
from transforms.shards.shard_records import Written, write_images, write_rows
from transforms.storage.drafts import Draft, discarded_on_error, written
from transforms.storage.files import storage
from transforms.storage.retry import persistently, storing
from transforms.work.receipts import ShardDone
from transforms.work.store import Store

# What is free in pieces is of no use to a shard of more rows, which takes new memory.
_LARGE_BYTES = 32 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class ShardDraft:
    """A shard that is written in full and does not have its name yet.

    Attributes:
      files: the shard's, and those of its indexes.
      content: what is true of it once it has its name.
      write_again: writes the shard once more, by itself, as `write_shard`.
    """

    files: Sequence[Draft]
    content: "_Content"
    write_again: Callable[[], ShardDone]


def write_shard(task: ShardTask, job: ShardJob) -> ShardDone:
    """Writes one shard; returns the facts of its file and the rows that it refused.

    Raises:
      StorageError: it could not be written, or what it is made of not be read, though
        it was tried again; nothing has appeared under its name.
      EncodingError: a value cannot become part of a tf.train.Example.
    """
    path, store = _path_of(task, job), job.store

    def work() -> _Content:
        store.announce(os.path.basename(path))
        draft = storage(path).draft(attempts=store.attempts)
        with written(draft):
            content = _write_once(task, job, draft, None)
            # Last look before the file gets its name: a stopped run must put nothing
            # more.
            store.check_goes_on()
        return content

    with storing(path):
        content = persistently(work, path=path)
        for name, data in content.indexes.items():
            store.announce(name)
            place = os.path.join(store.dataset, name)
            storage(place).write_file(memoryview(data), attempts=store.attempts)
    return _finished([content], store)[0]


def finished_drafts(drafts: Sequence[ShardDraft], store: Store) -> list[ShardDone]:
    """Stores what shards with names have beside their files; returns all facts."""
    return _finished([draft.content for draft in drafts], store)


def _finished(contents: Sequence["_Content"], store: Store) -> list[ShardDone]:
    streams = [each.rows for each in contents if each.rows is not None]
    stored = iter(store.put_streams(streams))
    return [
        each.done
        if each.rows is None
        else dataclasses.replace(each.done, rows=next(stored))
        for each in contents
    ]


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

    def work() -> ShardDraft:
        return _drafted(task, job, encoded)

    path = _path_of(task, job)
    with storing(path):
        return persistently(work, path=path)


def _drafted(
    task: ShardTask, job: ShardJob, encoded: EncodedShard | None
) -> ShardDraft:
    path = _path_of(task, job)
    job.store.announce(os.path.basename(path))
    draft = storage(path).draft(attempts=job.store.attempts)
    with contextlib.ExitStack() as drafts:
        drafts.enter_context(discarded_on_error(draft))
        written = _write_once(task, job, draft, encoded)
        beside = [
            drafts.enter_context(discarded_on_error(_index(name, data, job)))
            for name, data in written.indexes.items()
        ]
    again = functools.partial(write_shard, task, job)
    return ShardDraft([draft, *beside], written, again)


def _index(name: str, data: pa.Buffer, job: ShardJob) -> Draft:
    job.store.announce(name)
    path = os.path.join(job.store.dataset, name)
    draft = storage(path).draft(attempts=job.store.attempts)
    with discarded_on_error(draft):
        draft.write(memoryview(data))
    return draft


def _path_of(task: ShardTask, job: ShardJob) -> str:
    split, number = task.key
    layout = job.layout
    index, count = job.shard_counts.numbering(split, number)
    name = str(ShardName(layout.name, split, index, count, layout.compression))
    return os.path.join(job.store.dataset, name)


class _Content(NamedTuple):
    """What the content of one shard comes to.

    Attributes:
      done: its facts, but for those rows.
      indexes: by their names.
      rows: its rows of the catalogue, an Arrow stream; None for none.
    """

    done: ShardDone
    indexes: Mapping[str, pa.Buffer]
    rows: pa.Buffer | None


def _write_once(
    task: ShardTask, job: ShardJob, file: Draft, encoded: EncodedShard | None
) -> _Content:
    layout, store, key = job.layout, job.store, task.key
    split, number = key
    index, _ = job.shard_counts.numbering(split, number)
    rejects = store.gather_rejects(f"write\0{key}")
    log = RecordLog(layout, index) if encoded is None else encoded.log
    out = Written(rejects, Summaries(layout.schema.stored), log)
    if encoded is None:
        if task.size >= _LARGE_BYTES:
            return_freed_memory()
        rows = _loaded(task, job)
        repeated, example = repeated_keys(rows, job, 0, len(rows))
    else:
        repeated, example = encoded.repeated, encoded.repeated_example
    with TFRecordWriter(file, compression=layout.compression) as writer:
        if encoded is not None:
            writer.write_framed(encoded.framed, records=encoded.records)
            for name, statistics in encoded.statistics.items():
                out.summaries.add_facts(name, statistics)
            out.held.update(encoded.parts)
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
    indexes = log.indexes(name)
    shard = ShardFile(
        name=name,
        split=split,
        index=index,
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
        repeated=repeated,
        repeated_example=example,
    )
    prints = None
    if out.prints:
        prints = store_fingerprints(
            key,
            rows,
            values=[value for value, _ in out.prints],
            positions=np.array([position for _, position in out.prints]),
            store=store,
        )
    rejected = rejects.finish()
    logs = () if rejected is None else (rejected,)
    return _Content(ShardDone(shard, logs, prints), indexes, log.piece())


def _loaded(task: ShardTask, job: ShardJob) -> ShardRows:
    """Returns a shard's rows, with numbers for labels."""
    rows = job.load([task.source]).rows
    table = number_labels(rows.table, job.layout.schema.features, job.classes)
    return dataclasses.replace(rows, table=table)
