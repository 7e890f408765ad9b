"""The tf.train.Example messages, without TensorFlow, and Examples read one by one.

    message Example   { Features features = 1; }
    message Features  { map<string, Feature> feature = 1; }
    message Feature   { oneof kind { BytesList bytes_list = 1;
                                     FloatList float_list = 2;
                                     Int64List int64_list = 3; } }
    message BytesList { repeated bytes value = 1; }
    message FloatList { repeated float value = 1 [packed = true]; }
    message Int64List { repeated int64 value = 1 [packed = true]; }

Source: TensorFlow, `tensorflow/core/example/example.proto` and `feature.proto`.
The classes live in a descriptor pool of their own: a process that also imports
TensorFlow, which registers the same names in the default pool, sees no clash.
Messages of the two pools are different classes with the same bytes.

TFRecord files also hold two messages that protobuf reads as an Example: it drops the
feature lists, or takes whole entries for names. The level of the entries tells them
apart:

| message                | field 1              | field 2                 |
| ---------------------- | -------------------- | ----------------------- |
| Example                | Features             | -                       |
| SequenceExample        | context: Features    | FeatureLists            |
| ExampleListWithContext | Examples: one each   | context: one Example    |

    Features, FeatureLists: entries, as 0a E  0a k name  12 F value
    Example: 0a T Features, so its entries are one level deeper

They become Examples that hold the same:

| in the record                          | in the Example                             |
| -------------------------------------- | ------------------------------------------ |
| context feature `id`                   | `id`                                       |
| feature list `x`; feature `x` of       | `lists/x`: the values of all steps;        |
| Examples, each of which is a step      | `lists/x` + `STEPS`: how many each has     |
| step without the feature or a type     | a step of no values                        |
| list without steps                     | no values, no steps                        |

Only readers see these Examples.

Source: TensorFlow Serving, `tensorflow_serving/apis/input.proto`.
"""

import itertools
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from transforms.core.schema import LISTS, STEPS
from transforms.errors import ExampleError, RecordKindError

_Field = descriptor_pb2.FieldDescriptorProto
SEQUENCE, RANKING = "SequenceExample", "ExampleListWithContext"
_ADVICE = (
    "Only tf.train.Examples are read here. Where the first records of the files are "
    "such messages, 'convert', open_dataset and ReadDataset read them."
)
# The first four tags of an ExampleListWithContext, behind Examples without features:
# where an Example has the first letter of a name. 0.2 us, so each record is asked.
begins_with_list = re.compile(
    rb"(?:\n\x00|\n\x02\n\x00)*(?:\n[\x80-\xff]*[\x00-\x7f]){3}\n"
).match


_SCALARS = ("bytes", "float", "int64", "string")
# A field: its name, its type, and whether it is repeated.
_Fields = Sequence[tuple[str, str, bool]]
_MESSAGES: Mapping[str, _Fields] = {
    "BytesList": [("value", "bytes", True)],
    "FloatList": [("value", "float", True)],
    "Int64List": [("value", "int64", True)],
    "Feature": [
        ("bytes_list", "BytesList", False),
        ("float_list", "FloatList", False),
        ("int64_list", "Int64List", False),
    ],
    "Features": [("feature", "Features.FeatureEntry", True)],
    "Example": [("features", "Features", False)],
    "FeatureList": [("feature", "Feature", True)],
    # What the entry of a map is on the wire.
    "ListEntry": [("key", "string", False), ("value", "FeatureList", False)],
    "FeatureLists": [("feature_list", "ListEntry", True)],
    SEQUENCE: [
        ("context", "Features", False),
        ("feature_lists", "FeatureLists", False),
    ],
    RANKING: [("examples", "Example", True), ("context", "Example", False)],
}
"""Each message and its fields, numbered from 1."""
_ENTRY: _Fields = [("key", "string", False), ("value", "Feature", False)]


def _classes(*, ordered: bool = False) -> dict[str, Any]:
    """Returns the classes of all messages by their names.

    With `ordered`, the features of an Example are a list in place of a map.
    """
    file = descriptor_pb2.FileDescriptorProto(
        name="tensorflow/core/example/example.proto",
        package="tensorflow",
        # Of proto2, an empty key is written, as that of a map is.
        syntax="proto2" if ordered else "proto3",
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        if name == "Feature":
            message.oneof_decl.add(name="kind")
        if name == "Features":
            entry = message.nested_type.add(name="FeatureEntry")
            entry.options.map_entry = not ordered
            _add_fields(entry, _ENTRY)
        _add_fields(message, fields)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(
            pool.FindMessageTypeByName(f"tensorflow.{name}")
        )
        for name in _MESSAGES
    }


def _add_fields(message: Any, fields: _Fields) -> None:
    """Adds fields to a descriptor, numbered from 1; those of a Feature are a oneof."""
    for number, (name, kind, repeated) in enumerate(fields, 1):
        word = kind if kind in _SCALARS else "message"
        field = message.field.add(
            name=name,
            number=number,
            label=_Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL,
            type=_Field.Type.Value(f"TYPE_{word.upper()}"),
            type_name=None if kind in _SCALARS else f".tensorflow.{kind}",
        )
        if kind in ("float", "int64"):
            field.options.packed = True
        if message.name == "Feature":
            field.oneof_index = 0


CLASSES = _classes()

