r"""Columns of one type as one column, whose values are the numbers of a whole row.

    x0, x1, ... x9999   n float32 each   ->   \0float   n lists of 10,000 float32

To cut, store, join and sort rows takes a microsecond or more a column and step, however
few the rows. Between the stages that look at columns, tables of hundreds of them are
packed. Missing values stay missing inside the lists.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.arrays import flattened, numpy_mask, raw_values
from transforms.core.sparse import LEAST_COLUMNS, MOST_HELD, Cells

__all__ = [
    "LEAST_PACKED",
    "Packed",
    "column_of",
    "has_packed",
    "names_of",
    "pack",
    "packed_columns",
    "packed_names",
    "packed_schema",
    "unpack",
    "unpack_batch",
    "unpacked_schema",
    "with_packed",
    "with_sparse_numbers",
]

Mask = npt.NDArray[np.bool_]

LEAST_PACKED = 256
"""Fewer columns cost less than to pack and unpack them."""

_TYPES = (pa.float32(), pa.int64())
# Values of packed columns that are looked at together.
_BLOCK_CELLS = 1 << 22
# Key of the metadata of a packed column: the names, with a NUL between two.
_NAMES = b"names"


@dataclasses.dataclass(frozen=True, slots=True)
class Packed:
    """k columns of numbers of one type as one.

    Attributes:
      names: of the columns.
      lists: a fixed-size list array of n rows: the k numbers of each, in the order of
        the names.
    """

    names: tuple[str, ...]
    lists: pa.FixedSizeListArray

    @classmethod
    def of(cls, columns: pa.RecordBatch) -> "Packed":
        """Returns columns of float32, or of int64, as one."""
        return cls((*columns.schema.names,), _packed(columns))

    @property
    def kind(self) -> pa.DataType:
        """The type of the numbers."""
        return self.lists.type.value_type

    @property
    def field(self) -> pa.Field:
        """The field of the column."""
        return _field(self.kind, self.names)

    @property
    def numbers(self) -> pa.Array:
        """The n * k numbers, row by row."""
        return flattened(self.lists, None)[1]

    @property
    def cells(self) -> npt.NDArray[np.generic]:
        """The numbers as an array (n, k); missing ones are anything."""
        return raw_values(self.numbers).reshape(-1, len(self.names))

    def valid(self) -> Mask | None:
        """Returns which numbers are there, as (n, k) bools; None where all are."""
        numbers = self.numbers
        if not numbers.null_count:
            return None
        return numpy_mask(numbers.is_valid()).reshape(-1, len(self.names))

    def chosen(self, names: tuple[str, ...], places: tuple[int, ...]) -> "Packed":
        """Returns the columns at these places, which get these names."""
        if places == tuple(range(len(self.names))):
            return Packed(names, self.lists)
        numbers = np.arange(len(self.lists))[:, None] * len(self.names) + places
        taken = self.numbers.take(pa.array(numbers.ravel()))
        return Packed(names, pa.FixedSizeListArray.from_arrays(taken, len(names)))

    def columns(self) -> dict[str, pa.Array]:
        """Returns the columns by their names."""
        return dict(zip(self.names, _columns(self.lists), strict=True))


def packed_schema(schema: pa.Schema) -> pa.Schema:
    """Returns the schema of the rows that `pack` returns: single columns come first.

    Args:
      schema: of rows; no name holds a NUL.
    """
    groups = _groups(schema)
    if not groups:
        return schema
    packed = {index for indices in groups.values() for index in indices}
    fields = [field for index, field in enumerate(schema) if index not in packed]
    names = schema.names
    for kind, indices in groups.items():
        fields.append(_field(kind, [names[index] for index in indices]))
    return pa.schema(fields)


def unpacked_schema(schema: pa.Schema) -> pa.Schema:
    """Returns the schema of rows with each column by itself."""
    fields: list[pa.Field] = []
    for field in schema:
        names = names_of(field)
        if names is None:
            fields.append(field)
        else:
            fields += [pa.field(name, field.type.value_type) for name in names]
    return pa.schema(fields)


def _field(kind: pa.DataType, names: Sequence[str]) -> pa.Field:
    lists = pa.list_(kind, len(names))
    return pa.field(f"\0{kind}", lists, metadata={_NAMES: "\0".join(names)})


def names_of(field: pa.Field) -> list[str] | None:
    """Returns the names of the columns that a packed one holds; None for others."""
    joined = (field.metadata or {}).get(_NAMES)
    return None if joined is None else joined.decode().split("\0")


def has_packed(schema: pa.Schema) -> bool:
    """Whether one of the columns is packed."""
    return any(f"\0{kind}" in schema.names for kind in _TYPES)


def _groups(schema: pa.Schema) -> dict[pa.DataType, list[int]]:
    """Returns the indices of the columns to pack, by their type."""
    types = schema.types
    if len(types) < LEAST_PACKED:
        return {}
    found = {kind: [i for i, t in enumerate(types) if t == kind] for kind in _TYPES}
    return {kind: i for kind, i in found.items() if len(i) >= LEAST_PACKED}


def pack(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Returns rows with their columns of numbers packed, where these are many."""
    groups = _groups(rows.schema)
    if not groups:
        return rows
    packed = {index for indices in groups.values() for index in indices}
    columns = [c for index, c in enumerate(rows.columns) if index not in packed]
    columns += [_packed(rows.select(indices)) for indices in groups.values()]
    return pa.RecordBatch.from_arrays(columns, schema=packed_schema(rows.schema))


