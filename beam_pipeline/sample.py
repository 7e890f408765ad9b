"""The small sample that `run_local.sh` converts: drawn images and a CSV.

    DIR/photos/{train,validation,test}/{circle,square,triangle}/NNNN.{jpg,png}
    DIR/rows.csv

Run as `python -m beam_pipeline.sample DIR`. The same on every run: the random
numbers have fixed seeds.
"""

import csv
import pathlib
import random
import sys

from PIL import Image, ImageDraw

from beam_pipeline import terminal
from beam_pipeline.terminal import print_text

IMAGES_PER_SPLIT = {"train": 60, "validation": 12, "test": 12}
ROWS = 10_000

_ANIMALS = ("cat", "dog", "chicken", "horse", "goat")
# One image in this many is a PNG; the rest are JPEGs.
_PNG_EVERY = 5
# One row in this many has no feature3.
_MISSING_EVERY = 500

# Corners of a regular polygon; a circle has none.
_SHAPES = {"circle": 0, "square": 4, "triangle": 3}


def _colour(rng: random.Random, *, light: bool) -> str:
    """Returns a random colour; light ones for backgrounds, dark ones for shapes."""
    lightness = rng.randint(75, 92) if light else rng.randint(25, 55)
    return f"hsl({rng.randrange(360)}, {rng.randint(40, 90)}%, {lightness}%)"


def _draw_sample(rng: random.Random, corners: int) -> Image.Image:
    """Returns an image of random size with one shape, whole, at a random place."""
    width, height = rng.randint(64, 160), rng.randint(64, 160)
    image = Image.new("RGB", (width, height), _colour(rng, light=True))
    radius = rng.uniform(0.25, 0.42) * min(width, height)
    x = rng.uniform(radius, width - radius)
    y = rng.uniform(radius, height - radius)
    canvas, fill = ImageDraw.Draw(image), _colour(rng, light=False)
    if corners:
        canvas.regular_polygon((x, y, radius), corners, fill=fill)
    else:
        canvas.circle((x, y), radius, fill)
    return image


def write_photos(folder: pathlib.Path) -> int:
    """Draws the images into `folder`/split/label/ and returns how many."""
    rng = random.Random(1)
    written = 0
    for split, count in IMAGES_PER_SPLIT.items():
        for number in range(count):
            label = sorted(_SHAPES)[number % len(_SHAPES)]
            suffix = "png" if number % _PNG_EVERY == _PNG_EVERY - 1 else "jpg"
            path = folder / split / label / f"{number:04d}.{suffix}"
            path.parent.mkdir(parents=True, exist_ok=True)
            _draw_sample(rng, _SHAPES[label]).save(path)
            written += 1
    return written


def write_rows(path: pathlib.Path) -> int:
    """Writes the CSV and returns its number of rows.

    Columns: feature0, True or False; feature1, 0 to 4; feature2, the animal of that
    number; feature3, standard normal, missing in one row of 500.
    """
    rng = random.Random(2)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["feature0", "feature1", "feature2", "feature3"])
        for row in range(ROWS):
            number = rng.randrange(len(_ANIMALS))
            missing = row % _MISSING_EVERY == _MISSING_EVERY - 1
            normal = rng.gauss(0.0, 1.0)
            measured = "" if missing else f"{normal:.6f}"
            writer.writerow([rng.random() < 0.5, number, _ANIMALS[number], measured])
    return ROWS


def main(arguments: list[str]) -> int:
    """Writes the sample into the one folder that `arguments` names."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        terminal.say("usage: python -m beam_pipeline.sample DIR")
        return 2
    folder = pathlib.Path(arguments[0])
    images = write_photos(folder / "photos")
    rows = write_rows(folder / "rows.csv")
    print_text(
        f"Sample: {images} images in {folder / 'photos'}, {rows:,} rows in "
        f"{folder / 'rows.csv'}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
