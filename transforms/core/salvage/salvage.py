"""Recover every sound record of a damaged TFRecord file, and nothing else.

    header ok, payload ok            kept
    header ok, payload not           skipped as a whole, if a header follows it or the
                                     file ends there; else bytes were lost or added in
                                     it, and the next record has to be looked for
    header ok, the file ends in it   skipped to the end
    header not ok                    its length or the checksum of that, whichever is
                                     intact, determines where the record ends, if just
                                     one byte is wrong and a header follows there; else
                                     the next header is looked for. A payload that
                                     ends at either, by its own checksum, is kept

A payload may itself hold framed records. They must not become records of the file:

- If the header around them is intact, it claims a stretch of the file. A record inside
  it counts only as part of a run of sound records that continues beyond the stretch.
- If not, the records behind the damage are marked as possibly nested where the bytes
  after them may be the rest of such a payload: bytes that are no record, not even one
  whose header or payload alone is damaged. (They are not marked where bytes were cut
  out so that a nested header is exactly where the damaged record should have ended.)

Two kinds of whole records are lost. If bytes were cut out of a record, its header
claims the same number of bytes behind it, and with them a whole record is lost if

- the file ends within the claimed stretch, or
- the record behind the whole one is damaged as well, and begins in the stretch or
  the first one holds framed records.

Each byte is read a bounded number of times. Memory does not depend on the file: a few
steps of 1 MiB are held at once.
"""

import dataclasses
from collections.abc import Iterator

from transforms.core.salvage.content import LOOKAHEAD_BYTES, Content, Fetch
from transforms.core.tfrecord.compression import is_frame_header
from transforms.core.tfrecord.frame import (
    DEFAULT_MAX_RECORD_BYTES,
    FOOTER_BYTES,
    HEADER_BYTES,
    OVERHEAD_BYTES,
    header,
)

__all__ = ["NESTED", "REBUILT", "Fetch", "Kept", "Salvage", "Skipped"]

NESTED = "possibly nested"
REBUILT = "header rebuilt"

# No record is longer than this multiple of the whole content.
_MAX_SHARE = 16
# How often the stretch that an intact header claims may be read in search of a run that
# continues beyond it. Only crafted files need more; it bounds their cost.
_MAX_READS = 4


@dataclasses.dataclass(frozen=True, slots=True)
class Kept:
    """Sound records: bytes [start, stop) of the content.

    Attributes:
      start, stop: where they are, framing included.
      records: how many.
      header: the bytes to write before them: the header of a record whose own was
        damaged; else empty.
    """

    start: int
    stop: int
    records: int
    header: bytes = b""


@dataclasses.dataclass(frozen=True, slots=True)
class Skipped:
    """Bytes [start, stop) of the content that are left out.

    Attributes:
      start, stop: where they are.
      kind: a word of `frame.DAMAGE_KINDS`.
      note: REBUILT (only a header was lost), NESTED (the records after these bytes may
        be part of a payload that was lost) or empty.
    """

    start: int
    stop: int
    kind: str
    note: str = ""


