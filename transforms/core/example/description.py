"""What to read from an Example, in the terms of `tf.io.parse_example`."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from transforms.errors import SpecError

__all__ = [
    "TYPES",
    "DescribedFeature",
    "Description",
    "FixedLenFeature",
    "RaggedFeature",
    "RowLengths",
    "UniformRowLength",
    "VarLenFeature",
]

# dtype name -> (field of the message that holds the list, type of the array).
TYPES: dict[str, tuple[str, npt.DTypeLike]] = {
    "int64": ("int64_list", np.int64),
    "float32": ("float_list", np.float32),
    "string": ("bytes_list", object),
}
_PYTHON_TYPES: dict[Any, str] = {
    int: "int64",
    float: "float32",
    bytes: "string",
    str: "string",
}


def _dtype_name(dtype: Any) -> str:
    """Returns "int64", "float32" or "string" for any spelling of a type."""
    if isinstance(dtype, type) and dtype in _PYTHON_TYPES:
        return _PYTHON_TYPES[dtype]
    # TensorFlow's and NumPy's dtypes have a name, NumPy's scalar types have none.
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", None)
    if name is None and isinstance(dtype, type) and issubclass(dtype, np.generic):
        name = np.dtype(dtype).name
    if name not in TYPES:
        raise SpecError(f"dtype must be int64, float32 or string; found {dtype!r}")
    return str(name)


class DescribedFeature:
    """How to read one key: the base of the kinds, and the type of a description."""

    dtype: Any


@dataclasses.dataclass(frozen=True)
class FixedLenFeature(DescribedFeature):
    """A feature that has the same shape in every record.

    Attributes:
      shape: sizes, e.g. () for one value; a single int means one dimension.
      dtype: "int64", "float32" or "string"; or a NumPy, Python or TensorFlow type.
      default_value: values to return where the key is absent; None: that is an error.

    Raises:
      SpecError: shape, type and default do not match.
    """

    shape: Sequence[int] | int
    dtype: Any
    default_value: Any = None

    def __post_init__(self) -> None:
        shape = (self.shape,) if isinstance(self.shape, int) else self.shape
        if shape is None or not all(isinstance(n, int) and n >= 0 for n in shape):
            raise SpecError(
                f"shape must be known sizes of 0 or more, as () or (2, 3); found "
                f"{self.shape!r}. Lists of varying length are VarLenFeature."
            )
        object.__setattr__(self, "shape", tuple(shape))
        object.__setattr__(self, "dtype", _dtype_name(self.dtype))
        if self.default_value is not None:
            default = _default(self.default_value, self.dtype, tuple(shape))
            object.__setattr__(self, "default_value", default)


@dataclasses.dataclass(frozen=True)
class VarLenFeature(DescribedFeature):
    """A list of any length; an absent one is empty.

    Attributes:
      dtype: as in `FixedLenFeature`.
    """

    dtype: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", _dtype_name(self.dtype))


@dataclasses.dataclass(frozen=True)
class RowLengths:
    """A key whose int64 values say how many items each row has."""

    key: str


@dataclasses.dataclass(frozen=True)
class UniformRowLength:
    """How many items every row has, 1 or more."""

    length: int

    def __post_init__(self) -> None:
        if not isinstance(self.length, int) or self.length < 1:
            raise SpecError(
                f"length must be an int of 1 or more; found {self.length!r}"
            )


@dataclasses.dataclass(frozen=True)
class RaggedFeature(DescribedFeature):
    """A list of any length, or a list of lists; what is absent is empty.

        RaggedFeature("float32", "x/ragged_flat_values",
                      [RowLengths("x/ragged_row_lengths_0")])

    Attributes:
      dtype: as in `FixedLenFeature`.
      value_key: the key of the values; the feature's own name by default.
      partitions: how values are grouped into rows, the outermost first: `RowLengths`
        and `UniformRowLength`.

    Raises:
      SpecError: the type is unknown, or a partition is neither of the two.
    """

    dtype: Any
    value_key: str | None = None
    partitions: Sequence[RowLengths | UniformRowLength] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", _dtype_name(self.dtype))
        object.__setattr__(self, "partitions", tuple(self.partitions))
        for partition in self.partitions:
            if not isinstance(partition, RowLengths | UniformRowLength):
                raise SpecError(
                    f"partitions must be RowLengths or UniformRowLength; found "
                    f"{partition!r}"
                )


Description = Mapping[str, DescribedFeature]


def _default(value: Any, dtype: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Returns a default as an array of that type and shape."""
    try:
        # An array of objects keeps the type of each value, in any nesting.
        given = np.asarray(value, dtype=object).reshape(-1).tolist()
    except ValueError as error:
        raise SpecError(f"default_value must not be ragged; found {value!r}") from error
    if len(given) != math.prod(shape):
        raise SpecError(
            f"default_value must have {math.prod(shape):,} values for the shape "
            f"{list(shape)}; found {len(given):,}. A single value is not repeated."
        )
    array = np.empty(len(given), TYPES[dtype][1])
    for index, item in enumerate(given):
        array[index] = _default_item(item, dtype)
    return array.reshape(shape)


def _default_item(item: Any, dtype: str) -> Any:
    if dtype == "string":
        if isinstance(item, str):
            return item.encode()
        if isinstance(item, bytes):
            return bytes(item)
    elif dtype == "float32":
        if isinstance(item, bool | int | float | np.number | np.bool_):
            with np.errstate(over="ignore"):
                return np.float32(item)
    elif (
        isinstance(item, bool | int | np.integer | np.bool_)
        and -(2**63) <= int(item) < 2**63
    ):
        return int(item)
    raise SpecError(f"default_value must be of type {dtype}; found {item!r}")
