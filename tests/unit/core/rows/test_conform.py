"""Raw columns become rows under a schema; misfits are reported row by row."""

import dataclasses
import datetime
import math
import random
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from transforms.core.infer.columns import infer_columns
from transforms.core.reasons import Reason
from transforms.core.rows.column import Misfit
from transforms.core.rows.conform import conform
from transforms.core.schema import Feature, Kind, Missing, Schema, Unknown

Columns = Mapping[str, Any]


def conformed(
    feature: Feature, columns: Columns, *, count: int = 3, origins: Any = "a/b.csv"
) -> tuple[list[Any], list[Misfit]]:
    """Returns the feature's values and what does not fit."""
    arrays = {
        name: column if isinstance(column, pa.Array) else pa.array(column)
        for name, column in columns.items()
    }
    batch, misfits = conform(arrays, Schema((feature,)), count, origins)
    batch.validate(full=True)
    assert batch.schema == Schema((feature,)).row_schema
    assert batch.num_rows == count
    return batch.column(0).to_pylist(), misfits


def told(misfit: Misfit) -> list[tuple[int, Reason, str]]:
    """Returns (row, reason, message) of every cell that does not fit."""
    rows = np.flatnonzero(misfit.bad).tolist()
    return [(row, *misfit.complaint(row)) for row in rows]


def test_a_feature_may_have_another_name_than_its_column() -> None:
    """The message has the column's name, as the source has it."""
    feature = Feature("n", Kind.INT64, column="Number of legs")
    values, (misfit,) = conformed(feature, {"Number of legs": ["4", "x", "6"]})
    assert (values[0], values[2]) == (4, 6)
    assert told(misfit) == [
        (
            1,
            Reason.NOT_AN_INTEGER,
            "column 'Number of legs' holds 'x': not an integer (a whole "
            "decimal number, no leading zeros)",
        )
    ]


def test_a_feature_without_a_column_is_missing() -> None:
    """Files need not all have it; whether that is allowed, the feature says."""
    assert conformed(Feature("n", Kind.INT64), {}) == ([None] * 3, [])
    feature = Feature("n", Kind.INT64, missing=Missing.REJECT)
    _, (misfit,) = conformed(feature, {})
    assert told(misfit)[2] == (
        2,
        Reason.MISSING_VALUE,
        "column 'n' holds nothing: a value is needed here",
    )


LABEL = Feature("x", Kind.LABEL, vocabulary=("cat", "5"))
FLOATS = [1.5, None, 2.5]
PAIRS = Feature("x", Kind.FLOAT, shape=(None, 4))
INTS = [1, 5, None, 9]
NAN = pa.array([0.1, math.nan, None, 2.0], pa.float32())
TEXTS = ["ab-1", "b", None, ""]
AGE = Feature("x", Kind.INT64, at_least=18, at_most=99)
DAY = Feature("x", Kind.TIMESTAMP, unit="s", at_least=1577836800)
NESTED = [[[1], [2, 3]], [[4]], [], None, [[2], [1, 9]]]


