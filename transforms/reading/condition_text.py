"""Conditions over features, as text: "label == 'dog' and height > 400".

    condition   = condition "and" | "or" condition | "not" condition | "(" condition ")"
                | value operator value [operator value ...] | name ["not"] "in" literals
                | name "is" ["not"] "None" | the name of a bool feature
    operator    = "==" | "!=" | "<" | "<=" | ">" | ">="
    value       = name | literal
    name        = an identifier | any name in backticks, where two stand for one:
                  `image/height`, `a``b`
    literal     = a text | an int | a float | "-" a number | True | False
    literals    = "(" literal, ... ")", or with [] or {}

It is Python's syntax. Python parses the text and never evaluates it. What is compared:

| feature   | with                                                                |
| --------- | ------------------------------------------------------------------- |
| int64     | numbers                                                             |
| float     | numbers; a float literal is rounded to float32, as the values are   |
| bool      | True, False                                                         |
| text      | text                                                                |
| label     | text: a class name (==, !=, in); an int: a class id                 |
| timestamp | text in ISO 8601; in UTC where it has no offset                     |

or with another feature of the same kind. Every feature can be compared with None.

Before Python parses the text, a name in backticks becomes an identifier of as many
bytes, and space of any kind as many blanks. So each node of the result has the place of
its own bytes in the text.
"""

import ast
import dataclasses
import datetime
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, NoReturn

from transforms.core.schema import Feature, Kind
from transforms.errors import SpecError, bounded, nearest, shortened
from transforms.reading.condition import (
    LITERALS,
    SWAPPED,
    Compared,
    Condition,
    Term,
    all_of,
    any_of,
    compared_columns,
    flag,
    float32_comparison,
    integer_comparison,
    inverted,
    is_missing,
    is_single,
    one_of,
)

_MAX_BYTES = 1 << 20
# Texts in quotes, of which Python reports those that do not end; names in backticks;
# and what stands for itself.
_TOKENS = re.compile(
    r"""'(?:\\.|[^'\\])*+'? | "(?:\\.|[^"\\])*+"? | `(?:[^`]|``)*+` | [`\#\s]""",
    re.DOTALL | re.VERBOSE,
)
_OPERATORS = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_FRACTION = re.compile(r"(?<=:\d\d)[.,](\d+)")
_NUMBERS = (Kind.INT64, Kind.FLOAT)


def parse_condition(
    text: str, features: Sequence[Feature], classes: Mapping[str, Sequence[str]]
) -> Condition:
    """Returns the condition that a text states.

        >>> import pyarrow as pa
        >>> size = Feature("height", Kind.INT64)
        >>> tall = parse_condition("height > 400", [size], {})
        >>> tall.mask(pa.record_batch({"height": [300, 500, None]})).to_pylist()
        [False, True, None]

    Args:
      text: the condition.
      features: that it may name.
      classes: by label, its class names in the order of their ids.

    Raises:
      SpecError: the text is no condition over these features. The message names the
        character, counted from 1, and what to write.
    """
    source = ConditionText(text)
    parser = _Parser(source, {each.name: each for each in features}, classes)
    try:
        term = parser.term(source.parsed())
    except RecursionError:
        raise source.error(
            0, "it is nested too deeply; write fewer parentheses"
        ) from None
    used = tuple(parser.used)
    named = {name: parser.features[name] for name in used}
    known = {name: classes[name] for name in used if name in classes}
    return Condition(text, used, named, known, term)


