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
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from transforms.core.arrays import list_of
from transforms.core.model import Block
from transforms.core.reasons import Fault, Reason
from transforms.core.schema import Feature, Kind
from transforms.errors import InputError
from transforms.formats.detection.boxes_csv import (
    first_row,
    list_images,
    place_of,
)
from transforms.formats.detection.listed import (
    DISCARDED,
    TABLE_COLUMNS,
    RowsReader,
    class_ids,
    listing_of,
)
from transforms.formats.detection.objects import (
    NO_BOX,
    BoxedObject,
    ImageObjects,
)
from transforms.formats.file_names import is_image_name, plain_name
from transforms.formats.input_files import content_of
from transforms.formats.label_join import SourcePaths
from transforms.formats.raw_rows import RawRows
from transforms.formats.table import InputFile, Planned

# A million rows, about; their Python objects take sixteen times that.
_MAX_BYTES = 64 << 20
_SPLIT, _IMAGE, _LABEL = "split", "image_uri", "label"
_NUMBERS = 8
# Rows that have one place among the shards.
_AT_ONCE = 4096
_UNASSIGNED, _DISCARD = "UNASSIGNED", "DISCARD"
_USES: Mapping[str, str] = {
    **dict.fromkeys(("TRAIN", "TRAINING"), "TRAIN"),
    **dict.fromkeys(("VALIDATION", "VALIDATE"), "VALIDATION"),
    "TEST": "TEST",
    **dict.fromkeys((_UNASSIGNED, ""), _UNASSIGNED),
    _DISCARD: _DISCARD,
}


@dataclasses.dataclass(frozen=True, slots=True)
class AutomlReader(RowsReader):
    """Reads AutoML manifests; cells are the split and those after the path.

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
    raw_names: ClassVar[bool] = True

    boxed: bool = False
    most: int = 0
    fewest: int = 0

    def plan(self, files: Sequence[InputFile]) -> Planned:
        """Lists the images of all files, which are parsed as a whole.

        Raises:
          InputError: one is no CSV, or too large.
        """
        paths = self.source_images(files[0].root)
        rows = [row for file in files for row in self._listed(file, paths).to_pylist()]
        usable = []
        for row in rows:
            uses = {cells[0] for cells in row["cells"]}
            if row["reason"] or not row["stated"].strip() or len(uses) > 1:
                continue
            if uses == {_DISCARD}:
                row["reason"] = DISCARDED
            else:
                usable.append(row)
        counts = [len(_labels(row)) for row in usable]
        reader = dataclasses.replace(
            self,
            fractions=True,
            boxed=any(_is_box(cells[1:]) for row in rows for cells in row["cells"]),
            most=max(counts, default=0),
            fewest=min(counts, default=0),
        )
        if reader.boxed:
            ids = class_ids(reader._good_names(usable))
            reader = dataclasses.replace(reader, class_ids=ids)
        table = listing_of(rows, TABLE_COLUMNS)
        planned = reader.planned([table], files[0].root, sampled=len(rows))
        if reader.boxed:
            return planned
        image = Feature(_IMAGE, Kind.IMAGE)
        shape = () if reader._is_single else (None,)
        label = Feature(_LABEL, Kind.LABEL, is_label=True, shape=shape)
        features = (image, label) if reader.most else (image,)
        return dataclasses.replace(planned, features=features)

    def _listed(self, file: InputFile, paths: SourcePaths) -> pa.Table:
        """Returns the images of a file."""
        # Surrogates keep bytes that are not UTF-8: their rows alone are refused.
        text = content_of(file, _MAX_BYTES).decode(
            "utf-8-sig", errors="surrogateescape"
        )
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        folder = posixpath.dirname(file.origin)
        good: list[tuple[int, int, str, list[str]]] = []
        unread: list[dict[str, Any]] = []
        line = 0
        try:
            for fields in reader:
                first_line, line = line + 1, reader.line_num
                if not fields:
                    continue
                number = len(good) + len(unread)
                name, cells, fault = _parsed(fields)
                if fault is None:
                    good.append((number, first_line, name, cells))
                    continue
                raw = "\0".join(fields).encode(errors="surrogateescape")
                row = {"row": number, "line": first_line, "raw": raw, "stated": name}
                unread.append(row | {"cells": [cells], **fault._asdict()})
        except csv.Error as error:
            raise InputError(
                f"{file.path!r} must be CSV; in line {reader.line_num}: {error}. "
                f"Correct it."
            ) from error
        numbers, lines, names, cells_of = zip(*good, strict=True) if good else [()] * 4
        return list_images(
            file,
            pa.array(names, pa.string()),
            pa.array(cells_of, pa.list_(pa.string())),
            np.array(numbers, np.int64),
            lambda name: paths.file(name, folder) or place_of(name, folder),
            self.split_of_image,
            count=len(good) + len(unread),
            lines=pa.array(lines, pa.int64()),
            unread=unread,
            at_once=_AT_ONCE,
        )

    def _good_names(self, rows: Sequence[Mapping[str, Any]]) -> set[str]:
        """Returns the classes of good boxes, also where another takes the image."""
        policy = "box" if self.bad_box == "image" else self.bad_box
        reader = dataclasses.replace(self, bad_box=policy, masks="auto")
        block = Block("", 0, len(rows), rows=len(rows))
        raw = reader.rows_of(rows, "", block, is_sample=True)
        return set(raw.columns["image/object/class/text"].flatten().to_pylist())

    def content_columns(
        self, names: Sequence[str], wanted: Sequence[str]
    ) -> tuple[str, ...]:
        """Returns the column of the image's path: the other columns are joined."""
        return ("image/source_id",) if self.boxed else (_IMAGE,)

    def gone_parts(self, row: Mapping[str, Any]) -> int:
        """Returns how many boxes an image has that is no row."""
        return super(AutomlReader, self).gone_parts(row) if self.boxed else 0

    def image_of(self, row: Mapping[str, Any]) -> ImageObjects:
        """Returns the boxes of an image; a blank row has none."""
        mentions = self.mentions(row) if self.boxed else ()
        objects = [_object(row["row"], *mention) for mention in mentions]
        return ImageObjects(objects, name=row["stated"])

    def rows_of(
        self,
        rows: Sequence[Mapping[str, Any]],
        root: str,
        block: Block,
        *,
        is_sample: bool = False,
    ) -> RawRows:
        """Returns images as rows: with boxes, or with labels."""
        raw = super(AutomlReader, self).rows_of(rows, root, block, is_sample=is_sample)
        if self.boxed:
            return raw
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


