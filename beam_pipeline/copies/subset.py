"""A subset of a dataset: what is asked, which records that means, and their copy."""

import collections
import dataclasses
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_pipeline.copies.publication import (
    Made,
    copied_manifest,
    look_at,
    publish_copy,
)
from beam_pipeline.copies.shard_copies import CopiedShard, Mask, copied, numbered_shards
from beam_pipeline.datasets.dataset import Dataset
from beam_pipeline.datasets.derived_files import catalogues_of
from beam_pipeline.datasets.open_dataset import OpenDataset, condition_of, open_dataset
from beam_pipeline.datasets.parts import class_counts
from beam_pipeline.terminal import count_text, counts_text
from transforms.core.arrays import decoded, is_bytes, values_and_rows
from transforms.core.manifest import FeatureFacts, Manifest, ShardFacts, SplitFacts
from transforms.core.schema import Feature
from transforms.core.statistics import (
    Statistics,
    counts_by_class,
    merge_all,
    summarize_columns,
)
from transforms.core.tfrecord.reader import TFRecordReader
from transforms.errors import (
    ExampleError,
    InputError,
    SpecError,
    UsageError,
    bounded,
    first_few,
    nearest,
    shortened,
)
from transforms.formats.tfrecord_files.stored_features import decode, record_types
from transforms.reading.catalogue import Catalogue
from transforms.sidecars.text_protos import LABEL_MAP_NAME, parse_label_map
from transforms.storage.files import storage
from transforms.work.store import Store

# How many names a note has.
_SHOWN = 10
# Feature -> what is true of its values.
_Facts = dict[str, Statistics]
# The catalogue of each split; empty for none.
_Catalogues = Mapping[str, Catalogue]
_ROWS = 65_536
# The column of a catalogue with the key of each record.
_KEY = "_key"


@dataclasses.dataclass(frozen=True, slots=True)
class SubsetRequest:
    """Which rows of a dataset are to be chosen for a subset.

    Attributes:
      split: its only split; empty for all.
      label: its only class; empty for all.
      where: the condition that its rows meet; empty for none.
      keys: whose records are left out, as text.
      keys_sha256: of the file that listed them. The keys themselves go nowhere else:
        they may be those of people who are to be forgotten.
      key_feature: that holds the key of each record; empty for the dataset's key
        column.
    """

    split: str = ""
    label: str = ""
    where: str = ""
    keys: frozenset[str] = frozenset()
    keys_sha256: str = ""
    key_feature: str = ""

    def to_json(self) -> dict[str, Any]:
        """Returns what the manifest says of it: only what was asked."""
        names = ("split", "label", "where")
        out = {name: value for name in names if (value := getattr(self, name))}
        if self.keys:
            out["dropped_keys"] = {
                "feature": self.key_feature,
                "keys": len(self.keys),
                "sha256": self.keys_sha256,
            }
        return out


def read_keys(path: str) -> tuple[frozenset[str], str]:
    """Returns the keys of a file, one a line, and its SHA-256; empty lines left out.

    Raises:
      InputError: it holds no key, or is not UTF-8.
      OSError: it cannot be read.
    """
    data = storage(path).read_bytes()
    try:
        # A byte order mark is no part of a key.
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path!r} must be UTF-8; the byte at {error.start:,} is not."
        ) from error
    keys = frozenset(line.removesuffix("\r") for line in text.split("\n")) - {""}
    if not keys:
        raise InputError(f"A file of keys must list one key a line; {path!r} is empty.")
    return keys, hashlib.sha256(data).hexdigest()


@dataclasses.dataclass(frozen=True, slots=True)
class ChosenRows:
    """The records of a subset.

    Attributes:
      kept: split -> n bools for its n records; other splits are left out whole.
      skipped: how many records were left out, by reason.
      unknown_keys: how many keys are those of no record that was looked at.
    """

    kept: dict[str, Mask]
    skipped: dict[str, int]
    unknown_keys: int = 0


