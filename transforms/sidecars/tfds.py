"""Metadata for TFDS beside the shards: `dataset_info.json`, `features.json`, labels.

With these files `tfds.builder_from_directory(directory).as_dataset(split=...)` yields
every record. They are rendered from the manifest alone; TFDS is never imported.
`tfds_features.py` maps each kind of feature.

TFDS reads `<feature>.labels.txt` line by line, strips every name and drops blank
lines; it does not notice if fewer names remain than classes. Class names that this
would change are therefore not written: TFDS shows such a label as plain integers, and
only the manifest has the names.

Sources: `tensorflow_datasets/core/proto/dataset_info.proto` and `core/naming.py` of
TFDS 4.9.10; all of it tried out by the tests.
"""

import collections
import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from transforms.core.manifest import FeatureFacts, Manifest, SplitFacts
from transforms.core.schema import Kind
from transforms.sidecars.tfds_features import show_features, typed

_INFO_NAME = "dataset_info.json"
_FEATURES_NAME = "features.json"
# TFDS requires a version; the manifest's digest identifies the content.
_VERSION = "1.0.0"
# The default template of TFDS for the names of shards.
_TEMPLATE = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
# The longest name of a file on the usual file systems, in bytes.
_MAX_FILE_NAME_BYTES = 255

_Json = dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Rendered:
    """Files beside the shards, and notes for the user.

    Attributes:
      files: file name -> content.
      notes: sentences, each about something that readers of the files will not see.
      derived: files that the dataset's digest does not cover.
    """

    files: Mapping[str, bytes]
    notes: tuple[str, ...] = ()
    derived: Mapping[str, bytes] = dataclasses.field(default_factory=dict)


def render(manifest: Manifest) -> Rendered:
    """Returns TFDS's files for the dataset, or only a note why TFDS cannot read it."""
    if reason := _unreadable(manifest):
        left_out = f"{_INFO_NAME} and {_FEATURES_NAME} are left out"
        return Rendered({}, (f"{reason}: {left_out}.",))
    unlisted = {
        facts.feature.name: reason
        for facts in manifest.features
        if _is_label(facts) and (reason := _unlistable(facts, manifest.features))
    }
    listed = [
        facts
        for facts in manifest.features
        if _is_label(facts) and facts.feature.name not in unlisted
    ]
    shown = show_features(manifest, frozenset(facts.feature.name for facts in listed))
    features = {"features": dict(shown.features)}
    files = {
        _INFO_NAME: _to_json(_info(manifest)),
        _FEATURES_NAME: _to_json(
            typed("features_dict.FeaturesDict", featuresDict=features)
        ),
    }
    for facts in listed:
        files[_labels_file(facts.feature.name)] = "".join(
            f"{name}\n" for name in facts.classes
        ).encode()
    notes = [
        f"TFDS will show {name!r} as plain integers, because {reason}; its class names "
        f"are in the manifest."
        for name, reason in unlisted.items()
    ]
    notes += shown.notes
    empty = [split.name for split in manifest.splits if not split.records]
    if empty:
        # `as_dataset()` would fail for all splits if an empty one were listed.
        notes.append(
            f"TFDS will not show {', '.join(map(repr, empty))}: it reads no split "
            f"without a record."
        )
    return Rendered(files, tuple(notes))


def _is_label(facts: FeatureFacts) -> bool:
    return facts.feature.kind is Kind.LABEL and not facts.feature.internal


def pointers_to(folder: str, manifest: Manifest) -> dict[str, bytes]:
    """Returns TFDS's files for a directory whose shards are in a folder below it."""
    files = dict(render(manifest).files)
    if files:
        info = _info(manifest)
        for split in info["splits"]:
            split["filepathTemplate"] = f"{folder}/{_TEMPLATE}"
        files[_INFO_NAME] = _to_json(info)
    return files


def _unreadable(manifest: Manifest) -> str:
    """Returns why TFDS cannot read the dataset, "" if it can."""
    if manifest.compression != "none":
        return f"TFDS reads no compressed files, and these are {manifest.compression}"
    for split in manifest.splits:
        if not any(character.isalnum() for character in split.name):
            return f"TFDS wants a letter or a digit in a split's name, {split.name!r}"
        expected = _file_names(manifest.name, split)
        for shard, name in zip(split.shards, expected, strict=True):
            if shard.file != name:
                return f"TFDS would look for {name!r} where {shard.file!r} is"
    return ""


def _file_names(name: str, split: SplitFacts) -> list[str]:
    """Returns the file names that TFDS's default template gives."""
    count = len(split.shards)
    width = max(len(str(count)), 5)
    return [
        f"{name}-{split.name}.tfrecord-{index:0{width}d}-of-{count:0{width}d}"
        for index in range(count)
    ]


def _unlistable(facts: FeatureFacts, features: Sequence[FeatureFacts]) -> str:
    """Returns why a labels file cannot hold the class names, "" if it can."""
    for name in facts.classes:
        # TFDS reads in text mode, where \n, \r and \r\n end a line.
        if name != name.strip() or not name or "\n" in name or "\r" in name:
            return f"its labels files cannot hold the class name {name[:80]!r}"
    if len(set(facts.classes)) < len(facts.classes):
        name, count = collections.Counter(facts.classes).most_common(1)[0]
        return f"{count} of its classes have the name {name[:80]!r}"
    feature = facts.feature
    if len(feature.shape) > 1 and not feature.is_ragged:
        return "it knows no class labels of more than one dimension"
    if (facts.statistics.maximum or 0) >= max(len(facts.classes), 1):
        return "it holds ids beyond its class names"
    file = _labels_file(feature.name)
    if len(file.encode()) > _MAX_FILE_NAME_BYTES:
        return "the name of its labels file would be too long"
    rivals = [
        other.feature.name
        for other in features
        if _is_label(other)
        # Some file systems ignore case.
        and _labels_file(other.feature.name).casefold() == file.casefold()
        and other.feature.name != feature.name
    ]
    if rivals:
        return f"{rivals[0]!r} would need the same labels file"
    return ""


def _labels_file(feature: str) -> str:
    return f"{feature.replace('/', '.')}.labels.txt"


def _info(manifest: Manifest) -> _Json:
    """Returns the JSON form of the proto `DatasetInfo`; int64 values are text."""
    info: _Json = {
        "name": manifest.name,
        "version": _VERSION,
        "fileFormat": "tfrecord",
        "splits": [
            {
                "name": split.name,
                "shardLengths": [str(shard.records) for shard in split.shards],
                "numBytes": str(split.payload_bytes),
            }
            for split in manifest.splits
            if split.records
        ],
    }
    if keys := _supervised_keys(manifest):
        items = [{"featureKey": key} for key in keys]
        info["supervisedKeys"] = {"tuple": {"items": items}}
    return info


def _supervised_keys(manifest: Manifest) -> tuple[str, str] | None:
    """Returns (input, label) if exactly one feature can be the input."""
    features = [f.feature for f in manifest.features if not f.feature.internal]
    label = next((f for f in features if f.is_label), None)
    if label is None:
        return None
    images = [f for f in features if f.kind is Kind.IMAGE]
    inputs = images or [f for f in features if f is not label]
    if len(inputs) != 1 or Kind.BOX in (inputs[0].kind, label.kind):
        return None
    return inputs[0].name, label.name


def _to_json(data: _Json) -> bytes:
    return (json.dumps(data, indent=2) + "\n").encode()
