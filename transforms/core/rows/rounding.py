"""Count the numbers of a source that float32 rounds to another or to 0.

    not 0, up to 2^-150, 7.006e-46    become 0
    2^24 and more                     miss their value by a half and more

Such values are written, and counted: unlike those beyond float32, which are rejects,
they have a nearest float32.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import is_list, is_number, numpy_mask, raw_values
from transforms.core.model import Rounding
from transforms.core.rows.common_type import plain
from transforms.core.rows.float32 import (
    FLOAT32_EXACT,
    doubles_of,
    is_large,
    large_places,
)
from transforms.core.rows.nested import nested_of
from transforms.core.rows.typed_cells import scalars
from transforms.core.schema import Feature, Kind, Schema
from transforms.errors import shortened

Rows = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]

# A pattern that every number that becomes 0 matches, for lists in text.
_SUSPECT = r"[eE]-0*[1-9][0-9]|0{30}"
# A digit that is not 0, before the exponent.
_NOT_ZERO = r"^[^eE]*[1-9]"
_NO_ROWS = np.zeros(0, np.int64)


@dataclasses.dataclass(frozen=True, slots=True)
class Losses:
    """The values of a column that float32 rounds to 0, or rounds by 1/2 or more.

    Rows ascend; a row with several such values occurs as often. Missing rows and rows
    that do not fit may be among them.

    Attributes:
      zeros: the row of each value that is not 0 and became 0.
      large: the row of each value of 2^24 and more that changed.
      errors: the distance of each of these from the float32 it became.
    """

    zeros: Rows
    large: Rows
    errors: Doubles


_NONE = Losses(_NO_ROWS, _NO_ROWS, np.zeros(0, np.float64))


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

    def words(raw: pa.Array, at: Rows) -> str:
        if not len(at):
            return ""
        return place(int(at[0]), shortened(str(raw[int(at[0])].as_py())))

    out = {}
    for feature in schema.features:
        raw = columns.get(feature.source_column)
        if raw is None or feature.derived or feature.constant is not None:
            continue
        lost = losses(raw, rows[feature.name], feature)
        if not len(lost.zeros) and not len(lost.large):
            continue
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
    """Returns the values that are not 0 and became 0, and the large ones that changed.

    Args:
      raw: n values as the source has them.
      typed: the same as the feature has them.
      feature: what they became; a kind that is not float32 loses nothing.
    """
    is_tensor = feature.kind is Kind.TENSOR and feature.dtype == "float32"
    is_float = feature.kind is Kind.FLOAT or is_tensor
    if feature.pattern or not is_float or pa.types.is_float32(raw.type):
        return _NONE
    raw = plain(raw)
    if not feature.shape and not is_tensor:
        return _of_values(raw, typed)
    places: Rows | None = None
    if pa.types.is_string(raw.type):
        places = _suspects(raw, typed)
        raw = raw.take(pa.array(places))
    nested = nested_of(raw, feature)
    if nested is None:
        return _NONE
    floats = scalars(nested.values, Feature("", Kind.FLOAT)).values
    lost = _of_values(nested.values, floats)
    zeros = np.searchsorted(nested.starts, lost.zeros, "right") - 1
    large = np.searchsorted(nested.starts, lost.large, "right") - 1
    if places is not None:
        zeros, large = places[zeros], places[large]
    return Losses(zeros, large, lost.errors)


def _suspects(texts: pa.StringArray, typed: pa.Array) -> Rows:
    """Returns the lists in text that may hold a number that float32 changes."""
    while is_list(typed.type):
        typed = typed.flatten()
    if pa.types.is_floating(typed.type) and is_large(typed):
        return np.arange(len(texts))
    return np.flatnonzero(numpy_mask(pc.match_substring_regex(texts, _SUSPECT)))


def _of_values(raw: pa.Array, typed: pa.Array) -> Losses:
    kind = raw.type
    is_text = pa.types.is_string(kind)
    if not (is_text or is_number(kind)) or pa.types.is_float32(kind):
        return _NONE
    sizes = np.abs(raw_values(typed))
    if len(sizes) and sizes.min() > 0 and sizes.max() < FLOAT32_EXACT:
        return _NONE
    zero = sizes == 0
    if typed.null_count:
        zero &= numpy_mask(typed.is_valid())
    if not (is_text or pa.types.is_decimal(kind)):
        zeros = np.flatnonzero(zero & (raw_values(raw) != 0))
    else:
        zeros = np.flatnonzero(zero)
        # Most columns write all zeros alike: each way is looked at once.
        texts = raw.take(pa.array(zeros)).cast(pa.string()).dictionary_encode()
        tiny = numpy_mask(pc.match_substring_regex(texts.dictionary, _NOT_ZERO))
        zeros = zeros[tiny[texts.indices.to_numpy()]] if tiny.any() else _NO_ROWS
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
