"""Keys and groups as identities: golden hashes, order in shards, who stays together."""

import unicodedata
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.placing import batch_of, by_formula, splits_of
from transforms.core import segment
from transforms.core.model import Batch, ShardKey
from transforms.core.placing.hashes import (
    LOCK,
    ORDER,
    SPLIT,
    hash_rows,
    hash_texts,
    key_hashes,
    order_hashes,
    unit_hashes,
)
from transforms.core.placing.sharding import Sharding, ShardRows
from transforms.core.placing.splitting import (
    Assignments,
    SplitRule,
    SplitSource,
    SplitTables,
    split_rows,
)
from transforms.errors import EncodingError
from transforms.stages import place

IntArray = npt.NDArray[np.int64]
TEXTS = ["", "a", "user-17", "eight by", "nine byte", "고양이", "x" * 128, "x" * 129]
GOLDEN_SPLIT = [
    0xBBAC7547479D3670,
    0xA79DE0E06796FCC0,
    0x2316EC4C3A57F07E,
    0x3FFF312004FEEFC8,
    0x48B52E5D79254F6D,
    0xD50CE24643A2D054,
    0x1015E403F7FC235A,
    0x412DB87524E854EB,
]
GOLDEN_ORDER_7 = [
    0x37E45BE5969F57CD,
    0x1FB5B06D7F397F22,
    0x1265C87E0242F5B3,
    0xC85436B300DB259F,
    0x30794257DC8C6293,
    0xB03185B2B39C853C,
    0x5575D9FCE872D575,
    0x7BC8A03EF5D9071C,
]
SHARES = SplitRule(SplitSource.SHARES, ("train", "test"), ("0.7", "0.3"))


def test_golden_key_hashes() -> None:
    """Literal hashes of keys: every dataset with a key column hangs on them."""
    assert hash_texts(pa.array(TEXTS), "key", purpose=SPLIT).tolist() == GOLDEN_SPLIT
    found = hash_texts(pa.array(TEXTS), "key", purpose=ORDER, seed=7).tolist()
    assert found == GOLDEN_ORDER_7


@given(
    st.lists(st.text(max_size=40) | st.text("ab", min_size=100, max_size=140)),
    st.sampled_from(["key", "group"]),
    st.integers(0, 2**70),
)
def test_text_hashes_are_their_formula(texts: list[str], kind: str, seed: int) -> None:
    """For any texts the hashes are what plain integers give."""
    found = hash_texts(pa.array(texts, pa.string()), kind, purpose=SPLIT, seed=seed)
    assert found.tolist() == [by_formula(text, kind, SPLIT, seed) for text in texts]


@given(st.lists(st.none() | st.text(max_size=20), max_size=20), st.data())
def test_slices_have_the_hashes_of_copies(
    texts: list[str | None], data: st.DataObject
) -> None:
    """Offsets, neighbours, chunks and nulls around a key do not change its hash."""
    whole = pa.array(texts, pa.string())
    start = data.draw(st.integers(0, len(texts)))
    stop = data.draw(st.integers(start, len(texts)))
    found = hash_texts(whole[start:stop], "key", purpose=ORDER)
    assert (
        found.tolist() == hash_texts(whole, "key", purpose=ORDER)[start:stop].tolist()
    )
    alone = [hash_texts(pa.array([t or ""]), "key", purpose=ORDER)[0] for t in texts]
    assert found.tolist() == [int(value) for value in alone[start:stop]]


def test_normal_forms_are_one_key() -> None:
    """A key in NFD keeps the placement of its NFC."""
    forms = [unicodedata.normalize(f, "고양이-é") for f in ("NFC", "NFD")]
    assert forms[0] != forms[1]
    assert len(set(hash_texts(pa.array(forms), "key", purpose=SPLIT).tolist())) == 1


def test_kinds_purposes_and_seeds_differ() -> None:
    """A group is no key, a split hash no order hash, a lock knows no seed."""
    batch = batch_of([1, 2], keys=["a", "b"], groups=["a", "b"])
    found = {
        int(unit_hashes(batch, purpose=SPLIT)[0]),
        int(unit_hashes(batch, purpose=SPLIT, seed=1)[0]),
        int(unit_hashes(batch, purpose=LOCK)[0]),
        int(order_hashes(batch, seed=0)[0]),
        int(hash_texts(batch.keys, "key", purpose=SPLIT)[0]),
    }
    assert len(found) == 5
    keyed = batch_of([1], keys=["a"])
    assert unit_hashes(keyed, purpose=LOCK)[0] == key_hashes(pa.array(["a"]))[0]


