"""An example value as short text; a list is cut between its values only."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

_CHARS = 40
_LIST_CHARS = 32
_REST = ", ..."
EXAMPLE_ITEMS = _LIST_CHARS + 1
"""Items of a list that are enough for its text, which is the same with more."""


def example_text(value: object) -> str:
    """Returns "0.25", "12 bytes", "[0.557474, 0.0858686, ...]"."""
    return _text(value, _LIST_CHARS)


def _text(value: object, room: int) -> str:
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    if isinstance(value, list | tuple | np.ndarray):
        return _list_text(value, room)
    return str(value)[:_CHARS]


def _list_text(values: Sequence[object] | npt.NDArray[Any], room: int) -> str:
    """Returns as many whole values as there is room for, but one at least."""
    shown: list[str] = []
    left = room - len("[]") - len(_REST)
    for value in values[: max(room, 1)]:
        text = _element_text(value, left)
        left -= len(text)
        is_last = len(shown) + 1 == len(values)
        if left + is_last * len(_REST) < 0 and shown:
            break
        shown.append(text)
        left -= len(", ")
    rest = _REST if len(shown) < len(values) else ""
    return f"[{', '.join(shown)}{rest}]"


def _element_text(value: object, room: int) -> str:
    if isinstance(value, float | np.floating):
        return f"{float(value):.6g}"
    if isinstance(value, str):
        return repr(value)
    return _text(value, room)
