"""What is asked of a subset, and which records of its dataset that means."""

import collections
import csv
import dataclasses
import hashlib
import io
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beam_pipeline.reading.open_dataset import OpenDataset, condition_of, label_of
from transforms.core.arrays import is_bytes, values_and_rows
from transforms.core.manifest import Manifest
from transforms.core.placing.vocabulary import ClassChanges, class_changes
from transforms.core.schema import Kind
from transforms.errors import InputError, SpecError, UsageError, nearest, shortened
from transforms.reading.catalogue import Catalogue
from transforms.storage.files import storage


@dataclasses.dataclass(frozen=True, slots=True)
class Keys:
    """Keys whose records are left out.

    Attributes:
      keys: as text.
      sha256: of the file that listed them. The keys themselves go nowhere else: they
        may be those of people who are to be forgotten.
      feature: that holds the key of each record; empty for the dataset's key column.
    """

    keys: frozenset[str]
    sha256: str
    feature: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """What is asked of a subset.

    Attributes:
      split: its only split; empty for all.
      label: its only class; empty for all.
      where: the condition that its rows meet; empty for none.
      dropped: whose records are left out; None for nobody's.
      relabel: old class name -> new one.
      relabel_feature: whose classes these are; empty for the label.
    """

    split: str = ""
    label: str = ""
    where: str = ""
    dropped: Keys | None = None
    relabel: dict[str, str] = dataclasses.field(default_factory=dict)
    relabel_feature: str = ""

    def to_json(self) -> dict[str, Any]:
        """Returns what the manifest says of it: only what was asked."""
        out: dict[str, Any] = {
            name: value
            for name in ("split", "label", "where", "relabel")
            if (value := getattr(self, name))
        }
        if self.relabel_feature:
            out["relabel_feature"] = self.relabel_feature
        if self.dropped is not None:
            out["dropped_keys"] = {
                "feature": self.dropped.feature,
                "keys": len(self.dropped.keys),
                "sha256": self.dropped.sha256,
            }
        return out


def read_keys(path: str, feature: str = "") -> Keys:
    """Returns the keys of a file: one a line, empty lines left out.

    Raises:
      InputError: it holds no key, or is not UTF-8.
      OSError: it cannot be read.
    """
    data = storage(path).read_bytes()
    lines = _text(data, path).split("\n")
    keys = frozenset(line.removesuffix("\r") for line in lines) - {""}
    if not keys:
        raise InputError(f"A file of keys must list one key a line; {path!r} is empty.")
    return Keys(keys, hashlib.sha256(data).hexdigest(), feature)


def read_relabelling(path: str) -> dict[str, str]:
    """Returns old class name -> new one, from a CSV file with a line for each.

    A first line `old,new` is the header.

    Raises:
      InputError: a line has another number of columns, or the file has none.
      SpecError: a class is to get two names.
      OSError: it cannot be read.
    """
    text = _text(storage(path).read_bytes(), path)
    out: dict[str, str] = {}
    for number, row in enumerate(csv.reader(io.StringIO(text, newline="")), 1):
        if not row or (number == 1 and row == ["old", "new"]):
            continue
        if len(row) != 2:
            raise InputError(
                f"Each line of {path!r} must hold an old class name and a new one; "
                f"line {number:,} has {len(row):,} columns."
            )
        old, new = row
        if out.setdefault(old, new) != new:
            raise SpecError(
                f"A class gets one new name; {path!r} says that {old!r} is to be "
                f"called {out[old]!r} and {new!r}."
            )
    if not out:
        raise InputError(
            f"A file of new class names must have a line OLD,NEW for each; {path!r} "
            f"has none."
        )
    return out


def _text(data: bytes, path: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path!r} must be UTF-8; the byte at {error.start:,} is not."
        ) from error


Mask = npt.NDArray[np.bool_]

_ROWS = 65_536