def test_without_keys_the_place_is_the_identity() -> None:
    """Rows without key and group hash as they always did."""
    batch = batch_of([5, 6, 7])
    for purpose in (SPLIT, ORDER):
        wanted = hash_rows("a.csv", np.array([5, 6, 7]), purpose=purpose, seed=3)
        got = (
            order_hashes(batch, seed=3)
            if purpose == ORDER
            else unit_hashes(batch, purpose=SPLIT, seed=3)
        )
        assert got.tolist() == wanted.tolist()


def test_a_row_without_group_is_its_own() -> None:
    """A null group falls back to the row's key, or else to its place."""
    batch = batch_of([0, 1], keys=["k", "l"], groups=["g", None])
    first, second = unit_hashes(batch, purpose=SPLIT).tolist()
    assert first == by_formula("g", "group", SPLIT, 0)
    assert second == by_formula("l", "key", SPLIT, 0)
    places = batch_of([0, 1], groups=["g", None])
    found = unit_hashes(places, purpose=SPLIT)[1]
    assert found == hash_rows("a.csv", np.array([1]), purpose=SPLIT, seed=0)[0]


def assign(batch: Batch, sharding: Sharding) -> tuple[list[ShardKey], IntArray]:
    """Returns the shards that may be touched, and for each row an index into them."""
    splits = split_rows(batch, sharding.rule, SplitTables())
    return place._shards_of_rows(
        batch, sharding, splits, place._order_keys(batch, sharding)
    )


KEYS = st.lists(st.integers(0, 10**6).map(str), unique=True, min_size=1, max_size=60)


@given(KEYS, st.data())
def test_keys_decide_alone(keys: list[str], data: st.DataObject) -> None:
    """Rows in another order, in another file, with others between: the same places."""
    shuffled = data.draw(st.permutations(keys))
    sharding = Sharding(SHARES, {"train": 3, "test": 2}, seed=4, keyed=True)

    def found(order: Sequence[str], origin: str) -> dict[str, tuple[str, int]]:
        batch = batch_of(range(len(order)), keys=order, origin=origin)
        shards, index = assign(batch, sharding)
        return {key: shards[i] for key, i in zip(order, index.tolist(), strict=True)}

    before = found(keys, "a.csv")
    assert found(shuffled, "other.csv") == before
    later = found([*shuffled, "new-1", "new-2"], "a.csv")
    assert {key: later[key] for key in keys} == before


RULES = {
    "single": SplitRule(),
    "shares": SHARES,
    "column": SplitRule(SplitSource.COLUMN, ("train", "test"), ("0.5", "0.5")),
    "table": SplitRule(SplitSource.TABLE, ("train", "test"), ("0.5", "0.5")),
}


@given(KEYS, st.data())
@pytest.mark.parametrize("rule", list(RULES))
@pytest.mark.parametrize("identity", ["key", "group", "place"])
def test_more_rows_never_move_a_row(
    rule: str, identity: str, keys: list[str], data: st.DataObject
) -> None:
    """Under all rules but the stratified one, what was placed stays where it was."""
    if rule == "table" and identity != "key":
        return
    new = data.draw(st.lists(st.integers(10**6 + 1, 10**7).map(str), max_size=30))
    table = Assignments.of(
        key_hashes(pa.array(["1", "2"])),
        np.array([0, 1]),
        names=("train", "test"),
        identity="key",
    )

    def found(names: Sequence[str]) -> list[str | None]:
        given = None
        if rule == "column":
            words = ["train", "test", None]
            given = [words[int(name) % 3] for name in names]
        batch = batch_of(
            range(len(names)),
            keys=names if identity == "key" else None,
            groups=[name[-1] for name in names] if identity == "group" else None,
            splits=given,
        )
        return splits_of(batch, RULES[rule], SplitTables(table=table))

    assert found([*keys, *new])[: len(keys)] == found(keys)


