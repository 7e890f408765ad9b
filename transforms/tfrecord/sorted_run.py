"""Sorted runs: bring records that arrive in any order into the order of a shard.

A record's place depends on its bytes alone: with h = blake2b(record, 8 bytes, LE),

    shard  high 32 bits of h * shards >> 32
    order  within the shard by (h, bytes); equal records stay, side by side

so a multiset of records has one arrangement, whatever order and groups it came in.
None of this may change: the bytes of every file ever written depend on it. The golden
files in tests/program/stages/test_tfrecord_transforms.py pin it.

A packed run of n records, ascending by hash:

    hashes: 8 * n, uint64 LE  |  lengths: 8 * n, int64 LE  |  payloads, end to end

It is in a file or travels inline; what falls into one shard is a contiguous part
of it, and shards are merged from such parts a window of hashes at a time.
"""

import dataclasses
import functools
import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence

import google_crc32c
import numpy as np
import numpy.typing as npt

from transforms.core.tfrecord.frame import header, mask_all

_Hashes = npt.NDArray[np.uint64]
_Longs = npt.NDArray[np.int64]

_WORD_BYTES = 8
# Payload bytes that a merge holds at a time. Windows are sorted as arrays: a heap over
# single records takes twice the processor time.
_WINDOW_BYTES = 1 << 24


@dataclasses.dataclass(frozen=True, slots=True)
class SortedRun:
    """Records [start, stop) of a packed run of `total` records.

    Attributes:
      path: the file of the packed run; "" for one that travels inline.
      data: the packed run where it travels inline.
      total: records of the packed run.
      start, stop: which of them are meant.
      skip: bytes of payloads before `start`.
      size: bytes of their payloads.
    """

    path: str
    data: bytes
    total: int
    start: int
    stop: int
    skip: int
    size: int

    @property
    def records(self) -> int:
        """How many records are meant."""
        return self.stop - self.start


# Gives bytes [start, stop) of the packed run.
Fetch = Callable[[SortedRun, int, int], bytes]


def pack(records: Sequence[bytes]) -> bytes:
    """Returns the packed run of these records."""
    blake2b = hashlib.blake2b
    digests = b"".join([blake2b(record, digest_size=8).digest() for record in records])
    hashes = np.frombuffer(digests, "<u8")
    order = np.argsort(hashes)
    lengths = np.fromiter(map(len, records), "<i8", len(records))
    payloads = b"".join([records[i] for i in order.tolist()])
    return b"".join((hashes[order].tobytes(), lengths[order].tobytes(), payloads))


