"""Every setting of a job, declared once; what a setting is.

A setting is one entry of `Settings`: its name, the type that a `Spec` holds, its
default, and what the help says of it. All else derives from that: the fields and
checks of the spec, the flags of the command line, the keywords of
`beam_pipeline.convert`, and the reference table. After a change here, `make settings`
writes the files that repeat it.

The formats that have a setting as an option are named in `transforms.formats.registry`.
"""

import functools
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal, NamedTuple

from beam_pipeline.settings.values import (
    Character,
    ColumnName,
    Count,
    EngineName,
    FilePath,
    FormatName,
    Location,
    Mark,
    Names,
    PartName,
    ResizeRule,
    Shares,
    Size,
    Texts,
)
from transforms.core.image.resize import MAX_PIXELS, Check

# The metavar of a list that the command line takes as one text.
JOINED = "A,B,..."
_Kind = Literal["switch", "choice", "int", "float", "joined", "list", "pairs", "text"]
_KINDS: Mapping[Any, _Kind] = {int: "int", float: "float", list: "list", dict: "pairs"}

MAX_SHARDS = 65_536
# Sources that a setting is for, where that is not up to a format's entry.
TABLES = "tables"
TABLES_AND_LABELS = "tables, also of --labels"
IMAGES = "folders of images"

# As the help and the reference list them: in the order in which people need them.
SECTIONS = (
    "Often used",
    "Output",
    "Splits",
    "Labels",
    "Features",
    "Source",
    "Images",
    "Run",
)


class Setting(NamedTuple):
    """What is known of one setting.

    Attributes:
      section: of the command line's help; empty for what has no flag.
      help: one sentence, with the default in brackets. In it {formats} and {runners}
        are the names of all.
      metavar: what the help shows for the value, where its type does not say it.
      default: of a spec; an ellipsis where it must be given.
      flag: of the command line, where it is not the name; see `flags`.
      sources: the sources that it is for; empty for all, and for what a format's entry
        names among its options.
      decides_bytes: whether it decides bytes of the dataset; what does not may change
        between a run and its resume. A path does not where what its file says counts
        among the inputs, the schema or the classes.
      name: its name in `Settings`; this and what follows comes from there.
      types: of what a spec holds: those that a union joins, or the one.

    Example:
      >>> from beam_pipeline.settings.options import SETTINGS
      >>> trim = SETTINGS["trim"]
      >>> trim.flags, trim.kind, trim.default
      ('--trim/--no-trim', 'switch', False)
    """

    section: str
    help: str
    metavar: str = ""
    default: Any = None
    flag: str = ""
    sources: str = ""
    decides_bytes: bool = True
    name: str = ""
    types: tuple[Any, ...] = ()

    @property
    def flags(self) -> str:
        """The flags of the command line, as in --trim/--no-trim; empty without one."""
        if not self.section:
            return ""
        flag = self.flag or f"--{self.name.replace('_', '-')}"
        return f"{flag}/--no-{flag[2:]}" if self.kind == "switch" else flag

    @property
    def python_help(self) -> str:
        """The help with settings as Python names them, and without lists of names."""
        text = self.help.format(formats="the formats", runners="The name of an engine")
        return re.sub(
            "--([a-z-]+)", lambda flag: f"`{flag[1].replace('-', '_')}`", text
        )

    @property
    def kind(self) -> _Kind:
        """What the command line takes: "joined" is a list as one text, `JOINED`.

        Of "list" and "pairs" each value is given by itself, as in --include A --include
        B and --feature-name ROLE=NAME.
        """
        first, *others = given_types = [t for t in self.types if t is not type(None)]
        if bool in given_types:
            return "switch"
        if others or any(mark.takes for mark in _given(first)):
            return "text"
        if self.choices:
            return "choice" if isinstance(self.choices[0], str) else "int"
        # Without marks, and without the types of items.
        while hasattr(first, "__origin__"):
            first = first.__origin__
        kind = _KINDS.get(first, "text")
        return "joined" if kind == "list" and self.metavar == JOINED else kind

    @property
    def choices(self) -> tuple[str | int, ...]:
        """The words or numbers that it may be, as far as they are known."""
        return tuple(choice for one in self.types for choice in _choices_of_type(one))


