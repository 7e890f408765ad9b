"""Read the examples of TFRecord files and datasets, one by one."""

import os
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

from transforms.core.example.messages import parse_example
from transforms.core.manifest import MANIFEST_NAME, Manifest, ShardFacts
from transforms.core.regular_files import open_regular
from transforms.core.tfrecord import TFRecordReader
from transforms.errors import ExampleError, SourceError, first_few

# How many splits a message names.
_SHOWN = 10


def read_examples(
    source: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    split: str | None = None,
    compression: str = "auto",
) -> Iterator[dict[str, Any]]:
    """Yields the examples of TFRecord files as dicts of lists, every checksum checked.

        for row in read_examples("out/photos", split="train"):
            ...

    Args:
      source: a file, several, or the directory of a dataset. Files without a byte
        are fine: writers make them for empty shards. The shards of a dataset are read
        in the manifest's order, and must have the records, bytes and checksums that
        it states.
      split: of a dataset, the split to read. None: all of them, one after another,
        with a UserWarning where there are several.
      compression: see `TFRecordReader`; a dataset states its own.

    Raises:
      SourceError: a file cannot be read; a directory is no dataset, or the dataset
        has no such split.
      TFRecordError: a file is damaged, or is not the one in the manifest.
      ExampleError: a record is no Example.
    """
    is_directory = isinstance(source, str | os.PathLike) and os.path.isdir(source)
    if split is not None and not is_directory:
        raise SourceError(
            f"A split can be read of a dataset's directory only; found {source!r} with "
            f"split={split!r}. Name the directory, or leave the split out."
        )
    if not isinstance(source, str | os.PathLike):
        for path in source:
            yield from _read_file(path, compression)
    elif os.path.isdir(source):
        yield from _read_dataset(os.fspath(source), split)
    else:
        yield from _read_file(source, compression)


def _read_file(
    path: str | os.PathLike[str], compression: str
) -> Iterator[dict[str, Any]]:
    reader = TFRecordReader(path, compression=compression, allow_empty=True)
    yield from _parsed(reader)


def _read_dataset(directory: str, split: str | None) -> Iterator[dict[str, Any]]:
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
        yield from _parsed(reader)
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


def _parsed(reader: TFRecordReader) -> Iterator[dict[str, Any]]:
    for index, data in enumerate(reader):
        try:
            example = parse_example(data)
        except ExampleError as error:
            raise type(error)(f"{reader.path}: record {index:,}: {error}") from error
        yield example
