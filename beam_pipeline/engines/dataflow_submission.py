"""Submit a job to Dataflow, and wait for it or not.

Its workers install this program as a source distribution. It is built from the modules
that run here, installed or not, so that it needs neither a checkout nor a build tool.
Its requirements are pinned to the versions installed here, because bytes of decoded
images depend on the decoder. Equal installations make equal files.
"""

import contextlib
import dataclasses
import gzip
import importlib.metadata
import io
import os
import pathlib
import re
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions

from beam_pipeline.engines.beam_errors import translated
from beam_pipeline.engines.dataflow_checks import brings_workers
from beam_pipeline.engines.engine import AddStages, Engine, Place, RunHooks, Submitted
from beam_pipeline.engines.job_watch import JobWatch
from beam_pipeline.engines.submission import new_runner, run_watched
from beam_pipeline.version import __version__
from transforms import files
from transforms.errors import BeamTFRecordError, UsageError
from transforms.work.reports import Reports

_NAME = "beam-tfrecord"
# The packages are next to each other, in a checkout and in site-packages.
_ROOT = pathlib.Path(__file__).parents[2]
_PACKAGES = ("beam_pipeline", "beam_tfrecord", "transforms")
# Beside modules; as in setup.py.
_DATA = ("py.typed",)
# Extras that decide bytes, or that a worker needs to publish.
_EXTRAS = ("heif", "gcs")

_SETUP = """from setuptools import setup

setup(
    name={name!r},
    version={version!r},
    packages={packages!r},
    package_data={{"": {data!r}}},
    python_requires=">=3.11",
    install_requires={requires!r},
)
"""
_PROJECT = """[build-system]
requires = ["setuptools>=65"]
build-backend = "setuptools.build_meta"
"""


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


def write_source_distribution(folder: str) -> str:
    """Writes the source distribution into a folder; returns its path.

    Raises:
      UsageError: its requirements cannot be determined.
    """
    contents = dict(_sources())
    packages = sorted({os.path.dirname(name).replace("/", ".") for name in contents})
    root = f"{_NAME.replace('-', '_')}-{__version__}"
    setup = _SETUP.format(
        name=_NAME,
        version=__version__,
        packages=packages,
        data=list(_DATA),
        requires=required_here(),
    )
    facts = f"Metadata-Version: 2.1\nName: {_NAME}\nVersion: {__version__}\n"
    contents |= {
        "PKG-INFO": facts.encode(),
        "pyproject.toml": _PROJECT.encode(),
        "setup.py": setup.encode(),
    }
    path = os.path.join(folder, f"{root}.tar.gz")
    # Sorted names and no times: equal installations give equal bytes.
    with (
        open(path, "wb") as out,
        gzip.GzipFile("", "wb", fileobj=out, mtime=0) as packed,
        tarfile.open(mode="w", fileobj=packed, format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, data in sorted(contents.items()):
            entry = tarfile.TarInfo(f"{root}/{name}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return path


def required_here() -> list[str]:
    """Returns what this program requires, in the versions that are installed here.

    Raises:
      UsageError: this program itself is not installed, so nobody knows.
    """
    try:
        requirements = importlib.metadata.requires(_NAME) or []
    except importlib.metadata.PackageNotFoundError as error:
        raise UsageError(
            f"Workers must know what to install; {_NAME} itself is not installed "
            f"here, so that is not known. Install it (pip install .), or name an "
            f"image that holds it after --: --sdk_container_image=IMAGE."
        ) from error
    found = []
    for requirement in requirements:
        said = re.match(r"[A-Za-z0-9._-]+", requirement)
        extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)", requirement)
        if said is None or (extra is not None and extra[1] not in _EXTRAS):
            continue
        try:
            found.append(f"{said[0]}=={importlib.metadata.version(said[0])}")
        except importlib.metadata.PackageNotFoundError:
            # An extra that is not installed here.
            continue
    return sorted(set(found))


def _sources() -> Iterator[tuple[str, bytes]]:
    for package in _PACKAGES:
        for pattern in ("*.py", *_DATA):
            for path in (_ROOT / package).rglob(pattern):
                yield path.relative_to(_ROOT).as_posix(), path.read_bytes()
