"""WriteDataset takes rows in the stage of the step before it; none goes further."""

import pathlib
from typing import Any

import apache_beam as beam
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.portability.fn_api_runner import translations

from beam_pipeline.own_pipelines.write_dataset import WriteDataset

Folder = pathlib.Path


def score(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "score": row["id"] / 2}


def graph_of(output: Folder) -> beam_runner_api_pb2.Pipeline:
    pipeline = beam.Pipeline(runner="FnApiRunner")
    (
        pipeline
        | "Make" >> beam.Create([{"id": 1}])
        | "Score" >> beam.Map(score)
        | "Write" >> WriteDataset(output)
    )
    return pipeline.to_runner_api()


def test_no_row_leaves_its_stage(tmp_path: Folder) -> None:
    """The step that takes rows has no side input, state or timer, so it is fused."""
    graph = graph_of(tmp_path / "out")
    _, stages = translations.create_and_optimize_stages(
        graph,
        phases=[
            translations.annotate_downstream_side_inputs,
            translations.annotate_stateful_dofns_as_roots,
            translations.expand_gbk,
            translations.greedily_fuse,
        ],
        known_runner_urns=frozenset(),
    )
    stage = next(s for s in stages if "Score" in names_of(s))
    (take,) = [t for t in stage.transforms if t.unique_name == "Write/Spool/Store rows"]
    made = {
        pcollection: transform.unique_name
        for transform in stage.transforms
        for pcollection in transform.outputs.values()
    }
    assert [made[rows] for rows in take.inputs.values()] == ["Score"]
    payload = beam_runner_api_pb2.ParDoPayload.FromString(take.spec.payload)
    assert not payload.side_inputs
    assert not payload.state_specs
    assert not payload.timer_family_specs
    # Nothing else takes rows, in this stage or another.
    takers = [
        transform.unique_name
        for transform in graph.components.transforms.values()
        if set(transform.inputs.values()) & set(take.inputs.values())
        and not transform.subtransforms
    ]
    assert takers == ["Write/Spool/Store rows"]


def names_of(stage: translations.Stage) -> list[str]:
    return [transform.unique_name for transform in stage.transforms]
