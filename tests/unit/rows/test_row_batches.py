"""Rows of Python values as Arrow batches: rows inside rows, and names of columns."""

import dataclasses
from typing import Any, NamedTuple

import pytest

from transforms.core.segment import CONTENT_COLUMN, PLACE_COLUMNS
from transforms.errors import EncodingError
from transforms.rows.row_batches import batches_of
from transforms.rows.row_types import values_as_json
from transforms.rows.spool import MOST_WAITING, Waiting


class Point(NamedTuple):
    x: int
    name: str | None = None


@dataclasses.dataclass
class Track:
    points: list[Point]


def rows_of(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for batch in batches_of(rows) for row in batch.to_pylist()]


@pytest.mark.parametrize("row", [Point(1, "a"), {"x": 1, "name": "a"}])
def test_rows_inside_rows_are_mappings(row: Any) -> None:
    """A named tuple is no list: a coder may have made it of a mapping with names."""
    assert rows_of([{"at": row}]) == [{"at/x": 1, "at/name": "a"}]


def test_rows_inside_lists_and_rows() -> None:
    """They are mappings at any depth, and what is missing in one is missing."""
    found = rows_of([{"track": Track([Point(1, "a"), Point(2, "b")])}])
    assert found == [{"track/points/x": [1, 2], "track/points/name": ["a", "b"]}]


@pytest.mark.parametrize("name", [CONTENT_COLUMN, *sorted(PLACE_COLUMNS)])
def test_names_of_columns_beside_the_rows_are_refused(name: str) -> None:
    """They hold a NUL character, and no feature may have one."""
    with pytest.raises(EncodingError, match="must hold no NUL character"):
        rows_of([{name: 1}])


@pytest.mark.parametrize("small", [100, 9_000])
def test_small_and_large_elements_by_turns(small: int) -> None:
    """Of those that wait not all are weighed, but not always the small ones alone."""
    waiting = Waiting(1 << 20)
    for number in range(MOST_WAITING):
        waiting.append(bytes(50_000 if number % 2 else small))
        if len(waiting) >= waiting.next_look and waiting.is_enough():
            break
    assert sum(map(len, waiting)) < 4 << 20


def test_wide_rows_of_small_texts_are_not_light() -> None:
    """Each text takes memory beside its characters."""
    waiting = Waiting(1 << 20)
    for _ in range(MOST_WAITING):
        waiting.append({f"c{column}": "a" for column in range(1_000)})
        if len(waiting) >= waiting.next_look and waiting.is_enough():
            break
    assert len(waiting) <= 200


def test_very_large_integers_are_shown_by_their_size() -> None:
    """Python makes no text of them; the row is refused like any other."""
    assert values_as_json({"a": 10**5_000}) == b'{"a": "an integer of 16,610 bits"}'
    with pytest.raises(EncodingError, match="'a' is not"):
        rows_of([{"a": [[[[[10**5_000]]]]]}])
