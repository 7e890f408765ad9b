"""Records of known features as typed rows: Arrow batches, and dicts of Python values.

| feature              | in a batch                      | in a dict                   |
| -------------------- | ------------------------------- | ----------------------------|
| int64, float, bool   | int64, float32, bool            | int, float, bool            |
| text                 | string                          | str                         |
| label by name, by id | string, int64                   | str, int                    |
| bytes, image         | binary, large_binary            | bytes                       |
| timestamp            | timestamp in its unit and UTC   | datetime in UTC             |
| raw tensor           | binary, as it is stored         | NumPy array of its shape    |
| proto tensor         | binary, as it is stored         | bytes                       |
| box                  | list of float32[4]              | list of lists of four       |
| shape (n,), (n, m)   | fixed-size lists                | list, list of lists         |
| shape (None,)        | list                            | list                        |
| shape (None, None)   | list of lists                   | list of lists               |
| missing              | null                            | None                        |
"""

import dataclasses
import datetime
import itertools
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import list_lengths, list_of, numpy_mask, values_and_rows
from transforms.core.reasons import Reason
from transforms.core.rows.nested import fitted
from transforms.core.rows.text_cells import not_utf8
from transforms.core.schema import Feature, Kind
from transforms.core.tfrecord.reader import PayloadBatch, TFRecordReader
from transforms.errors import (
    ExampleError,
    InputError,
    RecordKindError,
    SourceError,
    TFRecordError,
)
from transforms.formats.raw_rows import grouped
from transforms.formats.tfrecord_files.dataset import Edition, Shard
from transforms.formats.tfrecord_files.stored_features import (
    Composed,
    column_type,
    composed,
    parser_of,
    read_features,
)
from transforms.storage.files import storage

# The first and the last second that a Python datetime holds, since 1970.
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
# Rows of about this many bytes are decoded at a time.
_PIECE_BYTES = 4 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class TypedRows:
    """How records become rows.

        >>> rows = TypedRows((Feature("id", Kind.INT64), Feature("name", Kind.TEXT)))
        >>> rows.schema.types
        [DataType(int64), DataType(string)]

    Attributes:
      features: of the rows, in their order. A label with a vocabulary is read as class
        names, one without as class ids.
    """

    features: tuple[Feature, ...]

    @property
    def schema(self) -> pa.Schema:
        """The columns of a batch."""
        return pa.schema([(f.name, column_type(f, _typed)) for f in self.features])

    def batch(self, payloads: PayloadBatch, path: str) -> pa.RecordBatch:
        """Returns n records as n rows; no other features are decoded.

        Args:
          payloads: of the records.
          path: of their file, for messages; empty for records of no file.

        Raises:
          ExampleError: a record is no Example, or does not hold what a feature must.
        """
        decoded = read_features(payloads, self.features, _typed)
        for index, _, message in decoded.refused:
            raise self._misfit(payloads, path, index, message)
        if not self.features:
            # Rows without columns are as many as the records.
            rows = pa.array([{}] * len(payloads), pa.struct([]))
            return pa.RecordBatch.from_struct_array(rows)
        return pa.RecordBatch.from_pydict(decoded.columns)

    def dicts(self, batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
        """Yields the rows of a batch as dicts; every one has all columns.

        Raises:
          ExampleError: Python's datetime does not hold a timestamp.
        """
        columns = [
            _python_values(feature, column)
            for feature, column in zip(self.features, batch.columns, strict=True)
        ]
        if not columns:
            return ({} for _ in range(len(batch)))
        names = itertools.repeat(batch.schema.names)
        # No line of Python for each row: this takes half as long.
        return map(dict, map(zip, names, zip(*columns, strict=True)))

    def _misfit(
        self, payloads: PayloadBatch, path: str, place: int, message: str
    ) -> ExampleError:
        """Returns the error of a record that is no Example, or else does not fit."""
        record = payloads.first_record + place
        where, remedy = f"example {record:,}", ""
        if path:
            where = f"{path}: record {record:,} at byte {payloads.offsets[place]:,}"
            remedy = ". Leave that feature out of the columns, or write the file again."
        try:
            parser_of(self.features)(payloads.payload(place))
        except RecordKindError as error:
            return RecordKindError(f"{where}: {error}")
        except ExampleError:
            pass
        return ExampleError(f"{where}: {message}{remedy}")


def _typed(feature: Feature, columns: Mapping[str, pa.Array]) -> Composed:
    """Returns the column of a feature, or which of its values do not fit."""
    result = composed(feature, columns)
    if result.faults:
        return result
    column = result.column
    kind = _typed_like(column.type, feature)
    if kind != column.type:
        try:
            column = column.cast(kind)
        except pa.ArrowInvalid:
            message = f"feature {feature.name!r} is a text and holds no UTF-8"
            values, rows = values_and_rows(column)
            bad = np.isin(np.arange(len(column)), rows[not_utf8(values)])
            return Composed.of(column, bad, Reason.WRONG_TYPE, message)
    if feature.kind is Kind.TENSOR and feature.encoding == "raw":
        return _checked_tensors(feature, column)
    is_flat = feature.is_list and not feature.has_steps
    if is_flat and len(feature.shape) > feature.shape.count(None):
        return _nested(feature, column)
    return Composed(column)


def _typed_like(kind: pa.DataType, feature: Feature) -> pa.DataType:
    """Returns the type of a raw column with the feature's own type for its values."""
    if pa.types.is_list(kind):
        return pa.list_(_typed_like(kind.value_type, feature))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_typed_like(kind.value_type, feature), kind.list_size)
    if feature.kind is Kind.TEXT:
        return pa.string()
    if feature.kind in (Kind.BYTES, Kind.TENSOR):
        return pa.binary()
    if feature.kind is Kind.TIMESTAMP:
        return pa.timestamp(feature.unit or "s", "UTC")
    return kind


