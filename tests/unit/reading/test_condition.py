"""Conditions over features: parsed, never evaluated, three-valued."""

import ast
import operator
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.core.schema import Feature, Kind
from transforms.errors import MAX_MESSAGE_BYTES, SpecError
from transforms.reading.condition import parse_condition

CLASSES = {"label": ["cat", "dog", "ewe"], "other": ["cat", "dog", "ewe"]}
FEATURES = [
    Feature("height", Kind.INT64),
    Feature("image/width", Kind.INT64),
    Feature("width", Kind.INT64),
    Feature("score", Kind.FLOAT),
    Feature("flag", Kind.BOOL),
    Feature("title", Kind.TEXT),
    Feature("label", Kind.LABEL),
    Feature("other", Kind.LABEL),
    Feature("bare", Kind.LABEL),
    Feature("taken", Kind.TIMESTAMP, unit="ms"),
    Feature("added", Kind.TIMESTAMP),
    Feature("boxes", Kind.BOX),
    Feature("sizes", Kind.INT64, shape=(None,)),
    Feature("größe", Kind.INT64),
    Feature("a`b", Kind.INT64),
    Feature("`", Kind.INT64),
]


def rows_of(**columns: list[Any]) -> pa.RecordBatch:
    """Rows with int64 for every whole number, and float32."""
    types = {"score": pa.float32(), "flag": pa.bool_(), "title": pa.string()}
    arrays = {
        name: pa.array(values, types.get(name, pa.int64()))
        for name, values in columns.items()
    }
    return pa.RecordBatch.from_pydict(arrays)


def holds(text: str, **columns: list[Any]) -> list[bool | None]:
    condition = parse_condition(text, FEATURES, CLASSES)
    assert set(condition.columns) <= set(columns)
    return list(condition.mask(rows_of(**columns)).to_pylist())


@pytest.mark.parametrize(
    ("text", "columns", "expected"),
    [
        ("height == 16777217.0", {"height": [16777216, 16777217]}, [False, True]),
        ("height >= 1e999", {"height": [2**63 - 1]}, [False]),
        ("\u2003größe\u2003==\u00a03 and `größe` == größe", {"größe": [3]}, [True]),
        ("`image/width` == 3", {"image/width": [3]}, [True]),
        ("`a``b` == 3 and ```` < 2", {"a`b": [3], "`": [1]}, [True]),
        ("größe >= 3", {"größe": [3, 2]}, [True, False]),
        ("'ä' != title and größe == 3", {"größe": [3], "title": ["a`b"]}, [True]),
        ("title == 'a`b'", {"title": ["a`b", "b"]}, [True, False]),
        ("score == 16777217", {"score": [16777216.0]}, [False]),
        ("score != 1", {"score": [float("nan"), 1.0]}, [True, False]),
        ("label in ('cat', 2)", {"label": [0, 1, 2]}, [True, False, True]),
        ("label not in ['cat']", {"label": [0, 1, None]}, [False, True, None]),
        ("label == other", {"label": [0, 1], "other": [0, 2]}, [True, False]),
        ("height in {1, 0.5}", {"height": [1, 0]}, [True, False]),
        ("height is not None", {"height": [0, None]}, [True, False]),
        ("sizes is None", {"sizes": [0, None]}, [False, True]),
        (" ( height\n> 3 )\t", {"height": [4]}, [True]),
        (
            "taken >= '2024-05-01T12:00:00.0005Z'",
            {"taken": [1714564800000, 1714564800001]},
            [False, True],
        ),
        ("added == '2024-05-01 14:00+02:00'", {"added": [1714564800]}, [True]),
        ("added > '2024-05-01'", {"added": [1714521600, 1714521601]}, [False, True]),
    ],
)
def test_what_holds(text: str, columns: dict[str, Any], expected: list[Any]) -> None:
    """Each kind, operator and form of a literal."""
    assert holds(text, **columns) == expected


