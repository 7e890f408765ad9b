"""Pascal VOC XML as rows of images, under the names of the TF Object Detection API.

    VOC2012/Annotations/2007_000027.xml
    VOC2012/JPEGImages/2007_000027.jpg
    VOC2012/ImageSets/Main/{train,val,trainval,test}.txt    ids, one a line
    VOC2012/ImageSets/Segmentation/...                      with --image-set
    VOC2012/SegmentationClass/2007_000027.png, SegmentationObject/2007_000027.png

Images may also be in `images` beside the folder of the XML files, or beside the one
above it (`annotations/xmls`), or among the XML files. One of these has the size and the
objects of one image, and is a row:

    <annotation>
      <filename>000001.jpg</filename>
      <size><width>353</width><height>500</height><depth>3</depth></size>
      <object>
        <name>dog</name> <pose>Left</pose> <truncated>1</truncated>
        <difficult>0</difficult>
        <bndbox><xmin>48</xmin><ymin>240</ymin><xmax>195</xmax><ymax>371</ymax></bndbox>
        <part>...</part>
      </object>
    </annotation>

Class ids count from 1, by all names, sorted. Parts of objects and the flag `occluded`
are not read. Masks are where they are asked for: of classes in `SegmentationClass`, of
objects in `SegmentationObject`, where the pixels of the first object of a file are 1.

Coordinates are divided by the image's size as they stand, as the TF Object Detection
API and TFDS do it. The devkit counts pixels from 1; with `first_pixel` 1 the left and
the upper edge of a box are one less before.

Splits are those of the image sets where there are some, and XML files that no list has
are skipped; else those that words in the names of folders say.

A document type is refused before anything of it is read: entities declared there may
expand without end, or name other files.

Sources: http://host.robots.ox.ac.uk/pascal/VOC/voc2012/htmldoc/devkit_doc.html;
research/object_detection/dataset_tools/create_pascal_tf_record.py of
tensorflow/models.
"""

import dataclasses
import functools
import math
import os
import posixpath
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

import numpy as np
import pyarrow as pa

from transforms.core.image.masks import Mask as Pixels
from transforms.core.image.png import decode_png
from transforms.core.image.policy import ImagePolicy, prepare_image
from transforms.core.reasons import Fault, FaultError, Reason
from transforms.errors import InputError, SpecError
from transforms.formats.detection.listed import (
    NOT_SELECTED,
    ListedReader,
    class_ids,
    listing_of,
)
from transforms.formats.detection.objects import (
    SIDES,
    BoxedObject,
    Found,
    ImageObjects,
    lines_in,
    number_in,
)
from transforms.formats.pairs import MASK, MASK_WORDS, masks_in
from transforms.formats.table import InputFile, Planned
from transforms.storage.files import storage

_CLASSES, _OBJECTS = "SegmentationClass", "SegmentationObject"
# Folder of masks -> what they are of, and what images without one mean; nothing where
# `--masks` must name the folder.
_MASKS = {
    _CLASSES: ("class", "DeepLab and TF-Vision cannot read records without one"),
    _OBJECTS: ("object", "the mask of their objects is the box, filled"),
    # As of Oxford-IIIT pets.
    "trimaps": ("class", ""),
}
_ROOT = re.compile(rb"<(annotations?)[\s>]")
_CVAT = "CVAT XML, perhaps, which is not read; export COCO or YOLO from CVAT"
_EDGES = ("xmin", "ymin", "xmax", "ymax")
_TEXTS = ("name", "pose", "truncated", "difficult")
_BOOLS = {"": 0, "0": 0, "1": 1, "false": 0, "true": 1}
_FOLDERS = ("JPEGImages", "images")
_SETS = {"train": "train", "val": "validation", "test": "test"}


