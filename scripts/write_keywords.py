"""Prints the keywords of `convert`, or of `WriteDataset`, for type checkers.

    write_keywords.py              -> beam_pipeline/settings/keywords.py
    write_keywords.py WriteDataset -> beam_pipeline/own_pipelines/keywords.py

`make settings` runs it; a test compares the modules with what this prints.
"""

import json
import sys
import typing
from collections.abc import Iterable
from typing import Any, Literal

from beam_pipeline.own_pipelines.parameters import other_settings
from beam_pipeline.settings.options import SETTINGS, Setting
from beam_pipeline.settings.values import Given

_HEAD = '''\
"""The keywords of `beam_pipeline.convert`, for editors and type checkers.

`make settings` writes this module from `beam_pipeline.settings.options`; change that.
"""

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

__all__ = ["Keywords"]


class Keywords(TypedDict, total=False):
    """Every setting of a job by its name; what is left out has its default."""

'''
_WRITE_HEAD = '''\
"""The settings of `WriteDataset`, for editors and type checkers.

`make settings` writes this module from `beam_pipeline.settings.options`; change that.
"""

from collections.abc import Mapping
from typing import Literal, TypedDict

__all__ = ["WriteKeywords"]


class WriteKeywords(TypedDict, total=False):
    """Settings of `WriteDataset` by name; what is left out has its default."""

'''
_PLACES = ("source", "output")
_TYPES = {list: "list[str] | tuple[str, ...]", dict: "Mapping[str, {}]"}


def keywords() -> str:
    """Returns the source of the module; long lines are not wrapped yet."""
    return _HEAD + _entries(name for name in SETTINGS if name not in _PLACES)


def write_keywords() -> str:
    """Returns the source of the module for `WriteDataset`."""
    return _WRITE_HEAD + _entries(other_settings())


def _entries(names: Iterable[str]) -> str:
    return "\n".join(_entry(SETTINGS[name]) for name in names)


def _entry(setting: Setting) -> str:
    kinds = " | ".join(_type_text(each) for each in setting.types)
    return f'    {setting.name}: {kinds}\n    """{setting.python_help}"""\n'


def _type_text(annotation: Any) -> str:
    """Returns the type that callers may pass for a spec's type."""
    marks = getattr(annotation, "__metadata__", ())
    for mark in marks:
        if isinstance(mark, Given) and mark.takes:
            return mark.takes
    base = annotation.__origin__ if marks else annotation
    origin, inner = typing.get_origin(base), typing.get_args(base)
    if origin is Literal:
        return f"Literal[{', '.join(map(json.dumps, inner))}]"
    if origin in _TYPES:
        return _TYPES[origin].format(getattr(inner[-1], "__name__", "Any"))
    return "None" if base is type(None) else base.__name__


if __name__ == "__main__":
    of_rows = sys.argv[1:] == ["WriteDataset"]
    print(write_keywords() if of_rows else keywords(), end="")
