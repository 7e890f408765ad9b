"""Metadata beside the shards of a dataset: features, class names, splits.

    manifest.json                        a dataset of this program
    dataset_info.json, features.json     one that TFDS can read

The names of shards are compared without their numbers: `d-train.tfrecord-#` is what
all shards of the split `train` of the dataset `d` are called.

Sources: `tensorflow_datasets/core/proto/{dataset_info,feature}.proto` of TFDS 4.9.10.
"""

import dataclasses
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from transforms import files
from transforms.core.manifest import MANIFEST_NAME, FeatureFacts, Manifest
from transforms.core.nesting import parse_json
from transforms.core.schema import Feature, Kind, Missing
from transforms.errors import InputError
from transforms.formats.parsed_files import kept_in_memory

_INFO_NAME = "dataset_info.json"
_FEATURES_NAME = "features.json"
_FORMAT = re.compile(rb'"format"\s*:\s*"beam-tfrecord/')
_NUMBERS = re.compile(r"[0-9]{5,}-of-[0-9]{5,}")
_TEMPLATE = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
_TFDS_KINDS = {
    "bool": Kind.BOOL,
    "string": Kind.BYTES,
    **dict.fromkeys(("float16", "float32", "float64"), Kind.FLOAT),
    # uint64 is stored as the int64 of the same bits: its meaning is lost.
    **dict.fromkeys(
        ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"), Kind.INT64
    ),
}

_Json = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Dataset:
    """What is known of the shards in one folder.

    Attributes:
      folder: relative to the source's root.
      features: as rows will have them: labels by name, images inline.
      splits: (a shard's name without its numbers, the split it belongs to).
      shards: by file name, the records and bytes it must have; None for unknown.
    """

    folder: str
    features: tuple[Feature, ...]
    splits: tuple[tuple[str, str], ...]
    shards: Mapping[str, tuple[int, int | None]] | None = dataclasses.field(
        default=None, compare=False
    )

    def split_of(self, name: str) -> str:
        """Returns the split of a file name; empty for none."""
        stem = _NUMBERS.sub("#", name)
        return next((split for known, split in self.splits if known == stem), "")

    def without_shards(self) -> "Dataset":
        """Returns what has to travel to workers."""
        return dataclasses.replace(self, shards=None)


def dataset_beside(path: str, origin: str) -> Dataset | None:
    """Returns what is known of the dataset that a file belongs to; None for nothing.

    Args:
      path: of the file.
      origin: of the file, relative to the source's root.

    Raises:
      DamageError: a manifest of this program is damaged.
      InputError: TFDS's files are damaged.
    """
    folder = os.path.dirname(path)
    for name in (MANIFEST_NAME, _INFO_NAME):
        try:
            found = _read(os.path.join(folder, name), 0)
        except OSError:
            continue
        if found is not None:
            return dataclasses.replace(found, folder=os.path.dirname(origin))
    return None


# Each shard asks for the metadata of its folder; most sources are one folder.
@kept_in_memory(16)
def _read(path: str, _stamp: int) -> Dataset | None:
    """Returns what a file of metadata says; None for one of another program.

    Raises:
      OSError: it cannot be read.
    """
    # The stamp is not compared: a changed manifest still describes the folder, and
    # must not be mistaken for one that is absent.
    data = files.read_bytes(path)
    folder, name = os.path.split(path)
    if name == MANIFEST_NAME:
        if not _FORMAT.search(data[:1024]):
            return None
        return _of_manifest(Manifest.from_bytes(data, path))
    try:
        return _of_tfds(folder, parse_json(data))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path} must be what TFDS writes; it is not "
            f"({type(error).__name__}: {error}). Name the TFRecord files elsewhere, or "
            f"repair it."
        ) from error


def _of_manifest(manifest: Manifest) -> Dataset:
    shards = [(split, shard) for split in manifest.splits for shard in split.shards]
    stems = {_NUMBERS.sub("#", shard.file): split.name for split, shard in shards}
    return Dataset(
        "",
        tuple(map(row_feature, manifest.features)),
        tuple(stems.items()),
        {shard.file: (shard.records, shard.bytes) for _, shard in shards},
    )


