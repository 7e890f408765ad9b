"""The order of records in the files of a write, and their frames.

A record's place depends on its bytes alone: with h = blake2b(record, 8 bytes, LE),

    shard  high 32 bits of h * shards >> 32
    order  within the shard by (h, bytes); equal records stay, side by side

so a multiset of records has one arrangement, whatever order and bundles it came in.
None of this may change: the bytes of every file ever written depend on it. The golden
files in tests/program/stages/test_tfrecord_transforms.py pin it.
"""

import functools
import hashlib
import itertools
from collections.abc import Iterable, Iterator, Sequence

import google_crc32c
import numpy as np
import pyarrow as pa

from transforms.core import segment
from transforms.core.placing.placement import UInt64s
from transforms.core.segment import KEY_COLUMN
from transforms.core.tfrecord.frame import header, mask_all

# Of a part, records that are ordered and framed at a time.
_WINDOW_BYTES = 1 << 24
_RECORD = "record"
_SCHEMA = pa.schema([(_RECORD, pa.large_binary()), (KEY_COLUMN, pa.uint64())])


def hashed_rows(records: Sequence[bytes]) -> tuple[pa.RecordBatch, UInt64s]:
    """Returns records as rows, in the order of their hashes, and these."""
    blake2b = hashlib.blake2b
    digests = b"".join([blake2b(record, digest_size=8).digest() for record in records])
    hashes = np.frombuffer(digests, "<u8")
    order = np.argsort(hashes)
    ordered = pa.array([records[i] for i in order.tolist()], pa.large_binary())
    return pa.record_batch([ordered], [_RECORD]), hashes[order]


def in_order(messages: Iterable[pa.Buffer]) -> Iterator[list[bytes]]:
    """Yields all records by (hash, bytes), some 16 MiB at a time.

    Hashes are spread evenly, so even windows of them hold about as many bytes each.

    Args:
      messages: one or more segments, each with a record or more, by their hashes.
    """
    batches = [segment.deserialize(piece, _SCHEMA) for piece in messages]
    hashes = [batch[KEY_COLUMN].to_numpy() for batch in batches]
    windows = sum(batch.nbytes for batch in batches) // _WINDOW_BYTES + 1
    low = min(float(piece[0]) for piece in hashes)
    high = max(float(piece[-1]) for piece in hashes)
    bounds = np.linspace(low, high, windows + 1)[1:-1].astype(np.uint64)
    edges = [
        [0, *np.searchsorted(piece, bounds).tolist(), len(piece)] for piece in hashes
    ]
    for window in range(windows):
        rows = pa.Table.from_batches(
            batch.slice(edge[window], edge[window + 1] - edge[window])
            for batch, edge in zip(batches, edges, strict=True)
        )
        order = [(KEY_COLUMN, "ascending"), (_RECORD, "ascending")]
        yield rows.sort_by(order)[_RECORD].to_pylist()


def framed(records: Sequence[bytes]) -> bytes:
    """Returns the framed records, one after another."""
    count = len(records)
    crcs = np.fromiter(map(google_crc32c.value, records), np.uint32, count)
    packed = mask_all(crcs).astype("<u4").tobytes()
    footers = [packed[at : at + 4] for at in range(0, 4 * count, 4)]
    headers = map(_header, map(len, records))
    parts = zip(headers, records, footers, strict=True)
    return b"".join(itertools.chain.from_iterable(parts))


_header = functools.lru_cache(maxsize=4096)(header)
