"""Write a part of the catalogue as a Parquet file, a row group at a time."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from transforms.core.catalogue import MOST_SECONDS
from transforms.errors import ExampleError

_GROUP_ROWS = 1 << 17
_GROUP_BYTES = 64 << 20


def write_part(
    sink: Any,
    batches: Iterable[Mapping[str, pa.Array]],
    schema: pa.Schema,
    classes: Mapping[str, pa.StringArray],
) -> int:
    """Writes one part; returns how many rows it has.

    Memory is that of one row group: 131,072 rows, or about 64 MiB.

    Args:
      sink: a path, or a binary file.
      batches: columns of consecutive records, at least those of the schema; labels
        are class ids.
      schema: as `catalogue_schema` returns it.
      classes: that it was made with.

    Raises:
      ExampleError: a class id has no name.
    """
    names = frozenset(classes).intersection(schema.names)
    repeated = ["_shard", *(f.name for f in schema if _is_text(f.type))]
    rows = 0
    with pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        use_dictionary=repeated,
        write_page_checksum=True,
    ) as writer:
        for group in _groups(batches, schema.names):
            columns = [
                _named(name, group[name], classes[name])
                if name in names
                else _storable(group[name], kind)
                for name, kind in zip(schema.names, schema.types, strict=True)
            ]
            table = pa.Table.from_arrays(columns, schema=schema)
            writer.write_table(table, row_group_size=_GROUP_ROWS)
            rows += len(table)
            del group, columns, table
            # What Arrow keeps of one row group does not fit the next: it grew to the
            # size of three within a part.
            pa.default_memory_pool().release_unused()
    return rows


def _groups(
    batches: Iterable[Mapping[str, pa.Array]], names: Sequence[str]
) -> Iterator[pa.Table]:
    """Yields the rows of a row group at a time."""
    waiting: list[pa.Table] = []
    count = size = 0
    for batch in batches:
        rest = pa.table({name: batch[name] for name in names})
        while len(rest):
            part = rest.slice(0, _GROUP_ROWS - count)
            rest = rest.slice(len(part))
            waiting.append(part)
            count, size = count + len(part), size + part.nbytes
            if count == _GROUP_ROWS or size >= _GROUP_BYTES:
                yield _joined(waiting)
                waiting, count, size = [], 0, 0
    if waiting:
        yield _joined(waiting)


def _joined(tables: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables).combine_chunks()


def _named(
    name: str, ids: pa.ChunkedArray, classes: pa.StringArray
) -> pa.DictionaryArray:
    """Returns class names; the dictionary has those that occur, in order of ids."""
    found = pc.unique(ids).drop_null()
    found = found.take(pc.sort_indices(found))
    for end in itertools.chain(found[:1].to_pylist(), found[-1:].to_pylist()):
        if not 0 <= end < len(classes):
            raise ExampleError(
                f"label {name!r} must be one of {len(classes):,} class ids; found "
                f"{end:,}. Verify the dataset, and convert it again."
            )
    places = pc.index_in(ids.combine_chunks(), found)
    return pa.DictionaryArray.from_arrays(places, classes.take(found))


def _storable(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if column.type == kind:
        return column
    if pa.types.is_timestamp(column.type):
        seconds = column.cast(pa.int64())
        fits = pc.and_(
            pc.greater_equal(seconds, -MOST_SECONDS),
            pc.less_equal(seconds, MOST_SECONDS),
        )
        column = pc.if_else(fits, column, pa.scalar(None, column.type))
    return column.cast(kind)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_dictionary(kind) or pa.types.is_string(kind))
