"""Convert nested lists to flat values and their sizes.

Which lists fit a shape, by the column's type:

| shape        | one level          | two levels         | FixedShapeTensor | text |
| ------------ | ------------------ | ------------------ | ---------------- | ---- |
| (None,)      | any number         | -                  | (n,)             | as   |
| (6,)         | 6                  | -                  | (6,)             | the  |
| (2, 3)       | 6, row by row      | 2 lists of 3       | (2, 3)           | same |
| (None, 4)    | 0, 4, 8, ...       | any number of 4    | (n, 4)           | in   |
| (None, None) | the empty one only | any number of any  | (n, m)           | JSON |

Lists are Arrow's list, large_list, fixed_size_list and list views. With a separator,
text is a list of one level, cut there.

A list of lists must have the shape's number of levels; a list of one level may hold
the values of any shape with at most one size open, row by row. Sizes that the shape
leaves open may differ between rows, but not within one, unless it is (None, None).

A null list is missing and an empty one is a value. A null within a list is a fault
(MISSING_VALUE), for a tf.train.Example has no room for it, unless the feature has a
value to fill in.

Lists as text are read one by one, by Python's json: their nesting is no regular
language. Numbers stay texts meanwhile, so that the rules of `text_cells` decide.
"""

import dataclasses
import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import flattened, is_list, numpy_mask
from transforms.core.json_text import check_json_nesting
from transforms.core.reasons import FaultError, Reason
from transforms.core.rows.column import (
    Column,
    Faults,
    Mask,
    fault,
    first_fault,
    number_of,
    present_faults,
)
from transforms.core.schema import BOX_SIDES, Feature, Kind
from transforms.errors import EncodingError

Ints = npt.NDArray[np.int64]
Shape = tuple[int | None, ...]

UNKNOWN = -1
"""The size of a level that has no lists."""
_MAX_OFFSET = 2**31 - 1
_JSON = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)


@dataclasses.dataclass(frozen=True, slots=True)
class Nested:
    """n rows of nested lists.

    Attributes:
      values: those of all rows, in row-major order; null where an item is null.
      starts: int64, n + 1: row i has the values from starts[i] to starts[i + 1].
      sizes: int64 (n, d): the size on each of d levels.
      present: n bools, false where the row is missing; None if no row is.
      faults: why rows are bad already; None if no row is.
      levels: with two levels, int64 offsets (n + 1) of the rows in the inner lists, and
        (m + 1) of these in the values.
    """

    values: pa.Array
    starts: Ints
    sizes: Ints
    present: Mask | None
    faults: Faults | None = None
    levels: tuple[Ints, Ints] | None = None


def nested_of(column: pa.Array, feature: Feature) -> Nested | None:
    """Returns lists of any type, tensors, or texts of lists as flat values.

    Texts are JSON, or cut at the feature's separator; then the empty text is the empty
    list. None for a column of another type.
    """
    if pa.types.is_string(column.type):
        if feature.separator:
            return _separated(column, feature.separator)
        return _nested_json(column, feature.shape, feature.is_ragged)
    if isinstance(column.type, pa.FixedShapeTensorType):
        return _nested_tensors(column)
    if not is_list(column.type):
        return None
    present = numpy_mask(column.is_valid()) if column.null_count else None
    starts, values = flattened(column, present)
    offsets = [starts]
    sizes = [np.diff(starts)]
    uneven = lacking = None
    while is_list(values.type):
        there = numpy_mask(values.is_valid()) if values.null_count else None
        if there is not None:
            nulls = fault(~there, Reason.MISSING_VALUE)
            lacking = first_fault(lacking, rows_with_faults(nulls, starts))
        inner, values = flattened(values, there)
        size, mixed = _inner_sizes(np.diff(inner), starts)
        sizes.append(size)
        uneven = first_fault(uneven, mixed)
        offsets.append(inner)
        starts = inner.take(starts)
    if isinstance(values.type, pa.FixedShapeTensorType):
        return None
    return Nested(
        values,
        starts,
        np.column_stack(sizes),
        present,
        first_fault(lacking, None if feature.is_ragged else uneven),
        (offsets[0], offsets[1]) if len(offsets) == 2 else None,
    )


def _inner_sizes(sizes: Ints, starts: Ints) -> tuple[Ints, Faults | None]:
    """Returns for n rows the one size of their lists, and the faults of several.

    `sizes` are those of m lists, row i has the lists from starts[i] to starts[i + 1].
    """
    filled = np.diff(starts) > 0
    first = np.full(len(filled), UNKNOWN, np.int64)
    first[filled] = sizes[starts[:-1][filled]]
    if not len(sizes) or sizes.min() == sizes.max():
        return first, None
    others = fault(sizes != np.repeat(first, np.diff(starts)), Reason.WRONG_SHAPE)
    return first, rows_with_faults(others, starts)


