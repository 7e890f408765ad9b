"""TensorFlow as the oracle of the image policy: what is accepted, it must decode.

The corpus holds good and damaged files of every format on the list, made by Pillow at
test time from fixed seeds.
"""

import dataclasses
import random

import numpy as np
import pytest

from tests.conftest import Headline
from tests.readers.decoded import tensorflow_shape
from tests.support.damaged_images import KINDS_OF_DAMAGE, damaged, intact_images
from tests.support.drawn_images import ARITHMETIC, make_png, picture, real_images, saved
from tests.support.foreign_images import POLICIES, foreign_images
from tests.support.stress import sizes
from transforms.core.image.policy import ImagePolicy, PreparedImage, prepare_image
from transforms.core.image.resize import Resize
from transforms.core.reasons import Fault


@pytest.fixture(scope="module")
def intact() -> list[tuple[str, bytes]]:
    return [*foreign_images(seed=21, rounds=4), *intact_images(seed=22, rounds=4)]


@pytest.fixture(scope="module", params=sizes(800, 20_000))
def broken(
    intact: list[tuple[str, bytes]], request: pytest.FixtureRequest
) -> list[tuple[str, bytes]]:
    rng = random.Random(23)
    out = []
    for _ in range(request.param):
        kind, data = rng.choice(intact)
        damage = rng.choice(KINDS_OF_DAMAGE)
        out.append((f"{kind}, {damage}", damaged(data, damage, rng)))
    return out


def refused_by_tensorflow(result: PreparedImage) -> bool:
    info = result.info
    return tensorflow_shape(result.data) != (info.height, info.width, info.depth)


@pytest.mark.parametrize("name", POLICIES)
def test_no_intact_file_is_refused(intact: list[tuple[str, bytes]], name: str) -> None:
    """Every format on the list goes through every policy, and TensorFlow reads it."""
    pytest.importorskip("tensorflow")
    results = [(kind, prepare_image(data, POLICIES[name])) for kind, data in intact]
    assert len(results) > 300
    assert [
        (kind, result)
        for kind, result in results
        if isinstance(result, Fault) or refused_by_tensorflow(result)
    ] == []


@pytest.mark.parametrize("name", [name for name in POLICIES if name != "trusting"])
def test_fault_84_tensorflow_decodes_what_is_accepted(
    broken: list[tuple[str, bytes]], name: str, headline: Headline
) -> None:
    """With `--image-check decode`, none is refused, and the shape is the stated one."""
    pytest.importorskip("tensorflow")
    policy = dataclasses.replace(POLICIES[name], check="decode")
    results = [(kind, prepare_image(data, policy)) for kind, data in broken]
    accepted = [(k, r) for k, r in results if isinstance(r, PreparedImage)]
    assert len(broken) // 8 < len(accepted) < len(broken) * 7 // 8
    assert [(kind, r.info) for kind, r in accepted if refused_by_tensorflow(r)] == []
    policies = f"{len(broken):,} damaged images under {len(POLICIES) - 1} policies"
    headline(
        "H12", f"{policies}: {{}} accepted, TensorFlow refuses none", len(accepted)
    )


def decoded_by_tensorflow(data: bytes, channels: int = 0) -> np.ndarray:
    """The pixels; of JPEG by the exact transform, where its default is the fast one."""
    tf = pytest.importorskip("tensorflow")
    if data.startswith(b"\xff\xd8"):
        exact = "INTEGER_ACCURATE"
        image = tf.io.decode_jpeg(data, channels=channels, dct_method=exact)
    else:
        image = tf.io.decode_image(data, channels=channels, expand_animations=False)
    return image.numpy().astype(int)


@pytest.mark.parametrize("adobe", [True, False])
def test_fault_80_cmyk_becomes_the_same_rgb(adobe: bool) -> None:
    """Inverted inks or not: what is encoded shows what TensorFlow shows."""
    data = saved(picture("CMYK"), "JPEG", quality=95)
    if not adobe:
        at = data.index(b"\xff\xee")
        data = data[:at] + data[at + 2 + int.from_bytes(data[at + 2 : at + 4]) :]
    result = prepare_image(data, ImagePolicy(output="png"))
    assert isinstance(result, PreparedImage)
    error = np.abs(decoded_by_tensorflow(result.data) - decoded_by_tensorflow(data))
    assert error.max() <= 1


@pytest.mark.parametrize(
    "data",
    [
        saved(picture(), "JPEG", quality=90),
        saved(picture("L"), "JPEG"),
        saved(picture(), "JPEG", progressive=True, subsampling="4:4:4"),
        ARITHMETIC,
        *[make_png(0, bits) for bits in (1, 2, 4, 8, 16)],
        *[make_png(color, 16) for color in (2, 4, 6)],
        make_png(3, 4, transparent=True),
        make_png(0, 8, transparent=True),
        make_png(2, 8, transparent=True, interlaced=True),
        saved(picture(), "BMP"),
        saved(picture("L"), "BMP"),
    ],
)
def test_fault_81_changed_images_show_what_tensorflow_saw(data: bytes) -> None:
    """Padding leaves the pixels exactly as TensorFlow decodes the source."""
    seen = decoded_by_tensorflow(data)
    height, width, _ = seen.shape
    resize = Resize("pad", height, width + 2)
    result = prepare_image(data, ImagePolicy(output="png", resize=resize))
    assert isinstance(result, PreparedImage)
    found = decoded_by_tensorflow(result.data)[:, 1:-1]
    if seen.shape[2] in (2, 4):
        alpha = seen[..., -1:] > 0
        found, seen = found * alpha, seen * alpha
    np.testing.assert_array_equal(found, seen)


def test_gray_is_the_luminance_of_tensorflow() -> None:
    """One channel of a JPEG is its Y, as decode_image(channels=1) gives it."""
    for data in [*real_images()[:3], saved(picture(), "JPEG", quality=90)]:
        result = prepare_image(data, ImagePolicy(channels=1, output="png"))
        assert isinstance(result, PreparedImage)
        found = decoded_by_tensorflow(result.data)
        expected = decoded_by_tensorflow(data, channels=1)
        np.testing.assert_array_equal(found, expected)
