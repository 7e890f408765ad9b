"""Tests of `unit/core/placing/test_strata.py` that start processes."""

import collections
import pathlib

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.testing.util import assert_that, equal_to

from tests.support.job_plans import job_plan
from tests.support.placing import SCHEMA, batch_of, splits_of
from tests.support.strata import (
    SOURCES,
    loaded,
    random_batches,
    read,
    rule_of,
    strata_of,
)
from transforms.core.model import Batch, Block
from transforms.core.placing.identity import LOCK, unit_hashes
from transforms.core.placing.placement import (
    Sharding,
)
from transforms.core.placing.splitting import Assignments, SplitTables
from transforms.core.segment import unpack
from transforms.stages import place
from transforms.stages.job_plan import LeakRule
from transforms.stages.leak_check import CheckLeaks
from transforms.stages.stratify import AwaitStrata, TakeStrata
from transforms.work.split_locks import open_assignments, write_table
from transforms.work.store import Store

Folder = pathlib.Path
NAMES = ("train", "val", "test")


@pytest.fixture(params=[True, False], ids=["inline", "files"])
def store(tmp_path: Folder, request: pytest.FixtureRequest) -> Store:
    store = Store(str(tmp_path / "work"), inline=request.param)
    store.make()
    return store


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
        strata = first | TakeStrata(rule, store)
        found = beam.pvalue.AsSingleton(strata)
        placed = (
            blocks
            | AwaitStrata(strata)
            | "Read again" >> beam.Map(read).with_output_types(Batch)
            | place.PlaceRows(job_plan(store, SCHEMA, Sharding(rule, {})), found)
        )
        rows = (
            placed.segments
            | beam.MapTuple(lambda key, piece: (key[0], unpack(piece).rows))
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
            | beam.Map(loaded, store)
            | beam.Map(lambda s: (s.classes.to_pylist(), s.bounds.tolist()))
        )
        assert_that(
            strata, equal_to([(wanted.classes.to_pylist(), wanted.bounds.tolist())])
        )


def test_no_rows_no_classes(store: Store) -> None:
    """A source without rows has strata without classes."""
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        batches = pipeline | beam.Create([batch_of([])]).with_output_types(Batch)
        taken = batches | TakeStrata(rule_of("1", "1"), store)
        strata = taken | beam.Map(loaded, store)
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
    plan = job_plan(
        store,
        SCHEMA,
        Sharding(rule, {}),
        lock=path,
        with_fingerprints=True,
        leaks=LeakRule(lock=path, make_lock=True),
    )
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        created = pipeline | beam.Create(batches).with_output_types(Batch)
        found = beam.pvalue.AsSingleton(created | TakeStrata(rule, store, lock=path))
        placed = created | place.PlaceRows(plan, found)
        placed.fingerprints | CheckLeaks(plan)
    after = open_assignments(str(pathlib.Path(store.folder, "split_lock.arrow")))
    assert len(after) == len(codes) + sum(batch.rows.num_rows for batch in extra)
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
