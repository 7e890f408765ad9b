"""The rows of one shard from the ranges of many runs, typed and in their order.

Rows are ordered by their hash. Rows of equal hash are ordered by the record that their
values make, so that nothing depends on the bundles and attempts that they came from.
"""

import collections
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import in_one_piece, numpy_mask, rows_holding
from transforms.core.arrow_types import PYTHON, wider_type
from transforms.core.example.encoder import ExampleEncoder
from transforms.core.model import Reason, Rejection
from transforms.core.placing.shard_rows import ShardRows
from transforms.core.rows.arrow_of import arrow_of
from transforms.core.rows.column import fault
from transforms.core.rows.conform import Misfit, conform
from transforms.core.rows.python_value import python_value
from transforms.core.rows.record_columns import record_columns
from transforms.core.schema import Feature, Kind, Schema, record_fields
from transforms.core.segment import ROW_COLUMN
from transforms.errors import DamageError, InputError, bounded
from transforms.gather.cuts import Cut, Longs
from transforms.gather.refused_rows import refuse, values_as_json
from transforms.gather.row_runs import (
    COUNT_COLUMN,
    HASH_COLUMN,
    KEY_COLUMN,
    OWN_COLUMNS,
    RowRange,
    rows_in_range,
)

# Rows that are read and typed together.
_READ_BYTES = 64 << 20

Fetch = Callable[[str, int, int], bytes]
Hashes = npt.NDArray[np.uint64]


@dataclasses.dataclass(frozen=True, slots=True)
class GatheredRows(ShardRows):
    """Rows of a pipeline: their origin is their key, or the hash of their content.

    Attributes:
      paths: the column of the only images where that is of paths; else empty.
    """

    paths: str = ""

    def origin(self, position: int) -> tuple[str, int | None]:
        """Returns (what the row is known by, None) of the row at a position."""
        return _name_of(self.table, position), None

    def without_values(self) -> Self:
        """Returns the rows without the columns of features, but for paths of images."""
        known_by = {HASH_COLUMN, KEY_COLUMN, self.paths}
        names = [name for name in self.table.column_names if name in known_by]
        return dataclasses.replace(self, table=self.table.select(names))

    def places(
        self, positions: npt.NDArray[np.int64]
    ) -> tuple[pa.StringArray, npt.NDArray[np.int64]]:
        """Returns what says where the images of rows are, and 0 of each row."""
        if self.paths:
            names = self.table[self.paths].take(pa.array(positions)).to_pylist()
        else:
            names = [_name_of(self.table, each) for each in positions.tolist()]
        return pa.array(names, pa.string()), np.zeros(len(names), np.int64)

    def sources(
        self, positions: npt.NDArray[np.int64]
    ) -> tuple[pa.StringArray, pa.Int64Array]:
        """Returns the keys of rows, if they have any, and no numbers."""
        count = len(positions)
        if KEY_COLUMN not in self.table.column_names:
            return pa.nulls(count, pa.string()), pa.nulls(count, pa.int64())
        keys = self.table[KEY_COLUMN].take(pa.array(positions)).combine_chunks()
        return keys.cast(pa.string()), pa.nulls(count, pa.int64())


def _name_of(table: pa.Table, position: int) -> str:
    if KEY_COLUMN in table.column_names:
        return str(table[KEY_COLUMN][position].as_py())
    return f"{table[HASH_COLUMN][position].as_py():016x}"


