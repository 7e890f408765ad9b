"""The engine on which a job would run, and its place."""

import pathlib
from collections.abc import Sequence
from typing import NamedTuple

import apache_beam as beam
import pytest

from beam_pipeline.engines import job_server
from beam_pipeline.engines.checks import flag_given
from beam_pipeline.engines.presets import ENGINES, Engine, WorkerPlace, engine_of
from beam_pipeline.settings.spec import Spec, make_spec

__all__ = ["Chosen", "artifact_of", "choose"]


class Chosen(NamedTuple):
    """An engine and the place that it has found."""

    engine: Engine
    place: WorkerPlace


def choose(spec: Spec, beam_flags: Sequence[str]) -> Chosen | None:
    """Returns where a job is to run; None for this machine."""
    engine = engine_of(flag_given(beam_flags, "runner") or spec.runner)
    if engine is None:
        return None
    engine.check(spec, beam_flags)
    return Chosen(engine, engine.place(spec, beam_flags))


def artifact_of(name: str) -> str:
    """Returns the name of an engine's job server in Beam's repository; "" for none."""
    return ENGINES[name].artifact


PACKAGES = ("beam_pipeline", "beam_tfrecord", "transforms")
Folder = pathlib.Path


def write_java(home: Folder, says: str, monkeypatch: pytest.MonkeyPatch) -> Folder:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(home))
    return program


def spec(**settings: object) -> Spec:
    return make_spec({"source": "/in/rows.csv", "output": "/out/rows", **settings})


def put_jar(engine: str) -> Folder:
    version = beam.version.__version__
    path = job_server.jar_path(artifact_of(engine), version)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    return path
