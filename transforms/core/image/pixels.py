"""Decode pixels as TensorFlow does, transform them, and encode them.

    bytes -> decode -> L, LA, RGB, RGBA, I;16 or P -> channels -> scale -> orientation
          -> crop or pad -> encode -> bytes

Scaling comes before turning, because turning then moves fewer pixels.
"""

import contextlib
import io
import re
import struct
from collections.abc import Iterator
from typing import Any, Literal

from PIL import ExifTags, Image

from transforms.core.image.formats import damaged, unsupported
from transforms.core.image.resize import ImageStep
from transforms.core.reasons import FaultError, Reason
from transforms.errors import bounded

_DAMAGE = (
    OSError,  # the stream is broken or ends early
    SyntaxError,  # raised by plugins for a header that they do not understand
    ValueError,  # sizes and modes that contradict each other
    struct.error,  # a header ends within a number
)
# Exceptions of Pillow's plugins for rarer formats on damaged files. They parse headers
# in Python and index, unpack and divide with the values, so none of these means a bug
# here, or a lack of memory.
_RARE_DAMAGE = (
    *_DAMAGE,
    EOFError,
    TypeError,
    AttributeError,
    LookupError,
    ArithmeticError,
    AssertionError,
    RuntimeError,
    MemoryError,
    Warning,  # where the process has turned warnings into errors
)
_rare_bmp = re.compile(
    "Unsupported BMP (pixel depth|bitfields layout|compression)"
).match

DEPTHS = {"L": 1, "I;16": 1, "LA": 2, "RGB": 3, "RGBA": 4}
"""Channels of each mode that leaves this module, as TensorFlow decodes them; that of a
palette has 3, or 4 with transparent entries: see `depth_of`."""

TURNED = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
# Pillow's mode -> that of the same pixels without transparency.
_OF_EIGHT_BITS = {mode: mode for mode in ("L", "LA", "RGB", "RGBA")}
_OF_EIGHT_BITS |= {"1": "L", "La": "LA", "RGBa": "RGBA"}
_OF_EIGHT_BITS |= dict.fromkeys(("P", "PA", "CMYK", "YCbCr", "RGBX"), "RGB")

_PNG_LEVEL = 6


@contextlib.contextmanager
def decoding(title: str, *, rare: bool = False) -> Iterator[None]:
    """Makes of exceptions of Pillow's decoders the fault that the image is damaged.

    Args:
      title: of the format, in messages.
      rare: whether the format is none of the three that TensorFlow reads.
    """
    errors = _RARE_DAMAGE if rare else _DAMAGE
    try:
        yield
    except Image.DecompressionBombError as error:
        raise FaultError(Reason.TOO_MANY_PIXELS, str(error)) from error
    except errors as error:
        if _rare_bmp(str(error)):
            raise unsupported(str(error).removeprefix("Unsupported ")) from error
        said = f"{type(error).__name__}: {error}".removesuffix(": ")
        message = bounded(f"{title}: Pillow cannot decode it: {said}")
        raise damaged(message) from error


def depth_of(image: Image.Image) -> int:
    """Returns the channels of an image as TensorFlow decodes its PNG; 0 for unknown."""
    if image.mode == "P":
        return 4 if image.has_transparency_data else 3
    return DEPTHS.get(image.mode, 0)


def normalize(
    image: Image.Image, *, format: str, keep_palette: bool = False
) -> Image.Image:
    """Converts an image of any of Pillow's modes to one of the five of `DEPTHS`.

    Args:
      image: as a decoder gives it.
      format: of its file.
      keep_palette: whether an image of mode P stays one.

    Raises:
      FaultError: floats, 32-bit integers, CIE Lab.
    """
    mode = image.mode
    if mode == "I;16" or (mode == "P" and keep_palette):
        return image
    if target := _OF_EIGHT_BITS.get(mode):
        if image.has_transparency_data and target in ("L", "RGB"):
            target += "A"
        return image if mode == target else image.convert(target)
    if mode.startswith("I;16") or (mode == "I" and format in ("pnm", "png")):
        # Here, because few images need it, and it doubles the start of a decoder
        # process.
        import numpy as np

        return Image.fromarray(np.asarray(image).astype(np.uint16))
    raise FaultError(
        Reason.UNSUPPORTED_FORMAT,
        f"{format}: pixels of the kind {mode} do not fit "
        "into 8 or 16 bits of gray or RGB",
    )


