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
    BoxFault,
    BoxForm,
    check_boxes,
    describe,
)

NAN, INF = math.nan, math.inf
SIZE = (640, 480)


def faults(
    *boxes: Sequence[float],
    form: BoxForm = BoxForm.XYWH,
    size: tuple[int, int] = SIZE,
    **options: Any,
) -> list[BoxFault]:
    found = check_boxes(boxes, [size] * len(boxes), form=form, **options)
    return [BoxFault(fault) for fault in found.faults]


def test_by_hand() -> None:
    """Two boxes of a 200 x 100 image, in both forms, are the same four shares."""
    wanted = [[0.25, 0.25, 0.75, 1.0], [0.0, 0.0, 1.0, 1.0]]
    sizes = [(200, 100)] * 2
    xywh = check_boxes([[50, 25, 100, 75], [0, 0, 200, 100]], sizes, form=BoxForm.XYWH)
    xyxy = check_boxes([[50, 25, 150, 100], [0, 0, 200, 100]], sizes, form=BoxForm.XYXY)
    for found in (xywh, xyxy):
        assert found.relative.dtype == np.float32
        assert found.relative.tolist() == wanted
        assert found.faults.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("box", "fault"),
    [
        ([10, 10, 20, 20], BoxFault.NONE),
        ([-2, 10, 20, 20], BoxFault.OUTSIDE),
        ([630, 10, 20, 20], BoxFault.OUTSIDE),
        ([10, 470, 20, 20], BoxFault.OUTSIDE),
        ([700, 500, 20, 20], BoxFault.OUTSIDE),
        ([-30, 10, 20, 20], BoxFault.OUTSIDE),
        ([10, 10, -20, 20], BoxFault.REVERSED),
        ([10, 10, 20, -20], BoxFault.REVERSED),
        ([10, 10, 0, 20], BoxFault.EMPTY),
        ([10, 10, 20, 0], BoxFault.EMPTY),
        ([10, 10, 1e-9, 20], BoxFault.EMPTY),
        ([NAN, 10, 20, 20], BoxFault.NOT_NUMBERS),
        ([10, INF, 20, 20], BoxFault.NOT_NUMBERS),
        ([10, 10, 20, -INF], BoxFault.NOT_NUMBERS),
        ([1e308, 10, 1e308, 20], BoxFault.NOT_NUMBERS),
        ([0.1, 0.2, 0.5, 0.5], BoxFault.NORMALISED),
        ([0, 0, 1, 1], BoxFault.NORMALISED),
    ],
)
def test_fault_131_every_kind_of_bad_box(box: list[float], fault: BoxFault) -> None:
    """Outside, no area, negative, fractions, NaN: each is found, in both forms."""
    x, y, width, height = box
    assert faults(box) == [fault]
    with np.errstate(over="ignore"):
        corners = [x, y, np.float64(x) + width, np.float64(y) + height]
    if fault is not BoxFault.EMPTY or 0 in box:
        assert faults(corners, form=BoxForm.XYXY) == [fault]
    found = check_boxes([box], [SIZE], form=BoxForm.XYWH).relative
    assert (found == 0).all() == (fault is not BoxFault.NONE)


def test_clip() -> None:
    """Clipping cuts boxes at the edges and fixes nothing else."""
    boxes = [[-50, -50, 320, 240], [700, 0, 800, 10], [30, 0, 20, 10], [0, 0, 0, 9]]
    found = check_boxes(boxes, [SIZE] * 4, form=BoxForm.XYXY, clip=True)
    assert found.relative[0].tolist() == [0, 0, 0.5, 0.5]
    assert found.faults.tolist() == [
        BoxFault.NONE,
        BoxFault.OUTSIDE,
        BoxFault.REVERSED,
        BoxFault.EMPTY,
    ]


def test_relative_boxes_are_checked_with_a_size_of_one() -> None:
    """Shares stay unchanged; pixels among them are out of range."""
    boxes: list[list[float]] = [[0.1, 0.1, 0.9, 0.9], [0, 0, 1, 1], [10, 10, 20, 20]]
    options: dict[str, Any] = {"form": BoxForm.XYXY, "size": (1, 1), "tolerance": 1e-6}
    assert faults(*boxes, **options) == [0, 0, BoxFault.OUTSIDE]


def naive(box: list[float], size: tuple[int, int], tolerance: int) -> BoxFault:
    """The rules of the module's table, one box at a time, in exact numbers."""
    if not all(map(math.isfinite, box)):
        return BoxFault.NOT_NUMBERS
    x0, y0, x1, y1 = map(fractions.Fraction, box)
    if x1 < x0 or y1 < y0:
        return BoxFault.REVERSED
    if x1 == x0 or y1 == y0:
        return BoxFault.EMPTY
    width, height = size
    if min(size) > 1 and min(x0, y0) >= 0 and max(x1, y1) <= 1:
        return BoxFault.NORMALISED
    if min(x0, y0) < -tolerance or x1 > width + tolerance or y1 > height + tolerance:
        return BoxFault.OUTSIDE
    if x1 <= 0 or y1 <= 0 or x0 >= width or y0 >= height:
        return BoxFault.OUTSIDE
    return BoxFault.NONE


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
    found = check_boxes(boxes, sizes, form=BoxForm.XYXY, tolerance=tolerance)
    assert found.faults.tolist() == [naive(*case, tolerance) for case in cases]
    for (box, (width, height)), shares in zip(cases, found.relative, strict=True):
        if shares.any():
            wanted = np.clip(np.divide(box, [width, height] * 2), 0, 1)
            assert shares.tolist() == wanted.astype(np.float32).tolist()
            assert (shares[2:] > shares[:2]).all()


def test_nothing_is_changed_and_no_box_is_accepted() -> None:
    """The given array stays unchanged; an empty one is accepted."""
    boxes = np.array([[5.0, 5.0, 10.0, 10.0]])
    check_boxes(boxes, [SIZE], form=BoxForm.XYWH)
    assert boxes.tolist() == [[5, 5, 10, 10]]
    empty = check_boxes([], [], form=BoxForm.XYWH)
    assert empty.relative.shape == (0, 4)
    assert len(empty.faults) == 0


@pytest.mark.parametrize("fault", [fault for fault in BoxFault if fault])
def test_descriptions_have_the_values(fault: BoxFault) -> None:
    """A message holds the four numbers, what they are, and the size."""
    text = describe(fault, [NAN, -1.5, 700, 1e9], SIZE, BoxForm.XYWH)
    for part in ("nan, -1.5, 700, 1000000000", "640 x 480", "x, y, width, height"):
        assert part in text