def _union_members(annotation: Any) -> tuple[Any, ...]:
    """Returns the types that a union joins; for any other type that type alone."""
    is_union = typing.get_origin(annotation) in (types.UnionType, typing.Union)
    return typing.get_args(annotation) if is_union else (annotation,)


def _given(annotation: Any) -> list[Mark]:
    """Returns the marks of a type that say how it is given."""
    marks = getattr(annotation, "__metadata__", ())
    return [mark for mark in marks if isinstance(mark, Mark)]


def _choices_of_type(annotation: Any) -> tuple[str | int, ...]:
    """Returns the words or numbers that a type allows; none where all are."""
    if typing.get_origin(annotation) is Literal:
        return typing.get_args(annotation)
    return tuple(choice for mark in _given(annotation) for choice in mark.choices)


def _in(section: str, **facts: Any) -> Callable[..., Any]:
    """Returns a function that declares a setting: help, what it takes and so on."""
    return functools.partial(Setting, section, **facts)


_said = _in("")
_often = _in("Often used")
_source = _in("Source")
_label = _in("Labels")
_feature = _in("Features")
_split = _in("Splits")
_image = _in("Images")
_output = _in("Output")
# What decides no bytes, or of whose files the content does.
_place = _in("", default=..., decides_bytes=False)
_source_file = _in("Source", decides_bytes=False)
_class_file = _in("Labels", decides_bytes=False)
_split_file = _in("Splits", decides_bytes=False)
_outcome = _in("Output", decides_bytes=False)
_run = _in("Run", decides_bytes=False)


