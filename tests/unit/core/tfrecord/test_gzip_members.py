"""gzip members that end at record ends, and records that are read out of them."""

import gzip
import hashlib
import io
import itertools
import random
import time
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.core.salvage.unpack_damaged import Unpacker
from transforms.core.tfrecord.compression import Compression
from transforms.core.tfrecord.frame import frame
from transforms.core.tfrecord.gzip_members import (
    MEMBER_BYTES,
    MemberDeflater,
    parse_addresses,
    scan_members,
    unpack_records,
)
from transforms.core.tfrecord.reader import TFRecordReader
from transforms.core.tfrecord.writer import TFRecordWriter
from transforms.errors import TFRecordError


def deflate(*parts: bytes) -> tuple[bytes, list[int]]:
    deflater = MemberDeflater()
    stored = b"".join([*map(deflater.add, parts), deflater.finish()])
    return stored, deflater.addresses().tolist()


def members(stored: bytes) -> list[bytes]:
    """The content of each member, unpacked by zlib."""
    out = []
    while stored:
        inflate = zlib.decompressobj(31)
        out.append(inflate.decompress(stored))
        stored = inflate.unused_data
    return out


def records_of(sizes: list[int]) -> list[bytes]:
    noise = random.Random(3)
    return [frame(noise.randbytes(min(size, 50)).ljust(size, b"x")) for size in sizes]


def test_bytes_are_pinned() -> None:
    """A change of these bytes changes every gzip dataset."""
    stored, addresses = deflate(frame(b"abc"))
    assert stored == bytes.fromhex(
        "1f8b08000000000000ff636680800d333df9129392f3c23f2a020032a97b3913000000"
    )
    assert addresses == [0, len(stored) << 16]
    stored, addresses = deflate(b"".join(records_of([1000] * 200)))
    assert [len(each) for each in members(stored)] == [66040, 66040, 66040, 5080]
    # zlib decides the deflated bytes; this was made with 1.2.13.
    if zlib.ZLIB_RUNTIME_VERSION == "1.2.13":
        assert hashlib.sha256(stored).hexdigest()[:16] == "148cd6adc6112e4d"


def test_an_empty_file_is_one_member() -> None:
    """gzip knows no file without a member."""
    assert members(deflate()[0]) == [b""]
    assert deflate(b"") == deflate()


@pytest.mark.parametrize(("first", "second"), [(65_519, 2), (65_520, 1), (200_000, 1)])
def test_members_end_with_the_record_that_reaches_their_size(
    first: int, second: int
) -> None:
    """65,536 bytes, 16 of which are the frame; no empty member is at the end."""
    whole = records_of([first, 10, 65_520])
    expected = [b"".join(whole[:second]), b"".join(whole[second:])]
    assert members(deflate(*whole)[0]) == expected


sizes = st.lists(
    st.one_of(st.integers(0, 300), st.integers(20_000, 90_000)), max_size=12
)


@given(sizes, st.lists(st.integers(0, 400_000), max_size=30))
def test_how_records_are_divided_among_calls_changes_nothing(
    lengths: list[int], cuts: list[int]
) -> None:
    """Cuts within a length, a payload, a footer; the content is gzip's own."""
    content = b"".join(records_of(lengths))
    bounds = sorted({0, len(content), *(cut % (len(content) + 1) for cut in cuts)})
    parts = [content[a:b] for a, b in itertools.pairwise(bounds)]
    assert deflate(*parts) == deflate(content)
    assert gzip.decompress(deflate(content)[0]) == content


def test_cuts_in_every_place_of_short_records() -> None:
    """Byte by byte."""
    content = b"".join(records_of([0, 1, 20]))
    assert deflate(*(bytes([each]) for each in content)) == deflate(content)


def unpack(stored: bytes, addresses: list[int], path: str = "a") -> list[bytes]:
    data, offsets = unpack_records(
        lambda a, b: stored[a:b], np.array(addresses, np.uint64), path=path
    )
    return [data[a:b] for a, b in itertools.pairwise(offsets.tolist())]


@given(sizes, st.data())
def test_any_run_of_records_is_unpacked_by_itself(
    lengths: list[int], data: st.DataObject
) -> None:
    """The addresses ascend, and end with the size of the file."""
    whole = records_of(lengths)
    stored, addresses = deflate(b"".join(whole))
    assert addresses == sorted(addresses)
    assert addresses[-1] == len(stored) << 16
    assert addresses[:1] == ([0] if whole else [len(stored) << 16])
    for index, record in enumerate(whole):
        assert unpack(stored, addresses[index : index + 2]) == [record]
    if whole:
        first = data.draw(st.integers(0, len(whole) - 1))
        last = data.draw(st.integers(first + 1, len(whole)))
        assert unpack(stored, addresses[first : last + 1]) == whole[first:last]


