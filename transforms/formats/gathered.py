"""Small files gathered: a block is a run of the listing, with rows of many files.

A block, its segments and its receipts have a fixed cost that pays for thousands of
rows: for each small file it would be most of the work.

Runs are cut by content: after a file whose path's hash says so, with a least and a most
number of files, and a most of bytes. So a file that is added or removed changes the run
that it is in, and seldom the next one: those further on begin and end where they did.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.model import Rejection
from transforms.core.placing.placement import origin_bases
from transforms.formats.table import SMALL_BYTES, Complaint, RawRows
from transforms.formats.table_rejects import reject_typed

# Fewer files than these are no worse off each by itself.
_FEWEST_FILES = 16
# About how many runs there are: then a change touches less than 1 in 100 files.
_RUNS = 256
# Files of a run on average, where a run of 1 / `_RUNS` would be shorter.
_LEAST_MEAN = 8
# A run has at most this many times its mean: cut sooner, it would move the next ones.
LONGEST = 4


def run_files_of(
    origins: pa.Array | pa.ChunkedArray,
    sizes: npt.NDArray[np.int64],
    *,
    block_bytes: int,
) -> int:
    """Returns about how many files a run has, a power of two; 0 for no runs.

        >>> origins = pa.array([f"{i:05}.csv" for i in range(10_000)])
        >>> run_files_of(origins, np.full(10_000, 4_000), block_bytes=8 << 20)
        32

    Args:
      origins: of the files, in source order.
      sizes: their bytes.
      block_bytes: the most that a run holds.
    """
    count = len(origins)
    mean = int(sizes.sum()) // max(count, 1)
    if count < _FEWEST_FILES or mean > SMALL_BYTES:
        return 0
    # Rows of one shard go by the origin of their block first, which must be their own
    # order.
    if pc.any(pc.less_equal(origins.slice(1), origins.slice(0, count - 1))).as_py():
        return 0
    wanted = 1 << round(math.log2(max(count / _RUNS, _LEAST_MEAN)))
    # Runs that end because they are full would all move where a file is added.
    roomy = max(block_bytes // (LONGEST * max(mean, 1)), 1)
    return min(wanted, 1 << (roomy.bit_length() - 1))


def run_stop(
    origins: Sequence[str], sizes: Sequence[int], *, run_files: int, block_bytes: int
) -> int:
    """Returns how many of the first files are the run that begins with them.

    It ends before a file that is not small; 0 where the first one is not.

    Args:
      origins: of the files that follow, in source order; `LONGEST` times `run_files`
        of them, or all.
      sizes: their bytes.
      run_files: about how many files a run has; a power of two.
      block_bytes: the most that a run of more than one file holds.
    """
    ends = origin_bases(origins, "run", 0) & np.uint64(run_files - 1) == 0
    total = 0
    most = LONGEST * run_files
    for index, (size, is_end) in enumerate(zip(sizes, ends.tolist(), strict=True)):
        total += size
        if size > SMALL_BYTES or index == most or (index and total > block_bytes):
            return index
        if is_end and index + 1 >= run_files // 8:
            return index + 1
    return len(origins)


def gathered(raws: Iterable[RawRows], *, most_bytes: int) -> Iterator[RawRows]:
    """Yields the rows of several files, joined where their columns are alike.

    Rows keep their order. Each has its own origin and position; what complaints call a
    row is its place among all of them: see `RawRows.places`.

    Args:
      raws: of small files, in source order.
      most_bytes: of columns, about, that are joined.
    """
    waiting: list[RawRows] = []
    size = 0
    for raw in raws:
        length = sum(column.nbytes for column in raw.columns.values())
        if waiting and (size + length > most_bytes or not _alike(waiting[-1], raw)):
            yield _joined(waiting)
            waiting, size = [], 0
        waiting.append(raw)
        size += length
    if waiting:
        yield _joined(waiting)


def _alike(one: RawRows, other: RawRows) -> bool:
    if _has_more(one) or _has_more(other) or one.columns.keys() != other.columns.keys():
        return False
    return all(
        column.type == other.columns[name].type
        and not pa.types.is_dictionary(column.type)
        for name, column in one.columns.items()
    )


def _has_more(raw: RawRows) -> bool:
    """Tells whether rows have what is not joined: parts, and stamps of images."""
    beside = raw.parts, raw.parts_gone, raw.part_rejections, raw.parts_each
    return any(map(bool, beside)) or raw.stamps is not None


def _joined(raws: Sequence[RawRows]) -> RawRows:
    if len(raws) == 1:
        return raws[0]
    first = raws[0]
    skipped: dict[str, int] = {}
    refused: list[Complaint] = []
    places: list[npt.NDArray[np.int64]] = []
    # Where the places of each begin, and what to add to its own ones.
    begins, shifts = [], []
    base = 0
    for raw in raws:
        own = raw.numbers if raw.places is None else raw.places
        low, high = _extent(own, raw.refused)
        shift = base - low
        places.append(own + shift)
        refused += _shifted(raw.refused, shift)
        begins.append(base)
        shifts.append(shift)
        base += high - low
        for reason, count in raw.skipped.items():
            skipped[reason] = skipped.get(reason, 0) + count
    return RawRows(
        dataclasses.replace(first.block, rows=sum(raw.block.rows for raw in raws)),
        {
            name: pa.concat_arrays([raw.columns[name] for raw in raws])
            for name in first.columns
        },
        np.concatenate([raw.numbers for raw in raws]),
        refused,
        _rejecter(raws, begins, shifts),
        pa.concat_arrays(map(_origins, raws)),
        skipped,
        places=np.concatenate(places),
        positions=np.concatenate(
            [
                raw.block.positions_of(raw.numbers)
                if raw.positions is None
                else raw.positions
                for raw in raws
            ]
        ),
    )


def _shifted(complaints: Iterable[Complaint], shift: int) -> list[Complaint]:
    return [(place + shift, reason, text) for place, reason, text in complaints]


def _extent(
    places: npt.NDArray[np.int64], refused: Sequence[Complaint]
) -> tuple[int, int]:
    """Returns the least place, and the one after the greatest."""
    ends = [place for place, _, _ in refused]
    if len(places):
        ends += [int(places[0]), int(places[-1])]
    return (min(ends), max(ends) + 1) if ends else (0, 0)


def _origins(raw: RawRows) -> pa.StringArray:
    if raw.origins is not None:
        return raw.origins
    return pa.repeat(pa.scalar(raw.block.origin, pa.string()), len(raw.numbers))


def _rejecter(
    raws: Sequence[RawRows], begins: Sequence[int], shifts: Sequence[int]
) -> Callable[[Sequence[Complaint]], list[Rejection]]:
    """Returns what lets each file make the rejections of its own rows."""

    def owner(complaint: Complaint) -> int:
        return int(np.searchsorted(begins, complaint[0], side="right")) - 1

    def reject(complaints: Sequence[Complaint]) -> list[Rejection]:
        out: list[Rejection] = []
        for index, group in itertools.groupby(complaints, owner):
            raw, shift = raws[index], shifts[index]
            make = raw.reject or reject_typed(raw.block, raw.numbers, raw.columns)
            out += make(_shifted(group, -shift))
        return out

    return reject
