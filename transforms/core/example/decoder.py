"""Serialised tf.train.Examples to Arrow columns.

protobuf decides what is an Example and what it holds. It also reads what few writers
produce: unpacked lists, keys that occur twice (the last wins), unknown fields. Regular
records are decoded together, with whole-array operations, whichever features each
record lacks; protobuf reads the few others one by one.
"""

import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from transforms.core.arrays import is_bytes, is_list, list_lengths
from transforms.core.example.example_walk import (
    FEW_RECORDS,
    TAGS,
    Spans,
    Typed,
    walk,
)
from transforms.core.example.messages import message
from transforms.core.example.wire import (
    Longs,
    Mask,
    OddListsError,
    PaddedBytes,
    gathered,
    read_floats,
    read_integers,
    split_bytes,
)
from transforms.core.tfrecord.reader import PayloadBatch
from transforms.errors import ExampleError, SpecError

VALUE_TYPES = {
    "int64_list": pa.int64(),
    "float_list": pa.float32(),
    "bytes_list": pa.large_binary(),
}
"""The type of single values, by their list in the message."""

_TAG_OF = {kind: tag for tag, kind in TAGS.items()}


@dataclasses.dataclass(frozen=True, slots=True)
class FeatureColumn:
    """The values of one feature in n records.

    Attributes:
      rows: int64 array of m: the records that have it, ascending; None: all n.
      counts: int64 array of m: how many values each of those has; None: one each.
      values: all values in order: int64, float32 or large_binary.
    """

    rows: Longs | None
    counts: Longs | None
    values: pa.Array

    @property
    def first(self) -> int:
        """The first record that has it."""
        return 0 if self.rows is None else int(self.rows[0])

    def crowded(self) -> Iterator[tuple[int, int]]:
        """Yields the records that have more than one value, and how many these are."""
        if self.counts is not None:
            several = np.flatnonzero(self.counts > 1)
            rows = several if self.rows is None else self.rows[several]
            yield from zip(rows.tolist(), self.counts[several].tolist(), strict=True)

    def first_but(self, size: int) -> tuple[int, int] | None:
        """Returns the first record with another number of values, and that number."""
        if self.counts is None:
            return None if size == 1 else (self.first, 1)
        for index in np.flatnonzero(self.counts != size)[:1]:
            row = index if self.rows is None else self.rows[index]
            return int(row), int(self.counts[index])
        return None

    def single(self, count: int) -> pa.Array:
        """Returns the first value of each of n records; null where there is none."""
        if self.rows is None and self.counts is None:
            return self.values
        sizes = self._sizes(count)
        firsts = np.cumsum(sizes) - sizes
        return self.values.take(pa.array(firsts, mask=sizes == 0))

    def lists(self, count: int) -> pa.LargeListArray:
        """Returns the values of n records as lists."""
        bounds = pa.array(np.concatenate(([0], np.cumsum(self._sizes(count)))))
        mask = None
        if self.rows is not None:
            absent = np.ones(count, np.bool_)
            absent[self.rows] = False
            mask = pa.array(absent)
        return pa.LargeListArray.from_arrays(bounds, self.values, mask=mask)

    def _sizes(self, count: int) -> Longs:
        """Returns how many values each of n records has, 0 where it lacks them."""
        sizes = np.zeros(count, np.int64)
        rows = slice(None) if self.rows is None else self.rows
        sizes[rows] = 1 if self.counts is None else self.counts
        return sizes

    def own_lists(self) -> pa.LargeListArray:
        """Returns the values of the m records that have it as lists."""
        number = len(self.values) if self.counts is None else len(self.counts)
        return dataclasses.replace(self, rows=None).lists(number)


@dataclasses.dataclass(frozen=True, slots=True)
class ExampleColumns:
    """The features of n records.

    Attributes:
      features: by name, in sorted order, and by the list of the message that its values
        are in: one, unless records differ.
      untyped: features that have no type in some record, where they count as missing.
      errors: by record, in order: what is no Example, and why.
    """

    features: Mapping[str, Mapping[str, FeatureColumn]]
    untyped: frozenset[str]
    errors: Mapping[int, ExampleError]


# By key in UTF-8 and tag of the list: the columns of different records.
_Parts = dict[tuple[bytes, int], list[FeatureColumn]]


