"""Python and NumPy values become columns by the rules of tf.train.Example, or raise.

What each kind makes of single values is in `python_values.txt`.
"""

import datetime
import pathlib
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.unit.core.rows.python_values import table
from transforms.core.rows import feature_values as rows_values
from transforms.core.rows.feature_values import column_of, rows_of
from transforms.core.schema import Feature, Kind, Schema, row_type
from transforms.errors import EncodingError

DAY = datetime.datetime(2020, 1, 1)

TABLE = pathlib.Path(__file__).with_name("python_values.txt")


def test_a_value_is_the_same_beside_any_other() -> None:
    """Types that Arrow would join, or not hold in one column, are taken apart."""
    times = [0, datetime.date(1970, 1, 2), "1970-01-03", np.datetime64(1, "us")]
    column = column_of(times, Feature("x", Kind.TIMESTAMP, unit="us"))
    day = 86_400_000_000
    assert column.to_pylist() == [0, day, 2 * day, 1]
    with pytest.raises(EncodingError, match="row 2: feature 'x'"):
        column_of([0.5, 2**24 + 1], Feature("x", Kind.FLOAT))
    with pytest.raises(EncodingError, match="row 2: feature 'x'"):
        column_of([1, 0.5], Feature("x", Kind.INT64))
    mixed = [[2**24 + 1, 0.5]]
    for values in (mixed, [np.array(mixed[0], object)]):
        with pytest.raises(EncodingError, match="row 1: feature 'x'"):
            column_of(values, Feature("x", Kind.FLOAT, shape=(2,)))
    tensor = Feature("x", Kind.TENSOR, shape=(2,), dtype="float64", encoding="raw")
    assert column_of(mixed, tensor)[0].as_py() == np.array(mixed[0]).tobytes()
    half = Feature("x", Kind.TENSOR, shape=(2,), dtype="float16", encoding="raw")
    with pytest.raises(EncodingError, match="row 1: feature 'x'"):
        column_of([[2**11 + 1, 0.5]], half)
    label = Feature("x", Kind.LABEL)
    assert column_of([3, "cat", True], label).to_pylist() == ["3", "cat", "true"]


