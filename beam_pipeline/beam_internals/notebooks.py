"""Keeps Beam's support for notebooks out of the program's own jobs.

In IPython, Beam imports its interactive environment as soon as a graph is built, to put
the number of the cell before the name of each stage. That environment imports Beam's
DataFrames, which need a pandas before 3.
"""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from apache_beam import pipeline as graph

__all__ = ["plain_labels"]


class _Process:
    """State of the whole process."""

    lock = threading.Lock()
    users = 0
    plain: Any = None


@contextlib.contextmanager
def plain_labels() -> Iterator[None]:
    """Leaves the names of stages as they are, also in a notebook.

    Where several threads build graphs at the same time, the last one restores Beam.
    """
    module: Any = graph
    with _Process.lock:
        if not _Process.users:
            _Process.plain = module.alter_label_if_ipython
            module.alter_label_if_ipython = _unaltered
        _Process.users += 1
    try:
        yield
    finally:
        with _Process.lock:
            _Process.users -= 1
            if not _Process.users:
                module.alter_label_if_ipython = _Process.plain


def _unaltered(transform: Any, pvalueish: Any) -> None:
    """Replaces Beam's function of the same parameters."""
