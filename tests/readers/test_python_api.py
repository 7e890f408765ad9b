"""`convert` of Python data, as TensorFlow and TFDS read the records."""

import pathlib
from typing import Any

import numpy as np
import PIL.Image
import pyarrow as pa
import pytest

import beam_pipeline
from tests.support.outputs import rows
from tests.support.python_sources import pixels

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


STACK = np.stack([pixels(index) for index in range(5)])
TENSORS = pa.FixedShapeTensorArray.from_numpy_ndarray(STACK)
DECLARED = {"features": {"image": {"kind": "image"}}}


@pytest.mark.parametrize(
    ("source", "declared"),
    [
        (Shapes(lambda i: PIL.Image.fromarray(pixels(i))), {}),
        (Shapes(lambda i: Tensor(pixels(i))), {"image_columns": ["image"]}),
        ({"image": STACK, "label": range(5)}, DECLARED),
        (pa.table({"image": TENSORS, "label": range(5)}), DECLARED),
    ],
    ids=["pillow", "torch", "dict", "arrow"],
)
def test_images_are_stored_without_a_loss(
    tmp_path: Folder, source: Any, declared: dict[str, Any]
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
