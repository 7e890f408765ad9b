"""Reads a committed dataset: its manifest, files, records and rejects."""

import dataclasses
import hashlib
import json
import os
import pathlib
from typing import Any

from transforms.core.example import messages
from transforms.core.manifest import Manifest, SplitFacts
from transforms.core.tfrecord.reader import TFRecordReader

Folder = pathlib.Path
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()


def manifest(directory: Folder) -> dict[str, Any]:
    return json.loads((directory / "manifest.json").read_bytes())


def manifest_of(directory: Folder) -> Manifest:
    """Returns the manifest as the program reads it."""
    return Manifest.from_bytes((directory / "manifest.json").read_bytes())


def as_stated(
    manifest: Manifest,
) -> tuple[list[dict[str, Any]], tuple[SplitFacts, ...]]:
    """Returns what an independently written manifest states as well."""
    features = [
        dataclasses.replace(facts, always_present=None).to_json()
        for facts in manifest.features
    ]
    return features, manifest.splits


def dataset(directory: Folder) -> dict[str, Any]:
    """Returns the part of the manifest that input and spec decide."""
    return manifest(directory)["dataset"]


def features(directory: Folder) -> dict[str, dict[str, Any]]:
    """Returns what the manifest states of each feature."""
    return {facts["name"]: facts for facts in dataset(directory)["features"]}


def names(directory: Folder) -> list[str]:
    return sorted(os.listdir(directory))


def contents(directory: Folder) -> dict[str, bytes]:
    """Returns every file but the manifest, by its path below the folder."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.name != "manifest.json" and not path.is_dir()
    }


def tree(folder: Folder) -> dict[str, bytes | str | None]:
    """Returns every path below a folder: bytes, a link's target, None for folders."""
    found: dict[str, bytes | str | None] = {}
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = os.readlink(path)
        else:
            found[name] = path.read_bytes() if path.is_file() else None
    return found


def payloads(directory: Folder, split: str | None = None) -> list[bytes]:
    """Returns the records of a split, or of all splits, in the shards' order."""
    shards = directory / manifest(directory)["run"].get("folder", "")
    return [
        payload
        for facts in dataset(directory)["splits"]
        if split in (None, facts["name"])
        for shard in facts["shards"]
        for payload in TFRecordReader(str(shards / shard["file"]))
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
    return {name: value for name, (value,) in messages.parse_example(payload).items()}


def rows(directory: Folder, split: str | None = None) -> list[dict[str, Any]]:
    return [row_of(payload) for payload in payloads(directory, split)]


def rejects(directory: Folder) -> list[dict[str, Any]]:
    text = (directory / "rejects.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def account(directory: Folder) -> dict[str, Any]:
    return dataset(directory)["account"]


def split_sizes(directory: Folder) -> dict[str, int]:
    return {split["name"]: split["records"] for split in dataset(directory)["splits"]}


def records(out: Folder, split: str | None = None) -> list[dict[str, Any]]:
    """Returns the records in their order, key -> list of values."""
    return [messages.parse_example(payload) for payload in payloads(out, split)]


def first_values(directory: Folder) -> list[dict[str, Any]]:
    """Returns the records of all shards, each feature's only value by name."""
    found = examples(*sorted(directory.glob("*.tfrecord-*")))
    return [{name: values[0] for name, values in row.items()} for row in found]


def notes_of(directory: Folder) -> list[str]:
    """Returns the notes in the manifest of a dataset."""
    return list(manifest(directory)["run"]["notes"])


def flip(path: Folder, place: int) -> None:
    """Changes one bit of a file."""
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
