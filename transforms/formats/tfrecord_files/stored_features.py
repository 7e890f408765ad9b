"""The columns of records: decoded from Examples, and put together as features.

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
that `transforms.core.example.messages` makes of them.

    record_types(feature)        -> the keys in the Examples, and their raw types
    composed(feature, columns)   -> one raw column, and the rows that do not fit
    read_features(records, ...)  -> both, for several features
"""

import collections
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.unknown_fields import UnknownFieldSet

from transforms.core.arrays import (
    list_lengths,
    list_of,
    lists_like,
    numpy_mask,
    rows_with,
)
from transforms.core.example.decoder import VALUE_TYPES, read_columns
from transforms.core.example.messages import (
    StepTypeError,
    any_message,
    message,
    other_kind,
)
from transforms.core.reasons import Fault, Reason
from transforms.core.schema import BOX_SIDES, SEQUENCE_ENCODING, STEPS, Feature, Kind
from transforms.core.tfrecord.reader import PayloadBatch
from transforms.errors import ExampleError

_Longs = npt.NDArray[np.int64]
_VALUES = {
    **dict.fromkeys((Kind.INT64, Kind.BOOL, Kind.TIMESTAMP, Kind.LABEL), pa.int64()),
    **dict.fromkeys((Kind.FLOAT, Kind.BOX), pa.float32()),
}
# The list of a Feature that holds values of a type, as "int64_list".
_KINDS = {str(kind): name for name, kind in VALUE_TYPES.items()}
_KIND_OF = {
    pa.int64(): Kind.INT64,
    pa.float32(): Kind.FLOAT,
    pa.large_binary(): Kind.BYTES,
}


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
    """Returns the Example that is stored in a payload, all of it.

    Raises:
      ExampleError: it is none, or holds more than an Example can.
    """
    return _checked_fields(message(data))


def any_example(data: bytes, kind: str | None = None) -> Any:
    """Returns an Example with all that a record of any kind holds.

    Takes the same as `any_message`, and raises the same.
    """
    return _checked_fields(any_message(data, kind))


def parser_of(features: Sequence[Feature]) -> Callable[[bytes], Any]:
    """Returns what parses the records of features; of none, records of any kind."""
    of_steps = any(feature.encoding == SEQUENCE_ENCODING for feature in features)
    return example if features and not of_steps else any_example


