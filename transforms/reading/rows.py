"""Records as rows: dicts of plain and NumPy values, or columns in Arrow.

Dicts have all the same keys:

| feature              | value                                                       |
| -------------------- | ----------------------------------------------------------- |
| int64, bool          | int, bool                                                   |
| float                | np.float32                                                  |
| text, bytes          | str, bytes                                                  |
| label                | the class id; its name with `labels="names"`                |
| timestamp            | an aware datetime in UTC; an int of the feature's unit with |
|                      | `times="int"`, of nanoseconds, and beyond the year 9999     |
| image                | bytes of the file; an array with `images="array"`           |
| list, one shape      | an array of the stored type, which may be written to        |
| list, any length     | an array of one dimension; text and bytes in a list         |
| list of lists        | a list of them                                              |
| boxes                | a float32 array of shape (n, 4): xmin, ymin, xmax, ymax      |
| raw tensor           | an array of its type and shape                              |
| missing              | None, or what `missing` says                                |

Columns are decoded one by one:

| feature   | column                                                              |
| --------- | ------------------------------------------------------------------- |
| label     | int64 class ids; with names: dictionary<int32, string>, one for all |
|           | batches, in the order of the ids                                    |
| timestamp | timestamp in its unit and UTC                                       |
| others    | as `transforms.formats.tfrecord_files.typed_rows` says              |
"""

import dataclasses
import datetime
import functools
import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.example.messages import message
from transforms.core.schema import BOX_SIDES, Feature, Kind
from transforms.core.tfrecord.reader import PayloadBatch
from transforms.errors import (
    ExampleError,
    SpecError,
    nearest,
    shortened,
)
from transforms.formats.tfrecord_files.typed_rows import (
    SINGLE,
    Single,
    TypedRows,
    raw_tensors,
    single_row,
)

_SECONDS = {"s": 1, "ms": 10**3, "us": 10**6}
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
# Those of the years 1 and 9999.
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799


@dataclasses.dataclass(frozen=True, slots=True)
class Looks:
    """How values are given.

    Attributes:
      labels, images, times: see `transforms.reading.rows`.
      missing: feature -> value for rows that lack it. None: None.
    """

    labels: Literal["ids", "names"] = "ids"
    images: Literal["bytes", "array"] = "bytes"
    times: Literal["datetime", "int"] = "datetime"
    missing: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        for name, words in (
            ("labels", ("ids", "names")),
            ("images", ("bytes", "array")),
            ("times", ("datetime", "int")),
        ):
            value = getattr(self, name)
            if value not in words:
                raise SpecError(
                    f"{name} must be {words[0]!r} or {words[1]!r}; found {value!r}"
                    f"{nearest(str(value), words)}."
                )
        if not isinstance(self.missing, Mapping | None):
            raise SpecError(
                f"missing must be a dict from features to values, 'schema' or None; "
                f"found {shortened(repr(self.missing))}."
            )

    def gives_stored(self, feature: Feature) -> bool:
        """Whether values of a feature are given as records hold them."""
        return {
            Kind.LABEL: self.labels == "ids",
            Kind.IMAGE: self.images == "bytes",
            Kind.TIMESTAMP: self.times == "int",
        }.get(feature.kind, True)

    def check_names(self, features: Sequence[Feature]) -> None:
        """Raises SpecError where `missing` names a feature that is not there."""
        names = [feature.name for feature in features]
        for name in self.missing or ():
            if name not in names:
                raise SpecError(
                    f"missing must name features; there is no {name!r}"
                    f"{nearest(str(name), names)}."
                )


def by_id(features: Sequence[Feature]) -> TypedRows:
    """Returns what decodes records, labels as ids: names are looked up for columns."""
    return TypedRows(
        tuple(dataclasses.replace(feature, vocabulary=None) for feature in features)
    )


def class_names(features: Sequence[Feature]) -> dict[str, pa.Array]:
    """Returns the names of the classes of each label that has any, by its name."""
    return {
        feature.name: pa.array(feature.vocabulary, pa.string())
        for feature in features
        if feature.kind is Kind.LABEL and feature.vocabulary
    }


