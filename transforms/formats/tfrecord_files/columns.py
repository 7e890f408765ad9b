"""Decode tf.train.Examples to raw columns of known types.

Records of one layout are decoded with whole-array operations, layout by layout; what
is left goes through protobuf one by one, and is refused where it does not fit:

| in the record                   | column of single values | column of lists  |
| ------------------------------- | ----------------------- | ---------------- |
| key absent, `Feature()`         | null                    | null             |
| one value                       | the value               | a list of it     |
| typed, empty list               | null                    | an empty list    |
| more values                     | refused: wrong_shape    | the list         |
| another type                    | refused: wrong_type     | the same         |
| no Example, or unknown fields   | refused: malformed      | the same         |
"""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from google.protobuf.unknown_fields import UnknownFieldSet

from transforms.core.example.decoder import gathered, message
from transforms.core.example.example_layout import Layout, LayoutReader, learn_layout
from transforms.core.model import Reason
from transforms.core.tfrecord.reader import PayloadBatch
from transforms.errors import ExampleError

__all__ = [
    "VALUE_TYPES",
    "Decoded",
    "Learned",
    "combined",
    "decode",
    "example",
    "learn",
]

_Longs = npt.NDArray[np.int64]

# Of the lists in the message: the type of a single value's column.
VALUE_TYPES = {
    "int64_list": pa.int64(),
    "float_list": pa.float32(),
    "bytes_list": pa.large_binary(),
}
_KINDS = {str(kind): name for name, kind in VALUE_TYPES.items()}
# Of optional features each combination is a layout; more of them are rare.
_LAYOUTS = 8


@dataclasses.dataclass(frozen=True, slots=True)
class Decoded:
    """Raw columns, and the records that are not among them.

    Attributes:
      columns: by name; m values each.
      places: int64 array of m: which of the n payloads each row is, ascending.
      refused: of the others: which, the reason, the message.
    """

    columns: Mapping[str, pa.Array]
    places: _Longs
    refused: Sequence[tuple[int, Reason, str]]


def example(data: bytes) -> Any:
    """Returns the Example that a payload holds, all of it.

    Raises:
      ExampleError: it is none, or holds more than an Example can, as a
        tf.train.SequenceExample does.
    """
    parsed = message(data)
    if len(UnknownFieldSet(parsed)):
        raise ExampleError(
            "it holds fields that no tf.train.Example has; is it a SequenceExample?"
        )
    return parsed


@dataclasses.dataclass(frozen=True, slots=True)
class Learned:
    """What some payloads hold.

    Attributes:
      kinds: by feature, in how many records it is which list of the message.
      lists: features that have another number of values than one somewhere.
      unread: how many payloads are no Examples.
      complaint: why the first of those is not an Example.
    """

    kinds: Mapping[str, Mapping[str, int]]
    lists: frozenset[str]
    unread: int
    complaint: str

    @property
    def types(self) -> dict[str, pa.DataType]:
        """The columns, by sorted names; of several types the one found most often."""
        out = {}
        for name in sorted(self.kinds):
            found = self.kinds[name]
            value = VALUE_TYPES[max(found, key=lambda kind: found[kind])]
            out[name] = pa.list_(value) if name in self.lists else value
        return out


def combined(a: Learned, b: Learned) -> Learned:
    """Returns what the payloads of both hold."""
    kinds = {name: dict(found) for name, found in a.kinds.items()}
    for name, found in b.kinds.items():
        counts = kinds.setdefault(name, {})
        for kind, count in found.items():
            counts[kind] = counts.get(kind, 0) + count
    return Learned(
        kinds, a.lists | b.lists, a.unread + b.unread, a.complaint or b.complaint
    )


def learn(payloads: PayloadBatch) -> Learned:
    """Returns the features of n payloads."""
    kinds: dict[str, dict[str, int]] = {}
    lists: set[str] = set()
    unread, complaint = 0, ""
    layouts = 0
    left: _Longs = np.arange(len(payloads), dtype=np.int64)
    while len(left):
        count = 1
        try:
            parsed = example(data := _payload(payloads, left[0]))
        except ExampleError as error:
            unread += 1
            complaint = complaint or str(error)
            left = left[1:]
            continue
        layout = learn_layout(data) if layouts < _LAYOUTS else None
        reader = None if layout is None else _reader(payloads, left, layout)
        if reader is not None:
            layouts += 1
            count = int(reader.matches.sum())
            left = left[~reader.matches]
        else:
            left = left[1:]
        for name, feature in parsed.features.feature.items():
            kind = feature.WhichOneof("kind")
            if kind is not None:
                found = kinds.setdefault(name, {})
                found[kind] = found.get(kind, 0) + count
                if len(getattr(feature, kind).value) != 1:
                    lists.add(name)
    return Learned(kinds, frozenset(lists), unread, complaint)


