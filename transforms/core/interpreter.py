"""The interpreter of Python that starts child processes of the program."""

import sys

__all__ = ["interpreter"]


def interpreter() -> str:
    """Returns its path, "" where none is known: Python may be inside another program.

    A frozen program calls itself the interpreter. Asked to run code, it would start
    all over, and so would its children.
    """
    return "" if getattr(sys, "frozen", False) else sys.executable or ""
