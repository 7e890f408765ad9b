"""Tables whose rows are boxes, as rows of images; see `automl` for another form.

    filename,width,height,class,xmin,ymin,xmax,ymax    TensorFlow's tutorials, Roboflow
    ImageID,Source,LabelName,Confidence,XMin,XMax,...  Open Images, in fractions
    path,x1,y1,x2,y2,class                             keras-retinanet, no header

Columns are known by their names, in any case and order. Rows of one image are one
record, at the place of the first, wherever they are in the table; one without a box
and a class says that the image has none. They must agree on the split, or the image
would be in two. Numbers are fractions of the image where all are at most 1 and some are
not whole, else pixels.

An image is found by its path (see `SourcePaths`), else by its base name, else by its
stem: Open Images writes ids. Class ids count from 1, by all names, sorted; those of
Open Images are names where its class-descriptions*.csv is among the tables.
"""

import csv
import dataclasses
import posixpath
import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.reasons import Fault, Reason, Rejection
from transforms.errors import InputError
from transforms.formats.csv.sample import CsvReader
from transforms.formats.detection.boxed_images import Numbers
from transforms.formats.detection.listed import (
    TABLE_COLUMNS,
    RowsReader,
    class_ids,
    listing_of,
)
from transforms.formats.detection.objects import (
    NO_BOX,
    SIDES,
    BoxedObject,
    ImageObjects,
    number_in,
)
from transforms.formats.file_names import is_image_name, plain_name, split_in_path
from transforms.formats.label_join import SourcePaths
from transforms.formats.raw_rows import RawRows
from transforms.formats.table import InputFile, Planned

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
_EDGES = ("box0", "box1", "box2", "box3")
_KERAS = ("path", "x1", "y1", "x2", "y2", "class")
_KERAS_ROLES = dict(zip(("image", *_EDGES, "class"), _KERAS, strict=True))
# Numbers of a row: of its box, and of its image.
_NUMBERS, _SIDES = slice(1, 5), slice(5, 7)
_BLOCK_BYTES = 32 << 20
_LOOKED_AT = 64
# Open Images' tables of the names of classes.
_IS_DESCRIPTIONS = re.compile(r"(?i)class-descriptions[^/]*\.csv(\.gz|\.zst)?$")
# Of paths that are not relative.
_IS_PLACE = re.compile(r"^(/|[A-Za-z][A-Za-z0-9+.-]*://)")


def place_of(name: str, folder: str) -> str:
    """Returns the path of an image that a table in a folder calls so."""
    return name if _IS_PLACE.match(name) else posixpath.join(folder, name)


def list_images(
    file: InputFile,
    names: pa.StringArray,
    cells: pa.ListArray,
    numbers: Numbers,
    path_of: Callable[[str], str],
    split_of: Callable[[str], str | None],
    *,
    count: int,
    lines: pa.Int64Array | None = None,
    unread: Sequence[Mapping[str, Any]] = (),
    at_once: int = 1,
) -> pa.Table:
    """Returns the images of a CSV as a listing, each at the place of its first row.

    Args:
      file: the table.
      names: n, of the images, in NFC or not; one that is blank is an image by itself.
      cells: n lists of texts; see `RowsReader`.
      numbers: of the n rows, from 0.
      path_of: the path of an image, by its name.
      split_of: the split that the path of an image says.
      count: of rows that share the bytes of the file.
      lines: of the n rows.
      unread: other rows, as rows of the listing.
      at_once: images that have one place among the shards.
    """
    blank = pc.equal(pc.utf8_trim_whitespace(names), "")
    alone = pc.binary_join_element_wise("", pa.array(numbers).cast(pa.string()), "/")
    keys = pc.if_else(blank, alone, pc.utf8_normalize(names, "NFC"))
    codes = keys.dictionary_encode().indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    starts = np.append(0, np.cumsum(np.bincount(codes))).astype(np.int32)
    first = order[starts[:-1]]

    def by_image(values: pa.Array) -> pa.ListArray:
        return pa.ListArray.from_arrays(pa.array(starts), values.take(pa.array(order)))

    stated = names.take(pa.array(first))
    paths = [path_of(n) if n.strip() else file.origin for n in stated.to_pylist()]
    words = pc.list_element(cells.take(pa.array(first)), 0)
    splits = pc.if_else(pc.equal(words, ""), None, words)
    if splits.null_count == len(paths):
        split = split_in_path(file.origin)
        splits = pa.array([split or split_of(path) for path in paths])
    columns = {
        "path": paths,
        "annotation": pa.repeat(file.origin, len(paths)),
        "stated": stated,
        "split": splits.cast(pa.string()),
        "row": numbers[first],
        "rows": by_image(pa.array(numbers)),
        "cells": by_image(cells),
    }
    columns |= dict.fromkeys(("size", "stamp"), np.zeros(len(paths), np.int64))
    if lines is not None:
        columns |= {"line": lines.take(pa.array(first)), "lines": by_image(lines)}
    common = {"path": file.origin, "annotation": file.origin}
    others = listing_of([{**common, **row} for row in unread], TABLE_COLUMNS)
    # Absent columns are null.
    tables = [others, pa.table(columns)]
    listed = pa.concat_tables(tables, promote_options="default")
    if unread:
        listed = listed.sort_by("row")
    rows, indices = listed["row"].to_numpy(), np.arange(len(listed))
    begins = rows[indices - indices % at_once]
    positions = file.position + file.size * begins // max(count, 1) + rows - begins
    column = listed.schema.get_field_index("position")
    return listed.set_column(column, "position", pa.array(positions))


