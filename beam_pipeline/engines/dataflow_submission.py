"""Submit a job to Dataflow, and wait for it or not."""

import contextlib
import dataclasses
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions

from beam_pipeline.beam_internals.runners import created_jobs, new_runner
from beam_pipeline.engines.beam_errors import translated
from beam_pipeline.engines.dataflow_checks import brings_workers
from beam_pipeline.engines.engine import AddStages, Engine, Place, RunHooks, Submitted
from beam_pipeline.engines.job_watch import JobWatch
from beam_pipeline.engines.submission import run_watched
from beam_pipeline.engines.worker_package import write_source_distribution
from transforms import files
from transforms.errors import BeamTFRecordError
from transforms.work.reports import Reports

__all__ = ["run_on_dataflow", "submit_to_dataflow"]


def run_on_dataflow(
    engine: Engine,
    place: Place,
    add_stages: AddStages,
    hooks: RunHooks,
    reports: Reports,
) -> None:
    """Runs a pipeline on Dataflow and returns when it is done.

    Reports the id of the job, and at the end its counters. See `Engine.run`.
    """
    with _pipeline(engine, place, add_stages, hooks.beam_flags) as pipeline:
        unsaid = created_jobs(pipeline.runner)
        watch = JobWatch(engine.name, reports, hooks.say)

        def look() -> None:
            while unsaid:
                hooks.say(_in_beams_words(unsaid.pop()))
            watch.look()

        with watch.watching():
            counters = run_watched(pipeline, look, hooks)
    if counters:
        hooks.say(f"{engine.name} has counted: {counters}")


def submit_to_dataflow(
    engine: Engine, place: Place, add_stages: AddStages, hooks: RunHooks
) -> Submitted:
    """Hands a pipeline over, or makes a template of it, and waits for nothing else.

    See `Engine.submit`.
    """
    with _pipeline(engine, place, add_stages, hooks.beam_flags) as pipeline:
        result: Any = pipeline.run()
        if result.has_job:
            hooks.say(_in_beams_words(result.job_id()))
            return Submitted(job=result.job_id())
        options = pipeline.options.view_as(GoogleCloudOptions)
        return Submitted(template=options.template_location)


@contextlib.contextmanager
def _pipeline(
    engine: Engine, place: Place, add_stages: AddStages, beam_flags: Sequence[str]
) -> Iterator[beam.Pipeline]:
    """Yields the pipeline, with its staged files; translates errors into ours."""
    with contextlib.ExitStack() as stack:
        program = ""
        if not brings_workers(beam_flags):
            made = tempfile.TemporaryDirectory(prefix="beam-tfrecord-")
            program = write_source_distribution(stack.enter_context(made))
        place = dataclasses.replace(place, program=program)
        options = PipelineOptions([*engine.presets(place), *beam_flags])
        try:
            pipeline = beam.Pipeline(runner=new_runner(engine.runner), options=options)
            stack.callback(files.remove_tree, pipeline.local_tempdir)
            add_stages(pipeline)
            yield pipeline
        except BeamTFRecordError:
            raise
        except Exception as failure:
            raise translated(failure) from failure


def _in_beams_words(job: str) -> str:
    """Returns the line that schedulers look for, Airflow's operator among them."""
    return f"Created job with id: [{job}]"
