"""The command `diff`: what differs between two datasets, record by record.

Records are compared by the catalogues where both datasets have one, else they are read.
"""

import collections
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_pipeline.datasets.reading_plan import Readable, find_records
from beam_pipeline.terminal import (
    count_text,
    print_line,
    print_table,
    print_text,
    shape_text,
)
from transforms.core.arrays import decoded
from transforms.core.schema import Feature, Kind
from transforms.errors import SpecError, nearest
from transforms.reading.catalogue import Catalogue
from transforms.reading.catalogue_of_shards import rows_of_shard
from transforms.reading.rows import class_names

_Rows = Iterator[tuple[str, Mapping[str, pa.Array] | pa.RecordBatch]]

KINDS = {
    "added": "in the second alone",
    "gone": "in the first alone",
    "changed": "other content",
    "moved": "in another split",
}
# Columns of catalogues that identify records, the best first; (): size and checksum.
_IDENTITIES = (("_key",), ("_origin", "_row"), ())
# Columns of catalogues that every record has.
_PAYLOAD = ("_shard", "_size", "_crc32c")
# Of a record: what identifies it, size and CRC32C as one number, its shard's number.
_SCHEMA = pa.schema(
    {"key": pa.large_binary(), "split": pa.string()}
    | dict.fromkeys(("payload", "shard"), pa.int64())
)


def run(
    first: str, second: str, *, key: str = "", limit: int = 5, as_json: bool = False
) -> int:
    """Compares two datasets, or folders of TFRecord files, record by record.

    Memory is some 300 bytes a record.

    Args:
      first, second: paths.
      key: the feature that identifies records; empty for the key, or origin and row,
        in the catalogues of both; else the content.
      limit: examples of each kind.
      as_json: prints the columns that records are `known_by`; what it `reads`; how many
        `records` both have, are `equal`, and differ by the words of `KINDS` (a record
        can be moved and changed); how `features` differ; and `examples` of each kind.

    Returns:
      0 where nothing differs, else 1.

    Raises:
      UsageError, SpecError: there is nothing to compare, or no such feature.
      DamageError: a file is damaged.
    """
    one, other = find_records(first, {}), find_records(second, {})
    features = _features(one, other)
    if one.edition.digest and one.edition.digest == other.edition.digest:
        count = sum(shard.records or 0 for _, shard in one.shards)
        records: dict[str, Any] = {"known_by": [], "reads": "digests"}
        records |= {"records": [count, count], "equal": count}
        records |= dict.fromkeys(KINDS, 0)
        records["examples"] = {kind: [] for kind in KINDS}
    else:
        records = _compare(one, other, key, limit)
    is_equal = not features and not any(records[kind] for kind in KINDS)
    differences = {"is_equal": is_equal, **records, "features": features}
    if as_json:
        print_text(json.dumps(differences, indent=1))
    else:
        _print_differences(first, second, differences)
    return 0 if is_equal else 1


def _features(first: Readable, second: Readable) -> dict[str, str]:
    """Returns how features differ, by their names."""
    one, other = ({f.name: f for f in side.features} for side in (first, second))
    differences = {}
    for name in dict.fromkeys((*one, *other)):
        kinds = _kind_or_absent(one.get(name)), _kind_or_absent(other.get(name))
        if kinds[0] != kinds[1]:
            differences[name] = "{} in the first, {} in the second".format(*kinds)
            continue
        lists = (side[name].vocabulary or () for side in (one, other))
        short, long = sorted(lists, key=len)
        if long[: len(short)] == short != long:
            more = count_text(len(long) - len(short), "more class", "more classes")
            differences[name] = f"{more} in one; ids agree"
        elif short != long:
            differences[name] = "other class ids; records whose id differs are changed"
    return differences


def _kind_or_absent(feature: Feature | None) -> str:
    """Returns kind and shape of a feature; "absent" where a dataset lacks it."""
    return "absent" if feature is None else f"{feature.kind}{shape_text(feature.shape)}"


def _compare(one: Readable, other: Readable, key: str, limit: int) -> dict[str, Any]:
    """Returns what differs between the records of two datasets."""
    for side in (one, other) if key else ():
        by_name = {feature.name: feature for feature in side.features}
        feature = by_name.get(key)
        if not feature or feature.is_list or feature.kind in (Kind.BOX, Kind.TENSOR):
            raise SpecError(
                f"--key must name a feature of one value in both datasets; {key!r} is "
                f"{_kind_or_absent(feature)}{'' if feature else nearest(key, by_name)}."
            )
    pairs = (side.catalogues.items() for side in (one, other))
    sides = [{split: Catalogue(rows.parts) for split, rows in some} for some in pairs]
    names = [set(c.schema.names) for side in sides for c in side.values()]
    shared = set.intersection(*names) if all(sides) else set()
    identities = ((key,),) if key else _IDENTITIES
    identity = next((i for i in identities if shared.issuperset(i)), identities[-1])
    reads = "catalogues" if shared and shared.issuperset(identity) else "records"
    batches = map(_catalogued, sides, [identity] * 2)
    if reads == "records":
        batches = map(_read, (one, other), [identity] * 2)
    tables = [_table(rows, identity) for rows in batches]
    differences = count_differences(tables[0], tables[1], limit)
    return {"known_by": [*identity], "reads": reads, **differences}


def _catalogued(catalogues: Mapping[str, Catalogue], identity: Sequence[str]) -> _Rows:
    """Yields columns of catalogues, and the split of each batch."""
    for split, catalogue in catalogues.items():
        for batch in catalogue.batches([*_PAYLOAD, *identity], 0, len(catalogue)):
            yield split, batch


