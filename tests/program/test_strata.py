"""Tests of `unit/core/placing/test_strata.py` that start processes."""

import pathlib

import apache_beam as beam
import pytest
from apache_beam.testing.util import assert_that, equal_to

from tests.support.placing import batch_of
from tests.support.strata import (
    SOURCES,
    loaded,
    read,
    rule_of,
    strata_of,
)
from transforms.core.model import Batch, Block
from transforms.stages.stratify import TakeStrata
from transforms.work.store import Store

Folder = pathlib.Path


@pytest.fixture(params=[True, False], ids=["inline", "files"])
def store(tmp_path: Folder, request: pytest.FixtureRequest) -> Store:
    store = Store(str(tmp_path / "work"), inline=request.param)
    store.make()
    return store


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
