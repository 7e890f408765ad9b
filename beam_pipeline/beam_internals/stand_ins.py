"""Stand-ins for libraries that Beam and Arrow load and that this program hardly uses.

    beartype                    says whether one type hint is within another: 70 ms
    httplib2                    speaks HTTP, for jobs of Dataflow: 40 ms
    pyarrow.vendored.docscrape  reads docstrings, for help texts of functions: 30 ms

Beam asks beartype about pairs of plain classes, which `issubclass` answers as well. For
any other pair, and for HTTP, the library is loaded then.
"""

import abc
import contextlib
import importlib
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

__all__ = ["leave_out_help_texts", "stand_ins"]


def leave_out_help_texts() -> None:
    """Lets Arrow's compute functions do without the parameters in their help texts."""
    name = "pyarrow.vendored.docscrape"
    sys.modules.setdefault(name, _module(name, NumpyDocString=_no_parameters))


@contextlib.contextmanager
def stand_ins() -> Iterator[None]:
    """Stands in for beartype and httplib2 in what is loaded while it is open.

    Who imports them later, as a user's step may, gets the libraries.
    """
    ours = [
        _module("beartype.door", is_subhint=_is_subhint),
        _module("beartype.roar", BeartypeDoorException=_IncomparableError),
        _Deferred("httplib2"),
    ]
    for module in ours:
        if module.__name__.partition(".")[0] not in sys.modules:
            sys.modules[module.__name__] = module
    try:
        yield
    finally:
        for module in ours:
            _remove(module)


class _Deferred(ModuleType):
    """A module that is loaded when something in it is first asked for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            # Python's import looks for these.
            raise AttributeError(name)
        _remove(self)
        return getattr(importlib.import_module(self.__name__), name)


class _IncomparableError(Exception):
    """Takes the place of the library's error, which Beam expects."""


def _is_subhint(hint: Any, other: Any) -> bool:
    """Returns whether all that the first hint allows is allowed by the other."""
    if _is_plain(hint) and _is_plain(other):
        return issubclass(hint, other)
    from beartype.door import is_subhint
    from beartype.roar import BeartypeDoorException

    try:
        return bool(is_subhint(hint, other))
    except BeartypeDoorException as error:
        raise _IncomparableError(str(error)) from error


def _is_plain(hint: Any) -> bool:
    # Not protocols, whose classes are of another type, and nothing with parameters.
    return type(hint) in (type, abc.ABCMeta) and not hasattr(hint, "__parameters__")


def _remove(module: ModuleType) -> None:
    if sys.modules.get(module.__name__) is module:
        del sys.modules[module.__name__]


def _module(name: str, **content: Any) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(content)
    return module


def _no_parameters(_text: str) -> dict[str, list[Any]]:
    return {"Parameters": []}
