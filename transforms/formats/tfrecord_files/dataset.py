"""Metadata beside the shards of a dataset: features, class names, splits, and checks.

    manifest.json                        a dataset of this program
    dataset_info.json, features.json     one that TFDS can read

The names of shards are compared without their numbers: `d-train.tfrecord-#` is what
all shards of the split `train` of the dataset `d` are called.

Sources: `tensorflow_datasets/core/proto/{dataset_info,feature}.proto` of TFDS 4.9.10.
"""

import contextlib
import dataclasses
import functools
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from transforms.core.json_text import parse_json
from transforms.core.manifest import MANIFEST_NAME, FeatureFacts, Manifest
from transforms.core.schema import Feature, Kind
from transforms.errors import DamageError, InputError, SpecError, TFRecordError
from transforms.formats.table import InputFile, SourceFile
from transforms.sidecars.text_protos import LABEL_MAP_NAME, parse_label_map
from transforms.storage.files import storage
from transforms.storage.paths import stamp_of

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

_PARSING = threading.Lock()
_Json = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class StatedDataset:
    """What is known of the shards in one folder.

    Attributes:
      folder: relative to the source's root.
      features: as rows will have them: labels by name, images inline.
      splits: (a shard's name without its numbers, the split it belongs to).
      shards: by file name, the records and bytes it must have; empty for unknown, and
        None for unknown bytes.
    """

    folder: str
    features: tuple[Feature, ...]
    splits: tuple[tuple[str, str], ...]
    shards: Mapping[str, tuple[int, int | None]] = dataclasses.field(
        default_factory=dict, compare=False
    )

    def split_of(self, name: str) -> str:
        """Returns the split of a file name; empty for none."""
        stem = _NUMBERS.sub("#", name)
        return next((split for pattern, split in self.splits if pattern == stem), "")


@dataclasses.dataclass(frozen=True, slots=True)
class Shard:
    """A TFRecord file of a dataset, and what it must hold; None for what is not known.

    Attributes:
      path: where it is.
      compression: "none", "gzip" or "zlib"; "auto" goes by the content.
      records: how many it has.
      bytes: as stored.
      crc32c: of these bytes.
    """

    path: str
    compression: str = "auto"
    records: int | None = None
    bytes: int | None = None
    crc32c: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Edition:
    """The dataset that shards are of, as its manifest was when they were listed.

    Attributes:
      manifest: path of the manifest; empty for files without one.
      digest: of the dataset.
    """

    manifest: str = ""
    digest: str = ""

    def replacement(self) -> str:
        """Returns what has happened to the dataset since; empty for nothing."""
        if not self.manifest:
            return ""
        try:
            data = storage(self.manifest).read_bytes()
            digest = Manifest.from_bytes(data, self.manifest).digest
        except FileNotFoundError:
            return "its manifest is gone"
        except (OSError, DamageError):
            return ""
        if digest == self.digest:
            return ""
        return f"its digest was {self.digest[:16]} and is {digest[:16]}"


def dataset_beside(path: str, origin: str) -> StatedDataset | None:
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
            dataset = _read(os.path.join(folder, name))
        except OSError:
            continue
        if dataset is not None:
            return dataclasses.replace(dataset, folder=os.path.dirname(origin))
    return None


def _read(path: str) -> StatedDataset | None:
    """Returns what a file of metadata says; None for one of another program.

    Raises:
      OSError: it cannot be read.
    """
    with storage(path).open_input() as file:
        stamp = stamp_of(file)
    # Threads that want the same file wait for one of them to parse it.
    with _PARSING:
        return _parsed(path, stamp)


# Each shard asks for the metadata of its folder; most sources are one folder.
@functools.lru_cache(maxsize=16)
def _parsed(path: str, _stamp: int) -> StatedDataset | None:
    """Returns what `_read` does, remembered by path and stamp."""
    # The stamp is not compared: a changed manifest still describes the folder, and
    # must not be mistaken for one that is absent.
    data = storage(path).read_bytes()
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


def _of_manifest(manifest: Manifest) -> StatedDataset:
    """Returns what our manifest says of features, splits by file, and shard sizes."""
    shards = [(split, shard) for split in manifest.splits for shard in split.shards]
    stems = {_NUMBERS.sub("#", shard.file): split.name for split, shard in shards}
    return StatedDataset(
        "",
        tuple(map(row_feature, manifest.features)),
        tuple(stems.items()),
        {shard.file: (shard.records, shard.bytes) for _, shard in shards},
    )


def row_feature(facts: FeatureFacts) -> Feature:
    """Returns a feature of a dataset as one to be read from its records.

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
        mask=feature.mask,
        inline=feature.kind is Kind.IMAGE,
        vocabulary=tuple(facts.classes) or None if feature.kind is Kind.LABEL else None,
    )


def _of_tfds(folder: str, info: _Json) -> StatedDataset:
    """Returns what TFDS's files say; raises what damaged JSON leads to."""
    stems: dict[str, str] = {}
    shards: dict[str, tuple[int, int | None]] = {}
    for split in info.get("splits", []):
        template = split.get("filepathTemplate") or _TEMPLATE
        lengths = [int(length) for length in split.get("shardLengths", [])]
        for index, length in enumerate(lengths):
            name = _shard_name(template, info, split["name"], index, len(lengths))
            shards[name] = (length, None)
            stems[_NUMBERS.sub("#", name)] = split["name"]
    features: tuple[Feature, ...] = ()
    with contextlib.suppress(OSError):
        data = storage(os.path.join(folder, _FEATURES_NAME)).read_bytes()
        stated = parse_json(data)["featuresDict"]["features"]
        features = tuple(_tfds_features(folder, "", stated))
    return StatedDataset("", features, tuple(stems.items()), shards)


