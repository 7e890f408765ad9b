"""`schema.pbtxt` says of each key of a record what TFX must know."""

import dataclasses

import pytest

from tests.support.kinds import EVERY_KIND
from transforms.core.manifest import Account, FeatureFacts, Manifest, SplitFacts
from transforms.core.schema import Feature, Kind
from transforms.core.statistics import Statistics
from transforms.sidecars.render import render_schema


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