def _packed(rows: pa.RecordBatch) -> pa.FixedSizeListArray:
    """Returns n lists of k numbers of n rows of k columns."""
    try:
        # "Can only convert a RecordBatch with no nulls".
        numbers = pa.array(rows.to_tensor(row_major=True).to_numpy().ravel())
        return pa.FixedSizeListArray.from_arrays(numbers, rows.num_columns)
    except pa.ArrowTypeError:
        pass
    flat = pa.concat_arrays(rows.columns)
    shape = rows.num_columns, rows.num_rows
    values = np.ascontiguousarray(raw_values(flat).reshape(shape).T)
    validity = None
    if flat.null_count:
        valid = flat.is_valid().to_numpy(zero_copy_only=False).reshape(shape).T
        validity = pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [validity, pa.py_buffer(values)]
    numbers = pa.Array.from_buffers(flat.type, len(flat), buffers, flat.null_count)
    return pa.FixedSizeListArray.from_arrays(numbers, rows.num_columns)


def with_packed(
    rows: pa.RecordBatch, packed: Packed, schema: pa.Schema
) -> pa.RecordBatch:
    """Returns what `pack` returns for rows that have packed columns as others.

    Args:
      rows: n rows of the columns that are not packed; any number if there are none.
      packed: columns of n rows.
      schema: what `packed_schema` gives for all of the columns.
    """
    alone: dict[str, pa.Array] = {}
    columns = []
    for field in schema:
        names = names_of(field)
        if names is None:
            columns.append(rows.column(field.name))
        elif (*names,) == packed.names:
            columns.append(packed.lists)
        else:
            alone = alone or packed.columns()
            mixed = [alone[n] if n in alone else rows.column(n) for n in names]
            columns.append(_packed(pa.RecordBatch.from_arrays(mixed, names)))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _held(
    rows: pa.RecordBatch | pa.Table,
) -> Iterator[tuple[str, pa.Array | pa.ChunkedArray | Packed]]:
    """Yields the columns of rows by their names; those that are packed as such."""
    for field, column in zip(rows.schema, rows.columns, strict=True):
        names = names_of(field)
        yield field.name, column if names is None else Packed((*names,), _whole(column))


def packed_columns(rows: pa.RecordBatch | pa.Table) -> list[Packed]:
    """Returns the packed columns of rows."""
    return [each for _, each in _held(rows) if isinstance(each, Packed)]


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def column_of(rows: pa.RecordBatch, name: str) -> pa.Array:
    """Returns the column of a name from rows that may be packed."""
    if name in rows.schema.names:
        return rows.column(name)
    (packed,) = (each for each in packed_columns(rows) if name in each.names)
    return packed.columns()[name]


