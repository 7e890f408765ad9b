"""A folder of parts as one dataset: what their manifests say, added up.

    sets/events/parts.json           features, and the longest list of each class
    sets/events/part=2026-11-01/     a dataset
    sets/events/part=2026-11-02/     another one

The files of a part keep their names, below the part's folder.
"""

import collections
import dataclasses
import functools
import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from transforms.core.files import PART_PREFIX, part_name
from transforms.core.manifest import (
    Account,
    FeatureFacts,
    FileFacts,
    Manifest,
    ShardFacts,
    SplitFacts,
)
from transforms.core.schema import Feature, Kind
from transforms.core.statistics import Statistics
from transforms.errors import UsageError
from transforms.publishing.parts import Model, part_names, read_model
from transforms.publishing.published import read_manifest
from transforms.storage.files import read_ahead
from transforms.storage.paths import is_remote

_File = TypeVar("_File", bound=FileFacts)


class Part(NamedTuple):
    """The folder of a part, and its manifest."""

    directory: str
    manifest: Manifest


def read_parts(folder: str) -> tuple[Manifest, tuple[Part, ...]]:
    """Returns what the parts in a folder are as one dataset, and each of them.

    Raises:
      UsageError: there are none.
      DamageError: a manifest, or what parts share, is damaged.
      OSError: one cannot be read.
    """
    names = part_names(folder)
    paths = [os.path.join(folder, f"{PART_PREFIX}{name}") for name in names]
    manifests = read_ahead(read_manifest, paths, far=is_remote(folder))
    parts = tuple(
        Part(path, manifest) for path, manifest in zip(paths, manifests, strict=True)
    )
    # After the parts: a new class is there before the part that has it.
    shared = read_model(folder)
    if shared is None or not parts:
        raise UsageError(
            f"A dataset of parts must have a part; {folder!r} has none yet. Write one "
            f"with 'convert SOURCE {folder} --part NAME'."
        )
    for part in parts:
        shared.check_part(*part)
    return _joined_manifest(shared, parts), parts


def _joined_manifest(shared: Model, parts: Sequence[Part]) -> Manifest:
    """Returns what parts are together, with features and classes that they share."""
    manifests = [part.manifest for part in parts]
    first = manifests[0]
    digests = {part_name(part.directory): part.manifest.digest for part in parts}
    inputs = hashlib.sha256("".join(digests.values()).encode()).hexdigest()
    return Manifest(
        name=first.name,
        compression=first.compression,
        features=tuple(_facts(f, manifests, shared) for f in shared.features),
        splits=_joined_splits(parts),
        files=tuple(_below(part, f) for part in parts for f in part.manifest.files),
        account=_summed_accounts([manifest.account for manifest in manifests]),
        inputs={
            "files": sum(manifest.inputs.get("files", 0) for manifest in manifests),
            "bytes": sum(manifest.inputs.get("bytes", 0) for manifest in manifests),
            "sha256": inputs,
        },
        settings={**shared.settings, "parts": digests},
        image_notes=summed_counts(manifest.image_notes for manifest in manifests),
        derived=tuple(_below(part, f) for part in parts for f in part.manifest.derived),
    )


def _below(part: Part, facts: _File) -> _File:
    """Returns a file of a part by its path below the folder of the parts."""
    folder = os.path.dirname(part.directory)
    whole = part.manifest.path(part.directory, facts.file)
    path = whole.removeprefix(folder).lstrip("/") if folder else whole
    return dataclasses.replace(facts, file=path)


def _joined_splits(parts: Sequence[Part]) -> tuple[SplitFacts, ...]:
    """Returns splits of parts with equal names as one: shards in the order of parts."""
    splits: dict[str, list[SplitFacts]] = {}
    shards: dict[str, list[ShardFacts]] = {}
    for part in parts:
        for split in part.manifest.splits:
            splits.setdefault(split.name, []).append(split)
            below = [_below(part, shard) for shard in split.shards]
            shards.setdefault(split.name, []).extend(below)
    return tuple(
        SplitFacts(name, tuple(shards[name]), class_counts(same))
        for name, same in splits.items()
    )


def class_counts(splits: Sequence[SplitFacts]) -> dict[str, dict[str, int]]:
    """Returns feature -> class -> records of all parts, where all have counted it."""
    out = {}
    for name in dict.fromkeys(name for split in splits for name in split.classes):
        if all(name in split.classes for split in splits if split.records):
            out[name] = summed_counts(split.classes.get(name, {}) for split in splits)
    return out


def _facts(
    feature: Feature, manifests: Sequence[Manifest], shared: Model
) -> FeatureFacts:
    """Returns what is true of a feature in all parts; some may lack it."""
    statistics = joined_statistics(feature.name, manifests)
    records = sum(manifest.records for manifest in manifests)
    classes = tuple(shared.classes.get(feature.name, ()))
    if feature.kind is Kind.LABEL:
        # Beyond them is the class of all other names, where there is one.
        stated = (f for m in manifests for f in m.features)
        same = (f.classes for f in stated if f.feature.name == feature.name)
        classes = max(classes, *same, key=len)
    return FeatureFacts(feature, statistics, classes, statistics.present == records)


def joined_statistics(feature: str, manifests: Sequence[Manifest]) -> Statistics:
    """Returns what is true of the values of a feature in all parts or datasets."""
    stated = (f for m in manifests for f in m.features if f.feature.name == feature)
    merged = functools.reduce(
        Statistics.merge, (facts.statistics for facts in stated), Statistics()
    )
    return dataclasses.replace(merged, classes={})


def _summed_accounts(accounts: Sequence[Account]) -> Account:
    """Returns the sum of what parts have read, written, rejected and skipped."""
    kinds = sorted({kind for account in accounts for kind in account.parts})
    rows = ("read", "written", "dropped_by_steps", "added_by_steps")
    return Account(
        **{name: sum(getattr(each, name) for each in accounts) for name in rows},
        rejected=summed_counts(account.rejected for account in accounts),
        skipped=summed_counts(account.skipped for account in accounts),
        parts={k: summed_counts(a.parts.get(k, {}) for a in accounts) for k in kinds},
    )


def summed_counts(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Returns how often each name was counted in all parts."""
    out: collections.Counter[str] = collections.Counter()
    for tally in counts:
        out.update(tally)
    return dict(out)