def with_key(
    request: SubsetRequest, manifest: Manifest, catalogues: _Catalogues
) -> SubsetRequest:
    """Returns the request with the feature by whose keys rows are chosen, if known."""
    if not request.keys or request.key_feature:
        return request
    column = str(manifest.settings.get("key_column") or "")
    features = [facts.feature for facts in manifest.features]
    names = [f.name for f in features if (f.column or f.name) == column]
    names += [_KEY] if _KEY in _own_columns(catalogues) else []
    return dataclasses.replace(request, key_feature=names[0]) if names else request


def _own_columns(catalogues: _Catalogues) -> set[str]:
    """Returns the columns that every catalogue has, for rows chosen by one of them."""
    schemas = [set(catalogue.schema.names) for catalogue in catalogues.values()]
    return set.intersection(*schemas) if schemas else set()


def choose(
    dataset: OpenDataset, catalogues: _Catalogues, request: SubsetRequest
) -> ChosenRows:
    """Returns which records a subset holds.

    Reads the columns that were asked about, of every record that may be left out.
    Memory is some bytes a record.

    Args:
      dataset: opened with class names.
      catalogues: of its splits; empty for none.
      request: what is asked of the subset.

    Raises:
      SpecError: a split, class, feature or condition is none of the dataset's.
      UsageError: the feature with the keys must be named.
      InputError: no record of the dataset has one of the keys.
      DamageError: a record is damaged.
    """
    condition = condition_of(dataset, request.label, request.where)
    skipped: collections.Counter[str] = collections.Counter()
    search = _Search(dataset, catalogues, request) if request.keys else None
    kept = {}
    for name in dataset:
        if request.split and name != request.split:
            skipped["other_split"] += dataset.splits[name] or 0
    for name in [request.split] if request.split else [*dataset]:
        view = dataset[name]
        mask = np.ones(len(view), np.bool_)
        if condition:
            mask[:] = False
            mask[view.where(condition).positions] = True
            skipped["condition"] += int(np.count_nonzero(~mask))
        if search is not None:
            hit = search.hits(name) & mask
            skipped["dropped_key"] += int(np.count_nonzero(hit))
            mask &= ~hit
        kept[name] = mask
    counts = {reason: count for reason, count in sorted(skipped.items()) if count}
    return ChosenRows(kept, counts, search.count_unknown() if search else 0)


class _Search:
    """Looks for the records of some keys."""

    def __init__(
        self, dataset: OpenDataset, catalogues: _Catalogues, request: SubsetRequest
    ) -> None:
        self._feature, self._split = request.key_feature, request.split
        self._dataset, self._catalogues = dataset, catalogues
        names = [*dict.fromkeys((*dataset.features, *_own_columns(catalogues)))]
        if not self._feature:
            raise UsageError(
                f"The feature that holds the keys must be named with --key-feature; "
                f"{dataset.path} was made without a key column. It has: "
                f"{', '.join(dataset.features)}."
            )
        if self._feature not in names:
            raise SpecError(
                f"--key-feature must name a feature; there is no {self._feature!r}"
                f"{nearest(self._feature, names)}."
            )
        self._keys = pa.array(sorted(request.keys), pa.large_string())
        self._seen = np.zeros(len(self._keys), np.bool_)
        self._example = ""

    def count_unknown(self) -> int:
        """Returns how many keys no record has had.

        Raises:
          InputError: none has had one. Who erases a person must not be told that it is
            done when nobody was erased. Of one split, keys may be those of another.
        """
        if not self._split and not self._seen.any():
            raise InputError(
                f"A file of keys must have keys of the dataset; no record has one of "
                f"these {len(self._keys):,} in its feature {self._feature!r}, which "
                f"holds keys like {shortened(self._example)!r}. Nothing was written. "
                f"Correct the keys, or name their feature with --key-feature."
            )
        return int(np.count_nonzero(~self._seen))

    def hits(self, split: str) -> Mask:
        """Returns n bools, true for records that have one of the keys."""
        if self._feature in self._dataset.features:
            # From the catalogue, if it has the feature.
            batches = self._dataset[split].select([self._feature]).batches(_ROWS)
        else:
            catalogue = self._catalogues[split]
            batches = catalogue.batches([self._feature], 0, len(catalogue))
        masks = [np.zeros(0, np.bool_)]
        for batch in batches:
            values, rows = values_and_rows(batch.column(0))
            places = pc.index_in(self._texts(values), self._keys)
            self._seen[places.drop_null().to_numpy()] = True
            mask = np.zeros(batch.num_rows, np.bool_)
            mask[rows[places.is_valid().to_numpy(zero_copy_only=False)]] = True
            masks.append(mask)
        return np.concatenate(masks)

    def _texts(self, values: pa.Array) -> pa.Array:
        """Returns keys as a file of keys spells them."""
        values = decoded(values)
        try:
            if not (pa.types.is_integer(values.type) or is_bytes(values.type)):
                raise pa.ArrowInvalid(f"it is {values.type}")
            texts = values.cast(pa.large_string())
        except pa.ArrowInvalid as error:
            raise UsageError(
                f"Keys are whole numbers, texts or bytes in UTF-8; the feature "
                f"{self._feature!r} holds others ({error}). Name another with "
                f"--key-feature."
            ) from error
        self._example = self._example or next(filter(None, texts[:1].to_pylist()), "")
        return texts


