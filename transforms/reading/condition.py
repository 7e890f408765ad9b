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
Arrow expression. Logic has three values, as in SQL: a comparison with a missing value
is unknown (null); `and`, `or` and `not` make of it what they can. What is compared:

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
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.schema import Feature, Kind
from transforms.errors import SpecError, bounded, nearest, shortened

_Sign = Callable[[Any, Any], Any]
_SIGNS: Mapping[type, _Sign] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_SWAPPED = {
    operator.lt: operator.gt,
    operator.le: operator.ge,
    operator.gt: operator.lt,
    operator.ge: operator.le,
}
# How a literal is written for each kind that can be compared with one.
_LITERALS = {
    Kind.INT64: "a number",
    Kind.FLOAT: "a number",
    Kind.BOOL: "True or False, by == or !=",
    Kind.TEXT: "text in quotes",
    Kind.LABEL: "a class name in quotes, by == or !=, or a class id",
    Kind.TIMESTAMP: "text in ISO 8601, as '2024-05-01T12:00:00Z'",
}
_TYPES = {Kind.FLOAT: pa.float32(), Kind.BOOL: pa.bool_(), Kind.TEXT: pa.string()}
_INT64 = range(-(2**63), 2**63)
_UNKNOWN = pa.scalar(None, pa.bool_())
_MAX_BYTES = 1 << 20
# Texts in quotes, of which Python reports those that do not end; names in backticks;
# and what stands for itself.
_TOKENS = re.compile(
    r"""'(?:\\.|[^'\\])*+'? | "(?:\\.|[^"\\])*+"? | `(?:[^`]|``)*+` | [`\#\s]""",
    re.DOTALL | re.VERBOSE,
)
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_FRACTION = re.compile(r"(?<=:\d\d)[.,](\d+)")


