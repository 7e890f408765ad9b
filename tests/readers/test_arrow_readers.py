"""Views in the libraries that read Arrow streams: they take a view as it is."""

import pathlib
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import beam_tfrecord
from tests.support.datasets import animals, write_dataset, write_records
from transforms.errors import ExampleError
from transforms.reading.view import View

Counts = dict[str, int]


def _pyarrow(view: View) -> Counts:
    table = pa.table(view).group_by("animal").aggregate([("id", "count")])
    return {row["animal"]: row["id_count"] for row in table.to_pylist()}


def _polars(view: View) -> Counts:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(view).group_by("animal").len()
    return {str(row["animal"]): row["len"] for row in frame.to_dicts()}


def _pandas(view: View) -> Counts:
    pandas = pytest.importorskip("pandas")
    if not hasattr(pandas.DataFrame, "from_arrow"):
        pytest.skip("this pandas has no DataFrame.from_arrow")
    frame = pandas.DataFrame.from_arrow(view)
    return {str(name): int(n) for name, n in frame["animal"].value_counts().items()}


@pytest.mark.parametrize("read", [_pyarrow, _polars, _pandas])
def test_a_view_is_read_in_batches(
    tmp_path: pathlib.Path,
    read: Callable[[View], Counts],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All rows, class names, and no call for a single row."""

    def fail(*_: Any) -> None:
        raise AssertionError("a single row was read")

    write_dataset(tmp_path / "a", {"train": animals(5, 0, 11, 1)})
    train = beam_tfrecord.open_dataset(tmp_path / "a", labels="names")["train"]
    names = [row["animal"] for row in train]
    view = train.select(["id", "animal"]).shuffled(seed=1)
    monkeypatch.setattr(View, "__getitem__", fail)
    assert read(view) == {name: names.count(name) for name in names}


@pytest.mark.parametrize("read", [_pyarrow, _polars, _pandas])
def test_a_record_that_is_none_of_the_features(
    tmp_path: pathlib.Path, read: Callable[[View], Counts]
) -> None:
    """The consumer's error has our message: file, record, what to do."""
    write_dataset(tmp_path / "a", {"train": animals(5, 6)})
    path = tmp_path / "a" / "animals-train.tfrecord-00001-of-00002"
    view = beam_tfrecord.open_dataset(tmp_path / "a", labels="names")["train"]
    records = [*view.records[5:]]
    records[4] = b"\xff" * len(records[4])
    write_records(path, records)
    with pytest.raises(ExampleError) as ours:
        _ = view[9]
    assert f"{path}: record 4: " in str(ours.value)
    # Each library has an error of its own.
    with pytest.raises(Exception, match="record 4") as found:
        read(view)
    assert str(ours.value) in str(found.value)
    # The error of another stream is another one.
    with pytest.raises(Exception, match="record 4"):
        read(view[[9, 9]])
    assert read(view[:9])
