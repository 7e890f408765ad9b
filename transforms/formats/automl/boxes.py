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
import pyarrow as pa

from transforms.core.boxes import BoxFault, BoxForm, check_boxes
from transforms.core.reasons import Fault, Reason
from transforms.formats.automl.manifest import Item, Mention
from transforms.formats.detection.boxed_rows import Judged

# Boxes that cross an edge by less end at the edge: rounding to a few decimals does
# this to boxes that touch it.
_TOLERANCE = 1e-3
_NUMBERS = 8
# A fault in addition to those of `BoxFault`, with room for more of them.
_NO_LABEL = 101
_WORDS = {
    BoxFault.NOT_NUMBERS: "finite numbers are needed",
    BoxFault.REVERSED: "the first corner must be the upper left one",
    BoxFault.EMPTY: "it has no area",
    BoxFault.OUTSIDE: "it must lie inside the image: fractions from 0 to 1 are needed",
}


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Boxes(Judged):
    """n boxes of some images, in their order.

    Attributes:
      mentions: n rows.
      parents: int64 array of n: positions of their images.
      wrong: why each row states no two corners; empty where it does.
    """

    mentions: Sequence[Mention]
    parents: npt.NDArray[np.int64]
    wrong: Sequence[str]

    def complaint(self, index: int) -> Fault:
        """Returns why the bad box at `index` is bad, with its values."""
        mention, fault = self.mentions[index], int(self.faults[index])
        row = f"row {mention.row + 1}"
        if fault == _NO_LABEL:
            return Fault(Reason.MISSING_VALUE, f"{row}: the box has no label")
        name, shown = mention.rest[0].strip(), ",".join(mention.rest[1:])[:120]
        words = self.wrong[index] or _WORDS[BoxFault(fault)]
        return Fault(Reason.BAD_BOX, f"{row}: box of {name!r} [{shown}]: {words}")


def judge(items: Sequence[Item], classes: Sequence[str], *, clip: bool) -> Boxes:
    """Returns the boxes of images; a blank row has no box.

    Args:
      items: the images.
      classes: their names by id, from 1.
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
    names = [mention.rest[0].strip() for _, mention in found]
    ids = {name: number for number, name in enumerate(classes, start=1)}
    faults = checked.faults.astype(np.uint8)
    unnamed = np.array([not name for name in names], np.bool_)
    # Of two faults, the message names the one in the corners.
    faults[unnamed & (faults == 0)] = _NO_LABEL
    return Boxes(
        faults=faults,
        relative=checked.relative,
        names=pa.array(names, pa.string()),
        labels=np.array([ids.get(name, 0) for name in names], np.int64),
        mentions=[mention for _, mention in found],
        parents=np.array([position for position, _ in found], np.int64),
        wrong=[wrong for _, wrong in corners],
    )


def _corners(texts: Sequence[str]) -> tuple[list[float], str]:
    """Returns two opposite corners, or NaNs and what is wrong in words."""
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
