"""Calls without a sub-command: all settings as flags, as schedulers write them.

`BeamRunPythonPipelineOperator` of Airflow calls a pipeline with one list of
`--name=value`, ours and Beam's mixed, in snake case, a boolean as `--name` or
`--name=true`. Here that list becomes the arguments of `convert`.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence

import click

from beam_pipeline.engines.engine import check_words
from transforms.errors import UsageError, first_few

# Arguments of `convert`, which are flags here.
_ARGUMENTS = ("source", "output")
_TRUE = ("true", "1", "yes")
# How many words after -- an error shows.
_SHOWN = 4
_FALSE = ("false", "0", "no")
# A label of Google Cloud, which Airflow adds by itself; our --labels takes a path.
_CLOUD_LABEL = re.compile(r"[a-z][a-z0-9_-]{0,62}=[a-z0-9_-]{0,63}")


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
    named: dict[str, str] = {}
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
        follows = bool(pending) and not pending[0].startswith("--")
        if key in _ARGUMENTS:
            if not equals and not follows:
                raise UsageError(f"--{key} must be given a path.")
            named[key] = value if equals else pending.pop(0)
        elif key in ours and not _is_clouds(key, value):
            option = ours[key]
            if option.is_flag:
                out += _boolean(option, key, value if equals else None)
            elif equals or not follows:
                out.append(f"--{key}={value}" if equals else f"--{key}")
            else:
                out.append(f"--{key}={pending.pop(0)}")
        else:
            rest.append(flag)
            if not equals and follows:
                rest.append(pending.pop(0))
    for key in _ARGUMENTS:
        if key not in named and "spec" not in {o.split("=")[0][2:] for o in out}:
            raise UsageError(
                f"--{key} must be given, or a --spec that says it. See "
                f"'beam-tfrecord convert --help'."
            )
    paths = [named[key] for key in _ARGUMENTS if key in named]
    if list(named) == ["output"]:
        raise UsageError("--output needs --source beside it, or both belong in --spec.")
    return [*out, "--", *paths] if paths else out, rest


def _options(command: click.Command) -> Mapping[str, click.Option]:
    """Returns the options of a command by their names, and those that say no."""
    return {
        name.removeprefix("--"): option
        for option in command.params
        if isinstance(option, click.Option)
        for name in (*option.opts, *option.secondary_opts)
        if name.startswith("--")
    }


def _is_clouds(key: str, value: str) -> bool:
    """Whether a value of --labels is Google Cloud's, in either form that Beam takes."""
    if key != "labels" or os.path.exists(value):
        return False
    if _CLOUD_LABEL.fullmatch(value):
        return True
    try:
        return isinstance(json.loads(value), dict)
    except (ValueError, RecursionError):
        return False


def _boolean(option: click.Option, key: str, value: str | None) -> list[str]:
    if value is None or value.lower() in _TRUE:
        return [f"--{key}"]
    if value.lower() not in _FALSE:
        raise UsageError(f"--{key} must be true or false; found {value!r}.")
    positive = f"--{key}" in option.opts
    others = option.secondary_opts if positive else option.opts
    return [others[0]] if others else []
