"""Programs that read a dataset, which `code DATASET --as LIBRARY` prints.

The texts are templates beside this module, one for each library. `programs` fills them
in, and `tensorflow` describes features.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the command line needs the names alone, and is to answer at once
    from beam_pipeline.reader_programs.programs import Facts

__all__ = ["READERS", "program", "show"]

READERS = ("beam", "dali", "grain", "keras", "pandas", "tensorflow", "torch")
"""The libraries, as `code --as` names them."""


def program(reader: str, facts: "Facts") -> str:
    """Returns the text of a Python program that reads a dataset.

    Args:
      reader: one of `READERS`.
      facts: of the dataset.

    Raises:
      UsageError: the library cannot read it.
    """
    from beam_pipeline.reader_programs import programs
    from beam_pipeline.reader_programs.tensorflow import tensorflow

    names = tensorflow(facts) if reader == "tensorflow" else programs.of(reader, facts)
    return programs.rendered(reader, facts, names)


def show(path: str, reader: str) -> int:
    """Prints the text of a program that reads a dataset with a library; returns 0.

    Raises:
      UsageError: there is no dataset, or the library cannot read it.
      DamageError: its manifest is damaged.
    """
    from beam_pipeline.datasets.dataset import open_dataset_folder
    from beam_pipeline.reader_programs.programs import Facts
    from beam_pipeline.terminal import print_text

    dataset = open_dataset_folder(path, "'code'")
    print_text(program(reader, Facts(dataset.directory, dataset.manifest)), end="")
    return 0
