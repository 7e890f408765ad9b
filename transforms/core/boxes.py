"""Bounding boxes in pixels to relative boxes, and checks of them.

    x, y, width, height      COCO          -+
    xmin, ymin, xmax, ymax   Pascal VOC    -+->  xmin, ymin, xmax, ymax, 0 to 1, float32

Coordinates are pixels from the left and the top edge of the image, which are 0; the
right edge of an image of 640 columns is 640. Boxes are checked before they are changed:

| fault        | what is true of it                                               |
| ------------ | ---------------------------------------------------------------- |
| not_numbers  | it has a null, a NaN or an infinity                              |
| reversed     | its width or height is negative: xmax < xmin, or ymax < ymin     |
| empty        | its width or height is zero, or too small for float32            |
| normalised   | it is in the first pixel of a larger image: probably fractions   |
| outside      | it is outside the image, or crosses its edge beyond tolerance    |

A box that crosses an edge by at most the tolerance, as after rounding, is cut at the
edge.
"""

import dataclasses
import enum
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

# Tools round outwards, and differ in whether the last pixel belongs to a box.
TOLERANCE_PIXELS = 1.0

Floats = npt.NDArray[np.float64]


class BoxForm(enum.StrEnum):
    """The meaning of the four numbers of a box."""

    XYWH = "x, y, width, height"
    XYXY = "xmin, ymin, xmax, ymax"


class BoxFault(enum.IntEnum):
    """The fault of a box; see the module's docstring."""

    NONE = 0
    NOT_NUMBERS = 1
    REVERSED = 2
    EMPTY = 3
    NORMALISED = 4
    OUTSIDE = 5


class BoxPolicy(enum.StrEnum):
    """What becomes of a bad box."""

    # It is rejected alone; its image is kept.
    BOX = "box"
    # The image is rejected with all of its boxes.
    IMAGE = "image"
    # The part outside the image is cut off; otherwise as with BOX.
    CLIP = "clip"


_WORDS = {
    BoxFault.NOT_NUMBERS: "four finite numbers are needed",
    BoxFault.REVERSED: "its width and height must not be negative",
    BoxFault.EMPTY: "it has no area",
    BoxFault.NORMALISED: (
        "it lies within one pixel; fractions of the image, perhaps, where pixels are "
        "needed"
    ),
    BoxFault.OUTSIDE: "it must lie inside the image",
}


@dataclasses.dataclass(frozen=True, slots=True)
class CheckedBoxes:
    """The results of `check_boxes` for n boxes.

    Attributes:
      relative: float32 array (n, 4) of xmin, ymin, xmax, ymax from 0 to 1, minimum
        below maximum; zeros where the box is bad.
      faults: int8 array of n, of `BoxFault`.
    """

    relative: npt.NDArray[np.float32]
    faults: npt.NDArray[np.int8]


def check_boxes(
    boxes: npt.ArrayLike,
    sizes: npt.ArrayLike,
    *,
    form: BoxForm,
    tolerance: float = TOLERANCE_PIXELS,
    clip: bool = False,
) -> CheckedBoxes:
    """Returns boxes relative to their images, and the faults of bad ones.

    For boxes that are relative already, give sizes of 1 and a tolerance in that unit.

    Args:
      boxes: n x 4 numbers in pixels; NaN for missing ones.
      sizes: n x 2, width and height in pixels of each box's image; both above 0.
      form: the meaning of the four numbers.
      tolerance: pixels by which a box may cross an edge.
      clip: cut boxes at the edges, however far they cross them; boxes of which nothing
        remains are still `OUTSIDE`.
    """
    given = np.asarray(boxes, np.float64).reshape(-1, 4)
    extents = np.asarray(sizes, np.float64).reshape(-1, 2)
    corners = given.copy()
    with np.errstate(over="ignore", invalid="ignore"):
        if form is BoxForm.XYWH:
            corners[:, 2:] += corners[:, :2]
            spans = given[:, 2:]
        else:
            spans = corners[:, 2:] - corners[:, :2]
        cut = np.clip(corners.reshape(-1, 2, 2), 0.0, extents[:, None, :])
        relative = (cut / extents[:, None, :]).reshape(-1, 4).astype(np.float32)
        # In ascending precedence: each rule overwrites the faults of those above it.
        faults = np.zeros(len(given), np.int8)
        faults[~_has_area(relative)] = BoxFault.EMPTY
        reach = np.inf if clip else tolerance
        faults[_outside(corners, extents, reach)] = BoxFault.OUTSIDE
        tiny = (corners <= 1.0) & (corners >= 0.0)
        faults[tiny.all(1) & (extents > 1.0).all(1)] = BoxFault.NORMALISED
        faults[(spans == 0.0).any(1)] = BoxFault.EMPTY
        faults[(spans < 0.0).any(1)] = BoxFault.REVERSED
    faults[~np.isfinite(corners).all(1)] = BoxFault.NOT_NUMBERS
    relative[faults != BoxFault.NONE] = 0.0
    return CheckedBoxes(relative, faults)


def _has_area(relative: npt.NDArray[np.float32]) -> npt.NDArray[np.bool_]:
    return np.asarray((relative[:, 2:] > relative[:, :2]).all(1))


def _outside(corners: Floats, extents: Floats, reach: float) -> npt.NDArray[np.bool_]:
    """Returns which boxes cross an edge by more than `reach`, or miss the image."""
    low, high = corners[:, :2], corners[:, 2:]
    crosses = (low < -reach) | (high > extents + reach)
    apart = (high <= 0.0) | (low >= extents)
    return np.asarray((crosses | apart).any(1))


def describe(
    fault: BoxFault, box: Sequence[float], size: Sequence[float] | None, form: BoxForm
) -> str:
    """Returns a sentence about the fault of a box, with its values.

    Args:
      fault: what `check_boxes` found.
      box: its four numbers.
      size: width and height of its image; None for a box in fractions of it.
      form: the meaning of the four numbers.
    """
    numbers = ", ".join(f"{value:.10g}" for value in box)
    if size is None:
        return f"box ({form}) [{numbers}] in fractions, 0 to 1: {_WORDS[fault]}"
    width, height = size
    return (
        f"box ({form}) [{numbers}] in an image of {width:g} x {height:g} pixels: "
        f"{_WORDS[fault]}"
    )


def box_lists(relative: npt.NDArray[np.float32], counts: npt.ArrayLike) -> pa.ListArray:
    """Returns boxes in the form of rows: list<fixed_size_list<float>[4]>.

    Args:
      relative: (n, 4), image by image.
      counts: number of boxes of each image; they sum to n.
    """
    offsets = np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))
    flat = pa.array(np.ascontiguousarray(relative, np.float32).reshape(-1))
    sides = pa.FixedSizeListArray.from_arrays(flat, 4)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), sides)
