"""Sources of binary, archive and detection formats, and the records made from them."""

import os
import pathlib
from typing import Any

import numpy as np
from PIL import Image

from beam_pipeline.planning.plan import make_plan
from beam_pipeline.settings.spec import make_spec
from tests.support import coco
from tests.support.detection import write_json
from tests.support.drawn_images import saved
from tests.support.image_sources import image_bytes
from tests.support.outputs import dataset, payloads
from tests.support.sources import write_files
from transforms.core.example import messages

Folder = pathlib.Path
# Label folders in two scripts, one of them Korean.
PHOTOS = [
    f"{split}/{label}/{number}.{kind}"
    for split in ("train", "test")
    for label in ("cat", "고양이")
    for number, kind in enumerate(("png", "jpg", "png"))
]


def photos() -> dict[str, bytes]:
    kinds = {".png": "PNG", ".jpg": "JPEG"}
    return {
        path: image_bytes(i, kinds[path[-4:]], (12, 9)) for i, path in enumerate(PHOTOS)
    }


def sorted_messages(directory: Folder, split: str | None = None) -> list[bytes]:
    """Returns the records as messages, in an order of their own."""
    return sorted(
        messages.Example.FromString(payload).SerializeToString(deterministic=True)
        for payload in payloads(directory, split)
    )


def job_digest(source: object, output: object, **settings: object) -> str:
    """Returns the digest of a job."""
    given = {
        "source": str(source),
        "output": str(output),
        "overwrite": True,
        **settings,
    }
    plan = make_plan(make_spec(given))
    assert os.path.basename(plan.work_folder) == plan.work_digest
    return plan.digest


def kinds_of(directory: Folder) -> dict[str, Any]:
    """Returns what the manifest says of features, without their statistics."""
    words = ("kind", "is_label", "classes", "shape", "dtype", "encoding", "derived")
    return {
        feature["name"]: {word: feature[word] for word in words if word in feature}
        for feature in dataset(directory)["features"]
    }


OBJECT = "image/object"


def marked(size: tuple[int, int], box: tuple[int, int, int, int], **more: Any) -> bytes:
    """Returns a black JPEG with a white box (x, y, width, height)."""
    pixels = np.zeros((size[1], size[0], 3), np.uint8)
    x, y, width, height = box
    pixels[y : y + height, x : x + width] = 255
    return saved(Image.fromarray(pixels), "JPEG", quality=95, **more)


def write_coco(root: Folder, boxes: list[tuple[int, int, int, int]]) -> Folder:
    """Writes COCO's own layout: image i has the box i, and image 0 a second one."""
    images = [coco.image(number) for number in range(1, len(boxes) + 1)]
    found = [coco.box(n, n, [*each]) for n, each in enumerate(boxes, start=1)]
    found.append(coco.box(90, 1, [0, 0, 64, 48], category_id=90, iscrowd=1))
    write_json(root / "annotations/instances_val2017.json", coco.coco(images, found))
    for image, box in zip(images, boxes, strict=True):
        write_files(root / "val2017", {image["file_name"]: marked((64, 48), box)})
    return root


BOXES = [(8, 12, 16, 24), (20, 4, 30, 10), (32, 24, 32, 24)]
