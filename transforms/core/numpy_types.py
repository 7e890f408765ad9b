"""The NumPy types of Arrow's number types."""

import numpy as np
import pyarrow as pa

_NAMES = {"halffloat": "float16", "float": "float32", "double": "float64"}


def numpy_type(kind: pa.DataType) -> np.dtype:
    """Returns the dtype of a type of numbers or of bools.

    `DataType.to_pandas_dtype` would do, but imports pandas: a third of a second.

    Raises:
      TypeError: it is no type of numbers.
    """
    name = str(kind)
    return np.dtype(_NAMES.get(name, name))