class RowDecoder:
    """Decodes records of known features.

    Args:
      features: with the class names of labels as vocabularies.
      looks: how values are given.
    """

    def __init__(self, features: Sequence[Feature], looks: Looks) -> None:
        self.features = tuple(features)
        self._names = [feature.name for feature in features]
        as_ids = looks.labels == "ids"
        self.typed = by_id(features) if as_ids else TypedRows(self.features)
        self._columns = [_values_of(feature, looks) for feature in features]
        self._fill = dict(_fills(features, looks))
        self._single = _single(features, looks)

    def rows(self, payloads: PayloadBatch) -> Iterator[dict[str, Any]]:
        """Yields a row for each record.

        Raises:
          ExampleError: a record is no Example, or does not hold what a feature must.
        """
        batch = self.typed.batch(payloads, "")
        if not self._names:
            yield from self.typed.dicts(batch)
            return
        columns = []
        for name, values_of, column in zip(
            self._names, self._columns, batch.columns, strict=True
        ):
            values = values_of(column)
            if column.null_count:
                fill = self._fill.get(name)
                absent = np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))
                for index in absent.tolist():
                    values[index] = fill
            columns.append(values)
        for row in zip(*columns, strict=True):
            yield dict(zip(self._names, row, strict=True))

    def one(self, record: bytes) -> dict[str, Any]:
        """Returns the row of one record. Raises as `rows` does."""
        if self._single:
            try:
                row = single_row(message(record), self._single, self._fill)
            except ExampleError:
                row = None
            if row is not None:
                return row
        (row,) = self.rows(PayloadBatch.of([record]))
        return row


