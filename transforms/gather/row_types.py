"""Types of elements that are no rows, refused when a pipeline is built."""

from typing import Any

import numpy as np

from transforms.errors import SpecError
from transforms.gather.row_batches import NO_ROW, as_mapping, how_to_map

# Of other types, as classes of users, only the elements themselves say what they are.
_NO_ROWS = (
    *(int, float, complex, str, bytearray, list, set, frozenset, type(None)),
    *(np.generic, np.ndarray),
)
# Hints of Beam, which is not imported here.
_NO_ROW_HINTS = frozenset(
    (
        "IterableTypeConstraint",
        "ListConstraint",
        "SetTypeConstraint",
        "TupleConstraint",
        "TupleSequenceConstraint",
    )
)


def check_row_type(kind: Any, *, examples: bool) -> None:
    """Checks the element type of a PCollection of rows.

    Args:
      kind: a class, or a type hint of Beam.
      examples: whether elements may be serialised Examples.

    Raises:
      SpecError: no element of the type is a row.
    """
    if _is_no_row(kind, examples=examples):
        how = how_to_map(kind if isinstance(kind, type) else type(kind))
        name = kind.__name__ if isinstance(kind, type) else str(kind)
        raise SpecError(
            f"{NO_ROW}; these are of type {name:.80}. {how} If the type is wrong, say "
            f"with_output_types(...) before."
        )


def _is_no_row(kind: Any, *, examples: bool) -> bool:
    if isinstance(kind, type):
        if kind is bytes:
            return not examples
        is_frame = kind.__module__.partition(".")[0] == "pandas"
        return (is_frame or issubclass(kind, _NO_ROWS)) and as_mapping(kind) is None
    hint = type(kind)
    return hint.__module__.startswith("apache_beam.") and hint.__name__ in _NO_ROW_HINTS
