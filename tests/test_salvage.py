"""Salvage: every record that damage left whole, and no other one."""

import gzip
import io
import random
import time
import zlib
from collections.abc import Sequence

import numpy as np
import pytest

from tests.conftest import Headline
from tests.stress import count
from transforms.core.tfrecord.compression import Compression
from transforms.core.tfrecord.frame import OVERHEAD_BYTES, frame, header
from transforms.core.tfrecord.resync import header_places
from transforms.core.tfrecord.salvage import NESTED, REBUILT, Kept, Salvage, Skipped
from transforms.core.tfrecord.unpack_damaged import Unpacker, looks_like_gzip

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


def test_what_is_sound_is_kept() -> None:
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


def edited(data: bytes, rng: random.Random) -> tuple[bytes, list[tuple[int, int]]]:
    """Returns data after one to three edits, and the stretches that they touched."""
    places = sorted(rng.sample(range(len(data)), rng.randint(1, 3)), reverse=True)
    out = bytearray(data)
    touched = []
    for place in places:
        size = rng.randrange(1, 12)
        match rng.randrange(4):
            case 0:
                out[place] ^= 1 << rng.randrange(8)
                touched.append((place, place + 1))
            case 1:
                out[place : place + size] = rng.randbytes(size)
                touched.append((place, place + size))
            case 2:
                del out[place : place + size]
                touched.append((place, place + size))
            case _:
                out[place:place] = rng.randbytes(size)
                # Nothing of it is gone, but it stands apart now.
                touched.append((place, place))
    return bytes(out), touched


def test_every_record_that_edits_left_whole_is_kept(headline: Headline) -> None:
    """One to three edits anywhere: bits, overwritten, cut out and inserted bytes.

    With three of them in three records that follow on each other, a whole one between
    cannot always be told from what a payload holds.
    """
    ends = np.cumsum([len(record) + OVERHEAD_BYTES for record in RECORDS]).tolist()
    starts = [0, *ends[:-1]]
    cases = count(1_500, 100_000)
    missed = 0
    for case in range(cases):
        rng = random.Random(case)
        data, touched = edited(PLAIN, rng)
        whole = [
            record
            for record, start, end in zip(RECORDS, starts, ends, strict=True)
            if not any(
                (start < last and first < end)
                or (first == last and start < first < end)
                for first, last in touched
            )
        ]
        kept, _ = salvaged(data)
        assert is_subsequence(kept, RECORDS), case
        if not is_subsequence(whole, kept):
            missed += 1
            assert len(touched) == 3, case
            assert len(kept) >= len(whole) - 1, case
    assert missed <= cases // 1000
    headline(
        "H3", f"{cases:,} times 1-3 edits: 0 invented, a whole record missed {missed}x"
    )


def test_records_in_a_payload_are_never_taken_for_the_files() -> None:
    """No bit flip and no cut promotes what lies within a record."""
    data = framed(OUTER)
    for place in range(len(data)):
        kept, _ = salvaged(flipped(data, place, place % 8))
        assert is_subsequence(kept, OUTER)
        assert len(kept) >= len(OUTER) - 1
        kept, _ = salvaged(data[:place])
        assert is_subsequence(kept, OUTER)


def test_damage_to_header_and_payload_marks_what_may_be_nested() -> None:
    """With both gone nothing tells any more: the inner records are kept, and marked."""
    data = bytearray(framed(OUTER))
    start = len(frame(OUTER[0]))
    data[start] ^= 1
    data[start + len(frame(OUTER[1])) - 1] ^= 1
    kept, skipped = salvaged(bytes(data))
    assert skipped[0].note == NESTED
    assert set(OUTER) - set(kept) == {INNER} - set(kept)
    assert b"inner 0" in kept


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

    size = count(4 << 20, 64 << 20)
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
    """Returns the content that can be had, and the kinds of breaks."""
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
def test_a_cut_gives_what_stands_in_front_of_it(compression: Compression) -> None:
    """To the last byte that can be told."""
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
