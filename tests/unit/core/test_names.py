"""Names in one piece of memory, and JSON that is encoded in pieces."""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from transforms.core import json_text, names
from transforms.core.json_text import json_pieces
from transforms.core.names import Names, in_groups

_NAMES = st.lists(st.text(st.characters(codec=None), max_size=3), max_size=9)
_PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
_VALUES = st.recursive(
    _PLAIN | _NAMES.map(Names),
    lambda inner: (
        st.lists(inner, max_size=9)
        | st.lists(inner, max_size=9).map(tuple)
        | st.dictionaries(st.text(max_size=3), inner, max_size=4)
    ),
)


@pytest.fixture(autouse=True, scope="module")
def _short_groups() -> Any:
    """Makes groups of two, so that a few names are many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(names, "_AT_ONCE", 2)
        patch.setattr(json_text, "_SHORT", 2)
        yield


@given(_NAMES, st.slices(9))
def test_names_are_a_tuple_of_texts(given_names: list[str], part: slice) -> None:
    """Names equal the tuple that they were made of, as a whole and in parts."""
    held = Names(given_names)
    assert held == tuple(given_names)
    assert tuple(given_names) == held
    assert held == Names(given_names)
    assert list(held) == given_names
    assert held[part] == tuple(given_names)[part]
    assert [held[i] for i in range(-len(held), len(held))] == 2 * given_names
    assert [name for group in in_groups(held) for name in group] == given_names
    assert [name for group in in_groups(iter(held)) for name in group] == given_names


def test_names_differ() -> None:
    """Names with other limits between them are others, and a list is no tuple."""
    assert Names(["ab", "c"]) != Names(["a", "bc"])
    assert Names(["a", "b"]) != ("a",)
    assert Names(["a", "b"]) != ("a", "c")
    assert Names(["a"]) != ["a"]


def test_names_of_arrow() -> None:
    """A slice of an Arrow array gives its own names."""
    texts = pa.array(["x", "a", "", "é\N{GRINNING FACE}", "d", "y"])
    assert Names.of_arrow(texts.slice(1, 4)) == ("a", "", "é\N{GRINNING FACE}", "d")
    assert repr(Names(["a"])) == "Names(['a'])"


@given(_VALUES)
@example([{"a": "},\n  {", "b": 1}, {"a": "}"}, {}, {"a": [1]}])
@example({None: {"a": [1]}})
@example({2: [[1, 2, 3]], 1: "x"})
def test_pieces_are_the_text_of_json(value: Any) -> None:
    """The pieces give the very text of `json.dumps`, in both forms."""
    plain = _listed(value)
    pretty = json.dumps(plain, indent=1, ensure_ascii=False)
    assert "".join(json_pieces(value, pretty=True)) == pretty
    canonical = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    assert "".join(json_pieces(value, pretty=False)) == canonical


def _listed(value: Any) -> Any:
    """Returns a value whose names are lists."""
    if isinstance(value, dict):
        return {key: _listed(item) for key, item in value.items()}
    if isinstance(value, list | tuple | Names):
        return [_listed(item) for item in value]
    return value


def test_long_lists_come_in_pieces() -> None:
    """No piece holds more than a group of names."""
    pieces = list(json_pieces({"classes": Names("abcdefgh")}, pretty=True))
    assert max(piece.count('"') for piece in pieces) == 4
