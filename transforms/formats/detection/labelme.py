"""LabelMe's JSON as rows of images: a file an image, with its shapes.

    {"imagePath": "../images/a.jpg", "imageWidth": 640, "imageHeight": 480,
     "shapes": [{"label": "cat", "shape_type": "polygon", "group_id": null,
                 "points": [[x, y], [x, y], [x, y]]}]}

The box around a polygon, a rectangle, a circle (its centre and a point of it) or a mask
is an object; shapes of one label and one `group_id` are one object together, as in
LabelMe's own export to COCO. Points and lines are no objects. Where a path leads
nowhere, the image is the one beside the file that has its stem. Class ids count from 1,
by all names, sorted.

Source: wkentaro/labelme, `label_file.py` and `examples/instance_segmentation`.
"""

import base64
import dataclasses
import functools
import io
import itertools
import json
import math
import posixpath
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from PIL import Image

from transforms.core.image.masks import Mask as Pixels
from transforms.core.image.masks import object_mask
from transforms.core.reasons import Fault, FaultError, Reason
from transforms.formats.detection.listed import (
    ListedReader,
    class_ids,
    listing_of,
)
from transforms.formats.detection.objects import (
    NO_BOX,
    BoxedObject,
    Found,
    ImageObjects,
)
from transforms.formats.table import InputFile, Planned

# Kinds of shapes -> the least number of their points.
_KINDS = {"polygon": 3, "rectangle": 2, "circle": 2, "mask": 2}
_SHAPES = re.compile(rb'"shapes"\s*:\s*\[')
_OTHER_KEYS = re.compile(rb'"(imagePath|shape_type)"\s*:')
_LOOKED_AT = 64
# Of a circle that is drawn, as LabelMe's own export does.
_CORNERS = 64
# What is drawn of a shape: the corners of a polygon, or pixels as a PNG in base64 with
# the column and the row of the first.
_Piece = list[float] | tuple[str, int, int]


@dataclasses.dataclass(frozen=True, slots=True)
class LabelmeReader(ListedReader):
    """Reads LabelMe's files."""

    title: ClassVar[str] = "LabelMe JSON"
    what: ClassVar[str] = "LabelMe's"
    # A file may hold its image.
    most_bytes: ClassVar[int] = 64 << 20

    def plan(self, files: Sequence[InputFile]) -> Planned:
        """Parses all files for their images and classes.

        Raises:
          InputError: none is LabelMe's.
        """
        root = files[0].root
        paths = self.source_images(root)
        rows: list[dict[str, Any]] = []
        names: set[str] = set()
        others: list[str] = []
        objects = outlines = 0
        for row, image in self.listed_files(files, names, others):
            good = [shape for it in image.objects if not it.fault for shape in it.raw]
            objects += len(good)
            outlines += sum(s.get("shape_type") != "rectangle" for s in good)
            folder = posixpath.dirname(row["annotation"])
            row["path"] = paths.image(image.path, row["annotation"], folder)
            if row["split"] is None:
                row["split"] = self.split_of_image(row["path"])
            rows.append(row)
        reader = dataclasses.replace(self, class_ids=class_ids(names))
        return reader.planned(
            [listing_of(rows)],
            root,
            others=others,
            objects=objects,
            outlines=outlines,
        )

    def objects_of(self, row: Mapping[str, Any], root: str) -> Found:
        """Returns the objects of a file; its image is where the listing has it."""
        image, data = super(LabelmeReader, self).objects_of(row, root)
        if isinstance(image, Fault):
            return image, data
        return image._replace(path=""), None

    def parse(self, data: bytes) -> ImageObjects | None:
        """Returns what a file says; None for other JSON; raises ValueError."""
        content = json.loads(data.decode("utf-8-sig"))
        shapes = content.get("shapes") if isinstance(content, dict) else None
        if shapes is None:
            return None
        if not isinstance(shapes, list):
            raise ValueError("shapes must be a list")
        objects: list[BoxedObject] = []
        drawn: list[list[_Piece]] = []
        groups: dict[tuple[str, str], int] = {}
        for number, shape in enumerate(shapes, start=1):
            item, group, piece = _object(number, shape)
            index = groups.setdefault((item.name, group), len(objects))
            if group and item.fault is None and index < len(objects):
                objects[index] = _joined(objects[index], item)
                drawn[index].append(piece)
                continue
            if item.fault is not None:
                groups.pop((item.name, group), None)
            drawn.append([piece])
            objects.append(item._replace(draw=functools.partial(_drawn, drawn[-1])))
        image = content.get("imagePath")
        return ImageObjects(
            objects,
            _side(content.get("imageWidth")),
            _side(content.get("imageHeight")),
            image if isinstance(image, str) else "",
        )


