"""Submit a job to Dataflow, and wait for it or not."""

import contextlib
import dataclasses
import importlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions

from beam_pipeline.engines.beam_errors import translated
from beam_pipeline.engines.choice import Chosen
from beam_pipeline.engines.dataflow import brings_workers
from beam_pipeline.engines.submission import run_watched
from beam_pipeline.engines.worker_package import write_source_distribution
from transforms import files
from transforms.errors import BeamTFRecordError

__all__ = ["Submitted", "run_on_dataflow", "submit_to_dataflow"]


@dataclasses.dataclass(frozen=True)
class Submitted:
    """A job that nobody waits for.

    Attributes:
      job: Dataflow's id of it; empty for a template, which is started later.
      template: where that is; empty for none.
    """

    job: str = ""
    template: str = ""

    def in_words(self) -> str:
        """Returns what was handed over, for a person."""
        return f"job {self.job}" if self.job else f"template {self.template}"


def run_on_dataflow(
    chosen: Chosen,
    add_stages: Callable[[beam.Pipeline], object],
    *,
    beam_flags: Sequence[str],
    watch: Callable[[], None],
    abandon: Callable[[], None],
    say: Callable[[str], None],
) -> None:
    """Runs a pipeline on Dataflow and returns when it is done.

    Args:
      chosen: the engine.
      add_stages: adds everything to the pipeline.
      beam_flags: Beam's own flags; they win over the presets.
      watch: called several times a second meanwhile, in the calling thread.
      abandon: called once when the run is stopped; after it nothing may be published.
      say: called with the id of the job, once it has one, and at its end with what
        Dataflow has counted.

    Raises:
      BeamTFRecordError: it failed; the job is cancelled.
    """
    with _pipeline(chosen, add_stages, beam_flags) as pipeline:
        unsaid = _created(pipeline.runner)

        def look() -> None:
            while unsaid:
                say(_in_beams_words(unsaid.pop()))

        counters = run_watched(pipeline, look, watch, abandon)
    if counters:
        say(f"{chosen.engine.name} has counted: {counters}")


def submit_to_dataflow(
    chosen: Chosen,
    add_stages: Callable[[beam.Pipeline], object],
    *,
    beam_flags: Sequence[str],
    say: Callable[[str], None],
) -> Submitted:
    """Hands a pipeline over, or makes a template of it, and waits for nothing else.

    Args:
      chosen, add_stages, beam_flags, say: see `run_on_dataflow`.

    Raises:
      BeamTFRecordError: it was not taken.
    """
    with _pipeline(chosen, add_stages, beam_flags) as pipeline:
        result: Any = pipeline.run()
        if result.has_job:
            say(_in_beams_words(result.job_id()))
            return Submitted(job=result.job_id())
        options = pipeline.options.view_as(GoogleCloudOptions)
        return Submitted(template=options.template_location)


@contextlib.contextmanager
def _pipeline(
    chosen: Chosen,
    add_stages: Callable[[beam.Pipeline], object],
    beam_flags: Sequence[str],
) -> Iterator[beam.Pipeline]:
    """Yields the pipeline; what it stages is there meanwhile. Errors become ours."""
    place, _, kind = chosen.engine.runner.partition(":")
    with contextlib.ExitStack() as stack:
        program = ""
        if not brings_workers(beam_flags):
            made = tempfile.TemporaryDirectory(prefix="beam-tfrecord-")
            program = write_source_distribution(stack.enter_context(made))
        at = dataclasses.replace(chosen.place, program=program)
        options = PipelineOptions([*chosen.engine.presets(at), *beam_flags])
        try:
            runner = getattr(importlib.import_module(place), kind)()
            pipeline = beam.Pipeline(runner=runner, options=options)
            stack.callback(files.remove_tree, pipeline.local_tempdir)
            add_stages(pipeline)
            yield pipeline
        except BeamTFRecordError:
            raise
        except Exception as failure:
            raise translated(failure) from failure


def _created(runner: Any) -> list[str]:
    """Returns a list that gets the id of the job that a runner creates."""
    found: list[str] = []
    run = runner.run_pipeline

    def remembered(*arguments: Any, **extra: Any) -> Any:
        result = run(*arguments, **extra)
        found.append(result.job_id())
        return result

    runner.run_pipeline = remembered
    return found


def _in_beams_words(job: str) -> str:
    """Returns the line that schedulers look for, Airflow's operator among them."""
    return f"Created job with id: [{job}]"
