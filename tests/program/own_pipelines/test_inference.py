"""What rows are inferred to be, whatever bundles and batches they arrive in."""

import datetime
import decimal
import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from tests.support.gathered_rows import gather
from transforms.core.schema import InexactIntegers, Kind
from transforms.errors import BeamTFRecordError, EncodingError

NAN = float("nan")
DAY = datetime.datetime(2020, 1, 1)
VALUES: Mapping[str, Sequence[Any]] = {
    "numbers": [1, 0, 2**53 + 1, 2**60, 1.5, NAN, None, 16777217, 16777217.0, 2.0],
    "scalars": [np.int32(4), np.float32(0.1), np.int64(7), np.uint64(9), 3.5],
    "integers": [1, 2, None, 2**40, np.int8(3), -5],
    "floats": [1.5, None, NAN, 1e300, -0.0, 0.0, np.float64(3.5), 7],
    "bools": [True, False, None, np.True_],
    "texts": ["1", "1.0", "a", "", "\u00e9", "e\u0301", None],
    "bytes": [b"a", b"", b"\xff\x00", None, "a", bytearray(b"z")],
    "lists": [[1, 2], [], None, [3], [2**40], (4,), np.array([1, 2])],
    "mixed": [[1, 2.5], [], [3], [0.5], [33554432], np.array([1.5], np.float32)],
    "arrays": [np.array([1.5, 2.5]), np.array([1, 2]), np.array([3], "f4"), None],
    "words": [["a", "b"], [], None, ["1"]],
    "dicts": [{"x": 1, "y": "a"}, {"y": "b"}, {}, None, {"x": 2.5}, {"x": None}],
    "records": [[{"x": 1}, {"x": 2}], [], None, [{"x": 3, "y": "q"}], [{}]],
    "tensors": [np.zeros((2, 2), np.uint8), np.ones((2, 2), np.uint8), None],
    "times": [DAY, datetime.datetime(1500, 1, 1), None, np.datetime64(7, "ns")],
    "dates": [datetime.date(2020, 1, 1), None],
    "decimals": [decimal.Decimal("1.5"), decimal.Decimal("22.25"), 3, None],
    "nested": [[[1], [2, 3]], [[]], [], None, [[4]]],
}
STRANGE = ["odd", 3, [1], None, 2.5, b"x", True]
DECLARED = {
    "numbers": ("int64", "float", "text", "label"),
    "integers": ("int64", "float", "text", "label", "timestamp"),
    "floats": ("float", "text", "int64"),
    "texts": ("text", "label", "int64", "bytes", "float"),
}


def outcome(bundles: Sequence[Sequence[Any]], **settings: Any) -> Any:
    """Returns all that may not depend on bundles; of a failure, its type."""
    try:
        return gather(bundles, **settings).facts
    except BeamTFRecordError as error:
        return type(error)


@pytest.mark.parametrize("seed", range(24))
def test_bundles_and_order_decide_nothing(seed: int) -> None:
    """Any bundles, order of rows and order of keys give the schema and the records."""
    random_ = random.Random(seed)
    names = random_.sample(sorted(VALUES), random_.randint(1, 3))
    rows = [
        {n: random_.choice(VALUES[n]) for n in names if random_.random() < 0.9}
        for _ in range(random_.randint(2, 40))
    ]
    rows = [row for row in rows if row] or [{names[0]: None}]
    if seed % 3 == 0:
        rows[0][names[0]] = random_.choice(STRANGE)
    settings: dict[str, Any] = {"num_shards": 3} if seed % 2 else {}
    if seed % 4 == 1:
        settings["splits"] = {"train": 0.5, "test": 0.5}
    settings["features"] = {
        name: {"kind": random_.choice(DECLARED[name]), "missing": "omit"}
        for name in names
        if name in DECLARED and random_.random() < 0.4
    }
    wanted = outcome([rows], **settings)
    for _ in range(2):
        mixed = [dict(random_.sample(list(r.items()), len(r))) for r in rows]
        random_.shuffle(mixed)
        bundles: list[list[Any]] = [[] for _ in range(random_.randint(1, 5))]
        for row in mixed:
            random_.choice(bundles).append(row)
        assert outcome(bundles, **settings) == wanted


def kinds(rows: Sequence[Any], **settings: Any) -> dict[str, Kind]:
    schema = gather([rows], **settings).schema
    return {feature.name: feature.kind for feature in schema.features}


