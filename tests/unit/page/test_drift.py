"""The drift between two samples."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_pipeline.page.distributions import drift_of_categories, drift_of_numbers

NUMBERS = st.lists(st.floats(-5, 5).map(lambda x: round(x, 1)), min_size=1, max_size=30)
COUNTS = st.dictionaries(st.sampled_from("abcd"), st.integers(1, 50), min_size=1)


@given(NUMBERS, NUMBERS)
def test_numbers_against_the_definition(
    first: list[float], second: list[float]
) -> None:
    """It is the largest difference of the shares up to any threshold."""
    found = drift_of_numbers(np.array(first), np.array(second))
    expected = max(
        abs(
            sum(x <= limit for x in first) / len(first)
            - sum(x <= limit for x in second) / len(second)
        )
        for limit in first + second
    )
    assert found is not None
    assert math.isclose(found.value, expected, abs_tol=1e-12)


@given(COUNTS, COUNTS)
def test_categories_against_the_definition(
    first: dict[str, int], second: dict[str, int]
) -> None:
    """It is the largest difference of the shares of any set of categories."""
    found = drift_of_categories(first, second)
    shares = {
        key: first.get(key, 0) / sum(first.values())
        - second.get(key, 0) / sum(second.values())
        for key in {*first, *second}
    }
    expected = sum(share for share in shares.values() if share > 0)
    assert found is not None
    assert math.isclose(found.value, expected, abs_tol=1e-12)


@pytest.mark.parametrize("kind", ["numbers", "categories"])
def test_samples_of_one_source_seldom_exceed_chance(kind: str) -> None:
    """At most about 1 of 20 pairs of samples is marked."""
    rng = np.random.default_rng(5)
    large = 0
    for _ in range(400):
        samples = rng.integers(0, 8, 300), rng.integers(0, 8, 150)
        if kind == "numbers":
            found = drift_of_numbers(*(x + rng.random(len(x)) for x in samples))
        else:
            counts = [
                dict(enumerate(np.bincount(each, minlength=8).tolist()))
                for each in samples
            ]
            found = drift_of_categories(*counts)
        assert found is not None
        large += found.is_large
    assert large <= 32


def test_another_source_is_marked() -> None:
    """Samples that differ by more than chance are."""
    first = drift_of_numbers(np.arange(500.0), np.arange(500.0) + 200)
    second = drift_of_categories({"a": 300, "b": 100}, {"a": 100, "b": 300})
    assert first is not None
    assert second is not None
    assert first.is_large
    assert second.is_large


def test_without_values() -> None:
    """There is no drift where a split has no value."""
    assert drift_of_numbers(np.array([]), np.array([1.0])) is None
    assert drift_of_categories({"a": 0}, {"a": 1}) is None
