"""Tests of `unit/core/placing/test_leakage.py` that start processes."""

import pathlib

import apache_beam as beam
import pytest
from apache_beam.testing.util import assert_that, equal_to

from tests.support.job_plans import job_plan
from tests.support.placing import SCHEMA, batch_of
from transforms.core.model import Batch
from transforms.core.placing.leakage import (
    Place,
)
from transforms.core.placing.placement import Sharding, SplitRule, SplitSource
from transforms.stages.job_plan import LeakRule
from transforms.stages.leak_check import CheckLeaks
from transforms.stages.place import PlaceRows
from transforms.work.store import Store

Folder = pathlib.Path


@pytest.fixture
def store(tmp_path: Folder) -> Store:
    store = Store(str(tmp_path / "work"))
    store.make()
    return store


def test_the_same_key_in_two_splits(store: Store) -> None:
    """A key whose rows a column puts into two splits is found, with its rows."""
    rule = SplitRule(SplitSource.COLUMN, ("train", "test"))
    keys = ["a", "b", "a", "c", "b"]
    first = batch_of(
        range(5), keys=keys, splits=["train", "train", "train", "test", "test"]
    )
    second = batch_of([0], keys=["c"], splits=["train"], origin="b.csv")
    plan = job_plan(
        store,
        SCHEMA,
        Sharding(rule, {}, keyed=True),
        with_fingerprints=True,
        leaks=LeakRule(keyed=True),
    )
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        placed = (
            pipeline
            | beam.Create([first, second]).with_output_types(Batch)
            | PlaceRows(plan)
        )
        checked = placed.fingerprints | CheckLeaks(plan)
        leaks = checked | beam.Map(
            lambda s: [(leak.items, dict(leak.pairs)) for leak in s.leaks]
        )
        assert_that(leaks, equal_to([[(2, {("train", "test"): 2})]]), label="leaks")
        places = checked | "Places" >> beam.Map(lambda s: sorted(s.leaks[0].examples))
        wanted = [
            (Place("test", "a.csv", 3), Place("train", "b.csv", 0)),
            (Place("test", "a.csv", 4), Place("train", "a.csv", 1)),
        ]
        assert_that(places, equal_to([wanted]), label="places")
