"""Python and NumPy values become columns by the rules of tf.train.Example, or raise."""

import enum
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from transforms.core.encoder import ExampleEncoder
from transforms.core.messages import Example
from transforms.core.schema import Feature, Kind, Schema
from transforms.core.values import column_of, rows_of
from transforms.errors import EncodingError


class Animal(enum.IntEnum):
    """An enum whose values are integers."""

    CAT = 3


@pytest.mark.parametrize(
    "value",
    [
        7,
        np.int8(7),
        np.uint8(7),
        np.int16(7),
        np.uint16(7),
        np.int32(7),
        np.uint32(7),
        np.int64(7),
        np.uint64(7),
        np.array(7),
    ],
)
def test_integers_of_every_width_are_int64(value: Any) -> None:
    """Python and NumPy integers, 0-d arrays too, keep their value."""
    column = column_of([value, None], Feature("x", Kind.INT64))
    assert column.equals(pa.array([7, None], pa.int64()))


@pytest.mark.parametrize(
    ("value", "stored"),
    [(True, 1), (np.bool_(False), 0), (Animal.CAT, 3), (-(2**63), -(2**63))],
)
def test_bools_and_enums_are_integers(value: Any, stored: int) -> None:
    """As in the tutorial's _int64_feature."""
    assert column_of([value], Feature("x", Kind.INT64)).to_pylist() == [stored]


@pytest.mark.parametrize(
    ("kind", "value", "why"),
    [
        (Kind.INT64, 1.0, "an integer is needed"),
        (Kind.INT64, np.float32(1.0), "an integer is needed"),
        (Kind.INT64, "1", "an integer is needed"),
        (Kind.INT64, np.uint64(2**63), "outside int64"),
        (Kind.INT64, 2**63, "outside int64"),
        (Kind.FLOAT, 1e39, "beyond float32"),
        (Kind.FLOAT, np.float64(-1e300), "beyond float32"),
        (Kind.FLOAT, 2**24 + 1, "cannot hold this integer exactly"),
        (Kind.FLOAT, 10**400, "cannot hold this integer exactly"),
        (Kind.FLOAT, True, "a number is needed"),
        (Kind.FLOAT, "1.5", "a number is needed"),
        (Kind.BOOL, 1, "True or False"),
        (Kind.TEXT, b"\xff", "invalid start byte"),
        (Kind.TEXT, "\ud800", "surrogates not allowed"),
        (Kind.TEXT, 5, "text is needed"),
        (Kind.BYTES, 5, "bytes or text"),
    ],
)
def test_what_would_be_lost_is_refused(kind: Kind, value: Any, why: str) -> None:
    """The error names row, feature and reason; nothing is truncated or wrapped."""
    with pytest.raises(EncodingError, match=why) as caught:
        column_of([None, value], Feature("width", kind))
    assert "row 2" in str(caught.value)
    assert "'width'" in str(caught.value)


@pytest.mark.parametrize(
    "value", [0.5, np.float16(0.5), np.float32(0.5), np.float64(0.5), np.array(0.5)]
)
def test_floats_of_every_width_are_float32(value: Any) -> None:
    """Half a unit is exact in all of them."""
    column = column_of([value, None, 2], Feature("x", Kind.FLOAT))
    assert column.equals(pa.array([0.5, None, 2.0], pa.float32()))


def test_non_finite_floats_are_kept() -> None:
    """NaN and the infinities are values like others."""
    values = [float("nan"), float("inf"), np.float64("-inf")]
    stored = column_of(values, Feature("x", Kind.FLOAT)).to_numpy()
    assert np.array_equal(stored, np.array(values, np.float32), equal_nan=True)


@pytest.mark.parametrize(
    "value",
    ["고양이", "고양이".encode(), np.str_("고양이"), bytearray("고양이".encode())],
)
def test_text_and_bytes_are_interchangeable(value: Any) -> None:
    """Both become a BytesList; text only where it is UTF-8."""
    assert column_of([value], Feature("x", Kind.TEXT)).to_pylist() == ["고양이"]
    encoded = column_of([value], Feature("x", Kind.BYTES)).to_pylist()
    assert encoded == ["고양이".encode()]


def test_lists_and_arrays_are_flattened() -> None:
    """Any nesting becomes one list in row-major order; an empty list stays a value."""
    values = [[1, 2], np.arange(4).reshape(2, 2), [], None, [[5], [6]]]
    column = column_of(values, Feature("x", Kind.INT64))
    assert column.to_pylist() == [[1, 2], [0, 1, 2, 3], [], None, [5, 6]]


def test_a_scalar_among_lists_is_refused() -> None:
    """One feature is one shape of value."""
    with pytest.raises(EncodingError, match="other rows hold lists"):
        column_of([[1], 2], Feature("x", Kind.INT64))


def test_a_numpy_array_is_a_column() -> None:
    """An array of n numbers is n scalars."""
    column = column_of(np.array([1, 2, 3], np.uint8), Feature("x", Kind.INT64))
    assert column.equals(pa.array([1, 2, 3], pa.int64()))


def test_the_row_of_the_tutorial() -> None:
    """(False, 4, b'goat', 0.9876) is the tutorial's message of 84 bytes."""
    schema = Schema(
        (
            Feature("feature0", Kind.BOOL),
            Feature("feature1", Kind.INT64),
            Feature("feature2", Kind.BYTES),
            Feature("feature3", Kind.FLOAT),
        )
    )
    row = {
        "feature0": False,
        "feature1": np.int64(4),
        "feature2": b"goat",
        "feature3": 0.9876,
    }
    batch = rows_of([row], schema)
    (encoded,) = ExampleEncoder(batch.schema).encode(batch).to_pylist()
    tutorial = (
        b"\nR\n\x14\n\x08feature2\x12\x08\n\x06\n\x04goat\n\x11\n\x08feature1\x12\x05"
        b"\x1a\x03\n\x01\x04\n\x14\n\x08feature3\x12\x08\x12\x06\n\x04[\xd3|?\n\x11"
        b"\n\x08feature0\x12\x05\x1a\x03\n\x01\x00"
    )
    assert len(encoded) == len(tutorial) == 84
    assert Example.FromString(encoded) == Example.FromString(tutorial)
