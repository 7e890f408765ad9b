"""Values of Python and NumPy to Arrow: nothing lost and nothing mixed."""

import datetime
import decimal
import enum
import pathlib
import uuid
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from transforms.core.rows.common_type import (
    PYTHON,
    as_type,
    plain_array,
    plain_type,
)
from transforms.core.rows.natural_arrays import arrow_of
from transforms.core.rows.python_kinds import OddValueError

UTC = datetime.UTC
PARIS = datetime.timezone(datetime.timedelta(hours=2))
NAIVE = datetime.datetime(2020, 1, 1, 3)


class Color(enum.Enum):
    RED = 1


class Word(enum.StrEnum):
    CAT = "cat"


@pytest.mark.parametrize(
    "dtype",
    (
        "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64"
    ).split(),
)
def test_numpy_scalars_and_arrays_of_every_width(dtype: str) -> None:
    """Scalars, arrays of either byte order and lists of scalars keep their width."""
    array = np.array([0, 1, 1], dtype)
    wanted = pa.array(array)
    assert arrow_of(array).equals(wanted)
    assert arrow_of(array.astype(array.dtype.newbyteorder(">"))).equals(wanted)
    assert arrow_of(list(array)).equals(wanted)
    with_none = arrow_of([*array, None])
    assert with_none.type == wanted.type
    assert with_none.to_pylist() == [*wanted.to_pylist(), None]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, None, -(2**63)], pa.int64()),
        ([np.int8(1), np.int16(300), 2], pa.int64()),
        ([np.float32(1), np.float64(0.1), 2.5], pa.float64()),
        ([1, 2.5, -(2**24) - 1, 2**53], pa.float64()),
        ([True, np.bool_(False), None], pa.bool_()),
        (["a", np.str_("b")], pa.string()),
        (["a", b"\xff"], pa.binary()),
        ([bytearray(b"a"), memoryview(b"b")], pa.binary()),
        ([datetime.date(2020, 1, 1)], pa.date32()),
        ([NAIVE], pa.timestamp("us")),
        (
            [NAIVE.replace(tzinfo=PARIS), NAIVE.replace(tzinfo=UTC)],
            pa.timestamp("us", "UTC"),
        ),
        ([pd.Timestamp(1, unit="ns"), pd.NaT], pa.timestamp("ns")),
        ([np.datetime64("2020-01-01", "ms"), None], pa.timestamp("ms")),
        ([datetime.timedelta(seconds=1)], pa.duration("us")),
        ([np.timedelta64(3, "s")], pa.duration("s")),
        ([decimal.Decimal("1.25"), decimal.Decimal(100)], pa.decimal128(5, 2)),
        ([Color.RED, None], pa.int64()),
        ([Word.CAT], pa.string()),
        ([pathlib.PurePosixPath("a/b")], pa.string()),
        ([uuid.UUID(int=3)], pa.string()),
        ([pd.NA, None], pa.null()),
        ([pd.NA, 1], pa.int64()),
        ([np.array(3), 4], pa.int64()),
        ([[1, 2], [], None], pa.list_(pa.int64())),
        ([(1, 2.5)], pa.list_(pa.float64())),
        ([np.arange(2), np.arange(3)], pa.list_(pa.int64())),
        ([np.array(["a"]), np.array(["b", "c"])], pa.list_(pa.string())),
        ([np.zeros(3, np.float32)], pa.list_(pa.float32(), 3)),
        ([np.zeros((2, 3), np.uint8), None], pa.fixed_shape_tensor(pa.uint8(), [2, 3])),
        (
            [{"a": 1}, None, {"b": "x"}],
            pa.struct([("a", pa.int64()), ("b", pa.string())]),
        ),
    ],
)
def test_types(values: list[Any], kind: pa.DataType) -> None:
    """Each list of values has the type that the table in the docstring says."""
    array = arrow_of(values)
    assert array.type == kind
    array.validate(full=True)
    assert len(array) == len(values)


