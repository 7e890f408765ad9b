"""Store Python objects as one Arrow IPC file, to be read like any other table.

| source                                        | rows                            |
| --------------------------------------------- | ------------------------------- |
| anything with `__arrow_c_stream__` (pyarrow,  | its rows                        |
| Polars, DuckDB ...)                           |                                 |
| pandas DataFrame                              | its rows, without the index;    |
|                                               | what pandas calls NA is missing |
| structured NumPy array                        | one for each element            |
| mapping of name to array, list or Series      | one for each element            |
| sequence, or iterable, of rows                | one for each                    |
| map-style dataset (`__len__`, `__getitem__`)  | one for each item, in order     |

Rows are mappings, dataclasses, named tuples, or tuples: the parts of a tuple are named
`feature0` and so on, those of a pair whose first is an image `image` and `label`, as
PyTorch's datasets mean them. Values are what `arrow_of` takes, tensors of PyTorch and
similar libraries, and images opened by Pillow, which are stored as PNG. Arrays (height,
width, channels) are stored as PNG, too, where the job declares the feature an image.

The file depends on the values alone, not on how their source cut them into batches:
its size is among the facts that a dataset's digest covers. All of its batches have the
same number of rows, in plain types; where a type gets wider, a new part begins, and in
the end all parts become one file of the widest types.

An exception that the source itself raises is passed on unchanged.
"""

import contextlib
import itertools
import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from transforms.core.arrays import has_arrays, regrouped, type_nesting
from transforms.core.json_text import MAX_NESTING, TOO_DEEP
from transforms.core.rows.common_type import PYTHON, as_type, plain_type, wider_type
from transforms.core.rows.natural_arrays import arrow_of
from transforms.core.rows.python_kinds import OddValueError, converter_of
from transforms.errors import EncodingError, InputError, SourceError, bounded
from transforms.rows.row_batches import column_of, values_of
from transforms.rows.row_types import (
    A_ROW,
    check_name,
    check_names,
    converter,
    part_names,
    with_text_keys,
)
from transforms.rows.spool import Waiting

# Of single rows that become a batch.
_WAITING_BYTES = 32 << 20
# They wait in memory until their size decides how many rows a stored batch has.
_MEASURED_ROWS = 64
_BATCH_BYTES = 16 << 20
_MOST_ROWS = 1 << 16


def store_rows(source: object, path: str, *, images: Collection[str]) -> None:
    """Writes the rows of a Python object as an Arrow IPC file.

    A column that a batch lacks is null there; new columns come last. Memory: up to
    4,096 rows or 32 MiB at a time for a source that gives single rows.

    Args:
      source: see above.
      path: of the file, which must not exist.
      images: columns whose arrays are pixels.

    Raises:
      SourceError: the object is no table and does not give rows.
      InputError: a value does not fit those before it; names column and row.
    """
    parts: list[str] = []
    schema = pa.schema([])
    batches = _widened(_batches_of_source(source, frozenset(images)))
    for schema, some in itertools.groupby(batches, lambda batch: batch.schema):
        parts.append(f"{path}.{len(parts)}")
        _write(parts[-1], schema, some)
    if len(parts) == 1:
        os.replace(parts[0], path)
    else:
        _write(path, schema, _moved(parts, schema))


