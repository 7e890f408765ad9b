"""Write TFRecord files, and report the facts of each file at its end."""

import dataclasses
import functools
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Protocol, Self

import google_crc32c
import numpy as np

from transforms.core.tfrecord.compression import (
    Compression,
    Deflater,
    parse_compression,
)
from transforms.core.tfrecord.frame import OVERHEAD_BYTES, footer, header, joined_crc
from transforms.errors import SpecError

# Small records are buffered up to this size before they reach the sink.
_BUFFER_BYTES = 1 << 20
# Larger payloads go to the sink directly, without a copy into the buffer.
_LARGE_BYTES = 1 << 16

_header = functools.lru_cache(maxsize=4096)(header)


class FrameSink(Protocol):
    """The part of a writable file that `TFRecordWriter` uses.

    It may have `write_all`, too, which takes many pieces and writes all of them.
    """

    def write(self, data: Any, /) -> int:
        """Writes `data`; returns how many of its bytes were written."""


@dataclasses.dataclass(frozen=True, slots=True)
class FrameFacts:
    """The facts of a TFRecord file that was written to its end.

    Attributes:
      records: how many it holds.
      stored_bytes: size of the file as it is on disk, compressed or not.
      crc32c: CRC32C (unmasked) of the file as it is on disk.
      payload_bytes: sum of the payloads' sizes, uncompressed, without framing.
    """

    records: int
    stored_bytes: int
    crc32c: int
    payload_bytes: int


class TFRecordWriter:
    """Writes records to a sink; knows size and checksum of what it wrote.

        with open(name, "wb", buffering=0) as file:
            with TFRecordWriter(file) as writer:
                writer.write(payload)
        writer.facts()   # FrameFacts, no need to read the file again

    The sink stays open: the caller flushes, syncs, renames or deletes it. When the
    `with` block raises, the stream stays without its end and `facts()` raises.

    Args:
      sink: anything with `write(bytes)` that takes all it is given.
      compression: "none" or "gzip", of the whole file.

    Raises:
      SpecError: the compression is another.
    """

    def __init__(self, sink: FrameSink, *, compression: str = "none") -> None:
        self._sink = sink
        kind = parse_compression(compression)
        if kind is Compression.ZLIB:
            raise SpecError("zlib streams are read, not written. Write gzip.")
        self._deflater = Deflater() if kind is Compression.GZIP else None
        self._parts: list[bytes] = []
        self._buffered = 0
        self._closed = False
        self._complete = False
        self.records = 0
        self.stored_bytes = 0
        self.crc32c = 0
        self.payload_bytes = 0

    def write(self, payload: bytes) -> None:
        """Writes one record."""
        size = len(payload)
        if size >= _LARGE_BYTES:
            self._add(_header(size))
            self._flush()
            self._store(payload)
            self._add(footer(payload))
        else:
            self._add(_header(size) + payload + footer(payload))
        self.records += 1
        self.payload_bytes += size

    def write_framed(self, data: bytes, *, records: int) -> None:
        """Writes a run of `records` records that are framed already."""
        self._flush()
        self._store(data)
        self.records += records
        self.payload_bytes += len(data) - records * OVERHEAD_BYTES

    def write_pieces(
        self, pieces: Sequence[bytes | memoryview], *, records: int, crc32c: int
    ) -> None:
        """Writes a run of framed records that is in pieces, one after another.

        Args:
          pieces: the bytes.
          records: how many they are.
          crc32c: of all pieces, which are not read for it again.
        """
        write_all = getattr(self._sink, "write_all", None)
        if self._deflater is not None or write_all is None:
            self.write_framed(b"".join(pieces), records=records)
            return
        self._flush()
        write_all(pieces)
        size = sum(map(len, pieces))
        crcs = np.array([self.crc32c, crc32c], np.uint32)
        self.crc32c = joined_crc(crcs, np.array([0, size]))
        self.stored_bytes += size
        self.records += records
        self.payload_bytes += size - records * OVERHEAD_BYTES

    def close(self) -> None:
        """Ends the stream. The sink stays open. A second call does nothing."""
        if self._closed:
            return
        self._flush()
        self._closed = True
        if self._deflater is not None:
            self._emit(self._deflater.finish())
        self._complete = True

    def facts(self) -> FrameFacts:
        """Returns the facts of the complete file; ValueError before `close`."""
        if not self._complete:
            raise ValueError("the file is not complete: close the writer first")
        return FrameFacts(
            records=self.records,
            stored_bytes=self.stored_bytes,
            crc32c=self.crc32c,
            payload_bytes=self.payload_bytes,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        # An incomplete file must not look complete: no trailer, no facts.
        self._closed = True

    def _add(self, data: bytes) -> None:
        if self._closed:
            raise ValueError("the writer is closed")
        self._parts.append(data)
        self._buffered += len(data)
        if self._buffered >= _BUFFER_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._parts:
            data = b"".join(self._parts)
            self._parts.clear()
            self._buffered = 0
            self._store(data)

    def _store(self, data: bytes) -> None:
        if self._closed:
            raise ValueError("the writer is closed")
        for stored in (data,) if self._deflater is None else self._deflater.add(data):
            self._emit(stored)

    def _emit(self, stored: bytes) -> None:
        if len(stored):
            written = self._sink.write(stored)
            if written != len(stored):
                # An unbuffered file may take less than it is given.
                raise OSError(f"the sink took {written} of {len(stored)} bytes")
            self.stored_bytes += written
            self.crc32c = google_crc32c.extend(self.crc32c, stored)
