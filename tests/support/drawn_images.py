"""Small images of every kind, drawn or built byte by byte, and some real ones."""

import base64
import io
import os
import pathlib
import struct
import zlib

import numpy as np
from PIL import Image

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
) -> bytes:
    """A gray JPEG of any sampling factors (h, v): every block is two bits, 00."""
    table = b"\x10" + 64 * b"\x00\x01" if wide_tables else b"\x00" + 64 * b"\x01"
    out = b"\xff\xd8" + segment(0xDB, table)
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
    """A PNG chunk with a correct checksum."""
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
) -> bytes:
    """A BMP of random pixels; a negative height puts the first row at the top."""
    rng = np.random.default_rng(0)
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
    """Waves and noise, so that all blocks differ."""
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


def real_images() -> list[bytes]:
    """Photographs, if the environment says where they are: at most 400 of them."""
    folder = os.environ.get("BEAM_TFRECORD_TEST_DATA", "")
    if not folder:
        return []
    paths = sorted(pathlib.Path(folder, "clothing").rglob("*.jp*g"))
    return [path.read_bytes() for path in paths[:400]]
