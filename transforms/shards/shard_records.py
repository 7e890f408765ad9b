"""Encode the rows of one shard, load their images, and write them as records."""

import collections
import concurrent.futures
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.arrays import keep_freed_memory, offsets_of
from transforms.core.example.encoder import AroundValues, ExampleEncoder
from transforms.core.placing.sharding import ShardRows
from transforms.core.rows.record_columns import (
    count_parts,
    record_columns,
    record_schema,
    with_dictionaries,
)
from transforms.core.segment import PLACE_COLUMNS
from transforms.core.statistics import Statistics, merge_all, summarize_columns
from transforms.core.tfrecord.writer import TFRecordWriter
from transforms.shards.image_loading import ImageColumn, load_images
from transforms.shards.image_rows import boxes_moved, derived_columns, faults
from transforms.shards.record_log import RecordLog
from transforms.shards.shard_job import CHUNK_BYTES, ShardJob, ShardLayout, ShardTask
from transforms.work.rejects import RejectGatherer


@dataclasses.dataclass(slots=True)
class Written:
    """Results of writing a shard, besides its bytes.

    Attributes:
      rejects: takes the rows that were refused.
      log: of the records, for derived files.
      notes: what is worth counting about the images that were written.
      held, gone: parts of items ("boxes") that were written, and that went with
        refused rows.
      prints: (fingerprint, position) of each image that is written.
      facts: of the values, by feature name.
      repeated, repeated_example: see `ShardFile`.
    """

    rejects: RejectGatherer
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
    prints: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    facts: dict[str, Statistics] = dataclasses.field(default_factory=dict)
    repeated: int = 0
    repeated_example: tuple[tuple[str, int | None], ...] = ()

    @classmethod
    def nothing(cls, task: ShardTask, job: ShardJob) -> Self:
        """Returns the results of a shard before anything is written."""
        index, _ = job.shard_counts.numbering(*task.key)
        return cls(
            job.store.gather_rejects(f"write\0{task.key}"),
            RecordLog(job.layout, index),
        )

    def note_repeated(
        self, rows: ShardRows, layout: ShardLayout, start: int, stop: int
    ) -> None:
        """Notes the equal keys of the shard's rows, which are some of the order."""
        # Without a shuffle, rows of one key may be in any shards.
        if layout.sharding.shuffle:
            repeated = rows.repeated_keys(start, stop)
            self.repeated, self.repeated_example = repeated

    def note_facts(self, *facts: Mapping[str, Statistics]) -> None:
        """Notes facts of values that are written."""
        self.facts = merge_all([self.facts, *facts])


# Rows encoded at a time: about 6 MB of small records.
_CHUNK_ROWS = 65_536
# Fewer where they are large, or have many columns: missing values take memory, too.
_CHUNK_CELLS = 1 << 23


@functools.lru_cache(4)
def encoder_of(schema: pa.Schema) -> ExampleEncoder:
    """Returns what encodes columns; those of most shards are the same."""
    return ExampleEncoder(schema)


