"""The command `diff`: what differs between two datasets, record by record.

Records, where they are, their classes, and features. What is compared of records is in
the catalogues; of datasets without them all records are read.
"""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beam_pipeline.datasets.dataset import (
    Dataset,
    has_manifest,
    open_dataset_folder,
)
from beam_pipeline.datasets.derived_files import catalogues_of
from beam_pipeline.reading.open_dataset import label_of
from beam_pipeline.reading.reading_plan import Readable, find_records
from beam_pipeline.terminal.printing import print_prose, print_text, printable
from beam_pipeline.terminal.words import count_text
from transforms.core.schema import Feature, Kind
from transforms.errors import SpecError, nearest
from transforms.reading.catalogue import Catalogue
from transforms.reading.catalogue_of_shards import rows_of_shard
from transforms.reading.rows import class_names
from transforms.storage.paths import plain

Longs = npt.NDArray[np.int64]
_Batches = Iterator[tuple[str, Mapping[str, pa.Array]]]

KINDS = {
    "added": "in the second alone",
    "gone": "in the first alone",
    "changed": "other content, the same class",
    "relabelled": "another class",
    "moved": "in another split",
}
_HOW = {
    "catalogues": "by the catalogues",
    "records": "by the records",
    "digests": "by the digests, which are the same",
}
# Columns of catalogues that tell records apart, the best first; none: their content.
_KNOWN_BY = (("_key",), ("_origin", "_row"), ())
# Columns of every side.
_OWN = ("split", "shard", "payload")
# Columns of catalogues that every record has.
_PAYLOAD = ("_shard", "_size", "_crc32c")


def run(
    first: str, second: str, *, key: str = "", limit: int = 5, as_json: bool = False
) -> int:
    """Prints what `compare` returns; returns 0 where nothing differs, else 1."""
    first, second = plain(first), plain(second)
    differences = compare(first, second, key=key, limit=limit)
    if as_json:
        print_text(json.dumps(differences, indent=1))
    else:
        _print(first, second, differences)
    return 0 if differences["is_equal"] else 1


def compare(
    first: str, second: str, *, key: str = "", limit: int = 5
) -> dict[str, Any]:
    """Compares two datasets, or folders of TFRecord files, record by record.

    By their catalogues where both have one, else by reading all records. Memory is some
    300 bytes a record.

    Args:
      first, second: paths.
      key: the feature that tells records apart; empty for the key in the catalogues,
        or origin and row there; or the key column of both; or the content.
      limit: examples of each kind.

    Returns:
      JSON: the columns that records are `known_by`; what it `reads`; how many
      `records` both have, are `equal`, and differ by the words of `KINDS` (a record can
      be moved and changed); how `features` differ; and `examples` of each kind.

    Raises:
      UsageError, SpecError: there is nothing to compare, or no such feature.
      DamageError: a file is damaged.
    """
    opened = find_records(first, {}), find_records(second, {})
    features = _features(*opened)
    manifests = [
        open_dataset_folder(path, "'diff'") if has_manifest(path) else None
        for path in (first, second)
    ]
    one, other = manifests
    if one and other and one.manifest.digest == other.manifest.digest:
        records = one.manifest.records
        found: dict[str, Any] = {"known_by": [], "reads": "digests"}
        found |= {"records": [records, records], "equal": records, "examples": {}}
        found |= dict.fromkeys(KINDS, 0)
    else:
        found = _differences(*_sides(opened, manifests, key), limit)
    is_equal = not features and not any(found[kind] for kind in KINDS)
    return {"is_equal": is_equal, **found, "features": features}


def _sides(
    opened: Sequence[Readable], datasets: Sequence[Dataset | None], key: str
) -> tuple[pa.Table, pa.Table, Sequence[str], str]:
    """Returns the records of both, what they are known by, and where that was read."""
    labels = [label_of(f for f in side.features if f.vocabulary) for side in opened]
    names = {"" if label is None else label.name for label in labels}
    label = names.pop() if len(names) == 1 else ""
    catalogues = [{} if side is None else catalogues_of(side) for side in datasets]
    if all(catalogues):
        shared = set.intersection(
            *(set(c.schema.names) for by_split in catalogues for c in by_split.values())
        )
        for identity in [(key,)] if key else _KNOWN_BY:
            if not shared.issuperset(identity):
                continue
            columns = (identity, label if label in shared else "")
            one, other = (
                _rows(_of_catalogues(by_split, *columns), *columns)
                for by_split in catalogues
            )
            # Of the origin, the row is missing where that is a file of one record.
            if key or not (one["0"].null_count or other["0"].null_count):
                return one, other, identity, "catalogues"
    if not key:
        keys = {
            str(side.manifest.settings.get("key_column") or "") if side else ""
            for side in datasets
        }
        key = keys.pop() if len(keys) == 1 else ""
        if any(key not in {f.name for f in side.features} for side in opened):
            key = ""
    identity = (key,) if key else ()
    one, other = (
        _rows(_of_shards(side, identity, label), identity, label) for side in opened
    )
    return one, other, identity, "records"


