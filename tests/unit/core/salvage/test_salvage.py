"""Salvage: every record that damage left whole, and no other one."""

import gzip
import io
import random
import time
import zlib
from collections.abc import Sequence

import pytest

from tests.conftest import Headline
from tests.support.stress import CASES
from transforms.core.salvage.resync import header_places, length_of
from transforms.core.salvage.salvage import NESTED, REBUILT, Kept, Salvage, Skipped
from transforms.core.salvage.unpack_damaged import Unpacker, looks_like_gzip
from transforms.core.tfrecord.compression import Compression
from transforms.core.tfrecord.frame import OVERHEAD_BYTES, frame, header

RECORDS = [b"", b"a", b"bc" * 5, b"d" * 10, b"e" * 10, b"f" * 99, b"g" * 17, b"", b"hh"]
RECORDS += [b"\n\x08" * 4]
INNER = b"".join(frame(b"inner %d" % i) for i in range(5))
OUTER = [b"x1", INNER, b"x2" * 10, b"before" + INNER + b"after", b"x3", INNER]
HOSTILE = [1 << 29, 2**31, 2**32, 2**40, 2**47, 2**62, 2**63, 2**64 - 1]


def framed(records: Sequence[bytes]) -> bytes:
    return b"".join(map(frame, records))


PLAIN = framed(RECORDS)


def salvaged(data: bytes) -> tuple[list[bytes], list[Skipped]]:
    """Returns what is kept, each checksum checked again, and what is skipped."""
    kept: list[bytes] = []
    skipped = []
    position = 0
    for part in Salvage(lambda start, stop: data[start:stop], 0, len(data)):
        assert part.start == position < part.stop
        position = part.stop
        if isinstance(part, Kept):
            found = payloads(part.header + data[part.start : part.stop])
            assert len(found) == part.records
            kept += found
        else:
            skipped.append(part)
    assert position == len(data)
    return kept, skipped


def payloads(data: bytes) -> list[bytes]:
    found = []
    while data:
        length = int.from_bytes(data[:8], "little")
        found.append(data[12 : 12 + length])
        assert data.startswith(frame(found[-1]))
        data = data[length + OVERHEAD_BYTES :]
    return found


def is_subsequence(part: Sequence[bytes], whole: Sequence[bytes]) -> bool:
    rest = iter(whole)
    return all(any(each == other for other in rest) for each in part)


def flipped(data: bytes, place: int, bit: int) -> bytes:
    out = bytearray(data)
    out[place] ^= 1 << bit
    return bytes(out)


def test_what_is_intact_is_kept() -> None:
    """Nothing is skipped, and records in a row are one part where they are read so."""
    assert salvaged(PLAIN) == (RECORDS, [])
    assert salvaged(b"") == ([], [])


def test_every_bit_flip_costs_one_record_at_most(headline: Headline) -> None:
    """A flip in a header costs none: its payload proves itself."""
    flips = lost = 0
    for place in range(len(PLAIN)):
        for bit in range(8):
            kept, (skipped,) = salvaged(flipped(PLAIN, place, bit))
            assert is_subsequence(kept, RECORDS)
            assert len(kept) == 9 + (skipped.note == REBUILT), (place, bit)
            assert skipped.start <= place < skipped.stop
            lost = max(lost, len(RECORDS) - len(kept))
            flips += 1
    headline("H3", f"{flips:,} bit flips: at most {lost} record lost, 0 invented")


def edited(data: bytes, rng: random.Random) -> tuple[bytes, list[int]]:
    """Returns data after one to three edits, and where each byte of it came from.

    -1 marks a byte that was changed or inserted.
    """
    places = sorted(rng.sample(range(len(data)), rng.randint(1, 3)), reverse=True)
    out = bytearray(data)
    origins = list(range(len(data)))
    for place in places:
        size = rng.randrange(1, 12)
        match rng.randrange(4):
            case 0:
                out[place] ^= 1 << rng.randrange(8)
                origins[place] = -1
            case 1:
                out[place : place + size] = rng.randbytes(size)
                origins[place : place + size] = [-1] * size
            case 2:
                del out[place : place + size]
                del origins[place : place + size]
            case _:
                out[place:place] = rng.randbytes(size)
                origins[place:place] = [-1] * size
    return bytes(out), origins


