"""The interpreter of Python that starts child processes of the program."""

import sys


def python_command() -> list[str]:
    """Returns the beginning of a command that runs Python as this process does.

    Its first word is "" where no interpreter is known, as where Python is inside
    another program. A frozen program names itself: asked to run code, it would start
    all over, and so would its children.
    """
    path = "" if getattr(sys, "frozen", False) else sys.executable or ""
    ignores = ["-E"] if sys.flags.ignore_environment else []
    # Nothing in the current folder is imported.
    return [path, *ignores, "-P", "-X", f"utf8={sys.flags.utf8_mode}"]
