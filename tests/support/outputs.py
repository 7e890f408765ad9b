"""Reads a committed dataset: its manifest, files, records and rejects."""

import hashlib
import json
import os
import pathlib
from typing import Any

from transforms.core.example import messages
from transforms.core.tfrecord import TFRecordReader

Folder = pathlib.Path
TFDS_FILES = ["dataset_info.json", "features.json"]
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()


def manifest(directory: Folder) -> dict[str, Any]:
    return json.loads((directory / "manifest.json").read_bytes())


def dataset(directory: Folder) -> dict[str, Any]:
    """Returns the part of the manifest that input and spec decide."""
    return manifest(directory)["dataset"]


def names(directory: Folder) -> list[str]:
    return sorted(os.listdir(directory))


def contents(directory: Folder) -> dict[str, bytes]:
    """Returns every file but the manifest, by its path below the folder."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.name != "manifest.json" and not path.is_dir()
    }


def payloads(directory: Folder, split: str | None = None) -> list[bytes]:
    """Returns the records of a split, or of all splits, in the shards' order."""
    return [
        payload
        for facts in dataset(directory)["splits"]
        if split in (None, facts["name"])
        for shard in facts["shards"]
        for payload in TFRecordReader(str(directory / shard["file"]))
    ]


def examples(*paths: Folder | str) -> list[dict[str, list[Any]]]:
    """Returns the records of files as lists of values by name."""
    return [
        messages.parse_example(payload)
        for path in paths
        for payload in TFRecordReader(str(path), allow_empty=True)
    ]


def row_of(payload: bytes) -> dict[str, Any]:
    """Returns a record of scalars as plain values."""
    row = {}
    for name, feature in messages.Example.FromString(payload).features.feature.items():
        (value,) = getattr(feature, feature.WhichOneof("kind")).value
        row[name] = value
    return row


def rows(directory: Folder, split: str | None = None) -> list[dict[str, Any]]:
    return [row_of(payload) for payload in payloads(directory, split)]


def rejects(directory: Folder) -> list[dict[str, Any]]:
    text = (directory / "rejects.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def account(directory: Folder) -> dict[str, Any]:
    return dataset(directory)["account"]


def split_sizes(directory: Folder) -> dict[str, int]:
    return {split["name"]: split["records"] for split in dataset(directory)["splits"]}


Row = dict[str, Any]


def records(out: Folder, split: str | None = None) -> list[Row]:
    """Returns the records in their order, key -> list of values."""
    rows = []
    for payload in payloads(out, split):
        row = {}
        for key, value in messages.Example.FromString(payload).features.feature.items():
            row[key] = list(getattr(value, value.WhichOneof("kind")).value)
        rows.append(row)
    return rows


def first_values(directory: Folder) -> list[dict[str, Any]]:
    """Returns the records of all shards, each feature's only value by name."""
    return [
        {
            name: getattr(value, str(value.WhichOneof("kind"))).value[0]
            for name, value in messages.Example.FromString(
                payload
            ).features.feature.items()
        }
        for path in sorted(directory.glob("*.tfrecord-*"))
        for payload in TFRecordReader(str(path))
    ]
