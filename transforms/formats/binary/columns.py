"""Fields of fixed-length records as Arrow columns, and their features."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from transforms.core.image.png_encode import encode_png
from transforms.core.schema import Feature, Kind
from transforms.formats.binary.layout import BinaryField, Values

__all__ = ["column_of", "features_of"]


def column_of(
    field: BinaryField, values: Values, names: Sequence[str] | None = None
) -> pa.Array:
    """Returns a field of n records as an Arrow array of n.

    Args:
      field: the field.
      values: (n, *shape) as they are stored; class ids all within `names`.
      names: of the classes, by id.

    Returns:
      Numbers of the field's own type (float16 as float32), class names as string, or
      for arrays binary, lists or large_binary by `field.store`.
    """
    ready = field.arranged(values)
    if names is not None:
        return pa.array(names, pa.string()).take(pa.array(ready.astype(np.int64)))
    if field.store == "png":
        return encode_png(ready)
    if field.shape and field.store == "tensor":
        ends = np.arange(len(ready) + 1, dtype=np.int32) * np.int32(field.size)
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(ready)]
        return pa.BinaryArray.from_buffers(pa.binary(), len(ready), buffers)
    if field.dtype == "float16":
        ready = ready.astype(np.float32)
    if not field.shape:
        return pa.array(ready)
    ends = np.arange(len(ready) + 1, dtype=np.int32) * math.prod(field.shape)
    return pa.ListArray.from_arrays(pa.array(ends), pa.array(ready.ravel()))


def features_of(
    fields: Sequence[BinaryField], names: Mapping[str, Sequence[str]]
) -> tuple[Feature, ...]:
    """Returns the features of the columns that `column_of` gives.

    An image gets features of its height, width and depth beside it.

    Args:
      fields: of a layout.
      names: field -> the names of its classes, by id, where they are known.
    """
    taken = {field.name for field in fields}
    out: list[Feature] = []
    for field in fields:
        out.append(_feature(field, names.get(field.name)))
        if field.store != "png":
            continue
        for fact in ("height", "width", "depth"):
            name = f"{field.name}/{fact}" if fact in taken else fact
            taken.add(name)
            out.append(Feature(name, Kind.INT64, derived=fact, derived_from=field.name))
    return tuple(out)


def _feature(field: BinaryField, names: Sequence[str] | None) -> Feature:
    if names is not None:
        return Feature(
            field.name, Kind.LABEL, is_label=field.label, vocabulary=tuple(names)
        )
    if field.store == "png":
        return Feature(field.name, Kind.IMAGE, inline=True)
    if field.shape and field.store == "tensor":
        return Feature(
            field.name,
            Kind.TENSOR,
            shape=field.result_shape,
            dtype=field.dtype,
            encoding="raw",
        )
    kind = Kind.FLOAT if field.dtype.startswith("float") else Kind.INT64
    return Feature(field.name, kind, is_label=field.label, shape=field.result_shape)
