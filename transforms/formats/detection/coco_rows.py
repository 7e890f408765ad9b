"""Check the images and annotations of a COCO file, and turn them into rows."""

import dataclasses
import os
import posixpath
import re
from collections.abc import Callable, Mapping

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
from transforms.errors import InputError
from transforms.formats.detection.boxed_rows import Judged, Mask, Numbers, root_of
from transforms.formats.detection.coco_json import CocoFile
from transforms.formats.table import InputFile
from transforms.storage.files import storage
from transforms.storage.paths import spellings

# Faults of annotations in addition to those of `BoxFault`, well above its numbers.
_NO_IMAGE = 101
_NO_CATEGORY = 102
_NOT_A_BOX = 103
_NO_AREA = 104

# An outline in COCO's other form.
_RUNS = re.compile(r'"segmentation": \{')
# Look for this many images in each candidate folder: enough to tell folders apart
# even where some files are missing.
_PROBED_IMAGES = 16


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


def image_folder(file: InputFile, coco: CocoFile) -> str:
    """Returns the folder of the images, relative to the root where it can be.

    Raises:
      InputError: no image is where images usually are.
    """
    root = root_of(file)
    candidates = _image_folders(file.origin)
    names = coco.images["file_name"].drop_null()
    probed = np.linspace(0, len(names) - 1, min(_PROBED_IMAGES, len(names)))
    shown = [names[int(i)].as_py() for i in probed]
    hits = [
        sum(_exists(os.path.join(root, folder), name) for name in shown)
        for folder in candidates
    ]
    best = max(range(len(candidates)), key=hits.__getitem__)
    if shown and not hits[best]:
        places = ", ".join(repr(folder or ".") for folder in candidates)
        raise InputError(
            f"The images of {file.path!r}, {shown[0]!r} for one, must lie in one "
            f"of these folders below {root!r}: {places}. Found none there. Say "
            f"where they are with images_root."
        )
    return candidates[best]


def _exists(folder: str, name: str) -> bool:
    return any(storage(os.path.join(folder, each)).exists() for each in spellings(name))


def _image_folders(origin: str) -> list[str]:
    """Returns folders that may hold the images, relative to the root, likely first.

    Those of `annotations/instances_train2017.json` are in `train2017` as a rule.
    """
    folder, name = posixpath.split(origin)
    stem = name.rpartition(".")[0]
    tails = [stem.partition("_")[2], stem.rpartition("_")[2], stem]
    above = posixpath.join(folder, "..") if folder else ".."
    found = []
    for base in (folder, above):
        found.append(base)
        for inner in ("", "images"):
            found += [posixpath.join(base, inner, tail) for tail in tails if tail]
        found.append(posixpath.join(base, "images"))
    plain = [posixpath.normpath(path) for path in found]
    return list(dict.fromkeys("" if path == "." else path for path in plain))


def whole_pixels(sizes: pa.Array) -> pa.Array:
    """Returns pixels as int64; null where they are no positive whole number."""
    whole = pc.and_(pc.equal(sizes, pc.floor(sizes)), pc.greater(sizes, 0))
    whole = pc.and_(whole, pc.less(sizes, 2.0**31))
    return pc.if_else(whole, sizes, pa.scalar(None, pa.float64())).cast(pa.int64())


def sized(
    images: pa.RecordBatch,
    needed: npt.NDArray[np.bool_],
    size_of: Callable[[int], tuple[int, int] | Fault],
) -> tuple[pa.RecordBatch, dict[int, Fault]]:
    """Returns images with the sizes that they do not state, and why some have none.

    Args:
      images: n of them; a side that is null or 0 states no size.
      needed: n bools, whether the size of each is needed.
      size_of: gives width and height of the image at a position.
    """
    columns = {name: images[name] for name in ("width", "height")}
    zero = [pc.fill_null(pc.equal(column, 0), True) for column in columns.values()]
    lacking = np.flatnonzero(numpy_mask(pc.or_(*zero)) & needed).tolist()
    faults: dict[int, Fault] = {}
    if not lacking:
        return images, faults
    values = {name: column.to_pylist() for name, column in columns.items()}
    for i in lacking:
        size = size_of(i)
        if isinstance(size, Fault):
            faults[i] = size
        else:
            values["width"][i], values["height"][i] = size
    for name, column in values.items():
        index = images.schema.get_field_index(name)
        images = images.set_column(index, name, pa.array(column, pa.float64()))
    return images, faults


def unusable(
    images: pa.RecordBatch,
    found: Annotations,
    parents: npt.NDArray[np.int64],
) -> dict[int, Fault]:
    """Returns why images cannot be rows, by their position.

    Args:
      images: n of them.
      found: their annotations.
      parents: the position among the n of each annotation's image.
    """
    refused: dict[int, Fault] = {}
    for field in ("id", "file_name"):
        lacks = images[field].is_null()
        if field == "file_name":
            lacks = pc.or_kleene(lacks, pc.equal(images[field], ""))
        fault = Fault(Reason.MISSING_VALUE, f"the image has no {field}")
        for i in np.flatnonzero(lacks.to_numpy(zero_copy_only=False)).tolist():
            refused.setdefault(i, fault)
    boxed = np.bincount(parents[found.is_box], minlength=len(images)) > 0
    sizes = {name: whole_pixels(images[name]) for name in ("height", "width")}
    lacks = pc.or_(sizes["height"].is_null(), sizes["width"].is_null())
    unsized = lacks.to_numpy(zero_copy_only=False)
    for i in np.flatnonzero(unsized & boxed).tolist():
        stated = ", ".join(f"{name} {images[name][i].as_py()}" for name in sizes)
        message = (
            f"its boxes in pixels need the image's size, two positive whole numbers; "
            f"stated are {stated}"
        )
        refused.setdefault(i, Fault(Reason.OUT_OF_RANGE, message))
    return refused