def _shard_name(template: str, info: _Json, split: str, index: int, count: int) -> str:
    """Returns the file name of a shard by TFDS's template; numbers have 5 digits."""
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
    """Yields a TFDS feature where a kind of ours is stored as it is; else nothing."""
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
        text = storage(os.path.join(folder, file)).read_bytes().decode()
    except (OSError, UnicodeDecodeError):
        return ()
    lines = [line.strip() for line in text.splitlines()]
    names = tuple(line for line in lines if line)
    return names if len(names) == count == len(set(names)) else ()


def shards_among(
    files: Sequence[InputFile],
) -> tuple[list[InputFile], dict[str, StatedDataset]]:
    """Returns the files to read, and by folder the dataset that they belong to.

    Raises:
      InputError: a shard that a manifest names is not there.
    """
    cache: dict[str, StatedDataset | None] = {}
    out = []
    for file in files:
        folder, name = os.path.split(file.origin)
        if folder not in cache:
            dataset = dataset_beside(file.path, file.origin)
            if dataset is not None:
                check_all_there(os.path.dirname(file.path), dataset)
            cache[folder] = dataset
        dataset = cache[folder]
        if dataset is None or not dataset.shards or name in dataset.shards:
            out.append(file)
    kept = dict.fromkeys(os.path.dirname(file.origin) for file in out)
    datasets = {name: dataset for name in kept if (dataset := cache[name]) is not None}
    return out, datasets


def known_features(datasets: Sequence[StatedDataset]) -> dict[str, Feature]:
    """Returns the features that datasets state, by name.

    The classes of the first dataset keep their ids; new classes of the others follow,
    as `merge` has them.

    Raises:
      InputError: two datasets state one feature in two ways.
    """
    out: dict[str, Feature] = {}
    folders: dict[str, str] = {}
    for dataset in datasets:
        for feature in dataset.features:
            before = out.setdefault(feature.name, feature)
            folders.setdefault(feature.name, dataset.folder)
            if before.vocabulary != feature.vocabulary:
                names = (*(before.vocabulary or ()), *(feature.vocabulary or ()))
                joined = tuple(dict.fromkeys(names)) or None
                before = dataclasses.replace(before, vocabulary=joined)
                out[feature.name] = before
            if dataclasses.replace(feature, vocabulary=before.vocabulary) != before:
                first = folders[feature.name]
                raise InputError(
                    f"All datasets of a source must have the same features; "
                    f"{feature.name!r} is {before.in_words()} in {first!r} and "
                    f"{feature.in_words()} in {dataset.folder!r}. Convert one with "
                    f"another kind of this feature, or leave it out with --exclude."
                )
    return out


def stated(file: SourceFile) -> tuple[int, int | None] | None:
    """Returns the records and bytes that a file must have; None for unknown."""
    dataset = dataset_beside(file.path, file.origin)
    return dataset.shards.get(os.path.basename(file.path)) if dataset else None


def check_stated(file: SourceFile, size: int, rows: int) -> None:
    """Raises TFRecordError for a file that is not what its dataset states."""
    facts = stated(file)
    if facts is None or (rows == facts[0] and facts[1] in (None, size)):
        return
    raise TFRecordError(
        f"{file.path} must have {facts[0]:,} records, as stated beside it; found "
        f"{rows:,} in {size:,} bytes. Fetch or convert the dataset again.",
        path=file.path,
        record=rows,
        kind="truncated",
    )


def check_all_there(folder: str, dataset: StatedDataset) -> None:
    """Raises InputError where a shard that is stated is not in the folder."""
    for name in dataset.shards:
        if not storage(os.path.join(folder, name)).exists():
            raise InputError(
                f"every shard that is stated beside a dataset must be there; {folder} "
                f"has no {name}. Fetch it, or convert the dataset again."
            )


def check_all_known(
    files: Sequence[InputFile], datasets: Mapping[str, StatedDataset]
) -> None:
    """Raises InputError where ids of classes mean something in some files only."""
    features = [field for dataset in datasets.values() for field in dataset.features]
    if not any(feature.vocabulary for feature in features):
        return
    for file in files:
        if os.path.dirname(file.origin) not in datasets:
            raise InputError(
                f"class names are beside some files of the source, but not beside "
                f"{file.origin}: what its ids mean is unknown. Convert it by itself."
            )


def stated_records(
    files: Sequence[InputFile], datasets: Mapping[str, StatedDataset]
) -> int | None:
    """Returns how many records files hold; None where that is not stated of all."""
    records = 0
    for file in files:
        folder, name = os.path.split(file.origin)
        shards = datasets[folder].shards if folder in datasets else {}
        if name not in shards:
            return None
        records += shards[name][0]
    return records


def label_maps_beside(inputs: Sequence[InputFile]) -> dict[int, str]:
    """Returns class id -> name of all label maps in the files' folders.

    Raises:
      InputError: one is damaged, or two say different things of an id.
    """
    out: dict[int, str] = {}
    for folder in dict.fromkeys(os.path.dirname(file.path) for file in inputs):
        path = os.path.join(folder, LABEL_MAP_NAME)
        try:
            names = parse_label_map(storage(path).read_bytes())
        except FileNotFoundError:
            continue
        except (OSError, SpecError) as error:
            raise InputError(f"{path} must be readable: {error}") from error
        for number, name in names.items():
            if out.setdefault(number, name) != name:
                raise InputError(
                    f"All label maps of a source must mean the same by an id; {number} "
                    f"is {out[number]!r} in others and {name!r} in {path}. Convert the "
                    f"folders one by one."
                )
    return dict(sorted(out.items()))
