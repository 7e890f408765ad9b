"""Damaged images of every accepted format: an image, or a fault that says why."""

import random
import warnings

import pytest
from PIL import Image

from tests.conftest import Headline
from tests.support.damaged_images import intact_images
from tests.support.drawn_images import saved
from tests.support.foreign_images import POLICIES, foreign_images
from tests.support.fuzzing import at_most, mutated, nothing_unraised
from tests.support.stress import CASES
from transforms.core.image.policy import PreparedImage, prepare_image
from transforms.core.reasons import Fault, Reason
from transforms.errors import MAX_MESSAGE_BYTES

# These bytes decide an image's size and layout.
HEADER_BYTES = 400


@pytest.fixture(scope="module")
def intact() -> list[bytes]:
    rounds = [*foreign_images(seed=31, rounds=2), *intact_images(seed=32, rounds=2)]
    return [data for _, data in rounds]


@pytest.mark.parametrize("cases", CASES, ids=str)
def test_damaged_headers(cases: range, intact: list[bytes], headline: Headline) -> None:
    """A value or a typed fault, within two seconds and without a warning."""
    faults = 0
    for case in cases:
        rng = random.Random(case)
        data = intact[case % len(intact)]
        data = mutated(data[:HEADER_BYTES], rng) + data[HEADER_BYTES:]
        policy = POLICIES[("default", "small", "png")[case % 3]]
        with at_most(), nothing_unraised(), warnings.catch_warnings():
            warnings.simplefilter("error")
            result = prepare_image(data, policy)
        assert isinstance(result, Fault | PreparedImage)
        if isinstance(result, Fault):
            faults += 1
            assert 0 < len(result.message.encode()) <= MAX_MESSAGE_BYTES
    assert len(cases) // 4 < faults < len(cases)
    headline("H5", "{} damaged image headers: no crash or hang", len(cases))


def test_what_no_reader_of_png_takes_is_no_png() -> None:
    """A TIFF of more than a million rows is refused: libpng would refuse its PNG."""
    tall = Image.new("L", (1, 1_000_001))
    result = prepare_image(saved(tall, "TIFF", compression="tiff_lzw"))
    assert isinstance(result, Fault)
    assert result.reason is Reason.TOO_MANY_PIXELS
    assert "PNG holds sides of up to 1,000,000 pixels, not 1 x 1000001" in (
        result.message
    )
