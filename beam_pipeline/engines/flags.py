"""Read Beam's own flags without importing Beam, which is slow to load."""

from collections.abc import Sequence

from transforms.errors import SpecError

__all__ = ["check_words", "flag_given", "has_flag"]


def check_words(flags: Sequence[str]) -> None:
    """Raises SpecError for a word that is neither a flag nor the value of one."""
    for before, flag in zip(["", *flags], flags, strict=False):
        is_value = before.startswith("--") and "=" not in before
        if not flag.startswith("-") and not is_value:
            raise SpecError(
                f"What follows -- must be flags of Beam, as --job_name=NAME is; found "
                f"{flag!r}. Give SOURCE, OUTPUT and the program's own flags before --."
            )


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
