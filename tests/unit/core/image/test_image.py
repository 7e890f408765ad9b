"""The image check: literal damage for every reason, then TensorFlow as the oracle."""

import base64
import dataclasses
import io
import os
import pathlib
import random
import struct
import warnings
import zlib
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.support.images import check_image
from transforms.core.image.check import ImageInfo
from transforms.core.image.choices import Check
from transforms.core.model import Reason
from transforms.core.reasons import Fault

# ---------------------------------------------------------------- images by the byte

# One code, the bit 0, for the symbol 0: DC difference nothing, AC end of block.
TINY_CODE = bytes([1] + 15 * [0] + [0])


def segment(marker: int, payload: bytes) -> bytes:
    """A JPEG segment: its length counts itself and the payload."""
    return bytes([0xFF, marker]) + struct.pack(">H", len(payload) + 2) + payload


def flat_jpeg(
    factors: list[tuple[int, int]],
    *,
    height: int = 16,
    width: int = 24,
    frame: int = 0xC0,
    precision: int = 8,
    interleaved: bool = True,
    restart: int = 0,
    wide_tables: bool = False,
    huffman: bytes = TINY_CODE,
    front: bytes = b"",
) -> bytes:
    """A gray JPEG of any sampling factors (h, v): every block is two bits, 00."""
    table = b"\x10" + 64 * b"\x00\x01" if wide_tables else b"\x00" + 64 * b"\x01"
    out = b"\xff\xd8" + front + segment(0xDB, table)
    components = b"".join(
        bytes([i + 1, h << 4 | v, 0]) for i, (h, v) in enumerate(factors)
    )
    count = len(factors)
    out += segment(
        frame, struct.pack(">BHHB", precision, height, width, count) + components
    )
    if huffman:
        out += segment(0xC4, b"\x00" + huffman) + segment(0xC4, b"\x10" + huffman)
    if restart:
        out += segment(0xDD, struct.pack(">H", restart))
    scans = [range(count)] if interleaved else [[i] for i in range(count)]
    max_h, max_v = (max(f[i] for f in factors) for i in (0, 1))
    for scan in scans:
        selectors = b"".join(bytes([i + 1, 0]) for i in scan)
        out += segment(0xDA, bytes([len(scan)]) + selectors + b"\x00\x3f\x00")
        if len(scan) > 1:
            units = -(-width // (8 * max_h)) * -(-height // (8 * max_v))
            bits = 2 * sum(h * v for h, v in factors)
        else:
            h, v = factors[scan[0]]
            units = -(-width * h // (8 * max_h)) * -(-height * v // (8 * max_v))
            bits = 2
        step = restart or units
        for first in range(0, units, step):
            if first:
                out += bytes([0xFF, 0xD0 + (first // step - 1) % 8])
            used = bits * min(step, units - first)
            out += bytes(used // 8) + (bytes([0xFF >> used % 8]) if used % 8 else b"")
    return out + b"\xff\xd9"


def chunk(kind: bytes, payload: bytes) -> bytes:
    """A PNG chunk with its right checksum."""
    checksum = zlib.crc32(kind + payload)
    return (
        struct.pack(">I", len(payload)) + kind + payload + struct.pack(">I", checksum)
    )


ADAM7 = (
    (0, 0, 8, 8),
    (0, 4, 8, 8),
    (4, 0, 8, 4),
    (0, 2, 4, 4),
    (2, 0, 4, 2),
    (0, 1, 2, 2),
    (1, 0, 2, 1),
)


def ihdr(height: int, width: int, bits: int, color: int, interlaced: bool) -> bytes:
    """Signature and header chunk of a PNG."""
    header = struct.pack(">IIBBBBB", width, height, bits, color, 0, 0, interlaced)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header)


def make_png(
    color: int,
    bits: int,
    *,
    height: int = 9,
    width: int = 11,
    interlaced: bool = False,
    transparent: bool = False,
    extra: bytes = b"",
    pieces: int = 1,
    seed: int = 0,
) -> bytes:
    """A PNG of random pixels in any color type, bit depth and interlacing."""
    rng = np.random.default_rng(seed)
    channels = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[color]
    passes = ADAM7 if interlaced else ((0, 0, 1, 1),)
    raw = b""
    for top, left, down, right in passes:
        rows, columns = -(-(height - top) // down), -(-(width - left) // right)
        if rows > 0 and columns > 0:
            row_bytes = (columns * channels * bits + 7) // 8
            pixels = rng.integers(0, 256, (rows, row_bytes + 1), dtype=np.uint8)
            pixels[:, 0] %= 5
            raw += pixels.tobytes()
    out = ihdr(height, width, bits, color, interlaced) + extra
    if color == 3:
        out += chunk(b"PLTE", rng.bytes(3 << bits))
    if transparent:
        out += chunk(b"tRNS", {0: b"\0\1", 2: b"\0\1\0\1\0\1", 3: b"\0\x80"}[color])
    data = zlib.compress(raw)
    size = -(-len(data) // pieces)
    for first in range(0, len(data), size):
        out += chunk(b"IDAT", data[first : first + size])
    return out + chunk(b"IEND", b"")


def make_bmp(
    bits: int,
    *,
    height: int = 9,
    width: int = 11,
    header_bytes: int = 40,
    compression: int = 0,
    seed: int = 0,
) -> bytes:
    """A BMP of random pixels; a negative height puts the first row at the top."""
    rng = np.random.default_rng(seed)
    pixels = rng.bytes((width * bits + 31) // 32 * 4 * abs(height))
    palette = rng.bytes(4 << bits) if bits <= 8 else b""
    offset = 14 + header_bytes + len(palette)
    out = b"BM" + struct.pack("<IHHI", offset + len(pixels), 0, 0, offset)
    out += struct.pack("<IiiHHI", header_bytes, width, height, 1, bits, compression)
    out += struct.pack("<IiiII", len(pixels), 2835, 2835, 0, 0)
    return out + bytes(header_bytes - 40) + palette + pixels


def saved(image: Image.Image, kind: str, **options: object) -> bytes:
    """The image as Pillow encodes it."""
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def picture(mode: str = "RGB", *, height: int = 24, width: int = 40) -> Image.Image:
    """Waves and noise, so that no two blocks are alike."""
    rng = np.random.default_rng(height * 1000 + width)
    channels = {"L": 1, "LA": 2, "RGB": 3, "RGBA": 4, "CMYK": 4}[mode]
    y, x = np.mgrid[0:height, 0:width]
    waves = 128 + 90 * np.sin(x / 5 + 1) * np.cos(y / 7)
    noise = rng.normal(0, 15, (height, width, channels))
    pixels = np.clip(waves[:, :, None] + noise, 0, 255).astype(np.uint8)
    return Image.fromarray(pixels[:, :, 0] if channels == 1 else pixels, mode)


# A gray ramp of 8 x 8 pixels through `cjpeg -quality 50 -arithmetic [-progressive]`.
ARITHMETIC = base64.b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDABALDA4MChAODQ4SERATGCgaGBYWGDEjJR0oOjM9PDkzODdA"
    "SFxOQERXRTc4UG1RV19iZ2hnPk1xeXBkeFxlZ2P/yQALCAAIAAgBAREA/8wABgAQEAX/2gAIAQEAAD8A"
    "3Qifke2GgID/2Q=="
)
ARITHMETIC_PROGRESSIVE = base64.b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDABALDA4MChAODQ4SERATGCgaGBYWGDEjJR0oOjM9PDkzODdA"
    "SFxOQERXRTc4UG1RV19iZ2hnPk1xeXBkeFxlZ2P/ygALCAAIAAgBAREA/8wABAAQ/9oACAEBAAAAAeD/"
    "zAAEEAX/2gAIAQEAAQUCElFA/8wABBAF/9oACAEBAAY/Al//zAAEEAX/2gAIAQEAAT8hpiD/2gAIAQEA"
    "AAAQwP/MAAQQBf/aAAgBAQABPxDS8Yr/2Q=="
)


@pytest.fixture(scope="module")
def jpeg() -> bytes:
    return saved(picture(), "JPEG")


def fault_of(data: bytes, check: Check = "structure") -> Fault:
    """The fault of an image that must be refused."""
    fault = check_image(data, check)
    assert isinstance(fault, Fault), fault
    return fault


# ------------------------------------------------------------------------- intact files


def test_jpeg_dimensions(jpeg: bytes) -> None:
    """A color JPEG has three channels."""
    assert check_image(jpeg) == ImageInfo("jpeg", height=24, width=40, depth=3)


@pytest.mark.parametrize(("mode", "depth"), [("L", 1), ("RGB", 3), ("CMYK", 3)])
@pytest.mark.parametrize("progressive", [False, True])
def test_jpeg_modes(mode: str, depth: int, progressive: bool) -> None:
    """Gray stays gray; CMYK becomes RGB in TensorFlow, so it counts as three."""
    data = saved(picture(mode), "JPEG", progressive=progressive)
    assert check_image(data) == ImageInfo("jpeg", 24, 40, depth)


@pytest.mark.parametrize("check", ["structure", "decode", "none"])
def test_every_check_gives_the_same_facts(check: Check, jpeg: bytes) -> None:
    """How deep the check goes does not change what it reports."""
    assert check_image(jpeg, check) == ImageInfo("jpeg", 24, 40, 3)
    assert check_image(make_png(6, 8), check) == ImageInfo("png", 9, 11, 4)
    assert check_image(make_bmp(24), check) == ImageInfo("bmp", 9, 11, 3)


@pytest.mark.parametrize(
    ("color", "bits", "transparent", "depth"),
    [
        *[(0, bits, False, 1) for bits in (1, 2, 4, 8, 16)],
        *[(2, bits, False, 3) for bits in (8, 16)],
        *[(3, bits, False, 3) for bits in (1, 2, 4, 8)],
        *[(4, bits, False, 2) for bits in (8, 16)],
        *[(6, bits, False, 4) for bits in (8, 16)],
        (0, 8, True, 1),
        (2, 8, True, 3),
        (3, 8, True, 4),
    ],
)
@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize("check", ["structure", "decode", "none"])
def test_png_modes(
    color: int,
    bits: int,
    transparent: bool,
    depth: int,
    interlaced: bool,
    check: Check,
) -> None:
    """The depth follows color type; transparency adds a channel to palettes alone."""
    data = make_png(color, bits, interlaced=interlaced, transparent=transparent)
    assert check_image(data, check) == ImageInfo("png", 9, 11, depth)


@pytest.mark.parametrize(("bits", "depth"), [(8, 1), (24, 3), (32, 4)])
@pytest.mark.parametrize("height", [9, -9])
def test_bmp_depths(bits: int, depth: int, height: int) -> None:
    """Bytes a pixel are the depth, whichever way up the rows stand."""
    data = make_bmp(bits, height=height)
    assert check_image(data) == ImageInfo("bmp", 9, 11, depth)


@pytest.mark.parametrize(
    "factors",
    [
        [(4, 1), (1, 1), (1, 1)],
        [(1, 4), (1, 1), (1, 1)],
        [(2, 2), (1, 2), (2, 1)],
        [(3, 3)],
    ],
)
@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("restart", [0, 1])
def test_sampling_factors_and_scans(
    factors: list[tuple[int, int]], interleaved: bool, restart: int
) -> None:
    """Subsampling, one scan a component and restart markers are all legal."""
    data = flat_jpeg(factors, interleaved=interleaved, restart=restart)
    assert check_image(data) == ImageInfo("jpeg", 16, 24, 3 if factors[1:] else 1)


def test_jpeg_without_huffman_tables() -> None:
    """Frames of Motion JPEG leave the standard tables out, and libjpeg knows them."""
    assert isinstance(check_image(flat_jpeg([(1, 1)], huffman=b"")), ImageInfo)


@pytest.mark.parametrize("data", [ARITHMETIC, ARITHMETIC_PROGRESSIVE])
@pytest.mark.parametrize("check", ["structure", "decode", "none"])
def test_arithmetic_coding(data: bytes, check: Check) -> None:
    """TensorFlow's libjpeg has the arithmetic decoder, so such files pass."""
    assert check_image(data, check) == ImageInfo("jpeg", 8, 8, 1)


def test_fill_bytes_before_a_marker(jpeg: bytes) -> None:
    """T.81 allows any number of FF in front of a marker."""
    data = jpeg[:2] + b"\xff\xff\xff" + jpeg[2:-2] + b"\xff\xff" + jpeg[-2:]
    assert isinstance(check_image(data), ImageInfo)


@pytest.mark.parametrize("tail", [b"\0" * 64, b"PK\x03\x04 and a whole archive"])
def test_bytes_after_the_image(jpeg: bytes, tail: bytes) -> None:
    """Nobody reads what follows the end marker of a JPEG or a PNG."""
    assert isinstance(check_image(jpeg + tail), ImageInfo)
    assert isinstance(check_image(make_png(2, 8) + tail), ImageInfo)


def test_orientation_is_ignored() -> None:
    """The dimensions are the stored ones, as TensorFlow decodes them."""
    exif = Image.Exif()
    exif[274] = 6
    data = saved(picture(), "JPEG", exif=exif.tobytes())
    assert check_image(data) == ImageInfo("jpeg", 24, 40, 3)


# ------------------------------------------------------------------------ refused files


def test_empty_file() -> None:
    """No bytes are a reason of their own."""
    assert fault_of(b"").reason is Reason.EMPTY_FILE


@pytest.mark.parametrize("data", [b"<!DOCTYPE html>\n<html>", b"\n <html lang='en'>"])
def test_html_page(data: bytes) -> None:
    """An error page that was saved as .jpg is named as what it is."""
    fault = fault_of(data)
    assert fault.reason is Reason.NOT_AN_IMAGE
    assert "HTML" in fault.message


@pytest.mark.parametrize("data", [b"x", b"Thumbs", b"%PDF-1.7", b"PK\x03\x04", b"\0"])
def test_other_bytes(data: bytes) -> None:
    """Text, archives and single bytes are no images."""
    assert fault_of(data).reason is Reason.NOT_AN_IMAGE


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


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "TIFF", "PPM", "ICO", "JPEG2000"])
def test_images_of_other_formats(kind: str) -> None:
    """Real files of other formats are unsupported, not damaged."""
    assert fault_of(saved(picture(), kind)).reason is Reason.UNSUPPORTED_FORMAT


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (flat_jpeg([(1, 1)], frame=0xC3), "lossless"),
        (flat_jpeg([(1, 1)], frame=0xC1, precision=12), "12-bit"),
        (flat_jpeg([(1, 1), (1, 1)]), "2 components"),
        (make_bmp(1), "BMP of 1 bits"),
        (make_bmp(4), "BMP of 4 bits"),
        (make_bmp(16), "BMP of 16 bits"),
        (make_bmp(8, compression=1), "compressed BMP"),
        (make_bmp(32, header_bytes=56, compression=3), "order of channels"),
    ],
)
def test_kinds_that_tensorflow_does_not_read(data: bytes, words: str) -> None:
    """A kind of JPEG or BMP that nobody damaged, but TensorFlow refuses."""
    fault = fault_of(data)
    assert fault.reason is Reason.UNSUPPORTED_FORMAT
    assert words in fault.message


@pytest.mark.parametrize("missing", [1, 2, 3, 200])
def test_truncated_jpeg(jpeg: bytes, missing: int) -> None:
    """Even the last two bytes are needed: without them TensorFlow raises."""
    fault = fault_of(jpeg[:-missing])
    assert fault.reason is Reason.DAMAGED_IMAGE
    assert "truncated" in fault.message
    assert str(len(jpeg) - missing) in fault.message


@pytest.mark.parametrize("data", [b"\xff\xd8", b"\xff\xd8\xff", b"\x89PNG\r\n", b"BM"])
def test_nothing_but_a_signature(data: bytes) -> None:
    """A few bytes of a known format are a damaged image of it."""
    assert fault_of(data).reason is Reason.DAMAGED_IMAGE


GOOD = flat_jpeg([(2, 1), (1, 1), (1, 1)])
FRAME = GOOD.index(b"\xff\xc0")
TABLES = GOOD.index(b"\xff\xc4")
SCAN = GOOD.index(b"\xff\xda")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (GOOD[:2] + GOOD[TABLES:], "no frame header"),
        (GOOD[:FRAME] + GOOD[FRAME:TABLES] * 2 + GOOD[TABLES:], "second frame"),
        (
            GOOD[:FRAME] + b"\0" + GOOD[FRAME:],
            f"stray bytes instead of a marker at byte {FRAME}",
        ),
        (GOOD[:SCAN] + b"\xff\xd9", "ends without all its scans"),
        (GOOD[:-2] + GOOD[SCAN:], "one scan too many"),
        (GOOD[:2] + GOOD[FRAME:], "quantization table 0"),
        (flat_jpeg([(3, 1), (2, 1), (1, 1)]), "sampling factors 2 x 1"),
        (GOOD[: FRAME + 11] + b"\x51" + GOOD[FRAME + 12 :], "sampling factors"),
        (GOOD[: FRAME + 5] + b"\0\0" + GOOD[FRAME + 7 :], "24 x 0 pixels"),
        (GOOD[: FRAME + 4] + b"\x09" + GOOD[FRAME + 5 :], "precision of 9"),
        (GOOD[: FRAME + 3] + b"\x12" + GOOD[FRAME + 4 :], "frame header"),
        (GOOD[: TABLES + 5] + b"\x03" + GOOD[TABLES + 6 :], "Huffman tables"),
        (GOOD[: TABLES + 4] + b"\x07" + GOOD[TABLES + 5 :], "Huffman tables"),
        (GOOD[: SCAN + 5] + b"\x09" + GOOD[SCAN + 6 :], "names the component 9"),
        (GOOD[: SCAN + 6] + b"\x33" + GOOD[SCAN + 7 :], "Huffman table 03"),
        (GOOD[: SCAN + 4] + b"\x00" + GOOD[SCAN + 5 :], "bad scan header"),
        (GOOD[:2] + b"\xff\xbf\0\2" + GOOD[2:], "unexpected marker BF"),
        (GOOD[:2] + b"\xff\xe1\xff\xff" + GOOD[2:], "segment E1 of 65535 bytes"),
        (GOOD[:2] + b"\xff\xe1\0\0" + GOOD[2:], "segment E1 of 0 bytes"),
        (GOOD[:2] + segment(0xDD, b"\0\1\2") + GOOD[2:], "restart interval"),
        (GOOD[:2] + segment(0xDB, bytes(65)[1:]) + GOOD[2:], "quantization tables"),
        (flat_jpeg([(1, 1)], huffman=bytes([2] + 15 * [0] + [0, 1])), "no prefix code"),
        (flat_jpeg([(1, 1)], huffman=bytes([1] + 15 * [0] + [16])), "no prefix code"),
        (flat_jpeg([(4, 2), (2, 2), (2, 2)]), "16 blocks"),
        (ARITHMETIC.replace(b"\xff\xcc\0\6\0\x10", b"\xff\xcc\0\6\0\1"), "arithmetic"),
    ],
)
def test_damaged_jpeg_structure(data: bytes, words: str) -> None:
    """One wrong byte or segment each: the message says which."""
    fault = fault_of(data)
    assert fault.reason is Reason.DAMAGED_IMAGE
    assert words in fault.message


