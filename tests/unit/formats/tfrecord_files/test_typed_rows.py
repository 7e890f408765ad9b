"""Typed rows of records: nesting by shape, missing values, misfits, times."""

import datetime
import io
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.core.example.encoder import encode_examples
from transforms.core.schema import RAGGED_LENGTHS, RAGGED_VALUES, Feature, Kind
from transforms.core.tfrecord import frame
from transforms.core.tfrecord.reader import TFRecordReader
from transforms.errors import ExampleError
from transforms.formats.tfrecord_files.typed_rows import TypedRows

UTC = datetime.UTC


def rows_of(features: list[Feature], columns: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns records with these stored columns as dicts."""
    rows = TypedRows(tuple(features))
    records = map(frame.frame, encode_examples(pa.record_batch(columns)))
    (payloads,) = TFRecordReader(io.BytesIO(b"".join(records))).batches()
    batch = rows.batch(payloads, "x.tfrecord")
    assert batch.schema == rows.schema
    batch.validate(full=True)
    return list(rows.dicts(batch))


def lists(values: list[Any]) -> pa.Array:
    return pa.array(values, pa.list_(pa.float32()))


@st.composite
def shapes(draw: st.DrawFn) -> tuple[tuple[int | None, ...], list[Any]]:
    """Draws a shape with one open size at most, and arrays of it, some of them None."""
    sizes: list[int | None] = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    if draw(st.booleans()):
        sizes[draw(st.integers(0, len(sizes) - 1))] = None
    values: list[Any] = []
    for _ in range(draw(st.integers(1, 5))):
        if draw(st.booleans()):
            values.append(None)
            continue
        shape = [draw(st.integers(1, 3)) if n is None else n for n in sizes]
        values.append(np.arange(np.prod(shape), dtype=np.float32).reshape(shape))
    return tuple(sizes), values


@given(shapes())
def test_values_are_nested_by_the_shape(
    drawn: tuple[tuple[int | None, ...], list[Any]],
) -> None:
    """Stored flat, row by row; NumPy's reshape is the oracle."""
    shape, values = drawn
    column = lists([None if v is None else v.ravel().tolist() for v in values])
    found = rows_of([Feature("x", Kind.FLOAT, shape=shape)], {"x": column})
    assert [row["x"] for row in found] == [
        None if value is None else value.tolist() for value in values
    ]


def test_an_open_size_of_nothing() -> None:
    """An empty list is no missing value."""
    for shape, empty in (((None,), []), ((None, 2), []), ((2, None), [[], []])):
        feature = Feature("x", Kind.FLOAT, shape=shape)
        found = rows_of([feature], {"x": lists([[], None])})
        assert found == [{"x": empty}, {"x": None}]


def test_lists_of_lists_and_boxes() -> None:
    """Of several keys in the records, one value in the rows."""
    features = [
        Feature("r", Kind.INT64, shape=(None, None)),
        Feature("box", Kind.BOX),
    ]
    ints = pa.list_(pa.int64())
    columns = {
        f"r/{RAGGED_VALUES}": pa.array([[1, 2, 3], [], None], ints),
        f"r/{RAGGED_LENGTHS}": pa.array([[1, 0, 2], [], None], ints),
        "box/xmin": lists([[0.0, 0.5], None, []]),
        "box/ymin": lists([[1.0, 1.5], None, []]),
        "box/xmax": lists([[2.0, 2.5], None, []]),
        "box/ymax": lists([[3.0, 3.5], None, []]),
    }
    assert rows_of(features, columns) == [
        {"r": [[1], [], [2, 3]], "box": [[0, 1, 2, 3], [0.5, 1.5, 2.5, 3.5]]},
        {"r": [], "box": None},
        {"r": None, "box": []},
    ]


def test_labels_and_texts_in_lists() -> None:
    """Each item by its name; texts are texts, not bytes."""
    features = [
        Feature("tags", Kind.LABEL, shape=(None,), vocabulary=("a", "b")),
        Feature("words", Kind.TEXT, shape=(2,)),
        Feature("times", Kind.TIMESTAMP, shape=(None,), unit="s"),
    ]
    columns = {
        "tags": [[1, 0], None],
        "words": [["이", ""], None],
        "times": [[0], []],
    }
    epoch = datetime.datetime(1970, 1, 1, tzinfo=UTC)
    assert rows_of(features, columns) == [
        {"tags": ["b", "a"], "words": ["이", ""], "times": [epoch]},
        {"tags": None, "words": None, "times": []},
    ]


def test_a_label_without_class_names_has_ids() -> None:
    """A vocabulary that is empty knows no id at all."""
    label = Feature("x", Kind.LABEL)
    assert rows_of([label], {"x": [1, None]}) == [{"x": 1}, {"x": None}]
    nothing = Feature("x", Kind.LABEL, vocabulary=())
    column = pa.array([None, None], pa.int64())
    assert rows_of([nothing], {"x": column}) == [{"x": None}] * 2
    with pytest.raises(ExampleError, match=r"record 1 at .* no class name"):
        rows_of([nothing], {"x": [None, 0]})


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_are_exact(unit: str) -> None:
    """Before and after 1970, in every unit; None stays None."""
    counts = [-1, 0, None, 10**9]
    each = datetime.timedelta(seconds=1) / {"s": 1, "ms": 10**3}.get(unit, 10**6)
    epoch = datetime.datetime(1970, 1, 1, tzinfo=UTC)
    if unit == "ns":
        counts = [-1000, 0, None, 10**12]
    scale = 1000 if unit == "ns" else 1
    found = rows_of([Feature("t", Kind.TIMESTAMP, unit=unit)], {"t": counts})
    for row, count in zip(found, counts, strict=True):
        wanted = None if count is None else epoch + each * (count // scale)
        assert row["t"] == wanted
        assert wanted is None or row["t"].utcoffset() == datetime.timedelta()


@pytest.mark.parametrize(
    ("unit", "first", "last"),
    [
        ("s", -62_135_596_800, 253_402_300_799),
        ("us", -62_135_596_800_000_000, 253_402_300_799_999_999),
    ],
)
def test_times_that_python_lacks(unit: str, first: int, last: int) -> None:
    """The first and the last are read; beyond them a batch is needed."""
    feature = Feature("t", Kind.TIMESTAMP, unit=unit)
    found = rows_of([feature], {"t": [first, last]})
    assert [row["t"].year for row in found] == [1, 9999]
    for count in (first - 1, last + 1, 2**63 - 1, -(2**63)):
        with pytest.raises(ExampleError, match="Read it with batches=True"):
            rows_of([feature], {"t": [0, count]})


def test_raw_tensors_are_arrays_of_their_shape() -> None:
    """An open size is found; a number of bytes that fits no shape is an error."""
    data = np.arange(6, dtype="<i2").tobytes()
    feature = Feature("t", Kind.TENSOR, shape=(None, 3), dtype="int16", encoding="raw")
    first, second = rows_of([feature], {"t": [data, None]})
    np.testing.assert_array_equal(first["t"], np.arange(6).reshape(2, 3))
    assert second == {"t": None}
    with pytest.raises(ExampleError, match=r"record 1 at .* of shape \[None, 3\]"):
        rows_of([feature], {"t": [data, data[1:]]})


@pytest.mark.parametrize(
    ("feature", "column", "message"),
    [
        (
            Feature("x", Kind.BOX),
            {
                **dict.fromkeys(("x/xmin", "x/ymin", "x/ymax"), lists([[0.0], [0.0]])),
                "x/xmax": lists([[1.0], []]),
            },
            "as many of each side",
        ),
        (
            Feature("x", Kind.INT64, shape=(None, None)),
            {
                f"x/{RAGGED_VALUES}": pa.array([[1, 2, 3], [1, 2]]),
                f"x/{RAGGED_LENGTHS}": pa.array([[2, 0, 1], [1]]),
            },
            "lengths do not sum to its values",
        ),
        (Feature("x", Kind.FLOAT, shape=(2, 2)), lists([[0] * 4, [0] * 3]), "3 values"),
        (Feature("x", Kind.FLOAT, shape=(2, None)), lists([None, [0.0]]), "1 values"),
        (Feature("x", Kind.TEXT), pa.array([b"a", b"\xff"]), "no UTF-8"),
        (
            Feature("x", Kind.TEXT, shape=(None,)),
            pa.array([[b"a"], [b"\xff"]]),
            "UTF-8",
        ),
        (Feature("x", Kind.BOOL), pa.array([1, 2]), "another number than 0 and 1"),
        (Feature("x", Kind.INT64), lists([None, [1.5]]), "holds a float_list"),
    ],
)
def test_misfits_name_file_record_and_byte(
    feature: Feature, column: Any, message: str
) -> None:
    """The second record is the wrong one in all of them."""
    columns = column if isinstance(column, dict) else {"x": column}
    with pytest.raises(ExampleError) as caught:
        rows_of([feature], columns)
    assert str(caught.value).startswith("x.tfrecord: record 1 at byte ")
    assert message in str(caught.value)


def test_features_that_are_not_asked_for_may_be_anything() -> None:
    """Lists of numbers of any length, which differ from record to record."""
    columns = {
        "a": pa.array([[], [1], [1, -2, 2**40]], pa.list_(pa.int64())),
        "b": lists([[1.5, 2.5], [], None]),
        "id": pa.array([7, 8, 9]),
    }
    assert [r["id"] for r in rows_of([Feature("id", Kind.INT64)], columns)] == [7, 8, 9]
