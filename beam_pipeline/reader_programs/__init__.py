"""Programs that read a dataset, one module for each library that reads it.

    tensorflow.py   program(facts) -> the text that `schema --as tensorflow` prints

A module here is a library that `--as` offers, except `facts`, which the others share.
A new library is a new module with a function `program`.
"""

import importlib
import pkgutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the command line needs the names alone, and is to answer at once
    from beam_pipeline.reader_programs.facts import Facts

__all__ = ["READERS", "program"]

READERS = tuple(
    sorted({each.name for each in pkgutil.iter_modules(__path__)} - {"facts"})
)
"""The libraries, as `schema --as` names them."""


def program(reader: str, facts: "Facts") -> str:
    """Returns the text of a Python program that reads a dataset.

    Args:
      reader: one of `READERS`.
      facts: of the dataset.

    Raises:
      UsageError: the library cannot read it.
    """
    module = importlib.import_module(f"{__name__}.{reader}")
    text: str = module.program(facts)
    return text
