"""What TFDS needs beside the shards: `dataset_info.json`, `features.json`, labels.

With these files `tfds.builder_from_directory(directory).as_dataset(split=...)` yields
every record. They are made by hand from the manifest; TFDS is never imported.

| feature | always present    | else                               | missing reads as |
| ------- | ----------------- | ---------------------------------- | ---------------- |
| int64   | Scalar            | optional Scalar                    | smallest int64   |
| float   | Scalar            | optional Scalar                    | smallest float32 |
| bool    | Scalar            | optional Scalar                    | False            |
| text    | Text              | optional Scalar of strings         | empty            |
| bytes   | Scalar of strings | optional Scalar of strings         | empty            |
| label   | ClassLabel        | Sequence of ClassLabel, of 0 or 1  | empty Sequence   |
| image   | Image             | Sequence of Image, of 0 or 1       | empty Sequence   |

TFDS reads `<feature>.labels.txt` line by line, strips every name and drops blank
lines; it does not notice when fewer names are left than classes. Class names that
this would change are therefore never written: such a label is a plain Scalar of its
ids, and the names stand in the manifest alone.

Sources: `tensorflow_datasets/core/proto/{dataset_info,feature}.proto`,
`core/features/`, `core/naming.py` of TFDS 4.9.10; all of it tried out by the tests.
"""

import collections
import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from transforms.core.manifest import FeatureFacts, Manifest, SplitFacts
from transforms.core.schema import Kind

__all__ = ["Sidecars", "render"]

_INFO_NAME = "dataset_info.json"
_FEATURES_NAME = "features.json"
# TFDS insists on one; the manifest's digest is what tells contents apart.
_VERSION = "1.0.0"
_PACKAGE = "tensorflow_datasets.core.features."
_DTYPES = {
    Kind.INT64: "int64",
    Kind.FLOAT: "float32",
    Kind.BOOL: "bool",
    Kind.TEXT: "string",
    Kind.BYTES: "string",
    Kind.LABEL: "int64",
}
# The longest name of a file on the usual file systems, in bytes.
_MAX_FILE_NAME_BYTES = 255
# A BMP has at least these before its pixels.
_BMP_HEADER_BYTES = 54

_Json = dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Sidecars:
    """Files to stand beside the shards, and what the user should be told.

    Attributes:
      files: file name -> content; empty when TFDS could not read the dataset.
      notes: sentences, each about something that a reader through TFDS will miss.
    """

    files: Mapping[str, bytes]
    notes: tuple[str, ...] = ()


