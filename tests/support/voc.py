"""A Pascal VOC dataset of a few images."""

import pathlib
from typing import Any
from xml.etree import ElementTree

from tests.support.detection import write_image

Folder = pathlib.Path


def thing(name: str | None = "dog", *sides: object, **more: object) -> dict[str, Any]:
    return {"name": name, "sides": sides or (8, 12, 24, 36), **more}


def write_xml(
    path: Folder,
    *things: dict[str, Any],
    filename: str | None = "",
    size: tuple[object, object] | None = (64, 48),
) -> Folder:
    """Writes an annotation with ElementTree."""
    root = ElementTree.Element("annotation")
    if filename is not None:
        ElementTree.SubElement(root, "filename").text = filename or f"{path.stem}.jpg"
    if size is not None:
        element = ElementTree.SubElement(root, "size")
        for key, value in zip(("width", "height"), size, strict=True):
            ElementTree.SubElement(element, key).text = str(value)
    for item in things:
        element = ElementTree.SubElement(root, "object")
        for key in ("name", "pose", "truncated", "difficult"):
            if item.get(key) is not None:
                ElementTree.SubElement(element, key).text = str(item[key])
        box = ElementTree.SubElement(element, "bndbox")
        # In another order than the usual one, on purpose.
        sides = dict(zip(("xmin", "ymin", "xmax", "ymax"), item["sides"], strict=True))
        for key, value in reversed(sides.items()):
            if value is not None:
                ElementTree.SubElement(box, key).text = str(value)
        part = ElementTree.SubElement(element, "part")
        ElementTree.SubElement(part, "name").text = "head"
        inner = ElementTree.SubElement(part, "bndbox")
        ElementTree.SubElement(inner, "xmin").text = "1"
    path.parent.mkdir(parents=True, exist_ok=True)
    ElementTree.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)
    return path


def annotate(root: Folder, stem: str, *things: dict[str, Any], **more: Any) -> None:
    """VOC's own layout: Annotations/x.xml, JPEGImages/x.jpg."""
    write_xml(root / f"Annotations/{stem}.xml", *things, **more)
    write_image(root / f"JPEGImages/{stem}.jpg")


def example(root: Folder) -> Folder:
    annotate(
        root,
        "2007_01",
        thing("dog", 8, 12, 24, 36, pose="Left", truncated=1, difficult=0),
        thing("고양이", 32.5, 0, 64, 48, pose="Frontal", difficult=1),
    )
    annotate(root, "2007_02")
    annotate(root, "2007_03", thing("dog", 0, 0, 64, 24))
    return root
