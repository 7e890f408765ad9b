"""Rows as Python has them: what is one, how it becomes a mapping, its names, refusals.

Types of elements that are no rows are refused when a pipeline is built.

The rejection of a row has its values as JSON, which its checksum is of: keys in order,
whole floats as integers, what is missing left out. So it is the same whatever rows came
with it, and made what types of its columns.
"""

import collections
import dataclasses
import functools
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from transforms.core.json_text import MAX_NESTING, check_key
from transforms.core.reasons import Fault, Rejection
from transforms.errors import EncodingError, InputError, SpecError, bounded

A_ROW = "a row: a dict, beam.Row, named tuple, dataclass"
NO_ROW = f"Every element must be {A_ROW}, or an Arrow batch or table"
_SHOWN_CHARS = 80
# Of other types, as classes of users, only the elements themselves say what they are.
_NO_ROWS = (
    *(int, float, complex, str, bytes, bytearray, list, set, frozenset, type(None)),
    *(np.generic, np.ndarray),
)
# Hints of Beam, which is not imported here.
_NO_ROW_HINTS = re.compile("((Iterable|Set)Type|List|Tuple(Sequence)?)Constraint")
# Larger ones are in the text by their checksum.
_SHOWN_BYTES = 1 << 16
_EXACT = 2**53
# Python makes no text of integers of more than 4,300 digits.
_MOST_BITS = 14_000
_DIGEST_BYTES = 8
# Of Python's default texts of objects: where they are in memory.
_ADDRESS = re.compile(" at 0x[0-9A-Fa-f]+")

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
    if kind is bytes:
        return "Put DecodeExamples() before, if these are serialised tf.train.Examples."
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


def check_row_type(kind: Any) -> None:
    """Checks the element type of a PCollection of rows.

    Args:
      kind: a class, or a type hint of Beam.

    Raises:
      SpecError: no element of the type is a row.
    """
    if _is_no_row(kind):
        how = how_to_map(kind if isinstance(kind, type) else type(kind))
        name = kind.__name__ if isinstance(kind, type) else str(kind)
        raise SpecError(
            f"{NO_ROW}; these are of type {name:.80}. {how} If the type is wrong, say "
            f"with_output_types(...) before."
        )


def _is_no_row(kind: Any) -> bool:
    """Whether no element of a class or hint of Beam can be a row: scalars, lists."""
    if isinstance(kind, type):
        is_frame = kind.__module__.partition(".")[0] == "pandas"
        return (is_frame or issubclass(kind, _NO_ROWS)) and as_mapping(kind) is None
    is_hint = type(kind).__module__.startswith("apache_beam.")
    return is_hint and _NO_ROW_HINTS.fullmatch(type(kind).__name__) is not None


def refuse(text: bytes, found: Fault, *, known_by: str = "", stage: str) -> Rejection:
    """Returns the rejection of a row of any type.

    Args:
      text: its values, see `values_as_json`.
      found: what is wrong.
      known_by: its key, or the hash of its content; by default that of the text.
      stage: that refuses it.
    """
    digest = hashlib.blake2b(text, digest_size=_DIGEST_BYTES)
    return Rejection(
        source=known_by or digest.hexdigest(),
        row=None,
        line=None,
        stage=stage,
        reason=found.reason,
        message=bounded(found.message),
        sha256=hashlib.sha256(text).hexdigest(),
        raw=text,
    )


def values_as_json(row: Any) -> bytes:
    """Returns the values of a row of any type, or of another element, as JSON.

        >>> values_as_json({"b": 1.0, "a": {2}, "c": None})
        b'{"a": "{2}", "b": 1}'

    Args:
      row: a row of any type, or any other value.
    """
    return json.dumps(_plain(row, ())).encode()


def _plain(value: Any, above: tuple[int, ...]) -> Any:
    """Returns a value of any type in types of JSON; what JSON lacks as text.

    Args:
      value: any.
      above: ids of what it is in.
    """
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) <= _EXACT:
        return int(value)
    if type(value) is int and value.bit_length() > _MOST_BITS:
        return f"an integer of {value.bit_length():,} bits"
    if type(value) in (int, float):
        return value
    if id(value) in above or len(above) > MAX_NESTING:
        return "..."
    inside = functools.partial(_plain, above=(*above, id(value)))
    convert = as_mapping(type(value))
    if convert is not None:
        parts = ((str(key), inside(item)) for key, item in convert(value).items())
        return dict(sorted(p for p in parts if p[1] is not None))
    if isinstance(value, np.generic | np.ndarray):
        return _array_as_json(value, inside)
    if isinstance(value, list | tuple):
        return [inside(item) for item in value]
    if isinstance(value, set | frozenset):
        return "{" + ", ".join(sorted(json.dumps(inside(item)) for item in value)) + "}"
    if isinstance(value, bytes | bytearray) and len(value) > _SHOWN_BYTES:
        return f"{len(value)} bytes, sha256 {hashlib.sha256(value).hexdigest()}"
    return _ADDRESS.sub("", repr(value))


def _array_as_json(value: Any, inside: Callable[[Any], Any]) -> Any:
    """Returns a NumPy value for JSON; of a large array type, shape and digest."""
    if value.nbytes > _SHOWN_BYTES and not value.dtype.hasobject:
        digest = hashlib.sha256(value.tobytes()).hexdigest()
        return f"array of {value.dtype} of shape {value.shape}, sha256 {digest}"
    native = value.tolist()
    return repr(value) if isinstance(native, np.generic) else inside(native)


def with_text_keys(row: Mapping[Any, Any]) -> Mapping[str, Any]:
    """Returns a row whose names are text; raises InputError where two become one."""
    if all(type(key) is str for key in row):
        return row
    named = {str(key): value for key, value in row.items()}
    if len(named) < len(row):
        raise InputError(f"Names must differ as text; found {list(row)[:8]}.")
    return named


def part_names(row: Sequence[Any]) -> list[str]:
    """Returns the names of a tuple's parts: a pair may be an image and its label."""
    is_image = bool(row) and (
        type(row[0]).__module__.startswith("PIL.")
        or len(getattr(row[0], "shape", ())) in (2, 3)
    )
    if is_image and len(row) == 2:
        return ["image", "label"]
    return [f"feature{index}" for index in range(len(row))]
