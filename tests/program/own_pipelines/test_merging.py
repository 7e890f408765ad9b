"""Runs that are merged before they are cut give the same dataset."""

import pathlib
from typing import Any

import apache_beam as beam
import pytest

from beam_pipeline.own_pipelines import rows_plan
from beam_pipeline.own_pipelines.write_dataset import WriteDataset
from tests.support.outputs import contents, manifest, names
from transforms.gather.merge_runs import Merging

Folder = pathlib.Path

RUNNER = "FnApiRunner"


def write(output: Folder, **settings: Any) -> None:
    made = [{"id": i % 900, "text": f"row {i % 900}", "n": i % 2} for i in range(1000)]
    with beam.Pipeline(runner=RUNNER) as pipeline:
        _ = (
            pipeline
            | beam.Create(made)
            | beam.Reshuffle()
            | WriteDataset(
                output, splits={"train": 0.5, "test": 0.5}, num_shards=5, **settings
            )
        )


@pytest.mark.parametrize(
    "settings", [{}, {"key": "id", "duplicates": "keep"}, {"label": "text"}]
)
def test_merged_runs_give_the_same_dataset(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    """Byte for byte, with a note that says so."""
    write(tmp_path / "wanted", **settings)
    monkeypatch.setattr(rows_plan, "plan_merging", lambda *_sizes: Merging(3, 2))
    write(tmp_path / "out", **settings)
    assert contents(tmp_path / "out") == contents(tmp_path / "wanted")
    assert len(names(tmp_path / "out")) > 10
    notes = manifest(tmp_path / "out")["run"]["notes"]
    assert any("were merged before" in note for note in notes)
