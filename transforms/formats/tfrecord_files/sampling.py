"""Sample records from places spread over TFRecord files, or read them all."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import NoReturn

import numpy as np

from transforms.core.example.record_kind import check_first
from transforms.core.model import Block
from transforms.core.tfrecord.compression import Compression
from transforms.core.tfrecord.reader import PayloadBatch
from transforms.errors import InputError
from transforms.formats.columnar.arrow_batches import (
    PIECE_BYTES,
)
from transforms.formats.table import InputFile
from transforms.formats.tfrecord_files.columns import Learned, combined, learn
from transforms.formats.tfrecord_files.cut import (
    compression_of,
    joined,
    some_payloads,
    unpacked,
)

# A sample reads at most this many files, and this many places in each, so that
# planning takes no longer for a larger source.
MAX_FILES = 64
_PLACES = 8

_NOTHING = PayloadBatch(
    b"", np.empty(0, np.int64), np.empty(0, np.int64), 0, np.empty(0, np.int64)
)


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


def refuse(places: Sequence[_Place], seen: Sequence[tuple[str, Learned]]) -> NoReturn:
    """Raises the error for files without an Example that has features.

    Args:
      places: the records of the sample.
      seen: origins, and what the records there hold.

    Raises:
      RecordKindError: the first record of a file is of another kind.
      InputError: in other cases.
    """
    for place in places:
        check_first(place.payloads, place.origin)
    found = "found no record with a feature"
    for origin, learned in seen:
        if learned.complaint:
            found = f"a record of {origin} is none: {learned.complaint.rstrip('.')}"
            break
    raise InputError(f"TFRecord files must hold tf.train.Examples; {found}.")
