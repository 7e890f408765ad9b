"""Keeps Beam's support for notebooks out of the program's own jobs.

In IPython, Beam imports its interactive environment as soon as a graph is built, to put
the number of the cell before the name of each stage. That environment imports Beam's
DataFrames, which need a pandas before 3.
"""

from collections.abc import Iterator
from typing import Any

from apache_beam import pipeline as graph

from beam_pipeline.shared_change import shared_change

__all__ = ["plain_labels"]


@shared_change
def plain_labels() -> Iterator[None]:
    """Leaves the names of stages as they are, also in a notebook."""
    module: Any = graph
    plain = module.alter_label_if_ipython
    module.alter_label_if_ipython = _unaltered
    try:
        yield
    finally:
        module.alter_label_if_ipython = plain


def _unaltered(transform: Any, pvalueish: Any) -> None:
    """Replaces Beam's function of the same parameters."""
