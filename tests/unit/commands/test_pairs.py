"""Records of two datasets, paired by what they are known by."""

import collections

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from beam_pipeline.commands.diff import Pairs, paired

ROW = st.tuples(st.integers(0, 5), st.integers(0, 1), st.integers(0, 2))
ROWS = st.lists(ROW, max_size=12)


def side(rows: list[tuple[int, int, int]]) -> list[pa.Array]:
    return [pa.array([row[n] for row in rows], pa.int64()) for n in range(3)]


def pairs(found: Pairs) -> list[tuple[int, int]]:
    return [*zip(found.first.tolist(), found.second.tolist(), strict=True)]


@given(ROWS, ROWS)
def test_every_record_is_in_a_pair_or_alone(
    one: list[tuple[int, int, int]], other: list[tuple[int, int, int]]
) -> None:
    """Pairs have one id, and as many records are paired as the ids allow."""
    found = paired(side(one), side(other))
    for first, second in pairs(found):
        assert one[first][0] == other[second][0]
    assert sorted([*found.first, *found.gone]) == [*range(len(one))]
    assert sorted([*found.second, *found.added]) == [*range(len(other))]
    counts = [collections.Counter(row[0] for row in rows) for rows in (one, other)]
    assert len(pairs(found)) == sum((counts[0] & counts[1]).values())


@given(ROWS, ROWS)
def test_equal_records_are_paired_first(
    one: list[tuple[int, int, int]], other: list[tuple[int, int, int]]
) -> None:
    """No record counts as changed or moved that has an equal one."""
    found = paired(side(one), side(other))
    equal = sum(one[first] == other[second] for first, second in pairs(found))
    assert equal == sum(
        (collections.Counter(one) & collections.Counter(other)).values()
    )


def test_shuffled_datasets_are_equal() -> None:
    """The order of records does not matter."""
    rng = np.random.default_rng(1)
    rows = rng.integers(0, 9, (500, 3))
    order = rng.permutation(500)
    found = paired(*([*map(pa.array, some.T)] for some in (rows, rows[order])))
    assert not len(found.gone)
    assert (rows[found.first] == rows[order][found.second]).all()
