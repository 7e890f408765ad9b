"""Who starts the workers of a job, and which versions they must have."""

import json
from collections.abc import Sequence

from beam_pipeline.engines.engine import JobSettings, flag_given, has_flag
from beam_pipeline.version import FOR_ROWS, __version__, deciding_versions
from transforms.errors import SpecError
from transforms.work.worker_check import VersionRules

_ENVIRONMENT = ("environment_type", "environment_config", "environment_options")
# Beam's name for workers that are threads of this process.
_LOOPBACK = "LOOPBACK"


def environment_given(beam_flags: Sequence[str]) -> bool:
    """Whether Beam's own flags say how workers are started."""
    return any(has_flag(beam_flags, name) for name in _ENVIRONMENT)


def starts_elsewhere(beam_flags: Sequence[str]) -> bool:
    """Whether workers are started without this program: they may share no disk."""
    is_loopback = flag_given(beam_flags, "environment_type") == _LOOPBACK
    return environment_given(beam_flags) and not is_loopback


def process_flags(command: str) -> tuple[str, ...]:
    """Returns Beam's flags for workers that the engine starts as processes."""
    return (
        "--environment_type=PROCESS",
        f"--environment_config={json.dumps({'command': command})}",
    )


def silence_check(flags: Sequence[str]) -> str:
    """Returns what to check where workers are silent, by Beam's flags."""
    starts = "its machines start workers"
    config = flag_given(flags, "environment_config")
    if config and flag_given(flags, "environment_type") == "EXTERNAL":
        starts = f"a pool at {config} runs on each of its machines"
    return (
        f"it has free slots, that {starts}, and that these have beam-tfrecord "
        f"{__version__} and reach the output's store; Ctrl-C ends the job"
    )


def refuse_starts(settings: JobSettings, who: str) -> None:
    """Refuses settings of engines with a job server.

    Args:
      settings: of a job that runs elsewhere.
      who: starts the workers there, as in "a local run".

    Raises:
      SpecError: one is given.
    """
    if settings.job_endpoint:
        raise SpecError(
            f"--job-endpoint is for Flink, Spark and Prism; {who} starts its workers "
            f"itself. Leave it out, or choose the engine with --runner."
        )
    for name, engine in (("flink_master", "flink"), ("spark_master", "spark")):
        if getattr(settings, name):
            raise SpecError(
                f"--{name.replace('_', '-')} is for --runner {engine}, and this is "
                f"{who}. Add --runner {engine}, or leave it out."
            )


def version_rules(*, images: bool, compressed: bool) -> VersionRules:
    """Returns the versions that decide bytes of a job, which are those of here.

    Machines of others have another zlib, say, than this one; a job of plain rows need
    not be refused for that.

    Args:
      images: whether it has images, whose codecs decide bytes.
      compressed: whether its shards are compressed.
    """
    found = deciding_versions()
    deciding = FOR_ROWS | ({"zlib"} if compressed else set())
    free = frozenset() if images else frozenset(found.keys() - deciding)
    return VersionRules(found, deciding_versions, free)
