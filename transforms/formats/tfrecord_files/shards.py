"""Read the shards of a dataset whole, each checked against what is stated of it."""

import dataclasses
import os
from collections.abc import Iterator

import pyarrow as pa

from transforms import files
from transforms.core.manifest import Manifest
from transforms.core.tfrecord import TFRecordReader
from transforms.errors import DamageError, InputError, SourceError, TFRecordError
from transforms.formats.tfrecord_files.cut import in_pieces
from transforms.formats.tfrecord_files.dataset import check_stated
from transforms.formats.tfrecord_files.typed_rows import TypedRows

# Rows of about this many bytes are decoded at a time.
_PIECE_BYTES = 4 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class Shard:
    """A TFRecord file, and what it must hold; None for what is not known.

    Attributes:
      path: where it is.
      compression: "none", "gzip" or "zlib"; "auto" goes by the content.
      records: how many it has.
      bytes: as stored.
      crc32c: of these bytes.
    """

    path: str
    compression: str = "auto"
    records: int | None = None
    bytes: int | None = None
    crc32c: int | None = None

    @property
    def stated(self) -> tuple[int, int | None] | None:
        """Its records and bytes, as `check_stated` takes them."""
        return None if self.records is None else (self.records, self.bytes)


@dataclasses.dataclass(frozen=True, slots=True)
class Edition:
    """The dataset that shards are of, as its manifest was when they were listed.

    Attributes:
      manifest: path of the manifest; empty for files without one.
      digest: of the dataset.
    """

    manifest: str = ""
    digest: str = ""

    def replacement(self) -> str:
        """Returns what has happened to the dataset since; empty for nothing."""
        if not self.manifest:
            return ""
        try:
            data = files.read_bytes(self.manifest)
            digest = Manifest.from_bytes(data, self.manifest).digest
        except FileNotFoundError:
            return "its manifest is gone"
        except (OSError, DamageError):
            return ""
        if digest == self.digest:
            return ""
        return f"its digest was {self.digest[:16]} and is {digest[:16]}"


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
        with files.opened(shard.path) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            if shard.bytes not in (None, size) and edition.replacement():
                # Not one row of the other dataset is given.
                check_stated(shard.path, size, -1, shard.stated)
            reader = TFRecordReader(
                file, compression=shard.compression, allow_empty=not shard.records
            )
            for payloads in in_pieces(reader.batches(), _PIECE_BYTES):
                yield rows.batch(payloads, shard.path)
        check_stated(shard.path, reader.stored_bytes, reader.records, shard.stated)
        if shard.crc32c not in (None, reader.crc32c):
            raise TFRecordError(
                f"{shard.path} must have the CRC32C {shard.crc32c:08x}, as stated "
                f"beside it; found {reader.crc32c:08x}. Fetch or convert the dataset "
                f"again.",
                path=shard.path,
                kind="data-crc",
            )
    except (SourceError, TFRecordError) as error:
        change = edition.replacement()
        if not change:
            raise
        raise InputError(
            f"{shard.path}: the dataset was replaced while open: {change}. Run again "
            f"to read the new one."
        ) from error
