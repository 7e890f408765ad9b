"""A corpus of whole images, and the ways to damage them."""

import random
from collections.abc import Iterator

import numpy as np

from tests.support.drawn_images import (
    ARITHMETIC,
    ARITHMETIC_PROGRESSIVE,
    chunk,
    flat_jpeg,
    make_bmp,
    make_png,
    picture,
    saved,
)


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
        gamma = chunk(b"gAMA", b"\0\0\xb1\x8f") if number & 4 else b""
        for bits, tone in (
            *((1, 0), (2, 0), (4, 0), (8, 0), (16, 0), (8, 2), (16, 2)),
            *((1, 3), (2, 3), (4, 3), (8, 3), (8, 4), (16, 4), (8, 6)),
        ):
            yield (
                "png",
                make_png(
                    tone,
                    bits,
                    height=height,
                    width=width,
                    interlaced=bool(number & 1),
                    transparent=tone < 4 and bool(number & 2),
                    extra=gamma if tone < 3 else b"",
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
