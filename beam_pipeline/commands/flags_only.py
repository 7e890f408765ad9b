"""Calls without a sub-command: all settings as flags, as schedulers write them.

`BeamRunPythonPipelineOperator` of Airflow calls a pipeline with one list of
`--name=value`, ours and Beam's mixed, in snake case, a boolean as `--name` or
`--name=true`. Here that list becomes the arguments of `convert`.
"""

import os
import re
from collections.abc import Sequence

import click

from beam_pipeline.engines.checks import check_words
from beam_pipeline.settings.removed import removed_flag
from transforms.errors import UsageError, first_few

# Arguments of `convert`, which are flags here.
_ARGUMENTS = ("--source", "--output")
_TRUE = ("true", "1", "yes")
# How many words after -- an error shows.
_SHOWN = 4
_FALSE = ("false", "0", "no")
# Flags of Beam that were settings of ours as well.
_BEAMS_TOO = frozenset(["--flink_master", "--job_endpoint"])
_CLOUD_LABELS = re.compile(r"\{|.*=", re.DOTALL)


def is_flags_only(arguments: Sequence[str]) -> bool:
    """Whether a command line names no sub-command, but flags of a job."""
    if not arguments or not arguments[0].startswith("--"):
        return False
    return arguments[0] not in ("--", "--help", "--version")


def check_beam_words(arguments: Sequence[str], beam_flags: Sequence[str]) -> None:
    """Raises UsageError for what follows -- where it cannot be flags of Beam."""
    if beam_flags and arguments[:1] not in (["convert"], ["plan"]):
        raise UsageError(
            f"Only 'convert' and 'plan' take flags of Beam, which follow --; found "
            f"{first_few([*map(repr, beam_flags)], _SHOWN)} there. Leave -- out; a "
            f"path that begins with a dash is written ./-NAME."
        )
    check_words(beam_flags)


def split_flags(
    arguments: Sequence[str], command: click.Command
) -> tuple[list[str], list[str]]:
    """Returns the arguments of a command, and Beam's own flags.

    Args:
      arguments: flags alone.
      command: `convert`.

    Raises:
      UsageError: something is no flag, or a boolean is neither true nor false.
    """
    ours = {
        name: option
        for option in command.params
        if isinstance(option, click.Option)
        for name in (*option.opts, *option.secondary_opts)
    }
    paths: dict[str, str] = {}
    out: list[str] = []
    beams: list[str] = []
    for name, value in _pairs(arguments):
        flag = name.replace("_", "-")
        # Airflow adds labels of Google Cloud by itself; our --labels takes a path.
        is_clouds = flag == "--labels" and value and _CLOUD_LABELS.match(value)
        option = ours.get(flag)
        if flag in _ARGUMENTS:
            if not value:
                raise UsageError(f"{flag} must be given a path.")
            paths[flag] = value
        elif option is None or (is_clouds and not os.path.exists(value or "")):
            beam_flag = f"--{name[2:].replace('-', '_')}"
            if beam_flag not in _BEAMS_TOO and (gone := removed_flag([name])):
                raise UsageError(f"{gone} See 'beam-tfrecord convert --help'.")
            beams.append(beam_flag if value is None else f"{beam_flag}={value}")
        elif option.is_flag:
            out += _boolean(option, flag, value)
        else:
            out.append(flag if value is None else f"{flag}={value}")
    has_spec = any(word.startswith("--spec=") for word in out)
    if [*paths] == ["--output"]:
        raise UsageError("--output needs --source beside it, or both belong in --spec.")
    if not has_spec and len(paths) < len(_ARGUMENTS):
        raise UsageError(
            "--source and --output must be given, or a --spec that says them. See "
            "'beam-tfrecord convert --help'."
        )
    named = [paths[flag] for flag in _ARGUMENTS if flag in paths]
    return [*out, "--", *named] if named else out, beams


def _pairs(arguments: Sequence[str]) -> list[tuple[str, str | None]]:
    """Returns each flag and its value, which may be the next word; None for none."""
    pairs: list[tuple[str, str | None]] = []
    for word in arguments:
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            pairs.append((name, value if equals else None))
        elif pairs and pairs[-1][1] is None:
            pairs[-1] = pairs[-1][0], word
        else:
            raise UsageError(
                f"Without a sub-command everything is a flag, as in --source=PATH "
                f"--output=PATH; found {word!r}. See 'beam-tfrecord --help'."
            )
    return pairs


def _boolean(option: click.Option, flag: str, value: str | None) -> list[str]:
    said = "true" if value is None else value.lower()
    if said in _TRUE:
        return [flag]
    if said not in _FALSE:
        raise UsageError(f"{flag} must be true or false; found {value!r}.")
    others = option.secondary_opts if flag in option.opts else option.opts
    return others[:1]
