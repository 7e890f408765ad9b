"""Rows with a few of many keys: all values come back, however rows are batched."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from tests.support.gathered_rows import gather
from transforms.core.reasons import Reason
from transforms.errors import BeamTFRecordError
from transforms.rows import row_batches, spool

Row = dict[str, Any]

_KINDS: Mapping[str, st.SearchStrategy[Any]] = {
    "int": st.integers(-300, 300),
    "large": st.sampled_from([2**24 + 1, 2**63 - 1, -(2**40)]),
    "number": st.integers(-3, 3) | st.floats(-4, 4, width=16),
    "float": st.floats(width=32),
    "text": st.sampled_from(["", "7", "cat", "x" * 40]),
    "bool": st.booleans(),
    "bytes": st.binary(max_size=3).map(b"\0".__add__),
    "ints": st.lists(st.integers(0, 300), max_size=3),
    "floats": st.lists(st.floats(-4, 4, width=16), max_size=2),
    "texts": st.lists(st.sampled_from(["", "a"]), max_size=2),
    "deep": st.lists(st.lists(st.integers(0, 3), max_size=2), max_size=2),
    "mapping": st.fixed_dictionaries({}, optional={"p": st.integers(0, 3)}),
    "mappings": st.lists(st.fixed_dictionaries({"q": st.integers(0, 3)}), max_size=2),
}
_ANY = st.one_of(st.none(), *_KINDS.values())
_FEATURES: Mapping[str, Mapping[str, Any]] = {
    "a": {"kind": "float"},
    "b": {"kind": "text"},
    "c": {"kind": "int64", "missing": "fill", "fill": 3},
    "d": {"kind": "int64", "shape": [None]},
    "renamed": {"kind": "float", "column": "e"},
    "f": {"kind": "label"},
}


@st.composite
def rows_of_some_keys(draw: st.DrawFn) -> list[Row]:
    """Draws rows whose values are mostly, but not always, of their column's kind."""
    kinds = {name: draw(st.sampled_from([*_KINDS])) for name in "abcdefgh"}
    odd = draw(st.integers(0, 8)) == 0
    rows = []
    for number in range(draw(st.integers(1, 10))):
        names = draw(st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=4))
        row: Row = {"#": number}
        for name in names:
            is_odd = odd and draw(st.integers(0, 9)) == 0
            row[name] = draw(_ANY if is_odd else _KINDS[kinds[name]] | st.none())
        rows.append(row)
    return rows


@contextlib.contextmanager
def smaller_batches(most_cells: int) -> Iterator[None]:
    """Lets batches of rows have at most this many rows times columns."""
    with (
        mock.patch.object(row_batches, "MOST_CELLS", most_cells),
        mock.patch.object(spool, "MOST_CELLS", most_cells),
    ):
        yield


def outcome(parts: Sequence[Sequence[Row]], **given: Any) -> Any:
    """Returns all that rows become, or why they become nothing."""
    try:
        return gather(parts, **given).facts
    except BeamTFRecordError as error:
        return str(error)


@given(
    rows_of_some_keys(),
    st.sampled_from([1, 10, 40]),
    st.sampled_from([1, 3]),
    st.sampled_from(["", "key", "features"]),
    st.randoms(),
)
def test_the_size_of_batches_decides_nothing(
    rows: list[Row],
    most_cells: int,
    bundles: int,
    given: str,
    shuffler: Any,
) -> None:
    """Schema, records, rejects and errors are those of rows in one batch."""
    said: dict[str, Any] = {"splits": {"train": 0.5, "test": 0.5}, "num_shards": 2}
    if given == "key":
        said["key"] = "#"
    elif given == "features":
        said["features"] = _FEATURES
    parts: list[list[Row]] = [[] for _ in range(bundles)]
    for row in rows:
        shuffler.choice(parts).append(row)
    expected = outcome([rows], **said)
    with smaller_batches(most_cells):
        assert outcome(parts, **said) == expected


def test_an_empty_list_is_of_no_type() -> None:
    """Beside lists that are rejected, or in a batch of its own, it is an empty list."""
    rows = [{"#": 0, "c": []}, {"#": 1, "c": [0.5]}, {"#": 2, "d": []}, {"#": 3}]
    features = {name: _FEATURES[name] for name in "cd"}
    expected = gather([rows], features=features)
    assert [len(found) for found in expected.records.values()] == [3]
    assert [each.reason for each in expected.rejections] == [Reason.NOT_AN_INTEGER]
    with smaller_batches(1):
        assert gather([rows], features=features).facts == expected.facts
