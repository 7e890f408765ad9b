"""The serialised records of a split, by position, each with its checksums checked.

And a split as all views of it share it: its records, features and catalogue.
"""

import bisect
import dataclasses
import functools
import itertools
import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import google_crc32c
import numpy as np

from transforms.core.schema import Feature
from transforms.core.tfrecord.compression import Compression, detect
from transforms.core.tfrecord.frame import (
    DAMAGE_KINDS,
    FOOTER_BYTES,
    HEADER_BYTES,
    OVERHEAD_BYTES,
    header,
    length_crcs,
    mask,
)
from transforms.core.tfrecord.index import index_file, parse_index, scan_records
from transforms.core.tfrecord.reader import PayloadBatch, TFRecordReader
from transforms.core.tfrecord.walk import first_damage
from transforms.errors import (
    ExampleError,
    RecordKindError,
    SourceError,
    SpecError,
    TFRecordError,
    bounded,
)
from transforms.formats.tfrecord_files.dataset import Edition, Shard
from transforms.reading.catalogue import CatalogueRows
from transforms.reading.folder import (
    Folder,
    ForkSafeLocks,
    folder_of,
    lock_of,
    replaced,
    warn_once,
)
from transforms.reading.positions import Longs
from transforms.reading.rows import Looks
from transforms.storage.files import read_ahead

# Reads of a store at the same time.
_IN_FLIGHT = 8
# What is read at once of neighbouring records.
_JOINED_BYTES = 1 << 23
# Up to this many records, one by one costs less than operations over arrays.
_ALONE = 16
_CRC = struct.Struct("<I")


