"""Recognize the headers of JPEGs that were accepted before.

Most files of a source have the same tables. `read_header` and `walk` decide by these
tables, by the dimensions and by the marker behind the scan:

    FF D8 | APPn and COM segments | tables, frame header, scan header | scan | FF D9
                                    `---- the header, without its dimensions

So a file with the header of an accepted file needs only a look at its dimensions and a
search for the end of its scan. Whatever is unusual is left to `walk`, which alone
refuses files.
"""

import struct
from typing import NamedTuple

from transforms.core.image.jpeg import MAX_SIDE, JpegHeader, find_marker

__all__ = ["KnownHeaders"]

# Bounds of memory. Common encoders write one of a few headers of some 600 bytes.
_MAX_HEADERS = 4096
_MAX_HEADER_BYTES = 2048

_EOI, _SOS = 0xD9, 0xFFDA
_FRAMES = frozenset((0xFFC0, 0xFFC1))
# Huffman tables, quantization tables, restart interval.
_TABLES = frozenset((0xFFC4, 0xFFDB, 0xFFDD))
# APPn and COM. APP1 is not among them: its EXIF and XMP are part of the result.
_METADATA = frozenset((0xFFE0, *range(0xFFE2, 0xFFF0), 0xFFFE))
_read_two = struct.Struct(">HH").unpack_from


class _Start(NamedTuple):
    """How a file starts: all before its scan, but the dimensions."""

    before: bytes
    after: bytes
    components: int


class KnownHeaders:
    """The headers of accepted files, each without its dimensions.

    Threads may share one. What it knows decides how long a check takes, never its
    result.

        headers = KnownHeaders()
        found = headers.find(data)
        if found is None:
            header = jpeg.read_header(data)
            end = jpeg.walk(data)
            headers.learn(data, header)
        else:
            header, end = found
    """

    def __init__(self) -> None:
        self._components: dict[bytes, int] = {}
        self._last = _Start(b"\0", b"", 0)

    def find(self, data: bytes) -> tuple[JpegHeader, int] | None:
        """Returns what `read_header` and `walk` return; None if that is not known."""
        known = self.find_scan(data, 0, len(data))
        if known is None:
            return None
        height, width, components, scan = known
        found = find_marker(data, scan)
        if found is None or data[found.end() - 1] != _EOI:
            return None
        depth = 1 if components == 1 else 3
        return JpegHeader(height, width, depth, components, False, ""), found.end()

    def find_scan(
        self, data: bytes | memoryview, start: int, stop: int
    ) -> tuple[int, int, int, int] | None:
        """Returns height, width, components, and where the scan starts.

        Args:
          data: the file is a part of it.
          start, stop: of the file.

        Returns:
          None if the header is not known. What `walk` checks behind the header is not
          checked.
        """
        last = self._last
        sides = start + len(last.before)
        scan = sides + 4 + len(last.after)
        if (
            scan <= stop
            and bytes(data[start:sides]) == last.before
            and bytes(data[sides + 4 : scan]) == last.after
        ):
            components = last.components
        else:
            outline = _outline(data, start, stop)
            if outline is None:
                return None
            first, sides, _, scan = outline
            found = self._components.get(_key(data, first, sides, scan))
            if found is None:
                return None
            components = found
            before, after = data[start:sides], data[sides + 4 : scan]
            self._last = _Start(bytes(before), bytes(after), components)
        height, width = _read_two(data, sides)
        if not (0 < height <= MAX_SIDE and 0 < width <= MAX_SIDE):
            return None
        return height, width, components, scan

    def learn(self, data: bytes, header: JpegHeader) -> None:
        """Adds the header of a file that `walk` has accepted, if it can be recognized.

        Args:
          data: the file.
          header: the result of `read_header`, of a kind that TensorFlow reads.
        """
        if len(self._components) >= _MAX_HEADERS:
            return
        outline = _outline(data, 0, len(data))
        if outline is None:
            return
        first, sides, scan_header, scan = outline
        # Of several scans, each needs a look.
        is_only_scan = data[scan_header + 4] == header.components
        if is_only_scan and scan - first <= _MAX_HEADER_BYTES:
            key = _key(data, first, sides, scan)
            self._components[key] = header.components


def _key(data: bytes | memoryview, first: int, sides: int, scan: int) -> bytes:
    """Returns the header without its dimensions."""
    return b"".join((data[first:sides], data[sides + 4 : scan]))


def _outline(
    data: bytes | memoryview, start: int, stop: int
) -> tuple[int, int, int, int] | None:
    """Returns where the header, its dimensions, the scan header and the scan start.

    None for a file that is not sequential, or whose segments are unusual.
    """
    at = start + 2
    first = sides = 0
    while at + 4 <= stop:
        marker, length = _read_two(data, at)
        if marker == _SOS:
            scan = at + 2 + length
            return (first, sides, at, scan) if sides and scan <= stop else None
        if marker not in _METADATA:
            first = first or at
            if marker in _FRAMES and not sides:
                sides = at + 5
            elif marker not in _TABLES:
                return None
        if length < 2:
            return None
        at += 2 + length
    # The file is cut short.
    return None
