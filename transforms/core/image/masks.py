"""Masks of objects, from outlines and runs; of classes, from files of class numbers.

    polygons [[x, y, x, y, ...], ...]            in pixels, one or more an object
    runs     {"size": [height, width], "counts": [zeros, ones, zeros, ...]}
             column by column; or `counts` as a text of 5 bits a character

Every pixel of an object's mask, 0 or 1, is that of pycocotools, the reference of COCO's
evaluation: it moves points to a grid of fifths of a pixel, and a pixel is inside where
an odd number of edges is above its centre. Numbers are float64: float32 would move
points across the grid.

Source: common/maskApi.c of cocodataset/cocoapi, `rleFrPoly` and `rleFrString`.

Masks of classes have one number a pixel, as TensorFlow decodes it:

    grey, palette, one bit, 16 bits, equal channels, colours -> numbers -> PNG

`tf.io.decode_png(mask, channels=1)` makes grays of palettes and of colours, 0 and 255
of one bit, and the high byte of 16: a class of 1 would be another one. Hence palettes
become their indices, and numbers below 256 are stored in 8 bits.

A list of classes says what colours or values mean; the first one is class 0:

    # label:color_rgb:parts:actions        0 background        Pixel Value, Class
    background:0,0,0::                     255 object          0, background
    cat:128,0,0::                                              1, cat
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from PIL import Image

from transforms.core.reasons import FaultError, Reason

Mask = npt.NDArray[np.uint8]
_Ints = npt.NDArray[np.int64]

# Of one object: edges times the pixel columns that they cross, and pixels of the boxes
# around its polygons. Real objects have a thousandth; these take some seconds.
_MOST_CROSSINGS, _MOST_AREA = 1 << 21, 1 << 30
# Polygons of one object; each takes 0.2 ms.
_MOST_POLYGONS = 1 << 13
# Farther from the image than any annotation is; its fifths are exact in float64.
_FARTHEST = 2.0**24
# Points of a grid cell along a side.
_GRID = 5


def object_mask(outline: Any, height: int, width: int, box: Sequence[float]) -> Mask:
    """Returns the mask of an object, (height, width) of 0 and 1.

    Args:
      outline: polygons or runs as COCO has them; empty or None for the box, filled.
      height, width: of the image.
      box: xmin, ymin, xmax, ymax in pixels.

    Raises:
      FaultError: the outline is none of this image.
    """
    if isinstance(outline, Mapping):
        return _mask_of_runs(outline, height, width)
    if not outline:
        left, top, right, bottom = box
        outline = [[left, top, right, top, right, bottom, left, bottom]]
    if not isinstance(outline, list):
        raise _bad(f"polygons or runs must be given; found {outline!r:.60}")
    polygons = outline if isinstance(outline[0], list) else [outline]
    return polygon_mask(polygons, height, width)


def run_counts(text: str) -> list[int]:
    """Returns the counts of compressed runs.

    Each is 5 bits a character, the lowest first, with the character less 48; 32 says
    that more follow, and 16 in the last one that the number is negative. From the
    fourth on, it is the difference from the count before the last one.

    Raises:
      FaultError: the text is no such thing.
    """
    out: list[int] = []
    value = shift = 0
    for character in text:
        digit = ord(character) - 48
        if not 0 <= digit < 64 or shift > 60:
            raise _bad("its counts are no compressed runs")
        value |= (digit & 31) << shift
        shift += 5
        if digit & 32:
            continue
        if digit & 16:
            value -= 1 << shift
        out.append(value + out[-2] if len(out) > 2 else value)
        value = shift = 0
    if shift:
        raise _bad("its compressed runs end early")
    return out


def _mask_of_runs(outline: Mapping[str, Any], height: int, width: int) -> Mask:
    """Returns COCO's runs of 0 and of 1 in turn, column by column, as a mask."""
    if outline.get("size") != [height, width]:
        raise _bad(
            f"its runs must be of the image's size, [{height}, {width}]; found "
            f"{outline.get('size')!r:.60}"
        )
    counts: Any = outline.get("counts")
    counts = run_counts(counts) if isinstance(counts, str) else counts
    is_whole = isinstance(counts, list) and {*map(type, counts)} == {int}
    # Before any of it is expanded: runs may claim 10^12 pixels.
    total = min(sum(counts), 10**18) if is_whole and min(counts) >= 0 else 0
    if total != height * width:
        raise _bad(
            f"its runs must be whole numbers that fill {height} x {width} = "
            f"{height * width} pixels; they fill {total}"
        )
    ones = (np.arange(len(counts)) & 1).astype(np.uint8)
    return np.repeat(ones, np.array(counts, np.int64)).reshape(width, height).T


