"""Public names of a package that are imported at their first use."""

import importlib
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

_DESCRIPTIONS = (
    "FixedLenFeature",
    "VarLenFeature",
    "RaggedFeature",
    "RowLengths",
    "UniformRowLength",
)
# Names of version 0.2 that are gone -> what to do instead; for one release.
_REMOVED = dict.fromkeys(
    _DESCRIPTIONS,
    "Give `features=` the words of a spec, such as {'x': 'float'} or "
    "{'x': {'kind': 'float', 'shape': [None]}}.",
)
_REMOVED["read_examples"] = "Give the files to `open_dataset`, and take its split ''."


def lazy_names(
    module: str, names: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns `__getattr__` and `__dir__` for a module that is being imported.

    Args:
      module: its name, `__name__`.
      names: module -> the public names that it defines.
    """
    owner = sys.modules[module]
    homes = {name: home for home, its_names in names.items() for name in its_names}

    def get(name: str) -> Any:
        if name in _REMOVED:
            # `from MODULE import NAME` would hide the text of an AttributeError.
            raise ImportError(f"{name} is gone. {_REMOVED[name]}", name=module)
        if name not in homes:
            message = f"module {module!r} has no attribute {name!r}"
            raise AttributeError(message, name=name, obj=owner)
        value = getattr(importlib.import_module(homes[name]), name)
        # Later uses find the attribute and do not call this function.
        setattr(owner, name, value)
        return value

    return get, lambda: sorted({*homes, *vars(owner)})


def lazy_module(module: str, names: Mapping[str, Sequence[str]]) -> types.ModuleType:
    """Creates a module without a file that has these names; `import` finds it.

    Args:
      module: its full name, in a package that is being imported.
      names: as for `lazy_names`.
    """
    made = sys.modules[module] = types.ModuleType(module)
    get, list_names = lazy_names(module, names)
    vars(made).update(__getattr__=get, __dir__=list_names)
    return made