def test_forms_in_which_columns_come() -> None:
    """Times as such or as ints; texts of either size."""
    condition = parse_condition("taken > '1970-01-01T00:00:01'", FEATURES, CLASSES)
    counts = pa.array([1000, 1001, None])
    for column in (counts, counts.cast(pa.timestamp("ms", "UTC"))):
        mask = condition.mask(pa.record_batch({"taken": column}))
        assert mask.to_pylist() == [False, True, None]
    text = parse_condition("title == 'x'", FEATURES, CLASSES)
    for kind in (pa.string(), pa.large_string()):
        assert text.mask(pa.record_batch({"title": pa.array(["x"]).cast(kind)}))[
            0
        ].as_py()


def test_columns_are_those_that_are_named() -> None:
    """Each once, in the order of the text."""
    text = "title == 'label' and (`image/width` > 1 or title is None)"
    found = parse_condition(text, FEATURES, CLASSES)
    assert found.columns == ("title", "image/width")


@pytest.mark.parametrize(
    ("text", "part", "named"),
    [
        ("", "", ""),
        ("hight > 3", "hight", "'height'"),
        ("label == 'dgo'", "'dgo'", "'cat', 'dog', 'ewe'$"),
        ("bare == 'dog'", "'dog'", "'bare'"),
        ("label < 'dog'", "'dog'", "'label'"),
        ("image/width > 3", "image/width", "backticks"),
        ("height == None", "None", "'is None'"),
        ("height == '3'", "'3'", "'height'.* number$"),
        ("title == 3", "3", "'title'.* text"),
        ("flag == 1", "1", "'flag'.* True or False"),
        ("taken > 2024", "2024", "'taken'.* ISO 8601"),
        ("taken > 'yesterday'", "'yesterday'", "'yesterday'.* ISO 8601"),
        ("taken > added", "added", "'taken'.* 'added'.* unit"),
        ("height > title", "title", "'height'.* 'title'.* kind"),
        ("height", "height", "'height'"),
        ("3", "3", "Constant"),
        ("sizes > 3", "sizes", "'sizes'.* None"),
        ("'dog' in label", "'dog'", "feature"),
        ("height in (1, None)", "None", "'is None'"),
        ("height = 3", "= 3", "=="),
        ("class == 3", "class == 3", "backticks"),
        ("height > 3 # tall", "", "# alone"),
        ("`height > 3", "", "` alone"),
        ("height > 9223372036854775808", "9223372036854775808", r"-2\*\*63"),
        (
            "__import__('os').system('true')",
            "__import__('os').system('true')",
            "Call",
        ),
        ("(x := 3) > 1", "x := 3", "NamedExpr"),
        ("height > 1; flag", "; flag", ""),
        ("height > '\ud800'", "", "surrogate"),
        ("a" * (1 << 20) + "a", "", "1,048,576"),
        # Where Python's own parser gives up.
        ("height > \0", "", ""),
        ("(" * 10_000 + "flag" + ")" * 10_000, "", ""),
        ("not " * 100_000 + "flag", "", ""),
    ],
)
def test_what_is_refused(text: str, part: str, named: str) -> None:
    """With the part that is at fault; never more than 1 KiB."""
    place = f" at {re.escape(repr(part))}" if part else ""
    with pytest.raises(
        SpecError, match=re.compile(f"^condition .*:.*{place}.*{named}", re.S)
    ) as raised:
        parse_condition(text, FEATURES, CLASSES)
    assert len(str(raised.value).encode()) <= MAX_MESSAGE_BYTES


SIGNS = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


def truth(node: ast.expr, row: dict[str, Any]) -> bool | None:
    """The oracle: one row, one value, by the rules of SQL."""
    match node:
        case ast.BoolOp():
            found = [truth(each, row) for each in node.values]
            decisive = isinstance(node.op, ast.Or)
            if decisive in found:
                return decisive
            return None if None in found else not decisive
        case ast.UnaryOp(op=ast.Not()):
            inner = truth(node.operand, row)
            return None if inner is None else not inner
        case ast.Name():
            value: bool | None = row[node.id]
            return value
        case ast.Compare():
            sides = [node.left, *node.comparators]
            steps = [
                step(a, op, b, row)
                for a, op, b in zip(sides, node.ops, sides[1:], strict=False)
            ]
            if False in steps:
                return False
            return None if None in steps else True
    raise AssertionError(ast.dump(node))