@dataclasses.dataclass(frozen=True, slots=True)
class Relabelling:
    """New class names of a feature.

    Attributes:
      feature: its name.
      key: of the class ids in the records.
      changes: of its classes.
    """

    feature: str
    key: str
    changes: ClassChanges


@dataclasses.dataclass(frozen=True, slots=True)
class Chosen:
    """The records of a subset.

    Attributes:
      kept: split -> n bools for its n records; other splits are left out whole.
      relabelled: split -> n bools, true where a class id changes; splits without any
        are left out.
      skipped: how many records were left out, by reason.
      unknown_keys: how many keys are those of no record that was looked at.
    """

    kept: dict[str, Mask]
    relabelled: dict[str, Mask]
    skipped: dict[str, int]
    unknown_keys: int = 0


def relabelling_of(
    dataset: OpenDataset, manifest: Manifest, request: Request
) -> Relabelling | None:
    """Returns what becomes of the classes; None where nothing was asked.

    Raises:
      UsageError: it is not clear of which feature they are.
      SpecError: there is no such feature, or no such class.
    """
    if not request.relabel:
        return None
    labels = [n for n, each in dataset.features.items() if each.kind is Kind.LABEL]
    name = request.relabel_feature
    if name and name not in labels:
        raise SpecError(
            f"--relabel-feature must name a label; there is no label {name!r}"
            f"{nearest(name, labels)}."
        )
    if not name:
        label = label_of(dataset.features.values())
        if label is None and len(labels) != 1:
            shown = f"several labels: {', '.join(labels)}" if labels else "no label"
            raise UsageError(
                f"It must be clear whose classes get new names; {dataset.path} has "
                f"{shown}. Name one with --relabel-feature."
            )
        name = labels[0] if label is None else label.name
    (facts,) = (each for each in manifest.features if each.feature.name == name)
    changes = class_changes(facts.classes, request.relabel)
    return Relabelling(name, facts.feature.record_keys[0], changes)


@dataclasses.dataclass(frozen=True, slots=True)
class Columns:
    """What tells values of records: the catalogue where it has them, else the shards.

    Attributes:
      dataset: opened with class names.
      catalogues: of its splits; empty for none.
    """

    dataset: OpenDataset
    catalogues: Mapping[str, Catalogue]

    @property
    def names(self) -> list[str]:
        """The features, and what else every catalogue has."""
        schemas = [catalogue.schema.names for catalogue in self.catalogues.values()]
        shared = (
            [n for n in schemas[0] if all(n in s for s in schemas)] if schemas else []
        )
        return [*dict.fromkeys((*self.dataset.features, *shared))]

    def _of(self, split: str, name: str) -> Iterator[pa.Array]:
        """Yields a column of a split, in the order of its records."""
        catalogue = self.catalogues.get(split)
        if catalogue is not None and name in catalogue.schema.names:
            batches = catalogue.batches([name], 0, len(catalogue))
        else:
            batches = self.dataset[split].select([name]).batches(_ROWS)
        for batch in batches:
            yield batch.column(0)

    def rows_where(
        self, split: str, name: str, test: Callable[[pa.Array], pa.BooleanArray]
    ) -> Mask:
        """Returns n bools, true for records with a value of which a test is true."""
        parts = [np.zeros(0, np.bool_)]
        for column in self._of(split, name):
            values, rows = values_and_rows(column)
            hit = np.zeros(len(column), np.bool_)
            hit[rows[test(values).to_numpy(zero_copy_only=False)]] = True
            parts.append(hit)
        return np.concatenate(parts)