def most_rows(columns: int) -> int:
    """Returns how many rows of this many columns are encoded at a time."""
    return min(_CHUNK_ROWS, _CHUNK_CELLS // max(columns, 1))


def write_rows(
    rows: ShardRows,
    layout: ShardLayout,
    writer: TFRecordWriter,
    out: Written,
) -> None:
    """Writes rows without images, and notes what comes of it."""
    placed = rows.without_values()
    # Places are of no use here, and to take them in another order costs as much as
    # to take a column.
    stored = [name for name in rows.table.column_names if name not in PLACE_COLUMNS]
    rows = dataclasses.replace(rows, table=with_dictionaries(rows.table.select(stored)))
    encoder = _encoder_of(rows.table, layout)
    schema = encoder.schema
    by_bytes = CHUNK_BYTES * len(rows) // max(rows.table.nbytes, 1)
    size = max(min(most_rows(len(schema)), by_bytes), 1)
    with _Behind() as behind:
        for start in range(0, len(rows), size):
            chunk, positions = rows.take(start, start + size)
            out.held.update(count_parts(chunk, layout.schema.features))
            columns = record_columns(chunk, layout.schema.features)
            out.log.add_rows(placed, positions, columns.__getitem__)
            batch = pa.record_batch([columns[name] for name in schema.names], schema)
            for framed in encoder.framed_chunks(batch):
                data = framed.buffers()[2]
                out.log.add(offsets_of(framed), data)
                behind.do(writer.write_framed, data, records=len(framed))
            out.note_facts(summarize_columns(layout.schema.stored, columns))


def _encoder_of(table: pa.Table, layout: ShardLayout) -> ExampleEncoder:
    """Returns what encodes a shard's rows, some of whose texts may be dictionaries."""
    kinds = {f.name: f.type for f in table.schema if pa.types.is_dictionary(f.type)}
    fields = layout.record_schema
    return encoder_of(
        pa.schema([f.with_type(kinds.get(f.name, f.type)) for f in fields])
        if kinds
        else fields
    )


class _Behind:
    """Writes in a separate thread while the next piece is being encoded.

    A failed write is raised by the next call, or on leaving.
    """

    def __init__(self) -> None:
        self._pool = concurrent.futures.ThreadPoolExecutor(1)
        self._last: concurrent.futures.Future[None] | None = None

    def do(self, work: Callable[..., None], *given: Any, **options: Any) -> None:
        """Does the work once all before it is done."""
        if self._last is not None:
            self._last.result()
        self._last = self._pool.submit(work, *given, **options)

    def __enter__(self) -> "_Behind":
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self._pool.shutdown()
        if kind is None and self._last is not None:
            self._last.result()


def write_images(
    rows: ShardRows,
    layout: ShardLayout,
    writer: TFRecordWriter,
    out: Written,
) -> None:
    """Writes the records of rows with images, but of those that are refused."""
    keep_freed_memory()
    images = layout.schema.loaded
    # Nearly all records have one image. Its bytes are not copied then.
    alone = None
    if len(images) == 1 and not images[0].is_list:
        alone = images[0].name
    names = [feature.name for feature in images]
    small = record_schema(layout.schema, without=names if alone else [])
    encoder = AroundValues(small, alone) if alone else None
    placed = rows.without_values()
    chunks = load_images(rows, images, root=layout.root, policy=layout.image_policy)
    with _Behind() as behind:
        for chunk, positions, loaded in chunks:
            sound = _sound(rows, chunk, positions, loaded, layout, out)
            if not sound.any():
                continue
            if not sound.all():
                chunk = chunk.filter(pa.array(sound))
                keep = np.flatnonzero(sound).tolist()
                loaded = [column.take(keep) for column in loaded]
                positions = positions[keep]
            for feature, column in zip(images, loaded, strict=True):
                for image in column.images:
                    if notes := image.notes:
                        out.notes.update(notes)
                # Masks are alike, and in all splits.
                if layout.fingerprints and not feature.mask:
                    values = column.fingerprints()
                    where = positions[column.rows].tolist()
                    out.prints += zip(values, where, strict=True)
            chunk = boxes_moved(chunk, loaded, layout.schema)
            out.held.update(count_parts(chunk, layout.schema.features))
            columns = record_columns(chunk, layout.schema.features)
            columns |= derived_columns(loaded, layout.schema)
            out.log.add_rows(placed, positions, columns.__getitem__)
            if encoder is not None and loaded[0].are_single:
                records = pa.record_batch([columns[k] for k in small.names], small)
                framed = encoder.frame(records, loaded[0].payloads, loaded[0].crcs)
                out.log.add(framed.offsets, None, framed.payload_crcs)
                behind.do(
                    writer.write_pieces,
                    framed.pieces,
                    records=len(chunk),
                    crc32c=framed.crc32c,
                )
            else:
                full = layout.record_schema
                whole = columns | {
                    feature.name: column.array(column.payloads, feature)
                    for feature, column in zip(images, loaded, strict=True)
                }
                records = pa.record_batch([whole[k] for k in full.names], full)
                framed = encoder_of(full).encode_framed(records)
                data = framed.buffers()[2]
                out.log.add(offsets_of(framed), data)
                behind.do(writer.write_framed, data, records=len(framed))
            pairs = zip(images, loaded, strict=True)
            of_images = {feature.name: column.statistics for feature, column in pairs}
            out.note_facts(summarize_columns(layout.schema.stored, columns), of_images)


def _sound(
    rows: ShardRows,
    chunk: pa.Table,
    positions: npt.NDArray[np.int64],
    loaded: Sequence[ImageColumn],
    layout: ShardLayout,
    out: Written,
) -> npt.NDArray[np.bool_]:
    """Returns which rows have no faulty image; rejects the others."""
    sound = np.ones(len(chunk), bool)
    features = layout.schema.loaded
    by_name = dict(zip((f.name for f in features), loaded, strict=True))
    for feature, column in zip(features, loaded, strict=True):
        masked = by_name.get(feature.derived_from)
        misfits = faults(chunk, feature, column, layout.schema, masked)
        for i, index, item, fault in misfits:
            if not sound[i]:
                continue
            origin, row = rows.origin(int(positions[i]))
            path = "" if feature.inline else chunk[feature.name][i].as_py()
            if layout.origins_name_rows:
                row, path = None, path if feature.mask else ""
            elif feature.is_list:
                path = path[index] if path else f"{feature.name}[{index}]"
            out.rejects.add([item.rejection(origin, row, fault, path)])
            sound[i] = False
    if not sound.all():
        refused = chunk.filter(pa.array(~sound))
        out.gone.update(count_parts(refused, layout.schema.features))
    return sound


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
    framed = encoder_of(schema).encode_framed(batch)
    bounds = np.concatenate(([0], np.cumsum(lengths)))
    offsets, data = offsets_of(framed), framed.buffers()[2]
    places = offsets[bounds].tolist()
    placed = rows.without_values()
    encoded = []
    for index, count in enumerate(lengths):
        start, stop = places[index : index + 2]
        first, last = bounds[index : index + 2].tolist()
        out = Written.nothing(tasks[index], job)
        out.log.add(offsets[first : last + 1], data)
        out.note_repeated(rows, layout, first, last)
        own = {name: array.slice(first, count) for name, array in columns.items()}
        out.log.add_rows(placed, positions[first:last], own.__getitem__)
        if count:
            out.held.update(count_parts(table.slice(first, count), features))
            out.note_facts(summarize_columns(layout.schema.stored, own))
        records = data.slice(start, stop - start)
        encoded.append(EncodedShard(records, count, out))
    return encoded
