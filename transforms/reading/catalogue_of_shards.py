"""Make the catalogue of a split from shards that are already written."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from transforms import files
from transforms.core.catalogue import (
    catalogue_schema,
    own_columns,
    part_file,
    part_ranges,
    write_part,
)
from transforms.core.manifest import FileFacts
from transforms.core.schema import Feature, Kind
from transforms.core.tfrecord import PayloadBatch, TFRecordReader
from transforms.core.tfrecord.compression import Compression
from transforms.formats.tfrecord_files.cut import joined
from transforms.formats.tfrecord_files.shards import Shard
from transforms.formats.tfrecord_files.typed_rows import TypedRows
from transforms.storage.counted_sink import CountedSink

# Each column of a batch takes some 50 us, however few rows the batch has. So large
# records are decoded together, until they are as many or as long as this.
_ROWS_TOGETHER = 512
_BYTES_TOGETHER = 16 << 20


def write_catalogue(
    path_of: Callable[[str], str],
    split: str,
    shards: Sequence[Shard],
    features: Sequence[Feature],
    *,
    attempts: str,
) -> list[FileFacts]:
    """Writes the parts of the catalogue of a split; returns their facts, in order.

    Each part appears when it is whole and durable. Memory is that of one row group.

    Args:
      path_of: returns the path of a part, by its name.
      split: its name.
      shards: of the split, in order, with their records.
      features: the columns, as `catalogue_features` returns them, with the class names
        of labels as vocabularies.
      attempts: a folder for temporary files; see `files.create`.

    Raises:
      OSError, StorageError: a shard cannot be read, or a part not be written.
      TFRecordError: a shard is damaged.
      ExampleError: a record does not hold what a feature must.
    """
    classes = {
        each.name: pa.array(each.vocabulary, pa.string())
        for each in features
        if each.kind is Kind.LABEL and each.vocabulary
    }
    schema = catalogue_schema(features, classes)
    ranges = part_ranges([shard.records or 0 for shard in shards])
    facts = []
    for index, (first, last) in enumerate(ranges):
        name = part_file(split, index, len(ranges))
        rows = (
            batch
            for number in range(first, last)
            for batch in rows_of_shard(shards[number].path, number, features)
        )
        with files.create(path_of(name), attempts=attempts) as sink:
            counted = CountedSink(sink)
            write_part(counted, rows, schema, classes)
        facts.append(FileFacts(name, counted.tell(), counted.crc32c))
    return facts


def rows_of_shard(
    path: str, number: int, features: Sequence[Feature]
) -> Iterator[Mapping[str, pa.Array]]:
    """Yields the columns of a shard's records, as `write_part` takes them.

    The shard is read once, its checksums checked. Memory does not depend on its size.

    Args:
      path: of the shard.
      number: that it has in its split.
      features: the columns, as `catalogue_features` returns them.

    Raises:
      OSError: it cannot be read.
      TFRecordError: it is damaged.
      ExampleError: a record does not hold what a feature must.
    """
    # Labels as ids: names would be looked up for each record.
    rows = TypedRows(tuple(dataclasses.replace(f, vocabulary=None) for f in features))
    with files.opened(path) as file:
        reader = TFRecordReader(file, allow_empty=True)
        for payloads in _together(reader.batches()):
            plain = reader.compression is Compression.NONE
            columns = own_columns(
                number,
                payloads.offsets if plain else None,
                payloads.lengths,
                payloads.payload_crcs(),
            )
            if features:
                batch = rows.batch(payloads, path)
                columns |= dict(zip(batch.schema.names, batch.columns, strict=True))
            yield columns


def _together(batches: Iterable[PayloadBatch]) -> Iterator[PayloadBatch]:
    """Yields the same records in batches that are no smaller than they must be."""
    waiting: list[PayloadBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows, size = rows + len(batch), size + len(batch.data)
        if rows >= _ROWS_TOGETHER or size >= _BYTES_TOGETHER:
            yield joined(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield joined(waiting)