@pytest.mark.parametrize(
    ("feature", "cells", "values", "faults"),
    [
        (Feature("x", Kind.INT64, constant=7), "abc", [7] * 3, {}),
        (Feature("x", Kind.TEXT, constant="v1"), "abc", ["v1"] * 3, {}),
        (Feature("x", Kind.BYTES, constant="v1"), "abc", [b"v1"] * 3, {}),
        (Feature("x", Kind.BOOL, constant=False), "abc", [False] * 3, {}),
        (Feature("x", Kind.FLOAT, constant=0.5), "abc", [0.5] * 3, {}),
        (Feature("x", Kind.LABEL, constant="cat"), "abc", ["cat"] * 3, {}),
        (
            Feature("l", Kind.LABEL, column="x", pattern=r"^([a-z]+)_"),
            ["cat_1", "dog_2", None],
            ["cat", "dog", None],
            {},
        ),
        (Feature("x", Kind.FLOAT), FLOATS, FLOATS, {}),
        (
            Feature("x", Kind.FLOAT, missing=Missing.FILL, fill=-1.0),
            FLOATS,
            [1.5, -1.0, 2.5],
            {},
        ),
        (
            Feature("x", Kind.FLOAT, missing=Missing.REJECT),
            FLOATS,
            FLOATS,
            {1: "missing_value"},
        ),
        # One reason a cell: a value that does not fit is there.
        (
            Feature("x", Kind.INT64, missing=Missing.REJECT),
            ["x", None, "1"],
            [None, None, 1],
            {0: "not_an_integer", 1: "missing_value"},
        ),
        # A null item gets the value; a bad one stays a fault.
        (
            Feature("x", Kind.INT64, shape=(None,), missing=Missing.FILL, fill=7),
            ["[1, null]", None, "[]", '["x", null]'],
            [[1, 7], [7], [], None],
            {3: "not_an_integer"},
        ),
        # Never -1 silently; names that later stages number are kept.
        (LABEL, ["cat", "Cat", None], ["cat", None, None], {1: "unknown_label"}),
        (LABEL, [5, 4], ["5", None], {1: "unknown_label"}),
        (dataclasses.replace(LABEL, unknown=Unknown.OOV), ["cow"], ["cow"], {}),
        (dataclasses.replace(LABEL, unknown=Unknown.APPEND), ["cow"], ["cow"], {}),
        # Missing values keep every rule, and NaN keeps no limit.
        (Feature("x", Kind.INT64, at_least=5), INTS, INTS, {0: "below_min"}),
        (Feature("x", Kind.INT64, at_most=5), INTS, INTS, {3: "above_max"}),
        (Feature("x", Kind.INT64, allowed=(1, 9)), INTS, INTS, {1: "not_allowed"}),
        (Feature("x", Kind.FLOAT, at_least=0.1), NAN, [], {1: "below_min"}),
        (
            Feature("x", Kind.FLOAT, at_most=1.5),
            NAN,
            [],
            {1: "above_max", 3: "above_max"},
        ),
        (
            Feature("x", Kind.TEXT, matches="^[a-z]+-[0-9]$"),
            TEXTS,
            TEXTS,
            {1: "no_match", 3: "no_match"},
        ),
        (
            Feature("x", Kind.LABEL, allowed=("b", "")),
            TEXTS,
            TEXTS,
            {0: "not_allowed"},
        ),
        (
            AGE,
            ["17", "18", None, "x", "100"],
            [17, 18, None, None, 100],
            {0: "below_min", 3: "not_an_integer", 4: "above_max"},
        ),
        # A row is at fault for one of its items, at any depth.
        (
            Feature("x", Kind.INT64, shape=(None, None), at_most=3),
            NESTED,
            NESTED,
            {1: "above_max", 4: "above_max"},
        ),
        # A value that is filled in is checked like any other.
        (
            Feature("x", Kind.INT64, missing=Missing.FILL, fill=0, at_least=1),
            [None, "1"],
            [0, 1],
            {0: "below_min"},
        ),
    ],
)
def test_cells_become_values_or_faults(
    feature: Feature, cells: Any, values: list[Any], faults: dict[int, str]
) -> None:
    """Constants, patterns, missing values, what fills them, vocabularies, limits."""
    column = cells if isinstance(cells, pa.Array) else list(cells)
    found, misfits = conformed(feature, {"x": column}, count=len(cells))
    reasons = {row: str(reason) for m in misfits for row, reason, _ in told(m)}
    assert reasons == faults
    pairs = zip(found, values or found, strict=True)
    assert all(a == b for row, (a, b) in enumerate(pairs) if row not in faults)


def test_patterns_over_the_path_of_the_file() -> None:
    """The first group, typed as the feature says; missing where it is not found."""
    year = Feature("year", Kind.INT64, pattern=r"/(\d{4})-")
    assert conformed(year, {}, origins="logs/2024-05.csv") == ([2024] * 3, [])
    paths = pa.array(["a/2023-1", "a/none", "a/2025-1"])
    assert conformed(year, {}, origins=paths) == ([2023, None, 2025], [])
    _, (misfit,) = conformed(
        Feature("n", Kind.INT64, pattern="/(.*)"), {}, origins="a/007"
    )
    assert told(misfit)[0][1] is Reason.NOT_AN_INTEGER


def test_unknown_names_in_lists_of_labels() -> None:
    """One is enough; rows that are bad, missing or empty do not shift the others."""
    feature = Feature("l", Kind.LABEL, shape=(None,), vocabulary=("a", "b"))
    lists = [["z"], ["a", None], None, [], ["b", "x"], ["a", "b"]]
    for start in (0, 1):
        column = pa.array(lists).slice(start)
        _, (faulty, unknown) = conformed(feature, {"l": column}, count=6 - start)
        assert [row + start for row, *_ in told(faulty)] == [1]
        assert [row + start for row, *_ in told(unknown)] == [4] if start else [0, 4]


@pytest.mark.parametrize(
    ("column", "feature", "words"),
    [
        (pa.array([1.5]), Kind.INT64, "column 'x' holds 1.5: not an integer"),
        (pa.array([2**63], pa.uint64()), Kind.INT64, f"holds {2**63}: outside int64"),
        (pa.array([b"\xff" * 9]), Kind.TEXT, "holds 9 bytes: not valid UTF-8"),
        (pa.array([[1, 2]]), Kind.INT64, r"holds \[1, 2\]: it cannot be int64"),
        (
            pa.array([datetime.time(1, 2)]),
            Kind.TIMESTAMP,
            "holds 01:02:00: it cannot be timestamp",
        ),
        (pa.array(["y" * 500]), Kind.FLOAT, r"holds 'y{57}\.\.\.': not a decimal"),
        (pa.array([[1.0]]), PAIRS, r"it cannot be float of shape \[any, 4\]"),
        (pa.array(["17"]), AGE, "holds '17': less than the min of 18"),
        # Not the number of seconds that it is stored as.
        (pa.array(["2019-01-01"]), DAY, "less than the min of 2020-01-01"),
    ],
)
def test_messages_say_what_was_found(
    column: pa.Array, feature: Kind | Feature, words: str
) -> None:
    """Column, value as far as it can be shown, and what must hold, in 1 KiB."""
    feature = feature if isinstance(feature, Feature) else Feature("x", feature)
    _, (misfit,) = conformed(feature, {"x": column}, count=1)
    ((_, _, message),) = told(misfit)
    assert re.search(words, message)
    assert len(message.encode()) <= 1024


