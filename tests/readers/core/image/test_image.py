"""Images that are checked, encoded and turned, as TensorFlow sees them."""

import dataclasses
import random

import numpy as np
import pytest

from tests.readers.decoded import tensorflow_shape
from tests.support.damaged_images import KINDS_OF_DAMAGE, damaged, intact_images
from tests.support.drawn_images import overflowing_jpeg, real_images
from tests.support.idx import noise
from tests.support.prepared_images import check_image
from transforms.core.image.formats import ImageInfo
from transforms.core.image.png import encode_png
from transforms.core.image.resize import Check
from transforms.core.reasons import Fault


@dataclasses.dataclass(frozen=True)
class Verdict:
    """One file of the corpus, and the shape that TensorFlow decodes it to."""

    kind: str
    damage: str
    data: bytes
    shape: tuple[int, ...] | None


@pytest.fixture(scope="module")
def verdicts() -> list[Verdict]:
    """1,300 intact files and more than 5,000 damaged ones, as TensorFlow sees them."""
    pytest.importorskip("tensorflow")
    rng = random.Random(20)
    small = list(intact_images(seed=20, rounds=32))
    large = [("jpeg real", data) for data in real_images()]
    files = [(kind, "", data) for kind, data in small + large]
    for number in range(6000 if large else 5100):
        kind, data = rng.choice(large if number >= 5100 else small)
        damage = rng.choice(KINDS_OF_DAMAGE)
        files.append((kind, damage, damaged(data, damage, rng)))
    return [
        Verdict(kind, damage, data, tensorflow_shape(data))
        for kind, damage, data in files
    ]


def test_no_accepted_file_fails_in_tensorflow(verdicts: list[Verdict]) -> None:
    """What `--image-check decode` lets through, TensorFlow decodes.

    So it is of the default check, but for bytes that are wrong within a JPEG.
    """
    failed = [v for v in verdicts if v.shape is None]
    accepted = [v for v in failed if isinstance(check_image(v.data), ImageInfo)]
    assert [v.kind for v in accepted if not v.kind.startswith("jpeg")] == []
    assert [v.kind for v in accepted if v.damage in ("truncate", "drop")] == []
    decoded = [check_image(v.data, "decode") for v in failed]
    assert [info for info in decoded if isinstance(info, ImageInfo)] == []


@pytest.mark.parametrize("check", ["structure", "none"])
def test_dimensions_are_those_of_tensorflow(
    verdicts: list[Verdict], check: Check
) -> None:
    """Height, width and depth are the decoded shape, for damaged files too."""
    assert [
        (v.kind, v.damage, v.shape, info)
        for v in verdicts
        if v.shape is not None
        and isinstance(info := check_image(v.data, check), ImageInfo)
        and (info.height, info.width, info.depth) != v.shape
    ] == []


def test_few_files_are_refused_that_tensorflow_reads(verdicts: list[Verdict]) -> None:
    """Strictness costs little: stray bytes and ancillary checksums, nothing else."""
    if all(v.kind != "jpeg real" for v in verdicts):
        pytest.skip("the share is one of drawn files and photos")
    readable = [v for v in verdicts if v.damage and v.shape is not None]
    refused = [v for v in readable if isinstance(check_image(v.data), Fault)]
    assert len(refused) < 0.2 * len(readable)


def test_tensorflow_notices_the_overflow_too() -> None:
    """The limit of 65,536 blocks is TensorFlow's, to the block."""
    pytest.importorskip("tensorflow")
    assert tensorflow_shape(overflowing_jpeg(2048, 2048)) == (2048, 2048, 1)
    assert tensorflow_shape(overflowing_jpeg(2048, 2056)) is None


@pytest.mark.parametrize("channels", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
@pytest.mark.parametrize("sides", [(1, 1), (5, 3), (32, 32), (150, 500), (1, 70_000)])
def test_png_decodes_to_its_pixels(
    channels: int, dtype: str, sides: tuple[int, int]
) -> None:
    """TensorFlow gives back every pixel, and our own check the right facts."""
    tf = pytest.importorskip("tensorflow")
    shape = (3, *sides, channels) if channels else (3, *sides)
    for pixels in (noise(shape, dtype), noise(shape, dtype, smooth=True)):
        files = encode_png(pixels).to_pylist()
        assert len(files) == 3
        for data, wanted in zip(files, pixels, strict=True):
            found = tf.io.decode_png(data, dtype=dtype).numpy()
            assert np.array_equal(found, wanted.reshape(found.shape))
            info = ImageInfo("png", *sides, channels or 1)
            assert check_image(data, "decode") == info
