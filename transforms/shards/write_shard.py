"""Write one shard as a file: rows in order, encoded, framed, renamed."""

import contextlib
import dataclasses
import os
from collections.abc import Mapping, Sequence

import google_crc32c
import numpy as np
import pyarrow as pa

from transforms.core.manifest import FileFacts
from transforms.core.model import ShardFile
from transforms.core.naming import ShardName
from transforms.core.placing.shard_rows import ShardRows
from transforms.core.rows.record_columns import number_labels
from transforms.core.schema import Kind
from transforms.core.statistics import Summaries
from transforms.core.tfrecord import TFRecordWriter
from transforms.shards.allocation import return_freed_memory
from transforms.shards.image_rows import store_fingerprints
from transforms.shards.record_log import EncodedShard, RecordLog
from transforms.shards.shard_job import ShardJob, ShardTask, repeated_keys
from transforms.shards.shard_records import Written, write_images, write_rows
from transforms.storage.drafts import Draft, discarded_on_error, publish_together
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
      done: what is true of it once it has its name, but for its rows of the catalogue.
      rows: these, an Arrow stream; None for none.
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

    def work() -> ShardDraft:
        draft = _drafted(task, job, None)
        publish_together(draft.files, check=job.store.check_goes_on)
        return draft

    path = _path_of(task, job)
    with storing(path):
        draft = persistently(work, path=path)
    return finished_drafts([draft], job.store)[0]


def finished_drafts(drafts: Sequence[ShardDraft], store: Store) -> list[ShardDone]:
    """Stores what shards with names have beside their files; returns all facts."""
    stored = iter(store.put_streams([d.rows for d in drafts if d.rows is not None]))
    return [
        draft.done
        if draft.rows is None
        else dataclasses.replace(draft.done, rows=next(stored))
        for draft in drafts
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
        done, indexes, rows = _write_once(task, job, draft, encoded)
        beside = [
            drafts.enter_context(discarded_on_error(_index(name, data, job)))
            for name, data in indexes.items()
        ]
    return ShardDraft([draft, *beside], done, rows)


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


def _write_once(
    task: ShardTask, job: ShardJob, file: Draft, encoded: EncodedShard | None
) -> tuple[ShardDone, Mapping[str, pa.Buffer], pa.Buffer | None]:
    """Returns the facts of a shard, its indexes by name, and rows of the catalogue."""
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
        elif layout.schema.of_kind(Kind.IMAGE):
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
    return ShardDone(shard, logs, prints), indexes, log.piece()


def _loaded(task: ShardTask, job: ShardJob) -> ShardRows:
    """Returns a shard's rows, with numbers for labels."""
    rows = job.load([task.source]).rows
    table = number_labels(rows.table, job.layout.schema.features, job.classes)
    return dataclasses.replace(rows, table=table)
