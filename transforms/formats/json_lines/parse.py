"""Parse a piece of JSON lines: with Arrow where that is exact, else line by line.

Arrow's parser reads a whole block; where it fails, or where its values might not be
exact, Python's parser reads the lines, which is slow. Both give the same values. Lines
are refused one by one:

| the line                                             | reason           |
| ---------------------------------------------------- | ---------------- |
| is no JSON, or no object                             | malformed        |
| has values nested more than 62 levels deep           | malformed        |
| has a member twice where a wanted column is          | malformed        |
| is not UTF-8, or has half a surrogate pair in a key  | invalid_encoding |
| or in a wanted column                                |                  |
| has a value that is not of its column's type         | wrong_type,      |
|                                                      | not_an_integer,  |
|                                                      | not_a_number,    |
|                                                      | not_a_bool       |
| has a number that its column's type cannot hold      | out_of_range     |

Source: RFC 8259; NaN, Infinity and -Infinity are taken as Python writes them.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.json

from transforms.core.json_text import (
    MAX_NESTING,
    check_json_nesting,
    check_key,
    json_nesting,
    openings,
)
from transforms.core.model import Reason
from transforms.core.reasons import FaultError
from transforms.errors import InputError, shortened
from transforms.formats.columnar.arrow_types import flat_columns
from transforms.formats.json_lines.cut import Lines, lines_of
from transforms.formats.json_lines.types import (
    EXACT,
    JsonType,
    Token,
    largest,
    merged,
    of_column,
    of_value,
    whole_number,
)
from transforms.formats.table import Complaint

# Arrow's parser takes this word for a number; Python's parser does not.
_SHORT_INFINITY = re.compile(rb"[:\[,]\s*-?Inf(?!inity)")
# The object of a line, and the levels of its values.
ROW_NESTING = 1 + MAX_NESTING

_REASONS = {
    "bool": (Reason.NOT_A_BOOL, "not true or false"),
    "int64": (Reason.NOT_AN_INTEGER, "not an integer"),
    "uint64": (Reason.NOT_AN_INTEGER, "not an integer"),
    "float": (Reason.NOT_A_NUMBER, "not a number"),
    "number": (Reason.NOT_A_NUMBER, "not a number"),
    "text": (Reason.WRONG_TYPE, "not a text"),
    "null": (Reason.WRONG_TYPE, "not a text"),
    "object": (Reason.WRONG_TYPE, "not an object"),
    "list": (Reason.WRONG_TYPE, "not a list"),
}
_SAMPLED = "as all values of the sample are; see --infer full"


def learned(data: bytes) -> JsonType:
    """Returns the type of the rows of whole lines."""
    lines = lines_of(data)
    if lines.plain and not _has_deep_line(data, lines):
        table = _parsed(data, None)
        if table is not None and table.num_rows == len(lines) and table.num_columns:
            # Not in one piece: Arrow fails to join lists of nulls.
            kinds = [of_column(rows) for rows in table.to_struct_array().chunks]
            certain = [kind for kind in kinds if kind is not None]
            if len(certain) == len(kinds):
                return merged(certain)
    return merged(map(of_value, objects_of(_each(data, lines))))


def _parsed(data: bytes, schema: pa.Schema | None) -> pa.Table | None:
    """Returns the table that Arrow's parser reads; None if the parser fails."""
    buffer = pa.py_buffer(data)
    offsets = pa.py_buffer(np.array([0, len(data)], np.int64))
    try:
        # Arrow's parser does not check the encoding, the cast from bytes does.
        text = pa.Array.from_buffers(pa.large_binary(), 1, [None, offsets, buffer])
        text.cast(pa.large_string())
        return pyarrow.json.read_json(
            pa.BufferReader(buffer),
            read_options=pyarrow.json.ReadOptions(
                use_threads=False, block_size=len(data) + 1
            ),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=schema,
                unexpected_field_behavior="infer" if schema is None else "ignore",
            ),
        )
    except (pa.ArrowException, UnicodeDecodeError):
        return None


def columns_of(
    data: bytes, lines: Lines, kind: JsonType
) -> tuple[dict[str, pa.Array], npt.NDArray[np.int64], Sequence[Complaint]]:
    """Returns flat columns, which lines they are from, and the lines refused."""
    columns = _fast(data, lines, kind)
    if columns is not None:
        return columns, np.arange(len(lines)), ()
    rows, places, refused = typed_rows(_each(data, lines), kind)
    return columns_in(rows, kind), np.array(places, np.int64), refused