@dataclasses.dataclass(frozen=True, slots=True)
class VocReader(ListedReader):
    """Reads trees of VOC XML files.

    Attributes:
      first_pixel: the number of the first pixel of a row or column: 0 or 1.
      image_set: the folder of lists of images that say the splits.
    """

    title: ClassVar[str] = "Pascal VOC XML"
    what: ClassVar[str] = "a VOC annotation"
    has_place: ClassVar[bool] = False
    drawn_rows: ClassVar[int] = 200

    values: tuple[str, ...] = ("difficult", "truncated", "view")
    first_pixel: int = 0  # type: ignore[misc]
    image_set: str = "Main"

    def plan(self, files: Sequence[InputFile]) -> Planned:
        """Parses all files for their classes; finds masks and splits.

        Raises:
          InputError: an image is in the lists of two splits.
          SpecError: the image set that is asked for is not there.
        """
        root = files[0].root
        paths = self.source_images(root)
        names: set[str] = set()
        sets: dict[str, Mapping[str, str] | None] = {}
        rows: list[dict[str, Any]] = []
        for row, image in self.listed_files(files, names, []):
            folder, name = posixpath.split(row["annotation"])
            if folder not in sets:
                lists = posixpath.join(posixpath.dirname(folder), "ImageSets")
                lists = os.path.join(root, lists, self.image_set)
                sets[folder] = image_sets(lists) if folder else None
            if (listed := sets[folder]) is not None:
                row["split"] = listed.get(name.rpartition(".")[0])
                row["reason"] = None if row["split"] else NOT_SELECTED
            row["path"] = paths.image(image.name, row["annotation"], *_places(folder))
            rows.append(row)
        if self.image_set != "Main" and not any(sets.values()):
            raise SpecError(
                f"image_set must be a folder of ImageSets with lists of images, such "
                f"as train.txt; {self.image_set!r:.80} is none."
            )
        counts, notes = self._find_masks(rows, root)
        reader = dataclasses.replace(self, class_ids=class_ids(names))
        own = dict.fromkeys(
            (_CLASSES, _OBJECTS) if self.masks == "all" else (), pa.string()
        )
        return reader.planned(
            [listing_of(rows, own)],
            root,
            notes=notes,
            outlines=counts[_OBJECTS] if self.masks == "all" else 0,
        )

    def _find_masks(
        self, rows: Sequence[dict[str, Any]], root: str
    ) -> tuple[dict[str, int], list[str]]:
        """Counts the masks beside the annotations, of classes and of objects.

        Adds their paths to the rows of a listing where they are to be stored. Also
        returns notes on those that are not, or that images lack.
        """
        origins = [row["annotation"] for row in rows]
        above = [posixpath.dirname(posixpath.dirname(origin)) for origin in origins]
        counts: dict[str, int] = {}
        notes: list[str] = []
        for name, (what, lack) in _MASKS.items():
            folders = {p: posixpath.join(p, name) for p in dict.fromkeys(above)}
            masks = {p: masks_in(os.path.join(root, f)) for p, f in folders.items()}
            counts[name] = count = sum(map(len, masks.values()))
            if count and self.masks == "all" and lack:
                for row, parent in zip(rows, above, strict=True):
                    origin = posixpath.basename(row["annotation"])
                    mask = masks[parent].of("", origin, "")
                    row[name] = mask and os.path.join(root, folders[parent], mask)
                if lacking := sum(row[name] is None for row in rows):
                    of_all = f"{lacking:,} of {len(rows):,} images"
                    notes.append(f"{of_all} have no {what} mask: {lack}")
            elif count and self.masks in MASK_WORDS:
                where = next(folders[parent] for parent in masks if len(masks[parent]))
                notes.append(
                    f"{count:,} {what} mask{'s' if count > 1 else ''} in {where!r:.80} "
                    f"left out; --masks {'all' if lack else where} stores them"
                )
        return counts, notes

    def objects_of(self, row: Mapping[str, Any], root: str) -> Found:
        """Returns the objects of an XML file."""
        image, data = super(VocReader, self).objects_of(row, root)
        if isinstance(image, Fault):
            return image, data
        if mask := row.get(_OBJECTS):
            pixels = functools.cache(lambda: _numbers_in(mask, self.image_policy))
            objects = [
                item._replace(draw=functools.partial(_numbered, mask, pixels, number))
                for number, item in enumerate(image.objects, start=1)
            ]
            image = image._replace(objects=objects)
        return image, data

    def parse(self, data: bytes) -> ImageObjects:
        """Returns the content of a file; its name is that which is stated.

        Raises:
          ValueError: it is not XML, has a document type, or is no annotation.
        """
        root = _parse(data)
        if root.tag != "annotation":
            hint = f": {_CVAT}" if root.tag == "annotations" else ""
            raise ValueError(
                f"its root must be <annotation>, it is <{root.tag[:60]}>{hint}"
            )
        sides = [number_in(root.findtext(f"size/{side}") or "") for side in SIDES]
        width, height = (None if s is None or math.isnan(s) else s for s in sides)
        objects = [_object(*it) for it in enumerate(root.findall("object"), start=1)]
        name = (root.findtext("filename") or "").strip()
        return ImageObjects(objects, width, height, name=name)

    def class_masks(
        self, rows: Sequence[Mapping[str, Any]], root: str, images: Sequence[str]
    ) -> dict[str, pa.Array]:
        """Returns the column of masks that the listing has, or in a folder."""
        if not rows or _CLASSES not in rows[0]:
            return super(VocReader, self).class_masks(rows, root, images)
        return {MASK: pa.array([row[_CLASSES] for row in rows], pa.string())}


def _places(folder: str) -> list[str]:
    """Returns the folders that may hold VOC's images, by that of the XML files."""
    above = posixpath.dirname(folder)
    places = [posixpath.join(above, inner) for inner in _FOLDERS if folder]
    places.append(folder)
    # As of Oxford-IIIT pets: annotations/xmls beside images.
    if above:
        up = posixpath.dirname(above)
        places += [posixpath.join(up, inner) for inner in _FOLDERS]
    return places


