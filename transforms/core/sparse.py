r"""Columns that few rows have, as one column of the cells that are there.

    row   a  b  c           \0sparse double
    0     1  -  -           [(0, 1)]
    1     -  2  3     ->    [(1, 2), (2, 3)]        names: a, b, c
    2     -  -  -           []

Rows with a few of very many keys are as wide as all their keys together. In this form
they take the room of their own values, and to cut, order, join and store them takes the
time of those. There is a sparse column for each type. Its field states the names, which
ascend; a cell has the place of its name, and places ascend in a row.

A table may have other columns beside it. What is in which form decides no byte of the
output.
"""

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.arrays import numpy_mask, offsets_of, raw_values

Longs = npt.NDArray[np.int64]

_PREFIX = "\0sparse "
# Key of the metadata of a sparse column: the names, a NUL behind each.
_NAMES = b"sparse"
# Fewer columns that could be sparse stay as they are.
LEAST_COLUMNS = 64
# A column is sparse if at most this share of the rows has it: a cell takes its place
# beside its value, and time to put it among the others.
MOST_HELD = 0.25


@dataclasses.dataclass(frozen=True, slots=True)
class Cells:
    """The cells of k columns of one type in n rows, one row after another.

    Attributes:
      names: k, ascending.
      starts: n + 1: row i has the cells from starts[i] to starts[i + 1].
      places: of each cell's name in `names`.
      values: of the cells; no nulls.
    """

    names: Sequence[str]
    starts: Longs
    places: npt.NDArray[np.int32]
    values: pa.Array

    @property
    def rows(self) -> Longs:
        """The row of each cell."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    @classmethod
    def of(cls, field: pa.Field, column: pa.Array | pa.ChunkedArray) -> "Cells":
        """Returns the cells of a sparse column."""
        if isinstance(column, pa.ChunkedArray):
            whole = column.num_chunks == 1
            column = column.chunk(0) if whole else column.combine_chunks()
        names = _names_of(field)
        starts = offsets_of(column)
        first, last = int(starts[0]), int(starts[-1])
        items = column.values.slice(first, last - first)
        places = raw_values(items.field(0))
        return cls(names, starts - first, places, items.field(1))

    @classmethod
    def sorted(
        cls,
        names: Sequence[str],
        count: int,
        rows: Longs,
        places: npt.NDArray[np.integer],
        values: pa.Array,
    ) -> "Cells":
        """Returns cells in any order as those of n rows.

        Args:
          names: k, ascending.
          count: n.
          rows, places, values: of each cell; no two share row and place.
        """
        keys = rows * max(len(names), 1) + places
        if len(keys) and (np.diff(keys) < 0).any():
            order = np.argsort(keys, kind="stable")
            rows, places = rows[order], places[order]
            values = values.take(pa.array(order))
        starts = np.searchsorted(rows, np.arange(count + 1))
        return cls(names, starts, places.astype(np.int32, copy=False), values)

    @property
    def field(self) -> pa.Field:
        """The field of `column`."""
        item = pa.struct([("place", pa.int32()), ("value", self.values.type)])
        names = "".join(f"{name}\0" for name in self.names).encode()
        name = f"{_PREFIX}{self.values.type}"
        return pa.field(name, pa.list_(item), metadata={_NAMES: names})

    @property
    def column(self) -> pa.ListArray:
        """The cells as a sparse column."""
        field = self.field
        fields = list(field.type.value_type)
        items = pa.StructArray.from_arrays(
            [pa.array(self.places, pa.int32()), self.values], fields=fields
        )
        starts = pa.array(self.starts.astype(np.int32))
        return pa.ListArray.from_arrays(starts, items, type=field.type)

    def by_name(self) -> "ByName":
        """Returns the cells one name after another."""
        order = np.argsort(self.places, kind="stable")
        values = self.values.take(pa.array(order))
        bounds = np.searchsorted(self.places[order], np.arange(len(self.names) + 1))
        return ByName(self.names, bounds, self.rows[order], values)

    def where(self, wanted: npt.NDArray[np.bool_]) -> "Cells":
        """Returns the wanted ones of the cells, of as many rows."""
        if wanted.all():
            return self
        sums = np.concatenate(([0], np.cumsum(wanted)))
        values = self.values.filter(pa.array(wanted))
        return Cells(self.names, sums[self.starts], self.places[wanted], values)

    @property
    def unheld(self) -> set[str]:
        """The names that no row has a cell of."""
        counts = np.bincount(self.places, minlength=len(self.names))
        return {self.names[place] for place in np.flatnonzero(counts == 0).tolist()}

    def sums(self, each: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        """Returns the sums over the cells of each row, which may wrap."""
        total = np.zeros(len(each) + 1, each.dtype)
        np.cumsum(each, out=total[1:])
        sums: npt.NDArray[np.generic] = np.diff(total[self.starts])
        return sums

    def without(self, names: Collection[str]) -> "Cells":
        """Returns the cells of other names."""
        kept = [name for name in self.names if name not in names]
        if len(kept) == len(self.names):
            return self
        held = np.array([name not in names for name in self.names])
        some = self.where(held[self.places])
        return some.renamed(kept, np.cumsum(held) - 1)

    def renamed(self, names: Sequence[str], places: npt.NDArray[np.integer]) -> "Cells":
        """Returns the cells under other names, ascending as before.

        Args:
          names: the new ones.
          places: of each old name, that of its new one.
        """
        moved = places[self.places].astype(np.int32)
        return Cells(names, self.starts, moved, self.values)


@dataclasses.dataclass(frozen=True, slots=True)
class ByName:
    """The cells of k columns, one column after another.

    Attributes:
      names: k.
      bounds: k + 1: where the cells of each name start, and their number.
      rows, values: of the cells.
    """

    names: Sequence[str]
    bounds: Longs
    rows: Longs
    values: pa.Array

    def __iter__(self) -> Iterator[tuple[str, Longs, pa.Array]]:
        """Yields each name with the rows that have it, and their values."""
        bounds = self.bounds.tolist()
        for name, start, stop in zip(self.names, bounds, bounds[1:], strict=False):
            yield name, self.rows[start:stop], self.values.slice(start, stop - start)

    def columns(self, names: Collection[str], count: int) -> dict[str, pa.Array]:
        """Returns some columns of n rows, with nulls where a row has no cell."""
        return {
            name: _spread(rows, values, count)
            for name, rows, values in self
            if name in names
        }


def _spread(rows: Longs, values: pa.Array, count: int) -> pa.Array:
    places = np.zeros(count, np.int64)
    places[rows] = np.arange(len(rows))
    missing = np.ones(count, np.bool_)
    missing[rows] = False
    return values.take(pa.array(places, mask=missing))


def held_by_few(held: Mapping[str, int], count: int) -> set[str]:
    """Returns the names that few rows have; none where these are not many.

    Args:
      held: name -> how many rows have it.
      count: of the rows.
    """
    few = {name for name, many in held.items() if many <= MOST_HELD * count}
    return few if len(few) >= LEAST_COLUMNS else set()


def is_sparse_name(name: str) -> bool:
    """Whether a column of this name holds the cells of several."""
    return name.startswith(_PREFIX)


def is_sparse(field: pa.Field) -> bool:
    """Whether a column holds the cells of several."""
    name: str = field.name
    return is_sparse_name(name)


def has_sparse(schema: pa.Schema) -> bool:
    """Whether one of the columns is sparse."""
    # Of thousands of names, faster than to ask each.
    return _PREFIX in "".join(schema.names)


def _names_of(field: pa.Field) -> list[str]:
    names: list[str] = field.metadata[_NAMES].decode().split("\0")[:-1]
    return names


def names_and_type(field: pa.Field) -> tuple[list[str], pa.DataType]:
    """Returns the names of a sparse column's cells, and the type of their values."""
    return _names_of(field), field.type.value_type.field("value").type


