"""Boxes of AutoML manifests: corners of rows to boxes, and checks of them.

Coordinates are fractions of the image, 0 to 1, from its left and upper edge:

    x_min,y_min,x_max,y_min,x_max,y_max,x_min,y_max    four corners in turn
    x_min,y_min,,,x_max,y_max,,                        two that are across
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from transforms.core.boxes import BoxFault, BoxForm, check_boxes
from transforms.core.model import Reason
from transforms.core.reasons import Fault
from transforms.formats.automl.manifest import Item, Mention

__all__ = ["Boxes", "judge"]

# Boxes that cross an edge by less, as rounding makes them, end at the edge.
_TOLERANCE = 1e-3
_NUMBERS = 8
_WORDS = {
    BoxFault.NOT_NUMBERS: "finite numbers are needed",
    BoxFault.REVERSED: "the first corner must be the upper left one",
    BoxFault.EMPTY: "it has no area",
    BoxFault.OUTSIDE: "it must lie inside the image: fractions from 0 to 1 are needed",
}


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Boxes:
    """n boxes of some images, in their order.

    Attributes:
      mentions: n rows.
      parents: int64 array of n: positions of their images.
      names: n class names.
      relative: float32 array (n, 4): xmin, ymin, xmax, ymax; zeros for bad ones.
      faults: of each why it is bad, or None.
    """

    mentions: Sequence[Mention]
    parents: npt.NDArray[np.int64]
    names: Sequence[str]
    relative: npt.NDArray[np.float32]
    faults: Sequence[Fault | None]

    @property
    def is_bad(self) -> npt.NDArray[np.bool_]:
        """Which cannot go into a record."""
        return np.array([fault is not None for fault in self.faults], np.bool_)


def judge(items: Sequence[Item], *, clip: bool) -> Boxes:
    """Returns the boxes of images; a row that says nothing has none.

    Args:
      items: the images.
      clip: cut boxes at the image's edges, however far they cross them.
    """
    found = [
        (position, mention)
        for position, item in enumerate(items)
        for mention in item.mentions
        if not mention.is_blank
    ]
    corners = [_corners(mention.rest[1:]) for _, mention in found]
    numbers = np.array([box for box, _ in corners], np.float64).reshape(-1, 4)
    checked = check_boxes(
        numbers,
        np.ones((len(found), 2)),
        form=BoxForm.XYXY,
        tolerance=_TOLERANCE,
        clip=clip,
    )
    faults = [
        _fault(mention, wrong, BoxFault(int(code)))
        for (_, mention), (_, wrong), code in zip(
            found, corners, checked.faults, strict=True
        )
    ]
    return Boxes(
        [mention for _, mention in found],
        np.array([position for position, _ in found], np.int64),
        [mention.rest[0].strip() for _, mention in found],
        checked.relative,
        faults,
    )


def _corners(texts: Sequence[str]) -> tuple[list[float], str]:
    """Returns two corners that are across, or NaNs, and what is wrong in words."""
    texts = [text.strip() for text in texts]
    nothing = [math.nan] * 4
    if any(texts[_NUMBERS:]):
        return nothing, f"at most {_NUMBERS} coordinates are needed"
    texts = [*texts[:_NUMBERS], *[""] * (_NUMBERS - len(texts))]
    across = [*texts[0:2], *texts[4:6]]
    others = [*texts[2:4], *texts[6:8]]
    try:
        xmin, ymin, xmax, ymax = (float(text) for text in across)
        if any(others):
            right, top, left, bottom = (float(text) for text in others)
            turned = (right, top, left, bottom) != (xmax, ymin, xmin, ymax)
            if turned:
                return nothing, "its corners must be those of an upright rectangle"
    except ValueError:
        return nothing, "two corners, or four, of two numbers each are needed"
    return [xmin, ymin, xmax, ymax], ""


def _fault(mention: Mention, wrong: str, code: BoxFault) -> Fault | None:
    name = mention.rest[0].strip()
    if not name and not wrong and code is BoxFault.NONE:
        why = f"row {mention.row + 1}: the box has no label"
        return Fault(Reason.MISSING_VALUE, why)
    if not wrong and code is BoxFault.NONE:
        return None
    shown = ",".join(mention.rest[1:])[:120]
    words = wrong or _WORDS[code]
    why = f"row {mention.row + 1}: box of {name!r} [{shown}]: {words}"
    return Fault(Reason.BAD_BOX, why)
