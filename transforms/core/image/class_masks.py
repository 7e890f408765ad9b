"""Masks of classes: whatever the file, one number a pixel, as TensorFlow decodes it.

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
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from PIL import Image

from transforms.core.reasons import FaultError, Reason

Numbers = npt.NDArray[np.integer[Any]]

_MOST_CLASSES = 1 << 16
_CVAT = re.compile(r"([^:]*):(\d+),(\d+),(\d+)(:.*)?")
_COLOUR = re.compile(r"(\d+)\s*,\s*(\d+)\s*,\s*(\d+)[\s,]+(\S.*)")
_VALUE = re.compile(r"(\d+)[\s,]+(\S.*)")
# Pillow spreads the grays of two and four bits over 0 to 255.
_SPREAD = {2: 85, 4: 17}


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
                name, digits = match[1], list(match.groups()[1:4])
            elif match := _COLOUR.fullmatch(line) or _VALUE.fullmatch(line):
                *digits, name = match.groups()
            elif number == 1 and "," in line:
                continue  # the header of a CSV
            else:
                raise ValueError(
                    f"line {number} must be a colour or a value and a name, as in "
                    f"'128,0,0 cat' or '1 cat'; it is {line!r:.80}"
                )
            names.append(name.strip())
            values.append(tuple(map(int, digits)))
        if len({*map(len, values)}) != 1 or len(values) > _MOST_CLASSES:
            raise ValueError("it must list classes by colours or by values")
        most = 255 if len(values[0]) > 1 else _MOST_CLASSES - 1
        if len({*names}) < len(names) or len({*values}) < len(values):
            raise ValueError("names and values must differ")
        if max(map(max, values)) > most:
            raise ValueError(f"values must be at most {most}")
        weights = (65536, 256, 1) if len(values[0]) > 1 else (1,)
        numbers = tuple(
            sum(n * w for n, w in zip(value, weights, strict=True)) for value in values
        )
        return cls(tuple(names), numbers, len(weights) > 1)


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
    near = classes is not None and not classes.are_colours and len(classes.values) == 2
    if format == "jpeg" and not near:
        raise _unsupported(
            "JPEG changes class numbers: PNG is expected, or --mask-classes with two "
            "grays, of which the nearer one is taken"
        )
    if image.mode == "P" and classes is not None and classes.are_colours:
        image = image.convert("RGB")
    image = image.convert("L") if format == "jpeg" else image
    numbers: Any = _one_channel(_opaque(image), bits, classes)
    if classes is not None:
        if format == "jpeg":
            first, second = (np.abs(numbers.astype(int) - v) for v in classes.values)
            numbers = second < first
        else:
            numbers = _ids(numbers, classes)
    small = int(numbers.max(initial=0)) < 256
    stored: Numbers = numbers.astype(np.uint8 if small else np.uint16)
    return stored


def _opaque(image: Image.Image) -> Image.Image:
    """Returns an image without its alpha channel, which must be 255 everywhere."""
    if image.mode not in ("LA", "PA", "RGBA"):
        return image
    *_, alpha = image.split()
    if alpha.getextrema() != (255, 255):
        raise _unsupported("the mask is transparent in places")
    base = {"LA": "L", "PA": "P"}.get(image.mode, "RGB")
    return image.convert(base) if base != "P" else image.getchannel("P")


def _one_channel(image: Image.Image, bits: int, classes: MaskClasses | None) -> Any:
    """Returns the number of each pixel; of listed colours one number for the three."""
    pixels: Numbers = np.asarray(image)
    if image.mode == "1":
        return pixels.astype(np.uint8)
    if image.mode in ("P", "L"):
        return pixels // _SPREAD.get(bits, 1) if image.mode == "L" else pixels
    if image.mode.startswith("I"):
        if pixels.size and not 0 <= pixels.min() <= pixels.max() < _MOST_CLASSES:
            raise _unsupported(f"class numbers must be below {_MOST_CLASSES:,}")
        return pixels.astype(np.uint16)
    if image.mode != "RGB" or bits > 8:
        raise _unsupported(f"a mask cannot be of the kind {image.mode}, {bits} bits")
    if classes is not None and classes.are_colours:
        codes = pixels[..., 0].astype(np.int64) << 16
        codes |= pixels[..., 1].astype(np.int64) << 8
        return codes | pixels[..., 2]
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
        shown = (
            f"colour {value >> 16},{value >> 8 & 255},{value & 255}"
            if classes.are_colours
            else f"value {value}"
        )
        raise FaultError(
            Reason.UNKNOWN_LABEL, f"{shown} of the mask is not in --mask-classes"
        )
    return ids


def _unsupported(message: str) -> FaultError:
    return FaultError(Reason.UNSUPPORTED_FORMAT, message)