def read_columns(
    payloads: PayloadBatch,
    *,
    wanted: Collection[str] | None = None,
    parse: Callable[[bytes], Any] = message,
) -> ExampleColumns:
    """Returns the features of n records, with the values that protobuf reads.

    Args:
      payloads: n serialised Examples.
      wanted: the features to return; None: all.
      parse: returns the message of an irregular record, or raises ExampleError.
    """
    payloads = payloads.trimmed()
    count = len(payloads)
    parts: _Parts = {}
    untyped: set[bytes] = set()
    rest = np.arange(count)
    if count >= FEW_RECORDS:
        padded = PaddedBytes(payloads.data)
        fits, steps = walk(padded, payloads.starts, payloads.lengths)
        keys = None if wanted is None else {name.encode() for name in wanted}
        steps = [step for step in steps if keys is None or step[0][0] in keys]
        parts = _decoded(padded, steps, fits)
        for (key, tag), spans in steps:
            if tag is None and len(spans.among(fits)):
                untyped.add(key)
        rest = np.flatnonzero(~fits)
    errors = _parse(payloads, rest, parse, wanted, parts, untyped)
    features: dict[str, dict[str, FeatureColumn]] = {}
    for key, tag in sorted(parts):
        column = _merged(parts[key, tag], count)
        features.setdefault(key.decode(), {})[TAGS[tag]] = column
    names = frozenset(key.decode() for key in untyped)
    return ExampleColumns(features, names, errors)


def _decoded(
    padded: PaddedBytes, steps: Sequence[tuple[Typed, Spans]], fits: Mask
) -> _Parts:
    """Returns the values of the records that fit.

    Takes those out of `fits` that protobuf must decide.
    """
    while True:
        parts: _Parts = {}
        good = fits.copy()
        everything = bool(good.all())
        for (key, tag), spans in steps:
            mine = spans if everything else spans.among(good)
            if tag is not None and len(mine):
                try:
                    column = _column(padded, TAGS[tag], mine)
                except OddListsError as odd:
                    rows = odd.lists if mine.rows is None else mine.rows[odd.lists]
                    fits[rows] = False
                else:
                    parts.setdefault((key, tag), []).append(column)
        if np.array_equal(good, fits):
            return parts


def _column(padded: PaddedBytes, kind: str, spans: Spans) -> FeatureColumn:
    """Returns the values in the spans; raises OddListsError."""
    rows, starts, stops = spans.rows, spans.starts, spans.stops
    counts: Longs | None = None
    if kind != "bytes_list":
        read = read_floats if kind == "float_list" else read_integers
        counts, numbers = read(padded, starts, stops)
        return FeatureColumn(rows, counts, pa.array(numbers))
    if spans.are_lists:
        counts, starts, stops = split_bytes(padded, starts, stops)
    return FeatureColumn(rows, counts, gathered(padded.data, starts, stops))


def _parse(
    payloads: PayloadBatch,
    places: Longs,
    parse: Callable[[bytes], Any],
    wanted: Collection[str] | None,
    parts: _Parts,
    untyped: set[bytes],
) -> dict[int, ExampleError]:
    """Adds the values of the records at some places, which protobuf reads, to `parts`.

    Returns the errors of those that it cannot read.
    """
    errors: dict[int, ExampleError] = {}
    by_key: dict[tuple[bytes, int], tuple[list[int], list[Sequence[Any]]]] = {}
    for row in places.tolist():
        try:
            features = parse(payloads.payload(row)).features.feature
        except ExampleError as error:
            errors[row] = error
            continue
        for name in features if wanted is None else wanted:
            if name not in features:
                continue
            feature = features[name]
            kind = feature.WhichOneof("kind")
            if kind is None:
                untyped.add(name.encode())
                continue
            rows, lists = by_key.setdefault((name.encode(), _TAG_OF[kind]), ([], []))
            rows.append(row)
            # A slice of a repeated field is a list.
            lists.append(getattr(feature, kind).value[:])
    for (key, tag), (rows, lists) in by_key.items():
        counts = np.fromiter(map(len, lists), np.int64, len(lists))
        values = pa.array(itertools.chain(*lists), VALUE_TYPES[TAGS[tag]])
        column = FeatureColumn(
            np.array(rows), None if (counts == 1).all() else counts, values
        )
        parts.setdefault((key, tag), []).append(column)
    return errors


def _merged(parts: Sequence[FeatureColumn], count: int) -> FeatureColumn:
    """Returns the columns of different records of `count` as that of all."""
    if len(parts) == 1:
        (only,) = parts
        has_all = only.rows is not None and len(only.rows) == count
        return dataclasses.replace(only, rows=None) if has_all else only
    rows = [column.rows for column in parts if column.rows is not None]
    places = np.concatenate(rows)
    order = np.argsort(places, kind="stable")
    lists = pa.concat_arrays([column.own_lists() for column in parts])
    if np.any(np.diff(places) < 0):
        lists = lists.take(pa.array(order))
    return FeatureColumn(
        None if len(places) == count else places[order],
        None if all(c.counts is None for c in parts) else list_lengths(lists),
        lists.flatten(),
    )


