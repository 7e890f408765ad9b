"""Columns cast to a feature, and the values that come out."""

from typing import Any

import numpy as np
import pyarrow as pa

from transforms.core.rows.conform import cast
from transforms.core.schema import Feature, Kind, row_type

ANY, RAGGED = (None,), (None, None)


def found(column: Any, feature: Feature) -> list[Any]:
    """Returns the result for each cell: a value, None if missing, or a Reason."""
    column = column if isinstance(column, pa.Array) else pa.array(column)
    result = cast(column, feature)
    assert result.values.type == row_type(feature)
    assert len(result.values) == len(column)
    result.values.validate(full=True)
    out = result.values.to_pylist()
    if result.bad is not None:
        assert result.bad.dtype == np.bool_
        assert result.bad.any()
        for row in np.flatnonzero(result.bad).tolist():
            assert out[row] is None
            out[row] = result.reason_at(row)
    return out


def tensor(dtype: str, shape: Any, encoding: str = "raw") -> Feature:
    return Feature("x", Kind.TENSOR, shape=shape, dtype=dtype, encoding=encoding)
