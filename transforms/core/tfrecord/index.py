"""The index of a TFRecord file: where its records begin, from their headers.

    index/NAME.u64   n + 1 unsigned integers of 64 bits, little-endian: where each of
                     the n records begins, and where the file ends
    index/NAME.idx   the same as text: a line "OFFSET SIZE" a record

A reader gets record i from the bytes [i] to [i + 1]. Arrow's offsets have this form,
too, so the file can be mapped and used as it is.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from transforms.core.tfrecord.frame import (
    DAMAGE_KINDS,
    FOOTER_BYTES,
    HEADER_BYTES,
    OVERHEAD_BYTES,
    framed_length,
    length_crcs,
)
from transforms.core.tfrecord.walk import Fetch, boundaries
from transforms.errors import TFRecordError

Offsets = npt.NDArray[np.uint64]

_STEP_BYTES = 1 << 20
# Headers of longer records are read one by one, without what is between them.
_LONG_BYTES = 1 << 14
_LINES_TOGETHER = 1 << 16


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
    out = []
    # Lines take many times their bytes until they are joined.
    for first in range(0, len(offsets) - 1, _LINES_TOGETHER):
        places = offsets[first : first + _LINES_TOGETHER + 1]
        pairs = zip(places[:-1].tolist(), np.diff(places).tolist(), strict=True)
        out.append("".join(f"{start} {size}\n" for start, size in pairs).encode())
    return b"".join(out)


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


def scan_records(read: Fetch, size: int, *, path: str) -> npt.NDArray[np.uint64]:
    """Returns the n + 1 offsets of a file, from the headers of its records.

    Memory is that of the offsets. Arguments and errors are those of `record_ends`.
    """
    pieces = [np.zeros(1, np.int64), *record_ends(read, size, path=path)]
    return np.concatenate(pieces).view(np.uint64)


def record_ends(
    read: Fetch, size: int, *, path: str
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
        if len(starts):
            crcs = np.ndarray((len(data) - 3,), "<u4", data, 0, (1,))
            wrong = crcs[starts - FOOTER_BYTES] != length_crcs(lengths)
        else:
            # A record that is longer than what was read.
            length = framed_length(data)
            wrong = np.full(1, length is None)
            starts, lengths = np.full(1, HEADER_BYTES), np.full(1, length or 0)
            stop = int(lengths[0]) + OVERHEAD_BYTES
        ends = starts + lengths + FOOTER_BYTES
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
