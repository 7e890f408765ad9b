"""The type of each JSON column, and the values that do not have it.

| values seen in the sample       | type     | column                                 |
| ------------------------------- | -------- | -------------------------------------- |
| true, false                     | bool     | bool                                   |
| integers inside int64, none     | int64    | int64                                  |
| with a point or an exponent     |          |                                        |
| numbers, none an integer that   | float    | double                                 |
| a double cannot hold            |          |                                        |
| other numbers                   | number   | string, the number as it is written    |
| texts                           | text     | string                                 |
| objects                         | object   | a column for each member, `outer/inner`|
| lists                           | list     | list; of objects, a list a member      |
| of several kinds                | any      | string; what is no text, as JSON       |
| null alone                      | null     | string                                 |

The sample decides the types. After that, a row with a value of another type is refused:
a number is never taken for a text, 1.5 never for an integer, and an integer that a
double cannot hold exactly is never rounded. Doubles may become integers later: where
the sample of a column holds large whole numbers only, 9007199254740993.0 is kept.

| the value                                            | reason           |
| ---------------------------------------------------- | ---------------- |
| is no JSON, or nested more than 62 levels deep       | malformed        |
| has a member twice where a wanted column is          | malformed        |
| is not UTF-8, or has half a surrogate pair in a key  | invalid_encoding |
| or in a wanted column                                |                  |
| is not of its column's type                          | wrong_type,      |
|                                                      | not_an_integer,  |
|                                                      | not_a_number,    |
|                                                      | not_a_bool       |
| is a number that its column's type cannot hold       | out_of_range     |

Source: RFC 8259; NaN, Infinity and -Infinity are taken as Python writes them.
"""

import collections
import contextlib
import dataclasses
import decimal
import functools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.json_text import MAX_NESTING, check_json_nesting
from transforms.core.reasons import FaultError, Reason
from transforms.core.rows.column import FLOAT32_EXACT, FLOAT64_EXACT
from transforms.errors import shortened
from transforms.formats.columnar.arrow_types import flat_columns, flat_types

# What values are, one bit each. The type of a column follows from all bits it has.
_BOOL, _TEXT, _OBJECT, _LIST, _INTEGER, _FLOAT, _NUMBER = (1 << i for i in range(7))
_KINDS = (1 << 7) - 1
_NUMBERS = _INTEGER | _FLOAT | _NUMBER
# An integer is beyond what a double holds exactly; a number is beyond what float32
# does; a number is not whole.
_WIDE, _LARGE, _FRACTION = (1 << i for i in range(7, 10))
_NAMES = {
    0: "null",
    _BOOL: "bool",
    _TEXT: "text",
    _OBJECT: "object",
    _LIST: "list",
    _INTEGER: "int64",
}
_SCALARS = {"bool": pa.bool_(), "int64": pa.int64(), "float": pa.float64()}
_REASONS = {
    "bool": (Reason.NOT_A_BOOL, "true or false"),
    "int64": (Reason.NOT_AN_INTEGER, "an integer"),
    "float": (Reason.NOT_A_NUMBER, "a number"),
    "number": (Reason.NOT_A_NUMBER, "a number"),
    "object": (Reason.WRONG_TYPE, "an object"),
    "list": (Reason.WRONG_TYPE, "a list"),
}
# Whole numbers of more digits are not read exactly: they are out of range in any case.
_MOST_DIGITS = 400
# The object of a line, and the levels of its values.
ROW_NESTING = 1 + MAX_NESTING


