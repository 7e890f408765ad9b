"""What can be had of a damaged TFRecord file: every sound record, no other one.

    header ok, payload ok            kept
    header ok, payload not           skipped as a whole, if a header follows it or the
                                     file ends there; else bytes were lost or added in
                                     it, and the next record has to be looked for
    header ok, the file ends in it   skipped to the end
    header not ok                    the next header is looked for; a payload that ends
                                     just there, by its own checksum, is kept

A payload may itself hold framed records. Those are never taken for records of the file
while the header around them is intact: inside of the stretch that it claims, a record
counts only as part of a run of sound records that leads out of it. Where that header
is damaged too, the payload's checksum may still prove where it ends; if not, what was
found is marked as possibly nested.

Each byte is looked at a bounded number of times, and memory does not depend on the
file: nothing is held but some steps of 1 MiB.
"""

import dataclasses
import struct
from collections.abc import Callable, Iterator

import google_crc32c
import numpy as np

from transforms.core.tfrecord.chunk import boundaries, first_damage, length_crc
from transforms.core.tfrecord.frame import (
    DEFAULT_MAX_RECORD_BYTES,
    FOOTER_BYTES,
    HEADER_BYTES,
    OVERHEAD_BYTES,
    header,
    mask,
)
from transforms.core.tfrecord.resync import header_places

__all__ = ["NESTED", "REBUILT", "Fetch", "Kept", "Salvage", "Skipped"]

# Gives bytes [start, stop) of the content, which has them all.
Fetch = Callable[[int, int], bytes]

NESTED = "possibly nested"
REBUILT = "header rebuilt"

# After damage the steps start small: more of it may be near.
_FIRST_STEP_BYTES = 1 << 16
_STEP_BYTES = 1 << 20
# A record of more than this many times the whole content was never there.
_MAX_SHARE = 16
# How far behind a damaged header the end of its record is looked for, beyond the
# next header.
_LOOKAHEAD_BYTES = 1 << 23
# How often a stretch that an intact header claims may be read in search of a run that
# leads out of it. Only made-up headers ask for more.
_MAX_READS = 4

_LENGTH = struct.Struct("<Q")
_CRC = struct.Struct("<I")


@dataclasses.dataclass(frozen=True, slots=True)
class Kept:
    """Sound records: bytes [start, stop) of the content.

    Attributes:
      start, stop: where they lie, framing included.
      records: how many.
      header: what has to come before those bytes: the header of a record whose own
        one was damaged; else empty.
    """

    start: int
    stop: int
    records: int
    header: bytes = b""


@dataclasses.dataclass(frozen=True, slots=True)
class Skipped:
    """Bytes [start, stop) of the content that are left out.

    Attributes:
      start, stop: where they lie.
      kind: a word of `frame.DAMAGE_KINDS`.
      note: REBUILT (only a header was lost), NESTED (records beside these bytes may be
        part of a payload that was lost) or empty.
    """

    start: int
    stop: int
    kind: str
    note: str = ""


