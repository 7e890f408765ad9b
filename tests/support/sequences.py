"""Serialised SequenceExamples and lists of Examples, byte by byte."""

from collections.abc import Mapping, Sequence
from typing import Any

from transforms.core.example.messages import CLASSES
from transforms.core.example.wire import varint

Values = Mapping[str, Any]
# One of each, as TensorFlow's writers have them.
SEQUENCE = bytes.fromhex(
    "0a0d0a0b0a02696412051a030a010712160a140a0178120f0a051a030a01010a061a040a020203"
)
RANKING = bytes.fromhex(
    "0a0e0a0c0a0a0a016412051a030a0102120e0a0c0a0a0a017112051a030a0101"
)


def field(number: int, content: bytes) -> bytes:
    """Returns a field with a length."""
    return bytes([number << 3 | 2]) + varint(len(content)) + content


def feature(values: Sequence[Any] | None) -> bytes:
    """Returns a Feature; of None one without a type."""
    found = CLASSES["Feature"]()
    if values is not None:
        kind = {bytes: "bytes_list", float: "float_list"}
        name = kind.get(type(values[0]), "int64_list") if values else "int64_list"
        getattr(found, name).SetInParent()
        getattr(found, name).value.extend(values)
    return bytes(found.SerializeToString())


def features(values: Values) -> bytes:
    """Returns Features."""
    return b"".join(
        field(1, field(1, name.encode()) + field(2, feature(value)))
        for name, value in values.items()
    )


def sequence(context: Values, lists: Mapping[str, Sequence[Any]]) -> bytes:
    """Returns a SequenceExample; a step of None has no type."""
    entries = b"".join(
        field(
            1,
            field(1, name.encode())
            + field(2, b"".join(field(1, feature(step)) for step in steps)),
        )
        for name, steps in lists.items()
    )
    return field(1, features(context)) + field(2, entries)


def ranking(context: Values, documents: Sequence[Values]) -> bytes:
    """Returns an ExampleListWithContext."""
    examples = b"".join(field(1, field(1, features(each))) for each in documents)
    return examples + field(2, field(1, features(context)))