def _checked_tensors(feature: Feature, column: pa.Array) -> Composed:
    """Requires of typed tensors as many bytes as elements of their shape have."""
    itemsize = np.dtype(feature.dtype).itemsize
    sizes = pc.fill_null(pc.binary_length(column), 0).to_numpy()
    counts = sizes // itemsize
    _, bad = fitted(counts[:, None], counts, feature.shape)
    bad = (bad | (sizes % itemsize != 0)) & numpy_mask(column.is_valid())
    message = (
        f"feature {feature.name!r} is a tensor of shape {list(feature.shape)} of "
        f"{feature.dtype}; the record holds another number of bytes"
    )
    return Composed.of(column, bad, Reason.WRONG_SHAPE, message)


def _nested(feature: Feature, lists: pa.ListArray) -> Composed:
    """Returns flat lists as lists of the feature's shape."""
    present = numpy_mask(lists.is_valid())
    counts = list_lengths(lists)
    sizes, bad = fitted(counts[:, None], counts, feature.shape)
    bad &= present
    if bad.any():
        message = (
            f"feature {feature.name!r} has the shape {list(feature.shape)}; the record "
            f"holds {int(counts[np.argmax(bad)]):,} values"
        )
        return Composed.of(lists, bad, Reason.WRONG_SHAPE, message)
    shape, values, sizes = feature.shape, lists.flatten(), sizes[present]
    for axis in range(len(shape) - 1, 0, -1):
        size = shape[axis]
        if size is None:
            outer = math.prod(n or 0 for n in shape[:axis])
            counts = np.repeat(sizes[:, axis], outer)
            values = list_of(values, counts)
        else:
            values = pa.FixedSizeListArray.from_arrays(values, size)
    rows = np.zeros(len(lists), np.int64)
    rows[present] = sizes[:, 0]
    absent = pa.array(~present) if lists.null_count else None
    column = list_of(values, rows, absent)
    if shape[0] is not None:
        column = column.cast(pa.list_(values.type, shape[0]))
    return Composed(column)


def _python_values(feature: Feature, column: pa.Array) -> list[Any]:
    """Returns a column's values for dicts: tensors as arrays, times as datetimes."""
    if feature.kind is Kind.TIMESTAMP:
        return _datetimes(feature, column)
    if feature.kind is Kind.TENSOR and feature.encoding == "raw":
        return raw_tensors(feature, column)
    values: list[Any] = column.to_pylist()
    return values


def raw_tensors(
    feature: Feature, column: pa.Array, memory: type[bytes | bytearray] = bytes
) -> list[Any]:
    """Returns the arrays of a column of raw tensors, None where absent.

    `memory` says whether they can be written to: of bytes they cannot.
    """
    dtype = np.dtype(feature.dtype).newbyteorder("<")
    shape = [-1 if size is None else size for size in feature.shape]
    return [
        None if data is None else np.frombuffer(memory(data), dtype).reshape(shape)
        for data in column.to_pylist()
    ]


