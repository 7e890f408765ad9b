"""Convert raw columns to rows under a schema, and find the rows that do not fit.

texts         -> coerce   (cells of CSV and of other text)
typed columns -> cast     (Parquet, Arrow, JSON, NumPy ...)
constants, patterns over paths, vocabularies, missing values: here

The contract of a feature is what a job says of its values beside their kind:
`at_least`, `at_most`, `allowed` and `matches`. A missing value breaks none of them, and
`missing: reject` is there for those. Of lists each item must fit.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import numpy_mask, rows_with
from transforms.core.reasons import Fault, Reason
from transforms.core.rows.cast import cast, filling_of
from transforms.core.rows.column import (
    NULL_IN_LIST,
    NULL_INSIDE,
    Column,
    Faults,
    Mask,
    complaint,
    fault,
    reason_of,
)
from transforms.core.rows.float32 import rounded_words
from transforms.core.rows.python_kinds import python_value
from transforms.core.schema import (
    Feature,
    Kind,
    Missing,
    Schema,
    Unknown,
    row_type,
)
from transforms.errors import bounded, shortened

_NO_DOUBLES: Mapping[str, pa.Array] = {}


@dataclasses.dataclass(frozen=True, slots=True)
class Misfit:
    """A column with cells that do not fit.

    Attributes:
      feature: what they were to become.
      raw: the column as the source has it; n values.
      faults: n of them: why a cell does not fit. See `transforms.core.rows.column`.
    """

    feature: Feature
    raw: pa.Array
    faults: Faults

    @property
    def bad(self) -> Mask:
        """Which cells do not fit, as n bools."""
        return self.faults > 0

    def complaint(self, index: int) -> Fault:
        """Returns the reason why the bad cell at `index` does not fit, and words."""
        reason = reason_of(int(self.faults[index]))
        shown = _shown(self.raw[index])
        column = self.feature.source_column
        where = f"column {column!r} holds {shown}: "
        why = complaint(self.feature, reason, absent=not self.raw[index].is_valid)
        if why in (NULL_IN_LIST, NULL_INSIDE):
            why = f"{why}, or leave the column out with --drop {column!r}"
        if reason is Reason.NOT_FLOAT32:
            why = rounded_words(python_value(self.raw[index])) + why
        return Fault(reason, bounded(where + why))


def _shown(value: pa.Scalar) -> str:
    found = python_value(value)
    if found is None:
        return "nothing"
    if isinstance(found, bytes):
        try:
            found = found.decode()
        except UnicodeDecodeError:
            return f"{len(found)} bytes"
    text = shortened(str(found))
    return repr(text) if isinstance(found, str) else text


def conform(
    columns: Mapping[str, pa.Array],
    schema: Schema,
    count: int,
    origins: str | pa.Array,
    *,
    texts_checked: bool = False,
    doubles: Mapping[str, pa.Array] = _NO_DOUBLES,
) -> tuple[pa.RecordBatch, list[Misfit]]:
    """Returns `count` rows under `Schema.row_schema`, and what does not fit.

    Rows with a misfit hold undefined values: the caller must filter them out.

    Args:
      columns: raw columns by the source's names; a feature without one is missing.
      schema: the features.
      count: n, the number of rows.
      origins: the path of all rows' file, or of each one's.
      texts_checked: whether all texts are known to be valid UTF-8.
      doubles: columns of text that were already converted by `plain_doubles`.
    """
    arrays: list[pa.Array] = []
    misfits: list[Misfit] = []
    nulls: dict[pa.DataType, pa.Array] = {}
    for feature in schema.features:
        if feature.derived:
            continue
        if _is_absent(feature, columns):
            # Very many features may be, and share what is no value of any of them.
            kind = row_type(feature)
            if kind not in nulls:
                nulls[kind] = pa.nulls(count, kind)
            arrays.append(nulls[kind])
            continue
        if feature.constant is not None:
            arrays.append(_repeated(feature.constant, feature, count))
            continue
        raw = _raw(feature, columns, count, origins)
        is_float = feature.kind is Kind.FLOAT and not feature.pattern
        known = doubles.get(feature.source_column) if is_float else None
        if known is not None:
            found = Column(known.cast(pa.float32()))
        elif texts_checked and _is_text(raw, feature):
            found = Column(raw.cast(row_type(feature)))
        else:
            found = cast(raw, feature)
        arrays.append(_filled(feature, raw, found, misfits))
    return pa.RecordBatch.from_arrays(arrays, schema=schema.row_schema), misfits


def _is_absent(feature: Feature, columns: Mapping[str, pa.Array]) -> bool:
    """Whether no row has a value of a feature, and none needs one."""
    is_made = feature.pattern or feature.constant is not None
    lacks = feature.source_column not in columns and not is_made
    return lacks and feature.missing is Missing.OMIT


def _raw(
    feature: Feature,
    columns: Mapping[str, pa.Array],
    count: int,
    origins: str | pa.Array,
) -> pa.Array:
    """Returns the cells that a feature is made from."""
    raw = columns.get(feature.source_column)
    if feature.pattern:
        texts = raw if feature.column and raw is not None else origins
        return _matched(texts, feature.pattern, count)
    return pa.nulls(count, pa.string()) if raw is None else raw


def _is_text(raw: pa.Array, feature: Feature) -> bool:
    """Tells whether cells are texts, and those of the feature."""
    kinds = (Kind.TEXT, Kind.LABEL, Kind.BYTES)
    return (
        pa.types.is_string(raw.type) and feature.kind in kinds and not feature.is_list
    )


def _filled(
    feature: Feature, raw: pa.Array, found: Column, misfits: list[Misfit]
) -> pa.Array:
    """Returns the values of a feature, and adds what does not fit to the misfits."""
    values = found.values
    faults = [found.faults]
    if feature.vocabulary is not None and feature.unknown is Unknown.REJECT:
        faults.append(_outside(values, feature.vocabulary))
    if feature.missing is Missing.FILL and values.null_count:
        filling = _repeated(feature.fill, feature, len(values))
        values = pc.coalesce(values, filling)
    elif feature.missing is Missing.REJECT and values.null_count:
        absent = numpy_mask(values.is_null())
        if found.faults is not None:
            absent &= found.faults == 0
        faults.append(fault(absent, Reason.MISSING_VALUE))
    faults += contract_faults(values, feature)
    misfits += [Misfit(feature, raw, some) for some in faults if some is not None]
    return values


def _repeated(value: object, feature: Feature, count: int) -> pa.Array:
    """Returns a value of the spec for every row; raises as `filling_of` does."""
    return filling_of(value, feature).take(pa.array(np.zeros(count, np.int64)))


def _matched(texts: str | pa.Array, pattern: str, count: int) -> pa.Array:
    """Returns the first group of a pattern in each text; null where it is not found."""
    search = re.compile(pattern).search

    def found(text: str | None) -> str | None:
        match = None if text is None else search(text)
        return match[1] if match else None

    if isinstance(texts, str):
        return pa.repeat(pa.scalar(found(texts), pa.string()), count)
    encoded = texts.cast(pa.string()).dictionary_encode()
    values = [found(text) for text in encoded.dictionary.to_pylist()]
    return pa.array(values, pa.string()).take(encoded.indices)


def _outside(values: pa.Array, vocabulary: tuple[str, ...]) -> Faults | None:
    """Returns the faults of rows that hold a name outside the vocabulary."""
    names = pa.array(vocabulary, pa.string())
    flat = values.flatten() if pa.types.is_list(values.type) else values
    known = pc.or_(pc.is_in(flat, value_set=names), flat.is_null())
    if pc.all(known, min_count=0).as_py():
        return None
    bad = numpy_mask(pc.invert(known))
    if flat is not values:
        bad = rows_with(values, bad)
    return fault(bad, Reason.UNKNOWN_LABEL)


def contract_faults(values: pa.Array, feature: Feature) -> Iterator[Faults]:
    """Yields the faults of rows whose values break the contract of their feature.

    Args:
      values: typed, n of them; null for missing.
      feature: whose values they are.
    """
    if not feature.has_contract:
        return
    lists = []
    items = values
    while pa.types.is_list(items.type):
        lists.append(items)
        items = items.flatten()
    for reason, fits in _rules(items, feature):
        if pc.all(fits, min_count=0).as_py():
            continue
        bad = numpy_mask(pc.invert(fits.fill_null(True)))
        for level in reversed(lists):
            bad = rows_with(level, bad)
        faults = fault(bad, reason)
        if faults is not None:
            yield faults


def _rules(
    items: pa.Array, feature: Feature
) -> Iterator[tuple[Reason, pa.BooleanArray]]:
    """Yields for each rule which values keep it; null for missing ones."""
    if feature.at_least is not None:
        # A comparison with NaN is false, so that NaN keeps no limit.
        least = pa.scalar(feature.at_least, items.type)
        yield Reason.BELOW_MIN, pc.greater_equal(items, least)
    if feature.at_most is not None:
        most = pa.scalar(feature.at_most, items.type)
        yield Reason.ABOVE_MAX, pc.less_equal(items, most)
    if feature.allowed is not None:
        allowed = pa.array(feature.allowed, items.type)
        is_allowed = pc.or_(pc.is_in(items, value_set=allowed), items.is_null())
        yield Reason.NOT_ALLOWED, is_allowed
    if feature.matches:
        yield Reason.NO_MATCH, pc.match_substring_regex(items, feature.matches)
