"""Write one shard as a file: rows in order, encoded, framed, renamed."""

import collections
import concurrent.futures
import contextlib
import dataclasses
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms import files
from transforms.core.example.encoder import ExampleEncoder, FramedPieces
from transforms.core.manifest import FileFacts
from transforms.core.model import (
    RejectLog,
    Segment,
    ShardFile,
)
from transforms.core.naming import ShardName
from transforms.core.placing.leakage import Fingerprints
from transforms.core.placing.shard_rows import ShardRows
from transforms.core.rows.record_columns import (
    count_parts,
    number_labels,
    record_columns,
    record_schema,
)
from transforms.core.rows.repeated_texts import with_dictionaries
from transforms.core.schema import Kind, Schema
from transforms.core.segment import PLACE_COLUMNS
from transforms.core.summaries import Summaries
from transforms.core.tfrecord import TFRecordWriter
from transforms.shards.allocation import keep_freed_memory, return_freed_memory
from transforms.shards.encode_shards import (
    CHUNK_BYTES,
    EncodedShard,
    most_rows,
    repeated_keys,
)
from transforms.shards.image_loading import ImageLoader
from transforms.shards.image_rows import (
    boxes_moved,
    derived_columns,
    faults,
    store_fingerprints,
)
from transforms.shards.loaded_images import ImageColumn
from transforms.shards.record_log import RecordLog
from transforms.shards.shard_job import ShardJob, ShardLayout, ShardTask
from transforms.storage.retry import persistently, storing
from transforms.work.rejects import RejectGatherer
from transforms.work.store import Store

# What is free in pieces is of no use to a shard of more rows, which takes new memory.
_LARGE_BYTES = 32 << 20

Finished = tuple[ShardFile, RejectLog | None, Fingerprints | None, Segment | None]
"""What is known of a finished shard: see `transforms.work.receipts.ShardDone`."""


@dataclasses.dataclass(frozen=True, slots=True)
class ShardDraft:
    """A shard that is written in full and does not have its name yet.

    Attributes:
      files: the shard's, and those of its indexes.
      content: what is true of it once it has its name.
      write_again: writes the shard once more, by itself, as `write_shard`.
    """

    files: Sequence[files.Draft]
    content: "_Content"
    write_again: Callable[[], Finished]


def write_shard(task: ShardTask, job: ShardJob) -> Finished:
    """Writes one shard; returns the facts of its file and the rows that it refused.

    Raises:
      StorageError: it could not be written, or what it is made of not be read, though
        it was tried again; nothing has appeared under its name.
      EncodingError: a value cannot become part of a tf.train.Example.
    """
    path, store = _path_of(task, job), job.store

    def work() -> _Content:
        store.announce(os.path.basename(path))
        draft = files.draft(path, attempts=store.attempts)
        with files.written(draft):
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
            files.write_file(place, memoryview(data), attempts=store.attempts)
    return _finished([content], store)[0]


def finished_drafts(drafts: Sequence[ShardDraft], store: Store) -> list[Finished]:
    """Stores what shards with names have beside their files; returns all facts."""
    return _finished([draft.content for draft in drafts], store)


