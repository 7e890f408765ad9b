"""The index of a TFRecord file: where each of its records is.

    index/NAME.u64   n + 1 unsigned integers of 64 bits, little-endian: where each of
                     the n records begins, and where the file ends
    index/NAME.idx   the same as text: a line "OFFSET SIZE" a record

A reader gets record i from the bytes [i] to [i + 1]. Arrow's offsets have this form,
too, so the file can be mapped and used as it is.
"""

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from transforms.core.tfrecord.frame import (
    DAMAGE_KINDS,
    HEADER_BYTES,
    OVERHEAD_BYTES,
    boundaries,
    length_crcs,
)
from transforms.errors import TFRecordError

_STEP_BYTES = 1 << 20
# Headers of longer records are read one by one, without what is between them.
_LONG_BYTES = 1 << 14
_LINES_TOGETHER = 1 << 18

Offsets = npt.NDArray[np.uint64]


def index_file(shard: str) -> str:
    """Returns the name of a shard's index, below the dataset's folder.

    >>> index_file("rows-train.tfrecord-00000-of-00001")
    'index/rows-train.tfrecord-00000-of-00001.u64'
    """
    return f"index/{shard}.u64"


def text_index_file(shard: str) -> str:
    """Returns the name of a shard's index as text, below the dataset's folder.

    >>> text_index_file("rows-train.tfrecord-00000-of-00001")
    'index/rows-train.tfrecord-00000-of-00001.idx'
    """
    return f"index/{shard}.idx"


def text_index(offsets: Offsets) -> bytes:
    r"""Returns an index as text, which DALI and vahidk's `tfrecord` read.

    A line a record: where it begins, and its size with header and footer, as in DALI's
    `tools/tfrecord2idx` and vahidk's `tfrecord2idx.py`.

    >>> text_index(np.array([0, 20, 37], np.uint64))
    b'0 20\n20 17\n'
    """
    # While they are made, lines take five times their bytes.
    count = len(offsets) - 1
    parts = (
        _lines(offsets[start : start + _LINES_TOGETHER + 1])
        for start in range(0, count, _LINES_TOGETHER)
    )
    return b"".join(parts)


def _lines(offsets: Offsets) -> bytes:
    # Loaded where it is needed: `verify` starts in 0.14 s.
    import pyarrow as pa
    import pyarrow.compute as pc

    starts = pa.array(offsets[:-1]).cast(pa.large_string())
    sizes = pa.array(np.diff(offsets)).cast(pa.large_string())
    space, nothing, end = (
        pa.scalar(text, pa.large_string()) for text in (" ", "", "\n")
    )
    lines = pc.binary_join_element_wise(starts, sizes, space)
    lines = pc.binary_join_element_wise(lines, nothing, end)
    text: bytes = lines.buffers()[2].to_pybytes()
    return text


def parse_index(data: bytes | memoryview, *, path: str, size: int) -> memoryview:
    """Returns the n + 1 offsets of an index; nothing is copied.

    Args:
      data: content of the index.
      path: of the index, for messages.
      size: bytes of the file that it is of.

    Raises:
      TFRecordError: it is damaged, or of another file.
    """
    view = memoryview(data).cast("B")
    offsets = view[: len(view) // 8 * 8].cast("Q")
    if len(view) % 8 or not _is_of(np.frombuffer(offsets, np.uint64), size):
        raise TFRecordError(
            f"{path} must be the index of its file, which has {size:,} bytes; it is "
            f"damaged, or that of another file.",
            path=path,
            kind="truncated",
        )
    return offsets


def _is_of(offsets: Offsets, size: int) -> bool:
    """Tells whether records of these offsets fill a file."""
    if not len(offsets) or offsets[0] or offsets[-1] != size or offsets.max() > size:
        return False
    return bool((offsets[1:] >= offsets[:-1] + np.uint64(OVERHEAD_BYTES)).all())


def scan_records(
    read: Callable[[int, int], bytes], size: int, *, path: str
) -> npt.NDArray[np.uint64]:
    """Returns the n + 1 offsets of a file, from the headers of its records.

    Memory is that of the offsets. Arguments and errors are those of `record_ends`.
    """
    pieces = [np.zeros(1, np.int64), *record_ends(read, size, path=path)]
    return np.concatenate(pieces).view(np.uint64)


def record_ends(
    read: Callable[[int, int], bytes], size: int, *, path: str
) -> Iterator[npt.NDArray[np.int64]]:
    """Yields where the records of a file end, from their headers, some at a time.

    Payloads are not checked.

    Args:
      read: returns the bytes from one offset to another.
      size: bytes of the file, which is not compressed.
      path: of the file, for messages.

    Raises:
      TFRecordError: a header is damaged, or the last record is not whole.
    """
    position = count = 0
    step = _STEP_BYTES
    while position < size:
        data = read(position, min(position + step, size))
        starts, lengths, stop = boundaries(data)
        if not len(starts):
            # A record that is longer than what was read.
            starts = np.full(1, HEADER_BYTES)
            lengths = np.frombuffer(data[:8].ljust(8, b"\0"), "<i8").astype(np.int64)
            stop = int(lengths[0]) + OVERHEAD_BYTES
        ends = starts + lengths + (OVERHEAD_BYTES - HEADER_BYTES)
        crcs = np.ndarray((max(len(data) - 3, 0),), "<u4", data, 0, (1,))
        wrong = np.ones(len(starts), np.bool_)
        whole = starts <= len(data)
        sound = lengths >= 0
        wrong[whole & sound] = crcs[starts[whole & sound] - 4] != length_crcs(
            lengths[whole & sound]
        )
        kind = "length-crc" if len(data) >= HEADER_BYTES else "truncated"
        if not wrong.any() and position + stop > size:
            wrong[-1], kind = True, "truncated"
        if wrong.any():
            first = int(wrong.argmax())
            record, at = count + first, position + int(starts[first]) - HEADER_BYTES
            raise TFRecordError(
                f"{path}: record {record:,} at byte {at:,}: {DAMAGE_KINDS[kind]}. "
                f"{record:,} records before it have sound headers. Fetch the file "
                f"again, or see what 'beam-tfrecord repair' can save.",
                path=path,
                record=record,
                offset=at,
                kind=kind,
            )
        yield ends + position
        count += len(starts)
        position += stop
        step = HEADER_BYTES if stop > _LONG_BYTES * len(starts) else _STEP_BYTES
