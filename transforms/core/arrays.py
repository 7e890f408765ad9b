"""Arrow arrays: NumPy views of their buffers, what their types hold, freed memory.

Arrays may be slices, and null slots may hold any bytes, which no function here uses.
"""

import ctypes
import functools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_NAMES = {"halffloat": "float16", "float": "float32", "double": "float64"}
_BYTES = frozenset(
    (
        *(pa.lib.Type_STRING, pa.lib.Type_LARGE_STRING),
        *(pa.lib.Type_BINARY, pa.lib.Type_LARGE_BINARY),
    )
)
_LISTS = frozenset(
    (pa.lib.Type_LIST, pa.lib.Type_LARGE_LIST, pa.lib.Type_FIXED_SIZE_LIST)
)
# Intervals of months, and of days and milliseconds.
_WITHOUT_ARRAYS = (pa.lib.Type_INTERVAL_MONTHS, pa.lib.Type_INTERVAL_DAY_TIME)
Sizes = npt.NDArray[np.int64]


def numpy_type(kind: pa.DataType) -> np.dtype:
    """Returns the dtype of a type of numbers or of bools.

    `DataType.to_pandas_dtype` would do, but imports pandas: a third of a second.

    Raises:
      TypeError: it is no type of numbers.
    """
    name = str(kind)
    return np.dtype(_NAMES.get(name, name))


def is_bytes(arrow_type: pa.DataType) -> bool:
    """Whether values are texts or bytes of any length, with offsets."""
    return arrow_type.id in _BYTES


def is_list(arrow_type: pa.DataType) -> bool:
    """Whether values are lists, of fixed size or with offsets."""
    return arrow_type.id in _LISTS


def values_and_rows(column: pa.Array) -> tuple[pa.Array, Sizes]:
    """Returns the values of a column, of lists all of theirs, and their rows."""
    rows = np.arange(len(column))
    while is_list(column.type):
        rows = rows[parents_of(column)]
        column = pc.list_flatten(column)
    return column, rows


def chunks_of(column: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    """Returns the chunks of a column; an array is the only one of its own."""
    return column.chunks if isinstance(column, pa.ChunkedArray) else [column]


def one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Returns a column in one piece."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    # `combine_chunks` copies a single chunk, too.
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def decoded(array: pa.Array) -> pa.Array:
    """Returns dictionary-encoded values as plain values; others unchanged."""
    if not pa.types.is_dictionary(array.type):
        return array
    values = array.dictionary
    if is_bytes(values.type):
        # `take` silently wraps the int32 offsets of results over 2 GiB.
        values = values.cast(pa.large_binary())
    return values.take(array.indices)


def is_number(arrow_type: pa.DataType) -> bool:
    """Whether values are integers, floats or decimals."""
    return bool(
        pa.types.is_integer(arrow_type)
        or pa.types.is_floating(arrow_type)
        or pa.types.is_decimal(arrow_type)
    )


def numpy_mask(bools: pa.Array) -> npt.NDArray[np.bool_]:
    """Returns Arrow bools as NumPy bools, null as false."""
    if bools.null_count:
        bools = pc.fill_null(bools, False)
    return np.asarray(bools.to_numpy(zero_copy_only=False), np.bool_)


def raw_values(array: pa.Array) -> npt.NDArray[Any]:
    """Returns the n values of a numeric array; null slots hold anything."""
    dtype = numpy_type(array.type)
    buffer = array.buffers()[1]
    if not len(array) or buffer is None:
        return np.zeros(len(array), dtype)
    return np.frombuffer(buffer, dtype, len(array), array.offset * dtype.itemsize)


def offsets_of(array: pa.Array) -> Sizes:
    """Returns the n + 1 offsets of lists, texts or bytes, as int64.

    They count from the start of the array's child or data buffer.
    """
    is_large = (
        pa.types.is_large_list(array.type)
        or pa.types.is_large_string(array.type)
        or pa.types.is_large_binary(array.type)
    )
    dtype = np.dtype(np.int64 if is_large else np.int32)
    buffer = array.buffers()[1]
    if buffer is None or not buffer.size:
        # An empty array may lack even its only offset, 0.
        return np.zeros(1, np.int64)
    first = array.offset * dtype.itemsize
    stored = np.frombuffer(buffer, dtype, len(array) + 1, first)
    return stored.astype(np.int64, copy=False)


def data_of(texts: pa.Array) -> npt.NDArray[np.uint8]:
    """Returns the data buffer of texts or bytes, in which `offsets_of` counts."""
    return np.frombuffer(texts.buffers()[2] or b"", np.uint8)


def binary_values(data: Any, offsets: Sizes) -> pa.LargeBinaryArray:
    """Returns the bytes between n + 1 offsets as n values, without a copy."""
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    count = max(len(offsets) - 1, 0)
    return pa.Array.from_buffers(pa.large_binary(), count, buffers, 0)


def flattened(
    lists: pa.Array, present: npt.NDArray[np.bool_] | None
) -> tuple[Sizes, pa.Array]:
    """Returns n + 1 list offsets, from 0 on, and the values of all lists.

    `present` is None if no list is null; null lists become empty.
    """
    if pa.types.is_fixed_size_list(lists.type):
        lengths = np.full(len(lists), lists.type.list_size)
    else:
        offsets = offsets_of(lists)
        if present is None:
            return offsets - offsets[0], lists.flatten()
        lengths = np.diff(offsets)
    if present is not None:
        lengths = lengths * present
    return np.concatenate(([0], np.cumsum(lengths))), lists.flatten()


def in_one_piece(
    table: pa.Table, *, but: Callable[[str, pa.ChunkedArray], bool] | None = None
) -> pa.Table:
    """Returns a table with each column in one chunk, or in more of 2 GiB.

    `take` joins the chunks of a column at each call, and then takes from the whole.

    Args:
      table: the columns.
      but: tells by name and chunks which columns stay as they are.
    """
    schema, columns = table.schema, table.columns
    # One column after the other: the chunks of those before are free again.
    del table
    for index, name in enumerate(schema.names):
        column = columns[index]
        if column.num_chunks != 1 and (but is None or not but(name, column)):
            alone = pa.Table.from_arrays([column], [""])
            columns[index] = alone.combine_chunks().column(0)
            del alone
        del column
    return pa.Table.from_arrays(columns, schema=schema)


def list_of(
    values: pa.Array, lengths: npt.ArrayLike, absent: pa.BooleanArray | None = None
) -> pa.ListArray:
    """Returns values as lists of these lengths, which sum to their number.

    `absent` says which are null, and None for no null.
    """
    offsets = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, mask=absent)


