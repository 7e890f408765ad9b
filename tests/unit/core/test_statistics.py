"""Statistics: their merge has no order, and what the values do to them."""

import functools
import json
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.core.schema import Feature, Kind
from transforms.core.statistics import (
    MAX_CLASSES,
    Statistics,
    merge_all,
    summarize,
    summarize_feature,
)

FLOATS = st.lists(st.none() | st.floats(width=32), max_size=30)
INTEGERS = st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=30)
CLASSES = st.lists(st.none() | st.integers(0, 4), max_size=30)
TEXTS = st.lists(st.none() | st.text(max_size=5), max_size=30)


def floats(values: list[float | None]) -> pa.Array:
    return pa.array(values, pa.float32(), from_pandas=False)


def written(statistics: Statistics) -> str:
    """The manifest's values as text, in which 0.0 and -0.0 differ."""
    classes = statistics.classes or {}
    return json.dumps([statistics.to_json(), sorted(classes.items())])


def merged(parts: list[Statistics]) -> Statistics:
    return functools.reduce(Statistics.merge, parts, Statistics())


@given(st.lists(st.lists(st.none() | st.integers(-99, 99), max_size=9)), st.data())
def test_merge_has_no_order(parts: list[list[int | None]], data: st.DataObject) -> None:
    """Any order and any grouping of parts give the facts of the whole."""
    found = [summarize(pa.array(p, pa.int64()), count_classes=True) for p in parts]
    whole = summarize(
        pa.array([v for p in parts for v in p], pa.int64()), count_classes=True
    )
    shuffled = data.draw(st.permutations(found))
    at = data.draw(st.integers(0, len(found)))
    grouped = merged(shuffled[:at]).merge(merged(shuffled[at:]))
    assert written(merged(found)) == written(grouped) == written(whole)


@given(st.lists(FLOATS, max_size=5), st.data())
def test_merge_of_floats_has_no_order(
    parts: list[list[float | None]], data: st.DataObject
) -> None:
    """With NaN, infinities and both zeros too, the manifest's text is the same."""
    found = [summarize(floats(part)) for part in parts]
    shuffled = data.draw(st.permutations(found))
    assert written(merged(found)) == written(merged(shuffled))


def test_both_zeros_merge_to_one_text() -> None:
    """0.0 and -0.0 are equal, and the manifest says the same whichever came first."""
    plus, minus = summarize(floats([0.0])), summarize(floats([-0.0]))
    assert written(plus.merge(minus)) == written(minus.merge(plus))


@given(FLOATS)
def test_floats_against_plain_python(values: list[float | None]) -> None:
    """NaN counts as present and bounds nothing; infinities do bound."""
    found = summarize(floats(values))
    numbers = [v for v in values if v is not None]
    finite = [v for v in numbers if not math.isnan(v)]
    assert found.present == len(numbers)
    assert found.minimum == min(finite, default=None)
    assert found.maximum == max(finite, default=None)


@given(INTEGERS)
def test_integers_against_plain_python(values: list[int | None]) -> None:
    """Bounds are exact over the whole range of int64."""
    found = summarize(pa.array(values, pa.int64()))
    numbers = [v for v in values if v is not None]
    assert found == Statistics(
        len(numbers), min(numbers, default=None), max(numbers, default=None)
    )


@given(TEXTS)
def test_texts_are_measured_in_bytes(values: list[str | None]) -> None:
    """The bounds of text and bytes are of their lengths in UTF-8."""
    sizes = [len(v.encode()) for v in values if v is not None]
    wanted = Statistics(len(sizes), min(sizes, default=None), max(sizes, default=None))
    assert summarize(pa.array(values, pa.string())) == wanted
    data = [None if v is None else v.encode() for v in values]
    assert summarize(pa.array(data, pa.large_binary())) == wanted


@given(CLASSES)
def test_classes_are_counted(values: list[int | None]) -> None:
    """Class ids are counted in ascending order; missing ones are not."""
    found = summarize(pa.array(values, pa.int64()), count_classes=True).classes
    ids = [v for v in values if v is not None]
    assert found is not None
    assert dict(found) == {v: ids.count(v) for v in set(ids)}
    assert list(found) == sorted(found)


def test_bools_are_counted_as_integers() -> None:
    """A bool's bounds are 0 and 1, as its records hold it."""
    found = summarize(pa.array([True, None, False]), count_classes=True)
    assert found == Statistics(2, 0, 1, {0: 1, 1: 1})


@pytest.mark.parametrize("kind", [pa.int64(), pa.float32(), pa.string(), pa.bool_()])
def test_no_value_no_bounds(kind: pa.DataType) -> None:
    """An empty column and one of nulls say nothing, in JSON too."""
    for values in ([], [None, None]):
        found = summarize(pa.array(values, kind))
        assert found == Statistics()
        assert found.to_json() == {"present": 0}


def test_only_nan_has_no_bounds() -> None:
    """NaN alone is present without bounds, and merges as such."""
    found = summarize(floats([math.nan, math.nan]))
    assert found == Statistics(2)
    assert found.merge(Statistics(1, 2.0, 3.0)) == Statistics(3, 2.0, 3.0)


