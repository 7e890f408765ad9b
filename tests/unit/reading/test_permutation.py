"""The keyed permutation: one order everywhere, and a good shuffle."""

import collections
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.reading.positions import RUNS_MIXED, Permutation, RunPermutation


def order(count: int, seed: int = 0, epoch: int = 0) -> list[int]:
    every = Permutation.of(count, seed=seed, epoch=epoch).many(np.arange(count))
    return every.tolist()


def test_the_order_is_pinned() -> None:
    """Whoever goes on in the middle of an epoch relies on it."""
    assert order(10, seed=1, epoch=3) == [0, 8, 3, 9, 2, 7, 5, 6, 1, 4]
    large = Permutation.of(10**12, seed=7, epoch=1)
    assert [large(place) for place in (0, 1, 10**12 - 1)] == [
        227504024802,
        667253217461,
        916250573634,
    ]


@given(st.integers(1, 3_000), st.integers(0, 2**63), st.integers(0, 1_000))
def test_each_number_once(count: int, seed: int, epoch: int) -> None:
    """One by one and together."""
    found = order(count, seed, epoch)
    assert sorted(found) == list(range(count))
    one = Permutation.of(count, seed=seed, epoch=epoch)
    assert [one(place) for place in range(min(count, 50))] == found[:50]


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_all_orders_of_few_are_as_likely(count: int) -> None:
    """Pearson's chi-squared over 6,000 seeds is what chance gives."""
    seen = collections.Counter(tuple(order(count, seed)) for seed in range(6_000))
    number = math.factorial(count)
    assert len(seen) == number
    expected = 6_000 / number
    chi = sum((each - expected) ** 2 / expected for each in seen.values())
    free = number - 1
    assert chi < free + 4.9 * math.sqrt(2 * free) + 25


def test_epochs_are_independent() -> None:
    """Of each other, and of the order of the files."""
    first, second = (np.array(order(60_000, 3, epoch)) for epoch in (1, 2))
    for other in (second, np.arange(60_000)):
        assert abs(np.corrcoef(first, other)[0, 1]) < 0.02
    assert abs(np.abs(np.diff(first)).mean() / 60_000 - 1 / 3) < 0.01


def in_runs(count: int, run: int, seed: int = 0, epoch: int = 0) -> list[int]:
    made = RunPermutation(count, run, seed, epoch)
    return made.many(np.arange(count)).tolist()


def test_the_order_of_runs_is_pinned() -> None:
    """Whoever goes on in the middle of an epoch relies on it, too."""
    assert in_runs(11, 3, seed=1, epoch=3) == [0, 6, 3, 7, 2, 8, 5, 1, 10, 9, 4]
    large = RunPermutation(10**12, 500, seed=7, epoch=1)
    assert [large(place) for place in (0, 1, 10**12 - 1)] == [
        567715450107,
        699159245642,
        570705185332,
    ]


@given(st.integers(1, 3_000), st.integers(1, 400), st.integers(0, 2**63))
def test_each_number_once_in_runs(count: int, run: int, seed: int) -> None:
    """And a window has no more runs than are mixed, and one that it shares."""
    found = in_runs(count, run, seed)
    assert sorted(found) == list(range(count))
    one = RunPermutation(count, run, seed, epoch=0)
    assert [one(place) for place in range(min(count, 20))] == found[:20]
    for start in range(0, count, one.window):
        window = found[start : start + one.window]
        assert len({number // run for number in window}) <= RUNS_MIXED + 1


def test_runs_are_shuffled() -> None:
    """Over the whole split, and within a window."""
    first, second = (np.array(in_runs(60_000, 50, 3, epoch)) for epoch in (1, 2))
    for other in (second, np.arange(60_000)):
        assert abs(np.corrcoef(first, other)[0, 1]) < 0.1
    # Neighbours in the order are seldom neighbours in the files.
    assert np.mean(np.abs(np.diff(first)) == 1) < 0.05
