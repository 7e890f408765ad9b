"""The keywords of `convert` and of `WriteDataset`, for editors and type checkers.

`make settings` writes this module from `beam_pipeline.settings.options`; change that.
"""

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

__all__ = ["Keywords", "WriteKeywords"]


class WriteKeywords(TypedDict, total=False):
    """Settings of `WriteDataset` by name; what is left out has its default."""

    overwrite: bool
    """Replace the dataset at the output."""

    images_root: str
    """Tables: folder that paths of images are relative to [that of the table]."""

    image_columns: list[str] | tuple[str, ...] | None
    """Tables: columns that hold images or their paths."""

    drop: list[str] | tuple[str, ...]
    """Tables: leave these columns out."""

    preset: Literal["default", "tutorial", "imagenet"]
    """Images: name the features as these programs do."""

    feature_names: Mapping[str, str]
    """Images: name one feature; an empty name drops it."""

    vocabulary: list[str] | tuple[str, ...] | str | None
    """File with the class names in order of their ids."""

    unknown_label: Literal["reject", "oov"]
    """Names outside the vocabulary: reject, or one id for all [reject]."""

    group_column: str | None
    """Tables: keep rows of one value in one split."""

    split_ids: str | None
    """Table that gives the split of each key."""

    split_lock: str | None
    """File that keeps the splits of rows over runs."""

    image_check: Literal["structure", "decode", "none"]
    """Check the structure of images, decode them, or neither [structure]."""

    foreign_images: Literal["png", "reject"]
    """Store what TensorFlow cannot read as PNG, or reject it [png]."""

    animations: Literal["reject", "first"]
    """Reject animations, or take their first frame [reject]."""

    exif: Literal["keep", "apply"]
    """Leave the orientation in the file, or apply it to the pixels [keep]."""

    channels: Literal[1, 3, 4] | None
    """Convert images to this number of channels."""

    resize: str | None
    """As in shorter:224 or crop:HEIGHTxWIDTH; also longer, exact and pad."""

    resize_filter: Literal["hamming", "box", "bilinear", "bicubic", "lanczos"]
    """Filter of `resize` [hamming, the nearest to the mean of an area]."""

    enlarge: bool
    """Resize small images too."""

    image_format: Literal["jpeg", "png"] | None
    """Encode every image in this format [as it is]."""

    image_quality: int
    """Quality of JPEG that is encoded here [95]."""

    max_pixels: int
    """Reject images with more pixels [64,000,000]."""

    max_image_bytes: int | str | None
    """Reject larger image files."""

    name: str | None
    """Prefix of the names of shards [the source's base name]."""

    shard_size: int | str | None
    """Size of a shard, as in 150MB [100-200 MB]."""

    seed: int
    """Seed of the order; it moves no row to another split [0]."""

    compression: Literal["none", "gzip"]
    """Compress shards, to be read in order only [none]."""

    index: bool
    """Index plain shards, of images as text too [index]."""

    catalogue: bool | None
    """Write a table of the records [for images]."""

    max_reject_rate: float | None
    """Tolerated share of rejects: of items, and of boxes [0.01; one of 10 or more]."""

    keep_rejected_bytes: bool
    """Store rejected items beside their reasons."""

    min_records: int | None
    """Commit no dataset of fewer records."""

    max_records: int | None
    """Commit no dataset of more records."""

    allow_empty: bool
    """Commit a dataset without records."""

    shared_output: bool
    """All machines of the engine see local paths, and TMPDIR, as this one does."""

    verify: bool | None
    """Read finished shards again before the commit [up to 64 MiB]."""


class Keywords(WriteKeywords, total=False):
    """Every setting of a job by its name; what is left out has its default."""

    label_column: str | None
    """Tables: column that a model is to predict."""

    splits: str | Mapping[str, str | float] | None
    """Split by shares, as in train=0.8,test=0.2."""

    format: str
    """Read the source as one of the formats [auto]."""

    include: list[str] | tuple[str, ...]
    """Read only these files; may be given again."""

    exclude: list[str] | tuple[str, ...]
    """Leave these files out; may be given again."""

    limit: int | None
    """Read only the first N items."""

    where: str | None
    """Keep only rows for which this holds, as in "age > 30"."""

    labels: str | None
    """Images: read their labels from this table, by id."""

    id_column: str | None
    """Column of `labels`: names of images without suffix, or paths."""

    delimiter: str | None
    """CSV: character between cells, or whitespace [, or tab for .tsv]."""

    decimal: Literal[".", ","]
    """CSV: decimal character; with a comma, points group thousands [.]."""

    quote: str
    """CSV: character around cells; empty for none ["]."""

    escape: str
    """CSV: character that escapes the next one [none]."""

    unlabelled: bool
    """Images: take no label from folders or `labels`."""

    header: bool | None
    """CSV: the first row [a header; refused where it looks like data]."""

    columns: list[str] | tuple[str, ...] | None
    """CSV: name the columns. .npz: read these arrays."""

    encoding: str
    """CSV: encoding of the text [utf-8]."""

    trim: bool
    """CSV: remove spaces around names and cells [keep]."""

    null_values: list[str] | tuple[str, ...]
    """Tables: texts that mean missing, as in -,? or '' [empty cells]."""

    encode: Literal["raw", "png"]
    """Binary images: store raw pixels or PNG [raw]."""

    bad_box: Literal["box", "image", "clip"]
    """Detection: reject the box or its image, or clip the box [box]."""

    masks: str
    """Masks: those of pairs, all that there are, none, or those in a folder [auto]."""

    mask_classes: str | None
    """Masks: list of what colours or values mean, as in '128,0,0 cat'."""

    first_pixel: Literal[0, 1]
    """VOC: number of the first pixel in boxes [0]."""

    zip_encoding: str | None
    """Archives: encoding of names that are not UTF-8."""

    infer: Literal["sample", "full"]
    """Infer features from a sample or from all rows [sample]."""

    features: Mapping[str, Any]
    """Declared features, by their names."""

    split_column: str | None
    """Tables: column that names each row's split."""

    key_column: str | None
    """Tables: unique key of rows; it decides the split."""

    stratify_column: str | None
    """Keep the shares of the splits in each class of this column (images: label)."""

    shards: int | None
    """Write this number of shards for each split."""

    shuffle: bool
    """Shuffle records, or keep the source's order [shuffle]."""

    part: str | None
    """Write OUTPUT/part=NAME/, a part of the dataset OUTPUT."""

    like: str | None
    """Take features, classes and splits from this dataset."""

    allow: list[str] | tuple[str, ...]
    """Accept new-columns or new-classes beside `like` or `part`; again for both."""

    workers: int | Literal["auto"]
    """Number of processes [auto: the cores, when worth it]."""

    runner: str
    """The name of an engine, or Beam's name of one [local]."""

    flink_master: str | None
    """Address of Flink [last started, or port 8081]."""

    spark_master: str | None
    """Address of Spark [last started, or port 7077]."""

    job_endpoint: str | None
    """Use this running job server [one is started for each job]."""

    fingerprint: Literal["stat", "content"]
    """Detect changed inputs by size and time, or by content [stat]."""
