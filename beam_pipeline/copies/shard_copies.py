"""Shards of a dataset as shards of another: the same file, or some of its records."""

import collections
import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import BinaryIO

import google_crc32c
import numpy as np

from beam_pipeline.copies.chosen_rows import Mask
from beam_pipeline.datasets.dataset import Dataset
from transforms.core.example.messages import replaced_ids
from transforms.core.manifest import FileFacts, ShardFacts, SplitFacts
from transforms.core.schema import Feature, Kind
from transforms.core.statistics import Statistics, summarize_feature
from transforms.core.tfrecord import TFRecordReader, TFRecordWriter
from transforms.core.tfrecord.compression import Compression
from transforms.core.tfrecord.frame import FOOTER_BYTES, HEADER_BYTES
from transforms.core.tfrecord.reader import PayloadBatch
from transforms.errors import DamageError, ExampleError, SpecError
from transforms.formats.tfrecord_files.columns import decode
from transforms.formats.tfrecord_files.features import record_types
from transforms.storage.files import storage
from transforms.work.store import Store

_STEP_BYTES = 1 << 20
# Feature -> what is known of its values.
Facts = dict[str, Statistics]


def add_facts(facts: Facts, more: Mapping[str, Statistics]) -> None:
    """Adds what is known of other records."""
    for name, statistics in more.items():
        before = facts.get(name)
        facts[name] = statistics if before is None else before.merge(statistics)


def summarized(
    payloads: PayloadBatch, features: Sequence[Feature], path: str
) -> dict[str, Statistics]:
    """Returns what is true of the values in records.

    Args:
      payloads: of n records.
      features: to look at.
      path: of the records' file, for messages.

    Raises:
      ExampleError: a record does not hold what a feature must.
    """
    types = {
        key: kind for feature in features for key, kind in record_types(feature).items()
    }
    decoded = decode(payloads, types)
    if decoded.refused:
        row, _, message = min(decoded.refused)
        record = payloads.first_record + row
        raise ExampleError(
            f"{path}: example {record:,}: {message}. Verify the dataset, and convert "
            f"it again."
        )
    return {
        feature.name: summarize_feature(feature, decoded.columns)
        for feature in features
    }


def with_new_ids(
    counts: Mapping[int, int] | None, ids: Mapping[int, int]
) -> Mapping[int, int] | None:
    """Returns class id -> records after some ids have changed; None for unknown."""
    if counts is None or not ids:
        return counts
    changed: collections.Counter[int] = collections.Counter()
    for number, count in counts.items():
        changed[ids.get(number, number)] += count
    return changed


def classes_by_name(
    feature: Feature, counts: Mapping[int, int], names: Sequence[str]
) -> dict[str, int]:
    """Returns class name (or integer, as text) -> records, as a manifest has it.

    Args:
      feature: a label, or an integer to be predicted.
      counts: class id -> records.
      names: of the classes, in the order of their ids.
    """
    if feature.kind is not Kind.LABEL:
        return {str(value): count for value, count in sorted(counts.items())}
    return {name: counts.get(number, 0) for number, name in enumerate(names)}


def with_range_of(
    statistics: Statistics, counts: Mapping[int, int] | None, classes: int
) -> Statistics:
    """Returns the range of class ids after some of them have changed.

    Args:
      statistics: of the label before.
      counts: class id -> records, of the new ids; None where they were not counted.
      classes: how many there are.
    """
    if not statistics.present:
        return statistics
    # Of classes too many to be counted the ends are not known.
    present = range(classes) if counts is None else [n for n, c in counts.items() if c]
    if not present:
        return statistics
    return dataclasses.replace(statistics, minimum=min(present), maximum=max(present))


@dataclasses.dataclass(frozen=True, slots=True)
class Changed:
    """Which records get other class ids, and which.

    Attributes:
      mask: n bools, one for each record of a shard.
      ids: by the key of the class ids in the records: class id -> the new one.
    """

    mask: Mask
    ids: Mapping[str, Mapping[int, int]]


