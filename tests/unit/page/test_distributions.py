"""Histograms, frequent values and thumbnails of the page."""

import base64
import io

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from beam_pipeline.page.distributions import describe, histogram_of
from beam_pipeline.page.pictures import (
    MOST_THUMBNAILS,
    Thumbnail,
    chosen,
    draw,
    share_of_each,
)
from beam_pipeline.page.sample import ends_of
from transforms.core.schema import Feature, Kind

FLOATS = st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=40)
WHOLE = st.lists(st.integers(-(2**53), 2**53), max_size=40)


@given(FLOATS | WHOLE, st.booleans())
def test_histograms_count_every_number(numbers: list[float], whole: bool) -> None:
    """Each number is in a bin or counted as outside, whatever its size."""
    values = np.array(numbers, np.float64)
    found = histogram_of(np.floor(values) if whole else values, whole=whole)
    if found is None:
        assert not numbers
        return
    assert sum(found.counts) + found.outside == len(numbers)
    assert all(a < b for a, b in zip(found.edges, found.edges[1:], strict=False))


def test_a_long_tail_is_cut() -> None:
    """One number far away does not hide the others; it is counted."""
    values = np.concatenate((np.random.default_rng(1).normal(0, 1, 1_000), [1e6]))
    found = histogram_of(values, whole=False)
    assert found is not None
    assert found.edges[-1] < 10
    assert 1 <= found.outside <= 12


def test_odd_numbers_are_counted_apart() -> None:
    """NaN and infinities are in no bin."""
    column = pa.array([1.0, float("nan"), float("inf"), None, 3.0], pa.float32())
    found = describe(Feature("x", Kind.FLOAT), {"train": column})
    assert found.odd == 2
    assert found.rows == {"train": (5, 4)}
    assert found.histogram is not None
    assert found.histogram.counts == (1, *[0] * 30, 1)


def test_texts_of_many_values_are_measured() -> None:
    """Texts that seldom repeat are shown by their lengths, others by their values."""
    feature = Feature("x", Kind.TEXT)
    names = pa.array([f"name {n}" for n in range(500)])
    kinds = pa.array(["a", "b", "b", "c"] * 20)
    assert describe(feature, {"train": names}).measured == "bytes"
    found = describe(feature, {"train": kinds, "test": kinds[:8]})
    assert found.frequent is not None
    assert found.frequent.names == ["b", "a", "c"]


def test_lists_and_boxes() -> None:
    """Of lists every value counts; of boxes, how many a record has."""
    lists = pa.array([[1, 2], [2], None, []], pa.list_(pa.int64()))
    found = describe(Feature("x", Kind.INT64, shape=(None,)), {"train": lists})
    assert found.frequent is not None
    assert found.frequent.counts["train"] == {"1": 1, "2": 2}
    boxes = pa.array([[[0, 0, 1, 1]], [], None], pa.list_(pa.list_(pa.float32(), 4)))
    found = describe(Feature("b", Kind.BOX), {"train": boxes})
    assert found.measured == "boxes"
    assert found.histogram is not None
    assert found.histogram.ends == (0, 1)


@given(st.integers(1, 200_000), st.integers(1, 9))
def test_never_too_many_thumbnails(classes: int, splits: int) -> None:
    """Whatever the number of classes; each that is shown has one."""
    shown, each = share_of_each(classes, splits)
    assert shown * each * splits <= MOST_THUMBNAILS
    assert 1 <= each <= 12
    assert 1 <= shown <= min(classes, 1_000)


@given(st.lists(st.integers(0, 99), max_size=30), st.integers(1, 30))
def test_the_largest_and_the_smallest_classes(totals: list[int], most: int) -> None:
    """Each that is left out is between those that are shown."""
    shown = ends_of(totals, most)
    assert len(shown) == len({*shown}) == min(len(totals), most)
    left = sorted(totals[n] for n in range(len(totals)) if n not in shown)
    if left:
        half = most - most // 2
        assert all(totals[n] >= left[-1] for n in shown[:half])
        assert all(totals[n] <= left[0] for n in shown[half:])


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


def file_of(image: Image.Image, kind: str = "PNG") -> bytes:
    """Returns an encoded image."""
    out = io.BytesIO()
    image.save(out, kind)
    return out.getvalue()


def pixels_of(thumbnail: Thumbnail) -> np.ndarray:
    """Returns the pixels of a thumbnail."""
    data = base64.b64decode(thumbnail.data)
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"), np.int64)


def test_thumbnails() -> None:
    """They keep the shape, of any mode; images that are damaged have none."""
    found = draw(file_of(Image.new("RGB", (400, 200), "#c02020")))
    assert found is not None
    assert (found.width, found.height) == (96, 48)
    assert (found.full_width, found.full_height) == (400, 200)
    assert np.abs(pixels_of(found) - [192, 32, 32]).max() < 12
    deep = Image.fromarray(np.full((20, 20), 32_768, np.uint16))
    found = draw(file_of(deep))
    assert found is not None
    assert np.abs(pixels_of(found) - 128).max() < 12
    for mode in ("1", "L", "LA", "P", "RGBA", "CMYK"):
        kind = "JPEG" if mode == "CMYK" else "PNG"
        assert draw(file_of(Image.new(mode, (9, 9)), kind)) is not None
    whole = file_of(Image.new("RGB", (50, 50)))
    assert draw(whole[: len(whole) // 2]) is None
    assert draw(b"no image") is None
    assert draw(b"") is None


def test_masks_are_drawn() -> None:
    """Classes and objects have colours of their own; what is 0 stays."""
    data = file_of(Image.new("RGB", (96, 96), "white"))
    left, right = (np.zeros((96, 96), np.uint8) for _ in range(2))
    left[:, :32], right[:, 64:] = 1, 1
    classes = file_of(Image.fromarray(left + right * 2))
    wide = file_of(Image.fromarray(left + right.astype(np.uint16) * 258))
    objects = [file_of(Image.fromarray(each)) for each in (left, right)]
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
    data = file_of(Image.new("RGB", (96, 96), "white"))
    found = draw(data, [(0.25, 0.25, 0.75, 0.75)])
    assert found is not None
    pixels = pixels_of(found)
    assert pixels[48, 48].min() > 200
    assert pixels[18:28, 48].min() < 120
    assert pixels[48, 68:78].min() < 120
    assert draw(data, [(float("nan"), 0, 1, 1), (0.9, 0.9, 0.1, 3.0)]) is not None
