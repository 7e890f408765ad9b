"""Fixed-length records as raw rows: blocks, samples, and labels out of range."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.model import Block, Reason, Rejection
from transforms.formats.binary.class_names import Names
from transforms.formats.binary.columns import column_of
from transforms.formats.binary.layout import BinaryField, Values
from transforms.formats.table import (
    Complaint,
    InputFile,
    RawRows,
    TableSample,
    only,
    rejection_of,
)

__all__ = ["blocks_of", "raw_rows", "sample_of", "sample_places"]

_SAMPLE_ROWS = 1024
_SAMPLE_BYTES = 64 << 20
# A column's bytes are counted in int32.
_MAX_BLOCK_BYTES = 1 << 30


def sample_of(
    sampled: Sequence[RawRows], columns: Sequence[str], *, total_rows: int
) -> TableSample:
    """Returns the sample that consists of some records of each file."""
    rows = sum(len(raw.numbers) for raw in sampled)
    unread = sum(len(raw.refused) for raw in sampled)
    return TableSample(
        columns={
            name: pa.chunked_array([raw.columns[name] for raw in sampled])
            for name in columns
            if sampled
        },
        rows=rows,
        unread=unread,
        total_rows=total_rows,
        complete=rows + unread == total_rows,
    )


def blocks_of(
    file: InputFile,
    count: int,
    *,
    header_bytes: int,
    record_bytes: int,
    block_bytes: int,
) -> Iterator[Block]:
    """Yields blocks of whole records; `start` and `stop` are byte offsets.

    Args:
      file: of records of one length behind a header.
      count: how many records to cut.
      header_bytes: bytes before the first record.
      record_bytes: bytes of each record.
      block_bytes: least size of a block but the last.
    """
    step = _rows_a_block(record_bytes, block_bytes)
    for first in range(0, count, step):
        rows = min(step, count - first)
        start = header_bytes + first * record_bytes
        stop = start + rows * record_bytes
        yield file.block(start, stop, rows=rows, before=start, first_row=first)


def raw_rows(
    block: Block,
    fields: Sequence[BinaryField],
    views: Mapping[str, Values],
    columns: Sequence[str],
    names: Names,
    record: Callable[[int], bytes | memoryview],
) -> RawRows:
    """Returns the records of a block; those with a label out of range are refused.

    Args:
      block: of n records.
      fields: what the records hold.
      views: by field, (n, *shape) values as they are stored.
      columns: the names of the fields to return.
      names: of the classes.
      record: the bytes of a record, by its number in the origin.

    Raises:
      InputError: there is no such field.
    """
    wanted = only({field.name: field for field in fields}, columns, block.origin)
    numbers = np.arange(block.first_row, block.first_row + block.rows, dtype=np.int64)
    bad = np.zeros(block.rows, np.bool_)
    refused: list[Complaint] = []
    for field in fields:
        count = len(names[field.name]) if field.name in names else field.class_count
        if not count:
            continue
        ids = views[field.name]
        wrong = ((ids < 0) | (ids >= count)) & ~bad
        for index in np.flatnonzero(wrong).tolist():
            message = (
                f"field {field.name!r} holds {ids[index]}: "
                f"the classes are numbered 0 to {count - 1}"
            )
            refused.append((int(numbers[index]), Reason.OUT_OF_RANGE, message))
        bad |= wrong
    fits: slice | npt.NDArray[np.bool_] = ~bad if bad.any() else slice(None)
    return RawRows(
        block,
        {
            name: column_of(field, views[name][fits], names.get(name))
            for name, field in wanted.items()
        },
        numbers[fits],
        sorted(refused),
        _rejecter(block, record),
    )


def _rejecter(
    block: Block, record: Callable[[int], bytes | memoryview]
) -> Callable[[Sequence[Complaint]], list[Rejection]]:
    """Returns what makes rejections with the digest of the record's bytes."""

    def reject(complaints: Sequence[Complaint]) -> list[Rejection]:
        return [
            rejection_of(block.origin, complaint, bytes(record(complaint[0])))
            for complaint in complaints
        ]

    return reject


def _rows_a_block(record_bytes: int, block_bytes: int) -> int:
    """Returns how many records make a block of at least this many bytes."""
    rows = -(-block_bytes // record_bytes)
    return max(1, min(rows, _MAX_BLOCK_BYTES // record_bytes))


def sample_places(
    counts: Sequence[int], record_bytes: int
) -> list[npt.NDArray[np.int64]]:
    """Returns for each file the numbers of the records to sample; they ascend."""
    total = sum(counts)
    rows = min(total, _SAMPLE_ROWS, max(1, _SAMPLE_BYTES // record_bytes))
    # In Python's integers: files may be larger than int64 allows for the product.
    chosen = np.array([i * total // rows for i in range(rows)], np.int64)
    out = []
    first = 0
    for count in counts:
        inside = (chosen >= first) & (chosen < first + count)
        out.append(chosen[inside] - first)
        first += count
    return out