Example: Any = CLASSES["Example"]


OrderedExample: Any = _classes(ordered=True)["Example"]
"""The same bytes, with the entries in an order: protobuf's own ("deterministic") has
"ab" before "a", so it is not that of the encoder."""


def message(data: bytes) -> Any:
    """Returns the Example that `data` serialises.

    Raises:
      RecordKindError: it is a message of another kind that is known.
      ExampleError: protobuf does not parse it.
    """
    try:
        parsed = Example.FromString(data)
    except DecodeError as error:
        check_kind(data)
        raise ExampleError(
            f"{len(data):,} bytes are not a tf.train.Example ({error})"
        ) from error
    if len(UnknownFieldSet(parsed)) or begins_with_list(data):
        check_kind(data)
    return parsed


def parse_example(data: bytes) -> dict[str, list[Any]]:
    """Returns the features of one Example, by name, in the names' order.

    Int64List becomes ints, FloatList floats, BytesList bytes. A feature without a type
    becomes an empty list.

    Raises:
      ExampleError: protobuf does not parse it.
    """
    features = message(data).features.feature
    return {name: values_of(features[name]) for name in sorted(features)}


def values_of(feature: Any) -> list[Any]:
    """Returns the values of a feature; of one without a type none."""
    kind = feature.WhichOneof("kind")
    # A slice of a repeated field is a list; `list` takes three times as long.
    return [] if kind is None else getattr(feature, kind).value[:]


def replaced_ids(record: bytes, key: str, ids: Mapping[int, int]) -> bytes:
    """Returns a serialised Example with other integers in one feature; all else stays.

    Args:
      record: a serialised Example.
      key: of a feature with integers; records without it stay as they are.
      ids: integer -> the new one; others stay.

    Raises:
      ExampleError: it is no Example.
    """
    message(record)
    parsed = OrderedExample.FromString(record)
    changed = False
    for entry in parsed.features.feature:
        if entry.key == key:
            values = entry.value.int64_list.value
            changed |= any(value in ids for value in values)
            values[:] = [ids.get(value, value) for value in values]
    out: bytes = parsed.SerializeToString() if changed else record
    return out


def other_kind(data: bytes) -> str:
    """Returns which message other than an Example a record is.

    Empty for an Example, and for what is unknown. Fields of other numbers than 1 and 2
    do not count. Takes some 20 us: not for every record.
    """
    try:
        fields = _fields(data)
        first = [value for number, value in fields if number == 1]
        second = [value for number, value in fields if number == 2]
        if all(map(_is_feature_map, first)):
            if not second:
                return ""
            if all(map(_is_feature_map, second)):
                return SEQUENCE
        if all(_has_all(value, _is_feature_map) for value in (*first, *second)):
            return RANKING
    except (DecodeError, TypeError, UnicodeDecodeError):
        pass
    return ""


def check_kind(data: bytes) -> None:
    """Raises RecordKindError for a SequenceExample or an ExampleListWithContext."""
    if kind := other_kind(data):
        article = "a" if kind == SEQUENCE else "an"
        raise RecordKindError(f"it is {article} {kind}. {_ADVICE}")


def _fields(data: bytes) -> list[tuple[int, Any]]:
    """Returns number and value of each field of a message."""
    return [
        (field.field_number, field.data)
        for field in UnknownFieldSet(Empty.FromString(data))
    ]


def _has_all(data: bytes, check: Callable[[bytes], bool]) -> bool:
    """Whether a message has fields 1 only, and a check is true of each."""
    return all(number == 1 and check(value) for number, value in _fields(data))


def _is_feature_map(data: bytes) -> bool:
    """Whether a message is a map alone, as Features and FeatureLists are."""
    return _has_all(data, _is_entry)


def _is_entry(data: bytes) -> bool:
    """Whether a message is an entry of a map: a name and a value, or empty."""
    values = dict(_fields(data))
    if not values:
        return True
    if not isinstance(values.get(1), bytes) or not isinstance(values.get(2), bytes):
        return False
    values[1].decode()
    return True


class StepTypeError(RecordKindError):
    """A record whose list holds steps of two types."""


def any_message(data: bytes, kind: str | None = None) -> Any:
    """Returns an Example that holds what a record of any kind holds.

    Args:
      data: of the record.
      kind: what `other_kind` returns for it; None: not known.

    Raises:
      StepTypeError: the steps of a list have two types.
      RecordKindError: it is of another kind and has fields that would be lost, or its
        context has a feature that is called like a list.
      ExampleError: protobuf does not parse it.
    """
    kind = other_kind(data) if kind is None else kind
    if not kind:
        return message(data)
    try:
        parsed = CLASSES[kind].FromString(data)
    except DecodeError as error:
        raise RecordKindError(
            f"{len(data):,} bytes are not a {kind} ({error})"
        ) from error
    if len(UnknownFieldSet(parsed)):
        raise RecordKindError(f"it holds fields that no {kind} has")
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
        raise RecordKindError(
            f"no context feature of a {kind} may be called {LISTS}..., as its lists "
            f"are; it has {min(named)!r}"
        )
    for name, steps in lists.items():
        _add_steps(out.features.feature, f"{LISTS}{name}", steps)
    return out


def _add_steps(features: Any, name: str, steps: Sequence[Any]) -> None:
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
