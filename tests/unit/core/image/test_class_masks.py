"""What the file of a mask means: one class number a pixel, or a reason."""

import io
import itertools
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.support.drawn_images import chunk, ihdr, saved
from transforms.core.image.masks import MaskClasses
from transforms.core.image.png import encode_class_png
from transforms.core.image.policy import ImagePolicy, prepare_image
from transforms.core.image.resize import Resize
from transforms.core.reasons import Fault, Reason

Array = np.ndarray[Any, Any]
IDS = np.zeros((20, 40), np.uint8)
IDS[5:15, 10:30] = 1
IDS[0, 0] = 255
BINARY = (IDS == 1).astype(np.uint8)


def encoded(image: Image.Image | Array, kind: str = "PNG", **options: Any) -> bytes:
    image = image if isinstance(image, Image.Image) else Image.fromarray(image)
    return saved(image, kind, **options)


def palette(ids: Array) -> Image.Image:
    image = Image.fromarray(ids)
    image = Image.frombytes("P", image.size, image.tobytes())
    image.putpalette(
        [(37 * i + 5 * side) % 256 for i in range(256) for side in range(3)]
    )
    return image


def stored(data: bytes, **options: Any) -> Array | Fault:
    """Returns the numbers that readers find."""
    policy = ImagePolicy(**options).for_masks(of_image=True)
    found = prepare_image(data, policy)
    if isinstance(found, Fault):
        return found
    with Image.open(io.BytesIO(found.data)) as image:
        assert image.format == "PNG"
        assert image.mode in ("L", "I;16")
        assert found.info.format == "png"
        assert (found.info.width, found.info.height) == image.size
        return np.asarray(image)


def grey(bits: int) -> bytes:
    """Returns a PNG of 20 x 40 whose numbers take two or four bits."""
    fields = np.unpackbits(BINARY[..., np.newaxis], axis=-1)[..., -bits:]
    rows = np.packbits(fields.reshape(20, -1), axis=-1)
    raw = b"".join(b"\0" + row.tobytes() for row in rows)
    pixels = chunk(b"IDAT", zlib.compress(raw))
    return ihdr(20, 40, bits, 0, False) + pixels + chunk(b"IEND", b"")


def rgba(alpha: int) -> Array:
    return np.stack([BINARY] * 3 + [np.full_like(BINARY, alpha)], axis=-1)


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (encoded(IDS), IDS),
        (encoded(palette(IDS)), IDS),
        (encoded(palette(BINARY), "GIF"), BINARY),
        (encoded(palette(BINARY), bits=1), BINARY),
        (encoded(palette(IDS), "BMP"), IDS),
        (encoded(BINARY > 0), BINARY),
        (encoded(BINARY > 0, "TIFF"), BINARY),
        (encoded(BINARY > 0, "BMP"), BINARY),
        (grey(2), BINARY),
        (grey(4), BINARY),
        (encoded(IDS.astype(np.uint16)), IDS),
        (encoded(IDS.astype(np.uint16), "TIFF"), IDS),
        (encoded(IDS.astype(np.uint16) * 257), IDS.astype(np.uint16) * 257),
        (encoded(np.stack([IDS] * 3, axis=-1)), IDS),
        (encoded(np.stack([IDS] * 3, axis=-1), "BMP"), IDS),
        (encoded(rgba(255)), BINARY),
        (encoded(np.stack([IDS, np.full_like(IDS, 255)], axis=-1)), IDS),
        (encoded(np.zeros_like(IDS)), np.zeros_like(IDS)),
    ],
)
def test_numbers_of_files(data: bytes, wanted: Array) -> None:
    """Palettes are indices, one bit is 0 and 1, 16 bits are 8 where they fit."""
    found = stored(data)
    assert not isinstance(found, Fault)
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)


def test_areas_of_equal_numbers_are_small() -> None:
    """Of 640 x 480 pixels less than a kilobyte."""
    mask = np.zeros((480, 640), np.uint8)
    mask[100:300, 200:400] = 1
    assert len(encode_class_png(mask)) < 1000


def test_plain_files_stay_as_they_are() -> None:
    """Grey PNG of 8 bits is what readers decode."""
    data = encoded(IDS)
    found = prepare_image(data, ImagePolicy().for_masks(of_image=True))
    assert not isinstance(found, Fault)
    assert found.data is data


COLOURS = "# label:color_rgb:parts:actions\nbackground:0,0,0::\ncat:128,0,64::\n"
PAINTED = np.stack([BINARY * 128, BINARY * 0, BINARY * 64], axis=-1)


