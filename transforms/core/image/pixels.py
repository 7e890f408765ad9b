"""Decode pixels as TensorFlow does, transform them, and encode them.

    bytes -> decode -> L, LA, RGB, RGBA, I;16 or P -> channels -> scale -> orientation
          -> crop or pad -> encode -> bytes

Scaling comes before turning, because turning then moves fewer pixels.
"""

import io
import struct
from typing import Any, Literal

from PIL import BmpImagePlugin, Image, JpegImagePlugin, PngImagePlugin

from transforms.core.image import jpeg, png
from transforms.core.image.exif import make_exif, turns
from transforms.core.image.resize import Layout, Resize
from transforms.errors import DamageError

DEPTHS = {"L": 1, "I;16": 1, "LA": 2, "RGB": 3, "RGBA": 4}
"""Channels of each mode that leaves this module, as TensorFlow decodes them; that of a
palette has 3, or 4 with transparent entries: see `depth_of`."""

_FILTERS = {
    "box": Image.Resampling.BOX,
    "hamming": Image.Resampling.HAMMING,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}
TURNED = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
# Scaled decoding averages blocks. It must leave the filter twice the pixels of the
# result, as Pillow's `reducing_gap=2` does; with fewer, edges are off by 70 grays.
_DRAFT_GAP = 2

_PNG_LEVEL = 6


class UnsupportedPixelsError(DamageError):
    """Pixels that neither 8 nor 16 bits of gray or RGB can hold without loss."""


def decode(
    data: bytes,
    name: str,
    *,
    gray: bool,
    at_least: tuple[int, int] | None,
) -> Image.Image:
    """Decodes a file of one of the three formats that TensorFlow reads.

    Args:
      data: a file that `check_image` has accepted.
      name: "jpeg", "png" or "bmp".
      gray: JPEG: only luminance is needed.
      at_least: JPEG: height and width that the image is scaled to. To save time, the
        decoder may then halve both sides, once to three times, as long as twice that
        size remains.

    Raises:
      DamageError: Pillow cannot decode it.
    """
    try:
        if name == "jpeg":
            image: Image.Image = _decode_jpeg(data, gray, at_least)
        elif name == "png":
            # Pillow leaves missing rows black, where TensorFlow refuses the file.
            header = png.read_header(data)
            png.check_rows(data, header)
            image = PngImagePlugin.PngImageFile(io.BytesIO(png.pixels_only(data)))
            image.load()
            if image.mode != "P":
                # TensorFlow uses transparent colors of palettes only.
                image.info.pop("transparency", None)
            if header.depth == 2 and image.mode == "RGBA":
                image = image.convert("LA")  # Pillow widens gray with alpha of 16 bits
        else:
            image = BmpImagePlugin.BmpImageFile(io.BytesIO(data))
            image.load()
    except (OSError, SyntaxError, ValueError, struct.error) as error:
        raise DamageError(f"Pillow cannot decode it: {error}") from error
    return image