def polygon_mask(polygons: Sequence[Any], height: int, width: int) -> Mask:
    """Returns the pixels within any of some polygons, (height, width) of 0 and 1.

    Args:
      polygons: of x, y, x, y ... each, in pixels.
      height, width: of the image.

    Raises:
      FaultError: one has fewer than three points or an odd number of coordinates, or
        they are no finite numbers, or all together they are too intricate.
    """
    if len(polygons) > _MOST_POLYGONS:
        raise _bad(f"it has {len(polygons):,} polygons, more than {_MOST_POLYGONS:,}")
    mask = np.zeros((height, width), np.uint8)
    crossings = area = 0
    for polygon in polygons:
        rows, columns = _crossings(_on_grid(polygon), height, width, crossings)
        crossings += len(rows)
        if not len(rows):
            continue
        top, bottom = int(rows.min()), int(rows.max())
        left, right = int(columns.min()), int(columns.max()) + 1
        area += (bottom - top) * (right - left)
        if area > _MOST_AREA:
            raise _bad(f"its polygons are of more than {_MOST_AREA:,} pixels")
        flips = np.zeros((bottom - top + 1, right - left), np.uint8)
        np.add.at(flips, (rows - top, columns - left), 1)
        # Edges end where they began: from the lowest crossing on, all is outside.
        inside = np.cumsum(flips[:-1], axis=0, dtype=np.uint8) & 1
        mask[top:bottom, left:right] |= inside
    return mask


def _on_grid(polygon: Any) -> _Ints:
    """Returns the corners in fifths of a pixel, n x 2."""
    try:
        numbers = np.array(polygon, np.float64)
    except (TypeError, ValueError, OverflowError):
        numbers = np.array(np.nan)
    if numbers.ndim != 1 or not (np.abs(numbers) < _FARTHEST).all():
        raise _bad(
            f"a polygon must be of finite numbers below {_FARTHEST:.0f}; found "
            f"{polygon!r:.60}"
        )
    if len(numbers) < 6 or len(numbers) % 2:
        raise _bad(
            f"a polygon must have x and y of three points at least; it has "
            f"{len(numbers)} numbers"
        )
    return np.trunc(_GRID * numbers.reshape(-1, 2) + 0.5).astype(np.int64)


