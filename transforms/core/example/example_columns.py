"""Serialised Examples to the values of each feature, with whole-array operations.

Records whose features are in one order are decoded together, whichever of them each
record lacks; a batch seldom has records of more than one or two orders. The few records
that no order fits are named, for protobuf to read.
"""

import dataclasses
from collections.abc import Collection, Mapping

import numpy as np
import pyarrow as pa

from transforms.core.arrays import offsets_of, raw_values
from transforms.core.example.example_layout import (
    TAGS,
    Spans,
    common_layout,
    longest_key,
    walk,
)
from transforms.core.example.example_values import (
    Longs,
    PaddedBytes,
    gathered,
    read_values,
    split_bytes,
)
from transforms.core.tfrecord.reader import PayloadBatch

_TAG_OF = {kind: tag for tag, kind in TAGS.items()}
# Fewer records are read faster by protobuf.
_LEAST_RECORDS = 16
# Orders that are looked for in a batch, and records that show each.
_MOST_LAYOUTS = 8
_MOST_SHOWN = 64
# A search that finds fewer than one of this many records ends: the rest is odd.
_LEAST_SHARE = 64
_PADDING = 32

_NO_RECORDS: Longs = np.empty(0, np.int64)


@dataclasses.dataclass(frozen=True, slots=True)
class FeatureColumn:
    """The values of one feature in n records.

    Attributes:
      kind: the list's field in the message.
      rows: int64 array of m: the records that have it, ascending; None: all n.
      counts: int64 array of m: how many values each of those has; None: one each.
      items: all values in order: int64 or float32; of bytes, where each starts and
        stops.
    """

    kind: str
    rows: Longs | None
    counts: Longs | None
    items: Longs | tuple[Longs, Longs]

    def values(self, data: bytes) -> pa.Array:
        """Returns all values in order: int64, float32 or large_binary."""
        if isinstance(self.items, tuple):
            return gathered(data, *self.items)
        return pa.array(self.items)

    def single(self, data: bytes, count: int) -> pa.Array:
        """Returns the first value of each of n records; null where there is none."""
        values, rows, sizes = self.values(data), self.rows, self.counts
        if sizes is not None:
            rows = np.arange(count) if rows is None else rows
            filled = sizes > 0
            values = values.take(pa.array((np.cumsum(sizes) - sizes)[filled]))
            rows = rows[filled]
        if rows is None:
            return values
        valid = _bitmap(rows, count)
        if isinstance(self.items, tuple):
            sizes = np.zeros(count + 1, np.int64)
            sizes[rows + 1] = np.diff(offsets_of(values))
            buffers = [valid, pa.py_buffer(np.cumsum(sizes)), values.buffers()[2]]
        else:
            numbers = np.zeros(count, self.items.dtype)
            numbers[rows] = raw_values(values)
            buffers = [valid, pa.py_buffer(numbers)]
        return pa.Array.from_buffers(values.type, count, buffers)

    def lists(self, data: bytes, count: int) -> pa.LargeListArray:
        """Returns the values of n records as lists."""
        sizes = np.zeros(count + 1, np.int64)
        rows = np.arange(count) if self.rows is None else self.rows
        sizes[rows + 1] = 1 if self.counts is None else self.counts
        values = self.values(data)
        valid = None if self.rows is None else _bitmap(rows, count)
        buffers = [valid, pa.py_buffer(np.cumsum(sizes))]
        kind = pa.large_list(values.type)
        return pa.Array.from_buffers(kind, count, buffers, children=[values])


def _bitmap(rows: Longs, count: int) -> pa.Buffer:
    valid = np.zeros(count, np.bool_)
    valid[rows] = True
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


@dataclasses.dataclass(frozen=True, slots=True)
class ExampleColumns:
    """The features of n records.

    Attributes:
      features: by name, in sorted order.
      untyped: features that have no type in some record, where they count as missing.
      odd: int64 array, ascending: the records that are not among the features.
    """

    features: Mapping[str, FeatureColumn]
    untyped: frozenset[str]
    odd: Longs


