"""Tables with a row for each box as rows of images.

    filename,width,height,class,xmin,ymin,xmax,ymax    TensorFlow's tutorials, Roboflow
    ImageID,Source,LabelName,Confidence,XMin,XMax,...  Open Images, in fractions
    path,x1,y1,x2,y2,class                             keras-retinanet, no header

Columns are known by their names, in any case and order. Rows of one image are one
record, at the place of the first, wherever they are in the table; one without a box
and a class says that the image has none. Numbers are fractions of the image where all
are at most 1 and some are not whole, else pixels.

An image is found by its path (see `SourcePaths`), else by its base name, else by its
stem: Open Images writes ids. Class ids count from 1, by all names, sorted; those of
Open Images are names where its class-descriptions*.csv is among the tables.
"""

import csv
import dataclasses
import io
import posixpath
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.model import Rejection
from transforms.core.reasons import Fault, Reason
from transforms.errors import InputError
from transforms.formats.csv.sample import CsvReader
from transforms.formats.detection.listed import (
    TABLE_COLUMNS,
    RowsReader,
    SourcePaths,
    class_ids,
    completed,
    listing_of,
    root_of,
)
from transforms.formats.detection.objects import (
    NO_BOX,
    BoxedObject,
    Found,
    ImageObjects,
)
from transforms.formats.file_names import (
    is_image_name,
    plain_name,
    split_in_path,
)
from transforms.formats.table import InputFile, Planned, RawRows
from transforms.formats.whole_files import content_of

_IMAGE = "filename file_name image image_path image_name img path imageid".split()
_CLASS = "class label name class_name classname category labelname".split()
_BOX = tuple(
    text.split()
    for text in (
        "xmin ymin xmax ymax",
        "x_min y_min x_max y_max",
        "x1 y1 x2 y2",
        "left top right bottom",
    )
)
# Columns of flags -> the feature that each is.
_FLAGS = {
    "isoccluded": "occluded",
    "istruncated": "truncated",
    "isgroupof": "group_of",
    "isdepiction": "depiction",
}
_SIZE = ("width", "height")
_EDGES = ("box0", "box1", "box2", "box3")
_KERAS = ("path", "x1", "y1", "x2", "y2", "class")
_KERAS_ROLES = dict(zip(("image", *_EDGES, "class"), _KERAS, strict=True))
# Numbers of a row: of its box, and of its image.
_NUMBERS, _SIDES = slice(1, 5), slice(5, 7)
_BLOCK_BYTES = 32 << 20
_LOOKED_AT, _MOST_NAMES = 64, 64 << 20
# Open Images' tables of the names of classes.
_IS_DESCRIPTIONS = re.compile(r"(?i)class-descriptions[^/]*\.csv(\.gz|\.zst)?$")
# Of paths that are not relative.
IS_PLACE = re.compile(r"^(/|[A-Za-z][A-Za-z0-9+.-]*://)")


