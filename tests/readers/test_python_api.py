"""`convert` of Python data, as TensorFlow and TFDS read the records."""

import pathlib
from typing import Any

import numpy as np
import pandas as pd
import PIL.Image
import pyarrow as pa
import pytest

import beam_pipeline
from tests.support.outputs import rows
from tests.support.python_sources import features, pixels, w1

Folder = pathlib.Path


class Shapes:
    """A map-style dataset, as PyTorch has them: no `__iter__`, no base class."""

    def __init__(self, make: Any) -> None:
        self._make = make

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self._make(index), index


class Tensor:
    """What a tensor of PyTorch looks like."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array
        self.shape = array.shape

    def detach(self) -> "Tensor":
        return self

    def cpu(self) -> "Tensor":
        return self

    def numpy(self) -> np.ndarray:
        return self._array


class TestImages:
    @pytest.mark.parametrize(
        ("source", "declared"),
        [
            (Shapes(lambda i: PIL.Image.fromarray(pixels(i))), {}),
            (Shapes(lambda i: Tensor(pixels(i))), {"image_columns": ["image"]}),
            (
                {"image": np.stack([pixels(i) for i in range(5)]), "label": range(5)},
                {"features": {"image": {"kind": "image"}}},
            ),
            (
                pa.table(
                    {
                        "image": pa.FixedShapeTensorArray.from_numpy_ndarray(
                            np.stack([pixels(i) for i in range(5)])
                        ),
                        "label": range(5),
                    }
                ),
                {"features": {"image": {"kind": "image"}}},
            ),
        ],
        ids=["pillow", "torch", "dict", "arrow"],
    )
    def test_images_are_stored_without_a_loss(
        self, tmp_path: Folder, source: Any, declared: dict[str, Any]
    ) -> None:
        """TensorFlow decodes the very pixels, with their label."""
        tf = pytest.importorskip("tensorflow")
        beam_pipeline.convert(source, tmp_path / "o", **declared)
        found = rows(tmp_path / "o")
        assert sorted(row["label"] for row in found) == [0, 1, 2, 3, 4]
        for row in found:
            decoded = tf.io.decode_image(row["image"]).numpy()
            assert np.array_equal(decoded, pixels(row["label"]))
            assert (row["height"], row["width"]) == (6, 7)

    def test_arrays_are_tensors_unless_declared(self, tmp_path: Folder) -> None:
        """(n, h, w, c) is stored raw, with shape and dtype in the schema (W3)."""
        tf = pytest.importorskip("tensorflow")
        images = np.stack([pixels(i) for i in range(4)])
        beam_pipeline.convert({"x": images, "n": range(4)}, tmp_path / "o")
        assert features(tmp_path / "o")["x"]["shape"] == [6, 7, 3]
        for row in rows(tmp_path / "o"):
            decoded = tf.reshape(tf.io.decode_raw(row["x"], tf.uint8), (6, 7, 3))
            assert np.array_equal(decoded.numpy(), images[row["n"]])

    def test_serialized_tensors(self, tmp_path: Folder) -> None:
        """`encoding: proto` gives what `tf.io.parse_tensor` reads, bools too (W3)."""
        tf = pytest.importorskip("tensorflow")
        flags = np.arange(24).reshape(2, 3, 4) % 3 == 0
        beam_pipeline.convert(
            {"x": flags},
            tmp_path / "o",
            shuffle=False,
            features={"x": {"encoding": "proto"}},
        )
        found = [
            tf.io.parse_tensor(r["x"], tf.bool).numpy() for r in rows(tmp_path / "o")
        ]
        assert np.array_equal(np.stack(found), flags)


class TestResult:
    def test_tfds_reads_it(self, tmp_path: Folder) -> None:
        """`tfds.builder_from_directory` gives the rows of a DataFrame."""
        tfds = pytest.importorskip("tensorflow_datasets")
        frame = pd.DataFrame(w1(40))
        out = tmp_path / "o"
        beam_pipeline.convert(frame, out, name="rows", shuffle=False)
        builder = tfds.builder_from_directory(str(out))
        found = list(tfds.as_numpy(builder.as_dataset("train")))
        assert len(found) == 40
        for row, wanted in zip(found, frame.to_dict("records"), strict=True):
            assert row["feature0"] == wanted["feature0"]
            assert row["feature1"] == wanted["feature1"]
            assert row["feature2"] == wanted["feature2"].encode()
            assert row["feature3"] == np.float32(wanted["feature3"])
