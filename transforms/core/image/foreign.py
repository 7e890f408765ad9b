"""Formats that TensorFlow does not read as one image: headers and decoders.

    bytes -> format by signature -> our own look at the header -> limits
          -> Pillow's plugin, lazily -> its size against the limits again -> pixels

The list is closed. The plugin's class is called directly and never `Image.open`: so no
file can choose a format that starts another program, as EPS does with Ghostscript.

The sizes of WebP and JPEG 2000 are read here first: the limits must hold before Pillow
allocates anything, and the size in the codestream of a JPEG 2000 may contradict the one
that Pillow reads.
"""

import contextlib
import dataclasses
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

from PIL import Image, ImageFile, features

from transforms.core.image.exif import read_orientation
from transforms.core.image.pixels import TURNED
from transforms.errors import DamageError

FORMATS = ("bmp", "gif", "webp", "tiff", "jpeg2000", "pnm", "avif", "heic")
"""With BMP, for the kinds that TensorFlow does not read, or reads in wrong colors."""

_SIGNATURES = (
    ("bmp", rb"BM"),
    ("gif", rb"GIF8[79]a"),
    ("webp", rb"RIFF....WEBP"),
    ("tiff", rb"II\*\x00|MM\x00\*|II\+\x00|MM\x00\+"),
    ("avif", rb"....ftypavi[fs]"),
    ("heic", rb"....ftyp(?:hei[cxms]|hev[cxms]|mif1|msf1)"),
    ("jpeg2000", rb"\x00\x00\x00\x0cjP  \r\n\x87\n|\xff\x4f\xff\x51"),
    ("pnm", rb"P[1-6][\s#]"),
)
_signature = re.compile(
    b"|".join(b"(%s)" % pattern for _, pattern in _SIGNATURES), re.DOTALL
).match

_ORIENTATION, _BITS_PER_SAMPLE = 274, 258
_IMAGE_WIDTH, _IMAGE_HEIGHT, _TILE_WIDTH, _TILE_HEIGHT = 256, 257, 322, 323

# Exceptions of Pillow's plugins on damaged files. Plugins parse headers in Python and
# index, unpack and divide with the values, so none of these means a bug here.
_DAMAGE = (
    OSError,
    SyntaxError,
    EOFError,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    ArithmeticError,
    AssertionError,
    RuntimeError,
    MemoryError,
    struct.error,
    Image.DecompressionBombError,
    Warning,  # where the process has turned warnings into errors
)
_quiet = threading.Lock()


class TooManyPixelsError(DamageError):
    """The header states more pixels than the limit."""


class UnsupportedKindError(DamageError):
    """The file may be intact, but Pillow does not read this kind of its format."""


@dataclasses.dataclass(frozen=True, slots=True)
class Opened:
    """A file of which only the header was read.

    Attributes:
      format: one of `FORMATS`.
      height, width: as stored, before the orientation is applied.
      orientation: of EXIF, XMP, or of the format's own kind; 1 to 8.
      bits: of a sample.
      frames: images in the file; 2 may mean more.
      image: Pillow's object, not loaded yet.
    """

    format: str
    height: int
    width: int
    orientation: int
    bits: int
    frames: int
    image: ImageFile.ImageFile


def name_format(data: bytes) -> str | None:
    """Returns the one of `FORMATS` whose signature the bytes have; else None."""
    found = _signature(data)
    if found is None or found.lastindex is None:
        return None
    return _SIGNATURES[found.lastindex - 1][0]


def is_available(name: str) -> bool:
    """Whether this installation can decode a format of `FORMATS`."""
    return _plugin(name) is not None


