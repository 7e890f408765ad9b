"""What a setting is, and its types: what is given, and what a `Spec` then holds.

An annotation is the type that a spec holds; its marks check and convert what is given.
Pydantic calls the marks when it builds the spec's class, so this module does not import
it: the command line answers `--help` and a typo without pydantic.
"""

import datetime
import re
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, NamedTuple

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
# The metavar of a list that the command line takes as one text.
JOINED = "A,B,..."
_Kind = Literal["switch", "choice", "int", "float", "joined", "list", "pairs", "text"]
_KINDS: Mapping[Any, _Kind] = {int: "int", float: "float", list: "list", dict: "pairs"}


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
      type: the type of what a spec holds.

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
    type: Any = None

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
        kind = _KINDS.get(typing.get_origin(_base(first)) or _base(first), "text")
        return "joined" if kind == "list" and self.metavar == JOINED else kind

    @property
    def choices(self) -> tuple[str | int, ...]:
        """The words or numbers that it may be, as far as they are known."""
        return tuple(choice for one in self.types for choice in _choices_of_type(one))

    @property
    def types(self) -> tuple[Any, ...]:
        """The types that a union joins, or the one type."""
        return _union_members(self.type)


def _union_members(annotation: Any) -> tuple[Any, ...]:
    """Returns the types that a union joins; for any other type that type alone."""
    is_union = typing.get_origin(annotation) in (types.UnionType, typing.Union)
    return typing.get_args(annotation) if is_union else (annotation,)


def metavar_of(annotation: Any) -> str:
    """Returns what the help shows for a value; empty where no mark says it."""
    for member in _union_members(annotation):
        for mark in getattr(member, "__metadata__", ()):
            if isinstance(mark, str):
                return mark
    return ""


def _base(annotation: Any) -> Any:
    """Returns a type without its marks."""
    is_marked = typing.get_origin(annotation) is Annotated
    return annotation.__origin__ if is_marked else annotation


def _given(annotation: Any) -> list[Mark]:
    """Returns the marks of a type that say how it is given."""
    marks = getattr(annotation, "__metadata__", ())
    return [mark for mark in marks if isinstance(mark, Mark)]


def _choices_of_type(annotation: Any) -> tuple[str | int, ...]:
    """Returns the words or numbers that a type allows; none where all are."""
    if typing.get_origin(annotation) is Literal:
        return typing.get_args(annotation)
    return tuple(choice for mark in _given(annotation) for choice in mark.choices)


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