def _read(records: Readable, identity: Sequence[str]) -> _Rows:
    """Yields the same of TFRecord files by reading them."""
    features = [feature for feature in records.features if feature.name in identity]
    # Two datasets may give one class different ids; catalogues have names as well.
    classes = class_names(features)
    numbers: collections.Counter[str] = collections.Counter()
    for split, shard in records.shards:
        for columns in rows_of_shard(shard.path, numbers[split], features):
            named = {name: texts.take(columns[name]) for name, texts in classes.items()}
            yield split, {**columns, **named}
        numbers[split] += 1


def _table(batches: _Rows, identity: Sequence[str]) -> pa.Table:
    """Returns what is compared of records: `_SCHEMA`, in their order."""

    def rows() -> Iterator[pa.RecordBatch]:
        for split, batch in batches:
            own = (batch[name].to_numpy(False) for name in ("_size", "_crc32c"))
            size, crc = (numbers.astype(np.int64) for numbers in own)
            key = _joined([pa.array(size), pa.array(crc)], b" bytes, CRC32C ")
            if identity:
                values = [batch[name] for name in identity]
                key = pc.if_else(values[0].is_valid(), _joined(values, b", row "), key)
            columns = [key, pa.repeat(pa.scalar(split), len(size))]
            columns += [pa.array(size << 32 | crc), batch["_shard"].cast(pa.int64())]
            yield pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)

    table = pa.Table.from_batches(rows(), _SCHEMA)
    table = table.append_column("number", pa.array(np.arange(len(table))))
    return _ranked(table, ["split", "shard"], "record")


def _joined(columns: Sequence[pa.Array], separator: bytes) -> pa.Array:
    """Returns what records are compared by: values of columns as bytes, joined."""
    texts = []
    for column in columns:
        column = decoded(column)
        if column.type not in (pa.binary(), pa.large_binary()):
            column = column.cast(pa.large_string())
        texts.append(column.cast(pa.large_binary()))
    between = pa.scalar(separator, pa.large_binary())
    return pc.binary_join_element_wise(*texts, between, null_handling="skip")


def _ranked(table: pa.Table, names: Sequence[str], rank: str) -> pa.Table:
    """Returns a table sorted by columns, with a new one: equal rows before each."""
    table = table.sort_by([(name, "ascending") for name in (*names, "number")])
    numbers = np.arange(len(table))
    is_first = numbers == 0
    for name in names:
        values = table[name].combine_chunks()
        is_first[1:] |= pc.not_equal(values[1:], values[:-1]).to_numpy(False)
    ranks = numbers - np.maximum.accumulate(np.where(is_first, numbers, 0))
    return table.append_column(rank, pa.array(ranks))


def count_differences(one: pa.Table, other: pa.Table, limit: int) -> dict[str, Any]:
    """Returns counts and examples of what differs between the records of two tables.

    Of several records with one key those that are equal make a pair first.
    """
    counts: dict[str, Any] = {"records": [len(one), len(other)]}
    for names in (["key", "split", "payload"], ["key"]):
        left, right = (_ranked(side, names, "rank") for side in (one, other))
        keys = [*names, "rank"]
        pairs = left.join(right, keys, join_type="inner", right_suffix="_2")
        one = one.join(pairs, "number", join_type="left anti")
        other = other.join(pairs, "number", "number_2", join_type="left anti")
        counts.setdefault("equal", len(pairs))
    rows = {
        "added": other.rename_columns([f"{name}_2" for name in other.column_names]),
        "gone": one,
        "changed": pairs.filter(pc.field("payload") != pc.field("payload_2")),
        "moved": pairs.filter(pc.field("split") != pc.field("split_2")),
    }
    counts |= {kind: len(table) for kind, table in rows.items()}
    counts["examples"] = {}
    for kind, table in rows.items():
        some = table.sort_by("number_2" if kind == "added" else "number")[:limit]
        counts["examples"][kind] = [*map(_example, some.to_pylist())]
    return counts


def _example(row: Mapping[str, Any]) -> dict[str, str]:
    """Returns the key of a record, and where it is in both datasets."""
    key = row["key_2"] if "key_2" in row else row["key"]
    example = {"key": key.decode(errors="backslashreplace")}
    for side, suffix in (("first", ""), ("second", "_2")):
        if f"number{suffix}" in row:
            shard, record = row[f"shard{suffix}"], row[f"record{suffix}"]
            where = [row[f"split{suffix}"], f"shard {shard:,}", f"record {record:,}"]
            example[side] = ", ".join(filter(None, where))
    return example


def _print_differences(first: str, second: str, differences: Mapping[str, Any]) -> None:
    """Prints the counts by kind of difference, and an example or more of each."""
    key = ", ".join(map(repr, differences["known_by"])) or "their content"
    reads = differences["reads"]
    how = "" if reads == "digests" else f", identified by {key}"
    one, other = (count_text(count, "record") for count in differences["records"])
    print_line(f"{first}: {one}; {second}: {other}; compared by their {reads}{how}")
    rows = [(k, f"{differences[k]:,}", KINDS.get(k, "")) for k in ("equal", *KINDS)]
    print_table(("records", "count", ""), rows, right=("count",), apart=False)
    for name, difference in differences["features"].items():
        print_line(f"feature {name!r}: {difference}")
    for kind, examples in differences["examples"].items():
        for example in examples:
            print_line(f"{kind:<7}  {'; '.join(example.values())}")
