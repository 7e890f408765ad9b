"""Count the numbers of a source that float32 rounds to another or to 0.

    not 0, up to 2^-150, 7.006e-46    become 0
    2^24 and more                     miss their value by a half and more

Such values are written, and counted: unlike those beyond float32, which are rejects,
they have a nearest float32.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import FEW_ROWS, is_list, numpy_mask, offsets_of, raw_values
from transforms.core.model import Rounding
from transforms.core.rows.coerce import coerce
from transforms.core.rows.column import decoded
from transforms.core.rows.float32 import (
    FLOAT32_EXACT,
    doubles_of,
    is_large,
    large_places,
)
from transforms.core.rows.nested import Nested, nested_lists, nested_texts
from transforms.core.schema import Feature, Kind, Schema
from transforms.errors import shortened

Rows = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]

# Without a negative exponent, a number that small has at least this many characters.
_LEAST_CHARS = 45
# A pattern that every number that small matches, for lists in text.
_SUSPECT = r"[eE]-0*[1-9][0-9]|0{30}"
# A digit that is not 0, before the exponent.
_NOT_ZERO = r"^[^eE]*[1-9]"
_WORD_BYTES = 8
_PIECE_BYTES = 1 << 16
# For a cell of n bytes: which of the eight bytes up to its end are its own.
_MASKS = np.array([(2**64 - 1) >> 8 * n << 8 * n for n in range(8, -1, -1)], np.uint64)
# Ways to write 0 that are looked at in a column: most write all zeros alike.
_WAYS = 4
_NO_ROWS = np.zeros(0, np.int64)
_NO_ERRORS = np.zeros(0, np.float64)


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

    def of_rows(self, keep: npt.NDArray[np.bool_]) -> "Losses":
        """Returns the losses of the rows where `keep` is true."""
        kept = keep[self.large]
        return Losses(self.zeros[keep[self.zeros]], self.large[kept], self.errors[kept])

    def renumbered(self, rows: Rows) -> "Losses":
        """Returns the losses with `rows[i]` in place of row i."""
        return Losses(rows[self.zeros], rows[self.large], self.errors)


def roundings_of(
    columns: Mapping[str, pa.Array],
    rows: pa.RecordBatch,
    schema: Schema,
    keep: npt.NDArray[np.bool_],
    place: Callable[[int, str], str],
) -> dict[str, Rounding]:
    """Returns what float32 did to the tiny and the large numbers of each column.

    Args:
      columns: raw columns by the source's names; n values each.
      rows: the same under the schema.
      schema: of the rows.
      keep: n bools: which rows are looked at.
      place: returns a description of a cell, from its row and its text.

    Returns:
      Column -> counts and examples; columns that lost nothing are left out.
    """

    def words(raw: pa.Array, at: Rows) -> str:
        if not len(at):
            return ""
        return place(int(at[0]), shortened(str(raw[int(at[0])].as_py())))

    out = {}
    harmless = _harmless_floats(columns, rows, schema)
    for feature in schema.features:
        raw = columns.get(feature.source_column)
        if raw is None or feature.derived or feature.constant is not None:
            continue
        if feature.name in harmless or pa.types.is_float32(raw.type):
            continue
        found = losses(raw, rows[feature.name], feature)
        if not (len(found.zeros) or len(found.large)):
            continue
        found = found.of_rows(keep)
        if len(found.zeros) or len(found.large):
            out[feature.source_column] = Rounding(
                zeros=len(found.zeros),
                first_zero=words(raw, found.zeros),
                large=len(found.large),
                first_large=words(raw, found.large),
                error=float(found.errors.max(initial=0)),
            )
    return out


def _harmless_floats(
    columns: Mapping[str, pa.Array], rows: pa.RecordBatch, schema: Schema
) -> Collection[str]:
    """Returns columns of floats without a 0 and without a large number.

    Only for rows so few that what a column costs is the calls, not its values.
    """
    exact = {name for name, raw in columns.items() if pa.types.is_float32(raw.type)}
    places = [
        place
        for place, feature in enumerate(f for f in schema.features if not f.derived)
        if feature.kind is Kind.FLOAT
        and not feature.shape
        and feature.source_column not in exact
    ]
    if not places or not 0 < rows.num_rows < FEW_ROWS:
        return ()
    floats = rows.select(places)
    tensor = floats.to_tensor(null_to_nan=True, row_major=False)
    sizes = np.abs(tensor.to_numpy())
    least, most = np.fmin.reduce(sizes, axis=0), np.fmax.reduce(sizes, axis=0)
    # Also false for a column without any number.
    harmless = (least > 0) & (most < FLOAT32_EXACT)
    names = floats.schema.names
    return frozenset(names[place] for place in np.flatnonzero(harmless).tolist())


def losses(raw: pa.Array, typed: pa.Array, feature: Feature) -> Losses:
    """Returns the values that are not 0 and became 0, and the large ones that changed.

    Args:
      raw: n values as the source has them.
      typed: the same as the feature has them.
      feature: what they became; a kind that is not float32 loses nothing.
    """
    if feature.pattern or not _is_float32(feature):
        return _NONE
    raw = decoded(raw)
    if feature.kind is Kind.FLOAT and not feature.shape:
        return _of_values(raw, typed)
    if pa.types.is_string(raw.type):
        return _of_texts_of_lists(raw, typed, feature)
    if is_list(raw.type) or isinstance(raw.type, pa.FixedShapeTensorType):
        found = nested_lists(raw, ragged=feature.is_ragged)
        return _NONE if found is None else _of_nested(found)
    return _NONE


_NONE = Losses(_NO_ROWS, _NO_ROWS, _NO_ERRORS)


def _is_float32(feature: Feature) -> bool:
    is_tensor = feature.kind is Kind.TENSOR and feature.dtype == "float32"
    return feature.kind is Kind.FLOAT or is_tensor


def _of_values(raw: pa.Array, typed: pa.Array) -> Losses:
    kind = raw.type
    if not (
        pa.types.is_string(kind)
        or pa.types.is_float64(kind)
        or pa.types.is_decimal(kind)
    ):
        return _NONE
    return Losses(_zeros(raw, typed), *_large(raw, typed))


def _large(raw: pa.Array, typed: pa.Array) -> tuple[Rows, Doubles]:
    places = large_places(typed)
    if not len(places):
        return _NO_ROWS, _NO_ERRORS
    if pa.types.is_string(raw.type):
        exact = doubles_of(raw, places)
    elif pa.types.is_float64(raw.type):
        exact = raw_values(raw)[places].astype(np.float64, copy=False)
    else:
        doubles = raw.take(pa.array(places)).cast(pa.float64())
        exact = raw_values(doubles).astype(np.float64, copy=False)
    errors = np.abs(exact - raw_values(typed)[places].astype(np.float64))
    changed = errors > 0
    return places[changed], errors[changed]


def _zeros(raw: pa.Array, typed: pa.Array) -> Rows:
    kind = raw.type
    zero = raw_values(typed) == 0
    if typed.null_count:
        zero &= numpy_mask(typed.is_valid())
    if not zero.any():
        return _NO_ROWS
    if pa.types.is_float64(kind):
        return np.flatnonzero(zero & (raw_values(raw) != 0))
    if pa.types.is_string(kind):
        zeros = _suspects(raw, zero)
        texts = raw.take(pa.array(zeros))
    else:
        zeros = np.flatnonzero(zero)
        texts = raw.take(pa.array(zeros)).cast(pa.string())
    return zeros[numpy_mask(pc.match_substring_regex(texts, _NOT_ZERO))]


def _suspects(texts: pa.StringArray, zero: npt.NDArray[np.bool_]) -> Rows:
    """Returns the zeros whose text is long or may have a negative exponent.

    Many columns are mostly zeros, so this looks at a few bytes of each cell only.
    """
    offsets, buffer = offsets_of(texts), texts.buffers()[2]
    assert buffer is not None, "some cells are numbers"
    data = np.frombuffer(buffer, np.uint8)[: int(offsets[-1])]
    has_exponents = any(
        (data[at : at + _PIECE_BYTES] | 0x20 == ord("e")).any()
        for at in range(int(offsets[0]), len(data), _PIECE_BYTES)
    )
    if not has_exponents and (offsets[1:] - offsets[:-1]).max() < _LEAST_CHARS:
        return _NO_ROWS
    zeros = np.flatnonzero(zero)
    stops = offsets[1:][zeros]
    lengths = stops - offsets[zeros]
    tiny = lengths >= _LEAST_CHARS
    if has_exponents and len(data) >= _WORD_BYTES:
        # A view of every run of eight bytes as a number, by strides of 1.
        words = np.ndarray(len(data) - _WORD_BYTES + 1, "<u8", data, strides=(1,))
        ends = words[np.maximum(stops - _WORD_BYTES, 0)]
        if lengths.min() < _WORD_BYTES:
            ends &= _MASKS[np.minimum(lengths, _WORD_BYTES)]
        tiny |= ~_harmless(ends) | (stops < _WORD_BYTES)
    elif has_exponents:
        return zeros
    return zeros[tiny]


def _harmless(ends: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    """Tells which last eight bytes certainly do not end a tiny number.

    Most zeros of a column are written alike: a few ways are looked at, and other cells
    count as suspects, which are then parsed.
    """
    out = np.zeros(len(ends), np.bool_)
    left = ends
    for _ in range(_WAYS):
        if not len(left):
            break
        end = left[0]
        text = int(end).to_bytes(_WORD_BYTES, "little").lstrip(b"\0").lower()
        plain_zero = len(text) < _WORD_BYTES or b"." in text
        if b"e+" in text or (plain_zero and b"-" not in text.lstrip(b"-")):
            out |= ends == end
        left = left[left != end]
    return out


def _of_texts_of_lists(
    raw: pa.StringArray, typed: pa.Array, feature: Feature
) -> Losses:
    while is_list(typed.type):
        typed = typed.flatten()
    if pa.types.is_floating(typed.type) and is_large(typed):
        suspects = np.arange(len(raw))
    else:
        suspects = np.flatnonzero(numpy_mask(pc.match_substring_regex(raw, _SUSPECT)))
    if not len(suspects):
        return _NONE
    found = nested_texts(
        raw.take(pa.array(suspects)),
        feature.shape,
        separator=feature.separator,
        ragged=feature.is_ragged,
    )
    return _of_nested(found).renumbered(suspects)


def _of_nested(found: Nested) -> Losses:
    typed = values = decoded(found.values)
    if pa.types.is_string(values.type):
        typed = coerce(values, Feature("", Kind.FLOAT)).values
    elif pa.types.is_float64(values.type):
        typed = values.cast(pa.float32())
    lost = _of_values(values, typed)
    return Losses(
        np.searchsorted(found.starts, lost.zeros, "right") - 1,
        np.searchsorted(found.starts, lost.large, "right") - 1,
        lost.errors,
    )