@dataclasses.dataclass(frozen=True, slots=True)
class BoxesCsvReader(RowsReader):
    """Reads tables with a row for each box; cells are class, box, size and flags.

    Attributes:
      label_column: the column of classes; empty for one of the usual names.
    """

    title: ClassVar[str] = "CSV with a row a box"
    of_object: ClassVar[slice] = slice(1, 1 + _NUMBERS.stop)

    label_column: str = ""

    def plan(self, files: Sequence[InputFile]) -> Planned:
        """Reads all tables, and finds the images, classes and the unit of the boxes.

        Raises:
          InputError: tables contradict each other, or an image has two places.
        """
        paths = self.source_images(files[0].root)
        named: list[tuple[InputFile, Mapping[str, str]]] = []
        others: list[str] = []
        described: dict[str, str] = {}
        for file in files:
            if _IS_DESCRIPTIONS.search(file.origin):
                texts, *_ = _read(file, {"id": "id", "name": "name"}, ("id", "name"))
                ids, names = (texts[role].to_pylist() for role in texts)
                described |= {i: n or i for i, n in zip(ids, names, strict=True)}
                continue
            with file.open() as stream:
                fields = first_row(stream.read(1 << 16))
                columns = columns_of(fields, self.label_column)
            if columns is None:
                others.append(file.origin)
            else:
                named.append((file, columns))
        if not named:
            raise InputError(
                f"A table with a row a box must have columns for the image "
                f"(filename), the box (xmin, ymin, xmax, ymax) and the class (class, "
                f"or --label-column); {files[0].path!r} has others. Rename them, or "
                f"give --format csv."
            )
        roles = {role for _, columns in named for role in columns}
        flags = tuple(flag for flag in _FLAGS.values() if flag in roles)
        units: dict[bool, str] = {}
        classes: set[str] = set()
        places: list[str] = []
        listings: list[pa.Table] = []
        for file, columns in named:
            positional = _KERAS if columns is _KERAS_ROLES else None
            texts, numbers, unread = _read(file, columns, positional)
            if (is_relative := _is_relative(texts)) is not None:
                units[is_relative] = file.origin
            texts["class"] = _mapped(texts["class"], lambda t: described.get(t, t))
            classes.update(pc.unique(texts["class"]).to_pylist())
            if "split" in texts:
                texts["split"] = _mapped(
                    texts["split"], lambda t: split_in_path(t) or t
                )
            place_of = {
                name: self._place(name, file.origin, paths)
                for name in pc.unique(texts["image"]).to_pylist()
                if name
            }
            places += place_of.values()
            listings.append(
                list_images(
                    file,
                    texts["image"],
                    _cells(texts, ("split", "class", *_EDGES, *SIDES, *flags)),
                    numbers,
                    place_of.__getitem__,
                    self.split_of_image,
                    count=len(numbers),
                    unread=unread,
                )
            )
        if len(units) > 1:
            raise InputError(
                f"The boxes of all tables must have one unit; those of "
                f"{units[True]!r} are fractions and those of {units[False]!r} pixels. "
                f"Convert them one by one."
            )
        is_here = any(path in paths or _IS_PLACE.match(path) for path in places)
        if places and not is_here:
            raise InputError(
                f"The images of a table must be below the source; none of "
                f"{named[0][0].path!r} is, such as {places[0]!r:.80}. Name their "
                f"folder with --images-root; --format csv reads the rows as they are."
            )
        reader = dataclasses.replace(
            self, fractions=True in units, values=flags, class_ids=class_ids(classes)
        )
        return reader.planned(
            listings,
            files[0].root,
            others=others,
            seen=f", boxes in {'fractions' if reader.fractions else 'pixels'}",
        )

    def _place(self, name: str, origin: str, paths: SourcePaths) -> str:
        """Returns the path of the image that a table calls so; of absent ones, too."""
        folder = posixpath.dirname(origin)
        if exact := paths.file(name, folder):
            return exact
        called = [] if _IS_PLACE.match(name) else paths.called(name)
        if len(called) > 1 and (split := split_in_path(origin)):
            called = [p for p in called if split_in_path(p) == split] or called
        if len(called) > 1:
            raise InputError(
                f"An image must have one place; {name!r:.80} of {origin!r:.80} is "
                f"{called[0]!r:.80} or {called[1]!r:.80}. Write paths into the table, "
                f"or put it into the folder of its images."
            )
        return called[0] if called else place_of(name, folder)

    def image_of(self, row: Mapping[str, Any]) -> ImageObjects | Fault:
        """Returns the objects of an image, whose rows must state one size."""
        sizes = {tuple(cells[1:][_SIDES]) for cells in row["cells"]}
        if len(sizes) > 1:
            shown = ", ".join(" x ".join(size) for size in sorted(sizes)[:3])
            message = f"all rows of an image must state one size; they state {shown}"
            return Fault(Reason.SIZE_MISMATCH, message)
        objects = [
            self._object(number, cells) for number, _, cells in self.mentions(row)
        ]
        width, height = (number_in(text) for text in next(iter(sizes)))
        return ImageObjects(objects, width, height)

    def _object(self, number: int, cells: Sequence[str]) -> BoxedObject:
        name, raw = cells[0], "\0".join(cells).encode()
        where = f"row {number + 1}: box of {name[:60]!r}"
        box = [number_in(text) for text in cells[_NUMBERS]]
        values: dict[str, int] = {}
        fault = None
        if None in box:
            shown = ",".join(cells[_NUMBERS])[:120]
            message = f"{where}: [{shown}]: four numbers are needed"
            fault = Fault(Reason.BAD_BOX, message)
        for flag, text in zip(self.values, cells[_SIDES.stop :], strict=True):
            value = number_in(text or "0")
            if value not in (-1, 0, 1):
                message = f"{where}: {flag} must be 0, 1 or -1; found {text[:60]!r}"
                fault = fault or Fault(Reason.NOT_A_BOOL, message)
            values[flag] = int(value) if value in (-1, 0, 1) else 0
        numbers = NO_BOX if fault else [n for n in box if n is not None]
        return BoxedObject(name, numbers, where, raw, number, None, fault, values)


