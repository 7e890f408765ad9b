"""Images with masks of classes, in folders beside each other."""

import pathlib
from typing import Any

import numpy as np
from PIL import Image

from tests.support.image_sources import image_bytes

Folder = pathlib.Path
Array = np.ndarray[Any, Any]
SIZE = 40, 20


def numbers(*values: int) -> Array:
    """Returns 20 x 40 class numbers: stripes of these values."""
    columns = np.array(values, np.uint16 if max(values) > 255 else np.uint8)
    return np.repeat(columns, -(-SIZE[0] // len(values)))[np.newaxis, : SIZE[0]].repeat(
        SIZE[1], axis=0
    )


def write_photo(path: Folder, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(image_bytes(seed, "JPEG", SIZE))


def write_mask(path: Folder, pixels: Array, *, palette: bool = False) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(pixels)
    if palette:
        image = Image.frombytes("P", image.size, image.tobytes())
        image.putpalette([37 * number % 256 for number in range(768)])
    image.save(path)


def write_pairs(root: Folder, **masks: Array) -> Folder:
    """Writes images/NAME.jpg and masks/NAME.png for each name."""
    for seed, (name, pixels) in enumerate(masks.items()):
        write_photo(root / f"images/{name}.jpg", seed)
        write_mask(root / f"masks/{name}.png", pixels)
    return root