@pytest.mark.parametrize(
    ("feature", "values"),
    [
        (Feature("x", Kind.INT64), [1, True]),
        (Feature("x", Kind.TIMESTAMP), [DAY, "2020-01-02", 5, DAY.date()]),
        (Feature("x", Kind.TIMESTAMP), [DAY, DAY.replace(tzinfo=datetime.UTC)]),
        (
            Feature("x", Kind.FLOAT, shape=(None, 2)),
            [np.ones((1, 2)), np.zeros((3, 2)), np.ones((1, 2), np.int8)],
        ),
    ],
)
def test_values_of_several_types_are_grouped(
    feature: Feature, values: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each type is one column, not each value; an error has the first bad row."""
    cast: list[int] = []
    original = rows_values.strict_cast

    def counting(column: pa.Array, feature: Feature) -> pa.Array:
        cast.append(len(column))
        return original(column, feature)

    monkeypatch.setattr(rows_values, "strict_cast", counting)
    many = values * 100
    wanted = [column_of([value], feature).to_pylist()[0] for value in values] * 100
    cast.clear()
    assert column_of(many, feature).to_pylist() == wanted
    assert len(cast) <= len(values) + 1
    with pytest.raises(EncodingError, match="row 6:"):
        column_of([*(values * 100)[:5], {1}, *many, object()], feature)


def test_each_feature_is_a_column_of_its_own() -> None:
    """In the order of the schema; a key that a row lacks is missing there."""
    schema = Schema((Feature("a", Kind.BOOL), Feature("b", Kind.BYTES)))
    batch = rows_of([{"b": b"goat", "a": False}, {"a": True}], schema)
    assert batch.to_pylist() == [{"a": False, "b": b"goat"}, {"a": True, "b": None}]


@pytest.mark.parametrize(
    ("array", "feature", "wanted"),
    [
        (np.arange(3, dtype=">i4"), Feature("x", Kind.INT64), [0, 1, 2]),
        (np.array(["고양이", ""]), Feature("x", Kind.TEXT), ["고양이", ""]),
        (np.array(["a"]), Feature("x", Kind.BYTES), [b"a"]),
        (np.array([3, 4]), Feature("x", Kind.LABEL), ["3", "4"]),
        (np.array(["cat"]), Feature("x", Kind.LABEL), ["cat"]),
        (np.array(["a.jpg"]), Feature("x", Kind.IMAGE), ["a.jpg"]),
        (
            np.arange(8).reshape(2, 2, 2)[:, ::-1],
            Feature("x", Kind.INT64, shape=(2, 2)),
            [[2, 3, 0, 1], [6, 7, 4, 5]],
        ),
        (
            np.arange(4).reshape(2, 1, 2),
            Feature("x", Kind.INT64, shape=(None, None)),
            [[[0, 1]], [[2, 3]]],
        ),
        (
            np.arange(8.0).reshape(1, 2, 4),
            Feature("x", Kind.BOX),
            [[[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0]]],
        ),
        (
            np.arange(4, dtype=np.int64).reshape(2, 2),
            Feature("x", Kind.TENSOR, shape=(2,), dtype="uint8", encoding="raw"),
            [b"\x00\x01", b"\x02\x03"],
        ),
        (
            np.arange(2, dtype=np.float32),
            Feature("x", Kind.TENSOR, dtype="float64", encoding="raw"),
            [np.float64(0).tobytes(), np.float64(1).tobytes()],
        ),
        (
            np.array(["2024-05-01T13:30", "NaT"], "M8[s]"),
            Feature("x", Kind.TIMESTAMP, unit="ms"),
            [1714570200000, None],
        ),
        (
            np.array(["2024-05-01"], "M8[W]"),
            Feature("x", Kind.TIMESTAMP, unit="s"),
            [int(np.datetime64("2024-04-25").astype("M8[s]").astype(int))],
        ),
        (
            np.ma.MaskedArray([1, 2], [False, True]),
            Feature("x", Kind.INT64),
            [1, None],
        ),
        (np.empty((0, 2)), Feature("x", Kind.FLOAT, shape=(2,)), []),
        (np.array([None, 5], object), Feature("x", Kind.INT64), [None, 5]),
    ],
)
def test_whole_arrays(array: np.ndarray, feature: Feature, wanted: list[Any]) -> None:
    """Arrays of one dimension are single values; the way row by row agrees."""
    column = column_of(array, feature)
    assert column.type == row_type(feature)
    assert column.to_pylist() == wanted
    if isinstance(array, np.ma.MaskedArray):
        return
    assert column_of(list(array), feature).to_pylist() == wanted
    if array.dtype.kind != "M":
        assert column_of(array.tolist(), feature).to_pylist() == wanted
    assert column_of(array.astype(object), feature).to_pylist() == wanted


@pytest.mark.parametrize(
    ("array", "feature", "row", "why"),
    [
        (np.array([1, 2**63], np.uint64), Feature("x", Kind.INT64), 2, "outside int64"),
        (np.array([0.0, 1e39]), Feature("x", Kind.FLOAT), 2, "outside float32"),
        (np.array([1]), Feature("x", Kind.BOOL), 1, "True or False"),
        (np.array([1]), Feature("x", Kind.TEXT), 1, "text is needed"),
        (np.array([b"\xff"]), Feature("x", Kind.TEXT), 1, "UTF-8"),
        (np.array([1 + 2j]), Feature("x", Kind.FLOAT), 1, "complex"),
        (np.array([1], "m8[s]"), Feature("x", Kind.INT64), 1, "integer"),
        (np.array([1.5], np.longdouble), Feature("x", Kind.FLOAT), 1, "wider"),
        (np.zeros((2, 3)), Feature("x", Kind.FLOAT, shape=(2,)), 1, r"\[2\]"),
        (np.zeros(3), Feature("x", Kind.FLOAT, shape=(None,)), 1, "list is needed"),
        (np.zeros((1, 3)), Feature("x", Kind.BOX), 1, r"\[any, 4\]"),
        (
            np.array([[1], [300]]),
            Feature("x", Kind.TENSOR, shape=(1,), dtype="uint8"),
            2,
            "out of range",
        ),
        (
            np.array(["2024-05-01T13:30:00.5"], "M8[ms]"),
            Feature("x", Kind.TIMESTAMP, unit="s"),
            1,
            "unit",
        ),
        (
            np.ma.MaskedArray([[1, 2]], [[False, True]]),
            Feature("x", Kind.INT64),
            1,
            "masked",
        ),
    ],
)
def test_whole_arrays_are_refused_with_row_and_value(
    array: np.ndarray, feature: Feature, row: int, why: str
) -> None:
    """The error is that of single values: row, feature, kind, value and reason."""
    with pytest.raises(EncodingError, match=why) as caught:
        column_of(array, feature)
    assert str(caught.value).startswith(f"row {row}: feature 'x' of kind ")


def outcome(array: np.ndarray, feature: Feature) -> tuple[str, str]:
    """Returns type and values of the column, or the row that does not fit."""
    try:
        column = column_of(array, feature)
    except EncodingError as error:
        return "refused", str(error).partition(":")[0]
    return str(column.type), repr(column.to_pylist())


@given(data=st.data())
def test_arrays_are_as_their_values_one_by_one(data: st.DataObject) -> None:
    """For any numbers of any dtype and any kind: the same column, or both refuse."""
    dtype = data.draw(
        hnp.boolean_dtypes()
        | hnp.integer_dtypes()
        | hnp.floating_dtypes(sizes=(16, 32, 64))
    )
    shape = data.draw(hnp.array_shapes(max_dims=2, max_side=4))
    array = data.draw(hnp.arrays(dtype, shape))
    kind = data.draw(st.sampled_from([Kind.INT64, Kind.FLOAT, Kind.BOOL, Kind.LABEL]))
    feature = Feature("x", kind)
    assert outcome(array, feature) == outcome(array.astype(object), feature)


def test_each_kind_with_each_value_is_as_in_the_table() -> None:
    """Each pair is stored as the table says, or refused."""
    found = "\n".join(table())
    assert found.splitlines() == TABLE.read_text("utf-8").splitlines()
