"""Class ids of serialised Examples, replaced."""

from hypothesis import given
from hypothesis import strategies as st

from tests.support.datasets import animal, example
from transforms.codec.encode import encode_example
from transforms.core.example.messages import replaced_ids

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
