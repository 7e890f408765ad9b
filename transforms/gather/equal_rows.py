"""Which rows are equal in every value, so that one of them and a count is enough."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import is_bytes, is_list, numpy_mask, raw_values

Mask = npt.NDArray[np.bool_]

# Rows that are compared at a time: both sides of them are copied.
_COMPARED_ROWS = 1 << 15


def first_of_equals(rows: pa.RecordBatch, tied: Mask) -> Mask:
    """Returns for each of n rows whether it differs from the row before it.

        >>> rows = pa.record_batch({"a": [1, 1, 2, 2], "b": ["x", "x", "x", None]})
        >>> first_of_equals(rows, np.array([False, True, True, True]))
        array([ True, False,  True,  True])

    Floats are equal where their bits are. Values of types that this does not compare
    count as different: then a row is only stored more often.

    Args:
      rows: n of them.
      tied: which rows may be equal to the one before; the first one is not.
    """
    out = np.ones(len(tied), bool)
    all_places = np.flatnonzero(tied)
    for start in range(0, len(all_places), _COMPARED_ROWS):
        places = all_places[start : start + _COMPARED_ROWS]
        before = rows.take(pa.array(places - 1))
        after = rows.take(pa.array(places))
        equal = np.ones(len(places), bool)
        for one, other in zip(before.columns, after.columns, strict=True):
            equal &= _equal(one, other)
        out[places] = ~equal
    return out


def _equal(one: pa.Array, other: pa.Array) -> Mask:
    """Returns which of n pairs of values are equal; two nulls are."""
    if isinstance(one, pa.ExtensionArray):
        one, other = one.storage, other.storage
    kind = one.type
    valid = [numpy_mask(each.is_valid()) for each in (one, other)]
    if is_list(kind):
        found = _equal_lists(one, other)
    elif pa.types.is_floating(kind):
        bits = np.dtype(f"u{kind.bit_width // 8}")
        left, right = (raw_values(each).view(bits) for each in (one, other))
        found = left == right
    elif pa.types.is_struct(kind):
        found = np.ones(len(one), bool)
        for left, right in zip(one.flatten(), other.flatten(), strict=True):
            found &= _equal(left, right)
    elif is_bytes(kind) or pa.types.is_primitive(kind):
        found = numpy_mask(pc.equal(one, other).fill_null(False))
    else:
        found = np.zeros(len(one), bool)
    both, neither = valid[0] & valid[1], ~(valid[0] | valid[1])
    equal: Mask = (both & found) | neither
    return equal


def _equal_lists(one: pa.Array, other: pa.Array) -> Mask:
    lengths = pc.list_value_length(one).fill_null(-1)
    sizes = np.asarray(lengths).astype(np.int64)
    found = sizes == np.asarray(pc.list_value_length(other).fill_null(-1))
    chosen = pa.array(np.flatnonzero(found & (sizes > 0)))
    if not len(chosen):
        return found
    items = _equal(one.take(chosen).flatten(), other.take(chosen).flatten())
    counts = sizes[chosen.to_numpy()]
    starts = np.cumsum(counts) - counts
    found[chosen.to_numpy()] = np.logical_and.reduceat(items, starts)
    return found
