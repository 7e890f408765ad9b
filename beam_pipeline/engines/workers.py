"""Who starts the workers of a job, and which versions they must have."""

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from beam_pipeline.engines.engine import JobSettings, flag_given, has_flag
from beam_pipeline.version import FOR_ROWS, deciding_versions
from transforms.errors import SpecError, UsageError
from transforms.work.worker_check import VersionRules

_OURS = ("worker_pool", "worker_command")
_BEAMS = ("environment_type", "environment_config", "environment_options")
# Beam's name for workers that are threads of this process.
_LOOPBACK = "LOOPBACK"


def starts_elsewhere(settings: JobSettings, beam_flags: Sequence[str]) -> bool:
    """Whether workers are started without this program: they may share no disk."""
    if any(getattr(settings, name) for name in _OURS):
        return True
    named = any(has_flag(beam_flags, name) for name in _BEAMS)
    return named and flag_given(beam_flags, "environment_type") != _LOOPBACK


def environment_flags(
    settings: JobSettings, beam_flags: Sequence[str]
) -> tuple[str, ...] | None:
    """Returns Beam's flags that say how workers are started.

    Returns:
      nothing where the user's own flags say it; None where it is this program's part.
    """
    if settings.worker_pool:
        return (
            "--environment_type=EXTERNAL",
            f"--environment_config={settings.worker_pool}",
        )
    if settings.worker_command:
        return process_flags(settings.worker_command, settings.worker_env)
    return () if any(has_flag(beam_flags, name) for name in _BEAMS) else None


def process_flags(
    command: str, variables: Mapping[str, str] = MappingProxyType({})
) -> tuple[str, ...]:
    """Returns Beam's flags for workers that the engine starts as processes."""
    config: dict[str, object] = {"command": command}
    if variables:
        config["env"] = dict(variables)
    return (
        "--environment_type=PROCESS",
        f"--environment_config={json.dumps(config)}",
    )


def starts_in_words(flags: Sequence[str]) -> str:
    """Returns what to look after where workers are silent, by Beam's flags."""
    config = flag_given(flags, "environment_config")
    if not config or flag_given(flags, "environment_type") != "EXTERNAL":
        return "the workers' machines"
    return f"the pool at {config} on each of the engine's machines"


def check_starts(settings: JobSettings, beam_flags: Sequence[str]) -> None:
    """Refuses to be told twice who starts the workers.

    Raises:
      UsageError: a setting and a flag of Beam's both say it.
    """
    ours = [name for name in _OURS if getattr(settings, name)]
    beams = [name for name in _BEAMS if has_flag(beam_flags, name)]
    if ours and beams:
        raise UsageError(
            f"Either --{ours[0].replace('_', '-')} or Beam's --{beams[0]} says how "
            f"workers are started; both were given. Leave one out."
        )


def refuse_starts(settings: JobSettings, who: str) -> None:
    """Refuses settings of engines with a job server.

    Args:
      settings: of a job that runs elsewhere.
      who: starts the workers there, as in "a local run".

    Raises:
      SpecError: one is given.
    """
    for name in (*_OURS, "job_endpoint"):
        if getattr(settings, name):
            raise SpecError(
                f"--{name.replace('_', '-')} is for Flink, Spark and Prism; {who} "
                f"starts its workers itself. Leave it out, or choose the engine with "
                f"--runner."
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