@dataclasses.dataclass(frozen=True, slots=True)
class BoxesCsvReader(RowsReader):
    """Reads tables with a row for each box; cells are class, box, size and flags."""

    title: ClassVar[str] = "CSV with a row a box"

    def plan(self, files: Sequence[InputFile]) -> Planned:
        """Reads all tables, and finds the images, classes and the unit of the boxes.

        Raises:
          InputError: tables contradict each other, or an image has two places.
        """
        root = root_of(files[0])
        paths = self.companion_images()
        tables, others = [], []
        described: dict[str, str] = {}
        for file in files:
            if _IS_DESCRIPTIONS.search(file.origin):
                described |= _described(file)
                continue
            with file.open() as stream:
                columns = _columns_of(first_row(stream.read(1 << 16)))
            if columns is None:
                others.append(file.origin)
            else:
                tables.append(_BoxTable.read(file, columns))
        if not tables:
            raise InputError(
                f"A table with a row a box must have columns for the image "
                f"(filename), the box (xmin, ymin, xmax, ymax) and the class (class); "
                f"{files[0].path!r} has others. Rename them, or give --format csv."
            )
        tables = [table.with_classes(described) for table in tables]
        units = {table.is_relative: table for table in tables}
        units.pop(None, None)
        if len(units) > 1:
            raise InputError(
                f"The boxes of all tables must have one unit; those of "
                f"{units[True].file.origin!r} are fractions and those of "
                f"{units[False].file.origin!r} pixels. Convert them one by one."
            )
        classes = [pc.unique(table.texts["class"]).to_pylist() for table in tables]
        roles = {role for table in tables for role in table.texts}
        reader = dataclasses.replace(
            self,
            fractions=True in units,
            values=tuple(flag for flag in _FLAGS.values() if flag in roles),
            class_ids=class_ids({name for some in classes for name in some}),
        )
        places = [reader._paths(table, paths) for table in tables]
        named = [path for by_name in places for path in by_name.values()]
        is_here = any(path in paths or IS_PLACE.match(path) for path in named)
        if named and not (is_here or self.images_root):
            raise InputError(
                f"The images of a table must be below the source; none of "
                f"{tables[0].file.path!r} is, such as {named[0]!r:.80}. Name their "
                f"folder with --images-root; --format csv reads the rows as they are."
            )
        listings = [
            table.listing(paths_of, reader.values)
            for table, paths_of in zip(tables, places, strict=True)
        ]
        return reader.planned(
            listings,
            root,
            others=others,
            seen=f", boxes in {'fractions' if reader.fractions else 'pixels'}",
        )

    def _paths(self, table: "_BoxTable", paths: SourcePaths) -> dict[str, str]:
        """Returns the path of each image that a table names; of absent ones, too."""
        by_name = {}
        folder = posixpath.dirname(table.file.origin)
        for name in pc.unique(table.texts["image"]).to_pylist():
            if IS_PLACE.match(name) and not self.images_root:
                by_name[name] = paths.file(name, folder) or name
            elif self.images_root:
                by_name[name] = posixpath.join(self.images_root, name)
            else:
                by_name[name] = _image_path(name, table.file.origin, paths)
        return by_name

    def objects_of(self, row: Mapping[str, Any], root: str) -> Found:
        """Returns the objects of the rows of an image."""
        raw = "\0".join(text for cells in row["cells"] for text in cells).encode()
        sizes = {tuple(cells[_SIDES]) for cells in row["cells"]}
        if len(sizes) > 1:
            shown = ", ".join(" x ".join(size) for size in sorted(sizes)[:3])
            message = f"all rows of an image must state one size; they state {shown}"
            return Fault(Reason.SIZE_MISMATCH, message), raw
        objects = [
            self._object(number, cells)
            for number, cells in zip(row["rows"], row["cells"], strict=True)
            if any(cells[: _NUMBERS.stop])
        ]
        width, height = (_number(text) for text in next(iter(sizes)))
        return ImageObjects(objects, width, height), raw

    def _object(self, number: int, cells: Sequence[str]) -> BoxedObject:
        name, raw = cells[0], "\0".join(cells).encode()
        where = f"row {number + 1}: box of {name[:60]!r}"
        box = [_number(text) for text in cells[_NUMBERS]]
        values: dict[str, int] = {}
        fault = None
        if None in box:
            shown = ",".join(cells[_NUMBERS])[:120]
            message = f"{where}: [{shown}]: four numbers are needed"
            fault = Fault(Reason.BAD_BOX, message)
        for flag, text in zip(self.values, cells[_SIDES.stop :], strict=True):
            value = _number(text or "0")
            if value not in (-1, 0, 1):
                message = f"{where}: {flag} must be 0, 1 or -1; found {text[:60]!r}"
                fault = fault or Fault(Reason.NOT_A_BOOL, message)
            values[flag] = int(value) if value in (-1, 0, 1) else 0
        numbers = NO_BOX if fault else [n for n in box if n is not None]
        return BoxedObject(name, numbers, where, raw, number, None, fault, values)


def _image_path(name: str, origin: str, paths: SourcePaths) -> str:
    """Returns the path of the image that a table at a path calls by a name."""
    if exact := paths.file(name, posixpath.dirname(origin)):
        return exact
    called = paths.called(name)
    if len(called) > 1 and (split := split_in_path(origin)):
        called = [path for path in called if split_in_path(path) == split] or called
    if len(called) > 1:
        raise InputError(
            f"An image must have one place; {name!r:.80} of {origin!r:.80} is "
            f"{called[0]!r:.80} or {called[1]!r:.80}. Write paths into the table, or "
            f"put it into the folder of its images."
        )
    return called[0] if called else posixpath.join(posixpath.dirname(origin), name)


