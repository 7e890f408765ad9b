"""Segments: the rows of one batch that belong to one shard, as Arrow IPC messages.

A segment is a single record-batch message without a schema: the schema is the same for
a whole job, and every stage has it. Beside the features' columns a segment holds
these. Their names begin with a NUL character, which no feature's name has:

    row     int64   each row's 0-based number in its origin
    origin  string  each row's origin; only if a block spans several origins
    stamp   int64   and its stamp when it was listed
    key     uint64  each row's order hash; only if keys or contents identify rows

A segment file, one for each placed batch, is the messages one after another, in the
order of their shards. A `Segment` states the offset and size of its own.

Between the stages a `Segment` is bytes (`pack`), for a runner in one process holds
those of all blocks and shards until it has grouped them: 220 bytes each, where the
object and what it refers to take 450 to 500. A message does not change by that.

What a pipeline brings is spooled first, in pieces: a `Segment` each, too, but with the
schema in its message, for each piece may have another one.
"""

import dataclasses
import functools
import operator
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa

ROW_COLUMN = "\0row"
ORIGIN_COLUMN = "\0origin"
STAMP_COLUMN = "\0stamp"
KEY_COLUMN = "\0key"
NO_RECORD = -1
"""The number of a row that is rejected, and counts among the rows of its shard."""
CONTENT_COLUMN = "\0content"
"""Of a spooled piece: what rows without keys are known by."""
PLACE_COLUMNS = frozenset((ROW_COLUMN, ORIGIN_COLUMN, STAMP_COLUMN, KEY_COLUMN))
"""What a segment holds beside the features' columns."""

PIECE_BYTES = 12 << 20
"""Of rows that are spooled at a time: placing them takes some five times as much."""
# Smaller pieces travel inside their descriptor.
_INLINE_BYTES = 1 << 18

_UInt64s = npt.NDArray[np.uint64]


@dataclasses.dataclass(frozen=True, slots=True)
class Segment:
    """The rows of one batch that belong to one shard, as one Arrow IPC message.

    Segments of a shard sort by (origin, start): that is source order, and it breaks
    ties between equal order keys.

        >>> late, early = Segment("a.csv", 90, 2, 400), Segment("a.csv", 3, 5, 700)
        >>> ordered = sorted([late, early], key=lambda each: (each.origin, each.start))
        >>> [each.rows for each in ordered]
        [5, 2]

    Attributes:
      origin, start: of the block.
      rows: number of rows.
      size: bytes of the message.
      payload: the message if it travels inline, else empty.
      file: the name of its file among the segments otherwise; see
        `transforms.work.store`.
      offset: of the message in the file.
      crc32c: of the message, if it is in a file.
      input_digest: digest of everything that decides the message: equal digests, equal
        messages. Empty for unknown.
    """

    origin: str
    start: int
    rows: int
    size: int
    payload: bytes = b""
    file: str = ""
    offset: int = 0
    crc32c: int = 0
    input_digest: str = ""


_values = operator.attrgetter(*(each.name for each in dataclasses.fields(Segment)))


def segment_schema(
    row_schema: pa.Schema, *, many_origins: bool, ordered: bool = False
) -> pa.Schema:
    """Returns the schema of a segment of rows under `row_schema`."""
    out = row_schema.append(pa.field(ROW_COLUMN, pa.int64()))
    if many_origins:
        out = out.append(pa.field(ORIGIN_COLUMN, pa.string()))
        out = out.append(pa.field(STAMP_COLUMN, pa.int64()))
    if ordered:
        out = out.append(pa.field(KEY_COLUMN, pa.uint64()))
    return out


def cut(
    rows: pa.RecordBatch, shards: npt.NDArray[np.int64]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yields (shard, its rows) for every shard that has rows; rows keep their order.

    A slice takes 1.4 KB beside its rows, so that a caller is to keep one at a time.

    Args:
      rows: n rows.
      shards: n shard numbers.
    """
    if rows.num_rows == 0:
        return
    # Stable sorting of 16-bit numbers is a radix sort: 2 ns a row.
    narrow = shards.astype(np.uint16) if shards.max() < 2**16 else shards
    order = np.argsort(narrow, kind="stable")
    ordered = shards[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    stops = np.append(starts[1:], len(ordered))
    is_ordered = bool((ordered == shards).all())
    taken = rows if is_ordered else rows.take(pa.array(order))
    for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
        yield int(ordered[start]), taken.slice(start, stop - start)


def deserialize(data: bytes | pa.Buffer, schema: pa.Schema) -> pa.RecordBatch:
    """Returns the rows of a message of `RecordBatch.serialize`, under a schema."""
    return pa.ipc.read_record_batch(pa.py_buffer(data), schema)


def pack(segment: Segment) -> bytes:
    """Returns a segment's facts as bytes.

    >>> unpack(pack(Segment("a.csv", 3, 5, 700))).rows
    5
    """
    return pickle.dumps(_values(segment), pickle.HIGHEST_PROTOCOL)


def unpack(data: bytes) -> Segment:
    """Inverse of `pack`."""
    return Segment(*pickle.loads(data))


def in_source_order(packed: Iterable[bytes]) -> list[Segment]:
    """Returns the segments of one shard in source order, however they arrived."""
    return sorted(map(unpack, packed), key=lambda each: (each.origin, each.start))


def spooled_piece(
    name: str,
    rows: pa.RecordBatch,
    contents: _UInt64s | None,
    store: Callable[[str, Sequence[pa.Buffer]], str],
) -> Segment:
    """Stores rows of one Arrow schema; `open_piece` is the inverse.

    Args:
      name: that no other piece has.
      rows: n rows in any order.
      contents: n hashes of what rows without keys hold; None for rows with keys.
      store: writes buffers end to end into a file; returns the name of that.
    """
    if contents is not None:
        rows = rows.append_column(CONTENT_COLUMN, pa.array(contents))
    # A stream: the schema, then the rows.
    messages = [rows.schema.serialize(), rows.serialize()]
    size = sum(message.size for message in messages)
    crc = functools.reduce(google_crc32c.extend, messages, 0)
    piece = Segment(name, 0, rows.num_rows, size, crc32c=crc)
    if size > _INLINE_BYTES:
        return dataclasses.replace(piece, file=store(name, messages))
    payload = b"".join(message.to_pybytes() for message in messages)
    return dataclasses.replace(piece, payload=payload)


def open_piece(message: pa.Buffer) -> tuple[pa.RecordBatch, _UInt64s | None]:
    """Returns the rows of a piece, and what `spooled_piece` calls their contents."""
    with pa.ipc.open_stream(message) as stream:
        rows = stream.read_next_batch()
    if CONTENT_COLUMN not in rows.schema.names:
        return rows, None
    contents = rows.column(CONTENT_COLUMN).to_numpy()
    return rows.drop_columns([CONTENT_COLUMN]), contents
