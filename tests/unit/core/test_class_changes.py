"""New class names: which names, and which records change."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.core.placing.vocabulary import class_changes
from transforms.errors import SpecError

NAMES = ("a", "b", "c", "d")


@given(st.dictionaries(st.sampled_from(NAMES), st.sampled_from([*NAMES, "x", "y"])))
def test_every_record_gets_the_class_that_was_asked_for(wanted: dict[str, str]) -> None:
    """By name all is as asked; names are unique, and other classes keep their ids."""
    found = class_changes(NAMES, wanted)
    assert len(set(found.names)) == len(found.names) >= len(NAMES)
    for number, name in enumerate(NAMES):
        assert found.names[found.ids.get(number, number)] == wanted.get(name, name)
        if name not in wanted:
            assert number not in found.ids
            assert found.names[number] == name
    assert all(old != new for old, new in found.ids.items())


@pytest.mark.parametrize("wanted", [{"z": "a"}, {"a": ""}, {"a": " b"}])
def test_names_that_cannot_be(wanted: dict[str, str]) -> None:
    """A class that is not there, or a name that is none."""
    with pytest.raises(SpecError, match=r"class"):
        class_changes(NAMES, wanted)