def choose(
    columns: Columns, request: Request, relabelling: Relabelling | None
) -> Chosen:
    """Returns which records a subset holds.

    Reads the columns that were asked about, of every record that may be left out.
    Memory is some bytes a record.

    Args:
      columns: of the dataset.
      request: what is asked of the subset.
      relabelling: of its classes.

    Raises:
      SpecError: a split, class, feature or condition is none of the dataset's.
      UsageError: the feature with the keys must be named.
      InputError: no record of the dataset has one of the keys.
      DamageError: a record is damaged.
    """
    dataset = columns.dataset
    condition = condition_of(dataset, request.label, request.where)
    skipped: collections.Counter[str] = collections.Counter()
    kept, relabelled = {}, {}
    search = None if request.dropped is None else _Search(columns, request.dropped)
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
        if relabelling is not None and relabelling.changes.ids:
            touched = _touched(columns, name, relabelling) & mask
            if touched.any():
                relabelled[name] = touched
    if search is not None and not request.split:
        # Of one split, the keys may be those of another.
        search.check()
    unknown = 0 if search is None else search.unknown
    counts = {reason: count for reason, count in sorted(skipped.items()) if count}
    return Chosen(kept, relabelled, counts, unknown)


class _Search:
    """Looks for the records of some keys."""

    def __init__(self, columns: Columns, dropped: Keys) -> None:
        name, dataset = dropped.feature, columns.dataset
        if not name:
            raise UsageError(
                f"The feature that holds the keys must be named with --key-feature; "
                f"{dataset.path} was made without a key column. It has: "
                f"{', '.join(dataset.features)}."
            )
        if name not in columns.names:
            raise SpecError(
                f"--key-feature must name a feature; there is no {name!r}"
                f"{nearest(name, columns.names)}."
            )
        self._name, self._columns = name, columns
        self._keys = pa.array(sorted(dropped.keys), pa.large_string())
        self._seen = np.zeros(len(self._keys), np.bool_)
        self._example = ""

    def check(self) -> None:
        """Raises InputError where no record had one of the keys.

        Who erases a person must not be told that it is done when nobody was erased.
        """
        if not self._seen.any():
            raise InputError(
                f"A file of keys must have keys of the dataset; no record has one of "
                f"these {len(self._keys):,} in its feature {self._name!r}, which holds "
                f"keys like {shortened(self._example)!r}. Nothing was written. Correct "
                f"the keys, or name their feature with --key-feature."
            )

    @property
    def unknown(self) -> int:
        """How many keys no record has had."""
        return int(np.count_nonzero(~self._seen))

    def hits(self, split: str) -> Mask:
        """Returns n bools, true for records that have one of the keys."""
        return self._columns.rows_where(split, self._name, self._are_keys)

    def _are_keys(self, values: pa.Array) -> pa.BooleanArray:
        texts = _as_text(values, self._name)
        if not self._example:
            self._example = next((t for t in texts[:1].to_pylist() if t), "")
        places = pc.index_in(texts, self._keys)
        self._seen[places.drop_null().to_numpy()] = True
        return places.is_valid()


def _touched(columns: Columns, split: str, relabelling: Relabelling) -> Mask:
    """Returns n bools, true for records with a class that gets another id."""
    classes = columns.dataset.classes[relabelling.feature]
    names = pa.array(
        [classes[number] for number in relabelling.changes.ids], pa.string()
    )

    def changes(values: pa.Array) -> pa.BooleanArray:
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        return pc.is_in(values.cast(pa.string()), names)

    return columns.rows_where(split, relabelling.feature, changes)


def _as_text(values: pa.Array, name: str) -> pa.Array:
    """Returns keys as a file of keys spells them."""
    kind = values.type
    if pa.types.is_dictionary(kind):
        values = values.dictionary_decode()
        kind = values.type
    if not (pa.types.is_integer(kind) or is_bytes(kind)):
        raise UsageError(
            f"Keys are whole numbers or texts; the feature {name!r} is {kind}. Name "
            f"another with --key-feature."
        )
    try:
        return values.cast(pa.large_string())
    except pa.ArrowInvalid as error:
        raise UsageError(
            f"Keys that are bytes must be UTF-8; the feature {name!r} holds others."
        ) from error
