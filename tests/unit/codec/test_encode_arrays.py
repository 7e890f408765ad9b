"""NumPy arrays to Examples: every type, byte order, stride and shape, or an error."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as numbers

from tests.support.examples import message
from transforms.codec.examples import decode_example, encode_example
from transforms.errors import EncodingError

Array = npt.NDArray[Any]

dtypes = st.one_of(
    numbers.boolean_dtypes(),
    numbers.integer_dtypes(endianness="?"),
    numbers.unsigned_integer_dtypes(endianness="?"),
    numbers.floating_dtypes(endianness="?"),
)
shapes = numbers.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)


@st.composite
def arrays(draw: st.DrawFn) -> Array:
    """Draws arrays whose memory is in any order, with gaps and backwards."""
    found: Array = draw(numbers.arrays(draw(dtypes), shapes))
    if found.ndim and draw(st.booleans()):
        found = found[:: draw(st.sampled_from([-2, -1, 2]))]
    return found.T if draw(st.booleans()) else found


def expected(array: Array) -> tuple[str, list[Any]] | None:
    """Returns what protobuf must find, item by item; None for what must be refused."""
    items = array.ravel().tolist()
    if array.dtype.kind == "f":
        finite = [item for item in items if np.isfinite(item)]
        with np.errstate(over="ignore"):
            if not np.isfinite(np.array(finite, np.float32)).all():
                return None
            return "float_list", np.array(items, np.float32).tolist()
    if any(not -(2**63) <= item < 2**63 for item in items):
        return None
    return "int64_list", [int(item) for item in items]


@given(arrays())
def test_arrays_equal_protobuf(array: Array) -> None:
    """Stored value by value, row by row; what does not fit is never wrapped."""
    wanted = expected(array)
    if wanted is None:
        with pytest.raises(EncodingError, match=r"row 1 .*feature 'x'"):
            encode_example({"x": array})
        return
    data = encode_example({"x": array})
    kind, found = message(data)["x"]
    assert kind == wanted[0]
    np.testing.assert_array_equal(found, wanted[1])
    # No zero has lost its sign.
    np.testing.assert_array_equal(np.signbit(found), np.signbit(wanted[1]))
    back = decode_example(data)["x"]
    np.testing.assert_array_equal(np.ravel(back), wanted[1])
