"""Subsets and merged datasets, read by TFDS and by TensorFlow."""

import pathlib

import pytest

from tests.support.datasets import animals, write_dataset
from tests.support.runs import done

Folder = pathlib.Path


def test_a_subset_is_read(tmp_path: Folder) -> None:
    """TFDS knows the names of its classes, and their ids."""
    tfds = pytest.importorskip("tensorflow_datasets")
    write_dataset(tmp_path / "set", {"train": animals(6)})
    out = tmp_path / "out"
    done("subset", tmp_path / "set", out, "--where", "id < 3")
    label = tfds.builder_from_directory(str(out)).info.features["animal"]
    assert sorted(label.names) == ["dog", "goat", "고양이"]
    rows = tfds.builder_from_directory(str(out)).as_dataset(split="train")
    found = {int(r["id"].numpy()): label.int2str(r["animal"].numpy()) for r in rows}
    assert [found[number] for number in range(3)] == ["고양이", "dog", "goat"]