def open_lazily(data: bytes, name: str, max_pixels: int) -> Opened:
    """Reads the header, and ensures that decoding stays within the limit.

    Raises:
      TooManyPixelsError: a size that the file states exceeds `max_pixels`.
      UnsupportedKindError: it is a BMP of a rare kind.
      DamageError: the header is invalid.
    """
    if name == "jpeg2000":
        _bound_codestreams(data, max_pixels)
    elif name == "webp":
        _bound_canvas(data, max_pixels)
    plugin = _plugin(name)
    if plugin is None:
        raise DamageError(f"this installation has no decoder for {name}")
    source = _Source(data)
    try:
        with _without_warnings():
            image = plugin(source)
        if name == "tiff":
            opened = _open_tiff(image, max_pixels)
        else:
            _bound(image.height, image.width, max_pixels)
            frames = 1
            if name in ("gif", "webp", "avif", "heic"):
                frames = getattr(image, "n_frames", 1)
            if (name == "gif" and source.has_ended) or _lacks_rows(data, image):
                raise DamageError(f"{name}: truncated: it has {len(data)} bytes")
            opened = Opened(
                format=name,
                height=image.height,
                width=image.width,
                orientation=_orientation(image, name),
                bits=_bits(data, name, image),
                frames=frames,
                image=image,
            )
    except DamageError:
        raise
    except Image.DecompressionBombError as error:
        raise TooManyPixelsError(str(error)) from error
    except _DAMAGE as error:
        if str(error).startswith("Unsupported BMP"):
            raise UnsupportedKindError(
                f"BMP of a kind that neither TensorFlow nor Pillow reads: {error}; "
                "convert it to baseline JPEG or PNG"
            ) from error
        raise DamageError(f"{name}: Pillow cannot open it: {_said(error)}") from error
    _bound(opened.height, opened.width, max_pixels)
    if opened.height < 1 or opened.width < 1:
        raise DamageError(f"{name}: {opened.width} x {opened.height} pixels")
    return opened


class _Source(io.BytesIO):
    """A file in memory, of which Pillow reads a GIF block by block.

    Attributes:
      has_ended: whether more bytes were asked for than there are.
    """

    has_ended = False

    def read(self, size: int | None = -1, /) -> bytes:
        """Reads the next bytes."""
        data = super().read(size)
        self.has_ended |= size is not None and len(data) < size
        return data


def _lacks_rows(data: bytes, image: ImageFile.ImageFile) -> bool:
    """Whether a BMP with run lengths is cut short; Pillow leaves missing rows black."""
    return image.tile[:1] != [] and (
        image.tile[0].codec_name == "bmp_rle"
        and int.from_bytes(data[2:6], "little") > len(data)
    )


def load(opened: Opened) -> Image.Image:
    """Decodes the first image, in the orientation in which it is stored.

    Raises:
      DamageError: Pillow cannot decode it.
    """
    image: Image.Image = opened.image
    try:
        if opened.format == "tiff":
            with _without_warnings():
                image.load()
            if opened.orientation > 1:
                # Pillow applies it to TIFF, but the policy decides whether to.
                image = image.transpose(_UNDONE[opened.orientation])
        else:
            image.load()
    except _DAMAGE as error:
        raise DamageError(
            f"{opened.format}: Pillow cannot decode it: {_said(error)}"
        ) from error
    if (image.height, image.width) != (opened.height, opened.width):
        raise DamageError(
            f"{opened.format}: {image.width} x {image.height} pixels where the header "
            f"says {opened.width} x {opened.height}"
        )
    return image


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    """Suppresses Pillow's warnings about odd TIFF tags, and about many pixels.

    Filters of warnings belong to the process, so only one thread may change them.
    """
    with _quiet, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


_UNDONE = {**TURNED, 6: TURNED[8], 8: TURNED[6]}
"""The inverse of each EXIF orientation."""


def _open_tiff(image: Any, max_pixels: int) -> Opened:
    """Returns what a TIFF states.

    `image` is Pillow's TiffImageFile, a class that only TIFF needs to import.
    """
    tags = image.tag_v2
    # Before loading, which applies it; Pillow also finds it in XMP.
    orientation = image.getexif().get(_ORIENTATION, 1)
    if orientation not in range(1, 9):
        orientation = 1
    # Decoders allocate whole tiles, even for a small image.
    tile = tags.get(_TILE_HEIGHT, 1), tags.get(_TILE_WIDTH, 1)
    _bound(*tile, max(max_pixels, 1 << 20))
    bits = tags.get(_BITS_PER_SAMPLE, (8,))
    return Opened(
        format="tiff",
        # From the tags: Pillow's `size` is the one after turning.
        height=int(tags[_IMAGE_HEIGHT]),
        width=int(tags[_IMAGE_WIDTH]),
        orientation=orientation,
        bits=max(bits) if isinstance(bits, tuple) else int(bits),
        frames=2 if image.is_animated else 1,
        image=image,
    )


def _orientation(image: ImageFile.ImageFile, name: str) -> int:
    """Returns that of WebP and AVIF; HEIC's decoder applies it, others have none."""
    if name not in ("webp", "avif"):
        return 1
    exif, xmp = (image.info.get(key) for key in ("exif", "xmp"))
    return read_orientation(exif or b"", xmp or b"")


