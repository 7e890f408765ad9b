"""Read examples without TensorFlow, with the semantics of its parser.

The result of a `FixedLenFeature`, as measured on TensorFlow 2.21:

| in the record      | no default | default |
| ------------------ | ---------- | ------- |
| key absent         | error      | default |
| `Feature()`        | error      | default |
| typed, empty list  | error      | error   |
| other type         | error      | error   |
| other count        | error      | error   |

A default has as many values as the shape, in any nesting; a scalar is not repeated.
A shape without values, such as [0], needs the key. A `VarLenFeature` becomes an empty
array in the first three rows, and an error for another type. So does a
`RaggedFeature`; where its row lengths do not add up to the number of values,
TensorFlow silently returns other rows, and this module raises an error.

protobuf decides whether bytes are an Example, as for `tf.train.Example`. The op behind
`tf.io.parse_example` has its own parser, which misses some damage that protobuf finds
(truncated messages, keys that are not UTF-8) and refuses some messages that protobuf
reads (two types in one feature, unknown groups). No writer produces those, and where
both read a message they read the same values.
"""

import itertools
import math
import os
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from transforms.core.example.decoder import message, parse_example
from transforms.core.example.description import (
    TYPES,
    DescribedFeature,
    Description,
    FixedLenFeature,
    RaggedFeature,
    RowLengths,
    UniformRowLength,
    VarLenFeature,
)
from transforms.core.manifest import MANIFEST_NAME, Manifest, ShardFacts
from transforms.core.regular_files import open_regular
from transforms.core.tfrecord import TFRecordReader
from transforms.errors import ExampleError, SourceError, first_few

__all__ = [
    "FixedLenFeature",
    "RaggedFeature",
    "RowLengths",
    "UniformRowLength",
    "VarLenFeature",
    "parse_single_example",
    "read_examples",
]

# How many splits a message names.
_SHOWN = 10


def parse_single_example(data: bytes, description: Description) -> dict[str, Any]:
    """Returns the described features of one serialised tf.train.Example.

    A fixed feature of shape () is a NumPy scalar, or bytes; of another shape an array
    of int64, float32 or object (bytes). A varying one is an array of one dimension. A
    ragged one is an array if all its partitions are uniform, otherwise lists of arrays.

    Raises:
      ExampleError: the bytes are no Example, or do not fit the description.
    """
    features = message(data).features.feature
    return {
        name: _ragged(name, spec, features)
        if isinstance(spec, RaggedFeature)
        else _value(name, spec, features.get(name))
        for name, spec in description.items()
    }


def read_examples(
    source: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    description: Description | None = None,
    *,
    split: str | None = None,
    compression: str = "auto",
) -> Iterator[dict[str, Any]]:
    """Yields the examples of TFRecord files, every checksum checked.

        for row in read_examples("out/photos", split="train"):
            ...

    Args:
      source: a file, several, or the directory of a dataset. Files without a byte
        are fine: writers make them for empty shards. The shards of a dataset are read
        in the manifest's order, and must have the records, bytes and checksums that
        it states.
      description: the features to return of each example, as `parse_single_example`
        does. None: all features, as `parse_example` returns them.
      split: of a dataset, the split to read. None: all of them, one after another,
        with a UserWarning where there are several.
      compression: see `TFRecordReader`; a dataset states its own.

    Raises:
      SourceError: a file cannot be read; a directory is no dataset, or the dataset
        has no such split.
      TFRecordError: a file is damaged, or is not the one in the manifest.
      ExampleError: a record is no Example, or does not fit the description.
    """
    is_directory = isinstance(source, str | os.PathLike) and os.path.isdir(source)
    if split is not None and not is_directory:
        raise SourceError(
            f"A split can be read of a dataset's directory only; found {source!r} with "
            f"split={split!r}. Name the directory, or leave the split out."
        )
    if not isinstance(source, str | os.PathLike):
        for path in source:
            yield from _read_file(path, description, compression)
    elif os.path.isdir(source):
        yield from _read_dataset(os.fspath(source), description, split)
    else:
        yield from _read_file(source, description, compression)


def _read_file(
    path: str | os.PathLike[str], description: Description | None, compression: str
) -> Iterator[dict[str, Any]]:
    reader = TFRecordReader(path, compression=compression, allow_empty=True)
    yield from _parsed(reader, description)


def _read_dataset(
    directory: str, description: Description | None, split: str | None
) -> Iterator[dict[str, Any]]:
    path = os.path.join(directory, MANIFEST_NAME)
    try:
        with open(path, "rb", opener=open_regular) as file:
            manifest = Manifest.from_bytes(file.read(), path)
    except OSError as error:
        raise SourceError(
            f"{directory}: not a dataset: its {MANIFEST_NAME} cannot be read "
            f"({error.strerror}). Name the TFRecord files themselves to read them."
        ) from error
    for shard in _shards(manifest, directory, split):
        reader = TFRecordReader(
            manifest.path(directory, shard.file),
            compression=manifest.compression,
            allow_empty=shard.records == 0,
        )
        yield from _parsed(reader, description)
        reader.check_stated(
            records=shard.records, stored_bytes=shard.bytes, crc32c=shard.crc32c
        )


