"""Find records and headers, whole or damaged, in the bytes of a damaged file.

Answers come from checksums alone; `salvage.py` decides from them what is damage.
"""

import operator
import struct
from collections.abc import Callable, Iterator

import google_crc32c

from transforms.core.salvage.resync import header_places, length_of
from transforms.core.tfrecord.chunk import boundaries, first_damage
from transforms.core.tfrecord.compression import is_frame_header
from transforms.core.tfrecord.frame import (
    FOOTER_BYTES,
    HEADER_BYTES,
    OVERHEAD_BYTES,
    header,
    mask,
)

__all__ = ["LOOKAHEAD_BYTES", "Content", "Fetch"]

# Returns bytes [start, stop) of the content; both are within it.
Fetch = Callable[[int, int], bytes]

# How far behind a damaged header the search for the end of its record goes.
LOOKAHEAD_BYTES = 1 << 23
# Behind damage the steps start small, because more damage may be near.
_FIRST_STEP_BYTES = 1 << 16
_STEP_BYTES = 1 << 20

_LENGTH = struct.Struct("<Q")
_CRC = struct.Struct("<I")


class Content:
    """Bytes that may hold records; places are byte offsets from their start.

    Args:
      fetch: returns a range of the bytes.
      stop: where they end.
      max_record_bytes: a longer record counts as damage.
    """

    def __init__(self, fetch: Fetch, stop: int, max_record_bytes: int) -> None:
        self.fetch = fetch
        self.stop = stop
        self.max_record_bytes = max_record_bytes

    def runs(self, position: int) -> Iterator[tuple[int, int, int]]:
        """Yields (end, records, start of the last record) of sound records.

        They follow one another from `position` on, up to the first damaged one.
        """
        step = _FIRST_STEP_BYTES
        while position < self.stop:
            data = self.fetch(position, min(position + step, self.stop))
            starts, lengths, _ = boundaries(data)
            if not len(starts):
                end = self._end_of_record(position)
                if end is None:
                    return
                yield end, 1, position
                position = end
            else:
                damage = first_damage(data, starts, lengths, self.max_record_bytes)
                good = len(starts) if damage is None else damage[0]
                if good:
                    last = int(starts[good - 1])
                    end = position + last + int(lengths[good - 1]) + FOOTER_BYTES
                    yield end, good, position + last - HEADER_BYTES
                    position = end
                if damage is not None:
                    return
            step = min(2 * step, _STEP_BYTES)

    def run_to(self, place: int, limit: int) -> tuple[int, int]:
        """Returns where the sound records from a place end, and where the last begins.

        The walk stops soon after `limit`.
        """
        reached = last = place
        for stop, _, start in self.runs(place):
            reached, last = stop, start
            if reached >= limit:
                break
        return reached, last

    def _end_of_record(self, position: int) -> int | None:
        """Returns where the record at a position ends; None: it is damaged."""
        length = self.length_at(position)
        if length is None:
            return None
        end = position + length + OVERHEAD_BYTES
        if end > self.stop or not self.is_payload(
            position + HEADER_BYTES, end - FOOTER_BYTES
        ):
            return None
        return end

    def length_at(self, position: int) -> int | None:
        """Returns the length in a valid header within the limit; None for others."""
        if position + OVERHEAD_BYTES > self.stop:
            return None
        data = self.fetch(position, position + HEADER_BYTES)
        if not is_frame_header(data):
            return None
        (length,) = _LENGTH.unpack_from(data)
        return int(length) if length <= self.max_record_bytes else None

    def is_payload(self, start: int, stop: int) -> bool:
        """Whether the footer at `stop` is the checksum of bytes [start, stop)."""
        if stop < start:
            return False
        crc = 0
        for begin in range(start, stop, _STEP_BYTES):
            data = self.fetch(begin, min(begin + _STEP_BYTES, stop))
            crc = google_crc32c.extend(crc, data)
        return self.fetch(stop, stop + FOOTER_BYTES) == _CRC.pack(mask(crc))

    def ends_at(self, body: int, place: int) -> bool:
        """Whether a record with this payload ends where the next header is."""
        length = place - FOOTER_BYTES - body
        if not 0 <= length <= self.max_record_bytes:
            return False
        return self.is_payload(body, place - FOOTER_BYTES)

    def is_boundary(self, position: int) -> bool:
        """Whether a header is there, or the end."""
        return position == self.stop or self.length_at(position) is not None

    def possible_ends(self, position: int) -> dict[int, bool]:
        """Returns where the record of a damaged header may end: end -> certain or not.

        Length and checksum each determine the end, and one of them may be intact. An
        end counts only if a header or the end of the file is there. It is certain if a
        single byte of the header is wrong: random bytes point to some header now and
        then, but hardly ever with only one byte off.
        """
        if position + OVERHEAD_BYTES > self.stop:
            return {}
        data = self.fetch(position, position + HEADER_BYTES)
        (length,) = _LENGTH.unpack_from(data)
        (crc,) = _CRC.unpack_from(data, _LENGTH.size)
        room = min(
            self.max_record_bytes,
            self.stop - position - OVERHEAD_BYTES,
            LOOKAHEAD_BYTES,
        )
        ends = {}
        for candidate in sorted({length, length_of(crc)}):
            end = position + OVERHEAD_BYTES + candidate
            if candidate <= room and self.is_boundary(end):
                wrong = sum(map(operator.ne, header(candidate), data))
                ends[end] = wrong <= 1
        return ends

    def gap(self, place: int, limit: int) -> tuple[int, int | None]:
        """Returns where the run from `place` ends, and where the next header is.

        That is None where the run reaches `limit` or the end of the file.
        """
        reached, _ = self.run_to(place, limit)
        if reached >= min(limit, self.stop):
            return reached, None
        after = self.next_header(reached + 1, limit)
        return reached, self.stop if after is None and limit >= self.stop else after

    def next_header(self, start: int, limit: int | None = None) -> int | None:
        """Returns the first place in [start, limit) with a header; None without one.

        Its record would fit into the file.
        """
        limit = self.stop if limit is None else min(limit, self.stop)
        step = _FIRST_STEP_BYTES
        while start < limit:
            stop = min(start + step, limit)
            data = self.fetch(start, min(stop + HEADER_BYTES - 1, self.stop))
            places = header_places(data, self.stop - start, self.max_record_bytes)
            if len(places):
                return start + int(places[0])
            start = stop
            step = min(2 * step, _STEP_BYTES)
        return None
