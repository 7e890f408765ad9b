"""The job as data: YAML, command-line flags and Python build the same `Spec`."""

import fractions
import itertools
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, cast

import pydantic
import yaml

from beam_pipeline.engines.table import engine_of
from transforms import files
from transforms.core.image.check import MAX_PIXELS, Check
from transforms.core.image.policy import MAX_BYTES, MAX_SECONDS, ImagePolicy
from transforms.core.image.resize import Filter, Mode, Resize
from transforms.core.manifest import FORMAT
from transforms.core.nesting import MAX_NESTING, TOO_DEEP
from transforms.errors import SpecError, closest
from transforms.formats.registry import FORMATS
from transforms.storage.paths import plain, shown

__all__ = [
    "BYTE_DECIDING",
    "FeatureSpec",
    "MAX_SHARDS",
    "Spec",
    "load_spec",
    "make_spec",
    "parse_size",
    "read_spec",
]

MAX_SHARDS = 65_536

_UNITS = {
    "": 1,
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
}


def parse_size(text: str | int) -> int:
    """Returns bytes from text like 150MB, 64 MiB or 1000000.

    Raises:
      ValueError: it is no size above 0.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", str(text))
    if not match or match[2].upper() not in _UNITS:
        raise ValueError("a size is a number and a unit, as in 150MB or 64MiB")
    size = int(fractions.Fraction(match[1]) * _UNITS[match[2].upper()])
    if size < 1:
        raise ValueError("a size must be above 0")
    return size


def _shares(value: Any) -> Any:
    """Takes NAME=SHARE,... as well as a mapping; shares stay exact, as text."""
    if isinstance(value, str):
        pairs = [part.partition("=") for part in value.split(",")]
        if not all(name and share for name, _, share in pairs):
            raise ValueError("shares are NAME=SHARE,... as in train=0.9,test=0.1")
        names = [name.strip() for name, _, _ in pairs]
        if len(set(names)) != len(names):
            raise ValueError("each split may be named once")
        value = {name.strip(): share.strip() for name, _, share in pairs}
    if isinstance(value, Mapping):
        value = {str(name): str(share) for name, share in value.items()}
        for share in value.values():
            try:
                positive = fractions.Fraction(share) > 0
            except (ValueError, ZeroDivisionError) as error:
                raise ValueError(f"{shown(share)} is no share, as in 0.8") from error
            if not positive:
                raise ValueError("a share must be above 0")
    return value


def _size(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return value
    return parse_size(value if isinstance(value, str | int) else f"{value:.6f}")


def _resize(value: Any) -> Any:
    if isinstance(value, str) and not re.fullmatch(
        r"(shorter|longer|exact|crop|pad):[1-9]\d*(x[1-9]\d*)?", value
    ):
        size = value if re.fullmatch(r"[1-9]\d*(x[1-9]\d*)?", value) else "224x224"
        raise ValueError(
            f"a resize is MODE:SIZE; exact:{size} changes the shape, crop:{size} cuts, "
            f"pad:{size} adds borders, and shorter:224 and longer:224 keep the shape"
        )
    return value


def _names(value: Any) -> Any:
    """Takes class names that YAML reads as numbers; as bools they would be lost."""
    if not isinstance(value, list):
        return value
    for name in value:
        if isinstance(name, bool) or not isinstance(name, str | int):
            raise ValueError(
                f"class names are texts; {shown(name)} must stand in quotes, as in 'no'"
            )
    return [str(name) for name in value]


def _texts(value: Any) -> Any:
    """Takes texts that YAML reads as numbers."""
    if not isinstance(value, list):
        return value
    for text in value:
        if isinstance(text, bool) or not isinstance(text, str | int | float):
            raise ValueError(f"{shown(text)} must be a text, in quotes, as in '-'")
    return [str(text) for text in value]


def _runner(value: str) -> str:
    try:
        engine_of(value)
    except SpecError as error:
        raise ValueError(str(error)) from error
    return value


def _format(value: str) -> str:
    if value != "auto" and value not in FORMATS:
        raise ValueError(f"a format is auto, {', '.join(FORMATS)}")
    return value


def _located(value: Any) -> Any:
    """Takes off what a path says of how to reach its place."""
    return plain(value) if isinstance(value, str) else value


def _possible(value: str) -> str:
    if "\0" in value:
        raise ValueError("a path can hold no NUL")
    return value


Location = Annotated[
    str, pydantic.BeforeValidator(_located), pydantic.AfterValidator(_possible)
]
Whole = Annotated[int, pydantic.Field(strict=True)]
Scalar = bool | int | float | str
Shares = Annotated[dict[str, str], pydantic.BeforeValidator(_shares)]
Size = Annotated[int, pydantic.BeforeValidator(_size)]
Names = Annotated[
    list[str] | str,
    pydantic.BeforeValidator(_names),
    pydantic.BeforeValidator(_located),
]


class FeatureSpec(pydantic.BaseModel):
    """What is said of one feature; what is not said is inferred from its column.

    A text alone is its kind.

    Attributes:
      column: the source's name; the feature's own when not given.
      kind, shape, dtype, encoding, unit, missing, fill, constant, separator, unknown,
        inexact_integers: see `transforms.core.schema.Feature`.
      label: whether it is what a model is to predict.
      path: a pattern; its first group in the path of the row's file is the value.
      vocabulary: of a label: its class names in the order of their ids, or a file
        with one name a line.
    """

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, strict=False)

    column: str | None = None
    kind: (
        Literal[
            "int64",
            "float",
            "bool",
            "text",
            "bytes",
            "timestamp",
            "label",
            "image",
            "tensor",
            "box",
        ]
        | None
    ) = None
    label: bool | None = None
    shape: list[Annotated[Whole, pydantic.Field(ge=1)] | None] | None = None
    dtype: str | None = None
    encoding: Literal["raw", "proto"] | None = None
    unit: Literal["s", "ms", "us", "ns"] | None = None
    missing: Literal["omit", "fill", "reject"] | None = None
    fill: Scalar | None = None
    constant: Scalar | None = None
    path: str | None = None
    separator: str | None = None
    vocabulary: Names | None = None
    unknown: Literal["reject", "oov", "append"] | None = None
    inexact_integers: Literal["round", "reject"] | None = None

    @pydantic.model_validator(mode="before")
    @classmethod
    def _kind_alone(cls, said: Any) -> Any:
        if isinstance(said, str):
            return {"kind": said}
        if not isinstance(said, Mapping | FeatureSpec):
            raise ValueError("a feature is a kind, as in timestamp, or its settings")
        return said

    @pydantic.model_validator(mode="after")
    def _consistent(self) -> "FeatureSpec":
        if self.missing == "fill" and self.fill is None:
            raise ValueError("missing: fill needs a value, as in fill: 0")
        if self.path is not None:
            try:
                groups = re.compile(self.path).groups
            except re.error as error:
                raise ValueError(f"path is no regular expression: {error}") from error
            if groups < 1:
                raise ValueError("path needs a group, as in ^([^/]+)/")
        return self


class Spec(pydantic.BaseModel):
    """Every setting of a job. The command line has each as a flag of its name."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, strict=False)

    source: Location
    output: Location
    format: Annotated[str, pydantic.AfterValidator(_format)] = "auto"
    name: str | None = None
    splits: Shares | None = None
    split_column: str | None = None
    label_column: str | None = None
    labels: Location | None = None
    id_column: str | None = None
    unlabelled: bool = False
    image_columns: list[str] | None = None
    key_column: str | None = None
    group_column: str | None = None
    stratify_column: str | None = None
    split_ids: Location | None = None
    split_lock: Location | None = None
    features: dict[str, FeatureSpec] = {}
    drop: list[str] = []
    infer: Literal["sample", "full"] = "sample"
    vocabulary: Names | None = None
    vocabulary_lock: Location | None = None
    unknown_label: Literal["reject", "oov", "append"] = "reject"
    include: list[str] = []
    exclude: list[str] = []
    limit: Annotated[Whole, pydantic.Field(ge=1)] | None = None
    only_rejected: Location | None = None
    shards: Annotated[Whole, pydantic.Field(ge=1, le=MAX_SHARDS)] | None = None
    shard_size: Size | None = None
    seed: Annotated[Whole, pydantic.Field(ge=0)] = 0
    shuffle: bool = True
    compression: Literal["none", "gzip", "zlib"] = "none"
    preset: Literal["default", "tutorial", "imagenet"] = "default"
    feature_names: dict[str, str] = {}
    image_check: Check = "structure"
    foreign_images: Literal["png", "reject"] = "png"
    animations: Literal["reject", "first"] = "reject"
    exif: Literal["keep", "apply"] = "keep"
    channels: Literal[1, 3, 4] | None = None
    resize: Annotated[str, pydantic.BeforeValidator(_resize)] | None = None
    resize_filter: Filter = "hamming"
    enlarge: bool = False
    image_format: Literal["jpeg", "png"] | None = None
    image_quality: Annotated[Whole, pydantic.Field(ge=1, le=100)] = 95
    max_pixels: Annotated[Whole, pydantic.Field(ge=1)] = MAX_PIXELS
    max_image_bytes: Size | None = None
    max_image_seconds: Annotated[float, pydantic.Field(gt=0, le=86_400)] = MAX_SECONDS
    encode: Literal["raw", "png"] = "raw"
    layout: dict[str, Any] | Location | None = None
    bad_box: Literal["box", "image", "clip"] = "box"
    images_root: Location = ""
    first_pixel: Literal[0, 1] = 0
    zip_encoding: str | None = None
    delimiter: str | None = None
    quote: str = '"'
    escape: str = ""
    header: bool | None = None
    columns: list[str] | None = None
    encoding: str = "utf-8"
    trim: bool = False
    null_values: Annotated[list[str], pydantic.BeforeValidator(_texts)] = []
    workers: Annotated[int, pydantic.Field(ge=1)] | Literal["auto"] = "auto"
    runner: Annotated[str, pydantic.AfterValidator(_runner)] = "local"
    flink_master: str | None = None
    spark_master: str | None = None
    shared_output: bool = False
    segments: Literal["auto", "inline", "files"] = "auto"
    # None: 0.01, and one reject of ten items or more.
    max_reject_rate: Annotated[float, pydantic.Field(ge=0, le=1)] | None = None
    keep_rejected_bytes: bool = False
    allow_empty: bool = False
    overwrite: bool = False
    fingerprint: Literal["stat", "content"] = "stat"
    keep_work: bool = False
    verify: bool | None = None

    @pydantic.model_validator(mode="after")
    def _consistent(self) -> "Spec":
        if self.splits and self.split_column:
            raise ValueError("splits and split_column exclude each other")
        if self.group_column and self.key_column:
            raise ValueError("group_column and key_column exclude each other")
        if self.split_ids and (self.splits or self.split_column):
            raise ValueError("split_ids excludes splits and split_column")
        if self.split_ids and not self.key_column:
            raise ValueError("split_ids needs the key_column that holds the ids")
        if self.stratify_column and not self.splits:
            raise ValueError("stratify_column needs splits, as in train=0.9,test=0.1")
        if self.labels and not self.id_column:
            raise ValueError("labels needs the id_column that names the images")
        if self.unlabelled and self.label_column:
            raise ValueError("unlabelled and label_column exclude each other")
        if self.shards and self.shard_size:
            raise ValueError("shards and shard_size exclude each other")
        try:
            _ = self.image_policy
        except SpecError as error:
            raise ValueError(str(error)) from error
        return self

    @property
    def image_policy(self) -> ImagePolicy:
        """What is done to images."""
        return ImagePolicy(
            check=self.image_check,
            foreign=self.foreign_images,
            animation=self.animations,
            exif=self.exif,
            channels=self.channels,
            resize=self._resize(),
            output=self.image_format,
            quality=self.image_quality,
            max_pixels=self.max_pixels,
            max_bytes=self.max_image_bytes or MAX_BYTES,
            max_seconds=self.max_image_seconds,
        )

    def _resize(self) -> Resize | None:
        if self.resize is None:
            return None
        mode, _, size = self.resize.partition(":")
        height, _, width = size.partition("x")
        if mode in ("exact", "crop", "pad"):
            width = width or height
        return Resize(
            cast(Mode, mode),
            int(height),
            int(width or 0),
            filter=self.resize_filter,
            enlarge=self.enlarge,
        )

    def changed_json(self) -> dict[str, Any]:
        """Returns the settings that differ from their defaults."""
        return self.model_dump(mode="json", exclude_defaults=True)

    def to_json(self) -> dict[str, Any]:
        """Returns every setting in force; a valid spec."""
        return self.model_dump(mode="json", exclude_none=True)


