"""Salvage: every record that damage left whole, and no other one."""

import gzip
import io
import itertools
import random
import time
import zlib
from collections.abc import Sequence

import numpy as np
import pytest

from tests.conftest import Headline
from tests.support.stress import CASES
from tests.support.tfrecords import HOSTILE, flipped
from transforms.core.tfrecord import index
from transforms.core.tfrecord.compression import unpack
from transforms.core.tfrecord.frame import OVERHEAD_BYTES, frame, header
from transforms.core.tfrecord.index import text_index
from transforms.core.tfrecord.walk import Kept, LostRange, Salvage, header_places

RECORDS = [b"", b"a", b"bc" * 5, b"d" * 10, b"e" * 10, b"f" * 99, b"g" * 17, b"", b"hh"]
RECORDS += [b"\n\x08" * 4]
INNER = b"".join(frame(b"inner %d" % i) for i in range(5))
OUTER = [b"x1", INNER, b"x2" * 10, b"before" + INNER + b"after", b"x3", INNER]


def framed(records: Sequence[bytes]) -> bytes:
    return b"".join(map(frame, records))


PLAIN = framed(RECORDS)


def salvaged(data: bytes) -> tuple[list[bytes], list[LostRange]]:
    """Returns what is kept, each checksum checked again, and what is skipped."""
    kept: list[bytes] = []
    skipped = []
    position = 0
    for part in Salvage(lambda start, stop: data[start:stop], len(data)):
        assert part.start == position < part.stop
        position = part.stop
        if isinstance(part, Kept):
            found = payloads(data[part.start : part.stop])
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


def test_every_bit_flip_costs_one_record_at_most(headline: Headline) -> None:
    """The others are kept, and the range names the bit."""
    flips = lost = 0
    for place in range(len(PLAIN)):
        for bit in range(8):
            kept, (skipped,) = salvaged(flipped(PLAIN, place, bit))
            assert is_subsequence(kept, RECORDS)
            assert len(kept) == 9, (place, bit)
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


def test_records_in_a_payload_are_none_of_the_file_where_a_header_says_so() -> None:
    """No bit flip in a payload turns bytes within it into a record."""
    data, start = framed(OUTER), 0
    for record in OUTER:
        body = start + 12
        start += len(frame(record))
        for place in range(body, start):
            kept, (skipped,) = salvaged(flipped(data, place, place % 8))
            assert is_subsequence(kept, OUTER)
            assert len(kept) == len(OUTER) - 1
            assert skipped == LostRange(body - 12, start, "data-crc")


def test_a_lost_header_loses_no_record_behind_it() -> None:
    """Records in its payload may come too, as nothing says what they are."""
    start = len(frame(OUTER[0]))
    for place in range(12):
        kept, skipped = salvaged(flipped(framed(OUTER), start + place, place % 8))
        assert is_subsequence([OUTER[0], *OUTER[2:]], kept)
        assert skipped[0].start == start


@pytest.mark.parametrize("length", [1 << 29, *HOSTILE])
def test_a_made_up_header_hides_nothing(length: int) -> None:
    """A length that the file cannot have is damage, however right its checksum is."""
    kept, (skipped,) = salvaged(PLAIN + header(length) + PLAIN)
    assert kept == RECORDS * 2
    assert (skipped.start, skipped.stop) == (len(PLAIN), len(PLAIN) + 12)


def test_the_last_record_cut_off() -> None:
    """All in front of it is kept, and its bytes are named."""
    kept, (skipped,) = salvaged(PLAIN + frame(b"x" * 50)[:-7])
    assert kept == RECORDS
    assert skipped == LostRange(len(PLAIN), len(PLAIN) + 59, "truncated")


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
    assert kept == [records[0], *records[2:]]
    assert skipped.kind == "length-crc"


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
            found = header_places(bytes(data), len(data) + 40).tolist()
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


TEXT = bytes(random.Random(7).choices(b"abcdefgh", k=50_000))
PACKED = gzip.compress(TEXT, mtime=0)
MORE = gzip.compress(b"more", mtime=0)


def unpacked(stored: bytes) -> tuple[bytes, str]:
    """Returns the content in front of the first fault, and its kind."""
    content = io.BytesIO()
    fault = unpack(lambda start, stop: stored[start:stop], len(stored), content.write)
    assert fault is None or 0 <= fault.start <= fault.stop == len(stored)
    return content.getvalue(), "" if fault is None else fault.kind


def test_sound_streams_are_unpacked() -> None:
    """One member and several, also of content that deflates a thousandfold."""
    assert unpacked(PACKED) == (TEXT, "")
    assert unpacked(PACKED + MORE + MORE) == (TEXT + b"moremore", "")
    assert unpacked(gzip.compress(bytes(5_000_000))) == (bytes(5_000_000), "")


def test_a_cut_gives_the_content_before_it() -> None:
    """To the last byte that can be known."""
    for cut in range(20, len(PACKED), 997):
        reference = zlib.decompressobj(31)
        expected = reference.decompress(PACKED[:cut]) + reference.flush()
        assert unpacked(PACKED[:cut]) == (expected, "truncated")
    assert unpacked(PACKED[:-1]) == (TEXT, "truncated")


def test_a_wrong_trailer_costs_nothing() -> None:
    """The content is all there; the records in it have their own checksums."""
    for place in range(1, 9):
        found = unpacked(flipped(PACKED, len(PACKED) - place, 3))
        assert found == (TEXT, "compression")


def test_a_fault_ends_it() -> None:
    """What is in front comes, then nonsense perhaps, and no member behind."""
    for place in range(100, len(PACKED) - 100, 1999):
        content, kind = unpacked(flipped(PACKED, place, 5) + MORE)
        assert content[: place // 2] == TEXT[: place // 2]
        assert not content.endswith(b"more")
        assert kind == "compression"


def test_bytes_that_are_no_member() -> None:
    """Padding and garbage, also in front of a member."""
    for tail in (bytes(700), b"garbage", b"garbage" + MORE):
        assert unpacked(PACKED + tail) == (TEXT, "trailing")


@pytest.mark.parametrize("together", [1, 2, 3, 100])
@pytest.mark.parametrize("offsets", [[], [0], [0, 20], [0, 20, 37, 54, 80]])
def test_a_text_index_has_a_line_for_each_record(
    offsets: list[int], together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it begins and its size, however many lines are made together."""
    monkeypatch.setattr(index, "_LINES_TOGETHER", together)
    lines = [f"{start} {stop - start}\n" for start, stop in itertools.pairwise(offsets)]
    assert text_index(np.array(offsets, np.uint64)) == "".join(lines).encode()
