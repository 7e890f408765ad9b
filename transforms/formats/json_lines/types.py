"""The type of each JSON column, and the values that do not have it.

| values seen in the sample       | type     | column                                 |
| ------------------------------- | -------- | -------------------------------------- |
| true, false                     | bool     | bool                                   |
| integers inside int64, none     | int64    | int64                                  |
| with a point or an exponent     |          |                                        |
| integers up to 2^64-1, none < 0 | uint64   | uint64                                 |
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
the sample of a column holds large whole numbers only, 9007199254740993.0 is not rounded
either.
"""

import dataclasses
import decimal
import functools
import math
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.rows.column import FLOAT32_EXACT

_SCALARS = {
    "bool": pa.bool_(),
    "int64": pa.int64(),
    "uint64": pa.uint64(),
    "float": pa.float64(),
    "number": pa.string(),
    "text": pa.string(),
    "any": pa.string(),
    "null": pa.string(),
}
_NUMBERS = frozenset(["int64", "uint64", "float", "number"])
# Whole numbers of more digits are not read exactly: they are out of range in any case.
_MOST_DIGITS = 400
# Up to here a double holds every integer.
EXACT = 2**53


class Token(str):
    """A number as it is written; `is_integer` where without point and exponent."""

    __slots__ = ()
    is_integer = False


@dataclasses.dataclass(frozen=True, slots=True)
class JsonType:
    """A type of values.

    Attributes:
      name: one of the table above.
      members: of an object: names and types, in the order they are first seen.
      item: of a list: the type of its items.
      wide: of an int64: some are beyond what a double can hold exactly.
      large: of an int64 or a float: one is beyond what float32 can hold exactly.
      fraction: of a float: one is not a whole number.
    """

    name: str
    members: tuple[tuple[str, "JsonType"], ...] = ()
    item: "JsonType | None" = None
    wide: bool = False
    large: bool = False
    fraction: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether these are doubles that may become integers."""
        return self.name == "float" and self.large and not self.fraction

    @property
    def arrow(self) -> pa.DataType:
        """The type of the column."""
        if self.name == "object":
            return pa.struct([(name, inner.arrow) for name, inner in self.members])
        if self.item is not None:
            return pa.list_(self.item.arrow)
        return _SCALARS[self.name]

    @property
    def is_plain(self) -> bool:
        """Whether Arrow's parser gives such values exactly, or fails."""
        if self.name in ("number", "any"):
            return False
        inner = [kind for _, kind in self.members] + [self.item] * bool(self.item)
        return all(kind is None or kind.is_plain for kind in inner)

    def leaves(self, prefix: str) -> Iterator[tuple[str, "JsonType"]]:
        """Yields the flat columns of a value: names and types."""
        if self.name == "object":
            for name, inner in self.members:
                yield from inner.leaves(f"{prefix}/{name}")
        elif self.item is not None and self.item.name == "object":
            for name, inner in self.item.members:
                yield from JsonType("list", item=inner).leaves(f"{prefix}/{name}")
        else:
            yield prefix, self

    def only(self, wanted: frozenset[str], prefix: str) -> "JsonType | None":
        """Returns the type without the members that no wanted column needs."""
        if self.name == "object":
            kept = []
            for name, inner in self.members:
                trimmed = inner.only(wanted, f"{prefix}/{name}")
                if trimmed is not None:
                    kept.append((name, trimmed))
            return dataclasses.replace(self, members=tuple(kept)) if kept else None
        if self.item is not None and self.item.name == "object":
            item = self.item.only(wanted, prefix)
            return dataclasses.replace(self, item=item) if item else None
        return self if prefix in wanted else None


NO_COLUMNS = JsonType("object")


def of_value(value: Any) -> JsonType:
    """Returns the type of one value, whose numbers are tokens."""
    if value is None:
        return JsonType("null")
    if isinstance(value, bool):
        return JsonType("bool")
    if isinstance(value, Token):
        return _of_number(value)
    if isinstance(value, str):
        return JsonType("text")
    if isinstance(value, list):
        return JsonType("list", item=merged(map(of_value, value)))
    members = tuple((name, of_value(inner)) for name, inner in value.items())
    return JsonType("object", members)


def _of_number(token: Token) -> JsonType:
    if not token.is_integer:
        return _of_decimal(token)
    if len(token) > 20:
        return JsonType("number")
    number = int(token)
    if -(2**63) <= number < 2**63:
        size = abs(number)
        return JsonType("int64", wide=size > EXACT, large=size > FLOAT32_EXACT)
    return JsonType("uint64" if 0 <= number < 2**64 else "number")


