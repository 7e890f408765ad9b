"""Raw columns become rows under a schema; misfits are reported row by row."""

import datetime
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from transforms.core.model import Reason
from transforms.core.rows.conform import Misfit, conform
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


@pytest.mark.parametrize(
    ("feature", "wanted"),
    [
        (Feature("c", Kind.INT64, constant=7), 7),
        (Feature("c", Kind.TEXT, constant="v1"), "v1"),
        (Feature("c", Kind.BYTES, constant="v1"), b"v1"),
        (Feature("c", Kind.BOOL, constant=False), False),
        (Feature("c", Kind.FLOAT, constant=0.5), 0.5),
        (Feature("c", Kind.LABEL, constant="cat"), "cat"),
    ],
    ids=lambda value: str(getattr(value, "kind", "")),
)
def test_constants(feature: Feature, wanted: Any) -> None:
    """Every row has the value, whatever the source has."""
    assert conformed(feature, {"c": ["x"] * 3}) == ([wanted] * 3, [])


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


def test_patterns_over_a_column() -> None:
    """Where a column is named, its text is searched instead of the path."""
    feature = Feature("kind", Kind.LABEL, column="name", pattern=r"^([a-z]+)_")
    values, misfits = conformed(feature, {"name": ["cat_1", "dog_2", None]})
    assert (values, misfits) == (["cat", "dog", None], [])


def test_missing_values_are_omitted_filled_or_rejected() -> None:
    """Missing cells are; bad ones stay bad, NaN is a value."""
    columns = {"n": [1.5, None, float("nan")]}
    values, misfits = conformed(Feature("n", Kind.FLOAT), columns)
    assert values[:2] == [1.5, None]
    assert not misfits
    filling = Feature("n", Kind.FLOAT, missing=Missing.FILL, fill=-1.0)
    values, misfits = conformed(filling, columns)
    assert values[:2] == [1.5, -1.0]
    assert np.isnan(values[2])
    assert not misfits
    rejecting = Feature("n", Kind.FLOAT, missing=Missing.REJECT)
    _, (misfit,) = conformed(rejecting, columns)
    assert misfit.bad.tolist() == [False, True, False]


def test_fill_reaches_inside_lists() -> None:
    """A null item gets the value; a bad one stays a fault."""
    feature = Feature("n", Kind.INT64, shape=(None,), missing=Missing.FILL, fill=7)
    cells = ["[1, null]", None, "[]", '["x", null]']
    values, misfits = conformed(feature, {"n": cells}, count=4)
    assert values[:3] == [[1, 7], [7], []]
    assert [(row, reason) for m in misfits for row, reason, _ in told(m)] == [
        (3, "not_an_integer")
    ]


def test_a_bad_cell_is_not_missing_too() -> None:
    """One reason a cell: a value that does not fit is there."""
    feature = Feature("n", Kind.INT64, missing=Missing.REJECT)
    _, misfits = conformed(feature, {"n": ["x", None, "1"]})
    assert [(row, reason) for m in misfits for row, reason, _ in told(m)] == [
        (0, Reason.NOT_AN_INTEGER),
        (1, Reason.MISSING_VALUE),
    ]


def test_unknown_labels_are_rejected() -> None:
    """Never -1 silently: the message has the name that is not in the vocabulary."""
    feature = Feature("l", Kind.LABEL, vocabulary=("cat", "dog"))
    values, (misfit,) = conformed(feature, {"l": ["dog", "Cat", None]})
    assert (values[0], values[2]) == ("dog", None)
    assert told(misfit) == [
        (
            1,
            Reason.UNKNOWN_LABEL,
            "column 'l' holds 'Cat': not in the vocabulary that was given",
        )
    ]


@pytest.mark.parametrize("unknown", [Unknown.OOV, Unknown.APPEND])
def test_unknown_labels_may_be_kept(unknown: Unknown) -> None:
    """Later stages number them."""
    feature = Feature("l", Kind.LABEL, vocabulary=("cat",), unknown=unknown)
    assert conformed(feature, {"l": ["cat", "cow", None]}) == (["cat", "cow", None], [])


def test_unknown_names_in_lists_of_labels() -> None:
    """One is enough; rows that are bad, missing or empty do not shift the others."""
    feature = Feature("l", Kind.LABEL, shape=(None,), vocabulary=("a", "b"))
    lists = [["z"], ["a", None], None, [], ["b", "x"], ["a", "b"]]
    for start in (0, 1):
        column = pa.array(lists).slice(start)
        _, (faulty, unknown) = conformed(feature, {"l": column}, count=6 - start)
        assert [row + start for row, *_ in told(faulty)] == [1]
        assert [row + start for row, *_ in told(unknown)] == [4] if start else [0, 4]


def test_labels_of_integers_are_their_names() -> None:
    """The vocabulary of an integer column is of decimal texts."""
    feature = Feature("l", Kind.LABEL, vocabulary=("3", "5"))
    values, (misfit,) = conformed(feature, {"l": [5, 3, 4]})
    assert values[:2] == ["5", "3"]
    assert told(misfit)[0][2].startswith("column 'l' holds 4:")


def test_lists_tensors_and_timestamps_in_text() -> None:
    """Texts of more than one value, and dates, go by the rules of typed columns."""
    columns = {
        "l": ["1;2", "", "x"],
        "t": ["2024-05-01", None, "May"],
        "v": ["[[1, 2]]", "[3, 4]", "[5]"],
        "b": ["[0, 0, 1, 1]", "[]", None],
    }
    features = (
        Feature("l", Kind.INT64, shape=(None,), separator=";"),
        Feature("t", Kind.TIMESTAMP, unit="s"),
        Feature("v", Kind.TENSOR, shape=(1, 2), dtype="uint8", encoding="raw"),
        Feature("b", Kind.BOX),
    )
    arrays = {name: pa.array(texts) for name, texts in columns.items()}
    batch, misfits = conform(arrays, Schema(features), 3, "a.csv")
    assert batch.slice(0, 2).to_pylist() == [
        {"l": [1, 2], "t": 1714521600, "v": b"\1\2", "b": [[0.0, 0.0, 1.0, 1.0]]},
        {"l": [], "t": None, "v": b"\3\4", "b": []},
    ]
    assert [(m.feature.name, told(m)[0][:2]) for m in misfits] == [
        ("l", (2, Reason.NOT_AN_INTEGER)),
        ("t", (2, Reason.NOT_A_TIMESTAMP)),
        ("v", (2, Reason.WRONG_SHAPE)),
    ]


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
    ],
)
def test_messages_say_what_was_found(
    column: pa.Array, feature: Kind, words: str
) -> None:
    """Column, value as far as it can be shown, and what must hold, in 1 KiB."""
    _, (misfit,) = conformed(Feature("x", feature), {"x": column}, count=1)
    ((_, _, message),) = told(misfit)
    assert re.search(words, message)
    assert len(message.encode()) <= 1024


def test_a_wrong_shape_is_reported() -> None:
    """The message names the required shape."""
    feature = Feature("x", Kind.FLOAT, shape=(None, 4))
    _, (misfit,) = conformed(feature, {"x": [[1.0, 2.0]]}, count=1)
    assert told(misfit)[0][1:] == (
        Reason.WRONG_SHAPE,
        "column 'x' holds [1.0, 2.0]: it cannot be float of shape [any, 4]",
    )


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