def gather_shard(
    ranges: Sequence[RowRange],
    schema: Schema,
    types: Mapping[str, Sequence[pa.DataType]],
    fetch: Fetch,
    *,
    unique: bool,
    around: tuple[Cut | None, Cut | None] = (None, None),
) -> tuple[GatheredRows, list[Rejection]]:
    """Returns the rows of a shard, and rejections of those that do not fit.

    Of the rows of a hash that is divided, only those of the shard are kept.

    Args:
      ranges: of the runs, in any order; at least one.
      schema: of the rows.
      types: column -> types that its values join to; others are rejected.
      fetch: gives bytes [start, stop) of a run's file.
      unique: whether no two rows may have one key.
      around: the cuts before and behind the shard that divide a hash.

    Raises:
      DamageError: a run is not what was written.
      InputError: two rows have one key.
    """
    tables = []
    rejections: list[Rejection] = []
    share = _Share(*around, schema)
    for group in _read_together(ranges):
        # Joined once; else each use of a column would join its pieces again.
        parts = [read_rows(each, fetch) for each in group]
        raw = in_one_piece(pa.concat_tables(parts))
        del parts
        for table, refused in typed_rows(raw, schema, types):
            tables.append(share.of_rows(table))
            rejections += [each for value, each in refused if share.has_rejected(value)]
        del raw, table
    # A run without equal rows has no counts.
    # Popped, so that only what joins its columns holds it.
    tables[:] = [pa.concat_tables(tables, promote_options="default")]
    table = in_one_piece(tables.pop())
    hashes = table[HASH_COLUMN].to_numpy()
    order = np.argsort(hashes, kind="stable")
    if unique:
        _check_unique(table, hashes[order], order, [each.source for each in rejections])
    order = _with_ties(table, schema, hashes, order)
    if COUNT_COLUMN in table.column_names:
        # Each of the equal rows is written; the table holds one.
        order = np.repeat(order, counts_of(table)[order])
    images = schema.of_kind(Kind.IMAGE)
    alone = len(images) == 1 and not (images[0].inline or images[0].is_list)
    rows = GatheredRows(
        table,
        order,
        origins=("",),
        starts=np.zeros(1, np.int64),
        paths=images[0].name if alone else "",
    )
    return rows, rejections


