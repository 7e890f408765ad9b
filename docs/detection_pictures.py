"""The pictures of how-to/detection.md, drawn by the programs that `code` prints.

    python docs/detection_pictures.py     where TensorFlow is installed

Shapes are drawn, listed as COCO does and converted: with boxes alone, with masks, and
with the corners as key points. The program of each dataset draws a batch of it.
"""

import contextlib
import io
import json
import math
import os
import pathlib
import random
import tempfile
from typing import Any

from PIL import Image, ImageDraw

import beam_tfrecord
from beam_pipeline import reader_programs

PICTURES = pathlib.Path(__file__).resolve().parent / "how-to"
SIDE = 160
# Name -> corners and gray.
SHAPES = {"disc": (48, 235), "square": (4, 205), "triangle": (3, 175)}


def draw_shapes(folder: pathlib.Path, *, has_points: bool) -> None:
    """Draws four images of two shapes each, and lists the outlines as COCO does."""
    rng = random.Random(3)
    names = [name for name in SHAPES if not (has_points and name == "disc")]
    images, annotations = [], list[dict[str, Any]]()
    for number in range(4):
        image = Image.new("RGB", (SIDE, SIDE), (90, 100, 110))
        for middle in (42, 118):
            kind = rng.randrange(len(names))
            corners, gray = SHAPES[names[kind]]
            x, y = middle + rng.randint(-6, 6), 80 + rng.randint(-40, 40)
            radius, turn = rng.randint(20, 34), rng.random() * math.tau
            points = [
                (
                    round(x + radius * math.cos(turn + math.tau * i / corners), 1),
                    round(y + radius * math.sin(turn + math.tau * i / corners), 1),
                )
                for i in range(corners)
            ]
            ImageDraw.Draw(image).polygon(points, fill=(gray, gray, gray))
            left, top = (min(point[axis] for point in points) for axis in (0, 1))
            right, bottom = (max(point[axis] for point in points) for axis in (0, 1))
            seen = [n for point in points for n in (*point, 2)] if has_points else []
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": number,
                    "category_id": kind + 1,
                    "bbox": [left, top, right - left, bottom - top],
                    "segmentation": [[n for point in points for n in point]],
                    "keypoints": seen,
                }
            )
        image.save(folder / f"{number}.png")
        size = {"width": SIDE, "height": SIDE}
        images.append({"id": number, "file_name": f"{number}.png", **size})
    categories = [{"id": i, "name": name} for i, name in enumerate(names, start=1)]
    content = {"images": images, "annotations": annotations, "categories": categories}
    (folder / "shapes.json").write_text(json.dumps(content))


def main() -> None:
    """Draws, converts and draws again; the pictures are the same in each run."""
    for name in ("boxes", "masks", "key-points"):
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            os.mkdir("shapes")
            draw_shapes(pathlib.Path("shapes"), has_points=name == "key-points")
            masks = "all" if name == "masks" else "none"
            beam_tfrecord.convert("shapes", "out/shapes", masks=masks)
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                reader_programs.show("out/shapes", "tensorflow")
            names: dict[str, Any] = {}
            exec(printed.getvalue(), names)
            # In the order of the dataset, which `batches` shuffles.
            rows = names["read"]("train").map(names["prepare"])
            names["draw"](
                next(iter(rows.ragged_batch(4))), str(PICTURES / f"{name}.png")
            )


if __name__ == "__main__":
    main()
