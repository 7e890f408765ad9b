"""Examples, the features asked for, and the arrays that must come out."""

from typing import Any

import numpy as np

from tests.support.examples import Values, same

ABSENT: Values = {}
UNTYPED: Values = {"a": ("", [])}
NO_INTS: Values = {"a": ("int64_list", [])}
NO_FLOATS: Values = {"a": ("float_list", [])}
ONE: Values = {"a": ("int64_list", [1])}
TWO: Values = {"a": ("int64_list", [1, 2])}
FOUR: Values = {"a": ("int64_list", [1, 2, 3, 4])}
FLOATS: Values = {"a": ("float_list", [0.5, -0.0])}
BYTES: Values = {"a": ("bytes_list", [b"\xff\0"])}


# Shape (None: varying), dtype, default.
Wanted = tuple[Any, str, Any]
NO_DEFAULTS: list[Any] = [None, []]
BAD_INTS: list[Any] = [1.0, 1.5, "1", 2**63, -(2**63), np.int32(3)]


CASES: list[tuple[Values, Wanted]] = [
    *[
        (values, ((), "int64", default))
        for values in (ABSENT, UNTYPED, NO_INTS, NO_FLOATS, ONE, TWO, FLOATS, BYTES)
        for default in (None, -1)
    ],
    *[
        (values, ([2], "int64", default))
        for values in (ABSENT, TWO, FOUR)
        for default in (None, 7, [7], [7, 8], [[7, 8]], [7, 8, 9])
    ],
    *[
        (values, ([2, 2], "int64", default))
        for values in (ABSENT, FOUR)
        for default in (None, 5, [[5]], [7, 8], [7, 8, 9, 10], [[7, 8], [9, 10]])
    ],
    *[(ABSENT, ((), "int64", default)) for default in ([5], [[5]], [5, 6], True)],
    *[(ABSENT, ((), "int64", default)) for default in BAD_INTS],
    *[(ABSENT, ((), "float32", default)) for default in (1, 0.1, True, [2.5])],
    *[(ABSENT, ((), "float32", default)) for default in (np.float64(1.1), "x")],
    *[(ABSENT, ((), "string", default)) for default in ("é", b"x", "", 1)],
    (ABSENT, ((), "string", ["a"])),
    *[(ABSENT, ([2], "string", default)) for default in (["a", "bcd"], "ab")],
    *[
        (values, ([0], "int64", default))
        for values in (ABSENT, UNTYPED, NO_INTS, NO_FLOATS, ONE)
        for default in NO_DEFAULTS
    ],
    *[(TWO, (shape, "int64", None)) for shape in (2, [1, 2], [2, 1], None, [None])],
    *[(TWO, ([-1], "int64", None)), (FLOATS, ([2], "float32", None))],
    *[(BYTES, (shape, "string", None)) for shape in ((), [1], [1, 1])],
    *[(ONE, ((), dtype, None)) for dtype in ("int32", "bool", "float32")],
    *[(FLOATS, ([2], dtype, None)) for dtype in ("float64", "int64", "string")],
]


VARYING: list[tuple[Values, str]] = [
    (values, dtype)
    for values in (ABSENT, UNTYPED, NO_INTS, NO_FLOATS, TWO, FLOATS, BYTES)
    for dtype in ("int64", "float32", "string")
]


def assert_same_array(found: Any, expected: Any) -> None:
    assert np.shape(found) == np.shape(expected)
    if isinstance(expected, bytes):
        assert found == expected
        return
    assert found.dtype == expected.dtype
    assert same(found.tolist(), expected.tolist())


RAGGED: list[Values] = [
    {},
    {"v": ("", []), "n": ("", [])},
    {"v": ("int64_list", []), "n": ("int64_list", [])},
    {"v": ("int64_list", []), "n": ("int64_list", [0, 0])},
    {"v": ("int64_list", [1, 2, 3, 4]), "n": ("int64_list", [2, 0, 1, 1])},
    {"v": ("int64_list", [1, 2, 3, 4]), "n": ("int64_list", [4]), "m": TWO["a"]},
    {"v": ("int64_list", [5]), "n": ("float_list", [1.0])},
    {"v": ("float_list", [5.0]), "n": ("int64_list", [1])},
]


PARTITIONS: list[list[tuple[str, Any]]] = [
    [],
    [("RowLengths", "n")],
    [("UniformRowLength", 2)],
    [("UniformRowLength", 2), ("UniformRowLength", 1)],
    [("UniformRowLength", 2), ("RowLengths", "n")],
    [("RowLengths", "m"), ("RowLengths", "n")],
]


def as_lists(value: Any) -> Any:
    """Arrays, in lists or not, and ragged tensors as plain lists."""
    if hasattr(value, "to_list"):
        return value.to_list()
    value = value.numpy() if hasattr(value, "numpy") else value
    if isinstance(value, list):
        return [as_lists(item) for item in value]
    return value.tolist()