def left_whole(records: Sequence[bytes], origins: list[int]) -> list[bytes]:
    """Returns the records whose bytes are all still there, one after the other."""
    places = {origin: place for place, origin in enumerate(origins)}
    whole = []
    start = 0
    for record in records:
        stop = start + len(record) + OVERHEAD_BYTES
        place = places.get(start, len(origins))
        if origins[place : place + stop - start] == list(range(start, stop)):
            whole.append(record)
        start = stop
    return whole


@pytest.mark.parametrize("cases", CASES, ids=str)
def test_every_record_that_edits_leave_intact_is_kept(
    cases: range, headline: Headline
) -> None:
    """One to three edits anywhere: bits, overwritten, cut out and inserted bytes."""
    # In the last one an inserted byte makes a length of a header's zeros, and where
    # that ends a header happens to be.
    for case in [*cases, 97_070]:
        data, origins = edited(PLAIN, random.Random(case))
        kept, _ = salvaged(data)
        assert is_subsequence(kept, RECORDS), case
        assert is_subsequence(left_whole(RECORDS, origins), kept), case
    headline("H3", "{} times 1-3 edits: 0 invented, 0 whole records missed", len(cases))


def test_records_in_a_payload_are_never_taken_for_records_of_the_file() -> None:
    """No bit flip and no cut turns bytes within a record into a record."""
    data = framed(OUTER)
    for place in range(len(data)):
        kept, _ = salvaged(flipped(data, place, place % 8))
        assert is_subsequence(kept, OUTER)
        assert len(kept) >= len(OUTER) - 1
        kept, _ = salvaged(data[:place])
        assert is_subsequence(kept, OUTER)


@pytest.mark.parametrize("place", range(12))
def test_half_a_header_tells_where_its_record_ends(place: int) -> None:
    """The length or its checksum: nothing of the damaged payload is promoted."""
    start = len(frame(OUTER[0]))
    data = flipped(framed(OUTER), start + len(frame(OUTER[1])) - 1, 0)
    kept, (skipped,) = salvaged(flipped(data, start + place, place % 8))
    assert kept == [OUTER[0], *OUTER[2:]]
    assert skipped == Skipped(start, start + len(frame(OUTER[1])), "length-crc")


def without_header_and_footer(records: Sequence[bytes], index: int) -> bytes:
    """Returns the records, of one of them both header and footer overwritten."""
    data = bytearray(framed(records))
    start = len(framed(records[:index]))
    stop = start + len(frame(records[index]))
    data[start : start + 12] = b"?" * 12
    data[stop - 4 : stop] = b"?" * 4
    return bytes(data)


def test_damage_to_header_and_payload_marks_records_that_may_be_nested() -> None:
    """If both are lost, inner records are not recognised: they are kept and marked."""
    kept, skipped = salvaged(without_header_and_footer(OUTER, 1))
    assert [each.note for each in skipped] == [NESTED, ""]
    assert b"inner 0" in kept
    assert is_subsequence([OUTER[0], *OUTER[2:]], kept)


@pytest.mark.parametrize("other", [9, 16, 30])
def test_what_cannot_be_nested_is_not_marked(other: int) -> None:
    """Records up to the end of the file, or to one that is damaged in one part."""
    data = without_header_and_footer(RECORDS, 1)
    kept, (skipped,) = salvaged(data)
    assert kept == [RECORDS[0], *RECORDS[2:]]
    assert skipped.note == ""
    start = len(framed(RECORDS[:5]))
    kept, skips = salvaged(flipped(data, start + other, 2))
    assert is_subsequence(kept, RECORDS)
    assert NESTED not in [each.note for each in skips]


def test_a_whole_record_that_another_one_claims() -> None:
    """The first lost as many bytes as the intact one has; both are recognised."""
    for tail in ([], [b"next"]):
        records = [b"first", b"s" * 60, b"whole", *tail]
        data = framed(records)
        cut = len(framed(records[:1])) + 30
        data = data[:cut] + data[cut + len(frame(b"whole")) :]
        kept, (skipped,) = salvaged(data)
        assert kept == [b"first", b"whole", *tail]
        assert skipped.note == ""


