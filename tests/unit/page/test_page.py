"""Histograms and thumbnails of the page."""

import base64
import io
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from beam_pipeline.page.build import chart_of, edges_of
from beam_pipeline.page.pictures import Thumbnail, chosen, draw
from tests.support.drawn_images import saved
from transforms.core.manifest import FeatureFacts
from transforms.core.schema import Feature, Kind
from transforms.core.statistics import Statistics

FLOATS = st.lists(
    st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=1, max_size=40
)
WHOLE = st.lists(st.integers(-(2**53), 2**53), min_size=1, max_size=40)


@given(FLOATS | WHOLE, st.booleans())
def test_histograms_count_every_number(numbers: list[float], is_whole: bool) -> None:
    """Each number is in a bin, whatever its size."""
    values = np.array(numbers, np.float64)
    is_whole = is_whole and bool((np.abs(values) < 2**51).all())
    values = np.floor(values) if is_whole else values
    edges = edges_of(values.min(), values.max(), is_whole=is_whole)
    assert np.histogram(values, edges)[0].sum() == len(numbers)
    assert (np.diff(edges) > 0).all()


@pytest.mark.parametrize(
    ("feature", "column", "ends", "odd"),
    [
        (
            Feature("x", Kind.FLOAT),
            pa.array([1.0, math.nan, math.inf, None, 3.0], pa.float32()),
            *((1, 3), 2),
        ),
        (Feature("x", Kind.BOOL), pa.array([True, False]), (0, 1), 0),
        (
            Feature("x", Kind.INT64, shape=(None,)),
            pa.array([[1, 2], [2], None, []], pa.list_(pa.int64())),
            *((1, 2), 0),
        ),
    ],
)
def test_what_is_drawn(
    feature: Feature, column: pa.Array, ends: tuple[float, float], odd: int
) -> None:
    """Values, also of lists; NaN and infinities are counted apart."""
    chart = chart_of(FeatureFacts(feature, Statistics()), [column])
    assert (chart.ends, chart.odd) == (ends, odd)
    assert chart.plot.startswith("<svg")


def test_no_value_is_not_drawn() -> None:
    """A feature without a finite value has no histogram."""
    column = pa.array([math.nan, None], pa.float32())
    chart = chart_of(FeatureFacts(Feature("x", Kind.FLOAT), Statistics()), [column])
    assert (chart.plot, chart.odd) == ("", 1)


def test_the_same_images_are_chosen_in_any_order() -> None:
    """The choice goes by content, not by place; records without image are left out."""
    prints = np.random.default_rng(2).integers(1, 2**63, 200).astype(np.uint64)
    prints[7] = 0
    classes = np.arange(200) % 3
    rows = np.arange(200)
    found = chosen(prints, rows, classes, 5)
    order = np.random.default_rng(3).permutation(200)
    again = chosen(prints[order], rows, classes[order], 5)
    for name in range(3):
        assert prints[found[name]].tolist() == prints[order][again[name]].tolist()
        assert len(found[name]) == 5
    assert 7 not in np.concatenate([*found.values()])


def pixels_of(thumbnail: Thumbnail) -> np.ndarray:
    """Returns the pixels of a thumbnail."""
    data = base64.b64decode(thumbnail.data)
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"), np.int64)


def test_thumbnails() -> None:
    """They keep the shape, of any mode; images that are damaged have none."""
    found = draw(saved(Image.new("RGB", (400, 200), "#c02020"), "PNG"))
    assert found is not None
    assert (found.width, found.height) == (96, 48)
    assert (found.full_width, found.full_height) == (400, 200)
    assert np.abs(pixels_of(found) - [192, 32, 32]).max() < 12
    deep = Image.fromarray(np.full((20, 20), 32_768, np.uint16))
    found = draw(saved(deep, "PNG"))
    assert found is not None
    assert np.abs(pixels_of(found) - 128).max() < 12
    for mode in ("1", "L", "LA", "P", "RGBA", "CMYK"):
        kind = "JPEG" if mode == "CMYK" else "PNG"
        assert draw(saved(Image.new(mode, (9, 9)), kind)) is not None
    whole = saved(Image.new("RGB", (50, 50)), "PNG")
    assert draw(whole[: len(whole) // 2]) is None
    assert draw(b"no image") is None
    assert draw(b"") is None


def test_masks_are_drawn() -> None:
    """Classes and objects have colours of their own; what is 0 stays."""
    data = saved(Image.new("RGB", (96, 96), "white"), "PNG")
    left, right = (np.zeros((96, 96), np.uint8) for _ in range(2))
    left[:, :32], right[:, 64:] = 1, 1
    classes = saved(Image.fromarray(left + right * 2), "PNG")
    wide = saved(Image.fromarray(left + right.astype(np.uint16) * 258), "PNG")
    objects = [saved(Image.fromarray(each), "PNG") for each in (left, right)]
    for masks in ([classes], [wide], objects):
        found = draw(data, (), [masks])
        assert found is not None
        pixels = pixels_of(found)
        assert pixels[48, 48].min() > 240
        assert pixels[48, 16].min() < 200
        assert pixels[48, 80].min() < 200
        assert np.abs(pixels[48, 16] - pixels[48, 80]).max() > 50


def test_boxes_are_drawn() -> None:
    """Where they are, and whatever they are."""
    data = saved(Image.new("RGB", (96, 96), "white"), "PNG")
    found = draw(data, [(0.25, 0.25, 0.75, 0.75)])
    assert found is not None
    pixels = pixels_of(found)
    assert pixels[48, 48].min() > 200
    assert pixels[18:28, 48].min() < 120
    assert pixels[48, 68:78].min() < 120
    assert draw(data, [(float("nan"), 0, 1, 1), (0.9, 0.9, 0.1, 3.0)]) is not None
