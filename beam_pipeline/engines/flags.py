"""Read Beam's own flags without importing Beam, which is slow to load."""

from collections.abc import Sequence

__all__ = ["flag_given", "has_flag"]


def flag_given(flags: Sequence[str], name: str) -> str | None:
    """Returns the last value of one of Beam's flags; None where it is not given."""
    found = None
    for at, flag in enumerate(flags):
        if flag.startswith(f"--{name}="):
            found = flag.partition("=")[2]
        elif flag == f"--{name}" and at + 1 < len(flags):
            found = flags[at + 1]
    return found


def has_flag(flags: Sequence[str], name: str) -> bool:
    """Whether one of Beam's flags is there, with a value or without one."""
    return any(flag.partition("=")[0] == f"--{name}" for flag in flags)