def cells_of(rows: pa.Table | pa.RecordBatch) -> list[Cells]:
    """Returns the cells of all sparse columns."""
    if not has_sparse(rows.schema):
        return []
    return [
        Cells.of(field, column)
        for field, column in zip(rows.schema, rows.columns, strict=True)
        if is_sparse(field)
    ]


def other_names(schema: pa.Schema) -> list[str]:
    """Returns the names of the columns that are not sparse."""
    return [name for name in schema.names if not name.startswith(_PREFIX)]


def with_cells(
    table: pa.Table, cells: Iterable[Cells], *, kept: Collection[str] | None = None
) -> pa.Table:
    """Returns a table with other sparse columns than it has.

    Args:
      table: n rows.
      cells: of the rows; some, if there are no other columns.
      kept: names of the other columns that stay; None for all.
    """
    wanted = None if kept is None else frozenset(kept)
    pairs = [
        (field, column)
        for field, column in zip(table.schema, table.columns, strict=True)
        if not is_sparse(field) and (wanted is None or field.name in wanted)
    ]
    given = [*cells]
    # A table without columns would have no rows.
    named = [each for each in given if each.names] or ([] if pairs else given[:1])
    pairs += [(each.field, each.column) for each in named]
    fields, columns = zip(*pairs, strict=True)
    return pa.Table.from_arrays([*columns], schema=pa.schema(fields))


