"""The keywords of `convert` and of `WriteDataset`, for editors and type checkers.

`make settings` writes this module from `beam_pipeline.settings.options`; change that.
`help(beam_pipeline.convert)` says what each one means.
"""

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

__all__ = ["Keywords", "WriteKeywords"]


class WriteKeywords(TypedDict, total=False):
    """Settings of `WriteDataset` by name; what is left out has its default."""

    overwrite: bool
    images_root: str
    image_columns: list[str] | tuple[str, ...] | None
    drop: list[str] | tuple[str, ...]
    preset: Literal["default", "tutorial", "imagenet"]
    feature_names: Mapping[str, str]
    vocabulary: list[str] | tuple[str, ...] | str | None
    unknown_label: Literal["reject", "oov"]
    group_column: str | None
    split_ids: str | None
    image_check: Literal["structure", "decode", "none"]
    foreign_images: Literal["png", "reject"]
    animations: Literal["reject", "first"]
    exif: Literal["keep", "apply"]
    channels: Literal[1, 3, 4] | None
    resize: str | None
    image_format: Literal["jpeg", "png"] | None
    image_quality: int
    max_pixels: int
    max_image_bytes: int | str | None
    name: str | None
    shard_size: int | str | None
    seed: int
    compression: Literal["none", "gzip"]
    index: bool
    catalogue: bool | None
    max_reject_rate: float | None
    keep_rejected_bytes: bool
    part: str | None
    allow: list[str] | tuple[str, ...]
    min_records: int | None
    max_records: int | None
    shared_output: bool


class Keywords(WriteKeywords, total=False):
    """Every setting of a job by its name; what is left out has its default."""

    label_column: str | None
    splits: str | Mapping[str, str | float] | None
    format: str
    include: list[str] | tuple[str, ...]
    exclude: list[str] | tuple[str, ...]
    limit: int | None
    where: str | None
    labels: str | None
    id_column: str | None
    delimiter: str | None
    decimal: Literal[".", ","]
    quote: str
    escape: str
    unlabelled: bool
    header: bool | None
    columns: list[str] | tuple[str, ...] | None
    encoding: str
    trim: bool
    null_values: list[str] | tuple[str, ...]
    bad_box: Literal["box", "image", "clip"]
    masks: str
    mask_classes: str | None
    first_pixel: Literal[0, 1]
    image_set: str
    zip_encoding: str | None
    infer: Literal["sample", "full"]
    features: Mapping[str, Any]
    split_column: str | None
    key_column: str | None
    stratify_column: str | None
    split_lock: str | None
    shards: int | None
    shuffle: bool
    like: str | None
    workers: int | Literal["auto"]
    runner: str
    fingerprint: Literal["stat", "content"]
