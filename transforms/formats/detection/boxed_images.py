"""Annotated images as rows: the one reader of boxes, key points and masks.

    a layout -> ImageObjects, the objects of an image -> BoxedReader.rows_of -> RawRows

A layout knows syntax alone. A row is an image. Its boxes, their class names and ids are
lists that run parallel. A bad box is a rejection of its own, or takes its image with
it: see `BoxedReader`. Fields are named as the TF Object Detection API does.
"""

import abc
import collections
import dataclasses
import functools
import os
import posixpath
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.arrays import list_of
from transforms.core.image.masks import object_mask
from transforms.core.image.png import encode_class_png
from transforms.core.image.policy import ImagePolicy
from transforms.core.model import Block
from transforms.core.reasons import Fault, FaultError, Reason, Rejection
from transforms.formats.detection.objects import (
    ANY_SIZE,
    BOXES,
    ENCODED,
    OBJECT,
    OBJECT_MASK,
    POINT,
    RULES,
    SIDES,
    TOLERANCE_PIXELS,
    BoxedObject,
    Found,
    ImageObjects,
    about,
    check_boxes,
    rejection,
    size_of_image,
)
from transforms.formats.file_runs import RunReader
from transforms.formats.pairs import MASK, MASK_WORDS, masks_in
from transforms.formats.raw_rows import Complaint, RawRows, rejecter
from transforms.formats.table import TableFormat
from transforms.storage.files import read_ahead
from transforms.storage.paths import is_remote

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]
# Images of a sample whose sizes are read where nothing states them: a plan shows these.
_LOOKED_INTO = 4
# The Arrow types of lists that are no int64.
_TYPES = {"area": pa.float32(), "view": pa.string()}