class Records:
    """The records of some shards, one after another.

        records = Records(shards, edition, check=True)
        records[7], len(records)

    Safe in threads and after a fork.

    Args:
      shards: their files.
      edition: of the dataset, which must stay the same.
      check: whether the payloads' checksums are compared. Those of lengths always are.

    Raises:
      SourceError: the folder cannot be opened.
    """

    def __init__(
        self, shards: Sequence[Shard], edition: Edition, *, check: bool
    ) -> None:
        self._shards = shards
        self._edition = edition
        self._check = check
        path = folder_of(shards)
        start = len(path.rstrip("/")) + 1 if path else 0
        self._names = [shard.path[start:] for shard in shards]
        self._folder = Folder(path)
        self._offsets: list[memoryview | None] = [None] * len(shards)
        self._locks: ForkSafeLocks = {}
        self._headers: dict[int, bytes] = {}
        # So few neighbours are read one by one: of a store, a record takes as long as
        # several.
        self._alone = 1 if self._folder.is_remote else _ALONE

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, position: int) -> bytes:
        """Returns a record, 0 <= position < n.

        Raises:
          TFRecordError: the record, or the index, is damaged.
          SourceError: the file is gone.
          DamageError: the dataset was replaced.
          SpecError: the shards are compressed.
        """
        starts = self._starts
        shard = bisect.bisect_right(starts, position) - 1
        index = position - starts[shard]
        offsets = self._offsets[shard]
        if offsets is None:
            self._check_plain(shard)
            offsets = self._located(shard)
        begin, end = offsets[index], offsets[index + 1]
        data = self._read(shard, begin, end)
        length = end - begin - OVERHEAD_BYTES
        expected = self._headers.get(length)
        if expected is None:
            expected = self._headers[length] = header(length)
        if data[:HEADER_BYTES] != expected:
            raise self._damage(shard, index, begin, "length-crc")
        payload = data[HEADER_BYTES:-FOOTER_BYTES]
        if self._check:
            crc = google_crc32c.value(payload)
            if _CRC.unpack_from(data, length + HEADER_BYTES)[0] != mask(crc):
                raise self._damage(shard, index, begin, "data-crc")
        return payload

    def origin(self, position: int) -> tuple[str, int]:
        """Returns the path of a record's shard, and its number there, from 0."""
        starts = self._starts
        shard = bisect.bisect_right(starts, position) - 1
        return self._shards[shard].path, position - starts[shard]

    @property
    def is_remote(self) -> bool:
        """Whether the files are in a store."""
        return self._folder.is_remote

    @functools.cached_property
    def in_order_only(self) -> bool:
        """Whether a file is compressed."""
        return any(
            self._compression_of(shard) is not Compression.NONE
            for shard in range(len(self._shards))
        )

    def ascending(self, positions: Longs) -> Iterator[PayloadBatch]:
        """Yields the records at ascending positions; reads those between them, too.

        Raises TFRecordError, SourceError and DamageError as `[i]` does.
        """
        if not len(positions):
            return
        start, done = int(positions[0]), 0
        for batch in self.batches(start, int(positions[-1]) + 1):
            stop = int(np.searchsorted(positions, start + len(batch)))
            chosen = positions[done:stop] - start
            if len(chosen):
                yield PayloadBatch(
                    batch.data,
                    batch.starts[chosen],
                    batch.lengths[chosen],
                    batch.first_record,
                    batch.offsets[chosen],
                )
            start, done = start + len(batch), stop

    def many(self, positions: Longs) -> list[bytes]:
        """Returns records in the order of their positions. Raises as `[i]` does.

        Neighbours are read together, and a record that is asked for twice once.
        """
        if self.in_order_only:
            for shard in range(len(self._shards)):
                self._check_plain(shard)
        distinct, places = np.unique(positions, return_inverse=True)
        firsts = distinct[np.diff(distinct, prepend=-2) > 1].tolist()
        lasts = distinct[np.diff(distinct, append=1 << 62) > 1].tolist()
        runs = zip(firsts, lasts, strict=True)
        far = self._folder.is_remote
        read = read_ahead(self._run, runs, far=far, threads=_IN_FLIGHT)
        records = [*itertools.chain.from_iterable(read)]
        return [records[place] for place in places.tolist()]

    def _run(self, run: tuple[int, int]) -> list[bytes]:
        """Returns the records from a position to another one."""
        first, last = run
        if last - first < self._alone:
            return [self[position] for position in range(first, last + 1)]
        batches = self.batches(first, last + 1)
        return [record for batch in batches for record in batch.to_list()]

    def batches(self, start: int, stop: int) -> Iterator[PayloadBatch]:
        """Yields the records at `start` to `stop`; also those of compressed shards.

        Of files that are not compressed, a batch is read at once: about 8 MiB.
        Raises as `[i]` does.
        """
        starts = self._starts
        shard = bisect.bisect_right(starts, start) - 1
        while start < stop:
            end = min(stop, starts[shard + 1])
            if start < end:
                places = start - starts[shard], end - starts[shard]
                if self._compression_of(shard) is Compression.NONE:
                    yield from self._between(shard, *places)
                else:
                    yield from self._inflated(shard, *places)
            start, shard = max(start, end), shard + 1

    def _between(self, shard: int, first: int, last: int) -> Iterator[PayloadBatch]:
        """Yields records of one shard, by places in it."""
        offsets = self._offsets[shard]
        if offsets is None:
            offsets = self._located(shard)
        every = np.frombuffer(offsets, np.uint64).view(np.int64)
        pieces = []
        while first < last:
            # The last record whose end is within the limit, but at least one.
            most = offsets[first] + _JOINED_BYTES
            limit = bisect.bisect_right(offsets, most, first + 1)
            pieces.append((first, min(max(limit - 1, first + 1), last)))
            first = pieces[-1][1]

        def read(piece: tuple[int, int]) -> bytes:
            return self._read(shard, offsets[piece[0]], offsets[piece[1]])

        found_in = read_ahead(
            read, pieces, far=self._folder.is_remote, threads=_IN_FLIGHT
        )
        for (first, until), data in zip(pieces, found_in, strict=True):
            begin = offsets[first]
            starts = every[first:until] - begin + HEADER_BYTES
            lengths = np.diff(every[first : until + 1]) - OVERHEAD_BYTES
            damage = _wrong_length(data, starts, lengths)
            if damage is None and self._check:
                damage = first_damage(data, starts, lengths)
            if damage is not None:
                index = first + damage[0]
                raise self._damage(shard, index, offsets[index], damage[1])
            yield PayloadBatch(data, starts, lengths, first, every[first:until])

    def _check_plain(self, shard: int) -> None:
        """Raises SpecError where a shard is compressed."""
        if self._compression_of(shard) is not Compression.NONE:
            raise SpecError(
                f"Records in any order need shards that are not compressed; "
                f"{self._shards[shard].path} is {self._compression_of(shard)}. Read "
                f"the split in order, as in a loop over it, or convert the dataset "
                f"with --compression none."
            )

    def _inflated(self, shard: int, first: int, last: int) -> Iterator[PayloadBatch]:
        """Yields records of a compressed shard, by places in it, from its start."""
        stated = self._shards[shard]
        reader = TFRecordReader(
            stated.path, compression=stated.compression, allow_empty=True
        )
        try:
            for batch in reader.batches():
                start = batch.first_record
                piece = batch.part(max(first - start, 0), last - start)
                if len(piece):
                    yield piece
                if batch.first_record + len(batch) >= last:
                    return
        except (SourceError, TFRecordError) as error:
            raise replaced(self._edition) or error from error
        self._check_stated(shard, "records", reader.records, stated.records)

    def _read(self, shard: int, begin: int, end: int) -> bytes:
        try:
            data = self._folder.read(self._names[shard], begin, end)
        except SourceError as error:
            raise replaced(self._edition) or error from error
        if len(data) < end - begin:
            self._check_stated(shard, "bytes", begin + len(data), end)
        return data

    @functools.cached_property
    def _starts(self) -> list[int]:
        """Where each shard's records begin, and how many there are."""
        counts = map(self._count, range(len(self._shards)))
        return [0, *itertools.accumulate(counts)]

    def _count(self, shard: int) -> int:
        stated = self._shards[shard]
        if stated.records is not None:
            return stated.records
        if self._compression_of(shard) is not Compression.NONE:
            return sum(1 for _ in TFRecordReader(stated.path, allow_empty=True))
        return len(self._offsets[shard] or self._located(shard)) - 1

    def _compression_of(self, shard: int) -> Compression:
        stated = self._shards[shard]
        if stated.compression != "auto":
            return Compression(stated.compression)
        name = self._names[shard]
        head = self._folder.read(name, 0, min(HEADER_BYTES, self._folder.size_of(name)))
        return detect(head, path=stated.path)

    def _located(self, shard: int) -> memoryview:
        """Returns where the records of a shard are: by its index, or its headers."""
        with lock_of(self._locks):
            offsets = self._offsets[shard]
            if offsets is None:
                offsets = self._offsets[shard] = self._locate(shard)
        return offsets

    def _locate(self, shard: int) -> memoryview:
        stated, name = self._shards[shard], self._names[shard]
        try:
            size = self._folder.size_of(name)
        except SourceError as error:
            raise replaced(self._edition) or error from error
        if stated.bytes not in (None, size):
            self._check_stated(shard, "bytes", size, stated.bytes)
        offsets = self._indexed(name, size)
        if offsets is None:
            warn_once(
                f"{self._folder.path or self._names[0]} has no index, so the headers "
                f"of all records are read; 'beam-tfrecord index' makes one"
            )
            read = functools.partial(self._read, shard)
            scanned = scan_records(read, size, path=stated.path)
            offsets = memoryview(scanned.tobytes()).cast("Q")
        if stated.records is not None:
            self._check_stated(shard, "records", len(offsets) - 1, stated.records)
        return offsets

    def _indexed(self, name: str, size: int) -> memoryview | None:
        """Returns the offsets of an index beside the shards; None for none."""
        folder, own = os.path.split(name)
        if not self._folder.path and not folder:
            return None
        index = os.path.join(folder, index_file(own))
        try:
            data = self._folder.mapped(index)
        except SourceError as error:
            if isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
                return None
            raise
        return parse_index(data, path=self._folder.place(index), size=size)

    def _check_stated(
        self, shard: int, what: str, seen: int, stated: int | None
    ) -> None:
        """Raises where a shard does not have the records or bytes that are stated."""
        if seen != stated:
            raise self._fault(
                shard,
                f" must have {stated or 0:,} {what}, as is stated beside it; found "
                f"{seen:,}. Fetch or convert the dataset again.",
                record=seen if what == "records" else -1,
                kind="truncated",
            )

    def _damage(self, shard: int, place: int, offset: int, kind: str) -> Exception:
        what = (
            f": record {place:,} at byte {offset:,}: {DAMAGE_KINDS[kind]}. "
            f"'beam-tfrecord verify' shows all damage, and 'repair' saves the other "
            f"records."
        )
        return self._fault(shard, what, record=place, offset=offset, kind=kind)

    def _fault(self, shard: int, what: str, **facts: Any) -> Exception:
        """Returns the error of a shard, unless the dataset was replaced."""
        path = self._shards[shard].path
        damage = TFRecordError(f"{path}{what}", path=path, **facts)
        return replaced(self._edition) or damage


