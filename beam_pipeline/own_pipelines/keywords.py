"""The settings of `WriteDataset`, for editors and type checkers.

`make settings` writes this module from `beam_pipeline.settings.options`; change that.
"""

from collections.abc import Mapping
from typing import Literal, TypedDict

__all__ = ["WriteKeywords"]


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
    """File with the class names in the order of their ids."""

    vocabulary_lock: str | None
    """File that keeps class ids over runs; new names are appended."""

    unknown_label: Literal["reject", "oov", "append"]
    """Names outside the vocabulary: reject, one id, or append [reject]."""

    group_column: str | None
    """Tables: keep all rows with the same value in one split."""

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
    """Write shards of about this size, as in 150MB [100-200 MB]."""

    seed: int
    """Seed of the order; it moves no row to another split [0]."""

    compression: Literal["none", "gzip", "zlib"]
    """Compress the shards [none]."""

    index: bool
    """Index the shards, of images as text too [index]."""

    catalogue: bool | None
    """Write a table of the records [for images]."""

    max_reject_rate: float | None
    """Tolerated share of rejects: of items, and of boxes [0.01; one of 10 or more]."""

    keep_rejected_bytes: bool
    """Store rejected items beside their reasons."""

    allow_empty: bool
    """Commit a dataset without records."""

    shared_output: bool
    """All machines of the engine see local paths, and TMPDIR, as this one does."""

    verify: bool | None
    """Read finished shards again before the commit [up to 64 MiB]."""
