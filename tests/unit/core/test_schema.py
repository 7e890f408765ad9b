"""Features and schemas: types of rows and records, and the way to JSON and back."""

import copy
import json
import pickle

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from transforms.core.schema import (
    Feature,
    Kind,
    Missing,
    Schema,
    Unknown,
    record_fields,
)

FEATURES = st.builds(
    Feature,
    name=st.text(max_size=8),
    kind=st.sampled_from(Kind),
    column=st.text(max_size=8),
    is_label=st.booleans(),
    derived=st.sampled_from(["", "height", "width", "depth"]),
    shape=st.lists(st.none() | st.integers(1, 9), max_size=3).map(tuple),
    inline=st.booleans(),
    missing=st.sampled_from(Missing),
    fill=st.none() | st.integers() | st.text(max_size=4),
    vocabulary=st.none() | st.lists(st.text(max_size=4), max_size=3).map(tuple),
    unknown=st.sampled_from(Unknown),
)


@given(st.lists(FEATURES, max_size=5))
def test_json_round_trip(features: list[Feature]) -> None:
    """Any schema comes back from its JSON text."""
    schema = Schema(tuple(features))
    assert Schema.from_json(json.loads(json.dumps(schema.to_json()))) == schema


def test_keys_in_records() -> None:
    """Most features are one key; boxes are four and ragged lists two."""
    fields = record_fields(Feature("b", Kind.BOX))
    assert [f.name for f in fields] == ["b/xmin", "b/ymin", "b/xmax", "b/ymax"]
    fields = record_fields(Feature("r", Kind.TEXT, shape=(None, None)))
    assert [(f.name, f.type) for f in fields] == [
        ("r/ragged_flat_values", pa.list_(pa.string())),
        ("r/ragged_row_lengths_0", pa.list_(pa.int64())),
    ]
    (field,) = record_fields(Feature("s", Kind.LABEL, shape=(None,)))
    assert (field.name, field.type) == ("s", pa.list_(pa.int64()))
    assert record_fields(Feature("i", Kind.INT64, internal=True)) == []


@given(st.lists(FEATURES, max_size=4))
def test_pickles_hold_every_field(features: list[Feature]) -> None:
    """A pickled schema is equal, pickles to the same bytes, and is read once."""
    schema = Schema(tuple(features))
    data = pickle.dumps(schema)
    found = pickle.loads(data)
    assert found == schema
    assert repr(found) == repr(schema)
    assert pickle.dumps(found) == data
    assert pickle.loads(data) is found
    assert copy.deepcopy(schema) == schema
