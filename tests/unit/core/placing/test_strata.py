"""Stratified splits: exact to one row a class, sane sums, locks filled, no waiting."""

import collections
from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.placing import batch_of, splits_of
from transforms.core.model import Batch
from transforms.core.placing.hashes import LOCK, SPLIT, UInt64s, unit_hashes
from transforms.core.placing.splitting import (
    Assignments,
    SplitRule,
    SplitSource,
    SplitTables,
)
from transforms.core.placing.strata import (
    Strata,
    cut_classes,
    share_out,
    sum_counts,
)
from transforms.errors import EncodingError
from transforms.stages.splits import hash_classes

NAMES = ("train", "val", "test")


def rule_of(*shares: str) -> SplitRule:
    return SplitRule(
        SplitSource.STRATIFIED, NAMES[: len(shares)], shares, stratify_by="label"
    )


def cut_class(hashes: UInt64s, wanted: Sequence[int]) -> UInt64s:
    return cut_classes(hashes, np.array([wanted], np.int64))[0]


def strata_of(batches: Sequence[Batch], rule: SplitRule) -> Strata:
    """Strata by plain loops over rows: the oracle of the stage."""
    counts = sum_counts(
        (hash_classes(b, rule, None)[0] for b in batches), len(rule.names)
    )
    names, rows = share_out(counts, rule.proportions())
    wanted = dict(zip(names.to_pylist(), rows.tolist(), strict=True))
    hashes: dict[str | None, list[int]] = collections.defaultdict(list)
    for batch in batches:
        found = unit_hashes(batch, purpose=SPLIT, seed=rule.seed).tolist()
        labels = batch.rows["label"].to_pylist()
        for label, value in zip(labels, found, strict=True):
            hashes[label].append(value)
    bounds = [
        cut_class(np.array(sorted(hashes[label]), np.uint64), wanted[label])
        for label in names.to_pylist()
    ]
    return Strata(names, np.array(bounds))


def random_batches(seed: int) -> list[Batch]:
    generator = np.random.default_rng(seed)
    out = []
    for number in range(4):
        size = int(generator.integers(1, 200))
        labels = generator.choice(
            np.array(["cat", "dog", "고양이", None]), size, p=[0.5, 0.3, 0.1, 0.1]
        )
        out.append(
            batch_of(range(size), labels=labels.tolist(), origin=f"{number}.csv")
        )
    return out


# The new rows of a class, and the locked ones of each split.
Count = tuple[int, tuple[int, ...]]


def shared_out(
    counts: Mapping[str | None, Count], shares: Sequence[Fraction]
) -> dict[str | None, tuple[int, ...]]:
    """New rows by class, of counts by class."""
    numbers = np.array([[new, *locked] for new, locked in counts.values()], np.uint64)
    arrays = pa.array(counts, pa.string()), numbers
    names, wanted = share_out(arrays, shares)
    return dict(zip(names.to_pylist(), map(tuple, wanted.tolist()), strict=True))


SHARES = st.lists(
    st.fractions(min_value=Fraction(1, 60), max_value=1, max_denominator=60),
    min_size=1,
    max_size=5,
)
SIZES = st.lists(st.integers(0, 60), min_size=1, max_size=40)


