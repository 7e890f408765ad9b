"""Stratified splits: exact to one row a class, sane sums, locks filled, no waiting."""

import collections
import pathlib
from collections.abc import Callable, Sequence
from fractions import Fraction

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.testing.util import assert_that, equal_to
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.test_place_keys import batch_of, splits_of
from transforms import place
from transforms.core.model import Batch, Block
from transforms.core.placing.identity import LOCK, SPLIT, unit_hashes
from transforms.core.placing.placement import Sharding, SplitRule, SplitSource
from transforms.core.placing.split_lock import Assignments
from transforms.core.placing.splitting import SplitTables
from transforms.core.placing.strata import (
    ClassCount,
    Strata,
    cut_class,
    merge_counts,
    share_out,
)
from transforms.core.schema import Feature, Kind, Schema
from transforms.errors import EncodingError, SpecError
from transforms.settle import SettleSplits
from transforms.split_locks import open_assignments, write_table
from transforms.store import Store
from transforms.stratify import AwaitStrata, TakeStrata, hash_classes

Folder = pathlib.Path
NAMES = ("train", "val", "test")
SCHEMA = Schema((Feature("x", Kind.INT64), Feature("label", Kind.LABEL)))


def rule_of(*shares: str) -> SplitRule:
    return SplitRule(
        SplitSource.STRATIFIED, NAMES[: len(shares)], shares, stratify_by="label"
    )


def strata_of(
    batches: Sequence[Batch], rule: SplitRule, lock: Assignments | None = None
) -> Strata:
    """Strata by plain loops over rows: the oracle of the stage."""
    counts = merge_counts(hash_classes(b, rule, lock)[0] for b in batches)
    wanted = share_out(counts, rule.proportions())
    hashes = collections.defaultdict(list)
    for batch in batches:
        new = np.ones(batch.rows.num_rows, bool)
        if lock is not None:
            new = lock.find(unit_hashes(batch, purpose=LOCK)) < 0
        found = unit_hashes(batch, purpose=SPLIT, seed=rule.seed).tolist()
        labels = batch.rows["label"].to_pylist()
        for label, value, is_new in zip(labels, found, new, strict=True):
            hashes[label] += [value] if is_new else []
    bounds = {
        label: cut_class(np.array(sorted(values), np.uint64), wanted[label])
        for label, values in hashes.items()
    }
    return Strata.of([bounds], len(rule.names))


SHARES = st.lists(
    st.fractions(min_value=Fraction(1, 60), max_value=1, max_denominator=60),
    min_size=1,
    max_size=5,
)
SIZES = st.lists(st.integers(0, 60), min_size=1, max_size=40)