def cut_run(
    run: SortedRun, shards: int, fetch: Fetch
) -> Iterator[tuple[int, SortedRun]]:
    """Yields (shard, its part of the run) for every shard that has records in it."""
    if shards == 1:
        if run.records:
            yield 0, run
        return
    hashes, lengths = _index(run, fetch)
    # The smallest hash of every shard but the first.
    bounds = [-(-(shard << 32) // shards) << 32 for shard in range(1, shards)]
    edges = np.searchsorted(hashes, np.array(bounds, np.uint64))
    before = np.concatenate(([0], np.cumsum(lengths)))
    all_edges = [0, *edges.tolist(), run.records]
    for shard, (first, last) in enumerate(itertools.pairwise(all_edges)):
        if first == last:
            continue
        skip, size = int(before[first]), int(before[last] - before[first])
        part = dataclasses.replace(
            run,
            start=run.start + first,
            stop=run.start + last,
            skip=run.skip + skip,
            size=size,
        )
        if not run.path:
            packed = b"".join(
                (
                    hashes[first:last].tobytes(),
                    lengths[first:last].tobytes(),
                    _payloads(part, fetch),
                )
            )
            part = SortedRun("", packed, last - first, 0, last - first, 0, size)
        yield shard, part


def merge_runs(runs: Sequence[SortedRun], fetch: Fetch) -> Iterator[list[bytes]]:
    """Yields all records of the runs in their order, some 16 MiB at a time.

    Memory beyond that: 24 bytes a record.
    """
    indexes = [_index(run, fetch) for run in runs]
    bounds = _window_bounds(indexes)
    befores = [np.concatenate(([0], np.cumsum(lengths))) for _, lengths in indexes]
    edges = [
        [0, *np.searchsorted(hashes, bounds).tolist(), len(hashes)]
        for hashes, _ in indexes
    ]
    for window in range(len(bounds) + 1):
        parts: list[bytes] = []
        hashes: list[_Hashes] = []
        lengths: list[_Longs] = []
        for run, index, before, edge in zip(runs, indexes, befores, edges, strict=True):
            first, last = edge[window], edge[window + 1]
            if first < last:
                begin, end = int(before[first]), int(before[last])
                part = dataclasses.replace(run, skip=run.skip + begin, size=end - begin)
                parts.append(_payloads(part, fetch))
                hashes.append(index[0][first:last])
                lengths.append(index[1][first:last])
        if parts:
            yield _ordered(
                b"".join(parts), np.concatenate(hashes), np.concatenate(lengths)
            )


def frame_records(records: Sequence[bytes]) -> bytes:
    """Returns the framed records, one after another."""
    count = len(records)
    crcs = np.fromiter(map(google_crc32c.value, records), np.uint32, count)
    packed = mask_all(crcs).astype("<u4").tobytes()
    footers = [packed[at : at + 4] for at in range(0, 4 * count, 4)]
    headers = map(_header, map(len, records))
    parts = zip(headers, records, footers, strict=True)
    return b"".join(itertools.chain.from_iterable(parts))


_header = functools.lru_cache(maxsize=4096)(header)


def _index(run: SortedRun, fetch: Fetch) -> tuple[_Hashes, _Longs]:
    begin, end = run.start * _WORD_BYTES, run.stop * _WORD_BYTES
    table = run.total * _WORD_BYTES
    hashes = np.frombuffer(fetch(run, begin, end), "<u8")
    lengths = np.frombuffer(fetch(run, table + begin, table + end), "<i8")
    return hashes, lengths


def _payloads(run: SortedRun, fetch: Fetch) -> bytes:
    begin = 2 * run.total * _WORD_BYTES + run.skip
    return fetch(run, begin, begin + run.size)


def _window_bounds(indexes: Sequence[tuple[_Hashes, _Longs]]) -> _Hashes:
    """Returns the smallest hash of every window but the first.

    Hashes are spread evenly, so even windows of them hold about as many bytes each;
    only a great many records with the same bytes make one larger.
    """
    filled = [hashes for hashes, _ in indexes if len(hashes)]
    windows = -(-sum(int(lengths.sum()) for _, lengths in indexes) // _WINDOW_BYTES)
    if windows <= 1:
        return np.empty(0, np.uint64)
    low = min(int(hashes[0]) for hashes in filled)
    span = max(int(hashes[-1]) for hashes in filled) + 1 - low
    bounds = [low + span * window // windows for window in range(1, windows)]
    return np.array(bounds, np.uint64)


def _ordered(data: bytes, hashes: _Hashes, lengths: _Longs) -> list[bytes]:
    """Returns the records that are end to end in `data`, by (hash, bytes)."""
    order = np.argsort(hashes)
    stops = np.cumsum(lengths)
    starts = (stops - lengths)[order].tolist()
    pairs = zip(starts, stops[order].tolist(), strict=True)
    records = [data[start:stop] for start, stop in pairs]
    ordered = hashes[order]
    groups = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    sizes = np.diff(groups, append=len(records))
    shared = sizes > 1
    for first, size in zip(
        groups[shared].tolist(), sizes[shared].tolist(), strict=True
    ):
        records[first : first + size] = sorted(records[first : first + size])
    return records
