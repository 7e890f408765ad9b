"""Messages of `tf.train.Example`: given ones and generated ones."""

from typing import Any

from hypothesis import strategies as st

from transforms.core.example.messages import (
    Example,
)

Values = dict[str, tuple[str, list[Any]]]
int64s = st.integers(-(2**63), 2**63 - 1)
floats = st.floats(width=32)


def serialise(values: Values) -> bytes:
    example = Example()
    for name, (kind, items) in values.items():
        feature = example.features.feature[name]
        if kind:
            values_list = getattr(feature, kind)
            values_list.SetInParent()
            values_list.value.extend(items)
    return bytes(example.SerializeToString(deterministic=True))


def message(data: bytes) -> Values:
    """Returns an Example as protobuf reads it: name -> the list's field, its values."""
    found = Example.FromString(data).features.feature
    out = {}
    for name, feature in found.items():
        kind = feature.WhichOneof("kind")
        out[name] = (kind, list(getattr(feature, kind).value))
    return out


def ints(**features: int | list[int]) -> bytes:
    return serialise(
        {
            name: ("int64_list", list(v) if isinstance(v, list) else [v])
            for name, v in features.items()
        }
    )


def same(left: object, right: object) -> bool:
    """Equality under which NaN equals itself."""
    return repr(left) == repr(right)
