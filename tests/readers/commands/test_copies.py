"""Subsets and merged datasets, read by TFDS and by TensorFlow."""

import pathlib

import pytest

from tests.support.datasets import animals, write_dataset
from tests.support.runs import command

Folder = pathlib.Path


def ids_of(folder: Folder, split: str) -> list[int]:
    tfds = pytest.importorskip("tensorflow_datasets")
    rows = tfds.builder_from_directory(str(folder)).as_dataset(split=split)
    return sorted(int(row["id"].numpy()) for row in rows)


@pytest.mark.stress
def test_a_subset_with_an_empty_shard_is_read(tmp_path: Folder) -> None:
    """Shards keep their number, and TFDS reads the others."""
    write_dataset(tmp_path / "set", {"train": animals(5, 5, 5), "test": animals(2)})
    run = command("subset", tmp_path / "set", tmp_path / "out", "--where", "id < 7")
    assert run.code == 0, run.err
    (empty,) = (tmp_path / "out").glob("*-00002-of-00003")
    assert empty.stat().st_size == 0
    assert ids_of(tmp_path / "out", "train") == [*range(7)]
    assert ids_of(tmp_path / "out", "test") == [0, 1]


def test_a_merged_dataset_is_read(tmp_path: Folder) -> None:
    """With the names of its new shards, and the classes of both."""
    write_dataset(tmp_path / "one", {"train": animals(4, 1)})
    more = {"train": animals(3, start=50), "test": animals(2, start=70)}
    write_dataset(tmp_path / "two", more, name="others")
    out = tmp_path / "out"
    run = command("merge", tmp_path / "one", tmp_path / "two", out)
    assert run.code == 0, run.err
    assert ids_of(out, "train") == [*range(5), 50, 51, 52]
    assert ids_of(out, "test") == [70, 71]


def test_a_relabelled_subset_is_read(tmp_path: Folder) -> None:
    """TFDS knows the new names, and the ids of the old ones."""
    tfds = pytest.importorskip("tensorflow_datasets")
    write_dataset(tmp_path / "set", {"train": animals(6)})
    (tmp_path / "names").write_text("dog,hound\n")
    out = tmp_path / "out"
    run = command("subset", tmp_path / "set", out, "--relabel", tmp_path / "names")
    assert run.code == 0, run.err
    label = tfds.builder_from_directory(str(out)).info.features["animal"]
    assert sorted(label.names) == ["goat", "hound", "고양이"]
    rows = tfds.builder_from_directory(str(out)).as_dataset(split="train")
    found = {int(r["id"].numpy()): label.int2str(r["animal"].numpy()) for r in rows}
    assert [found[number] for number in range(3)] == ["고양이", "hound", "goat"]