class ConditionText:
    """A condition as the user wrote it.

    Raises:
      SpecError: it is no text, or too long.
    """

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            kind = type(text).__name__
            raise SpecError(f"a condition must be a text; found a {kind}")
        self._text = text
        try:
            self._bytes = text.encode()
        except UnicodeEncodeError as error:
            raise self.error(error.start, "a surrogate is no character") from None
        if len(self._bytes) > _MAX_BYTES:
            raise self.error(0, f"it must have at most {_MAX_BYTES:,} bytes")
        # Python takes an expression that begins with a space for indented.
        self._lead = len(self._bytes) - len(text.lstrip().encode())

    def parsed(self) -> ast.expr:
        """Returns the expression, which is not evaluated.

        Raises:
          SpecError: it is none.
        """
        source = self._python_source()[self._lead :]
        try:
            return ast.parse(source, mode="eval").body
        except SyntaxError as error:
            before = source[: max((error.offset or 1) - 1, 0)].encode()
            at = self._place(self._lead + len(before))
            what = f"Python cannot parse it ({error.msg}); write as in label == 'dog'"
            raise self.error(at, what) from None
        except (ValueError, MemoryError) as error:
            what = f"Python cannot parse it ({error or 'too deep'})"
            raise self.error(0, what) from None

    def name(self, node: ast.Name) -> str:
        """Returns the name at a node as it was written: Python normalises names."""
        start, stop = self._span(node)
        written = self._bytes[start:stop].decode()
        if not written.startswith("`"):
            return written
        return written[1:-1].replace("``", "`")

    def place_of(self, node: ast.expr) -> int:
        """Returns the number of characters before a node."""
        return self._place(self._span(node)[0])

    def error(self, place: int, what: str) -> SpecError:
        """Returns an error about the character at a place, counted from 0."""
        shown = shortened(
            self._text[max(place - 20, 0) :].strip() or self._text.strip()
        )
        return SpecError(
            bounded(f"condition, character {place + 1:,} (at {shown!r}): {what}")
        )

    def _python_source(self) -> str:
        """Returns the text with names in backticks as identifiers of the same bytes."""

        def replaced(found: re.Match[str]) -> str:
            part = found[0]
            if part == "`":
                what = "a name in backticks must end with a backtick"
                raise self.error(found.start(), what)
            if part == "#":
                raise self.error(found.start(), "a comment cannot be part of it")
            if part.isspace() or part.startswith("`"):
                return (" " if part.isspace() else "_") * len(part.encode())
            return part

        return _TOKENS.sub(replaced, self._text)

    def _span(self, node: ast.expr) -> tuple[int, int]:
        """Returns the bytes of the text that a node was parsed from."""
        stop = node.end_col_offset or node.col_offset
        return self._lead + node.col_offset, self._lead + stop

    def _place(self, before: int) -> int:
        """Returns how many characters are in the first bytes of the text."""
        return len(self._bytes[:before].decode(errors="ignore"))


def quoted(name: str) -> str:
    """Returns the name of a feature as a condition has it.

    >>> quoted("height"), quoted("image/height"), quoted("a`b")
    ('height', '`image/height`', '`a``b`')
    """
    if name.isidentifier():
        return name
    doubled = name.replace("`", "``")
    return f"`{doubled}`"


@dataclasses.dataclass(frozen=True, slots=True)
class _Literal:
    value: Any
    node: ast.expr


