"""Prints the keywords of `convert` and of `WriteDataset`, for type checkers.

`make settings` writes them to `beam_pipeline/settings/keywords.py`; a test compares the
module with what this prints.
"""

import json
import typing
from collections.abc import Iterable
from typing import Any, Literal

from beam_pipeline.own_pipelines.parameters import other_settings
from beam_pipeline.settings.options import SETTINGS, Setting
from beam_pipeline.settings.values import Mark

_HEAD = '''\
"""The keywords of `convert` and of `WriteDataset`, for editors and type checkers.

`make settings` writes this module from `beam_pipeline.settings.options`; change that.
`help(beam_pipeline.convert)` says what each one means.
"""

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

__all__ = ["Keywords", "WriteKeywords"]


class WriteKeywords(TypedDict, total=False):
    """Settings of `WriteDataset` by name; what is left out has its default."""

'''
_REST = '''

class Keywords(WriteKeywords, total=False):
    """Every setting of a job by its name; what is left out has its default."""

'''
_PLACES = ("source", "output")
_TYPES = {list: "list[str] | tuple[str, ...]", dict: "Mapping[str, {}]"}


def keywords() -> str:
    """Returns the source of the module; long lines are not wrapped yet."""
    of_rows = other_settings()
    rest = (name for name in SETTINGS if name not in (*_PLACES, *of_rows))
    return f"{_HEAD}{_entries(of_rows)}{_REST}{_entries(rest)}"


def _entries(names: Iterable[str]) -> str:
    return "".join(_entry(SETTINGS[name]) for name in names)


def _entry(setting: Setting) -> str:
    kinds = " | ".join(_type_text(each) for each in setting.types)
    return f"    {setting.name}: {kinds}\n"


def _type_text(annotation: Any) -> str:
    """Returns the type that callers may pass for a spec's type."""
    marks = getattr(annotation, "__metadata__", ())
    for mark in marks:
        if isinstance(mark, Mark) and mark.takes:
            return mark.takes
    base = annotation.__origin__ if marks else annotation
    origin, inner = typing.get_origin(base), typing.get_args(base)
    if origin is Literal:
        return f"Literal[{', '.join(map(json.dumps, inner))}]"
    if origin in _TYPES:
        return _TYPES[origin].format(getattr(inner[-1], "__name__", "Any"))
    return "None" if base is type(None) else base.__name__


if __name__ == "__main__":
    print(keywords(), end="")
