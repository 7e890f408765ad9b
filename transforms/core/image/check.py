"""Encoded images: detect format and size, and check that TensorFlow decodes them.

    bytes -> format by signature -> dimensions -> pixel limit -> walk -> ImageInfo
                                                                 (-> Pillow)

The oracle is `tf.io.decode_image` of TensorFlow 2.21. The walks read structure, not
pixels: segments, lengths and checksums to the end of the file. That takes some ten
microseconds and finds every file that is cut short. What they accept and Pillow
decodes, TensorFlow decodes. Progressive JPEGs are always decoded, because their sums of
coefficients can overflow.

Other formats are opened with Pillow:

    bytes -> our own look at the header -> limits
          -> Pillow's plugin, lazily -> its size against the limits again -> pixels

The plugin's class is called directly and never `Image.open`, which would choose among
all formats.

The sizes of WebP and JPEG 2000 are read here first: the limits must hold before Pillow
allocates anything, and the size in the codestream of a JPEG 2000 may contradict the one
that Pillow reads.
"""

import contextlib
import functools
import importlib
import importlib.util
import io
import re
import struct
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any, cast

from PIL import BmpImagePlugin, Image, ImageFile, features
from PIL.ExifTags import Base

from transforms.core.image.formats import (
    ImageFormat,
    ImageInfo,
    check_pixels,
    damaged,
    fault_of_unknown,
    unsupported,
)
from transforms.core.image.jpeg import decode_jpeg, read_jpeg, read_orientation
from transforms.core.image.pixels import TURNED, decoding
from transforms.core.image.png import SIGNATURE, decode_png, read_png
from transforms.core.image.resize import MAX_PIXELS, Check
from transforms.core.reasons import Fault, FaultError, Reason

_quiet = threading.Lock()
_UNDONE = {**TURNED, 6: TURNED[8], 8: TURNED[6]}
"""The inverse of each EXIF orientation."""

# The box of bits per channel (ISO 23008-12, 6.5.6), after 4 bytes of version and flags.
_pixel_information = re.compile(rb"pixi\x00{4}[\x01-\x04](.)", re.DOTALL).search
_SIZ = b"\xff\x4f\xff\x51"
_SIZ_FIELDS = struct.Struct(">HHIIIIIIIIHB")
# Features that Pillow may be built without.
_NEEDED = {"webp": "webp", "jpeg2000": "jpg_2000", "avif": "avif"}

_Plugin = Callable[[io.BytesIO], ImageFile.ImageFile]
TENSORFLOW_MAX_PIXELS = 2**27 - 1
"""TensorFlow refuses 2**29 samples and more: with four channels, 2**27 pixels."""

_BMP_FIELDS = struct.Struct("<10xII10xH")
"""Offset of the pixels, size of the second header, bits a pixel."""

_BMP_DEPTHS = {
    # Eight bits with a palette are foreign: TensorFlow takes its numbers for grays.
    (8, "L"): 1,
    (24, "BGR"): 3,
    (32, "BGRX"): 4,
    (32, "BGRA"): 4,
}
"""Bits a pixel and their layout in Pillow -> channels as TensorFlow decodes them."""

_BGRA_MASKS = struct.pack("<III", 0xFF0000, 0xFF00, 0xFF)
_WINDOWS_HEADER_BYTES = 40
"""A shorter header is one of OS/2."""


def check_image(
    data: bytes, check: Check = "structure", max_pixels: int = MAX_PIXELS
) -> ImageInfo | Fault:
    """Determines whether TensorFlow reads these bytes, and in which shape.

    Args:
      data: the whole encoded file.
      check: "structure" walks over the file to its end, and decodes progressive
        JPEGs; "decode" decodes every file; "none" reads only the dimensions.
      max_pixels: limit of height times width, checked before anything is decoded.

    Returns:
      The image, or the fault. Bad input is a value, never an exception.
    """
    limit = min(max_pixels, TENSORFLOW_MAX_PIXELS)
    try:
        if data.startswith(b"\xff\xd8\xff"):
            return read_jpeg(data, check, limit)
        if data.startswith(SIGNATURE):
            return read_png(data, check, limit)
        if data.startswith(b"BM"):
            return _read_bmp(data, check, limit)
    except FaultError as error:
        return error.fault
    return fault_of_unknown(data)


def decode_checked(
    data: bytes,
    name: str,
    *,
    gray: bool = False,
    at_least: tuple[int, int] | None = None,
) -> Image.Image:
    """Decodes a file that `check_image` has accepted.

    Args:
      data: the file, of a format that TensorFlow reads.
      name: "jpeg", "png" or "bmp".
      gray, at_least: of a JPEG; see `decode_jpeg`.

    Raises:
      FaultError: Pillow cannot decode it.
    """
    if name == "jpeg":
        return decode_jpeg(data, gray=gray, at_least=at_least)
    if name == "png":
        return decode_png(data)
    with decoding("BMP"):
        image = BmpImagePlugin.BmpImageFile(io.BytesIO(data))
        image.load()
    return image


