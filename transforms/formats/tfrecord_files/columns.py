"""Decode tf.train.Examples to raw columns of known types.

Records that do not fit are refused:

| in the record                   | column of single values | column of lists  |
| ------------------------------- | ----------------------- | ---------------- |
| key absent, `Feature()`         | null                    | null             |
| one value                       | the value               | a list of it     |
| typed, empty list               | null                    | an empty list    |
| more values                     | refused: wrong_shape    | the list         |
| another type                    | refused: wrong_type     | the same         |
| no Example, or unknown fields   | refused: malformed      | the same         |

SequenceExamples and lists of Examples are decoded with `any_example` as the Examples
that `transforms.core.example.decoder` makes of them.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from google.protobuf.unknown_fields import UnknownFieldSet

from transforms.core.example.decoder import StepTypeError, any_message
from transforms.core.example.example_columns import VALUE_TYPES, read_columns
from transforms.core.example.messages import message
from transforms.core.reasons import Fault, Reason
from transforms.core.schema import STEPS, Kind
from transforms.core.tfrecord.reader import PayloadBatch
from transforms.errors import ExampleError

_Longs = npt.NDArray[np.int64]

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
    return _whole(message(data))


def any_example(data: bytes) -> Any:
    """Returns an Example with all that a record of any kind holds.

    Raises as `example` does.
    """
    return _whole(any_message(data))


def _whole(parsed: Any) -> Any:
    if len(UnknownFieldSet(parsed)):
        raise ExampleError("it holds fields that no tf.train.Example has")
    return parsed


def _flag(value: int) -> bool:
    if value not in (0, 1):
        raise ValueError("a bool is stored as 0 or 1")
    return bool(value)


SINGLE: Mapping[Kind, tuple[str, Callable[[Any], Any]]] = {
    Kind.INT64: ("int64_list", int),
    Kind.LABEL: ("int64_list", int),
    Kind.BOOL: ("int64_list", _flag),
    Kind.FLOAT: ("float_list", float),
    Kind.TEXT: ("bytes_list", bytes.decode),
    Kind.BYTES: ("bytes_list", bytes),
    Kind.IMAGE: ("bytes_list", bytes),
}
"""Kinds of single values: their list in the message, and what makes one of its item."""
Single = tuple[str, str, Callable[[Any], Any]]
"""A feature of single values: its name, and what `SINGLE` says."""


def single_row(
    parsed: Any, features: Iterable[Single], absent: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Returns the values of an Example without Arrow.

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


@dataclasses.dataclass(frozen=True, slots=True)
class Learned:
    """What some payloads hold.

    Attributes:
      kinds: by feature, in how many records it is which list of the message.
      lists: features that have another number of values than one somewhere.
      steps: by list of a SequenceExample or a list of Examples, how many values all of
        its steps have; -1 where their numbers differ, 0 where there is no step.
      unread: how many payloads are no Examples.
      complaint: why the first of those is not an Example.
    """

    kinds: Mapping[str, Mapping[str, int]]
    lists: frozenset[str]
    steps: Mapping[str, int]
    unread: int
    complaint: str

    @property
    def types(self) -> dict[str, pa.DataType]:
        """The columns, by sorted names; of several types the one found most often."""
        return self.columns_of(self.values)

    @property
    def values(self) -> dict[str, pa.DataType]:
        """The types of single values of each column."""
        return {
            name: VALUE_TYPES[max(counts, key=counts.__getitem__)]
            for name, counts in sorted(self.kinds.items())
        }

    def columns_of(self, values: Mapping[str, pa.DataType]) -> dict[str, pa.DataType]:
        """Returns the types of columns of these values."""
        out = {}
        for name, value in values.items():
            size = self.steps.get(name)
            is_list = name in self.lists or size is not None
            if size == -1:
                value = pa.list_(value)
            elif size is not None and size > 1:
                value = pa.list_(value, size)
            out[name] = pa.list_(value) if is_list else value
        return out


def combined(a: Learned, b: Learned) -> Learned:
    """Returns what the payloads of both hold."""
    kinds = {name: dict(by_kind) for name, by_kind in a.kinds.items()}
    for name, by_kind in b.kinds.items():
        counts = kinds.setdefault(name, {})
        for kind, count in by_kind.items():
            counts[kind] = counts.get(kind, 0) + count
    steps = dict(a.steps)
    for name, size in b.steps.items():
        before = steps.get(name) or size
        steps[name] = before if size in (0, before) else -1
    return Learned(
        kinds,
        a.lists | b.lists,
        steps,
        a.unread + b.unread,
        a.complaint or b.complaint,
    )


def learn(payloads: PayloadBatch) -> Learned:
    """Returns the features of n payloads."""
    payloads = payloads.trimmed()
    parsed = read_columns(payloads, parse=any_example)
    kinds: dict[str, dict[str, int]] = {}
    lists: set[str] = set()
    steps: dict[str, int] = {}
    for name, columns in parsed.features.items():
        if name.endswith(STEPS):
            counts = columns["int64_list"].values.unique().to_pylist()
            only = counts[0] if len(counts) == 1 else -1
            steps[name.removesuffix(STEPS)] = (only or -1) if counts else 0
            continue
        # Of two kinds that are as frequent, the one found first counts.
        for kind in sorted(columns, key=lambda kind: columns[kind].first):
            column = columns[kind]
            rows = payloads if column.rows is None else column.rows
            kinds.setdefault(name, {})[kind] = len(rows)
            if column.counts is not None:
                lists.add(name)
    complaint = next(map(str, parsed.errors.values()), "")
    return Learned(kinds, frozenset(lists), steps, len(parsed.errors), complaint)


def decode(
    payloads: PayloadBatch,
    types: Mapping[str, pa.DataType],
    parse: Callable[[bytes], Any] = example,
) -> Decoded:
    """Returns n payloads as raw columns of the types given.

    Args:
      payloads: as a reader gave them.
      types: by name: int64, float32, large_binary, or lists of them.
      parse: `any_example` to read SequenceExamples and lists of Examples, too.
    """
    payloads = payloads.trimmed()
    count = len(payloads)
    expected = {name: _kind_of(kind) for name, kind in types.items()}
    parsed = read_columns(payloads, wanted=types, parse=parse)
    faults = {
        index: Fault(
            Reason.WRONG_TYPE if isinstance(error, StepTypeError) else Reason.MALFORMED,
            str(error),
        )
        for index, error in parsed.errors.items()
    }
    columns = {}
    for name, kind in types.items():
        columns[name] = pa.nulls(count, kind)
        many = pa.types.is_list(kind)
        for stored, column in parsed.features.get(name, {}).items():
            if stored != expected[name]:
                message = (
                    f"feature {name!r} holds a {stored}; the others hold a "
                    f"{expected[name]}"
                )
                places = np.arange(count) if column.rows is None else column.rows
                for index in places.tolist():
                    faults.setdefault(index, Fault(Reason.WRONG_TYPE, message))
                continue
            if many:
                columns[name] = column.lists(count).cast(kind)
                continue
            columns[name] = column.single(count)
            for index, number in column.crowded():
                message = (
                    f"feature {name!r} holds {number:,} values; the others hold one"
                )
                faults.setdefault(index, Fault(Reason.WRONG_SHAPE, message))
    refused = [(index, *faults[index]) for index in sorted(faults)]
    places = np.arange(count)
    if refused:
        places = np.delete(places, sorted(faults))
        taken = pa.array(places)
        columns = {name: column.take(taken) for name, column in columns.items()}
    return Decoded(columns, places, refused)


def _kind_of(kind: pa.DataType) -> str:
    return _KINDS[str(kind.value_type if pa.types.is_list(kind) else kind)]