def test_a_missing_key_none_and_null_are_the_same() -> None:
    """A column without any value is text; NaN is a value of a float."""
    a = gather([[{"a": 1, "b": None}, {"a": None, "b": None}]])
    b = gather([[{"a": 1, "b": None}], [{"b": None}]])
    assert a.facts == b.facts
    assert kinds([{"a": NAN, "b": None}, {"a": 1}]) == {
        "a": Kind.FLOAT,
        "b": Kind.TEXT,
    }


@pytest.mark.parametrize("strange", ["x", [1], b"x", True])
def test_one_of_100_that_does_not_join_is_a_reject(strange: Any) -> None:
    """99 of 100 decide; the reject says which row it was."""
    found = gather([[{"a": 1, "k": n} for n in range(99)], [{"a": strange, "k": 99}]])
    assert found.schema["a"].kind is Kind.INT64
    (rejection,) = found.rejections
    assert rejection.source != ""
    assert rejection.reason == "not_an_integer"
    keyed = gather([[{"a": 1, "k": n} for n in range(99)] + [{"a": strange, "k": 99}]])
    assert keyed.schema == found.schema


@pytest.mark.parametrize(
    ("value", "mapping", "name"),
    [
        (0.5, {"raw": 12, "unit": "%"}, "x"),
        ([1, 2], [{"raw": 12}], "x"),
        ({"deep": 1}, {"deep": {"raw": 12}}, "x/deep"),
    ],
)
def test_mappings_beside_values_are_an_error(
    value: Any, mapping: Any, name: str
) -> None:
    """However few they are: their parts would be columns of all rows."""
    rows = [{"id": i, "x": value} for i in range(300)]
    bundles = [rows[:7], [{"id": 300, "x": mapping}, *rows[7:]]]
    for each in (bundles, [rows, [{"id": 300, "x": mapping}]]):
        with pytest.raises(EncodingError, match=f"{name!r}.*300 .*others are mapping"):
            gather(each)
    alone = [{"id": 1, "x": mapping}, {"id": 2, "x": None}, {"id": 3}]
    assert gather([alone]).facts == gather([alone[:1], alone[:0:-1]]).facts


def test_fewer_than_99_of_100_is_an_error_that_names_both() -> None:
    """Never silently text."""
    rows = [{"a": 1}] * 98 + [{"a": "x"}] * 2
    with pytest.raises(EncodingError) as caught:
        gather([rows])
    for words in ("'a'", "98 are int (as '1')", "2 text (as 'x')", "features="):
        assert words in str(caught.value)


def test_texts_that_read_as_one_number_are_two_rows() -> None:
    """Rows of one hash are ordered by their records, and all of them are there."""
    rows = [{"a": "1"}, {"a": "1.0"}, {"a": "1e0"}, {"a": "1"}]
    found = gather([rows], num_shards=1)
    (records,) = found.records.values()
    assert len(records) == 4
    assert records == sorted(records)
    assert gather([[row] for row in reversed(rows)], num_shards=1).facts == found.facts


def test_large_integers_beside_floats() -> None:
    """Whole numbers that float32 does not hold are rejects, in whatever bundle."""
    rows = [{"a": 16777217}, {"a": 0.5}, {"a": 2**60 + 1}, {"a": 3}]
    found = gather([rows])
    assert found.schema["a"].inexact_integers is InexactIntegers.REJECT
    assert len(found.rejections) == 2
    assert gather([[row] for row in rows]).facts == found.facts
    whole = gather([[{"a": 16777217.0}, {"a": 3}]])
    assert whole.schema["a"].kind is Kind.INT64


def test_rows_beside_one_that_does_not_fit_are_kept() -> None:
    """An integer of a list that no double holds rejects its row, in whatever order."""
    rows: list[dict[str, Any]] = [
        {"a": [1]},
        {"a": [2**53 + 1, 2]},
        {"a": [3]},
        {"a": [1.5]},
    ]
    found = gather([rows])
    assert len(found.rejections) == 1
    assert gather([rows[::-1]]).facts == found.facts
    assert gather([[row] for row in rows]).facts == found.facts


def test_a_bool_is_no_float() -> None:
    """Arrow alone would read True among floats as 1.0."""
    found = gather([[{"a": 1.5}] * 300 + [{"a": True}]])
    assert [rejection.reason for rejection in found.rejections] == ["not_a_number"]