@pytest.mark.parametrize("behind", ["end", "damage"])
def test_the_intact_record_that_cannot_be_recognised(behind: str) -> None:
    """A payload may end like this too: a header claims it, and no run leads out."""
    first = bytearray(frame(b"s" * 90))
    del first[20:60]
    tail = b"" if behind == "end" else flipped(frame(b"next"), 3, 0)[:-1] + b"?"
    last = b"" if behind == "end" else framed([b"last"] * 4)
    kept, skipped = salvaged(PLAIN + first + frame(b"whole") + tail + last)
    assert is_subsequence(kept, [*RECORDS, *[b"last"] * 4])
    assert is_subsequence(RECORDS, kept)
    assert len(kept) >= len(RECORDS) + (0 if behind == "end" else 3)
    assert skipped[0].start == len(PLAIN)


def test_a_checksum_tells_its_length() -> None:
    """There is one length below 2**32 for each checksum."""
    rng = random.Random(9)
    for length in (0, 1, 2**32 - 1, *(rng.getrandbits(32) for _ in range(99))):
        assert length_of(int.from_bytes(header(length)[8:], "little")) == length


@pytest.mark.parametrize("length", HOSTILE)
def test_a_made_up_header_hides_nothing(length: int) -> None:
    """A length that the file cannot have is damage, however right its checksum is."""
    kept, (skipped,) = salvaged(PLAIN + header(length) + PLAIN)
    assert kept == RECORDS * 2
    assert (skipped.start, skipped.stop) == (len(PLAIN), len(PLAIN) + 12)


def test_the_last_record_cut_off() -> None:
    """All in front of it is kept, and its bytes are named."""
    kept, (skipped,) = salvaged(PLAIN + frame(b"x" * 50)[:-7])
    assert kept == RECORDS
    assert skipped == Skipped(len(PLAIN), len(PLAIN) + 59, "truncated")


def test_text_mode_transfer_spares_what_holds_no_newline() -> None:
    """Records without a byte 10 come through CRLF conversion."""
    records = [b"with \n in it", *(b"no such byte %d" % i for i in range(100))]
    kept, skipped = salvaged(framed(records).replace(b"\n", b"\r\n"))
    assert is_subsequence(kept, records)
    assert len(kept) >= 98
    assert skipped


def test_long_records_are_kept_beside_damaged_ones() -> None:
    """Records beyond a step, with damage in front, within and behind."""
    rng = random.Random(4)
    records = [rng.randbytes(n) for n in (70_000, 3_000_000, 5, 1_100_000, 200_000)]
    data = framed(records)
    assert salvaged(data) == (records, [])
    kept, (skipped,) = salvaged(flipped(data, 2_000_000, 3))
    assert kept == records[:1] + records[2:]
    assert skipped.stop - skipped.start == 3_000_016
    kept, (skipped,) = salvaged(flipped(data, 70_017, 3))
    assert kept == records
    assert skipped.note == REBUILT


