"""Where TFRecord files can be cut: at the frames of their records.

A plain file is cut at any record, found by walking from header to header. The walk
checks the headers' checksums and no more: those of payloads are checked when the block
is read. Of a compressed file nothing but the beginning can be found.
"""

import dataclasses
import functools
import io
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO, NoReturn

import numpy as np
import numpy.typing as npt

from transforms.core.model import Block
from transforms.core.tfrecord.chunk import boundaries, first_damage
from transforms.core.tfrecord.compression import Compression, detect, is_frame_header
from transforms.core.tfrecord.frame import (
    DAMAGE_KINDS,
    DEFAULT_MAX_RECORD_BYTES,
    FOOTER_BYTES,
    HEADER_BYTES,
    OVERHEAD_BYTES,
    length_crcs,
)
from transforms.core.tfrecord.reader import PayloadBatch, TFRecordReader, verify_file
from transforms.errors import InputError, TFRecordError
from transforms.formats.columnar.arrow_batches import PIECE_BYTES, grouped
from transforms.formats.table import InputFile
from transforms.formats.tfrecord_files.columns import Learned, combined, learn

_Longs = npt.NDArray[np.int64]

_STEP_BYTES = 1 << 20
_LENGTH = struct.Struct("<Q")
# Search this far for a record from a place inside a file; a longer record there is
# left out of the sample.
_SEARCH_BYTES = 1 << 22
_MAX_TRIES = 1 << 14
# A sample reads at most this many files, and this many places in each, so that
# planning takes no longer for a larger source.
MAX_FILES = 64
_PLACES = 8

_NOTHING = PayloadBatch(
    b"", np.empty(0, np.int64), np.empty(0, np.int64), 0, np.empty(0, np.int64)
)


def compression_of(stream: BinaryIO, path: str) -> Compression:
    """Returns how an open file is compressed, by its first bytes; rewinds it.

    Raises:
      TFRecordError: the content is of a compression that no TFRecord reader reads.
    """
    head = stream.read(HEADER_BYTES)
    stream.seek(0)
    return detect(head, path=path)


def cut(stream: BinaryIO, path: str, block_bytes: int) -> Iterator[tuple[int, int]]:
    """Yields (end, records) of each block of a plain file, `block_bytes` or longer.

    Raises:
      TFRecordError: a header is damaged, or the file ends inside a record.
    """
    size = stream.seek(0, io.SEEK_END)
    stream.seek(0)
    offset = begin = records = 0
    data = b""
    while offset < size:
        data += stream.read(_STEP_BYTES)
        starts, lengths, stop = boundaries(data)
        if not len(starts):
            stop = _skip(stream, data, offset, size, path)
            starts = np.array([HEADER_BYTES], np.int64)
            data = b""
        else:
            _check_headers(data, starts, lengths, path)
            data = data[stop:]
        ends = np.append(starts[1:] - HEADER_BYTES, stop) + offset
        at = 0
        while at < len(ends):
            last = int(np.searchsorted(ends, begin + block_bytes))
            if last >= len(ends):
                break
            yield int(ends[last]), records + last + 1 - at
            begin, records, at = int(ends[last]), 0, last + 1
        records += len(ends) - at
        offset += stop
    if records:
        yield offset, records


def _skip(stream: BinaryIO, data: bytes, offset: int, size: int, path: str) -> int:
    """Seeks past a record longer than the data read; returns its framed length."""
    if len(data) >= HEADER_BYTES:
        (length,) = _LENGTH.unpack_from(data)
        total = length + OVERHEAD_BYTES
        if is_frame_header(data) and offset + total <= size:
            stream.seek(offset + total)
            return int(total)
    raise damage_of(path)


def _check_headers(data: bytes, starts: _Longs, lengths: _Longs, path: str) -> None:
    words: npt.NDArray[np.uint32] = np.ndarray((len(data) - 3,), "<u4", data, 0, (1,))
    distinct, inverse = np.unique(lengths, return_inverse=True)
    if (words[starts - FOOTER_BYTES] != length_crcs(distinct)[inverse]).any():
        raise damage_of(path)


def damage_of(path: str) -> TFRecordError:
    """Reads a damaged file from its start; returns the error about the damage."""
    try:
        verify_file(path, allow_empty=True)
    except TFRecordError as error:
        return error
    return TFRecordError(
        f"{path}: the file changed while it was read. Read it again when its writer "
        f"is done.",
        path=path,
    )


def payloads_between(data: bytes, path: str, offset: int, first: int) -> PayloadBatch:
    """Returns the records that a piece of a plain file holds, all of them checked.

    Args:
      data: whole records with their frames.
      path: the file.
      offset: where in it they begin.
      first: number of the first record.

    Raises:
      TFRecordError: a record is damaged.
    """
    starts, lengths, stop = boundaries(data)
    if not len(starts) or stop != len(data):
        raise damage_of(path)
    damage = first_damage(data, starts, lengths, DEFAULT_MAX_RECORD_BYTES)
    if damage is not None:
        index, kind = damage
        at = offset + int(starts[index]) - HEADER_BYTES
        raise TFRecordError(
            f"{path}: record {first + index:,} at byte {at:,}: {DAMAGE_KINDS[kind]}. "
            f"{first + index:,} records come before it. Fetch or write the file again.",
            path=path,
            record=first + index,
            offset=at,
            kind=kind,
        )
    offsets = starts + (offset - HEADER_BYTES)
    return PayloadBatch(data, starts, lengths, first, offsets)


