"""The public names of a package, each imported when it is first asked for."""

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["lazy_names"]


def lazy_names(
    package: str, names: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns `__getattr__` and `__dir__` for a package.

    Args:
      package: its name, `__name__`.
      names: module -> the public names that it defines.
    """
    owner = sys.modules[package]
    homes = {name: home for home, its_names in names.items() for name in its_names}

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(
                f"module {package!r} has no attribute {name!r}", name=name, obj=owner
            )
        found = getattr(importlib.import_module(homes[name]), name)
        # The next use finds it without this function.
        setattr(owner, name, found)
        return found

    return get, lambda: sorted({*homes, *vars(owner)})