def test_headers_are_found_as_one_by_one() -> None:
    """The search over arrays finds what trying each place finds."""
    rng = random.Random(5)
    for size in (0, 11, 12, 27, 28, 400):
        for _ in range(20):
            data = bytearray(rng.choice((bytes(size), rng.randbytes(size))))
            for _ in range(size // 50):
                at = rng.randrange(size)
                length = rng.choice((0, 0, 1, 255, 256, 300, 1 << 20, 1 << 40))
                data[at : at + 12] = header(length)
            found = header_places(bytes(data), len(data) + 40, 1 << 30).tolist()
            assert found == [
                at
                for at in range(len(data) - 11)
                if header(n := int.from_bytes(data[at : at + 8], "little"))
                == data[at : at + 12]
                and at + n + OVERHEAD_BYTES <= len(data) + 40
            ]


@pytest.mark.parametrize("what", ["zeros", "noise", "small numbers", "headers"])
def test_time_is_linear_in_what_is_no_record(what: str) -> None:
    """Twice the bytes take about twice the time, also of what looks like headers."""
    rng = random.Random(6)

    def seconds(size: int) -> float:
        match what:
            case "zeros":
                data = bytes(size)
            case "noise":
                data = rng.randbytes(size)
            case "small numbers":
                data = b"\1\0\0\0\0\0\0\0" * (size // 64)
            case _:
                # Each claims all that is behind it.
                size //= 64
                data = b"".join(
                    header(size - at - 16) + b"none" for at in range(0, size - 16, 16)
                )
        started = time.process_time()
        kept, _ = salvaged(data)
        assert kept == []
        return time.process_time() - started

    size = 4 << 20
    seconds(1 << 16)
    small = min(seconds(size) for _ in range(2))
    large = min(seconds(4 * size) for _ in range(2))
    assert large < max(10 * small, 0.5)


class Content(io.BytesIO):
    """Content that can be taken back."""

    def truncate(self, size: int | None = None) -> int:
        self.seek(size or 0)
        return super().truncate(size)


def unpacked(
    stored: bytes, compression: Compression = Compression.GZIP
) -> tuple[bytes, list[str]]:
    """Returns the content that can be recovered, and the kinds of breaks."""
    content = Content()
    unpacker = Unpacker(
        lambda start, stop: stored[start:stop], len(stored), compression, content
    )
    breaks = unpacker.run()
    assert len(content.getvalue()) == unpacker.content_bytes
    assert all(each.start <= each.stop <= len(stored) for each in breaks)
    return content.getvalue(), [each.kind for each in breaks]


TEXT = bytes(random.Random(7).choices(b"abcdefgh", k=50_000))
PACKED = gzip.compress(TEXT, mtime=0)
MORE = gzip.compress(b"more", mtime=0)


def test_sound_streams_are_unpacked() -> None:
    """One member, several, and a zlib stream."""
    assert unpacked(PACKED) == (TEXT, [])
    assert unpacked(PACKED + MORE + MORE) == (TEXT + b"moremore", [])
    assert unpacked(zlib.compress(TEXT), Compression.ZLIB) == (TEXT, [])


@pytest.mark.parametrize("compression", [Compression.GZIP, Compression.ZLIB])
def test_a_cut_gives_the_records_before_it(compression: Compression) -> None:
    """To the last byte that can be known."""
    is_gzip = compression is Compression.GZIP
    stored = PACKED if is_gzip else zlib.compress(TEXT)
    for cut in range(20, len(stored), 997):
        reference = zlib.decompressobj(31 if is_gzip else 15)
        expected = reference.decompress(stored[:cut]) + reference.flush()
        assert unpacked(stored[:cut], compression) == (expected, ["truncated"])
    assert unpacked(stored[:-1], compression) == (TEXT, ["truncated"])


def test_a_wrong_trailer_costs_nothing() -> None:
    """The content is all there; the records in it have their own checksums."""
    for place in range(1, 9):
        found = unpacked(flipped(PACKED, len(PACKED) - place, 3))
        assert found == (TEXT, ["compression"])


def test_a_damaged_header_costs_nothing() -> None:
    """The data begins behind its ten bytes, whatever the flags say."""
    for place, bit in [(0, 1), (1, 0), (2, 4), *((3, bit) for bit in range(1, 8))]:
        stored = flipped(PACKED, place, bit)
        assert unpacked(stored) == (TEXT, ["compression"])
        assert place == 3 or looks_like_gzip(stored)


def test_damage_within_ends_at_the_next_member() -> None:
    """What is in front comes, then nonsense perhaps, then all of the next member."""
    for place in range(100, len(PACKED) - 100, 1999):
        content, kinds = unpacked(flipped(PACKED, place, 5) + MORE)
        assert content.endswith(b"more")
        assert content[: place // 2] == TEXT[: place // 2]
        assert kinds == ["compression"]


def test_bytes_that_are_no_member() -> None:
    """Padding, garbage at the end and between members."""
    for tail in (bytes(700), b"garbage", b"\x1f"):
        assert unpacked(PACKED + tail) == (TEXT, ["trailing"])
    assert unpacked(PACKED + b"garbage" + MORE) == (TEXT + b"more", ["trailing"])
