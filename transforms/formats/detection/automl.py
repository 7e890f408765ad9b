"""AutoML manifests as rows of images.

A row is an image. Where every image has one label, that is its class; else a row has a
list of classes, which may be empty. Where a file has boxes, features are those of the
TF Object Detection API; class ids count from 1, by all names that there are, sorted.

TRAIN, VALIDATION and TEST say the split, UNASSIGNED leaves it to shares, and images
that say DISCARD are left out. tfrecorder's manifests without their header,
`split,image_uri,label`, are the same.

Corners are fractions of the image, 0 to 1, from its left and upper edge:

    x_min,y_min,x_max,y_min,x_max,y_max,x_min,y_max    four corners in turn
    x_min,y_min,,,x_max,y_max,,                        two that are across
"""

import dataclasses
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from transforms.core.boxes import BoxForm, check_boxes
from transforms.core.model import Block
from transforms.core.placing.vocabulary import sorted_names
from transforms.core.reasons import Fault, Reason
from transforms.core.schema import Feature, Kind
from transforms.formats.detection.automl_manifest import (
    DISCARD,
    Item,
    Manifest,
    load_manifest,
)
from transforms.formats.detection.boxed_rows import list_of
from transforms.formats.detection.boxes_csv import (
    IS_PLACE,
    TABLE_COLUMNS,
    RowsReader,
)
from transforms.formats.detection.listed import DISCARDED, listing_of, root_of
from transforms.formats.detection.objects import (
    NO_BOX,
    BoxedObject,
    Found,
    ImageObjects,
)
from transforms.formats.table import InputFile, Planned, RawRows

_SPLIT = "split"
_IMAGE = "image_uri"
_LABEL = "label"
_NUMBERS = 8
# Rows that have one place among the shards.
_AT_ONCE = 4096


@dataclasses.dataclass(frozen=True, slots=True)
class AutomlReader(RowsReader):
    """Reads AutoML manifests; cells are those after the path.

    Attributes:
      boxed: whether the files are manifests of object detection.
      most: how many labels an image has at most.
      fewest: and at least.
    """

    title: ClassVar[str] = "AutoML manifest"
    # Boxes that cross an edge by less end at the edge: rounding to a few decimals does
    # this to boxes that touch it.
    tolerance: ClassVar[float] = 1e-3
    split_name: ClassVar[str] = _SPLIT
    says_split: ClassVar[bool] = False

    boxed: bool = False
    most: int = 0
    fewest: int = 0

    def plan(self, files: Sequence[InputFile]) -> Planned:
        """Lists the images of all files, which are parsed as a whole."""
        loaded = [(file, load_manifest(file.path, file.stamp)) for file in files]
        rows = [row for each in loaded for row in self._listed(*each)]
        usable = [row for row in rows if not row.get("reason")]
        labels = [_labels(row) for row in usable]
        counts = [len(each) for each in labels]
        reader = dataclasses.replace(
            self,
            fractions=True,
            boxed=any(manifest.has_boxes for _, manifest in loaded),
            most=max(counts, default=0),
            fewest=min(counts, default=0),
        )
        if reader.boxed:
            names = sorted_names(reader._good_names(usable))
            ids = {name: number for number, name in enumerate(names, start=1)}
            reader = dataclasses.replace(reader, class_ids=ids)
        table = listing_of(rows, TABLE_COLUMNS)
        label_map = {number: name for name, number in reader.class_ids.items()}
        planned = reader.planned(
            table, root_of(files[0]), label_map=label_map, sampled=len(rows)
        )
        if reader.boxed:
            return planned
        image = Feature(_IMAGE, Kind.IMAGE)
        shape = () if reader._is_single else (None,)
        label = Feature(_LABEL, Kind.LABEL, is_label=True, shape=shape)
        features = (image, label) if reader.most else (image,)
        return dataclasses.replace(planned, features=features)

    def _listed(self, file: InputFile, manifest: Manifest) -> Iterator[dict[str, Any]]:
        """Yields the images of a file as rows of the listing."""
        folder = self.images_root or posixpath.dirname(file.origin)
        items = manifest.items
        for place, item in enumerate(items):
            first = items[place - place % _AT_ONCE].row
            before = file.size * first // manifest.rows
            is_fixed = IS_PLACE.match(item.path)
            path = item.path if is_fixed else posixpath.join(folder, item.path)
            reason, message = item.fault or (None, None)
            yield {
                "path": path,
                "position": file.position + before + item.row - first,
                "annotation": file.origin,
                "stated": item.path,
                "split": item.use,
                "reason": DISCARDED if not reason and item.use == DISCARD else reason,
                "message": message,
                "row": item.row,
                "line": item.mentions[0].line,
                "raw": item.raw,
                "rows": [mention.row for mention in item.mentions],
                "lines": [mention.line for mention in item.mentions],
                "cells": _cells(item),
            }

    def _good_names(self, rows: Sequence[Mapping[str, Any]]) -> set[str]:
        """Returns the classes of good boxes, also where another takes the image."""
        found = [self.objects_of(row, "")[0] for row in rows]
        images = [each for each in found if isinstance(each, ImageObjects)]
        objects = [each for image in images for each in image.objects]
        boxes = np.array([each.box for each in objects], np.float64).reshape(-1, 4)
        checked = check_boxes(
            boxes,
            np.ones((len(boxes), 2)),
            form=BoxForm.XYXY,
            tolerance=self.tolerance,
            clip=self.bad_box == "clip",
        )
        return {
            each.name
            for each, fault in zip(objects, checked.faults.tolist(), strict=True)
            if each.name and each.fault is None and not fault
        }

    def content_columns(
        self, names: Sequence[str], wanted: Sequence[str]
    ) -> tuple[str, ...]:
        """Returns the column of the image's path: the other columns are joined."""
        return ("image/source_id",) if self.boxed else (_IMAGE,)

    def gone_parts(self, row: Mapping[str, Any]) -> int:
        """Returns how many boxes an image has that is no row."""
        return super(AutomlReader, self).gone_parts(row) if self.boxed else 0

    def objects_of(self, row: Mapping[str, Any], root: str) -> Found:
        """Returns the boxes of an image; a blank row has none."""
        mentions = zip(row["rows"], row["lines"], row["cells"], strict=True)
        objects = [
            _object(row["row"], number, line, cells)
            for number, line, cells in mentions
            if any(map(str.strip, cells))
        ]
        return ImageObjects(objects, name=row["stated"]), row["raw"]

    def rows_of(
        self,
        rows: Sequence[Mapping[str, Any]],
        root: str,
        block: Block,
        *,
        is_sample: bool = False,
    ) -> RawRows:
        """Returns images as rows: with boxes, or with labels."""
        if self.boxed:
            return super(AutomlReader, self).rows_of(
                rows, root, block, is_sample=is_sample
            )
        bare = [{**row, "rows": [], "lines": [], "cells": []} for row in rows]
        raw = super(AutomlReader, self).rows_of(bare, root, block, is_sample=is_sample)
        columns = {_SPLIT: raw.columns[_SPLIT], _IMAGE: raw.columns["image/encoded"]}
        if self.most:
            assert raw.places is not None
            labels = [_labels(rows[place]) for place in raw.places.tolist()]
            flat = pa.array([name for each in labels for name in each], pa.string())
            counts = [len(each) for each in labels]
            columns[_LABEL] = flat if self._is_single else list_of(flat, counts)
        return dataclasses.replace(
            raw, columns=columns, parts={}, parts_gone={}, parts_each={}
        )

    @property
    def _is_single(self) -> bool:
        return self.fewest == self.most == 1


