"""Which files a dataset's rows are in, and what is known of their features.

manifest.json beside the files    a dataset of this program: all is stated there
dataset_info.json                 one of TFDS: `features=` may add to what it states
neither                           bare TFRecord files: `features=` states it all
"""

import dataclasses
import hashlib
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from beam_pipeline.datasets.dataset import (
    Dataset,
    SingleFile,
    find_bare_files,
    has_manifest,
    missing_shards,
    open_files,
    open_target,
)
from transforms.core.catalogue import MOST_SECONDS, catalogue_features
from transforms.core.manifest import MANIFEST_NAME, FeatureFacts
from transforms.core.schema import LISTS, SEQUENCE_ENCODING, Feature, Kind
from transforms.core.tfrecord.reader import PayloadBatch
from transforms.errors import InputError, SpecError, bounded, nearest
from transforms.formats.table import InputFile
from transforms.formats.tfrecord_files.dataset import (
    Edition,
    Shard,
    check_all_there,
    dataset_beside,
    row_feature,
)
from transforms.formats.tfrecord_files.reader import sampled
from transforms.formats.tfrecord_files.stored_features import learn
from transforms.formats.tfrecord_files.typed_rows import TypedRows
from transforms.reading.catalogue import CatalogueRows
from transforms.storage.files import storage
from transforms.storage.paths import absolute, plain

if TYPE_CHECKING:
    from beam_pipeline.settings.spec import FeatureSpec


Labels = Literal["names", "ids"]
# A feature in the words of a spec.
Said = Mapping[str, Any] | str

# What a feature of a spec may say of records; the rest is about making them.
_OF_RECORDS = frozenset("kind shape dtype encoding unit vocabulary label".split())
_SAMPLE_BYTES = 1 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class ReadingPlan:
    """The plan of what is read: all that workers need to know.

    Attributes:
      shards: to read, in order.
      rows: how records become rows.
      edition: of the dataset, to see that it is not replaced meanwhile.
    """

    shards: tuple[Shard, ...]
    rows: TypedRows
    edition: Edition


@dataclasses.dataclass(frozen=True, slots=True)
class Readable:
    """What there is to read at a path.

    Attributes:
      shards: (split, shard); the split is empty where there are none.
      splits: all names of splits.
      features: those that are known.
      edition: of the dataset.
      catalogues: by split, where there are any. They repeat what the records hold.
      absent: feature -> what a program takes for records that lack it; see
        `FeatureFacts.absent`. Without a manifest nothing is known of it.
      parts: the folders of the parts that it consists of, in order.
    """

    shards: tuple[tuple[str, Shard], ...]
    splits: tuple[str, ...]
    features: tuple[Feature, ...]
    edition: Edition
    catalogues: Mapping[str, CatalogueRows] = dataclasses.field(
        default_factory=dict, repr=False
    )
    absent: Mapping[str, Any] = dataclasses.field(default_factory=dict, repr=False)
    parts: tuple[str, ...] = ()


def digest_of(read: ReadingPlan | Readable) -> str:
    """Returns the digest of what is read: other records or rows have another one."""
    data = repr(read).encode("utf-8", "backslashreplace")
    return hashlib.sha256(data).hexdigest()


def find_records(path: str, features: Mapping[str, Said]) -> Readable:
    """Returns what there is to read at a path, with features of records, too.

    Args:
      path: of a dataset, or of TFRecord files; see `plan_reading`.
      features: that are described.

    Raises as `plan_reading` does.
    """
    path = absolute(plain(path))
    return _found_at(path, _features_said(features), sees=True)


def plan_reading(
    path: str,
    split: str | None = None,
    columns: Sequence[str] | None = None,
    features: Mapping[str, Said] | None = None,
    labels: Labels = "names",
) -> ReadingPlan:
    """Returns the plan of what is read at a path; see `ReadDataset`.

    Raises:
      SpecError: an argument is wrong, or names no split or no feature.
      UsageError: nothing is there that can be read.
      InputError: shards that a dataset states are not there, or records are no
        Examples.
    """
    path = absolute(plain(path))
    said = _features_said(features or {})
    contents = _found_at(path, said)
    if split is not None and split not in contents.splits:
        near = nearest(str(split), contents.splits)
        raise SpecError(f"split must be one of {path}; it has no {split!r}{near}.")
    shards = [shard for name, shard in contents.shards if split in (None, name)]
    by_name = {feature.name: feature for feature in contents.features}
    names = dict.fromkeys(by_name if columns is None else columns)
    if unknown := [name for name in names if name not in by_name]:
        raise SpecError(
            f"columns must be features of {path}; there is no {unknown[0]!r}"
            f"{nearest(unknown[0], by_name)}."
        )
    chosen = [by_name[name] for name in names]
    if labels == "ids":
        chosen = [dataclasses.replace(column, vocabulary=None) for column in chosen]
    return ReadingPlan(tuple(shards), TypedRows(tuple(chosen)), contents.edition)


