"""Tell Examples from the two other messages that TFRecord files often hold.

| message                | field 1              | field 2                 |
| ---------------------- | -------------------- | ----------------------- |
| Example                | Features             | -                       |
| SequenceExample        | context: Features    | FeatureLists            |
| ExampleListWithContext | Examples: one each   | context: one Example    |

    Features, FeatureLists: entries, as 0a E  0a k name  12 F value
    Example: 0a T Features, so its entries are one level deeper

protobuf reads all three as an Example: it drops the feature lists, or takes whole
entries for names. What tells them apart is the level of the entries.

Sources: TensorFlow, `tensorflow/core/example/example.proto`; TensorFlow Serving,
`tensorflow_serving/apis/input.proto`.
"""

import re
from collections.abc import Callable
from typing import Any

from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from transforms.errors import RecordKindError

SEQUENCE, RANKING = "SequenceExample", "ExampleListWithContext"
_COUNTED = {SEQUENCE: "feature list", RANKING: "Example"}
_ADVICE = (
    "Only tf.train.Examples are read here. Where the first records of the files are "
    "such messages, 'convert', open_dataset and ReadDataset read them."
)

# The first four tags of an ExampleListWithContext, behind Examples without features:
# where an Example has the first letter of a name. 0.2 us, so each record is asked.
begins_with_list = re.compile(
    rb"(?:\n\x00|\n\x02\n\x00)*(?:\n[\x80-\xff]*[\x00-\x7f]){3}\n"
).match


def other_kind(data: bytes) -> tuple[str, int]:
    """Returns which message other than an Example a record is, and its size.

    That is the number of feature lists or Examples. The name is empty for an Example,
    and for what is unknown. Fields of other numbers than 1 and 2 do not count. Takes
    some 20 us: not for every record.
    """
    try:
        fields = _fields(data)
        first = [value for number, value in fields if number == 1]
        second = [value for number, value in fields if number == 2]
        if all(map(_has_entries, first)):
            if not second:
                return "", 0
            if all(map(_has_entries, second)):
                return SEQUENCE, sum(len(_fields(value)) for value in second)
        if all(_has_all(value, _has_entries) for value in (*first, *second)):
            return RANKING, len(first)
    except (DecodeError, TypeError, UnicodeDecodeError):
        pass
    return "", 0


def other_message(data: bytes) -> str:
    """Returns what `other_kind` says in words; empty for an Example."""
    kind, count = other_kind(data)
    if not kind:
        return ""
    article = "a" if kind == SEQUENCE else "an"
    return (
        f"{article} {kind} with {count:,} {_COUNTED[kind]}{'' if count == 1 else 's'}"
    )


def check_kind(data: bytes, record: str = "it") -> None:
    """Raises RecordKindError for a SequenceExample or an ExampleListWithContext.

    Args:
      data: of the record.
      record: which one it is, for the message.
    """
    if words := other_message(data):
        raise RecordKindError(f"{record} is {words}. {_ADVICE}")


def _fields(data: bytes) -> list[tuple[int, Any]]:
    """Returns number and value of each field of a message."""
    return [
        (field.field_number, field.data)
        for field in UnknownFieldSet(Empty.FromString(data))
    ]


def _has_all(data: bytes, check: Callable[[bytes], bool]) -> bool:
    """Whether a message has fields 1 only, and a check is true of each."""
    return all(number == 1 and check(value) for number, value in _fields(data))


def _has_entries(data: bytes) -> bool:
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