def test_values_stay_themselves() -> None:
    """What went in comes out: enums as values, instants in UTC, mixtures as bytes."""
    assert arrow_of([Color.RED, None]).to_pylist() == [1, None]
    assert arrow_of([NAIVE.replace(tzinfo=PARIS)]).to_pylist() == [
        datetime.datetime(2020, 1, 1, 1, tzinfo=UTC)
    ]
    assert arrow_of(["é", b"\xff"]).to_pylist() == ["é".encode(), b"\xff"]
    assert arrow_of([1, 2.5, 2**53]).to_pylist() == [1.0, 2.5, 2.0**53]
    assert arrow_of([{"a": 1}, None, {"b": "x"}]).to_pylist() == [
        {"a": 1, "b": None},
        None,
        {"a": None, "b": "x"},
    ]
    masked = np.ma.array([1, 2], mask=[False, True])
    assert arrow_of(masked).to_pylist() == [1, None]
    weeks = np.array(["2020-01-02", "NaT"], "M8[W]")
    assert arrow_of(weeks).to_pylist() == [datetime.date(2020, 1, 2), None]
    masked = np.ma.array(weeks, mask=[True, False])
    assert arrow_of(masked).to_pylist() == [None, None]
    assert np.isnan(arrow_of(np.array([np.nan])).to_numpy()).all()


def test_tensors_keep_their_elements() -> None:
    """Arrays of any memory layout become the tensors that NumPy sees."""
    images = np.arange(2 * 3 * 4 * 5, dtype=np.uint8).reshape(2, 3, 4, 5)
    for given in (images, np.asfortranarray(images), list(images)):
        assert np.array_equal(arrow_of(given).to_numpy_ndarray(), images)
    assert arrow_of(np.zeros((2, 0))).to_pylist() == [[], []]


@pytest.mark.parametrize(
    ("values", "index", "found"),
    [
        ([1, None, "a"], 2, "'a' (str) is among values that are int"),
        ([True, 1], 1, "1 (int)"),
        ([1.5, True], 1, "True (bool)"),
        ([1.5, 2**53 + 1], 1, "9007199254740993"),
        ([0, 2**63], 1, "is outside int64"),
        ([-1, np.uint64(2**63)], 1, "is outside int64"),
        ([NAIVE, NAIVE.replace(tzinfo=UTC)], 1, "time zone"),
        ([datetime.date(2020, 1, 1), NAIVE], 1, "(datetime)"),
        ([np.datetime64("2020", "D"), np.datetime64("2020", "s")], 1, "another unit"),
        ([1, {2}], 1, "type set"),
        ([1j], 0, "type complex"),
        ([np.longdouble(1)], 0, "wider than float64"),
        (["a", "\ud800"], 1, "surrogates"),
        ([decimal.Decimal(1), decimal.Decimal("NaN")], 1, "Decimal('NaN')"),
        ([[1], [2, "a"]], 1, "'a' (str)"),
        ([{"a": 1}, {"a": "x"}], 1, "in 'a'"),
        ([np.zeros((2, 2)), np.zeros((2, 3))], 1, "shape (2, 3)"),
        ([np.zeros(2, np.int64), np.zeros(2)], 1, "float64"),
        ([np.zeros(2), 1.0], 1, "is among values that are array"),
    ],
)
def test_mixtures_and_losses_are_refused(
    values: list[Any], index: int, found: str
) -> None:
    """The value that does not go with the others is named, by its index too."""
    with pytest.raises(OddValueError) as error:
        arrow_of(values)
    assert error.value.index == index
    assert found in str(error.value)


