"""Damaged annotations with key points, masks and lists: no crash, hang or loss."""

import base64
import json
import pathlib
from collections.abc import Mapping

import numpy as np
import pytest
from PIL import Image

from tests.support.drawn_images import picture, saved
from tests.support.fuzzing import Subject, fuzzed, planned_source, read_planned
from tests.support.stress import CASES

Folder = pathlib.Path
PNG = saved(picture(height=5, width=7), "PNG")
STRIPES = np.repeat([[0, 1, 1, 2, 2, 2, 1]], 5, axis=0).astype(np.uint8)
NUMBERS = saved(Image.fromarray(STRIPES), "PNG")
COLOURS = saved(Image.fromarray(np.stack([STRIPES, STRIPES, STRIPES * 0], 2)), "PNG")
POLYGON, RUNS = [[1, 1, 5, 1, 5, 4.5]], {"size": [5, 7], "counts": [0, 5, 30]}
CATEGORY = {"id": 1, "name": "cat", "keypoints": ["eye", "ear", "tail"]}
COCO = {
    "images": [{"id": 1, "file_name": "1.png", "height": 5, "width": 7}],
    "annotations": [
        {"id": n, "image_id": 1, "category_id": 1, "bbox": [1, 1, n, 2], "area": 2}
        | {"segmentation": outline, "keypoints": [2, 2, 2, n, 3, 1, 0, 0, 0]}
        for n, outline in enumerate((POLYGON, RUNS, []), start=1)
    ],
    "categories": [CATEGORY],
}
MASK = base64.b64encode(saved(Image.fromarray(STRIPES > 0), "PNG")).decode()
SHAPE = {"label": "cat", "shape_type": "mask", "points": [[0, 0], [6, 4]], "mask": MASK}
LABELME = {"shapes": [SHAPE], "imagePath": "1.png"}
POSE = b"0 .5 .5 .5 .5 .4 .4 2 .9 .9 0\n0 .5 .5 .5 .5 .1 .1 1 .2 .2 2\n"
POSES = {
    "images/1.png": PNG,
    "data.yaml": b"train: images\nnames: [cat]\nkpt_shape: [2, 3]",
}
DARKNET = {
    "obj_train_data/1.png": PNG,
    "obj_train_data/1.txt": b"1 .5 .5 .5 .5\n",
    "obj.data": b"classes = 2\ntrain = data/train.txt\nnames = data/obj.names\n",
    "train.txt": b"data/obj_train_data/1.png\n",
    "obj.names": b"cat\ndog\n",
}
VOC = {
    "JPEGImages/1.png": PNG,
    "Annotations/1.xml": b"""<annotation><filename>1.png</filename><object>
<name>cat</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>4</xmax><ymax>3</ymax></bndbox></object>
</annotation>""",
    "ImageSets/Main/train.txt": b"1\n",
    "SegmentationObject/1.png": NUMBERS,
}
OPEN_IMAGES = {
    "1.png": PNG,
    "class-descriptions.csv": b"/m/01,Cat\n/m/02,Dog\n",
    "boxes.csv": b"""ImageID,LabelName,XMin,XMax,YMin,YMax,IsOccluded,IsGroupOf
1,/m/01,0.25,0.75,0.1,0.9,1,-1
1,/m/02,0,1,0,1,0,0
""",
}
PAIRS = {"images/1.png": PNG, "masks/1.png": COLOURS}
GRAY = {**PAIRS, "masks/1.png": NUMBERS}
RETINANET = b"1.png,1,1,4,3,cat\n2.png,,,,,\n"
CVAT = (
    b"# label:color_rgb:parts:actions\nbackground:0,0,0::\ncat:1,1,0::\ndog:2,2,0::\n"
)
ROBOFLOW = b"Pixel Value, Class\n0, background\n1, cat\n2, dog\n"
COLOUR_NAMES = b"0,0,0 background\n1,1,0 cat\n2,2,0 dog\n"


def of(
    layout: str,
    name: str,
    beside: dict[str, bytes],
    data: bytes = b"",
    *,
    settings: Mapping[str, str] | None = None,
) -> Subject:
    """Returns a file of a layout, whose folder is the source."""
    settings = {"format": layout, **(settings or {})}
    return Subject(name, data or beside[name], settings, beside, source=".")


ALL = {"masks": "all"}
LISTED = {"mask_classes": "0/list.txt"}
KINDS = {
    "COCO": of(
        "coco", "a.json", {"1.png": PNG}, json.dumps(COCO).encode(), settings=ALL
    ),
    "LabelMe": of(
        "labelme", "1.json", {"1.png": PNG}, json.dumps(LABELME).encode(), settings=ALL
    ),
    "YOLO poses": of("yolo", "labels/1.txt", POSES, POSE),
    "YOLO names": of("yolo", "obj.names", DARKNET),
    "YOLO list": of("yolo", "train.txt", DARKNET),
    "VOC list": of("voc", "ImageSets/Main/train.txt", VOC),
    "VOC masks": of("voc", "SegmentationObject/1.png", VOC, settings=ALL),
    "keras-retinanet": of(
        "boxes_csv", "a.csv", {"1.png": PNG, "2.png": PNG}, RETINANET
    ),
    "Open Images": of("boxes_csv", "boxes.csv", OPEN_IMAGES),
    "class names": of("boxes_csv", "class-descriptions.csv", OPEN_IMAGES),
    "CVAT's colours": of("pairs", "list.txt", PAIRS, CVAT, settings=LISTED),
    "Roboflow's values": of("pairs", "list.txt", GRAY, ROBOFLOW, settings=LISTED),
    "colours": of("pairs", "list.txt", PAIRS, COLOUR_NAMES, settings=LISTED),
}


@pytest.mark.parametrize("cases", [range(20), *CASES[1:]], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_damaged_annotations(
    kind: str, cases: range, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any damage gives rows, rejections or one typed error, soon."""
    monkeypatch.chdir(tmp_path)
    subject = KINDS[kind]
    whole = subject.write(tmp_path / "0", subject.data)
    outcome = read_planned(planned_source(whole, **subject.settings), whole)
    assert outcome.kind == "clean"
    outcomes = fuzzed(tmp_path, [subject], cases, planned_before=False)
    assert outcomes["clean"] + outcomes["rejected"] > 0, outcomes