@dataclasses.dataclass(frozen=True, slots=True)
class BoxedReader(TableFormat, RunReader):
    """Reads annotated images.

    Attributes:
      bad_box: what becomes of a bad box: "box" rejects it alone and keeps its image;
        "image" rejects the image with all of its boxes; "clip" cuts off what is outside
        of the image, and is as "box" otherwise.
      images_root: folder of the images, relative to the source's root or absolute;
        empty to look where they usually are.
      masks: "all" stores a mask of each object, and a folder the masks of classes in
        it; see `--masks`.
      image_policy: what the job does to images: turned ones have another size.
      class_ids: by the name of the class.
      fractions: whether boxes are fractions of the image, not pixels.
      values: ends of the names of lists that some object has a value for.
      points: the most key points of an object; 0 where none has any.
      named_points: whether some have names.
    """

    image_base: ClassVar[Literal["file", "root"]] = "root"
    # Whether boxes are x, y, width, height; not xmin, ymin, xmax, ymax.
    sized: ClassVar[bool] = False
    # What a file with the objects of one image is called; empty where none has.
    what: ClassVar[str] = ""
    # The column of splits.
    split_name: ClassVar[str] = "image set"
    # Whether a row is known by its annotation, not its image, and has a place of its
    # own among the shards, not that of its block.
    by_annotation: ClassVar[bool] = True
    has_place: ClassVar[bool] = True
    # By how much boxes may cross an edge.
    tolerance: ClassVar[float] = TOLERANCE_PIXELS
    # The number of the first pixel of a row or column.
    first_pixel: ClassVar[int] = 0

    bad_box: str = "box"
    images_root: str = ""
    masks: str = "auto"
    image_policy: ImagePolicy = dataclasses.field(default_factory=ImagePolicy)
    class_ids: Mapping[str, int] = dataclasses.field(default_factory=dict)
    fractions: bool = False
    values: tuple[str, ...] = ()
    points: int = 0
    named_points: bool = False

    @abc.abstractmethod
    def objects_of(self, row: Mapping[str, Any], root: str) -> Found:
        """Returns the objects of an image.

        Args:
          row: what planning knows of it; see `rows_of`.
          root: the source's.
        """

    def gone_parts(self, row: Mapping[str, Any]) -> int:
        """Returns how many objects planning knows of a row that is no image's."""
        return 0

    def class_masks(
        self, rows: Sequence[Mapping[str, Any]], root: str, images: Sequence[str]
    ) -> dict[str, pa.Array]:
        """Returns the column of masks in the folder of `masks`; none without one.

        Args:
          rows: of the images.
          root: the source's.
          images: paths, relative to it or absolute.
        """
        if self.masks in MASK_WORDS:
            return {}
        masks = map(masks_in(self.masks).of_any, images)
        paths = [mask and os.path.join(self.masks, mask) for mask in masks]
        return {MASK: pa.array(paths, pa.string())}

    def rows_of(
        self,
        rows: Sequence[Mapping[str, Any]],
        root: str,
        block: Block,
        *,
        is_sample: bool = False,
    ) -> RawRows:
        """Returns images with those of their boxes that are good.

        Complaints call an image by its place in `rows`: see `RawRows.places`.

        Args:
          rows: of a listing, as `listed` draws them, perhaps with `row` and `line`;
            and what `objects_of` needs.
          root: the source's.
          block: what they are of.
          is_sample: whether only the first images are looked into, for their sizes.
        """
        reasons = [row["reason"] or "" for row in rows]

        def found_in(i: int) -> Found:
            if reasons[i]:
                return Fault(Reason(reasons[i]), rows[i]["message"]), rows[i].get("raw")
            return self.objects_of(rows[i], root)

        looked_at = [i for i, it in enumerate(reasons) if not it.startswith("/")]
        found = read_ahead(found_in, looked_at, far=bool(self.what) and is_remote(root))
        parsed = dict(zip(looked_at, found, strict=True))
        read = [i for i, (image, _) in parsed.items() if not isinstance(image, Fault)]
        images = [im for im, _ in parsed.values() if not isinstance(im, Fault)]
        refused = [(i, *im) for i, (im, _) in parsed.items() if isinstance(im, Fault)]
        away = {*range(len(rows))} - {*read}
        gone = sum(self.gone_parts(rows[i]) for i in away)
        objects = [item for image in images for item in image.objects]
        parents = np.repeat(
            np.arange(len(images)), [len(image.objects) for image in images]
        )
        paths = [im.path or rows[i]["path"] for i, im in zip(read, images, strict=True)]

        @functools.cache
        def size_of(i: int) -> tuple[int, int] | Fault:
            if is_sample and (self.fractions or i >= _LOOKED_INTO):
                return ANY_SIZE
            size = size_of_image(root, paths[i], self.image_policy)
            return ANY_SIZE if is_sample and isinstance(size, Fault) else size

        named = zip(images, paths, strict=True)
        names = [im.name or posixpath.basename(path) for im, path in named]
        ids = [im.source_id or n for im, n in zip(images, names, strict=True)]
        columns = {
            ENCODED: pa.array(paths, pa.string()),
            "image/filename": pa.array(names, pa.string()),
            "image/source_id": pa.array(ids, pa.string()),
        }
        columns |= self.class_masks([rows[i] for i in read], root, paths)
        sizes = np.ones((len(images), 2))
        lost: dict[int, Fault] = {}
        if not self.fractions:
            stated, sizes, lost = _sizes(images, size_of)
            columns |= stated
        relative, points, faults = self._checked(objects, sizes[parents])
        drawn: dict[int, bytes] = {}
        for i in range(len(objects)) if self.masks == "all" else ():
            parent = int(parents[i])
            if i in faults or parent in lost:
                continue
            size = size_of(parent) if self.fractions else tuple(sizes[parent])
            mask = self._drawn(objects[i], size, relative[i])
            if isinstance(mask, Fault):
                faults[i] = about(objects[i], *mask)
            else:
                drawn[i] = mask
        if self.bad_box == "image":
            for i in sorted(faults):
                lost.setdefault(int(parents[i]), faults[i])
        stays = ~np.isin(np.arange(len(images)), list(lost))
        has_row = stays[parents]
        keep = has_row.copy()
        keep[[*faults]] = False
        kept = np.flatnonzero(keep).tolist()
        counts = np.bincount(parents[keep], minlength=len(images))[stays]
        places = np.array(read, np.int64)[stays]
        columns = {n: values.filter(pa.array(stays)) for n, values in columns.items()}
        sides = pa.array(relative[keep].ravel())
        boxes = pa.FixedSizeListArray.from_arrays(sides, 4)
        columns[f"{OBJECT}bbox"] = list_of(boxes, counts)
        lists = self._lists([objects[i] for i in kept], points[keep])
        if self.masks == "all":
            masks = [drawn[i] for i in kept]
            lists[OBJECT_MASK] = pa.array(masks, pa.large_binary())
        # Of key points an object has several.
        columns |= {
            name: list_of(values, counts * (len(values) // max(len(kept), 1)))
            for name, values in lists.items()
        }
        of_rows = [rows[i] for i in places.tolist()]
        splits = [row["split"] for row in of_rows]
        columns[self.split_name] = pa.array(splits, pa.string())
        known_by = "annotation" if self.by_annotation else "path"
        positions = np.array([row["position"] for row in of_rows], np.int64)

        def rejected(complaint: Complaint) -> Rejection:
            i, reason, message = complaint
            at = rows[i].get("row"), rows[i].get("line")
            return rejection(rows[i], Fault(reason, message), parsed[i][1], *at)

        def bad_box(i: int) -> Rejection:
            row, item = rows[read[parents[i]]], objects[i]
            return rejection(row, faults[i], item.raw, item.row, item.line, part=BOXES)

        skipped = collections.Counter(r[1:] for r in reasons if r.startswith("/"))
        return RawRows(
            block,
            columns,
            np.array([row.get("row") or 0 for row in of_rows], np.int64),
            refused=[*refused, *((read[i], *fault) for i, fault in lost.items())],
            reject=rejecter(rejected),
            places=places,
            origins=pa.array([row[known_by] for row in of_rows], pa.string()),
            stamps=pa.array([row["stamp"] for row in of_rows], pa.int64()),
            positions=positions if self.has_place else None,
            parts={BOXES: len(objects) + gone},
            parts_gone={BOXES: int((~has_row).sum()) + gone},
            part_rejections=[bad_box(i) for i in sorted(faults) if has_row[i]],
            parts_each={BOXES: counts},
            skipped=dict(skipped),
        )

    def _checked(
        self, objects: Sequence[BoxedObject], extents: Floats
    ) -> tuple[npt.NDArray[np.float32], Floats, dict[int, Fault]]:
        """Returns the boxes of m objects, their key points, and what is wrong of some.

        Args:
          objects: of all images.
          extents: (m, 2), width and height of the image of each.
        """
        given = np.array([item.box for item in objects], np.float64).reshape(-1, 4)
        clip = self.bad_box == "clip"
        relative, broken = check_boxes(
            given - np.array([self.first_pixel] * 2 + [0, 0]),
            extents,
            sized=self.sized,
            tolerance=self.tolerance,
            clip=clip,
        )
        faults: dict[int, Fault] = {}
        form = "x, y, width, height" if self.sized else "xmin, ymin, xmax, ymax"
        for i in np.flatnonzero(broken).tolist():
            numbers = ", ".join(f"{value:.10g}" for value in given[i].tolist())
            of = "in fractions, 0 to 1"
            if not self.fractions:
                of = "in an image of {:g} x {:g} pixels".format(*extents[i])
            words = f"box ({form}) [{numbers}] {of}: {RULES[broken[i]]}"
            faults[i] = about(objects[i], Reason.BAD_BOX, words)
        for i, item in enumerate(objects):
            if item.fault is not None:
                faults[i] = item.fault
            elif not item.name and i not in faults:
                faults[i] = about(item, Reason.MISSING_VALUE, "it has no class")
        flat = np.zeros((len(objects), self.points * 3))
        for i, item in enumerate(objects if self.points else ()):
            # Points beyond those of other files are placeholders: none is labelled.
            labelled = (item.points or ())[: self.points * 3]
            flat[i, : len(labelled)] = labelled
        points = flat.reshape(len(objects), self.points, 3)
        # Not labelled, hidden, visible.
        odd = ~np.isin(points[:, :, 2], (0, 1, 2))
        inside = (points[:, :, :2] >= -self.tolerance) & (
            points[:, :, :2] <= extents[:, None, :] + self.tolerance
        )
        outside = (points[:, :, 2] > 0) & ~inside.all(axis=2)
        wrong = odd if clip else odd | outside
        for i in np.flatnonzero(wrong.any(axis=1)).tolist():
            number = int(np.flatnonzero(wrong[i])[0])
            x, y, visibility = points[i, number].tolist()
            rule = "labelled key points must be inside of the image"
            if odd[i, number]:
                rule = "the visibility of key points must be 0, 1 or 2"
            shown = f"point {number + 1} is {x:.10g}, {y:.10g}, {visibility:.10g}"
            fault = about(objects[i], Reason.BAD_BOX, f"{rule}; {shown}")
            faults.setdefault(i, fault)
        # In fractions; what is not labelled is zeros.
        with np.errstate(invalid="ignore"):
            points[:, :, :2] = np.clip(points[:, :, :2] / extents[:, None, :], 0, 1)
        points[(points[:, :, 2] <= 0) | outside] = 0
        return relative, points, faults

    def _drawn(
        self, item: BoxedObject, size: tuple[float, float] | Fault, box: Floats
    ) -> bytes | Fault:
        """Returns the mask of an object as PNG; nothing where a sample knows no size.

        Args:
          item: the object.
          size: width and height of its image, or why there is none.
          box: in fractions.
        """
        if isinstance(size, Fault):
            return size
        width, height = map(int, size)
        if (width, height) == ANY_SIZE:
            return b""
        if width * height > self.image_policy.max_pixels:
            words = (
                f"masks of {width} x {height} pixels: more than "
                f"{self.image_policy.max_pixels:,}"
            )
            return Fault(Reason.TOO_MANY_PIXELS, words)
        corners = (box * (width, height, width, height)).tolist()
        try:
            draw = item.draw or functools.partial(object_mask, None)
            return encode_class_png(draw(height, width, corners))
        except FaultError as error:
            return error.fault

    def _lists(
        self, objects: Sequence[BoxedObject], points: Floats
    ) -> dict[str, pa.Array]:
        """Returns what is stored of objects beside boxes and masks, by feature.

        Args:
          objects: those that are good.
          points: their key points, as `_checked` gives them.
        """
        names = [item.name for item in objects]
        labels = [self.class_ids.get(name, 0) for name in names]
        lists = {
            f"{OBJECT}class/text": pa.array(names, pa.string()),
            f"{OBJECT}class/label": pa.array(labels, pa.int64()),
        }
        for end in self.values:
            kind = _TYPES.get(end, pa.int64())
            absent = "" if kind == pa.string() else 0
            values = [item.values.get(end, absent) for item in objects]
            lists[f"{OBJECT}{end}"] = pa.array(values, kind)
        if self.points:
            seen = points[:, :, 2].astype(np.int64)
            for axis, name in enumerate("xy"):
                series = points[:, :, axis].astype(np.float32)
                lists[f"{POINT}{name}"] = pa.array(series.ravel())
            lists[f"{POINT}visibility"] = pa.array(seen.ravel())
            lists[f"{POINT}num"] = pa.array((seen > 0).sum(axis=1))
        if self.named_points:
            texts = [
                [*item.point_names, *[""] * (self.points - len(item.point_names))]
                for item in objects
            ]
            flat = [text for series in texts for text in series]
            lists[f"{POINT}text"] = pa.array(flat, pa.string())
        return lists


def _sizes(
    images: Sequence[ImageObjects], size_of: Callable[[int], tuple[int, int] | Fault]
) -> tuple[dict[str, pa.Array], Floats, dict[int, Fault]]:
    """Returns the stated sizes of images as columns, those to divide by, and why not.

    A size that is not stated, or 0, is that of the image itself; only images with
    objects need one. The shard's writer compares it with that of the file.
    """
    lost: dict[int, Fault] = {}
    stated = [[image.width for image in images], [image.height for image in images]]
    for i, image in enumerate(images):
        if image.objects and not (image.width and image.height):
            size = size_of(i)
            if isinstance(size, Fault):
                lost[i] = size
            else:
                stated[0][i], stated[1][i] = size
    sides = np.array(stated, np.float64).reshape(2, -1)
    whole = (sides > 0) & (sides < 2.0**31) & (sides == np.floor(sides))
    for i in np.flatnonzero(~whole.all(axis=0)).tolist():
        message = (
            f"its boxes in pixels need the image's size, two positive whole numbers; "
            f"stated are height {stated[1][i]}, width {stated[0][i]}"
        )
        if images[i].objects:
            lost.setdefault(i, Fault(Reason.OUT_OF_RANGE, message))
    sizes = np.where(whole, sides, 1)
    columns = {
        f"image/stated_{side}": pa.array(sizes[i].astype(np.int64), mask=~whole[i])
        for i, side in enumerate(SIDES)
    }
    return columns, sizes.T, lost
