"""Tiny and large numbers that float32 cannot hold are found in every column type."""

import dataclasses
import decimal
import math
import random
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from transforms.core.model import ReadFacts, Rounding
from transforms.core.rows.conform import conform, losses, roundings_of
from transforms.core.rows.text_cells import coerce
from transforms.core.schema import Feature, Kind, Schema
from transforms.stages.remarks import rounding_remarks

FLOAT = Feature("f", Kind.FLOAT)
LIST = Feature("f", Kind.FLOAT, shape=(None,))
# Half of the smallest float32 rounds to 0, what is above it does not.
TINY, SMALL = 2.0**-150, np.nextafter(2.0**-150, 1)


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
    """The count is that of Python's decimals, whatever the other cells hold."""
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
    assert losses(column, typed, FLOAT).zeros.tolist() == expected


RAGGED = Feature("f", Kind.FLOAT, shape=(None, None))
PIPED = Feature("f", Kind.FLOAT, shape=(None,), separator="|")
TENSOR = Feature("f", Kind.TENSOR, shape=(2,), dtype="float32", encoding="raw")
WIDE = dataclasses.replace(TENSOR, dtype="float64")
TEXT = Feature("f", Kind.TEXT)
ODD = 2.0**24 + 1


@pytest.mark.parametrize(
    ("column", "feature", "zeros", "large"),
    [
        (pa.array([0.0, TINY, SMALL, None, -TINY, math.nan, 1.0]), FLOAT, [1, 4], []),
        (pa.array([0.0, TINY], pa.float64()).slice(1), FLOAT, [0], []),
        (pa.array(["0", "1e-50"]).dictionary_encode(), FLOAT, [1], []),
        (
            pa.array([decimal.Decimal("0E-60"), decimal.Decimal("1E-60")]),
            FLOAT,
            [1],
            [],
        ),
        (pa.array([0, 1], pa.int64()), FLOAT, [], []),
        (pa.array([0.0, 1e-45, 33554434.0], pa.float32()), FLOAT, [], []),
        (pa.array([0.0, 1e-7], pa.float16()), FLOAT, [], []),
        (pa.array([], pa.string()), FLOAT, [], []),
        (pa.array([None, None], pa.string()), FLOAT, [], []),
        (pa.nulls(2), FLOAT, [], []),
        (pa.array([ODD - 1, None, ODD, 1e39, math.inf]), FLOAT, [], [(2, 1.0)]),
        (pa.array(["16777217"]).dictionary_encode(), FLOAT, [], [(0, 1.0)]),
        (pa.array([decimal.Decimal("16777217.5")]), FLOAT, [], [(0, 0.5)]),
        (
            pa.array(["16777216", "16777217", None, "x", " 1e8\t", "-33554434.5"]),
            FLOAT,
            [],
            [(1, 1.0), (5, 1.5)],
        ),
        (pa.array([[0.0, TINY], None, [], [TINY, 1.0, -TINY]]), LIST, [0, 3, 3], []),
        (pa.array([["1e-50"], ["0", "2"]]), LIST, [0], []),
        (
            pa.array(["[0, 1e-50]", "[1e-5]", None, "[1E-046, 1e-50]"]),
            LIST,
            [0, 3, 3],
            [],
        ),
        (pa.array(["0|1e-50", "", "1e-50"]), PIPED, [0, 2], []),
        (pa.array([[1.0], [ODD, ODD + 2]]), LIST, [], [(1, 1.0), (1, 1.0)]),
        (pa.array(["[1]", "[16777217, 2]"]), LIST, [], [(1, 1.0)]),
        (pa.array([[[1.0, TINY]], [[TINY], [ODD]]]), RAGGED, [0, 1], [(1, 1.0)]),
        (pa.array([[1.0, TINY], [1.0, ODD]]), TENSOR, [0], [(1, 1.0)]),
        (pa.array([[1.0, TINY], [1.0, ODD]]), WIDE, [], []),
        (pa.array(["1e-50", "16777217"]), TEXT, [], []),
    ],
)
def test_values_of_every_type(
    column: pa.Array, feature: Feature, zeros: list[int], large: list[tuple[int, float]]
) -> None:
    """The rows of tiny values, and of large ones with their distance, one each."""
    rows, _ = conform({"f": column}, Schema((feature,)), len(column), "")
    lost = losses(column, rows["f"], feature)
    assert lost.zeros.tolist() == zeros
    assert list(zip(lost.large.tolist(), lost.errors.tolist(), strict=True)) == large


def test_columns_are_counted_over_the_rows_that_are_kept() -> None:
    """By the source's names; the first cell is shown, shortened."""
    schema = Schema((Feature("x", Kind.FLOAT, column="f"), Feature("g", Kind.FLOAT)))
    long = "0." + "0" * 99 + "1"
    columns = {
        "f": pa.array(["1e-50", long, "1e-60", "16777217", "16777219.5"]),
        "g": pa.array(["0", "1", "2", "3", "4"]),
    }
    rows, _ = conform(columns, schema, 5, "")
    keep = np.array([False, True, True, False, True])

    def place(row: int, shown: str) -> str:
        return f"{shown} in {row}"

    assert roundings_of(columns, rows, schema, keep, place) == {
        "f": Rounding(
            zeros=2,
            first_zero=f"{long[:57]}... in 1",
            large=1,
            first_large="16777219.5 in 4",
            error=0.5,
        )
    }


def test_a_remark_adds_up_the_blocks_of_a_column() -> None:
    """Counts are added, the largest error and the first place are kept."""
    facts = [
        ReadFacts("b", 0, 1, roundings={"x": Rounding(2, "b0", 3, "b1", 65_536.0)}),
        ReadFacts("a", 9, 1, roundings={"x": Rounding(0, "", 1, "a1", 0.25)}),
        ReadFacts("b", 1, 1, roundings={"y": Rounding(cut=2, first_cut="b2")}),
        ReadFacts("a", 7, 1, roundings={"y": Rounding(cut=1, first_cut="a2")}),
    ]
    assert rounding_remarks(facts) == [
        "2 values of 'x' became 0, being nearer to it than float32 can be: b0",
        "4 values of 'x' of 2^24 and more changed in float32, by 65,536 at most: a1",
        "3 values of 'y' lost their digits beyond a microsecond: a2",
    ]
