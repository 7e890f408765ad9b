"""Metadata for TFDS beside the shards: `dataset_info.json`, `features.json`, labels.

With these files `tfds.builder_from_directory(directory).as_dataset(split=...)` yields
every record. They are rendered from the manifest alone; TFDS is never imported.

TFDS reads `<feature>.labels.txt` line by line, strips every name and drops blank
lines; it does not notice if fewer names remain than classes. Class names that this
would change are therefore not written: TFDS shows such a label as plain integers, and
only the manifest has the names.

The features in `features.json`:

| feature             | always present        | else                  | absent gives   |
| ------------------- | --------------------- | --------------------- | ---------------|
| int64, timestamp    | Scalar                | optional Scalar       | smallest value |
| float               | Scalar                | optional Scalar       | smallest value |
| bool                | Scalar                | optional Scalar       | False          |
| text                | Text                  | optional Scalar       | empty          |
| bytes, proto tensor | Scalar of strings     | optional Scalar       | empty          |
| label               | ClassLabel            | Sequence of 0 or 1    | empty          |
| image               | Image                 | Sequence of 0 or 1    | empty          |
| list of images      | Sequence of Image, or | the same              | empty          |
|                     | of strings            |                       |                |
| raw tensor          | Tensor, decoded       | Sequence of 0 or 1    | empty          |
| list                | Sequence              | Sequence              | empty          |
| list of known shape | Tensor                | Tensor, first size -1 | empty          |
| ragged list         | Sequence of Sequences | the same              | empty          |
| box                 | four Sequences        | the same              | empty          |

Keys are those of the records: the four sides of a box, `name/xmin` and so on, are
features of their own, and TFDS finds `name/ragged_flat_values` of a ragged list
itself. TFDS decodes the images of a list to one tensor, so unless all are known to have
one size they are shown as strings.

Sources: `tensorflow_datasets/core/proto/dataset_info.proto`, `feature.proto`,
`core/naming.py`, `core/features/` and `core/example_parser.py` of TFDS 4.9.10; all of
it tried out by the tests.
"""

import collections
import dataclasses
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from transforms.core.manifest import FeatureFacts, Manifest
from transforms.core.schema import Feature, Kind

_INFO_NAME = "dataset_info.json"
_FEATURES_NAME = "features.json"
# TFDS requires a version; the manifest's digest identifies the content.
_VERSION = "1.0.0"
# The default template of TFDS for the names of shards.
_TEMPLATE = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
# With more, its names of shards are others than ours; see `ShardName`.
_MOST_SHARDS = 99_999
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
    labels = [
        facts
        for facts in manifest.features
        if facts.feature.kind is Kind.LABEL and not facts.feature.internal
    ]
    unlisted = {
        facts.feature.name: reason
        for facts in labels
        if (reason := _unlistable(facts, labels))
    }
    features, lost = _features(manifest, unlisted)
    files = {
        _INFO_NAME: _to_json(_info(manifest)),
        _FEATURES_NAME: _to_json(
            _typed("features_dict.FeaturesDict", featuresDict={"features": features})
        ),
    }
    for facts in labels:
        if facts.feature.name not in unlisted:
            lines = "".join(f"{name}\n" for name in facts.classes)
            files[_labels_file(facts.feature.name)] = lines.encode()
    notes = [
        f"TFDS will show {name!r} as plain integers, because {reason}; its class names "
        f"are in the manifest."
        for name, reason in unlisted.items()
    ]
    notes += lost
    empty = [split.name for split in manifest.splits if not split.records]
    if empty:
        # `as_dataset()` would fail for all splits if an empty one were listed.
        notes.append(
            f"TFDS will not show {', '.join(map(repr, empty))}: it reads no split "
            f"without a record."
        )
    return Rendered(files, tuple(notes))


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
        if len(split.shards) > _MOST_SHARDS:
            return f"TFDS writes numbers beyond {_MOST_SHARDS:,} shards in six digits"
    return ""


def _unlistable(facts: FeatureFacts, labels: Sequence[FeatureFacts]) -> str:
    """Returns why a labels file cannot hold the class names, "" if it can.

    Args:
      facts: of one of the labels.
      labels: all that TFDS is to show.
    """
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
        for other in labels
        # Some file systems ignore case.
        if _labels_file(other.feature.name).casefold() == file.casefold()
        and other is not facts
    ]
    if rivals:
        return f"{rivals[0]!r} would need the same labels file"
    return ""


