"""The engine's job of a run whose lease has expired, and who ends it."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest

from beam_pipeline.engines.engine import Place
from beam_pipeline.engines.flink import FLINK
from beam_pipeline.engines.spark import SPARK
from beam_pipeline.running.convert import _end_job

PLACE = Place("", "", master="flink:8081")
NOTE = {"engine": "flink", "master": "flink:8081", "engine_job": "beam-tfrecord-1"}


@pytest.mark.parametrize(
    ("note", "ended"),
    [
        (NOTE, [("flink:8081", "beam-tfrecord-1")]),
        ({**NOTE, "master": "other:8081"}, []),
        ({**NOTE, "engine": "spark"}, []),
        ({}, []),
    ],
)
def test_the_run_that_takes_over_ends_the_job(
    note: Mapping[str, Any], ended: list[tuple[str, str]]
) -> None:
    """Of its own engine and master alone: it has no way to others."""
    found: list[tuple[str, str]] = []

    def cancel(master: str, job: str) -> None:
        found.append((master, job))
        # It has ended by itself, or Flink is being started again.
        raise OSError("refused")

    _end_job(dataclasses.replace(FLINK, cancel=cancel), PLACE, note)
    assert found == ended


def test_engines_that_cannot_be_asked() -> None:
    """Spark's job ends with its driver; a local run has none."""
    _end_job(SPARK, PLACE, NOTE)
    _end_job(None, None, NOTE)