# The box of bits per channel (ISO 23008-12, 6.5.6), after 4 bytes of version and flags.
_pixel_information = re.compile(rb"pixi\x00{4}[\x01-\x04](.)", re.DOTALL).search
_SIZ = b"\xff\x4f\xff\x51"
_SIZ_FIELDS = struct.Struct(">HHIIIIIIIIHB")


def _bits(data: bytes, name: str, image: ImageFile.ImageFile) -> int:
    """Returns the bits of a sample, which Pillow's modes do not always tell."""
    if name in ("avif", "heic"):
        found = _pixel_information(data[:65_536])
        return found[1][0] if found else 8
    if name == "jpeg2000":
        # Whether samples are signed is in the top bit.
        return (_siz_fields(data)[-1] & 0x7F) + 1
    if name == "pnm":
        return 16 if image.mode == "I" else 1 if image.mode == "1" else 8
    return 8


def _bound_codestreams(data: bytes, max_pixels: int) -> None:
    """Checks the size in the codestream, which need not agree with JP2's header."""
    _, _, right, bottom, left, top, *_, components, _ = _siz_fields(data)
    if right <= left or bottom <= top or not 1 <= components <= 4:
        raise DamageError(
            f"jpeg2000: {right - left} x {bottom - top} pixels of {components} "
            f"components at byte {data.find(_SIZ)}"
        )
    _bound(bottom, right, max_pixels)


# Sizes of the canvas: VP8X less one in 24 bits, VP8L less one and VP8 in 14 bits.
_canvas = re.compile(
    rb"RIFF....WEBPVP8(?:X.{8}(.{3})(.{3})|L.{4}/(.{4})| .{7}\x9d\x01\*(..)(..))",
    re.DOTALL,
).match


def _bound_canvas(data: bytes, max_pixels: int) -> None:
    """Checks the size of a WebP, for which Pillow allocates when it opens the file."""
    found = _canvas(data)
    if found is None:
        raise DamageError("webp: there is no image in it")
    numbers = [int.from_bytes(each, "little") for each in found.groups(b"")]
    width, height, both, lossy_width, lossy_height = numbers
    if found[1]:
        _bound(height + 1, width + 1, max_pixels)
    elif found[3]:
        _bound((both >> 14 & 0x3FFF) + 1, (both & 0x3FFF) + 1, max_pixels)
    else:
        _bound(lossy_height & 0x3FFF, lossy_width & 0x3FFF, max_pixels)


def _siz_fields(data: bytes) -> tuple[int, ...]:
    """Returns the fields of the codestream's SIZ marker (T.800 A.5.1).

    FF 4F | FF 51 | length, 2 | capabilities, 2 | Xsiz, 4 | Ysiz, 4 | XOsiz, 4
    | YOsiz, 4 | XTsiz, 4 | YTsiz, 4 | XTOsiz, 4 | YTOsiz, 4 | components, 2 | bits, 1
    """
    at = data.find(_SIZ)
    if at < 0 or len(data) < at + 4 + _SIZ_FIELDS.size:
        raise DamageError("jpeg2000: there is no codestream")
    return _SIZ_FIELDS.unpack_from(data, at + 4)


def _bound(height: int, width: int, max_pixels: int) -> None:
    if height * width > max_pixels:
        raise TooManyPixelsError(
            f"{width} x {height} pixels are more than {max_pixels:,}"
        )


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


_Plugin = Callable[[io.BytesIO], ImageFile.ImageFile]


# Module and class of each decoder; imported for the first file of its format.
_PLUGINS = {
    "bmp": ("PIL.BmpImagePlugin", "BmpImageFile"),
    "gif": ("PIL.GifImagePlugin", "GifImageFile"),
    "webp": ("PIL.WebPImagePlugin", "WebPImageFile"),
    "tiff": ("PIL.TiffImagePlugin", "TiffImageFile"),
    "jpeg2000": ("PIL.Jpeg2KImagePlugin", "Jpeg2KImageFile"),
    "pnm": ("PIL.PpmImagePlugin", "PpmImageFile"),
    "avif": ("PIL.AvifImagePlugin", "AvifImageFile"),
    "heic": ("pillow_heif", "HeifImageFile"),
}
_NEEDED = {"webp": "webp", "jpeg2000": "jpg_2000", "avif": "avif"}


@functools.cache
def _plugin(name: str) -> _Plugin | None:
    """Returns the decoder's class; None where Pillow was built without it."""
    module, class_name = _PLUGINS[name]
    if importlib.util.find_spec(module) is None:
        return None
    if name in _NEEDED and not features.check(_NEEDED[name]):
        return None
    return cast(_Plugin, getattr(importlib.import_module(module), class_name))
