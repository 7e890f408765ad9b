"""Examples to dicts and Arrow batches, by their own types or by a schema."""

from typing import Any

import pytest

from tests.support.examples import serialise
from transforms.codec.examples import decode_example, decode_rows, encode_example
from transforms.codec.typed import coding_of
from transforms.errors import ExampleError

ONE = {"i": 1, "f": 0.5, "b": b"x", "many": [1, 2]}


def test_without_a_schema_values_are_as_stored() -> None:
    """One value alone, others in a list; an untyped feature is an empty list."""
    assert decode_example(encode_example(ONE)) == ONE
    odd = serialise({"none": ("", []), "empty": ("int64_list", [])})
    assert decode_example(odd) == {"none": [], "empty": []}
    assert decode_example(b"") == {}
    assert list(decode_example(encode_example({"b": 1, "a": 2}))) == ["a", "b"]


def test_together_as_alone() -> None:
    """Records of one layout, of several, and of lists give the same dicts."""
    rows: list[dict[str, Any]] = [{"i": n, "f": n / 2, "b": b"x" * n} for n in range(9)]
    for some in (rows, rows * 9, [*rows * 9, ONE, {}], [ONE] * 99):
        records = [encode_example(row) for row in some]
        assert decode_rows(records, None) == some
        assert [decode_example(record) for record in records] == some


def test_other_features_are_left_out() -> None:
    """A schema may name a few of them."""
    assert decode_example(encode_example(ONE), {"i": "int64"}) == {"i": 1}
    assert decode_example(encode_example(ONE), {}) == {}


@pytest.mark.parametrize(
    ("row", "schema", "why"),
    [
        ({"x": 0.5}, {"x": "int64"}, "float_list.*int64_list"),
        ({"x": [1, 2]}, {"x": "int64"}, "2 values"),
        ({"x": 2}, {"x": "bool"}, "0 and 1"),
        ({"x": b"\xff"}, {"x": "text"}, "UTF-8"),
        ({"x": [1, 2, 3]}, {"x": {"kind": "int64", "shape": [2]}}, "shape"),
        (
            {"x": b"abc"},
            {"x": {"kind": "tensor", "dtype": "int16", "shape": [None]}},
            "x",
        ),
    ],
)
def test_what_does_not_fit_is_an_error(row: Any, schema: Any, why: str) -> None:
    """It names the feature; nothing wraps, and nothing is cut."""
    record = encode_example(row)
    with pytest.raises(ExampleError, match=why) as caught:
        decode_example(record, schema)
    assert "'x'" in str(caught.value)
    with pytest.raises(ExampleError, match=f"example 1: .*({why})|{why}"):
        decode_rows([b"", record], coding_of(schema))


@pytest.mark.parametrize("schema", [None, {"x": "int64"}, {}])
def test_bytes_that_are_no_example_are_named(schema: Any) -> None:
    """By their place among the others."""
    coding = None if schema is None else coding_of(schema)
    good = encode_example({"x": 1})
    with pytest.raises(ExampleError, match="example 2: "):
        decode_rows([good, good, b"no example", good], coding)


def test_single_values_that_are_empty_or_untyped_are_none() -> None:
    """Alone as together: a key without a value is one that is missing."""
    records = [serialise({"x": (kind, [])}) for kind in ("", "int64_list")] + [b""]
    coding = coding_of({"x": "int64"})
    assert decode_rows(records, coding) == [{"x": None}] * 3
    assert [decode_example(r, {"x": "int64"}) for r in records] == [{"x": None}] * 3
