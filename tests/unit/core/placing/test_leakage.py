"""Leakage: values in two splits are found, counted and shown, and no others."""

import itertools
import pathlib
import random

import google_crc32c
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.core import segment
from transforms.core.placing.leakage import (
    Fingerprints,
    Leaks,
    Place,
    SplitFindings,
    Subject,
    find_shared,
    fingerprint_image,
    pack_fingerprints,
)
from transforms.core.placing.sharding import ShardRows
from transforms.shards.image_rows import store_fingerprints
from transforms.stages.job_plan import LeakRule
from transforms.stages.splits import check_leaks
from transforms.work.split_tables import new_lock_in
from transforms.work.store import Store

Folder = pathlib.Path
NAMES = ("train", "val", "test")
ITEMS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 2)), max_size=60)


@pytest.fixture
def store(tmp_path: Folder) -> Store:
    store = Store(str(tmp_path / "work"))
    store.make()
    return store


@given(ITEMS, st.randoms())
def test_shared_is_what_sets_say(
    items: list[tuple[int, int]], shuffler: random.Random
) -> None:
    """Against sets of splits by fingerprint; the order of items does not matter."""
    wanted: dict[int, set[int]] = {}
    for value, split in items:
        wanted.setdefault(value, set()).add(split)
    wanted = {value: splits for value, splits in wanted.items() if len(splits) > 1}
    shuffler.shuffle(items)
    values = np.array([value for value, _ in items], np.uint64)
    splits = np.array([split for _, split in items], np.int16)
    found = find_shared(values, splits, count=3)
    assert found.values.tolist() == sorted(wanted)
    for value, row in zip(found.values.tolist(), found.table, strict=True):
        assert set(np.flatnonzero(row).tolist()) == wanted[value]
    pairs = {
        (NAMES[i], NAMES[j]): sum({i, j} <= splits for splits in wanted.values())
        for i, j in itertools.combinations(range(3), 2)
    }
    assert found.pairs(NAMES) == {pair: n for pair, n in pairs.items() if n}


def test_fingerprints_are_literal() -> None:
    """The checksum of all bytes, and that of their second half; 0 of no bytes."""
    data = b"123456789"
    assert google_crc32c.value(data) == 0xE3069283
    half = google_crc32c.value(b"56789")
    assert fingerprint_image(data) == 0xE3069283 << 32 | half
    assert fingerprint_image(data, 7) == 7 << 32 | half
    assert fingerprint_image(b"") == 0


def stored(
    store: Store, subject: Subject, split: str, items: list[tuple[str, int]]
) -> Fingerprints:
    """The fingerprints of one shard, (origin, fingerprint) each."""
    rows = pack_fingerprints(
        np.array([value for _, value in items], np.uint64),
        np.zeros(len(items), np.int64),
        np.zeros(len(items), np.int64),
        pa.array([origin for origin, _ in items], pa.string()),
    )
    (piece,) = store.put(split, 0, [(len(items), rows.serialize())])
    return Fingerprints(subject, (split,), segment=piece)


def test_fault_129_the_same_image_in_two_splits(store: Store) -> None:
    """Equal files are found, and no others."""
    contents = {
        "train/a.jpg": b"same",
        "train/b.jpg": b"same",
        "train/c.jpg": b"only here",
        "train/d.jpg": b"one thing",
        "test/a.jpg": b"same",
        "test/e.jpg": b"another thing",
        "val/f.jpg": b"last",
    }
    by_split: dict[str, list[tuple[str, int]]] = {}
    for name, data in contents.items():
        value = fingerprint_image(data)
        by_split.setdefault(name.partition("/")[0], []).append((name, value))
    found = [
        stored(store, Subject.IMAGE, split, items) for split, items in by_split.items()
    ]
    wanted = Leaks(
        Subject.IMAGE,
        items=1,
        pairs={("train", "test"): 1},
        examples=(
            (
                Place("test", "test/a.jpg", 0),
                Place("train", "train/a.jpg", 0),
                Place("train", "train/b.jpg", 0),
            ),
        ),
    )
    for order in itertools.permutations(found):
        findings = check_leaks(list(order), LeakRule(), store)
        assert findings.leaks == (wanted,)
    (text,) = findings.warnings()
    assert text == (
        "1 image stands in more than one split: train and test: 1; for example "
        "test: test/a.jpg = train: train/a.jpg = train: train/b.jpg"
    )


def test_examples_are_few_and_the_same(store: Store) -> None:
    """Of many leaks some are shown: always the same, each with all its splits."""
    values = list(range(1_000))
    parts = [
        stored(store, Subject.UNIT, split, [(f"{split}-{v}", v) for v in values])
        for split in NAMES
    ]
    rule = LeakRule(keyed=True)
    (leaks,) = check_leaks(parts, rule, store).leaks
    assert leaks.items == 1_000
    assert leaks.pairs == {
        ("train", "val"): 1_000,
        ("train", "test"): 1_000,
        ("val", "test"): 1_000,
    }
    assert len(leaks.examples) == 20
    assert all(len(example) == 3 for example in leaks.examples)
    assert check_leaks(parts[::-1], rule, store).leaks == (leaks,)


def test_nothing_to_check(store: Store) -> None:
    """Without fingerprints there is nothing to say, and an empty lock to write."""
    assert check_leaks([], LeakRule(), store) == SplitFindings()
    found = check_leaks([], LeakRule(make_lock=True), store)
    assert found.warnings() == []
    assert pathlib.Path(new_lock_in(store)).exists()


def test_warnings_are_bounded() -> None:
    """However long names are, a warning stays within 1 KiB."""
    place = Place("train", "x" * 5_000, 3)
    leaks = Leaks(Subject.UNIT, 1, {("train", "test"): 1}, ((place, place),))
    (text,) = SplitFindings((leaks,)).warnings()
    assert len(text.encode()) <= 1024


@pytest.mark.parametrize("many_origins", [True, False])
def test_images_of_a_shard(store: Store, many_origins: bool) -> None:
    """A shard's fingerprints come with the places of its rows, in any order."""
    columns = {"x": [1, 2, 3], segment.ROW_COLUMN: pa.array([4, 5, 6], pa.int64())}
    if many_origins:
        columns[segment.ORIGIN_COLUMN] = ["a.jpg", "b.jpg", "c.jpg"]
    rows = ShardRows.of([("t.csv", pa.record_batch(columns))], seed=1, shuffle=True)
    found = [
        store_fingerprints((split, 3), rows, [(9, 2), (8, 0)], store)
        for split in ("train", "test")
    ]
    (leaks,) = check_leaks(found, LeakRule(), store).leaks
    origins = ("a.jpg", "c.jpg") if many_origins else ("t.csv", "t.csv")
    assert leaks.examples == (
        (Place("test", origins[0], 4), Place("train", origins[0], 4)),
        (Place("test", origins[1], 6), Place("train", origins[1], 6)),
    )