def _features(first: Readable, second: Readable) -> dict[str, str]:
    """Returns how features differ, by their names."""
    one, other = ({f.name: f for f in side.features} for side in (first, second))
    out = {}
    for name in dict.fromkeys((*one, *other)):
        if name not in other:
            out[name] = "in the first alone"
        elif name not in one:
            out[name] = "in the second alone"
        elif _kind(one[name]) != _kind(other[name]):
            kinds = _kind(one[name]), _kind(other[name])
            out[name] = "{} in the first, {} in the second".format(*kinds)
        elif one[name].vocabulary != other[name].vocabulary:
            out[name] = (
                "other class names, or in another order: records whose class has "
                "another id count as changed"
            )
    return out


def _kind(feature: Feature) -> str:
    sizes = ", ".join("any" if size is None else str(size) for size in feature.shape)
    return f"{feature.kind} of shape ({sizes})" if feature.shape else str(feature.kind)


def _of_catalogues(
    catalogues: Mapping[str, Catalogue], identity: Sequence[str], label: str
) -> _Batches:
    """Yields columns of catalogues, and the split that they are of."""
    names = [*dict.fromkeys((*_PAYLOAD, *identity, *filter(None, [label])))]
    for split, catalogue in catalogues.items():
        for batch in catalogue.batches(names, 0, len(catalogue)):
            yield split, dict(zip(names, batch.columns, strict=True))


