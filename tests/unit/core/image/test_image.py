"""The image check: literal damage for every reason, then TensorFlow as the oracle."""

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.drawn_images import (
    ARITHMETIC,
    ARITHMETIC_PROGRESSIVE,
    chunk,
    flat_jpeg,
    ihdr,
    make_bmp,
    make_png,
    overflowing_jpeg,
    picture,
    saved,
    segment,
)
from tests.support.prepared_images import check_image, fault_of
from transforms.core.image import check as image_check
from transforms.core.image.formats import (
    ImageInfo,
    ImageNote,
    is_image_start,
)
from transforms.core.image.pixels import decoding
from transforms.core.image.resize import Check
from transforms.core.reasons import Fault, Reason


@pytest.fixture(scope="module")
def jpeg() -> bytes:
    return saved(picture(), "JPEG")


# ------------------------------------------------------------------------- intact files


@pytest.mark.parametrize("check", ["structure", "decode", "none"])
def test_rare_but_intact_jpegs(check: Check, jpeg: bytes) -> None:
    """Arithmetic coding, Motion JPEG without tables, fill bytes before markers."""
    filled = jpeg[:2] + b"\xff\xff\xff" + jpeg[2:-2] + b"\xff\xff" + jpeg[-2:]
    for data, info in (
        (ARITHMETIC, ImageInfo("jpeg", 8, 8, 1)),
        (ARITHMETIC_PROGRESSIVE, ImageInfo("jpeg", 8, 8, 1)),
        (flat_jpeg([(1, 1)], huffman=b""), ImageInfo("jpeg", 16, 24, 1)),
        (filled, ImageInfo("jpeg", 24, 40, 3)),
    ):
        assert check_image(data, check) == info


# ------------------------------------------------------------------------ refused files


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("GIF", b"GIF89a" + bytes(20)),
        ("WebP", b"RIFF\x10\0\0\0WEBPVP8 "),
        ("TIFF", b"II*\0" + bytes(8)),
        ("TIFF", b"MM\0*" + bytes(8)),
        ("HEIC", b"\0\0\0\x18ftypheic" + bytes(8)),
        ("AVIF", b"\0\0\0\x18ftypavif" + bytes(8)),
        ("JPEG 2000", b"\0\0\0\x0cjP  \r\n\x87\n"),
        ("JPEG XL", b"\xff\x0a" + bytes(8)),
        ("PPM", b"P6\n3 3\n255\n"),
        ("PSD", b"8BPS\0\1"),
        ("EPS", b"%!PS-Adobe-3.0 EPSF-3.0"),
        ("SVG", b'<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg"/>'),
        ("ICO", b"\0\0\1\0\1\0" + bytes(8)),
    ],
)
@pytest.mark.parametrize("check", ["structure", "decode", "none"])
def test_known_formats_that_readers_cannot_use(
    name: str, data: bytes, check: Check
) -> None:
    """The format is named, and the file reaches no decoder whatever the check."""
    fault = fault_of(data, check)
    assert fault.reason is Reason.UNSUPPORTED_FORMAT
    assert name in fault.message


GOOD = flat_jpeg([(2, 1), (1, 1), (1, 1)])
FRAME = GOOD.index(b"\xff\xc0")
TABLES = GOOD.index(b"\xff\xc4")
SCAN = GOOD.index(b"\xff\xda")
HEADER = ihdr(1, 1, 8, 2, False)
PIXELS = chunk(b"IDAT", zlib.compress(bytes(4)))
PALETTE = chunk(b"PLTE", bytes(3))
END = chunk(b"IEND", b"")

