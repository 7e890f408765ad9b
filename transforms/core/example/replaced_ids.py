"""Serialised tf.train.Examples with other class ids."""

from collections.abc import Mapping

from transforms.core.example.messages import message


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
