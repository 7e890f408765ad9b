"""Serialised Examples to the values of each feature.

Regular records are decoded together, with whole-array operations, whichever features
each record lacks. protobuf reads the few others one by one.
"""

import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from transforms.core.arrays import binary_values
from transforms.core.example.entry import (
    MAX_VARINT_BYTES,
    Longs,
    Mask,
    read_varints,
)
from transforms.core.example.example_walk import (
    FEW_RECORDS,
    TAGS,
    PaddedBytes,
    Spans,
    Typed,
    walk,
)
from transforms.core.example.messages import message
from transforms.core.tfrecord.reader import PayloadBatch
from transforms.errors import ExampleError

VALUE_TYPES = {
    "int64_list": pa.int64(),
    "float_list": pa.float32(),
    "bytes_list": pa.large_binary(),
}
"""The type of single values, by their list in the message."""

_TAG_OF = {kind: tag for tag, kind in TAGS.items()}
_NO_RECORDS: Longs = np.empty(0, np.int64)
# Lists of bytes are split value by value, in all records at once. Behind this many
# values, a handful of longer lists is left to protobuf.
_MANY_VALUES, _FEW_LISTS = 64, 16


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

    def single(self, count: int) -> pa.Array:
        """Returns the first value of each of n records; null where there is none."""
        if self.rows is None and self.counts is None:
            return self.values
        rows = np.arange(count) if self.rows is None else self.rows
        firsts = np.arange(len(rows))
        if self.counts is not None:
            filled = self.counts > 0
            rows, firsts = rows[filled], (np.cumsum(self.counts) - self.counts)[filled]
        places = np.zeros(count, np.int64)
        places[rows] = firsts
        return self.values.take(pa.array(places, mask=_absent(rows, count)))

    def lists(self, count: int) -> pa.LargeListArray:
        """Returns the values of n records as lists."""
        sizes = np.zeros(count + 1, np.int64)
        rows = np.arange(count) if self.rows is None else self.rows
        sizes[rows + 1] = 1 if self.counts is None else self.counts
        mask = None if self.rows is None else pa.array(_absent(rows, count))
        bounds = pa.array(np.cumsum(sizes))
        return pa.LargeListArray.from_arrays(bounds, self.values, mask=mask)


def _absent(rows: Longs, count: int) -> Mask:
    """Returns which of n records are not among these."""
    absent = np.ones(count, np.bool_)
    absent[rows] = False
    return absent


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
        parts, bad = _decoded(padded, steps, fits)
        good = fits & ~bad
        for (key, tag), spans in steps:
            if tag is None and len(spans.among(good)):
                untyped.add(key)
        rest = np.flatnonzero(~good)
    errors = _parse(payloads, rest, parse, wanted, parts, untyped)
    features: dict[str, dict[str, FeatureColumn]] = {}
    for key, tag in sorted(parts):
        column = _merged(parts[key, tag], count)
        features.setdefault(key.decode(), {})[TAGS[tag]] = column
    names = frozenset(key.decode() for key in untyped)
    return ExampleColumns(features, names, errors)


def _decoded(
    padded: PaddedBytes, found: Sequence[tuple[Typed, Spans]], fits: Mask
) -> tuple[_Parts, Mask]:
    """Returns the values of the records that fit, but for those returned as a mask.

    These must be decided by protobuf.
    """
    bad = np.zeros(len(fits), np.bool_)
    while True:
        parts: _Parts = {}
        good = fits & ~bad
        everything, before = bool(good.all()), int(bad.sum())
        for (key, tag), spans in found:
            mine = spans if everything else spans.among(good)
            if tag is not None and len(mine):
                column, wrong = _column(padded, TAGS[tag], mine)
                parts.setdefault((key, tag), []).append(column)
                bad[wrong] = True
        if int(bad.sum()) == before:
            return parts, bad