@dataclasses.dataclass(frozen=True)
class JsonType:
    """A type of values.

    Attributes:
      seen: what the values are, as bits.
      members: of objects: names and types, in the order they are first seen.
      item: of lists: the type of their items.
    """

    seen: int = 0
    members: tuple[tuple[str, "JsonType"], ...] = ()
    item: "JsonType | None" = None

    @functools.cached_property
    def name(self) -> str:
        """One of the table above."""
        kinds = self.seen & _KINDS
        if kinds & (_FLOAT | _NUMBER) and not kinds & ~_NUMBERS:
            is_exact = kinds & _NUMBER or self.seen & _WIDE
            return "number" if is_exact else "float"
        return _NAMES.get(kinds, "any")

    @property
    def is_whole(self) -> bool:
        """Whether these are doubles that may become integers."""
        return self.seen & (_LARGE | _FRACTION) == _LARGE

    @property
    def arrow(self) -> pa.DataType:
        """The type of the column."""
        if self.name == "object":
            return pa.struct([(name, inner.arrow) for name, inner in self.members])
        if self.name == "list" and self.item is not None:
            return pa.list_(self.item.arrow)
        return _SCALARS.get(self.name, pa.string())

    @property
    def is_plain(self) -> bool:
        """Whether Arrow's parser gives such values exactly, or fails."""
        inner = [kind for _, kind in self.members] + ([self.item] if self.item else [])
        return self.name not in ("number", "any") and all(k.is_plain for k in inner)

    def columns(self, origin: str) -> dict[str, pa.DataType]:
        """Returns the flat columns of rows of this type.

        Raises:
          InputError: one has no name, or that of another one; names `origin`.
        """
        return flat_types(pa.schema(list(self.arrow)), origin)

    def only(self, wanted: frozenset[str], prefix: str = "") -> "JsonType | None":
        """Returns the type without the members that no wanted column needs."""
        inner = self.item if self.name == "list" else self
        if inner is None or inner.name != "object":
            return self if prefix in wanted else None
        trimmed = [
            (name, kind.only(wanted, f"{prefix}/{name}" if prefix else name))
            for name, kind in inner.members
        ]
        members = tuple((name, kind) for name, kind in trimmed if kind is not None)
        inner = dataclasses.replace(inner, members=members) if members else None
        if inner is None or self.name == "object":
            return inner
        return dataclasses.replace(self, item=inner)


NO_COLUMNS = JsonType(_OBJECT)


class Token(str):
    """A number as it is written."""

    __slots__ = ()

    @property
    def is_integer(self) -> bool:
        """Whether it has no point and no exponent."""
        return self.removeprefix("-").isdigit()


class _Doubled(NamedTuple):
    """A member that occurs twice, with its last value."""

    last: Any


def object_of(kinds: Mapping[str, JsonType]) -> JsonType:
    """Returns the type of objects that have these members."""
    return JsonType(_OBJECT, tuple(kinds.items()))


def of_value(value: Any) -> JsonType:
    """Returns the type of one value, whose numbers are tokens."""
    if isinstance(value, _Doubled):
        return of_value(value.last)
    if isinstance(value, Token):
        return JsonType(_bits_of_number(value))
    if isinstance(value, list):
        return JsonType(_LIST, item=merged(map(of_value, value)))
    if isinstance(value, dict):
        return object_of({name: of_value(inner) for name, inner in value.items()})
    return JsonType({bool: _BOOL, str: _TEXT}.get(type(value), 0))


def _bits_of_number(token: Token) -> int:
    """Returns the bits of `JsonType.seen` for a number, as it is written."""
    whole = _whole_number(token)
    if whole is None:
        return _FLOAT | _FRACTION
    is_inside = -(2**63) <= whole < 2**63
    if token.is_integer:
        return _INTEGER | _sizes(abs(whole)) if is_inside else _NUMBER
    double = float(token)
    if is_inside and whole != int(double):
        return _NUMBER
    return _FLOAT | (_FRACTION if math.isinf(double) else _sizes(abs(whole)) & _LARGE)


def _sizes(most: float) -> int:
    """Returns the bits of numbers whose largest distance from 0 is `most`."""
    return _WIDE * (most > FLOAT64_EXACT) | _LARGE * (most > FLOAT32_EXACT)


def _whole_number(token: Token) -> int | None:
    """Returns the whole number of a token such as 1e3; None for any other.

    Numbers of more than 400 digits become 10**400.
    """
    if token.is_integer and len(token) < 20:
        return int(token)
    try:
        number = decimal.Decimal(token)
    except decimal.InvalidOperation:  # an exponent of 20 digits, say
        return None
    if not number.is_finite():
        return None
    if number and number.adjusted() > _MOST_DIGITS:
        return 10**_MOST_DIGITS
    return int(number) if number == number.to_integral_value() else None


