"""Statistics: their merge has no order, and what the values do to them."""

import functools
import json
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.core.schema import Feature, Kind
from transforms.core.statistics import (
    MAX_CLASSES,
    Statistics,
    summarize,
    summarize_columns,
    summarize_feature,
)

FLOAT = st.none() | st.floats(width=32) | st.sampled_from([0.0, -0.0])
FLOATS = st.lists(FLOAT, max_size=30)
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


LISTS = st.lists(st.none() | st.lists(st.integers(-9, 9), max_size=4), max_size=8)
COLUMNS = {
    pa.int64(): INTEGERS | CLASSES,
    pa.float32(): FLOATS,
    pa.list_(pa.int64()): LISTS,
}


@given(st.data())
def test_merge_has_no_order(data: st.DataObject) -> None:
    """Any order and any grouping of parts give the facts of the whole.

    With NaN, infinities and both zeros too; parts of no list change no lengths.
    """
    kind = data.draw(st.sampled_from([*COLUMNS]))
    parts = data.draw(st.lists(COLUMNS[kind], max_size=5))
    arrays = [pa.array(part, kind, from_pandas=False) for part in parts]
    found = [summarize(array, count_classes=True) for array in arrays]
    shuffled = data.draw(st.permutations(found))
    at = data.draw(st.integers(0, len(found)))
    grouped = merged(shuffled[:at]).merge(merged(shuffled[at:]))
    whole = pa.concat_arrays([pa.array([], kind), *arrays])
    wanted = written(summarize(whole, count_classes=True))
    assert written(merged(found)) == written(grouped) == wanted


@given(FLOATS)
def test_floats_against_plain_python(values: list[float | None]) -> None:
    """NaN counts as present and bounds nothing; infinities do bound."""
    found = summarize(floats(values))
    numbers = [v for v in values if v is not None]
    finite = [v for v in numbers if not math.isnan(v)]
    assert found.present == len(numbers)
    assert found.minimum == min(finite, default=None)
    assert found.maximum == max(finite, default=None)


@given(TEXTS)
def test_texts_are_measured_in_bytes(values: list[str | None]) -> None:
    """The bounds of text and bytes are of their lengths in UTF-8."""
    sizes = [len(v.encode()) for v in values if v is not None]
    lowest, highest = min(sizes, default=None), max(sizes, default=None)
    wanted = Statistics(len(sizes), lowest, highest)
    assert summarize(pa.array(values, pa.string())) == wanted
    data = [None if v is None else v.encode() for v in values]
    assert summarize(pa.array(data, pa.large_binary())) == wanted


@given(INTEGERS | CLASSES)
def test_integers_are_counted(values: list[int | None]) -> None:
    """Bounds are exact over all of int64; ids ascend, and missing ones do not count."""
    found = summarize(pa.array(values, pa.int64()), count_classes=True)
    ids = sorted(v for v in values if v is not None)
    classes = {v: ids.count(v) for v in ids}
    least, most = min(ids, default=None), max(ids, default=None)
    assert found == Statistics(len(ids), least, most, classes)
    assert [*(found.classes or {})] == [*classes]


def test_too_many_classes_are_not_counted() -> None:
    """Whether there are too many depends on all parts, not on their order."""
    many = [pa.array(range(i, i + MAX_CLASSES // 2 + 1)) for i in (0, 9_000, 0)]
    parts = [summarize(column, count_classes=True) for column in many]
    assert parts[0].classes is not None
    assert parts[0].merge(parts[2]).classes is not None
    assert merged(parts).classes is None
    assert merged(parts[::-1]).classes is None


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


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        *((pa.array([], k), {"present": 0}) for k in (pa.int64(), pa.float32())),
        *((pa.nulls(2, k), {"present": 0}) for k in (pa.string(), pa.bool_())),
        (floats([math.nan] * 2), {"present": 2}),
        (floats([-math.inf, math.inf]), {"present": 2, "min": "-inf", "max": "inf"}),
        (floats([0.1]), {"present": 1, "min": 0.1, "max": 0.1}),
        (pa.array([True, None, False]), {"present": 2, "min": 0, "max": 1}),
        (pa.array(["a", "bbbb", None, "cc"])[2:], {"present": 1, "min": 2, "max": 2}),
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
def test_columns_of_every_type(column: pa.Array, expected: dict[str, Any]) -> None:
    """In JSON: text by its bytes, no bound for NaN, infinities as text, slices."""
    if pa.types.is_nested(column.type):
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
    # Nothing is said of what no chunk held.
    assert summarize_columns([box, ragged], columns) == {"r": found}
