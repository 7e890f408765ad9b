"""Check the annotations of a COCO file and turn them into rows."""

import dataclasses
import re
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import numpy_mask
from transforms.core.boxes import (
    BoxFault,
    BoxForm,
    BoxPolicy,
    check_boxes,
    describe,
)
from transforms.core.reasons import Fault, Reason
from transforms.formats.detection.boxed_rows import Judged, Mask, Numbers
from transforms.formats.detection.coco_json import CocoFile

# Faults of annotations in addition to those of `BoxFault`, well above its numbers.
_NO_IMAGE = 101
_NO_CATEGORY = 102
_NOT_A_BOX = 103
_NO_AREA = 104

# An outline in COCO's other form.
_RUNS = re.compile(r'"segmentation": \{')


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Annotations(Judged):
    """n annotations: boxes, and captions, which have no faults.

    Attributes:
      raw: as the file has them.
      is_box: n bools; the others are captions.
      crowd: int64 array of n.
      areas: float32 array of n, in pixels; of the box where the file states none.
      sizes: float64 array (n, 2), width and height of each one's image.
    """

    raw: pa.RecordBatch
    is_box: Mask
    crowd: Numbers
    areas: npt.NDArray[np.float32]
    sizes: npt.NDArray[np.float64]

    @property
    def has_caption(self) -> Mask:
        """Which have a caption."""
        return numpy_mask(self.raw["caption"].is_valid())

    def captions(self, chosen: Mask) -> pa.StringArray:
        """Returns the captions of those chosen."""
        return self.raw["caption"].filter(pa.array(chosen))

    def complaint(self, index: int) -> Fault:
        """Returns why the annotation at `index` is bad, with its values."""
        row = self.raw.slice(index, 1).to_pylist()[0]
        fault = int(self.faults[index])
        found = f"annotation {row['id']}: "
        written = f"; it is {row['written']}" if row["written"] else ""
        if fault == _NO_IMAGE:
            return Fault(
                Reason.BAD_BOX,
                f"{found}it is of image {row['image_id']!r}, which is not in the file; "
                f"its box is {row['bbox']}",
            )
        if fault == _NO_CATEGORY:
            return Fault(
                Reason.UNKNOWN_LABEL,
                f"{found}category {row['category_id']!r} is not in the file's list"
                f"{written}",
            )
        if fault == _NOT_A_BOX:
            words = f"bbox must hold four numbers; found {row['bbox']}{written}"
            if not row["bbox"] and _RUNS.search(row["written"] or ""):
                words += ". No box is made of an outline of runs (RLE): add bbox"
            return Fault(Reason.BAD_BOX, found + words)
        if fault == _NO_AREA:
            words = f"area must be finite; found {row['area']}{written}"
            return Fault(Reason.BAD_BOX, found + words)
        box = [np.nan if value is None else value for value in row["bbox"]]
        words = describe(BoxFault(fault), box, self.sizes[index], BoxForm.XYWH)
        return Fault(Reason.BAD_BOX, found + words + written)


def judge(
    coco: CocoFile,
    chosen: Numbers,
    images: pa.RecordBatch,
    parents: Numbers,
    labels: Mapping[int, int],
    policy: BoxPolicy,
) -> Annotations:
    """Returns some annotations of a file, judged.

    Args:
      coco: the file.
      chosen: indices of the annotations.
      images: some of the file's, with their sizes.
      parents: the position among them of each one's image, or -1.
      labels: category id -> class id.
      policy: whether boxes are clipped.
    """
    raw = coco.taken(chosen)
    boxes, four = _corners(raw["bbox"])
    sizes = _sizes(images, parents)
    clip = policy is BoxPolicy.CLIP
    checked = check_boxes(boxes, sizes, form=BoxForm.XYWH, clip=clip)
    ids, names = zip(*coco.categories, strict=True) if coco.categories else ((), ())
    places = pc.index_in(
        raw["category_id"], value_set=pa.array(ids, pa.int64()), skip_nulls=True
    )
    known = numpy_mask(places.is_valid())
    areas = _areas(raw["area"], boxes)
    # An annotation has one fault: each rule overrides those above it.
    faults = checked.faults.astype(np.uint8)
    faults[~np.isfinite(areas) & (faults == 0)] = _NO_AREA
    faults[~four] = _NOT_A_BOX
    faults[~known] = _NO_CATEGORY
    faults[parents < 0] = _NO_IMAGE
    is_box = numpy_mask(pc.or_(raw["bbox"].is_valid(), raw["caption"].is_null()))
    faults[~is_box] = 0
    ranked = pa.array([labels[number] for number in ids], pa.int64())
    return Annotations(
        raw=raw,
        is_box=is_box,
        faults=faults,
        relative=checked.relative,
        labels=np.asarray(pc.fill_null(ranked.take(places), 0)),
        names=pa.array(names, pa.string()).take(places),
        crowd=np.asarray(pc.fill_null(raw["iscrowd"], 0)),
        areas=areas,
        sizes=sizes,
    )


def _corners(column: pa.ListArray) -> tuple[npt.NDArray[np.float64], Mask]:
    """Returns the numbers of each box, NaN for null, and which have four."""
    four = numpy_mask(pc.equal(pc.list_value_length(column), 4))
    boxes = np.full((len(column), 4), np.nan)
    values = column.filter(pa.array(four)).flatten()
    boxes[four] = values.to_numpy(zero_copy_only=False).reshape(-1, 4)
    return boxes, four


def _sizes(images: pa.RecordBatch, parents: Numbers) -> npt.NDArray[np.float64]:
    """Returns width and height for each parent; 1 where they are unusable."""
    columns = [images[name] for name in ("width", "height")]
    known = np.stack([c.to_numpy(zero_copy_only=False) for c in columns], axis=1)
    known = np.where(np.isfinite(known) & (known > 0), known, 1.0)
    return np.where((parents >= 0)[:, None], known[parents], 1.0)


def _areas(column: pa.Array, boxes: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    absent = numpy_mask(column.is_null())
    stated = column.to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore", invalid="ignore"):
        whole = np.where(absent, boxes[:, 2] * boxes[:, 3], stated)
        return whole.astype(np.float32)