def test_features_read_off_images_have_no_column() -> None:
    """Derived features are left out of the rows."""
    schema = Schema(
        (
            Feature("image", Kind.IMAGE),
            Feature("height", Kind.INT64, derived="height"),
        )
    )
    batch, misfits = conform({"image": pa.array(["a.jpg"])}, schema, 1, "a.csv")
    assert batch.to_pylist() == [{"image": "a.jpg"}]
    assert not misfits


def test_features_that_no_row_has_share_their_nulls() -> None:
    """Memory does not grow with how many there are; each has its own type."""
    kinds = (Kind.INT64, Kind.FLOAT, Kind.TEXT, Kind.TIMESTAMP)
    features = [Feature(f"{kind}{i}", kind) for kind in kinds for i in range(50)]
    features += [Feature("list", Kind.FLOAT, shape=(None,)), Feature("box", Kind.BOX)]
    schema = Schema(tuple(features))
    batch, misfits = conform({}, schema, 1000, "")
    batch.validate(full=True)
    assert batch.schema == schema.row_schema
    assert not misfits
    assert all(column.null_count == 1000 for column in batch.columns)
    owned = {b.address for c in batch.columns for b in c.buffers() if b is not None}
    assert len(owned) <= 4 * len({*batch.schema.types})


@pytest.mark.parametrize(
    ("column", "shape"),
    [
        ([["a", None], None, ["b"]], (None,)),
        ([[["a"], None], None, [["b"]]], (None, None)),
        (['["a", null]', None, '["b"]'], (None,)),
    ],
)
def test_nulls_in_lists(column: list[Any], shape: tuple[int | None, ...]) -> None:
    """The message names the option that leaves the column out, with the reason."""
    feature = Feature("a/b", Kind.TEXT, shape=shape, missing=Missing.REJECT)
    _, (inside, absent) = conformed(feature, {"a/b": column})
    ((row, reason, message),) = told(inside)
    assert (row, reason) == (0, Reason.MISSING_VALUE)
    assert "--drop 'a/b'" in message
    ((row, reason, message),) = told(absent)
    assert (row, reason) == (1, Reason.MISSING_VALUE)
    assert "--drop" not in message


CELLS: Sequence[Sequence[str | None]] = (
    *(["1", "-20"], ["1.5", "-.5e3", None], ["7.0", "1e3", "2"], ["16777217", "3"]),
    *(["1e39", "2"], ["9223372036854775808", "1"], ["NA", "3", "4.5"], ["nan", "1"]),
    *([" 1", "2\t"], ["007", "1"], ["true", "False"], ["a", "1"], ["", "5"], [None]),
)


@pytest.mark.parametrize("seed", range(8))
def test_many_columns_are_as_each_alone(seed: int) -> None:
    """Small columns are cast in groups, with the same kinds, values and faults."""
    chance = random.Random(seed)
    count = chance.choice([0, 1, 5, 200])

    def column() -> pa.Array:
        """Returns cells of one sort, and in few columns one of another."""
        cells = chance.choices(chance.choice(CELLS[:3]), k=count)
        if cells and chance.random() < 0.2:
            cells[chance.randrange(count)] = chance.choice(chance.choice(CELLS))
        return pa.array(cells, pa.string())

    columns = {f"c{index}": column() for index in range(100)}
    inferred = infer_columns(columns)
    alone = [infer_columns({name: cells}) for name, cells in columns.items()]
    assert inferred.features == tuple(one.features[0] for one in alone)
    assert inferred.evidence == tuple(one.evidence[0] for one in alone)
    features = [
        dataclasses.replace(feature, kind=chance.choice([Kind.INT64, Kind.FLOAT]))
        for feature in inferred.features
    ]
    rows, misfits = conform(columns, Schema(tuple(features)), count, "f")
    expected = []
    for feature in features:
        row, faults = conform(columns, Schema((feature,)), count, "f")
        assert rows[feature.name].equals(row[feature.name])
        expected += [(misfit.feature, misfit.faults.tolist()) for misfit in faults]
    assert [(m.feature, m.faults.tolist()) for m in misfits] == expected
