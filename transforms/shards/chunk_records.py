"""Rows of shards to the record batches that the Example encoder is given.

Columns that few rows have are sparse here, wherever the rows come from: what a chunk
takes to be encoded goes by its values, not by rows times columns.
"""

from collections.abc import Mapping

import pyarrow as pa

from transforms.core.packing import (
    names_of,
    packed_names,
    unpack,
    with_sparse_numbers,
)
from transforms.core.rows.record_columns import is_as_in_rows, record_columns
from transforms.core.rows.repeated_texts import with_dictionaries
from transforms.core.schema import record_fields
from transforms.core.sparse import cells_of, is_sparse, with_columns, with_sparse
from transforms.shards.shard_job import ShardLayout

__all__ = ["ChunkRecords", "prepared"]


def prepared(table: pa.Table, layout: ShardLayout) -> pa.Table:
    """Returns the rows of a shard in the form in which they are encoded fastest."""
    features = {feature.name: feature for feature in layout.schema.features}

    def able(name: str, _: object = None) -> bool:
        return name in features and is_as_in_rows(features[name])

    table = with_sparse_numbers(table, able)
    return with_dictionaries(with_sparse(table, able))


class ChunkRecords:
    """Makes the record batches of chunks of one shard.

    Attributes:
      encoder: of the batches.
      features: those that have columns of their own.
      is_sparse: whether there are others.
    """

    def __init__(self, table: pa.Table, layout: ShardLayout) -> None:
        """Plans the batches.

        Args:
          table: rows of the shard, as `prepared` gives them.
          layout: of the shard.
        """
        self._stored = {feature.name: feature for feature in layout.schema.stored}
        self._sparse = [field for field in table.schema if is_sparse(field)]
        single = packed_names(table.schema)
        self.features = [f for f in layout.schema.features if f.name in single]
        self._packed = _packed_field(table, layout)
        held = frozenset(names_of(self._packed) or ()) if self._packed else ()
        self._alone = [f for f in self.features if f.name not in held]
        dictionaries = {
            name: kind
            for name, kind in zip(table.schema.names, table.schema.types, strict=True)
            if pa.types.is_dictionary(kind)
        }
        rest = (f.name for f in layout.schema.features if not f.derived)
        self.is_sparse = not single.issuperset(rest)
        if not (self.is_sparse or dictionaries or self._packed):
            self.encoder = layout.encoder
            return
        fields = [
            field.with_type(dictionaries.get(field.name, field.type))
            for feature in self._alone
            if not feature.derived and not feature.internal
            for field in record_fields(feature)
        ]
        packed = [self._packed] if self._packed else []
        self.encoder = layout.encoder_of(pa.schema([*fields, *packed, *self._sparse]))

    @property
    def width(self) -> int:
        """How many columns a batch has, packed ones as well."""
        return len(self.encoder.schema) + len(self.features) - len(self._alone)

    @property
    def keys(self) -> set[str]:
        """The first keys in records of features that have columns of their own."""
        return {f.record_keys[0] for f in self.features if f.record_keys}

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
        if self._sparse:
            found |= {cells.field.name: cells.column for cells in cells_of(chunk)}
        return pa.record_batch([found[name] for name in schema.names], schema)

    def value_of(
        self, chunk: pa.Table, columns: Mapping[str, pa.Array], name: str
    ) -> pa.Array:
        """Returns the values of any feature in the rows of a chunk."""
        if name in columns:
            return columns[name]
        found = with_columns(chunk, {name}) if self._sparse else chunk
        if name in found.column_names:
            return found[name].combine_chunks()
        (field,) = record_fields(self._stored[name])
        return pa.nulls(len(chunk), field.type)


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