@dataclasses.dataclass(frozen=True, slots=True)
class Condition:
    """A condition that was parsed and checked.

    Attributes:
      features: that it needs, by name.
      expression: over their columns; labels as ids, timestamps as int64.
    """

    features: Mapping[str, Feature]
    expression: pc.Expression

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the features, in the order of the text."""
        return tuple(self.features)

    def mask(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Tells for each of n rows whether the condition holds; null for unknown.

        Args:
          batch: has the columns; labels as ids, timestamps as such or as int64 in the
            feature's unit.
        """
        # Loaded where a condition is evaluated.
        from pyarrow import acero

        rows = pa.table(
            {n: _comparable(batch.column(n), f) for n, f in self.features.items()}
        )
        source = acero.Declaration("table_source", acero.TableSourceNodeOptions(rows))
        holds = acero.ProjectNodeOptions([self.expression], ["holds"])
        plan = acero.Declaration("project", holds, [source])
        # One thread keeps the order of the rows.
        return plan.to_table(use_threads=False).column(0).combine_chunks()

    def certain(self, batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Tells for each of n rows whether the condition holds for certain."""
        holds = self.mask(batch).fill_null(False)
        return np.asarray(holds.to_numpy(zero_copy_only=False))


def _comparable(column: pa.Array, feature: Feature) -> pa.Array:
    """Returns a column in the type that literals have; one of lists as it is."""
    if not _is_single(feature):
        return column
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp(feature.unit or "s"))
    return column.cast(_literal_type(feature))


def _in_words(feature: Feature) -> str:
    """Returns name and kind of a feature, as the errors about conditions show them."""
    kind = f"list of {feature.kind}" if feature.shape else feature.kind
    return f"feature {feature.name!r} ({kind})"


def _is_single(feature: Feature) -> bool:
    """Tells whether rows hold one value that can be compared."""
    return not feature.shape and feature.kind in _LITERALS


def _literal_type(feature: Feature) -> pa.DataType:
    """Returns the Arrow type that a feature is compared in: int64 for ids and times."""
    return _TYPES.get(feature.kind, pa.int64())


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
      SpecError: the text is no condition over these features; quotes what is wrong.
    """
    parser = _Parser(text, {feature.name: feature for feature in features}, classes)
    try:
        expression = parser.expression(parser.parsed())
    except RecursionError:
        parser.refuse("it is nested too deeply; write fewer parentheses")
    return Condition(parser.used, expression)


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
    """Turns one text into an expression; notes the features that it names.

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
            raise SpecError(f"a condition must be a text; found {text!r:.80}")
        self._text = text
        # Python takes an expression that begins with a space for indented.
        self._bytes = text.lstrip().encode(errors="replace")
        self._features = features
        self._classes = classes
        self.used: dict[str, Feature] = {}

    def parsed(self) -> ast.expr:
        """Returns the expression, which is not evaluated; raises SpecError."""
        if len(self._bytes) > _MAX_BYTES:
            self.refuse(f"it must have at most {_MAX_BYTES:,} bytes")

        def replaced(found: re.Match[str]) -> str:
            token = found[0]
            if token in ("`", "#"):
                self.refuse(f"a {token} alone cannot be part of it")
            if token.isspace() or token.startswith("`"):
                return (" " if token.isspace() else "_") * len(token.encode())
            return token

        source = _TOKENS.sub(replaced, self._text.lstrip())
        try:
            return ast.parse(source, mode="eval").body
        except SyntaxError as error:
            before = source[: max((error.offset or 1) - 1, 0)].encode()
            why, rest = error.msg, self._bytes[len(before) :]
        except (ValueError, MemoryError) as error:
            why, rest = str(error) or "too deep", b""
        near = f" at {shortened(rest.decode(errors='replace'))!r}" if rest else ""
        self.refuse(
            f"Python cannot parse it{near} ({why}); write as in label == 'dog'; names "
            f"that Python does not take, such as class or a b, are in backticks"
        )

    def expression(self, node: ast.expr) -> pc.Expression:
        """Returns a part of the condition."""
        match node:
            case ast.BoolOp(op=op, values=values):
                both = operator.and_ if isinstance(op, ast.And) else operator.or_
                return _joined(both, [*map(self.expression, values)])
            case ast.UnaryOp(op=ast.Not()):
                return ~self.expression(node.operand)
            case ast.Compare(left=left, ops=signs, comparators=others):
                pairs = zip([left, *others], signs, others, strict=False)
                return _joined(operator.and_, [self._pair(*pair) for pair in pairs])
            case ast.Name():
                feature = self._feature(node)
                if feature.kind is Kind.BOOL and not feature.shape:
                    return pc.field(feature.name)
                self.refuse(
                    f"{_in_words(feature)} is not true or false; compare it", node
                )
        self._refuse_node(node, "a comparison, as in height > 400")

    def _pair(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> pc.Expression:
        if isinstance(op, ast.Is | ast.IsNot):
            if not (isinstance(right, ast.Constant) and right.value is None):
                self.refuse("'is' must be followed by None; use == for values", right)
            missing = pc.field(self._feature(left).name).is_null()
            return missing if isinstance(op, ast.Is) else ~missing
        if isinstance(op, ast.In | ast.NotIn):
            membership = self._one_of(self._single(left), right)
            return membership if isinstance(op, ast.In) else ~membership
        sign = _SIGNS[type(op)]
        if not isinstance(left, ast.Name) and isinstance(right, ast.Name):
            left, right, sign = right, left, _SWAPPED.get(sign, sign)
        feature = self._single(left)
        if isinstance(right, ast.Name):
            other = self._single(right)
            self._check_alike(feature, other, sign, right)
            return sign(pc.field(feature.name), pc.field(other.name))
        return _compared(feature, sign, self._value(feature, sign, right))

    def _single(self, node: ast.expr) -> Feature:
        """Returns the feature that a name stands for, whose values can be compared."""
        feature = self._feature(node)
        if not _is_single(feature):
            self.refuse(
                f"{_in_words(feature)} can be compared with None only: "
                f"{quoted(feature.name)} is not None",
                node,
            )
        return feature

    def _feature(self, node: ast.expr) -> Feature:
        """Returns the feature that a name stands for."""
        if not isinstance(node, ast.Name):
            self._refuse_node(node, "the name of a feature")
        # As it was written: Python normalises names.
        name = self._written(node)
        if name.startswith("`"):
            name = name[1:-1].replace("``", "`")
        feature = self._features.get(name)
        if feature is None:
            end = nearest(name, self._features)
            labels = [label for label, names in self._classes.items() if name in names]
            if labels:
                end = f"; for the class of {labels[0]!r} write {name!r} in quotes"
            self.refuse(f"there is no feature {shortened(name)!r}{end}", node)
        self.used[name] = feature
        return feature

    def _check_alike(
        self, one: Feature, other: Feature, sign: _Sign, node: ast.expr
    ) -> None:
        """Refuses to compare two features whose values mean different things."""
        has_order = sign not in (operator.eq, operator.ne)
        facts = [
            (feature.kind, feature.unit or "s", self._classes.get(feature.name, ()))
            for feature in (one, other)
        ]
        if facts[0] != facts[1] or (has_order and one.kind in (Kind.BOOL, Kind.LABEL)):
            self.refuse(
                f"{_in_words(one)} and {_in_words(other)} must have one kind, unit and "
                f"class names; bools and labels have no order",
                node,
            )

    def _one_of(self, feature: Feature, node: ast.expr) -> pc.Expression:
        if not isinstance(node, ast.Tuple | ast.List | ast.Set):
            self.refuse("'in' must be followed by literals: in ('a', 'b')", node)
        values = [self._value(feature, operator.eq, element) for element in node.elts]
        # Values that no row can have are left out: 0.5 for an int64.
        exact = [
            v for v in (_exact(feature, value) for value in values) if v is not None
        ]
        if feature.kind is Kind.FLOAT and 0 in exact:
            # To a set, 0.0 and -0.0 are two values.
            exact += [0.0, -0.0]
        field = pc.field(feature.name)
        matches = field.isin(pa.array(exact, _literal_type(feature)))
        return pc.if_else(field.is_valid(), matches, _UNKNOWN)

    def _value(self, feature: Feature, sign: _Sign, node: ast.expr) -> Any:
        """Returns what a literal means beside a feature: a class name its id."""
        try:
            value = ast.literal_eval(node)
        except (ValueError, TypeError):
            self._refuse_node(node, "the name of a feature or a literal")
        if value is None:
            self.refuse("None is compared with 'is None' or 'is not None'", node)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if isinstance(value, int) and value not in _INT64:
            self.refuse("an int must be from -2**63 to 2**63 - 1", node)
        has_order = sign not in (operator.eq, operator.ne)
        match feature.kind:
            case Kind.INT64 | Kind.FLOAT if is_number:
                return value
            case Kind.BOOL if isinstance(value, bool) and not has_order:
                return value
            case Kind.TEXT if isinstance(value, str):
                return value
            case Kind.LABEL if is_number and isinstance(value, int):
                return value
            case Kind.LABEL if isinstance(value, str) and not has_order:
                names = self._classes.get(feature.name, ())
                if value in names:
                    return names.index(value)
                self.refuse(
                    f"label {feature.name!r} has no class {shortened(value)!r}"
                    f"{nearest(value, names) if names else '; compare it with an id'}",
                    node,
                )
            case Kind.TIMESTAMP if isinstance(value, str):
                return self._moment(value, node) * _PER_SECOND[feature.unit or "s"]
        self.refuse(
            f"{_in_words(feature)} is compared with {_LITERALS[feature.kind]}", node
        )

    def _moment(self, text: str, node: ast.expr) -> Fraction:
        """Returns the seconds since 1970 of a text in ISO 8601."""
        digits = _FRACTION.search(text)
        fraction = Fraction(f"0.{digits[1]}") if digits else Fraction(0)
        try:
            moment = datetime.datetime.fromisoformat(_FRACTION.sub("", text))
        except ValueError as error:
            self.refuse(
                f"{shortened(text)!r} is no time ({error}); write "
                f"{_LITERALS[Kind.TIMESTAMP]}",
                node,
            )
        past = moment.replace(tzinfo=moment.tzinfo or datetime.UTC) - _EPOCH
        return Fraction(past // datetime.timedelta(microseconds=1), 10**6) + fraction

    def _written(self, node: ast.expr) -> str:
        """Returns the part of the text that a node was parsed from."""
        return self._bytes[node.col_offset : node.end_col_offset].decode()

    def _refuse_node(self, node: ast.expr, instead: str) -> NoReturn:
        is_name = isinstance(node, ast.BinOp | ast.Attribute)
        name = "; a name like image/height is in backticks" if is_name else ""
        self.refuse(
            f"{type(node).__name__} cannot be here; write {instead}{name}", node
        )

    def refuse(self, what: str, node: ast.expr | None = None) -> NoReturn:
        """Raises SpecError about a part of the text, or all of it."""
        where = "" if node is None else f" at {shortened(self._written(node))!r}:"
        raise SpecError(bounded(f"condition {shortened(self._text)!r}:{where} {what}"))


def _joined(both: _Sign, terms: Sequence[pc.Expression]) -> pc.Expression:
    """Returns terms joined by an operator, nested as little as they can be."""
    if len(terms) == 1:
        return terms[0]
    half = len(terms) // 2
    return both(_joined(both, terms[:half]), _joined(both, terms[half:]))


def _exact(feature: Feature, value: Any) -> Any:
    """Returns the value of the feature's type that equals a literal; None for none."""
    if feature.kind is Kind.FLOAT:
        with np.errstate(over="ignore"):
            rounded = float(np.float32(value))
        # A float is rounded as the stored values were; an int is exact.
        return rounded if isinstance(value, float) or rounded == value else None
    if feature.kind in (Kind.INT64, Kind.TIMESTAMP):
        is_whole = math.isfinite(value) and value == math.floor(value)
        return int(value) if is_whole and int(value) in _INT64 else None
    return value


def _compared(feature: Feature, sign: _Sign, value: Any) -> pc.Expression:
    """Returns a comparison of a feature with a literal; numbers are not rounded."""
    field, kind = pc.field(feature.name), _literal_type(feature)
    exact = _exact(feature, value)
    if exact is not None:
        return sign(field, pa.scalar(exact, kind))
    if sign in (operator.eq, operator.ne):
        holds = pa.scalar(sign is operator.ne)
        return pc.if_else(field.is_valid(), holds, _UNKNOWN)
    is_below = sign in (operator.lt, operator.le)
    if feature.kind is not Kind.FLOAT and value < _INT64[0]:
        return (operator.lt if is_below else operator.ge)(field, _INT64[0])
    # The largest value of the type that is below the literal.
    below: Any = min(math.floor(min(value, 2**64)), _INT64[-1])
    if feature.kind is Kind.FLOAT:
        near = np.float32(value)
        below = np.nextafter(near, np.float32(-np.inf)) if near > value else near
    return (operator.le if is_below else operator.gt)(field, pa.scalar(below, kind))