def make_subset(
    dataset: Dataset,
    directory: str,
    request: SubsetRequest,
    *,
    overwrite: bool = False,
    read: Callable[[int], None] = lambda _bytes: None,
) -> Made:
    """Writes a part of a dataset as a dataset of its own.

    Args:
      dataset: that it is a part of; may consist of parts, which are joined then.
      directory: where it goes; may be that of the dataset, which it then replaces.
      request: what is asked of it.
      overwrite: whether a dataset there is replaced.
      read: called with the bytes of each shard that was read.

    Raises:
      TargetError: the output holds a dataset, or something else.
      UsageError, SpecError: the request does not fit the dataset.
      InputError: no record is left.
      DamageError: the dataset is damaged. Nothing was published.
    """
    output = look_at(directory, [dataset], overwrite=overwrite)
    before = dataset.manifest
    rows = open_dataset(dataset.directory, labels="names")
    catalogues = catalogues_of(dataset)
    request = with_key(request, before, catalogues)
    chosen = choose(rows, catalogues, request)
    if not any(mask.any() for mask in chosen.kept.values()):
        left_out = f": {counts_text(chosen.skipped)}" if chosen.skipped else ""
        raise InputError(
            f"A subset must have at least one record; of the {before.records:,} of "
            f"{dataset.directory!r} none is left{left_out}."
        )
    sources = _sources(dataset, chosen)
    stored = [f.feature for f in before.features if f.feature.record_keys]

    def build(store: Store) -> Manifest:
        shards: dict[str, list[ShardFacts]] = {name: [] for name in chosen.kept}
        values: dict[str, _Facts] = {name: {} for name in chosen.kept}
        for file, source in sources.items():
            shards[source.split].append(copied(source, file, store))
            facts = _facts_of(file, source, stored, store)
            values[source.split] = merge_all([values[source.split], facts])
            read(source.facts.bytes)
        whole = merge_all([*values.values()])
        records = sum(shard.records for some in shards.values() for shard in some)
        features = tuple(_feature(facts, whole, records) for facts in before.features)
        splits = tuple(
            SplitFacts(name, tuple(facts), _classes(name, before, values, features))
            for name, facts in shards.items()
        )
        settings = {n: value for n, value in before.settings.items() if n != "parts"}
        subsets = [*settings.get("subsets", ()), request.to_json()]
        manifest = copied_manifest(
            *([before], features, splits),
            sha256=before.digest,
            skipped=chosen.skipped,
            settings={**settings, "subsets": subsets},
            # Which records the notes were about is not known.
            image_notes=before.image_notes if records == before.records else {},
        )
        notes = _notes(chosen, before, manifest)
        run = {"subset_of": dataset.directory, "notes": notes}
        return dataclasses.replace(manifest, run=run)

    decides = [before.digest, request.to_json()]
    label_map = {}
    if LABEL_MAP_NAME in {facts.file for facts in before.files}:
        label_map = parse_label_map(storage(dataset.path(LABEL_MAP_NAME)).read_bytes())
    return publish_copy(output, decides, sources, build, label_map)