def _decode_jpeg(
    data: bytes, gray: bool, at_least: tuple[int, int] | None
) -> Image.Image:
    image = JpegImagePlugin.JpegImageFile(io.BytesIO(jpeg.pixels_only(data)))
    size = None
    if at_least is not None:
        size = at_least[1] * _DRAFT_GAP, at_least[0] * _DRAFT_GAP
    is_adobe = "adobe" in image.info
    image.draft("L" if gray else None, size)
    image.load()
    if image.mode == "CMYK" and not is_adobe:
        # Pillow treats all CMYK as Adobe's, where 255 is no ink; TensorFlow does not.
        return image.point(lambda value: 255 - value)
    return image


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
      UnsupportedPixelsError: floats, 32-bit integers, CIE Lab.
    """
    mode = image.mode
    if mode == "P" and keep_palette:
        return image
    if mode in ("L", "RGB"):
        if image.has_transparency_data:
            return image.convert("LA" if mode == "L" else "RGBA")
        return image
    if mode in ("LA", "RGBA"):
        return image
    if mode == "1":
        return image.convert("L")
    if mode in ("P", "PA"):
        return image.convert("RGBA" if image.has_transparency_data else "RGB")
    if mode in ("CMYK", "YCbCr", "RGBX"):
        return image.convert("RGB")
    if mode in ("RGBa", "La"):
        return image.convert(mode.upper())
    if mode == "I;16" or (mode == "I" and format in ("pnm", "png")):
        return image if mode == "I;16" else _sixteen_bits(image)
    if mode.startswith("I;16"):
        return _sixteen_bits(image)
    raise UnsupportedPixelsError(
        f"{format}: pixels of the kind {mode} do not fit "
        "into 8 or 16 bits of gray or RGB"
    )


def _sixteen_bits(image: Image.Image) -> Image.Image:
    # Here, because few images need it, and it doubles the start of a decoder process.
    import numpy as np

    return Image.fromarray(np.asarray(image).astype(np.uint16))


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


def place(
    image: Image.Image,
    *,
    layout: Layout | None,
    resize: Resize | None,
    orientation: int,
    stored: tuple[int, int],
    nearest: bool = False,
    fill_is_number: bool = False,
) -> Image.Image:
    """Scales, turns, and crops or pads.

    Args:
      image: as stored, or from a scaled decoding.
      layout: of the turned image; None for no resize.
      resize: its filter and fill.
      orientation: of EXIF, to be applied; 1 for none.
      stored: height and width of the source.
      nearest: whether pixels are copied, whatever the filter.
      fill_is_number: whether the fill is a pixel's value; of a palette, its index.
    """
    if layout is not None and resize is not None:
        image = _scale(image, layout, resize, turns(orientation), stored, nearest)
    if orientation > 1:
        image = image.transpose(TURNED[orientation])
    if layout is None or resize is None or image.size == (layout.width, layout.height):
        return image
    box = (
        layout.left,
        layout.top,
        layout.left + layout.width,
        layout.top + layout.height,
    )
    if layout.top >= 0 and layout.left >= 0:
        return image.crop(box)
    fill: int | tuple[int, ...] = resize.fill
    if image.mode == "P" and not fill_is_number:
        gray = _index_of_gray(image, resize.fill)
        if gray is None:
            image = normalize(image, format="png")
        else:
            fill = gray
    if image.mode in ("LA", "RGBA"):
        fill = (resize.fill,) * (DEPTHS[image.mode] - 1) + (0,)
    elif image.mode == "RGB":
        fill = (resize.fill,) * 3
    if image.mode == "P":
        # A crop beyond the edges keeps the palette, which a new image lacks.
        out = image.crop(box)
        out.paste(fill, (0, 0, *out.size))
    else:
        out = Image.new(image.mode, (layout.width, layout.height), fill)
    out.paste(image, (-layout.left, -layout.top))
    return out


def _index_of_gray(image: Image.Image, level: int) -> int | None:
    """Returns the index of a gray in an opaque palette; None where there is none."""
    colors = image.getpalette("RGB")
    if colors is None or image.has_transparency_data:
        return None
    triples = [*zip(colors[::3], colors[1::3], colors[2::3], strict=True)]
    gray = (level, level, level)
    return triples.index(gray) if gray in triples else None


def _scale(
    image: Image.Image,
    layout: Layout,
    resize: Resize,
    turned: bool,
    stored: tuple[int, int],
    nearest: bool,
) -> Image.Image:
    size = layout.scaled_width, layout.scaled_height
    if turned:
        size = size[1], size[0]
    if image.size == size:
        return image
    if nearest:
        return image.resize(size, Image.Resampling.NEAREST)
    height, width = stored
    grows = size[0] > width or size[1] > height
    narrow = resize.filter in ("box", "hamming")
    chosen = "bilinear" if grows and narrow else resize.filter
    # Scaled decoding divides both sides by the same power of two and rounds up, so the
    # source's edge is within the last pixels: `box` excludes the rest of them.
    scale = 1
    while image.width < -(-width // scale):
        scale *= 2
    box = 0.0, 0.0, width / scale, height / scale
    return image.resize(size, _FILTERS[chosen], box=box)


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
    options: dict[str, Any] = {}
    if image.mode == "P":
        if image.has_transparency_data:
            options["transparency"] = image.info["transparency"]
        # Pillow would cut off the upper bits of an index beyond the palette.
        if any(image.histogram()[len(image.getpalette() or ()) // 3 :]):
            options["bits"] = 8
    image.info = {}
    out = io.BytesIO()
    exif = make_exif(orientation) if orientation > 1 else b""
    if name == "jpeg":
        named = b"Exif\0\0" + exif if exif else b""
        image.save(out, "JPEG", quality=quality, subsampling="4:2:0", exif=named)
    else:
        image.save(out, "PNG", compress_level=_PNG_LEVEL, exif=exif, **options)
    return out.getvalue()
