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

import enum
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from transforms.core.tfrecord.reader import PayloadBatch
from transforms.errors import RecordKindError

_ADVICE = (
    "beam-tfrecord reads tf.train.Examples only. Make rows of such records in a "
    "pipeline of your own: ReadTFRecords, a step that parses them, WriteDataset. "
    "'verify', 'index' and 'repair' take the file as it is."
)

# The first four tags of an ExampleListWithContext, behind Examples without features:
# where an Example has the first letter of a name. 0.2 us, so each record is asked.
begins_with_list = re.compile(
    rb"(?:\n\x00|\n\x02\n\x00)*(?:\n[\x80-\xff]*[\x00-\x7f]){3}\n"
).match


class RecordKind(enum.Enum):
    """The message that a record is."""

    EXAMPLE = enum.auto()
    SEQUENCE = enum.auto()
    RANKING = enum.auto()
    OTHER = enum.auto()


class Recognised(NamedTuple):
    """What a record is.

    Attributes:
      kind: the message.
      number: its feature lists or its Examples; 0 for other kinds.
    """

    kind: RecordKind
    number: int = 0

    @property
    def words(self) -> str:
        """The message and the number; empty for an Example, and for what is unknown."""
        plural = "" if self.number == 1 else "s"
        if self.kind is RecordKind.SEQUENCE:
            return f"a SequenceExample with {self.number:,} feature list{plural}"
        if self.kind is RecordKind.RANKING:
            return f"an ExampleListWithContext with {self.number:,} Example{plural}"
        return ""


def record_kind(data: bytes) -> Recognised:
    """Returns which message a record is, by its bytes.

    Fields of other numbers than 1 and 2 do not count. Takes some 20 us: not for every
    record.
    """
    try:
        fields = _fields(data)
        first = [value for number, value in fields if number == 1]
        second = [value for number, value in fields if number == 2]
        if all(map(_has_entries, first)):
            if not second:
                return Recognised(RecordKind.EXAMPLE)
            if all(map(_has_entries, second)):
                lists = sum(len(_fields(value)) for value in second)
                return Recognised(RecordKind.SEQUENCE, lists)
        if all(_has_all(value, _has_entries) for value in (*first, *second)):
            return Recognised(RecordKind.RANKING, len(first))
    except (DecodeError, TypeError, UnicodeDecodeError):
        pass
    return Recognised(RecordKind.OTHER)


def check_kind(data: bytes, record: str = "it") -> None:
    """Raises RecordKindError for a SequenceExample or an ExampleListWithContext.

    Args:
      data: of the record.
      record: which one it is, for the message.
    """
    if words := record_kind(data).words:
        raise RecordKindError(f"{record} is {words}; {_ADVICE}")


def check_first(records: PayloadBatch, path: str) -> None:
    """Raises RecordKindError where the first record of a file is of another kind.

    Args:
      records: of the file, from its first on; empty for a file without a record.
      path: of the file.
    """
    if len(records):
        check_kind(records.payload(0), f"record 0 of {path}")


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
