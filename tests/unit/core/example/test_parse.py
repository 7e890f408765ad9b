"""Reading the examples of files and datasets without TensorFlow."""

import pathlib
from typing import Any

import pytest

from tests.support.examples import ints
from tests.support.kinds import write_kinds
from transforms.core.example.messages import read_examples
from transforms.core.manifest import Account, Manifest, ShardFacts, SplitFacts
from transforms.core.schema import Feature, Kind
from transforms.core.tfrecord import TFRecordWriter
from transforms.core.tfrecord.frame import frame
from transforms.errors import (
    BeamTFRecordError,
    ExampleError,
    SourceError,
    TFRecordError,
)


def write_shard(path: pathlib.Path, values: list[int], **options: Any) -> ShardFacts:
    with path.open("wb") as file, TFRecordWriter(file, **options) as writer:
        for value in values:
            writer.write(ints(a=value))
    facts = writer.facts()
    return ShardFacts(
        file=path.name,
        bytes=facts.stored_bytes,
        crc32c=facts.crc32c,
        records=facts.records,
        payload_bytes=facts.payload_bytes,
    )


def write_dataset(directory: pathlib.Path) -> list[pathlib.Path]:
    """Two splits, three shards, one of them empty; gzip."""
    names = ["d-test", "d-train-0", "d-train-1"]
    values: list[list[int]] = [[1, 2], [3], []]
    shards = [
        write_shard(directory / name, content, compression="gzip")
        for name, content in zip(names, values, strict=True)
    ]
    manifest = Manifest(
        name="d",
        compression="gzip",
        features=(),
        splits=(
            SplitFacts("train", tuple(shards[1:])),
            SplitFacts("test", (shards[0],)),
        ),
        files=(),
        account=Account(3, 3),
        inputs={},
        settings={},
    )
    (directory / "manifest.json").write_bytes(manifest.to_bytes())
    (directory / "stray.tfrecord").write_bytes(frame(ints(a=99)))
    return [directory / name for name in names]


def test_files_are_read_in_the_order_given(tmp_path: pathlib.Path) -> None:
    """One path, a string, or several; whatever their compression."""
    write_shard(tmp_path / "x", [1, 2])
    write_shard(tmp_path / "y", [3], compression="gzip")
    assert list(read_examples(tmp_path / "x")) == [{"a": [1]}, {"a": [2]}]
    assert list(read_examples(str(tmp_path / "y"))) == [{"a": [3]}]
    both = read_examples([tmp_path / "y", tmp_path / "x"])
    assert [example["a"] for example in both] == [[3], [1], [2]]


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_an_empty_file_has_no_examples(
    tmp_path: pathlib.Path, compression: str
) -> None:
    """Writers make such files for shards without records."""
    write_shard(tmp_path / "x", [], compression=compression)
    write_shard(tmp_path / "y", [3])
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
    write_dataset(tmp_path)
    with pytest.warns(UserWarning, match=r"split='train'"):
        assert [example["a"] for example in read_examples(tmp_path)] == [[3], [1], [2]]


def test_one_split_of_a_dataset(tmp_path: pathlib.Path) -> None:
    """Without a word; a split that is not there is an error that names those there."""
    write_dataset(tmp_path)
    assert list(read_examples(tmp_path, split="test")) == [{"a": [1]}, {"a": [2]}]
    with pytest.raises(SourceError, match="no 'validation', but 'train', 'test'"):
        next(read_examples(tmp_path, split="validation"))
    with pytest.raises(SourceError, match="split='test'"):
        next(read_examples(tmp_path / "d-test", split="test"))


def test_dataset_with_a_shard_cut_between_records(tmp_path: pathlib.Path) -> None:
    """The manifest shows what a reader of the file alone cannot see."""
    path = write_dataset(tmp_path)[0]
    write_shard(path, [1], compression="gzip")
    with pytest.raises(TFRecordError, match="states 2 records") as caught:
        list(read_examples(tmp_path, split="test"))
    assert (caught.value.kind, caught.value.path) == ("truncated", str(path))


def test_dataset_with_a_shard_of_another_run(tmp_path: pathlib.Path) -> None:
    """The same count, other records."""
    write_shard(write_dataset(tmp_path)[0], [1, 3], compression="gzip")
    with pytest.raises(TFRecordError, match="CRC32C"):
        list(read_examples(tmp_path, split="test"))


def test_directory_without_a_manifest_is_no_dataset(tmp_path: pathlib.Path) -> None:
    """Its files are not guessed at."""
    write_dataset(tmp_path)
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(SourceError, match="not a dataset"):
        list(read_examples(tmp_path))


def test_missing_shard_is_an_error(tmp_path: pathlib.Path) -> None:
    """Named by its path."""
    write_dataset(tmp_path)[0].unlink()
    with pytest.raises(BeamTFRecordError, match="d-test: cannot be opened"):
        list(read_examples(tmp_path, split="test"))


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
