"""CIFAR and IDX files from end to end."""

import io
import pathlib
from typing import Any

import numpy as np
from PIL import Image

from tests.support.format_sources import job_digest
from tests.support.idx import digits, write
from tests.support.outputs import records
from tests.support.runs import convert

Array = np.ndarray[Any, Any]
Folder = pathlib.Path


def write_digits(root: Folder, *, packed: bool) -> tuple[Array, Array]:
    """Writes digits as MNIST's four files; returns those of the test split."""
    for split, count in (("train", 300), ("t10k", 90)):
        images, labels = digits(count, (8, 8))
        names = (f"{split}-images-idx3-ubyte", f"{split}-labels-idx1-ubyte")
        write(root, images, labels, names=names, packed=(packed, packed))
    return images, labels


def test_idx_as_png_with_class_names(tmp_path: Folder) -> None:
    """Of gzip, images become PNG, and a vocabulary names the classes by their ids."""
    images, labels = write_digits(tmp_path / "in", packed=True)
    names = "zero one two three four five six seven eight nine".split()
    (tmp_path / "names.txt").write_text("\n".join(names))
    named = ("--vocabulary", tmp_path / "names.txt")
    convert(
        tmp_path / "in", tmp_path / "out", "--no-shuffle", "--image-format=png", *named
    )
    found = records(tmp_path / "out", "test")
    assert [row["label"] for row in found] == [[label] for label in labels]
    for row, image in zip(found, images, strict=True):
        with Image.open(io.BytesIO(row["image"][0])) as decoded:
            assert np.array_equal(np.array(decoded), image)
    assert (tmp_path / "out/label.labels.txt").read_text().split() == names


def test_idx_labels_are_part_of_the_job(tmp_path: Folder) -> None:
    """A changed file of labels, of the same size, is another job and other records."""
    root = tmp_path / "in"
    _, written = write_digits(root, packed=False)
    before = job_digest(root, tmp_path / "out")
    path = root / "t10k-labels-idx1-ubyte"
    changed = (int(written[-1]) + 1) % 10
    path.write_bytes(path.read_bytes()[:-1] + bytes([changed]))
    assert job_digest(root, tmp_path / "out") != before
    convert(root, tmp_path / "out", "--no-shuffle")
    labels = [row["label"][0] for row in records(tmp_path / "out", "test")]
    assert labels == [*written[:-1], changed]
