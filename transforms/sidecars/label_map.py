r"""Label maps of the TensorFlow Object Detection API: class names by their ids.

Ids count from 1; 0 is the background. The text form of the message StringIntLabelMap:

    item {
      id: 3
      name: 'car'
    }

Its texts are UTF-8 in quotes; quotes, backslashes and control characters are escaped as
in C (`\'`, `\\`, `\n`, `\001`). Sources:
`object_detection/protos/string_int_label_map.proto` of tensorflow/models;
https://protobuf.dev/reference/protobuf/textformat-spec/
"""

import functools
import re
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from transforms.errors import SpecError

LABEL_MAP_NAME = "label_map.pbtxt"
# The proto's id is an int32.
_MAX_ID = 2**31 - 1
_QUOTED = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_TO_QUOTE = re.compile(r"[\x00-\x1f\x7f\\']")


@functools.cache
def _message() -> Any:
    """Returns the class of StringIntLabelMap, of the fields that are read."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    package = "object_detection.protos"
    file = descriptor_pb2.FileDescriptorProto(name="label_map.proto", package=package)
    kind = descriptor_pb2.FieldDescriptorProto
    item = file.message_type.add(name="Item")
    item.field.add(name="name", number=1, type=kind.TYPE_STRING, label=1)
    item.field.add(name="id", number=2, type=kind.TYPE_INT32, label=1)
    file.message_type.add(name="StringIntLabelMap").field.add(
        name="item",
        number=1,
        type=kind.TYPE_MESSAGE,
        label=kind.LABEL_REPEATED,
        type_name=f".{package}.Item",
    )
    # A pool of its own: TensorFlow's object_detection registers the same names.
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    descriptor = pool.FindMessageTypeByName(f"{package}.StringIntLabelMap")
    return message_factory.GetMessageClass(descriptor)


def render_label_map(names: Mapping[int, str]) -> bytes:
    """Returns the file's content.

    Args:
      names: class id -> class name.

    Raises:
      SpecError: an id outside 1 to 2^31 - 1, or two ids of one name.
    """
    if wrong := [number for number in names if not 1 <= number <= _MAX_ID]:
        raise SpecError(
            f"Ids of a label map count from 1 to {_MAX_ID}; found {min(wrong)} for "
            f"{names[min(wrong)]!r}. Renumber the classes."
        )
    _checked(names.items())
    return "".join(
        f"item {{\n  id: {number}\n  name: {quoted(names[number])}\n}}\n"
        for number in sorted(names)
    ).encode()


def parse_label_map(data: bytes) -> dict[int, str]:
    """Returns class id -> class name, in the file's order.

    Only `id` and `name` of the items are read; other fields are skipped.

    Raises:
      SpecError: it is no label map, or ids or names repeat.
    """
    # Imported here: few runs read a label map.
    from google.protobuf import text_format

    try:
        text = data.decode("utf-8-sig")
        with warnings.catch_warnings():
            # Python only warns of an escape that it does not know.
            warnings.simplefilter("error")
            label_map = text_format.Parse(text, _message()(), allow_unknown_field=True)
        if not label_map.item and text.strip():
            raise ValueError("no item")
        for item in label_map.item:
            if not (item.HasField("id") and item.HasField("name")):
                raise ValueError("an item without id or name")
    except (text_format.ParseError, ValueError, RecursionError, Warning) as error:
        raise SpecError(
            f"A label map is text like: item {{ id: 1 name: 'cat' }}. Found: {error}."
        ) from error
    return _checked((item.id, item.name) for item in label_map.item)


def _checked(items: Iterable[tuple[int, str]]) -> dict[int, str]:
    """Returns a label map as id -> name; SpecError where an id or name repeats."""
    names: dict[int, str] = {}
    ids: dict[str, int] = {}
    for number, name in items:
        if number in names:
            raise SpecError(
                f"Ids of a label map must differ; {number} is both "
                f"{names[number]!r} and {name!r}."
            )
        if name in ids:
            raise SpecError(
                f"Names of a label map must differ; {ids[name]} and {number} are both "
                f"{name!r}. Rename one."
            )
        names[number], ids[name] = name, number
    return names


def quoted(text: str) -> str:
    r"""Returns a text in quotes.

    >>> print(quoted("owner's"))
    'owner\'s'
    """
    escaped = _TO_QUOTE.sub(lambda m: _QUOTED.get(m[0], f"\\{ord(m[0]):03o}"), text)
    return f"'{escaped}'"
