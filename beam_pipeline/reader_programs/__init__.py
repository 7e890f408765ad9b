"""Programs that read a dataset, which `schema --as LIBRARY` prints.

`tensorflow` has the longest of them, `libraries` the others, and `facts` what they say
of a dataset.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the command line needs the names alone, and is to answer at once
    from beam_pipeline.reader_programs.facts import Facts

__all__ = ["READERS", "program"]

READERS = ("beam", "dali", "grain", "keras", "pandas", "tensorflow", "torch")
"""The libraries, as `schema --as` names them."""


def program(reader: str, facts: "Facts") -> str:
    """Returns the text of a Python program that reads a dataset.

    Args:
      reader: one of `READERS`.
      facts: of the dataset.

    Raises:
      UsageError: the library cannot read it.
    """
    from beam_pipeline.reader_programs import libraries
    from beam_pipeline.reader_programs.tensorflow import tensorflow

    make = tensorflow if reader == "tensorflow" else getattr(libraries, reader)
    text: str = make(facts)
    return text