def _found_at(
    path: str, said: Mapping[str, Feature], *, sees: bool = False
) -> Readable:
    """Returns what there is to read at a path.

    Args:
      path: of a dataset, or of files.
      said: features that are described.
      sees: whether the first records say what bare files hold, where nothing else does.
    """
    directory, chosen = _located(path)
    folders: dict[str, list[str]] = {}
    for file in chosen or ():
        folders.setdefault(os.path.dirname(file), []).append(os.path.basename(file))
    contents = None
    if len(folders) < 2:
        names = next(iter(folders.values()), None)
        contents = _described_beside(directory, names, said)
    elif not said:
        # What is said of files is true of them, wherever they are.
        _check_bare(path, folders)
    if contents is not None:
        return contents
    return _bare_contents(path, chosen, said, sees=sees)


def _described_beside(
    directory: str, names: Sequence[str] | None, said: Mapping[str, Feature]
) -> Readable | None:
    """Returns what is to be read by the metadata in a folder; None for nothing."""
    if has_manifest(directory):
        target = open_target(directory)
        assert isinstance(target, Dataset), "a folder with a manifest is a dataset"
        contents = _of_dataset(target, names)
        if contents is not None:
            if said:
                raise SpecError(
                    f"features must be left out for a dataset of this program; the "
                    f"manifest of {directory} states them."
                )
            return contents
    return _tfds_contents(directory, names, said)


def _located(path: str) -> tuple[str, list[str] | None]:
    """Returns the folder to read at a path, and files in it; None for all of them.

    Raises:
      UsageError: nothing is there that can be read.
    """
    if storage(path).is_folder():
        return path, None
    target = open_files(path)
    if isinstance(target, Dataset):
        return target.directory, None
    paths = [path] if isinstance(target, SingleFile) else [*target.paths]
    return os.path.dirname(paths[0]), paths


def _check_bare(path: str, folders: Mapping[str, Sequence[str]]) -> None:
    """Raises InputError where files to read in several folders have metadata."""
    for folder, names in folders.items():
        if _described_beside(folder, names, {}) is not None:
            raise InputError(
                f"Files in several folders are read as they are, without metadata; for "
                f"{path!r} there is some in {folder!r}. Read each dataset by itself, "
                f"make one of them with 'merge', or give features=."
            )


def _of_dataset(dataset: Dataset, names: Sequence[str] | None) -> Readable | None:
    """Returns what is to be read by a manifest; None for files that it lacks."""
    manifest = dataset.manifest
    shards = {}
    for split in manifest.splits:
        for facts in split.shards:
            stated = facts.records, facts.bytes, facts.crc32c
            shard = Shard(dataset.path(facts.file), manifest.compression, *stated)
            shards[facts.file] = split.name, shard
    if names is not None and not shards.keys() >= set(names):
        return None
    features = []
    for of_rows in manifest.features:
        feature = row_feature(of_rows)
        if feature.kind is Kind.LABEL:
            feature = dataclasses.replace(feature, vocabulary=tuple(of_rows.classes))
        features += [] if of_rows.feature.internal else [feature]
    edition = Edition()
    if not dataset.parts:
        path = os.path.join(dataset.directory, MANIFEST_NAME)
        edition = Edition(path, manifest.digest)
    return Readable(
        tuple(shards[name] for name in (shards if names is None else names)),
        tuple(split.name for split in manifest.splits),
        tuple(features),
        edition,
        _catalogues(dataset, edition) if names is None else {},
        {facts.feature.name: facts.absent for facts in manifest.features},
        tuple(os.path.basename(part.directory) for part in dataset.parts),
    )


def _catalogues(dataset: Dataset, edition: Edition) -> dict[str, CatalogueRows]:
    """Returns what reads each split that has a catalogue from that."""
    fitting = [
        facts.feature for facts in dataset.manifest.features if _fits_catalogue(facts)
    ]
    features, _ = catalogue_features(fitting, texts=True)
    names = frozenset(feature.name for feature in features)
    catalogues = {}
    for split in dataset.manifest.splits:
        if parts := dataset.manifest.catalogue_parts(split.name):
            paths = tuple(map(dataset.path, parts))
            catalogues[split.name] = CatalogueRows(paths, split.records, names, edition)
    return catalogues


def _fits_catalogue(facts: FeatureFacts) -> bool:
    """Whether a feature is read from the catalogue, not from records."""
    if facts.feature.kind is not Kind.TIMESTAMP or facts.feature.unit not in ("", "s"):
        return True
    ends = (facts.statistics.minimum, facts.statistics.maximum)
    return all(end is None or abs(int(end)) <= MOST_SECONDS for end in ends)


