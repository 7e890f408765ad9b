"""Names that were meant, for messages about names that are not there."""

import difflib
from collections.abc import Iterable

__all__ = ["nearest"]


def nearest(name: str, names: Iterable[str]) -> str:
    """Returns the end of a message: which of the names is nearest; empty for none."""
    near = difflib.get_close_matches(name, list(names), n=1, cutoff=0.0)
    return f"; the nearest name is {near[0]!r}" if near else ""
