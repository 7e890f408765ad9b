"""Every setting of a job, declared once.

A setting is one entry of `Settings`: its name, the type that a `Spec` holds, its
default, and what the help says of it. All else derives from that: the fields and
checks of the spec, the flags of the command line, the keywords of
`beam_pipeline.convert`, and the reference table. After a change here, `make settings`
writes the files that repeat it.

The formats that have a setting as an option are named in `transforms.formats.registry`.
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal

from beam_pipeline.settings.values import (
    JOINED,
    Bounds,
    Count,
    EngineName,
    FormatName,
    Location,
    Names,
    PartName,
    ResizeRule,
    Setting,
    Shares,
    Size,
    Texts,
)
from transforms.core.image.resize import MAX_PIXELS, Check

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


def _in(section: str, *, decides_bytes: bool = True) -> Callable[..., Any]:
    """Returns a function that declares a setting: default, help and so on."""
    return functools.partial(Setting, section, decides_bytes=decides_bytes)


_said = _in("")
_often = _in("Often used")
_source = _in("Source")
_label = _in("Labels")
_feature = _in("Features")
_split = _in("Splits")
_image = _in("Images")
_output = _in("Output")
_run = _in("Run", decides_bytes=False)


class Settings:
    """Every setting of a job; a `Spec` holds them, checked."""

    source: Location = _said(
        ..., "Folder, file or pattern of what is converted.", decides_bytes=False
    )
    output: Location = _said(..., "Folder of the dataset.", decides_bytes=False)

    # Often used
    label_column: str | None = _often(
        None,
        "Tables: column that a model is to predict.",
        "COLUMN",
        sources=TABLES_AND_LABELS,
    )
    splits: Shares | None = _often(
        None, "Split by shares, as in train=0.8,test=0.2.", "NAME=SHARE,..."
    )
    overwrite: bool = _often(
        False, "Replace the dataset at the output.", decides_bytes=False
    )

    # Source
    format: FormatName = _source(
        "auto", "Read the source as one of {formats} [auto].", "FORMAT"
    )
    include: list[str] = _source(
        [], "Read only these files; may be given again.", "GLOB"
    )
    exclude: list[str] = _source(
        [], "Leave these files out; may be given again.", "GLOB"
    )
    limit: Count | None = _source(None, "Read only the first N items.", "N")
    where: str | None = _source(
        None, 'Keep only rows for which this holds, as in "age > 30".', "CONDITION"
    )
    labels: Location | None = _source(
        None,
        "Images: read their labels from this table, by id.",
        "FILE",
        sources=IMAGES,
        decides_bytes=False,
    )
    id_column: str | None = _source(
        None,
        "Column of --labels: names of images without suffix, or paths.",
        "COLUMN",
        sources=IMAGES,
    )
    delimiter: str | None = _source(
        None,
        "CSV: character between cells, or whitespace [, or tab for .tsv].",
        "CHAR",
    )
    decimal: Literal[".", ","] = _source(
        ".", "CSV: decimal character; with a comma, points group thousands [.]."
    )
    quote: str = _source(
        '"', 'CSV: character around cells; empty for none ["].', "CHAR"
    )
    escape: str = _source(
        "", "CSV: character that escapes the next one [none].", "CHAR"
    )
    unlabelled: bool = _source(
        False, "Images: take no label from folders or --labels.", sources=IMAGES
    )
    header: bool | None = _source(
        None, "CSV: the first row [a header; refused where it looks like data]."
    )
    columns: list[str] | None = _source(
        None, "CSV: name the columns. .npz: read these arrays.", JOINED
    )
    encoding: str = _source("utf-8", "CSV: encoding of the text [utf-8].")
    trim: bool = _source(False, "CSV: remove spaces around names and cells [keep].")
    null_values: Texts = _source(
        [], "Tables: texts that mean missing, as in -,? or '' [empty cells].", JOINED
    )
    bad_box: Literal["box", "image", "clip"] = _source(
        "box", "Detection: reject the box or its image, or clip the box [box]."
    )
    masks: Location = _source(
        "auto",
        "Masks: those of pairs, all that there are, none, or those in a folder [auto].",
        "auto|all|none|FOLDER",
    )
    mask_classes: Location | None = _source(
        None,
        "Masks: list of what colours or values mean, as in '128,0,0 cat'.",
        "FILE",
        decides_bytes=False,
    )
    images_root: Location = _source(
        "",
        "Tables: folder that paths of images are relative to [that of the table].",
        "FOLDER",
        sources=TABLES,
        decides_bytes=False,
    )
    first_pixel: Literal[0, 1] = _source(
        0, "VOC: number of the first pixel in boxes [0].", "0|1"
    )
    image_set: str = _source(
        "Main", "VOC: folder of ImageSets whose lists say the splits [Main].", "NAME"
    )
    zip_encoding: str | None = _source(
        None, "Archives: encoding of names that are not UTF-8.", "NAME"
    )

    # Features
    image_columns: list[str] | None = _feature(
        None, "Tables: columns that hold images or their paths.", JOINED, sources=TABLES
    )
    drop: list[str] = _feature(
        [], "Tables: leave these columns out.", JOINED, sources=TABLES_AND_LABELS
    )
    infer: Literal["sample", "full"] = _feature(
        "sample", "Infer features from a sample or from all rows [sample]."
    )
    preset: Literal["default", "tutorial", "imagenet"] = _feature(
        "default", "Images: name the features as these programs do."
    )
    feature_names: dict[str, str] = _feature(
        {},
        "Images: name one feature; an empty name drops it.",
        "ROLE=NAME",
        flag="--feature-name",
    )
    # Labels
    vocabulary: Names | None = _label(
        None,
        "File with the class names in order of their ids.",
        "FILE",
        decides_bytes=False,
    )
    unknown_label: Literal["reject", "oov"] = _label(
        "reject", "Names outside the vocabulary: reject, or one id for all [reject]."
    )
    features: dict[str, Any] = _said({}, "Declared features, by their names.")

    # Splits
    split_column: str | None = _split(
        None, "Tables: column that names each row's split.", "COLUMN", sources=TABLES
    )
    key_column: str | None = _split(
        None,
        "Tables: unique key of rows; it decides the split.",
        "COLUMN",
        sources=TABLES_AND_LABELS,
    )
    group_column: str | None = _split(
        None,
        "Tables: keep rows of one value in one split.",
        "COLUMN",
        sources=TABLES_AND_LABELS,
    )
    stratify_column: str | None = _split(
        None,
        "Keep the shares of the splits in each class of this column (images: label).",
        "COLUMN",
    )
    split_ids: Location | None = _split(
        None, "Table that gives the split of each key.", "FILE", decides_bytes=False
    )
    split_lock: Location | None = _split(
        None,
        "File that keeps the splits of rows over runs.",
        "FILE",
        decides_bytes=False,
    )

    # Images
    image_check: Check = _image(
        "structure",
        "Check the structure of images, decode them, or neither [structure].",
    )
    foreign_images: Literal["png", "reject"] = _image(
        "png", "Store what TensorFlow cannot read as PNG, or reject it [png]."
    )
    animations: Literal["reject", "first"] = _image(
        "reject", "Reject animations, or take their first frame [reject]."
    )
    exif: Literal["keep", "apply"] = _image(
        "keep", "Leave the orientation in the file, or apply it to the pixels [keep]."
    )
    channels: Literal[1, 3, 4] | None = _image(
        None, "Convert images to this number of channels.", "1|3|4"
    )
    resize: ResizeRule | None = _image(
        None,
        "As in shorter:224 or crop:HEIGHTxWIDTH; also longer, exact and pad; small "
        "images grow with :enlarge behind it, and :lanczos and the like name a filter.",
        "MODE:SIZE",
    )
    image_format: Literal["jpeg", "png"] | None = _image(
        None, "Encode every image in this format [as it is; pixels of CIFAR, IDX: raw]."
    )
    image_quality: Annotated[int, Bounds(ge=1, le=100, strict=True)] = _image(
        95, "Quality of JPEG that is encoded here [95].", "1-100"
    )
    max_pixels: Count = _image(
        MAX_PIXELS, "Reject images with more pixels [64,000,000].", "N"
    )
    max_image_bytes: Size | None = _image(None, "Reject larger image files.", "SIZE")

    # Output
    name: str | None = _output(
        None, "Prefix of the names of shards [the source's base name]."
    )
    shards: Annotated[int, Bounds(ge=1, le=MAX_SHARDS, strict=True)] | None = _output(
        None, "Write this number of shards for each split.", "N"
    )
    shard_size: Size | None = _output(
        None, "Size of a shard, as in 150MB [100-200 MB].", "SIZE"
    )
    seed: Annotated[int, Bounds(ge=0, strict=True)] = _output(
        0, "Seed of the order; it moves no row to another split [0]."
    )
    shuffle: bool = _output(
        True, "Shuffle records, or keep the source's order [shuffle]."
    )
    compression: Literal["none", "gzip"] = _output(
        "none", "Compress shards, to be read in order only [none]."
    )
    index: bool = _output(
        True, "Index plain shards, of images as text too [index].", decides_bytes=False
    )
    catalogue: bool | None = _output(
        None, "Write a table of the records [for images].", decides_bytes=False
    )
    max_reject_rate: Annotated[float, Bounds(ge=0, le=1)] | None = _output(
        None,
        "Tolerated share of rejects: of items, and of boxes [0.01; one of 10 or more].",
        "SHARE",
        decides_bytes=False,
    )
    keep_rejected_bytes: bool = _output(
        False, "Store rejected items beside their reasons."
    )
    part: PartName | None = _output(
        None,
        "Write OUTPUT/part=NAME/, a part of the dataset OUTPUT.",
        "NAME",
        decides_bytes=False,
    )
    like: Location | None = _output(
        None,
        "Take features, classes and splits from this dataset.",
        "DATASET",
        decides_bytes=False,
    )
    allow: list[Literal["new-columns", "new-classes"]] = _output(
        [],
        "Accept new-columns or new-classes beside --like or --part; again for both.",
        "DRIFT",
        decides_bytes=False,
    )
    min_records: Annotated[int, Bounds(ge=0, strict=True)] | None = _output(
        None,
        "Commit no dataset of fewer records; 0 allows an empty one [1].",
        "N",
        decides_bytes=False,
    )
    max_records: Count | None = _output(
        None, "Commit no dataset of more records.", "N", decides_bytes=False
    )

    # Run
    workers: Annotated[int, Bounds(ge=1)] | Literal["auto"] = _run(
        "auto", "Number of processes [auto: the cores, when worth it].", "N|auto"
    )
    runner: EngineName = _run(
        "local", "{runners}, or Beam's name of one [local].", "NAME"
    )
    shared_output: bool = _run(
        False,
        "All machines of the engine see local paths, and TMPDIR, as this one does.",
    )
    fingerprint: Literal["stat", "content"] = _run(
        "stat",
        "Detect changed inputs by size and time, or by content [stat].",
    )


def _declared() -> Iterator[Setting]:
    for name, annotation in Settings.__annotations__.items():
        setting: Setting = vars(Settings)[name]
        yield setting._replace(name=name, type=annotation)


SETTINGS: Mapping[str, Setting] = {each.name: each for each in _declared()}
"""Every setting by its name, in the order of the help."""

for _setting in SETTINGS.values():
    # Pydantic takes the attributes of a class as defaults.
    if _setting.section:
        setattr(Settings, _setting.name, _setting.default)
    else:
        delattr(Settings, _setting.name)
