"""Boxes: pixels to shares of the image, and every kind of bad box."""

import fractions
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.formats.detection.objects import (
    EMPTY,
    NORMALISED,
    NOT_NUMBERS,
    OUTSIDE,
    REVERSED,
    check_boxes,
)

NAN, INF = math.nan, math.inf
SIZE = (640, 480)


def faults(
    *boxes: Sequence[float],
    sized: bool = True,
    size: tuple[int, int] = SIZE,
    **options: Any,
) -> list[int]:
    _, found = check_boxes(boxes, [size] * len(boxes), sized=sized, **options)
    return found.tolist()


def test_by_hand() -> None:
    """Two boxes of a 200 x 100 image, in both forms, are the same four shares."""
    wanted = [[0.25, 0.25, 0.75, 1.0], [0.0, 0.0, 1.0, 1.0]]
    sizes = [(200, 100)] * 2
    xywh = check_boxes([[50, 25, 100, 75], [0, 0, 200, 100]], sizes, sized=True)
    xyxy = check_boxes([[50, 25, 150, 100], [0, 0, 200, 100]], sizes)
    for relative, found in (xywh, xyxy):
        assert relative.dtype == np.float32
        assert relative.tolist() == wanted
        assert found.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("box", "fault"),
    [
        ([10, 10, 20, 20], 0),
        ([-2, 10, 20, 20], OUTSIDE),
        ([630, 10, 20, 20], OUTSIDE),
        ([10, 470, 20, 20], OUTSIDE),
        ([700, 500, 20, 20], OUTSIDE),
        ([-30, 10, 20, 20], OUTSIDE),
        ([10, 10, -20, 20], REVERSED),
        ([10, 10, 20, -20], REVERSED),
        ([10, 10, 0, 20], EMPTY),
        ([10, 10, 20, 0], EMPTY),
        ([10, 10, 1e-9, 20], EMPTY),
        ([NAN, 10, 20, 20], NOT_NUMBERS),
        ([10, INF, 20, 20], NOT_NUMBERS),
        ([10, 10, 20, -INF], NOT_NUMBERS),
        ([1e308, 10, 1e308, 20], NOT_NUMBERS),
        ([0.1, 0.2, 0.5, 0.5], NORMALISED),
        ([0, 0, 1, 1], NORMALISED),
    ],
)
def test_fault_131_every_kind_of_bad_box(box: list[float], fault: int) -> None:
    """Outside, no area, negative, fractions, NaN: each is found, in both forms."""
    x, y, width, height = box
    assert faults(box) == [fault]
    with np.errstate(over="ignore"):
        corners = [x, y, np.float64(x) + width, np.float64(y) + height]
    if fault != EMPTY or 0 in box:
        assert faults(corners, sized=False) == [fault]
    relative, _ = check_boxes([box], [SIZE], sized=True)
    assert (relative == 0).all() == (fault != 0)


def test_clip() -> None:
    """Clipping cuts boxes at the edges and fixes nothing else."""
    boxes = [[-50, -50, 320, 240], [700, 0, 800, 10], [30, 0, 20, 10], [0, 0, 0, 9]]
    relative, found = check_boxes(boxes, [SIZE] * 4, clip=True)
    assert relative[0].tolist() == [0, 0, 0.5, 0.5]
    assert found.tolist() == [0, OUTSIDE, REVERSED, EMPTY]


def test_relative_boxes_are_checked_with_a_size_of_one() -> None:
    """Shares stay unchanged; pixels among them are out of range."""
    boxes: list[list[float]] = [[0.1, 0.1, 0.9, 0.9], [0, 0, 1, 1], [10, 10, 20, 20]]
    options: dict[str, Any] = {"sized": False, "size": (1, 1), "tolerance": 1e-6}
    assert faults(*boxes, **options) == [0, 0, OUTSIDE]


def naive(box: list[float], size: tuple[int, int], tolerance: int) -> int:
    """The rules of the module's table, one box at a time, in exact numbers."""
    if not all(map(math.isfinite, box)):
        return NOT_NUMBERS
    x0, y0, x1, y1 = map(fractions.Fraction, box)
    if x1 < x0 or y1 < y0:
        return REVERSED
    if x1 == x0 or y1 == y0:
        return EMPTY
    width, height = size
    if min(size) > 1 and min(x0, y0) >= 0 and max(x1, y1) <= 1:
        return NORMALISED
    if min(x0, y0) < -tolerance or x1 > width + tolerance or y1 > height + tolerance:
        return OUTSIDE
    if x1 <= 0 or y1 <= 0 or x0 >= width or y0 >= height:
        return OUTSIDE
    return 0


coordinate = st.one_of(
    st.integers(-3, 12).map(float),
    st.integers(-12, 48).map(lambda n: n / 4),
    st.sampled_from([NAN, INF, -INF]),
)


@given(
    st.lists(
        st.tuples(
            st.lists(coordinate, min_size=4, max_size=4),
            st.tuples(st.integers(1, 10), st.integers(1, 10)),
        ),
        max_size=8,
    ),
    st.integers(0, 2),
)
def test_agrees_with_the_rules_one_by_one(
    cases: list[tuple[list[float], tuple[int, int]]], tolerance: int
) -> None:
    """Every box is judged by the plain rules; good ones are inside the image."""
    boxes, sizes = [box for box, _ in cases], [size for _, size in cases]
    relative, found = check_boxes(boxes, sizes, tolerance=tolerance)
    assert found.tolist() == [naive(*case, tolerance) for case in cases]
    for (box, (width, height)), shares in zip(cases, relative, strict=True):
        if shares.any():
            wanted = np.clip(np.divide(box, [width, height] * 2), 0, 1)
            assert shares.tolist() == wanted.astype(np.float32).tolist()
            assert (shares[2:] > shares[:2]).all()


def test_nothing_is_changed_and_no_box_is_accepted() -> None:
    """The given array stays unchanged; an empty one is accepted."""
    boxes = np.array([[5.0, 5.0, 10.0, 10.0]])
    check_boxes(boxes, [SIZE], sized=True)
    assert boxes.tolist() == [[5, 5, 10, 10]]
    relative, found = check_boxes([], [], sized=True)
    assert relative.shape == (0, 4)
    assert len(found) == 0
