"""Datasets that are converted again: other shards, splits, images, and merged."""

import pathlib
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.testing.util import assert_that, equal_to

from beam_tfrecord import ExampleError, InputError, ReadDataset, open_dataset
from tests.support.datasets import example, write_records
from tests.support.format_sources import kinds_of, photos, sorted_messages
from tests.support.outputs import account, records, split_sizes
from tests.support.runs import command, convert, refused
from tests.support.sequences import RANKING, SEQUENCE, ranking, sequence
from tests.support.sources import write_files

Folder = pathlib.Path
TOLERANT = ("--max-reject-rate", "1")


@pytest.fixture(scope="module")
def pets(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A dataset of this program: images in two splits, classes, a reject."""
    root = tmp_path_factory.mktemp("pets")
    bad = {"train/cat/bad.png": b"no image"}
    write_files(root / "in", photos() | bad)
    convert(root / "in", root / "pets", *TOLERANT)
    assert (root / "pets/rejects.jsonl").exists()
    return root / "pets"


def test_reshard_keeps_records_and_metadata(pets: Folder, tmp_path: Folder) -> None:
    """More shards, the same messages, splits, classes and kinds; sidecars are none."""
    convert(pets, tmp_path / "out", "--shards", "3")
    for split in ("train", "test"):
        wanted = sorted_messages(pets, split)
        assert sorted_messages(tmp_path / "out", split) == wanted
    assert kinds_of(tmp_path / "out") == kinds_of(pets)
    found = account(tmp_path / "out")
    assert (found["read"], found["written"]) == (12, 12)
    assert (found["rejected"], found["skipped"]) == ({}, {})
    assert (tmp_path / "out/pets-train.tfrecord-00001-of-00003").exists()


@pytest.mark.parametrize(
    "pattern", ["{}/a.tfrec", "{}.tfrecord", "{}-00000-of-00001.tfrecord"]
)
def test_splits_of_files_of_others(pattern: str, tmp_path: Folder) -> None:
    """Folders and names say them, as of other tables."""
    for number, split in enumerate(("train", "val", "test"), start=1):
        path = tmp_path / "in" / pattern.format(split)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_records(path, [example({"id": n}) for n in range(number)])
    convert(tmp_path / "in", tmp_path / "out")
    assert split_sizes(tmp_path / "out") == {"train": 1, "validation": 2, "test": 3}


def test_split_again_and_without_a_column(pets: Folder, tmp_path: Folder) -> None:
    """Shares take the place of the old splits; --drop leaves one feature out."""
    options = ("--splits", "a=0.5,b=0.5", "--drop", "filename,image")
    convert(pets, tmp_path / "out", *options)
    assert set(split_sizes(tmp_path / "out")) == {"a", "b"}
    wanted = records(pets)
    for row in wanted:
        del row["filename"], row["image"]
    order = lambda row: sorted(row.items())  # noqa: E731
    assert sorted(records(tmp_path / "out"), key=order) == sorted(wanted, key=order)
    # What was read off the images stays, as numbers.
    assert "derived" not in kinds_of(tmp_path / "out")["height"]


@pytest.mark.parametrize(
    ("record", "row"),
    [
        (SEQUENCE, {"id": 7, "lists/x": [[1], [2, 3]]}),
        (RANKING, {"lists/d": [2], "q": 1}),
        (sequence({"id": [7]}, {}), {"id": 7}),
        (ranking({"q": [1]}, []), {"q": 1}),
    ],
)
def test_other_messages(
    record: bytes, row: dict[str, object], tmp_path: Folder
) -> None:
    """SequenceExamples and lists of Examples: the same rows in all that reads them.

    Also where no record has a list or a document.
    """
    path, out = tmp_path / "a.tfrecord", tmp_path / "out"
    write_records(path, [record] * 30)
    for words in (["spec"], ["head"], ["verify"], ["index"]):
        assert command(words[0], path, *words[1:]).code == 0
    convert(path, out)
    assert command("merge", path, path, tmp_path / "merged").code == 2
    for rows in (open_dataset(path)[""], open_dataset(out)["train"]):
        found = [{n: _plain(v) for n, v in each.items()} for each in rows]
        assert found == [row] * 30
    shapes = {n: list(f.shape) for n, f in open_dataset(path).features.items()}
    with beam.Pipeline() as pipeline:
        features = {n: {"kind": "int64", "shape": s} for n, s in shapes.items()}
        read = pipeline | ReadDataset(path, features=features)
        assert_that(read, equal_to([row] * 30))


CALLED_LIKE_A_LIST = sequence({"lists/x": [1]}, {"x": [[1]]})
OF_TWO_TYPES = sequence({"id": [1]}, {"x": [[1], [1.0]]})


@pytest.mark.parametrize("good", [0, 5])
@pytest.mark.parametrize(
    ("bad", "kind", "why"),
    [
        (CALLED_LIKE_A_LIST, InputError, "no context feature"),
        (OF_TWO_TYPES, InputError, "the steps of 'lists/x' must be of one type"),
        (b"text", ExampleError, "4 bytes are not"),
    ],
)
def test_what_no_reader_takes(
    bad: bytes, kind: type[Exception], why: str, good: int, tmp_path: Folder
) -> None:
    """It is an error that says why and where, whether rows come before it or not."""
    path = tmp_path / "a.tfrecord"
    write_records(path, [SEQUENCE] * good + [bad] * 3)
    assert command("head", path).code == 0
    assert why in refused(3 if good else 4, path, tmp_path / "out")
    where = rf"a\.tfrecord: record {good}: {why}"
    rows = open_dataset(path)[""]
    with pytest.raises(kind, match=where):
        list(rows)
    with pytest.raises(kind, match=where):
        rows[good]
    with pytest.raises(kind, match=where):
        list(rows.select([]).batches(2))
    where = rf"a\.tfrecord: record {good} at byte .*: {why}"
    with pytest.raises(kind, match=where), beam.Pipeline() as pipeline:
        pipeline | ReadDataset(path, features={"id": "int64"})


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value.tolist() if hasattr(value, "tolist") else value