def _labels_file(feature: str) -> str:
    """Returns the name of the file of class names that TFDS looks for."""
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
    """Returns the bytes of a JSON file, indented by 2 as TFDS writes it."""
    return (json.dumps(data, indent=2) + "\n").encode()


_PACKAGE = "tensorflow_datasets.core.features."
_DTYPES = {
    **dict.fromkeys((Kind.INT64, Kind.TIMESTAMP, Kind.LABEL), "int64"),
    **dict.fromkeys((Kind.TEXT, Kind.BYTES, Kind.TENSOR), "string"),
    **dict.fromkeys((Kind.FLOAT, Kind.BOX), "float32"),
    Kind.BOOL: "bool",
}
# The types of `tf.io.decode_raw`, which TFDS uses, and uint64, which it casts.
_RAW_DTYPES = frozenset(
    "bool int8 int16 int32 int64 uint8 uint16 uint64 float16 float32 float64 "
    "complex64 complex128".split()
)
# The least that a BMP has before its pixels.
_BMP_HEADER_BYTES = 54


def _features(
    manifest: Manifest, unlisted: Collection[str]
) -> tuple[dict[str, _Json], list[str]]:
    """Returns the entry of `features.json` for each key of the records, and notes.

    Notes are sentences about features that lose a type or shape.

    Args:
      manifest: of the dataset.
      unlisted: names of the labels that have no labels file.
    """
    features: dict[str, _Json] = {}
    notes = []
    # Counted once: wide datasets of many shards would take quadratic time.
    records = manifest.records
    for facts in manifest.features:
        feature = facts.feature
        if feature.internal:
            continue
        optional = facts.statistics.present < records
        if note := _lesser(facts, manifest, optional):
            notes.append(f"TFDS will show {feature.name!r} as {note}.")
        listed = feature.name not in unlisted
        described = _describe(facts, manifest, listed, optional=optional)
        for key in feature.record_keys if feature.kind is Kind.BOX else [feature.name]:
            features[key] = described
    return features, notes


def _typed(class_name: str, **content: _Json) -> _Json:
    """Returns the JSON form of a proto `Feature` of one of TFDS's classes."""
    return {"pythonClassName": _PACKAGE + class_name, **content}


def _describe(
    facts: FeatureFacts, manifest: Manifest, listed: bool, *, optional: bool
) -> _Json:
    """Returns the JSON of TFDS for a feature; `listed`: with a file of class names."""
    feature = facts.feature
    if feature.kind is Kind.IMAGE:
        image = _image(facts, manifest)
        if feature.is_list:
            image = image if _stackable(facts, manifest) else _scalar(Kind.BYTES)
            return _sequence(image, None if optional else feature.values_each)
        return _sequence(image) if optional else image
    if feature.kind is Kind.TENSOR and not _undecodable(feature):
        tensor = _tensor(feature.shape, feature.dtype, "bytes")
        return _sequence(tensor) if optional else tensor
    if feature.is_ragged:
        return _sequence(_sequence(_value(facts, listed)))
    if feature.kind is Kind.BOX:
        return _sequence(_value(facts, listed))
    if len(feature.shape) == 1 and feature.is_list:
        (length,) = feature.shape
        if feature.kind is Kind.LABEL or length is None:
            return _sequence(_value(facts, listed), None if optional else length)
    if feature.is_list:
        return _tensor(_list_shape(feature, optional), _DTYPES[feature.kind])
    if optional:
        if feature.kind is Kind.LABEL and listed:
            return _sequence(_value(facts, listed))
        return _scalar(feature.kind, optional=True)
    return _value(facts, listed)


def _value(facts: FeatureFacts, listed: bool) -> _Json:
    """Returns the TFDS feature of a single value."""
    kind = facts.feature.kind
    if kind is Kind.LABEL and listed:
        return _typed(
            "class_label_feature.ClassLabel",
            classLabel={"numClasses": str(len(facts.classes))},
        )
    return _typed("text_feature.Text", text={}) if kind is Kind.TEXT else _scalar(kind)


def _scalar(kind: Kind, *, optional: bool = False) -> _Json:
    """Returns the JSON of TFDS for one value; TFDS calls bytes and texts strings."""
    tensor: _Json = {"shape": {}, "dtype": _DTYPES[kind], "encoding": "none"}
    if optional:
        tensor["optional"] = True
    return _typed("scalar.Scalar", tensor=tensor)


def _tensor(shape: tuple[int | None, ...], dtype: str, encoding: str = "none") -> _Json:
    """Returns the JSON of a TFDS tensor; None in the shape is any size."""
    return _typed(
        "tensor_feature.Tensor",
        tensor={"shape": _dimensions(shape), "dtype": dtype, "encoding": encoding},
    )