def _number(text: str) -> float | None:
    """Returns a number; None where the text is none."""
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _BoxTable:
    """The n rows of a table that name an image.

    Attributes:
      file: it.
      texts: role -> column of texts.
      numbers: of the rows, from 0.
      refused: rejections of other rows.
    """

    file: InputFile
    texts: Mapping[str, pa.StringArray]
    numbers: npt.NDArray[np.int64]
    refused: Sequence[Rejection]

    @classmethod
    def read(cls, file: InputFile, roles: Mapping[str, str]) -> "_BoxTable":
        """Reads the columns of these roles; raises InputError where it is no table."""
        form = CsvReader(header=True, trim=True)
        if roles == _KERAS_ROLES:
            form = CsvReader(header=False, columns=_KERAS, trim=True)
        reader: Any = form.plan([file]).reader
        pieces: list[RawRows] = []
        refused: list[Rejection] = []
        for block in reader.blocks(file, block_bytes=_BLOCK_BYTES, limit_rows=None):
            for raw in reader.read(file, block, [*roles.values()]):
                pieces.append(raw)
                refused += raw.reject(raw.refused) if raw.refused else ()
        texts = {
            role: pc.fill_null(
                pa.chunked_array(
                    [raw.columns[name] for raw in pieces], pa.string()
                ).combine_chunks(),
                "",
            )
            for role, name in roles.items()
        }
        numbers = [raw.numbers for raw in pieces] or [np.zeros(0, np.int64)]
        return cls(file, texts, np.concatenate(numbers), refused)

    def with_classes(self, names: Mapping[str, str]) -> "_BoxTable":
        """Returns the table with names for ids of classes."""
        classes = self.texts["class"].dictionary_encode()
        named = [names.get(text, text) for text in classes.dictionary.to_pylist()]
        column = pa.array(named, pa.string()).take(classes.indices)
        return dataclasses.replace(self, texts={**self.texts, "class": column})

    @property
    def is_relative(self) -> bool | None:
        """Whether boxes are fractions of images; None without a number."""
        cells = pa.concat_arrays([self.texts[edge] for edge in _EDGES])
        plain = pc.match_substring_regex(cells, r"^[+-]?([0-9]+\.?|[0-9]*\.)[0-9]*$")
        is_number = pc.and_(plain, pc.match_substring_regex(cells, "[0-9]"))
        numbers = pc.cast(cells.filter(is_number), pa.float64()).to_numpy()
        if not len(numbers):
            return None
        return bool(numbers.max() <= 1 and (numbers % 1 > 0).any())

    def listing(self, paths: Mapping[str, str], flags: Sequence[str]) -> pa.Table:
        """Returns the images of the table, each at the place of its first row.

        Args:
          paths: of the images, by their names.
          flags: the features of flags; those that the table lacks are empty.
        """
        named = np.asarray(pc.not_equal(self.texts["image"], ""))
        codes = self.texts["image"].filter(pa.array(named)).dictionary_encode()
        kept = np.flatnonzero(named)
        order = kept[np.argsort(codes.indices.to_numpy(), kind="stable")]
        counts = np.bincount(codes.indices.to_numpy(), minlength=len(codes.dictionary))
        ends = np.cumsum(counts)
        first = order[ends - counts]
        empty = pa.array([""] * len(order), pa.string())
        roles = ["class", *_EDGES, *_SIZE, *flags]
        taken = [
            self.texts[role].take(pa.array(order)) if role in self.texts else empty
            for role in roles
        ]
        width, count = len(roles), len(order)
        flat = pa.concat_arrays(taken).take(
            pa.array(np.arange(width * count).reshape(width, count).T.ravel())
        )
        cells = pa.ListArray.from_arrays(
            pa.array(np.arange(count + 1) * width, pa.int32()), flat
        )
        starts = pa.array(np.concatenate(([0], ends)), pa.int32())
        images = codes.dictionary
        before = self.file.size * self.numbers[first] // max(len(self.numbers), 1)
        said, faults = self._splits(order, ends - counts)
        if said.null_count == len(said):
            folders = [posixpath.dirname(paths[name]) for name in images.to_pylist()]
            split = split_in_path(self.file.origin)
            splits = [split or split_in_path(folder) or None for folder in folders]
            said = pa.array(splits, pa.string())
        columns = {
            "path": pa.array([paths[name] for name in images.to_pylist()], pa.string()),
            "position": pa.array(self.file.position + before),
            "annotation": pa.repeat(self.file.origin, len(images)),
            "stated": images,
            "split": said,
            "reason": faults,
            "message": pc.if_else(
                faults.is_valid(), "all rows of an image must say one split", None
            ),
            "row": pa.array(self.numbers[first]),
            "rows": pa.ListArray.from_arrays(starts, pa.array(self.numbers[order])),
            "cells": pa.ListArray.from_arrays(starts, cells),
        }
        listed = completed(columns, len(images), TABLE_COLUMNS)
        unread = listing_of([*self._unread(named)], TABLE_COLUMNS)
        return pa.concat_tables([listed, unread])

    def _splits(
        self, order: npt.NDArray[np.int64], starts: npt.NDArray[np.int64]
    ) -> tuple[pa.Array, pa.Array]:
        """Returns the split that rows say of each image, and why they say none.

        Args:
          order: the rows, image by image.
          starts: where in `order` those of each image begin.
        """
        none = pa.nulls(len(starts), pa.string())
        if "split" not in self.texts or not len(starts):
            return none, none
        words = self.texts["split"].take(pa.array(order)).dictionary_encode()
        given = words.dictionary.to_pylist()
        meant = [split_in_path(word) or word or None for word in given]
        codes = words.indices.to_numpy()
        differ = np.maximum.reduceat(codes, starts) != np.minimum.reduceat(
            codes, starts
        )
        said = pa.array(meant, pa.string()).take(pa.array(codes[starts]))
        bad = pa.scalar(str(Reason.BAD_SPLIT))
        return said, pc.if_else(pa.array(differ), bad, pa.scalar(None, pa.string()))

    def _unread(self, named: npt.NDArray[np.bool_]) -> Iterator[dict[str, Any]]:
        """Yields a row of the listing for each row that names no image or is bad."""
        origin, position = self.file.origin, self.file.position
        common = {"path": origin, "annotation": origin, "position": position}
        for number in np.flatnonzero(~named).tolist():
            cells = [column[number].as_py() for column in self.texts.values()]
            yield {
                **common,
                "row": int(self.numbers[number]),
                "raw": "\0".join(cells).encode(),
                "reason": str(Reason.MISSING_VALUE),
                "message": "the path of the image is empty",
                "cells": [cells] if any(cells) else [],
            }
        for rejection in self.refused:
            yield {
                **common,
                "row": (rejection.row or 1) - 1,
                "line": rejection.line,
                "raw": rejection.raw,
                "reason": str(rejection.reason),
                "message": rejection.message,
            }


