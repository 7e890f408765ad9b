"""Reading the examples of files and datasets without TensorFlow."""

import pathlib
from typing import Any

import pytest

from tests.support import datasets
from tests.support.datasets import write_records
from tests.support.examples import ints
from tests.support.kinds import write_kinds
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


def test_dataset_with_a_shard_cut_between_records(tmp_path: pathlib.Path) -> None:
    """The manifest shows what a reader of the file alone cannot see."""
    path = write_dataset(tmp_path / "d")
    write_records(path, records(1), "gzip")
    with pytest.raises(TFRecordError, match="states 2 records") as caught:
        list(read_examples(tmp_path / "d", split="test"))
    assert (caught.value.kind, caught.value.path) == ("truncated", str(path))


def test_dataset_with_a_shard_of_another_run(tmp_path: pathlib.Path) -> None:
    """The same count, other records."""
    write_records(write_dataset(tmp_path / "d"), records(1, 3), "gzip")
    with pytest.raises(TFRecordError, match="CRC32C"):
        list(read_examples(tmp_path / "d", split="test"))


def test_directory_without_a_manifest_is_no_dataset(tmp_path: pathlib.Path) -> None:
    """Its files are not guessed at."""
    write_dataset(tmp_path / "d")
    (tmp_path / "d/manifest.json").unlink()
    with pytest.raises(SourceError, match="not a dataset"):
        list(read_examples(tmp_path / "d"))


def test_missing_shard_is_an_error(tmp_path: pathlib.Path) -> None:
    """Named by its path."""
    write_dataset(tmp_path / "d").unlink()
    with pytest.raises(BeamTFRecordError, match=r"of-00001\.gz: cannot be opened"):
        list(read_examples(tmp_path / "d", split="test"))


def test_dataset_of_every_shape_is_read_back(tmp_path: pathlib.Path) -> None:
    """Lists, ragged lists, boxes and tensors of a dataset, without TensorFlow."""
    features = [
        Feature("vector", Kind.FLOAT, shape=(2,)),
        Feature("words", Kind.TEXT, shape=(None,)),
        Feature("ragged", Kind.INT64, shape=(None, None)),
        Feature("box", Kind.BOX),
        Feature("pixels", Kind.TENSOR, shape=(3,), dtype="uint8", encoding="raw"),
    ]
    rows: list[dict[str, Any]] = [
        {
            "vector": [0.5, 1.0],
            "words": ["a", "글"],
            "ragged": [[1], [], [2, 3]],
            "box": [[0.0, 0.25, 0.5, 1.0]],
            "pixels": b"\1\2\3",
        },
        {"vector": [1.5, 2.0], "pixels": b"\0\0\0"},
    ]
    write_kinds(tmp_path / "out", rows, features)
    values, lengths = features[2].record_keys
    first, second = read_examples(tmp_path / "out")
    assert first["vector"] == [0.5, 1.0]
    assert first["words"] == [b"a", "글".encode()]
    assert (first[values], first[lengths]) == ([1, 2, 3], [1, 0, 2])
    assert first["box/xmax"] == [0.5]
    assert first["pixels"] == [b"\1\2\3"]
    assert second == {"vector": [1.5, 2.0], "pixels": [b"\0\0\0"]}
