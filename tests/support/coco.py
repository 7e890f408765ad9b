"""A COCO dataset of a few images."""

import pathlib
from typing import Any

from tests.support.detection import write_image, write_json

Folder = pathlib.Path
Json = dict[str, Any]


CATEGORIES = [
    {"id": 1, "name": "person"},
    {"id": 3, "name": "car"},
    {"id": 90, "name": "brush"},
]


def image(number: int, **more: Any) -> Json:
    name = f"{number:012}.jpg"
    return {"id": number, "file_name": name, "height": 48, "width": 64, **more}


def box(number: int, of: int | None, bbox: Any = (8, 12, 16, 24), **more: Any) -> Json:
    out = {"id": number, "image_id": of, "category_id": 1, "bbox": bbox}
    return {**out, "area": 300.5, "iscrowd": 0, **more}


def coco(images: list[Json], annotations: list[Json], **more: Any) -> Json:
    found = {"info": {"year": 2017}, "images": images, "annotations": annotations}
    return {**found, "categories": CATEGORIES, **more}


# Of a side: images that claim more are small ones, or a test would take gigabytes.
_MOST_PIXELS = 4096


def tree(root: Folder, content: Json, split: str = "train2017") -> Folder:
    """COCO's own layout: annotations/instances_S.json, S/*.jpg."""
    write_json(root / f"annotations/instances_{split}.json", content)
    for item in content["images"]:
        if item.get("file_name"):
            size = item["width"], item["height"]
            good = all(isinstance(n, int) and 0 < n <= _MOST_PIXELS for n in size)
            write_image(root / split / item["file_name"], size if good else (64, 48))
    return root


EXAMPLE = coco(
    [image(9), image(2, height=96), image(7)],
    [
        box(1, 2, [8, 12, 16, 24], category_id=3),
        box(2, 9, [0, 0, 64, 48], segmentation=[[1.5, 2, 3, 4]]),
        box(3, 2, [32, 48, 32, 48], category_id=90, iscrowd=1, area=7.25),
    ],
)
