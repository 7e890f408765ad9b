"""Calls without a sub-command: all settings as flags, as schedulers write them.

`BeamRunPythonPipelineOperator` of Airflow calls a pipeline with one list of
`--name=value`, ours and Beam's mixed, in snake case, a boolean as `--name` or
`--name=true`. Here that list becomes the arguments of `convert`.
"""

import os
from collections.abc import Mapping, Sequence

import click

from beam_pipeline.engines.checks import check_words
from beam_pipeline.settings.removed import removed_flag
from transforms.errors import UsageError, first_few

# Arguments of `convert`, which are flags here.
_ARGUMENTS = ("source", "output")
_TRUE = ("true", "1", "yes")
# How many words after -- an error shows.
_SHOWN = 4
_FALSE = ("false", "0", "no")
# Flags of Beam that were settings of ours as well.
_BEAMS_TOO = frozenset(["flink_master", "job_endpoint"])


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
    ours = _options(command)
    paths: dict[str, str] = {}
    out: list[str] = []
    rest: list[str] = []
    pending = list(arguments)
    while pending:
        flag = pending.pop(0)
        if flag == "--":
            rest += pending
            break
        if not flag.startswith("--"):
            raise UsageError(
                f"Without a sub-command everything is a flag, as in --source=PATH "
                f"--output=PATH; found {flag!r}. See 'beam-tfrecord --help'."
            )
        name, equals, value = flag.partition("=")
        key = name.removeprefix("--").replace("_", "-")
        # Airflow adds labels of Google Cloud by itself; our --labels takes a path.
        is_clouds = key == "labels" and ("=" in value or value.startswith("{"))
        is_ours = key in ours and (not is_clouds or os.path.exists(value))
        if is_ours and ours[key].is_flag:
            out += _boolean(ours[key], key, value if equals else None)
            continue
        given = [value] if equals else []
        if not equals and pending and not pending[0].startswith("--"):
            given = [pending.pop(0)]
        if key in _ARGUMENTS:
            if not given:
                raise UsageError(f"--{key} must be given a path.")
            paths[key] = given[0]
        elif is_ours:
            out.append("=".join([f"--{key}", *given]))
        else:
            beams = key.replace("-", "_")
            if beams not in _BEAMS_TOO and (gone := removed_flag([name])):
                raise UsageError(f"{gone} See 'beam-tfrecord convert --help'.")
            rest += [f"--{beams}={value}"] if equals else [f"--{beams}", *given]
    has_spec = any(word.startswith("--spec=") for word in out)
    for key in _ARGUMENTS:
        if key not in paths and not has_spec:
            raise UsageError(
                f"--{key} must be given, or a --spec that says it. See "
                f"'beam-tfrecord convert --help'."
            )
    if [*paths] == ["output"]:
        raise UsageError("--output needs --source beside it, or both belong in --spec.")
    named = [paths[key] for key in _ARGUMENTS if key in paths]
    return [*out, "--", *named] if named else out, rest


def _options(command: click.Command) -> Mapping[str, click.Option]:
    """Returns the options of a command by their names, and those that say no."""
    return {
        name.removeprefix("--"): option
        for option in command.params
        if isinstance(option, click.Option)
        for name in (*option.opts, *option.secondary_opts)
        if name.startswith("--")
    }


def _boolean(option: click.Option, key: str, value: str | None) -> list[str]:
    if value is None or value.lower() in _TRUE:
        return [f"--{key}"]
    if value.lower() not in _FALSE:
        raise UsageError(f"--{key} must be true or false; found {value!r}.")
    positive = f"--{key}" in option.opts
    others = option.secondary_opts if positive else option.opts
    return [others[0]] if others else []