DAMAGED = [
    *(b"\xff\xd8", b"\xff\xd8\xff", b"\x89PNG\r\n", b"BM"),  # only a signature
    GOOD[:2] + GOOD[TABLES:],  # no frame header
    GOOD[:FRAME] + GOOD[FRAME:TABLES] * 2 + GOOD[TABLES:],
    GOOD[:FRAME] + b"\0" + GOOD[FRAME:],  # stray bytes
    GOOD[:SCAN] + b"\xff\xd9",  # no scan
    GOOD[: FRAME + 5] + b"\0\0" + GOOD[FRAME + 7 :],  # no rows
    GOOD[: FRAME + 3] + b"\x12" + GOOD[FRAME + 4 :],  # length of the frame header
    GOOD[:2] + b"\xff\xbf\0\2" + GOOD[2:],  # unknown marker
    GOOD[:2] + b"\xff\xe1\xff\xff" + GOOD[2:],  # segment beyond the end
    make_png(2, 8)[:-12],  # no IEND, which Pillow does not need
    HEADER[:8] + PIXELS + END,  # no IHDR
    HEADER + END,  # no image data
    HEADER + HEADER[8:] + PIXELS + END,
    HEADER + chunk(b"ABCD", b"") + PIXELS + END,  # a chunk that readers must know
    HEADER + PIXELS + PALETTE + END,
    HEADER + PIXELS + chunk(b"tEXt", b"") + PIXELS + END,
    HEADER + b"\xff\xff\xff\xffIDAT" + bytes(9),  # cut short
    ihdr(1, 1, 8, 3, False) + PIXELS + END,  # no palette
    ihdr(0, 1, 8, 2, False) + PIXELS + END,  # no rows
]
"""One wrong byte, segment or chunk each, which the walk finds."""
UNDECODABLE = [
    GOOD[:2] + GOOD[FRAME:],  # no quantization table
    flat_jpeg([(3, 1), (2, 1), (1, 1)]),  # sampling factors
    GOOD[: TABLES + 5] + b"\x03" + GOOD[TABLES + 6 :],  # Huffman tables
    GOOD[: SCAN + 5] + b"\x09" + GOOD[SCAN + 6 :],  # an unknown component
    GOOD[: SCAN + 6] + b"\x33" + GOOD[SCAN + 7 :],  # no Huffman table
    GOOD[:2] + segment(0xDB, bytes(65)[1:]) + GOOD[2:],  # quantization tables
    flat_jpeg([(1, 1)], huffman=bytes([2] + 15 * [0] + [0, 1])),  # no prefix code
    ihdr(7000, 7000, 8, 2, False) + PIXELS + END,  # more pixels than there are
    *(
        HEADER + chunk(b"IDAT", payload) + END
        for payload in (
            zlib.compress(bytes(3)),  # ends early
            zlib.compress(b"\5\0\0\0"),  # unknown filter
            b"\x78\x9c\xff\xff",  # cannot be inflated
        )
    ),
]
"""Wrong tables, scan headers or pixels, which only a decoder finds."""
UNSUPPORTED = [
    flat_jpeg([(1, 1)], frame=0xC3),  # lossless
    flat_jpeg([(1, 1)], frame=0xC1, precision=12),
    flat_jpeg([(1, 1), (1, 1)]),
    make_bmp(1),
    make_bmp(8, compression=1),
    make_bmp(32, header_bytes=56, compression=3),  # an unusual order of channels
]
# Pages of errors, texts, archives, single bytes, AppleDouble files.
OTHERS = [b"<!DOCTYPE html>\n<html>", b"\n <html lang='en'>", b"x", b"%PDF-1.7"]
OTHERS += [b"PK\x03\x04", b"\0", b"\0\5\x16\7\0\2\0\0Mac OS X"]


@pytest.mark.parametrize(
    ("data", "check", "reason"),
    [
        (b"", "structure", Reason.EMPTY_FILE),
        *((data, "structure", Reason.NOT_AN_IMAGE) for data in OTHERS),
        *((data, "structure", Reason.UNSUPPORTED_FORMAT) for data in UNSUPPORTED),
        *((data, "structure", Reason.DAMAGED_IMAGE) for data in DAMAGED),
        *((data, "decode", Reason.DAMAGED_IMAGE) for data in DAMAGED + UNDECODABLE),
    ],
)
def test_refused_files(data: bytes, check: Check, reason: Reason) -> None:
    """Each has the reason that is true of it; nothing is allocated for it."""
    fault = fault_of(data, check)
    assert fault.reason is reason
    assert ("HTML" in fault.message) == (b"html" in data)


_PHOTO = picture(height=60, width=90)


@pytest.mark.parametrize(
    "data",
    [
        saved(_PHOTO, "JPEG"),
        saved(_PHOTO, "JPEG", progressive=True),
        saved(_PHOTO, "JPEG", restart_marker_blocks=1),
        saved(_PHOTO, "JPEG", exif=b"Exif\0\0" + saved(picture(), "JPEG")),
        saved(_PHOTO, "JPEG", comment=b"\xff\xd9" * 40),
        flat_jpeg([(1, 1), (1, 1), (1, 1)], interleaved=False),
        saved(_PHOTO, "PNG"),
        saved(_PHOTO.quantize(16), "PNG"),
        make_png(6, 16, interlaced=True, pieces=7),
        make_bmp(24),
    ],
)
@pytest.mark.parametrize("check", ["structure", "decode"])
def test_a_file_that_is_cut_short(data: bytes, check: Check) -> None:
    """Wherever a file ends early, it is refused; an EXIF thumbnail is not its end."""
    assert isinstance(check_image(data, check), ImageInfo)
    for size in [len(data) - 2, *range(len(data) - 1, 3, -10)]:
        assert fault_of(data[:size], check).reason is Reason.DAMAGED_IMAGE


