"""Existing TFRecord files as a table format: plain, gzip or zlib, detected by content.

A column is a feature of the Examples: int64, float32 or large_binary, or a list of one
of these where a sampled record has another number of values than one. A key that is
absent is a missing value.

Where the files belong to a dataset of this program or of TFDS, what is beside them
says more (see `dataset.py`): which split a shard is of, and of features:

| feature | in the records                      | raw column                      |
| ------- | ----------------------------------- | ------------------------------- |
| label   | int64, the class id                 | string, the class name          |
| bool    | int64, 0 or 1                       | bool                            |
| box     | four lists of floats                | list of float32[4]              |
| ragged  | flat values, lengths of rows        | list of lists                   |
| others  |                                     | as they are                     |

A plain file is cut at any record, by a walk from header to header that checks no more
than those. Of a compressed file nothing but the beginning can be found.
"""

import dataclasses
import functools
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import BinaryIO, ClassVar, NoReturn

import numpy as np
import pyarrow as pa

from transforms.core.infer.evidence import are_images
from transforms.core.model import Block
from transforms.core.reasons import Rejection
from transforms.core.schema import Feature, Kind
from transforms.core.tfrecord.compression import Compression, detect
from transforms.core.tfrecord.frame import DEFAULT_MAX_RECORD_BYTES, HEADER_BYTES
from transforms.core.tfrecord.index import record_ends
from transforms.core.tfrecord.reader import PayloadBatch, TFRecordReader
from transforms.core.tfrecord.walk import Kept, Salvage, boundaries, first_damage
from transforms.errors import InputError, TFRecordError
from transforms.formats.columnar.arrow_batches import (
    PIECE_BYTES,
    SAMPLE_BYTES,
    joined_sample,
)
from transforms.formats.columnar.arrow_types import CommonColumns
from transforms.formats.raw_rows import Complaint, RawRows, rejecter, rejection_of
from transforms.formats.table import (
    InputFile,
    Planned,
    SourceFile,
    TableReader,
    only,
    spread,
)
from transforms.formats.tfrecord_files.dataset import (
    StatedDataset,
    check_all_known,
    check_stated,
    known_features,
    label_maps_beside,
    shards_among,
    stated,
    stated_records,
)
from transforms.formats.tfrecord_files.stored_features import (
    Decoded,
    Learned,
    column_type,
    combined,
    learn,
    read_features,
)
from transforms.formats.tfrecord_files.typed_rows import in_pieces
from transforms.storage.files import storage

# A sample reads at most this many files, and this many places in each, so that
# planning takes no longer for a larger source.
MAX_FILES = 64
_PLACES = 8
_NOTHING = PayloadBatch.of([])