def _drawn(
    pieces: Sequence[_Piece], height: int, width: int, box: Sequence[float]
) -> Pixels:
    """Returns the union of an object's polygons and masks; raises FaultError."""
    union = np.zeros((height, width), np.uint8)
    for piece in pieces:
        if isinstance(piece, list):
            union |= object_mask([piece], height, width, box)
            continue
        png, left, top = piece
        try:
            data = base64.b64decode(png, validate=True)
            with Image.open(io.BytesIO(data), formats=["PNG"]) as image:
                # Not more than the image has is read, whatever the header claims.
                right, bottom = left + image.width, top + image.height
                if min(left, top) < 0 or right > width or bottom > height:
                    message = f"its mask, {image.size}, crosses the edge of the image"
                    raise FaultError(Reason.BAD_MASK, message)
                drawn = np.asarray(image.convert("L")) > 0
        except (
            *(OSError, ValueError, SyntaxError),
            Image.DecompressionBombError,
        ) as error:
            message = "its mask is no PNG in base64"
            raise FaultError(Reason.BAD_MASK, message) from error
        union[top:bottom, left:right] |= drawn
    return union


def _object(number: int, shape: Any) -> tuple[BoxedObject, str, _Piece]:
    """Returns a shape as an object, its group, and what is drawn of it."""
    where = f"shape {number}"
    shape = shape if isinstance(shape, dict) else {}
    raw = {key: value for key, value in shape.items() if key != "mask"}
    label, kind = shape.get("label"), shape.get("shape_type") or "polygon"
    name = label if isinstance(label, str) else ""
    group = shape.get("group_id")
    fault = None
    box: Sequence[float] = NO_BOX
    piece: _Piece = []
    if kind not in _KINDS:
        message = f"{where}: {str(kind)[:60]!r} is no {', '.join(_KINDS)}"
        fault = Fault(Reason.UNSUPPORTED_FORMAT, message)
    else:
        try:
            box, piece = _shape(kind, shape.get("points"), shape.get("mask"))
        except (TypeError, ValueError, OverflowError):
            rule = f"a {kind} needs {_KINDS[kind]} points of two finite numbers"
            fault = Fault(Reason.BAD_BOX, f"{where}, {name[:60]!r}: {rule}")
    if name:
        where += f", {name[:60]!r}"
    item = BoxedObject(name, box, where, [raw], fault=fault)
    return item, "" if group is None else json.dumps(group), piece


def _shape(kind: str, points: Any, mask: Any) -> tuple[Sequence[float], _Piece]:
    """Returns the box around a shape and what is drawn of it.

    Raises what `_object` catches.
    """
    pairs = [(float(x), float(y)) for x, y in points]
    is_finite = all(map(math.isfinite, itertools.chain(*pairs)))
    if len(pairs) < _KINDS[kind] or not is_finite:
        raise ValueError
    if kind == "circle":
        (x, y), edge = pairs[:2]
        radius = math.dist((x, y), edge)
        box = x - radius, y - radius, x + radius, y + radius
        # As from the box, in whose numbers it is rounded.
        x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
        radius = (box[2] - box[0]) / 2
        turns = (2 * math.pi * i / _CORNERS for i in range(_CORNERS))
        pairs = [(x + radius * math.cos(t), y + radius * math.sin(t)) for t in turns]
        return box, [*itertools.chain(*pairs)]
    xs, ys = zip(*pairs, strict=True)
    left, top, right, bottom = box = min(xs), min(ys), max(xs), max(ys)
    if kind == "mask":
        return box, (mask if isinstance(mask, str) else "", int(left), int(top))
    if kind == "rectangle":
        return box, [left, top, right, top, right, bottom, left, bottom]
    return box, [*itertools.chain(*pairs)]


def _joined(one: BoxedObject, other: BoxedObject) -> BoxedObject:
    """Returns two shapes of a group as one object."""
    low = [min(a, b) for a, b in zip(one.box[:2], other.box[:2], strict=True)]
    high = [max(a, b) for a, b in zip(one.box[2:], other.box[2:], strict=True)]
    return one._replace(box=(*low, *high), raw=[*one.raw, *other.raw])


def _side(value: Any) -> float | None:
    """Returns a width or height as LabelMe states it; None for no finite number."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) < 2**53 else None


def recognise(files: Iterable[tuple[str, int]], head: Callable[[str], bytes]) -> bool:
    """Whether one of the first files begins like LabelMe's; raises OSError."""
    named = [path for path, _ in files if path.lower().endswith(".json")]
    starts = map(head, named[:_LOOKED_AT])
    return any(_SHAPES.search(s) and _OTHER_KEYS.search(s) for s in starts)