def _wrong_length(data: bytes, starts: Longs, lengths: Longs) -> tuple[int, str] | None:
    """Returns the first record whose header does not state its length."""
    count, headers = len(data) - HEADER_BYTES + 1, starts - HEADER_BYTES
    stated: Any = np.ndarray((count,), "<i8", data, 0, (1,))
    crcs: Any = np.ndarray((count,), "<u4", data, 8, (1,))
    wrong = (stated[headers] != lengths) | (crcs[headers] != length_crcs(lengths))
    return (int(wrong.argmax()), "length-crc") if wrong.any() else None


def located(error: ExampleError, records: Records, position: int) -> ExampleError:
    """Returns the error of one record with its file and its number there."""
    path, record = records.origin(position)
    what = str(error).removeprefix("example 0: ").rstrip(".")
    advice = (
        "Check the file with 'beam-tfrecord verify', or describe it with features=."
    )
    if isinstance(error, RecordKindError):
        # Its message says what to do.
        return RecordKindError(f"{path}: record {record:,}: {what}.")
    return ExampleError(bounded(f"{path}: record {record:,}: {what}. {advice}"))


@dataclasses.dataclass(slots=True, eq=False)
class Split:
    """A split: its records, and what else all views of it share.

    Attributes:
      records: of the split.
      features: of the dataset, by name.
      looks: how values are given.
      again: how another process opens the same split: a function and its arguments.
      path: of the dataset, for people.
      name: of the split; empty where there are none.
      catalogue: of the split; None for none.
    """

    records: Records
    features: Mapping[str, Feature]
    looks: Looks
    again: tuple[Callable[..., "Split"], tuple[Any, ...]]
    path: str
    name: str
    catalogue: CatalogueRows | None = None

    def __reduce__(self) -> tuple[Callable[..., "Split"], tuple[Any, ...]]:
        return self.again
