"""What stages give is the same once it was stored for later runs."""

import json
from typing import Any

import pytest

from transforms.core.model import PlaceFacts, ReadFacts, Rounding, Segment
from transforms.work.facts_json import from_json, to_json

ALIKE = [Segment("a.csv", 7, n, 100 + n, b"", "segments/a", 9 * n) for n in range(3)]


@pytest.mark.parametrize(
    "facts",
    [
        [],
        [[]],
        (),
        [(), ()],
        ["a", "a"],
        ["a", "b"],
        [b"", b"", b""],
        [b"\xff", b""],
        [1, True, 1.0, None],
        [True, True],
        [0.0, -0.0, 1e300],
        [("train", 0), ("train", 1)],
        [("train", 0), ("test",)],
        [("train", (0, b"a")), ("test", (1, b"a"))],
        [["a"], ["a"]],
        {},
        {("train", 0): 3, ("train", 1): 5},
        {"a": {"b": 1}, "c": {}},
        [{"a": 1}, {"a": 1}],
        ["\udcff", "\udcff"],
        ALIKE,
        ALIKE[:1],
        [*ALIKE, None],
        tuple((("train", n), each) for n, each in enumerate(ALIKE)),
        [PlaceFacts("a", 0, {("train", 0): 3}, {}), PlaceFacts("b", 0, {}, {})],
        ReadFacts("a", 0, 1, roundings={"x": Rounding(1, "z", 2, "l", 0.5)}),
    ],
)
def test_facts_are_read_as_they_were_stored(facts: Any) -> None:
    """Types are kept too: `True` is no 1, and a tuple no list."""
    found = from_json(to_json(facts))
    assert found == facts
    assert repr(found) == repr(facts)


def test_facts_of_many_shards_are_stored_by_column() -> None:
    """A block has a segment for each of thousands of shards."""
    many = [(("train", n), Segment("a.csv", 7, n, 900)) for n in range(1000)]
    assert len(to_json(many)) < 20 * len(many)


@pytest.mark.parametrize(
    "text",
    [
        {"each": "Segment", "fields": {"origin": ["a"], "start": []}},
        {"each": "Segment", "fields": {"origin": ["a"]}},
        {"each": "Popen", "fields": {"args": ["a"]}},
        {"tuples": [[1, 2], [3]]},
        {"keys": ["a"], "values": []},
        {"keys": ["a"]},
        {"same": "a", "times": "b"},
        {"unknown": 1},
    ],
)
def test_damaged_facts_are_an_error(text: Any) -> None:
    """Then the work is done again."""
    with pytest.raises(ValueError, match="not the facts of a run"):
        from_json(json.dumps(text).encode())