def unpacked(stream: BinaryIO, path: str, piece_bytes: int) -> Iterator[PayloadBatch]:
    """Yields the records of a file from its start, some `piece_bytes` at a time."""
    reader = TFRecordReader(stream, allow_empty=True)
    # Errors name it by the path that it was listed with.
    reader.path = path
    yield from in_pieces(reader.batches(), piece_bytes)


def in_pieces(
    batches: Iterable[PayloadBatch], piece_bytes: int
) -> Iterator[PayloadBatch]:
    """Yields the records of batches of one file, `piece_bytes` or more at a time."""
    return map(joined, grouped(batches, lambda batch: len(batch.data), piece_bytes))


def joined(batches: Sequence[PayloadBatch]) -> PayloadBatch:
    """Returns the records of several batches as one."""
    if len(batches) == 1:
        return batches[0]
    begins = np.cumsum([0, *(len(batch.data) for batch in batches[:-1])])
    return PayloadBatch(
        b"".join(batch.data for batch in batches),
        np.concatenate([b.starts + at for b, at in zip(batches, begins, strict=True)]),
        np.concatenate([batch.lengths for batch in batches]),
        batches[0].first_record,
        np.concatenate([batch.offsets for batch in batches]),
        # Those of long records are not in the data.
        None
        if all(batch.crcs is None for batch in batches)
        else np.concatenate([batch.payload_crcs() for batch in batches]),
    )


def some_payloads(data: bytes) -> PayloadBatch | None:
    """Returns the whole records of a piece from inside a file; damage ends them."""
    data = data[_next_record(data) :]
    starts, lengths, _ = boundaries(data)
    if not len(starts):
        return None
    damage = first_damage(data, starts, lengths, DEFAULT_MAX_RECORD_BYTES)
    good = len(starts) if damage is None else damage[0]
    if not good:
        return None
    return PayloadBatch(data, starts[:good], lengths[:good], 0, starts[:good])


def _next_record(data: bytes) -> int:
    """Returns where the next record begins; the data's length where none is found."""
    room = min(len(data), _SEARCH_BYTES) - HEADER_BYTES
    if room <= 0:
        return len(data)
    words: npt.NDArray[np.uint64] = np.ndarray((room,), "<u8", data, 0, (1,))
    # Few places hold a plausible length, and the checksum tells which of them is one.
    for place in np.flatnonzero(words <= len(data))[:_MAX_TRIES].tolist():
        if is_frame_header(data[place : place + HEADER_BYTES]):
            return int(place)
    return len(data)


@dataclasses.dataclass(frozen=True, slots=True)
class _Place:
    """Some records of one file.

    Attributes:
      origin: the file.
      payloads: the records.
      stored_bytes: of the file that they take.
      ended: whether they are all there are.
    """

    origin: str
    payloads: PayloadBatch
    stored_bytes: int
    ended: bool

    def whole_block(self) -> Block:
        """Returns a block of all the records."""
        return Block(self.origin, 0, self.stored_bytes, rows=len(self.payloads))


def sampled(file: InputFile, budget: int) -> _Place:
    """Returns records of a file, about `budget` bytes of them."""
    batches: list[PayloadBatch] = []
    ended = True
    with file.open() as stream:
        plain = compression_of(stream, file.path) is Compression.NONE
        spread = plain and file.size > budget
        share = budget // _PLACES if spread else budget
        size = 0
        # At least one record is read, even if it is longer than the budget.
        for batch in unpacked(stream, file.path, 0):
            ended = not batches or size < share
            if not ended:
                break
            batches.append(batch)
            size += len(batch.data)
        stored = size if plain else min(stream.tell(), file.size)
        if spread and not ended:
            for index in range(1, _PLACES):
                stream.seek(file.size * index // _PLACES)
                found = some_payloads(stream.read(share))
                if found is not None:
                    batches.append(found)
                    stored += int(found.lengths.sum()) + 16 * len(found)
    return _Place(file.origin, joined(batches) if batches else _NOTHING, stored, ended)


def learned_from(file: InputFile) -> Learned:
    """Returns what all records of a file hold."""
    with file.open() as stream:
        pieces = unpacked(stream, file.path, PIECE_BYTES)
        return functools.reduce(combined, map(learn, pieces), learn(_NOTHING))


def refuse(seen: Sequence[tuple[str, Learned]]) -> NoReturn:
    """Raises the error for files without an Example that has features.

    Args:
      seen: origins, and what the records there hold.
    """
    found = "found no record with a feature"
    for origin, learned in seen:
        if learned.complaint:
            found = f"a record of {origin} is none: {learned.complaint.rstrip('.')}"
            break
    raise InputError(f"TFRecord files must hold tf.train.Examples; {found}.")
