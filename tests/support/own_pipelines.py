"""Pipelines of one's own that write a dataset of rows."""

import json
import pathlib
from collections.abc import Callable, Iterable
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from beam_pipeline.own_pipelines.write_dataset import WriteDataset
from tests.support.outputs import contents, manifest

Folder = pathlib.Path
Steps = Callable[[beam.Pipeline], "beam.PCollection[Any]"]


def run_steps(steps: Steps, output: Folder, *flags: str, **settings: Any) -> None:
    """Writes the rows that some steps give, on the runner inside Beam.

    Args:
      steps: add what gives the rows to a pipeline.
      output: the dataset's folder.
      flags: Beam's.
      settings: of WriteDataset.
    """
    options = PipelineOptions(list(flags))
    with beam.Pipeline(runner="FnApiRunner", options=options) as pipeline:
        steps(pipeline) | WriteDataset(output, **settings)


def write_rows(
    rows: Iterable[Any],
    output: Folder,
    *flags: str,
    bundles: int = 1,
    **settings: Any,
) -> None:
    """Writes the rows, divided into this many bundles at least."""
    if bundles > 1:
        # Each thread takes a part of what comes out of a Reshuffle as its bundle. For a
        # few thousand rows alone: Beam's threads lose some where a stage gives more.
        flags = (
            *flags,
            f"--direct_num_workers={bundles}",
            "--direct_running_mode=multi_threading",
        )

    def steps(pipeline: beam.Pipeline) -> "beam.PCollection[Any]":
        made = pipeline | "Make" >> beam.Create([*rows], reshuffle=bundles > 1)
        return made | "Type" >> beam.Map(lambda row: row).with_output_types(Any)

    run_steps(steps, output, *flags, **settings)


def bytes_of(dataset: Folder) -> dict[str, bytes]:
    """Returns every file of a dataset, without what the manifest says of the run."""
    stated = {**manifest(dataset), "run": None}
    return {**contents(dataset), "manifest.json": json.dumps(stated).encode()}


def digest_of(dataset: Folder) -> str:
    found: str = manifest(dataset)["dataset"]["digest"]
    return found
