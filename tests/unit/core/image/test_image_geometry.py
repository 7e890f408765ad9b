"""Resizing and turning: sizes and boxes, against fractions and against pixels."""

import fractions
import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps

from tests.support.drawn_images import saved
from transforms.core.image.jpeg import read_orientation
from transforms.core.image.policy import ImagePolicy, PreparedImage, prepare_image
from transforms.core.image.resize import (
    AS_STORED,
    ImageStep,
    Mode,
    Resize,
    turns,
)
from transforms.errors import SpecError

sides = st.integers(1, 5000)


@pytest.mark.parametrize(
    ("resize", "size", "expected"),
    [
        (Resize("shorter", 224), (533, 400), ((298, 224), (298, 224), (0, 0))),
        (Resize("shorter", 224), (400, 533), ((224, 298), (224, 298), (0, 0))),
        (Resize("shorter", 224), (200, 500), ((200, 500), (200, 500), (0, 0))),
        (
            Resize("shorter", 224, enlarge=True),
            (112, 112),
            ((224, 224), (224, 224), (0, 0)),
        ),
        (Resize("longer", 100), (50, 400), ((13, 100), (13, 100), (0, 0))),
        (Resize("longer", 100), (1, 400), ((1, 100), (1, 100), (0, 0))),
        (Resize("exact", 30, 50), (100, 40), ((30, 40), (30, 40), (0, 0))),
        (
            Resize("exact", 30, 50, enlarge=True),
            (100, 40),
            ((30, 50), (30, 50), (0, 0)),
        ),
        (Resize("crop", 50, 50), (100, 200), ((50, 100), (50, 50), (0, 25))),
        (Resize("crop", 50, 50), (20, 200), ((20, 200), (20, 50), (0, 75))),
        (Resize("crop", 60, 30), (100, 100), ((60, 60), (60, 30), (0, 15))),
        (Resize("pad", 50, 50), (100, 200), ((25, 50), (50, 50), (-13, 0))),
        (Resize("pad", 50, 50), (10, 20), ((10, 20), (50, 50), (-20, -15))),
        (Resize("pad", 8, 8, enlarge=True), (2, 4), ((4, 8), (8, 8), (-2, 0))),
    ],
)
def test_layouts(resize: Resize, size: tuple[int, int], expected: Any) -> None:
    """Sizes are pinned: the same rule must always give the same pixels."""
    step = ImageStep(size, *resize.lay_out(*size), 1, "box")
    assert (step.scaled, step.size, step.offset) == expected


@given(
    mode=st.sampled_from(["shorter", "longer", "crop", "pad"]),
    wanted=st.tuples(sides, sides),
    size=st.tuples(sides, sides),
    enlarge=st.booleans(),
)
def test_the_aspect_is_kept_to_a_pixel(
    mode: Mode, wanted: tuple[int, int], size: tuple[int, int], enlarge: bool
) -> None:
    """One scale for both sides, as exact fractions give it, rounded to whole pixels."""
    width = wanted[1] if mode in ("crop", "pad") else 0
    rule = Resize(mode, wanted[0], width, enlarge=enlarge)
    scaled, result = rule.lay_out(*size)
    scales = {
        "shorter": fractions.Fraction(wanted[0], min(size)),
        "longer": fractions.Fraction(wanted[0], max(size)),
        "crop": max(map(fractions.Fraction, wanted, size)),
        "pad": min(map(fractions.Fraction, wanted, size)),
    }
    scale = scales[mode] if enlarge else min(scales[mode], fractions.Fraction(1))
    for found, side in zip(scaled, size, strict=True):
        exact = max(scale * side, fractions.Fraction(1))
        assert abs(found - exact) <= fractions.Fraction(1, 2)
        assert enlarge or found <= side
    if mode == "pad":
        assert result == wanted
    elif mode == "crop":
        assert result == tuple(map(min, wanted, scaled))


