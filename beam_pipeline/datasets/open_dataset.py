"""`open_dataset`: a dataset as sequences of rows, without TensorFlow and Beam."""

import dataclasses
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from beam_pipeline.datasets.reading_plan import Readable, Said, digest_of, find_records
from transforms.core.files import PART_PREFIX
from transforms.core.schema import Feature, Kind
from transforms.errors import (
    DamageError,
    SpecError,
    UsageError,
    nearest,
    raising_in_python,
)
from transforms.reading.condition import quoted
from transforms.reading.records import Records, Split
from transforms.reading.rows import Looks
from transforms.reading.view import View
from transforms.storage.paths import absolute, is_remote, plain


@raising_in_python()
def open_dataset(
    path: str | os.PathLike[str],
    *,
    labels: Literal["ids", "names"] = "ids",
    images: Literal["bytes", "array"] = "bytes",
    times: Literal["datetime", "int"] = "datetime",
    missing: Mapping[str, Any] | Literal["schema"] | None = None,
    check: bool = True,
    features: Mapping[str, Said] | None = None,
) -> "OpenDataset":
    """Returns a dataset whose splits are sequences of rows.

        photos = open_dataset("out/photos")
        train = photos["train"]
        len(train), train[7], train.shuffled(seed=1)[:100]

    Opening reads no record. Records are read when they are asked for, each by itself or
    with its neighbours, and their checksums are compared.

    Args:
      path: a dataset's folder, on a disk or in an object store; a folder of TFDS (that
        of one version, with `dataset_info.json`); or TFRecord files: a folder, a glob
        or one file.
      labels: "ids" gives class ids, "names" class names.
      images: "bytes" gives the file, "array" its pixels.
      times: "datetime" gives timestamps as datetimes in UTC, "int" as stored.
      missing: feature -> what rows have that lack it; "schema" takes the values that
        the programs of `code` take, for what is given as it is stored. None gives
        None.
      check: whether checksums of records are compared; those of lengths always are.
      features: of TFRecord files without metadata, what they hold, as `ReadDataset`
        takes it. None takes what the first records hold.

    Raises:
      UsageError: nothing is there that can be read.
      SpecError: an argument is wrong.
      DamageError: the manifest is damaged.
      StorageError: the disk or the store gives no answer.
    """
    looks = Looks(labels, images, times, {} if missing == "schema" else missing)
    given = os.fspath(path)
    contents = find_records(given, features or {})
    if missing == "schema":
        stored = {f.name for f in contents.features if looks.gives_stored(f)}
        absent = {name: v for name, v in contents.absent.items() if name in stored}
        looks = dataclasses.replace(looks, missing=absent)
    looks.check_names(contents.features)
    return OpenDataset(given, contents, looks, check, features)


