"""Conditions over columns of records, and which records meet one.

A condition is made of terms, each a whole-array operation over Arrow columns. Logic has
three values, as in SQL: a comparison with a missing value is unknown (null); `and`,
`or` and `not` make of it what they can. `transforms.reading.condition_text` makes
conditions of texts.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.schema import Feature, Kind
from transforms.core.tfrecord.reader import PayloadBatch
from transforms.errors import ExampleError
from transforms.reading.catalogue import CatalogueRows
from transforms.reading.positions import Longs
from transforms.reading.records import Records
from transforms.reading.rows import by_id, first_misfit

# By name: a column in the form that `Condition.mask` gives it.
Columns = Mapping[str, pa.Array]
Term = Callable[[Columns], pa.BooleanArray]
"""Tells for each row whether a part of a condition holds; null where it is unknown."""

SWAPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
"""An operator for the sides swapped."""
_COMPARE: Mapping[str, Callable[..., Any]] = {
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
    "==": pc.equal,
    "!=": pc.not_equal,
}
_LEAST, _GREATEST = -(2**63), 2**63 - 1
LITERALS = {
    Kind.INT64: "a number",
    Kind.FLOAT: "a number",
    Kind.BOOL: "True or False",
    Kind.TEXT: "text in quotes",
    Kind.LABEL: "a class name in quotes or a class id",
    Kind.TIMESTAMP: "text in ISO 8601, as '2024-05-01T12:00:00Z'",
}
"""Kinds whose values can be compared with a literal, and how one is written."""
_TOGETHER = 4_096


@dataclasses.dataclass(frozen=True, slots=True)
class Condition:
    """A condition that was parsed and checked.

    Attributes:
      text: as the user wrote it.
      columns: the features that it needs, each once.
    """

    text: str
    columns: tuple[str, ...]
    _features: Mapping[str, Feature]
    _classes: Mapping[str, Sequence[str]]
    _term: Term

    def mask(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Tells for each of n rows whether the condition holds.

        Args:
          batch: has the columns; labels as names, as a dictionary of names, or as ids,
            timestamps as such or as int64 in the feature's unit.

        Returns:
          n values; null where a missing value leaves it unknown.
        """
        columns = {name: self._column(batch, name) for name in self.columns}
        return self._term(columns)

    def _column(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        feature, column = self._features[name], batch.column(name)
        if not is_single(feature):
            return column
        if feature.kind is Kind.LABEL:
            return _class_ids(column, self._classes.get(name, ()))
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if feature.kind is Kind.TIMESTAMP and pa.types.is_timestamp(column.type):
            return column.cast(pa.timestamp(feature.unit or "s")).cast(pa.int64())
        if feature.kind is Kind.BOOL:
            return column.cast(pa.bool_())
        return column


def _class_ids(column: pa.Array, names: Sequence[str]) -> pa.Array:
    if pa.types.is_integer(column.type):
        return column.cast(pa.int64())
    if pa.types.is_dictionary(column.type):
        ids = pc.index_in(column.dictionary, value_set=_names(names, column.dictionary))
        return ids.cast(pa.int64()).take(column.indices)
    return pc.index_in(column, value_set=_names(names, column)).cast(pa.int64())


def _names(names: Sequence[str], like: pa.Array) -> pa.Array:
    return pa.array(names, like.type)


def is_single(feature: Feature) -> bool:
    """Tells whether rows hold one value that can be compared."""
    return not feature.shape and feature.kind in LITERALS


def flag(name: str) -> Term:
    """A feature that is true or false itself."""
    return lambda columns: columns[name]


def is_missing(name: str) -> Term:
    """`name is None`: never unknown."""
    return lambda columns: pc.is_null(columns[name])


def all_of(terms: Sequence[Term]) -> Term:
    """Terms joined by `and`: false where any is; else unknown where any is."""
    return lambda columns: functools.reduce(
        pc.and_kleene, (term(columns) for term in terms)
    )


def any_of(terms: Sequence[Term]) -> Term:
    """Terms joined by `or`: true where any is; else unknown where any is."""
    return lambda columns: functools.reduce(
        pc.or_kleene, (term(columns) for term in terms)
    )


def inverted(term: Term) -> Term:
    """A term turned round; unknown stays unknown."""
    return lambda columns: pc.invert(term(columns))


@dataclasses.dataclass(frozen=True, slots=True)
class Compared:
    """A term: a feature compared with one value."""

    name: str
    operator: str
    value: Any

    def __call__(self, columns: Columns) -> pa.BooleanArray:
        """Unknown where the value is missing."""
        column = columns[self.name]
        return _COMPARE[self.operator](column, pa.scalar(self.value, column.type))


def _constant(name: str, holds: bool) -> Term:
    """A comparison that has one result for all values: `3 < 10.5e30`."""
    return lambda columns: _where_known(pa.scalar(holds), columns[name])


def one_of(name: str, values: Sequence[Any]) -> Term:
    """A feature that has one of some values."""

    def term(columns: Columns) -> pa.BooleanArray:
        column = columns[name]
        known = pa.array(values, column.type)
        return _where_known(pc.is_in(column, value_set=known), column)

    return term


def compared_columns(first: str, operator: str, second: str) -> Term:
    """Two features compared with one another."""

    def term(columns: Columns) -> pa.BooleanArray:
        left, right, sign = columns[first], columns[second], operator
        if left.type == right.type:
            return _COMPARE[sign](left, right)
        if pa.types.is_integer(right.type):
            left, right, sign = right, left, SWAPPED[sign]
        compared = pa.array(_exactly_compared(_numbers(left), sign, _numbers(right)))
        return _where_known(_where_known(compared, left), right)

    return term


def _where_known(
    results: pa.BooleanArray | pa.BooleanScalar, column: pa.Array
) -> pa.BooleanArray:
    """Returns results, unknown where the value of a column is missing."""
    return pc.if_else(pc.is_valid(column), results, pa.scalar(None, pa.bool_()))


def integer_comparison(name: str, op: str, value: int | float | Fraction) -> Term:
    """Returns a comparison of an int64 feature with any number, without rounding."""
    if isinstance(value, float) and math.isinf(value):
        floor = ceil = 2**64 if value > 0 else -(2**64)
        is_whole = False
    else:
        floor, ceil = math.floor(value), math.ceil(value)
        is_whole = floor == ceil and _LEAST <= floor <= _GREATEST
    if op in ("==", "!="):
        return Compared(name, op, floor) if is_whole else _constant(name, op == "!=")
    limit = floor if op in ("<=", ">") else ceil
    if _LEAST <= limit <= _GREATEST:
        return Compared(name, op, limit)
    return _constant(name, (limit > 0) == (op in ("<", "<=")))


def float32_comparison(name: str, op: str, value: int | float) -> Term:
    """Returns a comparison of a float32 feature with a number.

    A float is rounded to float32, as the stored values were; an int is exact.
    """
    with np.errstate(over="ignore"):
        rounded = float(np.float32(value))
    if isinstance(value, float) or rounded == value:
        return Compared(name, op, rounded)
    if op in ("==", "!="):
        return _constant(name, op == "!=")
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


def matching(
    records: Records,
    features: Sequence[Feature],
    condition: Condition,
    positions: Longs,
    *,
    catalogue: CatalogueRows | None = None,
) -> Longs:
    """Returns the positions whose records meet a condition, in the order given.

    A catalogue that has the features that the condition names is read instead of the
    records. Without one each record is read once, in the order of the files, and only
    those features are decoded.

    Args:
      records: of the split.
      features: that it has.
      condition: over some of them.
      positions: any of the split's, in any order.
      catalogue: of the split; None for none.

    Raises:
      TFRecordError: a record is damaged.
      ExampleError: it does not hold what a feature must; names file and record.
    """
    used = [each for each in features if each.name in condition.columns]
    if catalogue is not None and len(positions) and catalogue.has(condition.columns):
        first = int(positions.min())
        batches = catalogue.batches(used, first, int(positions.max()) + 1)
        kept = np.concatenate([_mask(condition, batch) for batch in batches])
        return np.asarray(positions[kept[positions - first]])
    rows = by_id(used)
    wanted = np.unique(positions)
    held = [np.empty(0, np.bool_)]
    done = 0
    for payloads in _read(records, wanted):
        try:
            batch = rows.batch(payloads, "")
        except ExampleError as error:
            positions = wanted[done : done + len(payloads)]
            raise first_misfit(
                error,
                payloads,
                records,
                positions,
                lambda record: rows.batch(PayloadBatch.of([record]), ""),
            ) from error
        held.append(_mask(condition, batch))
        done += len(payloads)
    chosen = np.concatenate(held)[np.searchsorted(wanted, positions)]
    return np.asarray(positions[chosen])


def _mask(condition: Condition, batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Tells for each of n rows whether the condition holds for certain."""
    known = condition.mask(batch).fill_null(False)
    return np.asarray(known.to_numpy(zero_copy_only=False))


def _read(records: Records, wanted: Longs) -> Iterator[PayloadBatch]:
    """Yields the records at ascending positions."""
    are_neighbours = len(wanted) and wanted[-1] - wanted[0] == len(wanted) - 1
    if are_neighbours or records.in_order_only:
        yield from records.ascending(wanted)
        return
    for start in range(0, len(wanted), _TOGETHER):
        yield PayloadBatch.of([*records.many(wanted[start : start + _TOGETHER])])