def of_column(column: pa.Array) -> JsonType:
    """Returns the type of values as Arrow inferred it; timestamps count as texts.

    It is not plain where a double is so large that it may be a rounded integer.
    """
    kind = column.type
    if pa.types.is_struct(kind):
        inner = {f.name: of_column(column.field(i)) for i, f in enumerate(kind)}
        return object_of(inner)
    if pa.types.is_list(kind):
        return JsonType(_LIST, item=of_column(column.flatten()))
    if pa.types.is_int64(kind):
        return JsonType(_INTEGER | _sizes(largest(column)))
    if pa.types.is_float64(kind):
        size = largest(column)
        if size >= FLOAT64_EXACT:
            return JsonType(_NUMBER)
        whole = pc.all(pc.equal(pc.floor(column), column), min_count=0).as_py()
        return JsonType(_FLOAT | _sizes(size) | _FRACTION * (not whole))
    if pa.types.is_null(kind):
        return JsonType()
    return JsonType(_BOOL if pa.types.is_boolean(kind) else _TEXT)


def largest(column: pa.Array) -> int | float:
    """Returns the largest distance of numbers from 0, without NaN; 0 for no numbers."""
    extent = pc.min_max(column).as_py()
    if extent["min"] is None:
        return 0
    return max(abs(extent["min"]), abs(extent["max"]))


def merged(kinds: Iterable[JsonType]) -> JsonType:
    """Returns the type that values of several types have in one column."""
    return functools.reduce(_merged_pair, dict.fromkeys(kinds), JsonType())


def _merged_pair(a: JsonType, b: JsonType) -> JsonType:
    """Returns the type of values of both; the members of `a` come first."""
    if a == b or not b.seen:
        return a
    members = dict(a.members)
    for name, inner in b.members:
        members[name] = _merged_pair(members.get(name, JsonType()), inner)
    item = _merged_pair(a.item, b.item) if a.item and b.item else a.item or b.item
    return JsonType(a.seen | b.seen, tuple(members.items()), item)


