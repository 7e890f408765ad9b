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

Lists of distinct names pass as a `Segment`, too: there may be a million class names,
and an engine keeps several copies of what passes between its stages. So a segment is
the list itself, or its place in a file.
"""

import dataclasses
import functools
import hashlib
import operator
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.model import Segment

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

_values = operator.attrgetter(*(each.name for each in dataclasses.fields(Segment)))


_NAMES = pa.schema([("names", pa.string())])
# Longer lists are in files.
_MOST_INLINE_BYTES = 1 << 14
# Blocks mostly have the same names: more lists of them that travel become one.
_MOST_LISTS = 64
# Names held beyond the distinct ones before duplicates are removed.
_SPARE_NAMES = 1 << 20
# Names that are hashed at a time.
_NAMES_AT_ONCE = 1 << 16


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


def put_names(
    names: pa.StringArray, write: Callable[[Sequence[pa.Buffer]], str]
) -> Segment:
    """Returns n names as a segment.

    Args:
      names: in one array without nulls.
      write: stores pieces end to end in a file; returns its name.
    """
    piece = _inline_names(names)
    if piece.size <= _MOST_INLINE_BYTES:
        return piece
    message = pa.py_buffer(piece.payload)
    crc = google_crc32c.value(message)
    return dataclasses.replace(piece, payload=b"", file=write([message]), crc32c=crc)


def _inline_names(names: pa.StringArray) -> Segment:
    """Returns names as a segment that holds them itself."""
    message = pa.record_batch([names], schema=_NAMES).serialize()
    return Segment("", 0, len(names), message.size, payload=message.to_pybytes())


def get_names(part: Segment, read: Callable[[Segment], pa.Buffer]) -> pa.StringArray:
    """Inverse of `put_names`; `read` returns the message of a segment."""
    return deserialize(read(part), _NAMES)["names"]


def digest_of(names: pa.StringArray) -> str:
    """Returns a digest of names in their order; a null is a name of its own."""
    digest = hashlib.blake2b(digest_size=16)
    lengths = pc.fill_null(pc.binary_length(names), -1)
    digest.update(lengths.to_numpy(zero_copy_only=False).tobytes())
    for start in range(0, len(names), _NAMES_AT_ONCE):
        chunk = names.slice(start, _NAMES_AT_ONCE).drop_null()
        digest.update("".join(chunk.to_pylist()).encode())
    return digest.hexdigest()


def put_classes(
    names: pa.StringArray, write: Callable[[Sequence[pa.Buffer]], str]
) -> Segment:
    """As `put_names`, of the class names of a feature in the order of their ids.

    The segment has their digest.
    """
    return dataclasses.replace(put_names(names, write), input_digest=digest_of(names))


def load_classes(
    classes: Mapping[str, Segment], read: Callable[[Segment], pa.Buffer]
) -> dict[str, pa.StringArray]:
    """Returns label feature -> its class names, which `put_classes` has stored."""
    return {feature: get_names(segment, read) for feature, segment in classes.items()}


def distinct_names(
    parts: Iterable[Segment], read: Callable[[Segment], pa.Buffer]
) -> pa.StringArray:
    """Returns the distinct names of lists; few lists are in memory at a time."""
    pending = [pa.array([], pa.string())]
    for segment in parts:
        pending.append(get_names(segment, read))
        if sum(map(len, pending[1:])) > max(len(pending[0]), _SPARE_NAMES):
            pending = [_distinct(pending)]
    return pending[0] if len(pending) == 1 else _distinct(pending)


def merged_lists(lists: Sequence[Segment]) -> list[Segment]:
    """Returns lists of names; few of them travel inside their descriptors."""
    inline = [segment for segment in lists if not segment.file]
    if len(inline) <= _MOST_LISTS:
        return [*lists]
    names = distinct_names(inline, lambda segment: pa.py_buffer(segment.payload))
    return [*(segment for segment in lists if segment.file), _inline_names(names)]


def _distinct(parts: Sequence[pa.StringArray]) -> pa.StringArray:
    """Returns the distinct names of several lists, in the order of occurrence."""
    return pa.chunked_array(parts, pa.string()).unique()
