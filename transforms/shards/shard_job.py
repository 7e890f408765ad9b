"""What is to be written: the shards of a job, and where their rows come from.

Rows of a pipeline have no place of their own. They are ordered by their hash, and those
of equal hash by the record that their values make, so that nothing depends on the
bundles and attempts that they came from.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core import segment
from transforms.core.catalogue import DerivedSettings, catalogue_features
from transforms.core.example.encoder import ExampleEncoder
from transforms.core.image.policy import ImagePolicy
from transforms.core.model import ShardKey
from transforms.core.placing.sharding import ShardCounts, Sharding, ShardRows
from transforms.core.rows.record_columns import (
    number_labels,
    record_columns,
    record_schema,
)
from transforms.core.schema import Feature, Kind, Schema, record_fields
from transforms.core.segment import (
    KEY_COLUMN,
    NO_RECORD,
    ORIGIN_COLUMN,
    PLACE_COLUMNS,
    ROW_COLUMN,
    Segment,
)
from transforms.errors import InputError, bounded
from transforms.work.store import Store

_AS_IT_IS = ImagePolicy()
_NO_DERIVED_FILES = DerivedSettings()
CHUNK_BYTES = 1 << 24


@dataclasses.dataclass(frozen=True)
class ShardLayout:
    """Settings that decide the bytes of a shard and what is beside it, but its rows.

    Attributes:
      name: of the dataset.
      schema: of the rows.
      sharding: where rows go; its seed decides their order.
      compression: "none" or "gzip".
      root: folder that images are under.
      image_policy: what is done to images.
      many_origins: whether each row has an origin of its own.
      origins_name_rows: whether that alone says where the row is.
      fingerprints: whether images are compared over splits.
      derived: which files are made for readers while the shard is written.
    """

    name: str
    schema: Schema
    sharding: Sharding
    compression: str = "none"
    root: str = ""
    image_policy: ImagePolicy = _AS_IT_IS
    many_origins: bool = False
    origins_name_rows: bool = False
    fingerprints: bool = False
    derived: DerivedSettings = _NO_DERIVED_FILES

    @functools.cached_property
    def record_schema(self) -> pa.Schema:
        """Arrow schema of the columns of records."""
        return record_schema(self.schema)

    @property
    def catalogue_features(self) -> tuple[Feature, ...]:
        """The features that are columns of the catalogue; none without one."""
        return self._catalogue_columns[0]

    @property
    def catalogue_notes(self) -> tuple[str, ...]:
        """Notes on features that the catalogue cannot have."""
        return self._catalogue_columns[1]

    @functools.cached_property
    def _catalogue_columns(self) -> tuple[tuple[Feature, ...], tuple[str, ...]]:
        if not self.derived.catalogue:
            return (), ()
        return catalogue_features(self.schema.stored)


@dataclasses.dataclass(frozen=True, slots=True)
class ShardTask:
    """One shard that is to be written.

    Attributes:
      key: of the shard.
      segments: its rows, in source order.
      rows: how many there are, about.
      size: bytes of the segments.
      known_as: what the caller knows it by.
    """

    key: ShardKey
    segments: Sequence[Segment]
    rows: int
    size: int
    known_as: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class ShardJob:
    """What the shards of a job have in common.

    Attributes:
      shard_counts: of the job.
      classes: label feature -> its class names in the order of their ids.
      layout: what decides the bytes.
      store: where the files go.
    """

    shard_counts: ShardCounts
    classes: Mapping[str, pa.StringArray]
    layout: ShardLayout
    store: Store

    def load(self, tasks: Sequence[ShardTask]) -> tuple[ShardRows, Sequence[int]]:
        """Returns the rows of shards as `load_segments` does, with numbers for labels.

        Raises:
          EncodingError: a label is no class.
        """
        sources = [task.segments for task in tasks]
        rows, lengths = load_segments(sources, layout=self.layout, store=self.store)
        table = number_labels(rows.table, self.layout.schema.features, self.classes)
        return dataclasses.replace(rows, table=table), lengths


def load_segments(
    sources: Sequence[Sequence[Segment]], *, layout: ShardLayout, store: Store
) -> tuple[ShardRows, Sequence[int]]:
    """Returns the rows of shards that `place` has stored, and how many each has.

    Args:
      sources: the segments of each shard, in source order.
      layout: of the shards.
      store: where the segments are.

    Raises:
      InputError: two rows have one key, where that is refused.
    """
    schema = segment.segment_schema(
        layout.schema.row_schema,
        many_origins=layout.many_origins,
        ordered=layout.sharding.stores_order,
    )
    pieces = [piece for source in sources for piece in source]
    lengths = [sum(piece.rows for piece in source) for source in sources]
    rows = ShardRows.of(
        (
            (piece.origin, segment.deserialize(message, schema))
            for piece, message in zip(pieces, store.get_all(pieces), strict=True)
        ),
        seed=layout.sharding.seed,
        shuffle=layout.sharding.shuffle,
        lengths=lengths,
    )
    if layout.sharding.placeless:
        unique = layout.sharding.unique
        return PlacelessRows.ordered(rows, lengths, layout.schema, unique=unique)
    return rows, lengths


Longs = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, slots=True)
class PlacelessRows(ShardRows):
    """Rows that are known by their key, or the hash of their content.

    Attributes:
      paths: the column of the only images where that is of paths; else empty.
    """

    paths: str = ""

    @classmethod
    def ordered(
        cls, rows: ShardRows, lengths: Sequence[int], schema: Schema, *, unique: bool
    ) -> tuple[Self, list[int]]:
        """Returns the rows of shards that become records, and how many of each shard.

        Args:
          rows: of one shard after another, each in the order of its hashes.
          lengths: how many rows each shard has.
          schema: of the rows.
          unique: whether no two rows of a shard may have one key.

        Raises:
          InputError: two rows have one key.
        """
        table = rows.table
        hashes = table[KEY_COLUMN].to_numpy()
        shards = np.repeat(np.arange(len(lengths)), lengths)
        order = rows.order
        if unique:
            _check_unique(table, order[_tied(hashes[order], shards)])
        is_kept = pc.not_equal(table[ROW_COLUMN], NO_RECORD)
        kept = is_kept.to_numpy()[order]
        if not kept.all():
            order, shards = order[kept], shards[kept]
            for feature in schema.of_kind(Kind.LABEL):
                # A name that only rejected rows have is no class.
                names = pc.if_else(is_kept, table[feature.name], None)
                index = table.schema.get_field_index(feature.name)
                table = table.set_column(index, feature.name, names)
        tied = _tied(hashes[order], shards)
        if tied.any():
            order = _by_records(table, schema, order, shards, tied)
        images = schema.of_kind(Kind.IMAGE)
        alone = len(images) == 1 and not (images[0].inline or images[0].is_list)
        return (
            cls(
                table,
                order,
                rows.origins,
                rows.starts,
                paths=images[0].name if alone else "",
            ),
            np.bincount(shards, minlength=len(lengths)).tolist(),
        )

    def origin(self, position: int) -> tuple[str, int | None]:
        """Returns (what the row is known by, None) of the row at a position."""
        if ORIGIN_COLUMN in self.table.column_names:
            return str(self.table[ORIGIN_COLUMN][position].as_py()), None
        return f"{self.table[KEY_COLUMN][position].as_py():016x}", None

    def without_values(self) -> Self:
        """Returns the rows without the columns of features, but for paths of images."""
        kept = PLACE_COLUMNS | {self.paths}
        names = [name for name in self.table.column_names if name in kept]
        return dataclasses.replace(self, table=self.table.select(names))

    def repeated_keys(
        self, start: int, stop: int
    ) -> tuple[int, tuple[tuple[str, int | None], ...]]:
        """As of other rows; equal rows without keys are no repeated keys."""
        if ORIGIN_COLUMN not in self.table.column_names:
            return 0, ()
        return ShardRows.repeated_keys(self, start, stop)

    def places(self, positions: Longs) -> tuple[pa.StringArray, Longs]:
        """Returns what says where the images of rows are, and 0 of each row."""
        if self.paths:
            names = self.table[self.paths].take(pa.array(positions)).to_pylist()
        else:
            names = [self.origin(position)[0] for position in positions.tolist()]
        return pa.array(names, pa.string()), np.zeros(len(names), np.int64)

    def sources(self, positions: Longs) -> tuple[pa.Array, pa.Int64Array]:
        """Returns the keys of rows, if they have any, and no numbers."""
        count = len(positions)
        if ORIGIN_COLUMN not in self.table.column_names:
            return pa.nulls(count, pa.string()), pa.nulls(count, pa.int64())
        keys = self.table[ORIGIN_COLUMN].take(pa.array(positions)).combine_chunks()
        return keys, pa.nulls(count, pa.int64())


def _tied(hashes: npt.NDArray[np.uint64], shards: Longs) -> npt.NDArray[np.bool_]:
    """Returns which of n hashes a neighbour of the same shard has too: mostly none."""
    same = (hashes[1:] == hashes[:-1]) & (shards[1:] == shards[:-1])
    tied = np.zeros(len(hashes), np.bool_)
    tied[:-1] |= same
    tied[1:] |= same
    return tied


def _by_records(
    table: pa.Table,
    schema: Schema,
    order: Longs,
    shards: Longs,
    tied: npt.NDArray[np.bool_],
) -> Longs:
    """Returns the order with tied rows by their records."""
    at = order[tied]
    by_hash = pa.table(
        {
            "shard": shards[tied],
            "hash": table[KEY_COLUMN].to_numpy()[at],
            "record": _records(table.take(pa.array(at)), schema),
        }
    )
    # Of equal ones either order gives the same bytes.
    names = [(name, "ascending") for name in by_hash.column_names]
    out = order.copy()
    out[tied] = at[pc.sort_indices(by_hash, sort_keys=names).to_numpy()]
    return out


def _check_unique(table: pa.Table, at: Longs) -> None:
    """Raises InputError where rows at some positions have one key."""
    if not len(at):
        return
    keys = pa.table({"key": table[ORIGIN_COLUMN].take(pa.array(at))})
    counted = keys.group_by("key").aggregate([([], "count_all")])
    many = counted.filter(pc.greater(counted["count_all"], 1))["key"]
    if len(many):
        # Of this shard alone: the first one that fails ends the job.
        raise repeated_key(min(many.to_pylist()), len(many), "in this shard")


def repeated_key(key: str, count: int, where: str) -> InputError:
    """Returns the error about rows that share a key.

    Args:
      key: the first that is given more than once.
      count: how many such keys there are.
      where: that they are.
    """
    more = f", and so are others, {count:,} {where}" if count > 1 else ""
    return InputError(
        bounded(
            f"Every row must have a key of its own; {key!r} is given more than once"
            f"{more}. Remove the rows that are given twice, or allow them with "
            f'duplicates="keep".'
        )
    )


def _records(rows: pa.Table, schema: Schema) -> pa.LargeBinaryArray:
    """Returns what tells rows apart: their records, images as they are in the rows."""
    single = frozenset(rows.column_names)
    features = [
        feature
        for feature in schema.features
        if feature.name in single and not (feature.derived or feature.internal)
    ]
    plain = [f for f in features if f.kind not in (Kind.IMAGE, Kind.LABEL)]
    columns: dict[str, Any] = record_columns(rows, plain)
    fields = [field for feature in plain for field in record_fields(feature)]
    for feature in features:
        if feature not in plain:
            column = rows[feature.name].combine_chunks()
            columns[feature.name] = column
            fields.append(pa.field(feature.name, column.type))
    batch = pa.record_batch(
        [columns[field.name] for field in fields], schema=pa.schema(fields)
    )
    return ExampleEncoder(batch.schema).encode(batch)
