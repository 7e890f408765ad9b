"""How commands take options and list them: the flags of a job, and its settings.

Also calls without a sub-command, all settings as flags, as schedulers write them:
`BeamRunPythonPipelineOperator` of Airflow calls a pipeline with one list of
`--name=value`, ours and Beam's mixed, in snake case, a boolean as `--name` or
`--name=true`. Here that list becomes the arguments of `convert`.
"""

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from beam_pipeline.engines.checks import values_of
from beam_pipeline.settings.options import SECTIONS, SETTINGS, Setting
from beam_pipeline.settings.removed import removed_flag
from beam_pipeline.settings.values import RUNNERS
from transforms.errors import SpecError, UsageError, first_few
from transforms.formats.registry import FORMATS
from transforms.storage.paths import plain


class _Location(click.Path):
    """A path; what it says of how to reach its place is taken off and remembered."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """Returns the path as the program uses it; see `transforms.storage.paths`."""
        return plain(value)


Decorator = Callable[[Callable[..., int]], Callable[..., int]]
# Of both the shell completes names; whether one can be read is found out later.
PATH = click.Path(readable=False)
LOCATION = _Location()


_PATHS = frozenset(["FILE", "FOLDER", "DIR"])
# What `--help` shows, in this order; `--help-all` shows all by section.
_COMMON = (
    "label_column",
    "splits",
    "key_column",
    "group_column",
    "labels",
    "vocabulary",
    "drop",
    "include",
    "null_values",
    "limit",
    "resize",
    "shard_size",
    "compression",
    "max_reject_rate",
    "runner",
    "overwrite",
    "spec",
)

_TYPES = {"int": int, "float": float}
_NAMES = {"formats": ", ".join(FORMATS), "runners": ", ".join(RUNNERS)}
_SECTION_OF = {s.name: s.section for s in SETTINGS.values()} | {"spec": SECTIONS[0]}


def _check_given(ctx: click.Context, param: click.Parameter, value: str | None) -> str:
    """Refuses an empty text, as of a shell's variable that is not set."""
    if value == "":
        raise click.BadParameter("must not be empty.", ctx, param)
    return value or ""


def text_option(names: str, metavar: str, text: str) -> Decorator:
    """Returns a decorator: an option for one text, which is empty if it is not given.

    The shell completes the names of files.
    """
    kind = PATH if metavar in _PATHS else str
    extra: dict[str, Any] = {"type": kind, "callback": _check_given}
    return click.option(*names.split(), metavar=metavar, help=text, **extra)


def _flag(setting: Setting) -> click.Option:
    """Returns a setting's flag. One that is not given is None; the spec decides."""
    extra: dict[str, Any] = {"type": _TYPES.get(setting.kind)}
    if setting.metavar in _PATHS:
        extra = {"type": PATH}
    if setting.kind == "switch":
        extra = {"default": None}
    elif setting.kind == "choice":
        extra = {"type": click.Choice([str(choice) for choice in setting.choices])}
    elif setting.kind in ("list", "pairs"):
        extra["multiple"] = True
    return click.Option(
        [setting.flags, setting.name],
        metavar=setting.metavar or None,
        help=setting.help.format(**_NAMES),
        **extra,
    )