def _read_together(ranges: Sequence[RowRange]) -> Iterable[list[RowRange]]:
    """Returns the ranges in groups of one Arrow schema, each of about 64 MiB."""
    sizes: collections.Counter[bytes] = collections.Counter()
    groups: dict[tuple[bytes, int], list[RowRange]] = {}
    for each in ranges:
        kind = each.schema
        groups.setdefault((kind, sizes[kind] // _READ_BYTES), []).append(each)
        start, stop = each.place
        sizes[kind] += stop - start
    return groups.values()


class _Share:
    """What a shard has of the rows of hashes that it divides with its neighbours.

    Of equal records it takes those that come first, from whatever run, and as many as
    the cuts say.
    """

    def __init__(self, before: Cut | None, behind: Cut | None, schema: Schema) -> None:
        self._before, self._behind, self._schema = before, behind, schema
        self._skipped = before.taken if before else 0
        self._taken = behind.taken if behind else 0
        if before and behind and before.is_beside(behind):
            self._taken -= before.taken

    def has_rejected(self, value: int) -> bool:
        """Whether a rejected row of a hash is the shard's: they are all in one."""
        return self._before is None or value != self._before.hash

    def of_rows(self, rows: pa.Table) -> pa.Table:
        """Returns the rows of the shard; their counts say how many of equal ones."""
        counts, hashes = counts_of(rows).copy(), rows[HASH_COLUMN].to_numpy()
        for cut in (self._before, self._behind):
            if cut is None:
                continue
            places = np.flatnonzero(hashes == np.uint64(cut.hash))
            if not len(places):
                continue
            records = records_of(rows.take(pa.array(places)), self._schema)
            smaller = numpy_mask(pc.less(records, pa.scalar(cut.start, records.type)))
            larger = np.zeros(len(places), np.bool_)
            if cut.stop is not None:
                stop = pa.scalar(cut.stop, records.type)
                larger = numpy_mask(pc.greater_equal(records, stop))
            equal = places[~smaller & ~larger]
            if cut is self._before:
                counts[places[smaller]] = 0
                counts[equal], self._skipped = _less(counts[equal], self._skipped)
            else:
                counts[places[larger]] = 0
                rest, self._taken = _less(counts[equal], self._taken)
                counts[equal] -= rest
        if COUNT_COLUMN in rows.column_names:
            index = rows.column_names.index(COUNT_COLUMN)
            rows = rows.set_column(index, COUNT_COLUMN, pa.array(counts))
        return rows if counts.all() else rows.filter(pa.array(counts > 0))


def _less(counts: Longs, many: int) -> tuple[Longs, int]:
    """Takes this many from counts, from the first on; returns them, and what is left.

    >>> _less(np.array([2, 3, 4]), 4)
    (array([0, 1, 4]), 0)
    """
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.clip(ends - many, 0, counts), max(many - total, 0)


def check_keys(ranges: Sequence[RowRange], fetch: Fetch) -> int:
    """Checks that no key is given twice; returns how many there are.

    The keys are compared, not their hashes.

    Args:
      ranges: of runs of keys, all that one range of hashes has.
      fetch: as of `gather_shard`.

    Raises:
      DamageError: a run is not what was written.
      InputError: two rows have one key.
    """
    tables = [read_rows(each, fetch) for each in ranges]
    # Popped, so that only what joins its columns holds it.
    tables[:] = [pa.concat_tables(tables, promote_options="default")]
    table = in_one_piece(tables.pop())
    hashes = table[HASH_COLUMN].to_numpy()
    order = np.argsort(hashes, kind="stable")
    _check_unique(table, hashes[order], order)
    return len(order)


def read_rows(rows: RowRange, fetch: Fetch) -> pa.Table:
    """Returns the rows of a range; raises DamageError where it was damaged."""
    start, stop = rows.place
    data = fetch(rows.path, start, stop) if rows.path else rows.payload
    found = rows_in_range(rows, data)
    if found is None:
        raise DamageError(
            f"A run of rows must be read as it was written; bytes {start:,} to "
            f"{stop:,} of {rows.path!r} are others now. Nothing was committed; look "
            f"after the disk, and run again."
        )
    return found


def typed_rows(
    raw: pa.Table, schema: Schema, types: Mapping[str, Sequence[pa.DataType]]
) -> Iterator[tuple[pa.Table, list[tuple[int, Rejection]]]]:
    """Yields rows under the schema, and with their hashes those that do not fit.

    Args:
      raw: rows of a run; the columns of `row_runs` are kept.
      schema, types: see `gather_shard`.
    """
    for joined_rows in _as_joined(raw, types):
        yield _typed(joined_rows, schema, types)


def _as_joined(
    raw: pa.Table,
    types: Mapping[str, Sequence[pa.DataType]],
    kept: frozenset[str] = frozenset(),
) -> list[pa.Table]:
    """Returns rows with the values of each column in the type that all of them join to.

    What a value becomes must not depend on the rows beside it: 7 among floats is 7.0.
    Rows with a value that the type does not hold are in tables of their own, where the
    value is as it was.

    Args:
      raw: rows of a run.
      types: see `gather_shard`.
      kept: columns that stay as they are.
    """
    # One table at the end: a new table for each column is quadratic in the columns.
    columns, fields = raw.columns, list(raw.schema)
    for index, name in enumerate(raw.column_names):
        column = _whole(raw[name])
        wanted = _joining(column.type, types.get(name, ()))
        if name in kept or wanted is None or column.type.equals(wanted):
            continue
        try:
            columns[index] = column.cast(wanted)
        except pa.ArrowInvalid:
            fits = pa.array(_castable(column, wanted))
            rest = raw.filter(pc.invert(fits))
            return [
                *_as_joined(raw.filter(fits), types, kept),
                *_as_joined(rest, types, kept | {name}),
            ]
        fields[index] = pa.field(name, wanted)
    schema = pa.schema(fields, raw.schema.metadata)
    return [pa.Table.from_arrays(columns, schema=schema)]


def _joining(kind: pa.DataType, types: Sequence[pa.DataType]) -> pa.DataType | None:
    """Returns which of some types a type joins; None for none."""
    return next(
        (each for each in types if wider_type(kind, each, PYTHON) == each), None
    )


def _castable(column: pa.Array, kind: pa.DataType) -> npt.NDArray[np.bool_]:
    """Returns which of n values a type holds."""
    out = np.ones(len(column), np.bool_)
    parts = [(0, len(column))]
    while parts:
        start, stop = parts.pop()
        try:
            column.slice(start, stop - start).cast(kind)
        except pa.ArrowInvalid:
            middle = (start + stop) // 2
            if start == middle:
                out[start] = False
            else:
                parts += [(start, middle), (middle, stop)]
    return out


def _typed(
    raw: pa.Table,
    schema: Schema,
    types: Mapping[str, Sequence[pa.DataType]],
) -> tuple[pa.Table, list[tuple[int, Rejection]]]:
    """Returns rows under the schema, and those that do not fit."""
    count = raw.num_rows
    columns = {
        name: _whole(raw[name]) for name in raw.column_names if name not in OWN_COLUMNS
    }
    strange = _strangers(columns, schema, types)
    columns |= _empty_lists(columns, schema)
    rows, misfits = conform(columns, schema, count, "")
    misfits = [*strange, *misfits]
    # Not added to the table of `rows`, which may have no column, and then no rows.
    own = {name: raw[name] for name in OWN_COLUMNS if name in raw.column_names}
    own[ROW_COLUMN] = pa.array(np.zeros(count, np.int64))
    pairs = [*zip(rows.schema, rows.columns, strict=True)]
    pairs += [(pa.field(name, column.type), column) for name, column in own.items()]
    fields, arrays = zip(*pairs, strict=True)
    table = pa.Table.from_arrays([*arrays], schema=pa.schema(fields))
    if not misfits:
        return table, []
    blamed = np.full(count, -1, np.int64)
    for index in reversed(range(len(misfits))):
        blamed[misfits[index].bad] = index
    places = np.flatnonzero(blamed >= 0).tolist()
    hashes = raw[HASH_COLUMN].to_numpy()[places].tolist()
    rejections = [_rejection(raw, place, misfits[blamed[place]]) for place in places]
    counts = counts_of(raw)[places].tolist()
    refused = [
        each
        for each, many in zip(zip(hashes, rejections, strict=True), counts, strict=True)
        for _ in range(many)
    ]
    return table.filter(pa.array(blamed < 0)), refused


def _strangers(
    columns: dict[str, pa.Array],
    schema: Schema,
    types: Mapping[str, Sequence[pa.DataType]],
) -> list[Misfit]:
    """Takes values of types that do not join out of the columns; returns which."""
    out = []
    raws = dict(columns)
    for feature in schema.features:
        name = feature.source_column
        raw = raws.get(name)
        if feature.derived or raw is None or pa.types.is_null(raw.type):
            continue
        if _joining(raw.type, types.get(name, ())) is not None:
            continue
        strange = numpy_mask(raw.is_valid())
        columns[name] = pa.nulls(len(raw))
        empty = strange & ~rows_holding(raw)
        if empty.any():
            # An empty list is of no type, whatever lists were beside it.
            cells = raw.to_pylist()
            lists = arrow_of(
                [v if e else None for v, e in zip(cells, empty, strict=True)]
            )
            wanted = _joining(lists.type, types.get(name, ()))
            if wanted is not None:
                columns[name] = lists.cast(wanted)
                strange &= ~empty
        faults = fault(strange, _reason(feature))
        if faults is not None:
            out.append(Misfit(feature, raw, faults))
    return out


def _empty_lists(
    columns: Mapping[str, pa.Array], schema: Schema
) -> dict[str, pa.Array]:
    """Returns the columns of lists of mappings, in rows where such a list is empty."""
    out: dict[str, pa.Array] = {}
    empty = {n: c for n, c in columns.items() if c.type.equals(pa.list_(pa.null()))}
    for feature in schema.features if empty else ():
        name = feature.source_column
        parent = next((p for p in empty if name.startswith(f"{p}/")), None)
        if parent is not None and name not in columns:
            out[name] = empty[parent]
    return out


_REASONS = {
    Kind.INT64: Reason.NOT_AN_INTEGER,
    Kind.FLOAT: Reason.NOT_A_NUMBER,
    Kind.BOOL: Reason.NOT_A_BOOL,
    Kind.TIMESTAMP: Reason.NOT_A_TIMESTAMP,
}


def _reason(feature: Feature) -> Reason:
    return _REASONS.get(feature.kind, Reason.WRONG_TYPE)


def _rejection(raw: pa.Table, place: int, misfit: Misfit) -> Rejection:
    values = {
        name: python_value(column[place])
        for name, column in zip(raw.column_names, raw.columns, strict=True)
        if name not in OWN_COLUMNS
    }
    return refuse(
        values_as_json(values),
        misfit.complaint(place),
        known_by=_name_of(raw, place),
        stage="write",
    )


def _whole(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return column.combine_chunks()


def _with_ties(
    table: pa.Table,
    schema: Schema,
    hashes: Hashes,
    order: Longs,
) -> Longs:
    """Returns the order with rows of equal hash by their records."""
    places = np.flatnonzero(_tied(hashes[order]))
    if not len(places):
        return order
    rows = order[places]
    records = records_of(table.take(pa.array(rows)), schema)
    by_hash = pa.table({"hash": hashes[rows], "record": records})
    # Of equal ones either order gives the same bytes.
    sorting = pc.sort_indices(
        by_hash, sort_keys=[("hash", "ascending"), ("record", "ascending")]
    )
    order = order.copy()
    order[places] = rows[sorting.to_numpy()]
    return order


def _tied(ordered: Hashes) -> npt.NDArray[np.bool_]:
    """Returns which of n sorted hashes are there more than once: nearly always none."""
    tied = np.zeros(len(ordered), np.bool_)
    same = ordered[1:] == ordered[:-1]
    # A shard whose rows are all rejected has none.
    tied[:-1] |= same
    tied[1:] |= same
    return tied


def _check_unique(
    table: pa.Table, ordered: Hashes, order: Longs, refused: Sequence[str] = ()
) -> None:
    """Raises InputError where a key is there more than once.

    Args:
      table: the rows.
      ordered: their hashes, sorted.
      order: their places in the table, sorted by their hashes.
      refused: keys of further rows.
    """
    counts, keys = counts_of(table), table[KEY_COLUMN]
    chosen = counts > 1
    chosen[order[_tied(ordered)]] = True
    if refused:
        chosen |= numpy_mask(pc.is_in(keys, pa.array(refused, pa.string())))
    if not chosen.any():
        return
    names = [*keys.filter(pa.array(chosen)).chunks, pa.array(refused, pa.string())]
    given = np.append(counts[chosen], np.ones(len(refused), np.int64))
    found = pa.table({"key": pa.chunked_array(names), "rows": given})
    found = found.group_by("key").aggregate([("rows", "sum")])
    many = found.filter(pc.greater(found["rows_sum"], 1))["key"]
    if not len(many):
        return
    count, key = len(many), min(many.to_pylist())
    # Of this shard alone: the first one that fails ends the job.
    more = f", and so are others, {count:,} in this shard" if count > 1 else ""
    raise InputError(
        bounded(
            f"Every row must have a key of its own; {key!r} is given more than once"
            f"{more}. Remove the rows that are given twice, or allow them with "
            f'duplicates="keep".'
        )
    )


def counts_of(rows: pa.Table) -> Longs:
    """Returns how many equal rows each of n rows is."""
    if COUNT_COLUMN not in rows.column_names:
        return np.ones(len(rows), np.int64)
    return np.asarray(rows[COUNT_COLUMN].fill_null(1))


def records_of(rows: pa.Table, schema: Schema) -> pa.LargeBinaryArray:
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
            column = _whole(rows[feature.name])
            columns[feature.name] = column
            fields.append(pa.field(feature.name, column.type))
    batch = pa.record_batch(
        [columns[field.name] for field in fields], schema=pa.schema(fields)
    )
    return ExampleEncoder(batch.schema).encode(batch)