@pytest.mark.parametrize(
    "settings",
    [
        {"mode": "shorter", "height": 0},
        {"mode": "shorter", "height": 3, "width": 3},
        {"mode": "crop", "height": 3},
        {"mode": "exact", "height": 3, "width": 70_000},
    ],
)
def test_impossible_resizes(settings: dict[str, Any]) -> None:
    """What cannot be done is a SpecError when it is said, not when it is tried."""
    with pytest.raises(SpecError):
        Resize(**settings)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_fault_79_geometry_of_orientations_is_that_of_pillow(orientation: int) -> None:
    """A point goes where Pillow's exif_transpose takes its pixel."""
    image = Image.new("L", (10, 8))
    image.putpixel((2, 1), 255)
    exif = image.getexif()
    exif[274] = orientation
    pixels = np.asarray(ImageOps.exif_transpose(image))
    (y,), (x,) = pixels.nonzero()
    height, width = pixels.shape
    expected = [x / width, y / height, (x + 1) / width, (y + 1) / height]
    step = ImageStep((8, 10), pixels.shape, pixels.shape, orientation, "hamming")
    boxes = [[2 / 10, 1 / 8, 3 / 10, 2 / 8]]
    found = step.geometry(orientation).map_boxes(boxes)
    np.testing.assert_allclose(found, [expected])
    assert turns(orientation) == ((height, width) == (10, 8))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize(
    "resize",
    [
        Resize("shorter", 64),
        Resize("longer", 64),
        Resize("exact", 48, 64),
        Resize("crop", 64, 64),
        Resize("pad", 64, 80),
        Resize("pad", 300, 300, enlarge=True),
    ],
)
def test_fault_79_boxes_follow_the_pixels(orientation: int, resize: Resize) -> None:
    """A white box on black is where the geometry says, to a pixel."""
    pixels = np.zeros((200, 160), np.uint8)
    pixels[60:120, 70:110] = 255
    exif = Image.Exif()
    exif[274] = orientation
    data = saved(Image.fromarray(pixels), "PNG", exif=exif.tobytes())
    policy = ImagePolicy(exif="apply", resize=resize)
    prepared = prepare_image(data, policy)
    assert isinstance(prepared, PreparedImage)
    out = np.asarray(Image.open(io.BytesIO(prepared.data)))
    ys, xs = (out > 127).nonzero()
    found = [xs.min(), ys.min(), xs.max() + 1, ys.max() + 1]
    box = prepared.geometry.map_boxes([[70 / 160, 60 / 200, 110 / 160, 120 / 200]])[0]
    expected = box * ([out.shape[1], out.shape[0]] * 2)
    np.testing.assert_allclose(found, expected, atol=1.01)


def test_no_boxes_are_mapped_to_none() -> None:
    """An empty array of boxes stays one."""
    assert AS_STORED.map_boxes(np.zeros((0, 4))).shape == (0, 4)


def exif_of(order: str, tag: int, kind: int, value: int) -> bytes:
    mark = b"II*\0" if order == "little" else b"MM\0*"

    def number(n: int, size: int) -> bytes:
        return n.to_bytes(size, order)  # type: ignore[arg-type]

    entry = number(tag, 2) + number(kind, 2) + number(1, 4) + number(value, 2) + b"\0\0"
    return mark + number(8, 4) + number(1, 2) + entry + bytes(4)


@pytest.mark.parametrize("order", ["little", "big"])
def test_orientation_in_both_byte_orders(order: str) -> None:
    """Literal EXIF; what makes no sense counts as upright."""
    assert read_orientation(exif_of(order, 0x0112, 3, 6)) == 6
    named = b"Exif\0\0" + exif_of(order, 0x0112, 3, 8)
    assert read_orientation(named) == 8
    for tag, kind, value in ((0x0112, 3, 9), (0x0112, 3, 0), (0x0112, 4, 6), (5, 3, 6)):
        assert read_orientation(exif_of(order, tag, kind, value)) == 1
    whole = exif_of(order, 0x0112, 3, 6)
    assert {read_orientation(whole[:n]) for n in range(20)} == {1}


@given(st.binary(max_size=60))
def test_any_exif_gives_an_orientation(data: bytes) -> None:
    """Nonsense in metadata raises nothing."""
    for mark in (b"", b"II*\0", b"MM\0*"):
        assert 1 <= read_orientation(mark + data) <= 8
