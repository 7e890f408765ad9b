"""The flags of `convert`, `plan` and `schema`, in sections."""

from collections.abc import Callable
from typing import Any

import click
from click.shell_completion import CompletionItem

from beam_pipeline.engines.table import RUNNERS
from transforms.formats.registry import FORMATS
from transforms.storage.paths import plain

__all__ = ["LOCATION", "JobCommand", "complete_path", "job_options"]

_Command = Callable[..., int | None]


def complete_path(
    _ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Leaves the completion of a path to the shell."""
    return [CompletionItem(incomplete, type="file")]


class _Flag(click.Option):
    """A flag, and the section of the help that lists it."""

    def __init__(self, *arguments: Any, section: str = "", **extra: Any) -> None:
        if extra.get("metavar") in ("FILE", "FOLDER", "DIR"):
            extra["shell_complete"] = complete_path
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

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Lets the shell complete paths."""
        return complete_path(ctx, param, incomplete)


LOCATION = _Location()


def _choice(*values: str) -> click.Choice[str]:
    return click.Choice(values)


_Declaration = tuple[tuple[str, ...], dict[str, Any]]


def _flag(*names: str, **extra: Any) -> _Declaration:
    return names, extra


# Section -> its flags. A flag that is not given stays None, and the spec decides.
_SECTIONS: dict[str, list[_Declaration]] = {
    "Often used": [
        _flag(
            "--label-column",
            metavar="COLUMN",
            help="Tables: column that a model is to predict.",
        ),
        _flag(
            "--splits",
            metavar="NAME=SHARE,...",
            help="Split by shares, as in train=0.8,test=0.2.",
        ),
        _flag(
            "--overwrite/--no-overwrite",
            default=None,
            help="Replace the dataset at the output.",
        ),
        _flag("--spec", metavar="FILE", help="Read settings from YAML; - for stdin."),
    ],
    "Source": [
        _flag(
            "--format",
            type=_choice("auto", *FORMATS),
            metavar="FORMAT",
            help=f"Read the source as one of {', '.join(FORMATS)} [auto].",
        ),
        _flag(
            "--include",
            multiple=True,
            metavar="GLOB",
            help="Read only these files; may be given again.",
        ),
        _flag(
            "--exclude",
            multiple=True,
            metavar="GLOB",
            help="Leave these files out; may be given again.",
        ),
        _flag("--limit", type=int, metavar="N", help="Read only the first N items."),
        _flag(
            "--only-rejected",
            metavar="DIR",
            help="Read only the items that the dataset or failed run DIR rejected.",
        ),
        _flag(
            "--labels",
            metavar="FILE",
            help="Images: read their labels from this table, by id.",
        ),
        _flag(
            "--id-column",
            metavar="COLUMN",
            help="Column of --labels: names of images without suffix, or paths.",
        ),
        _flag(
            "--delimiter",
            metavar="CHAR",
            help="CSV: this separates cells [, or tab for .tsv].",
        ),
        _flag(
            "--quote",
            metavar="CHAR",
            help='CSV: this encloses cells; empty for none ["].',
        ),
        _flag(
            "--escape",
            metavar="CHAR",
            help="CSV: this makes the next character plain [none].",
        ),
        _flag(
            "--unlabelled/--no-unlabelled",
            default=None,
            help="Images: take no label from folders or --labels.",
        ),
        _flag(
            "--header/--no-header",
            default=None,
            help="CSV: the first row [a header; refused where it looks like data].",
        ),
        _flag(
            "--columns",
            metavar="A,B,...",
            help="CSV: name the columns. .npz: read these arrays.",
        ),
        _flag("--encoding", help="CSV: the text is in this encoding [utf-8]."),
        _flag(
            "--trim/--no-trim",
            default=None,
            help="CSV: remove spaces around names and cells [keep].",
        ),
        _flag(
            "--null-values",
            metavar="A,B,...",
            help="Tables: texts that mean missing, as in -,? or '' [empty cells].",
        ),
        _flag(
            "--layout",
            metavar="FILE",
            help="Binary records: YAML file that describes their fields.",
        ),
        _flag(
            "--encode",
            type=_choice("raw", "png"),
            help="Binary images: store raw pixels or PNG [raw].",
        ),
        _flag(
            "--bad-box",
            type=_choice("box", "image", "clip"),
            help="Detection: reject the box or its image, or clip the box [box].",
        ),
        _flag(
            "--images-root",
            metavar="FOLDER",
            help="Folder that paths of images are relative to.",
        ),
        _flag(
            "--first-pixel",
            type=int,
            metavar="0|1",
            help="VOC: number of the first pixel in boxes [0].",
        ),
        _flag(
            "--zip-encoding",
            metavar="NAME",
            help="Archives: encoding of names that are not UTF-8.",
        ),
    ],
    "Features": [
        _flag(
            "--image-columns",
            metavar="A,B,...",
            help="Tables: columns that hold images or their paths.",
        ),
        _flag("--drop", metavar="A,B,...", help="Tables: leave these columns out."),
        _flag(
            "--infer",
            type=_choice("sample", "full"),
            help="Infer features from a sample or from all rows [sample].",
        ),
        _flag(
            "--preset",
            type=_choice("default", "tutorial", "imagenet"),
            help="Images: name the features as these programs do.",
        ),
        _flag(
            "--feature-name",
            "feature_names",
            multiple=True,
            metavar="ROLE=NAME",
            help="Images: name one feature; an empty name drops it.",
        ),
        _flag(
            "--vocabulary",
            metavar="FILE",
            help="File with the class names in the order of their ids.",
        ),
        _flag(
            "--vocabulary-lock",
            metavar="FILE",
            help="File that keeps class ids over runs; new names are appended.",
        ),
        _flag(
            "--unknown-label",
            type=_choice("reject", "oov", "append"),
            help="Names outside the vocabulary: reject, one id, or append [reject].",
        ),
    ],
    "Splits": [
        _flag(
            "--split-column",
            metavar="COLUMN",
            help="Tables: column that names each row's split.",
        ),
        _flag(
            "--key-column",
            metavar="COLUMN",
            help="Tables: column that identifies rows; it decides their split.",
        ),
        _flag(
            "--group-column",
            metavar="COLUMN",
            help="Tables: keep all rows with the same value in one split.",
        ),
        _flag(
            "--stratify-column",
            metavar="COLUMN",
            help="Keep the shares of the splits within each class of this column.",
        ),
        _flag(
            "--split-ids",
            metavar="FILE",
            help="Table that gives the split of each key.",
        ),
        _flag(
            "--split-lock",
            metavar="FILE",
            help="File that keeps the splits of rows over runs.",
        ),
    ],
    "Images": [
        _flag(
            "--image-check",
            type=_choice("structure", "decode", "none"),
            help="Check the structure of images, decode them, or neither [structure].",
        ),
        _flag(
            "--foreign-images",
            type=_choice("png", "reject"),
            help="Store what TensorFlow cannot read as PNG, or reject it [png].",
        ),
        _flag(
            "--animations",
            type=_choice("reject", "first"),
            help="Reject animations, or take their first frame [reject].",
        ),
        _flag(
            "--exif",
            type=_choice("keep", "apply"),
            help="Leave the orientation in the file, or apply it to the pixels [keep].",
        ),
        _flag(
            "--channels",
            type=int,
            metavar="1|3|4",
            help="Convert images to this number of channels.",
        ),
        _flag(
            "--resize",
            metavar="MODE:SIZE",
            help="As in shorter:224 or crop:HEIGHTxWIDTH; also longer, exact and pad.",
        ),
        _flag(
            "--resize-filter",
            type=_choice("hamming", "box", "bilinear", "bicubic", "lanczos"),
            help="Filter of --resize [hamming, the nearest to the mean of an area].",
        ),
        _flag("--enlarge/--no-enlarge", default=None, help="Resize small images too."),
        _flag(
            "--image-format",
            type=_choice("jpeg", "png"),
            help="Encode every image in this format [as it is].",
        ),
        _flag(
            "--image-quality",
            type=int,
            metavar="1-100",
            help="Quality of JPEG that is encoded here [95].",
        ),
        _flag(
            "--max-pixels",
            type=int,
            metavar="N",
            help="Reject images with more pixels [64,000,000].",
        ),
        _flag("--max-image-bytes", metavar="SIZE", help="Reject larger image files."),
        _flag(
            "--max-image-seconds",
            type=float,
            metavar="N",
            help="Reject images that take longer to decode [120].",
        ),
    ],
    "Output": [
        _flag("--name", help="Prefix of the names of shards [the source's base name]."),
        _flag(
            "--shards",
            type=int,
            metavar="N",
            help="Write this number of shards for each split.",
        ),
        _flag(
            "--shard-size",
            metavar="SIZE",
            help="Write shards of about this size, as in 150MB [100-200 MB].",
        ),
        _flag(
            "--seed",
            type=int,
            help="Seed of the order; it moves no row to another split [0].",
        ),
        _flag(
            "--shuffle/--no-shuffle",
            default=None,
            help="Shuffle records, or keep the source's order [shuffle].",
        ),
        _flag(
            "--compression",
            type=_choice("none", "gzip", "zlib"),
            help="Compress the shards [none].",
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
    ],
    "Run": [
        _flag(
            "--workers",
            metavar="N|auto",
            help="Number of processes [auto: the cores, when worth it].",
        ),
        _flag(
            "--runner",
            metavar="NAME",
            help=f"{', '.join(RUNNERS)}, or Beam's name of one [local].",
        ),
        _flag(
            "--flink-master",
            metavar="HOST:PORT",
            help="Address of Flink [last started, or port 8081].",
        ),
        _flag(
            "--spark-master",
            metavar="URL",
            help="Address of Spark [last started, or port 7077].",
        ),
        _flag(
            "--shared-output/--no-shared-output",
            default=None,
            help="All machines of the engine see paths, and TMPDIR, as this one does.",
        ),
        _flag(
            "--segments",
            type=_choice("auto", "inline", "files"),
            help="Keep rows in memory (inline) or files until they are written [auto].",
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
    ],
}


def job_options(command: _Command) -> _Command:
    """Adds the source and the flags of a job to a command."""
    for title, flags in reversed(_SECTIONS.items()):
        for names, extra in reversed(flags):
            command = click.option(*names, cls=_Flag, section=title, **extra)(command)
    return click.argument("source", required=False, type=LOCATION)(command)
