"""The shards of a subset, and what is true of their records."""

import collections
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import BinaryIO

import numpy as np

from beam_pipeline.copies.chosen_rows import Chosen, Relabelling
from beam_pipeline.copies.shard_copies import (
    Changed,
    CopiedShard,
    Counted,
    classes_by_name,
    copied,
    counts_left,
    open_features,
    summarized,
    with_ids,
)
from beam_pipeline.datasets.dataset import Dataset
from transforms.core.manifest import FeatureFacts, ShardFacts, SplitFacts
from transforms.core.schema import Kind
from transforms.core.statistics import Statistics
from transforms.work.store import Store

Opened = Callable[[str], BinaryIO]


class KeptShards:
    """Writes the shards of a subset, and says what is true of them.

    Args:
      dataset: that it is of.
      chosen: its records.
      relabelling: of its classes; None for none.
      opened: opens a file of the dataset.

    Attributes:
      whole, changed: how many shards are those of the dataset, and how many are not.
    """

    def __init__(
        self,
        dataset: Dataset,
        chosen: Chosen,
        relabelling: Relabelling | None,
        opened: Opened,
    ) -> None:
        self._dataset = dataset
        self._chosen = chosen
        self._relabelling = relabelling
        self._opened = opened
        manifest = dataset.manifest
        self._features = [f.feature for f in manifest.features if f.feature.record_keys]
        self._gone = {split.name: Counted() for split in manifest.splits}
        self._seen = {split.name: Counted() for split in manifest.splits}
        self._kept: list[CopiedShard] = []
        self._cut: list[CopiedShard] = []
        self._dropped: list[CopiedShard] = []
        for split in manifest.splits:
            self._sort(split)
        self.whole, self.changed = len(self._kept), len(self._cut)

    def _sort(self, split: SplitFacts) -> None:
        """Tells shards that stay as they are from those that are cut or left out."""
        mask = self._chosen.kept.get(split.name)
        start = 0
        for facts in split.shards:
            stop = start + facts.records
            kept = (
                np.zeros(facts.records, np.bool_) if mask is None else mask[start:stop]
            )
            piece = CopiedShard(self._dataset, split.name, facts, start, kept)
            start = stop
            if mask is None:
                self._dropped.append(piece)
            elif kept.all() and self._changed(piece) is None:
                self._kept.append(piece)
            else:
                self._cut.append(piece)

    def write(self, store: Store) -> tuple[SplitFacts, ...]:
        """Writes the shards to where a store has them; returns the splits."""
        written: dict[str, ShardFacts] = {}
        for name, piece in self.sources().items():
            written[name], gone, seen = copied(
                *(piece, name, self._changed(piece)),
                *(self._features, store, self._opened),
            )
            self._gone[piece.split].add(gone.facts)
            self._seen[piece.split].add(seen.facts)
        splits = [
            s for s in self._dataset.manifest.splits if s.name in self._chosen.kept
        ]
        return tuple(
            SplitFacts(split.name, tuple(written[s.file] for s in split.shards))
            for split in splits
        )

    def sources(self) -> dict[str, CopiedShard]:
        """Returns where the records of each shard that is written come from."""
        return {piece.facts.file: piece for piece in (*self._kept, *self._cut)}

    def _changed(self, piece: CopiedShard) -> Changed | None:
        """Returns which records of a shard get other class ids; None for none."""
        touched = self._chosen.relabelled.get(piece.split)
        if touched is None or self._relabelling is None:
            return None
        mask = touched[piece.first : piece.first + piece.facts.records]
        ids = {self._relabelling.key: self._relabelling.changes.ids}
        return Changed(mask, ids) if mask.any() else None

    def facts(
        self, splits: Sequence[SplitFacts]
    ) -> tuple[tuple[SplitFacts, ...], tuple[FeatureFacts, ...]]:
        """Returns the splits with their classes, and what is true of each feature.

        Reads what must be read for it: of shards that the subset has not, or has as
        they are, those with fewer bytes.

        Args:
          splits: as `write` returned them.
        """
        sizes = [
            sum(piece.facts.bytes for piece in part)
            for part in (self._dropped, self._kept)
        ]
        by_rest = sizes[0] <= sizes[1]
        if by_rest:
            self._read(self._dropped, self._gone)
            found = self._by_rest()
        else:
            self._read(self._kept, self._seen)
            found = _merged(self._seen)
        classes: dict[str, dict[str, dict[str, int]]] = {s.name: {} for s in splits}
        features = []
        records = sum(split.records for split in splits)
        for facts in self._dataset.manifest.features:
            feature, statistics = facts.feature, found[facts.feature.name]
            names, ids = self._names(facts)
            total: collections.Counter[int] | None = collections.Counter()
            for name, counts in self._counts(facts, by_rest=by_rest).items():
                if counts is None:
                    total = None
                    continue
                by_name = classes_by_name(feature, counts, names, ids)
                if by_name or feature.kind is Kind.LABEL:
                    classes[name][feature.name] = by_name
                if total is not None:
                    for number, count in counts.items():
                        total[ids.get(number, number)] += count
            if ids:
                statistics = with_ids(statistics, total, len(names))
            if feature.vocabulary is not None and names != tuple(facts.classes):
                feature = dataclasses.replace(feature, vocabulary=names)
            always = statistics.present == records
            features.append(FeatureFacts(feature, statistics, names, always))
        named = (dataclasses.replace(s, classes=classes[s.name]) for s in splits)
        return tuple(named), tuple(features)

    def _counts(
        self, facts: FeatureFacts, *, by_rest: bool
    ) -> dict[str, Mapping[int, int] | None]:
        """Returns by split: class id, before any changed, -> records; None: unknown."""
        out: dict[str, Mapping[int, int] | None] = {}
        name = facts.feature.name
        for split in self._dataset.manifest.splits:
            if split.name not in self._chosen.kept:
                continue
            before = split.classes.get(name)
            gone, seen = (
                part[split.name].facts.get(name, Statistics())
                for part in (self._gone, self._seen)
            )
            if by_rest:
                out[split.name] = counts_left(facts, before, gone)
            else:
                out[split.name] = None if before is None else seen.classes
        return out

    def _names(self, facts: FeatureFacts) -> tuple[tuple[str, ...], Mapping[int, int]]:
        """Returns the class names of a feature, and which ids have changed."""
        if self._relabelling is None or facts.feature.name != self._relabelling.feature:
            return tuple(facts.classes), {}
        return self._relabelling.changes.names, self._relabelling.changes.ids

    def _by_rest(self) -> dict[str, Statistics]:
        """Returns what is true of each feature, from what was left out."""
        whole = [f for f in self._dataset.manifest.features if f.feature.record_keys]
        gone, seen = _merged(self._gone), Counted(_merged(self._seen))
        wanted = open_features(whole, gone, seen.facts)
        for piece in self._kept:
            if not wanted:
                break
            for payloads in piece.payloads(self._opened):
                seen.add(summarized(payloads, wanted, piece.path))
                by_name = {f.feature.name: f for f in whole}
                wanted = open_features(
                    [by_name[each.name] for each in wanted], gone, seen.facts
                )
                if not wanted:
                    break
        exact = {each.name for each in wanted}
        out = {}
        for facts in whole:
            name, before = facts.feature.name, facts.statistics
            present = before.present - gone.get(name, Statistics()).present
            ends = seen.facts.get(name, Statistics()) if name in exact else before
            out[name] = (
                dataclasses.replace(ends, present=present, classes={})
                if present
                else Statistics()
            )
        return out

    def _read(self, pieces: Sequence[CopiedShard], into: Mapping[str, Counted]) -> None:
        for piece in pieces:
            for payloads in piece.payloads(self._opened):
                found = summarized(payloads, self._features, piece.path)
                into[piece.split].add(found)


def _merged(parts: Mapping[str, Counted]) -> dict[str, Statistics]:
    out = Counted()
    for part in parts.values():
        out.add(part.facts)
    return out.facts
