"""Rules of splits: names, thresholds, and rules that cannot be."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.placing import MASK
from transforms.core.placing.splitting import (
    SplitRule,
    SplitSource,
    check_split_name,
    split_of_keys,
)
from transforms.errors import SpecError


def shares(**parts: str) -> SplitRule:
    return SplitRule(SplitSource.SHARES, tuple(parts), tuple(parts.values()))


@given(st.lists(st.fractions(min_value=0).filter(bool), min_size=1, max_size=6))
def test_thresholds_rise_within_64_bits(parts: list[Fraction]) -> None:
    """Any positive shares give bounds that rise and fit, with no float between."""
    rule = shares(**{f"s{i}": str(part) for i, part in enumerate(parts)})
    bounds = rule.thresholds().tolist()
    total = sum(parts)
    exact = [sum(parts[: i + 1]) * 2**64 / total for i in range(len(parts) - 1)]
    assert bounds == [int(bound) for bound in exact]
    assert bounds == sorted(bounds)


def test_split_at_a_threshold() -> None:
    """A hash just under a bound is in the split before it, one on it in the next."""
    rule = shares(a="1/3", b="2/3")
    bound = 2**64 // 3
    keys = np.array([0, bound - 1, bound, MASK], np.uint64)
    assert split_of_keys(keys, rule).tolist() == [0, 0, 1, 1]


def test_split_names_that_readers_take() -> None:
    """'all' means every split to TFDS; other characters end up in file names."""
    for name in ("train", "a", "A-b_9", "-", "1"):
        assert check_split_name(name) == name
    for name in ("", "all", "a b", "a.b", "a/b", "훈련", "a\n", "é"):
        with pytest.raises(SpecError, match="split is named"):
            check_split_name(name)


@pytest.mark.parametrize(
    ("source", "names", "parts", "by", "message"),
    [
        (SplitSource.SHARES, ("a", "b"), ("1",), "", "needs a share"),
        (SplitSource.COLUMN, ("a",), ("1", "1"), "", "needs a share"),
        (SplitSource.TABLE, ("a",), ("1", "1"), "", "needs a share"),
        (SplitSource.STRATIFIED, ("a", "b"), ("1",), "label", "needs a share"),
        (SplitSource.SHARES, ("a", "all"), ("1", "1"), "", "split is named"),
    ],
)
def test_rules_that_cannot_be(
    source: SplitSource,
    names: tuple[str, ...],
    parts: tuple[str, ...],
    by: str,
    message: str,
) -> None:
    """A rule that cannot place every row is refused when it is made."""
    with pytest.raises(SpecError, match=message):
        SplitRule(source, names, parts, stratify_by=by)
