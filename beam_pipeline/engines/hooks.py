"""Callbacks and flags that a caller passes to whatever runs the job."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["RunHooks"]


def _nothing() -> None:
    """Nobody watches."""


def _unheard(text: str) -> None:
    """Nobody listens."""


def _unnoted(job: str) -> None:
    """Nobody notes it."""


@dataclasses.dataclass(frozen=True)
class RunHooks:
    """Where the caller of a run takes part in it.

    Attributes:
      beam_flags: Beam's own flags; they win over ours.
      between: a PTransform, own steps from Batch to Batch; None for none. See
        `beam_pipeline.job.build`.
      watch: called several times a second meanwhile, in the calling thread.
      say: called with what a person should know.
      abandon: called once when the run is stopped; after it nothing may be published.
      submits: called with the name of the job, before it is submitted.
    """

    beam_flags: Sequence[str] = ()
    # Of Beam's type, which takes long to load.
    between: Any = None
    watch: Callable[[], None] = _nothing
    say: Callable[[str], None] = _unheard
    abandon: Callable[[], None] = _nothing
    submits: Callable[[str], None] = _unnoted
