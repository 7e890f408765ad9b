"""Convert raw columns to rows under a schema, and find the rows that do not fit.

texts         -> coerce   (cells of CSV and of other text)
typed columns -> cast     (Parquet, Arrow, JSON, NumPy ...)

The contract of a feature is what a job says of its values beside their kind:
`at_least`, `at_most`, `allowed` and `matches`. A missing value breaks none of them, and
`missing: reject` is there for those. Of lists each item must fit.

`cast` takes typed columns, and texts of several values:

    column of any Arrow type -> single values  (`typed_cells`)
                             -> lists, boxes   (`nested`, then the same for the items)
                             -> tensors        (`nested`, `tensors`)

No value is lost silently: a cell that the feature cannot hold is bad, with its own
reason. Those modules say what each kind takes. A list with a bad value is bad as a
whole; so is one with a missing value, unless the feature has a value to `fill` in.

Numbers that float32 rounds to another or to 0 are written, and counted: unlike those
beyond float32, which are rejects, they have a nearest float32.

    not 0, up to 2^-150, 7.006e-46    become 0
    2^24 and more                     miss their value by a half and more
"""

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import (
    is_number,
    numpy_mask,
    raw_values,
    values_and_rows,
)
from transforms.core.model import Rounding
from transforms.core.reasons import Reason
from transforms.core.rows.column import (
    FLOAT32_EXACT,
    NO_PLACES,
    Column,
    Doubles,
    Faults,
    Misfit,
    Places,
    complaint,
    fault,
    is_large,
    large_places,
    nothing_fits,
    number_of,
)
from transforms.core.rows.common_type import plain_array
from transforms.core.rows.natural_arrays import arrow_of
from transforms.core.rows.nested import (
    lists_of_items,
    nested_of,
)
from transforms.core.rows.tensors import cast_tensors
from transforms.core.rows.text_cells import cast_together, doubles_of
from transforms.core.rows.typed_cells import scalars
from transforms.core.schema import (
    BOX_SIDES,
    Feature,
    Kind,
    Missing,
    Schema,
    Unknown,
    row_type,
)
from transforms.errors import SHOWN_CHARS, EncodingError, bounded, shortened

# A pattern that every number that becomes 0 matches, for lists in text.
_SUSPECT = r"[eE]-0*[1-9][0-9]|0{30}"
# A digit that is not 0, before the exponent.
_NOT_ZERO = r"^[^eE]*[1-9]"


def cast(column: pa.Array, feature: Feature) -> Column:
    """Conforms a column of any Arrow type to its feature: n values of `row_type`.

    Null is missing. Never raises for what a cell holds.

    Raises:
      EncodingError: the batch holds more text than Arrow's offsets can count.
    """
    column = plain_array(column)
    if pa.types.is_null(column.type):
        return Column(pa.nulls(len(column), row_type(feature)))
    if not (feature.is_list or feature.kind in (Kind.TENSOR, Kind.BOX)):
        return scalars(column, feature)
    if feature.kind is Kind.TENSOR:
        return cast_tensors(column, feature)
    shape = (None, len(BOX_SIDES)) if feature.kind is Kind.BOX else feature.shape
    feature = dataclasses.replace(feature, shape=shape)
    nested = nested_of(column, feature)
    if nested is None:
        return nothing_fits(column, row_type(feature), Reason.WRONG_SHAPE)
    kind = Kind.FLOAT if feature.kind is Kind.BOX else feature.kind
    item = dataclasses.replace(feature, kind=kind, shape=())
    items = _filled_items(scalars(nested.values, item), item)
    return lists_of_items(nested, items, feature)


def _filled_items(cells: Column, item: Feature) -> Column:
    """Returns the items of lists; missing ones get the feature's `fill`."""
    if item.missing is not Missing.FILL or not cells.values.null_count:
        return cells
    absent = cells.values.is_null()
    if cells.faults is not None:
        absent = pc.and_(absent, pa.array(cells.faults == 0))
    filling = filling_of(item.fill, item)[0]
    return Column(pc.if_else(absent, filling, cells.values), cells.faults)


def filling_of(value: object, feature: Feature) -> pa.Array:
    """Returns a value of a spec, for rows that lack one, as a column of one row.

    Lists of a fixed size hold it this many times, others once.

    Raises:
      EncodingError: it does not fit.
    """
    given = [value] * (feature.values_each or 1) if feature.is_list else value
    cells = cast(arrow_of([given]), feature)
    if cells.bad is not None:
        raise EncodingError(
            f"feature {feature.name!r} of kind {feature.kind} cannot hold what fills "
            f"its gaps, {bounded(repr(value), SHOWN_CHARS)}: "
            f"{complaint(feature, cells.reason_at(0))}"
        )
    return cells.values