def test_jpeg_that_lacks_a_component() -> None:
    """A file whose end marker comes before the last scan is not complete."""
    data = flat_jpeg([(1, 1), (1, 1), (1, 1)], interleaved=False)
    short = data[: data.rindex(b"\xff\xda")] + b"\xff\xd9"
    assert "ends without all its scans" in fault_of(short).message


def test_progressive_jpeg_with_an_illegal_step() -> None:
    """A scan of DC and AC coefficients together is not a step of a progression."""
    fault = fault_of(flat_jpeg([(1, 1)], frame=0xC2))
    assert "not a step of a progression" in fault.message


def test_progressive_jpeg_of_too_many_scans() -> None:
    """A thousand passes over the pixels in ten kilobytes are a bomb."""
    step = segment(0xDA, b"\1\1\0\0\0\0") + b"\0"
    head = flat_jpeg([(1, 1)], frame=0xC2)
    data = head[: head.index(b"\xff\xda")] + step * 1000 + b"\xff\xd9"
    assert "more than 500 scans" in fault_of(data).message


def overflowing_jpeg(height: int, width: int) -> bytes:
    """A progressive JPEG: each block's DC is 32,767 above the one before it.

    One code, the bit 0, means that 15 bits follow: 7F FF, and a stuffed 00.
    """
    size = struct.pack(">BHHB", 8, height, width, 1)
    out = b"\xff\xd8" + segment(0xDB, b"\0" + 64 * b"\1")
    out += segment(0xC2, size + b"\1\x11\0")
    out += segment(0xC4, b"\0" + bytes([1] + 15 * [0] + [15]))
    blocks = -(-height // 8) * -(-width // 8)
    scan = segment(0xDA, b"\1\1\0\0\0\0") + b"\x7f\xff\0" * blocks
    return out + scan + b"\xff\xd9"


def test_progressive_jpeg_whose_coefficients_overflow() -> None:
    """Beyond 65,536 blocks DC can leave 32 bits, which only a decoder notices."""
    largest = check_image(overflowing_jpeg(2048, 2048))
    assert largest == ImageInfo("jpeg", 2048, 2048, 1)
    fault = fault_of(overflowing_jpeg(2048, 2056))
    assert fault.reason is Reason.DAMAGED_IMAGE
    assert "Pillow cannot decode it" in fault.message


def test_png_without_its_end() -> None:
    """Pillow opens a PNG that lacks IEND; TensorFlow does not."""
    fault = fault_of(make_png(2, 8)[:-12])
    assert fault.reason is Reason.DAMAGED_IMAGE
    assert "IEND" in fault.message


@pytest.mark.parametrize("kind", [b"IHDR", b"IDAT", b"tEXt", b"IEND"])
def test_png_with_a_wrong_checksum(kind: bytes) -> None:
    """A flipped bit in any chunk, even one that nobody needs, is found."""
    data = bytearray(make_png(2, 8, extra=chunk(b"tEXt", b"Title\0waves")))
    at = data.index(kind)
    (length,) = struct.unpack_from(">I", data, at - 4)
    data[at + 4 + length] ^= 1
    fault = fault_of(bytes(data))
    assert fault.reason is Reason.DAMAGED_IMAGE
    assert f"wrong CRC of chunk {kind.decode()} at byte {at - 4}" in fault.message


HEADER = ihdr(1, 1, 8, 2, False)
PIXELS = chunk(b"IDAT", zlib.compress(bytes(4)))
PALETTE = chunk(b"PLTE", bytes(3))
END = chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (HEADER[:8] + PIXELS + END, "without an IHDR"),
        (HEADER + END, "no image data"),
        (HEADER + HEADER[8:] + PIXELS + END, "unknown chunk IHDR"),
        (HEADER + chunk(b"ABCD", b"") + PIXELS + END, "unknown chunk ABCD"),
        (HEADER + chunk(b"a1cd", b"") + PIXELS + END, "unknown chunk a1cd"),
        (HEADER + PALETTE * 2 + PIXELS + END, "bad PLTE"),
        (HEADER + chunk(b"PLTE", b"1234") + PIXELS + END, "bad PLTE"),
        (HEADER + PIXELS + chunk(b"tEXt", b"") + PIXELS + END, "out of place"),
        (HEADER + PIXELS + chunk(b"IEND", b"1"), "IEND chunk of 1"),
        (HEADER + b"\xff\xff\xff\xffIDAT" + bytes(9), "cut short"),
        (HEADER + chunk(b"IDAT", b"\x79\x9c12") + END, "not compressed"),
        (ihdr(1, 1, 8, 3, False) + PIXELS + END, "out of place"),
        (ihdr(0, 1, 8, 2, False) + PIXELS + END, "1 x 0 pixels"),
        (ihdr(1, 1, 4, 2, False) + PIXELS + END, "color type 2 of 4 bits"),
        (ihdr(7000, 7000, 8, 2, False) + PIXELS + END, "cannot hold"),
    ],
)
def test_damaged_png_structure(data: bytes, words: str) -> None:
    """Every checksum is right, and still no decoder could read it."""
    fault = fault_of(data)
    assert fault.reason is Reason.DAMAGED_IMAGE
    assert words in fault.message


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (zlib.compress(bytes(3)), "ends early"),
        (zlib.compress(bytes(4))[:-4], "ends early"),
        (zlib.compress(b"\5\0\0\0"), "unknown filter"),
        (b"\x78\x9c\xff\xff", "cannot be inflated"),
    ],
)
@pytest.mark.parametrize("padding", [b"", chunk(b"tEXt", bytes(5000))])
def test_damaged_png_pixels(payload: bytes, words: str, padding: bytes) -> None:
    """What right checksums hide is found in small files, and by a decode in all."""
    check: Check = "decode" if padding else "structure"
    fault = fault_of(HEADER + padding + chunk(b"IDAT", payload) + END, check)
    assert fault.reason is Reason.DAMAGED_IMAGE
    assert words in fault.message