def _read_bmp(data: bytes, check: Check, limit: int) -> ImageInfo:
    """Opens a BMP with Pillow, and loads it unless `check` is "none".

    TensorFlow reads uncompressed pixels of 8, 24 and 32 bits, and requires the file to
    end with the last of them (`decode_image_op.cc`).
    """
    if len(data) < _BMP_FIELDS.size:
        raise damaged(f"BMP: truncated: {len(data)} bytes hold no header")
    offset, header_bytes, bits = _BMP_FIELDS.unpack_from(data)
    with decoding("BMP"):
        image = BmpImagePlugin.BmpImageFile(io.BytesIO(data))
    codec, _, start, arguments = image.tile[0]
    layout, row_bytes, _ = cast(Any, arguments) if codec == "raw" else ("", 0, 0)
    depth = _BMP_DEPTHS.get((bits, layout), 0)
    has_masks = image.info["compression"] != 0
    if (
        not depth
        or header_bytes < _WINDOWS_HEADER_BYTES
        or (has_masks and data[54:66] != _BGRA_MASKS)
    ):
        raise unsupported(f"BMP of {bits} bits a pixel of this kind")
    height, width = image.height, image.width
    check_pixels(height, width, limit)
    if check != "none":
        expected = start + height * row_bytes
        if not height * width or start != offset or expected != len(data):
            raise damaged(
                f"BMP: {width} x {height} pixels from byte {offset} on need "
                f"{expected} bytes, the file has {len(data)}"
            )
        with decoding("BMP"):
            image.load()
    return ImageInfo("bmp", height, width, depth).noting()


def open_lazily(
    data: bytes, format: ImageFormat, limit: int
) -> tuple[ImageInfo, ImageFile.ImageFile]:
    """Reads the header, and ensures that decoding stays within the limit of pixels.

    Returns:
      Facts and notes, and Pillow's object, not loaded yet.

    Raises:
      FaultError: the header is invalid or states too many pixels, or nothing here
        decodes the kind of image.
    """
    name = format.name
    plugin = _plugin(format)
    if plugin is None:
        raise FaultError(
            Reason.UNSUPPORTED_FORMAT,
            f"{name}: this installation has no decoder for it"
            + ("; install beam-tfrecord[heif]" if name == "heic" else ""),
        )
    if name in _SIZES:
        check_pixels(*_SIZES[name](data), limit)
    source = _Source(data)
    with decoding(name, rare=True):
        with _without_warnings():
            image = plugin(source)
        if name == "tiff":
            info, several = _describe_tiff(image, limit)
        else:
            check_pixels(image.height, image.width, limit)
            info, several = _describe(image, data, name)
        if source.has_ended if name == "gif" else _lacks_rows(data, image):
            raise damaged(f"{name}: truncated: it has {len(data)} bytes")
    if info.height < 1 or info.width < 1:
        raise damaged(f"{name}: {info.width} x {info.height} pixels")
    return info.noting(several=several), image


def load_opened(info: ImageInfo, image: ImageFile.ImageFile) -> Image.Image:
    """Decodes the first image that `open_lazily` has opened, and turns none.

    Raises:
      FaultError: Pillow cannot decode it.
    """
    loaded: Image.Image = image
    is_tiff = info.format == "tiff"
    quietly = _without_warnings() if is_tiff else contextlib.nullcontext()
    with decoding(info.format, rare=True), quietly:
        image.load()
        if is_tiff and info.orientation > 1:
            # Pillow applies it to TIFF, but the policy decides whether to.
            loaded = image.transpose(_UNDONE[info.orientation])
    if (loaded.height, loaded.width) != (info.height, info.width):
        raise damaged(
            f"{info.format}: {loaded.width} x {loaded.height} pixels where the header "
            f"says {info.width} x {info.height}"
        )
    return loaded


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    """Suppresses Pillow's warnings about odd TIFF tags, and about many pixels.

    Filters of warnings belong to the process, so only one thread may change them.
    """
    with _quiet, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class _Source(io.BytesIO):
    """An in-memory image file that notes when Pillow reads past its end.

    Attributes:
      has_ended: whether more bytes were asked for than there are.
    """

    has_ended = False

    def read(self, size: int | None = -1, /) -> bytes:
        """Reads the next bytes."""
        data = super().read(size)
        self.has_ended |= size is not None and len(data) < size
        return data


