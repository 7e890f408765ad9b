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

It is Python's syntax. Python parses the text and never evaluates it: it becomes an
Arrow expression. What is compared:

| feature   | with                                                                |
| --------- | ------------------------------------------------------------------- |
| int64     | numbers                                                             |
| float     | numbers; a float literal is rounded to float32, as the values are   |
| bool      | True, False                                                         |
| text      | text                                                                |
| label     | text: a class name (==, !=, in); an int: a class id                 |
| timestamp | text in ISO 8601; in UTC where it has no offset                     |

or with another feature of the same kind. Every feature can be compared with None.
"""

import ast
import datetime
import math
import operator
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.schema import Feature, Kind
from transforms.errors import SpecError, bounded, nearest, shortened
from transforms.reading.condition import (
    INT64,
    LITERALS,
    SWAPPED,
    UNKNOWN,
    Condition,
    Sign,
    compared,
    exactly_compared,
    is_single,
    joined,
    type_of,
)

_MAX_BYTES = 1 << 20
# Texts in quotes, of which Python reports those that do not end; names in backticks;
# and what stands for itself.
_TOKENS = re.compile(
    r"""'(?:\\.|[^'\\])*+'? | "(?:\\.|[^"\\])*+"? | `(?:[^`]|``)*+` | [`\#\s]""",
    re.DOTALL | re.VERBOSE,
)
_SIGNS: Mapping[type, Sign] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_FRACTION = re.compile(r"(?<=:\d\d)[.,](\d+)")


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
      SpecError: the text is no condition over these features. The message quotes the
        part that is at fault, and says what to write.
    """
    parser = _Parser(text, {each.name: each for each in features}, classes)
    try:
        expression = parser.expression(parser.parsed())
    except RecursionError:
        parser.refuse("it is nested too deeply; write fewer parentheses")
    used = {name: parser.features[name] for name in parser.used}
    known = {name: classes[name] for name in used if name in classes}
    return Condition(tuple(used), expression, used, known)


def quoted(name: str) -> str:
    """Returns the name of a feature as a condition has it.

    >>> quoted("height"), quoted("image/height"), quoted("a`b")
    ('height', '`image/height`', '`a``b`')
    """
    if name.isidentifier():
        return name
    doubled = name.replace("`", "``")
    return f"`{doubled}`"


class _Parser:
    """Turns one text into an expression; `used` are the features that it names.

    Before Python parses the text, a name in backticks becomes an identifier of as many
    bytes, and space of any kind as many blanks: each node has the place of its own
    bytes in the text.
    """

    def __init__(
        self,
        text: str,
        features: Mapping[str, Feature],
        classes: Mapping[str, Sequence[str]],
    ) -> None:
        if not isinstance(text, str):
            kind = type(text).__name__
            raise SpecError(f"a condition must be a text; found a {kind}")
        self._text = text
        # Python takes an expression that begins with a space for indented.
        self._bytes = text.lstrip().encode(errors="replace")
        self.features = features
        self.classes = classes
        self.used: dict[str, None] = {}

    def parsed(self) -> ast.expr:
        """Returns the expression, which is not evaluated.

        Raises:
          SpecError: it is none.
        """
        if len(self._bytes) > _MAX_BYTES:
            self.refuse(f"it must have at most {_MAX_BYTES:,} bytes")

        def replaced(found: re.Match[str]) -> str:
            part = found[0]
            if part == "`":
                self.refuse("a name in backticks must end with a backtick")
            if part == "#":
                self.refuse("a comment cannot be part of it")
            if part.isspace() or part.startswith("`"):
                return (" " if part.isspace() else "_") * len(part.encode())
            return part

        source = _TOKENS.sub(replaced, self._text.lstrip())
        try:
            return ast.parse(source, mode="eval").body
        except SyntaxError as error:
            before = source[: max((error.offset or 1) - 1, 0)].encode()
            why, part = error.msg, self._bytes[len(before) :]
        except (ValueError, MemoryError) as error:
            why, part = str(error) or "too deep", b""
        near = f" at {shortened(part.decode(errors='replace'))!r}" if part else ""
        self.refuse(f"Python cannot parse it{near} ({why}); write as in label == 'dog'")

    def expression(self, node: ast.expr) -> pc.Expression:
        """Returns a part of the condition."""
        match node:
            case ast.BoolOp(op=op, values=values):
                both = operator.and_ if isinstance(op, ast.And) else operator.or_
                return joined(both, [*map(self.expression, values)])
            case ast.UnaryOp(op=ast.Not()):
                return ~self.expression(node.operand)
            case ast.Compare(left=left, ops=signs, comparators=others):
                pairs = zip([left, *others], signs, others, strict=False)
                return joined(operator.and_, [self._pair(*pair) for pair in pairs])
            case ast.Name():
                feature = self._feature(node)
                if feature.kind is not Kind.BOOL or feature.shape:
                    self.refuse(
                        f"feature {feature.name!r} is a {feature.kind}, not true or "
                        f"false; compare it, as in {quoted(feature.name)} is not None",
                        node,
                    )
                return pc.field(feature.name)
        self.refuse(f"{_found(node)}; write a comparison, as in height > 400", node)

    def _pair(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> pc.Expression:
        if isinstance(op, ast.Is | ast.IsNot):
            if not (isinstance(right, ast.Constant) and right.value is None):
                self.refuse("'is' must be followed by None; use == for values", right)
            missing = pc.field(self._feature(left).name).is_null()
            return missing if isinstance(op, ast.Is) else ~missing
        if isinstance(op, ast.In | ast.NotIn):
            found = self._one_of(self._single(left), right)
            return found if isinstance(op, ast.In) else ~found
        sign = _SIGNS[type(op)]
        if not isinstance(left, ast.Name):
            if not isinstance(right, ast.Name):
                self._literal(left)
                self._literal(right)
                self.refuse("two literals are compared; one side must be a feature")
            left, right, sign = right, left, SWAPPED.get(sign, sign)
        feature = self._single(left)
        if isinstance(right, ast.Name):
            return self._two_features(feature, sign, self._single(right), right)
        return compared(feature, sign, self._value(feature, sign, right))

    def _single(self, node: ast.expr) -> Feature:
        """Returns the feature that a name stands for, whose values can be compared."""
        feature = self._feature(node)
        if not is_single(feature):
            what = f"a list of {feature.kind}" if feature.shape else feature.kind
            self.refuse(
                f"feature {feature.name!r} is {what}, which can be compared with "
                f"None only: {quoted(feature.name)} is not None",
                node,
            )
        return feature

    def _feature(self, node: ast.expr) -> Feature:
        """Returns the feature that a name stands for."""
        if not isinstance(node, ast.Name):
            self.refuse(f"{_found(node)}; write the name of a feature", node)
        # As it was written: Python normalises names.
        name = self._written(node)
        if name.startswith("`"):
            name = name[1:-1].replace("``", "`")
        feature = self.features.get(name)
        if feature is None:
            end = nearest(name, self.features)
            labels = [label for label, known in self.classes.items() if name in known]
            if labels:
                end = f"; for the class of {labels[0]!r} write {name!r} in quotes"
            self.refuse(f"there is no feature {shortened(name)!r}{end}", node)
        self.used[name] = None
        return feature

    def _literal(self, node: ast.expr) -> Any:
        sign, inner = 1, node
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            sign, inner = -1, node.operand
        value = inner.value if isinstance(inner, ast.Constant) else node
        if value is None:
            self.refuse("None is compared with 'is None' or 'is not None'", node)
        if sign == 1 and isinstance(value, bool | str):
            return value
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.refuse(
                f"{_found(node)}; write the name of a feature or a literal", node
            )
        if isinstance(value, int) and sign * value not in INT64:
            self.refuse("an int must be from -2**63 to 2**63 - 1", node)
        return sign * value

    def _one_of(self, feature: Feature, node: ast.expr) -> pc.Expression:
        if not isinstance(node, ast.Tuple | ast.List | ast.Set):
            self.refuse("'in' must be followed by literals: in ('a', 'b')", node)
        equal = operator.eq
        values = [self._value(feature, equal, each) for each in node.elts]
        if feature.kind is Kind.FLOAT and values:
            # To a set, 0.0 and -0.0 are two values.
            return joined(operator.or_, [compared(feature, equal, v) for v in values])
        if feature.kind in (Kind.INT64, Kind.TIMESTAMP):
            # Values that no row can have are left out: 0.5 for an int64.
            values = [int(v) for v in values if math.isfinite(v) and v == int(v)]
            values = [value for value in values if value in INT64]
        field = pc.field(feature.name)
        found = field.isin(pa.array(values, type_of(feature)))
        return pc.if_else(field.is_valid(), found, UNKNOWN)

    def _value(self, feature: Feature, sign: Sign, node: ast.expr) -> Any:
        """Returns what a literal means beside a feature: a class name its id."""
        value = self._literal(node)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        has_order = sign not in (operator.eq, operator.ne)
        match feature.kind:
            case Kind.INT64 | Kind.FLOAT if is_number:
                return value
            case Kind.BOOL if isinstance(value, bool):
                if has_order:
                    self.refuse("True and False are compared with == and !=", node)
                return value
            case Kind.TEXT if isinstance(value, str):
                return value
            case Kind.LABEL if is_number and isinstance(value, int):
                return value
            case Kind.LABEL if isinstance(value, str):
                if has_order:
                    self.refuse(
                        f"class names have no order; use == or an id of "
                        f"{feature.name!r}",
                        node,
                    )
                return self._class_id(feature, value, node)
            case Kind.TIMESTAMP if isinstance(value, str):
                return self._moment(value, node) * _PER_SECOND[feature.unit or "s"]
        self.refuse(
            f"feature {feature.name!r} is a {feature.kind}; compare it with "
            f"{LITERALS[feature.kind]}",
            node,
        )

    def _class_id(self, feature: Feature, name: str, node: ast.expr) -> int:
        names = self.classes.get(feature.name, ())
        if name in names:
            return names.index(name)
        end = nearest(name, names)
        if not names:
            end = "; it has no class names, so compare it with an id"
        self.refuse(
            f"label {feature.name!r} has no class {shortened(name)!r}{end}", node
        )

    def _moment(self, text: str, node: ast.expr) -> Fraction:
        """Returns the seconds since 1970 of a text in ISO 8601."""
        digits = _FRACTION.search(text)
        part = Fraction(f"0.{digits[1]}") if digits else Fraction(0)
        try:
            found = datetime.datetime.fromisoformat(_FRACTION.sub("", text))
        except ValueError as error:
            self.refuse(
                f"{shortened(text)!r} is no time ({error}); write "
                f"{LITERALS[Kind.TIMESTAMP]}",
                node,
            )
        past = found.replace(tzinfo=found.tzinfo or datetime.UTC) - _EPOCH
        return Fraction(past // datetime.timedelta(microseconds=1), 10**6) + part

    def _two_features(
        self, left: Feature, sign: Sign, right: Feature, node: ast.expr
    ) -> pc.Expression:
        kinds = {left.kind, right.kind}
        fits = len(kinds) == 1 or kinds == {Kind.INT64, Kind.FLOAT}
        if left.kind is Kind.TIMESTAMP and left.unit != right.unit:
            fits = False
        if left.kind is Kind.LABEL:
            same = self.classes.get(left.name, ()) == self.classes.get(right.name, ())
            fits = fits and same
        if not fits:
            self.refuse(
                f"features {left.name!r} ({left.kind}) and {right.name!r} "
                f"({right.kind}) must have the same kind, unit and class names",
                node,
            )
        has_order = sign not in (operator.eq, operator.ne)
        if left.kind in (Kind.BOOL, Kind.LABEL) and has_order:
            self.refuse(
                f"features that are a {left.kind} are compared with == or !=", node
            )
        first, second = pc.field(left.name), pc.field(right.name)
        if left.kind is right.kind:
            return sign(first, second)
        if right.kind is Kind.INT64:
            first, second, sign = second, first, SWAPPED.get(sign, sign)
        return exactly_compared(first, sign, second)

    def _written(self, node: ast.expr) -> str:
        """Returns the part of the text that a node was parsed from."""
        return self._bytes[node.col_offset : node.end_col_offset].decode()

    def refuse(self, what: str, node: ast.expr | None = None) -> NoReturn:
        """Raises SpecError about a part of the text, or all of it."""
        part = "" if node is None else f" at {shortened(self._written(node))!r}:"
        raise SpecError(bounded(f"condition {shortened(self._text)!r}:{part} {what}"))


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