def render(manifest: Manifest) -> Sidecars:
    """Returns TFDS's files for the dataset, or none and a note that says why."""
    if reason := _unreadable(manifest):
        left_out = f"{_INFO_NAME} and {_FEATURES_NAME} are left out"
        return Sidecars({}, (f"{reason}: {left_out}.",))
    unlisted = {
        facts.feature.name: reason
        for facts in manifest.features
        if facts.feature.kind is Kind.LABEL
        and (reason := _unlistable(facts, manifest.features))
    }
    features = {
        facts.feature.name: _feature(
            facts, manifest, facts.feature.name not in unlisted
        )
        for facts in manifest.features
    }
    files = {
        _INFO_NAME: _to_json(_info(manifest)),
        _FEATURES_NAME: _to_json(
            _typed("features_dict.FeaturesDict", featuresDict={"features": features})
        ),
    }
    for facts in manifest.features:
        name = facts.feature.name
        if facts.feature.kind is Kind.LABEL and name not in unlisted:
            lines = "".join(f"{class_name}\n" for class_name in facts.classes)
            files[_labels_file(name)] = lines.encode()
    notes = [
        f"TFDS will show {name!r} as plain integers, because {reason}; its class names "
        f"are in the manifest."
        for name, reason in unlisted.items()
    ]
    if empty := [split.name for split in manifest.splits if not split.records]:
        # With one of them listed, `as_dataset()` would fail for all splits.
        notes.append(
            f"TFDS will not show {', '.join(map(repr, empty))}: it reads no split "
            f"without a record."
        )
    return Sidecars(files, tuple(notes))


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
    """Returns why the class names cannot go into a labels file, "" if they can."""
    for name in facts.classes:
        # Its reader knows three line ends.
        if name != name.strip() or not name or "\n" in name or "\r" in name:
            return f"its labels files cannot hold the class name {name[:80]!r}"
    name, count = collections.Counter(facts.classes or [""]).most_common(1)[0]
    if count > 1:
        return f"{count} of its classes have the name {name[:80]!r}"
    file = _labels_file(facts.feature.name)
    if len(file.encode()) > _MAX_FILE_NAME_BYTES:
        return "the name of its labels file would be too long"
    rivals = [
        other.feature.name
        for other in features
        if other.feature.kind is Kind.LABEL
        # Not every file system tells upper from lower case.
        and _labels_file(other.feature.name).casefold() == file.casefold()
        and other.feature.name != facts.feature.name
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
    """Returns (input, label) where it is clear which features those are."""
    features = [facts.feature for facts in manifest.features]
    label = next((f for f in features if f.is_label), None)
    if label is None:
        return None
    images = [f for f in features if f.kind is Kind.IMAGE]
    inputs = images or [f for f in features if f is not label]
    return (inputs[0].name, label.name) if len(inputs) == 1 else None


def _feature(facts: FeatureFacts, manifest: Manifest, listed: bool) -> _Json:
    """Returns the JSON form of the proto `Feature`.

    Args:
      facts: of the feature.
      manifest: of its dataset.
      listed: of a class label: whether its names have a file.
    """
    kind = facts.feature.kind
    optional = facts.statistics.present < manifest.records
    if kind is Kind.IMAGE:
        channels = _channels(facts, manifest)
        # No encodingFormat: it matters to writers only, and files may be mixed.
        image = _typed(
            "image_feature.Image",
            image={
                "shape": {"dimensions": ["-1", "-1", str(channels)]},
                "dtype": "uint8",
            },
        )
        return _sequence(image) if optional else image
    if kind is Kind.LABEL and listed:
        label = _typed(
            "class_label_feature.ClassLabel",
            classLabel={"numClasses": str(len(facts.classes))},
        )
        return _sequence(label) if optional else label
    if kind is Kind.TEXT and not optional:
        return _typed("text_feature.Text", text={})
    tensor: _Json = {"shape": {}, "dtype": _DTYPES[kind], "encoding": "none"}
    if optional:
        tensor["optional"] = True
    return _typed("scalar.Scalar", tensor=tensor)


def _sequence(feature: _Json) -> _Json:
    return _typed(
        "sequence_feature.Sequence", sequence={"length": "-1", "feature": feature}
    )


def _channels(image: FeatureFacts, manifest: Manifest) -> int:
    """Returns how many channels TFDS is to decode; -1: as many as each image has.

    All formats decode to 3. Only 4-channel PNG and BMP have a depth of 4. Gray JPEG
    and PNG decode to 1, but TensorFlow refuses that for gray BMP: there each image is
    decoded as it is, unless all files are too small to be a BMP of that size.
    """
    by_role = {
        facts.feature.derived: facts.statistics
        for facts in manifest.features
        if facts.feature.derived
    }
    depth = by_role.get("depth")
    if depth is None or depth.minimum != depth.maximum:
        return 3
    if depth.minimum == 4:
        return 4
    if depth.minimum != 1:
        return 3
    height, width = by_role.get("height"), by_role.get("width")
    if height is None or width is None:
        return -1
    smallest_bmp = _BMP_HEADER_BYTES + (height.minimum or 0) * (width.minimum or 0)
    return 1 if (image.statistics.maximum or 0) < smallest_bmp else -1


def _typed(class_name: str, **content: _Json) -> _Json:
    return {"pythonClassName": _PACKAGE + class_name, **content}


def _to_json(data: _Json) -> bytes:
    return (json.dumps(data, indent=2) + "\n").encode()
