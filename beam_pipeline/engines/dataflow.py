"""Dataflow: the job runs on Google's machines, which see nothing of this one.

Paths are those of buckets, access is by the workers' service account, and what a
worker installs is sent along; see `worker_package`.
"""

from collections.abc import Sequence

from beam_pipeline.engines.engine import Engine, Place
from beam_pipeline.engines.flags import flag_stands

__all__ = ["DATAFLOW", "brings_workers", "is_detached"]

# A task holds a block or a shard in memory: not a dozen of them in each process, which
# would be Beam's own choice. The second one works while the first waits for the store.
_THREADS = 2
# The user's own ways to say what a worker has installed.
_WORKER_FLAGS = (
    *("sdk_container_image", "setup_file", "extra_package", "extra_packages"),
    "files_to_stage",
)
# With them the program ends when the job is handed over.
_DETACHING_FLAGS = ("template_location", "no_wait_until_finish")


def brings_workers(beam_flags: Sequence[str]) -> bool:
    """Whether the user's flags say where workers find this program."""
    return any(flag_stands(beam_flags, name) for name in _WORKER_FLAGS)


def is_detached(beam_flags: Sequence[str]) -> bool:
    """Whether nobody waits for the job: a template is made, or waiting was declined."""
    return any(flag_stands(beam_flags, name) for name in _DETACHING_FLAGS)


def _presets(place: Place) -> list[str]:
    """Returns Beam's flags for a place; later flags of the user win."""
    flags = [
        # Everything that travels is in modules, which the workers install.
        "--no_save_main_session",
        f"--number_of_worker_harness_threads={_THREADS}",
    ]
    if place.program:
        flags.append(f"--extra_package={place.program}")
    if place.parallelism is not None:
        flags.append(f"--max_num_workers={place.parallelism}")
    return flags


DATAFLOW = Engine(
    name="dataflow",
    runner="apache_beam.runners.dataflow.dataflow_runner:DataflowRunner",
    presets=_presets,
)
"""As of `--runner dataflow`."""
