"""Stand-ins for libraries that Beam and Arrow load and that this program hardly uses.

    beartype                    says whether one type hint is within another: 70 ms
    pyarrow.vendored.docscrape  reads docstrings, for help texts of functions: 30 ms

Beam asks beartype about pairs of plain classes, which `issubclass` answers as well. For
any other pair the library is loaded then.
"""

import abc
import contextlib
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

__all__ = ["leave_out_help_texts", "type_hints_stood_in"]


def leave_out_help_texts() -> None:
    """Lets Arrow's compute functions do without the parameters in their help texts."""
    name = "pyarrow.vendored.docscrape"
    sys.modules.setdefault(name, _module(name, NumpyDocString=_no_parameters))


@contextlib.contextmanager
def type_hints_stood_in() -> Iterator[None]:
    """Stands in for beartype in the modules that are loaded while it is open.

    Who imports it later, as a user's step may, gets the library.
    """
    ours = [
        _module("beartype.door", is_subhint=_is_subhint),
        _module("beartype.roar", BeartypeDoorException=_IncomparableError),
    ]
    if "beartype" not in sys.modules:
        sys.modules.update({module.__name__: module for module in ours})
    try:
        yield
    finally:
        for module in ours:
            if sys.modules.get(module.__name__) is module:
                del sys.modules[module.__name__]


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


def _module(name: str, **content: Any) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(content)
    return module


def _no_parameters(_text: str) -> dict[str, list[Any]]:
    return {"Parameters": []}
