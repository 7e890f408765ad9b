"""Shards of a dataset as shards of another: the same file, or some of its records."""

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import BinaryIO

import google_crc32c
import numpy as np

from beam_pipeline.copies.chosen_rows import Mask
from beam_pipeline.copies.kept_facts import Counted, summarized
from transforms import files
from transforms.core.example.messages import replaced_ids
from transforms.core.manifest import FileFacts, ShardFacts
from transforms.core.schema import Feature
from transforms.core.tfrecord import TFRecordReader, TFRecordWriter
from transforms.core.tfrecord.compression import Compression
from transforms.core.tfrecord.frame import FOOTER_BYTES, HEADER_BYTES
from transforms.core.tfrecord.reader import PayloadBatch
from transforms.errors import DamageError, SpecError
from transforms.storage.duplicates import duplicate

_STEP_BYTES = 1 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class Changed:
    """Which records get other class ids, and which.

    Attributes:
      mask: n bools, one for each record of a shard.
      ids: by the key of the class ids in the records: class id -> the new one.
    """

    mask: Mask
    ids: Mapping[str, Mapping[int, int]]


def copy_whole(source: str, target: str, facts: FileFacts, *, attempts: str) -> None:
    """Makes a file of a dataset, as it is, a file of another.

    Both names are those of one file where the file system allows it. In an object store
    the store copies it. Else the bytes are copied, and their checksum is compared.

    Args:
      source: the file.
      target: the new one.
      facts: what the manifest states of it.
      attempts: see `transforms.files.create`.

    Raises:
      DamageError: it is not what the manifest states.
      OSError: it cannot be read.
    """
    size = files.size_of(source)
    if size != facts.bytes:
        raise _other(source, facts, f"{size:,} bytes")
    if duplicate(source, target):
        return
    with (
        files.open_unbuffered(source) as file,
        files.create(target, attempts=attempts) as sink,
    ):
        size = crc = 0
        while data := file.read(_STEP_BYTES):
            sink.write(data)
            size, crc = size + len(data), google_crc32c.extend(crc, data)
        if (size, crc) != (facts.bytes, facts.crc32c):
            raise _other(source, facts, f"{size:,} with {crc:08x}")


def _other(path: str, facts: FileFacts, found: str) -> DamageError:
    return DamageError(
        f"{path} must have the {facts.bytes:,} bytes with the CRC32C "
        f"{facts.crc32c:08x} that the manifest states; found {found}. Nothing was "
        f"committed. 'beam-tfrecord verify' shows all damage."
    )


def copy_some(
    source: str,
    target: str,
    facts: ShardFacts,
    kept: Mask,
    changed: Changed | None,
    features: Sequence[Feature],
    *,
    compression: str,
    attempts: str,
    opened: Callable[[str], BinaryIO],
) -> tuple[ShardFacts, Counted, Counted]:
    """Copies some records of a shard, each with its checksums.

    Memory is about that of the longest record.

    Args:
      source: the shard.
      target: the new one; its name is that of `facts`.
      facts: what the manifest states of the shard.
      kept: n bools, one for each record.
      changed: which of those get other class ids; None for none.
      features: to be looked at; none for a copy of which all is known.
      compression: of both.
      attempts: see `transforms.files.create`.
      opened: opens the shard.

    Returns:
      The facts of the new shard; what was seen of records that were left out, and of
      the others before any of them was changed.

    Raises:
      TFRecordError: the shard is damaged, or is not what the manifest states.
      ExampleError: a record does not hold what a feature must.
      SpecError: the shard is a zlib stream.
    """
    if compression == Compression.ZLIB:
        raise SpecError(
            f"{source} would have to be written again, and zlib streams are read, not "
            f"written. Convert its dataset with --compression gzip first."
        )
    gone, seen = Counted(), Counted()
    change = np.zeros(len(kept), np.bool_) if changed is None else changed.mask
    with opened(source) as file:
        reader = TFRecordReader(
            file, compression=compression, allow_empty=not facts.records
        )
        with (
            files.create(target, attempts=attempts) as sink,
            TFRecordWriter(sink, compression=compression) as writer,
        ):
            for payloads in reader.batches():
                span = slice(
                    payloads.first_record, payloads.first_record + len(payloads)
                )
                if span.stop > len(kept):
                    # More records than are stated: the check below says so.
                    break
                mask = kept[span]
                for part, counted in ((~mask, gone), (mask, seen)):
                    if features and part.any():
                        counted.add(summarized(_some(payloads, part), features, source))
                _write(writer, payloads, mask, change[span], changed)
            reader.check_stated(
                records=facts.records, stored_bytes=facts.bytes, crc32c=facts.crc32c
            )
    done = writer.facts()
    name = os.path.basename(target)
    return (
        ShardFacts(
            *(name, done.stored_bytes, done.crc32c, done.records, done.payload_bytes)
        ),
        gone,
        seen,
    )


def _some(payloads: PayloadBatch, mask: Mask) -> PayloadBatch:
    """Returns the payloads at some places."""
    if mask.all():
        return payloads
    return dataclasses.replace(
        payloads,
        starts=payloads.starts[mask],
        lengths=payloads.lengths[mask],
        offsets=payloads.offsets[mask],
    )


def _write(
    writer: TFRecordWriter,
    payloads: PayloadBatch,
    kept: Mask,
    change: Mask,
    changed: Changed | None,
) -> None:
    """Writes records that are kept, runs of neighbours at once."""
    # Of a long record the reader gives the payload alone.
    framed = int(payloads.starts[0]) >= HEADER_BYTES
    what = np.where(kept, np.where(change, 2, 1), 0) if framed else kept * 2
    edges = np.flatnonzero(np.diff(what)) + 1
    data = memoryview(payloads.data)
    pieces: list[memoryview] = []
    records = 0

    def flush() -> None:
        nonlocal records
        if pieces:
            writer.write_framed(b"".join(pieces), records=records)
            pieces.clear()
            records = 0

    for first, stop in zip(
        [0, *edges.tolist()], [*edges.tolist(), len(kept)], strict=True
    ):
        if what[first] == 1:
            begin = int(payloads.starts[first]) - HEADER_BYTES
            end = int(payloads.starts[stop - 1] + payloads.lengths[stop - 1])
            pieces.append(data[begin : end + FOOTER_BYTES])
            records += stop - first
        elif what[first] == 2:
            flush()
            for place in range(first, stop):
                record = payloads.payload(place)
                if changed is not None and change[place]:
                    for key, ids in changed.ids.items():
                        record = replaced_ids(record, key, ids)
                writer.write(record)
    flush()
