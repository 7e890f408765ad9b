"""The records of two datasets as `diff` compares them: by catalogues, or by shards."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beam_pipeline.reading.reading_plan import Found
from transforms.core.schema import Kind
from transforms.errors import SpecError, nearest
from transforms.reading.catalogue import Catalogue
from transforms.reading.catalogue_of_shards import rows_of_shard
from transforms.reading.rows import class_names

Longs = npt.NDArray[np.int64]
Batches = Iterator[tuple[str, Mapping[str, pa.Array]]]

# Columns of catalogues that tell records apart, the best first; none: their content.
_KNOWN_BY = (("_key",), ("_origin", "_row"), ())
# Columns that every record has.
_PAYLOAD = ("_shard", "_size", "_crc32c")


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
    identity: tuple[pa.Array, ...]
    label: pa.Array | None

    def place(self, number: int) -> str:
        """Returns where a record is, for a person."""
        split, shard = int(self.split[number]), int(self.shard[number])
        before = (self.split[:number] == split) & (self.shard[:number] == shard)
        name = self.splits[split]
        where = f"shard {shard:,}, record {int(np.count_nonzero(before)):,}"
        return f"{name}, {where}" if name else where

    def key(self, number: int) -> str:
        """Returns what a record is known by, for a person; empty for its content."""
        values = [column[number].as_py() for column in self.identity]
        return ", row ".join(str(value) for value in values if value is not None)

    def class_of(self, number: int) -> str:
        """Returns the class of a record; empty for none."""
        return "" if self.label is None else str(self.label[number].as_py() or "")


def of_catalogues(
    catalogues: Sequence[Mapping[str, Catalogue]], key: str, label: str
) -> tuple[Rows, Rows, tuple[str, ...]] | None:
    """Returns the records of two datasets, and what they are known by.

    None where the catalogues lack the key.
    """
    shared = set.intersection(
        *(set(c.schema.names) for by_split in catalogues for c in by_split.values())
    )
    label = label if label in shared else ""
    for identity in [(key,)] if key else _KNOWN_BY:
        if not shared.issuperset(identity):
            continue
        names = [*dict.fromkeys((*_PAYLOAD, *identity, *filter(None, [label])))]
        one, other = (
            _rows(_batches(by_split, names), (*by_split,), identity, label)
            for by_split in catalogues
        )
        # Of the origin, the row is missing where that is a file of one record.
        first = (rows.identity[0] for rows in (one, other) if identity)
        if key or not any(column.null_count for column in first):
            return one, other, identity
    return None


def _batches(catalogues: Mapping[str, Catalogue], names: Sequence[str]) -> Batches:
    """Yields columns of catalogues, and the split that they are of."""
    for split, catalogue in catalogues.items():
        for batch in catalogue.batches(names, 0, len(catalogue)):
            yield split, dict(zip(names, batch.columns, strict=True))


def of_shards(records: Found, identity: tuple[str, ...], label: str) -> Rows:
    """Returns the records of TFRecord files by reading them.

    Raises:
      SpecError: there is no such feature, or records cannot be known by it.
      TFRecordError: a file is damaged.
      ExampleError: a record does not hold what a feature must.
    """
    by_name = {feature.name: feature for feature in records.features}
    for name in identity:
        if name not in by_name:
            raise SpecError(
                f"--key must name a feature of both datasets; there is no {name!r}"
                f"{nearest(name, by_name)}."
            )
        feature = by_name[name]
        if feature.is_list or feature.kind in (Kind.BOX, Kind.TENSOR):
            what = "list of " if feature.is_list else ""
            raise SpecError(
                f"--key must name a feature of one value; {name!r} is a {what}"
                f"{feature.kind}{'s' if what else ''}."
            )
    names = dict.fromkeys((*identity, *filter(None, [label])))
    features = [by_name[name] for name in names]
    classes = class_names(features)

    def batches() -> Batches:
        numbers: dict[str, int] = {}
        for split, shard in records.shards:
            number = numbers[split] = numbers.get(split, -1) + 1
            for columns in rows_of_shard(shard.path, number, features):
                named = {n: texts.take(columns[n]) for n, texts in classes.items()}
                yield split, {**columns, **named}

    return _rows(batches(), records.splits or ("",), identity, label)


def _rows(
    batches: Batches, splits: tuple[str, ...], identity: tuple[str, ...], label: str
) -> Rows:
    """Returns what is compared of the records in batches."""
    names = (*identity, *filter(None, [label]))
    empty = pa.array([], pa.int64())
    split_parts, shard_parts, payload_parts = [], [], []
    columns: list[list[pa.Array]] = [[] for _ in names]
    for split, batch in batches:
        size, crc = (
            batch[name].to_numpy(zero_copy_only=False).astype(np.int64)
            for name in ("_size", "_crc32c")
        )
        split_parts.append(np.full(len(size), splits.index(split), np.int64))
        shard_parts.append(batch["_shard"].to_numpy(zero_copy_only=False))
        payload_parts.append(size << 32 | crc)
        for column, name in zip(columns, names, strict=True):
            # The other columns, which may be large, are let go at once.
            column.append(_comparable(batch[name]))
    values = [pa.concat_arrays(some) if some else empty for some in columns]
    return Rows(
        splits,
        _numbers(split_parts),
        _numbers(shard_parts),
        _numbers(payload_parts),
        tuple(values[: len(identity)]),
        values[-1] if label else None,
    )


def _numbers(parts: Sequence[npt.NDArray[np.integer]]) -> Longs:
    return np.concatenate([np.zeros(0, np.int64), *parts]).astype(np.int64)


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


def codes(one: pa.Array, other: pa.Array) -> tuple[Longs, Longs]:
    """Returns a number for each value of two columns; -1 for missing ones."""
    count = len(one)
    if one.type != other.type:
        one, other = (column.cast(pa.large_string()) for column in (one, other))
    both = pa.concat_arrays([one, other]).dictionary_encode()
    codes = pc.fill_null(both.indices, -1).to_numpy(zero_copy_only=False)
    return codes[:count].astype(np.int64), codes[count:].astype(np.int64)


def sides_of(one: Rows, other: Rows) -> tuple[Longs, Longs]:
    """Returns what pairs are made from: id, split and payload of each record, (3, n).

    Equal numbers mean the same in both; several records may have one id.
    """
    names = [*dict.fromkeys((*one.splits, *other.splits))]
    splits = [
        np.array([names.index(name) for name in rows.splits], np.int64)[rows.split]
        for rows in (one, other)
    ]
    ids = one.payload, other.payload
    if one.identity:
        ids = _joined([*map(codes, one.identity, other.identity)])
    payloads = one.payload, other.payload
    first, second = map(np.stack, zip(ids, splits, payloads, strict=True))
    return first, second


@dataclasses.dataclass(frozen=True, slots=True)
class Pairs:
    """Records of two datasets that are each other.

    Attributes:
      first, second: m places in the first and in the second dataset.
      gone, added: places of records that are in the first or in the second alone,
        ascending.
    """

    first: Longs
    second: Longs
    gone: Longs
    added: Longs


def paired(one: Longs, other: Longs) -> Pairs:
    """Returns the pairs of records with the same id.

    Of several with one id those make a pair that are equal, then those of one split,
    then the others, in their order.

        >>> one = np.array([[7, 7, 8], [0, 1, 0], [1, 2, 3]])
        >>> other = np.array([[9, 7], [0, 1], [4, 2]])
        >>> found = paired(one, other)
        >>> found.first, found.second, found.gone, found.added
        (array([1]), array([1]), array([0, 2]), array([0]))
    """
    left, right = np.arange(one.shape[1]), np.arange(other.shape[1])
    first, second = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for count in (3, 2, 1):
        keys = _joined([*zip(one[:count, left], other[:count, right], strict=True)])
        mine, others = _matched(*keys)
        first.append(left[mine])
        second.append(right[others])
        left, right = np.delete(left, mine), np.delete(right, others)
    return Pairs(np.concatenate(first), np.concatenate(second), left, right)


def _joined(columns: list[tuple[Longs, Longs]]) -> tuple[Longs, Longs]:
    """Returns a number for each row of columns: equal where all columns are."""
    count = len(columns[0][0])
    numbers = np.zeros(count + len(columns[0][1]), np.int64)
    for pair in columns:
        values, codes = np.unique(np.concatenate(pair), return_inverse=True)
        # Both are below the number of rows, so the product fits.
        numbers = numbers * max(len(values), 1) + codes
        numbers = np.unique(numbers, return_inverse=True)[1].astype(np.int64)
    return numbers[:count], numbers[count:]


def _matched(one: Longs, other: Longs) -> tuple[Longs, Longs]:
    """Returns the places of equal keys, the k-th of one with the k-th of the other."""
    left, right = _occurrences(one), _occurrences(other)
    most = 1 + max(
        (int(ranks.max()) for ranks in (left, right) if len(ranks)), default=0
    )
    _, mine, others = np.intersect1d(
        one * most + left, other * most + right, assume_unique=True, return_indices=True
    )
    order = np.argsort(mine)
    return mine[order], others[order]


def _occurrences(keys: Longs) -> Longs:
    """Returns how many equal keys come before each."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    is_first = np.ones(len(keys), np.bool_)
    is_first[1:] = ordered[1:] != ordered[:-1]
    firsts = np.flatnonzero(is_first)
    counts = np.diff(firsts, append=len(keys))
    ranks = np.empty(len(keys), np.int64)
    ranks[order] = np.arange(len(keys)) - np.repeat(firsts, counts)
    return ranks