def _tfds_contents(
    directory: str, names: Sequence[str] | None, said: Mapping[str, Feature]
) -> Readable | None:
    """Returns what is to be read of a dataset of TFDS; None where it lacks a name."""
    dataset = dataset_beside(os.path.join(directory, "-"), "-")
    if dataset is None or not dataset.shards:
        return None
    if names is not None and not dataset.shards.keys() >= set(names):
        return None
    check_all_there(directory, dataset)
    shards = []
    for name in dataset.shards if names is None else names:
        records, size = dataset.shards[name]
        shard = Shard(os.path.join(directory, name), records=records, bytes=size)
        shards.append((dataset.split_of(name), shard))
    features = {feature.name: feature for feature in dataset.features} | {**said}
    features |= _features_seen([shard for _, shard in shards], features)
    splits = dict.fromkeys(split for _, split in dataset.splits)
    return Readable(tuple(shards), tuple(splits), tuple(features.values()), Edition())


def _features_seen(
    shards: Sequence[Shard], known: Mapping[str, Feature]
) -> dict[str, Feature]:
    """Returns features of the first records that are not known, as they are stored."""
    keys = {key for feature in known.values() for key in feature.record_keys}
    learned = learn(_first_payloads(shards))
    seen = learned.features_of(learned.values)
    return {feature.name: feature for feature in seen if feature.name not in keys}


def _first_payloads(shards: Sequence[Shard]) -> PayloadBatch:
    """Returns the first records of the first shard that has any."""
    for shard in shards:
        if shard.records != 0:
            file = InputFile(shard.path, shard.path, size=storage(shard.path).size_of())
            payloads = sampled(file, _SAMPLE_BYTES).payloads
            if len(payloads):
                return payloads
    return PayloadBatch.of([])


def _bare_contents(
    path: str,
    chosen: Sequence[str] | None,
    said: Mapping[str, Feature],
    *,
    sees: bool,
) -> Readable:
    """Returns what TFRecord files without metadata hold, by what is said or seen."""
    if chosen is None:
        bare = find_bare_files(path)
        assert bare is not None, "the path is a folder"
        chosen = bare.paths
        for name, wrong in missing_shards(chosen):
            raise InputError(f"{path} must have all of its shards; {name}: {wrong}")
    shards = tuple(("", Shard(entry)) for entry in chosen)
    if not said:
        seen = _features_seen([shard for _, shard in shards], {})
        if sees:
            return Readable(shards, (), tuple(seen.values()), Edition())
        shown = {n: f"[{f.kind}]" if f.shape else str(f.kind) for n, f in seen.items()}
        raise SpecError(
            bounded(
                f"features must be given for files without a dataset's metadata, as in "
                f"features={{'height': 'float'}}; there is none beside {path}. Its "
                f"first records hold {shown} (lists are in brackets)."
            )
        )
    in_sequence = learn(_first_payloads([shard for _, shard in shards])).in_sequence
    features = map(_of_sequence, said.values()) if in_sequence else said.values()
    return Readable(shards, (), tuple(features), Edition())


def _of_sequence(feature: Feature) -> Feature:
    """Returns a feature as one of SequenceExamples or lists of Examples."""
    shape = feature.shape
    if feature.name.startswith(LISTS) and (len(shape) > 2 or shape[:1] != (None,)):
        raise SpecError(
            f"features: lists of steps have the shape [null], [null, k] or [null, "
            f"null]; {feature.name!r} has {list(shape)}. Describe it so, or leave it "
            f"out."
        )
    if feature.encoding:
        return feature
    return dataclasses.replace(feature, encoding=SEQUENCE_ENCODING)


def _features_said(given: Mapping[str, Said]) -> dict[str, Feature]:
    """Returns features as they were described.

    Raises:
      SpecError: one is described wrongly.
    """
    if not given:
        return {}
    # Only here: they take longer to import than a dataset to open.
    from beam_pipeline.planning.feature_checks import check_schema
    from beam_pipeline.settings.spec import make_spec

    # The settings of a spec check the words.
    spec = make_spec({"source": "-", "output": "-", "features": dict(given)})
    out = {
        name: _stated_feature(name, checked) for name, checked in spec.features.items()
    }
    check_schema([*out.values()], has_columns=False)
    return {name: out[name] for name in given}


def _stated_feature(name: str, said: "FeatureSpec") -> Feature:
    """Returns the feature that a user states of records; SpecError without a kind."""
    from beam_pipeline.planning.features import given_fields

    if extra := sorted(said.model_fields_set - _OF_RECORDS):
        raise SpecError(
            f"features: of records only {', '.join(sorted(_OF_RECORDS))} can be said; "
            f"found {extra[0]} of {name!r}."
        )
    if said.kind is None:
        raise SpecError(f"features: {name!r} must have a kind, as in 'float'.")
    kind = Kind(said.kind)
    if kind is Kind.TIMESTAMP and said.unit is None:
        raise SpecError(
            f"features: the timestamp {name!r} must have a unit, as in 's'."
        )
    encoding = {"encoding": "raw"} if kind is Kind.TENSOR else {}
    return Feature(
        name, kind, inline=kind is Kind.IMAGE, **encoding | given_fields(said)
    )