def to_eight_bits(image: Image.Image) -> Image.Image:
    """Keeps the upper byte of 16, as TensorFlow's decoder does (png_set_strip_16)."""
    if image.mode != "I;16":
        return image
    import numpy as np

    return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))


def to_channels(image: Image.Image, channels: int | None) -> Image.Image:
    """Converts an image to 1, 3 or 4 channels; None keeps them.

    Gray is Rec. 601 luma. A removed alpha channel is blended with white; an added one
    is opaque.
    """
    if channels is None or depth_of(image) == channels:
        return image
    image = to_eight_bits(image)
    if channels == 4:
        return image.convert("RGBA")
    if image.mode in ("LA", "RGBA"):
        base = image.mode[:-1]
        white = Image.new(base, image.size, "white")
        white.paste(image.convert(base), mask=image.getchannel("A"))
        image = white
    return image.convert("L" if channels == 1 else "RGB")


def move_pixels(
    image: Image.Image, step: ImageStep, *, numbers: bool = False, mask: bool = False
) -> Image.Image:
    """Moves the pixels of an image: scales, turns, and crops or pads.

    Args:
      image: as stored, or from a scaled decoding.
      step: how its pixels move.
      numbers: whether pixels are numbers: they are copied, whatever the filter.
      mask: whether they are class numbers: the padding is class 0, and not black.
    """
    height, width = step.scaled_as_stored
    if numbers:
        image = image.resize((width, height), Image.Resampling.NEAREST)
    elif image.size != (width, height):
        filter = step.filter
        rows, columns = step.source
        if filter in ("box", "hamming") and (width > columns or height > rows):
            filter = "bilinear"
        # Scaled decoding divides both sides by the same power of two and rounds up, so
        # the source's edge is within the last pixels: `box` excludes the rest of them.
        scale = 1
        while image.width < -(-columns // scale):
            scale *= 2
        image = image.resize(
            (width, height),
            Image.Resampling[filter.upper()],
            box=(0.0, 0.0, columns / scale, rows / scale),
        )
    if step.orientation > 1:
        image = image.transpose(TURNED[step.orientation])
    (top, left), (height, width) = step.offset, step.size
    if image.size == (width, height):
        return image
    black: int | None = 0
    if image.mode == "P" and not mask and min(left, top) < 0:
        # The index of black in an opaque palette, if it has black.
        black = None
        if image.palette is not None and not image.has_transparency_data:
            black = image.palette.colors.get((0, 0, 0))
        if black is None:
            image = normalize(image, format="png")
    # Zeros are beyond the edges.
    out = image.crop((left, top, left + width, top + height))
    if black:
        out.paste(black, (0, 0, *out.size))
        out.paste(image, (-left, -top))
    return out


def encode(
    image: Image.Image,
    name: Literal["jpeg", "png"],
    quality: int,
    *,
    orientation: int = 1,
) -> bytes:
    """Encodes pixels only: no profile, comment, resolution or time.

    JPEG has halved chroma (4:2:0) and the standard Huffman tables; PNG zlib's level 6.
    An orientation above 1 is stated in EXIF: in a JPEG's APP1 segment, or in an eXIf
    chunk before a PNG's pixels. Within one version of Pillow, equal pixels give equal
    bytes.
    """
    options: dict[str, Any] = {"compress_level": _PNG_LEVEL}
    if name == "jpeg":
        options = {"quality": quality, "subsampling": "4:2:0"}
    elif image.mode == "P":
        if image.has_transparency_data:
            options["transparency"] = image.info["transparency"]
        # Pillow would cut off the upper bits of an index beyond the palette.
        if any(image.histogram()[len(image.getpalette() or ()) // 3 :]):
            options["bits"] = 8
    image.info = {}
    if orientation > 1:
        options["exif"] = Image.Exif()
        options["exif"][ExifTags.Base.Orientation] = orientation
    out = io.BytesIO()
    image.save(out, name.upper(), **options)
    return out.getvalue()