def with_columns(table: pa.Table, names: Collection[str] | None = None) -> pa.Table:
    """Returns a table with some names, or all, in columns of their own.

    Args:
      table: n rows.
      names: None for all.
    """
    cells, rest = cells_of(table), []
    columns: dict[str, pa.Array] = {}
    for each in cells:
        chosen = set(each.names) if names is None else set(each.names) & set(names)
        if chosen:
            columns |= each.by_name().columns(chosen, len(table))
        rest.append(each.without(chosen))
    if not columns:
        return table
    fields = [pa.field(name, column.type) for name, column in columns.items()]
    schema = pa.schema([*table.schema, *fields])
    table = pa.Table.from_arrays([*table.columns, *columns.values()], schema=schema)
    return with_cells(table, rest)


def pruned(table: pa.Table) -> pa.Table:
    """Returns a table whose sparse columns have no names but those with cells."""
    found = cells_of(table)
    if not found:
        return table
    return with_cells(table, [each.without(each.unheld) for each in found])


def row_of(rows: pa.Table | pa.RecordBatch, place: int) -> dict[str, pa.Scalar]:
    """Returns the values of a row, those of its cells among them."""
    values = {name: rows[name][place] for name in other_names(rows.schema)}
    for cells in cells_of(rows.slice(place, 1)):
        for index, name in enumerate(cells.places.tolist()):
            values[cells.names[name]] = cells.values[index]
    return values


def is_able(kind: pa.DataType) -> bool:
    """Whether columns of a type may be sparse: numbers, texts, and lists of those.

    Bytes may be images, which are looked at row by row. Empty lists may be of mappings:
    then they are values of other columns.
    """
    if pa.types.is_null(kind):
        return True
    while pa.types.is_list(kind):
        kind = kind.value_type
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_string(kind)
    )


def with_sparse(
    table: pa.Table,
    able: Callable[[str, pa.DataType], bool],
    *,
    held: Mapping[str, int] | None = None,
    count: int = 0,
    least: int | None = None,
) -> pa.Table:
    """Returns a table in which the columns that few rows have are sparse.

    Args:
      table: n rows.
      able: whether a column of this name and type may be sparse.
      held: name -> how many rows have it, among more rows than these.
      count: how many these are; 0 for n.
      least: fewer columns stay as they are, where none is sparse; None for the least
        that pay.
    """
    count, found = count or len(table), held
    if found is None:
        found = _held(table)
    most = MOST_HELD * count
    few = {name for name, many in found.items() if many <= most}
    types = dict(zip(table.schema.names, table.schema.types, strict=True))
    mine = [
        name
        for name in other_names(table.schema)
        if name in few
        # Columns of the stages have a NUL in their names.
        and "\0" not in name
        and is_able(types[name])
        and able(name, types[name])
    ]
    sparse = cells_of(table)
    if not sparse and len(mine) < (LEAST_COLUMNS if least is None else least):
        return table
    kinds: dict[pa.DataType, list[str]] = {}
    for name in mine:
        kinds.setdefault(types[name], []).append(name)
    dense = {name for each in sparse for name in each.names} - few
    table = with_columns(table, dense) if dense else table
    added = [_gathered(table, sorted(names)) for names in kinds.values()]
    cells = by_type([*cells_of(table), *added], len(table))
    taken = set(mine)
    kept = [name for name in table.schema.names if name not in taken]
    # Not one by one: a table without columns would have no rows.
    return with_cells(table, cells, kept=kept)


def _held(table: pa.Table) -> dict[str, int]:
    """Returns how many rows have each column."""
    held = {
        name: len(column) - column.null_count
        for name, column in zip(table.schema.names, table.columns, strict=True)
        if not name.startswith(_PREFIX)
    }
    for cells in cells_of(table):
        counts = np.bincount(cells.places, minlength=len(cells.names)).tolist()
        for name, many in zip(cells.names, counts, strict=True):
            held[name] = held.get(name, 0) + many
    return held


def _gathered(table: pa.Table, names: Sequence[str]) -> Cells:
    """Returns the cells of columns of one type."""
    rows, lengths, parts = [], [], []
    for name in names:
        column = table[name]
        whole = column.num_chunks == 1
        array = column.chunk(0) if whole else column.combine_chunks()
        held = np.flatnonzero(numpy_mask(array.is_valid()))
        rows.append(held)
        lengths.append(len(held))
        parts.append(array.drop_null() if array.null_count else array)
    places = np.repeat(np.arange(len(names), dtype=np.int32), lengths)
    values = pa.concat_arrays(parts)
    return Cells.sorted(names, len(table), np.concatenate(rows), places, values)


