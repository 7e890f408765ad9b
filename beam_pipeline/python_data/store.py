"""Store Python objects as Arrow IPC once, to be read like any other table.

| source                                        | rows                            |
| --------------------------------------------- | ------------------------------- |
| pyarrow Table, RecordBatch, RecordBatchReader | its rows                        |
| pandas DataFrame                              | its rows, without the index;    |
|                                               | what pandas calls NA is missing |
| anything with `__arrow_c_stream__` (Polars,   | its rows                        |
| DuckDB ...)                                   |                                 |
| structured NumPy array                        | one for each element            |
| mapping of name to array, list or Series      | one for each element            |
| sequence, or iterable, of rows                | one for each                    |
| map-style dataset (`__len__`, `__getitem__`)  | one for each item, in order     |

Rows are mappings, dataclasses, named tuples, or tuples: the parts of a tuple are named
`feature0` and so on, those of a pair whose first is an image `image` and `label`, as
PyTorch's datasets mean them. Values are what `arrow_of` takes, tensors of PyTorch and
similar libraries, and images opened by Pillow, which are stored as PNG. Arrays (height,
width, channels) are stored as PNG, too, where the job declares the feature an image.

An exception that the source itself raises is passed on unchanged.
"""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_pipeline.python_data.spool import odd_row, store_batches
from transforms.core.json_text import (
    MAX_NESTING,
    TOO_DEEP,
    has_arrays,
    type_nesting,
)
from transforms.core.rows.arrow_of import arrow_of
from transforms.core.rows.python_kinds import OddValueError, converter_of
from transforms.errors import EncodingError, InputError, SourceError, bounded
from transforms.rows.row_batches import Waiting, column_of, values_of
from transforms.rows.row_types import A_ROW, check_name, check_names, converter

_PIECE_ROWS = 1 << 16
# Of single rows that become a batch.
_BATCH_BYTES = 32 << 20
_SHOWN_CHARS = 80


def is_object_source(source: object) -> bool:
    """Tells whether a source is Python data, not a path or a pattern."""
    return not isinstance(source, str | os.PathLike)


def store_rows(
    source: object,
    path: str,
    *,
    images: Collection[str] = (),
    integers: Collection[str] = (),
) -> int:
    """Writes the rows of a Python object as an Arrow IPC file; returns their number.

    Memory: up to 4,096 rows or 32 MiB at a time for a source that gives single rows.

    Args:
      source: see above.
      path: of the file, which must not exist.
      images: columns whose arrays are pixels.
      integers: columns that must hold no floats.

    Raises:
      SourceError: the object is no table and does not give rows.
      InputError: a value does not fit those before it; names column and row.
    """
    batches = _batches(source, frozenset(images))
    return store_batches(_without_floats(batches, frozenset(integers)), path)


def _without_floats(
    batches: Iterator[pa.RecordBatch], names: frozenset[str]
) -> Iterator[pa.RecordBatch]:
    """Yields the batches unchanged; InputError for a float in a column of integers."""
    rows = 0
    for batch in batches:
        for name in sorted(names.intersection(batch.schema.names)):
            column = batch.column(name)
            if not pa.types.is_floating(column.type):
                continue
            values = column.cast(pa.float64())
            # A fraction says more than 1.0 does.
            index = pc.index(pc.not_equal(values, pc.trunc(values)), True).as_py()
            if index < 0:
                index = pc.index(column.is_valid(), True).as_py()
            if index >= 0:
                reason = f"{column[index]} is a float, and it is declared an integer"
                raise odd_row(name, OddValueError(reason, index), rows)
        yield batch
        rows += batch.num_rows


