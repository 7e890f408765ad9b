"""Make the catalogue of a split from its shards, or compare it with them."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from transforms.core.catalogue import (
    OWN_COLUMNS,
    catalogue_schema,
    own_columns,
    part_file,
    part_ranges,
    write_part,
)
from transforms.core.manifest import FileFacts
from transforms.core.schema import Feature
from transforms.core.tfrecord.compression import Compression
from transforms.core.tfrecord.reader import PayloadBatch, TFRecordReader
from transforms.errors import DamageError
from transforms.formats.tfrecord_files.dataset import Shard
from transforms.reading.catalogue import Catalogue
from transforms.reading.rows import by_id, class_names
from transforms.storage.drafts import CountedSink
from transforms.storage.files import storage

# Each column of a batch takes some 50 us, however few rows the batch has. So large
# records are decoded together, until they are as many or as long as this.
_ROWS_TOGETHER = 512
_BYTES_TOGETHER = 16 << 20
# What the shards do not tell.
_OF_SOURCES = frozenset(("_origin", "_row", "_key"))


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
      attempts: a folder for temporary files; see `StoredPath.create`.

    Raises:
      OSError, StorageError: a shard cannot be read, or a part not be written.
      TFRecordError: a shard is damaged.
      ExampleError: a record does not hold what a feature must.
    """
    classes = class_names(features)
    return write_parts(
        *(path_of, split, [shard.records or 0 for shard in shards]),
        lambda number: rows_of_shard(shards[number].path, number, features),
        catalogue_schema(features, classes),
        classes,
        attempts=attempts,
    )


def write_parts(
    path_of: Callable[[str], str],
    split: str,
    records: Sequence[int],
    rows_of: Callable[[int], Iterator[Mapping[str, pa.Array]]],
    schema: pa.Schema,
    classes: Mapping[str, pa.Array],
    *,
    attempts: str,
) -> list[FileFacts]:
    """Writes the parts of a catalogue, as `write_catalogue` does.

    Args:
      path_of, split, attempts: see `write_catalogue`.
      records: of each shard.
      rows_of: yields the rows of a shard, by its number.
      schema: of them.
      classes: the class names of labels.
    """
    ranges = part_ranges(records)
    facts = []
    for index, shards in enumerate(ranges):
        name = part_file(split, index, len(ranges))
        rows = itertools.chain.from_iterable(map(rows_of, range(*shards)))
        with storage(path_of(name)).create(attempts=attempts) as sink:
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
    rows = by_id(features)
    with storage(path).opened() as file:
        reader = TFRecordReader(file, allow_empty=True)
        for payloads in _together(reader.batches()):
            is_plain = reader.compression is Compression.NONE
            columns = _columns_of(number, payloads, is_plain)
            if features:
                batch = rows.batch(payloads, path)
                columns |= dict(zip(batch.schema.names, batch.columns, strict=True))
            yield columns


def _columns_of(
    number: int, payloads: PayloadBatch, is_plain: bool
) -> dict[str, pa.Array]:
    """Returns the own columns of records of a shard, by its number in the split."""
    offsets = payloads.offsets if is_plain else None
    return own_columns(number, offsets, payloads.lengths, payloads.payload_crcs())


def _together(batches: Iterable[PayloadBatch]) -> Iterator[PayloadBatch]:
    """Yields the same records in batches that are no smaller than they must be."""
    waiting: list[PayloadBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows, size = rows + len(batch), size + len(batch.data)
        if rows >= _ROWS_TOGETHER or size >= _BYTES_TOGETHER:
            yield PayloadBatch.joined(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield PayloadBatch.joined(waiting)


def comparison(
    catalogue: Catalogue,
    number: int,
    path: str,
    first: int,
    records: int,
    *,
    compression: str,
) -> Callable[[PayloadBatch], None]:
    """Returns what compares the records of a shard, batch by batch, with their rows.

        reader.verify(comparison(catalogue, 0, path, 0, 5, compression="none"))

    Compared are shard, place, size and CRC32C of every record. DamageError is raised
    where their rows are others, or missing.

    Args:
      catalogue: of a split.
      number: of the shard in its split.
      path: of the shard, for messages.
      first: place of its first record in the split.
      records: how many it has.
      compression: of the shard.
    """
    names = OWN_COLUMNS - _OF_SOURCES
    if "_within" in catalogue.schema.names:
        # Places in gzip members, of version 0.2.
        names -= {"_offset", "_within"}
    compared = [name for name in catalogue.schema.names if name in names]
    place, end = first, min(first + records, len(catalogue))

    def see(batch: PayloadBatch) -> None:
        nonlocal place
        columns = _columns_of(number, batch, compression == "none")
        expected = pa.table({name: columns[name] for name in compared})
        start, stop = (min(at, end) for at in (place, place + len(batch)))
        read = catalogue.batches(compared, start, stop)
        rows = pa.Table.from_batches(read, expected.schema)
        if not rows.equals(expected[: len(rows)]):
            pairs = zip(rows.to_pylist(), expected.to_pylist(), strict=False)
            row, (its, true) = next(
                (n, pair) for n, pair in enumerate(pairs) if pair[0] != pair[1]
            )
            raise _differs_error(
                catalogue,
                f"record {place + row:,}, in {path}, is {true}; its row, {its}",
            )
        if len(rows) < len(batch):
            raise _differs_error(
                catalogue, f"it has no row for record {place + len(rows):,}"
            )
        place += len(batch)

    return see


def _differs_error(catalogue: Catalogue, detail: str) -> DamageError:
    """Returns the error about a catalogue whose rows are not those of the shards."""
    return DamageError(
        f"The catalogue {catalogue.path} must have a row for each record of its split, "
        f"in order; {detail}. Make the catalogue again."
    )
