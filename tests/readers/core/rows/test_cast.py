"""Tests of `unit/core/rows/test_cast.py` with TensorFlow."""

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.support.casting import RAGGED, found, tensor
from transforms.core.model import Reason


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint64", "float16", "float64"])
@pytest.mark.parametrize("shape", [(2, 3), (None, 3), (2, None), RAGGED])
def test_tensors_are_read_by_tensorflow(dtype: str, shape: Any) -> None:
    """Lists, flat lists, arrays, bytes and text give one and the same message."""
    tf = pytest.importorskip("tensorflow")
    array = np.arange(6).reshape(2, 3).astype(dtype)
    columns = [
        pa.array([array.tolist(), None]),
        pa.array([json.dumps(array.tolist()), None]),
        pa.FixedShapeTensorArray.from_numpy_ndarray(np.stack([array])),
    ]
    if shape != RAGGED:
        columns.append(pa.array([array.ravel().tolist(), None]))
        columns.append(pa.array([array.tobytes(), None]))
        columns.append(pa.array([array.tobytes()], pa.binary(array.nbytes)))
    for column in columns:
        message, *rest = found(column, tensor(dtype, shape, "proto"))
        parsed = tf.io.parse_tensor(message, dtype).numpy()
        assert np.array_equal(parsed, array)
        assert rest in ([], [None])
        (raw, *_) = found(column, tensor(dtype, shape))
        assert raw == (Reason.WRONG_SHAPE if shape == RAGGED else array.tobytes())