def conform(
    columns: Mapping[str, pa.Array],
    schema: Schema,
    count: int,
    origins: str | pa.Array,
) -> tuple[pa.RecordBatch, list[Misfit]]:
    """Returns `count` rows under `Schema.row_schema`, and what does not fit.

    Rows with a misfit hold undefined values: the caller must filter them out.

    Args:
      columns: raw columns by the source's names; a feature without one is missing.
      schema: the features.
      count: n, the number of rows.
      origins: the path of all rows' file, or of each one's.
    """
    arrays: list[pa.Array] = []
    misfits: list[Misfit] = []
    nulls: dict[pa.DataType, pa.Array] = {}
    plain = _plain_numbers(columns, schema)
    for feature in schema.features:
        if feature.derived:
            continue
        if feature.constant is not None:
            arrays.append(_repeated(feature.constant, feature, count))
            continue
        raw = columns.get(feature.source_column)
        if feature.pattern:
            texts = raw if feature.column and raw is not None else origins
            raw = _pattern_column(texts, feature.pattern, count)
        if raw is None and feature.missing is Missing.OMIT:
            # Thousands of features may be absent: they share one array of nulls.
            kind = row_type(feature)
            if kind not in nulls:
                nulls[kind] = pa.nulls(count, kind)
            arrays.append(nulls[kind])
            continue
        raw = pa.nulls(count, pa.string()) if raw is None else raw
        values = plain.get(feature.name)
        cells = cast(raw, feature) if values is None else Column(values)
        arrays.append(_filled(feature, raw, cells, misfits))
    return pa.RecordBatch.from_arrays(arrays, schema=schema.row_schema), misfits


def _plain_numbers(
    columns: Mapping[str, pa.Array], schema: Schema
) -> dict[str, pa.Array]:
    """Returns values of features of numbers whose texts are cast in groups."""
    out: dict[str, pa.Array] = {}
    for kind in (Kind.INT64, Kind.FLOAT):
        texts = {
            feature.name: columns[feature.source_column]
            for feature in schema.features
            if feature.kind is kind
            and not (feature.shape or feature.pattern or feature.derived)
            and feature.source_column in columns
            and columns[feature.source_column].type == pa.string()
        }
        out |= cast_together(texts, kind)
    return out


def _filled(
    feature: Feature, raw: pa.Array, found: Column, misfits: list[Misfit]
) -> pa.Array:
    """Returns the values of a feature, and adds what does not fit to the misfits."""
    values = found.values
    faults = [found.faults]
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


def _pattern_column(texts: str | pa.Array, pattern: str, count: int) -> pa.Array:
    """Returns the raw column of a feature that a pattern takes out of texts or paths.

    It has the first group of the pattern, and null where that is not found.
    """
    search = re.compile(pattern).search

    def found(text: str | None) -> str | None:
        match = None if text is None else search(text)
        return match[1] if match else None

    if isinstance(texts, str):
        return pa.repeat(pa.scalar(found(texts), pa.string()), count)
    encoded = texts.cast(pa.string()).dictionary_encode()
    values = [found(text) for text in encoded.dictionary.to_pylist()]
    return pa.array(values, pa.string()).take(encoded.indices)


def contract_faults(values: pa.Array, feature: Feature) -> Iterator[Faults]:
    """Yields the faults of rows whose values break the contract of their feature.

    Args:
      values: typed, n of them; null for missing.
      feature: whose values they are.
    """
    if not feature.has_contract and feature.vocabulary is None:
        return
    items, of_rows = values_and_rows(values)
    for reason, fits in _rules(items, feature):
        if not pc.all(fits, min_count=0).as_py():
            bad = np.zeros(len(values), np.bool_)
            bad[of_rows[numpy_mask(pc.invert(fits))]] = True
            yield bad * np.uint8(number_of(reason))


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
    classes = feature.vocabulary if feature.unknown is Unknown.REJECT else None
    for reason, allowed in (
        (Reason.UNKNOWN_LABEL, classes),
        (Reason.NOT_ALLOWED, feature.allowed),
    ):
        if allowed is not None:
            value_set = pa.array(allowed, items.type)
            yield reason, pc.or_(pc.is_in(items, value_set=value_set), items.is_null())
    if feature.matches:
        yield Reason.NO_MATCH, pc.match_substring_regex(items, feature.matches)


@dataclasses.dataclass(frozen=True, slots=True)
class Losses:
    """What a conversion to float32 loses: values rounded to 0, or by 1/2 or more.

    Rows ascend; a row with several such values occurs as often. Missing rows and rows
    that do not fit may be among them.

    Attributes:
      zeros: the row of each value that is not 0 and became 0.
      large: the row of each value of 2^24 and more that changed.
      errors: the distance of each of these from the float32 it became.
    """

    zeros: Places
    large: Places
    errors: Doubles


