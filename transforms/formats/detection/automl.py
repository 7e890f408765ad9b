"""AutoML Vision manifests as rows of images: CSV without header, rows by image.

    ML_USE,path,LABEL,LABEL,...                            classification
    ML_USE,path,label,x_min,y_min,x_max,y_min,...          detection: four corners in
    ML_USE,path,label,x_min,y_min,,,x_max,y_max,,          turn, or two that are across

Rows of one path, by NFC, are one image, at the place of the first: what they say is
joined. They must agree on ML_USE, or the image would be in two splits. A row that
begins with the path has no ML_USE, which says UNASSIGNED. TRAIN, VALIDATION and TEST
say the split, UNASSIGNED leaves it to shares, and images that say DISCARD are left out.
tfrecorder's manifests without their header, `split,image_uri,label`, are the same.

Where every image has one label, that is its class; else a row has a list of classes,
which may be empty. Where a file has boxes, features are those of the TF Object
Detection API; class ids count from 1, by all names that there are, sorted. Corners are
fractions of the image, 0 to 1, from its left and upper edge.

Rows are of any number of fields and belong together across the file, so a file is
parsed as a whole, row by row in Python.

Source: the pages "Preparing your training data" and "Formatting a training data CSV"
of AutoML Vision, classification and object detection.
"""

import csv
import dataclasses
import io
import posixpath
import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from transforms.core.model import Block
from transforms.core.reasons import Fault, Reason
from transforms.core.schema import Feature, Kind
from transforms.errors import InputError
from transforms.formats.detection.boxed_rows import list_of
from transforms.formats.detection.boxes_csv import (
    IS_PLACE,
    first_row,
)
from transforms.formats.detection.listed import (
    DISCARDED,
    TABLE_COLUMNS,
    RowsReader,
    class_ids,
    listing_of,
    root_of,
)
from transforms.formats.detection.objects import (
    NO_BOX,
    BoxedObject,
    Found,
    ImageObjects,
)
from transforms.formats.file_names import is_image_name, plain_name
from transforms.formats.table import InputFile, Planned, RawRows
from transforms.formats.whole_files import content_of

# A million rows, about; their Python objects take sixteen times that.
_MAX_BYTES = 64 << 20
_SPLIT, _IMAGE, _LABEL = "split", "image_uri", "label"
_NUMBERS = 8
# Rows that have one place among the shards.
_AT_ONCE = 4096
_UNASSIGNED, _DISCARD = "UNASSIGNED", "DISCARD"
_USES: Mapping[str, str] = {
    "TRAIN": "TRAIN",
    "TRAINING": "TRAIN",
    "VALIDATION": "VALIDATION",
    "VALIDATE": "VALIDATION",
    "TEST": "TEST",
    _UNASSIGNED: _UNASSIGNED,
    _DISCARD: _DISCARD,
    "": _UNASSIGNED,
}


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
        """Lists the images of all files, which are parsed as a whole.

        Raises:
          InputError: one is no CSV, or too large.
        """
        rows = [row for file in files for row in self._listed(file)]
        usable = [row for row in rows if not row.get("reason")]
        labels = [_labels(row) for row in usable]
        counts = [len(names) for names in labels]
        reader = dataclasses.replace(
            self,
            fractions=True,
            boxed=any(_is_box(cells) for row in rows for cells in row["cells"]),
            most=max(counts, default=0),
            fewest=min(counts, default=0),
        )
        if reader.boxed:
            ids = class_ids(reader._good_names(usable))
            reader = dataclasses.replace(reader, class_ids=ids)
        table = listing_of(rows, TABLE_COLUMNS)
        planned = reader.planned([table], root_of(files[0]), sampled=len(rows))
        if reader.boxed:
            return planned
        image = Feature(_IMAGE, Kind.IMAGE)
        shape = () if reader._is_single else (None,)
        label = Feature(_LABEL, Kind.LABEL, is_label=True, shape=shape)
        features = (image, label) if reader.most else (image,)
        return dataclasses.replace(planned, features=features)

    def _listed(self, file: InputFile) -> list[dict[str, Any]]:
        """Returns the images of a file as rows of the listing."""
        # Surrogates keep bytes that are not UTF-8: their rows alone are refused.
        text = content_of(file, _MAX_BYTES).decode(
            "utf-8-sig", errors="surrogateescape"
        )
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        folder = self.images_root or posixpath.dirname(file.origin)
        images: dict[str, dict[str, Any]] = {}
        rows: list[dict[str, Any]] = []
        number = line = 0
        try:
            for fields in reader:
                first_line, line = line + 1, reader.line_num
                if not fields:
                    continue
                row = _row(fields, folder)
                key = unicodedata.normalize("NFC", row["stated"])
                image = row if row["reason"] else images.setdefault(key, row)
                if image is row:
                    row |= {"row": number, "line": first_line, "rows": [], "lines": []}
                    rows.append(row)
                else:
                    _join(image, row, number)
                image["rows"].append(number)
                image["lines"].append(first_line)
                number += 1
        except csv.Error as error:
            raise InputError(
                f"{file.path!r} must be CSV; in line {reader.line_num}: {error}. "
                f"Correct it."
            ) from error
        for index, row in enumerate(rows):
            first = rows[index - index % _AT_ONCE]["row"]
            before = file.size * first // number
            row["position"] = file.position + before + row["row"] - first
            row["annotation"] = file.origin
            row["raw"] = "\0".join(row["raw"]).encode(errors="surrogateescape")
            if not row["reason"] and row["split"] == _DISCARD:
                row["reason"] = DISCARDED
        return rows

    def _good_names(self, rows: Sequence[Mapping[str, Any]]) -> set[str]:
        """Returns the classes of good boxes, also where another takes the image."""
        policy = "box" if self.bad_box == "image" else self.bad_box
        reader = dataclasses.replace(self, bad_box=policy, masks="auto")
        block = Block("", 0, len(rows), rows=len(rows))
        listed = listing_of(rows, TABLE_COLUMNS).to_pylist()
        raw = reader.rows_of(listed, "", block, is_sample=True)
        return set(raw.columns["image/object/class/text"].flatten().to_pylist())

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
            labels = [_labels(rows[index]) for index in raw.places.tolist()]
            flat = pa.array([name for names in labels for name in names], pa.string())
            counts = [len(names) for names in labels]
            columns[_LABEL] = flat if self._is_single else list_of(flat, counts)
        return dataclasses.replace(
            raw, columns=columns, parts={}, parts_gone={}, parts_each={}
        )

    @property
    def _is_single(self) -> bool:
        return self.fewest == self.most == 1


