"""The job as data: YAML, command-line flags and Python build the same `Spec`."""

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, cast

import pydantic
import yaml

from beam_pipeline.settings.options import Settings
from beam_pipeline.settings.removed import check_still_there, without_removed_defaults
from beam_pipeline.settings.values import ENLARGE, Count, Names
from transforms.core.files import is_part_name, part_folder
from transforms.core.image.policy import ImagePolicy
from transforms.core.image.resize import MAX_BYTES, Filter, Mode, Resize
from transforms.core.json_text import MAX_NESTING, TOO_DEEP
from transforms.core.manifest import FORMAT
from transforms.errors import SpecError, closest, refusing
from transforms.storage.files import storage
from transforms.storage.paths import absolute, shown

_Scalar = bool | int | float | str
# YAML reads yes and no as bools, which are no numbers here.
_Limit = pydantic.StrictInt | pydantic.StrictFloat | str
_Plain = Literal["int64", "float", "bool", "text", "bytes", "timestamp"]
_Kind = Literal[_Plain, "label", "image", "tensor", "box"]


_EXCLUSIVE = (
    *(("splits", "split_column"), ("splits", "split_ids")),
    *(("split_ids", "split_column"), ("group_column", "key_column")),
    *(("unlabelled", "label_column"), ("shards", "shard_size")),
)


class FeatureSpec(pydantic.BaseModel):
    """What is said of one feature; what is not said is inferred from its column.

    A text alone is its kind.

    Attributes:
      column: the source's name for it, where that is another than the feature's.
      kind: what it means, which decides how it is stored.
      label: whether it is what a model is to predict; at most one feature is.
      shape: of a list: `[null]` for any length, `[4]` for four values, `[2, 3]` for
        this shape, `[null, null]` for a ragged list of lists. Of a tensor: its shape,
        with null for what differs from row to row.
      dtype: of a tensor's elements, as NumPy names it.
      encoding: of a tensor: `raw` (elements in row-major order, little-endian) or
        `proto` (a serialised TensorProto, for tf.io.parse_tensor).
      unit: of a timestamp.
      mask: of an image: whether its pixels are class numbers, which no setting of
        images changes: a resize copies them, and the result is PNG.
      missing: what happens to a row without a value: its record lacks the key
        (`omit`), it gets the value of `fill`, or it is rejected.
      fill: the value of rows without one.
      constant: the value of every row; the source has no column for it.
      path: a regular expression; the value is its first group in the path of the row's
        file, or in the text of `column` where that is given.
      separator: the text between the values of a cell that holds several.
      vocabulary: of a label: its class names in the order of their ids, or a file
        with one name a line.
      unknown: what happens to a class name outside the vocabulary: the row is rejected,
        all such names share the id after the last (`oov`), or they follow the given
        names, sorted (`append`).
      inexact_integers: of a float: what happens to whole numbers that float32 does not
        hold.
      min: of a number, or of a timestamp as ISO 8601: rows with a smaller value are
        rejected.
      max: likewise for a larger value.
      allowed: of numbers, texts and labels: rows with another value are rejected.
      pattern: of texts and labels: an RE2 expression; rows with a value that it matches
        nowhere are rejected. `^` and `$` are the ends of the value.
    """

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, strict=False)

    column: str | None = None
    kind: _Kind | None = None
    label: bool | None = None
    shape: list[Count | None] | None = None
    dtype: str | None = None
    encoding: Literal["raw", "proto"] | None = None
    unit: Literal["s", "ms", "us", "ns"] | None = None
    mask: bool | None = None
    missing: Literal["omit", "fill", "reject"] | None = None
    fill: _Scalar | None = None
    constant: _Scalar | None = None
    path: str | None = None
    separator: str | None = None
    vocabulary: Names | None = None
    unknown: Literal["reject", "oov", "append"] | None = None
    inexact_integers: Literal["round", "reject"] | None = None
    min: _Limit | None = None
    max: _Limit | None = None
    allowed: list[_Limit] | None = None
    pattern: str | None = None

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


class Spec(Settings, pydantic.BaseModel):
    """The settings of one job, checked; see `Settings`."""

    model_config = FeatureSpec.model_config

    features: dict[str, FeatureSpec] = {}

    @pydantic.model_validator(mode="before")
    @classmethod
    def _in_part(cls, given: Any) -> Any:
        """Takes the folder of the part for the output."""
        if isinstance(given, Mapping) and given.get("part") is not None:
            output, part = given.get("output"), str(given["part"])
            if isinstance(output, str) and is_part_name(part):
                return {**given, "output": part_folder(output, part)}
        return given

    @pydantic.model_validator(mode="after")
    def _consistent(self) -> "Spec":
        for one, other in _EXCLUSIVE:
            if getattr(self, one) and getattr(self, other):
                raise ValueError(f"{one} and {other} exclude each other")
        if self.split_ids and not self.key_column:
            raise ValueError("split_ids needs the key_column that holds the ids")
        if self.stratify_column and not self.splits:
            raise ValueError("stratify_column needs splits, as in train=0.9,test=0.1")
        if (self.min_records or 0) > (self.max_records or math.inf):
            raise ValueError("min_records must not be above max_records")
        # The policy checks how its values go together: refuse them before planning.
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
        )

    @property
    def images_folder(self) -> str:
        """The folder of `images_root`, from the root of its place; empty for none."""
        return absolute(self.images_root) if self.images_root else ""

    def _resize(self) -> Resize | None:
        if self.resize is None:
            return None
        mode, size, *words = self.resize.split(":")
        filters = [word for word in words if word != ENLARGE] or ["hamming"]
        height, _, width = size.partition("x")
        if mode in ("exact", "crop", "pad"):
            width = width or height
        return Resize(
            *(cast(Mode, mode), int(height), int(width or 0)),
            filter=cast(Filter, filters[0]),
            enlarge=ENLARGE in words,
        )

    def changed_json(self) -> dict[str, Any]:
        """Returns the settings that differ from their defaults, without secrets."""
        return self.model_dump(mode="json", exclude_defaults=True)

    def to_json(self) -> dict[str, Any]:
        """Returns every setting in force but what may be secret; a valid spec."""
        return self.model_dump(mode="json", exclude_none=True)


