"""Reading the examples of files and datasets without TensorFlow."""

import pathlib
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import datasets
from tests.support.datasets import animal, example, write_records
from tests.support.examples import ints
from tests.support.sequences import (
    RANKING,
    SEQUENCE,
    features,
    field,
    ranking,
    sequence,
)
from transforms.codec.encode import encode_example
from transforms.core.example.decoder import StepTypeError, decode_records, parse_record
from transforms.core.example.messages import read_examples, replaced_ids
from transforms.core.schema import Feature, Kind
from transforms.core.tfrecord.frame import frame
from transforms.core.tfrecord.reader import PayloadBatch
from transforms.errors import (
    BeamTFRecordError,
    ExampleError,
    SourceError,
    TFRecordError,
)
from transforms.formats.tfrecord_files.columns import any_example, decode
from transforms.formats.tfrecord_files.records import learn


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


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (SEQUENCE, {"id": [7], "lists/x": [[1], [2, 3]]}),
        (RANKING, {"lists/d": [[2]], "q": [1]}),
        (
            sequence({"a": [1.5], "none": None}, {"b": [[1], None, []], "c": []}),
            {"a": [1.5], "lists/b": [[1], [], []], "lists/c": [], "none": []},
        ),
        (
            ranking({"q": [b"?"]}, [{"d": [1]}, {}, {"d": [2, 3], "e": None}]),
            {"lists/d": [[1], [], [2, 3]], "lists/e": [[], [], []], "q": [b"?"]},
        ),
        # Of two lists of one name the last one counts, as in every map.
        (SEQUENCE + sequence({}, {"x": [[9]]}), {"id": [7], "lists/x": [[9]]}),
        (field(2, b""), {}),
        # An Example may have such a feature.
        (field(1, features({"lists/a": [1]})), {"lists/a": [1]}),
    ],
)
def test_features_and_lists(data: bytes, expected: dict[str, Any]) -> None:
    """A document is a step; what a step lacks is a step of no values."""
    assert parse_record(data) == expected


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (sequence({}, {"x": [[1], [1.5]]}), StepTypeError),
        (ranking({}, [{"d": [1]}, {"d": [b"1"]}]), StepTypeError),
        (sequence({"lists/x": [1]}, {"x": [[1]]}), ExampleError),
        (ranking({"lists/x": [1]}, [{"x": [1]}]), ExampleError),
        (SEQUENCE + field(3, b"more"), ExampleError),
    ],
)
def test_what_would_be_lost_is_an_error(data: bytes, error: type[Exception]) -> None:
    """Two types in a list, a context feature called like a list, other fields."""
    with pytest.raises(error):
        parse_record(data)


def test_columns_of_several_records() -> None:
    """A list of each record is a list of steps; absent ones are null."""
    records = [
        sequence({"n": [1]}, {"x": [[1], [2, 3]], "u": [None]}),
        sequence({}, {"y": [[b"a"]]}),
        sequence({}, {"x": []}),
    ]
    found = decode_records(PayloadBatch.of(records * 7)).to_pydict()
    assert found["n"] == [1, None, None] * 7
    assert found["lists/x"] == [[[1], [2, 3]], None, []] * 7
    assert found["lists/y"] == [None, [[b"a"]], None] * 7
    assert found["lists/u"] == [None] * 21


@given(st.sampled_from([SEQUENCE, RANKING]), st.data())
def test_damaged_records_are_errors(record: bytes, data: st.DataObject) -> None:
    """Cut, flipped and joined bytes: rows, or the error of a record, and no other."""
    changed = bytearray(record)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(changed) - 1))
        changed[place] = data.draw(st.integers(0, 255))
    some = bytes(changed[: data.draw(st.integers(0, len(changed)))])
    for damaged in (bytes(changed), some, some + record):
        try:
            alone: object = parse_record(damaged)
        except ExampleError:
            alone = None
        found = learn(PayloadBatch.of([record] * 20 + [damaged]))
        assert found.unread or alone is not None
        refused = decode(
            PayloadBatch.of([damaged]), {"id": pa.int64()}, any_example
        ).refused
        assert alone is not None or [place for place, _, _ in refused] == [0]


IDS = st.dictionaries(st.integers(0, 300), st.integers(0, 300), max_size=5)


@given(st.integers(0, 300), IDS)
def test_only_the_id_changes(number: int, ids: dict[int, int]) -> None:
    """The Example is what writing the row with the new id gives."""
    row = {**animal(7), "animal": number}
    new = {**row, "animal": ids.get(number, number)}
    assert replaced_ids(encode_example(row), "animal", ids) == encode_example(new)


def test_the_order_of_the_features_stays() -> None:
    """Also where a name begins another: protobuf sorts the longer one first."""
    row = {"label": 1, "label_name": "a", "": 2, "é": 3}
    found = replaced_ids(encode_example(row), "label", {1: 5})
    assert found == encode_example({**row, "label": 5})


def test_a_record_without_the_feature_stays() -> None:
    """As does one whose id is none of those that change."""
    record = example({"id": 1})
    assert replaced_ids(record, "animal", {1: 2}) is record
    assert replaced_ids(record, "id", {5: 2}) is record