def columns_in(rows: Sequence[dict[str, Any]], kind: JsonType) -> dict[str, pa.Array]:
    """Returns the flat columns of rows from `typed_members`."""
    columns = {
        name: pa.array([row[name] for row in rows], inner.arrow)
        for name, inner in kind.members
    }
    return flat_columns(pa.table(columns))


def _fast(data: bytes, lines: Lines, kind: JsonType) -> dict[str, pa.Array] | None:
    """Returns the columns by Arrow's parser; None if they might not be exact."""
    # Arrow ignores line ends. If every line starts with "{" and ends with "}", and
    # there are as many objects as lines, then each line is one object: inside one,
    # "{" never follows "}" directly.
    if not (lines.plain and kind.is_plain and kind.members and len(lines)):
        return None
    if _has_deep_line(data, lines):
        return None
    if b"Inf" in data and _SHORT_INFINITY.search(data):
        return None
    table = _parsed(data, pa.schema(list(kind.arrow)))
    if table is None or table.num_rows != len(lines):
        return None
    flat = flat_columns(table)
    for column in flat.values():
        while pa.types.is_list(column.type):
            column = column.flatten()
        # Such a double may be the rounded value of another integer, or infinite.
        if pa.types.is_float64(column.type) and largest(column) >= EXACT:
            return None
    return flat


def _has_deep_line(data: bytes, lines: Lines) -> bool:
    """Tells whether a line is nested too deep, which Arrow's parser accepts."""
    opened = openings(np.frombuffer(data, np.uint8))
    # Most lines open one object and nothing else: then counting brackets suffices.
    if np.count_nonzero(opened) - len(lines) < ROW_NESTING:
        return False
    counts = np.diff(np.searchsorted(np.flatnonzero(opened), lines.starts))
    last = np.count_nonzero(opened[lines.starts[-1] :])
    return max(counts.max(initial=0), last) > ROW_NESTING and (
        json_nesting(data) > ROW_NESTING
    )


def _each(data: bytes, lines: Lines) -> Iterator[bytes]:
    for start, stop in zip(lines.starts.tolist(), lines.stops.tolist(), strict=True):
        yield data[start:stop].rstrip(b"\r")


def leaves_of(kind: JsonType) -> list[tuple[str, JsonType]]:
    """Returns the flat columns of rows: names and types."""
    return [leaf for name, inner in kind.members for leaf in inner.leaves(name)]


def check_names(kind: JsonType) -> None:
    """Raises InputError where a flat column has no name, or that of another one."""
    names = [name for name, _ in leaves_of(kind)]
    for name in names:
        if not name or names.count(name) > 1:
            fault = f"{name!r} occurs twice" if name else "one has none"
            raise InputError(
                f"every column must have a name of its own; {fault}, once objects are "
                f"flattened to outer/inner. Rename it where the file is written."
            )


class _Integer(Token):
    __slots__ = ()
    is_integer = True


class _Doubled(dict[str, Any]):
    """An object in which some names occur twice; `names` has these names."""

    names: frozenset[str] = frozenset()


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    for name in members:
        try:
            check_key(name)
        except ValueError as error:
            raise FaultError(Reason.INVALID_ENCODING, str(error)) from error
    if len(members) == len(pairs):
        return members
    doubled = _Doubled(members)
    names = [name for name, _ in pairs]
    doubled.names = frozenset(name for name in members if names.count(name) > 1)
    return doubled


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object,
    parse_int=_Integer,
    parse_float=Token,
    parse_constant=Token,
)