class Salvage:
    """Walks over bytes [start, stop) of some content.

    Args:
      fetch: returns a range of its bytes.
      start, stop: the range to walk over; a record should begin at `start`.
      max_record_bytes: a longer record counts as damage.
    """

    def __init__(
        self,
        fetch: Fetch,
        start: int,
        stop: int,
        *,
        max_record_bytes: int = DEFAULT_MAX_RECORD_BYTES,
    ) -> None:
        self._start = start
        self._stop = stop
        self._max_record_bytes = min(max_record_bytes, _MAX_SHARE * (stop - start))
        self._content = Content(fetch, stop, self._max_record_bytes)

    def __iter__(self) -> Iterator[Kept | Skipped]:
        """Yields what is kept and what is skipped, in order and without a gap."""
        position = self._start
        while position < self._stop:
            for stop, records, _ in self._content.runs(position):
                yield Kept(position, stop, records)
                position = stop
            if position < self._stop:
                for part in self._damaged(position):
                    yield part
                    position = part.stop

    def _damaged(self, position: int) -> Iterator[Kept | Skipped]:
        """Yields what to do with the bytes from a damaged record to the next one."""
        length = self._content.length_at(position)
        if length is None:
            yield from self._without_header(position)
            return
        end = position + length + OVERHEAD_BYTES
        if end > self._stop:
            yield Skipped(position, self._stop, "truncated")
            return
        place = self._run_that_leaves(position + HEADER_BYTES, end)
        if place is None and self._content.is_boundary(end):
            yield Skipped(position, end, "data-crc")
            return
        if place is None:
            place = self._content.next_header(end)
        yield self._skipped_to(position, place, "data-crc")

    def _skipped_to(self, position: int, place: int | None, kind: str) -> Skipped:
        """Returns the range in front of the next record; None: there is none."""
        if place is None:
            return Skipped(position, self._stop, kind)
        note = NESTED if self._may_be_nested(place) else ""
        return Skipped(position, place, kind, note)

    def _run_that_leaves(self, start: int, end: int) -> int | None:
        """Returns where a run of sound records begins that continues beyond `end`.

        Args:
          start, end: the stretch that a header claims.
        """
        budget = _MAX_READS * (end - start)
        first = place = self._content.next_header(start, end)
        while place is not None and budget > 0:
            reached, last = self._content.run_to(place, end)
            # Records within a payload are followed by its footer, not by a record.
            if reached == self._stop or (
                reached >= end and (last >= end or self._is_record_there(reached))
            ):
                return place
            if reached >= end and last == place == first:
                # One record between two damaged ones, or in a payload of few.
                return place
            length = self._content.length_at(reached)
            budget -= reached - place + (0 if length is None else length)
            place = self._content.next_header(max(reached, place + 1), end)
        return None

    def _without_header(self, position: int) -> Iterator[Kept | Skipped]:
        """Yields what to do with a record whose length is damaged."""
        kind = self._header_kind(position)
        body = position + HEADER_BYTES
        ends = self._content.possible_ends(position)
        for end in ends:
            if self._content.is_payload(body, end - FOOTER_BYTES):
                yield from self._rebuilt(position, end, kind)
                return
        place = self._content.next_header(position + 1)
        guesses = [self._stop if place is None else place]
        if place is not None:
            _, after = self._content.gap(place, place + LOOKAHEAD_BYTES)
            guesses += [] if after is None else [after]
        for end in guesses:
            if self._content.ends_at(body, end):
                yield from self._rebuilt(position, end, kind)
                return
        for end in (end for end, is_certain in ends.items() if is_certain):
            place = self._run_that_leaves(body, end)
            if place is None:
                yield Skipped(position, end, kind)
                return
        yield self._skipped_to(position, place, kind)

    def _may_be_nested(self, place: int) -> bool:
        """Whether the records from `place` on may be part of a payload that was lost.

        The footer of that payload would follow them, where no record begins. A damaged
        record between them that ends at a header does not count as that footer.
        """
        limit = place + LOOKAHEAD_BYTES
        while True:
            reached, after = self._content.gap(place, limit)
            if after is None:
                return False
            if not self._is_one_more(reached, after):
                return True
            place = after

    def _header_kind(self, position: int) -> str:
        if position + OVERHEAD_BYTES > self._stop:
            return "truncated"
        data = self._content.fetch(position, position + HEADER_BYTES)
        return "too-long" if is_frame_header(data) else "length-crc"

    def _rebuilt(self, position: int, stop: int, kind: str) -> Iterator[Kept | Skipped]:
        body = position + HEADER_BYTES
        yield Skipped(position, body, kind, REBUILT)
        yield Kept(body, stop, 1, header(stop - FOOTER_BYTES - body))

    def _is_record_there(self, position: int) -> bool:
        """Whether a record is there, even with a damaged header or payload."""
        if self._content.length_at(position) is not None:
            return True
        after = self._content.next_header(position + 1, position + LOOKAHEAD_BYTES)
        return after is not None and self._is_one_more(position, after)

    def _is_one_more(self, reached: int, after: int) -> bool:
        """Whether just one record is damaged between a run and the next header."""
        length = self._content.length_at(reached)
        if length is not None:
            return self._content.is_boundary(reached + length + OVERHEAD_BYTES)
        return self._content.possible_ends(reached).get(
            after, False
        ) or self._content.ends_at(reached + HEADER_BYTES, after)