def _sources(dataset: Dataset, chosen: ChosenRows) -> dict[str, CopiedShard]:
    """Returns new shard -> the chosen records of the old one."""
    sources = numbered_shards(dataset.parts or (dataset,), chosen.kept, lambda *_: {})
    starts = dict.fromkeys(chosen.kept, 0)
    for file, shard in sources.items():
        start = starts[shard.split]
        starts[shard.split] = stop = start + shard.facts.records
        kept = chosen.kept[shard.split][start:stop]
        sources[file] = dataclasses.replace(shard, kept=kept)
    return sources


def _facts_of(
    name: str,
    shard: CopiedShard,
    features: Sequence[Feature],
    store: Store,
) -> _Facts:
    """Returns what is true of the values in a shard of a subset, which is read."""
    # What is only linked is read, and named if it is damaged, where it was.
    path = shard.path if shard.is_whole else os.path.join(store.dataset, name)
    compression = shard.dataset.manifest.compression
    types = {
        k: kind for feature in features for k, kind in record_types(feature).items()
    }
    with storage(path).open_unbuffered() as file:
        reader = TFRecordReader(file, compression=compression, allow_empty=True)
        facts: _Facts = {}
        for payloads in reader.batches():
            decoded = decode(payloads, types)
            if decoded.refused:
                row, _, message = min(decoded.refused)
                raise ExampleError(
                    f"{path}: example {payloads.first_record + row:,}: {message}. "
                    f"Verify the dataset, and convert it again."
                )
            values = summarize_columns(features, decoded.columns)
            facts = merge_all([facts, values])
    return facts


def _feature(facts: FeatureFacts, whole: _Facts, records: int) -> FeatureFacts:
    """Returns what is true of a feature in all splits of the subset."""
    feature, names = facts.feature, tuple(facts.classes)
    if feature.vocabulary is not None:
        feature = dataclasses.replace(feature, vocabulary=names)
    values = whole.get(feature.name, Statistics())
    statistics = dataclasses.replace(values, classes={})
    return FeatureFacts(feature, statistics, names, values.present == records)


def _classes(
    split: str,
    before: Manifest,
    values: Mapping[str, _Facts],
    features: Sequence[FeatureFacts],
) -> dict[str, dict[str, int]]:
    """Returns records of a split by class, where the dataset had counted them."""
    counted = {s.name: s.classes for s in before.splits}[split]
    some = [facts for facts in features if facts.feature.name in counted]
    names = {facts.feature.name: facts.classes for facts in some}
    return counts_by_class(values[split], [facts.feature for facts in some], names)


def _notes(chosen: ChosenRows, before: Manifest, after: Manifest) -> list[str]:
    """Returns notes on keys of no record, and on classes that lost all records."""
    notes = []
    if chosen.unknown_keys:
        notes.append(f"{chosen.unknown_keys:,} of the keys to drop are of no record")
    old, new = class_counts(before.splits), class_counts(after.splits)
    for facts in after.features:
        name = facts.feature.name
        if name not in old or name not in new:
            continue
        empty = [c for c in facts.classes if old[name].get(c) and not new[name].get(c)]
        if empty:
            text = (
                f"{count_text(len(empty), 'class', 'classes')} of {name!r} without "
                f"records: {first_few(list(map(repr, empty)), _SHOWN)}. All ids stay "
                f"as they were, so a model has outputs for them. To number the others "
                f"from 0, convert the subset with --vocabulary FILE, their names one a "
                f"line"
            )
            notes.append(bounded(text))
    return notes
