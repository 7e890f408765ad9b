"""The command line: rejects unknown flags, starts fast, returns meaningful exit codes.

0  committed, or nothing wrong was found
1  the run failed and nothing was committed, or damage was found
2  wrong command line, spec or output, or a path that does not exist
3  more rejects than tolerated, or too few or many records; nothing committed
4  the source is there, but its content does not fit
5  another run writes to the output, or has just done so; run again later
"""

import gc
import io
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import click

from beam_pipeline import reader_programs
from beam_pipeline.beam_internals.loading import let_arrow_look, spare_imports
from beam_pipeline.commands.flags_only import (
    check_beam_words,
    is_flags_only,
    split_flags,
)
from beam_pipeline.commands.options import LOCATION, Command, JobCommand, complete_path
from beam_pipeline.reader_programs import READERS
from beam_pipeline.settings.options import SETTINGS, Setting
from beam_pipeline.terminal import printing
from beam_pipeline.terminal.printing import STDOUT
from beam_pipeline.terminal.stops import (
    PIPE_CLOSED,
    PipeClosed,
    Stopped,
    catch_stops,
    end_stopped,
)
from beam_pipeline.version import __version__
from transforms.errors import (
    COMMITTED_NOTE,
    BeamTFRecordError,
    SpecError,
    UsageError,
    bounded,
    no_memory,
)
from transforms.storage.paths import check_file_names, plain
from transforms.storage.retry import naming

# Errors have at most 1 KiB; this many bytes leave room for the note after one.
_ROOM_FOR_NOTE = 960


# The commands as the help lists them: in the order in which people need them.
_COMMANDS = {
    "Convert": ("convert", "plan", "spec"),
    "Look at a dataset": ("inspect", "head", "report", "verify", "rejects", "diff"),
    "Use a dataset": ("code", "subset", "merge", "export", "index"),
    "Put in order": ("repair", "clean"),
}