def test_json_of_floats() -> None:
    """Infinities are text, since JSON has none; a float32 has its shortest form."""
    assert Statistics(1, -math.inf, math.inf).to_json() == {
        "present": 1,
        "min": "-inf",
        "max": "inf",
    }
    tenth = float(np.float32(0.1))
    assert Statistics(1, tenth, tenth).to_json() == {
        "present": 1,
        "min": 0.1,
        "max": 0.1,
    }


def test_slices_are_measured_alone() -> None:
    """The facts of a slice are of its own values."""
    column = pa.array(["a", "bbbb", None, "cc"])
    assert summarize(column.slice(2)) == Statistics(1, 2, 2)


def test_merge_all_is_by_feature() -> None:
    """Features are merged by name; one that a part lacks keeps its own."""
    parts = [
        {"a": Statistics(1, 0, 5)},
        {"b": Statistics(2)},
        {"a": Statistics(1, 3, 9)},
    ]
    assert merge_all(parts) == {"a": Statistics(2, 0, 9), "b": Statistics(2)}
    assert merge_all([]) == {}


def test_a_float_label_is_not_counted_by_value() -> None:
    """A number to predict has as many values as records, NaN among them: no classes."""
    parts = [summarize(floats([math.nan, 1.0]), count_classes=True) for _ in range(3)]
    assert merged(parts).classes == {}


def test_too_many_classes_are_not_counted() -> None:
    """Whether there are too many depends on all parts, not on their order."""
    many = [pa.array(range(i, i + MAX_CLASSES // 2 + 1)) for i in (0, 9_000, 0)]
    parts = [summarize(column, count_classes=True) for column in many]
    assert parts[0].classes is not None
    assert parts[0].merge(parts[2]).classes is not None
    assert merged(parts).classes is None
    assert merged(parts[::-1]).classes is None


LISTS = st.lists(st.none() | st.lists(st.integers(-9, 9), max_size=4), max_size=8)
RAGGED = st.lists(
    st.none() | st.lists(st.lists(st.integers(-9, 9), max_size=3), max_size=3),
    max_size=6,
)


def flat(value: Any) -> list[Any]:
    return [x for v in value for x in flat(v)] if isinstance(value, list) else [value]


@given(LISTS | RAGGED, st.sampled_from([pa.list_, pa.large_list]))
def test_lists_against_plain_python(values: list[Any], kind: Any) -> None:
    """The range is of all their values, the lengths are of the outer lists."""
    ragged = any(isinstance(x, list) for v in values if v for x in v)
    found = summarize(
        pa.array(values, kind(kind(pa.int64())) if ragged else kind(pa.int64())),
        count_classes=True,
    )
    lists = [v for v in values if v is not None]
    numbers = [x for v in lists for x in flat(v)]
    assert found == Statistics(
        len(lists),
        min(numbers, default=None),
        max(numbers, default=None),
        {x: numbers.count(x) for x in sorted(set(numbers))},
        min(map(len, lists), default=None),
        max(map(len, lists), default=None),
    )


@given(st.lists(LISTS, max_size=5), st.data())
def test_merge_of_lists_has_no_order(parts: list[Any], data: st.DataObject) -> None:
    """Parts of no list at all have no lengths, and change none."""
    arrays = [pa.array(part, pa.list_(pa.int64())) for part in parts]
    found = [summarize(array, count_classes=True) for array in arrays]
    whole = pa.array([v for part in parts for v in part], pa.list_(pa.int64()))
    shuffled = data.draw(st.permutations(found))
    expected = written(summarize(whole, count_classes=True))
    assert written(merged(shuffled)) == expected


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([["글"], [], None]), {"present": 2, "min": 3, "max": 3}),
        (pa.array([[True, False]]), {"present": 1, "min": 0, "max": 1}),
        (pa.array([[0.5, math.nan]]), {"present": 1, "min": 0.5, "max": 0.5}),
        (pa.array([[], []], pa.list_(pa.float32())), {"present": 2}),
        (
            pa.array([[1, 2], None], pa.list_(pa.int64(), 2)),
            {"present": 1, "min": 1, "max": 2},
        ),
        (pa.array([[1], [2], [3]]).slice(1), {"present": 2, "min": 2, "max": 3}),
    ],
)
def test_lists_of_every_type(column: pa.Array, expected: dict[str, Any]) -> None:
    """Text by its bytes, no bound for NaN, fixed sizes, slices."""
    lengths = [len(v) for v in column.to_pylist() if v is not None]
    expected |= {"fewest": min(lengths), "most": max(lengths)}
    assert summarize(column).to_json() == expected


def test_features_of_several_keys() -> None:
    """Boxes: the range of all four sides; ragged lists: how many rows they have."""
    box = Feature("b", Kind.BOX)
    sides = dict(zip(box.record_keys, ([0.1], [0.2], [0.8], [0.9]), strict=True))
    columns = {k: pa.array([v, None], pa.list_(pa.float32())) for k, v in sides.items()}
    assert summarize_feature(box, columns).to_json() == {
        "present": 1,
        "min": 0.1,
        "max": 0.9,
        "fewest": 1,
        "most": 1,
    }
    ragged = Feature("r", Kind.LABEL, shape=(None, None))
    parts = [[[5, 5, 7], None, []], [[0, 3], None, []]]
    columns = {
        key: pa.array(part, pa.list_(pa.int64()))
        for key, part in zip(ragged.record_keys, parts, strict=True)
    }
    found = summarize_feature(ragged, columns)
    assert found == Statistics(2, 5, 7, {5: 2, 7: 1}, 0, 2)
