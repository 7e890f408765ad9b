"""The settings of `convert` that `WriteDataset` has too, by their names there."""

from collections.abc import Mapping
from typing import Literal, TypedDict

__all__ = ["WriteKeywords"]


class WriteKeywords(TypedDict, total=False):
    """Settings of `WriteDataset` by name; what is left out has its default."""

    overwrite: bool
    images_root: str
    image_columns: list[str] | tuple[str, ...] | None
    drop: list[str] | tuple[str, ...]
    preset: Literal["default", "tutorial", "imagenet"]
    feature_names: Mapping[str, str]
    vocabulary: list[str] | tuple[str, ...] | str | None
    unknown_label: Literal["reject", "oov", "append"]
    group_column: str | None
    split_ids: str | None
    image_check: Literal["structure", "decode", "none"]
    foreign_images: Literal["png", "reject"]
    animations: Literal["reject", "first"]
    exif: Literal["keep", "apply"]
    channels: Literal[1, 3, 4] | None
    resize: str | None
    resize_filter: Literal["hamming", "box", "bilinear", "bicubic", "lanczos"]
    enlarge: bool
    image_format: Literal["jpeg", "png"] | None
    image_quality: int
    max_pixels: int
    max_image_bytes: int | str | None
    max_image_seconds: float
    name: str | None
    shard_size: int | str | None
    seed: int
    compression: Literal["none", "gzip", "zlib"]
    max_reject_rate: float | None
    keep_rejected_bytes: bool
    allow_empty: bool
    verify: bool | None