def _describe_tiff(image: Any, limit: int) -> tuple[ImageInfo, bool]:
    """Returns facts of a TIFF that was opened, and whether it has several pages."""
    tags = image.tag_v2
    # Before loading, which applies it; Pillow also finds it in XMP.
    stated = image.getexif().get(Base.Orientation, 1)
    orientation = stated if stated in range(1, 9) else 1
    bits = tags.get(Base.BitsPerSample, (8,))
    bits = max(bits) if isinstance(bits, tuple) else int(bits)
    # From the tags: Pillow's `size` is the one after turning.
    height, width = int(tags[Base.ImageLength]), int(tags[Base.ImageWidth])
    check_pixels(height, width, limit)
    # Decoders allocate whole tiles, even for a small image.
    tile = tags.get(Base.TileLength, 1), tags.get(Base.TileWidth, 1)
    check_pixels(*tile, max(limit, 1 << 20))
    info = ImageInfo("tiff", height, width, 0, orientation, bits)
    return info, bool(image.is_animated)


def _describe(
    image: ImageFile.ImageFile, data: bytes, name: str
) -> tuple[ImageInfo, bool]:
    """Returns facts of an image that was opened, and whether it is one of several.

    The modes of Pillow do not always tell the bits of a sample.
    """
    orientation, bits = 1, 8
    if name in ("webp", "avif"):  # HEIC's decoder applies it
        exif, xmp = (image.info.get(key) or b"" for key in ("exif", "xmp"))
        orientation = read_orientation(exif, xmp)
    if name in ("avif", "heic"):
        pixel_info = _pixel_information(data[:65_536])
        bits = pixel_info[1][0] if pixel_info else 8
    elif name == "jpeg2000":
        # Whether samples are signed is in the top bit.
        bits = (_siz_fields(data)[-1] & 0x7F) + 1
    elif name == "pnm":
        bits = {"I": 16, "1": 1}.get(image.mode, 8)
    info = ImageInfo(name, image.height, image.width, 0, orientation, bits)
    return info, getattr(image, "n_frames", 1) > 1


def _lacks_rows(data: bytes, image: ImageFile.ImageFile) -> bool:
    """Whether a BMP with run lengths is cut short; Pillow leaves missing rows black."""
    return any(tile.codec_name == "bmp_rle" for tile in image.tile) and (
        int.from_bytes(data[2:6], "little") > len(data)
    )


def _codestream_size(data: bytes) -> tuple[int, int]:
    """Returns the size of a JPEG 2000, checked in its codestream; JP2's may differ."""
    _, _, right, bottom, left, top, *_, components, _ = _siz_fields(data)
    if right <= left or bottom <= top or not 1 <= components <= 4:
        raise damaged(
            f"jpeg2000: {right - left} x {bottom - top} pixels of {components} "
            f"components at byte {data.find(_SIZ)}"
        )
    return bottom, right


def _siz_fields(data: bytes) -> tuple[int, ...]:
    """Returns the fields of the SIZ marker, which are checked (T.800 A.5.1).

    FF 4F | FF 51 | length, 2 | capabilities, 2 | Xsiz, 4 | Ysiz, 4 | XOsiz, 4
    | YOsiz, 4 | XTsiz, 4 | YTsiz, 4 | XTOsiz, 4 | YTOsiz, 4 | components, 2 | bits, 1
    """
    at = data.find(_SIZ)
    if at < 0 or len(data) < at + 4 + _SIZ_FIELDS.size:
        raise damaged("jpeg2000: there is no codestream")
    return _SIZ_FIELDS.unpack_from(data, at + 4)


def _canvas_size(data: bytes) -> tuple[int, int]:
    """Returns the size of a WebP, checked before Pillow opens it and allocates.

    VP8X states sides less one in 24 bits, VP8L less one in 14, VP8 in 14 of 16 bits.
    """
    kind = data[12:16]
    if kind == b"VP8L" and data[20:21] == b"/" and len(data) >= 25:
        sides = int.from_bytes(data[21:25], "little")
        return (sides >> 14 & 0x3FFF) + 1, (sides & 0x3FFF) + 1
    width, height = data[24:27], data[27:30]
    if kind == b"VP8X" and len(data) >= 30:
        return int.from_bytes(height, "little") + 1, int.from_bytes(width, "little") + 1
    if kind != b"VP8 " or data[23:26] != b"\x9d\x01*" or len(data) < 30:
        raise damaged("webp: there is no image in it")
    sides = int.from_bytes(data[26:30], "little")
    return sides >> 16 & 0x3FFF, sides & 0x3FFF


_SIZES = {"jpeg2000": _codestream_size, "webp": _canvas_size}
"""Formats whose sizes are read before Pillow opens their files."""


@functools.cache
def _plugin(format: ImageFormat) -> _Plugin | None:
    """Returns the class that opens a file; None where Pillow was built without it."""
    name = format.decoder
    module = "pillow_heif" if name == "Heif" else f"PIL.{name}ImagePlugin"
    needed = _NEEDED.get(format.name)
    if importlib.util.find_spec(module) is None or (
        needed and not features.check(needed)
    ):
        return None
    return cast(_Plugin, getattr(importlib.import_module(module), f"{name}ImageFile"))