@pytest.mark.parametrize("count", [0, 2])
def test_png_whose_chunk_is_lost_or_doubled(count: int) -> None:
    """Every checksum is right where exactly one chunk of image data is not."""
    data = make_png(2, 8, pieces=8)
    second = data.index(b"IDAT", data.index(b"IDAT") + 1) - 4
    third = data.index(b"IDAT", second + 8) - 4
    fault = fault_of(data[:second] + data[second:third] * count + data[third:])
    assert fault.reason is Reason.DAMAGED_IMAGE


@pytest.mark.parametrize("change", [-1, 1])
def test_bmp_of_wrong_size(change: int) -> None:
    """TensorFlow wants the file to end with its last row, Pillow does not."""
    data = make_bmp(24)
    fault = fault_of(data[:-1] if change < 0 else data + b"\0")
    assert fault.reason is Reason.DAMAGED_IMAGE
    assert f"need {len(data)} bytes, the file has {len(data) + change}" in fault.message


def test_pillow_sees_pixels_only() -> None:
    """Bombs and nonsense in metadata never reach Pillow's parsers."""
    bomb = chunk(b"zTXt", b"Title\0\0" + zlib.compress(bytes(100_000_000)))
    apng = chunk(b"acTL", bytes(8))
    assert isinstance(
        check_image(make_png(2, 8, extra=bomb + apng), "decode"), ImageInfo
    )
    exif = segment(0xE1, b"Exif\0\0MM\0*\xff\xff\xff\xff") + segment(0xE0, b"JFIF")
    data = saved(picture(), "JPEG", progressive=True)
    assert isinstance(check_image(data[:2] + exif + data[2:]), ImageInfo)