def _parsed(fields: Sequence[str]) -> tuple[str, list[str], Fault | None]:
    """Returns the path of a manifest row's image, its cells, and why it is unusable."""
    first = fields[0].strip()
    use = _USES.get(first.upper())
    if use is None and _is_path(first):
        use, fields = _UNASSIGNED, ["", *fields]
    path = fields[1] if len(fields) > 1 else ""
    cells = [use or _UNASSIGNED, *map(sys.intern, fields[2:])]
    if any("\udc80" <= c <= "\udcff" for text in fields for c in text):
        cells[1:] = ["?"] if _is_box(cells[1:]) else []
        return "", cells, Fault(Reason.INVALID_ENCODING, "it must be UTF-8")
    if use is not None:
        return path, cells, None
    words = ", ".join(word for word in _USES if word)
    message = f"the first field must be one of {words}, or the path; found "
    return path, cells, Fault(Reason.BAD_SPLIT, f"{message}{first[:60]!r}")


def _is_box(cells: Sequence[str]) -> bool:
    """Whether a manifest's fields are a label and corners, with a number among them."""
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
    """Returns the distinct labels of a manifest's rows of an image, in their order."""
    texts = (text.strip() for cells in row["cells"] for text in cells[1:])
    return list(dict.fromkeys(text for text in texts if text))


def _object(
    first: int, row: int, line: int | None, cells: Sequence[str]
) -> BoxedObject:
    """Returns a manifest's row as an object of its image, first named in `first`."""
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
    """Returns two opposite corners of a manifest's row; raises ValueError."""
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


def recognise(files: Iterable[tuple[str, int]], head: Callable[[str], bytes]) -> bool:
    """Whether all CSV files start like manifests; raises OSError."""

    def is_manifest(path: str) -> bool:
        use, image = [*first_row(head(path)), "-", ""][:2]
        return use.upper() in _USES and _is_path(image)

    tables = [path for path, _ in files if plain_name(path).lower().endswith(".csv")]
    # Stops at the first other file: listing millions only to refuse them is slow.
    return bool(tables) and all(map(is_manifest, tables))