@given(SIZES, SHARES)
def test_every_class_is_exact_to_one_row(
    sizes: list[int], parts: list[Fraction]
) -> None:
    """A split has of each class its share rounded down or up, and nothing is lost."""
    shares = [part / sum(parts) for part in parts]
    counts: dict[str | None, Count] = {
        f"c{i:02}": (size, (0,) * len(shares)) for i, size in enumerate(sizes)
    }
    found = shared_out(counts, shares)
    for name, count in counts.items():
        assert sum(found[name]) == count[0]
        for rows, share in zip(found[name], shares, strict=True):
            exact = count[0] * share
            assert int(exact) <= rows <= -int(-exact // 1)


@given(SIZES, SHARES)
def test_sums_over_classes_are_sane(sizes: list[int], parts: list[Fraction]) -> None:
    """Classes too small to be divided still give every split its share in all."""
    shares = [part / sum(parts) for part in parts]
    counts = {i: (size, (0,) * len(shares)) for i, size in enumerate(sizes)}
    found = shared_out({f"c{i:02}": c for i, c in counts.items()}, shares)
    for split, share in enumerate(shares):
        rows = sum(wanted[split] for wanted in found.values())
        assert abs(rows - sum(sizes) * share) < len(shares)


def test_shares_of_many_digits() -> None:
    """Shares whose common denominator is beyond 64 bits are exact as well."""
    shares = [Fraction(1, 3), Fraction(333_333_333_333, 10**12)]
    shares.append(1 - shares[0] - shares[1])
    found = shared_out({"a": (10**9, (0, 0, 0)), "b": (1, (0, 0, 0))}, shares)
    assert found["a"][:2] == (333_333_333, 333_333_333)
    assert sum(found["a"]) == 10**9
    assert sum(found["b"]) == 1


LOCKED = st.lists(
    st.tuples(st.integers(0, 40), st.tuples(*[st.integers(0, 12)] * 3)),
    min_size=1,
    max_size=20,
)


@given(LOCKED)
def test_new_rows_fill_what_is_missing(
    classes: list[tuple[int, tuple[int, int, int]]],
) -> None:
    """Where a lock leaves room the class is exact; elsewhere none gets too much."""
    shares = [Fraction(7, 10), Fraction(2, 10), Fraction(1, 10)]
    counts: dict[str | None, Count] = {
        f"{i:02}": each for i, each in enumerate(classes)
    }
    for name, wanted in shared_out(counts, shares).items():
        new_rows, old_rows = counts[name]
        assert sum(wanted) == new_rows
        assert min(wanted) >= 0
        total = new_rows + sum(old_rows)
        exact = [total * share for share in shares]
        held = [a + b for a, b in zip(old_rows, wanted, strict=True)]
        pairs = zip(old_rows, exact, strict=True)
        room = sum(max(locked, int(x)) for locked, x in pairs) <= total
        for rows, x, new, old in zip(held, exact, wanted, old_rows, strict=True):
            assert rows < x + 1 or not new
            if room and old <= x:
                assert abs(rows - x) < 1


def test_one_split_takes_all() -> None:
    """A single share has no bound to cut at."""
    assert shared_out({"a": (3, (0,))}, [Fraction(1)]) == {"a": (3,)}
    assert cut_class(np.array([1, 2, 3], np.uint64), (3,)).tolist() == []


def cut_by_loop(
    hashes: UInt64s, wanted: Sequence[int], thresholds: UInt64s | None
) -> list[int]:
    """The bounds of one class, bound by bound: the oracle of `cut_classes`."""
    out = []
    for split, cut in enumerate(np.cumsum(wanted)[:-1].tolist()):
        bound = int(hashes[cut]) if cut < len(hashes) else 2**64 - 1
        if thresholds is not None and cut and int(hashes[cut - 1]) == bound:
            bound += sum(int(each) <= bound for each in thresholds) <= split
        out.append(bound)
    return out


@given(
    st.lists(st.lists(st.integers(0, 9), max_size=12), min_size=1, max_size=6),
    st.lists(st.integers(0, 9), min_size=2, max_size=2),
    st.booleans(),
)
def test_many_classes_are_cut_like_one(
    classes: list[list[int]], thresholds: list[int], by_content: bool
) -> None:
    """Bounds of all classes at once are those of each, with equal hashes too."""
    limits = np.array(sorted(thresholds), np.uint64) if by_content else None
    hashes = [np.array(sorted(each), np.uint64) for each in classes]
    wanted = [
        (len(h) // 2, len(h) // 4, len(h) - len(h) // 2 - len(h) // 4) for h in hashes
    ]
    found = cut_classes(np.concatenate(hashes), np.array(wanted, np.int64), limits)
    each = [cut_by_loop(h, w, limits) for h, w in zip(hashes, wanted, strict=True)]
    assert found.tolist() == each


@pytest.mark.parametrize("names", [NAMES, NAMES[::-1]])
def test_locked_rows_count_by_the_names_of_splits(names: tuple[str, ...]) -> None:
    """A lock that lists the splits in another order says the same of its rows."""
    batch = batch_of(range(6), labels=["cat"] * 6)
    locked = ["train", "train", "train", "val", "val", "test"]
    lock = Assignments.of(
        unit_hashes(batch, purpose=LOCK),
        np.array([names.index(split) for split in locked]),
        names=names,
        identity="row",
    )
    counts, _ = hash_classes(batch, rule_of("0.7", "0.2", "0.1"), lock)
    assert counts[1].tolist() == [[0, 3, 2, 1]]


@pytest.mark.parametrize("seed", range(8))
def test_rows_are_placed_exactly(seed: int) -> None:
    """Whatever the batches, each class is divided as its share says, to one row."""
    rule = rule_of("0.7", "0.2", "0.1")
    batches = random_batches(seed)
    tables = SplitTables(strata=strata_of(batches, rule))
    held: collections.Counter[tuple[str | None, str | None]] = collections.Counter()
    sizes: collections.Counter[str | None] = collections.Counter()
    for batch in batches:
        labels = batch.rows["label"].to_pylist()
        sizes.update(labels)
        held.update(zip(labels, splits_of(batch, rule, tables), strict=True))
    for label, size in sizes.items():
        for name, share in zip(NAMES, rule.proportions(), strict=True):
            assert abs(held[label, name] - size * share) < 1


def test_a_class_that_was_not_counted() -> None:
    """A step that gives other rows the second time is found out."""
    rule = rule_of("1", "1")
    strata = strata_of([batch_of([0, 1], labels=["a", "b"])], rule)
    with pytest.raises(EncodingError, match="'c' was not"):
        splits_of(batch_of([0], labels=["c"]), rule, SplitTables(strata=strata))
    with pytest.raises(EncodingError, match="counted first"):
        splits_of(batch_of([0], labels=["c"]), rule)