def test_an_image_ends_before_those_behind_it() -> None:
    """Of a multi-picture file the first image is used, and the others are its tail."""
    data = saved(picture(), "JPEG")
    several = data[:2] + segment(0xE2, b"MPF\0" + bytes(8)) + data[2:]
    for tail, notes in ((b"", ()), (data, (ImageNote.TRAILING_BYTES,))):
        found = image_check.check_image(several + tail)
        assert isinstance(found, ImageInfo)
        assert found.notes == notes


def test_progressive_jpeg_of_too_many_scans() -> None:
    """A thousand passes over the pixels in ten kilobytes are a bomb."""
    step = segment(0xDA, b"\1\1\0\0\0\0") + b"\0"
    head = flat_jpeg([(1, 1)], frame=0xC2)
    data = head[: head.index(b"\xff\xda")] + step * 1000 + b"\xff\xd9"
    assert fault_of(data).reason is Reason.DAMAGED_IMAGE


def test_progressive_jpeg_whose_coefficients_overflow() -> None:
    """Beyond 65,536 blocks DC can leave 32 bits, which only a decoder notices."""
    largest = check_image(overflowing_jpeg(2048, 2048))
    assert largest == ImageInfo("jpeg", 2048, 2048, 1)
    fault = fault_of(overflowing_jpeg(2048, 2056))
    assert fault.reason is Reason.DAMAGED_IMAGE
    assert "Pillow cannot decode it" in fault.message


@pytest.mark.parametrize("kind", [b"IHDR", b"IDAT", b"tEXt", b"IEND"])
def test_png_with_a_wrong_checksum(kind: bytes) -> None:
    """A flipped bit is found in any chunk, even an unused one."""
    data = bytearray(make_png(2, 8, extra=chunk(b"tEXt", b"Title\0waves")))
    at = data.index(kind)
    (length,) = struct.unpack_from(">I", data, at - 4)
    data[at + 4 + length] ^= 1
    fault = fault_of(bytes(data))
    assert fault.reason is Reason.DAMAGED_IMAGE
    assert f"wrong CRC of chunk {kind.decode()} at byte {at - 4}" in fault.message


@pytest.mark.parametrize("change", [-1, 1])
def test_bmp_of_wrong_size(change: int) -> None:
    """TensorFlow wants the file to end with its last row, Pillow does not."""
    data = make_bmp(24)
    fault = fault_of(data[:-1] if change < 0 else data + b"\0")
    assert fault.reason is Reason.DAMAGED_IMAGE
    assert f"need {len(data)} bytes, the file has {len(data) + change}" in fault.message


def test_check_none_reads_dimensions_alone(jpeg: bytes) -> None:
    """Without a check a broken tail passes, a missing header does not."""
    assert check_image(jpeg[:-2], "none") == ImageInfo("jpeg", 24, 40, 3)
    assert fault_of(jpeg[:20], "none").reason is Reason.DAMAGED_IMAGE


@given(
    start=st.sampled_from([b"", b"\xff\xd8\xff", HEADER, GOOD[:SCAN], make_bmp(8)]),
    rest=st.binary(max_size=200),
    check=st.sampled_from(["structure", "decode", "none"]),
)
def test_any_bytes_give_an_answer(start: bytes, rest: bytes, check: Check) -> None:
    """Whatever the bytes are, the answer is a value and not an exception."""
    assert isinstance(check_image(start + rest, check), ImageInfo | Fault)


@pytest.mark.parametrize(
    ("head", "is_image"),
    [
        (b"MM\x00+\x00\x08", True),  # a TIFF of 64-bit offsets
        (b"\x00\x00\x00\x18ftyphevc", True),
        (b"....    WEBP", False),  # without RIFF before it
        (b"P3 is a plan", False),
        (b"BM\x0c\x00\x00\x00", False),  # of another size
        (b"BM\x06\x00\x00\x00", True),
    ],
)
def test_what_starts_as_an_image_file(head: bytes, is_image: bool) -> None:
    """The signatures of the one table; those of two letters may be texts."""
    assert is_image_start(head, 6) is is_image


def test_a_lack_of_memory_is_no_damage() -> None:
    """Nor is a fault of the program: sound images would be rejects."""
    for error in (MemoryError(), TypeError("of our own")):
        with pytest.raises(type(error)), decoding("PNG"):
            raise error