def read_columns(
    payloads: PayloadBatch,
    known: Mapping[str, str] | None = None,
    *,
    wanted: Collection[str] | None = None,
) -> ExampleColumns:
    """Returns the features of n records; those that are not regular are left out.

    A record that is not left out has the values that protobuf reads.

    Args:
      payloads: n serialised Examples.
      known: by name, the kind that a feature must have. Records with another are odd.
      wanted: the features to return; None: all.
    """
    tags = {name.encode(): _TAG_OF[kind] for name, kind in (known or {}).items()}
    count = len(payloads)
    parts: dict[bytes, list[Spans]] = {}
    untyped: set[bytes] = set()
    odd: list[Longs] = []
    left = np.arange(count)
    padded = PaddedBytes(payloads.data if count >= _LEAST_RECORDS else b"", _PADDING)
    for _ in range(_MOST_LAYOUTS):
        if len(left) < _LEAST_RECORDS:
            break
        shown = _spread(len(left))
        layout = common_layout(map(payloads.payload, left[shown]), tags)
        if layout is None:
            odd.append(left[shown])
            left = np.delete(left, shown)
            continue
        if longest_key(layout) > len(padded.data) - len(payloads.data) - _PADDING:
            padded = PaddedBytes(payloads.data, _PADDING + longest_key(layout))
        starts, lengths = payloads.starts[left], payloads.lengths[left]
        fits, found, without_type = walk(padded, starts, lengths, layout)
        untyped |= without_type
        is_all = len(left) == count and bool(fits.all())
        kinds = {key: tag for key, tag in layout if tag is not None}
        for key, spans in found.items():
            if wanted is not None and key.decode() not in wanted:
                continue
            if not is_all:
                spans = spans.placed(fits, left)
            if len(spans):
                parts.setdefault(key, []).append(spans)
                tags[key] = kinds[key]
        before, left = len(left), left[~fits]
        if (before - len(left)) * _LEAST_SHARE < before:
            break
    odd.append(left)
    joined = {
        key: (TAGS[tags[key]], Spans.joined(parts[key], count)) for key in sorted(parts)
    }
    features, rest = _decoded(padded, joined, np.unique(np.concatenate(odd)))
    names = frozenset(key.decode() for key in untyped)
    return ExampleColumns(features, names, rest)


def _spread(count: int) -> Longs:
    """Returns some of `count` places, evenly spread however many are looked at."""
    golden = np.arange(min(count, _MOST_SHOWN)) * 0.6180339887498949
    return (golden % 1 * count).astype(np.int64)


def _decoded(
    padded: PaddedBytes, found: Mapping[bytes, tuple[str, Spans]], odd: Longs
) -> tuple[dict[str, FeatureColumn], Longs]:
    """Decodes the values; records that protobuf must decide become odd."""
    features: dict[str, FeatureColumn] = {}
    bad: list[Longs] = []
    for key, (kind, spans) in found.items():
        column, wrong = _column(padded, kind, spans)
        features[key.decode()] = column
        if len(wrong):
            bad.append(wrong)
    if not bad:
        return features, odd
    wrong = np.unique(np.concatenate(bad))
    rest = {key: (kind, spans.without(wrong)) for key, (kind, spans) in found.items()}
    rest = {key: each for key, each in rest.items() if len(each[1])}
    return _decoded(padded, rest, np.union1d(odd, wrong))


def _column(
    padded: PaddedBytes, kind: str, spans: Spans
) -> tuple[FeatureColumn, Longs]:
    """Returns the values in the spans, and the records that protobuf must decide."""
    rows, starts, stops = spans.rows, spans.starts, spans.stops
    if spans.lists is None:
        if kind == "bytes_list":
            return FeatureColumn(kind, rows, None, (starts, stops)), _NO_RECORDS
        values = read_values(padded, kind, starts, stops)
        bad = values.bad if rows is None else rows[values.bad]
        return FeatureColumn(kind, rows, values.counts, values.items), bad
    assert rows is not None  # records with lists are not among them
    at, *bounds = spans.lists
    values = split_bytes(padded, *bounds)
    if len(values.bad):
        return FeatureColumn(kind, rows, None, (starts, stops)), at[values.bad]
    assert values.counts is not None
    # Single values and lists, in the order of their records.
    begins, ends = values.items
    order = np.argsort(np.concatenate((rows, at)))
    counts = np.concatenate((np.ones(len(rows), np.int64), values.counts))[order]
    places = np.argsort(
        np.concatenate((rows, np.repeat(at, values.counts))), kind="stable"
    )
    items = (
        np.concatenate((starts, begins))[places],
        np.concatenate((stops, ends))[places],
    )
    all_rows = np.concatenate((rows, at))[order]
    return FeatureColumn(kind, all_rows, counts, items), _NO_RECORDS
