"""Sorted runs: rows of a pipeline in the order of shards that are not yet known.

A run holds rows of one Arrow schema, sorted by split and then by a 64-bit hash of what
a row is known by: its key, or its content. Whatever shards the plan makes of the
hashes, the rows of one shard are one range of each run.

    run    pieces, end to end: Arrow IPC record-batch messages of about 64 KiB each,
           of more where there are many columns
    piece  rows of one split; its first and last hash are in the run's index

`HASH_COLUMN` and, where rows have keys, `KEY_COLUMN` are columns of every piece. Rows
that are equal in every value are one row of their run, with how many they are in
`COUNT_COLUMN`; a run without such rows has no such column. Where rows name files,
`SIZE_COLUMN` says how many bytes a row takes with them.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import is_bytes, is_list
from transforms.core.placing.placement import UInt64s
from transforms.gather.cuts import Bounds, Histogram, Longs, bin_of
from transforms.gather.equal_rows import first_of_equals

HASH_COLUMN = "\0hash"
KEY_COLUMN = "\0key"
COUNT_COLUMN = "\0count"
SIZE_COLUMN = "\0size"
OWN_COLUMNS = (HASH_COLUMN, KEY_COLUMN, COUNT_COLUMN, SIZE_COLUMN)

_PIECE_BYTES = 1 << 16
# More for rows of many columns, since each column of a piece takes time by itself.
_PIECE_COLUMN_BYTES = 1 << 12
# Runs up to this size travel inside their descriptor.
_INLINE_BYTES = 1 << 18
# What a record takes beside its values: its frame, and a feature's tags and lengths.
_ROW_BYTES = 24
_VALUE_BYTES = 8
_FEATURE_BYTES = 12
_INDEX = np.dtype(
    [
        ("split", "<i4"),
        ("crc32c", "<u4"),
        ("first", "<u8"),
        ("last", "<u8"),
        ("rows", "<i8"),
        ("offset", "<i8"),
        ("size", "<i8"),
    ]
)


@dataclasses.dataclass(frozen=True, slots=True)
class RowRun:
    """A sorted run.

    Attributes:
      path: of its file; empty where it is inline.
      payload: the pieces, where they are inline.
      schema: of the pieces, as an Arrow IPC message.
      splits: names that the index refers to.
      index: the pieces, as an array of `_INDEX` in bytes.
    """

    path: str
    payload: bytes
    schema: bytes
    splits: tuple[str, ...]
    index: bytes

    @property
    def pieces(self) -> npt.NDArray[np.void]:
        """The index as a structured array."""
        return np.frombuffer(self.index, _INDEX)


@dataclasses.dataclass(frozen=True, slots=True)
class RowRange:
    """The rows of a run that belong to one shard.

    Attributes:
      path: of the run's file; empty for an inline one.
      payload: the pieces, where they are inline.
      schema: see `RowRun`.
      index: the pieces that hold rows of the shard; offsets count in the file, or in
        the payload.
      low, high: the hashes of the shard, both included.
    """

    path: str
    payload: bytes
    schema: bytes
    index: bytes
    low: int
    high: int

    @property
    def place(self) -> tuple[int, int]:
        """Where the pieces begin and end."""
        pieces = np.frombuffer(self.index, _INDEX)
        last = pieces[-1]
        return int(pieces[0]["offset"]), int(last["offset"] + last["size"])


def row_sizes(rows: pa.RecordBatch) -> Longs:
    """Returns about how many bytes each of n rows takes as a record.

    A function of the values alone, not of how Arrow holds them.
    """
    out = np.full(rows.num_rows, _ROW_BYTES, np.int64)
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        constant = len(name.encode()) + _FEATURE_BYTES
        sizes = _value_sizes(column)
        if column.null_count:
            present = column.is_valid().to_numpy(zero_copy_only=False)
            sizes = np.where(present, sizes + constant, 0)
            out += sizes
        else:
            out += sizes + constant
    return out


def _value_sizes(column: pa.Array) -> Longs:
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    kind = column.type
    if is_bytes(kind):
        return np.asarray(pc.binary_length(column).fill_null(0)).astype(np.int64)
    if is_list(kind):
        counts = np.asarray(pc.list_value_length(column).fill_null(0)).astype(np.int64)
        items = column.flatten()
        if not is_bytes(items.type) and not is_list(items.type):
            return counts * _VALUE_BYTES
        sums = np.concatenate(([0], np.cumsum(_value_sizes(items))))
        stops = np.cumsum(counts)
        each: Longs = sums[stops] - sums[stops - counts]
        return each
    return np.full(len(column), _VALUE_BYTES, np.int64)


def pack_rows(
    rows: pa.RecordBatch,
    hashes: UInt64s,
    splits: npt.NDArray[np.int64],
    names: Sequence[str],
    keys: pa.StringArray | None,
    beside: Longs | None = None,
) -> tuple[RowRun, list[pa.Buffer], dict[str, Histogram]]:
    """Sorts n rows into a run, whose pieces are still to be stored.

    Args:
      rows: n of them.
      hashes: that order them.
      splits: index of each one's split in `names`.
      names: of the splits.
      keys: of the rows, where they have some.
      beside: bytes of the files that the rows name, which count for shards alone.

    Returns:
      The run without path and payload, its pieces, and the histogram of each split.
    """
    sizes = row_sizes(rows)
    # Not stable, and several times as fast: rows of equal hash are ordered later.
    order = np.argsort(hashes)
    if len(names) > 1:
        order = order[np.argsort(splits[order].astype(np.uint16), kind="stable")]
    own: dict[str, pa.Array] = {HASH_COLUMN: pa.array(hashes)}
    if keys is not None:
        own[KEY_COLUMN] = keys
    wholes = sizes
    if beside is not None:
        wholes = sizes + beside
        own[SIZE_COLUMN] = pa.array(wholes)
    fields = [pa.field(name, column.type) for name, column in own.items()]
    schema = pa.schema([*rows.schema, *fields])
    ordered = pa.RecordBatch.from_arrays([*rows.columns, *own.values()], schema=schema)
    ordered = ordered.take(pa.array(order))
    hashes, splits, sizes = hashes[order], splits[order], sizes[order]
    histograms = _histograms(hashes, splits, wholes[order], names)
    tied = np.append(False, (np.diff(hashes) == 0) & (np.diff(splits) == 0))
    if tied.any():
        firsts = np.flatnonzero(first_of_equals(ordered, tied))
        counts = np.diff(np.append(firsts, len(order)))
        ordered = ordered.take(pa.array(firsts))
        ordered = ordered.append_column(COUNT_COLUMN, pa.array(counts))
        hashes, splits, sizes = hashes[firsts], splits[firsts], sizes[firsts]
    run, pieces = _pieces(ordered, hashes, splits, sizes, names)
    return run, pieces, histograms


def repack_rows(rows: pa.RecordBatch, split: str) -> tuple[RowRun, list[pa.Buffer]]:
    """Sorts n rows of one split that come from pieces of several runs into one run.

    Returns:
      The run without path and payload, and its pieces.
    """
    ordered = rows.take(pa.array(np.argsort(rows.column(HASH_COLUMN), kind="stable")))
    hashes = ordered.column(HASH_COLUMN).to_numpy()
    tied = np.append(False, np.diff(hashes) == 0)
    if tied.any():
        counts = np.ones(len(hashes), np.int64)
        if COUNT_COLUMN in rows.schema.names:
            counts = ordered.column(COUNT_COLUMN).to_numpy()
            names = [name for name in rows.schema.names if name != COUNT_COLUMN]
            ordered = ordered.select(names)
        firsts = np.flatnonzero(first_of_equals(ordered, tied))
        ordered = ordered.take(pa.array(firsts))
        sums = np.add.reduceat(counts, firsts)
        ordered = ordered.append_column(COUNT_COLUMN, pa.array(sums))
        hashes = hashes[firsts]
    splits = np.zeros(len(hashes), np.int64)
    return _pieces(ordered, hashes, splits, row_sizes(ordered), (split,))


def _pieces(
    ordered: pa.RecordBatch,
    hashes: UInt64s,
    splits: npt.NDArray[np.int64],
    sizes: Longs,
    names: Sequence[str],
) -> tuple[RowRun, list[pa.Buffer]]:
    """Returns a run of rows in their order, and its pieces."""
    largest = max(_PIECE_BYTES, _PIECE_COLUMN_BYTES * ordered.num_columns)
    starts = _piece_starts(splits, sizes, largest)
    stops = np.append(starts[1:], len(hashes))
    index = np.zeros(len(starts), _INDEX)
    pieces: list[pa.Buffer] = []
    offset = 0
    for number, (start, stop) in enumerate(
        zip(starts.tolist(), stops.tolist(), strict=True)
    ):
        message = ordered.slice(start, stop - start).serialize()
        pieces.append(message)
        index[number]["offset"] = offset
        index[number]["size"] = message.size
        index[number]["crc32c"] = google_crc32c.value(message)
        offset += message.size
    index["split"] = splits[starts]
    index["first"], index["last"] = hashes[starts], hashes[stops - 1]
    index["rows"] = stops - starts
    schema = bytes(memoryview(ordered.schema.serialize()))
    return RowRun("", b"", schema, tuple(names), index.tobytes()), pieces


def keep_pieces(
    run: RowRun,
    pieces: Sequence[pa.Buffer],
    store: Callable[[Sequence[pa.Buffer]], str],
) -> RowRun:
    """Returns a run with its pieces: inline if they are few, else stored.

    Args:
      run: without path and payload.
      pieces: of it.
      store: writes pieces end to end into a file of its own; returns its path.
    """
    if sum(piece.size for piece in pieces) > _INLINE_BYTES:
        return dataclasses.replace(run, path=store(pieces))
    payload = b"".join(bytes(memoryview(piece)) for piece in pieces)
    return dataclasses.replace(run, payload=payload)


def _piece_starts(splits: npt.NDArray[np.int64], sizes: Longs, largest: int) -> Longs:
    """Returns where pieces start: where the split changes, or a piece is full."""
    before = np.cumsum(sizes) - sizes
    part = before // largest
    changes = np.flatnonzero((np.diff(part) != 0) | (np.diff(splits) != 0)) + 1
    return np.concatenate(([0], changes)).astype(np.int64)


def _histograms(
    hashes: UInt64s,
    splits: npt.NDArray[np.int64],
    sizes: Longs,
    names: Sequence[str],
) -> dict[str, Histogram]:
    out = {}
    for number, name in enumerate(names):
        first, last = np.searchsorted(splits, [number, number + 1]).tolist()
        if first == last:
            continue
        bins = bin_of(hashes[first:last])
        starts = np.append(0, np.flatnonzero(bins[1:] != bins[:-1]) + 1)
        rows = np.diff(np.append(starts, last - first))
        out[name] = Histogram(
            bins[starts],
            rows,
            np.add.reduceat(sizes[first:last], starts).astype(np.int64),
        )
    return out


def cut_run(
    run: RowRun, bounds: Mapping[str, Bounds]
) -> list[tuple[tuple[str, int], RowRange]]:
    """Returns (shard, its rows of the run) for each shard that may have some.

    Args:
      run: with its path or payload.
      bounds: split -> its shards, or other parts of its hashes, ascending.
    """
    pieces = run.pieces
    whole = RowRange(run.path, run.payload, run.schema, b"", 0, 0)
    out = []
    for number, name in enumerate(run.splits):
        mine = pieces[pieces["split"] == number]
        if not len(mine) or name not in bounds:
            continue
        lows, highs = bounds[name].lows, bounds[name].highs
        begins = np.searchsorted(mine["last"], lows, side="left")
        ends = np.searchsorted(mine["first"], highs, side="right")
        for shard in np.flatnonzero(begins < ends).tolist():
            chosen = mine[begins[shard] : ends[shard]]
            found = _range_of(whole, chosen, int(lows[shard]), int(highs[shard]))
            out.append(((name, shard), found))
    return out


def rows_of_hash(rows: RowRange, value: int) -> RowRange | None:
    """Returns the part of a range that may have rows of a hash; None for no part."""
    pieces = np.frombuffer(rows.index, _INDEX)
    chosen = pieces[(pieces["first"] <= value) & (pieces["last"] >= value)]
    return _range_of(rows, chosen, value, value) if len(chosen) else None


def _range_of(
    rows: RowRange, chosen: npt.NDArray[np.void], low: int, high: int
) -> RowRange:
    """Returns the chosen pieces, with no more of the payload than theirs."""
    payload, chosen = b"", chosen.copy()
    if not rows.path:
        start = int(chosen[0]["offset"])
        payload = rows.payload[start : int(chosen[-1]["offset"] + chosen[-1]["size"])]
        chosen["offset"] -= start
    return RowRange(rows.path, payload, rows.schema, chosen.tobytes(), low, high)


def schema_of(rows: RowRange) -> pa.Schema:
    """Returns the schema of the rows of a range, with the columns of this module."""
    return pa.ipc.read_schema(pa.py_buffer(rows.schema))


def rows_in_range(rows: RowRange, data: bytes) -> pa.Table | None:
    """Returns the rows of a range, in the order of their hashes.

    Args:
      rows: the range.
      data: its bytes, `RowRange.place` of the run.

    Returns:
      The rows; None where a piece is not what was written.
    """
    schema = schema_of(rows)
    pieces = np.frombuffer(rows.index, _INDEX)
    start = int(pieces[0]["offset"])
    whole = pa.py_buffer(data)
    batches = []
    for piece in pieces:
        message = whole.slice(int(piece["offset"]) - start, int(piece["size"]))
        if google_crc32c.value(message) != int(piece["crc32c"]):
            return None
        batch = pa.ipc.read_record_batch(message, schema)
        if piece["first"] < rows.low or piece["last"] > rows.high:
            hashes = batch.column(HASH_COLUMN).to_numpy()
            first = int(np.searchsorted(hashes, np.uint64(rows.low), side="left"))
            last = int(np.searchsorted(hashes, np.uint64(rows.high), side="right"))
            batch = batch.slice(first, last - first)
        if batch.num_rows:
            batches.append(batch)
    return pa.Table.from_batches(batches, schema)
