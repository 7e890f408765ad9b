"""The files of a Pascal VOC folder: XML, an image each, its objects, images, splits.

    VOC2012/Annotations/2007_000027.xml
    VOC2012/JPEGImages/2007_000027.jpg
    VOC2012/ImageSets/Main/{train,val,trainval,test}.txt    ids, one a line

Images may also be in `images` beside the folder of the XML files, or among them. An
XML file has the size and the objects of one image:

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

A document type is refused before anything of it is read: entities declared there may
expand without end, or name other files.

Source: http://host.robots.ox.ac.uk/pascal/VOC/voc2012/htmldoc/devkit_doc.html
"""

import dataclasses
import functools
import math
import os
import posixpath
from collections.abc import Mapping
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from transforms.errors import InputError
from transforms.storage.entries import stamp_of
from transforms.storage.files import storage

IS_CVAT = "CVAT XML, perhaps, which is not read; export COCO or YOLO from CVAT"
"""Of a file whose root is `<annotations>`."""

# Real files have a few KB; a larger one is no annotation.
_MAX_BYTES = 16 << 20
_SIDES = ("xmin", "ymin", "xmax", "ymax")
_BOOLS = {"0": 0, "1": 1, "false": 0, "true": 1}
_FOLDERS = ("JPEGImages", "images")
_SUFFIXES = (".jpg", ".jpeg", ".png", ".JPG", ".JPEG", ".PNG", ".bmp", ".webp")
_SETS = {"train": "train", "val": "validation", "test": "test"}


@dataclasses.dataclass(frozen=True, slots=True)
class VocObject:
    """One object.

    Attributes:
      name: of its class; empty if not stated.
      pose: its view; empty if not stated.
      truncated, difficult: 0 or 1; 0 where not stated, None where neither.
      box: xmin, ymin, xmax, ymax in pixels; NaN for what is no number.
      stated: the box as it is written.
    """

    name: str
    pose: str
    truncated: int | None
    difficult: int | None
    box: tuple[float, float, float, float]
    stated: tuple[str | None, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class VocImage:
    """One file.

    Attributes:
      filename: of the image; empty where not stated.
      width, height: as stated; None where that is no number.
      objects: in the file's order.
    """

    filename: str
    width: float | None
    height: float | None
    objects: tuple[VocObject, ...]


def parse_voc(data: bytes) -> VocImage:
    """Returns the content of a file.

    Raises:
      ValueError: it is not XML, has a document type, or is no annotation.
    """
    root = _parse(data)
    if root.tag != "annotation":
        hint = f": {IS_CVAT}" if root.tag == "annotations" else ""
        raise ValueError(
            f"its root must be <annotation>, it is <{root.tag[:60]}>{hint}"
        )
    sides = [_number(root.findtext(f"size/{side}")) for side in ("width", "height")]
    width, height = (None if math.isnan(side) else side for side in sides)
    filename = (root.findtext("filename") or "").strip()
    return VocImage(
        filename, width, height, tuple(map(_object, root.iterfind("object")))
    )


def _parse(data: bytes) -> Element:
    if len(data) > _MAX_BYTES:
        raise ValueError(f"it has {len(data)} bytes; at most {_MAX_BYTES} are read")
    builder = TreeBuilder()
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = _refuse
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.data
    try:
        parser.Parse(data, True)
    except (expat.ExpatError, LookupError) as error:
        raise ValueError(f"it is not well-formed XML: {error}") from error
    return builder.close()


def _refuse(*_: object) -> None:
    raise ValueError("a document type (<!DOCTYPE ...>) is not allowed in it")


def _object(item: Element) -> VocObject:
    # One pass over the children is far faster than a search for each name. Reversed,
    # so that the first of several children with one name wins, as in `find`.
    fields = {child.tag: child for child in reversed(item)}
    corners = {side.tag: side.text or "" for side in reversed(fields.get("bndbox", ()))}
    stated = tuple(map(corners.get, _SIDES))
    xmin, ymin, xmax, ymax = map(_number, stated)

    def text(tag: str) -> str:
        found = fields.get(tag)
        return "" if found is None else (found.text or "").strip()

    return VocObject(
        text("name"),
        text("pose"),
        _flag(text("truncated")),
        _flag(text("difficult")),
        (xmin, ymin, xmax, ymax),
        stated,
    )


def _number(text: str | None) -> float:
    # float() reads 1_0 as ten.
    if text is None or "_" in text:
        return math.nan
    try:
        return float(text)
    except ValueError:
        return math.nan


def _flag(text: str) -> int | None:
    return _BOOLS.get(text.lower()) if text else 0


def image_path(root: str, origin: str, filename: str, images_root: str = "") -> str:
    """Returns where the image of an XML file is, relative to the root if it can be.

    The stated file name comes before the XML file's own with another suffix. Where
    nothing is found, the likeliest path is returned.

    Args:
      root: the source's.
      origin: of the XML file, relative to it.
      filename: as the XML file states it; empty for none.
      images_root: the folder of all images; empty to look where they usually are.
    """
    folder, name = posixpath.split(origin)
    above = posixpath.dirname(folder)
    places = [posixpath.join(above, inner) for inner in _FOLDERS if folder]
    places.append(folder)
    if images_root:
        places = [images_root]
    stem = name.rpartition(".")[0]
    # Some tools write whole paths, some of them those of Windows: the longest tail of
    # one that is there is meant.
    parts = [p for p in filename.replace("\\", "/").split("/") if p.strip(".")]
    names = ["/".join(parts[first:]) for first in range(len(parts))]
    likely = parts[-1] if parts else stem + _SUFFIXES[0]
    for name in (*names, *(stem + suffix for suffix in _SUFFIXES)):
        for place in places:
            path = posixpath.join(place, name)
            if storage(os.path.join(root, path)).exists():
                return path
    return posixpath.join(places[0], likely)


def image_sets(root: str, folder: str) -> Mapping[str, str] | None:
    """Returns the split of each id, as the image sets beside a folder say it.

    Args:
      root: the source's.
      folder: of XML files, relative to it.

    Returns:
      id -> split; None where there are no image sets.

    Raises:
      InputError: an id is in the lists of two splits.
      OSError: a list cannot be read.
    """
    main = os.path.join(root, posixpath.dirname(folder), "ImageSets", "Main")
    stamps: list[tuple[str, int]] = []
    for name in (*_SETS, "trainval"):
        path = os.path.join(main, f"{name}.txt")
        try:
            with storage(path).open_input() as file:
                stamps.append((name, stamp_of(file)))
        except (FileNotFoundError, NotADirectoryError):
            continue
    return _read_sets(main, tuple(stamps)) if folder and stamps else None


@functools.lru_cache(maxsize=4)
def _read_sets(main: str, stamps: tuple[tuple[str, int], ...]) -> Mapping[str, str]:
    """Reads the lists; the stamps make the cache miss when one has changed."""
    splits: dict[str, str] = {}
    for name, _ in stamps:
        path = os.path.join(main, f"{name}.txt")
        try:
            ids = storage(path).read_bytes().decode("utf-8-sig").split("\n")
        except UnicodeDecodeError as error:
            raise InputError(f"Lists of ids must be UTF-8; {path!r} is not.") from error
        for line in ids:
            item = line.strip()
            if not item:
                continue
            # An id of `trainval` that is in neither half belongs to the larger one.
            split = _SETS.get(name) or splits.get(item, "train")
            if splits.setdefault(item, split) != split:
                raise InputError(
                    f"An image must be in one split; {path!r} lists {item!r}, which is "
                    f"in {splits[item]!r} too. Take it out of one of the lists."
                )
    return splits
