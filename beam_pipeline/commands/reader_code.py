"""`schema DATASET --as LIBRARY`: print a program that reads the dataset."""

from beam_pipeline.datasets.dataset import SingleFile, open_target
from beam_pipeline.reader_programs import program
from beam_pipeline.reader_programs.facts import Facts
from beam_pipeline.terminal.printing import print_text
from transforms.errors import UsageError


def show(path: str, reader: str) -> int:
    """Prints the text of a program that reads a dataset with a library; returns 0.

    Raises:
      UsageError: there is no dataset, or the library cannot read it.
      DamageError: its manifest is damaged.
    """
    target = open_target(path)
    if isinstance(target, SingleFile):
        if target.dataset is None:
            raise UsageError(
                f"A dataset is needed: its manifest knows the features, and "
                f"{path!r} is a single file that none names. 'inspect' shows what "
                f"such a file holds."
            )
        target = target.dataset
    facts = Facts(target.directory, target.manifest)
    print_text(program(reader, facts), end="")
    return 0