def decode(payloads: PayloadBatch, types: Mapping[str, pa.DataType]) -> Decoded:
    """Returns n payloads as raw columns of the types given.

    Args:
      payloads: as a reader gave them.
      types: by name: int64, float32, large_binary, or lists of them.
    """
    parts: list[tuple[_Longs, dict[str, pa.Array]]] = []
    left: _Longs = np.arange(len(payloads), dtype=np.int64)
    odd: list[_Longs] = []
    for _ in range(_LAYOUTS):
        if not len(left):
            break
        layout = _layout(_payload(payloads, left[0]), types)
        reader = None if layout is None else _reader(payloads, left, layout, types)
        if layout is None or reader is None:
            odd.append(left[:1])
            left = left[1:]
            continue
        matches = reader.matches
        columns = _columns_of(payloads.data, reader, layout, matches, types)
        parts.append((left[matches], columns))
        left = left[~matches]
    refused: list[tuple[int, Reason, str]] = []
    slow = np.sort(np.concatenate([*odd, left]))
    if len(slow) or not parts:
        parts.append(_one_by_one(payloads, slow, types, refused))
    if len(parts) == 1:
        places, columns = parts[0]
        return Decoded(columns, places, refused)
    places = np.concatenate([part for part, _ in parts])
    order = np.argsort(places)
    merged = {
        name: pa.chunked_array([part[name] for _, part in parts], kind).take(
            pa.array(order)
        )
        for name, kind in types.items()
    }
    whole = {name: _one_chunk(column) for name, column in merged.items()}
    return Decoded(whole, places[order], refused)


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    """Returns the values of a chunked column as one array."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _reader(
    payloads: PayloadBatch,
    left: _Longs,
    layout: Layout,
    wanted: Collection[str] | None = None,
) -> LayoutReader | None:
    """Reads records by the layout of the first; None where that has several values."""
    starts, lengths = payloads.starts[left], payloads.lengths[left]
    reader = LayoutReader(payloads.data, starts, lengths, layout, wanted)
    return reader if reader.matches[0] else None


def _payload(payloads: PayloadBatch, index: int) -> bytes:
    start = int(payloads.starts[index])
    return payloads.data[start : start + int(payloads.lengths[index])]


def _layout(data: bytes, types: Mapping[str, pa.DataType]) -> Layout | None:
    """Returns the layout of a payload; None for an odd one, or one of other types."""
    try:
        example(data)
    except ExampleError:
        return None
    layout = learn_layout(data)
    if layout is None:
        return None
    for name, kind in layout.kinds.items():
        if name in types and _kind_of(types[name]) != kind:
            return None
    return layout


def _kind_of(kind: pa.DataType) -> str:
    return _KINDS[str(kind.value_type if pa.types.is_list(kind) else kind)]


def _columns_of(
    data: bytes,
    reader: LayoutReader,
    layout: Layout,
    matches: npt.NDArray[np.bool_],
    types: Mapping[str, pa.DataType],
) -> dict[str, pa.Array]:
    """Returns the columns of the records that match."""
    kinds = layout.kinds
    count = int(matches.sum())
    out = {}
    for name, kind in types.items():
        if name not in kinds:
            out[name] = pa.nulls(count, kind)
            continue
        if kinds[name] == "bytes_list":
            starts, stops = (each[matches] for each in reader.columns[name])
            values = gathered(data, starts, stops)
        else:
            values = pa.array(reader.columns[name][matches])
        if pa.types.is_list(kind):
            offsets = pa.array(np.arange(count + 1, dtype=np.int32))
            values = pa.ListArray.from_arrays(offsets, values)
        out[name] = values
    return out


def _one_by_one(
    payloads: PayloadBatch,
    places: _Longs,
    types: Mapping[str, pa.DataType],
    refused: list[tuple[int, Reason, str]],
) -> tuple[_Longs, dict[str, pa.Array]]:
    """Returns the records at some places that fit; adds the others to `refused`."""
    kept: list[int] = []
    values: dict[str, list[Any]] = {name: [] for name in types}
    wanted = [
        (name, _kind_of(kind), pa.types.is_list(kind)) for name, kind in types.items()
    ]
    for place in places.tolist():
        try:
            features = example(_payload(payloads, place)).features.feature
        except ExampleError as error:
            refused.append((place, Reason.MALFORMED, str(error)))
            continue
        row = []
        for name, kind, many in wanted:
            found = _found(features, name, kind, many=many)
            if isinstance(found, _Misfit):
                refused.append((place, found.reason, found.message))
                break
            row.append(found)
        else:
            kept.append(place)
            for name, value in zip(values, row, strict=True):
                values[name].append(value)
    columns = {name: pa.array(values[name], kind) for name, kind in types.items()}
    return np.array(kept, np.int64), columns


@dataclasses.dataclass(frozen=True, slots=True)
class _Misfit:
    reason: Reason
    message: str


def _found(features: Any, name: str, kind: str, *, many: bool) -> Any:
    """Returns the value of a feature, its list of values, None, or what is wrong."""
    if name not in features:
        return None
    feature = features[name]
    found = feature.WhichOneof("kind")
    if found is None:
        return None
    if found != kind:
        message = f"feature {name!r} holds a {found}; the others hold a {kind}"
        return _Misfit(Reason.WRONG_TYPE, message)
    items = getattr(feature, kind).value[:]
    if many:
        return items
    if len(items) > 1:
        message = f"feature {name!r} holds {len(items):,} values; the others hold one"
        return _Misfit(Reason.WRONG_SHAPE, message)
    return items[0] if items else None
