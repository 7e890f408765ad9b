"""Encode the rows of shards as records: of many small ones together."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from transforms.core.placing.shard_rows import ShardRows
from transforms.core.rows.record_columns import (
    count_parts,
    number_labels,
    record_columns,
)
from transforms.core.schema import Kind, Schema
from transforms.core.statistics import Statistics, summarize_feature_parts
from transforms.shards.record_log import RecordLog
from transforms.shards.shard_job import ShardJob, ShardTask

# Rows encoded at a time: about 6 MB of small records.
_CHUNK_ROWS = 65_536
# Fewer where they are large, or have many columns: missing values take memory, too.
_CHUNK_CELLS = 1 << 23
CHUNK_BYTES = 1 << 24
# Larger shards gain nothing from their neighbours, which then only take memory.
_TOGETHER_BYTES = 1 << 22


@dataclasses.dataclass(frozen=True, slots=True)
class EncodedShard:
    """What is in the file of a shard, ready to be written.

    Attributes:
      framed: its records, in the bytes of a TFRecord file.
      records: how many there are.
      statistics: of its features, by name.
      parts: see `ShardFile`.
      log: of its records, for derived files.
      repeated, repeated_example: see `ShardFile`.
    """

    framed: pa.Buffer
    records: int
    statistics: Mapping[str, Statistics]
    parts: Mapping[str, int]
    log: RecordLog
    repeated: int = 0
    repeated_example: tuple[tuple[str, int | None], ...] = ()


def most_rows(columns: int) -> int:
    """Returns how many rows of this many columns are encoded at a time."""
    return min(_CHUNK_ROWS, _CHUNK_CELLS // max(columns, 1))


def are_encoded_together(rows: int, size: int, schema: Schema) -> bool:
    """Whether shards are so few and small that one chunk holds the rows of all.

    Images are loaded for one shard at a time.

    Args:
      rows: of all shards.
      size: bytes of their sources.
      schema: of the rows.
    """
    if schema.of_kind(Kind.IMAGE):
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


def repeated_keys(
    rows: ShardRows, job: ShardJob, start: int, stop: int
) -> tuple[int, tuple[tuple[str, int | None], ...]]:
    """Returns what `ShardFile` says of equal keys in a shard's rows."""
    # Without a shuffle, rows of one key may be in any shards.
    if not job.layout.sharding.shuffle:
        return 0, ()
    return rows.repeated_keys(start, stop)
