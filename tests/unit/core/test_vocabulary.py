"""Vocabularies: which id each name has, now and in later runs, and what looks odd."""

import re
from collections.abc import Iterable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.core.schema import Unknown
from transforms.core.vocabulary import (
    UNKNOWN_NAME,
    Vocabulary,
    parse_names,
    sorted_names,
    vocabulary_warnings,
)
from transforms.errors import SpecError


def settled(vocabulary: Vocabulary, found: Iterable[str]) -> tuple[str, ...]:
    return tuple(vocabulary.settled(pa.array(list(found), pa.string())).to_pylist())


# Half of them with digits and signs.
NAMES = st.lists(
    st.text(max_size=8) | st.text("-0179", max_size=4), unique=True, max_size=8
)


@given(NAMES)
def test_names_that_were_not_given_are_sorted(names: list[str]) -> None:
    """Without a vocabulary: by their UTF-8 bytes; all whole numbers by value."""
    wanted = sorted(names, key=str.encode)
    if all(re.fullmatch("-?[0-9]+", name) for name in names):
        wanted = sorted(wanted, key=int)
    assert list(settled(Vocabulary(), names)) == wanted
    assert list(settled(Vocabulary(), reversed(names))) == wanted


@pytest.mark.parametrize(
    "names",
    [
        ("0", "1", "2", "9", "10", "11"),
        ("-12", "-3", "0", "007", "7", "8"),
        ("9" * 5000, "1" + "0" * 5000),
        # One that is no whole number, and all are texts.
        ("0", "1", "10", "2", "x"),
        ("+1", "10", "9"),
        ("1.5", "10", "9"),
        ("10", "9", "٣"),
        ("", "10", "9"),
        ("10", "9", "9\n"),
    ],
    ids=lambda names: repr(names)[:20],
)
def test_whole_numbers_are_sorted_by_value(names: tuple[str, ...]) -> None:
    """Class 10 comes behind class 9 where all are whole numbers of ASCII digits."""
    assert settled(Vocabulary(), names[::-1]) == names
    assert sorted_names(names[::-1]) == names


def test_numbers_behind_a_lock_are_appended() -> None:
    """Ids of an earlier run stay; what is new follows by its value."""
    locked = ("0", "1", "10", "2")
    assert settled(Vocabulary(locked), {"9", "11", "2"}) == (*locked, "9", "11")


def test_fault_130_ids_by_policy() -> None:
    """Unknown names are appended, share the last id, or were rejected before."""
    given, found = ("dog", "cat"), {"cat", "zebra", "ant"}
    appended = Vocabulary(given, Unknown.APPEND)
    assert settled(appended, found) == (*given, "ant", "zebra")
    assert settled(Vocabulary(given, Unknown.OOV), found) == (*given, UNKNOWN_NAME)
    assert settled(Vocabulary(given, Unknown.OOV), ()) == (*given, UNKNOWN_NAME)
    assert settled(Vocabulary(given, Unknown.REJECT), {"cat"}) == given


def test_a_lock_of_version_0_2_is_a_vocabulary() -> None:
    """Its escapes are read, also with line ends of Windows."""
    names = ("cat", " dog ", "고양이", "a\nb", "c\rd", "e\\n", "", "x\u2028y")
    lock = "cat\n dog \n고양이\na\\nb\nc\\rd\ne\\\\n\n\\e\nx\u2028y\n".encode()
    assert parse_names(lock, path="p") == names
    windows = b"\xef\xbb\xbf" + lock.replace(b"\n", b"\r\n")
    assert parse_names(windows, path="p") == names


@pytest.mark.parametrize("text", [r"animals\newt", "a\\\\b\nc\\d", "\\e\nc\\", r"a\e"])
def test_backslashes_of_other_files_stay(text: str) -> None:
    """Where one begins no escape, or none shows that the file is a lock."""
    assert parse_names(text.encode(), path="p") == tuple(text.split("\n"))


def test_given_files_are_plain() -> None:
    """A list of names, as in labels.txt, with its lines unchanged."""
    assert parse_names(b"b\\n\na \n\n", path="p") == ("b\\n", "a ")
    with pytest.raises(SpecError, match="line 2 is empty"):
        parse_names(b"a\n\nb\n", path="p")
    with pytest.raises(SpecError, match="each class once"):
        parse_names(b"a\na\n", path="p")
    with pytest.raises(SpecError, match=r"UTF-8 text.*byte 0"):
        parse_names(b"\xff\n", path="p")


def test_vocabularies_that_cannot_be() -> None:
    """A name twice, or the name of all unknown ones."""
    with pytest.raises(SpecError, match="'a' stands there twice"):
        Vocabulary(("a", "b", "a"))
    with pytest.raises(SpecError, match="must not name '<unknown>'"):
        Vocabulary((UNKNOWN_NAME,), Unknown.OOV)


def test_fault_130_names_that_are_alike() -> None:
    """Case, spaces around and within, normal and wide forms, classes without rows."""
    names = ("Cat", "cat", "cat ", "é", "e\u0301", "ＡＢ", "ab", "a b", "a  b", "dog")
    found = vocabulary_warnings("animal", names, dict.fromkeys(names[:-1], 1))
    assert found == [
        "4 class names of 'animal' are alike: 'Cat' and 'cat' and 'cat '; "
        "'é' and 'e\u0301'; 'ＡＢ' and 'ab'; 'a b' and 'a  b'",
        "1 class names of 'animal' begin or end with a space: 'cat '",
        "1 class of 'animal' has no record: 'dog'",
    ]
    plain = ("cat", "dog", UNKNOWN_NAME)
    assert vocabulary_warnings("animal", plain, {"cat": 1, "dog": 2}) == []
    many = tuple(f"c{i} " for i in range(100_000))
    assert all(len(text) <= 1024 for text in vocabulary_warnings("x", many, {}))


@pytest.mark.parametrize(
    ("separator", "names"),
    [
        (" ", ["clear primary", "haze primary water", "clear road primary water"]),
        ("|", ["Action|Comedy", "Action|Drama", "Comedy|Drama"]),
        (", ", ["cat", "dog", "fish", "cat, dog", "dog, fish"]),
        (";", ["a;b", "b;a;c"]),
        ("", ["golden retriever", "labrador retriever", "german shepherd", "beagle"]),
        ("", ["red car", "blue car", "red bus", "blue bus", "old red bus"]),
        ("", ["dog", "hot dog", "bear", "teddy bear", "bus", "school bus"]),
        ("", ["Paris, France", "Lyon, France", "Berlin, Germany"]),
        (
            "",
            ["tench, Tinca tinca", "goldfish, Carassius auratus", "great white shark"],
        ),
        ("", ["Apple Red 1", "Apple Red 2", "Cherry 1", "Cherry 2", "Pepper Red"]),
    ],
)
def test_names_that_are_lists_of_classes(separator: str, names: list[str]) -> None:
    """Words that are classes alone, or change their place, are called so; no others."""
    found = vocabulary_warnings("tags", sorted(names), dict.fromkeys(names, 1))
    settings = [text.partition("separator: ")[2].split('"')[1:2] for text in found]
    assert settings == ([[separator]] if separator else [])