def _described(file: InputFile) -> dict[str, str]:
    """Returns id -> name of classes, of a table with these two columns."""
    text = content_of(file, _MOST_NAMES).decode("utf-8-sig", errors="replace")
    try:
        rows = [*csv.reader(io.StringIO(text, newline=""))]
    except csv.Error as error:
        raise InputError(f"{file.path!r} must be CSV: {error}. Correct it.") from error
    return {row[0].strip(): row[1].strip() or row[0] for row in rows if len(row) == 2}


def first_row(head: bytes) -> list[str]:
    """Returns the fields of a file's first row, by its first bytes."""
    if head.startswith(b"\x1f\x8b"):
        try:
            head = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(head)
        except zlib.error:
            return []
    text = head.decode("utf-8-sig", errors="replace").lstrip("\r\n")
    lines = text.splitlines()[:1]
    try:
        return [cell.strip() for cell in next(csv.reader(lines, strict=True), [])]
    except csv.Error:
        return []


def _columns_of(fields: Sequence[str]) -> Mapping[str, str] | None:
    """Returns role -> name of the columns by the first row; None for other tables."""
    if len(fields) == len(_KERAS) and is_image_name(fields[0]):
        numbers = [_number(text) for text in fields[1:5]]
        if None not in numbers or not any(fields[1:]):
            return _KERAS_ROLES
        return None
    given = {field.lower(): field for field in reversed(fields)}

    def first(names: Iterable[str]) -> str:
        return next((given[name] for name in names if name in given), "")

    sides = next((names for names in _BOX if given.keys() >= {*names}), [])
    box = [given[name] for name in sides]
    image, kind = first(_IMAGE), first(_CLASS)
    if not (image and kind and box):
        return None
    names = {"image": image, "class": kind, **dict(zip(_EDGES, box, strict=True))}
    beside = {**{name: name for name in (*_SIZE, "split")}, **_FLAGS}
    return names | {role: given[n] for n, role in beside.items() if n in given}


def recognise(
    files: Iterable[tuple[str, int]], head: Callable[[str], bytes]
) -> tuple[str, ...] | None:
    """Returns the CSV files with a row a box, None if there is none; raises OSError."""
    tables = [path for path, _ in files if plain_name(path).lower().endswith(".csv")]
    looked_at = tables[:_LOOKED_AT]
    matches = [p for p in looked_at if _columns_of(first_row(head(p))) is not None]
    return tuple(matches) or None