def test_deep_lists_hold_themselves_or_not() -> None:
    """Large integers and lists that are in several others are no circles."""
    digits = 10**5_000
    with pytest.raises(OddValueError, match="outside int64"):
        arrow_of([[[[[[digits]]]]]])
    shared: list[Any] = [1]
    for _ in range(12):
        shared = [shared, shared]
    assert len(pc.list_flatten(arrow_of([shared]), recursive=True)) == 1 << 12
    circle: list[Any] = [1]
    circle.append({"a": [circle]})
    with pytest.raises(OddValueError):
        arrow_of([circle])


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(2, complex),
        np.zeros(2, "V4"),
        np.zeros(2, np.longdouble),
        np.array(1),
        np.zeros(2, "M8[ps]"),
        np.array([2**60], "M8[Y]"),
        np.ma.array([[1, 2]], mask=[[True, False]]),
    ],
)
def test_arrays_without_a_type_are_refused(array: Any) -> None:
    """What Arrow would lose or not take is an error, not a guess."""
    with pytest.raises(OddValueError):
        arrow_of(array)


def test_widening_keeps_every_value() -> None:
    """Values are the same after it; what the wide type cannot hold is named."""
    lists = pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int64(), 2))
    wide = as_type(lists.slice(1), pa.list_(pa.float64()))
    assert wide.to_pylist() == [None, [3.0, 4.0]]
    fixed = as_type(lists, pa.list_(pa.float64(), 2))
    assert fixed.to_pylist() == [[1.0, 2.0], None, [3.0, 4.0]]
    texts = pa.array([["a"], None], pa.large_list(pa.large_string()))
    narrow = as_type(texts, pa.list_(pa.string()))
    assert narrow.equals(pa.array([["a"], None], pa.list_(pa.string())))
    for value, fits in [(2**53, True), (2**53 + 1, False), (-(2**63), False)]:
        array = pa.array([0, None, value], pa.int64())
        if fits:
            assert as_type(array, pa.float64()).to_pylist() == [0.0, None, float(value)]
            continue
        with pytest.raises(OddValueError) as error:
            as_type(array, pa.float64())
        assert error.value.index == 2
        first = pa.array([[1], [], [value, 1], [1]])
        with pytest.raises(OddValueError) as error:
            as_type(first, pa.list_(pa.float64()))
        assert error.value.index == 2
    with pytest.raises(OddValueError):
        as_type(pa.array([2**63], pa.uint64()), pa.int64())


@pytest.mark.parametrize("index", ["int8", "uint8", "int32", "uint32", "uint64"])
@pytest.mark.parametrize(
    "values",
    [
        pa.array(["b", None, "longer than twelve bytes"], kind)
        for kind in (pa.string(), pa.large_string(), pa.string_view())
    ]
    + [
        pa.array([b"b", None, b"longer than twelve bytes"], kind)
        for kind in (pa.binary(), pa.large_binary(), pa.binary_view())
    ]
    + [
        pa.array([["b", None], None, []], pa.list_(pa.string_view())),
        pa.array([{"a": 1}, None, {"a": None}], pa.struct([("a", pa.int8())])),
    ],
    ids=lambda values: str(values.type),
)
def test_dictionaries_and_runs_are_their_values(values: pa.Array, index: str) -> None:
    """With nulls in the dictionary and beside it, and in slices of any place."""
    places = [2, 0, None, 1, 1, 2]
    array = pa.DictionaryArray.from_arrays(pa.array(places, index), values)
    wanted = [None if place is None else values[place].as_py() for place in places]
    kind = plain_type(array.type, PYTHON)
    for start in range(len(places) + 1):
        for size in range(len(places) + 1 - start):
            part = array.slice(start, size)
            assert plain_array(part).to_pylist() == wanted[start : start + size]
            assert as_type(part, kind).to_pylist() == wanted[start : start + size]
            lists = pa.array([[1] * size, None], pa.list_(pa.int8()))
            nested = pa.ListArray.from_arrays(lists.offsets, part)
            assert (
                as_type(nested, pa.list_(kind))[0].as_py()
                == (wanted[start : start + size])
            )
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 5, 9], pa.int16()), values)
    wanted = [values[i].as_py() for i in (0, 0, 1, 1, 1, 2, 2, 2, 2)]
    for start in range(10):
        for size in range(10 - start):
            part = runs.slice(start, size)
            assert plain_array(part).to_pylist() == wanted[start : start + size]
