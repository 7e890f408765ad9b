"""Records of two datasets, paired by what identifies them."""

import collections

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from beam_pipeline.commands.diff import count_differences

ROW = st.tuples(st.integers(0, 5), st.integers(0, 1), st.integers(0, 2))
ROWS = st.lists(ROW, max_size=12)


@given(ROWS, ROWS)
def test_every_record_is_in_a_pair_or_alone(
    one: list[tuple[int, int, int]], other: list[tuple[int, int, int]]
) -> None:
    """As many records make pairs as the keys allow, and equal ones do so first."""
    tables = [
        pa.table(
            {
                "key": pa.array([b"%d" % row[0] for row in rows], pa.large_binary()),
                "split": pa.array([str(row[1]) for row in rows], pa.string()),
                "payload": pa.array([row[2] for row in rows], pa.int64()),
                "shard": pa.array([0] * len(rows), pa.int64()),
                "number": pa.array(range(len(rows)), pa.int64()),
                "record": pa.array(range(len(rows)), pa.int64()),
            }
        )
        for rows in (one, other)
    ]
    counts = count_differences(tables[0], tables[1], 12)
    keys = [collections.Counter(row[0] for row in rows) for rows in (one, other)]
    pairs = (keys[0] & keys[1]).total()
    equal = (collections.Counter(one) & collections.Counter(other)).total()
    assert (counts["equal"], counts["gone"], counts["added"]) == (
        *(equal, len(one) - pairs, len(other) - pairs),
    )
    assert pairs - equal <= counts["changed"] + counts["moved"] <= 2 * (pairs - equal)
