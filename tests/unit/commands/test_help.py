"""`--help`: groups of commands, sections of options, examples."""

import click
import pytest
from click.testing import CliRunner

from beam_pipeline.commands.group import cli
from beam_pipeline.settings.options import SETTINGS

# The old name of `spec` and `code`, which the help does not list.
LISTED = [name for name, command in cli.commands.items() if not command.hidden]


def help_of(*arguments: str, flag: str = "--help") -> str:
    return CliRunner().invoke(cli, [*arguments, flag], obj={}).output


def test_every_command_is_listed_once() -> None:
    """A command that no group names would be missing from the help."""
    lines = help_of().splitlines()
    for name in LISTED:
        assert sum(line.split()[:1] == [name] for line in lines) == 1, name


@pytest.mark.parametrize("name", cli.commands)
def test_every_command_has_an_example(name: str) -> None:
    """It stands on a line of its own, and names options that the command has."""
    examples = [
        line.split()
        for line in help_of(name).splitlines()
        if line.startswith(f"    beam-tfrecord {name} ")
    ]
    assert examples
    known = {
        flag
        for param in cli.commands[name].params
        if isinstance(param, click.Option)
        for flag in (*param.opts, *param.secondary_opts)
    }
    flags = {
        word
        for words in examples
        for word in words[: words.index("|") if "|" in words else None]
        if word.startswith("-")
    }
    assert flags <= known


def test_the_help_of_convert_fits_a_screen() -> None:
    """45 lines at 80 columns; `--help-all` shows every flag."""
    assert len(help_of("convert").splitlines()) <= 45
    text = help_of("convert", flag="--help-all")
    assert all(s.flags.partition("/")[0] in text for s in SETTINGS.values())


@pytest.mark.parametrize("name", ["subset", "export", "head", "diff", "report"])
def test_an_empty_option_is_refused(name: str) -> None:
    """`--drop-keys "$KEYS"` without a variable KEYS must not erase nobody."""
    command = cli.commands[name]
    options = [each for each in command.params if isinstance(each, click.Option)]
    optional = [each for each in options if each.type.name in ("text", "path")]
    assert optional
    places = ["in", "out"][: len(command.params) - len(options)]
    for option in optional:
        flags = [option.opts[0], ""]
        ended = CliRunner().invoke(cli, [name, *places, *flags], obj={})
        assert ended.exit_code == 2, option
        assert "must not be empty" in ended.output, option
