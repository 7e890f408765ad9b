"""CIFAR and IDX files from end to end."""

import gzip
import io
import pathlib
import struct
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.support.format_sources import job_digest
from tests.support.outputs import records
from tests.support.runs import convert

Array = np.ndarray[Any, Any]
Folder = pathlib.Path


def idx(array: Array) -> bytes:
    """Returns an array of bytes in IDX, as LeCun's page describes the format."""
    head = struct.pack(">HBB", 0, 8, array.ndim)
    sizes = struct.pack(f">{array.ndim}I", *array.shape)
    return head + sizes + array.astype(np.uint8).tobytes()


def write_digits(root: Folder, *, packed: bool) -> dict[str, tuple[Array, Array]]:
    """Writes scikit-learn's digits as MNIST's four files."""
    digits = pytest.importorskip("sklearn.datasets").load_digits()
    root.mkdir()
    splits = {"train": slice(0, 1500), "t10k": slice(1500, None)}
    made = {}
    for name, part in splits.items():
        images, labels = digits.images[part].astype(np.uint8), digits.target[part]
        made[{"t10k": "test"}.get(name, name)] = (images, labels)
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            data = idx(array)
            path = root / f"{name}-{kind}-ubyte{'.gz' if packed else ''}"
            path.write_bytes(gzip.compress(data, mtime=0) if packed else data)
    return made


def test_idx_as_png_with_class_names(tmp_path: Folder) -> None:
    """Of gzip, images become PNG, and a vocabulary names the classes by their ids."""
    made = write_digits(tmp_path / "in", packed=True)
    names = "zero one two three four five six seven eight nine".split()
    (tmp_path / "names.txt").write_text("\n".join(names))
    named = ("--vocabulary", tmp_path / "names.txt")
    convert(
        tmp_path / "in", tmp_path / "out", "--no-shuffle", "--image-format=png", *named
    )
    images, labels = made["test"]
    found = records(tmp_path / "out", "test")
    assert [row["label"] for row in found] == [[label] for label in labels]
    for row, image in zip(found, images, strict=True):
        with Image.open(io.BytesIO(row["image"][0])) as decoded:
            assert np.array_equal(np.array(decoded), image)
    assert (tmp_path / "out/label.labels.txt").read_text().split() == names


def test_idx_labels_are_part_of_the_job(tmp_path: Folder) -> None:
    """A changed file of labels, of the same size, is another job and other records."""
    root = tmp_path / "in"
    made = write_digits(root, packed=False)
    before = job_digest(root, tmp_path / "out")
    path = root / "t10k-labels-idx1-ubyte"
    path.write_bytes(path.read_bytes()[:-1] + b"\7")
    assert job_digest(root, tmp_path / "out") != before
    convert(root, tmp_path / "out", "--no-shuffle")
    labels = [row["label"][0] for row in records(tmp_path / "out", "test")]
    assert labels == [*made["test"][1][:-1], 7]
    assert labels[-1] != made["test"][1][-1]
