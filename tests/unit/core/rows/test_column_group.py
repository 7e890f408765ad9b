"""Columns that are coerced in groups become what each becomes by itself."""

import pickle

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.core.rows import column_group
from transforms.core.rows.coerce import coerce
from transforms.core.rows.column import Column
from transforms.core.rows.column_group import coerce_columns
from transforms.core.schema import Feature, InexactIntegers, Kind

_CELLS = {
    "integers": st.integers(-300, 300).map(str),
    "large integers": st.integers(-(2**64), 2**64).map(str),
    "floats": st.floats(-10, 10).map("{:.4f}".format),
    "large floats": st.floats(-1e40, 1e40).map(str),
    "whole floats": st.integers(0, 2**26).map("{}.0".format),
    "others": st.sampled_from(["NA", " 1", "+1", "007", "0x1f", "nan", "x", "-", ""]),
}
_FEATURES = (
    Feature("i", Kind.INT64),
    Feature("f", Kind.FLOAT),
    Feature("r", Kind.FLOAT, inexact_integers=InexactIntegers.REJECT),
    Feature("b", Kind.BOOL),
    Feature("t", Kind.TEXT),
)


@st.composite
def _columns(draw: st.DrawFn) -> tuple[list[pa.StringArray], list[Feature]]:
    rows = draw(st.integers(0, 30))
    columns, features = [], []
    for _ in range(draw(st.integers(0, 8))):
        look = _CELLS[draw(st.sampled_from(sorted(_CELLS)))]
        cell = draw(st.sampled_from([look, st.none() | look]))
        cells = draw(st.lists(cell, min_size=rows, max_size=rows))
        columns.append(pa.array(["1", *cells, "2"], pa.string()).slice(1, rows))
        features.append(draw(st.sampled_from(_FEATURES)))
    return columns, features


@given(_columns())
def test_columns_together_become_what_each_becomes_alone(
    table: tuple[list[pa.StringArray], list[Feature]],
) -> None:
    """Values, nulls and faults are those of `coerce`, column by column."""
    for found, column, feature in zip(coerce_columns(*table), *table, strict=True):
        expected = coerce(column, feature)
        found.values.validate(full=True)
        assert _shown(found) == _shown(expected)


def _shown(column: Column) -> tuple[pa.DataType, str, list[int] | None]:
    """Returns a column in a form in which NaN equals NaN."""
    faults = None if column.faults is None else column.faults.tolist()
    return column.values.type, repr(column.values.to_pylist()), faults


def test_a_column_of_a_group_holds_on_to_its_own_values_alone() -> None:
    """Pickling one of 100 columns, with or without nulls, does not pickle the rest."""
    feature = Feature("f", Kind.FLOAT)
    full = pa.array(["1.5"] * 500)
    sparse = pa.array(["1.5"] * 499 + [None])
    for columns in ([full] * 100, [full, sparse] * 50):
        for found in coerce_columns(columns, [feature] * 100):
            assert len(pickle.dumps(found.values)) < 2 * 500 * 4


@given(
    st.integers(1, 5).flatmap(
        lambda rows: st.lists(
            st.lists(st.sampled_from(["", "1", "-2.5", "1e9", "x"]), min_size=rows)
            .map(lambda cells: cells[:rows])
            .map(lambda cells: pa.array(["y", *cells]).slice(1)),
            min_size=1,
            max_size=5,
        )
    ),
    st.integers(1, 9),
)
def test_classes_are_those_of_all_bytes(
    columns: list[pa.StringArray], piece_bytes: int
) -> None:
    """A column's classes do not depend on where the pieces of its bytes end."""
    texts = ["".join(column.to_pylist()) for column in columns]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(column_group, "_PIECE_BYTES", piece_bytes)
        group = column_group.ColumnGroup(columns)
    assert group.has_exponents.tolist() == ["e" in text for text in texts]
    numeric = [i for i, text in enumerate(texts) if text and "x" not in text]
    assert group.numeric().tolist() == numeric
    pointed = [i for i in numeric if "." in texts[i] or "e" in texts[i]]
    assert group.numeric(pointed=True).tolist() == pointed
