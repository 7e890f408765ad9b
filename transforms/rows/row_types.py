"""Rows as Python has them: what is one, how it becomes a mapping, its names.

Types of elements that are no rows are refused when a pipeline is built.
"""

import collections
import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from transforms.core.nesting import check_key
from transforms.errors import EncodingError, SpecError, bounded

A_ROW = "a row: a dict, beam.Row, named tuple, dataclass"
NO_ROW = (
    f"Every element must be {A_ROW}, an Arrow batch or table, or, with like= or "
    f"features=, a serialised tf.train.Example"
)
_SHOWN_CHARS = 80
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

Row = Mapping[str, Any]


def as_mapping(kind: type[Any]) -> Callable[[Any], Row] | None:
    """Returns what makes a mapping of a row of a type; None where it is no row.

    Takes dicts and other mappings, `beam.Row`, named tuples and dataclasses.
    """
    if kind is dict:
        return lambda row: row
    if issubclass(kind, Mapping):
        return dict
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        names = kind._fields
        return lambda row: dict(zip(names, row, strict=True))
    if dataclasses.is_dataclass(kind):
        fields = [field.name for field in dataclasses.fields(kind)]
        return lambda row: {name: getattr(row, name) for name in fields}
    # beam.Row, which is not imported here.
    if kind.__name__ == "Row" and kind.__module__.startswith("apache_beam."):
        # Not a copy, for nothing changes a row.
        return vars
    return None


_converters: dict[type[Any], Callable[[Any], Row] | None] = {}


def converter(kind: type[Any]) -> Callable[[Any], Row] | None:
    """As `as_mapping`, for types that are asked for again and again."""
    if kind not in _converters:
        _converters[kind] = as_mapping(kind)
    return _converters[kind]


def how_to_map(kind: type[Any]) -> str:
    """Returns what to do with elements of a type that is no row, as a sentence."""
    if kind.__name__ == "DataFrame" and kind.__module__.split(".")[0] == "pandas":
        return (
            "Map it to a row batch first: "
            "beam.Map(pa.Table.from_pandas, preserve_index=False)."
        )
    return "Map it to a row first."


def check_name(name: object) -> None:
    """Checks the name of a value.

    Raises:
      EncodingError: it is no text, is empty, or is none that a column has.
    """
    if not isinstance(name, str) or not name:
        raise EncodingError(
            f"Every value of a row must have a name, which is text; found "
            f"{bounded(repr(name), _SHOWN_CHARS)}. Rename it."
        )
    if "\0" in name:
        # Columns beside the rows have such names.
        raise EncodingError(
            f"The name of a value must hold no NUL character; found "
            f"{bounded(repr(name), _SHOWN_CHARS)}. Rename it."
        )
    try:
        check_key(name)
    except ValueError as error:
        raise EncodingError(f"{bounded(str(error), 400)}. Rename it.") from error


def check_names(names: Iterable[str]) -> None:
    """Checks the names of the columns of a table; errors are those of `check_name`."""
    for name, count in collections.Counter(names).items():
        check_name(name)
        if count > 1:
            raise EncodingError(
                f"Every column of a table must have a name of its own; {name!r:.80} "
                f"occurs {count} times. Rename it."
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