def _row(fields: Sequence[str], folder: str) -> dict[str, Any]:
    """Returns what one row says, as a row of the listing; `raw` are its fields."""
    first = fields[0].strip()
    has_use = first.upper() in _USES
    if not has_use and _is_path(first):
        fields = ["", *fields]
        first, has_use = "", True
    path = fields[1] if len(fields) > 1 else ""
    cells = [sys.intern(field) for field in fields[2:]]
    use = _USES.get(first.upper(), _UNASSIGNED)
    fault: Fault | None = None
    raw = [use, path, *cells]
    if any("\udc80" <= c <= "\udcff" for text in fields for c in text):
        fault = Fault(Reason.INVALID_ENCODING, "it must be UTF-8")
        path, cells, raw = "", ["?"] if _is_box(cells) else [], [use, "", *cells]
    elif not has_use:
        words = ", ".join(word for word in _USES if word)
        words = f"the first field must be one of {words}, or the path; found "
        fault = Fault(Reason.BAD_SPLIT, f"{words}{first[:60]!r}")
    elif not path.strip():
        fault = Fault(Reason.MISSING_VALUE, "the path of the image is empty")
    reason, message = fault or (None, None)
    return {
        "path": path if IS_PLACE.match(path) else posixpath.join(folder, path),
        "stated": path,
        "split": use,
        "reason": reason,
        "message": message,
        "raw": raw,
        "cells": [cells],
    }


def _join(image: dict[str, Any], row: Mapping[str, Any], number: int) -> None:
    """Adds a row to the image that it names."""
    image["cells"] += row["cells"]
    image["raw"] += row["raw"][2:]
    if image["split"] != row["split"] and not image["reason"]:
        image["reason"] = Reason.BAD_SPLIT
        image["message"] = (
            f"all rows of an image must say one split; row {image['row'] + 1} says "
            f"{image['split']} and row {number + 1} says {row['split']}"
        )


def _is_box(cells: Sequence[str]) -> bool:
    """Whether fields are a label and corners, with a number among them."""
    corners = [text for text in cells[1:] if text.strip()]
    if len(cells) != 1 + _NUMBERS or not corners:
        return False
    try:
        return bool([*map(float, corners)])
    except ValueError:
        return False


def _is_path(text: str) -> bool:
    """Whether a cell is a URI, or a path of an image by its suffix."""
    return "://" in text or is_image_name(text.strip())


def _labels(row: Mapping[str, Any]) -> list[str]:
    """Returns the distinct labels of all rows of an image, in their order."""
    texts = (text.strip() for cells in row["cells"] for text in cells)
    return list(dict.fromkeys(text for text in texts if text))


def _object(first: int, row: int, line: int, cells: Sequence[str]) -> BoxedObject:
    name = cells[0].strip()
    where = f"row {row + 1}: box of {name!r}"
    fault = None
    box: Sequence[float] = NO_BOX
    try:
        box = _corners(cells[1:])
    except ValueError as error:
        shown = ",".join(cells[1:])[:120]
        fault = Fault(Reason.BAD_BOX, f"{where}: [{shown}]: {error}")
    return BoxedObject(name, box, where, "\0".join(cells).encode(), first, line, fault)


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


def recognise(
    files: Iterable[tuple[str, int]], head: Callable[[str], bytes]
) -> tuple[str, ...] | None:
    """Returns the CSV files if all of them start like manifests, else None.

    Raises:
      OSError: a file cannot be read.
    """
    names: list[str] = []
    for path, _ in files:
        if plain_name(path).lower().endswith(".csv"):
            # The first of millions says that they are others.
            use, image = [*first_row(head(path)), "-", ""][:2]
            if use.upper() not in _USES or not _is_path(image):
                return None
            names.append(path)
    return tuple(names) or None
