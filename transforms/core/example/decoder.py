"""Serialised tf.train.Examples to Arrow columns.

protobuf decides what is an Example and what it holds. It also reads what few writers
produce: unpacked lists, keys that occur twice (the last wins), unknown fields.

SequenceExamples and lists of Examples become Examples that hold the same:

| in the record                          | in the Example                             |
| -------------------------------------- | ------------------------------------------ |
| context feature `id`                   | `id`                                       |
| feature list `x`; feature `x` of       | `lists/x`: the values of all steps;        |
| Examples, each of which is a step      | `lists/x` + `STEPS`: how many each has     |
| step without the feature or a type     | a step of no values                        |
| list without steps                     | no values, no steps                        |

Only readers see these Examples.

Sources: TensorFlow, `tensorflow/core/example/example.proto`; TensorFlow Serving,
`tensorflow_serving/apis/input.proto`.
"""

import itertools
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from transforms.core.arrays import is_bytes, is_list
from transforms.core.example.example_columns import (
    VALUE_TYPES,
    ExampleColumns,
    FeatureColumn,
    read_columns,
)
from transforms.core.example.messages import (
    CLASSES,
    SEQUENCE,
    message,
    other_kind,
    values_of,
)
from transforms.core.schema import LISTS, STEPS
from transforms.core.tfrecord.reader import PayloadBatch
from transforms.errors import ExampleError, SpecError


class StepTypeError(ExampleError):
    """A record whose list holds steps of two types."""


def any_message(data: bytes) -> Any:
    """Returns an Example that holds what a record of any kind holds.

    Raises:
      StepTypeError: the steps of a list have two types.
      ExampleError: protobuf does not parse it, or its context has a feature that is
        called like a list.
    """
    kind = other_kind(data)
    if not kind:
        return message(data)
    try:
        parsed = CLASSES[kind].FromString(data)
    except DecodeError as error:
        raise ExampleError(f"{len(data):,} bytes are not a {kind} ({error})") from error
    if len(UnknownFieldSet(parsed)):
        raise ExampleError(f"it holds fields that no {kind} has")
    out = CLASSES["Example"]()
    lists: Mapping[str, Sequence[Any]]
    if kind == SEQUENCE:
        out.features.MergeFrom(parsed.context)
        entries = parsed.feature_lists.feature_list
        lists = {entry.key: entry.value.feature for entry in entries}
    else:
        out.features.MergeFrom(parsed.context.features)
        documents = [entry.features.feature for entry in parsed.examples]
        # A look-up of a feature that a document lacks would add it.
        none = CLASSES["Feature"]()
        lists = {
            name: [entry.get(name, none) for entry in documents]
            for name in dict.fromkeys(itertools.chain(*documents))
        }
    if named := [name for name in out.features.feature if name.startswith(LISTS)]:
        raise ExampleError(
            f"no context feature of a {kind} may be called {LISTS}..., as its lists "
            f"are; it has {min(named)!r}"
        )
    for name, steps in lists.items():
        _add(out.features.feature, f"{LISTS}{name}", steps)
    return out


def _add(features: Any, name: str, steps: Sequence[Any]) -> None:
    """Adds the values of the steps of a list, and their numbers."""
    counts = features[name + STEPS].int64_list
    counts.SetInParent()
    kinds = {step.WhichOneof("kind") for step in steps} - {None}
    if len(kinds) > 1:
        shown = " and ".join(sorted(kinds))
        raise StepTypeError(f"the steps of {name!r} must be of one type; found {shown}")
    if not kinds:
        counts.value.extend([0] * len(steps))
        return
    (kind,) = kinds
    # Those of a step without a type are empty.
    lists = list(map(operator.attrgetter(kind), steps))
    counts.value.extend(len(step_list.value) for step_list in lists)
    values = getattr(features[name], kind)
    values.SetInParent()
    for step_list in lists:
        values.MergeFrom(step_list)


