"""Arrow batches and streams of views."""

import pathlib
from typing import Literal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import beam_tfrecord
from tests.support.datasets import animals, write_dataset
from tests.support.examples import ints
from transforms.core.arrays import regrouped
from transforms.core.schema import Feature, Kind
from transforms.core.tfrecord.reader import PayloadBatch
from transforms.errors import ExampleError
from transforms.reading.rows import Columns
from transforms.reading.view import View

NAMES = pa.dictionary(pa.int32(), pa.string())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("streams") / "animals"
    write_dataset(path, {"train": animals(5, 0, 11, 1)})
    return path


def view(folder: pathlib.Path, labels: Literal["ids", "names"] = "ids") -> View:
    return beam_tfrecord.open_dataset(folder, labels=labels)["train"]


def test_labels_are_ids(folder: pathlib.Path) -> None:
    """They are what a row has."""
    train = view(folder).select(["id", "animal"])
    table = pa.table(train)
    assert table.schema.field("animal").type == pa.int64()
    assert table.to_pylist() == [*train]


def test_labels_as_names_have_one_dictionary(folder: pathlib.Path) -> None:
    """It is that of all classes in each batch, in the order of the ids."""
    train = view(folder, labels="names")
    batches = [*train.batches(4)]
    assert [batch.num_rows for batch in batches] == [4, 4, 4, 4, 1]
    for batch in batches:
        assert batch.schema.field("animal").type == NAMES
        dictionary = batch.column("animal").dictionary.to_pylist()
        assert dictionary == ["dog", "goat", "고양이"]
    table = pa.table(train.select(["animal"]))
    assert table.to_pylist() == [{"animal": row["animal"]} for row in train]


def test_a_requested_schema_is_cast_to_or_refused(folder: pathlib.Path) -> None:
    """Other types of the same columns, or an error."""
    train = view(folder, labels="names").select(["id", "animal"])
    wanted = pa.schema({"id": pa.float64(), "animal": pa.string()})
    table = pa.RecordBatchReader.from_stream(train, schema=wanted).read_all()
    assert table.schema == wanted
    assert table.column("id").to_pylist() == [*map(float, range(17))]
    for fields in ({"id": pa.int64()}, {"id": pa.list_(pa.int8()), "animal": NAMES}):
        with pytest.raises((ValueError, TypeError, pa.ArrowException)):
            pa.RecordBatchReader.from_stream(train, schema=pa.schema(fields)).read_all()


def test_a_class_id_without_a_name_is_an_error() -> None:
    """It says how the ids can be read."""
    label = Feature("label", Kind.LABEL, vocabulary=("a", "b"))
    one, two = ints(label=1), ints(label=2)
    columns = Columns([label], named=True)
    found = columns.batch(PayloadBatch.of([one, one, b""]))
    assert found.column("label").to_pylist() == ["b", "b", None]
    assert columns.batch(PayloadBatch.of([b""])).column("label").null_count == 1
    with pytest.raises(ExampleError, match="labels='ids'"):
        columns.batch(PayloadBatch.of([one, two]))


@given(st.lists(st.integers(0, 9), max_size=8), st.integers(1, 12))
def test_regrouped_batches_have_the_same_rows(sizes: list[int], rows: int) -> None:
    """All are of the size asked for but the last."""
    numbers = iter(range(100))
    batches = [
        pa.record_batch({"a": pa.array([next(numbers) for _ in range(size)], "int64")})
        for size in sizes
    ]
    found = [*regrouped(batches, rows)]
    assert [row for each in found for row in each.column("a").to_pylist()] == [
        *range(sum(sizes))
    ]
    assert all(batch.num_rows == rows for batch in found[:-1])
    assert all(0 < batch.num_rows <= rows for batch in found[-1:])
