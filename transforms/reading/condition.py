"""Conditions over columns of records, and which records meet one.

A condition is an Arrow expression. Logic has three values, as in SQL: a comparison with
a missing value is unknown (null); `and`, `or` and `not` make of it what they can.
`transforms.reading.condition_text` makes conditions of texts.
"""

import dataclasses
import math
import operator
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

LITERALS = {
    Kind.INT64: "a number",
    Kind.FLOAT: "a number",
    Kind.BOOL: "True or False",
    Kind.TEXT: "text in quotes",
    Kind.LABEL: "a class name in quotes or a class id",
    Kind.TIMESTAMP: "text in ISO 8601, as '2024-05-01T12:00:00Z'",
}
"""Kinds whose values can be compared with a literal, and how one is written."""
Sign = Callable[[Any, Any], Any]
SWAPPED = {
    operator.lt: operator.gt,
    operator.le: operator.ge,
    operator.gt: operator.lt,
    operator.ge: operator.le,
}
INT64 = range(-(2**63), 2**63)
UNKNOWN = pa.scalar(None, pa.bool_())
_TOGETHER = 4_096


@dataclasses.dataclass(frozen=True, slots=True)
class Condition:
    """A condition that was parsed and checked.

    Attributes:
      columns: the features that it needs, each once.
      expression: over their columns; labels as ids, timestamps as int64.
    """

    columns: tuple[str, ...]
    expression: pc.Expression
    _features: Mapping[str, Feature]
    _classes: Mapping[str, Sequence[str]]

    def mask(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Tells for each of n rows whether the condition holds.

        Args:
          batch: has the columns; labels as names, as a dictionary of names, or as ids,
            timestamps as such or as int64 in the feature's unit.

        Returns:
          n values; null where a missing value leaves it unknown.
        """
        # Loaded where a condition is evaluated.
        from pyarrow import acero

        rows = pa.table({name: self._column(batch, name) for name in self.columns})
        plan = acero.Declaration.from_sequence(
            [
                acero.Declaration("table_source", acero.TableSourceNodeOptions(rows)),
                acero.Declaration(
                    "project", acero.ProjectNodeOptions([self.expression], ["holds"])
                ),
            ]
        )
        # One thread keeps the order of the rows.
        return plan.to_table(use_threads=False).column(0).combine_chunks()

    def certain(self, batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Tells for each of n rows whether the condition holds for certain."""
        known = self.mask(batch).fill_null(False)
        return np.asarray(known.to_numpy(zero_copy_only=False))

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
        return column.cast(pa.bool_()) if feature.kind is Kind.BOOL else column


def _class_ids(column: pa.Array, names: Sequence[str]) -> pa.Array:
    if pa.types.is_integer(column.type):
        return column.cast(pa.int64())
    if pa.types.is_dictionary(column.type):
        return _class_ids(column.dictionary, names).take(column.indices)
    known = pa.array(names, column.type)
    return pc.index_in(column, value_set=known).cast(pa.int64())


def is_single(feature: Feature) -> bool:
    """Tells whether rows hold one value that can be compared."""
    return not feature.shape and feature.kind in LITERALS


def joined(
    both: Callable[[Any, Any], Any], terms: Sequence[pc.Expression]
) -> pc.Expression:
    """Returns terms joined by an operator, nested as little as they can be."""
    if len(terms) == 1:
        return terms[0]
    half = len(terms) // 2
    return both(joined(both, terms[:half]), joined(both, terms[half:]))


def type_of(feature: Feature) -> pa.DataType:
    """Returns the type of the column of a feature."""
    types = {Kind.FLOAT: pa.float32(), Kind.BOOL: pa.bool_(), Kind.TEXT: pa.string()}
    return types.get(feature.kind, pa.int64())


def compared(feature: Feature, sign: Sign, value: Any) -> pc.Expression:
    """Returns a comparison of a feature with a literal; numbers are not rounded."""
    holds: bool | None = None
    if feature.kind is Kind.FLOAT:
        sign, value, holds = _for_float32(sign, value)
    elif feature.kind in (Kind.INT64, Kind.TIMESTAMP):
        sign, value, holds = _for_int64(sign, value)
    field = pc.field(feature.name)
    if holds is None:
        return sign(field, pa.scalar(value, type_of(feature)))
    return pc.if_else(field.is_valid(), pa.scalar(holds), UNKNOWN)


# An operator and a value; or what a comparison with any value of the type gives.
_Exact = tuple[Sign, Any, bool | None]


def _for_int64(sign: Sign, value: int | float | Fraction) -> _Exact:
    """Returns a comparison of an int64 with any number as one with an int64."""
    # Infinity, too, is beyond all of them.
    value = max(min(value, 2**64), -(2**64))
    if sign in (operator.eq, operator.ne):
        is_one = value == math.floor(value) and math.floor(value) in INT64
        return sign, math.floor(value), None if is_one else sign is operator.ne
    up = sign in (operator.lt, operator.ge)
    limit = math.ceil(value) if up else math.floor(value)
    below = sign in (operator.lt, operator.le)
    return sign, limit, None if limit in INT64 else (limit > 0) == below


def _for_float32(sign: Sign, value: int | float) -> _Exact:
    """Returns a comparison of a float32 with a number as one with a float32.

    A float is rounded to float32, as the stored values were; an int is exact.
    """
    with np.errstate(over="ignore"):
        rounded = float(np.float32(value))
    if isinstance(value, float) or rounded == value:
        return sign, rounded, None
    if sign in (operator.eq, operator.ne):
        return sign, rounded, sign is operator.ne
    # No float32 is between the value and its rounding.
    below = sign in (operator.lt, operator.le)
    if rounded > value:
        return operator.lt if below else operator.ge, rounded, None
    return operator.le if below else operator.gt, rounded, None


def exactly_compared(
    integer: pc.Expression, sign: Sign, number: pc.Expression
) -> pc.Expression:
    """Compares int64s with float32s; an int64 is not rounded to a float."""
    # Each float32 from -2**63 to below 2**63 has a whole number that is not below it.
    wide = number.cast(pa.float64())
    up = pc.ceil(wide)
    above, below = up >= 2.0**63, up < -(2.0**63)
    whole = up.cast(pa.int64(), safe=False)
    less = above | (~below & (integer < whole))
    equal = ~above & ~below & (integer == whole) & (up == wide)
    results = {
        operator.lt: less,
        operator.le: less | equal,
        operator.eq: equal,
        operator.ne: ~equal,
        operator.gt: ~(less | equal),
        operator.ge: ~less,
    }
    found = pc.if_else(pc.is_nan(wide), pa.scalar(sign is operator.ne), results[sign])
    return pc.if_else(integer.is_valid() & number.is_valid(), found, UNKNOWN)


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
        kept = np.concatenate([condition.certain(batch) for batch in batches])
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
        held.append(condition.certain(batch))
        done += len(payloads)
    chosen = np.concatenate(held)[np.searchsorted(wanted, positions)]
    return np.asarray(positions[chosen])


def _read(records: Records, wanted: Longs) -> Iterator[PayloadBatch]:
    """Yields the records at ascending positions."""
    are_neighbours = len(wanted) and wanted[-1] - wanted[0] == len(wanted) - 1
    if are_neighbours or records.in_order_only:
        yield from records.ascending(wanted)
        return
    for start in range(0, len(wanted), _TOGETHER):
        yield PayloadBatch.of([*records.many(wanted[start : start + _TOGETHER])])
