"""The types of settings: what is given, and what a `Spec` then holds.

An annotation is the type that a spec holds; its marks check and convert what is given.
Pydantic calls the marks when it builds the spec's class, so this module does not import
it: the command line answers `--help` and a typo without pydantic.
"""

import datetime
import re
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from transforms.core.files import is_part_name
from transforms.core.image.resize import Filter
from transforms.errors import SpecError, closest
from transforms.formats.registry import FORMATS
from transforms.storage.paths import plain, shown

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
ENLARGE = "enlarge"
"""Behind a resize: small images grow, too."""


class Mark:
    """Mark of a type: how what is given becomes what is held, within which limits.

    Args:
      before: applied before the type is checked; it raises ValueError for what it
        refuses.
      after: applied to the value of the type, likewise.
      takes: what Python code may give, as it is written in an annotation; empty for
        what is held.
      choices: the values that there are, where the type does not say them.
      limits: of a number: pydantic's `ge`, `gt`, `le` and `strict`.
    """

    def __init__(
        self,
        before: Callable[[Any], Any] | None = None,
        after: Callable[[Any], Any] | None = None,
        *,
        takes: str = "",
        choices: tuple[str, ...] = (),
        **limits: float,
    ) -> None:
        self.before = before
        self.after = after
        self.takes = takes
        self.choices = choices
        self.limits = limits

    def __get_pydantic_core_schema__(
        self, source: Any, handler: Callable[[Any], Any]
    ) -> Any:
        """Returns pydantic's schema of the type with this mark."""
        from pydantic_core import core_schema

        schema = handler(source) | self.limits
        if self.before is not None:
            schema = core_schema.no_info_before_validator_function(self.before, schema)
        if self.after is not None:
            schema = core_schema.no_info_after_validator_function(self.after, schema)
        return schema


def parse_size(text: str | int) -> int:
    """Returns bytes from text like 150MB, 64 MiB or 1000000.

    Raises:
      ValueError: it is no size above 0.
    """
    from fractions import Fraction

    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", str(text))
    if not match or match[2].upper() not in _UNITS:
        raise ValueError("a size is a number and a unit, as in 150MB or 64MiB")
    size = int(Fraction(match[1]) * _UNITS[match[2].upper()])
    if size < 1:
        raise ValueError("a size must be above 0")
    return size


