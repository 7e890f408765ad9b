"""gzip and zlib streams: detection, bounded inflating, repeatable deflating."""

import gzip
import hashlib
import io
import itertools
import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.core.tfrecord.compression import (
    STEP_BYTES,
    Compression,
    Deflater,
    Inflater,
    detect,
    parse_compression,
)
from transforms.core.tfrecord.frame import frame, header
from transforms.errors import SpecError, TFRecordError

ABC = gzip.compress(b"abc", mtime=0)
FLUSHED = zlib.compressobj(wbits=31)
FLUSHED_ABC = FLUSHED.compress(b"abc") + FLUSHED.flush(zlib.Z_FULL_FLUSH)
GZIP, ZLIB, NONE = Compression.GZIP, Compression.ZLIB, Compression.NONE


def inflate(
    stored: bytes, compression: Compression = GZIP, size: int = STEP_BYTES
) -> bytes:
    inflater = Inflater(io.BytesIO(stored).read, compression, path="a.tfrecord")
    return b"".join(iter(lambda: inflater.read(size), b""))


def written(*parts: bytes) -> bytes:
    deflater = Deflater()
    return b"".join(
        [*(b for part in parts for b in deflater.add(part)), deflater.finish()]
    )


def damage(stored: bytes, compression: Compression = GZIP) -> str:
    with pytest.raises(TFRecordError) as caught:
        inflate(stored, compression)
    return caught.value.kind


def test_gzip_bytes_are_pinned() -> None:
    """A change of these bytes changes every gzip dataset."""
    assert written(frame(b"abc")) == bytes.fromhex(
        "1f8b08000000000000ff636680800d333df9129392f3c23f2a020032a97b3913000000"
    )
    noise = random.Random(3)
    records = [frame(noise.randbytes(50).ljust(1000, b"x")) for _ in range(200)]
    stored = written(*records)
    # zlib decides the deflated bytes; this was made with 1.2.13.
    if zlib.ZLIB_RUNTIME_VERSION == "1.2.13":
        assert hashlib.sha256(stored).hexdigest()[:16] == "d34bb680ec5f7ced"


@given(st.lists(st.integers(0, 700_000), max_size=30), st.integers(0, 9))
def test_how_content_is_divided_among_calls_changes_nothing(
    cuts: list[int], seed: int
) -> None:
    """Content that deflates well, badly and not at all."""
    noise = random.Random(seed)
    content = b"".join(
        noise.choice((bytes(n), noise.randbytes(n), noise.randbytes(n // 9) * 9))
        for n in [noise.randrange(60_000) for _ in range(20)]
    )
    bounds = sorted({0, len(content), *(cut % (len(content) + 1) for cut in cuts)})
    parts = [content[a:b] for a, b in itertools.pairwise(bounds)]
    assert written(*parts) == written(content)


def test_few_stored_bytes_are_held_at_once() -> None:
    """Of a record of many megabytes, too, about one is deflated at a time."""
    content = random.Random(1).randbytes(5_000_000)
    assert max(map(len, Deflater().add(content))) < 1_100_000


@given(st.lists(st.binary(max_size=200), max_size=8))
def test_standard_library_reads_what_deflater_writes(parts: list[bytes]) -> None:
    """Python's own gzip is the oracle of the writer."""
    assert gzip.decompress(written(*parts)) == b"".join(parts)


@pytest.mark.parametrize(
    ("stored", "content"),
    [
        (ABC + gzip.compress(b"") + gzip.compress(b"c"), b"abcc"),
        (ABC * 1000, b"abc" * 1000),
        *((ABC + bytes(zeros), b"abc") for zeros in (1, 512, 200_000)),
    ],
    ids=["members", "many", "1", "512", "200000"],
)
def test_members_and_padding(stored: bytes, content: bytes) -> None:
    """Members in a row, empty ones too, are one stream; zeros may follow."""
    assert inflate(stored) == content


@given(st.binary(max_size=2000), st.integers(1, 300), st.sampled_from([GZIP, ZLIB]))
def test_inflater_reads_what_standard_library_writes(
    content: bytes, size: int, compression: Compression
) -> None:
    """Any step size gives the whole content."""
    pack = gzip.compress if compression is GZIP else zlib.compress
    assert inflate(pack(content), compression, size) == content


def test_no_call_gives_more_than_its_step() -> None:
    """A ratio of 1000 does not make one call return more than was asked for."""
    inflater = Inflater(io.BytesIO(gzip.compress(bytes(3 << 20))).read, GZIP)
    sizes = [len(part) for part in iter(lambda: inflater.read(1 << 30), b"")]
    assert max(sizes) <= STEP_BYTES
    assert sum(sizes) == 3 << 20


@pytest.mark.parametrize(
    ("tail", "kind"),
    [
        (b"x", "trailing"),
        (b"garbage", "trailing"),
        (bytes(512) + b"x", "trailing"),
        (bytes(100_000) + b"x", "trailing"),
        (bytes(5) + ABC, "trailing"),
        (b"\x1f", "truncated"),
        (b"\x1f\x8b", "truncated"),
        (b"\x1f\x8c", "trailing"),
    ],
)
def test_other_bytes_after_gzip_are_damage(tail: bytes, kind: str) -> None:
    """What follows must be zeros to the end, or one more whole member."""
    assert damage(ABC + tail) == kind
    assert damage(zlib.compress(b"abc") + b"\0", ZLIB) == "trailing"


@pytest.mark.parametrize("compression", [GZIP, ZLIB])
def test_every_cut_is_truncated(compression: Compression) -> None:
    """Also inside the trailer and at a flush point."""
    content = bytes(range(256)) * 4
    stored = zlib.compress(content) if compression is ZLIB else written(content)
    kinds = {damage(stored[:cut], compression) for cut in range(len(stored))}
    assert kinds == {"truncated", damage(FLUSHED_ABC)}


# The length of 376 bytes begins with 78 01.
BROKEN = header(0x178)[:8] + b"\0" + header(0x178)[9:]
MAGIC = (b"\x1f\x8b", b"\x78\x01", b"\x78\x9c", b"\x78\xda", b"BZh")


@pytest.mark.parametrize(
    ("head", "compression"),
    [
        *((header(int.from_bytes(magic, "little")), NONE) for magic in MAGIC),
        *((zlib.compress(frame(b"abc"), level), ZLIB) for level in range(10)),
        (gzip.compress(frame(b"abc"), mtime=0), GZIP),
        *((head, NONE) for head in (BROKEN, b"", b"x", b"\x78")),
    ],
)
def test_compression_is_detected_by_content(
    head: bytes, compression: Compression
) -> None:
    """A length may begin like a stream, also with a broken checksum."""
    assert detect(head) is compression


@pytest.mark.parametrize(
    ("magic", "name"),
    [
        (b"\x28\xb5\x2f\xfd", "zstd"),
        (b"BZh9", "bz2"),
        (b"\xfd7zXZ\x00", "xz"),
        (b"\xff\x06\x00\x00sNaPpY", "snappy"),
        (b"\x04\x22\x4d\x18", "lz4"),
    ],
)
def test_other_compressions_are_named(magic: bytes, name: str) -> None:
    """The error says which compression it is."""
    with pytest.raises(TFRecordError, match=f"unsupported compression: {name}") as e:
        detect(magic + bytes(20), path="a")
    assert e.value.kind == "compression"


def test_unknown_name_lists_the_choices() -> None:
    """A misspelt option is answered with the words that would do."""
    with pytest.raises(SpecError, match="none, gzip, zlib; found 'GZIP'"):
        parse_compression("GZIP")