_NO_LOSSES = Losses(NO_PLACES, NO_PLACES, np.zeros(0, np.float64))


def roundings_of(
    columns: Mapping[str, pa.Array],
    rows: pa.RecordBatch,
    schema: Schema,
    keep: npt.NDArray[np.bool_],
    place: Callable[[int, str], str],
) -> dict[str, Rounding]:
    """Returns what float32 did to the tiny and the large numbers of each column.

    Columns that lost nothing are left out.

    Args:
      columns: raw columns by the source's names; n values each.
      rows: the same under the schema.
      schema: of the rows.
      keep: n bools: which rows are looked at.
      place: returns a description of a cell, from its row and its text.
    """

    def words(raw: pa.Array, at: Places) -> str:
        if not len(at):
            return ""
        return place(int(at[0]), shortened(str(raw[int(at[0])].as_py())))

    out = {}
    for feature in schema.features:
        raw = columns.get(feature.source_column)
        if raw is None or feature.derived or feature.constant is not None:
            continue
        lost = losses(raw, rows[feature.name], feature)
        kept = keep[lost.large]
        zeros, large = lost.zeros[keep[lost.zeros]], lost.large[kept]
        if len(zeros) or len(large):
            out[feature.source_column] = Rounding(
                zeros=len(zeros),
                first_zero=words(raw, zeros),
                large=len(large),
                first_large=words(raw, large),
                error=float(lost.errors[kept].max(initial=0)),
            )
    return out


def losses(raw: pa.Array, typed: pa.Array, feature: Feature) -> Losses:
    """Returns what the conversion of a column to a feature lost.

    Args:
      raw: n values as the source has them.
      typed: the same as the feature has them.
      feature: what they became; a kind that is not float32 loses nothing.
    """
    is_tensor = feature.kind is Kind.TENSOR and feature.dtype == "float32"
    is_float = feature.kind is Kind.FLOAT or is_tensor
    if feature.pattern or not is_float or pa.types.is_float32(raw.type):
        return _NO_LOSSES
    raw = plain_array(raw)
    if not feature.shape and not is_tensor:
        return _value_losses(raw, typed)
    floats, _ = values_and_rows(typed)
    if pa.types.is_string(raw.type) and (is_tensor or not is_large(floats)):
        # To look at texts takes far less time than to read lists in them again.
        if not pc.any(pc.match_substring_regex(raw, _SUSPECT)).as_py():
            return _NO_LOSSES
    elif not is_tensor and not _may_differ(floats):
        return _NO_LOSSES
    nested = nested_of(raw, feature)
    if nested is None:
        return _NO_LOSSES
    floats = scalars(nested.values, Feature("", Kind.FLOAT)).values
    lost = _value_losses(nested.values, floats)
    zeros = np.searchsorted(nested.starts, lost.zeros, "right") - 1
    large = np.searchsorted(nested.starts, lost.large, "right") - 1
    return Losses(zeros, large, lost.errors)


def _may_differ(floats: pa.Array) -> bool:
    """Tells whether one of n float32 may be rounded: is 0, NaN, or beyond 2^24."""
    sizes = np.abs(raw_values(floats))
    return not (len(sizes) and sizes.min() > 0 and sizes.max() < FLOAT32_EXACT)


def _value_losses(raw: pa.Array, typed: pa.Array) -> Losses:
    """Returns what conversion lost of single values, or of the flat items of lists."""
    kind = raw.type
    is_text = pa.types.is_string(kind)
    if not (is_text or is_number(kind)) or pa.types.is_float32(kind):
        return _NO_LOSSES
    if not _may_differ(typed):
        return _NO_LOSSES
    zero = raw_values(typed) == 0
    if typed.null_count:
        zero &= numpy_mask(typed.is_valid())
    if not (is_text or pa.types.is_decimal(kind)):
        zeros = np.flatnonzero(zero & (raw_values(raw) != 0))
    else:
        zeros = np.flatnonzero(zero)
        # Most columns write all zeros alike: each way is looked at once.
        texts = raw.take(pa.array(zeros)).cast(pa.string()).dictionary_encode()
        tiny = numpy_mask(pc.match_substring_regex(texts.dictionary, _NOT_ZERO))
        zeros = zeros[tiny[texts.indices.to_numpy()]] if tiny.any() else NO_PLACES
    places = large_places(typed)
    exact: npt.NDArray[np.floating[Any]]
    if is_text:
        exact = doubles_of(raw, places)
    elif pa.types.is_integer(kind):
        exact = raw_values(raw)[places].astype(np.longdouble)
    else:
        exact = raw_values(raw.take(pa.array(places)).cast(pa.float64()))
    errors = np.abs(exact - raw_values(typed)[places]).astype(np.float64)
    changed = errors > 0
    return Losses(zeros, places[changed], errors[changed])
