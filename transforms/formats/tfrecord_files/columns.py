"""Decode tf.train.Examples to raw columns of known types.

Regular records are decoded with whole-array operations; what is left goes through
protobuf one by one, and is refused where it does not fit:

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
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from google.protobuf.unknown_fields import UnknownFieldSet

from transforms.core.example.example_columns import FeatureColumn, read_columns
from transforms.core.example.messages import message
from transforms.core.reasons import Fault, Reason
from transforms.core.tfrecord.reader import PayloadBatch
from transforms.errors import ExampleError

_Longs = npt.NDArray[np.int64]

# Of the lists in the message: the type of a single value's column.
VALUE_TYPES = {
    "int64_list": pa.int64(),
    "float_list": pa.float32(),
    "bytes_list": pa.large_binary(),
}
_KINDS = {str(kind): name for name, kind in VALUE_TYPES.items()}


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
      ExampleError: it is none, or holds more than an Example can.
    """
    parsed = message(data)
    if len(UnknownFieldSet(parsed)):
        raise ExampleError("it holds fields that no tf.train.Example has")
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
    payloads = payloads.trimmed()
    found = read_columns(payloads)
    # In how many records each kind of a feature is, and the first of them.
    seen: dict[tuple[str, str], list[int]] = {}
    lists: set[str] = set()
    for name, column in found.features.items():
        seen[name, column.kind] = [len(payloads), 0]
        if column.rows is not None:
            seen[name, column.kind] = [len(column.rows), int(column.rows[0])]
        if column.counts is not None:
            lists.add(name)
    unread, complaint = 0, ""
    for place in found.odd.tolist():
        try:
            parsed = example(payloads.payload(place))
        except ExampleError as error:
            unread += 1
            complaint = complaint or str(error)
            continue
        for name, feature in parsed.features.feature.items():
            kind = feature.WhichOneof("kind")
            if kind is None:
                continue
            counted = seen.setdefault((name, kind), [0, place])
            counted[0] += 1
            counted[1] = min(counted[1], place)
            if len(getattr(feature, kind).value) != 1:
                lists.add(name)
    kinds: dict[str, dict[str, int]] = {}
    # Of two kinds that are as frequent, the one found first counts.
    for (name, kind), (rows, _) in sorted(seen.items(), key=lambda item: item[1][1]):
        kinds.setdefault(name, {})[kind] = rows
    return Learned(kinds, frozenset(lists), unread, complaint)


def decode(payloads: PayloadBatch, types: Mapping[str, pa.DataType]) -> Decoded:
    """Returns n payloads as raw columns of the types given.

    Args:
      payloads: as a reader gave them.
      types: by name: int64, float32, large_binary, or lists of them.
    """
    payloads = payloads.trimmed()
    count = len(payloads)
    known = {name: _kind_of(kind) for name, kind in types.items()}
    found = read_columns(payloads, known, wanted=types)
    refused: list[tuple[int, Reason, str]] = []
    crowded = [
        _crowded(column)
        for name, column in found.features.items()
        if not pa.types.is_list(types[name])
    ]
    odd = functools.reduce(np.union1d, crowded, found.odd)
    columns = {
        name: _column(payloads.data, count, found.features.get(name), kind)
        for name, kind in types.items()
    }
    if not len(odd):
        return Decoded(columns, np.arange(count), refused)
    kept, others = _one_by_one(payloads, odd, types, refused)
    source = np.arange(count)
    source[odd] = -1
    source[kept] = count + np.arange(len(kept))
    places = np.flatnonzero(source >= 0)
    taken = pa.array(source[places])
    whole = {
        name: pa.concat_arrays([column, others[name]]).take(taken)
        for name, column in columns.items()
    }
    return Decoded(whole, places, refused)


def _crowded(column: FeatureColumn) -> _Longs:
    """Returns the records that have more than one value."""
    if column.counts is None:
        return np.empty(0, np.int64)
    several = np.flatnonzero(column.counts > 1)
    return several if column.rows is None else column.rows[several]


def _column(
    data: bytes, count: int, column: FeatureColumn | None, kind: pa.DataType
) -> pa.Array:
    """Returns the column of a feature; null where a record lacks it."""
    if column is None:
        return pa.nulls(count, kind)
    if pa.types.is_list(kind):
        return column.lists(data, count).cast(kind)
    return column.single(data, count)


def _kind_of(kind: pa.DataType) -> str:
    return _KINDS[str(kind.value_type if pa.types.is_list(kind) else kind)]


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
            features = example(payloads.payload(place)).features.feature
        except ExampleError as error:
            refused.append((place, Reason.MALFORMED, str(error)))
            continue
        row = []
        for name, kind, many in wanted:
            found = _found(features, name, kind, many=many)
            if isinstance(found, Fault):
                refused.append((place, *found))
                break
            row.append(found)
        else:
            kept.append(place)
            for name, value in zip(values, row, strict=True):
                values[name].append(value)
    columns = {name: pa.array(values[name], kind) for name, kind in types.items()}
    return np.array(kept, np.int64), columns


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
        return Fault(Reason.WRONG_TYPE, message)
    items = getattr(feature, kind).value[:]
    if many:
        return items
    if len(items) > 1:
        message = f"feature {name!r} holds {len(items):,} values; the others hold one"
        return Fault(Reason.WRONG_SHAPE, message)
    return items[0] if items else None
