"""Boxes: pixels to shares of the image, and every kind of bad box."""

import fractions
import math

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


@pytest.mark.parametrize(
    ("box", "fault"),
    [([10, 10, 1e-9, 20], EMPTY), ([1e308, 10, 1e308, 20], NOT_NUMBERS)],
)
def test_fault_131_sides_that_no_float32_has(box: list[float], fault: int) -> None:
    """A side may be too short for float32, or its end beyond float64."""
    relative, found = check_boxes([box], [SIZE], sized=True)
    assert found.tolist() == [fault]
    assert (relative == 0).all()


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
    st.booleans(),
)
def test_fault_131_agrees_with_the_rules_one_by_one(
    cases: list[tuple[list[float], tuple[int, int]]], tolerance: int, sized: bool
) -> None:
    """In both forms boxes are judged by the plain rules; good ones are inside."""
    boxes, sizes = [box for box, _ in cases], [size for _, size in cases]
    given_boxes = [
        [x0, y0, x1 - x0, y1 - y0] if sized else [x0, y0, x1, y1]
        for x0, y0, x1, y1 in boxes
    ]
    relative, found = check_boxes(given_boxes, sizes, sized=sized, tolerance=tolerance)
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