def _checked_fields(parsed: Any) -> Any:
    """Returns a message; ExampleError if it has fields that would be lost."""
    if len(UnknownFieldSet(parsed)):
        raise ExampleError("it holds fields that no tf.train.Example has")
    return parsed


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
    count = len(payloads)
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
        expected = _KINDS[str(kind.value_type if many else kind)]
        for stored, column in parsed.features.get(name, {}).items():
            if stored != expected:
                message = (
                    f"feature {name!r} holds a {stored}; the others hold a {expected}"
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


@dataclasses.dataclass(frozen=True, slots=True)
class Composed:
    """One raw column.

    Attributes:
      column: n values.
      faults: by row, why records do not hold the feature.
    """

    column: pa.Array
    faults: Mapping[int, Fault] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(
        cls, column: pa.Array, bad: npt.NDArray[np.bool_], reason: Reason, message: str
    ) -> "Composed":
        """Returns a column in which all bad rows have one fault."""
        rows = np.flatnonzero(bad).tolist()
        return cls(column, dict.fromkeys(rows, Fault(reason, message)))


# Makes the column of a feature from those of its keys in the records.
Compose = Callable[[Feature, Mapping[str, pa.Array]], Composed]


def record_types(feature: Feature) -> dict[str, pa.DataType]:
    """Returns the raw types of a feature's keys in the records."""
    value = _VALUES.get(feature.kind, pa.large_binary())
    many = feature.is_list or feature.kind is Kind.BOX
    types = {key: pa.list_(value) if many else value for key in feature.record_keys}
    if feature.is_ragged or feature.has_steps:
        types[feature.record_keys[1]] = pa.list_(pa.int64())
    return types


def column_type(feature: Feature, compose: Compose | None = None) -> pa.DataType:
    """Returns the type of the column that `compose` gives, or `composed`."""
    empty = {key: pa.array([], kind) for key, kind in record_types(feature).items()}
    return (compose or composed)(feature, empty).column.type


def read_features(
    payloads: PayloadBatch,
    features: Sequence[Feature],
    compose: Compose | None = None,
) -> Decoded:
    """Returns stored features as columns; records that do not fit them are refused.

    Args:
      payloads: of the records.
      features: to read; others are not decoded.
      compose: makes the column of a feature; None: `composed`.
    """
    types: dict[str, pa.DataType] = {}
    for feature in features:
        types |= record_types(feature)
    decoded = decode(payloads, types, parser_of(features))
    columns: dict[str, pa.Array] = {}
    faults: dict[int, Fault] = {}
    for feature in features:
        item = (compose or composed)(feature, decoded.columns)
        columns[feature.name] = item.column
        faults = {**item.faults, **faults}
    if not faults:
        return dataclasses.replace(decoded, columns=columns)
    rows = [*faults]
    fits = np.ones(len(decoded.places), np.bool_)
    fits[rows] = False
    columns = {name: c.filter(pa.array(fits)) for name, c in columns.items()}
    indices = decoded.places[rows].tolist()
    misfits = [(i, *fault) for i, fault in zip(indices, faults.values(), strict=True)]
    refused = sorted([*decoded.refused, *misfits])
    return Decoded(columns, decoded.places[fits], refused)


def composed(feature: Feature, columns: Mapping[str, pa.Array]) -> Composed:
    """Returns one raw column from those of the feature's keys."""
    keys = feature.record_keys
    if feature.kind is Kind.BOX:
        return _boxes(feature.name, [columns[key] for key in keys])
    item = _values(feature, columns[keys[0]])
    if not feature.is_ragged and not feature.has_steps:
        return item
    lists = _ragged(feature, item.column, columns[keys[1]])
    return Composed(lists.column, {**lists.faults, **item.faults})


def _values(feature: Feature, column: pa.Array) -> Composed:
    """Returns stored values as what they mean: names of classes, bools."""
    if feature.kind is Kind.LABEL and feature.vocabulary is not None:
        return _mapped(column, lambda values: _class_names(values, feature))
    if feature.kind is Kind.BOOL:
        return _mapped(column, lambda values: _bools(values, feature.name))
    return Composed(column)


def _mapped(column: pa.Array, map_values: Callable[[pa.Array], Composed]) -> Composed:
    """Maps stored values, or those of lists."""
    if not pa.types.is_list(column.type):
        return map_values(column)
    inner = map_values(column.flatten())
    rows = np.asarray(pc.list_parent_indices(column)).tolist() if inner.faults else ()
    faults = {rows[index]: fault for index, fault in inner.faults.items()}
    return Composed(lists_like(column, inner.column), faults)


def _class_names(ids: pa.Array, feature: Feature) -> Composed:
    """Returns the class names of stored ids; ids beyond the vocabulary are bad."""
    names = pa.array(feature.vocabulary, pa.string())
    inside = pc.and_(pc.greater_equal(ids, 0), pc.less(ids, len(names)))
    valid = pc.fill_null(inside, True)
    if pc.all(valid, min_count=0).as_py():
        return Composed(names.take(ids))
    column = names.take(pc.if_else(inside, ids, pa.scalar(None, pa.int64())))
    message = (
        f"feature {feature.name!r} holds an id for which the dataset has no class name "
        f"(it has {len(names):,})"
    )
    return Composed.of(column, ~numpy_mask(valid), Reason.UNKNOWN_LABEL, message)


def _bools(values: pa.Array, name: str) -> Composed:
    """Returns stored integers as bools; those other than 0 and 1 are bad."""
    valid = pc.or_(pc.is_in(values, value_set=pa.array([0, 1])), values.is_null())
    message = f"feature {name!r} is a bool and holds another number than 0 and 1"
    column = pc.not_equal(values, 0)
    return Composed.of(column, ~numpy_mask(valid), Reason.NOT_A_BOOL, message)


def _boxes(name: str, sides: list[pa.Array]) -> Composed:
    """Returns boxes from the lists of their sides, in the order of `BOX_SIDES`."""
    lengths = [list_lengths(side) for side in sides]
    bad: npt.NDArray[np.bool_] = np.zeros(len(sides[0]), np.bool_)
    for other in lengths[1:]:
        bad |= other != lengths[0]
    kept = [side.filter(pa.array(~bad)) if bad.any() else side for side in sides]
    counts = np.where(bad, 0, lengths[0])
    flat = np.empty((int(counts.sum()), len(BOX_SIDES)), np.float32)
    for index, side in enumerate(kept):
        flat[:, index] = side.flatten().to_numpy(zero_copy_only=False)
    boxes = pa.FixedSizeListArray.from_arrays(pa.array(flat.reshape(-1)), 4)
    absent = sides[0].is_null()
    column = list_of(boxes, counts, absent if len(absent) else None)
    message = f"feature {name!r} must have as many of each side; their numbers differ"
    return Composed.of(column, bad, Reason.WRONG_SHAPE, message)


def _ragged(feature: Feature, values: pa.Array, rows: pa.Array) -> Composed:
    """Returns lists of lists from flat values and the lengths of their rows.

    Of steps that have one value or k each, these are lists of one or of k.
    """
    size = None
    if feature.has_steps:
        size = (*feature.shape, 1)[1]
        # Only an Example has the name of a list, and no steps.
        bad = numpy_mask(pc.and_(values.is_valid(), rows.is_null()))
        if size is not None:
            bad |= rows_with(rows, np.asarray(rows.flatten()) != size)
        message = f"feature {feature.name!r} must have steps of {size or 'all'} values"
    else:
        bad = _differs(values, rows)
        message = (
            f"feature {feature.name!r}: its rows' lengths do not sum to its values"
        )
    if bad.any():
        fits = pa.array(~bad)
        values = pc.if_else(fits, values, pa.scalar(None, values.type))
        rows = pc.if_else(fits, rows, pa.scalar(None, rows.type))
    items = values.flatten()
    if size is None:
        lengths = np.asarray(rows.flatten(), np.int64)
        items = list_of(items, lengths)
    elif len(feature.shape) > 1:
        items = pa.FixedSizeListArray.from_arrays(items, size)
    column = lists_like(rows, items)
    return Composed.of(column, bad, Reason.WRONG_SHAPE, message)


def _differs(values: pa.Array, rows: pa.Array) -> npt.NDArray[np.bool_]:
    """Tells which records have lengths that do not sum to the number of values."""
    totals = np.zeros(len(rows), np.int64)
    lengths = np.asarray(rows.flatten(), np.int64)
    np.add.at(totals, np.asarray(pc.list_parent_indices(rows)), lengths)
    bad = rows_with(rows, lengths < 0) | (totals != list_lengths(values))
    bad |= numpy_mask(values.is_null()) != numpy_mask(rows.is_null())
    return bad


@dataclasses.dataclass(frozen=True, slots=True)
class Learned:
    """What some records hold.

    Attributes:
      kinds: by feature, in how many records it is which list of the message.
      lists: features that have another number of values than one somewhere.
      steps: by list of a SequenceExample or a list of Examples, how many values all of
        its steps have; -1 where their numbers differ, 0 where there is no step.
      complaint: why the first payload that is no Example is none; empty for none.
      in_sequence: whether any is a SequenceExample or a list of Examples.
    """

    kinds: Mapping[str, collections.Counter[str]]
    lists: frozenset[str]
    steps: Mapping[str, int]
    complaint: str
    in_sequence: bool = False

    @property
    def values(self) -> dict[str, pa.DataType]:
        """The types of single values, by sorted names: of several the most frequent."""
        return {
            name: VALUE_TYPES[max(counts, key=counts.__getitem__)]
            for name, counts in sorted(self.kinds.items())
        }

    def features_of(self, values: Mapping[str, pa.DataType]) -> Iterator[Feature]:
        """Yields the features of records whose single values have these types."""
        encoding = SEQUENCE_ENCODING if self.in_sequence else ""
        for name, value in values.items():
            size = self.steps.get(name)
            shape: tuple[int | None, ...] = ()
            if name in self.lists or size is not None:
                shape = (None,)
            if size is not None and (size == -1 or size > 1):
                shape = (None, None if size == -1 else size)
            yield Feature(name, _KIND_OF[value], shape=shape, encoding=encoding)


def combined(a: Learned, b: Learned) -> Learned:
    """Returns what the records of both hold."""
    none = collections.Counter[str]()
    kinds = {
        name: a.kinds.get(name, none) + b.kinds.get(name, none)
        for name in dict.fromkeys([*a.kinds, *b.kinds])
    }
    steps = dict(a.steps)
    for name, size in b.steps.items():
        before = steps.get(name) or size
        steps[name] = before if size in (0, before) else -1
    return Learned(
        kinds,
        a.lists | b.lists,
        steps,
        a.complaint or b.complaint,
        a.in_sequence or b.in_sequence,
    )


def learn(payloads: PayloadBatch) -> Learned:
    """Returns the features of n records."""
    others: set[str] = set()

    def parse(data: bytes) -> Any:
        others.add(kind := other_kind(data))
        return any_example(data, kind)

    parsed = read_columns(payloads, parse=parse)
    kinds: dict[str, collections.Counter[str]] = {}
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
            kinds.setdefault(name, collections.Counter())[kind] = len(rows)
            if column.counts is not None:
                lists.add(name)
    complaint = next(map(str, parsed.errors.values()), "")
    return Learned(kinds, frozenset(lists), steps, complaint, any(others))