def _widened(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields batches with the columns and the widest types of all up to each."""
    schema, rows = pa.schema([]), 0
    for batch in batches:
        wider = _wider_schema(schema, batch.schema, rows)
        schema = schema if wider.equals(schema) else wider
        yield _as_schema(batch, schema, rows)
        rows += batch.num_rows


def _odd_row(name: str, error: Exception, start: int = 0) -> InputError:
    """Returns the error for a bad value in a column of the Python data given.

    Args:
      name: of the column.
      error: what is wrong; an OddValueError may say with which value.
      start: the row of the first value that was converted, from 0.
    """
    index = error.index if isinstance(error, OddValueError) else -1
    location = f"in row {start + index + 1:,}, " if index >= 0 else ""
    reason = str(error).rstrip(".")
    return InputError(
        f"All values of {name!r} must be of one kind that a feature can hold; "
        f"{location}{reason}. Convert them to one kind first, or leave the column out."
    )


def _wider_schema(before: pa.Schema, new: pa.Schema, rows: int) -> pa.Schema:
    """Returns the types that hold earlier and new rows; InputError where none does."""
    fields = {field.name: field.type for field in before}
    for field in new:
        kind = plain_type(field.type, PYTHON)
        earlier = fields.get(field.name, pa.null())
        wide = wider_type(earlier, kind, PYTHON)
        if wide is None:
            reason = f"they are {kind} from row {rows + 1:,} on, {earlier} before"
            raise _odd_row(field.name, OddValueError(reason))
        fields[field.name] = wide
    return pa.schema(list(fields.items()), _class_names(new) or before.metadata)


def _class_names(schema: pa.Schema) -> dict[bytes, bytes]:
    """Returns what a schema of Hugging Face's `datasets` says of its columns."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        stated = json.loads((schema.metadata or {})[b"huggingface"])
        # Without its fingerprint, which equal rows need not have in common.
        said = {"info": {"features": stated["info"]["features"]}}
        return {b"huggingface": json.dumps(said).encode()}
    return {}


def _as_schema(batch: pa.RecordBatch, schema: pa.Schema, rows: int) -> pa.RecordBatch:
    """Returns a batch with these columns and types; null where it lacks one."""
    columns = []
    for field in schema:
        if field.name not in batch.schema.names:
            columns.append(pa.nulls(batch.num_rows, field.type))
            continue
        try:
            columns.append(as_type(batch.column(field.name), field.type))
        except (OddValueError, pa.ArrowException) as error:
            raise _odd_row(field.name, error, rows) from error
    return pa.record_batch(columns, schema=schema) if columns else batch


def _write(path: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
    """Writes rows as a file, in batches of about 16 MiB each."""
    first = pa.Table.from_batches([], schema)
    while len(first) < _MEASURED_ROWS and (batch := next(batches, None)) is not None:
        first = pa.concat_tables([first, pa.Table.from_batches([batch])])
    measured = first[:_MEASURED_ROWS]
    row_bytes = max(measured.nbytes // max(len(measured), 1), 1)
    # The largest power of two of rows that take up to 16 MiB; at least 1.
    most = min(max(_BATCH_BYTES // row_bytes, 1), _MOST_ROWS)
    rows = 1 << (most.bit_length() - 1)
    every = itertools.chain(first.to_batches(), batches)
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for batch in regrouped(every, rows):
            writer.write_batch(batch)


def _moved(parts: Sequence[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yields the rows of files in the columns of a schema; removes the files."""
    rows = 0
    for part in parts:
        with pa.OSFile(part, "rb") as source:
            reader = pa.ipc.open_file(source)
            for index in range(reader.num_record_batches):
                batch = reader.get_batch(index)
                yield _as_schema(batch, schema, rows)
                rows += batch.num_rows
        os.remove(part)


def _batches_of_source(source: Any, images: frozenset[str]) -> Iterator[pa.RecordBatch]:
    """Yields a DataFrame, mapping, Arrow or NumPy table, or rows, as Arrow batches."""
    if _is_of(source, "polars", "DataFrame"):
        for name, dtype in source.schema.items():
            _check_polars(name, dtype)
    if _is_of(source, "pandas", "DataFrame"):
        if source.columns.nlevels > 1:
            raise InputError(
                f"The columns of a DataFrame must have one level of names; found "
                f"{source.columns.nlevels}. Join them, as in ['_'.join(c) for c in "
                f"frame.columns]."
            )
        columns = [(name, source.iloc[:, i]) for i, name in enumerate(source.columns)]
        source = _from_columns(columns, images)
    elif isinstance(source, np.ndarray) and source.dtype.names:
        names = source.dtype.names
        source = _from_columns([(name, source[name]) for name in names], images)
    elif isinstance(source, Mapping):
        source = _from_columns([*source.items()], images)
    if isinstance(source, pa.RecordBatch):
        source = pa.Table.from_batches([source])
    # Not through C, where names end at a NUL and exceptions of the source are texts.
    if isinstance(source, pa.Table):
        source = source.to_reader()
    if isinstance(source, pa.RecordBatchReader):
        return _from_reader(source, images)
    if not hasattr(source, "__arrow_c_stream__"):
        return _of_rows(source, images)
    try:
        reader = pa.RecordBatchReader.from_stream(source)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise SourceError(
            f"A source must be a table; {type(source).__name__} is not: {error}. Give "
            f"its column in a mapping, as in {{'x': column}}."
        ) from error
    return _from_reader(reader, images)


def _is_of(value: object, package: str, name: str) -> bool:
    """Tells whether a value is an instance of a class, without importing the class."""
    return any(
        kind.__name__ == name and kind.__module__.partition(".")[0] == package
        for kind in type(value).__mro__
    )


def _check_polars(name: str, dtype: object) -> None:
    """Raises InputError for Python objects, since Polars exports their addresses."""
    if str(dtype) == "Object":
        raise _odd_row(name, OddValueError("Object of Polars has no type in Arrow"))


def _check_names(names: Iterable[str]) -> None:
    """Raises InputError for columns without a name, or with the same."""
    try:
        check_names(names)
    except EncodingError as error:
        raise InputError(str(error)) from error


def _from_reader(
    reader: pa.RecordBatchReader, images: frozenset[str]
) -> Iterator[pa.RecordBatch]:
    """Yields pieces of an Arrow stream; where it is empty, its columns without rows."""
    _check_names(reader.schema.names)
    for field in reader.schema:
        if type_nesting(field.type) > MAX_NESTING:
            raise _odd_row(field.name, OddValueError(TOO_DEEP))
        if not has_arrays(field.type):
            raise _odd_row(field.name, OddValueError(f"they are {field.type}"))
    rows = 0
    for batch in reader:
        for first in range(0, batch.num_rows, _MOST_ROWS):
            piece = batch.slice(first, _MOST_ROWS)
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
            column = _arrow_column(field.name, pixels, images, rows)
            batch = batch.set_column(index, field.name, column)
    return batch


def _from_columns(
    columns: Sequence[tuple[Any, Any]], images: frozenset[str]
) -> pa.Table:
    """Returns columns of any kind of array as a table; InputError if lengths differ."""
    _check_names([str(name) for name, _ in columns])
    named = [(str(name), _arrow_column(str(name), v, images)) for name, v in columns]
    lengths = {name: len(array) for name, array in named}
    if len(set(lengths.values())) > 1:
        raise InputError(
            f"All columns of a mapping must be of one length; found {lengths}."
        )
    return pa.table([array for _, array in named], names=[name for name, _ in named])


def _arrow_column(
    name: str, values: Any, images: frozenset[str], rows: int = 0
) -> pa.Array | pa.ChunkedArray:
    """Returns an array, list or Series in Arrow; pixels become PNG files."""
    is_image = name in images
    try:
        # As `datasets` loads several splits.
        if hasattr(values, "columns") or hasattr(values, "column_names"):
            raise OddValueError("it is a table: convert each table by itself")
        if _is_of(values, "pandas", "Series"):
            return _of_series(values, is_image)
        if isinstance(values, pa.Array):
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
        raise _odd_row(name, error, rows) from error


def _of_series(series: Any, is_image: bool) -> pa.Array | pa.ChunkedArray:
    """Returns a pandas Series in Arrow; NaN among objects is absent, periods fail."""
    if series.dtype == object:
        values = series.tolist()
        for index in np.flatnonzero(series.isna().to_numpy()).tolist():
            values[index] = None
        return column_of(values, is_image=is_image)
    if hasattr(series, "sparse"):
        series = series.sparse.to_dense()
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
    waiting = Waiting(_WAITING_BYTES)
    names: list[str] = []
    rows = 0
    for index, item in enumerate(_iterate_rows(source)):
        waiting.append(_as_row(item, index, names))
        if len(waiting) >= waiting.next_look and waiting.is_enough():
            yield _batch(waiting.take(), rows, images)
            rows = index + 1
    if rest := waiting.take():
        yield _batch(rest, rows, images)


def _iterate_rows(source: Any) -> Iterator[Any]:
    """Returns an iterator over the rows of a source; SourceError for what has none."""
    if not isinstance(source, bytes | bytearray | memoryview):
        if isinstance(source, Iterable):
            return iter(source)
        if hasattr(source, "__len__") and hasattr(source, "__getitem__"):
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
        return with_text_keys(row) if isinstance(item, Mapping) else row
    if not isinstance(item, tuple | list):
        shown = bounded(repr(item), 80)
        raise InputError(
            f"Every element must be {A_ROW}, tuple or list; row {index + 1:,} is "
            f"{shown} ({type(item).__name__}). Map it to a row first."
        )
    names += [] if names else part_names(item)
    if len(item) != len(names):
        raise InputError(
            f"All rows must have the same number of parts; row {index + 1:,} has "
            f"{len(item)}, those before {len(names)}. Give mappings, where parts may "
            f"be missing."
        )
    return dict(zip(names, item, strict=True))


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
            row = start + next(i for i, row in enumerate(rows) if name in row) + 1
            raise InputError(
                f"Names of features must be text; in row {row:,}, {error}"
            ) from error
    columns = {}
    for name, values in values_of(rows, names):
        try:
            columns[name] = column_of(values, is_image=name in images)
        except OddValueError as error:
            raise _odd_row(name, error, start) from error
    return pa.record_batch([columns[name] for name in names], names=names)
