"""The cells of sparse columns under the schema, those of many features at once.

    cells of one type -> those of features that are alike but for their names
                      -> joined and conformed as one column -> cells of the row's type

A row with a cell that does not fit is left to what looks at single columns.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.arrays import numpy_mask
from transforms.core.rows.conform import conform
from transforms.core.rows.record_columns import is_as_in_rows
from transforms.core.schema import Feature, Kind, Missing, Schema
from transforms.core.sparse import (
    Cells,
    by_type,
    cells_of,
    other_names,
    pruned,
    with_cells,
    with_columns,
)

__all__ = [
    "TypedCells",
    "may_be_sparse",
    "rows_of_columns",
    "single_columns",
    "sparse_features",
]

Mask = npt.NDArray[np.bool_]

# Cells of rows that are looked at column by column.
_MOST_CELLS = 1 << 22


def may_be_sparse(feature: Feature) -> bool:
    """Whether rows may have a feature in a sparse column.

    It is in records as it is in rows, and a row without it has nothing to show for it.
    """
    is_made = feature.pattern or feature.constant is not None
    return (
        is_as_in_rows(feature)
        and feature.missing is Missing.OMIT
        and feature.vocabulary is None
        and not is_made
    )


def sparse_features(schema: Schema) -> dict[str, list[Feature]]:
    """Returns the columns of which all features may be sparse, with these features.

    None of rows with images, which are looked at row by row.
    """
    if schema.of_kind(Kind.IMAGE):
        return {}
    found: dict[str, list[Feature]] = {}
    for feature in schema.features:
        if not feature.derived:
            found.setdefault(feature.source_column, []).append(feature)
    return {name: each for name, each in found.items() if all(map(may_be_sparse, each))}


@dataclasses.dataclass(frozen=True, slots=True)
class TypedCells:
    """The cells of n rows under the schema.

    Attributes:
      cells: of each type, those that fit.
      bad: which of the rows have others.
    """

    cells: Sequence[Cells]
    bad: Mask

    @classmethod
    def of(
        cls,
        raw: pa.Table,
        features: Mapping[str, Sequence[Feature]],
        joined: Callable[[str, pa.DataType], pa.DataType | None],
        castable: Callable[[pa.Array, pa.DataType], Mask],
    ) -> "TypedCells":
        """Returns the cells of rows of runs.

        Args:
          raw: n rows.
          features: see `sparse_features`.
          joined: returns the type that values of a column and type join to; None for
            none.
          castable: returns which values of an array another type holds.
        """
        bad = np.zeros(len(raw), np.bool_)
        out: list[Cells] = []
        for cells in cells_of(raw):
            for group in _alike(cells, features, joined):
                found, misfits = _typed(cells, group, castable)
                bad[misfits] = True
                if found is not None:
                    out.append(found)
        # Of what no row has, there may be a column beside the cells.
        held = [each.without(each.unheld) for each in by_type(out, len(raw))]
        return cls([each for each in held if each.names], bad)


@dataclasses.dataclass(slots=True)
class _Group:
    """Features that differ in nothing but their names.

    Attributes:
      type: that their values join to; None for none.
      features: of each place among the names of the cells.
    """

    type: pa.DataType | None
    features: dict[int, Feature] = dataclasses.field(default_factory=dict)


def _alike(
    cells: Cells,
    features: Mapping[str, Sequence[Feature]],
    joined: Callable[[str, pa.DataType], pa.DataType | None],
) -> Iterable[_Group]:
    groups: dict[tuple[object, ...], _Group] = {}
    for place, name in enumerate(cells.names):
        kind = joined(name, cells.values.type)
        for number, feature in enumerate(features.get(name, ())):
            nameless = dataclasses.replace(feature, name="", column="")
            key = (kind, number, nameless)
            group = groups.setdefault(key, _Group(kind))
            group.features[place] = feature
    return groups.values()


def _typed(
    cells: Cells, group: _Group, castable: Callable[[pa.Array, pa.DataType], Mask]
) -> tuple[Cells | None, npt.NDArray[np.int64]]:
    """Returns the cells of a group under the names of its features.

    Also the rows of those that do not fit, instead of any cells.
    """
    among = np.zeros(len(cells.names), np.bool_)
    among[[*group.features]] = True
    mine = cells.where(among[cells.places])
    if not len(mine.places):
        return None, mine.rows
    if group.type is None:
        return None, mine.rows
    values = mine.values
    if not values.type.equals(group.type):
        try:
            values = values.cast(group.type)
        except pa.ArrowInvalid:
            return None, mine.rows[~castable(values, group.type)]
    first = next(iter(group.features.values()))
    columns = {first.source_column: values}
    rows, misfits = conform(columns, Schema((first,)), len(values), "")
    if misfits:
        return None, mine.rows[np.logical_or.reduce([each.bad for each in misfits])]
    found = dataclasses.replace(mine, values=rows.column(0))
    if rows.column(0).null_count:
        found = found.where(numpy_mask(rows.column(0).is_valid()))
    named = sorted((feature.name, place) for place, feature in group.features.items())
    places = np.zeros(len(cells.names), np.int64)
    places[[place for _, place in named]] = np.arange(len(named))
    names = [name for name, _ in named]
    if any(f.column for f in group.features.values()):
        # The features are in another order than their columns.
        moved = places[found.places]
        return Cells.sorted(
            names, len(found.starts) - 1, found.rows, moved, found.values
        ), np.zeros(0, np.int64)
    return found.renamed(names, places), np.zeros(0, np.int64)


def single_columns(
    raw: pa.Table, schema: Schema, features: Mapping[str, Sequence[Feature]]
) -> Iterator[pa.Table]:
    """Yields rows with those columns single of which a feature may not be sparse.

    Of one column, rows with values of several types are in tables of their own.

    Args:
      raw: of runs.
      schema: of all features.
      features: see `sparse_features`.
    """
    sources = {f.source_column for f in schema.features if not f.derived}
    single = {
        name
        for cells in cells_of(raw)
        for name in cells.names
        if name in sources and name not in features
    }
    yield from _with_columns(raw, single)


def rows_of_columns(raw: pa.Table) -> Iterator[pa.Table]:
    """Yields rows without sparse columns."""
    wide = sum(len(cells.names) for cells in cells_of(raw))
    size = max(_MOST_CELLS // max(wide, 1), 1)
    for start in range(0, len(raw), size):
        part = pruned(raw.slice(start, size))
        names = {name for cells in cells_of(part) for name in cells.names}
        yield from _with_columns(part, names)


def _with_columns(raw: pa.Table, names: set[str]) -> Iterator[pa.Table]:
    """Yields rows with some names in columns of their own."""
    if not names or not len(raw):
        yield raw
        return
    known = set(other_names(raw.schema))
    for cells in cells_of(raw):
        twice = known.intersection(names, cells.names)
        known.update(cells.names)
        if not twice:
            continue
        # Rows that have one of these in this type, and the others.
        among = np.array([name in twice for name in cells.names])
        rows = np.zeros(len(raw), np.bool_)
        rows[cells.rows[among[cells.places]]] = True
        if rows.all():
            break
        for mask in (rows, ~rows):
            part = raw.filter(pa.array(mask))
            yield from _with_columns(_without_unheld(part, twice), names)
        return
    yield with_columns(raw, names)


def _without_unheld(raw: pa.Table, names: set[str]) -> pa.Table:
    """Returns rows without those of some names that none of the rows has."""
    cells = [each.without(each.unheld & names) for each in cells_of(raw)]
    return with_cells(raw, cells)