def _crossings(
    corners: _Ints, height: int, width: int, before: int
) -> tuple[_Ints, _Ints]:
    """Returns the columns of pixels whose centres edges cross, and at which rows.

    pycocotools walks each edge in steps of the grid, along x where it is rather flat
    and along y where it is steep. A column is crossed between the steps 5k + 2 and
    5k + 3; the row is that of the lesser of the two points.

    Args:
      corners: of a polygon, on the grid.
      height, width: of the image.
      before: crossings of the object's other polygons.

    Returns:
      The row, 0 to `height`, and the column of each crossing.
    """
    begins, ends = corners, np.roll(corners, -1, axis=0)
    lengths = np.abs(ends - begins)
    flat = lengths[:, 0] >= lengths[:, 1]
    lefts, rights = np.minimum(begins, ends)[:, 0], np.maximum(begins, ends)[:, 0]
    first = (-((2 - lefts) // _GRID)).clip(0, width)
    counts = np.maximum(((rights - 3) // _GRID + 1).clip(0, width) - first, 0)
    if before + int(counts.sum()) > _MOST_CROSSINGS:
        raise _bad(f"its edges cross more than {_MOST_CROSSINGS:,} columns of pixels")
    by_x, by_y = (begins > ends).T
    backward = np.where(flat, by_x, by_y)[:, np.newaxis]
    edge = np.repeat(np.arange(len(counts)), counts)
    column = np.arange(len(edge)) + (first - np.cumsum(counts) + counts)[edge]
    (x0, y0), (x1, y1) = (
        np.where(backward, ends, begins)[edge].T,
        np.where(backward, begins, ends)[edge].T,
    )
    flat = flat[edge]
    left = _GRID * column + 2
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.where(flat, (y1 - y0) / (x1 - x0), (x1 - x0) / (y1 - y0))

        def at(step: Any, start: _Ints) -> Any:
            return np.trunc(start + slope * step + 0.5)

        def is_past(step: Any) -> Any:
            x = at(step, x0)
            return np.where(slope > 0, x >= left + 1, x <= left)

        lower = np.minimum(at(left - x0, y0), at(left + 1 - x0, y0))
        step = np.ceil((left + 0.5 - x0) / slope)
        # Rounding may move the step at which a steep edge is past the centre.
        step = np.where(
            is_past(step - 1), step - 1, np.where(is_past(step), step, step + 1)
        )
    y = np.where(flat, lower, y0 + step - 1)
    row = np.ceil(((y + 0.5) / _GRID - 0.5).clip(0, height)).astype(np.int64)
    return row, column


def _bad(message: str) -> FaultError:
    """Returns the error of an object whose outline is no mask of its image."""
    return FaultError(Reason.BAD_MASK, message)


Numbers = npt.NDArray[np.integer[Any]]

_MOST_CLASSES = 1 << 16
_CVAT = re.compile(r"([^:]*):(\d+,\d+,\d+)(:.*)?")
_COLOUR_OR_VALUE = re.compile(r"((?:\d+\s*,\s*){2}\d+|\d+)[\s,]+(\S.*)")
# Pillow spreads the grays of two and four bits over 0 to 255.
_SPREAD = {2: 85, 4: 17}
# Red, green and blue as one number.
_WEIGHTS = np.array([1 << 16, 1 << 8, 1])


@dataclasses.dataclass(frozen=True, slots=True)
class MaskClasses:
    """What the pixels of masks mean.

    Attributes:
      names: of the classes, by id from 0.
      values: of each: a gray or an index; or red, green and blue as one number.
      are_colours: whether values are colours.
    """

    names: tuple[str, ...]
    values: tuple[int, ...]
    are_colours: bool

    @classmethod
    def parse(cls, text: str) -> Self:
        """Returns the classes of a list.

        Raises:
          ValueError: a line is of no class, or says again what another one says.
        """
        names: list[str] = []
        values: list[tuple[int, ...]] = []
        for number, whole in enumerate(text.lstrip("\ufeff").splitlines(), start=1):
            line = whole.strip()
            if not line or line.startswith("#"):
                continue
            if match := _CVAT.fullmatch(line):
                name, value = match[1], match[2]
            elif match := _COLOUR_OR_VALUE.fullmatch(line):
                value, name = match.groups()
            elif number == 1 and "," in line:
                continue  # the header of a CSV
            else:
                raise ValueError(
                    f"line {number} must be a colour or a value and a name, as in "
                    f"'128,0,0 cat' or '1 cat'; it is {line!r:.80}"
                )
            names.append(name.strip())
            values.append(tuple(map(int, value.split(","))))
        if len({*map(len, values)}) != 1 or len(values) > _MOST_CLASSES:
            raise ValueError("it must list classes by colours or by values")
        most = 255 if len(values[0]) > 1 else _MOST_CLASSES - 1
        if len({*names}) < len(names) or len({*values}) < len(values):
            raise ValueError("names and values must differ")
        if max(map(max, values)) > most:
            raise ValueError(f"values must be at most {most}")
        # As bytes, red, green and blue are one number.
        are_colours = len(values[0]) > 1
        numbers = tuple(int.from_bytes(v) if are_colours else v[0] for v in values)
        return cls(tuple(names), numbers, are_colours)


def class_numbers(
    image: Image.Image, format: str, bits: int, classes: MaskClasses | None
) -> Numbers:
    """Returns the class of each pixel, (height, width) of uint8, or uint16 from 256.

    Args:
      image: as a decoder gives it.
      format: of its file, as `ImageInfo` has it.
      bits: of a sample in the file.
      classes: what its pixels mean; None for their numbers.

    Raises:
      FaultError: nothing says what colours mean; it is transparent, or JPEG.
    """
    of_colours = classes is not None and classes.are_colours
    if format == "jpeg":
        if classes is None or of_colours or len(classes.values) != 2:
            raise _unsupported(
                "JPEG changes class numbers: PNG is expected, or --mask-classes with "
                "two grays, of which the nearer one is taken"
            )
        grays = np.asarray(image.convert("L")).astype(int)
        first, second = (np.abs(grays - value) for value in classes.values)
        nearer: Numbers = (second < first).astype(np.uint8)
        return nearer
    if image.mode == "P" and of_colours:
        image = image.convert("RGB")
    numbers: Any = _one_channel(_opaque(image), bits, of_colours=of_colours)
    if classes is not None:
        numbers = _ids(numbers, classes)
    small = int(numbers.max(initial=0)) < 256
    stored: Numbers = numbers.astype(np.uint8 if small else np.uint16)
    return stored


def _opaque(image: Image.Image) -> Image.Image:
    """Returns an image without its alpha channel, which must be 255 everywhere."""
    if image.mode not in ("LA", "PA", "RGBA"):
        return image
    if image.getchannel("A").getextrema() != (255, 255):
        raise _unsupported("the mask is transparent in places")
    return image.convert("RGB") if image.mode == "RGBA" else image.getchannel(0)


def _one_channel(image: Image.Image, bits: int, *, of_colours: bool) -> Any:
    """Returns the number of each pixel; of listed colours one number for the three."""
    pixels: Numbers = np.asarray(image)
    if image.mode in ("1", "P"):
        return pixels.astype(np.uint8)
    if image.mode == "L":
        return pixels // _SPREAD.get(bits, 1)
    if image.mode.startswith("I"):
        if pixels.size and not 0 <= pixels.min() <= pixels.max() < _MOST_CLASSES:
            raise _unsupported(f"class numbers must be below {_MOST_CLASSES:,}")
        return pixels
    if image.mode != "RGB" or bits > 8:
        raise _unsupported(f"a mask cannot be of the kind {image.mode}, {bits} bits")
    if of_colours:
        return pixels.astype(np.int64) @ _WEIGHTS
    if (pixels == pixels[..., :1]).all():
        return pixels[..., 0]
    raise _unsupported("the mask has colours: --mask-classes FILE says what they mean")


def _ids(numbers: Numbers, classes: MaskClasses) -> Numbers:
    """Returns the class of each pixel's value."""
    values = np.array(classes.values)
    order = np.argsort(values)
    positions = np.searchsorted(values[order], numbers).clip(0, len(values) - 1)
    ids: Numbers = order[positions]
    unknown = values[ids] != numbers
    if unknown.any():
        value = int(numbers[unknown][0])
        shown = f"value {value}"
        if classes.are_colours:
            shown = f"colour {value >> 16},{value >> 8 & 255},{value & 255}"
        raise FaultError(
            Reason.UNKNOWN_LABEL, f"{shown} of the mask is not in --mask-classes"
        )
    return ids


def _unsupported(message: str) -> FaultError:
    """Returns the error of a mask file whose pixels are no class numbers."""
    return FaultError(Reason.UNSUPPORTED_FORMAT, message)
