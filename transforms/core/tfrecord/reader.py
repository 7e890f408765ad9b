"""Read TFRecord files: check every checksum of every record, in bounded memory.

The file is read in steps of 1 MiB; `walk.py` splits each into records, and an
incomplete record is carried over to the next. Before a buffer grows, by at most 1 MiB a
step, the checksum of a length must be right, and the length within the limit.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn

import google_crc32c
import numpy as np
import numpy.typing as npt

from transforms.core.tfrecord.compression import (
    STEP_BYTES,
    Compression,
    Inflater,
    Source,
    StoredBytes,
    detect,
    opened,
    parse_compression,
    source_name,
)
from transforms.core.tfrecord.frame import (
    DAMAGE_KINDS,
    DEFAULT_MAX_RECORD_BYTES,
    FOOTER_BYTES,
    HEADER_BYTES,
    OVERHEAD_BYTES,
    framed_length,
    stored_crc,
    unmask_all,
)
from transforms.core.tfrecord.walk import (
    LARGE_BYTES,
    boundaries,
    first_damage,
    gather,
)
from transforms.core.tfrecord.writer import FrameFacts
from transforms.errors import TFRecordError

_Longs = npt.NDArray[np.int64]

_ADVICE = {
    "empty": "Leave it out if it is meant to be empty; otherwise write it again.",
    "compression": "Read it with compression 'auto' or 'none'.",
    "too-long": "'beam-tfrecord repair' copies the records that are sound.",
}


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class PayloadBatch:
    """Consecutive payloads whose checksums are right; n of them, n >= 1.

    Attributes:
      data: bytes that hold them, framing in between.
      starts: int64 array of n: where each payload begins in `data`.
      lengths: int64 array of n: how many bytes it has.
      first_record: 0-based index of the first one in the file.
      offsets: int64 array of n: where each record's header begins in the
        uncompressed stream.
      crcs: uint32 array of n, the CRC32C of each payload, where `data` does not have
        the footers behind the payloads; else None.
    """

    data: bytes
    starts: _Longs
    lengths: _Longs
    first_record: int
    offsets: _Longs
    crcs: npt.NDArray[np.uint32] | None = None

    @classmethod
    def of(cls, payloads: Sequence[bytes]) -> "PayloadBatch":
        """Returns payloads that come from no file."""
        lengths = np.fromiter(map(len, payloads), np.int64, len(payloads))
        starts = np.cumsum(lengths) - lengths
        return cls(b"".join(payloads), starts, lengths, 0, starts)

    @classmethod
    def joined(cls, batches: "Sequence[PayloadBatch]") -> "PayloadBatch":
        """Returns the payloads of one or several of a reader's batches as one."""
        if len(batches) == 1:
            return batches[0]
        begins = np.cumsum([0, *(len(batch.data) for batch in batches[:-1])])
        return cls(
            b"".join(batch.data for batch in batches),
            np.concatenate(
                [b.starts + at for b, at in zip(batches, begins, strict=True)]
            ),
            np.concatenate([batch.lengths for batch in batches]),
            batches[0].first_record,
            np.concatenate([batch.offsets for batch in batches]),
            # Those of long records are not in the data.
            np.concatenate([batch.payload_crcs() for batch in batches]),
        )

    def __len__(self) -> int:
        return len(self.starts)

    def payload_crcs(self) -> npt.NDArray[np.uint32]:
        """Returns the CRC32C of each of n payloads, not masked: from their footers.

        Only a reader's own batches have those, not what is made of them.
        """
        if self.crcs is not None:
            return self.crcs
        ends = self.starts + self.lengths
        words = np.ndarray((len(self.data) - 3,), "<u4", self.data, 0, (1,))
        return unmask_all(words[ends])

    def payload(self, place: int) -> bytes:
        """Returns the payload at a place, counted from 0."""
        start = int(self.starts[place])
        return self.data[start : start + int(self.lengths[place])]

    def trimmed(self) -> "PayloadBatch":
        """Returns the same payloads without most bytes that are of no payload here."""
        if not len(self.starts):
            return self
        low = int(self.starts.min())
        high = int((self.starts + self.lengths).max())
        if 2 * (high - low) >= len(self.data):
            return self
        return dataclasses.replace(
            self, data=self.data[low:high], starts=self.starts - low
        )

    def part(self, start: int, stop: int) -> "PayloadBatch":
        """Returns the payloads at `start` to `stop`, or to the last."""
        return PayloadBatch(
            self.data,
            self.starts[start:stop],
            self.lengths[start:stop],
            self.first_record + start,
            self.offsets[start:stop],
            None if self.crcs is None else self.crcs[start:stop],
        )

    def to_list(self) -> list[bytes]:
        """Returns the payloads."""
        length = int(self.lengths[0])
        if 0 < length < LARGE_BYTES and bool((self.lengths == length).all()):
            return gather(self.data, self.starts, length)
        stops = self.starts + self.lengths
        data = self.data
        return [
            data[start:stop]
            for start, stop in zip(self.starts.tolist(), stops.tolist(), strict=True)
        ]


