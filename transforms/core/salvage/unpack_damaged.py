"""Decompress as much of a damaged gzip or zlib stream as possible.

Deflate data has no marks at which a decoder could start again: behind the damage all is
lost, up to the next gzip member. Everything before the damage is kept, even if only the
checksum at the end is wrong: the records in it have checksums of their own.

    member | member | dam##### | member          content: one piece up to the damage,
                       from here^ lost            another from the next member on
"""

import dataclasses
import zlib
from typing import Protocol

from transforms.core.salvage.salvage import Fetch
from transforms.core.tfrecord.compression import STEP_BYTES, Compression

__all__ = ["Break", "Unpacked", "Unpacker", "looks_like_gzip"]

_INPUT_BYTES = 1 << 16
_GZIP_START = b"\x1f\x8b\x08"
_GZIP_HEADER_BYTES = 10
_GZIP_TRAILER_BYTES = 8
_FLAGS_AT = 3
_RESERVED_FLAGS = 0xE0
# The search for the place of damage within one call divides its output by this.
_SHRINK = 16
# Damaged data inflates into nonsense for a while before zlib notices: the next member
# may have begun already.
_BACK_BYTES = 1 << 12


class Unpacked(Protocol):
    """The file that the content goes to."""

    def write(self, data: bytes, /) -> object:
        """Appends `data`."""

    def truncate(self, size: int, /) -> object:
        """Drops all but the first `size` bytes."""


@dataclasses.dataclass(frozen=True, slots=True)
class Break:
    """A place where the content is interrupted, or ends.

    Attributes:
      at: bytes of content before it.
      start, stop: the stored bytes that are left out or unaccounted for.
      kind: a word of `frame.DAMAGE_KINDS`.
      detail: zlib's message.
    """

    at: int
    start: int
    stop: int
    kind: str
    detail: str = ""


