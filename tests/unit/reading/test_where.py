"""`where` on any view: the rows that a condition holds for, in the view's order."""

import pathlib
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import beam_tfrecord
from tests.support.datasets import animal, animals, write_dataset
from transforms.core.model import Batch, Block, Reading
from transforms.core.schema import Feature, Kind, Schema
from transforms.errors import ExampleError, SpecError
from transforms.reading.row_filter import row_filter
from transforms.reading.view import View

ROWS = [animal(number) for number in range(17)]

CONDITIONS: dict[str, Callable[[Any], bool]] = {
    "id > 7": lambda row: row["id"] > 7,
    "id >= 0": lambda row: True,
    "id < 0": lambda row: False,
    "note is None": lambda row: "note" not in row,
    "note != '메모 3'": lambda row: row.get("note", "메모 3") != "메모 3",
    "not note == '메모 3'": lambda row: row.get("note", "메모 3") != "메모 3",
    "animal == '고양이'": lambda row: row["animal"] == "고양이",
    "animal == 0": lambda row: row["animal"] == "dog",
    "animal in ('dog', 'goat') and tame": lambda row: (
        row["animal"] != "고양이" and row["tame"]
    ),
    "1 <= weight < 3.25 or id == 16": lambda row: (
        1 <= row["weight"] < 3.25 or row["id"] == 16
    ),
}


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> View:
    path = tmp_path_factory.mktemp("where") / "animals"
    write_dataset(path, {"train": animals(5, 0, 11, 1)})
    return beam_tfrecord.open_dataset(path)["train"]


def ids(view: View) -> list[int]:
    return [row["id"] for row in view]


@given(
    st.sampled_from([*CONDITIONS]),
    st.lists(st.integers(-17, 16), max_size=30),
    st.sampled_from([slice(None), slice(3, 12), slice(None, None, -2)]),
    st.booleans(),
)
def test_any_view_has_conditions(
    train: View, condition: str, chosen: list[int], part: slice, shuffles: bool
) -> None:
    """Rows of lists, slices and shuffles keep their order, repeated ones too."""
    holds = CONDITIONS[condition]
    for view in (train[part], train[chosen]):
        view = view.shuffled(seed=1, epoch=1) if shuffles else view
        order = ids(view)
        expected = [number for number in order if holds(ROWS[number])]
        assert ids(view.where(condition)) == expected


def test_what_was_not_selected(train: View) -> None:
    """A condition may name features that the rows do not have."""
    found = train.select(["weight"]).where("id == 8")
    assert [*found] == [{"weight": np.float32(2.0)}]


def test_conditions_of_conditions(train: View) -> None:
    """What a condition leaves is a view, to be cut and asked again."""
    found = train.where("tame")[1:].where("id > 5")
    assert ids(found) == [6, 8, 10, 12, 14, 16]
    assert len(found.records) == 6


def test_a_record_of_another_type(tmp_path: pathlib.Path) -> None:
    """The error names its file and its number there, whatever is asked for."""
    rows = [[animal(0)], [animal(1), {**animal(2), "id": "x"}]]
    write_dataset(tmp_path / "a", {"train": rows})
    train = beam_tfrecord.open_dataset(tmp_path / "a")["train"]
    for read in (
        lambda: train.where("id == 8"),
        lambda: train[::-1].where("id == 8"),
        lambda: train.select(["note"]).where("id == 8"),
        lambda: train[2],
        lambda: list(train),
        lambda: train.__getitems__([1, 2]),
        lambda: [*train.batches(100)],
    ):
        with pytest.raises(ExampleError, match=r"00001-of-00002: record 1: .*'id'"):
            read()


SCHEMA = Schema(
    (
        Feature("age", Kind.INT64),
        Feature("kind", Kind.LABEL, vocabulary=("cat", "dog")),
        Feature("box", Kind.BOX),
        Feature("image", Kind.IMAGE),
        Feature("height", Kind.INT64, derived="height"),
    )
)
BOX = [0.0, 0.0, 1.0, 1.0]


def reading() -> Reading:
    """Four rows of which one has no age, with a box more each."""
    rows = pa.record_batch(
        {
            "age": [10, 40, None, 50],
            "kind": ["dog", "dog", "dog", "cat"],
            "box": pa.array(
                [[BOX] * number for number in (1, 2, 3, 4)],
                SCHEMA.row_schema.field("box").type,
            ),
            "image": ["a.png", "b.png", "c.png", "d.png"],
        }
    )
    batch = Batch(Block("a.csv", 0, 9, rows=5), rows, np.array([0, 1, 3, 4]))
    return Reading(batch, [], {"repeated_header": 1}, {"boxes": 11}, {"boxes": 1})


@pytest.mark.parametrize(
    ("text", "numbers", "gone"),
    [
        ("age > 30", [1, 4], 5),
        ("not age > 30", [0], 10),
        ("age is None", [3], 8),
        ("kind == 'cat'", [4], 7),
        ("kind != 'cat' and box is not None", [0, 1, 3], 5),
    ],
)
def test_rows_that_match_for_certain_stay(
    text: str, numbers: list[int], gone: int
) -> None:
    """A row with an unknown answer is left out; its boxes are gone with it."""
    chosen = pickle.loads(pickle.dumps(row_filter(text, SCHEMA)))
    found = chosen(reading())
    assert found.batch.numbers.tolist() == numbers
    assert found.batch.rows.num_rows == len(numbers)
    assert found.skipped == {"repeated_header": 1, "filtered": 4 - len(numbers)}
    assert found.parts_gone == {"boxes": gone}


def test_a_reading_without_other_rows_is_the_same() -> None:
    """Nothing is counted as left out where all rows match."""
    given = reading()
    assert row_filter("kind in ('cat', 'dog')", SCHEMA)(given) is given


@pytest.mark.parametrize("text", ["height > 3", "agee > 3", "kind == 1"])
def test_what_no_row_has_yet_is_refused(text: str) -> None:
    """Sizes of images and class ids are known after rows are chosen."""
    with pytest.raises(SpecError):
        row_filter(text, SCHEMA)
