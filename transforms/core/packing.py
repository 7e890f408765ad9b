r"""Columns of one type as one column, whose values are the numbers of a whole row.

    x0, x1, ... x9999   n float32 each   ->   \0float   n lists of 10,000 float32

To cut, store, join and sort rows takes a microsecond or more a column and step, however
few the rows. Between the stages that look at columns, tables of hundreds of them are
packed. Missing values stay missing inside the lists.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.arrays import flattened, numpy_mask, raw_values
from transforms.core.sparse import LEAST_COLUMNS, MOST_HELD, Cells

__all__ = ["pack", "packed_names", "packed_schema", "unpack", "with_sparse_numbers"]

Mask = npt.NDArray[np.bool_]

_TYPES = (pa.float32(), pa.int64())
# Fewer columns cost less than to pack and unpack them.
_LEAST_COLUMNS = 256
# Values of packed columns that are looked at together.
_BLOCK_CELLS = 1 << 22
# Key of the metadata of a packed column: the names, with a NUL between two.
_NAMES = b"names"


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
        joined = "\0".join(names[index] for index in indices)
        fields.append(
            pa.field(
                f"\0{kind}", pa.list_(kind, len(indices)), metadata={_NAMES: joined}
            )
        )
    return pa.schema(fields)


def _groups(schema: pa.Schema) -> dict[pa.DataType, list[int]]:
    """Returns the indices of the columns to pack, by their type."""
    types = schema.types
    if len(types) < _LEAST_COLUMNS:
        return {}
    found = {kind: [i for i, t in enumerate(types) if t == kind] for kind in _TYPES}
    return {kind: i for kind, i in found.items() if len(i) >= _LEAST_COLUMNS}


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


def unpack(rows: pa.Table) -> pa.Table:
    """Inverse of `pack`, but for the order of the columns."""
    names: list[str] = []
    columns: list[pa.Array | pa.ChunkedArray] = []
    for field, column in zip(rows.schema, rows.columns, strict=True):
        packed = (field.metadata or {}).get(_NAMES)
        if packed is None:
            names.append(field.name)
            columns.append(column)
        else:
            names += packed.decode().split("\0")
            whole = column.num_chunks == 1
            columns += _columns(column.chunk(0) if whole else column.combine_chunks())
    if len(names) == rows.num_columns:
        return rows
    return pa.Table.from_arrays(columns, names)


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
        packed = (field.metadata or {}).get(_NAMES)
        names |= {field.name} if packed is None else {*packed.decode().split("\0")}
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
        packed = (field.metadata or {}).get(_NAMES)
        if packed is None or not len(rows):
            kept.append((field, column))
            continue
        whole = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        names = packed.decode().split("\0")
        few = _held_by_few(whole, np.fromiter(map(able, names), np.bool_, len(names)))
        if few is None:
            kept.append((field, column))
            continue
        sparse.append(_cells(whole, names, few))
        if not few.all():
            rest = [name for name, is_few in zip(names, few, strict=True) if not is_few]
            kind = pa.list_(whole.type.value_type, len(rest))
            field = pa.field(field.name, kind, metadata={_NAMES: "\0".join(rest)})
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


def _held_by_few(lists: pa.FixedSizeListArray, able: Mask) -> Mask | None:
    """Returns which of k columns become sparse; None for none."""
    _, numbers = flattened(lists, None)
    if numbers.null_count < LEAST_COLUMNS * len(lists) * (1 - MOST_HELD):
        return None
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