# The settings that decide bytes; the others may change between a run and its resume.
BYTE_DECIDING = frozenset(Spec.model_fields) - {
    "source",
    "output",
    "workers",
    "runner",
    "flink_master",
    "spark_master",
    "shared_output",
    "segments",
    "max_reject_rate",
    "allow_empty",
    "overwrite",
    "fingerprint",
    "keep_work",
    "verify",
    # Paths: what the files say is among the inputs, the schema and the classes.
    "images_root",
    "labels",
    "only_rejected",
    "split_ids",
    "split_lock",
    "vocabulary",
    "vocabulary_lock",
}


def load_spec(path: str) -> dict[str, Any]:
    """Returns the settings in a YAML file; a manifest gives those of its run.

    Raises:
      SpecError: it cannot be read, or is not a mapping of settings.
    """
    try:
        text = files.read_bytes(path)
    except OSError as error:
        raise SpecError(f"The spec {path!r} cannot be read: {error.strerror}.") from (
            error
        )
    return read_spec(text, path)


def read_spec(text: bytes, path: str) -> dict[str, Any]:
    """Returns the settings in YAML; `path` is what errors call it.

    Raises:
      SpecError: it is not YAML, or not a mapping of settings.
    """
    try:
        data = yaml.load(text, Loader=_UniqueKeysLoader)
        _check_expansion(data, len(text))
        if isinstance(data, dict) and data.get("format") == FORMAT:
            data = _said_by(data["run"]["spec"])
    except (yaml.YAMLError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise SpecError(f"The spec {path!r} must be YAML: {_told(error)}") from error
    if not isinstance(data, dict):
        raise SpecError(
            f"The spec {path!r} must be a mapping of settings, as in 'shards: 4'; "
            f"found {type(data).__name__}."
        )
    return {str(key): value for key, value in data.items()}


def _said_by(settings: Any) -> Any:
    """Returns the settings in a manifest without what nobody has said.

    Versions before `null_values` wrote of all formats that there is a header.
    """
    if not isinstance(settings, dict) or "null_values" in settings:
        return settings
    return {k: v for k, v in settings.items() if (k, v) != ("header", True)}


def _told(error: Exception) -> str:
    """Returns what a parser says, without the line of the file: it may hold keys."""
    if isinstance(error, yaml.MarkedYAMLError):
        for mark in filter(None, (error.context_mark, error.problem_mark)):
            mark.buffer = None
    # Raised by the parser, which takes a few calls for each level.
    return TOO_DEEP if isinstance(error, RecursionError) else str(error)


def _check_expansion(data: Any, size: int) -> None:
    """Refuses values too deep, and aliases that would make `size` bytes enormous."""
    # Without aliases there are no more values than bytes, and one in an empty file.
    most = 10 * size + 10
    seen = 0
    inside = [(data, 0)]
    while inside:
        value, level = inside.pop()
        seen += 1
        parts: Iterable[Any] = ()
        if isinstance(value, dict):
            parts = itertools.chain(value, value.values())
        elif isinstance(value, list | tuple | set):
            parts = value
        inside += [(part, level + 1) for part in parts]
        if level > MAX_NESTING:
            raise yaml.YAMLError(TOO_DEEP)
        if seen + len(inside) > most:
            raise yaml.YAMLError("its aliases stand for too many values")


class _UniqueKeysLoader(yaml.SafeLoader):
    """YAML lets the last of two equal keys win in silence; here they are an error."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.YAMLError(f"the key {key!r} is given twice")
        return super().construct_mapping(node, deep)


def make_spec(settings: Mapping[str, Any]) -> Spec:
    """Returns the validated job.

    Raises:
      SpecError: a setting is unknown (the nearest name is given), malformed or
        missing; every fault is named.
    """
    try:
        return Spec.model_validate(dict(settings))
    except pydantic.ValidationError as error:
        faults = "; ".join(_describe(fault) for fault in error.errors())
        raise SpecError(f"{faults}.") from error


def _describe(fault: Any) -> str:
    place = ".".join(str(part) for part in fault["loc"] if part not in _TYPE_WORDS)
    if fault["type"] == "extra_forbidden":
        # A feature has settings of its own: ("features", NAME, SETTING).
        known = FeatureSpec if len(fault["loc"]) == _OF_A_FEATURE else Spec
        asked = str(fault["loc"][-1])
        near = closest(asked, known.model_fields)
        return f"there is no setting {place!r}" + (
            f" (did you mean {near!r}?)" if near else ""
        )
    if fault["type"] == "missing":
        return f"{place!r} must be given"
    message: str = fault["msg"].removeprefix("Value error, ")
    if not place:
        return message
    return f"{place}: {message[0].lower()}{message[1:]} (found {shown(fault['input'])})"


_OF_A_FEATURE = 3
# Pydantic names the branch of a union in the place of a fault.
_TYPE_WORDS = frozenset({"int", "constrained-int", "literal['auto']"})
