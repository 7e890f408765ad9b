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
"""

import ast
import dataclasses
import datetime
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.schema import Feature, Kind
from transforms.errors import nearest, shortened
from transforms.reading.condition_text import ConditionText, quoted
from transforms.reading.terms import (
    SWAPPED,
    AllOf,
    AnyOf,
    Compared,
    ComparedColumns,
    Flag,
    IsMissing,
    Not,
    OneOf,
    Term,
    float32_comparison,
    integer_comparison,
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
# Kinds whose values can be compared with a literal, and how one is written.
_LITERALS = {
    Kind.INT64: "a number",
    Kind.FLOAT: "a number",
    Kind.BOOL: "True or False",
    Kind.TEXT: "text in quotes",
    Kind.LABEL: "a class name in quotes or a class id",
    Kind.TIMESTAMP: "text in ISO 8601, as '2024-05-01T12:00:00Z'",
}
_NUMBERS = (Kind.INT64, Kind.FLOAT)


@dataclasses.dataclass(frozen=True, slots=True)
class Condition:
    """A condition that was parsed and checked.

    Attributes:
      text: as the user wrote it.
      columns: the features that it needs, each once.
    """

    text: str
    columns: tuple[str, ...]
    _features: Mapping[str, Feature]
    _classes: Mapping[str, Sequence[str]]
    _term: Term

    def mask(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Tells for each of n rows whether the condition holds.

        Args:
          batch: has the columns; labels as names, as a dictionary of names, or as ids,
            timestamps as such or as int64 in the feature's unit.

        Returns:
          n values; null where a missing value leaves it unknown.
        """
        columns = {name: self._column(batch, name) for name in self.columns}
        return self._term(columns)

    def _column(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        feature, column = self._features[name], batch.column(name)
        if not _is_single(feature):
            return column
        if feature.kind is Kind.LABEL:
            return _class_ids(column, self._classes.get(name, ()))
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if feature.kind is Kind.TIMESTAMP and pa.types.is_timestamp(column.type):
            return column.cast(pa.timestamp(feature.unit or "s")).cast(pa.int64())
        if feature.kind is Kind.BOOL:
            return column.cast(pa.bool_())
        return column


def _class_ids(column: pa.Array, names: Sequence[str]) -> pa.Array:
    if pa.types.is_integer(column.type):
        return column.cast(pa.int64())
    if pa.types.is_dictionary(column.type):
        ids = pc.index_in(column.dictionary, value_set=_names(names, column.dictionary))
        return ids.cast(pa.int64()).take(column.indices)
    return pc.index_in(column, value_set=_names(names, column)).cast(pa.int64())


def _names(names: Sequence[str], like: pa.Array) -> pa.Array:
    return pa.array(names, like.type)


def parse_condition(
    text: str, features: Sequence[Feature], classes: Mapping[str, Sequence[str]]
) -> Condition:
    """Returns the condition that a text states.

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


def _is_single(feature: Feature) -> bool:
    """Tells whether rows hold one value that can be compared."""
    return not feature.shape and feature.kind in _LITERALS


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
                return AllOf(tuple(map(self.term, node.values)))
            case ast.BoolOp():
                return AnyOf(tuple(map(self.term, node.values)))
            case ast.UnaryOp(op=ast.Not()):
                return Not(self.term(node.operand))
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
                return Flag(feature.name)
        self._refuse(node, f"{_found(node)}; write a comparison, as in height > 400")

    def _compare(self, node: ast.Compare) -> Term:
        sides = [node.left, *node.comparators]
        terms = [
            self._pair(left, op, right)
            for left, op, right in zip(sides, node.ops, sides[1:], strict=False)
        ]
        return terms[0] if len(terms) == 1 else AllOf(tuple(terms))

    def _pair(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> Term:
        if isinstance(op, ast.Is | ast.IsNot):
            if not (isinstance(right, ast.Constant) and right.value is None):
                self._refuse(right, "'is' must be followed by None; use == for values")
            missing = IsMissing(self._feature(left).name)
            return missing if isinstance(op, ast.Is) else Not(missing)
        if isinstance(op, ast.In | ast.NotIn):
            found = self._one_of(self._feature(left), right)
            return found if isinstance(op, ast.In) else Not(found)
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
            if not _is_single(feature):
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
            case ast.UnaryOp(
                op=ast.USub(), operand=ast.Constant(value=int() | float())
            ):
                value = node.operand.value  # type: ignore[attr-defined]
                if not isinstance(value, bool):
                    return self._checked(_Literal(-value, node))
            case ast.Constant(value=None):
                self._refuse(node, "None is compared with 'is None' or 'is not None'")
            case ast.Constant(value=str() | int() | float()):
                return self._checked(_Literal(node.value, node))
        self._refuse(node, f"{_found(node)}; write the name of a feature or a literal")

    def _checked(self, literal: _Literal) -> _Literal:
        value = literal.value
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            self._refuse(literal.node, "an int must be from -2**63 to 2**63 - 1")
        return literal

    def _one_of(self, feature: Feature, node: ast.expr) -> Term:
        if not _is_single(feature):
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
            return AnyOf(tuple(terms))
        # Values that no row can have are left out: 0.5 for an int64.
        values = [each.value for each in terms if isinstance(each, Compared)]
        return OneOf(feature.name, tuple(values))

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
            f"{_LITERALS[feature.kind]}",
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
                f"{_LITERALS[Kind.TIMESTAMP]}",
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
        return ComparedColumns(left.name, sign, right.name)

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