def parse_record(data: bytes) -> dict[str, list[Any]]:
    r"""Returns the features of a record of any kind, by name, in the names' order.

    Int64List becomes ints, FloatList floats, BytesList bytes. A feature without a type
    becomes an empty list, `lists/NAME` a list of the values of each step.

        >>> step = b"\n\x05\x1a\x03\n\x01\x02"
        >>> parse_record(b"\x12\x0e\n\x0c\n\x01x\x12\x07" + step)
        {'lists/x': [[2]]}

    Raises:
      ExampleError: it is none, or as `any_message` has it.
    """
    features = any_message(data).features.feature
    by_name = {name: values_of(features[name]) for name in sorted(features)}
    for name in [name for name in by_name if name.endswith(STEPS)]:
        counts = by_name.pop(name)
        values = iter(by_name.get(name.removesuffix(STEPS), ()))
        by_name[name.removesuffix(STEPS)] = [
            [*itertools.islice(values, count)] for count in counts
        ]
    return {name: by_name[name] for name in sorted(by_name)}


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
    """
    if not isinstance(payloads, PayloadBatch):
        payloads = PayloadBatch.of(payloads)
    wanted = None if schema is None else schema.names
    decoded = read_columns(payloads, wanted=wanted)
    _check(decoded)
    if schema is None:
        names = sorted({*decoded.features, *decoded.untyped})
        schema = pa.schema([_field(name, decoded.features.get(name)) for name in names])
    arrays = [
        _array(decoded.features.get(field.name, {}), field, len(payloads))
        for field in schema
    ]
    if arrays:
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
    # A record batch without columns has no rows; a struct array without fields may.
    none = pa.Array.from_buffers(pa.struct([]), len(payloads), [None], children=[])
    return pa.RecordBatch.from_struct_array(none)


def _check(found: ExampleColumns) -> None:
    """Raises the error of the first record that is no Example, or of another type."""
    faults: dict[int, ExampleError] = {}
    for name, columns in found.features.items():
        if len(columns) > 1:
            (first, kind), (row, other), *_ = sorted(
                (column.first, kind) for kind, column in columns.items()
            )
            faults[row] = ExampleError(
                f"feature {name!r} must have one type; found a {kind} in example "
                f"{first:,} and a {other} in example {row:,}"
            )
    for row, error in found.errors.items():
        faults[row] = type(error)(f"example {row:,}: {error}")
        faults[row].__cause__ = error
        break
    if faults:
        raise faults[min(faults)]


def _field(name: str, columns: Mapping[str, FeatureColumn] | None) -> pa.Field:
    """Returns the Arrow field of a feature: a list unless each has one value."""
    for kind, column in (columns or {}).items():
        value = VALUE_TYPES[kind]
        return pa.field(name, value if column.counts is None else pa.large_list(value))
    return pa.field(name, pa.null())


def _array(
    columns: Mapping[str, FeatureColumn], field: pa.Field, count: int
) -> pa.Array:
    """Returns a feature's values in n examples, in the field's type.

    Raises:
      ExampleError: an example does not fit the field.
    """
    needed = _kind(field.name, field.type)
    for kind, column in columns.items():
        if kind != needed:
            raise ExampleError(
                f"feature {field.name!r} must be a {needed or 'feature without type'}; "
                f"found a {kind} in example {column.first:,}"
            )
        _check_counts(column, field)
        many = is_list(field.type)
        array = column.lists(count) if many else column.single(count)
        try:
            return array.cast(field.type)
        except pa.ArrowInvalid as error:
            raise ExampleError(
                f"feature {field.name!r} does not fit {field.type}: {error}"
            ) from error
    return pa.nulls(count, field.type)


def _check_counts(column: FeatureColumn, field: pa.Field) -> None:
    """Raises ExampleError where a record has not as many values as its type has."""
    number = 1
    if pa.types.is_fixed_size_list(field.type):
        number = int(field.type.list_size)
    elif is_list(field.type):
        return
    counts = np.ones(1, np.int64) if column.counts is None else column.counts
    wrong = np.flatnonzero(counts != number)
    if len(wrong):
        position = int(wrong[0])
        row = position if column.rows is None else column.rows[position]
        raise ExampleError(
            f"feature {field.name!r} must have {number} "
            f"value{'' if number == 1 else 's'}; found {int(counts[position]):,} in "
            f"example {int(row):,}"
        )


def _kind(name: str, kind: pa.DataType) -> str:
    """Returns the message's list for an Arrow type; "" for null."""
    values = kind.value_type if is_list(kind) else kind
    if values == pa.null():
        return ""
    value_types = VALUE_TYPES if not is_bytes(values) else {"bytes_list": values}
    for name_of_list, stored in value_types.items():
        if values == stored:
            return name_of_list
    raise SpecError(
        f"column {name!r} must be of int64, float32, binary or string, or a list of "
        f"them; found {values}"
    )
