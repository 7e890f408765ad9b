"""Tests of `unit/core/placing/test_split_lock.py` that start processes."""

import pathlib

import apache_beam as beam
import pytest
from apache_beam.testing.util import assert_that, equal_to

from tests.support.job_plans import job_plan
from tests.support.placing import SCHEMA, batch_of, said_of
from transforms.core.model import Batch, Reason
from transforms.core.placing.placement import Sharding, SplitRule, SplitSource
from transforms.core.segment import unpack
from transforms.stages import place
from transforms.stages.job_plan import LeakRule
from transforms.stages.leak_check import CheckLeaks
from transforms.work.split_ids import read_split_ids
from transforms.work.split_locks import write_table
from transforms.work.store import Store

Folder = pathlib.Path
NAMES = ("train", "test")


@pytest.fixture
def store(tmp_path: Folder) -> Store:
    store = Store(str(tmp_path / "work"))
    store.make()
    return store


def test_ids_as_stages(store: Store, tmp_path: Folder) -> None:
    """Rows without an id in the table are rejects; ids without a row are reported."""
    path = tmp_path / "ids.csv"
    path.write_text("id,split\na,train\nb,test\ngone,test\naway,train\n")
    table = str(tmp_path / "table")
    found = read_split_ids(str(path), identity="key")
    write_table(found.to_table(), table, attempts=str(tmp_path))
    rule = SplitRule(SplitSource.TABLE, NAMES)
    plan = job_plan(
        store,
        SCHEMA,
        Sharding(rule, {}, keyed=True),
        table=table,
        with_fingerprints=True,
        leaks=LeakRule(keyed=True, table=table),
    )
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        batch = batch_of([0, 1, 2], keys=["a", "strange", "b"])
        placed = (
            pipeline
            | beam.Create([batch]).with_output_types(Batch)
            | place.PlaceRows(plan)
        )
        checked = placed.fingerprints | CheckLeaks(plan)
        rows = placed.segments | beam.MapTuple(
            lambda key, piece: (key, unpack(piece).rows)
        )
        assert_that(rows, equal_to([(("train", 0), 1), (("test", 0), 1)]), label="rows")
        logs = placed.rejects | "Counts" >> beam.Map(lambda log: dict(log.counts))
        assert_that(logs, equal_to([{Reason.BAD_SPLIT: 1}]), label="rejects")
        said = placed.rejects | "Lines" >> beam.FlatMap(said_of)
        assert_that(said, equal_to([(2, True)]), label="lines")
        missing = checked | beam.Map(lambda s: (s.missing_ids, s.missing_examples))
        assert_that(missing, equal_to([(2, ("away", "gone"))]), label="missing")
