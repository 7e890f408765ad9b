"""What is to be written: the shards of a job, and where their rows come from."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import pyarrow as pa

from transforms.core import segment
from transforms.core.catalogue import DerivedSettings, catalogue_features
from transforms.core.example.encoder import ExampleEncoder
from transforms.core.image.policy import ImagePolicy
from transforms.core.model import ShardKey
from transforms.core.placing.sharding import ShardCounts, Sharding, ShardRows
from transforms.core.rows.record_columns import number_labels, record_schema
from transforms.core.schema import Feature, Schema
from transforms.core.segment import Segment
from transforms.shards.placeless_rows import PlacelessRows
from transforms.work.store import Store

_AS_IT_IS = ImagePolicy()
_NO_DERIVED_FILES = DerivedSettings()
# Rows encoded at a time: about 6 MB of small records.
_CHUNK_ROWS = 65_536
# Fewer where they are large, or have many columns: missing values take memory, too.
_CHUNK_CELLS = 1 << 23
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


@functools.lru_cache(4)
def encoder_of(schema: pa.Schema) -> ExampleEncoder:
    """Returns what encodes columns; those of most shards are the same."""
    return ExampleEncoder(schema)


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


def most_rows(columns: int) -> int:
    """Returns how many rows of this many columns are encoded at a time."""
    return min(_CHUNK_ROWS, _CHUNK_CELLS // max(columns, 1))
