"""Turn rows of Python values, from generators and datasets, into record batches.

Rows are taken one by one, as they come; their values are converted by the column.
"""

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from beam_pipeline.python_data.spool import odd_name, odd_row
from transforms.core.nesting import check_key
from transforms.core.rows.arrow_of import arrow_of
from transforms.core.rows.python_kinds import OddValueError, converter_of, native_values
from transforms.errors import InputError, SourceError, bounded
from transforms.rows.row_types import A_ROW, as_mapping

# A record batch ends at the first of these limits that is reached.
_BATCH_ROWS = 4096
_BATCH_BYTES = 32 << 20
# Measure the size of every n-th row: measuring each would cost as much as converting.
_WEIGHED_ROWS = 16
_SHOWN_CHARS = 80


def batches_of_rows(source: Any, images: frozenset[str]) -> Iterator[pa.RecordBatch]:
    """Yields the rows of an iterable, or of a map-style dataset.

    Raises:
      SourceError: the object does not give rows.
      InputError: a row does not fit the rows before it.
    """
    items = _items(source)
    rows = 0
    names = _RowNames()
    while found := _some(items):
        mappings = [names.row(item, rows + index) for index, item in enumerate(found)]
        yield _batch(mappings, rows, images)
        rows += len(found)


def _items(source: Any) -> Iterator[Any]:
    if isinstance(source, bytes | bytearray | memoryview):
        raise _no_source(source)
    if isinstance(source, Iterable):
        return iter(source)
    if hasattr(source, "__len__") and hasattr(source, "__getitem__"):
        return (source[index] for index in range(len(source)))
    raise _no_source(source)


def _no_source(source: object) -> SourceError:
    return SourceError(
        f"A source must be a path, a table, a mapping of columns, or give rows one by "
        f"one; found {type(source).__name__}. See docs/how-to/python-data.md for all."
    )


def _some(items: Iterator[Any]) -> list[Any]:
    out: list[Any] = []
    weight = 0
    while len(out) < _BATCH_ROWS and weight < _BATCH_BYTES:
        more = list(itertools.islice(items, _WEIGHED_ROWS))
        if not more:
            break
        out += more
        # A list that holds itself is refused later, when it becomes a column.
        with contextlib.suppress(RecursionError):
            weight += _WEIGHED_ROWS * _weight(more[-1])
    return out


def _weight(item: Any) -> int:
    """Returns roughly how many bytes the values of a row take."""
    if isinstance(item, Mapping):
        return sum(map(_weight, item.values()))
    if isinstance(item, tuple | list):
        return sum(map(_weight, item))
    if hasattr(item, "nbytes"):
        return int(item.nbytes)
    if type(item).__module__.startswith("PIL."):
        return 4 * int(item.width) * int(item.height)
    return len(item) if isinstance(item, str | bytes | bytearray) else 8


class _RowNames:
    """Names the parts of rows; all tuples of a source get the names of the first."""

    def __init__(self) -> None:
        self._of_tuples: list[str] | None = None
        self._parts: Callable[[Any], Mapping[str, Any]] | None = None
        self._kind: type | None = None

    def row(self, item: Any, index: int) -> Mapping[str, Any]:
        """Returns a row as a mapping."""
        kind = type(item)
        if kind is not self._kind:
            self._kind, self._parts = kind, self._parts_of(kind, item, index)
        assert self._parts is not None
        row = self._parts(item)
        wanted = self._of_tuples
        is_sequence = isinstance(item, tuple | list)
        if is_sequence and wanted is not None and len(item) != len(wanted):
            raise InputError(
                f"All rows must have the same number of parts; row {index + 1:,} has "
                f"{len(item)}, those before {len(wanted)}. Give mappings, where parts "
                f"may be missing."
            )
        return row

    def _parts_of(
        self, kind: type, item: Any, index: int
    ) -> Callable[[Any], Mapping[str, Any]]:
        convert = as_mapping(kind)
        if convert is not None:
            if not issubclass(kind, Mapping):
                return convert
            return lambda row: _with_text_keys(convert(row))
        if issubclass(kind, tuple | list):
            if self._of_tuples is None:
                self._of_tuples = _part_names(item)
            names = self._of_tuples
            return lambda row: dict(zip(names, row, strict=False))
        shown = bounded(repr(item), _SHOWN_CHARS)
        raise InputError(
            f"Every element must be {A_ROW}, tuple or list; row {index + 1:,} is "
            f"{shown} ({kind.__name__}). Map it to a row first."
        )


def _with_text_keys(row: Mapping[Any, Any]) -> Mapping[str, Any]:
    if all(type(key) is str for key in row):
        return row
    named = {str(key): value for key, value in row.items()}
    if len(named) < len(row):
        raise InputError(f"Names must differ as text; found {list(row)[:8]}.")
    return named


def _part_names(row: Sequence[Any]) -> list[str]:
    if len(row) == 2 and _is_image_like(row[0]):
        return ["image", "label"]
    return [f"feature{index}" for index in range(len(row))]


def _is_image_like(value: Any) -> bool:
    if type(value).__module__.startswith("PIL."):
        return True
    return len(getattr(value, "shape", ())) in (2, 3)


def _batch(
    rows: Sequence[Mapping[str, Any]], start: int, images: frozenset[str]
) -> pa.RecordBatch:
    """Returns rows of Python values as one Arrow batch, a column for each name."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    arrays = []
    for name in names:
        if not name:
            raise InputError("Every feature must have a name; one is empty.")
        try:
            check_key(name)
        except ValueError as error:
            index = next(i for i, row in enumerate(rows) if name in row)
            raise odd_name(error, start + index) from error
        values = [row.get(name) for row in rows]
        try:
            arrays.append(column_of(values, is_image=name in images))
        except OddValueError as error:
            raise odd_row(name, error, start) from error
    if not arrays:
        raise InputError(f"A row must have a feature; row {start + 1:,} has none.")
    return pa.record_batch(arrays, names=names)


def column_of(values: Any, *, is_image: bool) -> pa.Array:
    """Returns the n values of a feature, of whatever library, as an Arrow array.

    Args:
      values: an array of shape (n, ...), or n values; None where one is missing.
      is_image: whether arrays are the pixels of images.

    Raises:
      OddValueError: a value does not fit the others.
    """
    convert = converter_of(type(values))
    if convert is not None:
        values = convert(values)
    if isinstance(values, np.ndarray) and not (is_image and values.ndim > 1):
        return arrow_of(values)
    return arrow_of(native_values(list(values), is_image=is_image))
