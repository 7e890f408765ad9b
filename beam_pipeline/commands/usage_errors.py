"""Errors for mistyped options and commands: each suggests the nearest name.

A name is suggested only if it resembles the given one. Common flags of other programs
are answered with the option that does the same here.
"""

import click

from beam_pipeline.commands.options import JobCommand
from transforms.errors import closest

__all__ = ["explain", "no_command"]

# Flags of other programs, and the option here that does the same.
_SAME = {
    "--force": "--overwrite",
    "-f": "--overwrite",
    "--jobs": "--workers",
    "-j": "--workers",
    "--num-workers": "--workers",
    "--threads": "--workers",
    "--num-shards": "--shards",
    "--label": "--label-column",
    "--target": "--label-column",
    "--max-rows": "--limit",
    "-n": "--limit",
    "-q": "--quiet",
    "--silent": "--quiet",
}
_PLAN = (
    "'beam-tfrecord plan' takes the same arguments, shows what convert would do and "
    "writes nothing."
)
_OUTPUT = "OUTPUT is the second argument, without a flag: SOURCE OUTPUT."
_SOURCE = "SOURCE is the first argument, without a flag: SOURCE OUTPUT."
_VERBOSE = "Progress and notes are shown anyway; --quiet turns them off."
# Answers of commands that take a job, for flags that have no counterpart.
_OF_A_JOB = {
    "--dry-run": _PLAN,
    "-o": _OUTPUT,
    "--out": _OUTPUT,
    "--output": _OUTPUT,
    "--output-dir": _OUTPUT,
    "-i": _SOURCE,
    "--input": _SOURCE,
    "--source": _SOURCE,
    "-v": _VERBOSE,
    "--verbose": _VERBOSE,
    "--debug": _VERBOSE,
}


def explain(error: click.UsageError) -> str:
    """Returns the message for a wrong command line, with where to read on."""
    command = error.ctx.command if error.ctx else None
    message = error.format_message()
    if isinstance(error, click.NoSuchOption) and command is not None:
        message = f"{error.message} {_instead(error.option_name, command)}"
    elif isinstance(command, JobCommand) and "extra argument" in message:
        message += (
            ". It takes SOURCE and OUTPUT alone; a pattern must be in quotes, as in "
            "'*.csv'"
        )
    message = message.rstrip()
    if not message.endswith((".", "?", "!")):
        message += "."
    return f"{message} See '{error.ctx.command_path} --help'." if error.ctx else message


def _instead(name: str, command: click.Command) -> str:
    """Returns the sentence about the option that was meant; empty for none."""
    known = [
        option
        for param in command.params
        if isinstance(param, click.Option)
        for option in (*param.opts, *param.secondary_opts)
    ]
    if (same := _SAME.get(name)) in known:
        return f"Use {same}."
    if isinstance(command, JobCommand) and name in _OF_A_JOB:
        return _OF_A_JOB[name]
    # Without the dashes, which make all options alike.
    names = {option.lstrip("-"): option for option in known if option.startswith("--")}
    near = closest(name.lstrip("-"), names)
    return f"Did you mean {names[near]!r}?" if near else ""


def no_command(name: str, group: click.Group) -> str:
    """Returns the message for a command that does not exist."""
    near = closest(name, group.commands)
    if near is not None:
        return f"There is no command {name!r}. Did you mean {near!r}?"
    return f"There is no command {name!r}. There are {', '.join(group.commands)}."
