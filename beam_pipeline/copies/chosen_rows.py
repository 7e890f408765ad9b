"""What is asked of a subset, and which records of its dataset that means."""

import collections
import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beam_pipeline.datasets.open_dataset import OpenDataset, condition_of
from transforms.core.arrays import decoded, is_bytes, values_and_rows
from transforms.core.manifest import Manifest
from transforms.errors import InputError, SpecError, UsageError, nearest, shortened
from transforms.reading.catalogue import Catalogue
from transforms.storage.files import storage

Mask = npt.NDArray[np.bool_]
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