def _read(
    file: InputFile, roles: Mapping[str, str], positional: tuple[str, ...] | None
) -> tuple[dict[str, pa.StringArray], Numbers, list[Mapping[str, Any]]]:
    """Returns a CSV's columns of these roles, their rows' numbers, and other rows.

    Args:
      file: the table.
      roles: the name of the column of each.
      positional: the names of all columns; None for those of the header.

    Raises:
      InputError: the file is no table.
    """
    form = CsvReader(header=not positional, columns=positional, trim=True)
    reader: Any = form.plan([file]).reader
    pieces: list[RawRows] = []
    refused: list[Rejection] = []
    for block in reader.blocks(file, block_bytes=_BLOCK_BYTES, limit_rows=None):
        for raw in reader.read(file, block, [*roles.values()]):
            pieces.append(raw)
            refused += raw.rejections(raw.refused)
    texts = {}
    for role, name in roles.items():
        column = pa.chunked_array([raw.columns[name] for raw in pieces], pa.string())
        texts[role] = pc.fill_null(column.combine_chunks(), "")
    unread: list[Mapping[str, Any]] = [
        {
            "row": (it.row or 1) - 1,
            "line": it.line,
            "raw": it.raw,
            "reason": str(it.reason),
            "message": it.message,
        }
        for it in refused
    ]
    numbers = [raw.numbers for raw in pieces] or [np.zeros(0, np.int64)]
    return texts, np.concatenate(numbers), unread


