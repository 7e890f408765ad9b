"""The job as data: YAML, command-line flags and Python build the same `Spec`."""

import difflib
import fractions
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import pydantic
import yaml

from transforms import files
from transforms.core.image import Check
from transforms.core.manifest import FORMAT
from transforms.errors import SpecError

__all__ = [
    "BYTE_DECIDING",
    "MAX_SHARDS",
    "Spec",
    "load_spec",
    "make_spec",
    "parse_size",
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
                raise ValueError(f"{share!r} is no share, as in 0.8") from error
            if not positive:
                raise ValueError("a share must be above 0")
    return value


def _size(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return value
    return parse_size(value if isinstance(value, str | int) else f"{value:.6f}")


Whole = Annotated[int, pydantic.Field(strict=True)]
Shares = Annotated[dict[str, str], pydantic.BeforeValidator(_shares)]
Size = Annotated[int, pydantic.BeforeValidator(_size)]


class Spec(pydantic.BaseModel):
    """Every setting of a job. The command line has each as a flag of its name."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, strict=False)

    source: str
    output: str
    format: Literal["auto", "images", "csv"] = "auto"
    name: str | None = None
    splits: Shares | None = None
    split_column: str | None = None
    label_column: str | None = None
    include: list[str] = []
    exclude: list[str] = []
    limit: Annotated[Whole, pydantic.Field(ge=1)] | None = None
    shards: Annotated[Whole, pydantic.Field(ge=1, le=MAX_SHARDS)] | None = None
    shard_size: Size | None = None
    seed: Annotated[Whole, pydantic.Field(ge=0)] = 0
    shuffle: bool = True
    compression: Literal["none", "gzip", "zlib"] = "none"
    preset: Literal["default", "tutorial"] = "default"
    feature_names: dict[str, str] = {}
    image_check: Check = "structure"
    delimiter: str | None = None
    header: bool = True
    columns: list[str] | None = None
    encoding: str = "utf-8"
    workers: Annotated[int, pydantic.Field(ge=1)] | Literal["auto"] = "auto"
    segments: Literal["auto", "inline", "files"] = "auto"
    max_reject_rate: Annotated[float, pydantic.Field(ge=0, le=1)] = 0.01
    allow_empty: bool = False
    overwrite: bool = False

    @pydantic.model_validator(mode="after")
    def _consistent(self) -> "Spec":
        if self.splits and self.split_column:
            raise ValueError("splits and split_column exclude each other")
        if self.shards and self.shard_size:
            raise ValueError("shards and shard_size exclude each other")
        return self

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
    "segments",
    "max_reject_rate",
    "allow_empty",
    "overwrite",
}


def load_spec(path: str) -> dict[str, Any]:
    """Returns the settings in a YAML file; a manifest gives those of its run.

    Raises:
      SpecError: it cannot be read, or is not a mapping of settings.
    """
    try:
        data = yaml.load(files.read_bytes(path), Loader=_UniqueKeysLoader)
        if isinstance(data, dict) and data.get("format") == FORMAT:
            data = data["run"]["spec"]
    except OSError as error:
        raise SpecError(f"The spec {path!r} cannot be read: {error.strerror}.") from (
            error
        )
    except (yaml.YAMLError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise SpecError(f"The spec {path!r} must be YAML: {error}") from error
    if not isinstance(data, dict):
        raise SpecError(
            f"The spec {path!r} must be a mapping of settings, as in 'shards: 4'; "
            f"found {type(data).__name__}."
        )
    return {str(key): value for key, value in data.items()}


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
        raise SpecError(f"The job's settings must be valid: {faults}.") from error


def _describe(fault: Any) -> str:
    place = ".".join(str(part) for part in fault["loc"] if part not in _TYPE_WORDS)
    if fault["type"] == "extra_forbidden":
        near = difflib.get_close_matches(place, Spec.model_fields, n=1, cutoff=0.5)
        return f"there is no setting {place!r}" + (
            f", did you mean {near[0]!r}?" if near else ""
        )
    if fault["type"] == "missing":
        return f"{place!r} must be given"
    message = fault["msg"].removeprefix("Value error, ")
    if not place:
        return message
    return f"{place}: {message[0].lower()}{message[1:]} (found {fault['input']!r})"


# Pydantic names the branch of a union in the place of a fault.
_TYPE_WORDS = frozenset({"int", "constrained-int", "literal['auto']"})
