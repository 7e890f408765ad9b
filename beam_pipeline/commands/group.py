"""The commands as click declares them: their arguments, options and help."""

import functools
import importlib
from typing import Any

import click

from beam_pipeline import reader_programs, terminal
from beam_pipeline.commands.options import (
    LOCATION,
    PATH,
    Group,
    JobCommand,
    choice_option,
    choosing,
    job_settings,
    text_option,
)
from beam_pipeline.reader_programs import READERS
from beam_pipeline.version import __version__
from transforms.core.reasons import Reason

_number = functools.partial(click.option, type=click.IntRange(min=0), show_default=True)


_QUIET = click.option("--quiet", is_flag=True, help="Print errors only.")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_OVERWRITE = click.option("--overwrite", is_flag=True, help="Replace the dataset OUT.")
_AS = choice_option(
    "--as reader", READERS, "tensorflow", "Print a program for this library."
)


def _run(command: str, /, *arguments: Any, **options: Any) -> int:
    """Runs MODULE.FUNCTION of this folder; imported now, since help needs none."""
    module, _, function = command.partition(".")
    imported = importlib.import_module(f"{__package__}.{module}")
    return int(getattr(imported, function)(*arguments, **options))


@click.group(
    cls=Group,
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
@text_option("--report-json", "FILE", "Write the result as JSON; - for stdout.")
@_QUIET
@click.pass_context
def convert(ctx: click.Context, /, report_json: str, quiet: bool, **flags: Any) -> int:
    """Convert SOURCE into the TFRecord dataset OUTPUT.

    SOURCE is a folder of images, or a file, folder or quoted pattern of CSV, JSON
    lines, Parquet and more; --help-all lists all. No option is needed:

    \b
      beam-tfrecord convert photos out/photos
      beam-tfrecord convert rows.csv out/rows --splits train=0.8,test=0.2
      beam-tfrecord convert 'logs/*.parquet' out/logs --label-column kind --overwrite
    """
    return _run(
        "convert.run",
        lambda: job_settings(flags),
        command_line=flags,
        beam_flags=ctx.obj["beam_flags"],
        report_json=report_json,
        quiet=quiet,
    )


@cli.command(cls=JobCommand)
@click.argument("output", required=False, type=LOCATION)
def plan(**flags: Any) -> int:
    """Show what `convert` would do with the same arguments; write nothing.

    \b
      beam-tfrecord plan rows.csv out/rows --splits train=0.8,test=0.2
    """
    return _run("convert.show_plan", job_settings(flags))


@cli.command()
@click.argument("target", metavar="DATASET", type=LOCATION)
@_JSON
def inspect(target: str, as_json: bool) -> int:
    """Show the splits, features, labels and counts of a dataset.

    \b
      beam-tfrecord inspect out/photos
      beam-tfrecord inspect out/photos --json | jq .digest
    """
    return _run("inspect.show", target, as_json=as_json)


@cli.command()
@click.argument("target", metavar="DATASET", type=LOCATION)
@text_option("-o output", "FILE", "Write this file instead of DATASET.report.html.")
@_QUIET
def report(target: str, output: str, quiet: bool) -> int:
    """Write an HTML page that shows a dataset: classes, pictures, distributions.

    It is one file without scripts that loads nothing.

    \b
      beam-tfrecord report out/photos
      beam-tfrecord report out/photos -o photos.html
    """
    return _run("report.run", target, output, quiet=quiet)


@cli.command()
@click.argument("target", metavar="DATASET|FILE", type=LOCATION)
@_number("-n", "count", default=3, help="Show this number of records.")
@choosing("Show")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, a record a line.")
def head(target: str, count: int, as_json: bool, **choice: str) -> int:
    """Show the first records of each split; long bytes are shortened.

    \b
      beam-tfrecord head out/photos --split test --label hat
      beam-tfrecord head out/rows --where "age > 30 and name is not None"
      beam-tfrecord head out/rows -n 100 --json | jq .features.age
    """
    return _run("head.show", target, count, as_json=as_json, **choice)


@cli.command(cls=JobCommand)
def spec(**flags: Any) -> int:
    """Print the inferred features of SOURCE as a --spec.

    Comments say what each was inferred from. Edit it and give it to `convert`; what
    is removed from it is inferred again.

    \b
      beam-tfrecord spec rows.csv > spec.yaml
    """
    return _run("spec.show", job_settings(flags, needs_output=False))


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
    from beam_pipeline.datasets import dataset

    target = flags["source"]
    is_alone = [*filter(None, flags.values())] == [target]
    is_dataset = is_alone and dataset.has_manifest(target)
    now = f"code DATASET --as {reader}" if is_dataset else "spec SOURCE"
    terminal.say(
        f"note: 'schema' is 'beam-tfrecord {now}' now; the old name goes with the next "
        f"release"
    )
    if is_dataset:
        return reader_programs.show(target, reader)
    return _run("spec.show", job_settings(flags, needs_output=False))


@cli.command()
@click.argument("target", metavar="DATASET|FILE|FOLDER|GLOB", type=LOCATION)
@click.option("--quiet", is_flag=True, help="Print damage only.")
@_JSON
def verify(target: str, quiet: bool, as_json: bool) -> int:
    """Check every record, count and file of a dataset; exit with 1 for damage.

    \b
      beam-tfrecord verify out/photos
      beam-tfrecord verify 'shards/*.tfrecord'
    """
    return _run("verify.show", target, quiet, as_json=as_json)


@cli.command()
@click.argument("target", metavar="DIR|FILE", type=LOCATION)
@click.option(
    "--reason",
    metavar="REASON",
    type=click.Choice([*map(str, Reason)]),
    help="List the rejects of this reason.",
)
@_number("--limit", default=20, help="List at most this number; 0 for all.")
@_JSON
def rejects(target: str, **options: Any) -> int:
    """Show which items a run rejected, and why.

    DIR is the output of the run, also of one that failed; FILE is a list of rejects.

    \b
      beam-tfrecord rejects out/rows
      beam-tfrecord rejects out/rows --reason not_float32 --json
    """
    return _run("rejects.show", target, **options)


@cli.command()
@click.argument("target", metavar="DATASET|FILE|FOLDER|GLOB", type=LOCATION)
@text_option("-o output", "FOLDER", "Write into this folder.")
@click.option("--text", is_flag=True, help="Index as text, too, without images.")
@click.option("--catalogue", is_flag=True, help="Write the catalogue, too.")
@click.option("--overwrite", is_flag=True, help="Replace indexes that differ.")
@_QUIET
def index(target: str, output: str, **options: Any) -> int:
    """Write where each record of TFRecord files is, for readers that look records up.

    Their folders get index/*.u64 and, for DALI and vahidk's tfrecord, index/*.idx. A
    dataset that was written without indexes, or by an older version, keeps its digest.

    \b
      beam-tfrecord index 'shards/*.tfrecord'
      beam-tfrecord index out/photos --catalogue
    """
    return _run("index.run", target, output, **options)


@cli.command()
@click.argument("target", metavar="DATASET", type=LOCATION)
@click.argument("output", metavar="OUT", type=PATH)
@choosing("Export")
@_number("--limit", type=click.IntRange(1), help="Export at most this many a split.")
@choice_option(
    "--format table_format", ["csv", "parquet"], "csv", "Write tables as this."
)
@_QUIET
def export(target: str, output: str, **choice: Any) -> int:
    """Write the images or tables of a dataset back as files, into the new folder OUT.

    Images are written as they are stored, in a folder for each split and class.

    \b
      beam-tfrecord export out/photos hats --label hat --limit 100
      beam-tfrecord export out/rows rows --where "age > 30" --format parquet
    """
    return _run("export.run", target, output, **choice)


@cli.command()
@click.argument("target", metavar="DATASET", type=LOCATION)
@click.argument("output", metavar="OUT", type=LOCATION)
@choosing("Take")
@text_option("--drop-keys", "FILE", "Leave out the records of these keys, one a line.")
@text_option("--key-feature", "NAME", "Feature with the keys; else the key column.")
@_OVERWRITE
@_QUIET
def subset(target: str, output: str, **choice: Any) -> int:
    """Write a part of a dataset as a dataset of its own, its records copied as stored.

    Shards that nothing changes are not copied: OUT gets them as hard links.

    \b
      beam-tfrecord subset out/photos out/hats --label hat
      beam-tfrecord subset out/rows out/rows-2 --drop-keys erased.txt --key-feature id
    """
    return _run("copies.subset", target, output, **choice)


@cli.command()
@click.argument("paths", metavar="A B... OUT", nargs=-1, type=LOCATION)
@_OVERWRITE
@_QUIET
def merge(paths: tuple[str, ...], **options: bool) -> int:
    """Write several datasets as one, their class ids joined by name.

    They have the same features. Splits of one name are joined. The classes of A keep
    their ids; those that only the others have follow.

    \b
      beam-tfrecord merge out/photos out/new-photos out/all-photos
    """
    return _run("copies.merge", paths, **options)


@cli.command(epilog="Exit codes: 0 nothing differs; 1 something does; 2 wrong usage.")
@click.argument("first", metavar="A", type=LOCATION)
@click.argument("second", metavar="B", type=LOCATION)
@text_option("--key", "NAME", "Feature that identifies records; else the catalogues'.")
@_number("--limit", default=5, help="Show at most this number of examples of a kind.")
@_JSON
def diff(first: str, second: str, **options: Any) -> int:
    """Show which records of dataset A are changed, moved, added or gone in B.

    \b
      beam-tfrecord diff out/rows out/rows-2
      beam-tfrecord diff out/rows out/rows-2 --key id --json
    """
    return _run("diff.run", first, second, **options)


@cli.command(
    epilog="Exit codes: 0 there is an output for every file, whatever was skipped; 1 "
    "there is none for some; 2 wrong usage."
)
@click.argument("source", metavar="IN", type=PATH)
@click.argument("output", metavar="OUT", type=PATH)
@click.option("--overwrite", is_flag=True, help="Replace files of the same names.")
def repair(source: str, output: str, **options: Any) -> int:
    """Copy the sound records of damaged TFRecord files from IN to OUT.

    IN is a file, folder or pattern. Every range of bytes that is left out is listed.

    \b
      beam-tfrecord repair 'shards/*.tfrecord' repaired
    """
    return _run("repair.run", source, output, **options)


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
@_QUIET
def clean(directory: str, **options: Any) -> int:
    """Remove what runs that were killed or failed left behind, and list it.

    \b
      beam-tfrecord clean out/photos --dry-run
    """
    return _run("clean.run", directory, **options)
