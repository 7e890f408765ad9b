"""Where a job would run: an engine and its place, as a run asks for them."""

from collections.abc import Sequence
from typing import NamedTuple

from beam_pipeline.engines.engine import Engine, Place
from beam_pipeline.engines.flags import flag_given
from beam_pipeline.engines.job_server import JobServerEngine
from beam_pipeline.engines.table import ENGINES, engine_of
from beam_pipeline.settings.spec import Spec

__all__ = ["Chosen", "artifact_of", "choose"]


class Chosen(NamedTuple):
    """An engine and the place that it has found."""

    engine: Engine
    place: Place


def choose(spec: Spec, beam_flags: Sequence[str]) -> Chosen | None:
    """Returns where a job is to run; None for this machine."""
    engine = engine_of(flag_given(beam_flags, "runner") or spec.runner)
    if engine is None:
        return None
    engine.check(spec, beam_flags)
    return Chosen(engine, engine.place(spec, beam_flags))


def artifact_of(name: str) -> str:
    """Returns the name of an engine's job server in Beam's repository; "" for none."""
    engine = ENGINES[name]
    return engine.artifact if isinstance(engine, JobServerEngine) else ""
