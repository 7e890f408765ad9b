"""SequenceExamples and lists of Examples, as Examples that hold the same.

| in the record                          | in the Example                             |
| -------------------------------------- | ------------------------------------------ |
| context feature `id`                   | `id`                                       |
| feature list `x`; feature `x` of       | `lists/x`: the values of all steps;        |
| Examples, each of which is a step      | `lists/x` + `STEPS`: how many each has     |
| step without the feature or a type     | a step of no values                        |
| list without steps                     | no values, no steps                        |

One mechanism decodes all three messages that way. Only readers see these Examples.

Sources: TensorFlow, `tensorflow/core/example/example.proto`; TensorFlow Serving,
`tensorflow_serving/apis/input.proto`.
"""

import itertools
import operator
from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf import descriptor_pb2
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from transforms.core.example.messages import (
    RANKING,
    SEQUENCE,
    classes_of,
    example_file,
    message,
    other_kind,
    values_of,
)
from transforms.core.schema import LISTS, STEPS
from transforms.errors import ExampleError

_Field = descriptor_pb2.FieldDescriptorProto
# Message -> its fields: name, type (a text if empty), and whether it is repeated.
_MESSAGES: Mapping[str, Sequence[tuple[str, str, bool]]] = {
    "FeatureList": [("feature", "Feature", True)],
    # What the entry of a map is on the wire.
    "ListEntry": [("key", "", False), ("value", "FeatureList", False)],
    "FeatureLists": [("feature_list", "ListEntry", True)],
    SEQUENCE: [
        ("context", "Features", False),
        ("feature_lists", "FeatureLists", False),
    ],
    RANKING: [("examples", "Example", True), ("context", "Example", False)],
}


def _file() -> Any:
    """Returns the FileDescriptorProto of Examples and of what holds several."""
    file = example_file()
    for name, fields in _MESSAGES.items():
        made = file.message_type.add(name=name)
        for number, (field, kind, repeated) in enumerate(fields, 1):
            made.field.add(
                name=field,
                number=number,
                label=_Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL,
                type=_Field.TYPE_MESSAGE if kind else _Field.TYPE_STRING,
                type_name=f".tensorflow.{kind}" if kind else None,
            )
    return file


_CLASSES = classes_of(_file())
_Example, _Feature = _CLASSES["tensorflow.Example"], _CLASSES["tensorflow.Feature"]


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
        parsed = _CLASSES[f"tensorflow.{kind}"].FromString(data)
    except DecodeError as error:
        raise ExampleError(f"{len(data):,} bytes are not a {kind} ({error})") from error
    if len(UnknownFieldSet(parsed)):
        raise ExampleError(f"it holds fields that no {kind} has")
    out = _Example()
    lists: Mapping[str, Sequence[Any]]
    if kind == SEQUENCE:
        out.features.MergeFrom(parsed.context)
        entries = parsed.feature_lists.feature_list
        lists = {each.key: each.value.feature for each in entries}
    else:
        out.features.MergeFrom(parsed.context.features)
        documents = [each.features.feature for each in parsed.examples]
        lists = {
            name: [_feature(each, name) for each in documents]
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


def _feature(features: Any, name: str) -> Any:
    # Looking a name up in a map of messages adds it.
    return features[name] if name in features else _Feature()


def _add(features: Any, name: str, steps: Sequence[Any]) -> None:
    """Adds the values of the steps of a list, and their numbers."""
    counts = features[name + STEPS].int64_list
    counts.SetInParent()
    kinds = {step.WhichOneof("kind") for step in steps} - {None}
    if len(kinds) > 1:
        found = " and ".join(sorted(kinds))
        raise StepTypeError(f"the steps of {name!r} must be of one type; found {found}")
    if not kinds:
        counts.value.extend([0] * len(steps))
        return
    (kind,) = kinds
    # Those of a step without a type are empty.
    lists = list(map(operator.attrgetter(kind), steps))
    counts.value.extend(len(each.value) for each in lists)
    values = getattr(features[name], kind)
    values.SetInParent()
    for each in lists:
        values.MergeFrom(each)


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
    found = {name: values_of(features[name]) for name in sorted(features)}
    for name in [name for name in found if name.endswith(STEPS)]:
        counts = found.pop(name)
        values = iter(found.get(name.removesuffix(STEPS), ()))
        found[name.removesuffix(STEPS)] = [
            [*itertools.islice(values, count)] for count in counts
        ]
    return {name: found[name] for name in sorted(found)}
