"""Views of Arrow's arrays where null slots hold anything."""

import numpy as np
import pyarrow as pa

from transforms.core.arrays import rows_with, values_and_rows


def test_values_that_a_null_list_hides() -> None:
    """They are of no row: what is flattened and whose it is have one length."""
    lists = pa.ListArray.from_arrays([0, 1, 3, 4], [7, 8, 8, 9])
    validity = pa.py_buffer(bytes([0b101]))
    hiding = pa.Array.from_buffers(
        lists.type, 3, [validity, lists.buffers()[1]], children=[lists.values]
    )
    values, rows = values_and_rows(hiding)
    assert (values.to_pylist(), rows.tolist()) == ([7, 9], [0, 2])
    assert rows_with(hiding, np.array([False, True])).tolist() == [False, False, True]
