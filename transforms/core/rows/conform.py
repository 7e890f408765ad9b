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
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import (
    is_bytes,
    is_number,
    numpy_mask,
    values_and_rows,
)
from transforms.core.reasons import Fault, Reason
from transforms.core.rows.arrow_of import arrow_of
from transforms.core.rows.column import (
    NO_PLACES,
    NULL_IN_LIST,
    NULL_INSIDE,
    Column,
    Faults,
    Mask,
    complaint,
    fault,
    large_places,
    nothing_fits,
    present_faults,
    reason_of,
)
from transforms.core.rows.common_type import plain_array
from transforms.core.rows.nested import Ints, Nested, faults_of, fitted, nested_of
from transforms.core.rows.python_kinds import python_value
from transforms.core.rows.tensors import STRING, tensors, tensors_of_bytes
from transforms.core.rows.text_cells import cast_together
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

_MAX_OFFSET = 2**31 - 1


def cast(column: pa.Array, feature: Feature) -> Column:
    """Returns n values of any Arrow type as n values of `row_type(feature)`.

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
        return _cast_tensors(column, feature)
    shape = (None, len(BOX_SIDES)) if feature.kind is Kind.BOX else feature.shape
    feature = dataclasses.replace(feature, shape=shape)
    nested = nested_of(column, feature)
    if nested is None:
        return nothing_fits(column, row_type(feature), Reason.WRONG_SHAPE)
    return cast_nested(nested, feature)


def _cast_tensors(column: pa.Array, feature: Feature) -> Column:
    """Returns values, lists, texts or raw bytes as the tensors of a feature."""
    kind = column.type
    is_text = pa.types.is_string(kind)
    is_single = is_text or is_number(kind) or pa.types.is_boolean(kind)
    if feature.shape == () and (is_single or feature.dtype == STRING):
        starts = np.arange(len(column) + 1, dtype=np.int64)
        sizes = np.zeros((len(column), 0), np.int64)
        present = numpy_mask(column.is_valid())
        return tensors(Nested(column, starts, sizes, present), feature)
    if not is_text and (is_bytes(kind) or pa.types.is_fixed_size_binary(kind)):
        return tensors_of_bytes(column, feature)
    nested = nested_of(column, feature)
    if nested is None:
        return nothing_fits(column, pa.binary(), Reason.WRONG_SHAPE)
    return tensors(nested, feature)


def cast_nested(found: Nested, feature: Feature) -> Column:
    """Returns nested lists as lists, lists of lists or boxes of a feature."""
    is_box = feature.kind is Kind.BOX
    kind = Kind.FLOAT if is_box else feature.kind
    item = dataclasses.replace(feature, kind=kind, shape=())
    cells = _filled_items(scalars(found.values, item), item)
    if feature.is_ragged:
        misshapen = np.zeros(len(found.sizes), np.bool_)
        if found.inner is None:
            # A list of one level fits only if it is empty: then it holds no lists, too.
            misshapen = np.diff(found.starts) > 0
    else:
        _, misshapen = fitted(found.sizes, np.diff(found.starts), feature.shape)
    faults = faults_of(found, cells, misshapen)
    faults, absent = present_faults(faults, found.present)
    values, starts = cells.values, found.starts
    if feature.is_ragged:
        values, starts = _ragged_lists(values, found)
    if faults is not None and absent is not None:
        # Whoever reads the items assumes that null rows have none.
        counts = np.diff(starts)
        values = values.filter(pa.array(np.repeat(~absent, counts)))
        starts = np.concatenate(([0], np.cumsum(np.where(absent, 0, counts))))
    if is_box:
        values = pa.FixedSizeListArray.from_arrays(values, len(BOX_SIDES))
        starts = starts // len(BOX_SIDES)
    return Column(_list_array(values, starts, absent), faults)


def _filled_items(cells: Column, item: Feature) -> Column:
    """Returns the items of lists; those that are missing get the value of `fill`."""
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


def _ragged_lists(values: pa.Array, found: Nested) -> tuple[pa.Array, Ints]:
    """Returns the inner lists of all rows, and where among them each row begins."""
    if found.inner is None or found.outer is None:
        none = np.zeros(1, np.int64)
        return _list_array(values.slice(0, 0), none, None), np.zeros_like(found.starts)
    return _list_array(values, found.inner, None), found.outer


def _list_array(values: pa.Array, starts: Ints, absent: Mask | None) -> pa.ListArray:
    """Returns n lists of values; EncodingError beyond the range of int32 offsets."""
    if len(values) > _MAX_OFFSET:
        raise EncodingError(
            "the lists of a column must hold fewer than 2^31 values in one batch of "
            f"rows; found {len(values)}; write the source with smaller row groups or "
            "record batches"
        )
    mask = None if absent is None else pa.array(absent)
    offsets = pa.array(starts.astype(np.int32))
    return pa.ListArray.from_arrays(offsets, values, mask=mask)


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
            lost = "float32 would round a number in it"
            if not self.feature.is_list:
                number = float(python_value(self.raw[index]))
                lost = f"as float32 {number:.0f} would become {np.float32(number):.0f}"
            why = f"{lost}; {why}"
        return Fault(reason, bounded(where + why))


def blamed_of(misfits: Sequence[Misfit], count: int) -> npt.NDArray[np.int64]:
    """Returns for each of n rows the first misfit that is true of it, or -1."""
    blamed = np.full(count, -1, np.int64)
    for index in reversed(range(len(misfits))):
        blamed[misfits[index].bad] = index
    return blamed


def _shown(value: pa.Scalar) -> str:
    """Returns a cell as rejects show it: text quoted, "12 bytes", "nothing" of null."""
    native = python_value(value)
    if native is None:
        return "nothing"
    if isinstance(native, bytes):
        try:
            native = native.decode()
        except UnicodeDecodeError:
            return f"{len(native)} bytes"
    text = shortened(str(native))
    return repr(text) if isinstance(native, str) else text


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
            raw = _matched(texts, feature.pattern, count)
        if raw is None and feature.missing is Missing.OMIT:
            # Very many features may be absent, and share what is no value of any.
            kind = row_type(feature)
            if kind not in nulls:
                nulls[kind] = pa.nulls(count, kind)
            arrays.append(nulls[kind])
            continue
        raw = pa.nulls(count, pa.string()) if raw is None else raw
        cells = plain.get(feature.name) or cast(raw, feature)
        arrays.append(_filled(feature, raw, cells, misfits))
    return pa.RecordBatch.from_arrays(arrays, schema=schema.row_schema), misfits


def _plain_numbers(
    columns: Mapping[str, pa.Array], schema: Schema
) -> dict[str, Column]:
    """Returns values of features of numbers whose texts are cast in groups.

    Large numbers that float32 may not hold are left to `cast`.
    """
    out: dict[str, Column] = {}
    for kind in (Kind.INT64, Kind.FLOAT):
        texts = {
            feature.name: columns[feature.source_column]
            for feature in schema.features
            if feature.kind is kind
            and not (feature.shape or feature.pattern or feature.derived)
            and feature.source_column in columns
            and columns[feature.source_column].type == pa.string()
        }
        for names, values in cast_together(texts, kind):
            rows = len(values) // len(names)
            large = large_places(values) if kind is Kind.FLOAT else NO_PLACES
            left = set((large // rows).tolist())
            for at, name in enumerate(names):
                if at not in left:
                    # Pickling a slice would pickle the whole array.
                    copy = pa.concat_arrays([values.slice(at * rows, rows)])
                    out[name] = Column(copy)
    return out


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
    items, of_rows = values_and_rows(values)
    allowed = pc.or_(pc.is_in(items, value_set=names), items.is_null())
    return _rows_without(allowed, of_rows, len(values), Reason.UNKNOWN_LABEL)


def _rows_without(
    fits: pa.BooleanArray, of_rows: Ints, count: int, reason: Reason
) -> Faults | None:
    """Returns the faults of the rows that have an item that does not fit."""
    if pc.all(fits, min_count=0).as_py():
        return None
    bad = np.zeros(count, np.bool_)
    bad[of_rows[numpy_mask(pc.invert(fits))]] = True
    return fault(bad, reason)


def contract_faults(values: pa.Array, feature: Feature) -> Iterator[Faults]:
    """Yields the faults of rows whose values break the contract of their feature.

    Args:
      values: typed, n of them; null for missing.
      feature: whose values they are.
    """
    if not feature.has_contract:
        return
    items, of_rows = values_and_rows(values)
    for reason, fits in _rules(items, feature):
        faults = _rows_without(fits, of_rows, len(values), reason)
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
