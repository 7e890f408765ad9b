"""Small pictures of records: which are chosen, and how they are drawn.

All are WebP of one quality, at most `SIDE` pixels wide and high. They show the pixels
as stored, without the orientation of EXIF, as readers decode them.
"""

import base64
import dataclasses
import io
import struct
import warnings
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

from transforms.core.image.resize import MAX_PIXELS
from transforms.core.placing.placement import splitmix64

MOST_THUMBNAILS = 3_000
SIDE = 96
_QUALITY = 60
_MOST_EACH = 12
_MOST_CLASSES = 1_000
_FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF")
_BOX, _BOX_EDGE = "#ffd400", "#000000"

# What Pillow and its plugins raise for files that are damaged, or too large.
_UNDECODABLE = (
    *(OSError, ValueError, SyntaxError, EOFError, IndexError, KeyError),
    *(struct.error, Image.DecompressionBombError),
)

Longs = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, slots=True)
class Thumbnail:
    """A small picture.

    Attributes:
      data: the WebP file, in base64.
      width, height: in pixels.
      full_width, full_height: of the image that it shows.
    """

    data: str
    width: int
    height: int
    full_width: int
    full_height: int


def share_of_each(classes: int, splits: int) -> tuple[int, int]:
    """Returns how many classes are shown, and how many pictures of each and a split.

    >>> share_of_each(10, 3), share_of_each(1_000, 3), share_of_each(100_000, 2)
    ((10, 12), (1000, 1), (1000, 1))
    """
    splits = max(splits, 1)
    shown = min(classes, _MOST_CLASSES, MOST_THUMBNAILS // splits)
    each = MOST_THUMBNAILS // max(shown * splits, 1)
    return shown, max(min(each, _MOST_EACH), 1)


def chosen(
    fingerprints: npt.NDArray[np.uint64], rows: Longs, classes: Longs, each: int
) -> dict[int, Longs]:
    """Returns the rows of lowest hash of each class.

    Args:
      fingerprints: of the images of all rows; 0 for none.
      rows, classes: n pairs of a row and a class that it has.
      each: rows of a class at most.
    """
    there = fingerprints[rows] != 0
    rows, classes = rows[there], classes[there]
    hashes = splitmix64(fingerprints[rows])
    order = np.lexsort((rows, hashes, classes))
    rows, classes = rows[order], classes[order]
    names, starts, counts = np.unique(classes, return_index=True, return_counts=True)
    return {
        int(name): rows[start : start + min(count, each)]
        for name, start, count in zip(names, starts, counts, strict=True)
    }


def draw(data: bytes, boxes: Sequence[Sequence[float]] = ()) -> Thumbnail | None:
    """Returns the thumbnail of an image; None where it cannot be decoded.

    Args:
      data: the file.
      boxes: xmin, ymin, xmax, ymax of each, from 0 to 1.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = Image.open(io.BytesIO(data), formats=_FORMATS)
            full = image.size
            if full[0] * full[1] > MAX_PIXELS:
                return None
            image.draft("RGB", (SIDE, SIDE))
            small = _in_rgb(image)
            small.thumbnail((SIDE, SIDE), Image.Resampling.BILINEAR)
    except _UNDECODABLE:
        return None
    if len(boxes):
        _draw_boxes(small, boxes)
    out = io.BytesIO()
    small.save(out, "WEBP", quality=_QUALITY, method=4)
    return Thumbnail(base64.b64encode(out.getvalue()).decode(), *small.size, *full)


def _in_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith(("I", "F")):
        # Pillow clips 16 bits to 8.
        values = np.asarray(image, np.float64)
        most = max(float(np.nanmax(values, initial=0)), 1.0)
        scale = 255 / (65_535 if most > 255 else 255)
        grey = np.clip(values * scale, 0, 255).astype(np.uint8)
        return Image.fromarray(grey).convert("RGB")
    if image.mode in ("LA", "PA", "RGBA", "P"):
        rgba = image.convert("RGBA")
        under = Image.new("RGBA", rgba.size, "#808080")
        return Image.alpha_composite(under, rgba).convert("RGB")
    return image.convert("RGB")


def _draw_boxes(image: Image.Image, boxes: Sequence[Sequence[float]]) -> None:
    canvas = ImageDraw.Draw(image)
    width, height = image.width - 1, image.height - 1
    for box in boxes:
        if not np.isfinite(box).all():
            continue
        left, right = sorted(min(max(float(x), 0), 1) * width for x in box[::2])
        top, bottom = sorted(min(max(float(y), 0), 1) * height for y in box[1::2])
        # WebP stores colours at half the resolution: a line of one pixel loses its own.
        canvas.rectangle((left - 2, top - 2, right + 2, bottom + 2), outline=_BOX_EDGE)
        canvas.rectangle((left - 1, top - 1, right + 1, bottom + 1), None, _BOX, 2)
