"""The workers of a user's pipeline: where they are, and how values reach them.

A master on another machine, or Beam's --environment_type, puts them elsewhere: they
share no disk with the program that builds the pipeline, unless its user says so.

What a pipeline is built with is in its graph if it is small. A large value is made
again, once a process, and must be what it was.
"""

import dataclasses
import functools
import pickle
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import apache_beam as beam

from beam_pipeline.engines import checks
from transforms.errors import InputError, UsageError
from transforms.storage.paths import Access

# Of a file. Two stages may hold what it says, each in base 64: 1 MiB of the graph for
# three files.
_FILE_BYTES = 1 << 17

_Value = TypeVar("_Value")


def workers_of(pipeline: beam.Pipeline) -> checks.EngineWorkers | None:
    """Returns the workers of an engine; None for those of this machine."""
    # By name: Beam takes long to load it.
    runner, flags = type(pipeline.runner).__name__, pipeline.options.get_all_options()
    master = checks.master_of(runner, flags)
    # Beam's default for others is a container.
    starts_here = {
        "DataflowRunner": False,
        "FlinkRunner": master in checks.WITHIN_SERVER,
        "PortableRunner": flags.get("job_endpoint") in checks.WITHIN_SERVER,
        "PrismRunner": True,
        "SparkRunner": not master.startswith("spark://"),
    }
    if runner not in starts_here:
        return None
    return checks.workers_of(runner, flags, starts_here=starts_here[runner])


@dataclasses.dataclass(frozen=True)
class Held(Generic[_Value]):
    """A value on its way to the workers.

    Attributes:
      path: of what the value is made of.
      digest: of the value, or of the file at the path.
      make: makes it again; returns the value and its digest.
      inline: the value; None where it is large.
      access: how the path is reached, wherever the value is sent.
    """

    path: str
    digest: str
    make: Callable[[], tuple[_Value, str]] = dataclasses.field(compare=False)
    inline: _Value | None = dataclasses.field(default=None, compare=False)
    access: Access = dataclasses.field(default_factory=Access)

    def get(self) -> _Value:
        """Returns the value.

        Raises:
          InputError: it is another one now.
        """
        if self.inline is not None:
            return self.inline
        value: _Value = _made_once(self)
        return value


def hold(
    path: str,
    make: Callable[[], tuple[_Value, str]],
    most_bytes: int | None = None,
) -> Held[_Value]:
    """Makes a value, and keeps it where it is small; raises what `make` does.

    Args:
      path: of what it is made of.
      make: returns the value and its digest; a function of a module.
      most_bytes: that it may have in the graph; by default those of a file.
    """
    value, digest = make()
    size = len(pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL))
    most = _FILE_BYTES if most_bytes is None else most_bytes
    return Held(path, digest, make, value if size <= most else None)


# Asked for every bundle; a process may work for several pipelines in turn.
@functools.lru_cache(maxsize=4)
def _made_once(held: Held[Any]) -> Any:
    """Returns a held value, made anew; InputError if what it is made of has changed."""
    digest, cause = "", None
    try:
        value, digest = held.make()
    except (FileNotFoundError, UsageError) as error:
        cause = error
    if digest != held.digest:
        raise InputError(
            f"What a pipeline was built with must stay as it is while it runs; "
            f"{held.path!r} has changed or is gone. Build the pipeline again."
        ) from cause
    return value
