"""Submit a job to Dataflow, and wait for it or not."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from beam_pipeline.engines.beam_errors import translated
from beam_pipeline.engines.engine import AddStages, Engine, Place, RunHooks
from beam_pipeline.engines.job_watch import JobWatch
from beam_pipeline.engines.submission import new_runner, run_watched
from transforms import files
from transforms.errors import BeamTFRecordError
from transforms.work.reports import Reports


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
        check = "its machines, which take minutes to start, run: see the job's page"
        watch = JobWatch(engine.name, reports, hooks.say, check)
        with watch.watching():
            counters = run_watched(
                pipeline,
                watch.look,
                hooks,
                submitted=lambda result: hooks.say(_in_beams_words(result.job_id())),
            )
    if counters:
        hooks.say(f"{engine.name} has counted: {counters}")


def submit_to_dataflow(
    engine: Engine, place: Place, add_stages: AddStages, hooks: RunHooks
) -> str:
    """Hands a pipeline over, and returns the id of its job.

    See `Engine.submit`.
    """
    with _pipeline(engine, place, add_stages, hooks.beam_flags) as pipeline:
        result: Any = pipeline.run()
        job: str = result.job_id()
        hooks.say(_in_beams_words(job))
        return job


@contextlib.contextmanager
def _pipeline(
    engine: Engine, place: Place, add_stages: AddStages, beam_flags: Sequence[str]
) -> Iterator[beam.Pipeline]:
    """Yields the pipeline; translates errors into ours."""
    options = PipelineOptions([*engine.presets(place), *beam_flags])
    with contextlib.ExitStack() as stack:
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