@dataclasses.dataclass(frozen=True, slots=True)
class TFRecordFiles(TableReader):
    """TFRecord files of Examples with the same features.

    Attributes:
      features: those that datasets state, and the others as the records have them,
        once they are known.
      full: settle the types by all records of all files; else by those of the sample.
      datasets: by folder, what the files there belong to.
    """

    title: ClassVar[str] = "TFRecord"
    images_named: ClassVar[bool] = True

    features: tuple[Feature, ...] = ()
    full: bool = False
    datasets: Mapping[str, StatedDataset] = dataclasses.field(default_factory=dict)

    def plan(self, files: Sequence[InputFile]) -> Planned:
        """Samples records from places spread evenly over the files.

        Of a dataset, its shards alone are read.

        Raises:
          InputError: a shard that a manifest names is not there, label maps beside
            the files are damaged or disagree, or no record is an Example.
        """
        files, datasets = shards_among(files)
        check_all_known(files, datasets)
        chosen = spread(files, MAX_FILES)
        budget = max(SAMPLE_BYTES // max(len(chosen), 1), 1 << 14)
        places = [sampled(file, budget) for file in chosen]
        seen = [(place.origin, learn(place.payloads)) for place in places]
        if self.full:
            seen = [(file.origin, learned_from(file)) for file in files]
        if not any(learned.kinds for _, learned in seen) and not datasets:
            refuse(seen)
        reader = dataclasses.replace(
            self,
            features=_all_features(seen, [*datasets.values()]),
            # Workers need no list of shards.
            datasets={
                folder: dataclasses.replace(stated, shards={})
                for folder, stated in datasets.items()
            },
        )
        records = sum(len(place.payloads) for place in places)
        reads = [reader.decoded(place.payloads, place.origin) for place in places]
        complete = all(place.ended for place in places) and len(chosen) == len(files)
        rows = sum(len(source.places) for source in reads)
        total = stated_records(files, datasets)
        sample = joined_sample(
            {feature.name: column_type(feature) for feature in reader.features},
            [source.columns for source in reads],
            total_rows=records if complete else total,
            sampled_bytes=sum(place.stored_bytes for place in places),
            unread=records - rows,
        )
        return Planned(
            reader,
            dataclasses.replace(sample, rows=rows),
            _features_of([*datasets.values()], sample.columns),
            label_maps_beside(files),
            files,
        )

    def split_of(self, origin: str) -> str:
        """Returns the split of a dataset's shard; else the one that the path says."""
        folder, name = os.path.split(origin)
        if folder in self.datasets:
            return self.datasets[folder].split_of(name)
        return super(TFRecordFiles, self).split_of(origin)

    def blocks(
        self, file: InputFile, *, block_bytes: int, limit_rows: int | None
    ) -> Iterator[Block]:
        """Yields blocks of whole records; a compressed file is one block."""
        rows = 0
        with file.open() as stream:
            if not file.size:
                if stated(file) not in ((0, 0), (0, None)):
                    raise damage_of(file.path)
                return
            if compression_of(stream, file.path) is not Compression.NONE:
                count = 0 if limit_rows is None else counted(stream, file, limit_rows)
                yield file.whole(rows=count)
                return
            begin = 0
            for end, records in cut(stream, file.path, block_bytes):
                if limit_rows is not None:
                    records = min(records, limit_rows - rows)
                yield file.block(begin, end, rows=records, before=begin, first_row=rows)
                begin, rows = end, rows + records
                if limit_rows is not None and rows >= limit_rows:
                    return
        check_stated(file, file.size, rows)

    def read(
        self, file: SourceFile, block: Block, columns: Sequence[str]
    ) -> Iterator[RawRows]:
        """Yields the records of a block; those of a compressed file in pieces."""
        with file.open() as stream:
            if compression_of(stream, file.path) is not Compression.NONE:
                yield from self._unpacked(file, block, stream, columns)
                return
        data = storage(file.path).read_range(block.start, block.stop, stamp=block.stamp)
        payloads = payloads_between(data, file.path, block.start, block.first_row)
        yield self._raw(block, payloads.part(0, block.rows), columns)

    def _unpacked(
        self, file: SourceFile, block: Block, stream: BinaryIO, columns: Sequence[str]
    ) -> Iterator[RawRows]:
        rows = used = 0
        for payloads in unpacked(stream, file.path, PIECE_BYTES):
            if block.rows:
                payloads = payloads.part(0, block.rows - rows)
            now = min(stream.tell(), block.stop)
            start = int(payloads.offsets[0])
            piece = dataclasses.replace(
                block,
                start=start,
                stop=start + now - used,
                first_row=rows,
                rows=len(payloads),
                position=block.position + used,
            )
            yield self._raw(piece, payloads, columns)
            rows, used = rows + len(payloads), now
            if block.rows and rows >= block.rows:
                return
        if not block.rows:
            check_stated(file, block.stop, rows)

    def decoded(
        self, payloads: PayloadBatch, origin: str, columns: Sequence[str] | None = None
    ) -> Decoded:
        """Returns records of a file as raw columns: those wanted, or all."""
        features = {feature.name: feature for feature in self.features}
        if columns is not None:
            features = only(features, columns, origin)
        if own := self.datasets.get(os.path.dirname(origin)):
            # Class names are those of the file's own dataset.
            stated = {feature.name: feature for feature in own.features}
            features |= {name: stated[name] for name in features.keys() & stated}
        return read_features(payloads, [*features.values()])

    def _raw(
        self, block: Block, payloads: PayloadBatch, columns: Sequence[str]
    ) -> RawRows:
        decoded = self.decoded(payloads, block.origin, columns)
        first = block.first_row
        return RawRows(
            block,
            decoded.columns,
            first + decoded.places,
            [(first + index, why, what) for index, why, what in decoded.refused],
            rejecter(_rejection, block, payloads),
        )


def _features_of(
    datasets: Sequence[StatedDataset], columns: Mapping[str, pa.ChunkedArray]
) -> tuple[Feature, ...]:
    """Returns the features that datasets state, and images by their bytes."""
    out = dict(known_features(datasets))
    for name, column in columns.items():
        is_bytes = pa.types.is_large_binary(column.type)
        if name not in out and is_bytes and are_images(column):
            out[name] = Feature(name, Kind.IMAGE, inline=True)
    return tuple(out.values())


def _all_features(
    seen: Sequence[tuple[str, Learned]], datasets: Sequence[StatedDataset]
) -> tuple[Feature, ...]:
    """Returns the features that datasets state, and those seen in records alone."""
    declared = known_features(datasets)
    keys = {k for feature in declared.values() for k in feature.record_keys}
    keys |= declared.keys()
    common = CommonColumns(may_lack=True)
    for origin, learned in seen:
        values = learned.values.items()
        common.add(origin, {n: kind for n, kind in values if n not in keys})
    learned_of = [learned for _, learned in seen]
    together = functools.reduce(combined, learned_of, learn(_NOTHING))
    seen_alone = together.features_of(dict(sorted(common.columns.items())))
    return (*declared.values(), *seen_alone)


def _rejection(block: Block, payloads: PayloadBatch, complaint: Complaint) -> Rejection:
    """Returns the rejection of a record, with the byte it begins at."""
    number, reason, message = complaint
    index = number - block.first_row
    told = f"record {number:,} at byte {int(payloads.offsets[index]):,}: {message}"
    data = payloads.payload(index)
    return rejection_of(block.origin, (number, reason, told), bytes(data))


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

    def read(start: int, stop: int) -> bytes:
        stream.seek(start)
        return stream.read(stop - start)

    size = stream.seek(0, io.SEEK_END)
    begin = records = 0
    for ends in record_ends(read, size, path=path):
        at = 0
        while (last := int(np.searchsorted(ends, begin + block_bytes))) < len(ends):
            yield int(ends[last]), records + last + 1 - at
            begin, records, at = int(ends[last]), 0, last + 1
        records += len(ends) - at
    if records:
        yield size, records


def damage_of(path: str) -> TFRecordError:
    """Reads a damaged file from its start; returns the error about the damage."""
    try:
        TFRecordReader(path, allow_empty=True).verify()
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
    sound = len(starts) and stop == len(data)
    sound = sound and lengths.max() <= DEFAULT_MAX_RECORD_BYTES
    if not sound or first_damage(data, starts, lengths):
        raise damage_of(path)
    offsets = starts + (offset - HEADER_BYTES)
    return PayloadBatch(data, starts, lengths, first, offsets)


def unpacked(stream: BinaryIO, path: str, piece_bytes: int) -> Iterator[PayloadBatch]:
    """Yields the records of a file from its start, some `piece_bytes` at a time."""
    reader = TFRecordReader(stream, allow_empty=True)
    # Errors name it by the path that it was listed with.
    reader.path = path
    yield from in_pieces(reader.batches(), piece_bytes)


def counted(stream: BinaryIO, file: SourceFile, limit: int) -> int:
    """Returns how many records a compressed file has, up to a limit."""
    rows = 0
    for payloads in unpacked(stream, file.path, 0):
        rows += len(payloads)
        if rows >= limit:
            return limit
    return rows


def some_payloads(data: bytes) -> PayloadBatch | None:
    """Returns the whole records of a piece from inside a file; damage ends them."""
    for span in Salvage(lambda start, stop: data[start:stop], len(data)):
        if isinstance(span, Kept):
            sound = data[span.start : span.stop]
            starts, lengths, _ = boundaries(sound)
            return PayloadBatch(sound, starts, lengths, 0, starts)
    return None


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
                records = some_payloads(stream.read(share))
                if records is not None:
                    batches.append(records)
                    stored += int(records.lengths.sum()) + 16 * len(records)
    payloads = PayloadBatch.joined(batches or [_NOTHING])
    return _Place(file.origin, payloads, stored, ended)


def learned_from(file: InputFile) -> Learned:
    """Reads a TFRecord file to its end; returns what all of its records hold."""
    with file.open() as stream:
        pieces = unpacked(stream, file.path, PIECE_BYTES)
        return functools.reduce(combined, map(learn, pieces), learn(_NOTHING))


def refuse(seen: Sequence[tuple[str, Learned]]) -> NoReturn:
    """Raises the error for records of which none is an Example that has features.

    Args:
      seen: origins, and what the records there hold.
    """
    problem = "found no record with a feature"
    for origin, learned in seen:
        if learned.complaint:
            problem = f"a record of {origin} is none: {learned.complaint.rstrip('.')}"
            break
    raise InputError(f"TFRecord files must hold tf.train.Examples; {problem}.")
