"""A file that is being written, with the number of its bytes and their checksum."""

import io
from typing import Any

import google_crc32c

from transforms.storage.entries import Sink


class CountedSink(io.RawIOBase):
    """Passes bytes on to a sink; knows their number and their CRC32C.

    Attributes:
      crc32c: of the bytes so far.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._size = 0
        self.crc32c = 0

    def writable(self) -> bool:
        """Tells that it takes bytes."""
        return True

    def write(self, data: Any) -> int:
        """Passes bytes on; returns how many were taken."""
        size = self._sink.write(data)
        self._size += size
        self.crc32c = google_crc32c.extend(self.crc32c, bytes(data))
        return size

    def tell(self) -> int:
        """Returns how many bytes were written."""
        return self._size
