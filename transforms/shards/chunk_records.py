"""Rows of shards to the record batches that the Example encoder is given."""

from collections.abc import Mapping

import pyarrow as pa

from transforms.core.packing import (
    names_of,
    unpack,
)
from transforms.core.rows.record_columns import is_as_in_rows, record_columns
from transforms.core.schema import record_fields
from transforms.shards.shard_job import ShardLayout

__all__ = ["ChunkRecords"]


class ChunkRecords:
    """Makes the record batches of chunks of one shard.

    Attributes:
      encoder: of the batches.
    """

    def __init__(self, table: pa.Table, layout: ShardLayout) -> None:
        """Plans the batches.

        Args:
          table: rows of the shard.
          layout: of the shard.
        """
        self._packed = _packed_field(table, layout)
        held = frozenset(names_of(self._packed) or ()) if self._packed else ()
        self._alone = [f for f in layout.schema.features if f.name not in held]
        dictionaries = {
            name: kind
            for name, kind in zip(table.schema.names, table.schema.types, strict=True)
            if pa.types.is_dictionary(kind)
        }
        if not (dictionaries or self._packed):
            self.encoder = layout.encoder
            return
        fields = [
            field.with_type(dictionaries.get(field.name, field.type))
            for feature in self._alone
            if not feature.derived and not feature.internal
            for field in record_fields(feature)
        ]
        packed = [self._packed] if self._packed else []
        self.encoder = layout.encoder_of(pa.schema([*fields, *packed]))

    @property
    def width(self) -> int:
        """How many columns a batch has, packed ones as well."""
        return len(self.encoder.schema) + len(
            names_of(self._packed) or () if self._packed else ()
        )

    def opened(self, chunk: pa.Table) -> pa.Table:
        """Returns a chunk without packed columns but those that are encoded so."""
        kept = None if self._packed is None else self._packed.type.value_type
        return unpack(chunk, kept=kept)

    def columns(self, chunk: pa.Table) -> dict[str, pa.Array]:
        """Returns the columns of features by themselves, by their keys in records."""
        return record_columns(chunk, self._alone)

    def batch(self, chunk: pa.Table, columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
        """Returns what is encoded of a chunk, with these of its columns."""
        schema = self.encoder.schema
        found = dict(columns)
        if self._packed is not None:
            found[self._packed.name] = chunk[self._packed.name].combine_chunks()
        return pa.record_batch([found[name] for name in schema.names], schema)

    def value_of(
        self, chunk: pa.Table, columns: Mapping[str, pa.Array], name: str
    ) -> pa.Array:
        """Returns the values of any feature in the rows of a chunk."""
        if name in columns:
            return columns[name]
        return chunk[name].combine_chunks()


def _packed_field(table: pa.Table, layout: ShardLayout) -> pa.Field | None:
    """Returns the packed column that is encoded as it is; None for none.

    The catalogue is given each column by itself.
    """
    features = {feature.name: feature for feature in layout.schema.features}
    for field in table.schema if not layout.derived.catalogue else ():
        names = names_of(field)
        if names is None or field.type.value_type != pa.float32():
            continue
        if all(is_as_in_rows(features[name]) for name in names):
            return field
    return None