def by_type(cells: Iterable[Cells], count: int) -> list[Cells]:
    """Returns cells of n rows with those of one type together."""
    kinds: dict[pa.DataType, list[Cells]] = {}
    for each in cells:
        kinds.setdefault(each.values.type, []).append(each)
    return [
        same[0] if len(same) == 1 else _together(same, count) for same in kinds.values()
    ]


def _together(cells: Sequence[Cells], count: int) -> Cells:
    """Returns cells of one type and of n rows, whose names may be the same."""
    names = sorted({name for each in cells for name in each.names})
    moved = [each.renamed(names, _places(each.names, names)) for each in cells]
    return Cells.sorted(
        names,
        count,
        np.concatenate([each.rows for each in moved]),
        np.concatenate([each.places for each in moved]),
        pa.concat_arrays([each.values for each in moved]),
    )


def _places(names: Sequence[str], among: Sequence[str]) -> Longs:
    """Returns the places of names among others."""
    places = {name: place for place, name in enumerate(among)}
    return np.array([places[name] for name in names], np.int64)


def any_column(_name: str, _kind: pa.DataType) -> bool:
    """Lets every column be sparse."""
    return True


def single_schema(schema: pa.Schema) -> bytes:
    """Returns the schema of the columns that are not sparse, as an Arrow message."""
    if has_sparse(schema):
        schema = pa.schema([field for field in schema if not is_sparse(field)])
    return bytes(memoryview(schema.serialize()))


def alike(
    tables: Sequence[pa.Table], able: Callable[[str, pa.DataType], bool]
) -> list[pa.Table]:
    """Returns tables that have the same names in the same form.

    A name is in sparse columns of all tables if few of all rows have it, or if it has
    values of several types. Tables that have the same single columns have the same
    sparse ones, too.

    Args:
      tables: of rows that are to be joined.
      able: whether a column of this name and type may be sparse.
    """
    widest = max(table.num_columns for table in tables)
    some_sparse = any(has_sparse(table.schema) for table in tables)
    if widest < LEAST_COLUMNS and not some_sparse:
        return [*tables]
    held: dict[str, int] = {}
    for table in tables:
        for name, many in _held(table).items():
            held[name] = held.get(name, 0) + many
    for name, kinds in _kinds(tables).items():
        if len(kinds) > 1:
            held[name] = 0
    count = sum(map(len, tables))
    are_few = bool(held_by_few(held, count))
    if not (are_few or some_sparse):
        return [*tables]
    # What is sparse in one of them, must be so in all, be it a single name.
    found = [
        with_sparse(table, able, held=held, count=count, least=1) for table in tables
    ]
    names: dict[pa.DataType, set[str]] = {}
    each = [cells_of(table) for table in found]
    for cells in each:
        for some in cells:
            names.setdefault(some.values.type, set()).update(some.names)
    if pa.null() in names:
        # Of a name without a value, nothing is known but the name.
        rest = (every for kind, every in names.items() if kind != pa.null())
        names[pa.null()].difference_update(*rest)
    out = []
    for table, cells in zip(found, each, strict=True):
        single = {*other_names(table.schema)}
        mine = {kind: sorted(every - single) for kind, every in names.items()}
        out.append(with_cells(table, _under(cells, mine, len(table))))
    return out


def _kinds(tables: Iterable[pa.Table]) -> dict[str, set[pa.DataType]]:
    """Returns the types of the values of each name that is in a sparse column."""
    found: dict[str, set[pa.DataType]] = {}
    for table in tables:
        for cells in cells_of(table):
            if not pa.types.is_null(cells.values.type):
                for name in cells.names:
                    found.setdefault(name, set()).add(cells.values.type)
    for table in tables:
        for name, kind in zip(table.schema.names, table.schema.types, strict=True):
            if name in found and not pa.types.is_null(kind):
                found[name].add(kind)
    return found


def _under(
    cells: Sequence[Cells], names: Mapping[pa.DataType, Sequence[str]], count: int
) -> Iterator[Cells]:
    """Yields cells of n rows under these names of each type; some have no cells."""
    known = {each.values.type: each for each in cells}
    for kind, every in names.items():
        mine = known.get(kind)
        if mine is None or not len(mine.places):
            nothing = np.zeros(0, np.int32)
            yield Cells(
                every, np.zeros(count + 1, np.int64), nothing, pa.array([], kind)
            )
        else:
            mine = mine.without(mine.unheld.difference(every))
            yield mine.renamed(every, _places(mine.names, every))


def joined(
    tables: Sequence[pa.Table],
    able: Callable[[str, pa.DataType], bool] = any_column,
) -> pa.Table:
    """Returns the rows of tables in one, whatever form their columns have."""
    return pa.concat_tables(alike(tables, able), promote_options="default")