class Settings:
    """Every setting of a job; a `Spec` holds them, checked."""

    source: Location = _place("Folder, file or pattern of what is converted.")
    output: Location = _place("Folder of the dataset.")

    # Often used
    label_column: ColumnName | None = _often(
        "Tables: column that a model is to predict.", sources=TABLES_AND_LABELS
    )
    splits: Shares | None = _often("Split by shares, as in train=0.8,test=0.2.")
    overwrite: bool = _often(
        "Replace the dataset at the output.", default=False, decides_bytes=False
    )

    # Source
    format: FormatName = _source(
        "Read the source as one of {formats} [auto].", "FORMAT", default="auto"
    )
    include: list[str] = _source(
        "Read only these files; may be given again.", "GLOB", default=[]
    )
    exclude: list[str] = _source(
        "Leave these files out; may be given again.", "GLOB", default=[]
    )
    limit: Count | None = _source("Read only the first N items.")
    where: str | None = _source(
        'Keep only rows for which this holds, as in "age > 30".', "CONDITION"
    )
    labels: FilePath | None = _source_file(
        "Images: read their labels from this table, by id.", sources=IMAGES
    )
    id_column: ColumnName | None = _source(
        "Column of --labels: names of images without suffix, or paths.", sources=IMAGES
    )
    delimiter: Character | None = _source(
        "CSV: character between cells, or whitespace [, or tab for .tsv]."
    )
    decimal: Literal[".", ","] = _source(
        "CSV: decimal character; with a comma, points group thousands [.].", default="."
    )
    quote: Character = _source(
        'CSV: character around cells; empty for none ["].', default='"'
    )
    escape: Character = _source(
        "CSV: character that escapes the next one [none].", default=""
    )
    unlabelled: bool = _source(
        "Images: take no label from folders or --labels.", default=False, sources=IMAGES
    )
    header: bool | None = _source(
        "CSV: the first row [a header; refused where it looks like data]."
    )
    columns: list[str] | None = _source(
        "CSV: name the columns. .npz: read these arrays.", JOINED
    )
    encoding: str = _source("CSV: encoding of the text [utf-8].", default="utf-8")
    trim: bool = _source(
        "CSV: remove spaces around names and cells [keep].", default=False
    )
    null_values: Texts = _source(
        "Tables: texts that mean missing, as in -,? or '' [empty cells].",
        JOINED,
        default=[],
    )
    bad_box: Literal["box", "image", "clip"] = _source(
        "Detection: reject the box or its image, or clip the box [box].", default="box"
    )
    masks: Location = _source(
        "Masks: those of pairs, all that there are, none, or those in a folder [auto].",
        "auto|all|none|FOLDER",
        default="auto",
    )
    mask_classes: FilePath | None = _source_file(
        "Masks: list of what colours or values mean, as in '128,0,0 cat'."
    )
    images_root: Location = _source_file(
        "Tables: folder that paths of images are relative to [that of the table].",
        "FOLDER",
        default="",
        sources=TABLES,
    )
    first_pixel: Literal[0, 1] = _source(
        "VOC: number of the first pixel in boxes [0].", "0|1", default=0
    )
    image_set: str = _source(
        "VOC: folder of ImageSets whose lists say the splits [Main].",
        "NAME",
        default="Main",
    )
    zip_encoding: str | None = _source(
        "Archives: encoding of names that are not UTF-8.", "NAME"
    )

    # Features
    image_columns: list[str] | None = _feature(
        "Tables: columns that hold images or their paths.", JOINED, sources=TABLES
    )
    drop: list[str] = _feature(
        "Tables: leave these columns out.",
        JOINED,
        default=[],
        sources=TABLES_AND_LABELS,
    )
    infer: Literal["sample", "full"] = _feature(
        "Infer features from a sample or from all rows [sample].", default="sample"
    )
    preset: Literal["default", "tutorial", "imagenet"] = _feature(
        "Images: name the features as these programs do.", default="default"
    )
    feature_names: dict[str, str] = _feature(
        "Images: name one feature; an empty name drops it.",
        "ROLE=NAME",
        default={},
        flag="--feature-name",
    )
    # Labels
    vocabulary: Names | None = _class_file(
        "File with the class names in order of their ids."
    )
    unknown_label: Literal["reject", "oov"] = _label(
        "Names outside the vocabulary: reject, or one id for all [reject].",
        default="reject",
    )
    features: dict[str, Any] = _said("Declared features, by their names.", default={})

    # Splits
    split_column: ColumnName | None = _split(
        "Tables: column that names each row's split.", sources=TABLES
    )
    key_column: ColumnName | None = _split(
        "Tables: unique key of rows; it decides the split.", sources=TABLES_AND_LABELS
    )
    group_column: ColumnName | None = _split(
        "Tables: keep rows of one value in one split.", sources=TABLES_AND_LABELS
    )
    stratify_column: ColumnName | None = _split(
        "Keep the shares of the splits in each class of this column (images: label)."
    )
    split_ids: FilePath | None = _split_file("Table that gives the split of each key.")
    split_lock: FilePath | None = _split_file(
        "File that keeps the splits of rows over runs."
    )

    # Images
    image_check: Check = _image(
        "Check the structure of images, decode them, or neither [structure].",
        default="structure",
    )
    foreign_images: Literal["png", "reject"] = _image(
        "Store what TensorFlow cannot read as PNG, or reject it [png].", default="png"
    )
    animations: Literal["reject", "first"] = _image(
        "Reject animations, or take their first frame [reject].", default="reject"
    )
    exif: Literal["keep", "apply"] = _image(
        "Leave the orientation in the file, or apply it to the pixels [keep].",
        default="keep",
    )
    channels: Literal[1, 3, 4] | None = _image(
        "Convert images to this number of channels.", "1|3|4"
    )
    resize: ResizeRule | None = _image(
        "As in shorter:224 or crop:HEIGHTxWIDTH; also longer, exact and pad; small "
        "images grow with :enlarge behind it, and :lanczos and the like name a filter."
    )
    image_format: Literal["jpeg", "png"] | None = _image(
        "Encode every image in this format [as it is; pixels of CIFAR, IDX: raw]."
    )
    image_quality: Annotated[int, Mark(ge=1, le=100, strict=True)] = _image(
        "Quality of JPEG that is encoded here [95].", "1-100", default=95
    )
    max_pixels: Count = _image(
        "Reject images with more pixels [64,000,000].", default=MAX_PIXELS
    )
    max_image_bytes: Size | None = _image("Reject larger image files.")

    # Output
    name: str | None = _output(
        "Prefix of the names of shards [the source's base name]."
    )
    shards: Annotated[int, Mark(ge=1, le=MAX_SHARDS, strict=True)] | None = _output(
        "Write this number of shards for each split.", "N"
    )
    shard_size: Size | None = _output("Size of a shard, as in 150MB [100-200 MB].")
    seed: Annotated[int, Mark(ge=0, strict=True)] = _output(
        "Seed of the order; it moves no row to another split [0].", default=0
    )
    shuffle: bool = _output(
        "Shuffle records, or keep the source's order [shuffle].", default=True
    )
    compression: Literal["none", "gzip"] = _output(
        "Compress shards, to be read in order only [none].", default="none"
    )
    index: bool = _outcome(
        "Index plain shards, of images as text too [index].", default=True
    )
    catalogue: bool | None = _outcome("Write a table of the records [for images].")
    max_reject_rate: Annotated[float, Mark(ge=0, le=1)] | None = _outcome(
        "Tolerated share of rejects: of items, and of boxes [0.01; one of 10 or more].",
        "SHARE",
    )
    keep_rejected_bytes: bool = _output(
        "Store rejected items beside their reasons.", default=False
    )
    part: PartName | None = _outcome(
        "Write OUTPUT/part=NAME/, a part of the dataset OUTPUT."
    )
    like: Location | None = _outcome(
        "Take features, classes and splits from this dataset.", "DATASET"
    )
    allow: list[Literal["new-columns", "new-classes"]] = _outcome(
        "Accept new-columns or new-classes beside --like or --part; again for both.",
        "DRIFT",
        default=[],
    )
    min_records: Annotated[int, Mark(ge=0, strict=True)] | None = _outcome(
        "Commit no dataset of fewer records; 0 allows an empty one [1].", "N"
    )
    max_records: Count | None = _outcome("Commit no dataset of more records.")

    # Run
    workers: Annotated[int, Mark(ge=1)] | Literal["auto"] = _run(
        "Number of processes [auto: the cores, when worth it].",
        "N|auto",
        default="auto",
    )
    runner: EngineName = _run(
        "{runners}, or Beam's name of one [local].", default="local"
    )
    shared_output: bool = _run(
        "All machines of the engine see local paths, and TMPDIR, as this one does.",
        default=False,
    )
    fingerprint: Literal["stat", "content"] = _run(
        "Detect changed inputs by size and time, or by content [stat].", default="stat"
    )


def _declared_settings() -> Iterator[Setting]:
    """Yields the entries of `Settings`, each with its name, type and metavar."""
    for name, annotation in Settings.__annotations__.items():
        setting: Setting = vars(Settings)[name]
        types = _union_members(annotation)
        marks = (mark for one in types for mark in getattr(one, "__metadata__", ()))
        texts = (mark for mark in marks if isinstance(mark, str))
        metavar = setting.metavar or next(texts, "")
        yield setting._replace(name=name, types=types, metavar=metavar)


SETTINGS: Mapping[str, Setting] = {each.name: each for each in _declared_settings()}
"""Every setting by its name, in the order of the help."""

for _setting in SETTINGS.values():
    # Pydantic takes the attributes of a class as defaults.
    if _setting.section:
        setattr(Settings, _setting.name, _setting.default)
    else:
        delattr(Settings, _setting.name)