def unpack(rows: pa.Table, *, kept: pa.DataType | None = None) -> pa.Table:
    """Inverse of `pack`, but for the order of the columns.

    Args:
      rows: packed or not.
      kept: the type of packed columns that stay so.
    """
    fields: list[pa.Field] = []
    columns: list[pa.Array | pa.ChunkedArray] = []
    for field, (_, held) in zip(rows.schema, _held(rows), strict=True):
        if not isinstance(held, Packed):
            fields.append(field)
            columns.append(held)
        elif held.kind == kept:
            fields.append(field)
            columns.append(held.lists)
        else:
            fields += [pa.field(name, held.kind) for name in held.names]
            columns += held.columns().values()
    if len(fields) == rows.num_columns:
        return rows
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def unpack_batch(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Inverse of `pack`.

    Args:
      rows: packed or not.
      schema: of the rows before.
    """
    columns: dict[str, pa.Array] = {}
    for name, held in _held(rows):
        columns |= held.columns() if isinstance(held, Packed) else {name: held}
    return pa.RecordBatch.from_arrays([columns[n] for n in schema.names], schema=schema)


def _columns(lists: pa.FixedSizeListArray) -> Iterator[pa.Array]:
    """Yields k columns of n numbers of n lists of k."""
    _, numbers = flattened(lists, None)
    kind, rows, each = numbers.type, len(lists), lists.type.list_size
    if not rows:
        yield from [pa.array([], kind)] * each
        return
    values = np.ascontiguousarray(raw_values(numbers).reshape(rows, each).T)
    data, size = pa.py_buffer(values), rows * kind.byte_width
    parts = [data.slice(start, size) for start in range(0, len(data), size)]
    if not numbers.null_count:
        for part in parts:
            yield pa.Array.from_buffers(kind, rows, [None, part], 0)
        return
    valid = numbers.is_valid().to_numpy(zero_copy_only=False).reshape(rows, each).T
    masks = np.packbits(np.ascontiguousarray(valid), axis=1, bitorder="little")
    missing = rows - valid.sum(axis=1)
    for part, mask, count in zip(parts, masks, missing.tolist(), strict=True):
        validity = pa.py_buffer(mask) if count else None
        yield pa.Array.from_buffers(kind, rows, [validity, part], count)


def packed_names(schema: pa.Schema) -> set[str]:
    """Returns the names of columns, of packed ones those that are in them."""
    names: set[str] = set()
    for field in schema:
        names.update(names_of(field) or [field.name])
    return names


def with_sparse_numbers(rows: pa.Table, able: Callable[[str], bool]) -> pa.Table:
    """Returns rows in which those of packed columns are sparse that few rows have.

    Args:
      rows: as `pack` gives them.
      able: whether a column of this name may be sparse.
    """
    kept: list[tuple[pa.Field, pa.Array | pa.ChunkedArray]] = []
    sparse: list[Cells] = []
    for field, column in zip(rows.schema, rows.columns, strict=True):
        names = names_of(field)
        if names is None or not len(rows):
            kept.append((field, column))
            continue
        if not _may_be_sparse(column):
            kept.append((field, column))
            continue
        whole = _whole(column)
        few = _held_by_few(whole, np.fromiter(map(able, names), np.bool_, len(names)))
        if few is None:
            kept.append((field, column))
            continue
        sparse.append(_cells(whole, names, few))
        if not few.all():
            rest = [name for name, is_few in zip(names, few, strict=True) if not is_few]
            field = _field(whole.type.value_type, rest)
            kept.append((field, _some_columns(whole, ~few)))
    if not sparse:
        return rows
    kept += [(cells.field, cells.column) for cells in sparse]
    fields, columns = zip(*kept, strict=True)
    return pa.Table.from_arrays([*columns], schema=pa.schema(fields))


def _valid_blocks(lists: pa.FixedSizeListArray) -> Iterator[tuple[int, Mask]]:
    """Yields (first row, which values of rows are there) of n lists of k."""
    each = lists.type.list_size
    size = max(_BLOCK_CELLS // each, 1)
    for start in range(0, len(lists), size):
        _, numbers = flattened(lists.slice(start, size), None)
        yield start, numpy_mask(numbers.is_valid()).reshape(-1, each)


def _may_be_sparse(lists: pa.ChunkedArray) -> bool:
    """Tells whether enough values are null for the fewest columns to become sparse."""
    gone = sum(flattened(chunk, None)[1].null_count for chunk in lists.chunks)
    return bool(gone >= LEAST_COLUMNS * len(lists) * (1 - MOST_HELD))


def _held_by_few(lists: pa.FixedSizeListArray, able: Mask) -> Mask | None:
    """Returns which of k columns become sparse; None for none."""
    held = np.zeros(lists.type.list_size, np.int64)
    for _, valid in _valid_blocks(lists):
        held += valid.sum(axis=0)
    few: Mask = (held <= MOST_HELD * len(lists)) & able
    return few if few.sum() >= LEAST_COLUMNS else None


def _cells(lists: pa.FixedSizeListArray, names: Sequence[str], few: Mask) -> Cells:
    """Returns the cells of some of the k columns of n lists."""
    chosen = sorted(np.flatnonzero(few).tolist(), key=names.__getitem__)
    columns = np.array(chosen, np.int64)
    rows, places = [], []
    for start, valid in _valid_blocks(lists):
        of_block, places_of_block = np.nonzero(valid[:, columns])
        rows.append(of_block + start)
        places.append(places_of_block)
    row, place = np.concatenate(rows), np.concatenate(places)
    _, numbers = flattened(lists, None)
    values = raw_values(numbers)[row * lists.type.list_size + columns[place]]
    return Cells.sorted(
        [names[index] for index in chosen], len(lists), row, place, pa.array(values)
    )


def _some_columns(lists: pa.FixedSizeListArray, chosen: Mask) -> pa.Array:
    """Returns n lists of the chosen ones of their k values."""
    each = lists.type.list_size
    _, numbers = flattened(lists, None)
    places = np.flatnonzero(np.broadcast_to(chosen, (len(lists), each)))
    taken = numbers.take(pa.array(places))
    return pa.FixedSizeListArray.from_arrays(taken, int(chosen.sum()))
