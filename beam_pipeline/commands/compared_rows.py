"""What is known of every record of two datasets: by catalogues, or by shards."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_pipeline.datasets.dataset import Dataset
from beam_pipeline.datasets.derived_files import catalogues_of
from beam_pipeline.reading.reading_plan import Found
from transforms.core.schema import Feature, Kind
from transforms.errors import SpecError, nearest
from transforms.reading.catalogue import Catalogue
from transforms.reading.catalogue_of_shards import rows_of_shard
from transforms.reading.rows import class_names

Longs = npt.NDArray[np.int64]

ORIGIN = ("_origin", "_row")
_KEY = "_key"


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
    """Columns that are looked at.

    Attributes:
      identity: what records are known by; empty for their content.
      label: a feature with class names; empty for none.
    """

    identity: tuple[str, ...] = ()
    label: str = ""

    @property
    def columns(self) -> list[str]:
        """All of them, each once."""
        names = (*self.identity, self.label)
        return [name for name in dict.fromkeys(names) if name]


@dataclasses.dataclass(frozen=True, slots=True)
class Rows:
    """The n records of a dataset, in order.

    Attributes:
      splits: their names.
      split: of each record, a place in `splits`.
      shard: of each record, its number in the split.
      payload: size and CRC32C of each record as one number.
      identity: columns of n values; none where records are known by their content.
      label: n class names; None for none.
    """

    splits: tuple[str, ...]
    split: Longs
    shard: Longs
    payload: Longs
    identity: tuple[pa.Array, ...] = ()
    label: pa.Array | None = None

    def __len__(self) -> int:
        return len(self.split)

    def place(self, number: int) -> str:
        """Returns where a record is, for a person."""
        split, shard = int(self.split[number]), int(self.shard[number])
        same = (self.split[:number] == split) & (self.shard[:number] == shard)
        name = self.splits[split]
        where = f"shard {shard:,}, record {int(np.count_nonzero(same)):,}"
        return f"{name}, {where}" if name else where

    def key(self, number: int) -> str:
        """Returns what a record is known by, for a person; empty for its content."""
        values = [column[number].as_py() for column in self.identity]
        return ", row ".join(str(value) for value in values if value is not None)

    def class_of(self, number: int) -> str:
        """Returns the class of a record; empty for none."""
        return "" if self.label is None else str(self.label[number].as_py() or "")


def rows_of_catalogue(catalogues: dict[str, Catalogue], asked: Asked) -> Rows:
    """Returns the records of a dataset without opening a shard.

    Raises:
      SpecError: a catalogue lacks a column.
      DamageError, OSError: one is damaged, or cannot be read.
    """
    names = ("_shard", "_size", "_crc32c", *asked.columns)
    parts = [
        _compared(batch, number, asked)
        for number, catalogue in enumerate(catalogues.values())
        for batch in catalogue.batches(names, 0, len(catalogue))
    ]
    return _rows(tuple(catalogues), parts, asked)


def rows_read(found: Found, asked: Asked, *, without: frozenset[str]) -> Rows:
    """Returns the records of TFRecord files by reading them.

    Args:
      found: the files.
      asked: what is looked at; the identity is features.
      without: paths of shards that are left out.

    Raises:
      SpecError: there is no such feature, or records cannot be known by it.
      TFRecordError: a file is damaged.
      ExampleError: a record does not hold what a feature must.
    """
    known = {feature.name: feature for feature in found.features}
    for name in asked.identity:
        if name not in known:
            raise SpecError(
                f"--key must name a feature of both datasets; there is no {name!r}"
                f"{nearest(name, known)}."
            )
        if known[name].is_list or known[name].kind in (Kind.BOX, Kind.TENSOR):
            raise SpecError(
                f"--key must name a feature of one value; {name!r} is a "
                f"{_kind(known[name])}."
            )
    features = [known[name] for name in asked.columns]
    classes = class_names(features)
    splits = found.splits or ("",)
    parts = []
    numbers: dict[str, int] = {}
    for split, shard in found.shards:
        number = numbers[split] = numbers.get(split, -1) + 1
        if shard.path in without:
            continue
        for columns in rows_of_shard(shard.path, number, features):
            named = {name: names.take(columns[name]) for name, names in classes.items()}
            # The payloads are let go at once.
            parts.append(_compared({**columns, **named}, splits.index(split), asked))
    return _rows(splits, parts, asked)


def _kind(feature: Feature) -> str:
    return f"list of {feature.kind}s" if feature.is_list else str(feature.kind)


def _compared(
    columns: pa.RecordBatch | Mapping[str, pa.Array], split: int, asked: Asked
) -> pa.Table:
    """Returns what is compared of some records of a split."""
    size, crc = (
        columns[name].to_numpy(zero_copy_only=False).astype(np.int64)
        for name in ("_size", "_crc32c")
    )
    numbers = {
        "split": np.full(len(size), split, np.int64),
        "shard": columns["_shard"].cast(pa.int64()),
        "payload": size << 32 | crc,
    }
    values = {f"of {name}": _comparable(columns[name]) for name in asked.columns}
    return pa.table(numbers | values)


def _comparable(column: pa.Array) -> pa.Array:
    """Returns a column of integers, or of values as texts or bytes."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if pa.types.is_integer(kind):
        return column.cast(pa.int64())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return column.cast(pa.large_binary())
    return column.cast(pa.large_string())


