"""Text to int64, float, bool, and texts that repeat a few values."""

import fractions
import math
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.core.reasons import Reason
from transforms.core.rows.column import complaint
from transforms.core.rows.record_columns import with_dictionaries
from transforms.core.rows.text_cells import (
    MISSING_WORDS,
    coerce,
)
from transforms.core.schema import Feature, Kind, row_type
from transforms.core.statistics import summarize

INT64 = Feature("n", Kind.INT64)
FLOAT = Feature("x", Kind.FLOAT)
BOOL = Feature("b", Kind.BOOL)
NUMERIC = [INT64, FLOAT, BOOL]

# What people write where a number or a bool is meant, and what looks like it.
CELLS = [
    *("0", "7", "-7", "+7", "-0", "+0", "00", "007", "-007", "+01", "7.0", "1e3"),
    *("0x10", "-0x10", "0X1f", "1_000", "1,5", " 7", "7\t", " 007 ", "", " ", "-", "+"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808"),
    *("-9223372036854775809", "99999999999999999999", "+9223372036854775807"),
    *("0.5", ".5", "5.", ".", "-.5", "+1.5", "00.5", "007.5", "0e5", "0E5", "1e"),
    *("1e+", "1E+5", "3.4028235e38", "1e39", "-1e39", "1e400", "1e-50", "1d5", "0b1"),
    *("nan", "NaN", "-nan", "nan(1)", "nan()", "inf", "INF", "-inf", "+Infinity"),
    *("infinit", "true", "TRUE", "tRuE", "False", " true", "1", "yes", "t", "F"),
    *("NA", "N/A", "null", "None", "na", "NULL", " NA", "٣", "7\n", "7\x00", "é"),
]
DECIMAL = r"[+-]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?"

cells = st.one_of(
    st.none(),
    st.sampled_from(CELLS),
    st.integers(-(2**65), 2**65).map(str),
    st.floats(width=32).map(str),
    st.floats().map(repr),
    st.text("0123456789+-.eExX_naifNA \t", max_size=6),
)


def expected(text: str | None, kind: Kind) -> object:
    """The rules again, one cell at a time: a value, None if missing, or a Reason."""
    text = None if text is None else text.strip(" \t")
    if text is None or text in MISSING_WORDS:
        return None
    if kind is Kind.BOOL:
        words = {"true": True, "false": False}
        return words.get(text.lower() if text.isascii() else "", Reason.NOT_A_BOOL)
    if kind is Kind.INT64:
        if not re.fullmatch(DECIMAL, text):
            return Reason.NOT_AN_INTEGER
        number = fractions.Fraction(text)
        if number.denominator != 1:
            return Reason.NOT_AN_INTEGER
        return int(number) if -(2**63) <= number < 2**63 else Reason.OUT_OF_RANGE
    if re.fullmatch(r"(?i:nan|[+-]?inf|[+-]?infinity)", text) and text.isascii():
        return float(text)
    if not re.fullmatch(DECIMAL, text):
        return Reason.NOT_A_NUMBER
    with np.errstate(over="ignore"):
        value = np.float32(float(text))
    return Reason.OUT_OF_RANGE if np.isinf(value) else float(value)


def same(found: object, wanted: object) -> bool:
    if isinstance(wanted, float) and isinstance(found, float):
        # The oracle rounds twice, by way of double.
        return (math.isnan(found) and math.isnan(wanted)) or math.isclose(
            found, wanted, rel_tol=2e-7, abs_tol=2e-45
        )
    return type(found) is type(wanted) and found == wanted


def bits_of(values: pa.Array) -> list[int | None]:
    """Returns what is stored; floats as integers, so that NaN and -0.0 count."""
    is_float = pa.types.is_float32(values.type)
    return (values.view(pa.int32()) if is_float else values).to_pylist()


@pytest.mark.parametrize("feature", NUMERIC, ids=lambda f: f.kind)
@given(texts=st.lists(cells, max_size=8))
def test_every_cell_follows_the_rules(feature: Any, texts: Any) -> None:
    """Values, missing cells and reasons equal those of the rules cell by cell.

    A bad cell elsewhere, which switches the fast path off, changes nothing; nor does it
    that the array starts inside its buffers.
    """
    coerced = coerce(pa.array(["7", *texts], pa.string()).slice(1), feature)
    assert coerced.values.type == row_type(feature)
    assert coerced.bad is None or coerced.bad.any()
    exact = coerce(pa.array([*texts, "no number at all"], pa.string()), feature)
    assert exact.bad is not None
    bad = np.zeros(len(texts), bool) if coerced.bad is None else coerced.bad
    assert bad.tolist() == exact.bad[:-1].tolist()
    assert bits_of(exact.values.slice(0, len(texts))) == bits_of(coerced.values)
    for index, text in enumerate(texts):
        wanted = expected(text, feature.kind)
        if isinstance(wanted, Reason):
            assert coerced.bad is not None
            assert coerced.bad[index]
            assert coerced.reason_at(index) is wanted
            assert coerced.values[index].as_py() is None
            assert complaint(feature, wanted)
        else:
            assert coerced.bad is None or not coerced.bad[index]
            assert same(coerced.values[index].as_py(), wanted), text


@pytest.mark.parametrize("feature", [INT64, FLOAT], ids=lambda f: f.kind)
def test_a_leading_zero_is_found_wherever_it_is(feature: Feature) -> None:
    """The only refused cell of a long column is the one that starts with a zero."""
    for place in (0, 16_383, 16_384, 39_999):
        texts = ["-70" if row % 3 else "0" for row in range(40_000)]
        texts[place] = "-07"
        found = coerce(pa.array(texts), feature)
        assert found.bad is not None
        assert np.flatnonzero(found.bad).tolist() == [place]


MANY = 100_000


def test_values_stay_as_they_are() -> None:
    """Columns of few values become dictionaries of one chunk; others do not change.

    Also of columns in pieces, as long texts of a large shard are.
    """
    rows = pa.table(
        {
            "few": ["cat", None, "", "dog"] * (MANY // 4),
            "bytes": [b"\xff", b"\0"] * (MANY // 2),
            "many": [str(number) for number in range(MANY)],
            "number": range(MANY),
            "lists": [["a"]] * MANY,
        }
    )
    chunked = pa.concat_tables([rows.slice(0, MANY // 2), rows.slice(MANY // 2)])
    pieces = with_dictionaries(chunked)
    assert [column.num_chunks for column in pieces.columns] == [1, 1, 2, 2, 2]
    found = with_dictionaries(rows)
    assert [*map(pa.ChunkedArray.combine_chunks, pieces.columns)] == [
        *map(pa.ChunkedArray.combine_chunks, found.columns)
    ]
    kinds = [pa.types.is_dictionary(kind) for kind in found.schema.types]
    assert kinds == [True, True, False, False, False]
    assert found.column_names == rows.column_names
    assert all(column.num_chunks == 1 for column in found.columns)
    for before, after in zip(rows.columns, found.columns, strict=True):
        assert after.cast(before.type).equals(before)


@pytest.mark.parametrize(
    "texts",
    [
        ["a"] * 70_000 + [str(number) for number in range(1_000)],
        [str(number // 700) for number in range(100 * 700 * 5)],
        [],
        ["a", "b"],
    ],
    ids=["other values at the end", "a few at a time", "no row", "few rows"],
)
def test_other_columns_stay_texts(texts: list[str]) -> None:
    """A dictionary of many values would not pay."""
    rows = pa.table({"text": pa.array(texts, pa.string())})
    assert with_dictionaries(rows).equals(rows)


def test_facts_are_those_of_the_texts() -> None:
    """The lengths of a dictionary's values count by row."""
    texts = pa.array(["a", None, "ccc", "a"])
    unused = pa.DictionaryArray.from_arrays(
        pa.array([0, None, 1, 0]), pa.array(["a", "ccc", "not used"])
    )
    for column in (texts.dictionary_encode(), unused):
        assert summarize(column) == summarize(texts)