def _cells(item: Item) -> list[list[str]]:
    """Returns the fields after the path; none where they are not UTF-8."""
    if item.fault is not None and item.fault.reason is Reason.INVALID_ENCODING:
        return [["?"] if mention.is_box else [] for mention in item.mentions]
    return [list(mention.rest) for mention in item.mentions]


def _labels(row: Mapping[str, Any]) -> list[str]:
    """Returns the distinct labels of all rows of an image, in their order."""
    texts = (text.strip() for cells in row["cells"] for text in cells)
    return list(dict.fromkeys(text for text in texts if text))


def _object(first: int, row: int, line: int, cells: Sequence[str]) -> BoxedObject:
    name = cells[0].strip()
    place = f"row {row + 1}: box of {name!r}"
    fault = None
    box: Sequence[float] = NO_BOX
    try:
        box = _corners(cells[1:])
    except ValueError as error:
        shown = ",".join(cells[1:])[:120]
        fault = Fault(Reason.BAD_BOX, f"{place}: [{shown}]: {error}")
    return BoxedObject(name, box, place, "\0".join(cells).encode(), first, line, fault)


def _corners(texts: Sequence[str]) -> Sequence[float]:
    """Returns two opposite corners; raises ValueError that says what is wrong."""
    texts = [text.strip() for text in texts]
    if any(texts[_NUMBERS:]):
        raise ValueError(f"at most {_NUMBERS} coordinates are needed")
    texts = [*texts[:_NUMBERS], *[""] * (_NUMBERS - len(texts))]
    others = [*texts[2:4], *texts[6:8]]
    try:
        xmin, ymin, xmax, ymax = map(float, [*texts[0:2], *texts[4:6]])
        opposite = [*map(float, others)] if any(others) else [xmax, ymin, xmin, ymax]
    except ValueError as error:
        words = "two corners, or four, of two numbers each are needed"
        raise ValueError(words) from error
    if opposite != [xmax, ymin, xmin, ymax]:
        raise ValueError("its corners must be those of an upright rectangle")
    return [xmin, ymin, xmax, ymax]