def _rows(splits: tuple[str, ...], parts: Sequence[pa.Table], asked: Asked) -> Rows:
    none = dict.fromkeys(("split", "shard", "payload"), pa.array([], pa.int64()))
    none |= {f"of {name}": pa.array([], pa.large_string()) for name in asked.columns}
    table = pa.concat_tables(parts) if parts else pa.table(none)
    columns = {name: table[name].combine_chunks() for name in table.column_names}
    return Rows(
        splits,
        columns["split"].to_numpy(zero_copy_only=False),
        columns["shard"].to_numpy(zero_copy_only=False),
        columns["payload"].to_numpy(zero_copy_only=False),
        tuple(columns[f"of {name}"] for name in asked.identity),
        columns[f"of {asked.label}"] if asked.label else None,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Both:
    """The records of two datasets, and how they are known.

    Attributes:
      asked: the columns.
      reads: see `Differences`.
      same: how many records are in shards that are the same in both.
    """

    one: Rows
    other: Rows
    asked: Asked
    reads: str
    same: int = 0


def load_both(
    found: tuple[Found, Found],
    datasets: list[Dataset | None],
    key: str,
    label: str,
    *,
    exact: bool,
) -> Both:
    """Returns the records of two datasets.

    Args:
      found: their files.
      datasets: what their manifests say; None for files without one.
      key, exact: see `beam_pipeline.commands.diff.compare`.
      label: that both have; empty for none.

    Errors are those of `compare`.
    """
    catalogues = []
    if not exact:
        catalogues = [catalogues_of(each) for each in datasets if each is not None]
    if len(catalogues) == 2 and all(catalogues):
        for asked in _asked(catalogues, key, label):
            one, other = (rows_of_catalogue(each, asked) for each in catalogues)
            # Of the origin, the row is missing where that is a file of one record.
            known = (rows.identity[0] for rows in (one, other) if asked.identity)
            if key or not any(column.null_count for column in known):
                return Both(one, other, asked, "catalogues")
    key = key or _key_column(found, datasets)
    asked = Asked((key,) if key else (), label)
    without = [frozenset[str](), frozenset[str]()]
    same = 0
    if not exact and _classes(found[0], label) == _classes(found[1], label):
        without, same = _same_shards(*found)
    one, other = (
        rows_read(each, asked, without=left)
        for each, left in zip(found, without, strict=True)
    )
    return Both(one, other, asked, "records", same)


def _key_column(found: tuple[Found, Found], datasets: list[Dataset | None]) -> str:
    """Returns the feature that both datasets were made with as key; empty for none."""
    columns = {
        "" if each is None else str(each.manifest.settings.get("key_column") or "")
        for each in datasets
    }
    name = columns.pop() if len(columns) == 1 else ""
    known = [{feature.name for feature in each.features} for each in found]
    return name if all(name in names for names in known) else ""


def _asked(
    catalogues: list[dict[str, Catalogue]], key: str, label: str
) -> Iterator[Asked]:
    """Yields what can be looked at in catalogues, the best first."""
    columns = [
        set(catalogue.schema.names)
        for each in catalogues
        for catalogue in each.values()
    ]
    shared = set.intersection(*columns)
    label = label if label in shared else ""
    ways = [(key,)] if key else [(_KEY,), ORIGIN, ()]
    for identity in ways:
        if shared.issuperset(identity):
            yield Asked(identity, label)


def _classes(found: Found, label: str) -> tuple[str, ...]:
    return next(
        (tuple(f.vocabulary or ()) for f in found.features if f.name == label), ()
    )


def _same_shards(first: Found, second: Found) -> tuple[list[frozenset[str]], int]:
    """Returns the paths of shards that are stated to be the same, and their records."""
    there: dict[tuple[object, ...], list[str]] = {}
    for split, shard in second.shards:
        if shard.crc32c is not None:
            facts = (split, shard.bytes, shard.crc32c, shard.records)
            there.setdefault(facts, []).append(shard.path)
    one, other, records = set(), set(), 0
    for split, shard in first.shards:
        rivals = there.get((split, shard.bytes, shard.crc32c, shard.records))
        if rivals:
            one.add(shard.path)
            other.add(rivals.pop())
            records += shard.records or 0
    return [frozenset(one), frozenset(other)], records
