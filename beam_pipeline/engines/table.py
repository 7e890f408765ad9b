"""The engines by name."""

from beam_pipeline.engines.dataflow import DATAFLOW
from beam_pipeline.engines.engine import Engine
from beam_pipeline.engines.flink import FLINK
from beam_pipeline.engines.prism import PRISM
from beam_pipeline.engines.spark import SPARK
from transforms.errors import SpecError, closest

__all__ = ["ENGINES", "RUNNERS", "engine_of"]

ENGINES = {engine.name: engine for engine in (FLINK, SPARK, PRISM, DATAFLOW)}
# What Beam calls the runner that is used within this process.
_LOCAL = ("local", "FnApiRunner", "DirectRunner")
RUNNERS = ("local", *ENGINES)


def engine_of(runner: str) -> Engine | None:
    """Returns the engine of a name of ours or of Beam's; None for the local run.

    Raises:
      SpecError: there is no such runner; names the nearest.
    """
    for engine in ENGINES.values():
        if runner in (engine.name, engine.beam_name):
            return engine
    if runner in _LOCAL:
        return None
    known = [*RUNNERS, *(engine.beam_name for engine in ENGINES.values()), *_LOCAL[1:]]
    near = closest(runner, known)
    hint = f" Did you mean {near!r}?" if near else ""
    raise SpecError(
        f"The runner is {', '.join(RUNNERS)}, or Beam's name of one of them; found "
        f"{runner!r}.{hint}"
    )
