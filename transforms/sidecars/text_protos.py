r"""Files beside the shards in the text form of protobuf messages, and all such files.

The code that publishes, repairs or points to a dataset asks `render_sidecars` for the
files beside the shards, but manifest and rejects. A new kind of files has its lines
there.

`schema.pbtxt` is the schema that TFX, TFDV and Ray Data read: the text form of the
message `tensorflow.metadata.v0.Schema`, one `feature` a key of the tf.train.Example:

    feature {
      name: 'age'
      type: FLOAT
      value_count { min: 1 max: 1 }          or presence and shape, where each record
    }                                        has as many values

| feature                      | says                                       |
| ---------------------------- | ------------------------------------------ |
| in every record, one shape   | presence { 1, 1 } and shape                |
| in every record, any length  | presence { 1, 1 } and value_count { 0 }    |
| not in every record          | value_count                                |
| label                        | int_domain: its ids, which are categorical |
| bool, image, timestamp       | bool_domain, image_domain, time_domain     |

tfx_bsl makes dense tensors of what has a shape, and sparse ones of the rest.

`label_map.pbtxt` is the label map of the TensorFlow Object Detection API: class names
by their ids, which count from 1; 0 is the background. The text form of the message
StringIntLabelMap:

    item {
      id: 3
      name: 'car'
    }

Texts are UTF-8 in quotes; quotes, backslashes and control characters are escaped as in
C (`\'`, `\\`, `\n`, `\001`).

Sources: `tensorflow_metadata/proto/v0/schema.proto` 1.21.0; tried with tfx_bsl 1.21.0
and TFDV 1.16.1; `object_detection/protos/string_int_label_map.proto` of
tensorflow/models; https://protobuf.dev/reference/protobuf/textformat-spec/
"""

import functools
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from transforms.core.manifest import FeatureFacts, Manifest
from transforms.core.schema import Feature, Kind
from transforms.errors import SpecError
from transforms.sidecars import tfds
from transforms.sidecars.tfds import Rendered

SCHEMA_NAME = "schema.pbtxt"
_TYPES = dict.fromkeys(Kind, "INT") | {
    **dict.fromkeys((Kind.TEXT, Kind.BYTES, Kind.IMAGE, Kind.TENSOR), "BYTES"),
    **dict.fromkeys((Kind.FLOAT, Kind.BOX), "FLOAT"),
}
_TIMES = {
    "s": "UNIX_SECONDS",
    "ms": "UNIX_MILLISECONDS",
    "us": "UNIX_MICROSECONDS",
    "ns": "UNIX_NANOSECONDS",
}
LABEL_MAP_NAME = "label_map.pbtxt"
# The proto's id is an int32.
_MAX_ID = 2**31 - 1
_QUOTED = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_TO_QUOTE = re.compile(r"[\x00-\x1f\x7f\\']")


def render_schema(manifest: Manifest) -> bytes:
    """Returns the content of `schema.pbtxt` for a dataset.

    >>> from transforms.core.statistics import Statistics
    >>> from transforms.core.manifest import Account, SplitFacts
    >>> age = FeatureFacts(Feature("age", Kind.FLOAT), Statistics(), (), False)
    >>> facts = Manifest("rows", "none", (age,), (), (), Account(0, 0), {}, {})
    >>> print(render_schema(facts).decode(), end="")
    feature {
      name: 'age'
      type: FLOAT
      value_count { min: 1 max: 1 }
    }
    """
    lines: list[str] = []
    records = manifest.records
    for facts in manifest.features:
        always = facts.always_present
        if always is None:
            always = facts.statistics.present == records
        for index, key in enumerate(facts.feature.record_keys):
            is_lengths = facts.feature.is_ragged and index == 1
            lines += [
                "feature {",
                f"  name: {quoted(key)}",
                f"  type: {'INT' if is_lengths else _TYPES[facts.feature.kind]}",
                *_number_of_values(facts.feature, always),
                *(() if is_lengths else _domain(facts)),
                "}",
            ]
    return "".join(f"{line}\n" for line in lines).encode()


def _number_of_values(feature: Feature, always: bool) -> Iterator[str]:
    """Yields how many values a record has, in how many dimensions."""
    count = feature.values_each if feature.is_list else 1
    if feature.kind is Kind.BOX:
        count = None
    if always:
        yield "  presence { min_fraction: 1 min_count: 1 }"
    if count is None:
        yield "  value_count { min: 0 }"
    elif always:
        sizes = feature.shape if feature.is_list else ()
        dims = "".join(f" dim {{ size: {size} }}" for size in sizes)
        yield f"  shape {{{dims} }}"
    else:
        yield f"  value_count {{ min: {count} max: {count} }}"


def _domain(facts: FeatureFacts) -> Iterator[str]:
    """Yields what the values mean, where the message has a word for it."""
    feature = facts.feature
    if feature.kind is Kind.LABEL and facts.classes:
        last = len(facts.classes) - 1
        yield f"  int_domain {{ min: 0 max: {last} is_categorical: true }}"
    elif feature.kind is Kind.BOOL:
        yield "  bool_domain { }"
    elif feature.kind is Kind.IMAGE:
        yield "  image_domain { }"
    elif feature.kind is Kind.TIMESTAMP:
        yield f"  time_domain {{ integer_format: {_TIMES[feature.unit]} }}"


def render_sidecars(
    manifest: Manifest, label_map: Mapping[int, str] | None = None
) -> Rendered:
    """Returns the files beside the shards, by name, and their notes.

    Args:
      manifest: of the dataset; its `files` and `derived` are ignored.
      label_map: class id -> name, for `label_map.pbtxt`, which the Object Detection
        API reads; None or empty for none.
    """
    rendered = tfds.render(manifest)
    files = dict(rendered.files)
    if label_map:
        files[LABEL_MAP_NAME] = render_label_map(label_map)
    derived = {SCHEMA_NAME: render_schema(manifest)}
    return Rendered(dict(sorted(files.items())), rendered.notes, derived)


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
