"""The stage `place`: a batch -> one segment for every shard that it touches."""

import dataclasses
from collections.abc import Iterator

import apache_beam as beam
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core import placement, segment
from transforms.core.model import Batch, PlaceFacts, Segment, ShardKey
from transforms.core.placement import Sharding, SplitSource
from transforms.core.schema import Kind, Schema
from transforms.errors import EncodingError
from transforms.store import Store

__all__ = ["FACTS", "PlaceRows", "assign", "cut_batch"]

FACTS = "facts"


def assign(
    batch: Batch, sharding: Sharding
) -> tuple[list[ShardKey], npt.NDArray[np.int64]]:
    """Returns the shards that may be touched, and for each row an index into them.

    Raises:
      EncodingError: the rule wants a split for every row and the batch has none.
    """
    rule = sharding.rule
    count = batch.rows.num_rows
    origins = batch.block.origin if batch.origins is None else batch.origins
    if rule.source is SplitSource.COLUMN:
        if batch.splits is None or batch.splits.null_count:
            raise EncodingError(
                f"Every row must carry its split; some of {batch.block} do not."
            )
        encoded = batch.splits.dictionary_encode()
        names = encoded.dictionary.to_pylist()
        splits = encoded.indices.to_numpy().astype(np.int64)
    elif rule.source is SplitSource.SHARES:
        names = list(rule.names)
        splits = placement.split_of_keys(
            placement.hash_rows(
                origins, batch.numbers, purpose="split", seed=rule.seed
            ),
            rule,
        )
    else:
        names = [rule.names[0]]
        splits = np.zeros(count, np.int64)

    keys = placement.hash_rows(
        origins, batch.numbers, purpose="order", seed=sharding.seed
    )
    shards: list[ShardKey] = []
    index = np.empty(count, np.int64)
    for number, name in enumerate(names):
        mine = slice(None) if len(names) == 1 else splits == number
        wanted = sharding.shards.get(name, 1)
        if sharding.shuffle:
            shard = placement.shard_of_keys(keys[mine], wanted)
        else:
            shard = placement.shard_of_positions(
                _positions(batch)[mine], sharding.total_bytes.get(name, 1), wanted
            )
        index[mine] = shard + len(shards)
        shards += [(name, i) for i in range(wanted)]
    return shards, index


def cut_batch(
    batch: Batch, sharding: Sharding
) -> list[tuple[ShardKey, pa.RecordBatch]]:
    """Returns the rows of each shard touched, in source order, as `segment` has them.

    Args:
      batch: n rows under `Schema.row_schema`.
      sharding: where rows go.
    """
    shards, index = assign(batch, sharding)
    columns = [*batch.rows.columns, pa.array(batch.numbers)]
    if batch.origins is not None:
        unknown = pa.array(np.zeros(len(batch.origins), np.int64))
        columns += [
            batch.origins,
            unknown if batch.stamps is None else batch.stamps,
        ]
    schema = segment.segment_schema(
        batch.rows.schema, many_origins=batch.origins is not None
    )
    rows = pa.record_batch(columns, schema=schema)
    return [(shards[i], part) for i, part in segment.cut(rows, index)]


def _positions(batch: Batch) -> npt.NDArray[np.int64]:
    """Bytes of input before each row; within a block, in proportion to the rows."""
    if batch.positions is not None:
        return batch.positions
    block = batch.block
    share = (batch.numbers - block.first_row) * (block.stop - block.start)
    return block.position + share // max(block.rows, 1)


@dataclasses.dataclass
class PlaceRows(beam.PTransform):
    """Stores the rows of each batch as one segment for every shard touched.

    Input: batches; at most one a block. Outputs: `segments`, keyed by shard; `facts`,
    a PlaceFacts a batch. A retry writes the same segment file again. Counter:
    rows_placed.

    Attributes:
      schema: of the rows.
      sharding: where rows go.
      store: where segments lie.
    """

    schema: Schema
    sharding: Sharding
    store: Store

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, batches: beam.PCollection[Batch]) -> beam.pvalue.DoOutputsTuple:
        """Places each batch by itself."""
        return batches | "Cut by shard" >> (
            beam.ParDo(_CutByShard(self.schema, self.sharding, self.store))
            .with_output_types(tuple[ShardKey, Segment])
            .with_outputs(FACTS, main="segments")
        )


class _CutByShard(beam.DoFn):
    def __init__(self, schema: Schema, sharding: Sharding, store: Store) -> None:
        super().__init__()
        self.labels = [feature.name for feature in schema.of_kind(Kind.LABEL)]
        self.sharding = sharding
        self.store = store
        self.rows_placed = beam.metrics.Metrics.counter("place", "rows_placed")

    def process(
        self, batch: Batch
    ) -> Iterator[tuple[ShardKey, Segment] | beam.pvalue.TaggedOutput]:
        block = batch.block
        cut = cut_batch(batch, self.sharding)
        parts = [(rows.num_rows, segment.serialize(rows)) for _, rows in cut]
        stored = self.store.put(block.origin, block.start, parts) if parts else []
        facts = PlaceFacts(
            origin=block.origin,
            start=block.start,
            rows={key: rows.num_rows for key, rows in cut},
            labels={
                name: frozenset(batch.rows[name].unique().drop_null().to_pylist())
                for name in self.labels
            },
        )
        self.rows_placed.inc(batch.rows.num_rows)
        yield beam.pvalue.TaggedOutput(FACTS, facts)
        for (key, _), piece in zip(cut, stored, strict=True):
            yield key, piece