class Unpacker:
    """Unpacks a stream any part of which may be damaged.

    Args:
      fetch: returns a range of its stored bytes.
      size: how many there are.
      compression: GZIP or ZLIB.
      content: where the content goes.
    """

    def __init__(
        self, fetch: Fetch, size: int, compression: Compression, content: Unpacked
    ) -> None:
        self._fetch = fetch
        self._size = size
        self._gzip = compression is Compression.GZIP
        self._content = content
        self.content_bytes = 0

    def run(self) -> list[Break]:
        """Writes the content; returns where it is interrupted, in order."""
        breaks: list[Break] = []
        start = 0
        while start < self._size:
            before = self.content_bytes
            reached, kind, detail = self._member(start)
            after = self._next_member(start, reached, whole=kind in ("", "header"))
            if not kind and after > reached:
                kind, detail = "trailing", "other bytes follow it"
                if after == self._size and self._is_zero(reached):
                    detail = "zeros follow it"
            if kind == "header":
                stop = start + _GZIP_HEADER_BYTES
                breaks.append(Break(before, start, stop, "compression", detail))
            elif kind:
                at = self.content_bytes
                breaks.append(Break(at, min(reached, after), after, kind, detail))
            start = after
        return breaks

    def _member(self, start: int) -> tuple[int, str, str]:
        """Writes one member's content.

        Returns where it ends or becomes nonsense, the kind of damage ("" for none,
        "header" where nothing else is damaged) and zlib's message.
        """
        # zlib's window bits: 15 expects a zlib header, 31 a gzip one, -15 none.
        if not self._gzip:
            return self._inflate(start, 15)
        before = self.content_bytes
        head = self._fetch(start, min(start + _GZIP_HEADER_BYTES, self._size))
        flags = head[_FLAGS_AT] if len(head) == _GZIP_HEADER_BYTES else 0
        found = self._inflate(start, 31)
        if not found[1] or len(head) < _GZIP_HEADER_BYTES:
            return found
        if head.startswith(_GZIP_START) and not flags:
            return found
        # If the header is damaged, the data may still begin right behind it.
        with_header = self.content_bytes - before
        self._take_back(before)
        reached, kind, detail = self._inflate(start + _GZIP_HEADER_BYTES, -15)
        if self.content_bytes - before > with_header:
            if kind:
                return reached, kind, f"its header is damaged; {detail}"
            # Raw deflate data ends before the member's checksum and size.
            stop = min(reached + _GZIP_TRAILER_BYTES, self._size)
            return stop, "header", "its header is damaged"
        self._take_back(before)
        return self._inflate(start, 31)

    def _inflate(self, position: int, window_bits: int) -> tuple[int, str, str]:
        inflate = zlib.decompressobj(window_bits)
        stored = b""
        while not inflate.eof:
            ended = False
            if not stored:
                stop = min(position + _INPUT_BYTES, self._size)
                stored = self._fetch(position, stop)
                position = stop
                ended = not stored
            data, inflate, error = _step(inflate, stored, STEP_BYTES)
            self._content.write(data)
            self.content_bytes += len(data)
            stored = inflate.unused_data if inflate.eof else inflate.unconsumed_tail
            if error:
                return position - len(stored), "compression", error
            if ended and not data and not inflate.eof:
                return position, "truncated", "the stream ends early"
        return position - len(stored), "", ""

    def _take_back(self, size: int) -> None:
        self._content.truncate(size)
        self.content_bytes = size

    def _next_member(self, start: int, reached: int, *, whole: bool) -> int:
        """Returns where the next gzip member begins, or the end of the file."""
        if not self._gzip:
            return self._size
        place = reached if whole else max(start + 1, reached - _BACK_BYTES)
        while place < self._size:
            stop = min(place + STEP_BYTES, self._size)
            data = self._fetch(place, stop)
            found = data.find(_GZIP_START)
            while found >= 0:
                if self._is_member(place + found):
                    return place + found
                found = data.find(_GZIP_START, found + 1)
            place = stop if stop == self._size else stop - len(_GZIP_START) + 1
        return self._size

    def _is_member(self, place: int) -> bool:
        """Whether the bytes there can be inflated for a while."""
        head = self._fetch(place, min(place + (1 << 12), self._size))
        if len(head) <= _GZIP_HEADER_BYTES or head[_FLAGS_AT] & _RESERVED_FLAGS:
            return False
        try:
            zlib.decompressobj(31).decompress(head, STEP_BYTES)
        except zlib.error:
            return False
        return True

    def _is_zero(self, place: int) -> bool:
        while place < self._size:
            stop = min(place + STEP_BYTES, self._size)
            if self._fetch(place, stop).strip(b"\0"):
                return False
            place = stop
        return True


def looks_like_gzip(head: bytes) -> bool:
    """Whether a file begins like gzip with one bit wrong."""
    start = int.from_bytes(head[:3], "big") ^ int.from_bytes(_GZIP_START, "big")
    return len(head) >= _GZIP_HEADER_BYTES and start.bit_count() == 1


# zlib does not export the class of its objects, hence the quotes.
def _step(
    inflate: "zlib._Decompress", stored: bytes, size: int
) -> tuple[bytes, "zlib._Decompress", str]:
    """Inflates at most `size` bytes, and all bytes before an error.

    Returns them, the object to continue with, and zlib's message about the error.
    """
    out: list[bytes] = []
    pending = stored
    left = size
    while True:
        before = inflate.copy()
        try:
            data = inflate.decompress(pending, left)
        except zlib.error as error:
            # An error discards the bytes that the call had inflated before it: try
            # again from the copy, in smaller pieces.
            inflate = before
            if left == 1:
                data, inflate = _last_byte(inflate, pending)
                return b"".join((*out, data)), inflate, str(error)
            left = max(left // _SHRINK, 1)
            continue
        out.append(data)
        if left == size or inflate.eof or not data:
            return b"".join(out), inflate, ""
        pending = inflate.unconsumed_tail


def _last_byte(
    inflate: "zlib._Decompress", pending: bytes
) -> tuple[bytes, "zlib._Decompress"]:
    """Inflates the byte before an error, which a larger input would run into."""
    for at in range(len(pending)):
        try:
            data = inflate.decompress(pending[at : at + 1], 1)
        except zlib.error:
            break
        if data:
            return data, inflate
    return b"", inflate