def _show_all_options(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    """Prints the help with all options, by section, and exits: `--help-all`."""
    if value and not ctx.resilient_parsing:
        ctx.meta[_SHOWS_ALL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


# A key of a context's `meta`.
_SHOWS_ALL = "beam_pipeline.help_all"
_HELP_ALL = click.Option(
    ["--help-all"],
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_all_options,
    help="Show all options, by section, and exit.",
)
_SOURCE = click.Argument(["source"], required=False, type=LOCATION)
_SPEC = click.Option(
    ["--spec"], metavar="FILE", type=PATH, help="Read settings from YAML; - for stdin."
)
_SETTINGS = [_flag(setting) for setting in SETTINGS.values() if setting.section]


class JobCommand(click.Command):
    """A command that takes a source and the flags of a job, in sections of its help."""

    def __init__(self, *, params: Sequence[click.Parameter] = (), **extra: Any) -> None:
        # Shared by all such commands, since making them takes its time.
        super().__init__(
            params=[_SOURCE, *_SETTINGS, _SPEC, *params, _HELP_ALL], **extra
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parses the arguments.

        Raises:
          click.UsageError: a flag is gone.
        """
        if error := removed_flag(args):
            raise click.UsageError(error, ctx)
        return super().parse_args(ctx, args)

    def format_options(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """Writes the common options, or with --help-all a section for each group."""
        records: dict[str | None, tuple[str, str]] = {}
        sections: dict[str, list[tuple[str, str]]]
        sections = {title: [] for title in (*SECTIONS, "Options")}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if isinstance(param, click.Option) and record:
                records[param.name] = record
                sections[_SECTION_OF.get(param.name or "", "Options")].append(record)
        if not ctx.meta.get(_SHOWS_ALL):
            common = [records[name] for name in _COMMON]
            shown = [(names.partition(" / ")[0], text) for names, text in common]
            sections = {"Options": shown + sections["Options"]}
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(rows)


# The commands as the help lists them: in the order in which people need them.
_COMMANDS = {
    "Convert": ("convert", "plan", "spec"),
    "Look at a dataset": ("inspect", "head", "report", "verify", "rejects", "diff"),
    "Use a dataset": ("code", "subset", "merge", "export", "index"),
    "Put in order": ("repair", "clean"),
}


class Group(click.Group):
    """A group of commands under headings."""

    def format_commands(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """Writes a section for each heading."""
        width = max(map(len, self.commands))
        for title, names in _COMMANDS.items():
            rows = []
            for name in names:
                most = formatter.width - width - 4
                text = self.commands[name].get_short_help_str(most)
                rows.append((name.ljust(width), text))
            with formatter.section(title):
                formatter.write_dl(rows)


def job_settings(
    flags: Mapping[str, Any], *, needs_output: bool = True
) -> dict[str, Any]:
    """Returns the settings of a --spec file; flags win over them."""
    from beam_pipeline.settings.spec import load_spec, read_spec

    given = {key: value for key, value in flags.items() if value not in (None, ())}
    path = given.pop("spec", None)
    settings: dict[str, Any] = {}
    if path == "-":
        settings = read_spec(sys.stdin.buffer.read(), "-")
    elif path:
        settings = load_spec(plain(path))
    if needs_output and "source" in settings and "output" not in {*given, *settings}:
        # Where the spec has the source, and no output, a single argument is the output.
        given |= {"output": given.pop("source")} if "source" in given else {}
    for key in given:
        if SETTINGS[key].kind == "joined":
            given[key] = given[key].split(",")
        elif SETTINGS[key].kind == "list":
            given[key] = list(given[key])
        elif SETTINGS[key].kind == "pairs":
            given[key] = _pairs(SETTINGS[key], given[key])
    said = {*given, *settings}
    if "source" not in said:
        raise UsageError("SOURCE must be given, here or in --spec. See --help.")
    if needs_output and "output" not in said:
        raise UsageError("OUTPUT must be given, here or in --spec. See --help.")
    return settings | given


def _pairs(setting: Setting, texts: Sequence[str]) -> dict[str, str]:
    """Returns what was given as NAME=VALUE, once or several times."""
    pairs = [text.partition("=") for text in texts]
    if not all(equals for _, equals, _ in pairs):
        # Without the text: it may be a key.
        raise SpecError(f"{setting.flags} takes {setting.metavar}, with an '='.")
    return {name: value for name, _, value in pairs}


# Arguments of `convert`, which are flags here.
_ARGUMENTS = ("--source", "--output")
# How many words after -- an error shows.
_SHOWN = 4
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
    values_of(beam_flags)


def split_flags(
    arguments: Sequence[str], command: click.Command
) -> tuple[list[str], list[str]]:
    """Returns the arguments of a command, and Beam's own flags.

    Args:
      arguments: flags alone.
      command: `convert`.

    Raises:
      UsageError: something is no flag.
      click.UsageError: a boolean is neither true nor false.
    """
    options = [p for p in command.params if isinstance(p, click.Option)]
    ours = {name: o for o in options for name in (*o.opts, *o.secondary_opts)}
    paths: dict[str, str] = {}
    out: list[str] = []
    beams: list[str] = []
    for name, value in _with_values(arguments):
        flag = name.replace("_", "-")
        # Airflow adds labels of Google Cloud by itself; our --labels takes a path.
        is_clouds = flag == "--labels" and value and _CLOUD_LABELS.match(value)
        option = ours.get(flag)
        if flag in _ARGUMENTS:
            paths[flag] = value or ""
        elif option is None or (is_clouds and not os.path.exists(value or "")):
            beam_flag = f"--{name[2:].replace('-', '_')}"
            if beam_flag not in _BEAMS_TOO and (gone := removed_flag([name])):
                raise UsageError(f"{gone} See 'beam-tfrecord convert --help-all'.")
            beams.append(beam_flag if value is None else f"{beam_flag}={value}")
        elif option.is_flag:
            is_on = value is None or click.BOOL.convert(value or "?", option, None)
            others = option.secondary_opts if flag in option.opts else option.opts
            out += [flag] if is_on else others[:1]
        else:
            out.append(flag if value is None else f"{flag}={value}")
    has_spec = any(word.startswith("--spec=") for word in out)
    named = [paths[flag] for flag in _ARGUMENTS if flag in paths]
    is_enough = len(named) == len(_ARGUMENTS) or (has_spec and "--output" not in paths)
    if not is_enough or not all(named):
        raise UsageError(
            "--source=PATH and --output=PATH must be given, or a --spec that says "
            "them. See 'beam-tfrecord convert --help'."
        )
    return [*out, "--", *named] if named else out, beams


def _with_values(arguments: Sequence[str]) -> list[tuple[str, str | None]]:
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


def choosing(verb: str) -> Decorator:
    """Returns a decorator that adds the options that choose records of a dataset."""

    def add(command: Callable[..., int]) -> Callable[..., int]:
        for option, text in (
            ("--where", "that fulfil this, as in \"label in ('hat', 'shoe')\""),
            ("--label", "of this class only"),
            ("--split", "of this split only"),
        ):
            command = text_option(option, "TEXT", f"{verb} records {text}.")(command)
        return command

    return add


def choice_option(
    names: str, choices: Sequence[str], default: str, text: str
) -> Decorator:
    """Returns a decorator: an option for one of some words."""
    extra: dict[str, Any] = {"type": click.Choice(choices), "show_default": True}
    return click.option(*names.split(), default=default, help=text, **extra)