def _column(
    padded: PaddedBytes, kind: str, spans: Spans
) -> tuple[FeatureColumn, Longs]:
    """Returns the values in the spans, and the records that protobuf must decide."""
    rows, starts, stops = spans.rows, spans.starts, spans.stops
    if kind != "bytes_list":
        read = _floats if kind == "float_list" else _integers
        numbers = read(padded, starts, stops)
        bad = numbers.bad if rows is None else rows[numbers.bad]
        items = np.empty(0) if len(bad) else numbers.items
        return FeatureColumn(rows, numbers.counts, pa.array(items)), bad
    if spans.lists is None:
        return FeatureColumn(
            rows, None, gathered(padded.data, starts, stops)
        ), _NO_RECORDS
    assert rows is not None  # records with lists are not among them
    at, *bounds = spans.lists
    texts = split_bytes(padded, *bounds)
    if len(texts.bad):
        return FeatureColumn(rows, None, pa.array([])), at[texts.bad]
    single = FeatureColumn(rows, None, gathered(padded.data, starts, stops))
    lists = FeatureColumn(at, texts.counts, gathered(padded.data, *texts.items))
    return _merged([single, lists], -1), _NO_RECORDS


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
    sizes = np.concatenate(
        [
            np.ones(len(own), np.int64) if column.counts is None else column.counts
            for own, column in zip(rows, parts, strict=True)
        ]
    )
    values = pa.concat_arrays([column.values for column in parts])
    starts, sizes = (np.cumsum(sizes) - sizes)[order], sizes[order]
    if np.any(np.diff(places) < 0):
        within = np.arange(len(values)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        values = values.take(pa.array(np.repeat(starts, sizes) + within))
    return FeatureColumn(
        None if len(places) == count else places[order],
        None if all(column.counts is None for column in parts) else sizes,
        values,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Values:
    """The values of one feature in m records.

    Attributes:
      counts: int64 array of m: how many values each record has; None: one each.
      items: all values in the records' order: int64, or float32; of bytes, the start
        and the stop of each.
      bad: which of the m records protobuf must decide; the rest is then unusable.
    """

    counts: Longs | None
    items: Any
    bad: Longs = dataclasses.field(default_factory=lambda: _NO_RECORDS)


def _floats(padded: PaddedBytes, starts: Longs, stops: Longs) -> Values:
    """Returns the floats of m packed lists; those of no multiple of 4 bytes are bad."""
    sizes = stops - starts
    if (sizes == 4).all():
        return Values(None, padded.floats[starts])
    odd = np.flatnonzero(sizes % 4)
    if len(odd):
        return Values(None, None, odd)
    data = _joined(padded.data, starts, stops)
    return Values(sizes // 4, np.frombuffer(data, "<f4").astype(np.float32, copy=False))


def _integers(padded: PaddedBytes, starts: Longs, stops: Longs) -> Values:
    """Returns the varints of m >= 1 packed lists; lists with a broken one are bad."""
    sizes = stops - starts
    if sizes.min() >= 1 and sizes.max() <= MAX_VARINT_BYTES:
        items, ends_there = read_varints(padded.bytes, padded.words, starts, sizes)
        if ends_there.all():
            return Values(None, items)
    joined = PaddedBytes(_joined(padded.data, starts, stops))
    bounds = np.concatenate(([0], np.cumsum(sizes)))
    ends = np.flatnonzero(joined.bytes[: int(bounds[-1])] < 0x80)
    filled = np.flatnonzero(sizes)
    whole = joined.bytes[bounds[filled + 1] - 1] < 0x80
    if not whole.all():
        return Values(None, None, filled[~whole])
    sizes = np.diff(ends, prepend=-1)
    begins = ends + 1 - sizes
    wrong = sizes > MAX_VARINT_BYTES
    items, right = read_varints(
        joined.bytes, joined.words, begins, np.minimum(sizes, MAX_VARINT_BYTES)
    )
    wrong |= ~right
    if wrong.any():
        bad = np.searchsorted(bounds, begins[wrong], "right") - 1
        return Values(None, None, np.unique(bad))
    return Values(np.diff(np.searchsorted(ends, bounds)), items)


def split_bytes(padded: PaddedBytes, starts: Longs, stops: Longs) -> Values:
    """Returns where the values are in m >= 1 lists between starts and stops."""
    spans: list[tuple[Longs, Longs, Longs]] = []
    bad: list[Longs] = []
    rows, cursor = np.arange(len(starts)), starts
    while len(rows):
        going = cursor < stops[rows]
        rows, cursor = rows[going], cursor[going]
        if len(spans) >= _MANY_VALUES and len(rows) <= _FEW_LISTS:
            bad.append(rows)
            break
        sizes, begin = padded.lengths(cursor + 1)
        ends = begin + sizes
        right = (padded.bytes[cursor] == 0x0A) & (ends <= stops[rows])
        bad.append(rows[~right])
        rows, cursor = rows[right], ends[right]
        spans.append((rows, begin[right], cursor))
    wrong = np.concatenate(bad)
    if len(wrong):
        return Values(None, None, wrong)
    rows, begins, ends = (np.concatenate(chunks) for chunks in zip(*spans, strict=True))
    order = np.argsort(rows, kind="stable")
    counts = np.bincount(rows, minlength=len(starts))
    return Values(counts, (begins[order], ends[order]))


def _joined(data: bytes, starts: Longs, stops: Longs) -> bytes:
    """Returns the pieces [start, stop) of `data` one after another."""
    joined: bytes = gathered(data, starts, stops).buffers()[2].to_pybytes()
    return joined


def gathered(data: bytes, starts: Longs, stops: Longs) -> pa.LargeBinaryArray:
    """Returns the n pieces [start, stop) of `data` as one array.

    Two pieces are the same or do not overlap, as the values of records do.
    """
    if (starts[1:] < stops[:-1]).any():
        # In any order, or more than once. An empty piece may begin where another does.
        keys = 2 * starts + (stops > starts)
        _, first, places = np.unique(keys, return_index=True, return_inverse=True)
        return gathered(data, starts[first], stops[first]).take(pa.array(places))
    # Pieces and the gaps between them are the items of one array over the same bytes.
    # Taking every second item copies each piece once.
    bounds = np.empty(2 * len(starts), np.int64)
    bounds[0::2] = starts
    bounds[1::2] = stops
    both = binary_values(data, bounds)
    return both.take(pa.array(np.arange(0, len(bounds), 2)))
