"""Reading examples without TensorFlow: its own parser is the oracle."""

import pathlib
from typing import Any

import numpy as np
import pytest

from tests.support.examples import Values, ints, serialise
from tests.support.kinds import write_kinds
from tests.support.parse_cases import ABSENT, FLOATS, TWO, as_lists
from transforms.core.example.parse import (
    FixedLenFeature,
    RaggedFeature,
    RowLengths,
    UniformRowLength,
    VarLenFeature,
    parse_single_example,
    read_examples,
)
from transforms.core.manifest import Account, Manifest, ShardFacts, SplitFacts
from transforms.core.schema import Feature, Kind
from transforms.core.tfrecord import TFRecordWriter
from transforms.core.tfrecord.frame import frame
from transforms.errors import (
    BeamTFRecordError,
    ExampleError,
    SourceError,
    SpecError,
    TFRecordError,
)


def test_default_replaces_an_absent_feature() -> None:
    """The tutorial's way to read: scalars with defaults."""
    description = {
        "feature0": FixedLenFeature([], "int64", 0),
        "feature2": FixedLenFeature([], "string", ""),
        "feature3": FixedLenFeature([], "float32", 0.5),
    }
    found = parse_single_example(ints(feature0=4), description)
    assert found == {"feature0": 4, "feature2": b"", "feature3": 0.5}
    assert [type(value) for value in found.values()] == [np.int64, bytes, np.float32]


def test_defaults_are_not_shared() -> None:
    """Changing a returned array changes no later one."""
    description = {"a": FixedLenFeature([2], "int64", [1, 2])}
    parse_single_example(b"", description)["a"][0] = 9
    assert parse_single_example(b"", description)["a"].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (ABSENT, "'a' is required, but absent"),
        (FLOATS, "'a' must be a list of int64 .* found a float_list"),
        (TWO, r"'a' must have 1 values \(shape \[\]\); found 2"),
    ],
)
def test_errors_name_feature_and_finding(values: Values, message: str) -> None:
    """Of a scalar feature of integers."""
    description = {"a": FixedLenFeature([], "int64")}
    with pytest.raises(ExampleError, match=message):
        parse_single_example(serialise(values), description)


@pytest.mark.parametrize("dtype", ["int32", np.float64, bool, None, 3, "tf.int64"])
def test_types_that_no_example_holds(dtype: Any) -> None:
    """The message lists the three that there are."""
    with pytest.raises(SpecError, match="int64, float32 or string"):
        VarLenFeature(dtype)


def test_strings_keep_trailing_zeros() -> None:
    """They are objects, not NumPy's fixed-width bytes."""
    data = serialise({"a": ("bytes_list", [b"x\0"])})
    found = parse_single_example(data, {"a": FixedLenFeature([1], "string")})
    assert found["a"].tolist() == [b"x\0"]


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
    write_shard(tmp_path / "y", [3], compression="zlib")
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


def test_description_applies_to_every_example(tmp_path: pathlib.Path) -> None:
    """Also its defaults."""
    write_shard(tmp_path / "x", [1, 2])
    description = {
        "a": FixedLenFeature([], "int64"),
        "b": FixedLenFeature([], "float32", 0.5),
    }
    found = list(read_examples(tmp_path / "x", description))
    assert found == [{"a": 1, "b": 0.5}, {"a": 2, "b": 0.5}]


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


def test_ragged_features_of_one_key_and_of_two() -> None:
    """A feature's own key where none is named; what is absent is empty."""
    spec = RaggedFeature("int64", partitions=[RowLengths("n")])
    plain = RaggedFeature("int64")
    payloads = [ints(a=[1, 2, 3], n=[1, 2]), b"", ints(a=[4], n=[0, 1])]
    found = [parse_single_example(data, {"a": spec})["a"] for data in payloads]
    assert as_lists(found) == [[[1], [2, 3]], [], [[], [4]]]
    found = [parse_single_example(data, {"a": plain})["a"] for data in payloads]
    assert as_lists(found) == [[1, 2, 3], [], [4]]


@pytest.mark.parametrize(
    ("values", "lengths"),
    [([1, 2], [1]), ([1, 2], [3]), ([1], [2, -1]), ([], [1]), ([1], [2**63 - 1, 2])],
)
def test_row_lengths_that_do_not_add_up(values: list[int], lengths: list[int]) -> None:
    """An error, also where their sum would wrap; TensorFlow may give other rows."""
    spec = RaggedFeature("int64", "v", [RowLengths("n")])
    with pytest.raises(ExampleError, match="'a' must have row lengths of 0 or more"):
        parse_single_example(ints(v=values, n=lengths), {"a": spec})


def test_rows_of_equal_length_need_all_their_values() -> None:
    """A number of values that is no multiple names what it is."""
    spec = RaggedFeature("int64", partitions=[UniformRowLength(2)])
    with pytest.raises(ExampleError, match="rows of 2 items; found 3 items"):
        parse_single_example(ints(a=[1, 2, 3]), {"a": spec})


def test_partitions_are_checked_at_once() -> None:
    """Before any example is read."""
    with pytest.raises(SpecError, match="length must be an int of 1 or more"):
        UniformRowLength(0)
    wrong: Any = ["n"]
    with pytest.raises(SpecError, match="partitions must be RowLengths"):
        RaggedFeature("int64", partitions=wrong)


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
    description = {
        "vector": FixedLenFeature([2], "float32"),
        "words": VarLenFeature("string"),
        "ragged": RaggedFeature("int64", values, [RowLengths(lengths)]),
        "box/xmax": RaggedFeature("float32"),
        "pixels": FixedLenFeature([], "string"),
    }
    first, second = read_examples(tmp_path / "out", description)
    assert first["vector"].tolist() == [0.5, 1.0]
    assert first["words"].tolist() == [b"a", "글".encode()]
    assert as_lists(first["ragged"]) == [[1], [], [2, 3]]
    assert first["box/xmax"].tolist() == [0.5]
    assert np.frombuffer(first["pixels"], np.uint8).tolist() == [1, 2, 3]
    assert as_lists([second["words"], second["ragged"], second["box/xmax"]]) == [
        [],
        [],
        [],
    ]
