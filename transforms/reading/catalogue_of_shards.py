"""Make the catalogue of a split from shards that are already written."""

import dataclasses
import functools
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt
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
from transforms.core.tfrecord import TFRecordReader
from transforms.core.tfrecord.compression import Compression, detect
from transforms.core.tfrecord.frame import unmask_all
from transforms.core.tfrecord.gzip_members import Addresses, scan_members
from transforms.core.tfrecord.reader import PayloadBatch
from transforms.errors import TFRecordError
from transforms.formats.tfrecord_files.shards import Shard
from transforms.formats.tfrecord_files.typed_rows import TypedRows
from transforms.storage.entries import Sink

__all__ = ["rows_of_shard", "write_catalogue"]

_HEAD_BYTES = 64


def write_catalogue(
    folder: str,
    split: str,
    shards: Sequence[Shard],
    features: Sequence[Feature],
    *,
    attempts: str,
) -> list[FileFacts]:
    """Writes the parts of the catalogue of a split; returns their facts, in order.

    Each part appears when it is whole and durable. Memory is that of one row group.

    Args:
      folder: that the names of parts are below.
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
    gzip = any(shard.compression == "gzip" for shard in shards)
    schema = catalogue_schema(features, classes, gzip=gzip)
    ranges = part_ranges([shard.records or 0 for shard in shards])
    facts = []
    for index, (first, last) in enumerate(ranges):
        name = part_file(split, index, len(ranges))
        rows = (
            batch
            for number in range(first, last)
            for batch in rows_of_shard(shards[number].path, number, features)
        )
        with files.create(os.path.join(folder, name), attempts=attempts) as sink:
            counted = _Counted(sink)
            write_part(counted, rows, schema, classes)
        facts.append(FileFacts(name, counted.tell(), counted.crc32c))
    return facts


class _Counted(io.RawIOBase):
    """Passes bytes on to a sink; knows their number and their CRC32C."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._size = 0
        self.crc32c = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        size = self._sink.write(data)
        self._size += size
        self.crc32c = google_crc32c.extend(self.crc32c, bytes(data))
        return size

    def tell(self) -> int:
        return self._size


def rows_of_shard(
    path: str, number: int, features: Sequence[Feature]
) -> Iterator[Mapping[str, pa.Array]]:
    """Yields the columns of a shard's records, as `write_part` takes them.

    The shard is read once, its checksums checked; a gzip file once more, for the places
    of its members. Memory does not depend on its size, but for 8 bytes a record of a
    gzip file.

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
    addresses = _addresses(path)
    with files.opened(path) as file:
        reader = TFRecordReader(file, allow_empty=True)
        for payloads in reader.batches():
            first, count = payloads.first_record, len(payloads)
            plain = reader.compression is Compression.NONE
            columns = own_columns(
                number,
                payloads.offsets if plain else None,
                payloads.lengths,
                _payload_crcs(payloads),
                addresses=None
                if addresses is None
                else addresses[first : first + count],
            )
            if features:
                batch = rows.batch(payloads, path)
                columns |= dict(zip(batch.schema.names, batch.columns, strict=True))
            yield columns


def _addresses(path: str) -> Addresses | None:
    """Returns where the records of a gzip file are; None for other files."""
    size = files.size_of(path)
    head = files.read_range(path, 0, min(size, _HEAD_BYTES))
    if detect(head, path=path) is not Compression.GZIP:
        return None
    try:
        return scan_members(functools.partial(files.read_range, path), size, path=path)
    except TFRecordError as error:
        if error.kind == "too-long":
            return None  # one stream
        raise


def _payload_crcs(payloads: PayloadBatch) -> npt.NDArray[np.uint32]:
    """Returns the CRC32C of each payload: what the reader has found in the footers."""
    data, ends = payloads.data, payloads.starts + payloads.lengths
    if int(ends[-1]) + 4 > len(data):
        # A long record comes without its framing.
        (record,) = payloads.to_list()
        return np.array([google_crc32c.value(record)], np.uint32)
    words = np.ndarray((len(data) - 3,), "<u4", data, 0, (1,))
    return unmask_all(words[ends])