def _parse(data: bytes) -> Element:
    """Returns the root of XML; ValueError if it is invalid or has a document type."""
    builder = TreeBuilder()
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = _refuse_doctype
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.data
    try:
        parser.Parse(data, True)
    except (expat.ExpatError, LookupError) as error:
        raise ValueError(f"it is not well-formed XML: {error}") from error
    return builder.close()


def _refuse_doctype(*_: object) -> None:
    """Raises ValueError at a document type, whose entities may be a bomb."""
    raise ValueError("a document type (<!DOCTYPE ...>) is not allowed in it")


def _object(number: int, item: Element) -> BoxedObject:
    """Returns an <object>, numbered from 1, with what is wrong with it."""
    # One pass over the children is far faster than a search for each name. Reversed,
    # so that the first of several children with one name wins, as in `find`.
    texts = {child.tag: child.text for child in reversed(item)}
    corners = item.find("bndbox")
    edges = {} if corners is None else {e.tag: e.text or "" for e in reversed(corners)}
    stated = tuple(map(edges.get, _EDGES))
    numbers = (number_in(edge or "") for edge in stated)
    box = [math.nan if number is None else number for number in numbers]
    name, pose, *flags = ((texts.get(tag) or "").strip() for tag in _TEXTS)
    where = f"object {number}, {name[:60]!r}"
    truncated, difficult = (_BOOLS.get(flag.lower()) for flag in flags)
    fault = None
    if not name:
        where = f"object {number}"
        fault = Fault(Reason.MISSING_VALUE, f"{where} has no <name>")
    elif truncated is None or difficult is None:
        wrong = "truncated" if truncated is None else "difficult"
        fault = Fault(Reason.NOT_A_BOOL, f"{where}: <{wrong}> must be 0 or 1")
    elif not all(map(math.isfinite, box)):
        words = "bndbox must hold xmin, ymin, xmax and ymax as finite numbers"
        fault = Fault(Reason.BAD_BOX, f"{where}: {words}; found {[*stated]}")
    values = {"truncated": truncated, "difficult": difficult, "view": pose}
    raw = (name, pose, *flags, *stated)
    return BoxedObject(name, box, where, raw, fault=fault, values=values)


def image_sets(folder: str) -> Mapping[str, str] | None:
    """Returns id -> split, as the lists in a folder say it; None where there is none.

    Raises:
      InputError: an id is in the lists of two splits.
      OSError: a list cannot be read.
    """
    splits: dict[str, str] = {}
    has_lists = False
    for name in (*_SETS, "trainval"):
        path = os.path.join(folder, f"{name}.txt")
        try:
            ids = lines_in(path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        has_lists = True
        for item in ids:
            # An id of `trainval` that is in neither half belongs to the larger one.
            split = _SETS.get(name) or splits.get(item, "train")
            if splits.setdefault(item, split) != split:
                raise InputError(
                    f"An image must be in one split; {path!r} lists {item!r}, which is "
                    f"in {splits[item]!r} too. Take it out of one of the lists."
                )
    return splits if has_lists else None


def _numbered(
    path: str,
    pixels_of: Callable[[], Pixels],
    number: int,
    height: int,
    width: int,
    _box: Sequence[float],
) -> Pixels:
    """Returns the pixels of a VOC mask that have a number; raises FaultError."""
    pixels = pixels_of()
    if pixels.shape != (height, width):
        raise FaultError(
            Reason.SIZE_MISMATCH,
            f"{path[-200:]!r} has {pixels.shape[1]} x {pixels.shape[0]} pixels, "
            f"and the image {width} x {height}",
        )
    return np.asarray(pixels == number, np.uint8)


def _numbers_in(path: str, policy: ImagePolicy) -> Pixels:
    """Returns the number of each pixel of a VOC mask; raises FaultError."""
    try:
        data, _ = storage(path).read_stamped(policy.max_bytes)
    except OSError as error:
        raise FaultError(Reason.UNREADABLE, f"{path!r}: {error.strerror}") from error
    plain = dataclasses.replace(policy.for_masks(of_image=True), resize=None)
    result = prepare_image(data, plain)
    if isinstance(result, Fault):
        raise FaultError(result.reason, f"{path[-200:]!r}: {result.message}")
    return np.asarray(decode_png(result.data))


def recognise(files: Iterable[tuple[str, int]], head: Callable[[str], bytes]) -> bool:
    """Whether the first file begins like VOC's; raises OSError.

    Raises:
      InputError: it begins like one of CVAT.
    """
    first = next((path for path, _ in files if path.lower().endswith(".xml")), None)
    match = _ROOT.search(head(first)) if first else None
    if match and match[1] == b"annotations":
        raise InputError(f"XML must be Pascal VOC's; {first!r} is {_CVAT}.")
    return match is not None
