"""Values that are not 0 and become 0 as float32: found in every type of column."""

import decimal
import random
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from transforms.core.rows.coerce import coerce
from transforms.core.rows.conform import conform
from transforms.core.rows.underflow import underflows, underflows_of
from transforms.core.schema import Feature, Kind, Schema

FLOAT = Feature("f", Kind.FLOAT)
LIST = Feature("f", Kind.FLOAT, shape=(None,))
# Half of the smallest float32 rounds to 0, what is above it does not.
TINY, SMALL = 2.0**-150, np.nextafter(2.0**-150, 1)


def found(column: pa.Array, feature: Feature = FLOAT) -> list[int]:
    """Returns the rows that the values stand in."""
    rows, _ = conform({"f": column}, Schema((feature,)), len(column), "")
    return underflows(column, rows["f"], feature).tolist()


WRITERS: list[Callable[[random.Random], str]] = [
    lambda r: f"{r.choice('+- ').strip()}{r.random() * 10 ** -r.randint(0, 60)!r}",
    lambda r: "%.18e" % (r.choice([0, 1]) * r.random() * 10.0 ** -r.randint(0, 60)),
    lambda r: r.choice(["0", "-0", "0.0", "0.000000000", ".0", "0e5", "0E-9", "0e-99"]),
    lambda r: "0." + "0" * r.randint(30, 60) + str(r.randint(0, 9)),
    lambda r: (
        f"{r.randint(1, 9)}{r.choice('eE')}-{r.choice(['', '0', '00000'])}"
        + str(r.randint(40, 50))
    ),
    lambda r: f"0.{'0' * r.randint(0, 40)}{r.randint(1, 9)}e-{r.randint(1, 46)}",
    lambda r: r.choice(["nan", "inf", "", "NA", "1"]),
]


@pytest.mark.parametrize("seed", range(12))
def test_texts_against_decimals(seed: int) -> None:
    """As many as Python's decimals say, whatever stands in the other cells."""
    chooser = random.Random(seed)
    writers = chooser.sample(WRITERS, chooser.randint(1, len(WRITERS)))
    texts = [chooser.choice(writers)(chooser) for _ in range(400)]
    # Columns that are nearly all zeros, written one way, are looked at otherwise.
    texts += chooser.choice([[], ["0.000000000000000000e+00"] * 5_000, ["0"] * 5_000])
    chooser.shuffle(texts)
    column = pa.array([text or None for text in texts], pa.string())
    column = pa.concat_arrays([pa.array(["1e-99"]), column]).slice(1)
    typed = coerce(column, FLOAT).values
    expected = [
        row
        for row, (text, value) in enumerate(zip(texts, typed.to_pylist(), strict=True))
        if value == 0 and decimal.Decimal(text) != 0
    ]
    assert underflows(column, typed, FLOAT).tolist() == expected


@pytest.mark.parametrize(
    ("column", "rows"),
    [
        (pa.array([0.0, TINY, SMALL, None, -TINY, float("nan"), 1.0]), [1, 4]),
        (pa.array([0.0, TINY], pa.float64()).slice(1), [0]),
        (pa.array(["0", "1e-50"]).dictionary_encode(), [1]),
        (pa.array([decimal.Decimal("0E-60"), decimal.Decimal("1E-60")]), [1]),
        (pa.array([0, 1], pa.int64()), []),
        (pa.array([0.0, 1e-45], pa.float32()), []),
        (pa.array([0.0, 1e-7], pa.float16()), []),
        (pa.array([], pa.string()), []),
        (pa.array([None, None], pa.string()), []),
        (pa.nulls(2), []),
    ],
)
def test_single_values_of_every_type(column: pa.Array, rows: list[int]) -> None:
    """Wider floats, decimals and texts; what float32 holds already is none."""
    assert found(column) == rows


@pytest.mark.parametrize(
    ("column", "feature", "rows"),
    [
        (pa.array([[0.0, TINY], None, [], [TINY, 1.0, -TINY]]), LIST, [0, 3, 3]),
        (pa.array([["1e-50"], ["0", "2"]]), LIST, [0]),
        (pa.array(["[0, 1e-50]", "[1e-5]", None, "[1E-046, 1e-50]"]), LIST, [0, 3, 3]),
        (
            pa.array(["0|1e-50", "", "1e-50"]),
            Feature("f", Kind.FLOAT, shape=(None,), separator="|"),
            [0, 2],
        ),
        (
            pa.array([[[1.0, TINY]], [[TINY], [0.0]]]),
            Feature("f", Kind.FLOAT, shape=(None, None)),
            [0, 1],
        ),
        (
            pa.array([[1.0, TINY], [1.0, 2.0]]),
            Feature("f", Kind.TENSOR, shape=(2,), dtype="float32", encoding="raw"),
            [0],
        ),
        (
            pa.array([[1.0, TINY], [1.0, 2.0]]),
            Feature("f", Kind.TENSOR, shape=(2,), dtype="float64", encoding="raw"),
            [],
        ),
        (pa.array(["1e-50"]), Feature("f", Kind.TEXT), []),
    ],
)
def test_lists_and_tensors(column: pa.Array, feature: Feature, rows: list[int]) -> None:
    """A row stands there as often as it holds such values."""
    assert found(column, feature) == rows


def test_columns_are_counted_over_the_rows_that_are_kept() -> None:
    """By the source's names; the first cell is shown, shortened."""
    schema = Schema((Feature("x", Kind.FLOAT, column="f"), Feature("g", Kind.FLOAT)))
    long = "0." + "0" * 99 + "1"
    columns = {"f": pa.array(["1e-50", long, "1e-60"]), "g": pa.array(["0", "1", "2"])}
    rows, _ = conform(columns, schema, 3, "")
    keep = np.array([False, True, True])
    assert underflows_of(columns, rows, schema, keep) == {
        "f": (2, 1, long[:57] + "...")
    }
