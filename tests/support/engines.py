"""The engine on which a job would run, and its flags."""

import importlib.metadata
import os
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

from beam_pipeline.engines.checks import values_of
from beam_pipeline.engines.presets import ENGINES, Engine, engine_of
from beam_pipeline.settings.spec import Spec, make_spec

ROOM = "/some folder"


class Chosen(NamedTuple):
    """An engine, and Beam's flags for a job on it."""

    engine: Engine
    flags: list[str]


def choose(spec: Spec, beam_flags: Sequence[str]) -> Chosen | None:
    """Returns where a job is to run; None for this machine."""
    engine = engine_of(values_of(beam_flags).get("runner") or spec.runner)
    if engine is None:
        return None
    engine.check(spec, beam_flags)
    return Chosen(engine, engine.flags(spec, beam_flags, ROOM))


PACKAGES = ("beam_pipeline", "beam_tfrecord", "transforms")


def spec(**settings: object) -> Spec:
    return make_spec({"source": "/in/rows.csv", "output": "/out/rows", **settings})


def put_jar(engine: str, parts: str = "") -> str:
    """Puts a job server where `scripts/cluster` does; returns its path."""
    version = importlib.metadata.version("apache-beam")
    name = ENGINES[engine].program.format(version).replace("*", parts)
    path = pathlib.Path(os.environ["XDG_CACHE_HOME"], "beam-tfrecord", name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    return str(path)
