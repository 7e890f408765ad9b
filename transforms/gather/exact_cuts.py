"""Cuts inside large parts of the hashes, found by the rows of the part.

A large part is read once more, run by run. What is kept of it are sums by hash, and by
record for hashes that are divided.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from transforms.core.placing.placement import UInt64s
from transforms.core.schema import Schema
from transforms.gather.cuts import Cut, LargePart, Longs, nearest_ends
from transforms.gather.row_runs import (
    HASH_COLUMN,
    OWN_COLUMNS,
    SIZE_COLUMN,
    RowRange,
    row_sizes,
    rows_of_hash,
)
from transforms.gather.shard_of_runs import (
    Fetch,
    counts_of,
    read_rows,
    records_of,
    typed_rows,
)


def find_cuts(
    part: LargePart,
    ranges: Sequence[RowRange],
    schema: Schema,
    types: Mapping[str, Sequence[pa.DataType]],
    fetch: Fetch,
    *,
    unique: bool,
) -> list[Cut]:
    """Returns the cuts nearest to the targets of a part, ascending.

    Holds the sums by hash, and the different records of one hash that is divided.

    Args:
      part: of a split.
      ranges: its rows, of all runs, in any order.
      schema, types, fetch: as of `gather_shard`.
      unique: whether rows of one hash stay together, as keys are compared there.

    Raises:
      DamageError: a run is not what was written.
    """
    hashes, rows, sizes = _sums_by_hash(ranges, fetch)
    ends, counted = np.cumsum(sizes), part.rows + np.cumsum(rows)
    targets = np.array(part.targets)
    places = np.searchsorted(ends, targets, side="right").clip(max=len(ends) - 1)
    divided = (sizes > part.large) & (rows > 1)
    if unique:
        divided[:] = False
    cuts = []
    for end in nearest_ends(sizes, targets[~divided[places]]).tolist():
        # Behind the last one there may be rows of the next part.
        first = int(hashes[end]) if end < len(hashes) else part.high + 1
        cuts.append(Cut(int(counted[end - 1]) if end else part.rows, first))
    for place in np.unique(places[divided[places]]).tolist():
        before = Cut(int(counted[place] - rows[place]), int(hashes[place]))
        inside = targets[places == place] - (ends[place] - sizes[place])
        found = [rows_of_hash(each, before.hash) for each in ranges]
        own = [each for each in found if each is not None]
        units = _units(own, schema, types, fetch)
        cuts += [_cut_in_hash(units, before, target) for target in inside.tolist()]
    return sorted(cuts, key=lambda cut: cut.rows)


def _sums_by_hash(
    ranges: Sequence[RowRange], fetch: Fetch
) -> tuple[UInt64s, Longs, Longs]:
    """Returns the hashes, ascending, with the rows and bytes of each."""
    parts = []
    for each in ranges:
        raw = read_rows(each, fetch)
        if len(raw):
            counts = counts_of(raw)
            hashes = raw[HASH_COLUMN].to_numpy()
            parts.append(_summed(hashes, counts, _sizes_of(raw) * counts))
    hashes, rows, sizes = (np.concatenate(each) for each in zip(*parts, strict=True))
    order = np.argsort(hashes, kind="stable")
    return _summed(hashes[order], rows[order], sizes[order])


def _summed(hashes: UInt64s, rows: Longs, sizes: Longs) -> tuple[UInt64s, Longs, Longs]:
    starts = np.flatnonzero(np.append(True, hashes[1:] != hashes[:-1]))
    return (
        hashes[starts],
        np.add.reduceat(rows, starts),
        np.add.reduceat(sizes, starts),
    )


def _sizes_of(raw: pa.Table) -> Longs:
    if SIZE_COLUMN in raw.column_names:
        return raw[SIZE_COLUMN].to_numpy()
    names = [name for name in raw.column_names if name not in OWN_COLUMNS]
    sizes = [row_sizes(batch.select(names)) for batch in raw.to_batches()]
    return np.concatenate([np.zeros(0, np.int64), *sizes])


@dataclasses.dataclass(frozen=True, slots=True)
class _Units:
    """The rows of one hash in their order, equal records together.

    Attributes:
      records: of each unit, ascending; None for rows without one, which come first.
      rows, sizes: of each unit.
    """

    records: Sequence[bytes | None]
    rows: Longs
    sizes: Longs


def _units(
    ranges: Iterable[RowRange],
    schema: Schema,
    types: Mapping[str, Sequence[pa.DataType]],
    fetch: Fetch,
) -> _Units:
    """Returns the units of a hash, of whose rows the ranges consist."""
    parts = []
    rows = size = 0
    for each in ranges:
        raw = read_rows(each, fetch)
        sizes = _sizes_of(raw)
        if SIZE_COLUMN not in raw.column_names:
            raw = raw.append_column(SIZE_COLUMN, pa.array(sizes))
        rows += int(counts_of(raw).sum())
        size += int((counts_of(raw) * sizes).sum())
        for table, _ in typed_rows(raw, schema, types):
            counts = counts_of(table)
            sums = [counts, counts * table[SIZE_COLUMN].to_numpy()]
            columns = [records_of(table, schema), *map(pa.array, sums)]
            parts.append(_by_record(pa.table(columns, ["record", "rows", "size"])))
    found = _by_record(pa.concat_tables(parts)).sort_by("record")
    counted, summed = found["rows"].to_numpy(), found["size"].to_numpy()
    records: list[bytes | None] = found["record"].to_pylist()
    rejected = rows - int(counted.sum())
    if not rejected:
        return _Units(records, counted, summed)
    return _Units(
        [None, *records],
        np.append(rejected, counted),
        np.append(size - summed.sum(), summed),
    )


def _by_record(rows: pa.Table) -> pa.Table:
    sums = rows.group_by("record").aggregate([("rows", "sum"), ("size", "sum")])
    return sums.rename_columns(["record", "rows", "size"])


def _cut_in_hash(units: _Units, start: Cut, target: float) -> Cut:
    """Returns the cut nearest to a target, in bytes behind the start of a hash."""
    ends = np.cumsum(units.sizes)
    unit = int(np.searchsorted(ends, target, side="right").clip(max=len(ends) - 1))
    record, rows = units.records[unit], int(units.rows[unit])
    inside = (target - float(ends[unit] - units.sizes[unit])) / float(units.sizes[unit])
    taken = round(inside * rows) if record is not None else rows * round(inside)
    taken = min(max(taken, 0), rows)
    unit, taken = (unit + 1, 0) if taken == rows else (unit, taken)
    before = start.rows + int(units.rows[:unit].sum()) + taken
    if unit == len(ends):
        return Cut(before, start.hash + 1)
    if before == start.rows:
        return start
    first = _prefix(units.records, unit)
    if not taken:
        return Cut(before, start.hash, first, first)
    stop = _prefix(units.records, unit + 1) if unit + 1 < len(ends) else None
    return Cut(before, start.hash, first, stop, taken)


def _prefix(records: Sequence[bytes | None], unit: int) -> bytes:
    """Returns the first bytes of a record that are larger than the record before it."""
    record, before = records[unit], records[unit - 1] if unit else None
    if record is None or before is None:
        return b""
    pairs = enumerate(zip(record, before, strict=False))
    same = next((place for place, (a, b) in pairs if a != b), len(before))
    return record[: same + 1]
