"""PNG files of raw pixels: against Pillow, and byte by byte."""

import zlib

import numpy as np
import pytest

from tests.support.idx import noise
from transforms.core.image.png import encode_png
from transforms.errors import EncodingError


def test_png_bytes() -> None:
    """One gray pixel of 7: signature, IHDR, the deflated `04 07`, IEND."""
    (data,) = encode_png(np.array([[[7]]], np.uint8)).to_pylist()
    assert data[:33] == bytes.fromhex(
        "89504e470d0a1a0a 0000000d 49484452 00000001 00000001 08 00 00 00 00 3a7e9b55"
    )
    assert zlib.decompress(data[41:-16]) == b"\x04\x07"
    assert data[-12:] == bytes.fromhex("00000000 49454e44 ae426082")


def test_png_of_a_batch_is_that_of_each() -> None:
    """How many images are encoded at once makes no difference to their bytes."""
    pixels = noise((70, 32, 32, 3), "uint8", smooth=True)
    one_by_one = [encode_png(pixels[i : i + 1])[0].as_py() for i in range(70)]
    assert encode_png(pixels).to_pylist() == one_by_one
    assert encode_png(pixels[::-1]).to_pylist() == one_by_one[::-1]
    assert encode_png(pixels[:0]).to_pylist() == []


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((1, 4), "uint8"),
        ((1, 4, 4, 5), "uint8"),
        ((1, 4, 4), "int16"),
        ((1, 0, 4), "u1"),
    ],
)
def test_png_refuses_what_is_no_image(shape: tuple[int, ...], dtype: str) -> None:
    """Other shapes and types have no PNG."""
    with pytest.raises(EncodingError, match="PNG"):
        encode_png(np.zeros(shape, dtype))
