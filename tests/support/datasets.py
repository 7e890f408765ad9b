"""Small committed datasets, built by hand for the tests of the reading commands."""

import dataclasses
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import google_crc32c
import numpy as np

from tests.support.tfrecords import write
from transforms.core.example import messages
from transforms.core.files import ShardName
from transforms.core.manifest import (
    MANIFEST_NAME,
    Account,
    FeatureFacts,
    FileFacts,
    Manifest,
    ShardFacts,
    SplitFacts,
)
from transforms.core.schema import Feature, Kind
from transforms.core.statistics import Statistics
from transforms.publishing import target
from transforms.sidecars import tfds

Row = Mapping[str, Any]
Splits = Mapping[str, Sequence[Sequence[Row]]]

ANIMALS = (
    Feature("id", Kind.INT64),
    Feature("weight", Kind.FLOAT),
    Feature("tame", Kind.BOOL),
    Feature("note", Kind.TEXT),
    Feature("raw", Kind.BYTES),
    Feature("animal", Kind.LABEL, is_label=True),
)


def seen_at(directory: str, *, overwrite: bool = True) -> str:
    """Looks at a target as planning does; returns its state."""
    seen = target.at(directory).state()
    manifest = target.at(directory).check_contents()
    if manifest is not None and not overwrite:
        raise target.taken(directory, manifest)
    return seen


def animal(number: int) -> Row:
    """Returns a row of every kind; every third has no note."""
    row = {
        "id": number,
        "weight": number / 4,
        "tame": number % 2 == 0,
        "note": f"메모 {number}",
        "raw": bytes([255, number % 256]),
        "animal": ("고양이", "dog", "goat")[number % 3],
    }
    if number % 3 == 2:
        del row["note"]
    return row


def animals(*counts: int, start: int = 0) -> list[list[Row]]:
    """Returns shards with these numbers of rows, numbered consecutively."""
    shards = []
    for count in counts:
        shards.append([animal(number) for number in range(start, start + count)])
        start += count
    return shards


def example(values: Row) -> bytes:
    """Returns a serialised tf.train.Example; the values' Python types decide."""
    message = messages.Example()
    for name, value in values.items():
        feature = message.features.feature[name]
        if isinstance(value, str):
            feature.bytes_list.value.append(value.encode())
        elif isinstance(value, bytes):
            feature.bytes_list.value.append(value)
        elif isinstance(value, float):
            feature.float_list.value.append(value)
        else:
            feature.int64_list.value.append(int(value))
    return message.SerializeToString(deterministic=True)


def write_records(
    path: pathlib.Path, records: Sequence[bytes], compression: str = "none"
) -> ShardFacts:
    """Writes one TFRecord file and returns its facts."""
    stored, facts = write([*records], compression)
    path.write_bytes(stored)
    return ShardFacts(
        path.name,
        facts.stored_bytes,
        facts.crc32c,
        facts.records,
        facts.payload_bytes,
    )


def write_dataset(
    directory: pathlib.Path,
    splits: Splits,
    features: Sequence[Feature] = ANIMALS,
    *,
    name: str = "animals",
    compression: str = "none",
    classes: Mapping[str, Sequence[str]] | None = None,
    account: Account | None = None,
) -> Manifest:
    """Writes shards, TFDS's files and the manifest into a new directory.

    Args:
      directory: made here.
      splits: split -> shards -> rows; class labels by name, absent values left out.
      features: of the rows.
      name, compression: of the dataset.
      classes: class names by label feature; by default those found, sorted.
      account: of the source; by default everything that was read is written.
    """
    directory.mkdir()
    rows = [row for shards in splits.values() for shard in shards for row in shard]
    names = {
        feature.name: tuple(
            (classes or {}).get(feature.name)
            or sorted({row[feature.name] for row in rows if feature.name in row})
        )
        for feature in features
        if feature.kind is Kind.LABEL
    }

    def stored(row: Row) -> dict[str, Any]:
        return {
            key: names[key].index(value) if key in names else value
            for key, value in row.items()
        }

    facts = []
    for split, shards in splits.items():
        files = [
            write_records(
                directory / str(ShardName(name, split, i, len(shards), compression)),
                [example(stored(row)) for row in shard],
                compression,
            )
            for i, shard in enumerate(shards)
        ]
        counts = {
            feature: {
                class_name: sum(
                    row.get(feature) == class_name for shard in shards for row in shard
                )
                for class_name in class_names
            }
            for feature, class_names in names.items()
        }
        facts.append(SplitFacts(split, tuple(files), counts))
    manifest = Manifest(
        name=name,
        compression=compression,
        features=tuple(
            FeatureFacts(
                feature,
                _statistics([stored(row) for row in rows], feature.name),
                names.get(feature.name, ()),
            )
            for feature in features
        ),
        splits=tuple(facts),
        files=(),
        account=account or Account(read=len(rows), written=len(rows)),
        inputs={"files": 1, "bytes": 1, "sha256": "0" * 64},
        settings={},
    )
    return write_manifest(directory, manifest)


def write_manifest(directory: pathlib.Path, manifest: Manifest) -> Manifest:
    """Writes TFDS's files and the manifest; returns it with their facts."""
    sidecars = []
    for file, data in sorted(tfds.render(manifest).files.items()):
        (directory / file).write_bytes(data)
        sidecars.append(FileFacts(file, len(data), google_crc32c.value(data)))
    manifest = dataclasses.replace(manifest, files=tuple(sidecars))
    (directory / MANIFEST_NAME).write_bytes(manifest.to_bytes())
    return manifest


def _statistics(rows: Sequence[Row], name: str) -> Statistics:
    values = [row[name] for row in rows if name in row]
    measured: list[Any] = []
    for value in values:
        if isinstance(value, str):
            measured.append(len(value.encode()))
        elif isinstance(value, bytes):
            measured.append(len(value))
        elif isinstance(value, float):
            measured.append(float(np.float32(value)))
        else:
            measured.append(int(value))
    finite = [value for value in measured if not math.isnan(value)]
    return Statistics(len(values), min(finite, default=None), max(finite, default=None))