def _datetimes(feature: Feature, column: pa.Array) -> list[Any]:
    """Returns timestamps as datetimes in UTC; ExampleError outside years 1 to 9999."""
    items, _ = values_and_rows(column)
    kind = items.type
    counts = items.cast(pa.int64())
    extent, scale = pc.min_max(counts).as_py(), _PER_SECOND[kind.unit]
    low, high = extent["min"], extent["max"]
    if low is not None and not (
        _FIRST_SECOND * scale <= low and high < (_LAST_SECOND + 1) * scale
    ):
        odd = low if low < _FIRST_SECOND * scale else high
        raise ExampleError(
            f"A datetime must be in the years 1 to 9999; feature {feature.name!r} "
            f"holds {odd:,} {kind.unit} since 1970. Read it with batches=True."
        )
    if items is not column or kind.unit == "ns":
        return column.to_pylist()
    # Arrow takes ten times as long for values in a zone.
    stamps = items.cast(pa.timestamp("us")).to_numpy(zero_copy_only=False).tolist()
    utc = datetime.UTC
    return [None if stamp is None else stamp.replace(tzinfo=utc) for stamp in stamps]


def read_shard(
    shard: Shard, rows: TypedRows, edition: Edition
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a shard, every checksum checked.

    Raises:
      InputError: the dataset was replaced since it was listed.
      SourceError: the file cannot be read.
      TFRecordError: it is damaged, or another than the one stated.
      ExampleError: a record does not hold what a feature must.
    """
    try:
        with storage(shard.path).opened() as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            if shard.bytes not in (None, size) and edition.replacement():
                # Not one row of the other dataset is given.
                raise TFRecordError(f"{shard.path} has {size:,} bytes", path=shard.path)
            reader = TFRecordReader(
                file, compression=shard.compression, allow_empty=not shard.records
            )
            for payloads in in_pieces(reader.batches(), _PIECE_BYTES):
                yield rows.batch(payloads, shard.path)
        reader.check_stated(
            records=shard.records, stored_bytes=shard.bytes, crc32c=shard.crc32c
        )
    except (SourceError, TFRecordError) as error:
        change = edition.replacement()
        if not change:
            raise
        raise InputError(
            f"{shard.path}: the dataset was replaced while open: {change}. Run again "
            f"to read the new one."
        ) from error


def _bool_of(value: int) -> bool:
    """Returns a stored integer as a bool; ValueError unless it is 0 or 1."""
    if value not in (0, 1):
        raise ValueError("a bool is stored as 0 or 1")
    return bool(value)


SINGLE: Mapping[Kind, tuple[str, Callable[[Any], Any]]] = {
    **dict.fromkeys((Kind.INT64, Kind.LABEL), ("int64_list", int)),
    Kind.BOOL: ("int64_list", _bool_of),
    Kind.FLOAT: ("float_list", float),
    Kind.TEXT: ("bytes_list", bytes.decode),
    **dict.fromkeys((Kind.BYTES, Kind.IMAGE), ("bytes_list", bytes)),
}

"""Kinds of single values: their list in the message, and what makes one of its item."""

Single = tuple[str, str, Callable[[Any], Any]]

"""A feature of single values: its name, and what `SINGLE` says."""


def single_row(
    parsed: Any, features: Iterable[Single], absent: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Returns the stored features of an Example without Arrow.

    Columns of one value take ten times as long.

    Args:
      parsed: the message.
      features: to take of it.
      absent: the value of each feature in a record that lacks it.

    Returns:
      None where a feature is not one value that fits: columns say what is wrong.
    """
    stored, row = parsed.features.feature, dict(absent)
    for name, kind, plain in features:
        if name in stored:
            values = getattr(stored[name], kind).value
            if len(values) != 1:
                return None
            try:
                row[name] = plain(values[0])
            except ValueError:
                return None
    return row


def in_pieces(
    batches: Iterable[PayloadBatch], piece_bytes: int
) -> Iterator[PayloadBatch]:
    """Yields the records of batches of one file, `piece_bytes` or more at a time."""
    pieces = grouped(batches, lambda batch: len(batch.data), piece_bytes)
    return map(PayloadBatch.joined, pieces)
