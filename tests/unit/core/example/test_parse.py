"""Reading the examples of files and datasets without TensorFlow."""

import pathlib

import pytest

from tests.support import datasets
from tests.support.datasets import write_records
from tests.support.examples import ints
from transforms.core.example.messages import read_examples
from transforms.core.schema import Feature, Kind
from transforms.core.tfrecord.frame import frame
from transforms.errors import (
    BeamTFRecordError,
    ExampleError,
    SourceError,
    TFRecordError,
)


def records(*values: int) -> list[bytes]:
    return [ints(a=value) for value in values]


def write_dataset(directory: pathlib.Path) -> pathlib.Path:
    """Two splits, three shards, one of them empty; returns the shard of `test`."""
    splits = {"train": [[{"a": 3}], []], "test": [[{"a": 1}, {"a": 2}]]}
    features = [Feature("a", Kind.INT64)]
    datasets.write_dataset(directory, splits, features, compression="gzip")
    write_records(directory / "stray.tfrecord", records(99))
    return directory / "animals-test.tfrecord-00000-of-00001.gz"


def test_files_are_read_in_the_order_given(tmp_path: pathlib.Path) -> None:
    """One path, a string, or several; whatever their compression."""
    write_records(tmp_path / "x", records(1, 2))
    write_records(tmp_path / "y", records(3), "gzip")
    assert list(read_examples(tmp_path / "x")) == [{"a": [1]}, {"a": [2]}]
    assert list(read_examples(str(tmp_path / "y"))) == [{"a": [3]}]
    both = read_examples([tmp_path / "y", tmp_path / "x"])
    assert [example["a"] for example in both] == [[3], [1], [2]]


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_an_empty_file_has_no_examples(
    tmp_path: pathlib.Path, compression: str
) -> None:
    """Writers make such files for shards without records."""
    write_records(tmp_path / "x", records(), compression)
    write_records(tmp_path / "y", records(3))
    assert list(read_examples([tmp_path / "x", tmp_path / "y"])) == [{"a": [3]}]


def test_error_names_file_and_record(tmp_path: pathlib.Path) -> None:
    """Of a record that is no Example, and of one that does not fit."""
    path = tmp_path / "x"
    path.write_bytes(frame(b"") + frame(b"\xff"))
    examples_read = read_examples(path)
    assert next(examples_read) == {}
    with pytest.raises(ExampleError, match=f"{path}: record 1: 1 bytes are not"):
        next(examples_read)


def test_dataset_is_read_by_its_manifest(tmp_path: pathlib.Path) -> None:
    """Splits and shards in its order; files it does not name are not read."""
    write_dataset(tmp_path / "d")
    with pytest.warns(UserWarning, match=r"split='train'"):
        found = [example["a"] for example in read_examples(tmp_path / "d")]
    assert found == [[3], [1], [2]]


def test_one_split_of_a_dataset(tmp_path: pathlib.Path) -> None:
    """Without a word; a split that is not there is an error that names those there."""
    path = write_dataset(tmp_path / "d")
    assert list(read_examples(tmp_path / "d", split="test")) == [{"a": [1]}, {"a": [2]}]
    with pytest.raises(SourceError, match="no 'validation', but 'train', 'test'"):
        next(read_examples(tmp_path / "d", split="validation"))
    with pytest.raises(SourceError, match="split='test'"):
        next(read_examples(path, split="test"))


def test_directory_without_a_manifest_is_no_dataset(tmp_path: pathlib.Path) -> None:
    """Its files are not guessed at."""
    write_dataset(tmp_path / "d")
    (tmp_path / "d/manifest.json").unlink()
    with pytest.raises(SourceError, match="not a dataset"):
        list(read_examples(tmp_path / "d"))


@pytest.mark.parametrize(
    ("values", "error", "words"),
    [
        ((1,), TFRecordError, "states 2 records"),
        ((1, 3), TFRecordError, "CRC32C"),
        (None, BeamTFRecordError, r"of-00001\.gz: cannot be opened"),
    ],
)
def test_a_shard_that_is_not_the_manifests(
    tmp_path: pathlib.Path,
    values: tuple[int, ...] | None,
    error: type[Exception],
    words: str,
) -> None:
    """Cut between records, of another run with as many records, or missing."""
    path = write_dataset(tmp_path / "d")
    path.unlink()
    if values is not None:
        write_records(path, records(*values), "gzip")
    with pytest.raises(error, match=words) as caught:
        list(read_examples(tmp_path / "d", split="test"))
    assert str(path) in str(caught.value)
