"""Files in protobuf text form: `schema.pbtxt` for TFX, and label maps."""

import contextlib
import dataclasses

import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st

from tests.support.kinds import EVERY_KIND
from transforms.core.manifest import Account, FeatureFacts, Manifest, SplitFacts
from transforms.core.schema import Feature, Kind
from transforms.core.statistics import Statistics
from transforms.errors import SpecError
from transforms.sidecars.text_protos import (
    _message,
    parse_label_map,
    render_label_map,
    render_schema,
)


def manifest(*features: FeatureFacts) -> Manifest:
    return Manifest(
        "d", "none", features, (SplitFacts("train", ()),), (), Account(0, 0), {}, {}
    )


def lines(feature: Feature, *, always: bool, classes: tuple[str, ...] = ()) -> str:
    """Returns what is said of a feature with one key, but its name."""
    facts = FeatureFacts(feature, Statistics(), classes, always)
    text = render_schema(manifest(facts)).decode()
    head = f"feature {{\n  name: '{feature.name}'\n"
    assert text.startswith(head)
    body = text.removeprefix(head).removesuffix("}\n")
    return "; ".join(map(str.strip, body.strip().splitlines()))


PRESENCE = "presence { min_fraction: 1 min_count: 1 }"


@pytest.mark.parametrize(
    ("feature", "always", "said"),
    [
        (Feature("a", Kind.INT64), True, f"type: INT; {PRESENCE}; shape {{ }}"),
        (Feature("a", Kind.FLOAT), False, "type: FLOAT; value_count { min: 1 max: 1 }"),
        (
            Feature("a", Kind.FLOAT, shape=(2, 3)),
            True,
            f"type: FLOAT; {PRESENCE}; shape {{ dim {{ size: 2 }} dim {{ size: 3 }} }}",
        ),
        (
            Feature("a", Kind.INT64, shape=(4,)),
            False,
            "type: INT; value_count { min: 4 max: 4 }",
        ),
        (
            Feature("a", Kind.TEXT, shape=(None,)),
            True,
            f"type: BYTES; {PRESENCE}; value_count {{ min: 0 }}",
        ),
        (
            Feature("a", Kind.IMAGE),
            True,
            f"type: BYTES; {PRESENCE}; shape {{ }}; image_domain {{ }}",
        ),
        (
            Feature("a", Kind.TIMESTAMP, unit="ms"),
            True,
            f"type: INT; {PRESENCE}; shape {{ }}; "
            "time_domain { integer_format: UNIX_MILLISECONDS }",
        ),
        (
            Feature("a", Kind.BOOL),
            True,
            f"type: INT; {PRESENCE}; shape {{ }}; bool_domain {{ }}",
        ),
    ],
)
def test_what_is_said_of_a_feature(feature: Feature, always: bool, said: str) -> None:
    """Its type, how many values it has in a record, and what they mean."""
    assert lines(feature, always=always) == said


def test_labels_are_categories() -> None:
    """Their ids count from 0."""
    label = Feature("kind", Kind.LABEL)
    found = lines(label, always=False, classes=("cat", "dog", "goat"))
    assert found.endswith("int_domain { min: 0 max: 2 is_categorical: true }")


def test_a_manifest_that_does_not_say_always() -> None:
    """The number of records that have the feature decides."""
    facts = FeatureFacts(Feature("a", Kind.INT64), Statistics(present=0))
    assert b"presence" in render_schema(manifest(facts))
    facts = dataclasses.replace(facts, statistics=Statistics(present=1))
    assert b"presence" not in render_schema(manifest(facts))


def test_tensorflow_metadata_reads_it() -> None:
    """Of features of every kind, and a name with a quote and a line's end."""
    text_format = pytest.importorskip("google.protobuf.text_format")
    schema_pb2 = pytest.importorskip("tensorflow_metadata.proto.v0.schema_pb2")
    features = (*EVERY_KIND, Feature("owner's\nname 글", Kind.TEXT))
    facts = (FeatureFacts(each, Statistics(), (), True) for each in features)
    text = render_schema(manifest(*facts)).decode()
    schema = text_format.Parse(text, schema_pb2.Schema())
    keys = [key for feature in features for key in feature.record_keys]
    assert [each.name for each in schema.feature] == keys
    assert "ragged/ragged_row_lengths_0" in keys


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
