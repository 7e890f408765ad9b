"""The tf.train.Example messages, without TensorFlow.

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
"""

from collections.abc import Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from transforms.core.example.record_kind import begins_with_list, check_kind
from transforms.errors import ExampleError

_Field = descriptor_pb2.FieldDescriptorProto


def _file() -> Any:
    """Returns the FileDescriptorProto of all six messages."""
    file = descriptor_pb2.FileDescriptorProto(
        name="tensorflow/core/example/example.proto",
        package="tensorflow",
        syntax="proto3",
    )
    for name, kind in (
        ("BytesList", _Field.TYPE_BYTES),
        ("FloatList", _Field.TYPE_FLOAT),
        ("Int64List", _Field.TYPE_INT64),
    ):
        value = file.message_type.add(name=name).field.add(
            name="value", number=1, label=_Field.LABEL_REPEATED, type=kind
        )
        if kind != _Field.TYPE_BYTES:
            value.options.packed = True

    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, kind in enumerate(("bytes", "float", "int64"), start=1):
        feature.field.add(
            name=f"{kind}_list",
            number=number,
            label=_Field.LABEL_OPTIONAL,
            type=_Field.TYPE_MESSAGE,
            type_name=f".tensorflow.{kind.capitalize()}List",
            oneof_index=0,
        )

    features = file.message_type.add(name="Features")
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(
        name="key", number=1, label=_Field.LABEL_OPTIONAL, type=_Field.TYPE_STRING
    )
    entry.field.add(
        name="value",
        number=2,
        label=_Field.LABEL_OPTIONAL,
        type=_Field.TYPE_MESSAGE,
        type_name=".tensorflow.Feature",
    )
    features.field.add(
        name="feature",
        number=1,
        label=_Field.LABEL_REPEATED,
        type=_Field.TYPE_MESSAGE,
        type_name=".tensorflow.Features.FeatureEntry",
    )

    file.message_type.add(name="Example").field.add(
        name="features",
        number=1,
        label=_Field.LABEL_OPTIONAL,
        type=_Field.TYPE_MESSAGE,
        type_name=".tensorflow.Features",
    )
    return file


def _classes() -> dict[str, Any]:
    """Returns the message classes by their full names."""
    pool = descriptor_pool.DescriptorPool()
    file = _file()
    pool.Add(file)
    names = [f"tensorflow.{message.name}" for message in file.message_type]
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
        for name in names
    }


_CLASSES = _classes()

Example: Any = _CLASSES["tensorflow.Example"]
Features: Any = _CLASSES["tensorflow.Features"]
Feature: Any = _CLASSES["tensorflow.Feature"]
BytesList: Any = _CLASSES["tensorflow.BytesList"]
FloatList: Any = _CLASSES["tensorflow.FloatList"]
Int64List: Any = _CLASSES["tensorflow.Int64List"]


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
    return {name: _values(features[name]) for name in sorted(features)}


def _values(feature: Any) -> list[Any]:
    kind = feature.WhichOneof("kind")
    # A slice of a repeated field is a list; `list` takes three times as long.
    return [] if kind is None else getattr(feature, kind).value[:]


def replaced_ids(record: bytes, key: str, ids: Mapping[int, int]) -> bytes:
    """Returns an Example in which a feature holds other integers; all else stays.

    Keys are in byte order, as the encoder writes them.

    Args:
      record: a serialised Example.
      key: of a feature with integers; records without it stay as they are.
      ids: integer -> the new one; others stay.

    Raises:
      ExampleError: it is no Example.
    """
    parsed = message(record)
    features = parsed.features.feature
    if key not in features:
        return record
    values = features[key].int64_list.value
    changed = [ids.get(value, value) for value in values]
    if changed == [*values]:
        return record
    values[:] = changed
    out: bytes = parsed.SerializeToString(deterministic=True)
    return out