@pytest.mark.parametrize("check", ["structure", "decode", "none"])
@pytest.mark.parametrize(
    "data",
    [
        ihdr(60_000, 60_000, 8, 2, False) + PIXELS + END,
        ihdr(8_001, 8_000, 1, 0, True) + PIXELS + END,
        flat_jpeg([(1, 1)])[:-1].replace(b"\x00\x10\x00\x18", b"\xff\x00\xff\x00"),
        make_bmp(24)[:18] + struct.pack("<ii", 10_000, -10_000) + make_bmp(24)[26:],
    ],
)
def test_huge_header_in_a_tiny_file(data: bytes, check: Check) -> None:
    """The pixel limit comes first: nothing is decoded, and nothing warned of."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fault_of(data, check).reason is Reason.TOO_MANY_PIXELS


def test_pixel_limit_is_the_callers(jpeg: bytes) -> None:
    """As many pixels as the limit are allowed, one more is not."""
    assert isinstance(check_image(jpeg, max_pixels=24 * 40), ImageInfo)
    fault = check_image(jpeg, max_pixels=24 * 40 - 1)
    assert isinstance(fault, Fault)
    assert fault.reason is Reason.TOO_MANY_PIXELS
    assert "40 x 24 pixels" in fault.message


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


# ------------------------------------------------------------------- against TensorFlow


@dataclasses.dataclass(frozen=True)
class Verdict:
    """One file of the corpus, and the shape that TensorFlow decodes it to."""

    kind: str
    damage: str
    data: bytes
    shape: tuple[int, ...] | None


def intact_images(seed: int, rounds: int) -> Iterator[tuple[str, bytes]]:
    """Small images of every kind, in `rounds` random sizes; 43 a round."""
    rng = np.random.default_rng(seed)
    for number in range(rounds):
        height, width = (int(n) for n in rng.integers(1, 57, 2))
        quality = int(rng.integers(10, 98))
        color = picture("RGB", height=height, width=width)
        for mode in ("L", "RGB", "CMYK"):
            image = picture(mode, height=height, width=width)
            for options in (
                {"subsampling": number % 3},
                {"optimize": True, "restart_marker_blocks": 1 + number % 5},
                {"progressive": True},
            ):
                yield f"jpeg {mode}", saved(image, "JPEG", quality=quality, **options)
        for factors in ([(4, 1), (1, 1), (1, 1)], [(2, 2), (1, 2), (2, 1)], [(2, 3)]):
            yield (
                "jpeg flat",
                flat_jpeg(
                    factors,
                    height=height,
                    width=width,
                    frame=0xC0 + number % 2,
                    interleaved=bool(number & 2),
                    restart=number % 4,
                    wide_tables=bool(number & 4),
                ),
            )
        yield "jpeg arithmetic", ARITHMETIC
        yield "jpeg arithmetic", ARITHMETIC_PROGRESSIVE
        for bits, tone in ((1, 0), (2, 0), (4, 0), (8, 0), (16, 0), (8, 2), (16, 2)):
            yield (
                "png",
                make_png(
                    tone,
                    bits,
                    height=height,
                    width=width,
                    interlaced=bool(number & 1),
                    transparent=bool(number & 2),
                    extra=chunk(b"gAMA", b"\0\0\xb1\x8f") if number & 4 else b"",
                    pieces=1 + number % 3,
                    seed=number,
                ),
            )
        for bits, tone in ((1, 3), (2, 3), (4, 3), (8, 3), (8, 4), (16, 4), (8, 6)):
            yield (
                "png",
                make_png(
                    tone,
                    bits,
                    height=height,
                    width=width,
                    interlaced=bool(number & 1),
                    transparent=tone == 3 and bool(number & 2),
                    pieces=1 + number % 3,
                    seed=number,
                ),
            )
        for mode in ("1", "L", "LA", "P", "RGBA"):
            yield f"png {mode}", saved(color.convert(mode), "PNG")
        for bits in (8, 24, 32):
            for top in (1, -1):
                size = {"height": top * height, "width": width}
                yield "bmp", make_bmp(bits, **size, header_bytes=40 + number % 2 * 68)
        for mode in ("L", "P", "RGB", "RGBA"):
            yield f"bmp {mode}", saved(color.convert(mode), "BMP")


KINDS_OF_DAMAGE = (
    *("truncate", "drop", "flip", "flips", "header flip", "header flips"),
    *("header flip", "header byte", "zero", "header zero", "delete", "header delete"),
    *("insert", "header insert", "pad", "tail", "repeat"),
)


def damaged(data: bytes, kind: str, rng: random.Random) -> bytes:
    """The file after one kind of damage; the header is its first 400 bytes."""
    out = bytearray(data)
    reach = min(len(data), 400) if kind.startswith("header") else len(data)
    start = rng.randrange(reach)
    stop = min(start + rng.choice([1, 2, 4, 16, 64]), len(data))
    match kind.removeprefix("header "):
        case "truncate":
            del out[start:]
        case "drop":
            del out[-rng.randint(1, 2) :]
        case "flip" | "flips":
            for _ in range(10 if kind.endswith("s") else 1):
                out[rng.randrange(reach)] ^= 1 << rng.randrange(8)
        case "byte":
            out[start] = rng.randrange(256)
        case "zero":
            out[start:stop] = bytes(stop - start)
        case "delete":
            del out[start:stop]
        case "insert":
            out[start:start] = rng.randbytes(stop - start)
        case "pad":
            out += bytes(stop - start)
        case "tail":
            out += b"PK\x03\x04" + rng.randbytes(40)
        case "repeat":
            out[start:start] = out[start:stop]
    return bytes(out)


def real_images() -> list[bytes]:
    """Photographs, if the environment says where they are: at most 400 of them."""
    folder = os.environ.get("BEAM_TFRECORD_TEST_DATA", "")
    if not folder:
        return []
    paths = sorted(pathlib.Path(folder, "clothing").rglob("*.jp*g"))
    return [path.read_bytes() for path in paths[:400]]