def clashes(
    a: JsonType, b: JsonType, path: str = ""
) -> Iterator[tuple[str, JsonType, JsonType]]:
    """Yields the columns that are of one type in `a` and of another in `b`."""
    if a.name == b.name == "object":
        first = dict(a.members)
        for name, inner in b.members:
            where = f"{path}/{name}" if path else name
            yield from clashes(first.get(name, JsonType()), inner, where)
    elif a.name == b.name == "list" and a.item and b.item:
        yield from clashes(a.item, b.item, path)
    elif "any" not in (a.name, b.name) and _merged_pair(a, b).name == "any":
        yield path, a, b


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Returns an object as a dict, where names that occur twice are `_Doubled`."""
    members = dict(pairs)
    for name in members:
        if not name.isascii():
            _check_text(name, f"the name {name[:60]!r}")
    if len(members) < len(pairs):
        counts = collections.Counter(name for name, _ in pairs)
        twice = (name for name, count in counts.items() if count > 1)
        members |= {name: _Doubled(members[name]) for name in twice}
    return members


_DECODER = json.JSONDecoder(
    object_pairs_hook=_members,
    parse_int=Token,
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
        check_json_nesting(data, ROW_NESTING)
        return _DECODER.decode(text)
    except UnicodeDecodeError as error:
        raise FaultError(
            Reason.INVALID_ENCODING,
            f"byte {error.start + 1}, {data[error.start]:#04x}, is not valid UTF-8",
        ) from error
    except ValueError as error:
        reason = str(error)
        if isinstance(error, json.JSONDecodeError):
            reason = f"no JSON at character {error.pos + 1}: {error.msg}"
        raise FaultError(Reason.MALFORMED, reason) from error


def parse_line(line: bytes) -> dict[str, Any]:
    """Returns the object of a line; raises FaultError where it holds none."""
    value = parse_value(line)
    if not isinstance(value, dict):
        reason = f"an object is needed; found {_shown(value)}"
        raise FaultError(Reason.MALFORMED, reason)
    return value


def without_faults(
    make: Callable[[Any], dict[str, Any]], items: Iterable[Any]
) -> Iterator[dict[str, Any]]:
    """Yields the objects that a function makes of items, but for those it refuses."""
    for item in items:
        with contextlib.suppress(FaultError):
            yield make(item)


def columns_in(rows: Sequence[dict[str, Any]], kind: JsonType) -> dict[str, pa.Array]:
    """Returns the flat columns of rows from `typed_members`."""
    columns = {
        name: pa.array([row[name] for row in rows], inner.arrow)
        for name, inner in kind.members
    }
    return flat_columns(pa.table(columns))


def typed_members(
    stated: Mapping[str, Any], kind: JsonType, path: str = ""
) -> dict[str, Any]:
    """Returns the members of an object as `kind.arrow` takes them.

    Raises:
      FaultError: one is of another type, or occurs twice.
    """
    return {
        name: _typed(stated.get(name), inner, f"{path}/{name}" if path else name)
        for name, inner in kind.members
    }


def _typed(value: Any, kind: JsonType, path: str) -> Any:
    """Returns a value as its type's column takes it; raises FaultError."""
    if value is None:
        return None
    if isinstance(value, _Doubled):
        raise FaultError(Reason.MALFORMED, f"the member {path!r} stands twice")
    name = kind.name
    is_text = type(value) is str
    if name == "object" and isinstance(value, dict):
        return typed_members(value, kind, path)
    if name == "list" and kind.item and isinstance(value, list):
        return [_typed(element, kind.item, path) for element in value]
    if name == "any" or (is_text and name in ("text", "null")):
        text = value if is_text else _dumped(value)
        if not text.isascii():
            _check_text(text, f"column {path!r}")
        return text
    if name == "bool" and isinstance(value, bool):
        return value
    if isinstance(value, Token):
        number = str(value) if name == "number" else _number(value, kind, path)
        if number is not None:
            return number
    reason, needed = _REASONS.get(name, (Reason.WRONG_TYPE, "a text"))
    raise FaultError(
        reason,
        f"column {path!r} holds {_shown(value)}: not {needed}, as all values of the "
        f"sample are; see --infer full",
    )


def _number(token: Token, kind: JsonType, path: str) -> int | float | None:
    """Returns a number of a column; None for one of another type."""
    if kind.name == "int64":
        whole = _whole_number(token)
        if whole is None or -(2**63) <= whole < 2**63:
            return whole
        problem = "outside int64"
    elif kind.name == "float":
        number = float(token)
        # Every integer, and whole numbers where they may become integers.
        is_exact = token.is_integer or (kind.is_whole and abs(number) < 2**63)
        if math.isinf(number) and "nf" not in token:
            problem = "outside double, at most 1.7976931348623157e308"
        elif (
            not is_exact
            or abs(number) < FLOAT64_EXACT
            or _whole_number(token) in (None, int(number))
        ):
            return number
        else:
            problem = "a double cannot hold this integer exactly"
    else:
        return None
    message = f"column {path!r} holds {_shown(token)}: {problem}"
    raise FaultError(Reason.OUT_OF_RANGE, message)


def _check_text(text: str, what: str) -> None:
    """Raises FaultError for half a surrogate pair, which JSON can escape."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        reason = f"{what} holds half a surrogate pair, which is no text"
        raise FaultError(Reason.INVALID_ENCODING, reason) from error


def _dumped(value: Any) -> str:
    """Returns JSON with the numbers as they were written."""
    if isinstance(value, _Doubled):
        return _dumped(value.last)
    if isinstance(value, Token):
        return str(value)
    if isinstance(value, dict):
        members = (f"{json.dumps(k)}: {_dumped(v)}" for k, v in value.items())
        return "{" + ", ".join(members) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_dumped, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _shown(value: Any) -> str:
    """Returns a value as short JSON for messages, in valid UTF-8."""
    text = _dumped(value)
    return shortened(text.encode(errors="backslashreplace").decode())
