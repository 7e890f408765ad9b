"""Masks of objects, against pycocotools in every pixel."""

import time
import tracemalloc

import numpy as np
import pytest

from tests.support.stress import sizes
from transforms.core.image.masks import object_mask, polygon_mask
from transforms.core.reasons import FaultError, Reason

# Of pycocotools with NumPy 2.
pytestmark = pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning")
BOX = (10.0, 5.0, 30.0, 15.0)


def reference(polygons: list[list[float]], height: int, width: int) -> np.ndarray:
    """Returns the union as pycocotools draws it."""
    coco = pytest.importorskip("pycocotools.mask")
    runs = coco.frPyObjects(polygons, height, width)
    return coco.decode(coco.merge(runs))


@pytest.mark.parametrize("images", sizes(range(2_000), range(2_000, 10_000)), ids=str)
def test_polygons_are_those_of_pycocotools(images: range) -> None:
    """Polygons cross themselves and the edges, have equal points, lie on the grid."""
    for seed in images:
        random = np.random.default_rng(seed)
        height, width = random.integers(1, 60, 2).tolist()
        count = int(random.integers(1, 4))
        polygons = []
        for _ in range(count):
            points = random.uniform(-0.3, 1.3, (int(random.integers(3, 12)), 2))
            points *= (width, height)
            kind = random.integers(4)
            if kind:
                points = np.round(points * (1, 2, 5)[kind - 1]) / (1, 2, 5)[kind - 1]
            polygons.append(points.ravel().tolist())
        drawn = polygon_mask(polygons, height, width)
        np.testing.assert_array_equal(drawn, reference(polygons, height, width))


def test_runs_are_those_of_pycocotools() -> None:
    """Runs, plain and compressed, of random masks, empty and full ones."""
    coco = pytest.importorskip("pycocotools.mask")
    random = np.random.default_rng(1)
    for share in np.linspace(0, 1, 50).tolist():
        height, width = random.integers(1, 90, 2).tolist()
        wanted = (random.random((height, width)) < share).astype(np.uint8)
        packed = coco.encode(np.asfortranarray(wanted))
        text = {"size": [height, width], "counts": packed["counts"].decode()}
        changes = np.flatnonzero(np.diff(wanted.ravel("F"))) + 1
        counts = np.diff([0, *changes, wanted.size]).tolist()
        plain = [0, *counts] if wanted[0, 0] else counts
        for outline in (text, {**text, "counts": plain}):
            found = object_mask(outline, height, width, BOX)
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("outline", "rows", "columns"),
    [
        ([[10, 5, 30, 5, 30, 15, 10, 15]], slice(5, 15), slice(10, 30)),
        ([10, 5, 30, 5, 30, 15, 10, 15], slice(5, 15), slice(10, 30)),
        ({"size": [20, 40], "counts": [0, 40, 760]}, slice(0, 20), slice(0, 2)),
        ({"size": [20, 40], "counts": "0X1hg0"}, slice(0, 20), slice(0, 2)),
        ([], slice(5, 15), slice(10, 30)),
        (None, slice(5, 15), slice(10, 30)),
    ],
)
def test_object_masks(outline: object, rows: slice, columns: slice) -> None:
    """Of polygons, of one flat polygon, of runs; of a box where there is nothing."""
    wanted = np.zeros((20, 40), np.uint8)
    wanted[rows, columns] = 1
    np.testing.assert_array_equal(object_mask(outline, 20, 40, BOX), wanted)


@pytest.mark.parametrize(
    "outline",
    [
        [[1, 2, 3, 4]],
        [[1, 2, 3, 4, 5, 6, 7]],
        [[1, 2, 3, 4, 5, float("nan")]],
        [[1, 2, 3, 4, 5, float("inf")]],
        [[1, 2, 3, 4, 5, 1e300]],
        [[1, 2, 3, 4, 5, None]],
        [[1, 2, 3, 4, 5, "x"]],
        [[[1, 2], [3, 4], [5, 6]]],
        "text",
        {"size": [20, 40], "counts": [0, 40, 759]},
        {"size": [20, 40], "counts": [-1, 41, 760]},
        {"size": [20, 40], "counts": [0.0, 40, 760]},
        {"size": [20, 40], "counts": [0, 10**12]},
        {"size": [20, 40], "counts": [10**400, -(10**401)]},
        {"size": [20, 40], "counts": [True, 799]},
        {"size": [20, 40], "counts": {}},
        [[1, 2, 3, 4, 5, 10**400]],
        [[]],
        [[1, 2, 3, 4, 5, 6], 7],
        {"size": [10**6, 10**6], "counts": [0, 10**12]},
        {"size": [20, 40], "counts": "0X1hg"},
        {"size": [20, 40], "counts": "0X1hg0\x7f"},
        {"size": [20, 40], "counts": "o" * 10**6},
        {"size": [20, 40]},
        {"counts": [0, 40, 760]},
    ],
)
def test_bad_outlines(outline: object) -> None:
    """Too few points, odd numbers, runs that do not fill the image, other types."""
    with pytest.raises(FaultError) as caught:
        object_mask(outline, 20, 40, BOX)
    assert caught.value.fault.reason is Reason.BAD_MASK
    assert len(caught.value.fault.message.encode()) <= 1024


@pytest.mark.parametrize("count", [10**6, 10**5])
def test_hostile_polygons_end_soon(count: int) -> None:
    """Edges from side to side, a million of them, take neither time nor memory."""
    random = np.random.default_rng(0)
    points = random.uniform(0, 640, 2 * count).tolist()
    tracemalloc.start()
    began = time.process_time()
    with pytest.raises(FaultError):
        polygon_mask([points], 480, 640)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert time.process_time() - began < 10
    assert peak < 400 << 20


def test_large_polygons_are_drawn() -> None:
    """A million points that are near one another are an outline like any other."""
    turn = np.linspace(0, 2 * np.pi, 10**6)
    points = np.stack([320 + 200 * np.cos(turn), 240 + 200 * np.sin(turn)], axis=1)
    drawn = polygon_mask([points.ravel().tolist()], 480, 640)
    assert abs(int(drawn.sum()) - np.pi * 200**2) < 1000


def test_polygons_without_number_are_refused() -> None:
    """Each takes its time, however small it is."""
    with pytest.raises(FaultError, match="300,000 polygons"):
        polygon_mask([[1, 1, 9, 1, 9, 9]] * 300_000, 20, 40)