def _mapped(column: pa.StringArray, name_of: Callable[[str], str]) -> pa.StringArray:
    """Returns a CSV's column with new texts; asks `name_of` once for each text."""
    encoded = column.dictionary_encode()
    names = [*map(name_of, encoded.dictionary.to_pylist())]
    return pa.array(names, pa.string()).take(encoded.indices)


def _is_relative(texts: Mapping[str, pa.StringArray]) -> bool | None:
    """Whether boxes are fractions of images; None without a number."""
    cells = pa.concat_arrays([texts[edge] for edge in _EDGES])
    plain = pc.match_substring_regex(cells, r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)$")
    numbers = pc.cast(cells.filter(plain), pa.float64()).to_numpy()
    if not len(numbers):
        return None
    return bool(numbers.max() <= 1 and (numbers % 1 > 0).any())


def _cells(texts: Mapping[str, pa.StringArray], roles: Sequence[str]) -> pa.ListArray:
    """Returns columns of a CSV as lists, a list a row; absent ones empty."""
    count, width = len(texts["image"]), len(roles)
    empty = pa.repeat(pa.scalar("", pa.string()), count)
    flat = pa.concat_arrays([texts.get(role, empty) for role in roles])
    places = np.arange(width * count).reshape(width, count).T.ravel()
    offsets = pa.array(np.arange(count + 1) * width, pa.int32())
    return pa.ListArray.from_arrays(offsets, flat.take(pa.array(places)))


def first_row(head: bytes) -> list[str]:
    """Returns the fields of the first row of a table of boxes, by its first bytes."""
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


def columns_of(fields: Sequence[str], label: str = "") -> Mapping[str, str] | None:
    """Returns role -> name of a box table's columns, or None for other tables.

    Args:
      fields: the first row.
      label: the column of classes; empty for one of the usual names.
    """
    if len(fields) == len(_KERAS) and is_image_name(fields[0]):
        numbers = [number_in(text) for text in fields[1:5]]
        if None not in numbers or not any(fields[1:]):
            return _KERAS_ROLES
        return None
    given = {field.lower(): field for field in reversed(fields)}

    def first(names: Iterable[str]) -> str:
        return next((given[name] for name in names if name in given), "")

    sides = next((names for names in _BOX if given.keys() >= {*names}), [])
    box = [given[name] for name in sides]
    image, kind = first(_IMAGE), first([label.lower()] if label else _CLASS)
    if not (image and kind and box) or kind in (image, *box):
        return None
    names = {"image": image, "class": kind, **dict(zip(_EDGES, box, strict=True))}
    beside = {**{name: name for name in (*SIDES, "split")}, **_FLAGS}
    return names | {role: given[n] for n, role in beside.items() if n in given}


def recognise(
    files: Iterable[tuple[str, int]], head: Callable[[str], bytes], label: str = ""
) -> bool:
    """Whether one of the first CSV files has a row a box; raises OSError.

    Args:
      files, head: paths and sizes, and what gives the first bytes of a file.
      label: see `columns_of`.
    """
    tables = [path for path, _ in files if plain_name(path).lower().endswith(".csv")]
    return any(columns_of(first_row(head(p)), label) for p in tables[:_LOOKED_AT])