def _sequence(feature: _Json, length: int | None = None) -> _Json:
    """Returns the JSON of a TFDS sequence; without a length it may be of any."""
    size = "-1" if length is None else str(length)
    return _typed(
        "sequence_feature.Sequence", sequence={"length": size, "feature": feature}
    )


def _dimensions(shape: tuple[int | None, ...]) -> _Json:
    """Returns a shape as TFDS's JSON has it: sizes as text, -1 for any."""
    return {"dimensions": ["-1" if n is None else str(n) for n in shape]}


def _list_shape(feature: Feature, optional: bool) -> tuple[int | None, ...]:
    """Returns the shape in which TFDS can read a list that is not ragged."""
    shape = feature.shape
    if optional and None not in shape:
        # TFDS reads an absent list as an empty one, of another size than the rest.
        shape = (None, *shape[1:])
    # TensorFlow divides by a size of 0 here, and the process dies.
    too_many = shape.count(None) > 1 or (None in shape and 0 in shape)
    return (None,) if too_many else shape


def _stackable(image: FeatureFacts, manifest: Manifest) -> bool:
    """Whether all images of a feature are known to be decoded to one size."""
    by_role = dict(_derived(image, manifest))
    sizes = [by_role.get("height"), by_role.get("width")]
    same = all(size is not None and size.minimum == size.maximum for size in sizes)
    return same and _channels(image, manifest) is not None


def _lesser(facts: FeatureFacts, manifest: Manifest, optional: bool) -> str:
    """Returns how TFDS shows a feature that loses something, and why; else ""."""
    feature = facts.feature
    if feature.kind is Kind.IMAGE and feature.is_list:
        one_size = _stackable(facts, manifest)
        return "" if one_size else "bytes: it decodes lists of images of one size only"
    if feature.kind is Kind.TENSOR and (reason := _undecodable(feature)):
        return f"bytes: {reason}"
    dimensions = 0 if feature.is_ragged or not feature.is_list else len(feature.shape)
    if dimensions > 1 and len(_list_shape(feature, optional)) == 1:
        return "flat lists: it has no lists of this shape"
    return ""


def _undecodable(feature: Feature) -> str:
    """Returns why TFDS cannot decode a tensor, "" if it can."""
    if feature.encoding == "proto":
        return "tf.io.parse_tensor decodes them"
    if feature.dtype not in _RAW_DTYPES:
        return f"it cannot decode {feature.dtype or 'an unknown type'}"
    if feature.shape.count(None) > 1:
        return "more than one size of the shape is unknown"
    if 0 in feature.shape and None in feature.shape:
        return "there is nothing in them"
    return ""


def _image(facts: FeatureFacts, manifest: Manifest) -> _Json:
    """Returns the JSON of a TFDS image of any height and width."""
    channels = _channels(facts, manifest)
    # No encodingFormat: only writers use it, and a feature may mix formats.
    return _typed(
        "image_feature.Image",
        image={"shape": _dimensions((None, None, channels)), "dtype": "uint8"},
    )


def _channels(image: FeatureFacts, manifest: Manifest) -> int | None:
    """Returns how many channels TFDS must decode; None: those of each image.

    TensorFlow decodes every format to 3 channels, and 4 where the depth is 4: in PNG
    and BMP. It decodes gray JPEG and PNG to 1 but refuses that for gray BMP, so each
    image keeps its own number, unless all files are too small to be a BMP of their
    size.
    """
    if image.feature.mask and image.feature.derived_from:
        return 1  # class numbers, as PNG
    by_role = dict(_derived(image, manifest))
    depth = by_role.get("depth")
    if depth is None or depth.minimum != depth.maximum or depth.minimum not in (1, 4):
        return 3
    if depth.minimum == 4:
        return 4
    height, width = by_role.get("height"), by_role.get("width")
    if height is None or width is None:
        return None
    smallest_bmp = _BMP_HEADER_BYTES + (height.minimum or 0) * (width.minimum or 0)
    return 1 if (image.statistics.maximum or 0) < smallest_bmp else None


def _derived(image: FeatureFacts, manifest: Manifest) -> Iterator[tuple[str, Any]]:
    """Yields (what is derived, its statistics) for the features of one image."""
    for facts in manifest.features:
        source = facts.feature.derived_from
        # Without a name it is the only image there is.
        if facts.feature.derived and source in ("", image.feature.name):
            yield facts.feature.derived, facts.statistics
