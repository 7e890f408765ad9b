"""The parts of a condition, each a whole-array operation over Arrow columns.

Logic has three values, as in SQL: a comparison with a missing value is unknown (null);
`and`, `or` and `not` make of it what they can.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

# By name: a column in the form that `Condition.mask` gives it.
Columns = Mapping[str, pa.Array]

# An operator for the sides swapped.
SWAPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_COMPARE: Mapping[str, Callable[..., Any]] = {
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
    "==": pc.equal,
    "!=": pc.not_equal,
}
_LEAST, _GREATEST = -(2**63), 2**63 - 1


class Term(Protocol):
    """A condition, or a part of one."""

    def __call__(self, columns: Columns) -> pa.BooleanArray:
        """Tells for each row whether it holds; null where that is unknown."""


@dataclasses.dataclass(frozen=True, slots=True)
class Flag:
    """A feature that is true or false itself."""

    name: str

    def __call__(self, columns: Columns) -> pa.BooleanArray:
        """The feature itself."""
        return columns[self.name]


@dataclasses.dataclass(frozen=True, slots=True)
class IsMissing:
    """`name is None`."""

    name: str

    def __call__(self, columns: Columns) -> pa.BooleanArray:
        """Never unknown."""
        return pc.is_null(columns[self.name])


@dataclasses.dataclass(frozen=True, slots=True)
class Compared:
    """A feature compared with one value."""

    name: str
    operator: str
    value: Any

    def __call__(self, columns: Columns) -> pa.BooleanArray:
        """Unknown where the value is missing."""
        column = columns[self.name]
        return _COMPARE[self.operator](column, pa.scalar(self.value, column.type))


@dataclasses.dataclass(frozen=True, slots=True)
class Constant:
    """A comparison that has one result for all values: `3 < 10.5e30`."""

    name: str
    holds: bool

    def __call__(self, columns: Columns) -> pa.BooleanArray:
        """Unknown where the value is missing."""
        column = columns[self.name]
        found = pa.array(np.full(len(column), self.holds))
        return pc.if_else(pc.is_valid(column), found, pa.scalar(None, pa.bool_()))


@dataclasses.dataclass(frozen=True, slots=True)
class OneOf:
    """A feature that has one of some values."""

    name: str
    values: tuple[Any, ...]

    def __call__(self, columns: Columns) -> pa.BooleanArray:
        """Unknown where the value is missing."""
        column = columns[self.name]
        found = pc.is_in(column, value_set=pa.array(self.values, column.type))
        return pc.if_else(pc.is_valid(column), found, pa.scalar(None, pa.bool_()))


@dataclasses.dataclass(frozen=True, slots=True)
class ComparedColumns:
    """Two features compared with one another."""

    left: str
    operator: str
    right: str

    def __call__(self, columns: Columns) -> pa.BooleanArray:
        """Unknown where a value is missing."""
        left, right = columns[self.left], columns[self.right]
        if left.type == right.type:
            return _COMPARE[self.operator](left, right)
        if pa.types.is_integer(right.type):
            swapped = SWAPPED[self.operator]
            return ComparedColumns(self.right, swapped, self.left)(columns)
        found = _exactly_compared(_numbers(left), self.operator, _numbers(right))
        known = pc.and_(pc.is_valid(left), pc.is_valid(right))
        return pc.if_else(known, pa.array(found), pa.scalar(None, pa.bool_()))


@dataclasses.dataclass(frozen=True, slots=True)
class AllOf:
    """Terms joined by `and`."""

    terms: tuple[Term, ...]

    def __call__(self, columns: Columns) -> pa.BooleanArray:
        """False where any is; else unknown where any is."""
        masks = (term(columns) for term in self.terms)
        return functools.reduce(pc.and_kleene, masks)


@dataclasses.dataclass(frozen=True, slots=True)
class AnyOf:
    """Terms joined by `or`."""

    terms: tuple[Term, ...]

    def __call__(self, columns: Columns) -> pa.BooleanArray:
        """True where any is; else unknown where any is."""
        masks = (term(columns) for term in self.terms)
        return functools.reduce(pc.or_kleene, masks)


@dataclasses.dataclass(frozen=True, slots=True)
class Not:
    """A term turned round; unknown stays unknown."""

    term: Term

    def __call__(self, columns: Columns) -> pa.BooleanArray:
        """Unknown where the term is."""
        return pc.invert(self.term(columns))


def integer_comparison(name: str, op: str, value: int | float | Fraction) -> Term:
    """Returns a comparison of an int64 feature with any number, without rounding."""
    if isinstance(value, float) and math.isinf(value):
        floor = ceil = 2**64 if value > 0 else -(2**64)
        is_whole = False
    else:
        floor, ceil = math.floor(value), math.ceil(value)
        is_whole = floor == ceil and _LEAST <= floor <= _GREATEST
    if op in ("==", "!="):
        return Compared(name, op, floor) if is_whole else Constant(name, op == "!=")
    limit = floor if op in ("<=", ">") else ceil
    if _LEAST <= limit <= _GREATEST:
        return Compared(name, op, limit)
    return Constant(name, (limit > 0) == (op in ("<", "<=")))


def float32_comparison(name: str, op: str, value: int | float) -> Term:
    """Returns a comparison of a float32 feature with a number.

    A float is rounded to float32, as the stored values were; an int is exact.
    """
    with np.errstate(over="ignore"):
        rounded = float(np.float32(value))
    if isinstance(value, float) or rounded == value:
        return Compared(name, op, rounded)
    if op in ("==", "!="):
        return Constant(name, op == "!=")
    # No float32 is between the value and its rounding.
    if rounded > value:
        return Compared(name, "<" if op in ("<", "<=") else ">=", rounded)
    return Compared(name, "<=" if op in ("<", "<=") else ">", rounded)


def _numbers(column: pa.Array) -> npt.NDArray[Any]:
    return np.asarray(column.fill_null(0))


def _exactly_compared(
    integers: npt.NDArray[np.int64], op: str, floats: npt.NDArray[np.floating[Any]]
) -> npt.NDArray[np.bool_]:
    """Compares n int64 with n floats; an int64 is not rounded to a float."""
    wide = floats.astype(np.float64)
    nan = np.isnan(wide)
    # The least int64 that is not below the float; 2**63 is above all of them.
    up = np.ceil(np.where(nan, 0, wide))
    above, below = up >= 2.0**63, up < -(2.0**63)
    whole = np.where(above | below, 0, up).astype(np.int64)
    less = above | (~below & (integers < whole))
    equal = ~above & ~below & (integers == whole) & (up == wide)
    results = {
        "<": less,
        "<=": less | equal,
        "==": equal,
        "!=": ~equal,
        ">": ~(less | equal),
        ">=": ~less,
    }
    return np.where(nan, op == "!=", results[op])