def _batches(source: Any, images: frozenset[str]) -> Iterator[pa.RecordBatch]:
    if _is_of(source, "polars", "DataFrame"):
        for name, dtype in source.schema.items():
            _check_polars(name, dtype)
    if _is_of(source, "pandas", "DataFrame"):
        _check_levels(source)
        columns = [(name, source.iloc[:, i]) for i, name in enumerate(source.columns)]
        source = _from_columns(columns, images)
    elif isinstance(source, np.ndarray) and source.dtype.names:
        names = source.dtype.names
        source = _from_columns([(name, source[name]) for name in names], images)
    elif isinstance(source, Mapping):
        source = _from_columns([*source.items()], images)
    elif isinstance(source, pa.RecordBatch):
        source = pa.Table.from_batches([source])
    elif hasattr(source, "__arrow_c_stream__") and not isinstance(
        source, pa.Table | pa.RecordBatchReader
    ):
        source = _from_stream(source)
    if isinstance(source, pa.Table):
        source = source.to_reader(max_chunksize=_PIECE_ROWS)
    if isinstance(source, pa.RecordBatchReader):
        return _from_reader(source, images)
    return _of_rows(source, images)


def _is_of(value: object, package: str, name: str) -> bool:
    """Tells whether a value is an instance of a class, without importing the class."""
    return any(
        kind.__name__ == name and kind.__module__.partition(".")[0] == package
        for kind in type(value).__mro__
    )


def _check_polars(name: str, dtype: object) -> None:
    """Raises InputError for Python objects, of which Polars exports addresses."""
    if str(dtype) == "Object":
        raise odd_row(name, OddValueError("Object of Polars has no type in Arrow"))


def _check_levels(frame: Any) -> None:
    if frame.columns.nlevels > 1:
        raise InputError(
            f"The columns of a DataFrame must have one level of names; found "
            f"{frame.columns.nlevels}. Join them, as in ['_'.join(c) for c in "
            f"frame.columns]."
        )


def _from_stream(source: Any) -> pa.RecordBatchReader:
    try:
        return pa.RecordBatchReader.from_stream(source)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise SourceError(
            f"A source must be a table; {type(source).__name__} is not: {error}. Give "
            f"its column in a mapping, as in {{'x': column}}."
        ) from error


def _check_names(names: Iterable[str]) -> None:
    try:
        check_names(names)
    except EncodingError as error:
        raise InputError(str(error)) from error


def _from_reader(
    reader: pa.RecordBatchReader, images: frozenset[str]
) -> Iterator[pa.RecordBatch]:
    _check_names(reader.schema.names)
    for field in reader.schema:
        if type_nesting(field.type) > MAX_NESTING:
            raise odd_row(field.name, OddValueError(TOO_DEEP))
        if not has_arrays(field.type):
            raise odd_row(field.name, OddValueError(f"they are {field.type}"))
    rows = 0
    for batch in reader:
        for first in range(0, batch.num_rows, _PIECE_ROWS):
            piece = batch.slice(first, _PIECE_ROWS)
            yield _with_images(piece, images, rows)
            rows += piece.num_rows
    if not rows:
        # A table without rows keeps its columns.
        none = [pa.nulls(0, kind) for kind in reader.schema.types]
        yield pa.record_batch(none, schema=reader.schema)


def _with_images(
    batch: pa.RecordBatch, images: frozenset[str], rows: int
) -> pa.RecordBatch:
    """Returns rows in which the tensors of image columns are PNG files."""
    for index, field in enumerate(batch.schema):
        if field.name in images and isinstance(field.type, pa.FixedShapeTensorType):
            pixels = [v.to_numpy() if v.is_valid else None for v in batch.column(index)]
            column = _column(field.name, pixels, images, rows)
            batch = batch.set_column(index, field.name, column)
    return batch


def _from_columns(
    columns: Sequence[tuple[Any, Any]], images: frozenset[str]
) -> pa.Table:
    names = [str(name) for name, _ in columns]
    _check_names(names)
    arrays = [
        _column(name, values, images)
        for name, (_, values) in zip(names, columns, strict=True)
    ]
    lengths = dict(zip(names, map(len, arrays), strict=True))
    if len(set(lengths.values())) > 1:
        raise InputError(
            f"All columns of a mapping must be of one length; found {lengths}."
        )
    return pa.table(arrays, names=names)