def decode_examples(
    payloads: Sequence[bytes] | PayloadBatch, *, schema: pa.Schema | None = None
) -> pa.RecordBatch:
    r"""Returns n examples as n rows, a column for each feature.

        >>> one = b"\n\r\n\x0b\n\x02id\x12\x05\x1a\x03\n\x01\x02"
        >>> decode_examples([one, b""]).to_pylist()
        [{'id': 2}, {'id': None}]

    Args:
      payloads: n serialised Examples.
      schema: the columns to return: int64, float32, binary or string types, or lists
        of them, also of a fixed size; other features are left out. None: all
        features, in the order of their names; one that has exactly one value
        wherever it is present becomes a plain column (int64, float32, large_binary),
        any other a list column.

    Returns:
      A record batch; a feature that is absent or has no type is null.

    Raises:
      ExampleError: a payload is no Example, a feature has two types, or does not fit
        the schema. The message names the example by its 0-based index.
      SpecError: the schema has a type that no Example holds.
    """
    if not isinstance(payloads, PayloadBatch):
        payloads = PayloadBatch.of(payloads)
    count = len(payloads)
    wanted = None if schema is None else schema.names
    decoded = read_columns(payloads, wanted=wanted)
    if schema is None:
        names = sorted({*decoded.features, *decoded.untyped})
        schema = pa.schema([_field(name, decoded.features.get(name)) for name in names])
    errors: dict[int, ExampleError] = {}
    for row, error in itertools.islice(decoded.errors.items(), 1):
        errors[row] = type(error)(f"example {row:,}: {error}")
        errors[row].__cause__ = error
    arrays = [
        _array(decoded.features.get(field.name, {}), field, count, errors)
        for field in schema
    ]
    if errors:
        raise errors[min(errors)]
    if arrays:
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
    # A record batch without columns has no rows; a struct array without fields may.
    none = pa.Array.from_buffers(pa.struct([]), count, [None], children=[])
    return pa.RecordBatch.from_struct_array(none)


def _field(name: str, columns: Mapping[str, FeatureColumn] | None) -> pa.Field:
    """Returns the Arrow field of a feature: a list unless each has one value.

    Its type is that of the first record that has it.
    """
    if not columns:
        return pa.field(name, pa.null())
    kind, column = min(columns.items(), key=lambda item: item[1].first)
    value = VALUE_TYPES[kind]
    return pa.field(name, value if column.counts is None else pa.large_list(value))


def _array(
    columns: Mapping[str, FeatureColumn],
    field: pa.Field,
    count: int,
    errors: dict[int, ExampleError],
) -> pa.Array:
    """Returns a feature's values in n examples, in the field's type.

    Adds the errors of examples that do not fit by their rows, and by n the error of
    values that the type does not hold.

    Raises:
      SpecError: no feature has values of the field's type.
    """
    name, kind, many = field.name, field.type, is_list(field.type)
    values = kind.value_type if many else kind
    known = [name for name, stored in VALUE_TYPES.items() if stored == values]
    needed = "bytes_list" if is_bytes(values) else "".join(known)
    if not (needed or pa.types.is_null(values)):
        raise SpecError(
            f"column {name!r} must be of int64, float32, binary or string, or a list "
            f"of them; found {values}"
        )
    size = kind.list_size if pa.types.is_fixed_size_list(kind) else None if many else 1
    array = pa.nulls(count, kind)
    for stored, column in columns.items():
        why = ""
        if stored != needed:
            row, seen = column.first, columns.get(needed)
            as_in = f", as in example {seen.first:,}" if seen else ""
            why = (
                f"must be a {needed or 'feature without type'}{as_in}; found a {stored}"
            )
        elif size is not None and (odd := column.first_but(size)):
            row, number = odd
            why = f"must have {size} value{'' if size == 1 else 's'}; found {number:,}"
        if why:
            why = f"feature {name!r} {why} in example {row:,}"
            errors.setdefault(row, ExampleError(why))
            continue
        try:
            array = (column.lists if many else column.single)(count).cast(kind)
        except pa.ArrowInvalid as error:
            errors[count] = ExampleError(
                f"feature {name!r} does not fit {kind}: {error}"
            )
            errors[count].__cause__ = error
    return array