class Salvage:
    """Walks over bytes [start, stop) of some content.

    Args:
      fetch: gives its bytes.
      start, stop: what to walk over; `start` is expected to be that of a record.
      max_record_bytes: a longer record is taken for damage.
    """

    def __init__(
        self,
        fetch: Fetch,
        start: int,
        stop: int,
        *,
        max_record_bytes: int = DEFAULT_MAX_RECORD_BYTES,
    ) -> None:
        self._fetch = fetch
        self._start = start
        self._stop = stop
        self._max_record_bytes = min(max_record_bytes, _MAX_SHARE * (stop - start))

    def __iter__(self) -> Iterator[Kept | Skipped]:
        """Yields, in order and without a gap, what is kept and what is skipped."""
        position = self._start
        while position < self._stop:
            for stop, records, _ in self._runs(position):
                yield Kept(position, stop, records)
                position = stop
            if position < self._stop:
                for part in self._damaged(position):
                    yield part
                    position = part.stop

    def _runs(self, position: int) -> Iterator[tuple[int, int, int]]:
        """Yields (end, records, start of the last one) of sound records in a row."""
        step = _FIRST_STEP_BYTES
        while position < self._stop:
            data = self._fetch(position, min(position + step, self._stop))
            starts, stop = boundaries(data)
            if not len(starts):
                end = self._end_of_record(position)
                if end is None:
                    return
                yield end, 1, position
                position = end
            else:
                lengths = np.diff(starts, append=stop + HEADER_BYTES) - OVERHEAD_BYTES
                damage = first_damage(data, starts, lengths, self._max_record_bytes)
                good = len(starts) if damage is None else damage[0]
                if good:
                    last = int(starts[good - 1])
                    end = position + last + int(lengths[good - 1]) + FOOTER_BYTES
                    yield end, good, position + last - HEADER_BYTES
                    position = end
                if damage is not None:
                    return
            step = min(2 * step, _STEP_BYTES)

    def _run_to(self, place: int, limit: int) -> tuple[int, int]:
        """Returns where the sound records from a place end, and where the last begins.

        Those beyond `limit` are not all looked at.
        """
        reached = last = place
        for stop, _, start in self._runs(place):
            reached, last = stop, start
            if reached >= limit:
                break
        return reached, last

    def _end_of_record(self, position: int) -> int | None:
        """Returns where the record at a position ends; None: it is damaged."""
        length = self._length_at(position)
        if length is None:
            return None
        end = position + length + OVERHEAD_BYTES
        if end > self._stop or not self._is_payload(
            position + HEADER_BYTES, end - FOOTER_BYTES
        ):
            return None
        return end

    def _length_at(self, position: int) -> int | None:
        """Returns the length in a valid header within the limit; None for others."""
        if position + OVERHEAD_BYTES > self._stop:
            return None
        data = self._fetch(position, position + HEADER_BYTES)
        (length,) = _LENGTH.unpack_from(data)
        if _CRC.unpack_from(data, 8)[0] != length_crc(length):
            return None
        return int(length) if length <= self._max_record_bytes else None

    def _is_payload(self, start: int, stop: int) -> bool:
        """Whether the footer at `stop` is the checksum of bytes [start, stop)."""
        if stop < start:
            return False
        crc = 0
        for begin in range(start, stop, _STEP_BYTES):
            data = self._fetch(begin, min(begin + _STEP_BYTES, stop))
            crc = google_crc32c.extend(crc, data)
        return self._fetch(stop, stop + FOOTER_BYTES) == _CRC.pack(mask(crc))

    def _damaged(self, position: int) -> Iterator[Kept | Skipped]:
        """Yields what becomes of the bytes from a damaged record to the next one."""
        length = self._length_at(position)
        if length is None:
            yield from self._without_header(position)
            return
        end = position + length + OVERHEAD_BYTES
        if end == self._stop or self._length_at(end) is not None:
            yield Skipped(position, end, "data-crc")
            return
        if end > self._stop:
            yield Skipped(position, self._stop, "truncated")
            return
        place, holds_others = self._run_that_leaves(position + HEADER_BYTES, end)
        if place is None:
            place = self._next_header(end)
        if place is None:
            yield Skipped(position, self._stop, "data-crc")
        else:
            note = NESTED if holds_others else ""
            yield Skipped(position, place, "data-crc", note)

    def _run_that_leaves(self, start: int, end: int) -> tuple[int | None, bool]:
        """Returns where a run of sound records begins that leads out of a stretch.

        And whether there are other headers in front of it, or without it: then the
        stretch holds framed records of its own.

        Args:
          start, end: the stretch that an intact header claims.
        """
        budget = _MAX_READS * (end - start)
        first = place = self._next_header(start, end)
        while place is not None and budget > 0:
            reached, last = self._run_to(place, end)
            # What lies in a payload is followed by its footer, not by a record.
            if reached == self._stop or (
                reached >= end and (last >= end or self._is_record_there(reached))
            ):
                return place, place != first
            if reached >= end and last == place == first:
                # One record between two damaged ones, or in a payload of few.
                return place, True
            length = self._length_at(reached)
            budget -= reached - place + (0 if length is None else length)
            place = self._next_header(max(reached, place + 1), end)
        return None, first is not None

    def _without_header(self, position: int) -> Iterator[Kept | Skipped]:
        """Yields what becomes of a record whose length is not to be believed."""
        kind = self._header_kind(position)
        found = self._next_header(position + 1)
        place = self._stop if found is None else found
        body = position + HEADER_BYTES
        if self._ends_at(body, place):
            yield from self._rebuilt(position, place, kind)
            return
        # In less than a header's bytes no record was lost: what lies around them may
        # be a payload's own records and its footer.
        is_short = place == body or (place < body and position > self._start)
        note = NESTED if found is not None and is_short else ""
        if found is not None:
            reached, after = self._second_gap(found)
            if after is not None and self._ends_at(body, after):
                yield from self._rebuilt(position, after, kind)
                return
            if after is not None and not self._is_one_more(reached, after):
                note = NESTED
        yield Skipped(position, place, kind, note)

    def _second_gap(self, place: int) -> tuple[int, int | None]:
        """Returns where the run from `place` ends, and the header behind that.

        None for that header, where the run is too long to look, or ends the file.
        """
        limit = place + _LOOKAHEAD_BYTES
        reached, _ = self._run_to(place, limit)
        if reached >= min(limit, self._stop):
            return reached, None
        after = self._next_header(reached, limit)
        return reached, self._stop if after is None and limit >= self._stop else after

    def _header_kind(self, position: int) -> str:
        if position + OVERHEAD_BYTES > self._stop:
            return "truncated"
        data = self._fetch(position, position + HEADER_BYTES)
        is_valid = header(_LENGTH.unpack_from(data)[0]) == data
        return "too-long" if is_valid else "length-crc"

    def _ends_at(self, body: int, place: int) -> bool:
        """Whether a record with this payload ends where the next header stands."""
        length = place - FOOTER_BYTES - body
        if not 0 <= length <= self._max_record_bytes:
            return False
        return self._is_payload(body, place - FOOTER_BYTES)

    def _rebuilt(self, position: int, stop: int, kind: str) -> Iterator[Kept | Skipped]:
        body = position + HEADER_BYTES
        yield Skipped(position, body, kind, REBUILT)
        yield Kept(body, stop, 1, header(stop - FOOTER_BYTES - body))

    def _is_record_there(self, position: int) -> bool:
        """Whether a record stands there, though its header or payload be damaged."""
        if self._length_at(position) is not None:
            return True
        after = self._next_header(position + 1, position + _LOOKAHEAD_BYTES)
        return after is not None and self._is_one_more(position, after)

    def _is_one_more(self, reached: int, after: int) -> bool:
        """Whether a record of its own is damaged between a run and the next header."""
        if self._length_at(reached) is not None:
            return True
        return self._ends_at(reached + HEADER_BYTES, after)

    def _next_header(self, start: int, limit: int | None = None) -> int | None:
        """Returns the first place from `start` on, before `limit`, with a header.

        It is one whose record would fit into the file.
        """
        limit = self._stop if limit is None else min(limit, self._stop)
        step = _FIRST_STEP_BYTES
        while start < limit:
            stop = min(start + step, limit)
            data = self._fetch(start, min(stop + HEADER_BYTES - 1, self._stop))
            places = header_places(data, self._stop - start, self._max_record_bytes)
            if len(places):
                return start + int(places[0])
            start = stop
            step = min(2 * step, _STEP_BYTES)
        return None