def _as_bytes(value: Any) -> Any:
    """Takes 150MB or a number as bytes; leaves other types to the checks after it."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return value
    return parse_size(value if isinstance(value, str | int) else f"{value:.6f}")


def _shares(value: Any) -> Any:
    """Takes NAME=SHARE,... as well as a mapping; shares stay exact, as text."""
    from fractions import Fraction

    if isinstance(value, str):
        pairs = [text.partition("=") for text in value.split(",")]
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
                is_share = Fraction(share) > 0
            except (ValueError, ZeroDivisionError):
                is_share = False
            if not is_share:
                raise ValueError(f"{shown(share)} is no share above 0, as in 0.8")
    return value


def _check_resize(value: Any) -> Any:
    """Takes MODE:SIZE[:FILTER][:enlarge] as it is; ValueError for other texts."""
    filters = "|".join(typing.get_args(Filter))
    if isinstance(value, str) and not re.fullmatch(
        r"(shorter|longer|exact|crop|pad):[1-9]\d*(x[1-9]\d*)?"
        rf"(:({filters}))?(:{ENLARGE})?",
        value,
    ):
        size = value if re.fullmatch(r"[1-9]\d*(x[1-9]\d*)?", value) else "224x224"
        raise ValueError(
            f"a resize is MODE:SIZE[:FILTER][:{ENLARGE}]; exact:{size} changes the "
            f"shape, crop:{size} cuts, pad:{size} adds borders, and shorter:224 and "
            f"longer:224 keep the shape"
        )
    return value


def _as_texts(*taken: type) -> Callable[[Any], Any]:
    """Returns what takes texts that YAML reads as numbers; bools would be lost."""

    def texts(value: Any) -> Any:
        if not isinstance(value, list):
            return value
        for text in value:
            if isinstance(text, bool) or not isinstance(text, (str, *taken)):
                raise ValueError(f"{shown(text)} must be in quotes, as in 'no' or '-'")
        return [str(text) for text in value]

    return texts


RUNNERS = {
    "local": ("FnApiRunner", "DirectRunner"),
    "flink": ("FlinkRunner",),
    "spark": ("SparkRunner",),
    "prism": ("PrismRunner",),
    "dataflow": ("DataflowRunner",),
}
"""What may run a job, and what Beam calls it."""


def runner_named(value: str) -> str:
    """Returns our name of a runner that is given by it or by Beam's.

    Raises:
      SpecError: there is no such runner; names the nearest.
    """
    for name, of_beam in RUNNERS.items():
        if value in (name, *of_beam):
            return name
    of_beam = tuple(beam for names in RUNNERS.values() for beam in names)
    near = closest(value, [*RUNNERS, *of_beam])
    hint = f" Did you mean {near!r}?" if near else ""
    raise SpecError(
        f"The runner is {', '.join(RUNNERS)}, or Beam's name of one of them; found "
        f"{value!r}.{hint}"
    )


def _check_runner(value: str) -> str:
    """Takes the name of an engine as it is; ValueError for an unknown one."""
    try:
        runner_named(value)
    except SpecError as error:
        raise ValueError(str(error)) from error
    return value


def _check_format(value: str) -> str:
    """Takes the name of a format, or auto, as it is; ValueError for an unknown one."""
    if value != "auto" and value not in FORMATS:
        raise ValueError(f"a format is auto, {', '.join(FORMATS)}")
    return value


def _as_name(value: Any) -> Any:
    """Takes names that YAML reads as numbers or dates."""
    is_plain = isinstance(value, int | datetime.date) and not isinstance(value, bool)
    return str(value) if is_plain else value


def _check_part_name(value: str) -> str:
    """Takes the name of a part as it is; ValueError if no folder can have it."""
    if not is_part_name(value):
        raise ValueError(
            "a part's name is of letters, digits and . _ + - as in 2026-11-03"
        )
    return value


def _located(value: Any) -> Any:
    """Removes access parameters from a path and remembers them."""
    return plain(value) if isinstance(value, str) else value


def _possible(value: str) -> str:
    """Refuses paths that no file system takes."""
    if "\0" in value:
        raise ValueError("a path can hold no NUL")
    return value


def _character(value: str) -> str:
    """Reads a tab as most shells pass it on: as a backslash and t."""
    return "\t" if value == r"\t" else value


# A text among the marks is what the help shows for the value.
Character = Annotated[str, Mark(after=_character), "CHAR"]
ColumnName = Annotated[str, "COLUMN"]
Count = Annotated[int, Mark(ge=1, strict=True), "N"]
EngineName = Annotated[str, Mark(after=_check_runner), "NAME"]
FormatName = Annotated[str, Mark(after=_check_format, choices=("auto", *FORMATS))]
Location = Annotated[str, Mark(_located, _possible)]
FilePath = Annotated[Location, "FILE"]
Names = Annotated[
    list[str] | str,
    Mark(_as_texts(int)),
    Mark(_located, takes="list[str] | tuple[str, ...] | str"),
    "FILE",
]
PartName = Annotated[str, Mark(_as_name, _check_part_name), "NAME"]
ResizeRule = Annotated[str, Mark(_check_resize), "MODE:SIZE"]
Shares = Annotated[
    dict[str, str],
    Mark(_shares, takes="str | Mapping[str, str | float]"),
    "NAME=SHARE,...",
]
Size = Annotated[int, Mark(_as_bytes, takes="int | str"), "SIZE"]
Texts = Annotated[list[str], Mark(_as_texts(int, float))]