@settings(deadline=None)
@given(SIZES, SHARES)
def test_every_class_is_exact_to_one_row(
    sizes: list[int], parts: list[Fraction]
) -> None:
    """A split has of each class its share rounded down or up, and nothing is lost."""
    shares = [part / sum(parts) for part in parts]
    counts = {
        f"c{i:02}": ClassCount(size, (0,) * len(shares)) for i, size in enumerate(sizes)
    }
    found = share_out(counts, shares)
    for name, count in counts.items():
        assert sum(found[name]) == count.new
        for rows, share in zip(found[name], shares, strict=True):
            exact = count.new * share
            assert int(exact) <= rows <= -int(-exact // 1)


@settings(deadline=None)
@given(SIZES, SHARES)
def test_sums_over_classes_are_sane(sizes: list[int], parts: list[Fraction]) -> None:
    """Classes too small to be divided still give every split its share in all."""
    shares = [part / sum(parts) for part in parts]
    counts = {i: ClassCount(size, (0,) * len(shares)) for i, size in enumerate(sizes)}
    found = share_out({f"c{i:02}": c for i, c in counts.items()}, shares)
    for split, share in enumerate(shares):
        rows = sum(wanted[split] for wanted in found.values())
        assert abs(rows - sum(sizes) * share) < len(shares)


def test_small_classes_reach_small_splits() -> None:
    """3,000 classes of three rows at 8:1:1, which rounding alone gives to train."""
    counts = {f"{i:04}": ClassCount(3, (0, 0, 0)) for i in range(3_000)}
    shares = [Fraction(8, 10), Fraction(1, 10), Fraction(1, 10)]
    found = np.array(list(share_out(counts, shares).values())).sum(axis=0)
    assert abs(found - [7_200, 900, 900]).max() <= 1


LOCKED = st.lists(
    st.tuples(st.integers(0, 40), st.tuples(*[st.integers(0, 12)] * 3)),
    min_size=1,
    max_size=20,
)


@settings(deadline=None)
@given(LOCKED)
def test_new_rows_fill_what_is_missing(
    classes: list[tuple[int, tuple[int, int, int]]],
) -> None:
    """Where a lock leaves room the class is exact; elsewhere none gets too much."""
    shares = [Fraction(7, 10), Fraction(2, 10), Fraction(1, 10)]
    counts = {f"{i:02}": ClassCount(*each) for i, each in enumerate(classes)}
    for name, wanted in share_out(counts, shares).items():
        count = counts[name]
        assert sum(wanted) == count.new
        assert min(wanted) >= 0
        total = count.new + sum(count.locked)
        exact = [total * share for share in shares]
        held = [a + b for a, b in zip(count.locked, wanted, strict=True)]
        pairs = zip(count.locked, exact, strict=True)
        room = sum(max(locked, int(x)) for locked, x in pairs) <= total
        for rows, x, new, old in zip(held, exact, wanted, count.locked, strict=True):
            assert rows < x + 1 or not new
            if room and old <= x:
                assert abs(rows - x) < 1


def test_one_split_takes_all() -> None:
    """A single share has no bound to cut at."""
    assert share_out({"a": ClassCount(3, (0,))}, [Fraction(1)]) == {"a": (3,)}
    assert cut_class(np.array([1, 2, 3], np.uint64), (3,)).tolist() == []


def test_classes_are_cut_by_position() -> None:
    """A bound is the hash of the first row of the next split; none is beyond all."""
    hashes = np.array([10, 20, 30, 40], np.uint64)
    assert cut_class(hashes, (2, 1, 1)).tolist() == [30, 40]
    assert cut_class(hashes, (0, 4, 0)).tolist() == [10, 2**64 - 1]
    strata = Strata.of([{None: cut_class(hashes, (2, 1, 1))}], 3)
    asked = np.array([10, 20, 30, 40], np.uint64)
    found = strata.split_of(pa.nulls(4, pa.string()), asked)
    assert found.tolist() == [0, 0, 1, 2]


def random_batches(seed: int, count: int = 4) -> list[Batch]:
    generator = np.random.default_rng(seed)
    out = []
    for number in range(count):
        size = int(generator.integers(1, 200))
        labels = generator.choice(
            ["cat", "dog", "고양이", None], size, p=[0.5, 0.3, 0.1, 0.1]
        )
        out.append(
            batch_of(range(size), labels=labels.tolist(), origin=f"{number}.csv")
        )
    return out


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


def test_a_stratified_rule_names_its_feature() -> None:
    """Shares for all splits, and a feature of the classes; no other rule has one."""
    with pytest.raises(SpecError, match="feature of the classes"):
        SplitRule(SplitSource.STRATIFIED, ("a",), ("1",))
    with pytest.raises(SpecError, match="feature of the classes"):
        SplitRule(SplitSource.SHARES, ("a",), ("1",), stratify_by="label")
    with pytest.raises(SpecError, match="needs a share"):
        SplitRule(SplitSource.STRATIFIED, ("a", "b"), ("1",), stratify_by="label")


@pytest.fixture(params=[True, False], ids=["inline", "files"])
def store(tmp_path: Folder, request: pytest.FixtureRequest) -> Store:
    store = Store(str(tmp_path / "work"), inline=request.param)
    store.make()
    return store


class _Unmoved(Batch):
    """A batch that cannot leave the stage that made it."""

    def __reduce__(self) -> tuple[Callable[[], Batch], tuple[()]]:
        # Beam pickles some elements for their size alone; only a stage unpickles.
        return _crossed, ()


def _crossed() -> Batch:
    raise AssertionError("a batch crossed from stage to stage")


SOURCES = {batch.block.origin: batch for batch in random_batches(3)}


def read(block: Block) -> Batch:
    batch = SOURCES[block.origin]
    return _Unmoved(batch.block, batch.rows, batch.numbers)


def test_stratified_as_stages(store: Store) -> None:
    """Read, count, read again, place: exact, and no batch waits in the runner."""
    rule = rule_of("0.7", "0.2", "0.1")
    batches = list(SOURCES.values())
    strata = strata_of(batches, rule)
    wanted: collections.Counter[str | None] = collections.Counter()
    for batch in batches:
        wanted.update(splits_of(batch, rule, SplitTables(strata=strata)))
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        blocks = (
            pipeline
            | beam.Create([b.block for b in batches]).with_output_types(Block)
            | beam.Reshuffle()
        )
        first = blocks | "Read first" >> beam.Map(read).with_output_types(Batch)
        found = beam.pvalue.AsSingleton(first | TakeStrata(rule, store))
        placed = (
            blocks
            | AwaitStrata(found)
            | "Read again" >> beam.Map(read).with_output_types(Batch)
            | place.PlaceRows(SCHEMA, Sharding(rule, {}), store, strata=found)
        )
        rows = (
            placed.segments
            | beam.MapTuple(lambda key, piece: (key[0], piece.rows))
            | beam.CombinePerKey(sum)
        )
        assert_that(rows, equal_to(list(wanted.items())))


@pytest.mark.parametrize("repeat", ["0", "1"])
def test_strata_of_a_stage_are_the_oracles(store: Store, repeat: str) -> None:
    """Bounds are those of plain loops, also when every bundle is done twice."""
    rule = rule_of("3", "1")
    wanted = strata_of(list(SOURCES.values()), rule)
    flags = beam.options.pipeline_options.PipelineOptions(
        [f"--direct_runner_bundle_repeat={repeat}"]
    )
    with beam.Pipeline(runner="FnApiRunner", options=flags) as pipeline:
        blocks = [batch.block for batch in SOURCES.values()]
        strata = (
            pipeline
            | beam.Create(blocks).with_output_types(Block)
            | beam.Map(read).with_output_types(Batch)
            | TakeStrata(rule, store)
            | beam.Map(lambda s: (s.classes.to_pylist(), s.bounds.tolist()))
        )
        assert_that(
            strata, equal_to([(wanted.classes.to_pylist(), wanted.bounds.tolist())])
        )


def test_no_rows_no_classes(store: Store) -> None:
    """A source without rows has strata without classes."""
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        batches = pipeline | beam.Create([batch_of([])]).with_output_types(Batch)
        strata = batches | TakeStrata(rule_of("1", "1"), store)
        assert_that(strata | beam.Map(lambda s: len(s.classes)), equal_to([0]))


def test_locked_rows_stay_and_new_ones_fill(store: Store, tmp_path: Folder) -> None:
    """A second run with more rows keeps all of the first, and is exact again."""
    rule = rule_of("0.5", "0.3", "0.2")
    old = random_batches(11, count=3)
    strata = strata_of(old, rule)
    before = [splits_of(batch, rule, SplitTables(strata=strata)) for batch in old]
    units = np.concatenate([unit_hashes(b, purpose=LOCK) for b in old])
    codes = [NAMES.index(str(name)) for each in before for name in each]
    lock = Assignments.of(units, np.array(codes), names=NAMES, identity="row")
    path = str(tmp_path / "lock")
    write_table(lock.to_table(), path, attempts=str(tmp_path))

    extra = random_batches(12, count=6)[3:]
    batches = [*old, *extra]
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        created = pipeline | beam.Create(batches).with_output_types(Batch)
        found = beam.pvalue.AsSingleton(created | TakeStrata(rule, store, lock=path))
        placed = created | place.PlaceRows(
            SCHEMA,
            Sharding(rule, {}),
            store,
            strata=found,
            lock=path,
            with_fingerprints=True,
        )
        settled = placed.fingerprints | SettleSplits(store, lock=path, make_lock=True)
        rows = sum(batch.rows.num_rows for batch in extra)
        facts = settled | beam.Map(lambda s: (s.locked, s.added))
        assert_that(facts, equal_to([(len(codes), rows)]))
    after = open_assignments(str(pathlib.Path(store.folder, "split_lock.arrow")))
    moved = after.find(units) != np.array(codes)
    assert not moved.any()
    held: collections.Counter[tuple[str | None, str]] = collections.Counter()
    for batch in batches:
        labels = batch.rows["label"].to_pylist()
        codes_now = after.find(unit_hashes(batch, purpose=LOCK)).tolist()
        names = [after.names[code] for code in codes_now]
        held.update(zip(labels, names, strict=True))
    sizes = collections.Counter(
        label for batch in batches for label in batch.rows["label"].to_pylist()
    )
    for label, size in sizes.items():
        for name, share in zip(NAMES, rule.proportions(), strict=True):
            assert abs(held[label, name] - size * share) < 1
