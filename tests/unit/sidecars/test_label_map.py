"""Label maps: literal text, and what protobuf's own text format makes of it."""

import contextlib

import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st

from transforms.errors import SpecError
from transforms.sidecars.label_map import _message, parse_label_map, render_label_map

# The message of the field names that the text has; the numbers do not count in it.
LabelMap = _message()

names = st.dictionaries(
    st.integers(1, 2**31 - 1),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    max_size=6,
).filter(lambda found: len(set(found.values())) == len(found))


def test_literal_text() -> None:
    """Items are sorted by id, gaps stay, and quotes and backslashes are escaped."""
    assert render_label_map({3: "5\" o'clock", 1: "cat", 90: "a\\b\n고양이\x01"}) == (
        b"item {\n  id: 1\n  name: 'cat'\n}\n"
        b"item {\n  id: 3\n  name: '5\" o\\'clock'\n}\n"
        b"item {\n  id: 90\n  name: 'a\\\\b\\n" + "고양이".encode() + b"\\001'\n}\n"
    )
    assert render_label_map({}) == b""


@given(names)
def test_protobuf_reads_it(found: dict[int, str]) -> None:
    """Protobuf's text format gives back every id and name, whatever is in it."""
    parsed = text_format.Parse(render_label_map(found), LabelMap())
    assert {item.id: item.name for item in parsed.item} == found


@given(names, st.booleans(), st.booleans())
def test_reads_what_protobuf_writes(
    found: dict[int, str], as_utf8: bool, as_one_line: bool
) -> None:
    """What protobuf prints is read, escaped or not."""
    message = LabelMap()
    for number, name in found.items():
        message.item.add(id=number, name=name)
    text = text_format.MessageToString(
        message, as_utf8=as_utf8, as_one_line=as_one_line
    )
    assert parse_label_map(text.encode()) == found


def test_forms_that_people_write() -> None:
    """Comments, commas, colons, angle brackets, nested messages, joined texts."""
    text = b"""\xef\xbb\xbf# classes
    item: { name: "c" 'at', id: 1; }  item < id: 2 name: "/m/01" "g3"
      keypoints { id: 7 label: "x" } display_name: 'dog # not a comment' >
    item { id: 3 name: 'x' }"""
    assert parse_label_map(text) == {1: "cat", 2: "/m/01g3", 3: "x"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b"item { id: 1 }", "without id or name"),
        (b"item { name: 'a' id: x }", "x"),
        (b"item { id: 1 name: 'a", "'a"),
        (b"item { id: 1 name: 'a'", "item"),
        (b"item", "item"),
        (b"thing { }", "no item"),
        (b"{'id': 1}", "1:1"),
        (b"item { id: 1 name: '\\q' }", "escape"),
        (b"item { id: 1 name: '\xff' }", "utf-8"),
        (b"item { id: 1 name: '\\377' }", "utf-8"),
        (b"item { id: 1 name: 'a' } item { id: 1 name: 'b' }", "1 is both 'a' and 'b'"),
        (b"item { id: 1 name: 'a' } item { id: 2 name: 'a' }", "1 and 2 are both 'a'"),
    ],
)
def test_what_is_no_label_map(text: bytes, found: str) -> None:
    """Anything else is an error that shows what was found."""
    with pytest.raises(SpecError) as caught:
        parse_label_map(text)
    assert found in str(caught.value)


@pytest.mark.parametrize(
    "wrong", [{0: "background"}, {-1: "a"}, {2**31: "a"}, {1: "a", 2: "a"}]
)
def test_what_is_never_written(wrong: dict[int, str]) -> None:
    """No background, no id that is no int32, no name of two ids."""
    with pytest.raises(SpecError):
        render_label_map(wrong)


@given(st.text("item{}<>:;,'\"\\ \n#id name01x"))
def test_any_text_is_read_or_refused(text: str) -> None:
    """No text makes the reader fail in another way."""
    with contextlib.suppress(SpecError):
        parse_label_map(text.encode())
