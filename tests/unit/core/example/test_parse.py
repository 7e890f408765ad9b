"""Examples, SequenceExamples and lists of Examples, parsed without TensorFlow."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.datasets import animal, example
from tests.support.sequences import (
    RANKING,
    SEQUENCE,
    features,
    field,
    ranking,
    sequence,
)
from transforms.codec.examples import encode_example
from transforms.core.example.messages import (
    StepTypeError,
    parse_record,
    replaced_ids,
)
from transforms.core.tfrecord.reader import PayloadBatch
from transforms.errors import ExampleError, RecordKindError
from transforms.formats.tfrecord_files.stored_features import any_example, decode, learn


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (SEQUENCE, {"id": [7], "lists/x": [[1], [2, 3]]}),
        (RANKING, {"lists/d": [[2]], "q": [1]}),
        (
            sequence({"a": [1.5], "none": None}, {"b": [[1], None, []], "c": []}),
            {"a": [1.5], "lists/b": [[1], [], []], "lists/c": [], "none": []},
        ),
        (
            ranking({"q": [b"?"]}, [{"d": [1]}, {}, {"d": [2, 3], "e": None}]),
            {"lists/d": [[1], [], [2, 3]], "lists/e": [[], [], []], "q": [b"?"]},
        ),
        # Of two lists of one name the last one counts, as in every map.
        (SEQUENCE + sequence({}, {"x": [[9]]}), {"id": [7], "lists/x": [[9]]}),
        (field(2, b""), {}),
        # An Example may have such a feature.
        (field(1, features({"lists/a": [1]})), {"lists/a": [1]}),
    ],
)
def test_features_and_lists(data: bytes, expected: dict[str, Any]) -> None:
    """A document is a step; what a step lacks is a step of no values."""
    assert parse_record(data) == expected


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (sequence({}, {"x": [[1], [1.5]]}), StepTypeError),
        (ranking({}, [{"d": [1]}, {"d": [b"1"]}]), StepTypeError),
        (sequence({"lists/x": [1]}, {"x": [[1]]}), RecordKindError),
        (ranking({"lists/x": [1]}, [{"x": [1]}]), RecordKindError),
        (SEQUENCE + field(3, b"more"), RecordKindError),
    ],
)
def test_what_would_be_lost_is_an_error(data: bytes, error: type[Exception]) -> None:
    """Two types in a list, a context feature called like a list, other fields."""
    with pytest.raises(error):
        parse_record(data)


@given(st.sampled_from([SEQUENCE, RANKING]), st.data())
def test_damaged_records_are_errors(record: bytes, data: st.DataObject) -> None:
    """Cut, flipped and joined bytes: rows, or the error of a record, and no other."""
    changed = bytearray(record)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(changed) - 1))
        changed[place] = data.draw(st.integers(0, 255))
    some = bytes(changed[: data.draw(st.integers(0, len(changed)))])
    for damaged in (bytes(changed), some, some + record):
        try:
            alone: object = parse_record(damaged)
        except ExampleError:
            alone = None
        # A damaged record is passed over, whatever it holds.
        assert learn(PayloadBatch.of([record] * 20 + [damaged])).kinds
        refused = decode(
            PayloadBatch.of([damaged]), {"id": pa.int64()}, any_example
        ).refused
        assert alone is not None or [place for place, _, _ in refused] == [0]


IDS = st.dictionaries(st.integers(0, 300), st.integers(0, 300), max_size=5)


@given(st.integers(0, 300), IDS)
def test_only_the_id_changes(number: int, ids: dict[int, int]) -> None:
    """The Example is what writing the row with the new id gives."""
    row = {**animal(7), "animal": number}
    new = {**row, "animal": ids.get(number, number)}
    assert replaced_ids(encode_example(row), "animal", ids) == encode_example(new)


def test_the_order_of_the_features_stays() -> None:
    """Also where a name begins another: protobuf sorts the longer one first."""
    row = {"label": 1, "label_name": "a", "": 2, "é": 3}
    found = replaced_ids(encode_example(row), "label", {1: 5})
    assert found == encode_example({**row, "label": 5})


def test_a_record_without_the_feature_stays() -> None:
    """As does one whose id is none of those that change."""
    record = example({"id": 1})
    assert replaced_ids(record, "animal", {1: 2}) is record
    assert replaced_ids(record, "id", {5: 2}) is record
