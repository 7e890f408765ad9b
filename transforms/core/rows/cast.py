"""Typed columns, and texts of several values, to the rows of a feature.

    column of any Arrow type -> single values  (`typed_cells`)
                             -> lists, boxes   (`nested`, then the same for the items)
                             -> tensors        (`nested`, `tensors`)

No value is lost silently: a cell that the feature cannot hold is bad, with its own
reason. Those modules say what each kind takes. A list with a bad value is bad as a
whole; so is one with a missing value, unless the feature has a value to `fill` in.
"""

import dataclasses

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import is_bytes, is_number, numpy_mask
from transforms.core.reasons import Reason
from transforms.core.rows.arrow_of import arrow_of
from transforms.core.rows.column import (
    Column,
    Mask,
    complaint,
    fault,
    first_fault,
    nothing_fits,
    present_faults,
    rows_with_faults,
)
from transforms.core.rows.common_type import plain
from transforms.core.rows.nested import Nested, fitted, nested_lists, nested_texts
from transforms.core.rows.tensors import STRING, tensors, tensors_of_bytes
from transforms.core.rows.typed_cells import scalars
from transforms.core.schema import BOX_SIDES, Feature, Kind, Missing, row_type
from transforms.errors import SHOWN_CHARS, EncodingError, bounded

Ints = npt.NDArray[np.int64]

_MAX_OFFSET = 2**31 - 1


def cast(column: pa.Array, feature: Feature) -> Column:
    """Returns n values of any Arrow type as n values of `row_type(feature)`.

    Null is missing. Never raises for what a cell holds.

    Raises:
      EncodingError: the batch holds more text than Arrow's offsets can count.
    """
    column = plain(column)
    if pa.types.is_null(column.type):
        return Column(pa.nulls(len(column), row_type(feature)))
    if not (feature.is_list or feature.kind in (Kind.TENSOR, Kind.BOX)):
        return scalars(column, feature)
    if feature.kind is Kind.TENSOR:
        return _tensors(column, feature)
    shape = (None, len(BOX_SIDES)) if feature.kind is Kind.BOX else feature.shape
    feature = dataclasses.replace(feature, shape=shape)
    found = _nested(column, feature)
    if found is None:
        return nothing_fits(column, row_type(feature), Reason.WRONG_SHAPE)
    return cast_nested(found, feature)


def _nested(column: pa.Array, feature: Feature) -> Nested | None:
    if pa.types.is_string(column.type):
        return nested_texts(
            column,
            feature.shape,
            separator=feature.separator,
            ragged=feature.is_ragged,
        )
    return nested_lists(column, ragged=feature.is_ragged)


def _tensors(column: pa.Array, feature: Feature) -> Column:
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
    found = _nested(column, feature)
    if found is None:
        return nothing_fits(column, pa.binary(), Reason.WRONG_SHAPE)
    return tensors(found, feature)


def cast_nested(found: Nested, feature: Feature) -> Column:
    """Returns nested lists as lists, lists of lists or boxes of a feature."""
    is_box = feature.kind is Kind.BOX
    kind = Kind.FLOAT if is_box else feature.kind
    item = dataclasses.replace(feature, kind=kind, shape=())
    cells = _filled(scalars(found.values, item), item)
    missing = fault(numpy_mask(cells.values.is_null()), Reason.MISSING_VALUE)
    if feature.is_ragged:
        misshapen = np.zeros(len(found.sizes), np.bool_)
        if found.inner is None:
            # A list of one level fits only if it is empty: then it holds no lists, too.
            misshapen = np.diff(found.starts) > 0
    else:
        _, misshapen = fitted(found, feature.shape)
    faults = first_fault(
        found.faults,
        fault(misshapen, Reason.WRONG_SHAPE),
        rows_with_faults(first_fault(cells.faults, missing), found.starts),
    )
    absent = None if found.present is None else ~found.present
    faults = present_faults(faults, absent)
    if faults is not None:
        absent = faults > 0 if absent is None else absent | (faults > 0)
    values, starts = cells.values, found.starts
    if is_box:
        values, starts = _boxes(values, starts, absent)
    elif feature.is_ragged:
        values, starts = _ragged(values, found)
    if faults is not None and not is_box:
        # `take` also empties null rows: whoever reads the items assumes they have none.
        rows = pa.array(np.arange(len(starts) - 1), mask=absent)
        lists = _lists(values, starts, None).take(rows)
    else:
        lists = _lists(values, starts, absent)
    return Column(lists, faults)


def _filled(cells: Column, item: Feature) -> Column:
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
    found = cast(arrow_of([given]), feature)
    if found.bad is not None:
        raise EncodingError(
            f"feature {feature.name!r} of kind {feature.kind} cannot hold what fills "
            f"its gaps, {bounded(repr(value), SHOWN_CHARS)}: "
            f"{complaint(feature, found.reason_at(0))}"
        )
    return found.values


def _boxes(
    values: pa.Array, starts: Ints, absent: Mask | None
) -> tuple[pa.Array, Ints]:
    """Returns the boxes of the rows that fit, and offsets; other rows have no boxes."""
    sides = len(BOX_SIDES)
    counts = np.diff(starts)
    if absent is not None:
        values = values.filter(pa.array(np.repeat(~absent, counts)))
        counts = np.where(absent, 0, counts)
    boxes = pa.FixedSizeListArray.from_arrays(values, sides)
    return boxes, np.concatenate(([0], np.cumsum(counts))) // sides


def _ragged(values: pa.Array, found: Nested) -> tuple[pa.Array, Ints]:
    if found.inner is None or found.outer is None:
        none = np.zeros(1, np.int64)
        return _lists(values.slice(0, 0), none, None), np.zeros_like(found.starts)
    return _lists(values, found.inner, None), found.outer


def _lists(values: pa.Array, starts: Ints, absent: Mask | None) -> pa.ListArray:
    if starts[-1] > _MAX_OFFSET:
        raise EncodingError(
            "the lists of a column must hold fewer than 2^31 values in one batch of "
            f"rows; found {starts[-1]}; write the source with smaller row groups or "
            "record batches"
        )
    mask = None if absent is None else pa.array(absent)
    return pa.ListArray.from_arrays(
        pa.array(starts.astype(np.int32)), values, mask=mask
    )
