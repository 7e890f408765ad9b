"""Texts that repeat a few values, as dictionaries."""

import pyarrow as pa
import pytest

from transforms.core.rows.record_columns import with_dictionaries
from transforms.core.statistics import summarize

MANY = 100_000


def test_values_stay_as_they_are() -> None:
    """Columns of few values become dictionaries of one chunk; others do not change."""
    rows = pa.table(
        {
            "few": ["cat", None, "", "dog"] * (MANY // 4),
            "bytes": [b"\xff", b"\0"] * (MANY // 2),
            "many": [str(number) for number in range(MANY)],
            "number": range(MANY),
            "lists": [["a"]] * MANY,
        }
    )
    found = with_dictionaries(rows)
    kinds = [pa.types.is_dictionary(kind) for kind in found.schema.types]
    assert kinds == [True, True, False, False, False]
    assert found.column_names == rows.column_names
    assert all(column.num_chunks == 1 for column in found.columns)
    for before, after in zip(rows.columns, found.columns, strict=True):
        assert after.cast(before.type).equals(before)


def test_columns_in_chunks_repeat_too() -> None:
    """Long texts of a large shard are in pieces; what repeats is joined."""
    rows = pa.table(
        {"few": ["cat", "dog"] * MANY, "many": list(map(str, range(2 * MANY)))}
    )
    chunked = pa.concat_tables([rows.slice(0, MANY), rows.slice(MANY)])
    found = with_dictionaries(chunked)
    assert pa.types.is_dictionary(found["few"].type)
    assert [column.num_chunks for column in found.columns] == [1, 2]
    assert found["few"].cast(pa.string()).equals(rows["few"])
    assert found["many"].equals(rows["many"])


@pytest.mark.parametrize(
    "texts",
    [
        ["a"] * 70_000 + [str(number) for number in range(1_000)],
        [str(number // 700) for number in range(100 * 700 * 5)],
        [],
        ["a", "b"],
    ],
    ids=["other values at the end", "a few at a time", "no row", "few rows"],
)
def test_other_columns_stay_texts(texts: list[str]) -> None:
    """A dictionary of many values would not pay."""
    rows = pa.table({"text": pa.array(texts, pa.string())})
    assert with_dictionaries(rows).equals(rows)


def test_facts_are_those_of_the_texts() -> None:
    """The lengths of a dictionary's values count by row."""
    texts = pa.array(["a", None, "ccc", "a"])
    unused = pa.DictionaryArray.from_arrays(
        pa.array([0, None, 1, 0]), pa.array(["a", "ccc", "not used"])
    )
    for column in (texts.dictionary_encode(), unused):
        assert summarize(column) == summarize(texts)