class Columns:
    """Decodes records to record batches of one schema.

    Args:
      features: with the class names of labels as vocabularies.
      named: whether labels are class names.
    """

    def __init__(self, features: Sequence[Feature], *, named: bool) -> None:
        self._rows = by_id(features)
        single = [feature for feature in features if named and not feature.shape]
        self._names = class_names(single)
        fields = [
            pa.field(field.name, pa.dictionary(pa.int32(), pa.string()))
            if field.name in self._names
            else field
            for field in self._rows.schema
        ]
        self.schema = pa.schema(fields)

    def batch(self, payloads: PayloadBatch) -> pa.RecordBatch:
        """Returns n records as n rows.

        Raises:
          ExampleError: a record does not hold what a feature must, or a class id has
            no name.
        """
        return self.of_rows(self._rows.batch(payloads, ""))

    def of_rows(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Returns rows with class ids as rows of the schema. Raises as `batch`."""
        if not self._names:
            return rows
        columns = [
            self._named(name, column) if name in self._names else column
            for name, column in zip(rows.schema.names, rows.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _named(self, name: str, ids: pa.Array) -> pa.DictionaryArray:
        names = self._names[name]
        ends = pc.min_max(ids).as_py()
        if ends["min"] is not None and not 0 <= ends["min"] <= ends["max"] < len(names):
            raise ExampleError(
                f"label {name!r} must be one of {len(names):,} class ids; found "
                f"{ends['min']:,} to {ends['max']:,}. Read it with labels='ids'."
            )
        return pa.DictionaryArray.from_arrays(ids.cast(pa.int32()), names)


def _fills(features: Sequence[Feature], looks: Looks) -> Iterator[tuple[str, Any]]:
    """Yields the values for missing ones, floats of 32 bits as the others have."""
    for feature in features:
        fill = (looks.missing or {}).get(feature.name)
        is_number = feature.kind is Kind.FLOAT and isinstance(fill, float | int)
        yield feature.name, np.float32(fill) if is_number else fill


def _single(features: Sequence[Feature], looks: Looks) -> list[Single]:
    """Returns features that are single values as records hold them; else none."""
    singles = []
    for feature in features:
        how = SINGLE.get(feature.kind)
        if how is None or feature.is_list or not looks.gives_stored(feature):
            return []
        is_float = feature.kind is Kind.FLOAT
        singles.append((feature.name, how[0], np.float32 if is_float else how[1]))
    return singles


_Values = Callable[[pa.Array], list[Any]]


def _values_of(feature: Feature, looks: Looks) -> _Values:
    """Returns what makes a list of values of a column; absent ones are anything."""
    if feature.kind is Kind.TENSOR and feature.encoding == "raw":
        # They own their memory.
        return functools.partial(raw_tensors, feature, memory=bytearray)
    if feature.kind is Kind.TENSOR:
        return _python_values
    if feature.kind is Kind.BOX:
        return _boxes
    if feature.is_ragged:
        return _ragged
    if feature.is_list:
        return _lists(feature, looks)
    if feature.kind is Kind.FLOAT:
        return _floats
    if feature.kind is Kind.TIMESTAMP:
        return _times(feature, looks)
    if feature.kind is Kind.IMAGE and looks.images == "array":
        return _images
    return _python_values


def _python_values(column: pa.Array) -> list[Any]:
    """Returns the values as Arrow gives them to Python, None where absent."""
    values: list[Any] = column.to_pylist()
    return values


def _floats(column: pa.Array) -> list[Any]:
    """Returns NumPy numbers of the column's precision; 0 where absent."""
    return list(_numbers(column))


def _numbers(column: pa.Array) -> Any:
    """Returns the values of a column of numbers; absent ones are 0."""
    if column.null_count:
        column = column.fill_null(False if pa.types.is_boolean(column.type) else 0)
    return column.to_numpy(zero_copy_only=False)


def _times(feature: Feature, looks: Looks) -> _Values:
    """Returns what makes datetimes of counts, and ints where asked or out of range."""
    scale = _SECONDS.get(feature.unit)
    if looks.times == "int" or scale is None:
        return lambda column: _python_values(column.cast(pa.int64()))
    first, last = _FIRST_SECOND * scale, _LAST_SECOND * scale + scale - 1
    step = datetime.timedelta(microseconds=10**6 // scale)

    def values(column: pa.Array) -> list[Any]:
        return [
            count
            if count is None or not first <= count <= last
            else _EPOCH + count * step
            for count in column.cast(pa.int64()).to_pylist()
        ]

    return values


def _images(column: pa.Array) -> list[Any]:
    """Returns the pixels of images: uint8 (height, width, 1 or 3); None if absent."""
    # Only here: most readers decode by themselves.
    from PIL import Image

    def decoded(data: bytes | None) -> Any:
        if data is None:
            return None
        try:
            with Image.open(io.BytesIO(data)) as image:
                plain = image if image.mode in ("L", "RGB") else image.convert("RGB")
                pixels = np.array(plain)
        except (OSError, ValueError, Image.DecompressionBombError) as error:
            raise ExampleError(
                f"An image must be one that Pillow decodes; found {len(data):,} bytes "
                f"that are not: {error}. images='bytes' gives them as they are."
            ) from error
        return pixels[:, :, None] if pixels.ndim == 2 else pixels

    return [decoded(data) for data in column.to_pylist()]


def _lists(feature: Feature, looks: Looks) -> _Values:
    """Returns what makes an array of each list of numbers; texts stay lists."""
    shape = feature.shape
    is_number = feature.kind not in (Kind.TEXT, Kind.BYTES, Kind.IMAGE) and not (
        feature.kind is Kind.LABEL and looks.labels == "names"
    )
    if not is_number:
        return _python_values

    def values(column: pa.Array) -> list[Any]:
        inner, sizes = _flat(column)
        if feature.kind is Kind.TIMESTAMP:
            inner = inner.cast(pa.int64())
        numbers = np.array(_numbers(inner))
        if None not in shape:
            per_row = math.prod(size or 0 for size in shape)
            if len(numbers) == per_row * len(column):
                rows = numbers.reshape(len(column), *shape)
                return [row.copy() for row in rows]
        sized = [-1 if size is None else size for size in shape]
        parts = [array.copy() for array in _cut(numbers, sizes)]
        if len(shape) == 1:
            return parts
        return [array.reshape(sized) if len(array) else None for array in parts]

    return values


def _cut(values: Any, sizes: Any) -> list[Any]:
    """Returns values, one after another, as parts of these sizes."""
    stops = np.cumsum(sizes)
    parts = zip((stops - sizes).tolist(), stops.tolist(), strict=True)
    return [values[start:stop] for start, stop in parts]


def _flat(column: pa.Array) -> tuple[pa.Array, Any]:
    """Returns all values of lists of lists, and how many each row has."""
    sizes = np.ones(len(column), np.int64)
    bounds = np.arange(len(column) + 1)
    while hasattr(column.type, "value_type"):
        lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        sums = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
        bounds = sums[bounds]
        column = column.flatten()
        sizes = np.diff(bounds)
    return column, sizes


def _ragged(column: pa.Array) -> list[Any]:
    """Returns the values of a ragged column as Python gets them: a list a row."""
    lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    inner = column.flatten()
    values, sizes = _flat(inner)
    items: Any = _python_values(values)
    if not pa.types.is_string(values.type) and not pa.types.is_binary(values.type):
        items = np.array(_numbers(values))
    return _cut(_cut(items, sizes), lengths)


def _boxes(column: pa.Array) -> list[Any]:
    """Returns the boxes of each row as an array (n, 4) of their sides."""
    numbers, sizes = _flat(column)
    corners = np.array(_numbers(numbers)).reshape(-1, len(BOX_SIDES))
    return [boxes.copy() for boxes in _cut(corners, sizes // len(BOX_SIDES))]
