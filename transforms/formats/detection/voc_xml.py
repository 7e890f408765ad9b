"""Parse Pascal VOC XML: one file per image, with its size and objects.

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
import math
from typing import Self
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

IS_CVAT = "CVAT XML, perhaps, which is not read; export COCO or YOLO from CVAT"
"""Of a file whose root is `<annotations>`."""

# Real files have a few KB; a larger one is no annotation.
_MAX_BYTES = 16 << 20
_SIDES = ("xmin", "ymin", "xmax", "ymax")
_BOOLS = {"0": 0, "1": 1, "false": 0, "true": 1}


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
      width, height: in pixels; None where they are no positive whole numbers.
      stated: width and height as they are written.
      objects: in the file's order.
    """

    filename: str
    width: int | None
    height: int | None
    stated: tuple[str | None, str | None]
    objects: tuple[VocObject, ...]

    @property
    def lacks_size(self) -> bool:
        """Whether no size is stated: a side is absent, zero, or no number."""
        numbers = [_number(text) for text in self.stated]
        return any(number == 0 or math.isnan(number) for number in numbers)

    def with_size(self, width: int, height: int) -> Self:
        """Returns the image with this size."""
        return dataclasses.replace(self, width=width, height=height)


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
    width, height = root.findtext("size/width"), root.findtext("size/height")
    return VocImage(
        (root.findtext("filename") or "").strip(),
        _pixels(width),
        _pixels(height),
        (width, height),
        tuple(map(_object, root.iterfind("object"))),
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


def _pixels(text: str | None) -> int | None:
    number = _number(text)
    return int(number) if 0 < number < 2**31 and number.is_integer() else None


def _flag(text: str) -> int | None:
    return _BOOLS.get(text.lower()) if text else 0
