"""Neighbouring float columns that are encoded together, against columns one by one."""

import itertools
from unittest import mock

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from transforms.core.arrays import offsets_of
from transforms.core.example import payload
from transforms.core.example.encoder import ExampleEncoder
from transforms.core.tfrecord.frame import footer

FLOATS = st.floats(width=32)
COLUMNS = {
    "floats": (pa.float32(), FLOATS),
    "more floats": (pa.float32(), FLOATS),
    "with nulls": (pa.float32(), st.none() | FLOATS),
    "doubles": (pa.float64(), st.floats(-1e30, 1e30)),
    "integers": (pa.int64(), st.none() | st.integers(-5, 2**40)),
    "texts": (pa.string(), st.none() | st.text(max_size=3)),
}


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    """Draws rows of columns in any order of their names."""
    count = draw(st.integers(1, 5))
    names = draw(st.lists(st.text("ab", max_size=4), max_size=12, unique=True))
    arrays = []
    for _ in names:
        kind, values = COLUMNS[draw(st.sampled_from([*COLUMNS]))]
        cells = draw(st.lists(values, min_size=count, max_size=count))
        arrays.append(pa.array(cells, kind, from_pandas=False))
    schema = pa.schema([*zip(names, (a.type for a in arrays), strict=True)])
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def encoder(schema: pa.Schema, together: int) -> ExampleEncoder:
    """Returns an encoder that takes as many float columns together, or more."""
    with mock.patch.object(payload, "_LEAST_COLUMNS", together):
        return ExampleEncoder(schema)


@given(batches(), st.integers(0, 2))
def test_the_records_are_those_of_single_columns(
    batch: pa.RecordBatch, start: int
) -> None:
    """Bytes and offsets are equal, for slices and after rows with nulls too."""
    wanted = encoder(batch.schema, 10**9)
    with mock.patch.object(payload, "_LEAST_COLUMNS", 2):
        found = ExampleEncoder(batch.schema)
        for rows in (batch.slice(start), batch, batch.slice(0, 1)):
            one, other = wanted.encode_framed(rows), found.encode_framed(rows)
            assert one.buffers()[2].to_pybytes() == other.buffers()[2].to_pybytes()
            assert one.equals(other)
            encoded = found.encode(rows)
            assert wanted.encode(rows).equals(encoded)


def test_checksums_where_texts_are_between_many_floats() -> None:
    """Short runs of floats in many rows: each checksum is that of its record."""
    rows = 400
    values = np.random.default_rng(1).random((600, rows), np.float32)
    columns = {f"c{index:03}": pa.array(each) for index, each in enumerate(values)}
    for index in range(50, 600, 50):
        columns[f"c{index:03}"] = pa.array([f"n{row % 7}" for row in range(rows)])
    batch = pa.RecordBatch.from_pydict(columns)
    framed = ExampleEncoder(batch.schema).encode_framed(batch)
    data = framed.buffers()[2].to_pybytes()
    for start, stop in itertools.pairwise(offsets_of(framed).tolist()):
        assert data[stop - 4 : stop] == footer(data[start + 12 : stop - 4])