def parse_value(data: bytes) -> Any:
    """Returns a value of JSON; its numbers are tokens.

    Raises:
      FaultError: the text holds no value, or more.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise FaultError(
            Reason.INVALID_ENCODING,
            f"byte {error.start + 1}, {data[error.start]:#04x}, is not valid UTF-8",
        ) from error
    try:
        check_json_nesting(data, ROW_NESTING)
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise FaultError(
            Reason.MALFORMED, f"no JSON at character {error.pos + 1}: {error.msg}"
        ) from error
    except ValueError as error:
        raise FaultError(Reason.MALFORMED, str(error)) from error


def parse_line(line: bytes) -> dict[str, Any]:
    """Returns the object of a line; raises FaultError where it holds none."""
    value = parse_value(line)
    if not isinstance(value, dict):
        raise FaultError(
            Reason.MALFORMED, f"an object is needed; found {_shown(value)}"
        )
    return value


def objects_of(lines: Iterable[bytes]) -> Iterable[dict[str, Any]]:
    """Yields the objects of lines; lines without an object are left out."""
    for line in lines:
        try:
            yield parse_line(line)
        except FaultError:
            continue


def typed_rows(
    lines: Iterable[bytes], kind: JsonType
) -> tuple[list[dict[str, Any]], list[int], list[tuple[int, Reason, str]]]:
    """Returns the objects of lines with values as `kind.arrow` takes them.

    Returns:
      The objects, the index of each one's line, and of the other lines the index, the
      reason and the message.
    """
    rows: list[dict[str, Any]] = []
    places: list[int] = []
    refused: list[tuple[int, Reason, str]] = []
    for index, line in enumerate(lines):
        try:
            rows.append(typed_members(parse_line(line), kind))
            places.append(index)
        except FaultError as error:
            refused.append((index, *error.fault))
    return rows, places, refused


def typed_members(
    found: dict[str, Any], kind: JsonType, path: str = ""
) -> dict[str, Any]:
    """Returns the members of an object as `kind.arrow` takes them.

    Raises:
      FaultError: one is of another type, or occurs twice.
    """
    out = {}
    doubled = found.names if isinstance(found, _Doubled) else ()
    for name, inner in kind.members:
        where = f"{path}/{name}" if path else name
        if name in doubled:
            raise FaultError(Reason.MALFORMED, f"the member {where!r} stands twice")
        value = found.get(name)
        out[name] = None if value is None else _typed(value, inner, where)
    return out


def _typed(value: Any, kind: JsonType, path: str) -> Any:
    """Returns a value as its type's column takes it; raises FaultError."""
    name = kind.name
    is_text = isinstance(value, str) and not isinstance(value, Token)
    if name == "object" and isinstance(value, dict):
        return typed_members(value, kind, path)
    if kind.item is not None and isinstance(value, list):
        item = kind.item
        return [
            None if element is None else _typed(element, item, path)
            for element in value
        ]
    if name == "any" or (name in ("text", "null") and is_text):
        return _text(value if is_text else _dumped(value), path)
    if name == "bool" and isinstance(value, bool):
        return value
    if isinstance(value, Token):
        if name == "number":
            return str(value)
        number = _number(value, kind, path)
        if number is not None:
            return number
    reason, what = _REASONS[name]
    raise FaultError(
        reason, f"column {path!r} holds {_shown(value)}: {what}, {_SAMPLED}"
    )


def _number(token: Token, kind: JsonType, path: str) -> int | float | None:
    """Returns a number of a column; None for one of another type."""
    if kind.name == "float":
        number, what = float(token), ""
        # Every integer, and whole numbers where they may become integers.
        is_whole = token.is_integer or (kind.is_whole and abs(number) < 2**63)
        if not token.is_integer and math.isinf(number) and "nf" not in token:
            what = "outside double, at most 1.7976931348623157e308"
        elif is_whole and abs(number) >= EXACT:
            whole = whole_number(token)
            if math.isinf(number) or whole not in (None, int(number)):
                what = "a double cannot hold this integer exactly"
        if what:
            raise _out(token, path, what)
        return number
    if kind.name not in ("int64", "uint64"):
        return None
    is_short = token.is_integer and len(token) < 20
    whole = int(token) if is_short else whole_number(token)
    low, high = (0, 2**64) if kind.name == "uint64" else (-(2**63), 2**63)
    if whole is not None and not low <= whole < high:
        raise _out(token, path, f"outside {kind.name}")
    return whole


def _text(value: str, path: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise FaultError(
            Reason.INVALID_ENCODING,
            f"column {path!r} holds half a surrogate pair, which is no text",
        ) from error
    return value


def _dumped(value: Any) -> str:
    """Returns JSON with the numbers as they were written."""
    if isinstance(value, Token):
        return str(value)
    if isinstance(value, dict):
        members = (f"{json.dumps(k)}: {_dumped(v)}" for k, v in value.items())
        return "{" + ", ".join(members) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_dumped, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _out(token: Token, path: str, what: str) -> FaultError:
    message = f"column {path!r} holds {_shown(token)}: {what}"
    return FaultError(Reason.OUT_OF_RANGE, message)


def _shown(value: Any) -> str:
    is_text = isinstance(value, str) and not isinstance(value, Token)
    text = json.dumps(value, ensure_ascii=False) if is_text else _dumped(value)
    text = text.encode(errors="backslashreplace").decode()
    return shortened(text)