@pytest.mark.parametrize(
    ("data", "classes", "reason"),
    [
        (encoded(PAINTED), "", Reason.UNSUPPORTED_FORMAT),
        (encoded(rgba(254)), "", Reason.UNSUPPORTED_FORMAT),
        (encoded(BINARY, "JPEG"), "", Reason.UNSUPPORTED_FORMAT),
        (encoded(BINARY, "JPEG"), COLOURS, Reason.UNSUPPORTED_FORMAT),
        (encoded(BINARY, "JPEG"), "0 a\n1 b\n2 c", Reason.UNSUPPORTED_FORMAT),
        (encoded(PAINTED), "0,0,0 a\n1,2,3 b", Reason.UNKNOWN_LABEL),
        (encoded(IDS), "0 a\n1 b", Reason.UNKNOWN_LABEL),
        (encoded(IDS)[:60], "", Reason.DAMAGED_IMAGE),
        (b"", "", Reason.EMPTY_FILE),
    ],
)
def test_refused_files(data: bytes, classes: str, reason: Reason) -> None:
    """Colours without a list, values that are not in it, transparency, JPEG."""
    given = MaskClasses.parse(classes) if classes else None
    found = stored(data, mask_classes=given)
    assert isinstance(found, Fault)
    assert found.reason is reason


@pytest.mark.parametrize(
    ("data", "classes"),
    [
        (encoded(PAINTED), COLOURS),
        (encoded(PAINTED), "0,0,0 background\n128,0,64 cat\n9,9,9 dog"),
        (encoded(BINARY * 255), "0 background\n255 object"),
        (encoded(BINARY), "Pixel Value, Class\n0, background\n1, cat\n"),
        (encoded(BINARY > 0), "0 background\n1 cat"),
        (encoded(BINARY * 255, "JPEG", quality=50), "0 background\n255 object"),
    ],
)
def test_lists_of_classes(data: bytes, classes: str) -> None:
    """The place of a colour or a value in the list is its class."""
    found = stored(data, mask_classes=MaskClasses.parse(classes))
    np.testing.assert_array_equal(found, BINARY)


def test_colours_of_a_palette_are_listed_ones() -> None:
    """As CVAT and VOC write them."""
    image = palette(BINARY)
    image.putpalette([9, 9, 9, 7, 0, 0])
    classes = MaskClasses.parse("7,0,0 cat\n9,9,9 none")
    np.testing.assert_array_equal(
        stored(encoded(image), mask_classes=classes), 1 - BINARY
    )


@pytest.mark.parametrize(
    "text",
    ["", "cat\n", "1 a\n1 b", "1 a\n2 a", "1 a\n1,2,3 b", "300,0,0 a", "70000 a"],
)
def test_bad_lists(text: str) -> None:
    """Neither values nor names twice, nor colours among values."""
    with pytest.raises(ValueError, match="must"):
        MaskClasses.parse(text)


def test_resized_numbers_are_copied() -> None:
    """The nearest one, whatever the filter; no number is new."""
    data = encoded(IDS)
    for mode, size in itertools.product(("exact", "crop", "pad"), ((10, 10), (7, 31))):
        found = stored(data, resize=Resize(mode, *size))  # type: ignore[arg-type]
        assert not isinstance(found, Fault)
        assert {*np.unique(found).tolist()} <= {0, 1, 255}


def test_large_masks_are_refused() -> None:
    """50,000 x 50,000 pixels in a small file are not decoded."""
    data = bytearray(encoded(IDS))
    data[16:24] = np.array([50_000, 50_000], ">u4").tobytes()
    found = stored(bytes(data))
    assert isinstance(found, Fault)
    assert found.reason is Reason.TOO_MANY_PIXELS


def test_mutated_files_are_faults() -> None:
    """Cut and flipped bytes end in no exception."""
    random = np.random.default_rng(0)
    classes = MaskClasses.parse("0 a\n1 b\n255 c")
    sources = [encoded(palette(IDS)), encoded(IDS.astype(np.uint16)), grey(2)]
    for number in range(300):
        data = bytearray(sources[number % 3])
        for place in random.integers(8, len(data), 2).tolist():
            data[place] = int(random.integers(256))
        policy = ImagePolicy(mask_classes=classes if number % 2 else None, check="none")
        prepare_image(bytes(data), policy.for_masks(of_image=True))
