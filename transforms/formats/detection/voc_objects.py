"""Check the objects of Pascal VOC files and turn them into rows."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.boxes import BoxFault, BoxForm, check_boxes, describe
from transforms.core.reasons import Fault, Reason
from transforms.formats.detection.boxed_rows import Judged
from transforms.formats.detection.voc_xml import VocImage, VocObject

# Faults of objects in addition to those of `BoxFault`, well above its numbers.
_NO_NAME = 101
_UNKNOWN_NAME = 102
_NOT_A_FLAG = 103

# The most names that a message lists.
_SHOWN_NAMES = 10


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Objects(Judged):
    """The n objects of some images.

    Attributes:
      items: as they are written.
      numbers: of each its number in its file, from 1.
      sizes: float64 array (n, 2), width and height of each one's image.
      unsized: why an image that has objects and no size is no row, by position.
      classes: the class names by id, from 1.
    """

    items: Sequence[VocObject]
    numbers: Sequence[int]
    sizes: npt.NDArray[np.float64]
    unsized: Mapping[int, Fault]
    classes: tuple[str, ...]

    def complaint(self, index: int) -> Fault:
        """Returns why the object at `index` is bad, with its values."""
        item, fault = self.items[index], int(self.faults[index])
        found = f"object {self.numbers[index]}"
        if fault == _NO_NAME:
            return Fault(Reason.MISSING_VALUE, f"{found} has no <name>")
        found += f", {item.name[:60]!r}: "
        if fault == _UNKNOWN_NAME:
            known = ", ".join(map(repr, self.classes[:_SHOWN_NAMES]))
            more = ", ..." if len(self.classes) > _SHOWN_NAMES else ""
            return Fault(Reason.UNKNOWN_LABEL, f"{found}the names are {known}{more}")
        if fault == _NOT_A_FLAG:
            wrong = "truncated" if item.truncated is None else "difficult"
            return Fault(Reason.NOT_A_BOOL, f"{found}<{wrong}> must be 0 or 1")
        if fault == BoxFault.NOT_NUMBERS:
            words = "bndbox must hold xmin, ymin, xmax and ymax as finite numbers"
            return Fault(Reason.BAD_BOX, f"{found}{words}; found {list(item.stated)}")
        words = describe(BoxFault(fault), item.box, self.sizes[index], BoxForm.XYXY)
        return Fault(Reason.BAD_BOX, found + words)


def judge(
    images: Sequence[VocImage],
    classes: tuple[str, ...],
    *,
    first_pixel: int,
    clip: bool,
) -> Objects:
    """Returns the objects of some images, judged.

    Args:
      images: m of them.
      classes: their names by id, from 1.
      first_pixel: the number of the first pixel of a row or column.
      clip: see `check_boxes`.
    """
    items = [item for image in images for item in image.objects]
    sizes = np.array(
        # An image without a size is refused as a whole: any size will do here.
        [(i.width or 1, i.height or 1) for i in images for _ in i.objects],
        np.float64,
    ).reshape(-1, 2)
    boxes = np.array([item.box for item in items], np.float64).reshape(-1, 4)
    boxes[:, :2] -= first_pixel
    checked = check_boxes(boxes, sizes, form=BoxForm.XYXY, clip=clip)
    ids = {name: number for number, name in enumerate(classes, start=1)}
    labels = np.array([ids.get(item.name, 0) for item in items], np.int64)
    flags = [None in (item.truncated, item.difficult) for item in items]
    # An object has one fault: each rule overrides those above it.
    faults = checked.faults.astype(np.uint8)
    faults[np.array(flags, bool)] = _NOT_A_FLAG
    faults[labels == 0] = _UNKNOWN_NAME
    faults[np.array([not item.name for item in items], bool)] = _NO_NAME
    return Objects(
        items=items,
        numbers=[n for image in images for n in range(1, len(image.objects) + 1)],
        faults=faults,
        relative=checked.relative,
        names=pa.array([item.name for item in items], pa.string()),
        labels=labels,
        sizes=sizes,
        unsized={i: _unsized(im) for i, im in enumerate(images) if _lacks_size(im)},
        classes=classes,
    )


def _lacks_size(image: VocImage) -> bool:
    return bool(image.objects) and (image.width is None or image.height is None)


def _unsized(image: VocImage) -> Fault:
    width, height = image.stated
    message = (
        f"its boxes in pixels need the image's size, two positive whole numbers; "
        f"stated are width {width!r}, height {height!r}"
    )
    return Fault(Reason.OUT_OF_RANGE, message)