def list_lengths(lists: pa.Array) -> Sizes:
    """Returns the number of items of each list, 0 of a null."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    return np.asarray(lengths, np.int64)


def parents_of(lists: pa.Array) -> Sizes:
    """Returns the place of the list of each value that `flatten` gives.

    `list_parent_indices` also counts the values that a null list may hide.
    """
    return np.repeat(np.arange(len(lists)), list_lengths(lists))


def lists_like(lists: pa.Array, values: pa.Array) -> pa.ListArray:
    """Returns lists of other values: as long as the given ones, null where they are."""
    absent = lists.is_null() if lists.null_count else None
    return list_of(values, list_lengths(lists), absent)


def rows_with(lists: pa.Array, items: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Tells which of n lists have one of these items, a mask over `lists.flatten()`."""
    rows = np.zeros(len(lists), np.bool_)
    rows[parents_of(lists)[items]] = True
    return rows


def rows_holding(column: pa.Array) -> npt.NDArray[np.bool_]:
    """Tells which of n values hold something: lists an item that is no null.

    >>> rows_holding(pa.array([[1], [], None, [None]])).tolist()
    [True, False, False, False]
    """
    if isinstance(column, pa.ExtensionArray) or not is_list(column.type):
        return numpy_mask(column.is_valid())
    return rows_with(column, rows_holding(column.flatten()))


def regrouped(
    batches: Iterable[pa.RecordBatch], rows: int, most_bytes: float = math.inf
) -> Iterator[pa.RecordBatch]:
    """Yields the same rows in batches of `rows`, the last and large ones of fewer.

    Args:
      batches: of one schema.
      rows: of a batch.
      most_bytes: of a batch, beyond which it gets no more of those given.
    """
    waiting: list[pa.RecordBatch] = []
    count = size = 0
    for batch in batches:
        while batch.num_rows:
            piece = batch.slice(0, rows - count)
            waiting.append(piece)
            batch = batch.slice(piece.num_rows)
            count += piece.num_rows
            if most_bytes < math.inf:  # to count bytes takes longer than all the rest
                size += piece.nbytes
            if count == rows or size >= most_bytes:
                yield _one_batch(waiting)
                waiting, count, size = [], 0, 0
    if waiting:
        yield _one_batch(waiting)


def _one_batch(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Returns the rows of all batches as one; Arrow would copy a single one."""
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


# Parameters of mallopt(3) in glibc's <malloc.h>.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
# A chunk of images that is being written, the next one and their joined records.
_KEPT_BYTES = 64 << 20
# The largest threshold that glibc takes on all of its platforms.
_MAX_MAPPED_BYTES = 32 << 20


@functools.cache
def keep_freed_memory() -> None:
    """Keeps up to 64 MB of freed memory in this process, instead of returning it.

    Images come and go by hundreds. By default glibc gives their memory back each time
    and takes it again, and the kernel clears it again: that costs more than the reads.
    With another C library the program does the same, more slowly.
    """
    library = _glibc()
    if library is not None:
        library.mallopt(_M_MMAP_THRESHOLD, _MAX_MAPPED_BYTES)
        library.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        library.mallopt(_M_TOP_PAD, _KEPT_BYTES)


def return_freed_memory() -> None:
    """Returns what this process does not use to the system, which takes a millisecond.

    Arrow and glibc keep most of what is freed, and a forked worker starts with all of
    that.
    """
    pa.default_memory_pool().release_unused()
    library = _glibc()
    if library is not None:
        library.malloc_trim(0)


def _glibc() -> ctypes.CDLL | None:
    """Returns the C library of this process; None if it is not glibc."""
    library = ctypes.CDLL(None)
    return library if hasattr(library, "gnu_get_libc_version") else None


def type_nesting(kind: pa.DataType) -> int:
    """Returns how many levels of lists and structs a type has."""
    return max(level for _, level in _types(kind))


def has_arrays(kind: pa.DataType) -> bool:
    """Whether pyarrow has a class for arrays of a type; it lacks those of intervals."""
    return not any(inner.id in _WITHOUT_ARRAYS for inner, _ in _types(kind))


def _types(kind: pa.DataType) -> Iterator[tuple[pa.DataType, int]]:
    """Yields a type and those within it, each with the levels it is or is below."""
    inside: list[tuple[pa.DataType, int]] = [(kind, 0)]
    while inside:
        current, level = inside.pop()
        if isinstance(current, pa.BaseExtensionType):
            children = [current.storage_type]
        elif isinstance(current, pa.DictionaryType):
            children = [current.value_type]
        else:
            children = [current.field(i).type for i in range(current.num_fields)]
            level += bool(children)
        yield current, level
        inside += [(child, level) for child in children]
