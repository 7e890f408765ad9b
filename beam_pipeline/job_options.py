"""The flags of a job: what `convert`, `plan` and `schema` take, in sections."""

from collections.abc import Callable
from typing import Any

import click

from beam_pipeline.engines.table import RUNNERS
from beam_pipeline.formats import FORMATS
from transforms.storage.paths import plain

__all__ = ["LOCATION", "JobCommand", "job_options"]

_Command = Callable[..., int | None]


class _Flag(click.Option):
    """A flag with the section of the help that it stands in."""

    def __init__(self, *arguments: Any, section: str = "", **extra: Any) -> None:
        super().__init__(*arguments, **extra)
        self.section = section


class JobCommand(click.Command):
    """A command whose many flags are listed in sections."""

    def format_options(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """Writes a section for each group of flags, in the order of declaration."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is None or isinstance(param, click.Argument):
                continue
            section = getattr(param, "section", "") or "Options"
            sections.setdefault(section, []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


class _Location(click.ParamType[str]):
    """A path; what it says of how to reach its place is taken off and remembered."""

    name = "path"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """Returns the path as the program uses it; see `transforms.storage.paths`."""
        return plain(value)


LOCATION = _Location()


def _choice(*values: str) -> click.Choice[str]:
    return click.Choice(values)


_Declaration = tuple[tuple[str, ...], dict[str, Any]]


def _flag(*names: str, **extra: Any) -> _Declaration:
    return names, extra


# Section -> its flags. A flag that is not given stays None, and the spec decides.
_SECTIONS: dict[str, list[_Declaration]] = {
    "Source": [
        _flag(
            "--format",
            type=_choice("auto", *FORMATS),
            help="What the source is [auto].",
        ),
        _flag("--include", multiple=True, metavar="GLOB", help="Only these files."),
        _flag("--exclude", multiple=True, metavar="GLOB", help="Not these files."),
        _flag("--limit", type=int, metavar="N", help="Only the first N items."),
        _flag(
            "--only-rejected",
            metavar="DIR",
            help="Only the items that the dataset or failed run DIR rejected.",
        ),
        _flag("--labels", metavar="FILE", help="Images: table that labels them by id."),
        _flag(
            "--id-column",
            metavar="COLUMN",
            help="Of --labels: the images' names without suffix, or their paths.",
        ),
        _flag(
            "--unlabelled/--no-unlabelled",
            default=None,
            help="Images: folders and --labels name no label.",
        ),
        _flag("--delimiter", metavar="CHAR", help="CSV [, or tab for .tsv]."),
        _flag("--quote", metavar="CHAR", help='CSV ["]; empty for none.'),
        _flag("--escape", metavar="CHAR", help="CSV: makes the next character plain."),
        _flag(
            "--header/--no-header",
            default=None,
            help="CSV: the first row [a header; refused where it looks like data].",
        ),
        _flag(
            "--columns",
            metavar="A,B,...",
            help="CSV: names of the columns. .npz: the arrays to read.",
        ),
        _flag("--encoding", help="CSV [utf-8]."),
        _flag(
            "--trim/--no-trim",
            default=None,
            help="CSV: no spaces around names and cells [as they are].",
        ),
        _flag(
            "--null-values",
            metavar="A,B,...",
            help="Tables: texts that mean missing, as in -,? or '' [empty cells].",
        ),
        _flag("--layout", metavar="FILE", help="Binary records: how they lie, YAML."),
        _flag(
            "--encode",
            type=_choice("raw", "png"),
            help="Binary images: how they are stored [raw].",
        ),
        _flag(
            "--bad-box",
            type=_choice("box", "image", "clip"),
            help="Detection: what a bad box costs [box].",
        ),
        _flag("--images-root", metavar="FOLDER", help="Where images' paths start."),
        _flag("--first-pixel", type=int, metavar="0|1", help="Of VOC boxes [0]."),
        _flag("--zip-encoding", metavar="NAME", help="Of names that are not UTF-8."),
    ],
    "Features": [
        _flag("--label-column", metavar="COLUMN", help="Tables: what to predict."),
        _flag("--image-columns", metavar="A,B,...", help="Tables: hold images."),
        _flag("--drop", metavar="A,B,...", help="Tables: columns to leave out."),
        _flag(
            "--infer",
            type=_choice("sample", "full"),
            help="How much is read to infer the features [sample].",
        ),
        _flag(
            "--preset",
            type=_choice("default", "tutorial", "imagenet"),
            help="Images: names of the features.",
        ),
        _flag(
            "--feature-name",
            "feature_names",
            multiple=True,
            metavar="ROLE=NAME",
            help="Images: name a feature; an empty name drops it.",
        ),
        _flag("--vocabulary", metavar="FILE", help="Class names in order, one a line."),
        _flag(
            "--vocabulary-lock",
            metavar="FILE",
            help="Keeps class ids over runs; new names are appended.",
        ),
        _flag(
            "--unknown-label",
            type=_choice("reject", "oov", "append"),
            help="Names outside the vocabulary [reject].",
        ),
    ],
    "Splits": [
        _flag("--splits", metavar="NAME=SHARE,...", help="Split by shares."),
        _flag("--split-column", metavar="COLUMN", help="Tables: says the split."),
        _flag("--key-column", metavar="COLUMN", help="Tables: says the identity."),
        _flag("--group-column", metavar="COLUMN", help="Tables: is never torn apart."),
        _flag(
            "--stratify-column",
            metavar="COLUMN",
            help="Shares hold within each class of it.",
        ),
        _flag("--split-ids", metavar="FILE", help="Table of keys and their splits."),
        _flag("--split-lock", metavar="FILE", help="Keeps rows' splits over runs."),
    ],
    "Images": [
        _flag(
            "--image-check",
            type=_choice("structure", "decode", "none"),
            help="How images are checked [structure].",
        ),
        _flag(
            "--foreign-images",
            type=_choice("png", "reject"),
            help="What TensorFlow cannot read: as PNG, or rejected [png].",
        ),
        _flag(
            "--animations",
            type=_choice("reject", "first"),
            help="Moving images: rejected, or their first frame [reject].",
        ),
        _flag(
            "--exif",
            type=_choice("keep", "apply"),
            help="Orientation: left in the file, or applied [keep].",
        ),
        _flag("--channels", type=int, metavar="1|3|4", help="Of every image."),
        _flag(
            "--resize",
            metavar="MODE:SIZE",
            help="As in shorter:224 or crop:HEIGHTxWIDTH; also longer, exact and pad.",
        ),
        _flag(
            "--resize-filter",
            type=_choice("hamming", "box", "bilinear", "bicubic", "lanczos"),
            help="Hamming is nearest to the mean of an area [hamming].",
        ),
        _flag("--enlarge/--no-enlarge", default=None, help="Resize small images too."),
        _flag(
            "--image-format",
            type=_choice("jpeg", "png"),
            help="Of every image [as it is].",
        ),
        _flag("--image-quality", type=int, metavar="1-100", help="Of JPEG [95]."),
        _flag("--max-pixels", type=int, metavar="N", help="Of an image [64,000,000]."),
        _flag("--max-image-bytes", metavar="SIZE", help="Of an image file."),
        _flag(
            "--max-image-seconds",
            type=float,
            metavar="N",
            help="Of decoding what TensorFlow cannot read [120].",
        ),
    ],
    "Output": [
        _flag("--name", help="Prefix of the shards [the source's base name]."),
        _flag("--shards", type=int, metavar="N", help="Shards of each split."),
        _flag("--shard-size", metavar="SIZE", help="As in 150MB [100-200 MB]."),
        _flag("--seed", type=int, help="Of the order; moves no split [0]."),
        _flag(
            "--shuffle/--no-shuffle",
            default=None,
            help="Or keep the source's order [shuffle].",
        ),
        _flag(
            "--compression",
            type=_choice("none", "gzip", "zlib"),
            help="Of the shards [none].",
        ),
        _flag(
            "--max-reject-rate",
            type=float,
            metavar="SHARE",
            help="Rejects that are tolerated [0.01, and one of 10 items or more].",
        ),
        _flag(
            "--keep-rejected-bytes/--no-keep-rejected-bytes",
            default=None,
            help="Store rejected items beside their reasons.",
        ),
        _flag(
            "--allow-empty/--no-allow-empty",
            default=None,
            help="Commit a dataset without records.",
        ),
        _flag(
            "--overwrite/--no-overwrite",
            default=None,
            help="Replace the dataset at the output.",
        ),
    ],
    "Run": [
        _flag("--workers", metavar="N|auto", help="Processes [auto]."),
        _flag(
            "--runner",
            metavar="NAME",
            help=f"{', '.join(RUNNERS)}, or Beam's name of one [local].",
        ),
        _flag("--flink-master", metavar="HOST:PORT", help="[last started, or 8081]."),
        _flag("--spark-master", metavar="URL", help="[last started, or 7077]."),
        _flag(
            "--shared-output/--no-shared-output",
            default=None,
            help="All machines of the engine see paths, and TMPDIR, as this one does.",
        ),
        _flag(
            "--segments",
            type=_choice("auto", "inline", "files"),
            help="Where rows wait for their shard [auto].",
        ),
        _flag(
            "--fingerprint",
            type=_choice("stat", "content"),
            help="How unchanged inputs are known: by size and time, or by what they "
            "hold [stat].",
        ),
        _flag(
            "--keep-work/--no-keep-work",
            default=None,
            help="Keep segments, so that the next run reads changed files only.",
        ),
        _flag(
            "--verify/--no-verify",
            default=None,
            help="Read finished shards again before the commit [up to 64 MiB].",
        ),
        _flag("--spec", metavar="FILE", help="Read settings from YAML; - for stdin."),
    ],
}


def job_options(command: _Command) -> _Command:
    """Adds the source and the flags of a job to a command."""
    for title, flags in reversed(_SECTIONS.items()):
        for names, extra in reversed(flags):
            command = click.option(*names, cls=_Flag, section=title, **extra)(command)
    return click.argument("source", required=False, type=LOCATION)(command)
