"""Rows that are encoded by their layout, against all rows together."""

from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.core.example import encoder as encoder_module
from transforms.core.example import layouts as layouts_module
from transforms.core.example.encoder import ExampleEncoder
from transforms.core.example.layouts import Layouts
from transforms.errors import EncodingError

TEXTS = ["", "cat", "dog", "chicken", "고양이", "a text of more than twelve bytes"]
COLUMNS = {
    "bools": (pa.bool_(), st.booleans()),
    "floats": (pa.float32(), st.floats(width=32)),
    "doubles": (pa.float64(), st.floats(-1e30, 1e30)),
    "small integers": (pa.int8(), st.integers(-3, 100)),
    "integers": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "texts": (pa.dictionary(pa.int32(), pa.string()), st.sampled_from(TEXTS)),
    "bytes": (
        pa.dictionary(pa.uint8(), pa.binary()),
        st.sampled_from([b"", b"\0" * 20, b"\xff"]),
    ),
    "nothing": (pa.null(), st.none()),
}


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    """Draws rows of few layouts, or of many."""
    count = draw(st.integers(1, 12))
    columns = {}
    for number in range(draw(st.integers(1, 5))):
        kind, values = COLUMNS[draw(st.sampled_from([*COLUMNS]))]
        some = draw(st.lists(values, min_size=1, max_size=3))
        if draw(st.booleans()):
            some.append(None)
        cells = st.lists(st.sampled_from(some), min_size=count, max_size=count)
        columns[f"column {number}"] = pa.array(draw(cells), kind, from_pandas=False)
    return pa.record_batch(columns)


@given(batches(), st.integers(0, 2))
def test_the_records_are_those_of_all_rows_together(
    batch: pa.RecordBatch, start: int
) -> None:
    """Bytes and offsets are equal, for slices too."""
    encoder = ExampleEncoder(batch.schema)
    for rows in (batch, batch.slice(start)):
        with mock.patch.object(layouts_module, "_LEAST_ROWS", 10**9):
            wanted = encoder.encode_framed(rows)
        with (
            mock.patch.object(layouts_module, "_LEAST_ROWS", 1),
            mock.patch.object(encoder_module, "_LAYOUTS_ROWS", 7),
        ):
            found = encoder.encode_framed(rows)
        assert found.buffer.to_pybytes() == wanted.buffer.to_pybytes()
        assert found.offsets.tolist() == wanted.offsets.tolist()


def test_a_dictionary_gives_the_records_of_its_texts() -> None:
    """Its values are the texts, whether there are few layouts or many."""
    rng = np.random.default_rng(5)
    columns = {"x": pa.array(rng.standard_normal(20_000, np.float32))}
    for count in (3, 4_000):
        texts = [f"{'t' * (number % 20)}{number}" for number in range(count)]
        words = pa.array(texts).take(pa.array(rng.integers(0, count, 20_000)))
        plain = pa.record_batch(columns | {"text": words})
        encoded = pa.record_batch(columns | {"text": words.dictionary_encode()})
        found = [ExampleEncoder(b.schema).encode_framed(b) for b in (plain, encoded)]
        assert found[0].buffer.equals(found[1].buffer)


def test_rows_of_few_layouts_are_divided() -> None:
    """Each part has the rows of one layout, in their order."""
    ids = pa.array([1, 200, 2, None, 300, None])
    with mock.patch.object(layouts_module, "_LEAST_ROWS", 1):
        found = Layouts.of(pa.record_batch({"id": ids}))
    assert found is not None
    parts = [(at.tolist(), rows["id"].to_pylist()) for at, rows in found.parts()]
    assert parts == [([3, 5], [None, None]), ([0, 2], [1, 2]), ([1, 4], [200, 300])]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1.5] * 10_000),
        pa.array(range(100)),
        pa.array([str(number) for number in range(10_000)]).dictionary_encode(),
    ],
    ids=["one layout", "few rows", "many layouts"],
)
def test_other_rows_are_not_divided(column: pa.Array) -> None:
    """Where it would not pay, there are no layouts."""
    assert Layouts.of(pa.record_batch({"column": column})) is None


def test_texts_outside_dictionaries_have_no_layouts() -> None:
    """Nor have lists: they are encoded with all rows together."""
    for column in (["a", "bb"] * 5_000, [[1], [1, 2]] * 5_000):
        batch = pa.record_batch({"column": column})
        with mock.patch.object(Layouts, "of", side_effect=AssertionError):
            assert len(ExampleEncoder(batch.schema).encode_framed(batch).offsets)


@pytest.mark.parametrize("row", [7_655, 40_000])
def test_an_error_names_the_row_in_the_batch(row: int) -> None:
    """Not its place among the rows of its layout, nor in a chunk."""
    numbers = np.array([1, 200] * 25_000, np.uint64)
    numbers[row - 1] = 2**63
    batch = pa.record_batch({"number": numbers})
    with pytest.raises(EncodingError, match=f"row {row} of the batch"):
        ExampleEncoder(batch.schema).encode_framed(batch)
