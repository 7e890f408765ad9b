"""The images of a COCO file: paths, sizes, and which cannot become rows."""

import os
import posixpath
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms import files
from transforms.core.arrays import numpy_mask
from transforms.core.reasons import Fault, Reason
from transforms.errors import InputError
from transforms.formats.detection.boxed_rows import root_of
from transforms.formats.detection.coco_annotations import Annotations
from transforms.formats.detection.coco_json import CocoFile
from transforms.formats.table import InputFile
from transforms.storage.paths import spellings

# Look for this many images in each candidate folder: enough to tell folders apart
# even where some files are missing.
_PROBED_IMAGES = 16


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
    return any(files.exists(os.path.join(folder, each)) for each in spellings(name))


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