@given(sizes)
def test_addresses_are_found_again(lengths: list[int]) -> None:
    """From the file alone, and from the bytes of its index."""
    stored, addresses = deflate(b"".join(records_of(lengths)))
    found = scan_members(lambda a, b: stored[a:b], len(stored), path="a")
    assert found.tolist() == addresses
    content = np.array(addresses, "<u8").tobytes()
    parsed = parse_addresses(content, path="a.u64", size=len(stored))
    assert parsed.tolist() == addresses


def test_indexes_of_other_files_are_refused() -> None:
    """Cut, of another size, not ascending, empty."""
    stored, addresses = deflate(b"".join(records_of([40_000] * 4)))
    content = np.array(addresses, "<u8").tobytes()
    swapped = content[8:16] + content[:8] + content[16:]
    for data in (b"", content[:-1], content[:-8], swapped):
        with pytest.raises(TFRecordError, match="must be the index of its file"):
            parse_addresses(data, path="a.u64", size=len(stored))
    with pytest.raises(TFRecordError, match="must be the index of its file"):
        parse_addresses(content, path="a.u64", size=len(stored) + 1)


def test_a_file_of_one_stream_has_no_addresses() -> None:
    """Its records begin too far behind the start of their member."""
    stored = gzip.compress(b"".join(records_of([40_000] * 4)))
    with pytest.raises(TFRecordError, match="more than 64 KiB of records"):
        scan_members(lambda a, b: stored[a:b], len(stored), path="a")
    short = gzip.compress(b"".join(records_of([10_000] * 4)))
    assert len(scan_members(lambda a, b: short[a:b], len(short), path="a")) == 5
    for size in (len(short) - 1, 9, 0):
        with pytest.raises(TFRecordError, match="ends early"):
            scan_members(
                lambda a, b, size=size: short[a : min(b, size)],  # type: ignore[misc]
                len(short),
                path="a",
            )


def test_damage_and_addresses_of_another_file_are_errors() -> None:
    """They name the file and the member."""
    stored, addresses = deflate(b"".join(records_of([40_000] * 4)))
    damaged = bytearray(stored)
    damaged[30] ^= 0xFF
    with pytest.raises(TFRecordError, match="a: gzip member at byte 0"):
        unpack(bytes(damaged), addresses[1:3])
    with pytest.raises(TFRecordError, match="a: gzip member at byte 0"):
        unpack(deflate(*records_of([100]))[0], [MEMBER_BYTES - 1, 1 << 32])


def test_the_writer_tells_the_addresses() -> None:
    """Of single records, runs and pieces, once it is closed."""
    sink = io.BytesIO()
    run = records_of([30_000] * 3)
    with TFRecordWriter(sink, compression="gzip") as writer:
        with pytest.raises(ValueError, match="complete"):
            writer.gzip_addresses()
        writer.write(b"first")
        writer.write(b"y" * 100_000)
        writer.write_framed(b"".join(run), records=3)
    stored = sink.getvalue()
    read = unpack(stored, writer.gzip_addresses().tolist())
    assert read == [frame(b"first"), frame(b"y" * 100_000), *run]
    assert len(list(TFRecordReader(io.BytesIO(stored)))) == 5
    assert writer.facts().stored_bytes == len(stored)


def test_damage_costs_the_records_of_its_member() -> None:
    """What is behind the next member's start is kept."""
    whole = records_of([30_000] * 12)
    stored, addresses = deflate(b"".join(whole))
    begins = sorted({address >> 16 for address in addresses})
    damaged = bytearray(stored)
    damaged[begins[1] + 20 : begins[1] + 40] = bytes(20)
    content = io.BytesIO()
    unpacker = Unpacker(
        lambda a, b: bytes(damaged[a:b]), len(damaged), Compression.GZIP, content
    )
    assert len(unpacker.run()) == 1
    found = content.getvalue()
    assert found.startswith(b"".join(whole[:3]))
    assert found.endswith(b"".join(whole[6:]))


def test_time_of_one_record() -> None:
    """Well under a millisecond even on a slow machine; 0.1 ms is usual."""
    stored, addresses = deflate(b"".join(records_of([177] * 5000)))
    places = np.random.default_rng(1).integers(0, 5000, 300).tolist()
    start = time.process_time()
    for index in places:
        unpack(stored, addresses[index : index + 2])
    assert (time.process_time() - start) / 300 < 0.002