def _choosing(verb: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Returns a decorator that adds the options that choose records of a dataset."""

    def add(command: Callable[..., int]) -> Callable[..., int]:
        for option, text in (
            ("--where", "that fulfil this, as in \"label in ('hat', 'shoe')\""),
            ("--label", "of this class only"),
            ("--split", "of this split only"),
        ):
            shown = f"{verb} records {text}."
            command = click.option(option, default="", help=shown)(command)
        return command

    return add


_AS = click.option(
    "--as",
    "reader",
    type=click.Choice(READERS),
    default="tensorflow",
    show_default=True,
    help="Print a program for this library.",
)


class _Group(click.Group):
    """A group of commands under headings."""

    command_class = Command

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for names in _COMMANDS.values() for name in names]

    def format_commands(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        width = max(map(len, self.commands))
        for title, names in _COMMANDS.items():
            rows = [
                (
                    name.ljust(width),
                    self.commands[name].get_short_help_str(formatter.width - width - 4),
                )
                for name in names
            ]
            with formatter.section(title):
                formatter.write_dl(rows)

    def make_context(self, *arguments: Any, **extra: Any) -> click.Context:
        try:
            with naming(STDOUT):
                return super().make_context(*arguments, **extra)
        except BrokenPipeError as error:
            raise PipeClosed from error

    def invoke(self, ctx: click.Context) -> Any:
        try:
            code = super().invoke(ctx)
            with naming(STDOUT):
                sys.stdout.flush()
        except BrokenPipeError as error:
            raise PipeClosed from error
        return code


@click.group(
    cls=_Group,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="beam-tfrecord")
def cli() -> None:
    """Labelled images and CSV to sharded TFRecord datasets."""


@cli.command(
    cls=JobCommand,
    epilog="Beam's own flags go after --. Exit codes: 0 committed; 1 failed; 2 wrong "
    "usage; 3 too many rejects; 4 the source's content does not fit; 5 another run is "
    "at work on the output: try again later.",
)
@click.argument("output", required=False, type=LOCATION)
@click.option(
    "--report-json",
    metavar="FILE",
    shell_complete=complete_path,
    help="Write the result as JSON; - for stdout.",
)
@click.option(
    "--report",
    is_flag=True,
    help="Write OUTPUT.report.html to show the dataset.",
)
@click.option("--quiet", is_flag=True, help="Print errors only.")
@click.pass_context
def convert(
    ctx: click.Context,
    /,
    report_json: str | None,
    report: bool,
    quiet: bool,
    **flags: Any,
) -> int:
    """Convert SOURCE into the TFRecord dataset OUTPUT.

    SOURCE is a folder of images, or a file, folder or quoted pattern of CSV, JSON
    lines, Parquet and more; --help-all lists all. No option is needed:

    \b
      beam-tfrecord convert photos out/photos
      beam-tfrecord convert rows.csv out/rows --splits train=0.8,test=0.2
      beam-tfrecord convert 'logs/*.parquet' out/logs --label-column kind --overwrite
    """
    from beam_pipeline.commands import convert as convert_command

    return convert_command.run(
        lambda: _settings(flags),
        command_line=flags,
        beam_flags=ctx.obj["beam_flags"],
        report_json=report_json,
        with_page=report,
        quiet=quiet,
    )


@cli.command(cls=JobCommand)
@click.argument("output", required=False, type=LOCATION)
def plan(**flags: Any) -> int:
    """Show what `convert` would do with the same arguments; write nothing.

    \b
      beam-tfrecord plan rows.csv out/rows --splits train=0.8,test=0.2
    """
    from beam_pipeline.commands import report
    from beam_pipeline.planning.plan import make_plan, prepare
    from beam_pipeline.settings.spec import make_spec

    spec = make_spec(_settings(flags))
    let_arrow_look()
    prepared = prepare(spec)
    if prepared.done is not None:
        report.show_up_to_date(prepared.done, prepared.spec.output)
        return 0
    report.show_plan(make_plan(prepared))
    return 0


@cli.command()
@click.argument("target", metavar="DATASET|FILE|FOLDER|GLOB", type=LOCATION)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def inspect(target: str, as_json: bool) -> int:
    """Show the splits, features, labels and counts of a dataset.

    \b
      beam-tfrecord inspect out/photos
      beam-tfrecord inspect out/photos --json | jq .digest
    """
    from beam_pipeline.commands import inspect as inspect_command

    return inspect_command.show(target, as_json=as_json)


@cli.command()
@click.argument("target", metavar="DATASET", type=LOCATION)
@click.option(
    "-o",
    "output",
    default="",
    metavar="FILE",
    shell_complete=complete_path,
    help="Write this file instead of DATASET.report.html.",
)
@click.option("--verify", is_flag=True, help="Check the whole dataset first.")
@click.option("--quiet", is_flag=True, help="Print errors only.")
def report(target: str, output: str, verify: bool, quiet: bool) -> int:
    """Write an HTML page that shows a dataset: classes, pictures, distributions.

    It is one file without scripts that loads nothing.

    \b
      beam-tfrecord report out/photos
      beam-tfrecord report out/photos -o photos.html --verify
    """
    from beam_pipeline.commands import dataset_page

    return dataset_page.run(target, output, verify=verify, quiet=quiet)


@cli.command()
@click.argument("target", metavar="DATASET|FILE", type=LOCATION)
@click.option(
    "-n", "count", default=3, show_default=True, help="Show this number of records."
)
@_choosing("Show")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, a record a line.")
def head(
    target: str, count: int, split: str, label: str, where: str, as_json: bool
) -> int:
    """Show the first records of each split; long bytes are shortened.

    \b
      beam-tfrecord head out/photos --split test --label hat
      beam-tfrecord head out/rows --where "age > 30 and name is not None"
      beam-tfrecord head out/rows -n 100 --json | jq .features.age
    """
    from beam_pipeline.commands import head as head_command

    choice = head_command.Choice(split, label, where)
    return head_command.show(target, count, choice, as_json=as_json)


@cli.command(cls=JobCommand)
def spec(**flags: Any) -> int:
    """Print the inferred features of SOURCE as a --spec.

    Comments say what each was inferred from. Edit it and give it to `convert`; what
    is removed from it is inferred again.

    \b
      beam-tfrecord spec rows.csv > spec.yaml
    """
    from beam_pipeline.commands import spec as spec_command

    return spec_command.show(_settings(flags, needs_output=False))


@cli.command()
@click.argument("dataset", metavar="DATASET", type=LOCATION)
@_AS
def code(dataset: str, reader: str) -> int:
    """Print a program that reads DATASET with TensorFlow, PyTorch or others.

    \b
      beam-tfrecord code out/photos --as torch
    """
    return reader_programs.show(dataset, reader)


@cli.command(cls=JobCommand, hidden=True)
@_AS
def schema(reader: str, **flags: Any) -> int:
    """Print what `spec SOURCE` or `code DATASET` prints; goes with the next release.

    \b
      beam-tfrecord schema out/photos --as torch
    """
    from beam_pipeline.commands import spec as spec_command
    from beam_pipeline.datasets import dataset

    target = flags.pop("source")
    if not any(flags.values()) and dataset.is_dataset(target):
        _note_rename(f"code DATASET --as {reader}")
        return reader_programs.show(target, reader)
    _note_rename("spec SOURCE")
    return spec_command.show(_settings({**flags, "source": target}, needs_output=False))


def _note_rename(command: str) -> None:
    printing.say(
        f"note: 'schema' is 'beam-tfrecord {command}' now; the old name goes with the "
        f"next release"
    )


@cli.command()
@click.argument("target", metavar="DATASET|FILE|FOLDER|GLOB", type=LOCATION)
@click.option("--quiet", is_flag=True, help="Print damage only.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def verify(target: str, quiet: bool, as_json: bool) -> int:
    """Check every record, count and file of a dataset; exit with 1 for damage.

    \b
      beam-tfrecord verify out/photos
      beam-tfrecord verify 'shards/*.tfrecord'
    """
    from beam_pipeline.commands import verify as verify_command

    return verify_command.show(target, quiet, as_json=as_json)


@cli.command()
@click.argument("target", metavar="DIR|FILE", type=LOCATION)
@click.option("--reason", metavar="REASON", help="List the rejects of this reason.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    help="List at most this number; 0 for all.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def rejects(target: str, reason: str | None, limit: int, as_json: bool) -> int:
    """Show which items a run rejected, and why.

    DIR is the output of the run, also of one that failed; FILE is a list of rejects.

    \b
      beam-tfrecord rejects out/rows
      beam-tfrecord rejects out/rows --reason not_float32 --json
    """
    from beam_pipeline.commands import rejects as rejects_command

    return rejects_command.show(target, reason=reason, limit=limit, as_json=as_json)


@cli.command()
@click.argument("target", metavar="DATASET|FILE|FOLDER|GLOB", type=LOCATION)
@click.option("-o", "output", default="", type=LOCATION, help="Write into this folder.")
@click.option("--text", is_flag=True, help="Index as text, too, without images.")
@click.option("--catalogue", is_flag=True, help="Write the catalogue, too.")
@click.option("--overwrite", is_flag=True, help="Replace indexes that differ.")
@click.option("--quiet", is_flag=True, help="Print errors only.")
def index(target: str, output: str, **options: Any) -> int:
    """Write where each record of TFRecord files is, for readers that look records up.

    Their folder gets index/*.u64 and, for DALI and vahidk's tfrecord, index/*.idx. A
    dataset that was written without indexes, or by an older version, keeps its digest.

    \b
      beam-tfrecord index 'shards/*.tfrecord'
      beam-tfrecord index out/photos --catalogue
    """
    from beam_pipeline.commands import index as index_command

    return index_command.run(target, output, version=__version__, **options)


@cli.command()
@click.argument("target", metavar="DATASET", type=LOCATION)
@click.argument("output", metavar="OUT", shell_complete=complete_path)
@_choosing("Export")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    help="Export at most this many of each split.",
)
@click.option(
    "--format",
    "table_format",
    type=click.Choice(["csv", "parquet"]),
    default="csv",
    show_default=True,
    help="Write tables in this format.",
)
@click.option("--quiet", is_flag=True, help="Print errors only.")
def export(target: str, output: str, **choice: Any) -> int:
    """Write the images or tables of a dataset back as files, into the new folder OUT.

    Images are written as they are stored, in a folder for each split and class.

    \b
      beam-tfrecord export out/photos hats --label hat --limit 100
      beam-tfrecord export out/rows rows --where "age > 30" --format parquet
    """
    from beam_pipeline.commands import export as export_command

    return export_command.run(target, output, **choice)


@cli.command()
@click.argument("target", metavar="DATASET", type=LOCATION)
@click.argument("output", metavar="OUT", type=LOCATION)
@_choosing("Take")
@click.option(
    "--drop-keys",
    default="",
    metavar="FILE",
    shell_complete=complete_path,
    help="Leave out the records of these keys, one a line.",
)
@click.option(
    "--key-feature",
    default="",
    metavar="NAME",
    help="The feature that holds the keys; else the key column.",
)
@click.option(
    "--relabel",
    default="",
    metavar="FILE",
    shell_complete=complete_path,
    help="Give classes other names: CSV with a line OLD,NEW for each.",
)
@click.option(
    "--relabel-feature",
    default="",
    metavar="NAME",
    help="The feature whose classes these are; else the label.",
)
@click.option("--overwrite", is_flag=True, help="Replace the dataset at OUT.")
@click.option("--quiet", is_flag=True, help="Print errors only.")
def subset(target: str, output: str, **choice: Any) -> int:
    """Write a part of a dataset as a dataset of its own, its records copied as stored.

    Shards that nothing changes are not copied: OUT gets them as hard links.

    \b
      beam-tfrecord subset out/photos out/hats --label hat
      beam-tfrecord subset out/rows out/rows-2 --drop-keys erased.txt --key-feature id
      beam-tfrecord subset out/photos out/photos-2 --relabel names.csv
    """
    from beam_pipeline.commands import copies

    return copies.subset(target, output, **choice)


@cli.command()
@click.argument("paths", metavar="A B... OUT", nargs=-1, type=LOCATION)
@click.option("--overwrite", is_flag=True, help="Replace the dataset at OUT.")
@click.option("--quiet", is_flag=True, help="Print errors only.")
def merge(paths: tuple[str, ...], overwrite: bool, quiet: bool) -> int:
    """Write several datasets as one, their class ids joined by name.

    They have the same features. Splits of one name are joined. The classes of A keep
    their ids; those that only the others have follow.

    \b
      beam-tfrecord merge out/photos out/new-photos out/all-photos
    """
    from beam_pipeline.commands import copies

    return copies.merge(paths, overwrite=overwrite, quiet=quiet)


@cli.command(epilog="Exit codes: 0 nothing differs; 1 something does; 2 wrong usage.")
@click.argument("first", metavar="A", type=LOCATION)
@click.argument("second", metavar="B", type=LOCATION)
@click.option(
    "--key",
    default="",
    metavar="NAME",
    help="The feature that tells records apart; else what the catalogues say.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=5,
    show_default=True,
    help="Show at most this number of examples of each kind.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def diff(first: str, second: str, **options: Any) -> int:
    """Show which records of dataset A are changed, moved, added or gone in B.

    \b
      beam-tfrecord diff out/rows out/rows-2
      beam-tfrecord diff out/rows out/rows-2 --key id --json
    """
    from beam_pipeline.commands import diff as diff_command

    return diff_command.run(first, second, **options)


@cli.command(
    epilog="Exit codes: 0 there is an output for every file, whatever was skipped; 1 "
    "there is none for some; 2 wrong usage.",
)
@click.argument("source", metavar="IN", shell_complete=complete_path)
@click.argument("output", metavar="OUT", shell_complete=complete_path)
@click.option("--overwrite", is_flag=True, help="Replace files of the same names.")
def repair(source: str, output: str, overwrite: bool) -> int:
    """Copy the sound records of damaged TFRecord files from IN to OUT.

    IN is a file, folder or pattern. Every range of bytes that is left out is listed.

    \b
      beam-tfrecord repair 'shards/*.tfrecord' repaired
    """
    from beam_pipeline.commands import repair as repair_command

    return repair_command.run(source, output, overwrite=overwrite)


@cli.command()
@click.argument("directory", metavar="OUTPUT|FOLDER", type=LOCATION)
@click.option("--dry-run", is_flag=True, help="List it and remove nothing.")
@click.option(
    "--pipelines",
    is_flag=True,
    help="Remove rows of Beam pipelines that may be running too; they would fail.",
)
@click.option(
    "--older-than",
    metavar="DAYS",
    type=click.FloatRange(min=0),
    default=7.0,
    show_default=True,
    help="In a bucket, leave what a run has put there since; it may be at work.",
)
@click.option("--quiet", is_flag=True, help="Print errors only.")
def clean(
    directory: str, dry_run: bool, pipelines: bool, older_than: float, quiet: bool
) -> int:
    """Remove what runs that were killed or failed left behind, and list it.

    \b
      beam-tfrecord clean out/photos --dry-run
    """
    from beam_pipeline.commands import clean as clean_command

    return clean_command.run(
        directory,
        dry_run=dry_run,
        pipelines=pipelines,
        older_than=older_than,
        quiet=quiet,
    )


def _settings(flags: Mapping[str, Any], *, needs_output: bool = True) -> dict[str, Any]:
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


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Runs the command line and exits; no user's mistake shows a traceback."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    beam_flags: list[str] = []
    if "--" in arguments:
        at = arguments.index("--")
        arguments, beam_flags = arguments[:at], arguments[at + 1 :]
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A file name that the encoding lacks must not end in UnicodeEncodeError.
            stream.reconfigure(errors="backslashreplace")
    # Until `collect_seldom`.
    gc.disable()
    before = catch_stops()
    try:
        check_file_names()
        if is_flags_only(arguments):
            arguments, more = split_flags(arguments, convert)
            arguments, beam_flags = ["convert", *arguments], [*more, *beam_flags]
        check_beam_words(arguments, beam_flags)
        code = cli.main(
            arguments,
            prog_name="beam-tfrecord",
            standalone_mode=False,
            obj={"beam_flags": beam_flags},
        )
    except click.exceptions.Exit as done:
        code = done.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        printing.say(error.format_message())
        code = UsageError.exit_code
    except click.UsageError as error:
        code = _fail(_usage(error), UsageError.exit_code)
    except BeamTFRecordError as error:
        code = _fail(_with_note(str(error), error), error.exit_code)
    except PipeClosed:
        printing.silence(sys.stdout)
        code = PIPE_CLOSED
    except OSError as error:
        place = f": {error.filename}" if error.filename else ""
        text = f"{error.strerror or error}{place}"
        code = _fail(_with_note(text, error), 1)
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "start new thread" not in str(error):
            raise
        code = _fail(_with_note(str(no_memory()), error), 1)
    except (KeyboardInterrupt, click.exceptions.Abort) as stop:
        code = end_stopped(signal.SIGINT, stop, arguments)
    except Stopped as stop:
        code = end_stopped(stop.number, stop, arguments)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    sys.exit(code or 0)


def program() -> NoReturn:
    """The console script: runs `main`, and exits without Python's clean-up.

    By then everything is written and closed, and to free a hundred thousand objects
    one by one would take another third of a second.
    """
    printing.open_all()
    spare_imports()
    try:
        main()
    except SystemExit as done:
        code = done.code if isinstance(done.code, int) else 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _with_note(message: str, error: BaseException) -> str:
    """Returns the message, and adds that the dataset is committed if it is."""
    if COMMITTED_NOTE in getattr(error, "__notes__", ()):
        message = f"{bounded(message, _ROOM_FOR_NOTE)} ({COMMITTED_NOTE})"
    return bounded(message)


def _usage(error: click.UsageError) -> str:
    """Returns the message for a wrong command line, with where to read on."""
    message = error.format_message()
    if error.ctx is None:
        return message
    if isinstance(error.ctx.command, JobCommand) and "extra argument" in message:
        message = f"{message.rstrip('.')}; a pattern must be in quotes, as in '*.csv'"
    end = "" if message.endswith((".", "?", "!")) else "."
    return f"{message}{end} See '{error.ctx.command_path} --help'."


def _fail(message: str, code: int) -> int:
    printing.say(f"error: {message}")
    return code
