"""Shards of a dataset as shards of another: the same file, or some of its records."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence

import google_crc32c
import numpy as np
import numpy.typing as npt

from beam_pipeline.datasets.dataset import Dataset
from transforms.core.example.messages import replaced_ids
from transforms.core.files import ShardName
from transforms.core.manifest import FileFacts, ShardFacts, SplitFacts
from transforms.core.tfrecord.compression import Compression
from transforms.core.tfrecord.frame import FOOTER_BYTES, HEADER_BYTES
from transforms.core.tfrecord.reader import PayloadBatch, TFRecordReader
from transforms.core.tfrecord.writer import TFRecordWriter
from transforms.errors import DamageError, SpecError
from transforms.storage.files import storage
from transforms.work.store import Store

_STEP_BYTES = 1 << 20
Mask = npt.NDArray[np.bool_]
Ids = Mapping[int, int]
"""Class id -> the new one, of those that change."""


@dataclasses.dataclass(frozen=True, slots=True)
class CopiedShard:
    """Where the records of a shard come from.

    Attributes:
      dataset: that they were in.
      split: their split there.
      facts: of their shard there.
      first: place of the first of them in that split.
      kept: n bools for the n records of that shard: whether they are copied.
      ids: class ids that change, by the key of the label in the records.
    """

    dataset: Dataset
    split: str
    facts: ShardFacts
    first: int
    kept: Mask
    ids: Mapping[str, Ids] = dataclasses.field(default_factory=dict)

    @property
    def path(self) -> str:
        """Where that shard is."""
        return self.dataset.path(self.facts.file)

    @property
    def is_whole(self) -> bool:
        """Whether the new shard is the same file."""
        return not self.ids and bool(self.kept.all())


def numbered_shards(
    datasets: Sequence[Dataset],
    splits: Iterable[str],
    ids_of: Callable[[Dataset, SplitFacts], dict[str, Ids]],
) -> dict[str, CopiedShard]:
    """Returns the name of each new shard, and the whole shard that it copies.

    Args:
      datasets: whose splits of one name are joined.
      splits: the names of those that are copied.
      ids_of: returns the class ids that change in a split, as in `CopiedShard.ids`.
    """
    sources: dict[str, CopiedShard] = {}
    manifest = datasets[0].manifest
    for name in splits:
        shards = []
        for dataset in datasets:
            for split in (s for s in dataset.manifest.splits if s.name == name):
                first, ids = 0, ids_of(dataset, split)
                for facts in split.shards:
                    every = np.ones(facts.records, np.bool_)
                    new_ids = ids if facts.records else {}
                    shards.append(
                        CopiedShard(dataset, name, facts, first, every, new_ids)
                    )
                    first += facts.records
        for number, shard in enumerate(shards):
            numbered = (manifest.name, name, number, len(shards), manifest.compression)
            sources[str(ShardName(*numbered))] = shard
    return sources


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
    size, crc = storage(source).size_of(), facts.crc32c
    if size == facts.bytes:
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
        raise DamageError(
            f"{source} must have the {facts.bytes:,} bytes with the CRC32C "
            f"{facts.crc32c:08x} that the manifest states; it has {size:,} with "
            f"{crc:08x}. Nothing was committed. Run 'beam-tfrecord verify'."
        )


def copied(source: CopiedShard, name: str, store: Store) -> ShardFacts:
    """Writes records of a shard as another shard, each with its checksums.

    The shard is linked or copied whole where nothing changes; see `copy_whole`. Memory
    is about that of the longest record.

    Args:
      source: the shard, and which of its records.
      name: of the new one.
      store: where the new one goes.

    Raises:
      DamageError, TFRecordError: the shard is damaged, or is not what the manifest
        states.
      ExampleError: a record whose ids change is no Example.
      SpecError: the shard is a zlib stream.
    """
    target = store.announce(name)
    facts, kept = source.facts, source.kept
    if source.is_whole:
        copy_whole(source.path, target, facts, attempts=store.attempts)
        return dataclasses.replace(facts, file=name)
    compression = source.dataset.manifest.compression
    if compression == Compression.ZLIB:
        raise SpecError(
            f"{source.path} would have to be written again, and zlib streams are read, "
            f"not written. Convert its dataset with --compression gzip first."
        )
    with storage(source.path).open_unbuffered() as file:
        reader = TFRecordReader(file, compression=compression, allow_empty=True)
        with (
            storage(target).create(attempts=store.attempts) as sink,
            TFRecordWriter(sink, compression=compression) as writer,
        ):
            for payloads in reader.batches():
                first = payloads.first_record
                mask = kept[first : first + len(payloads)]
                if len(mask) < len(payloads):
                    # More records than are stated: the check below says so.
                    break
                _write(writer, payloads, mask, source.ids)
            reader.check_stated(
                records=facts.records, stored_bytes=facts.bytes, crc32c=facts.crc32c
            )
    done = writer.facts()
    numbers = (done.stored_bytes, done.crc32c, done.records, done.payload_bytes)
    return ShardFacts(name, *numbers)


def _write(
    writer: TFRecordWriter, payloads: PayloadBatch, kept: Mask, ids: Mapping[str, Ids]
) -> None:
    """Writes records that are kept, runs of neighbours at once where no id changes."""
    # Of a long record the reader gives the payload alone.
    if ids or int(payloads.starts[0]) < HEADER_BYTES:
        for row in np.flatnonzero(kept).tolist():
            record = payloads.payload(row)
            for key, new in ids.items():
                record = replaced_ids(record, key, new)
            writer.write(record)
        return
    edges = np.flatnonzero(np.diff(kept, prepend=False, append=False))
    begins = payloads.starts[edges[::2]] - HEADER_BYTES
    ends = (payloads.starts + payloads.lengths)[edges[1::2] - 1] + FOOTER_BYTES
    data = memoryview(payloads.data)
    runs = [data[a:b] for a, b in zip(begins.tolist(), ends.tolist(), strict=True)]
    writer.write_framed(b"".join(runs), records=int(kept.sum()))