def _of_decimal(token: Token) -> JsonType:
    double = float(token)
    if not (math.isfinite(double) and double.is_integer()):
        return JsonType("float", fraction=True)
    whole = whole_number(token)
    if whole is not None and abs(whole) < 2**63 and whole != int(double):
        return JsonType("number")
    large = abs(double) > FLOAT32_EXACT
    return JsonType("float", large=large, fraction=whole is None)


def whole_number(token: str) -> int | None:
    """Returns the whole number of a text such as 1e3; None for any other text.

    Numbers of more than 400 digits become 10**400.
    """
    try:
        number = decimal.Decimal(token)
    except decimal.InvalidOperation:
        return None
    if not number.is_finite():
        return None
    if number and number.adjusted() > _MOST_DIGITS:
        return 10**_MOST_DIGITS
    return int(number) if number == number.to_integral_value() else None


def of_column(column: pa.Array) -> JsonType | None:
    """Returns the type of values as Arrow inferred it; timestamps count as texts.

    None if a double is so large that it may be a rounded integer.
    """
    kind = column.type
    if pa.types.is_struct(kind):
        members = []
        for index, field in enumerate(kind):
            inner = of_column(column.field(index))
            if inner is None:
                return None
            members.append((field.name, inner))
        return JsonType("object", tuple(members))
    if pa.types.is_list(kind):
        item = of_column(column.flatten())
        return None if item is None else JsonType("list", item=item)
    if pa.types.is_boolean(kind):
        return JsonType("bool")
    if pa.types.is_int64(kind):
        size = largest(column)
        return JsonType("int64", wide=size > EXACT, large=size > FLOAT32_EXACT)
    if pa.types.is_float64(kind):
        size = largest(column)
        if size >= EXACT:
            return None
        whole = pc.all(pc.equal(pc.floor(column), column), min_count=0).as_py()
        return JsonType("float", large=size > FLOAT32_EXACT, fraction=not whole)
    return JsonType("null" if pa.types.is_null(kind) else "text")


def largest(column: pa.Array) -> int | float:
    """Returns the largest distance of numbers from 0, without NaN; 0 for no numbers."""
    extent = pc.min_max(column).as_py()
    if extent["min"] is None:
        return 0
    return max(abs(extent["min"]), abs(extent["max"]))


def merged(kinds: Iterable[JsonType]) -> JsonType:
    """Returns the type that values of several types have in one column."""
    return functools.reduce(_merged, dict.fromkeys(kinds), JsonType("null"))


def _merged(a: JsonType, b: JsonType) -> JsonType:
    if a == b or b.name == "null":
        return a
    if a.name == "null":
        return b
    if a.name == b.name == "object":
        first, second = dict(a.members), dict(b.members)
        null = JsonType("null")
        names = dict.fromkeys([*first, *second])
        members = [(n, _merged(first.get(n, null), second.get(n, null))) for n in names]
        return JsonType("object", tuple(members))
    if a.item is not None and b.item is not None:
        return JsonType("list", item=_merged(a.item, b.item))
    if {a.name, b.name} <= _NUMBERS:
        return _merged_numbers(a, b)
    return JsonType("any")


def _merged_numbers(a: JsonType, b: JsonType) -> JsonType:
    names = {a.name, b.name}
    wide = a.wide or b.wide
    large = a.large or b.large
    if names == {"int64"}:
        return JsonType("int64", wide=wide, large=large)
    if "float" in names and names <= {"int64", "float"} and not wide:
        fraction = a.fraction or b.fraction
        return JsonType("float", large=large, fraction=fraction)
    return JsonType("number")


def unknown_member(value: Any, kind: JsonType, path: str = "") -> str:
    """Returns the first member in a value that its type does not have, or nothing."""
    if isinstance(value, list):
        inner = kind.item or NO_COLUMNS
        items = value if inner.members else ()
        return next(filter(None, (unknown_member(v, inner, path) for v in items)), "")
    if not isinstance(value, dict) or kind.name != "object":
        return ""
    members = dict(kind.members)
    for name, item in value.items():
        own = members.get(name)
        if own is None:
            return f"{path}{name}"
        # Most are numbers and texts, and are not worth a call.
        if isinstance(item, dict | list) and (
            unknown := unknown_member(item, own, f"{path}{name}/")
        ):
            return unknown
    return ""


def clashes(
    a: JsonType, b: JsonType, path: str = ""
) -> Iterator[tuple[str, JsonType, JsonType]]:
    """Yields the columns that are of one type in `a` and of another in `b`."""
    if a.name == b.name == "object":
        first = dict(a.members)
        for name, inner in b.members:
            if name in first:
                where = f"{path}/{name}" if path else name
                yield from clashes(first[name], inner, where)
    elif a.item is not None and b.item is not None:
        yield from clashes(a.item, b.item, path)
    elif "any" not in (a.name, b.name) and merged([a, b]).name == "any":
        yield path, a, b
