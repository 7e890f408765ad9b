"""One more level of sorting, where runs x shards would be too many ranges.

    N runs, each cut into H parts of the hashes    N x H ranges
      -> groups of them merged, 64 MiB each        N' runs, each of one part
      -> cut into the S shards                     N' x (S / H + 1) ranges

What is merged with what decides no byte of the output.
"""

import dataclasses
import functools
import math
import zlib
from collections.abc import Callable, Sequence

import pyarrow as pa

from transforms.gather.row_runs import RowRange, RowRun, keep_pieces, repack_rows
from transforms.gather.shard_of_runs import Fetch, read_rows

# Ranges that are descriptors in one grouping: a million cost an engine 0.5 GB and more.
_MOST_RANGES = 500_000
# Rows that are merged at a time.
_MERGED_BYTES = 64 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class Merging:
    """How runs are merged.

    Attributes:
      parts: into how many equal parts of the hashes they are cut.
      groups: in how many groups the runs of each part are merged.
    """

    parts: int
    groups: int

    def group_of(self, run: RowRun) -> int:
        """Returns the group of a run."""
        return zlib.crc32(run.index) % self.groups


def plan_merging(runs: int, shards: int, size: int) -> Merging | None:
    """Returns how runs are merged; None where they are few enough as they are.

        >>> plan_merging(3_000, 700, 3_000 << 25)
        Merging(parts=18, groups=84)
        >>> plan_merging(3_000, 100, 3_000 << 25)

    Args:
      runs, shards: how many there are.
      size: bytes of all rows, about.
    """
    if runs * shards <= _MOST_RANGES:
        return None
    merged = max(1, size // _MERGED_BYTES)
    # As many ranges before the merge as after it.
    parts = max(1, math.isqrt(shards * merged // runs))
    return Merging(parts, -(-merged // parts))


def merge_ranges(
    ranges: Sequence[RowRange],
    split: str,
    fetch: Fetch,
    store: Callable[[int, Sequence[pa.Buffer]], str],
) -> list[RowRun]:
    """Returns the rows of ranges as runs, one for each Arrow schema among them.

    Args:
      ranges: of runs, in any order, all of one split.
      split: its name.
      fetch: gives bytes [start, stop) of a run's file.
      store: writes the pieces of the n-th run end to end into a file; returns its path.

    Raises:
      DamageError: a run is not what was written.
    """
    by_schema: dict[bytes, list[pa.Table]] = {}
    for each in ranges:
        rows = read_rows(each, fetch)
        by_schema.setdefault(each.schema, []).append(rows)
    runs: list[RowRun] = []
    for schema in [*by_schema]:
        # What was read is not held while it is sorted.
        rows = pa.concat_tables(by_schema.pop(schema)).combine_chunks()
        for batch in rows.to_batches():
            run, pieces = repack_rows(batch, split)
            number = len(runs)
            runs.append(keep_pieces(run, pieces, functools.partial(store, number)))
    return runs