class _Parser:
    """Turns one text into a term; `used` are the features that it names."""

    def __init__(
        self,
        text: ConditionText,
        features: Mapping[str, Feature],
        classes: Mapping[str, Sequence[str]],
    ) -> None:
        self._text = text
        self.features = features
        self.classes = classes
        self.used: dict[str, None] = {}

    def term(self, node: ast.expr) -> Term:
        match node:
            case ast.BoolOp(op=ast.And()):
                return all_of([*map(self.term, node.values)])
            case ast.BoolOp():
                return any_of([*map(self.term, node.values)])
            case ast.UnaryOp(op=ast.Not()):
                return inverted(self.term(node.operand))
            case ast.Compare():
                return self._compare(node)
            case ast.Name():
                feature = self._feature(node)
                if feature.kind is not Kind.BOOL or feature.shape:
                    self._refuse(
                        node,
                        f"feature {feature.name!r} is a {feature.kind}, not true or "
                        f"false; compare it, as in {quoted(feature.name)} is not None",
                    )
                return flag(feature.name)
        self._refuse(node, f"{_found(node)}; write a comparison, as in height > 400")

    def _compare(self, node: ast.Compare) -> Term:
        sides = [node.left, *node.comparators]
        terms = [
            self._pair(left, op, right)
            for left, op, right in zip(sides, node.ops, sides[1:], strict=False)
        ]
        return terms[0] if len(terms) == 1 else all_of(terms)

    def _pair(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> Term:
        if isinstance(op, ast.Is | ast.IsNot):
            if not (isinstance(right, ast.Constant) and right.value is None):
                self._refuse(right, "'is' must be followed by None; use == for values")
            missing = is_missing(self._feature(left).name)
            return missing if isinstance(op, ast.Is) else inverted(missing)
        if isinstance(op, ast.In | ast.NotIn):
            found = self._one_of(self._feature(left), right)
            return found if isinstance(op, ast.In) else inverted(found)
        sign = _OPERATORS[type(op)]
        first, second = self._operand(left), self._operand(right)
        if isinstance(first, Feature) and isinstance(second, Feature):
            return self._two_features(first, sign, second, right)
        if isinstance(first, Feature) and isinstance(second, _Literal):
            return self._with_literal(first, sign, second)
        if isinstance(first, _Literal) and isinstance(second, Feature):
            return self._with_literal(second, SWAPPED[sign], first)
        self._refuse(left, "two literals are compared; one side must be a feature")

    def _operand(self, node: ast.expr) -> "Feature | _Literal":
        if isinstance(node, ast.Name):
            feature = self._feature(node)
            if not is_single(feature):
                what = f"a list of {feature.kind}" if feature.shape else feature.kind
                self._refuse(
                    node,
                    f"feature {feature.name!r} is {what}, which can be compared with "
                    f"None only: {quoted(feature.name)} is not None",
                )
            return feature
        return self._literal(node)

    def _feature(self, node: ast.expr) -> Feature:
        """Returns the feature that a name stands for."""
        if not isinstance(node, ast.Name):
            self._refuse(node, f"{_found(node)}; write the name of a feature")
        name = self._text.name(node)
        feature = self.features.get(name)
        if feature is None:
            end = nearest(name, self.features)
            labels = [label for label, known in self.classes.items() if name in known]
            if labels:
                end = f"; for the class of {labels[0]!r} write {name!r} in quotes"
            self._refuse(node, f"there is no feature {shortened(name)!r}{end}")
        self.used[name] = None
        return feature

    def _literal(self, node: ast.expr) -> _Literal:
        match node:
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=value)):
                sign = -1
            case ast.Constant(value=value):
                sign = 1
            case _:
                value, sign = None, 0
        if sign == 1 and value is None:
            self._refuse(node, "None is compared with 'is None' or 'is not None'")
        if isinstance(value, bool | str) and sign == 1:
            return _Literal(value, node)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._refuse(
                node, f"{_found(node)}; write the name of a feature or a literal"
            )
        if isinstance(value, int) and not -(2**63) <= sign * value < 2**63:
            self._refuse(node, "an int must be from -2**63 to 2**63 - 1")
        return _Literal(sign * value, node)

    def _one_of(self, feature: Feature, node: ast.expr) -> Term:
        if not is_single(feature):
            self._refuse(
                node, f"feature {feature.name!r} can be compared with None only"
            )
        if not isinstance(node, ast.Tuple | ast.List | ast.Set):
            self._refuse(node, "'in' must be followed by literals: in ('a', 'b')")
        terms = [
            self._with_literal(feature, "==", self._literal(each)) for each in node.elts
        ]
        if feature.kind is Kind.FLOAT and terms:
            # To a set, 0.0 and -0.0 are two values.
            return any_of(terms)
        # Values that no row can have are left out: 0.5 for an int64.
        values = [each.value for each in terms if isinstance(each, Compared)]
        return one_of(feature.name, values)

    def _with_literal(self, feature: Feature, sign: str, literal: _Literal) -> Term:
        name, value = feature.name, literal.value
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if feature.kind is Kind.INT64 and is_number:
            return integer_comparison(name, sign, value)
        if feature.kind is Kind.FLOAT and is_number:
            return float32_comparison(name, sign, value)
        if feature.kind is Kind.BOOL and isinstance(value, bool):
            if sign not in ("==", "!="):
                self._refuse(literal.node, "True and False are compared with == and !=")
            return Compared(name, sign, value)
        if feature.kind is Kind.TEXT and isinstance(value, str):
            return Compared(name, sign, value)
        if feature.kind is Kind.LABEL and is_number and isinstance(value, int):
            return Compared(name, sign, value)
        if feature.kind is Kind.LABEL and isinstance(value, str):
            if sign not in ("==", "!="):
                self._refuse(
                    literal.node,
                    f"class names have no order; use == or an id of {name!r}",
                )
            return Compared(name, sign, self._class_id(feature, literal))
        if feature.kind is Kind.TIMESTAMP and isinstance(value, str):
            moment = self._moment(literal) * _PER_SECOND[feature.unit or "s"]
            return integer_comparison(name, sign, moment)
        self._refuse(
            literal.node,
            f"feature {name!r} is a {feature.kind}; compare it with "
            f"{LITERALS[feature.kind]}",
        )

    def _class_id(self, feature: Feature, literal: _Literal) -> int:
        names = self.classes.get(feature.name, ())
        try:
            return names.index(literal.value)
        except ValueError:
            pass
        if not names:
            end = "; it has no class names, so compare it with an id"
        else:
            end = nearest(literal.value, names)
        self._refuse(
            literal.node,
            f"label {feature.name!r} has no class {shortened(literal.value)!r}{end}",
        )

    def _moment(self, literal: _Literal) -> Fraction:
        """Returns the seconds since 1970 of a text in ISO 8601."""
        digits = _FRACTION.search(literal.value)
        part = Fraction(f"0.{digits[1]}") if digits else Fraction(0)
        try:
            found = datetime.datetime.fromisoformat(_FRACTION.sub("", literal.value))
        except ValueError as error:
            self._refuse(
                literal.node,
                f"{shortened(literal.value)!r} is no time ({error}); write "
                f"{LITERALS[Kind.TIMESTAMP]}",
            )
        if found.tzinfo is None:
            found = found.replace(tzinfo=datetime.UTC)
        past = found - _EPOCH
        return (
            past.days * 86_400
            + past.seconds
            + Fraction(past.microseconds, 10**6)
            + part
        )

    def _two_features(
        self, left: Feature, sign: str, right: Feature, node: ast.expr
    ) -> Term:
        kinds = {left.kind, right.kind}
        fits = len(kinds) == 1 or kinds == set(_NUMBERS)
        if left.kind is Kind.TIMESTAMP and left.unit != right.unit:
            fits = False
        if left.kind is Kind.LABEL:
            same = self.classes.get(left.name, ()) == self.classes.get(right.name, ())
            fits = fits and same
        if not fits:
            self._refuse(
                node,
                f"features {left.name!r} ({left.kind}) and {right.name!r} "
                f"({right.kind}) must have the same kind, unit and class names",
            )
        if left.kind in (Kind.BOOL, Kind.LABEL) and sign not in ("==", "!="):
            self._refuse(
                node, f"features that are a {left.kind} are compared with == or !="
            )
        return compared_columns(left.name, sign, right.name)

    def _refuse(self, node: ast.expr, what: str) -> NoReturn:
        raise self._text.error(self._text.place_of(node), what)


def _found(node: ast.expr) -> str:
    """Returns what a node is, for one that has no place in a condition."""
    match node:
        case ast.BinOp() | ast.Attribute() | ast.Subscript():
            return "there is no arithmetic; a name like image/height is in backticks"
        case ast.Call():
            return "functions cannot be called"
        case ast.Constant():
            return "a literal alone is no condition"
        case ast.JoinedStr():
            return "a text cannot be formatted"
        case ast.NamedExpr() | ast.Lambda():
            return "nothing can be defined"
    return f"this part ({type(node).__name__}) cannot be in a condition"
