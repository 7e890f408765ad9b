"""Errors in Python's terms: `overwrite=True` instead of `--overwrite`.

The program's messages name settings by their options, wherever they are raised, in a
worker too. `beam_pipeline.convert` translates them as they leave.

    --overwrite               overwrite=True
    --no-header               header=False
    --max-reject-rate 0.05    max_reject_rate=0.05
    --format csv              format='csv'
    --label-column=animal     label_column='animal'
    --delimiter               delimiter=...

Whatever is quoted stays: it is a value, or a command for the shell.
"""

import contextlib
import re
from collections.abc import Iterator

from beam_pipeline.settings.options import SETTINGS
from transforms.errors import BeamTFRecordError, ConservationError, bounded

__all__ = ["in_python", "raising_in_python"]

_PIECE = re.compile(
    # A command for the shell, to the end of its sentence.
    r"(?P<command>\bbeam-tfrecord (?:(?! \(|[.;,] |\.$).)+)"
    r"|(?P<quoted>(?<!\w)(?:'[^']*'|\"[^\"]*\"))"
    r"|(?<![\w-])--(?P<flag>[a-z][a-z-]*[a-z])(?:=(?P<value>[\w./:,*-]*[\w/*])|(?![\w=-]))"
    r"(?:(?P<space> )(?P<next>'[^']*'|(?!-)[\w./:-]*\w))?"
)
_NO_WORD = re.compile(r"[\d._/]")
_NUMBER = re.compile(r"\d+(\.\d+)?")


@contextlib.contextmanager
def raising_in_python() -> Iterator[None]:
    """Lets errors through with their options translated, and without their causes.

    A cause stays where it may be a fault of the program, or of a user's own step.
    """
    try:
        yield
    except BeamTFRecordError as error:
        error.args = (bounded(in_python(str(error))), *error.args[1:])
        if type(error) in (BeamTFRecordError, ConservationError):
            raise
        raise error from None


def in_python(message: str) -> str:
    """Returns a message with options of the command line as keywords of `convert`."""
    return _PIECE.sub(_translated, message)


def _translated(match: re.Match[str]) -> str:
    """Returns one match with its option as a keyword."""
    flag, rest = match["flag"], match["space"] or ""
    following = f"{rest}{match['next'] or ''}"
    if flag is None:
        return match[0]
    name = flag.replace("-", "_")
    negated = name.removeprefix("no_")
    if name in SETTINGS:
        if _is_switch(name):
            return f"{name}=True{following}"
        if match["value"] is not None:
            return f"{name}={_value(match['value'])}{following}"
        following_value = match["next"]
        if following_value is not None and _takes(name, following_value):
            return f"{name}={_value(following_value)}"
        return f"{name}=...{following}"
    if _is_switch(negated):
        return f"{negated}=False{following}"
    return match[0]


def _value(text: str) -> str:
    """Returns the value of an option as Python text."""
    is_literal = _NUMBER.fullmatch(text) or text.startswith("'")
    return text if is_literal else repr(text)


def _takes(name: str, text: str) -> bool:
    """Whether what follows an option is a value of it, and no word of the sentence."""
    is_value = text.startswith("'") or _NO_WORD.search(text)
    return bool(is_value) or text in map(str, SETTINGS[name].choices)


def _is_switch(name: str) -> bool:
    return name in SETTINGS and SETTINGS[name].kind == "switch"