class TFRecordReader:
    """Iterates over the payloads of one file; every checksum is checked.

        for payload in TFRecordReader(path):
            ...

    Good records come before the error about a damaged one (of a damaged compressed
    stream, all but the last 1 MiB). A file given by its path is opened again by each
    iteration; a file object is read once, from its position, and stays open. After
    the last record `records`, `stored_bytes`, `crc32c`, `compression` and
    `padding_bytes` (zeros behind a gzip stream) describe the whole file as it is on
    disk.

    Args:
      source: a path, or a binary file object (a pipe will do).
      compression: "auto" looks at the first bytes, never at the name; "none",
        "gzip" and "zlib" insist.
      allow_empty: whether a file may have no record. It looks like a file whose
        content was lost, so by default it is an error.
    """

    def __init__(
        self,
        source: Source,
        *,
        compression: str = "auto",
        allow_empty: bool = False,
    ) -> None:
        self._insisted = (
            None if compression == "auto" else parse_compression(compression)
        )
        self._source = source
        self._allow_empty = allow_empty
        self.path = source_name(source)
        self._reset()

    def __iter__(self) -> Iterator[bytes]:
        for batch in self.batches():
            yield from batch.to_list()

    def batches(self) -> Iterator[PayloadBatch]:
        """Yields the records in batches of about 1 MiB, or of one longer record.

        Raises:
          TFRecordError: the file is damaged.
          SourceError: the file cannot be read, or changed meanwhile.
        """
        return self._scan(keep=True)

    def verify(self, see: Callable[[PayloadBatch], None] | None = None) -> FrameFacts:
        """Reads and checks the whole file; returns its facts.

        Memory does not depend on the records' lengths. Raises as `batches` does.

        Args:
          see: called with each batch of sound records; long ones come without data.
        """
        for batch in self._scan(keep=False):
            if see is not None:
                see(batch)
        return FrameFacts(
            records=self.records,
            stored_bytes=self.stored_bytes,
            crc32c=self.crc32c,
            payload_bytes=self.payload_bytes,
        )

    def check_stated(
        self, *, records: int | None, stored_bytes: int | None, crc32c: int | None
    ) -> None:
        """Compares the file, once it is read, with what is stated of it, if it is.

        Raises:
          TFRecordError: it is another file.
        """
        actual = (self.records, self.stored_bytes, self.crc32c)
        pairs = zip((records, stored_bytes, crc32c), actual, strict=True)
        stated = tuple(there if said is None else said for said, there in pairs)
        if actual != stated:
            raise TFRecordError(
                f"{self.path}: what is beside it states {stated[0]:,} records in "
                f"{stated[1]:,} bytes, CRC32C {stated[2]:08x}; found {actual[0]:,} in "
                f"{actual[1]:,} bytes, CRC32C {actual[2]:08x}. Fetch or convert the "
                f"dataset again.",
                path=self.path,
                record=self.records,
                kind="truncated" if actual[0] < stated[0] else "data-crc",
            )

    def _reset(self) -> None:
        self.records = 0
        self.payload_bytes = 0
        self.stored_bytes = 0
        self.crc32c = 0
        self.padding_bytes = 0
        self._offset = 0
        self.compression = Compression.NONE
        # Damage of the compressed stream; raised once all records before it are out.
        self._damage: TFRecordError | None = None

    def _scan(self, *, keep: bool) -> Iterator[PayloadBatch]:
        """Yields batches; without `keep`, records over 1 MiB come without data."""
        self._reset()
        with opened(self._source, self.path) as file:
            stored = StoredBytes(file, self.path)
            head = stored.peek(HEADER_BYTES)
            stream = self._stream(stored, head)
            data = b""
            while chunk := self._read(stream, STEP_BYTES):
                data = data + chunk if data else chunk
                starts, lengths, stop = boundaries(data)
                if len(starts):
                    yield from self._checked(data, starts, lengths)
                    data = data[stop:]
                if len(data) >= HEADER_BYTES:
                    length = self._pending(data)
                    if length + OVERHEAD_BYTES - len(data) > STEP_BYTES:
                        yield self._long(stream, data, length, keep=keep)
                        data = b""
            if data:
                section = "header" if len(data) < HEADER_BYTES else "payload"
                self._fail("truncated", data, f" in its {section}")
            if not self.records and not self._allow_empty:
                self._fail("empty", data)
            stored.check_unchanged()
            if isinstance(stream, Inflater):
                self.padding_bytes = stream.padding_bytes
            self.stored_bytes = stored.size_read
            self.crc32c = stored.crc32c

    def _stream(self, stored: StoredBytes, head: bytes) -> StoredBytes | Inflater:
        """Opens the content by the compression that was given or is detected."""
        if self._insisted is None:
            self.compression = detect(head, path=self.path)
        else:
            self.compression = self._insisted
            is_framed = framed_length(head) is not None
            if self.compression is not Compression.NONE and is_framed:
                self._fail("compression", head, ": the file is not compressed")
        if self.compression is Compression.NONE:
            return stored
        if not head and not self._allow_empty:
            self._fail("empty", head)
        return Inflater(stored.read, self.compression, path=self.path)

    def _read(self, stream: StoredBytes | Inflater, size: int) -> bytes:
        """Returns `size` bytes, fewer only at the end or in front of damage."""
        parts: list[bytes] = []
        while size > 0 and self._damage is None:
            try:
                chunk = stream.read(size)
            except TFRecordError as error:
                self._damage = error
                break
            if not chunk:
                break
            parts.append(chunk)
            size -= len(chunk)
        if parts or self._damage is None:
            return parts[0] if len(parts) == 1 else b"".join(parts)
        # By now all records before the damage have been returned.
        raise TFRecordError(
            f"{self._damage} {self.records:,} records before it are good.",
            path=self.path,
            record=self.records,
            offset=self._offset,
            kind=self._damage.kind,
        ) from self._damage

    def _checked(
        self, data: bytes, starts: _Longs, lengths: _Longs
    ) -> Iterator[PayloadBatch]:
        """Yields the good records in front, then raises if one is damaged."""
        damage = first_damage(data, starts, lengths)
        good = len(starts) if damage is None else damage[0]
        if good:
            batch = PayloadBatch(
                data=data,
                starts=starts[:good],
                lengths=lengths[:good],
                first_record=self.records,
                offsets=starts[:good] + (self._offset - HEADER_BYTES),
            )
            yield self._counted(batch)
        if damage is not None:
            begin = int(starts[good]) - HEADER_BYTES
            self._fail(damage[1], data[begin:])

    def _pending(self, data: bytes) -> int:
        """Returns the length in a record's header; raises unless it can be right."""
        length = framed_length(data)
        if length is None:
            self._fail("length-crc", data)
        if length > DEFAULT_MAX_RECORD_BYTES:
            limit = f"the limit is {DEFAULT_MAX_RECORD_BYTES:,}"
            self._fail("too-long", data, f": {length:,} bytes, {limit}")
        return length

    def _long(
        self, stream: StoredBytes | Inflater, data: bytes, length: int, *, keep: bool
    ) -> PayloadBatch:
        """Reads the rest of a record that begins with `data`, step by step."""
        parts = [data[HEADER_BYTES:]]
        crc = google_crc32c.value(parts[0])
        missing = length - len(parts[0])
        while missing > 0:
            chunk = self._read(stream, min(missing, STEP_BYTES))
            if not chunk:
                self._fail("truncated", data, " in its payload")
            crc = google_crc32c.extend(crc, chunk)
            missing -= len(chunk)
            if keep:
                parts.append(chunk)
        footer = self._read(stream, FOOTER_BYTES)
        if len(footer) < FOOTER_BYTES:
            self._fail("truncated", data, " in its footer")
        if footer != stored_crc(crc):
            self._fail("data-crc", data)
        batch = PayloadBatch(
            data=b"".join(parts) if keep else b"",
            starts=np.zeros(1, np.int64),
            lengths=np.array([length], np.int64),
            first_record=self.records,
            offsets=np.array([self._offset], np.int64),
            crcs=np.array([crc], np.uint32),
        )
        return self._counted(batch)

    def _counted(self, batch: PayloadBatch) -> PayloadBatch:
        """Moves on behind the records of a batch."""
        size = int(batch.lengths.sum())
        self.records += len(batch)
        self.payload_bytes += size
        self._offset += size + OVERHEAD_BYTES * len(batch)
        return batch

    def _fail(self, kind: str, data: bytes, detail: str = "") -> NoReturn:
        """Raises the error about the next record; `data` begins with its bytes."""
        where = (
            ""
            if self.compression is Compression.NONE
            else f" of the {self.compression} content"
        )
        raise TFRecordError(
            f"{self.path}: record {self.records:,} at byte {self._offset:,}{where}: "
            f"{DAMAGE_KINDS[kind]}{detail}. {self.records:,} records before it are "
            f"good. {self._advice(kind, data)}",
            path=self.path,
            record=self.records,
            offset=self._offset,
            kind=kind,
        )

    def _advice(self, kind: str, data: bytes) -> str:
        """Returns what the user should do, guessed from the bytes."""
        if kind in _ADVICE:
            return _ADVICE[kind]
        if kind == "length-crc" and self.records == 0 and b"\0" not in data:
            # The length of a record has zeros, and a text has none.
            return "It looks like text. Is it a TFRecord file at all?"
        if kind in ("length-crc", "data-crc"):
            breaks = data.count(b"\n")
            if breaks > 1 and breaks == data.count(b"\r\n"):
                return "It looks like a text-mode transfer: fetch it in binary mode."
        if kind == "length-crc" and self.records == 0:
            guessed = detect(data)
            if guessed is not self.compression:
                return f"It looks like {guessed}: read it with compression {guessed!s}."
            return "Is it a TFRecord file at all?"
        return "Fetch or write the file again."