class OpenDataset:
    """The splits of a dataset, by name; see `open_dataset`.

    photos["train"], photos.splits, photos.features, photos.classes["label"]
    """

    def __init__(
        self,
        path: str,
        found: Readable,
        looks: Looks,
        check: bool,
        said: Mapping[str, Said] | None,
    ) -> None:
        self.path = absolute(plain(path))
        # Another process may work in another folder; it needs what is said of a store.
        self._again = path if is_remote(path) else self.path
        self._found = found
        self._looks = looks
        self._check = check
        self._said = said
        self._opened: dict[str, Split] = {}

    @property
    def splits(self) -> Mapping[str, int | None]:
        """The number of records of each split, by its name; None for not known yet."""
        out: dict[str, int | None] = dict.fromkeys(self._found.splits or ("",), 0)
        for name, shard in self._found.shards:
            before = out.get(name, 0)
            both = before is not None and shard.records is not None
            out[name] = (before or 0) + (shard.records or 0) if both else None
        return out

    @property
    def features(self) -> Mapping[str, Feature]:
        """The features of the rows, by name."""
        return {feature.name: feature for feature in self._found.features}

    @property
    def classes(self) -> Mapping[str, tuple[str, ...]]:
        """The class names of each label, in the order of their ids."""
        labels = (f for f in self._found.features if f.kind is Kind.LABEL)
        return {label.name: label.vocabulary or () for label in labels}

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of the parts that it consists of; empty for a dataset of none."""
        return tuple(name.removeprefix(PART_PREFIX) for name in self._found.parts)

    def part(self, name: str) -> "OpenDataset":
        """Returns one part, opened in the same way.

            events = open_dataset("sets/events")
            events.part("2026-11-03")["train"]

        Raises:
          SpecError: there is no such part.
        """
        if name not in self.parts:
            raise SpecError(
                f"{self.path} has no part {name!r:.80}{nearest(str(name), self.parts)}."
            )
        path = os.path.join(self._again, f"{PART_PREFIX}{name}")
        return OpenDataset(path, find_records(path, {}), self._looks, self._check, None)

    def __getitem__(self, split: str) -> View:
        """Returns all rows of a split.

        Raises:
          SpecError: there is no such split.
        """
        return View(self._split(split))

    def __iter__(self) -> Iterator[str]:
        return iter(self.splits)

    def __len__(self) -> int:
        return len(self.splits)

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{name or 'records'}: {'?' if count is None else f'{count:,}'}"
            for name, count in self.splits.items()
        )
        return f"<dataset {self.path} ({shown})>"

    def _split(self, name: str) -> Split:
        if name not in self.splits:
            near = nearest(str(name), self.splits)
            raise SpecError(f"{self.path} has no split {name!r}{near}.")
        if name not in self._opened:
            shards = [shard for split, shard in self._found.shards if split == name]
            records = Records(shards, self._found.edition, check=self._check)
            how = (self._looks, self._check, self._said)
            again = _split_again, (self._again, digest_of(self._found), name, *how)
            self._opened[name] = Split(
                *(records, self.features, self._looks, again, self.path, name),
                catalogue=self._found.catalogues.get(name),
            )
        return self._opened[name]


def _split_again(
    path: str,
    digest: str,
    split: str,
    looks: Looks,
    check: bool,
    said: Mapping[str, Said] | None,
) -> Split:
    """Returns a split that another process has opened.

    Raises:
      DamageError: the dataset is another one now.
    """
    contents = find_records(path, said or {})
    if digest_of(contents) != digest:
        raise DamageError(
            f"The dataset must stay as it was when it was opened; {path} was replaced "
            f"while open. Open it again."
        )
    return OpenDataset(path, contents, looks, check, said)._split(split)


_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")


def label_of(features: Iterable[Feature]) -> Feature | None:
    """Returns the label to predict of an `OpenDataset`'s features, or the only one."""
    labels = [f for f in features if f.kind is Kind.LABEL and not f.shape]
    candidates = [feature for feature in labels if feature.is_label] or labels
    return candidates[0] if len(candidates) == 1 else None


def names_files(feature: Feature) -> bool:
    """Whether a feature of an `OpenDataset` names the file of each record."""
    return feature.name.rpartition("/")[2] == "filename" and feature.kind is Kind.TEXT


def number_to_predict(dataset: OpenDataset) -> Feature | None:
    """Returns the integer of an `OpenDataset` that is the class of each row."""
    labels = (f for f in dataset.features.values() if f.is_label and not f.shape)
    return next((f for f in labels if f.kind is Kind.INT64), None)


def condition_of(dataset: OpenDataset, label: str, where: str) -> str:
    """Returns a condition over an `OpenDataset` as one text; empty for none.

    Args:
      dataset: that it is over.
      label: the name of a class, or the number to predict; empty for all.
      where: a condition; empty for none.

    Raises:
      UsageError: it is not clear of which feature the class is.
      SpecError: there is no such class.
    """
    if not label:
        return where
    features = dataset.features
    feature = label_of(features.values()) or number_to_predict(dataset)
    if feature is None:
        names = [n for n, e in features.items() if e.kind is Kind.LABEL]
        shown = f"several: {', '.join(names)}" if names else "none"
        raise UsageError(
            f"--label needs a dataset with one label; {dataset.path} has {shown}. "
            f"Use --where, as in --where \"kind == 'cat'\"."
        )
    if feature.kind is not Kind.LABEL:
        if not _WHOLE.fullmatch(label):
            raise SpecError(
                f"--label must be a number, for {feature.name!r}, which is to be "
                f"predicted, holds numbers; found {label!r}."
            )
        value = str(int(label))
    else:
        value, classes = repr(label), dataset.classes[feature.name]
        if classes and label not in classes:
            raise SpecError(
                f"--label must name a class of {feature.name!r}; there is no "
                f"{label!r}{nearest(label, classes)}."
            )
    by_label = f"{quoted(feature.name)} == {value}"
    return f"({where}) and {by_label}" if where else by_label