def _finished(contents: Sequence["_Content"], store: Store) -> list[Finished]:
    streams = [each.rows for each in contents if each.rows is not None]
    stored = iter(store.put_streams(streams))
    return [
        (
            *(each.shard, each.rejects, each.prints),
            None if each.rows is None else next(stored),
        )
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
    draft = files.draft(path, attempts=job.store.attempts)
    with contextlib.ExitStack() as drafts:
        drafts.enter_context(files.discarded_on_error(draft))
        written = _write_once(task, job, draft, encoded)
        beside = [
            drafts.enter_context(files.discarded_on_error(_index(name, data, job)))
            for name, data in written.indexes.items()
        ]
    again = functools.partial(write_shard, task, job)
    return ShardDraft([draft, *beside], written, again)


def _index(name: str, data: pa.Buffer, job: ShardJob) -> files.Draft:
    job.store.announce(name)
    path = os.path.join(job.store.dataset, name)
    draft = files.draft(path, attempts=job.store.attempts)
    with files.discarded_on_error(draft):
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
      shard: facts of its file.
      rejects: the rows that it refused.
      prints: fingerprints of its images.
      indexes: by their names.
      rows: its rows of the catalogue, an Arrow stream; None for none.
    """

    shard: ShardFile
    rejects: RejectLog | None
    prints: Fingerprints | None
    indexes: Mapping[str, pa.Buffer]
    rows: pa.Buffer | None


def _write_once(
    task: ShardTask, job: ShardJob, file: files.Draft, encoded: EncodedShard | None
) -> _Content:
    layout, store, key = job.layout, job.store, task.key
    split, number = key
    index, _ = job.shard_counts.numbering(split, number)
    rejects = store.gather_rejects(f"write\0{key}")
    log = RecordLog(layout, index) if encoded is None else encoded.log
    out = _Written(rejects, Summaries(layout.schema), log)
    with rejects:
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
                _write_images(rows, layout, writer, out)
            else:
                _write_rows(rows, layout, writer, out)
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
    return _Content(shard, rejects.log, prints, indexes, log.piece())


def _loaded(task: ShardTask, job: ShardJob) -> ShardRows:
    """Returns a shard's rows, with numbers for labels."""
    rows = job.load([task.source]).rows
    table = number_labels(rows.table, job.layout.schema.features, job.classes)
    return dataclasses.replace(rows, table=table)


@dataclasses.dataclass(slots=True)
class _Written:
    """Results of writing a shard, besides its bytes.

    Attributes:
      rejects: takes the rows that were refused.
      summaries: of the values.
      log: of the records, for derived files.
      notes: what is worth counting about the images that were written.
      held, gone: parts of items ("boxes") that were written, and that went with
        refused rows.
    """

    rejects: RejectGatherer
    summaries: Summaries
    log: RecordLog
    notes: collections.Counter[str] = dataclasses.field(
        default_factory=collections.Counter
    )
    held: collections.Counter[str] = dataclasses.field(
        default_factory=collections.Counter
    )
    gone: collections.Counter[str] = dataclasses.field(
        default_factory=collections.Counter
    )

    # (fingerprint, position) of each image that is written.
    prints: list[tuple[int, int]] = dataclasses.field(default_factory=list)

    def count(self, rows: pa.Table, schema: Schema) -> None:
        """Counts the parts of rows that are written."""
        self.held.update(count_parts(rows, schema.features))

    def lose(self, rows: pa.Table, schema: Schema) -> None:
        """Counts the parts of rows that are refused."""
        self.gone.update(count_parts(rows, schema.features))

    def note_images(self, loaded: Sequence[ImageColumn]) -> None:
        """Counts the notes of images."""
        for column in loaded:
            for image in column.images:
                if notes := image.notes:
                    self.notes.update(notes)

    def note_prints(
        self,
        loaded: Sequence[ImageColumn],
        positions: npt.NDArray[np.int64],
        *,
        readable_again: bool,
    ) -> None:
        """Notes the fingerprints of images, computed from their files."""
        for column in loaded:
            values = column.fingerprints(readable_again=readable_again)
            rows = positions[column.rows]
            self.prints += zip(values, rows.tolist(), strict=True)


def _write_rows(
    rows: ShardRows,
    layout: ShardLayout,
    writer: TFRecordWriter,
    out: _Written,
) -> None:
    placed = rows.without_values()
    # Places are of no use here, and to take them in another order costs as much as
    # to take a column.
    stored = [name for name in rows.table.column_names if name not in PLACE_COLUMNS]
    rows = dataclasses.replace(rows, table=with_dictionaries(rows.table.select(stored)))
    encoder = _encoder_of(rows.table, layout)
    schema = encoder.schema
    by_bytes = CHUNK_BYTES * len(rows) // max(rows.table.nbytes, 1)
    size = max(min(most_rows(len(schema)), by_bytes), 1)
    # One chunk has no next one to be encoded meanwhile; a thread only costs then.
    alone = contextlib.nullcontext(writer) if len(rows) <= size else None
    with alone or _Behind(writer) as behind:
        for start in range(0, len(rows), size):
            chunk, positions = rows.take(start, start + size)
            out.count(chunk, layout.schema)
            columns = record_columns(chunk, layout.schema.features)
            out.log.add_rows(placed, positions, columns.__getitem__)
            batch = pa.record_batch([columns[name] for name in schema.names], schema)
            for framed in encoder.framed_chunks(batch):
                out.log.add(framed.offsets, framed.buffer)
                behind.write_framed(framed.buffer, records=len(framed.offsets) - 1)
            out.summaries.add(columns)


def _encoder_of(table: pa.Table, layout: ShardLayout) -> ExampleEncoder:
    """Returns what encodes a shard's rows, some of whose texts may be dictionaries."""
    kinds = dict(zip(table.schema.names, table.schema.types, strict=True))
    if not any(map(pa.types.is_dictionary, kinds.values())):
        return layout.encoder
    fields = [
        field.with_type(kinds[field.name])
        if pa.types.is_dictionary(kinds.get(field.name, field.type))
        else field
        for field in layout.record_schema
    ]
    return layout.encoder_of(pa.schema(fields))


class _Behind:
    """Writes in a separate thread while the next piece is being encoded.

    A failed write is raised by the next call, or on leaving.
    """

    def __init__(self, writer: TFRecordWriter) -> None:
        self._writer = writer
        self._pool = concurrent.futures.ThreadPoolExecutor(1)
        self._last: concurrent.futures.Future[None] | None = None

    def write_framed(self, data: bytes, *, records: int) -> None:
        """As `TFRecordWriter.write_framed`."""
        self._submit(
            functools.partial(self._writer.write_framed, data, records=records)
        )

    def write_pieces(self, framed: FramedPieces, *, records: int) -> None:
        """As `TFRecordWriter.write_pieces`."""
        self._submit(
            functools.partial(
                self._writer.write_pieces,
                framed.pieces,
                records=records,
                size=framed.size,
                crc32c=framed.crc32c,
            )
        )

    def _submit(self, work: Callable[[], None]) -> None:
        if self._last is not None:
            self._last.result()
        self._last = self._pool.submit(work)

    def __enter__(self) -> "_Behind":
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self._pool.shutdown()
        if kind is None and self._last is not None:
            self._last.result()


def _write_images(
    rows: ShardRows,
    layout: ShardLayout,
    writer: TFRecordWriter,
    out: _Written,
) -> None:
    keep_freed_memory()
    images = layout.schema.of_kind(Kind.IMAGE)
    # Nearly all records have one image. Its bytes are not copied then.
    alone = None
    if len(images) == 1 and not images[0].is_list:
        alone = images[0].name
    names = [feature.name for feature in images]
    small = record_schema(layout.schema, without=names if alone else [])
    encoder = ExampleEncoder(small, split_at=alone)
    placed = rows.without_values()
    loader = ImageLoader(rows, images, root=layout.root, policy=layout.image_policy)
    with _Behind(writer) as behind:
        for chunk, positions, loaded in loader.chunks():
            sound = _sound(rows, chunk, positions, loaded, layout, out)
            if not sound.any():
                continue
            if not sound.all():
                chunk = chunk.filter(pa.array(sound))
                keep = np.flatnonzero(sound).tolist()
                loaded = [column.take(keep) for column in loaded]
                positions = positions[keep]
            if layout.fingerprints:
                again = layout.origins_name_rows
                out.note_prints(loaded, positions, readable_again=again)
            chunk = boxes_moved(chunk, loaded, layout.schema)
            out.note_images(loaded)
            out.count(chunk, layout.schema)
            columns = record_columns(chunk, layout.schema.features)
            columns |= derived_columns(loaded, layout.schema)
            out.log.add_rows(placed, positions, columns.__getitem__)
            if alone and loaded[0].are_single:
                records = pa.record_batch([columns[k] for k in small.names], small)
                framed = encoder.frame_around(
                    records, loaded[0].payloads, loaded[0].crcs
                )
                out.log.add(framed.offsets, None, framed.payload_crcs)
                behind.write_pieces(framed, records=len(chunk))
            else:
                full = record_schema(layout.schema)
                whole = columns | {
                    feature.name: column.array(column.payloads, feature)
                    for feature, column in zip(images, loaded, strict=True)
                }
                records = pa.record_batch([whole[k] for k in full.names], full)
                encoded = ExampleEncoder(full).encode_framed(records)
                out.log.add(encoded.offsets, encoded.buffer)
                behind.write_framed(encoded.buffer, records=records.num_rows)
            out.summaries.add(columns)
            for feature, column in zip(images, loaded, strict=True):
                out.summaries.add_facts(feature.name, column.statistics)


def _sound(
    rows: ShardRows,
    chunk: pa.Table,
    positions: npt.NDArray[np.int64],
    loaded: Sequence[ImageColumn],
    layout: ShardLayout,
    out: _Written,
) -> npt.NDArray[np.bool_]:
    """Returns which rows have no faulty image; rejects the others."""
    sound = np.ones(len(chunk), bool)
    features = layout.schema.of_kind(Kind.IMAGE)
    for feature, each in zip(features, loaded, strict=True):
        for i, place, item, fault in faults(chunk, feature, each, layout.schema):
            if not sound[i]:
                continue
            origin, row = rows.origin(int(positions[i]))
            if layout.origins_name_rows:
                out.rejects.add([item.rejection(origin, None, fault)])
            else:
                path = "" if feature.inline else chunk[feature.name][i].as_py()
                if feature.is_list:
                    path = path[place] if path else f"{feature.name}[{place}]"
                out.rejects.add([item.rejection(origin, row, fault, path)])
            sound[i] = False
    if not sound.all():
        out.lose(chunk.filter(pa.array(~sound)), layout.schema)
    return sound