def _column(
    name: str, values: Any, images: frozenset[str], rows: int = 0
) -> pa.Array | pa.ChunkedArray:
    is_image = name in images
    try:
        if _is_of(values, "pandas", "Series"):
            return _of_series(values, is_image)
        if isinstance(values, pa.Array | pa.ChunkedArray):
            return values
        if _is_of(values, "polars", "Series"):
            _check_polars(name, values.dtype)
        if hasattr(values, "__arrow_c_stream__"):
            return pa.chunked_array(values)
        if isinstance(values, str | bytes | Mapping) or not hasattr(values, "__len__"):
            raise OddValueError(
                f"a column is an array or a list, not {type(values).__name__}"
            )
        convert = converter_of(type(values))
        if convert is not None:
            values = convert(values)
        if isinstance(values, np.ndarray) and not (is_image and values.ndim > 1):
            return arrow_of(values)
        return column_of(list(values), is_image=is_image)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise odd_row(name, error, rows) from error


def _of_series(series: Any, is_image: bool) -> pa.Array | pa.ChunkedArray:
    if series.dtype == object:
        values = series.tolist()
        for index in np.flatnonzero(series.isna().to_numpy()).tolist():
            values[index] = None
        return column_of(values, is_image=is_image)
    array = pa.array(series, from_pandas=True)
    # Arrow would store a period as a plain integer, and lose what it means.
    kind = array.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if isinstance(kind, pa.BaseExtensionType):
        raise OddValueError(f"{series.dtype} has no type in Arrow")
    return array


def _of_rows(source: Any, images: frozenset[str]) -> Iterator[pa.RecordBatch]:
    """Yields the rows of an iterable, or of a map-style dataset.

    Raises:
      SourceError: the object does not give rows.
      InputError: a row does not fit the rows before it.
    """
    waiting = Waiting(_BATCH_BYTES)
    names: list[str] = []
    rows = 0
    for index, item in enumerate(_items(source)):
        waiting.append(_as_row(item, index, names))
        if len(waiting) >= waiting.next_look and waiting.is_enough():
            yield _batch(waiting.take(), rows, images)
            rows = index + 1
    if rest := waiting.take():
        yield _batch(rest, rows, images)


def _items(source: Any) -> Iterator[Any]:
    is_bytes = isinstance(source, bytes | bytearray | memoryview)
    if isinstance(source, Iterable) and not is_bytes:
        return iter(source)
    if not is_bytes and hasattr(source, "__len__") and hasattr(source, "__getitem__"):
        return (source[index] for index in range(len(source)))
    raise SourceError(
        f"A source must be a path, a table, a mapping of columns, or give rows one by "
        f"one; found {type(source).__name__}. See docs/how-to/python-data.md for all."
    )


def _as_row(item: Any, index: int, names: list[str]) -> Mapping[str, Any]:
    """Returns a row as a mapping.

    Args:
      item: the row.
      index: its number, from 0.
      names: of the parts of the tuples of its source, which the first one decides.
    """
    convert = converter(type(item))
    if convert is not None:
        row = convert(item)
        return _with_text_keys(row) if isinstance(item, Mapping) else row
    if not isinstance(item, tuple | list):
        shown = bounded(repr(item), _SHOWN_CHARS)
        raise InputError(
            f"Every element must be {A_ROW}, tuple or list; row {index + 1:,} is "
            f"{shown} ({type(item).__name__}). Map it to a row first."
        )
    names += [] if names else _part_names(item)
    if len(item) != len(names):
        raise InputError(
            f"All rows must have the same number of parts; row {index + 1:,} has "
            f"{len(item)}, those before {len(names)}. Give mappings, where parts may "
            f"be missing."
        )
    return dict(zip(names, item, strict=True))


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
    if not names:
        raise InputError(f"A row must have a feature; row {start + 1:,} has none.")
    for name in names:
        try:
            check_name(name)
        except EncodingError as error:
            index = next(i for i, row in enumerate(rows) if name in row)
            raise InputError(
                f"Names of features must be text; in row {start + index + 1:,}, {error}"
            ) from error
    columns = {}
    for name, values in values_of(rows, names):
        try:
            columns[name] = column_of(values, is_image=name in images)
        except OddValueError as error:
            raise odd_row(name, error, start) from error
    return pa.record_batch([columns[name] for name in names], names=names)