def load_spec(path: str) -> dict[str, Any]:
    """Returns the settings in a YAML file; a manifest gives those of its run.

    Raises:
      SpecError: it cannot be read, or is not a mapping of settings.
    """
    with refusing(SpecError, f"The spec {path!r} cannot be read"):
        text = storage(path).read_bytes()
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
            data = data["run"]["spec"]
            # Those that nobody gave may be gone.
            data = without_removed_defaults(data) if isinstance(data, dict) else data
    except (yaml.YAMLError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise SpecError(
            f"The spec {path!r} must be YAML: {_parser_message(error)}"
        ) from error
    if not isinstance(data, dict):
        raise SpecError(
            f"The spec {path!r} must be a mapping of settings, as in 'shards: 4'; "
            f"found {type(data).__name__}."
        )
    return {str(key): value for key, value in data.items()}


def _parser_message(error: Exception) -> str:
    """Returns what a parser says, without the line of the file: it may hold keys."""
    if isinstance(error, yaml.MarkedYAMLError):
        for mark in filter(None, (error.context_mark, error.problem_mark)):
            mark.buffer = None
    # The parser recurses: RecursionError means that the file nests too deeply.
    return TOO_DEEP if isinstance(error, RecursionError) else str(error)


def _check_expansion(data: Any, size: int) -> None:
    """Refuses values too deep, and aliases that would make `size` bytes enormous."""
    # A "billion laughs" file: without aliases there are no more values than bytes.
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
        inside += [(item, level + 1) for item in parts]
        if level > MAX_NESTING:
            raise yaml.YAMLError(TOO_DEEP)
        if seen + len(inside) > most:
            raise yaml.YAMLError("its aliases expand to too many values")


class _UniqueKeysLoader(yaml.SafeLoader):
    """YAML lets the last of two equal keys win in silence; here they are an error."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.YAMLError(f"the key {key!r} is given twice")
        return super().construct_mapping(node, deep)


# A date is text, as it is written: a limit in ISO 8601, or the name of a part.
_UniqueKeysLoader.add_constructor(
    "tag:yaml.org,2002:timestamp", lambda _, node: str(node.value)
)


def make_spec(settings: Mapping[str, Any]) -> Spec:
    """Returns the validated job.

    Raises:
      SpecError: a setting is unknown (the nearest name is given), malformed or
        missing, and every such fault is named; or one is gone.
    """
    check_still_there(settings)
    try:
        return Spec.model_validate(settings)
    except pydantic.ValidationError as error:
        faults = "; ".join(_describe(fault) for fault in _joined(error.errors()))
        raise SpecError(faults if faults.endswith("?") else f"{faults}.") from error


def _joined(faults: Sequence[Any]) -> list[Any]:
    """Returns validation errors, those of the branches of a union as one."""
    out: dict[str, Any] = {}
    for number, fault in enumerate(faults):
        name = _setting_path(fault) if fault["msg"].startswith(_SHOULD) else str(number)
        if name in out:
            other = fault["msg"].removeprefix(_SHOULD)
            fault = out[name] | {"msg": f"{out[name]['msg']} or {other}"}
        out[name] = fault
    return [*out.values()]


def _setting_path(fault: Any) -> str:
    """Returns where an error of pydantic is, as in "features.x.kind"."""
    loc: tuple[str | int, ...] = fault["loc"] or ("",)
    *steps, last = loc
    # A feature may be called "str".
    if last not in _TYPE_WORDS or steps == ["features"]:
        steps.append(last)
    return ".".join(map(str, steps))


def _describe(fault: Any) -> str:
    """Returns a validation error of pydantic in our words."""
    name = _setting_path(fault)
    if fault["type"] == "extra_forbidden":
        # A feature has settings of its own: ("features", NAME, SETTING).
        model = FeatureSpec if len(fault["loc"]) == _OF_A_FEATURE else Spec
        asked = str(fault["loc"][-1])
        meant = _MEANT.get(asked) if model is Spec else None
        near = meant or closest(asked, model.model_fields)
        return f"there is no setting {name!r}" + (
            f" (did you mean {near!r}?)" if near else ""
        )
    if fault["type"] == "missing":
        return f"{name!r} must be given"
    message: str = fault["msg"].removeprefix("Value error, ")
    if not name:
        return message
    said = f"{name}: {message[0].lower()}{message[1:]}"
    value = shown(fault["input"])
    return said if f"found {value}" in said else f"{said} (found {value})"


# Length of the place of a setting within a feature.
_OF_A_FEATURE = 3
# As `WriteDataset` calls these.
_MEANT = {"label": "label_column", "key": "key_column"}
_SHOULD = "Input should be "
# Pydantic names the branch of a union in the place of a fault.
_TYPE_WORDS = frozenset("int float str bool constrained-int literal['auto']".split())