def step(a: ast.expr, op: ast.cmpop, b: ast.expr, row: dict[str, Any]) -> bool | None:
    if isinstance(op, ast.Is | ast.IsNot):
        return (value(a, row) is None) == isinstance(op, ast.Is)
    left = value(a, row)
    if isinstance(op, ast.In | ast.NotIn):
        if left is None:
            return None
        assert isinstance(b, ast.Tuple)
        inside = any(same(left, value(each, row), row, a) for each in b.elts)
        return inside == isinstance(op, ast.In)
    right = value(b, row)
    if left is None or right is None:
        return None
    left, right = named(left, a, right), named(right, b, left)
    if "score" in (getattr(a, "id", ""), getattr(b, "id", "")):
        # Float literals have the precision of the feature that they are compared with.
        left, right = (
            float(np.float32(x)) if isinstance(x, float) else x for x in (left, right)
        )
    return bool(SIGNS[type(op)](left, right))


def same(left: Any, right: Any, row: dict[str, Any], node: ast.expr) -> bool:
    if isinstance(right, float) and getattr(node, "id", "") == "score":
        right = float(np.float32(right))
    return bool(named(left, node, right) == right)


def named(value: Any, node: ast.expr, other: Any) -> Any:
    is_label = isinstance(node, ast.Name) and node.id == "label"
    return CLASSES["label"][value] if is_label and isinstance(other, str) else value


def value(node: ast.expr, row: dict[str, Any]) -> Any:
    return row[node.id] if isinstance(node, ast.Name) else ast.literal_eval(node)


whole = st.one_of(st.integers(-5, 5), st.sampled_from([-(2**63), 2**63 - 1, 2**24 + 1]))
fractions = st.one_of(
    st.sampled_from([0.5, -0.5, 0.1, 1e30, -1e30, 16777216.0, 2.0, 9.3e18]),
    st.floats(-6, 6, allow_nan=False),
)
numbers = st.one_of(whole, fractions)
texts = st.text("ab'`\"\\ä", max_size=3)
names = st.sampled_from(CLASSES["label"])
signs = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
equal = st.sampled_from(["==", "!="])


def compared(
    column: str, sign: st.SearchStrategy[str], other: st.SearchStrategy[Any]
) -> st.SearchStrategy[str]:
    literal = other.map(repr)
    return st.one_of(
        st.builds(lambda s, x: f"{column} {s} {x}", sign, literal),
        st.builds(lambda s, x: f"{x} {s} {column}", sign, literal),
        st.builds(
            lambda s, t, x, y: f"{x} {s} {column} {t} {y}", sign, sign, literal, literal
        ),
        st.lists(literal, max_size=3).map(
            lambda each: f"{column} in ({''.join(x + ', ' for x in each)})"
        ),
    )


atoms = st.one_of(
    st.sampled_from(
        [
            "flag",
            "height is None",
            "title is not None",
        ]
    ),
    st.builds(lambda s: f"height {s} width", signs),
    compared("height", signs, numbers),
    compared("score", signs, numbers),
    compared("title", signs, texts),
    compared("label", equal, names),
    compared("label", signs, st.integers(0, 3)),
    compared("flag", equal, st.booleans()),
)
conditions = st.recursive(
    atoms,
    lambda inner: st.one_of(
        inner.map(lambda x: f"not ({x})"),
        st.builds(lambda a, b: f"({a}) and ({b})", inner, inner),
        st.builds(lambda a, b: f"{a} or {b}", inner, inner),
    ),
    max_leaves=6,
)


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), values)


rows = st.lists(
    st.fixed_dictionaries(
        {
            "height": maybe(whole),
            "width": maybe(whole),
            "score": maybe(fractions.map(lambda x: float(np.float32(x)))),
            "flag": maybe(st.booleans()),
            "title": maybe(texts),
            "label": maybe(st.integers(0, 2)),
        }
    ),
    min_size=1,
    max_size=5,
)


@given(conditions, rows)
def test_masks_equal_an_evaluation_row_by_row(
    text: str, values: list[dict[str, Any]]
) -> None:
    """Any condition over any rows, missing values among them."""
    columns = {name: [row[name] for row in values] for name in values[0]}
    expected = [truth(ast.parse(text, mode="eval").body, row) for row in values]
    assert holds(text, **columns) == expected
