"""`where` over typed rows: what stays, what is counted, and what it cannot name."""

import pickle

import numpy as np
import pyarrow as pa
import pytest

from transforms.core.model import Batch, Block, Reading
from transforms.core.schema import Feature, Kind, Schema
from transforms.errors import SpecError
from transforms.reading.row_filter import row_filter

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