def _shards(
    manifest: Manifest, directory: str, split: str | None
) -> Iterator[ShardFacts]:
    """Yields the shards of a split, or of all."""
    names = [each.name for each in manifest.splits]
    shown = first_few([*map(repr, names)], _SHOWN)
    if split is not None and split not in names:
        raise SourceError(
            f"{directory} must have the split that is read; it has no {split!r}, but "
            f"{shown}."
        )
    if split is None and len(names) > 1:
        warnings.warn(
            f"{directory} has the splits {shown}; all of them are read, one after "
            f"another. Name one: read_examples({directory!r}, split={names[0]!r})",
            stacklevel=4,
        )
    for each in manifest.splits:
        if split in (None, each.name):
            yield from each.shards


def _parsed(
    reader: TFRecordReader, description: Description | None
) -> Iterator[dict[str, Any]]:
    for index, data in enumerate(reader):
        try:
            if description is None:
                example: dict[str, Any] = parse_example(data)
            else:
                example = parse_single_example(data, description)
        except ExampleError as error:
            raise type(error)(f"{reader.path}: record {index:,}: {error}") from error
        yield example


def _value(name: str, spec: DescribedFeature, feature: Any) -> Any:
    """Returns one feature's value; `feature` is its message, None where absent."""
    field, dtype = TYPES[spec.dtype]
    found = None if feature is None else feature.WhichOneof("kind")
    if found is None:
        if not isinstance(spec, FixedLenFeature):
            return np.empty(0, dtype)
        if spec.default_value is None or math.prod(_shape(spec)) == 0:
            raise ExampleError(
                f"feature {name!r} is required, but absent; give it a default value "
                "if it may be"
            )
        default = spec.default_value
        return default[()] if default.ndim == 0 else default.copy()
    if found != field:
        raise ExampleError(
            f"feature {name!r} must be a list of {spec.dtype} ({field}); found a "
            f"{found}"
        )
    values = _array(getattr(feature, field), dtype)
    if not isinstance(spec, FixedLenFeature):
        return values
    if len(values) != math.prod(_shape(spec)):
        raise ExampleError(
            f"feature {name!r} must have {math.prod(_shape(spec)):,} values (shape "
            f"{list(_shape(spec))}); found {len(values):,}"
        )
    array = values.reshape(_shape(spec))
    return array[()] if array.ndim == 0 else array


def _array(values: Any, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Returns the values of a list message as an array of one dimension."""
    count = len(values.value)
    if dtype != np.float32 or not count:
        return np.fromiter(values.value, dtype, count)
    # Python's floats have 64 bits: converting to them makes signalling NaNs quiet. The
    # serialised list has the bits, behind a tag and the size, before unknown fields.
    size = 4 * count
    begin = 1 + (size.bit_length() + 6) // 7
    bits = np.frombuffer(values.SerializeToString(), "<f4", count, begin)
    return bits.astype(np.float32)


def _ragged(name: str, spec: RaggedFeature, features: Any) -> Any:
    """Returns the rows of one feature; `features` are all of the example's."""
    key = spec.value_key or name
    rows: Any = _value(key, VarLenFeature(spec.dtype), features.get(key))
    for partition in reversed(spec.partitions):
        if isinstance(partition, RowLengths):
            lengths = _value(
                partition.key, VarLenFeature("int64"), features.get(partition.key)
            )
            rows = _rows_of(name, rows, lengths)
        elif len(rows) % partition.length:
            raise ExampleError(
                f"feature {name!r} must have rows of {partition.length:,} items; found "
                f"{len(rows):,} items"
            )
        elif isinstance(rows, np.ndarray):
            rows = rows.reshape(-1, partition.length, *rows.shape[1:])
        else:
            starts = range(0, len(rows), partition.length)
            rows = [rows[start : start + partition.length] for start in starts]
    return rows


def _rows_of(name: str, items: Any, lengths: npt.NDArray[np.int64]) -> list[Any]:
    """Returns the items in rows of the given lengths."""
    # Sums of Python's integers do not wrap.
    sizes = lengths.tolist()
    if min(sizes, default=0) < 0 or sum(sizes) != len(items):
        raise ExampleError(
            f"feature {name!r} must have row lengths of 0 or more that add up to its "
            f"{len(items):,} items; found {len(sizes):,} that add up to {sum(sizes):,}"
        )
    stops = itertools.accumulate(sizes)
    return [items[stop - size : stop] for size, stop in zip(sizes, stops, strict=True)]


def _shape(spec: FixedLenFeature) -> tuple[int, ...]:
    assert isinstance(spec.shape, tuple)  # as __post_init__ left it
    return spec.shape
