"""The rows of a catalogue, from a shard that is already written."""

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms import files
from transforms.core.catalogue import own_columns
from transforms.core.schema import Feature
from transforms.core.tfrecord import TFRecordReader
from transforms.core.tfrecord.compression import Compression, detect
from transforms.core.tfrecord.frame import unmask_all
from transforms.core.tfrecord.gzip_members import Addresses, scan_members
from transforms.core.tfrecord.reader import PayloadBatch
from transforms.errors import TFRecordError
from transforms.formats.tfrecord_files.typed_rows import TypedRows

__all__ = ["rows_of_shard"]

_HEAD_BYTES = 64


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
    reader = TFRecordReader(path, allow_empty=True)
    addresses = _addresses(path)
    for payloads in reader.batches():
        first, count = payloads.first_record, len(payloads)
        plain = reader.compression is Compression.NONE
        columns = own_columns(
            number,
            payloads.offsets if plain else None,
            payloads.lengths,
            _payload_crcs(payloads),
            addresses=None if addresses is None else addresses[first : first + count],
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
