"""ReadDataset gives the rows that TFDS itself reads from a folder that it wrote."""

import pathlib
from typing import Any

import numpy as np
import pytest

from beam_tfrecord import ReadDataset, TFRecordError
from tests.readers.written import write_with_tfds
from tests.support.tfrecord_pipelines import given_by

Folder = pathlib.Path


def rows_of(*arguments: Any, **options: Any) -> list[Any]:
    found = given_by(ReadDataset(*arguments, **options))
    return sorted(found, key=lambda row: row["id"])


def test_a_folder_written_by_tfds(tmp_path: Folder) -> None:
    """Classes by name or id, texts, shapes, lists of lists; what it does not state too.

    A bounding box is not stated: it is read as it is stored, as a list of floats.
    """
    tfds = pytest.importorskip("tensorflow_datasets")
    kinds = tfds.features
    features = kinds.FeaturesDict(
        {
            "id": kinds.Scalar(np.int64),
            "label": kinds.ClassLabel(names=["zebra", "ant"]),
            "name": kinds.Text(),
            "grid": kinds.Tensor(shape=(2, 3), dtype=np.float32),
            "tags": kinds.Sequence(kinds.ClassLabel(names=["a", "b"])),
            "ok": kinds.Scalar(np.bool_),
            "place": kinds.BBoxFeature(),
            "inner": {"size": kinds.Scalar(np.int32)},
        }
    )
    rows = [
        {
            "id": number,
            "label": number % 2,
            "name": f"동물 {number}",
            "grid": np.arange(6, dtype=np.float32).reshape(2, 3) + number,
            "tags": [0, 1][: number % 3],
            "ok": number % 2 == 0,
            "place": kinds.BBox(0.0, 0.25, 0.5, 1.0),
            "inner": {"size": number},
        }
        for number in range(9)
    ]
    write_with_tfds(tmp_path, features, {"train": rows[:6], "test": rows[6:]})

    expected = [
        {
            "id": number,
            "label": ["zebra", "ant"][number % 2],
            "name": f"동물 {number}",
            "grid": (np.arange(6).reshape(2, 3) + number).tolist(),
            "tags": ["a", "b"][: number % 3],
            "ok": number % 2 == 0,
            "place": [0.0, 0.25, 0.5, 1.0],
            "inner/size": number,
        }
        for number in range(9)
    ]
    assert rows_of(tmp_path) == expected
    assert rows_of(tmp_path, split="test") == expected[6:]
    ids = rows_of(tmp_path, "train", ["id", "label", "tags"], labels="ids")
    assert ids == [{"id": n, "label": n % 2, "tags": [0, 1][: n % 3]} for n in range(6)]
    builder = tfds.builder_from_directory(str(tmp_path))
    read = tfds.as_numpy(builder.as_dataset(split="test"))
    assert sorted(row["name"].decode() for row in read) == [
        row["name"] for row in expected[6:]
    ]

    shard = min(tmp_path.glob("*train*tfrecord*"))
    size = int.from_bytes(shard.read_bytes()[:8], "little")
    shard.write_bytes(shard.read_bytes()[: size + 16])
    with pytest.raises(TFRecordError, match="states 4 records"):
        rows_of(tmp_path)