def _nested_tensors(column: pa.FixedShapeTensorArray) -> Nested:
    """Returns Arrow's tensors as flat values, in the logical order of their axes."""
    stored: Sequence[int] = column.type.shape
    order = column.type.permutation or range(len(stored))
    present = numpy_mask(column.is_valid()) if column.null_count else None
    starts, values = flattened(column.storage, present)
    per_tensor = math.prod(stored)
    if list(order) != sorted(order):
        # A permuted tensor stores its elements in another order than its logical one.
        places = np.arange(per_tensor).reshape(tuple(stored)).transpose(order).ravel()
        rows = np.arange(len(values) // max(per_tensor, 1))
        values = values.take(pa.array((rows[:, None] * per_tensor + places).ravel()))
    sizes = np.tile(np.array([stored[i] for i in order], np.int64), (len(column), 1))
    levels = None
    if len(order) == 2:
        height, width = sizes[0] if len(sizes) else (0, 0)
        heights = np.full(len(column), height, np.int64)
        if present is not None:
            heights *= present
        outer = np.concatenate(([0], np.cumsum(heights)))
        levels = outer, np.arange(outer[-1] + 1, dtype=np.int64) * width
    return Nested(values, starts, sizes, present, None, levels)


def rows_with_faults(
    faults: Faults | None, starts: npt.NDArray[np.int64]
) -> Faults | None:
    """Returns for each list the fault of its first bad item.

    Args:
      faults: of all items.
      starts: n + 1: row i has the items from starts[i] to starts[i + 1].
    """
    if faults is None:
        return None
    # Where a row has several bad items, NumPy keeps the last one written: the first.
    bad = np.flatnonzero(faults)[::-1]
    out = np.zeros(len(starts) - 1, np.uint8)
    out[np.searchsorted(starts, bad, "right") - 1] = faults[bad]
    return out


def faults_of(lists: Nested, items: Column, misshapen: Mask) -> Faults | None:
    """Returns the faults of n rows: their own, of their shape, of their items.

    Args:
      lists: the rows.
      items: their values, converted.
      misshapen: n bools, true where the sizes do not fit.
    """
    missing = fault(numpy_mask(items.values.is_null()), Reason.MISSING_VALUE)
    return first_fault(
        lists.faults,
        fault(misshapen, Reason.WRONG_SHAPE),
        rows_with_faults(first_fault(items.faults, missing), lists.starts),
    )


def lists_of_items(found: Nested, cells: Column, feature: Feature) -> Column:
    """Returns nested lists as lists, lists of lists or boxes of a feature.

    Args:
      found: the rows.
      cells: their items, converted.
      feature: with its shape; see `cast` of a box.
    """
    values, starts = cells.values, found.starts
    if not feature.is_ragged:
        _, misshapen = fitted(found.sizes, np.diff(starts), feature.shape)
    else:
        # A list of one level fits only if it is empty: then it holds no lists, too.
        levels = found.levels or (np.zeros_like(starts), np.zeros(1, np.int64))
        misshapen = np.zeros(len(found.sizes), np.bool_)
        if found.levels is None:
            misshapen = np.diff(starts) > 0
        starts, values = levels[0], _list_array(values, levels[1], None)
    faults = faults_of(found, cells, misshapen)
    faults, absent = present_faults(faults, found.present)
    if faults is not None and absent is not None:
        # Whoever reads the items assumes that null rows have none.
        counts = np.diff(starts)
        values = values.filter(pa.array(np.repeat(~absent, counts)))
        starts = np.concatenate(([0], np.cumsum(np.where(absent, 0, counts))))
    if feature.kind is Kind.BOX:
        values = pa.FixedSizeListArray.from_arrays(values, len(BOX_SIDES))
        starts = starts // len(BOX_SIDES)
    return Column(_list_array(values, starts, absent), faults)


def _list_array(values: pa.Array, starts: Ints, absent: Mask | None) -> pa.ListArray:
    """Returns n lists of items; EncodingError beyond the range of int32 offsets."""
    if len(values) > _MAX_OFFSET:
        raise EncodingError(
            "the lists of a column must hold fewer than 2^31 values in one batch of "
            f"rows; found {len(values)}; write the source with smaller row groups or "
            "record batches"
        )
    mask = None if absent is None else pa.array(absent)
    offsets = pa.array(starts.astype(np.int32))
    return pa.ListArray.from_arrays(offsets, values, mask=mask)


def fitted(sizes: Ints, counts: Ints, shape: Shape) -> tuple[Ints, Mask]:
    """Returns the sizes of n rows along each dimension, and which do not fit.

    The sizes of rows that do not fit are undefined.

    Args:
      sizes: int64 (n, d): the size on each of d levels; see `Nested`.
      counts: int64 of n: the values of each row.
      shape: of the feature.
    """
    expected = np.array([UNKNOWN if n is None else n for n in shape], np.int64)
    if sizes.shape[1] == len(shape):
        fits = (sizes == expected) | (sizes == UNKNOWN) | (expected == UNKNOWN)
        full = np.where(sizes == UNKNOWN, np.maximum(expected, 0), sizes)
        return full, ~fits.all(axis=1)
    full = np.tile(np.maximum(expected, 0), (len(counts), 1))
    product = math.prod(n for n in shape if n is not None)
    if sizes.shape[1] != 1 or shape.count(None) > 1:
        return full, np.ones(len(counts), np.bool_)
    if None not in shape:
        return full, counts != product
    full[:, shape.index(None)] = counts // max(product, 1)
    return full, (counts % product != 0) if product else counts != 0


def _separated(column: pa.StringArray, separator: str) -> Nested:
    """Returns texts cut at a separator; the empty text is the empty list."""
    empty = pc.equal(column, "")
    filled = pc.if_else(empty, None, column) if pc.any(empty).as_py() else column
    parts = pc.split_pattern(filled, separator)
    there = numpy_mask(parts.is_valid()) if parts.null_count else None
    starts, values = flattened(parts, there)
    present = numpy_mask(column.is_valid()) if column.null_count else None
    return Nested(values, starts, np.diff(starts)[:, None], present)


def _nested_json(column: pa.StringArray, shape: Shape, ragged: bool) -> Nested:
    """Returns JSON lists as flat texts; rows that are no such lists have a fault."""
    items: list[str | None] = []
    starts, inner, outer = [0], [0], [0]
    sizes: list[list[int]] = []
    faults = np.zeros(len(column), np.uint8)
    for row, text in enumerate(column.to_pylist()):
        size: list[int] = []
        try:
            lists = [] if text is None else _json_list(text)
            parts = [_leaves(piece) for piece in lists] if ragged else []
            if not ragged:
                size, flat = _measured(lists, len(shape))
                parts = [_leaves(flat)]
        except FaultError as error:
            faults[row] = number_of(error.fault.reason)
            parts = []
        for piece in parts:
            items.extend(piece)
            inner.append(len(items))
        starts.append(len(items))
        outer.append(len(inner) - 1)
        sizes.append(size)
    bounds = np.array(starts, np.int64)
    full, misshapen = fitted_each(sizes, np.diff(bounds), shape)
    return Nested(
        pa.array(items, pa.string()),
        bounds,
        full,
        numpy_mask(column.is_valid()) if column.null_count else None,
        first_fault(
            faults if faults.any() else None,
            None if ragged else fault(misshapen, Reason.WRONG_SHAPE),
        ),
        (np.array(outer, np.int64), np.array(inner, np.int64)) if ragged else None,
    )


def fitted_each(
    sizes: list[list[int]], counts: Ints, shape: Shape
) -> tuple[Ints, Mask]:
    """Fits rows to a shape as `fitted` does; each is flat or as deep as the shape."""
    levels = len(shape)
    padded = [size if len(size) == levels else [UNKNOWN] * levels for size in sizes]
    deep = np.array(padded, np.int64).reshape(len(sizes), levels)
    full, bad = fitted(deep, counts, shape)
    flat = np.array([len(size) != levels for size in sizes], np.bool_)
    if flat.any():
        full_flat, bad_flat = fitted(counts[:, None], counts, shape)
        full[flat], bad[flat] = full_flat[flat], bad_flat[flat]
    return full, bad


def _json_list(text: str) -> list[Any]:
    """Returns the list that a text is, numbers as texts; FaultError for another."""
    try:
        check_json_nesting(text.encode())
        value = _JSON.decode(text)
    except ValueError as error:
        raise FaultError(Reason.MALFORMED) from error
    if not isinstance(value, list):
        raise FaultError(Reason.WRONG_SHAPE)
    return value


def _measured(value: list[Any], levels: int) -> tuple[list[int], list[Any]]:
    """Returns the sizes along one dimension or all of them, and the items."""
    sizes = [len(value)]
    while value and len(sizes) < levels and isinstance(value[0], list):
        size = len(value[0])
        if not all(isinstance(child, list) and len(child) == size for child in value):
            raise FaultError(Reason.WRONG_SHAPE)
        sizes.append(size)
        value = [item for child in value for item in child]
    if 1 < len(sizes) < levels:
        if value:
            raise FaultError(Reason.WRONG_SHAPE)
        sizes += [UNKNOWN] * (levels - len(sizes))
    return sizes, value


def _leaves(items: Any) -> list[str | None]:
    """Returns the items of a list as texts; FaultError if one is a list or object."""
    if items is None:
        raise FaultError(Reason.MISSING_VALUE)
    if not isinstance(items, list):
        raise FaultError(Reason.WRONG_SHAPE)
    try:
        if "".join(items).isascii():
            return items
    except TypeError:
        # The items are not all texts: bools and nulls, or a fault that is found below.
        pass
    out: list[str | None] = []
    for item in items:
        if isinstance(item, bool):
            item = "true" if item else "false"
        elif isinstance(item, list):
            raise FaultError(Reason.WRONG_SHAPE)
        elif isinstance(item, dict):
            raise FaultError(Reason.WRONG_TYPE)
        elif isinstance(item, str) and not item.isascii():
            try:
                item.encode()
            except UnicodeEncodeError as error:
                # JSON may write half of a surrogate pair.
                raise FaultError(Reason.INVALID_ENCODING) from error
        out.append(item)
    return out