@dataclasses.dataclass(frozen=True, slots=True)
class CopiedShard:
    """Where the records of a shard come from.

    Attributes:
      dataset: that they were in.
      split: their split there.
      facts: of their shard there.
      first: place of the first of them in that split.
      kept: n bools for the n records of that shard: whether they are copied.
      changed: which of them get other class ids; None for none.
    """

    dataset: Dataset
    split: str
    facts: ShardFacts
    first: int
    kept: Mask
    changed: Changed | None = None

    @property
    def path(self) -> str:
        """Where that shard is."""
        return self.dataset.path(self.facts.file)

    @property
    def is_whole(self) -> bool:
        """Whether the new shard is the same file."""
        return self.changed is None and bool(self.kept.all())

    def reader(self, file: BinaryIO) -> TFRecordReader:
        """Returns a reader of that shard, which is open."""
        compression = self.dataset.manifest.compression
        allow_empty = not self.facts.records
        return TFRecordReader(file, compression=compression, allow_empty=allow_empty)


def shards_of(dataset: Dataset, split: SplitFacts) -> Iterator[CopiedShard]:
    """Yields the shards of a split, whole."""
    first = 0
    for facts in split.shards:
        every = np.ones(facts.records, np.bool_)
        yield CopiedShard(dataset, split.name, facts, first, every)
        first += facts.records


def copy_whole(source: str, target: str, facts: FileFacts, *, attempts: str) -> None:
    """Makes a file of a dataset, as it is, a file of another.

    Both names are those of one file where the file system allows it. In an object store
    the store copies it. Else the bytes are copied, and their checksum is compared.

    Args:
      source: the file.
      target: the new one.
      facts: what the manifest states of it.
      attempts: see `StoredPath.create`.

    Raises:
      DamageError: it is not what the manifest states.
      OSError: it cannot be read.
    """
    size = storage(source).size_of()
    if size != facts.bytes:
        raise _other(source, facts, f"{size:,} bytes")
    if storage(source).copy_to(target):
        return
    with (
        storage(source).open_unbuffered() as file,
        storage(target).create(attempts=attempts) as sink,
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


def copied(
    source: CopiedShard,
    name: str,
    features: Sequence[Feature],
    store: Store,
    opened: Callable[[str], BinaryIO],
) -> tuple[ShardFacts, Facts]:
    """Writes records of a shard as another shard, each with its checksums.

    The shard is linked or copied whole where nothing changes; see `copy_whole`. Memory
    is about that of the longest record.

    Args:
      source: the shard, and which of its records.
      name: of the new one.
      features: whose values are summed up; none for a copy of which all is known.
      store: where the new one goes.
      opened: opens the shard.

    Returns:
      The facts of the new shard, and those of its values before any id is changed.

    Raises:
      DamageError, TFRecordError: the shard is damaged, or is not what the manifest
        states.
      ExampleError: a record does not hold what a feature must.
      SpecError: the shard is a zlib stream.
    """
    store.announce(name)
    target = os.path.join(store.dataset, name)
    values: Facts = {}
    facts, kept, changed = source.facts, source.kept, source.changed
    if source.is_whole:
        copy_whole(source.path, target, facts, attempts=store.attempts)
        if features:
            with opened(source.path) as file:
                for payloads in source.reader(file).batches():
                    add_facts(values, summarized(payloads, features, source.path))
        return dataclasses.replace(facts, file=name), values
    compression = source.dataset.manifest.compression
    if compression == Compression.ZLIB:
        raise SpecError(
            f"{source.path} would have to be written again, and zlib streams are read, "
            f"not written. Convert its dataset with --compression gzip first."
        )
    change = np.zeros(len(kept), np.bool_) if changed is None else changed.mask
    with opened(source.path) as file:
        reader = source.reader(file)
        with (
            storage(target).create(attempts=store.attempts) as sink,
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
                if features and mask.any():
                    some = _some(payloads, mask)
                    add_facts(values, summarized(some, features, source.path))
                _write(writer, payloads, mask, change[span], changed)
            reader.check_stated(
                records=facts.records, stored_bytes=facts.bytes, crc32c=facts.crc32c
            )
    done = writer.facts()
    numbers = (done.stored_bytes, done.crc32c, done.records, done.payload_bytes)
    return ShardFacts(name, *numbers), values


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
            for row in range(first, stop):
                record = payloads.payload(row)
                if changed is not None and change[row]:
                    for key, ids in changed.ids.items():
                        record = replaced_ids(record, key, ids)
                writer.write(record)
    flush()