def test_groups_stay_together() -> None:
    """All rows of one group share a split, yet each has a shard of its own."""
    count = 3_000
    groups = [f"site-{i % 100}" for i in range(count)]
    batch = batch_of(range(count), groups=groups)
    found: dict[str, set[str | None]] = {}
    for group, split in zip(groups, splits_of(batch, SHARES), strict=True):
        found.setdefault(group, set()).add(split)
    assert all(len(splits) == 1 for splits in found.values())
    assert {split for splits in found.values() for split in splits} == {"train", "test"}
    shards, index = assign(batch, Sharding(SHARES, {"train": 4, "test": 4}))
    one = {shards[i][1] for i, g in zip(index, groups, strict=True) if g == groups[0]}
    assert len(one) == 4


def test_a_column_without_split_falls_by_shares() -> None:
    """AutoML's UNASSIGNED: rows whose split is null go by hash, the others as said."""
    count = 2_000
    given = [["train", None, "extra", None][i % 4] for i in range(count)]
    rule = SplitRule(SplitSource.COLUMN, ("train", "test", "extra"), ("1", "1"))
    found = splits_of(batch_of(range(count), splits=given), rule)
    assert all(got == said for got, said in zip(found, given, strict=True) if said)
    fallen = [got for got, said in zip(found, given, strict=True) if said is None]
    by_hash = splits_of(
        batch_of(range(count)),
        SplitRule(SplitSource.SHARES, ("train", "test"), ("1", "1")),
    )
    assert fallen == [by_hash[i] for i in range(count) if given[i] is None]
    assert set(fallen) == {"train", "test"}


def test_a_table_of_ids_decides_the_split() -> None:
    """Keys in the table go where it says; others by shares, or nowhere."""
    table = Assignments.of(
        key_hashes(pa.array(["b", "a"])),
        np.array([1, 0]),
        names=("train", "val"),
        identity="key",
    )
    batch = batch_of([0, 1, 2], keys=["a", "b", "c"])
    strict = SplitRule(SplitSource.TABLE, ("train", "val"))
    tables = SplitTables(table=table)
    assert splits_of(batch, strict, tables) == ["train", "val", None]
    loose = SplitRule(SplitSource.TABLE, ("test", "train", "val"), ("1",))
    assert splits_of(batch, loose, tables) == ["train", "val", "test"]
    with pytest.raises(EncodingError, match="needs the table and the key"):
        splits_of(batch_of([0]), strict, tables)


def test_shards_are_ordered_by_key() -> None:
    """The order of a shard's rows is that of their keys' hashes, carried along."""
    keys = [f"user-{i}" for i in range(500)]
    sharding = Sharding(SplitRule(), {"train": 3}, seed=2, keyed=True)
    found: dict[int, list[str]] = {}
    parts: dict[int, list[tuple[str, pa.RecordBatch]]] = {}
    for origin, part in (("a", keys[:200]), ("b", keys[200:])):
        batch = batch_of(range(len(part)), keys=part, labels=part, origin=origin)
        for (_, shard), rows in place.cut_batch(
            batch, sharding, split_rows(batch, sharding.rule, SplitTables())
        ):
            schema = segment.segment_schema(
                batch.rows.schema, many_origins=False, ordered=True
            )
            stored = segment.deserialize(rows.serialize(), schema)
            parts.setdefault(shard, []).append((origin, stored))
    for shard, segments in parts.items():
        rows = ShardRows.of(segments, seed=2, shuffle=True)
        table, positions = rows.take(0, len(rows))
        found[shard] = table["label"].to_pylist()
        origins, numbers = rows.places(positions)
        assert list(zip(origins.to_pylist(), numbers.tolist(), strict=True)) == [
            rows.origin(position) for position in positions.tolist()
        ]
    everything = [key for shard in sorted(found) for key in found[shard]]
    assert everything == sorted(keys, key=lambda k: by_formula(k, "key", ORDER, 2))


@pytest.mark.parametrize("keyed", [True, False])
def test_keys_where_none_are_awaited(keyed: bool) -> None:
    """A batch whose keys came or went on the way is refused, not ordered otherwise."""
    batch = batch_of([0], keys=None if keyed else ["a"])
    with pytest.raises(EncodingError, match="key in this job"):
        place.cut_batch(
            batch,
            Sharding(SplitRule(), {"train": 1}, keyed=keyed),
            split_rows(batch, SplitRule(), SplitTables()),
        )
