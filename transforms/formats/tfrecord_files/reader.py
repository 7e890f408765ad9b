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
"""

import dataclasses
import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import BinaryIO, ClassVar

import pyarrow as pa

from transforms.core.infer.evidence import are_images
from transforms.core.model import Block
from transforms.core.reasons import Rejection
from transforms.core.schema import Feature, Kind
from transforms.core.tfrecord.compression import Compression
from transforms.core.tfrecord.reader import PayloadBatch, TFRecordReader
from transforms.errors import InputError, SourceError, TFRecordError
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
    Edition,
    Shard,
    StatedDataset,
    check_all_known,
    check_stated,
    known_features,
    label_maps_beside,
    shards_among,
    stated,
    stated_records,
)
from transforms.formats.tfrecord_files.records import (
    MAX_FILES,
    Learned,
    combined,
    counted,
    cut,
    damage_of,
    in_pieces,
    learn,
    learned_from,
    payloads_between,
    sampled,
    unpacked,
)
from transforms.formats.tfrecord_files.stored_features import (
    Decoded,
    column_type,
    read_features,
)
from transforms.formats.tfrecord_files.typed_rows import TypedRows
from transforms.rows.row_types import refuse
from transforms.storage.files import storage
from transforms.tfrecord.write import compression_of

# Rows of about this many bytes are decoded at a time.
_PIECE_BYTES = 4 << 20


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
                folder: dataclasses.replace(stated, shards=None)
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
    nothing = Learned({}, frozenset(), {}, "")
    together = functools.reduce(combined, [learned for _, learned in seen], nothing)
    seen_alone = together.features_of(dict(sorted(common.columns.items())))
    return (*declared.values(), *seen_alone)


def _rejection(block: Block, payloads: PayloadBatch, complaint: Complaint) -> Rejection:
    """Returns the rejection of a record, with the byte it begins at."""
    number, reason, message = complaint
    index = number - block.first_row
    told = f"record {number:,} at byte {int(payloads.offsets[index]):,}: {message}"
    data = payloads.payload(index)
    return rejection_of(block.origin, (number, reason, told), bytes(data))


def read_shard(
    shard: Shard, rows: TypedRows, edition: Edition
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a shard, every checksum checked.

    Raises:
      InputError: the dataset was replaced since it was listed.
      SourceError: the file cannot be read.
      TFRecordError: it is damaged, or another than the one stated.
      ExampleError: a record does not hold what a feature must.
    """
    try:
        with storage(shard.path).opened() as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            if shard.bytes not in (None, size) and edition.replacement():
                # Not one row of the other dataset is given.
                raise TFRecordError(f"{shard.path} has {size:,} bytes", path=shard.path)
            reader = TFRecordReader(
                file, compression=shard.compression, allow_empty=not shard.records
            )
            for payloads in in_pieces(reader.batches(), _PIECE_BYTES):
                yield rows.batch(payloads, shard.path)
        reader.check_stated(
            records=shard.records, stored_bytes=shard.bytes, crc32c=shard.crc32c
        )
    except (SourceError, TFRecordError) as error:
        change = edition.replacement()
        if not change:
            raise
        raise InputError(
            f"{shard.path}: the dataset was replaced while open: {change}. Run again "
            f"to read the new one."
        ) from error
