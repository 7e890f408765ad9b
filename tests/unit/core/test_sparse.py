"""Sparse columns hold what is there, and rows of them are rows like others."""

from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.core import sparse
from transforms.core.placing.content import content_hashes
from transforms.core.sparse import (
    Cells,
    alike,
    any_column,
    cells_of,
    has_sparse,
    joined,
    pruned,
    row_of,
    with_columns,
    with_sparse,
)
from transforms.gather.equal_rows import first_of_equals
from transforms.gather.row_runs import row_sizes
from transforms.gather.tally import count_values

_VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): st.integers(-9, 9),
    pa.float64(): st.sampled_from([0.0, -0.0, 1.5, float("nan"), float("inf")]),
    pa.string(): st.sampled_from(["", "a", "7", "7.0", "long text, and more of it"]),
    pa.bool_(): st.booleans(),
    pa.list_(pa.float64()): st.lists(st.sampled_from([0.0, 2.5]), max_size=3),
    pa.list_(pa.string()): st.lists(st.sampled_from(["", "b"]), max_size=2),
}


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Draws a table, some of whose columns have a few values."""
    count = draw(st.integers(1, 8))
    columns = {}
    for name in draw(st.lists(st.sampled_from("abcdeé～🐈"), unique=True, min_size=1)):
        kind = draw(st.sampled_from([*_VALUES]))
        cells = _VALUES[kind] if draw(st.booleans()) else st.none()
        values = st.lists(cells | st.none(), min_size=count, max_size=count)
        columns[name] = pa.array(draw(values), kind)
    return pa.table(columns)


def sparsely(table: pa.Table, most_held: float = 1.0) -> pa.Table:
    """Returns a table whose columns are sparse."""
    with mock.patch.object(sparse, "MOST_HELD", most_held):
        return with_sparse(table, any_column, least=1)


def singly(table: pa.Table) -> list[dict[str, Any]]:
    """Returns rows without what is missing, as text, for NaN is not itself."""
    rows = with_columns(table).to_pylist()
    return [
        {
            name: repr(row[name])
            for name in sorted(row)
            if row[name] is not None and not sparse.is_sparse_name(name)
        }
        for row in rows
    ]


@given(tables(), st.sampled_from([0.0, 0.5, 1.0]), st.data())
def test_cells_are_the_values_of_columns(
    table: pa.Table, most_held: float, data: st.DataObject
) -> None:
    """They come back from any rows, and only they take room."""
    found = sparsely(table, most_held)
    assert with_columns(found).select(table.column_names).equals(table) or (
        singly(found) == singly(table)
    )
    places = data.draw(st.lists(st.integers(0, len(table) - 1), min_size=1))
    taken = found.take(pa.array(places))
    assert singly(taken) == singly(table.take(pa.array(places)))
    assert singly(pruned(taken)) == singly(taken)
    for place in range(len(table)):
        row = row_of(found, place)
        assert {k: repr(v.as_py()) for k, v in row.items() if v.is_valid} == (
            singly(table)[place]
        )


@given(st.lists(tables(), min_size=1, max_size=4), st.sampled_from([0.0, 0.5, 1.0]))
def test_tables_are_joined_whatever_form_they_have(
    given_tables: list[pa.Table], most_held: float
) -> None:
    """Their rows stay, and a name has one form in all of them."""
    # A column has one type here, as typed rows have it.
    parts = [
        table.rename_columns(
            [
                f"{name} {kind}"
                for name, kind in zip(
                    table.column_names, table.schema.types, strict=True
                )
            ]
        )
        for table in given_tables
    ]
    forms = [
        sparsely(table, most_held) if number % 2 else table
        for number, table in enumerate(parts)
    ]
    with mock.patch.multiple(sparse, MOST_HELD=most_held, LEAST_COLUMNS=1):
        found = joined(forms)
        similar = alike(forms, any_column)
    assert singly(found) == [row for part in parts for row in singly(part)]
    names = {n for t in similar for cells in cells_of(t) for n in cells.names}
    assert names.isdisjoint(n for t in similar for n in sparse.other_names(t.schema))


@given(tables(), st.sampled_from([0.0, 0.5, 1.0]))
def test_rows_are_known_by_their_values_alone(
    table: pa.Table, most_held: float
) -> None:
    """Hashes, sizes, counts and equality are those of rows in single columns."""
    (rows,) = table.combine_chunks().to_batches()
    (few,) = sparsely(table, most_held).combine_chunks().to_batches()
    names = rows.schema.names
    expected = content_hashes(rows, names)
    assert content_hashes(few, few.schema.names).tolist() == expected.tolist()
    assert row_sizes(few).tolist() == row_sizes(rows).tolist()
    assert repr(sorted(count_values(few).columns.items())) == (
        repr(sorted(count_values(rows).columns.items()))
    )
    twice = np.repeat(np.arange(len(rows)), 2)
    tied = np.arange(len(twice)) > 0
    both = [each.take(pa.array(twice)) for each in (rows, few)]
    one, other = (first_of_equals(each, tied).tolist() for each in both)
    assert one == other


def test_a_row_costs_what_it_has() -> None:
    """100,000 names of which each row has two take no memory for the others."""
    names = [f"k{number:06}" for number in range(100_000)]
    places = np.arange(2 * 50_000) * 7 % len(names)
    cells = Cells.sorted(
        names,
        50_000,
        np.repeat(np.arange(50_000), 2),
        places,
        pa.array(np.ones(len(places))),
    )
    column = cells.column
    assert column.nbytes < 20 * len(places)
    again = Cells.of(cells.field, column.take(pa.array([4, 0])))
    assert [names[place] for place in again.places.tolist()] == (
        [f"k{n:06}" for n in (56, 63, 0, 7)]
    )


def test_tables_with_few_columns_are_left_alone() -> None:
    """There is nothing to gain."""
    table = pa.table({f"c{n}": [None, 1, None, None] for n in range(9)})
    assert with_sparse(table, any_column) is table
    assert not has_sparse(table.schema)


@pytest.mark.parametrize("kind", [pa.binary(), pa.struct([("a", pa.int64())])])
def test_values_that_are_looked_at_stay_single(kind: pa.DataType) -> None:
    """Bytes may be images."""
    table = pa.table({"x": pa.nulls(4, kind), "y": pa.nulls(4, pa.int64())})
    found = sparsely(table)
    assert found.column_names[0] == "x"
    assert len(found.column_names) == 2