def row_feature(facts: FeatureFacts) -> Feature:
    """Returns a feature of records as one to be read from them.

    What was given or filled in is a value like any other now; what was derived from an
    image is read again, for the image may be made smaller.
    """
    feature = facts.feature
    return Feature(
        feature.name,
        feature.kind,
        is_label=feature.is_label,
        derived=feature.derived,
        derived_from=feature.derived_from,
        shape=feature.shape,
        dtype=feature.dtype,
        encoding=feature.encoding,
        unit=feature.unit,
        inline=feature.kind is Kind.IMAGE,
        missing=Missing.OMIT,
        vocabulary=tuple(facts.classes) or None if feature.kind is Kind.LABEL else None,
    )


def _of_tfds(folder: str, info: _Json) -> Dataset:
    """Returns what TFDS's files say; raises what damaged JSON leads to."""
    stems: dict[str, str] = {}
    shards: dict[str, tuple[int, int | None]] = {}
    for split in info.get("splits", []):
        template = split.get("filepathTemplate") or _TEMPLATE
        lengths = [int(length) for length in split.get("shardLengths", [])]
        for index, length in enumerate(lengths):
            name = _named(template, info, split["name"], index, len(lengths))
            shards[name] = (length, None)
            stems[_NUMBERS.sub("#", name)] = split["name"]
    try:
        data = files.read_bytes(os.path.join(folder, _FEATURES_NAME))
    except OSError:
        return Dataset("", (), tuple(stems.items()), shards)
    features = parse_json(data)["featuresDict"]["features"]
    return Dataset(
        "", tuple(_tfds_features(folder, "", features)), tuple(stems.items()), shards
    )


def _named(template: str, info: _Json, split: str, index: int, count: int) -> str:
    width = max(len(str(count)), 5)
    values = {
        "DATASET": info["name"],
        "SPLIT": split,
        "FILEFORMAT": info.get("fileFormat") or "tfrecord",
        "SHARD_INDEX": f"{index:0{width}d}",
        "NUM_SHARDS": f"{count:0{width}d}",
        "SHARD_X_OF_Y": f"{index:0{width}d}-of-{count:0{width}d}",
    }
    return str(template).format(**values)


def _tfds_features(folder: str, prefix: str, features: _Json) -> Iterator[Feature]:
    """Yields the features that are understood; the others are seen in the records."""
    for key, spec in features.items():
        name = f"{prefix}{key}"
        kind = spec["pythonClassName"].rpartition(".")[2]
        if kind == "FeaturesDict":
            inner = spec["featuresDict"]["features"]
            yield from _tfds_features(folder, f"{name}/", inner)
        elif kind == "Sequence":
            yield from _tfds_feature(folder, name, spec["sequence"]["feature"], (None,))
        else:
            yield from _tfds_feature(folder, name, spec, ())


def _tfds_feature(
    folder: str, name: str, spec: _Json, shape: tuple[int | None, ...]
) -> Iterator[Feature]:
    kind = spec["pythonClassName"].rpartition(".")[2]
    if kind == "Image" and not shape:
        yield Feature(name, Kind.IMAGE, inline=True)
    elif kind == "Text":
        yield Feature(name, Kind.TEXT, shape=shape)
    elif kind == "ClassLabel":
        classes = _class_names(folder, name, int(spec["classLabel"]["numClasses"]))
        if classes:
            yield Feature(name, Kind.LABEL, shape=shape, vocabulary=classes)
    elif kind in ("Scalar", "Tensor"):
        tensor = spec["tensor"]
        sizes = [int(n) for n in tensor.get("shape", {}).get("dimensions", [])]
        own = tuple(None if n < 0 else n for n in sizes)
        plain = tensor.get("encoding", "none") == "none"
        stored = _TFDS_KINDS.get(tensor["dtype"])
        if plain and stored and own.count(None) < 2 and not (own and shape):
            yield Feature(name, stored, shape=shape or own)


def _class_names(folder: str, name: str, count: int) -> tuple[str, ...]:
    """Returns the names of a label's classes; none unless all are known."""
    file = f"{name.replace('/', '.')}.labels.txt"
    try:
        text = files.read_bytes(os.path.join(folder, file)).decode()
    except (OSError, UnicodeDecodeError):
        return ()
    lines = [line.strip() for line in text.splitlines()]
    names = tuple(line for line in lines if line)
    return names if len(names) == count == len(set(names)) else ()