def _of_shards(records: Readable, identity: Sequence[str], label: str) -> _Batches:
    """Yields the same of TFRecord files by reading them.

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
            raise SpecError(
                f"--key must name a feature of one value; {name!r} is {_kind(feature)}."
            )
    names = dict.fromkeys((*identity, *filter(None, [label])))
    features = [by_name[name] for name in names]
    classes = class_names(features)
    numbers: dict[str, int] = {}
    for split, shard in records.shards:
        number = numbers[split] = numbers.get(split, -1) + 1
        for columns in rows_of_shard(shard.path, number, features):
            named = {n: texts.take(columns[n]) for n, texts in classes.items()}
            yield split, {**columns, **named}


def _rows(batches: _Batches, identity: Sequence[str], label: str) -> pa.Table:
    """Returns what is compared of the records in batches, in their order.

    Columns are `split`, `shard` (its number in the split), `payload` (size and CRC32C
    as one number), `0` and so on (what records are known by, or else their payload),
    and `label` (the class name, if there is one).
    """
    columns: dict[str, list[pa.Array]] = {name: [] for name in _OWN}
    names = {str(n): name for n, name in enumerate(identity)}
    names |= {"label": label} if label else {}
    columns |= {name: [] for name in names}
    for split, batch in batches:
        size, crc = (
            batch[name].to_numpy(zero_copy_only=False).astype(np.int64)
            for name in ("_size", "_crc32c")
        )
        columns["split"].append(pa.repeat(pa.scalar(split), len(size)))
        columns["shard"].append(batch["_shard"].cast(pa.int64()))
        columns["payload"].append(pa.array(size << 32 | crc))
        # The other columns, which may be large, are let go at once.
        for column, name in names.items():
            columns[column].append(_comparable(batch[name]))
    empty = pa.array([], pa.int64())
    arrays = {
        n: pa.concat_arrays(some) if some else empty for n, some in columns.items()
    }
    return pa.table({"0": arrays["payload"], **arrays})


def _place(rows: pa.Table, number: int) -> str:
    """Returns where a record is, for a person."""
    split, shard = rows["split"][number], rows["shard"][number]
    before = rows.slice(0, number)
    same = pc.and_(pc.equal(before["split"], split), pc.equal(before["shard"], shard))
    where = f"shard {shard.as_py():,}, record {pc.sum(same).as_py() or 0:,}"
    return f"{split}, {where}" if split.as_py() else where


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


def paired(one: Sequence[pa.Array], other: Sequence[pa.Array]) -> Pairs:
    """Returns the pairs of records whose first column is the same.

    Of several with one value there those make a pair that are the same in most of the
    other columns, the first of these before the last, in their order.

        >>> one = [pa.array([7, 7, 8]), pa.array([0, 1, 0]), pa.array([1, 2, 3])]
        >>> other = [pa.array([9, 7]), pa.array([0, 1]), pa.array([4, 2])]
        >>> pairs = paired(one, other)
        >>> pairs.first, pairs.second, pairs.gone, pairs.added
        (array([1]), array([1]), array([0, 2]), array([0]))
    """
    count = len(one[0])
    numbers = np.zeros(count + len(other[0]), np.int64)
    levels = []
    for columns in zip(one, other, strict=True):
        # Both factors are at most the number of rows, so the product fits.
        numbers = numbers * (1 + len(numbers)) + _codes(*columns)
        numbers = np.unique(numbers, return_inverse=True)[1].astype(np.int64)
        levels.append(numbers)
    left, right = np.arange(count), np.arange(len(other[0]))
    first, second = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for numbers in reversed(levels):
        mine, others = _matched(numbers[left], numbers[count:][right])
        first.append(left[mine])
        second.append(right[others])
        left, right = np.delete(left, mine), np.delete(right, others)
    return Pairs(np.concatenate(first), np.concatenate(second), left, right)


def _codes(one: pa.Array, other: pa.Array) -> Longs:
    """Returns a number for each value of two columns together; 0 for missing ones."""
    if one.type != other.type:
        one, other = (column.cast(pa.large_string()) for column in (one, other))
    indices = pa.concat_arrays([one, other]).dictionary_encode().indices
    return np.asarray(indices.fill_null(-1).to_numpy(), np.int64) + 1


def _matched(one: Longs, other: Longs) -> tuple[Longs, Longs]:
    """Returns the places of equal keys, the k-th of one with the k-th of the other."""
    left, right = _occurrences(one), _occurrences(other)
    most = 1 + max(left.max(initial=0), right.max(initial=0))
    _, mine, others = np.intersect1d(
        one * most + left, other * most + right, assume_unique=True, return_indices=True
    )
    return mine, others


def _occurrences(keys: Longs) -> Longs:
    """Returns how many equal keys come before each."""
    order = np.argsort(keys, kind="stable")
    _, firsts, counts = np.unique(keys[order], return_index=True, return_counts=True)
    ranks = np.empty(len(keys), np.int64)
    ranks[order] = np.arange(len(keys)) - np.repeat(firsts, counts)
    return ranks


def _differences(
    one: pa.Table, other: pa.Table, identity: Sequence[str], reads: str, limit: int
) -> dict[str, Any]:
    keys = [str(n) for n in range(len(identity))] or ["0"]
    compared = [*keys, "split", "payload"]
    pairs = paired(*([_array(rows, n) for n in compared] for rows in (one, other)))
    first, second = pairs.first, pairs.second

    def differs(name: str) -> npt.NDArray[np.bool_]:
        codes = _codes(_array(one, name), _array(other, name))
        return np.asarray(codes[first] != codes[len(one) :][second])

    has_labels = "label" in one.column_names and "label" in other.column_names
    relabelled = differs("label") if has_labels else np.zeros(len(first), np.bool_)
    moved, changed = differs("split"), differs("payload") & ~relabelled
    masks = {"changed": changed, "relabelled": relabelled, "moved": moved}

    def example(left: int | None, right: int | None) -> dict[str, str]:
        texts: dict[str, str] = {}
        for name, rows, n in (("first", one, left), ("second", other, right)):
            if n is None:
                continue
            values = [rows[k][n].as_py() for k in keys] if identity else []
            known_by = ", row ".join(str(v) for v in values if v is not None)
            texts = {"key": known_by, **texts, name: _place(rows, n)}
            if "label" in rows.column_names:
                texts[f"{name}_class"] = str(rows["label"][n].as_py() or "")
        return {name: text for name, text in texts.items() if text}

    counts = {"added": len(pairs.added), "gone": len(pairs.gone)}
    examples = {
        "added": [example(None, n) for n in pairs.added[:limit].tolist()],
        "gone": [example(n, None) for n in pairs.gone[:limit].tolist()],
    }
    for kind, mask in masks.items():
        counts[kind] = int(np.count_nonzero(mask))
        places = np.flatnonzero(mask)
        places = places[np.argsort(first[places])][:limit]
        both = zip(first[places].tolist(), second[places].tolist(), strict=True)
        examples[kind] = [example(*pair) for pair in both]
    return {
        "known_by": [*identity],
        "reads": reads,
        "records": [len(one), len(other)],
        "equal": int(np.count_nonzero(~(changed | relabelled | moved))),
        **counts,
        "examples": {kind: some for kind, some in examples.items() if some},
    }


def _array(rows: pa.Table, name: str) -> pa.Array:
    return rows[name].combine_chunks()


def _print(first: str, second: str, differences: Mapping[str, Any]) -> None:
    key = ", ".join(map(repr, differences["known_by"])) or "their content"
    reads = differences["reads"]
    by_key = "" if reads == "digests" else f", known by {printable(key)}"
    one, other = (count_text(count, "record") for count in differences["records"])
    print_prose(
        f"{printable(first)}: {one}; {printable(second)}: {other}; compared "
        f"{_HOW[reads]}{by_key}"
    )
    rows = [(kind, f"{differences[kind]:,}") for kind in ("equal", *KINDS)]
    width = max(len(count) for _, count in rows)
    for kind, count in rows:
        print_text(f"{kind:<10}  {count:>{width}}  {KINDS.get(kind, '')}".rstrip())
    for name, how in differences["features"].items():
        print_prose(f"feature {printable(repr(name))}: {how}")
    for kind, examples in differences["examples"].items():
        for example in examples:
            print_text(f"{kind:<10}  {printable(_text(example))}")


def _text(example: Mapping[str, str]) -> str:
    """Returns an example as one line."""
    pairs = [
        [example[name] for name in names if name in example]
        for names in (("first", "second"), ("first_class", "second_class"))
    ]
    texts = [" -> ".join(dict.fromkeys(pair)) for pair in pairs if pair]
    return "; ".join([example["key"], *texts] if "key" in example else texts)
