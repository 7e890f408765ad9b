"""The same three images with boxes in each layout that is read."""

import json
import pathlib

from tests.support.detection import float32, write_image

Folder = pathlib.Path
# Image -> class and box in pixels of an image of 40 x 20.
IMAGES = {
    "a.jpg": [("cat", (4, 2, 20, 10)), ("dog", (0, 0, 40, 20))],
    "b.jpg": [("dog", (10, 5, 30, 15))],
    "c.jpg": [],
}
LAYOUTS = ("yolo", "boxes_csv", "labelme")


def expected_boxes(name: str) -> list[list[float]]:
    """Returns the boxes of an image in fractions."""
    return [
        float32(left / 40, top / 20, right / 40, bottom / 20)
        for _, (left, top, right, bottom) in IMAGES[name]
    ]


def write_layout(root: Folder, layout: str) -> Folder:
    """Writes the images, in a split for training, and their annotations."""
    for name in IMAGES:
        write_image(root / "train/images" / name, (40, 20))
    if layout == "yolo":
        (root / "train/labels").mkdir()
        (root / "data.yaml").write_text("train: train/images\nnames: [cat, dog]\n")
        for name, boxes in IMAGES.items():
            lines = []
            for word, (left, top, right, bottom) in boxes:
                sides = (left + right) / 80, (top + bottom) / 40
                spans = (right - left) / 40, (bottom - top) / 20
                number = ("cat", "dog").index(word)
                lines.append(" ".join(map(str, [number, *sides, *spans])) + "\n")
            label = root / "train/labels" / name.replace(".jpg", ".txt")
            label.write_text("".join(lines))
    elif layout == "boxes_csv":
        rows = ["filename,width,height,class,xmin,ymin,xmax,ymax"]
        for name, boxes in IMAGES.items():
            rows += [f"{name},40,20,{w},{','.join(map(str, b))}" for w, b in boxes]
            rows += [] if boxes else [f"{name},40,20,,,,,"]
        (root / "train_labels.csv").write_text("\n".join(rows) + "\n")
    else:
        for name, boxes in IMAGES.items():
            shapes = [
                {"label": w, "points": [b[:2], b[2:]], "shape_type": "rectangle"}
                for w, b in boxes
            ]
            content = {"shapes": shapes, "imagePath": name}
            size = {"imageWidth": 40, "imageHeight": 20}
            path = root / "train/images" / name.replace(".jpg", ".json")
            path.write_text(json.dumps(content | size))
    return root
