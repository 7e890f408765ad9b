"""Small images, and sources that hold or name them."""

import csv
import json
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from tests.support.drawn_images import saved


def picture(form: str, size: tuple[int, int] = (9, 7), **options: object) -> bytes:
    """Returns a drawn image, encoded."""
    image = Image.new("RGB", size)
    width, height = size
    for x in range(min(width, 64)):
        for y in range(min(height, 64)):
            image.putpixel((x, y), (x * 20 % 256, y * 30 % 256, (x * y) % 256))
    return saved(image, form, **options)


Folder = pathlib.Path


def image_bytes(seed: int, kind: str = "PNG", size: tuple[int, int] = (6, 4)) -> bytes:
    """Returns an encoded image that differs from all others."""
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3))
    return saved(Image.fromarray(pixels.astype(np.uint8)), kind)


def write_images(folder: Folder, names: Iterable[str]) -> dict[str, bytes]:
    """Writes an image for each name; returns them."""
    out = {}
    for seed, name in enumerate(names):
        kind = "JPEG" if name.endswith(("jpg", "jpeg")) else "PNG"
        out[name] = image_bytes(seed, kind)
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(out[name])
    return out


def write_metadata(path: Folder, rows: Sequence[Mapping[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".csv":
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    elif path.suffix == ".jsonl":
        lines = [json.dumps(row, ensure_ascii=False) for row in rows]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    else:
        pandas = pytest.importorskip("pandas")
        pandas.DataFrame(list(rows)).to_parquet(path)


def image_struct(values: Sequence[tuple[bytes | None, str | None]]) -> pa.Array:
    """Returns a column as `datasets` stores images."""
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    return pa.array([{"bytes": b, "path": p} for b, p in values], kind)


def noise(height: int, width: int) -> Image.Image:
    """A picture of which every pixel differs from its neighbours."""
    random = np.random.default_rng(height * width)
    return Image.fromarray(random.integers(0, 256, (height, width, 3), np.uint8))


def encoded(image: Image.Image, form: str = "JPEG", **options: Any) -> bytes:
    return saved(image, form, **options)


def tree(root: Folder, **files: bytes) -> Folder:
    """Writes files, named by keyword as NAME_SUFFIX, below one label."""
    (root / "label").mkdir(parents=True)
    for name, data in files.items():
        (root / "label" / name.replace("_", ".")).write_bytes(data)
    return root
