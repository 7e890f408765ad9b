"""From boxes in COCO's format to a small detector in PyTorch.

    pip install . torch
    python coco_detection.py

Draws its own data, in the form of COCO: `street/images` and `street/annotations.json`.
"""

import json
import pathlib
import random
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch.utils.data import DataLoader

import beam_tfrecord

SIZE = 64  # pixels
CELLS = 8  # of a grid, across and down
SHAPES = ("disc", "square")
Row = dict[str, Any]


def draw(folder: pathlib.Path, images: int) -> None:
    """Draws images with one to three shapes, and lists their boxes as COCO does."""
    rng = random.Random(1)
    (folder / "images").mkdir(parents=True, exist_ok=True)
    found: dict[str, list[Any]] = {
        "images": [],
        "annotations": [],
        "categories": [{"id": i + 1, "name": name} for i, name in enumerate(SHAPES)],
    }
    for number in range(images):
        image = Image.new("L", (SIZE, SIZE), rng.randint(150, 255))
        for _ in range(rng.randint(1, 3)):
            side, kind = rng.randint(12, 24), rng.randrange(len(SHAPES))
            x, y = rng.randint(0, SIZE - side), rng.randint(0, SIZE - side)
            pen = ImageDraw.Draw(image)
            paint = (pen.ellipse, pen.rectangle)[kind]
            paint((x, y, x + side - 1, y + side - 1), fill=rng.randint(0, 100))
            found["annotations"].append(
                {
                    "id": len(found["annotations"]) + 1,
                    "image_id": number,
                    "category_id": kind + 1,
                    "bbox": [x, y, side, side],
                    "area": side * side,
                    "iscrowd": 0,
                }
            )
        name = f"{number:04}.png"
        image.save(folder / "images" / name)
        found["images"].append(
            {"id": number, "file_name": name, "width": SIZE, "height": SIZE}
        )
    (folder / "annotations.json").write_text(json.dumps(found))


def collate(rows: list[Row]) -> tuple[torch.Tensor, torch.Tensor]:
    """Makes a batch: images, and for each cell which shape has its centre there.

    Lists of boxes differ in length, so PyTorch's own collate cannot stack them. Class
    ids of the records start at 1; 0 is "nothing".
    """
    images = torch.zeros(len(rows), 1, SIZE, SIZE)
    cells = torch.zeros(len(rows), CELLS, CELLS, dtype=torch.int64)
    for at, row in enumerate(rows):
        images[at, 0] = torch.from_numpy(np.float32(row["image/encoded"][..., 0]) / 255)
        # Numbers from 0 to 1: left, top, right, bottom.
        box = row["image/object/bbox"]
        x, y = ((box[:, :2] + box[:, 2:]) / 2 * CELLS).astype(int).T
        cells[at, y, x] = torch.from_numpy(row["image/object/class/label"])
    return images, cells


COLUMNS = ["image/encoded", "image/object/bbox", "image/object/class/label"]


def main() -> None:
    """Draws, converts, trains and tests."""
    draw(pathlib.Path("street"), images=200)
    report = beam_tfrecord.convert(
        "street", "out/street", splits={"train": 0.8, "test": 0.2}, overwrite=True
    )
    print("images:", {name: each["records"] for name, each in report.splits.items()})
    print("boxes:", report.parts["boxes"])

    torch.manual_seed(1)
    dataset = beam_tfrecord.open_dataset("out/street", images="array")
    train = DataLoader(
        dataset["train"].select(COLUMNS),
        batch_size=16,
        shuffle=True,
        collate_fn=collate,
    )
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 16, 5, stride=2, padding=2),
        torch.nn.ReLU(),
        torch.nn.Conv2d(16, 32, 5, stride=2, padding=2),
        torch.nn.ReLU(),
        torch.nn.Conv2d(32, 32, 5, stride=2, padding=2),
        torch.nn.ReLU(),
        torch.nn.Conv2d(32, 1 + len(SHAPES), 3, padding=1),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    # Most cells are empty.
    weight = torch.tensor([0.1, 1, 1])
    for _epoch in range(12):
        for images, cells in train:
            loss = torch.nn.functional.cross_entropy(model(images), cells, weight)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(f"loss of the last batch: {loss.item():.2f}")

    with torch.no_grad():
        images, cells = collate(list(dataset["test"].select(COLUMNS)))
        found = model(images).argmax(dim=1)
    filled = cells > 0
    print(f"{(found == cells)[filled].float().mean():.2f} of the shapes are found")
    print(f"{(found > 0)[~filled].float().mean():.2f} of the empty cells are mistaken")


if __name__ == "__main__":
    main()
