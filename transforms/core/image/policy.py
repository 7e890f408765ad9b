"""Image policy: keep an image, transform it, or reject it.

    bytes -> limits -> check -> nothing has to change? -> the same bytes
                             -> decode -> channels, scale, turn, crop -> encode

The default policy changes no JPEG, PNG or BMP that TensorFlow reads, and re-encodes
other formats as PNG. The result depends on the bytes and the policy alone.
"""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, NamedTuple

from PIL import Image, ImageFile

from transforms.core.image.check import (
    TENSORFLOW_MAX_PIXELS,
    check_image,
    decode_checked,
    load_opened,
    open_lazily,
)
from transforms.core.image.formats import (
    MAX_SIDES,
    ImageInfo,
    ImageNote,
    find_foreign,
)
from transforms.core.image.pixels import (
    depth_of,
    encode,
    move_pixels,
    normalize,
    to_channels,
    to_eight_bits,
)
from transforms.core.image.resize import (
    AS_STORED,
    MAX_BYTES,
    MAX_PIXELS,
    Check,
    Geometry,
    ImageStep,
    Resize,
    step_of,
    turns,
)
from transforms.core.reasons import Fault, FaultError, Reason
from transforms.errors import SpecError

if TYPE_CHECKING:
    from transforms.core.image.masks import MaskClasses


@dataclasses.dataclass(frozen=True, slots=True)
class ImagePolicy:
    """How images are checked and changed.

    For example `ImagePolicy(exif="apply", channels=3, resize=Resize("shorter", 224))`.

    Attributes:
      check: how deep JPEG, PNG and BMP are checked; see `check_image`.
      foreign: WebP, GIF, TIFF, JPEG 2000, PBM / PGM / PPM, AVIF, HEIC (with the extra
        [heif]), and the kinds of BMP that TensorFlow reads wrongly or not at all:
        "png" re-encodes them, without loss up to 8 bits a sample and 16 of gray;
        "reject" refuses them.
      animation: files of several images, APNG and TIFF of several pages included:
        "reject" refuses them, "first" takes the first.
      exif: "keep": pixels as stored; where they are encoded again, the result has the
        orientation in its EXIF. "apply": turned to be upright, and encoded again.
      channels: 1, 3 or 4 of the result; a removed alpha channel is blended with white.
        None: unchanged.
      resize: see `Resize`; None: unchanged. The pixels of palette images are numbers,
        so they are copied from the nearest one, whatever its filter.
      mask: whether pixels are class numbers: they are copied and never computed. The
        result is PNG with the channels and the bits that the source has; `channels`
        and an `output` of "jpeg" do not hold for it. See `for_masks`.
      any_file: whether a file is stored as it is, whatever it holds; see `for_files`.
      class_mask: whether the result is a mask with one class number a pixel; see
        `transforms.core.image.masks`.
      mask_classes: what the pixels of such masks mean; None for their numbers.
      output: "jpeg" or "png": the format of every result. None: JPEG stays JPEG where
        four channels are not asked for, the others become PNG where they change.
      quality: of JPEGs that are encoded here, 1 to 100. Files that need no change keep
        their own.
      max_pixels: limit of height times width, before anything is decoded and after.
      max_bytes: limit of the encoded source. A larger file is not read.
    """

    check: Check = "structure"
    foreign: Literal["png", "reject"] = "png"
    animation: Literal["reject", "first"] = "reject"
    exif: Literal["keep", "apply"] = "keep"
    channels: Literal[1, 3, 4] | None = None
    resize: Resize | None = None
    mask: bool = False
    any_file: bool = False
    class_mask: bool = False
    mask_classes: "MaskClasses | None" = None
    output: Literal["jpeg", "png"] | None = None
    quality: int = 95
    max_pixels: int = MAX_PIXELS
    max_bytes: int = MAX_BYTES

    def __post_init__(self) -> None:
        if self.channels == 4 and self.output == "jpeg":
            raise SpecError(
                "images: JPEG has no fourth channel; ask for 3 channels, or for PNG"
            )

    @property
    def is_passive(self) -> bool:
        """Whether every upright still image that TensorFlow reads stays as it is."""
        return not (self.channels or self.resize or self.output or self.class_mask)

    @property
    def most_pixels(self) -> int:
        """Limit of pixels of what is decoded here: the policy's or TensorFlow's."""
        return min(self.max_pixels, TENSORFLOW_MAX_PIXELS)

    def for_masks(self, *, of_image: bool = False) -> "ImagePolicy":
        """Returns the policy for images of class numbers beside those of this one.

        Args:
          of_image: whether it is the mask of an image, a class number a pixel.
        """
        output = None if self.output == "jpeg" else self.output
        return dataclasses.replace(
            self, mask=True, class_mask=of_image, channels=None, output=output
        )

    def for_files(self) -> "ImagePolicy":
        """Returns the policy for files that are no images, with the limit of bytes."""
        return ImagePolicy(max_bytes=self.max_bytes, any_file=True)


_NO_IMAGE = ImageInfo("", 0, 0, 0)


class PreparedImage(NamedTuple):
    """An image that TensorFlow reads, in the form that the policy asks for.

    Attributes:
      data: encoded; the object that was passed in if nothing had to change.
      info: of `data`.
      source: of the image that was passed in.
      geometry: maps relative boxes of the source, as stored, to the result.
      notes: in the order of `ImageNote`.
      upright: maps relative boxes of the source to the result, where they are of the
        source as it is turned; differs from `geometry` where the policy turned it.
    """

    data: bytes
    info: ImageInfo
    source: ImageInfo
    geometry: Geometry = AS_STORED
    notes: tuple[ImageNote, ...] = ()
    upright: Geometry = AS_STORED


Prepare = Callable[[bytes, ImagePolicy], PreparedImage | Fault]

_DEFAULT = ImagePolicy()


def prepare_image(
    data: bytes, policy: ImagePolicy = _DEFAULT, *, foreign: Prepare | None = None
) -> PreparedImage | Fault:
    """Converts an encoded image to the form that a policy asks for.

    Args:
      data: the whole encoded file.
      policy: how it is checked and changed.
      foreign: prepares the kinds under `ImagePolicy.foreign` instead, for example by
        this function in another process, where their decoders may crash, hang or
        exhaust memory. None: they are prepared here, and a decoder that crashes ends
        this process. JPEG, PNG and plain BMP are always prepared here, for speed: their
        decoders are hardened by the hostile files of the web, and get only files whose
        structure has been checked.

    Returns:
      The image, or the fault. Bad input is a value, never an exception.
    """
    if len(data) > policy.max_bytes:
        return too_many_bytes(len(data), policy.max_bytes)
    if policy.any_file:
        if not data:
            return Fault(Reason.EMPTY_FILE, "the file is empty")
        return PreparedImage(data, _NO_IMAGE, _NO_IMAGE)
    try:
        source = check_image(data, policy.check, policy.max_pixels)
        opened = None
        if isinstance(source, Fault):
            format = find_foreign(data, source)
            if format is None or policy.foreign == "reject":
                return source
            if foreign is not None:
                return foreign(data, policy)
            source, opened = open_lazily(data, format, policy.most_pixels)
        elif policy.is_passive and not source.notes:
            return PreparedImage(data, source, source)
        return _prepare(data, policy, source, opened)
    except FaultError as error:
        return error.fault


def header_size(data: bytes, policy: ImagePolicy) -> tuple[int, int] | Fault:
    """Returns width and height as the policy's `exif` has them, from the header alone.

    Args:
      data: the whole encoded file.
      policy: whether the image is turned, and its limit of pixels.
    """
    checked = check_image(data, "none", policy.max_pixels)
    if isinstance(checked, Fault):
        format = find_foreign(data, checked)
        if format is None:
            return checked
        try:
            checked, _ = open_lazily(data, format, policy.max_pixels)
        except FaultError as error:
            return error.fault
    size = checked.width, checked.height
    is_turned = policy.exif == "apply" and turns(checked.orientation)
    return size[::-1] if is_turned else size


def too_many_bytes(size: int, limit: int) -> Fault:
    """Returns the fault of an image of more bytes than a policy allows."""
    return Fault(
        Reason.TOO_MANY_BYTES,
        f"{size:,} bytes are more than {limit:,}; --max-image-bytes allows more",
    )


def _prepare(
    data: bytes,
    policy: ImagePolicy,
    source: ImageInfo,
    opened: ImageFile.ImageFile | None,
) -> PreparedImage | Fault:
    """Prepares an image that may have to change.

    Args:
      data: the file.
      policy: how it is changed.
      source: its facts.
      opened: by `open_lazily`; None for an image that TensorFlow reads.
    """
    if ImageNote.SEVERAL_FRAMES in source.notes and policy.animation == "reject":
        raise FaultError(
            Reason.ANIMATED_IMAGE,
            f"{source.format.upper()}: there are several images in it, one is "
            "expected; --animations first takes the first",
        )
    step = step_of(
        (source.height, source.width),
        orientation=source.orientation if policy.exif == "apply" else 1,
        resize=policy.resize,
        limit=policy.most_pixels,
    )
    # TensorFlow decodes these class numbers as they are.
    is_gray = source.format == "png" and (source.depth, source.bits) == (1, 8)
    holds_numbers = is_gray and policy.mask_classes is None
    notes: set[ImageNote] = set()
    if opened is not None:
        image = load_opened(source, opened)
        notes.add(ImageNote.REENCODED)
        if image.mode == "CMYK":
            notes.add(ImageNote.CMYK)
    elif (
        step is None
        and policy.channels in (None, source.depth)
        and policy.output in (None, source.format)
        and (not policy.class_mask or holds_numbers)
    ):
        return _finished(data, source, source, step, _shortfall(source, policy))
    else:
        if policy.check == "none":
            # No decoder gets an unchecked file, even if the policy trusts the source.
            checked = check_image(data, "structure", policy.max_pixels)
            if isinstance(checked, Fault):
                return checked
        image = decode_checked(
            data,
            source.format,
            gray=policy.channels == 1,
            at_least=None if step is None or policy.mask else step.scaled_as_stored,
        )
    if policy.class_mask:
        return _prepared_mask(image, policy, source, step)
    return _changed(image, policy, source, step, notes)


def _changed(
    image: Image.Image,
    policy: ImagePolicy,
    source: ImageInfo,
    step: ImageStep | None,
    notes: set[ImageNote],
) -> PreparedImage:
    """Applies channels and step to decoded pixels, and encodes them."""
    keeps_jpeg = source.format == "jpeg" and policy.channels != 4 and not policy.mask
    output: Literal["jpeg", "png"] = policy.output or ("jpeg" if keeps_jpeg else "png")
    numbers = policy.mask or image.mode == "P"
    keeps_palette = (
        output == "png"
        and (policy.mask or step is not None)
        and policy.channels in (None, depth_of(image))
    )
    image = normalize(image, format=source.format, keep_palette=keeps_palette)
    had_alpha = image.mode in ("LA", "RGBA")
    channels: int | None = policy.channels
    if channels is None and output == "jpeg" and had_alpha:
        channels = depth_of(image) - 1
    if (step is not None or output == "jpeg") and not policy.mask:
        image = to_eight_bits(image)
    image = to_channels(image, channels)
    if step is not None:
        image = move_pixels(image, step, numbers=numbers, mask=policy.mask)
    if max(image.size) > MAX_SIDES[output]:
        raise FaultError(
            Reason.TOO_MANY_PIXELS,
            f"{output.upper()} holds sides of up to {MAX_SIDES[output]:,} pixels, "
            f"not {image.width} x {image.height}",
        )
    if had_alpha and image.mode not in ("LA", "RGBA"):
        notes.add(ImageNote.FLATTENED)
    if source.bits > 8 and image.mode != "I;16":
        notes.add(ImageNote.LOST_PRECISION)
    info = ImageInfo(output, image.height, image.width, depth_of(image))
    orientation = source.orientation if policy.exif == "keep" else 1
    data = encode(image, output, policy.quality, orientation=orientation)
    return _finished(data, info, source, step, notes | _shortfall(info, policy))


def _prepared_mask(
    image: Image.Image, policy: ImagePolicy, source: ImageInfo, step: ImageStep | None
) -> PreparedImage:
    """Turns and resizes a mask of class numbers as its image, and encodes it as PNG."""
    # Here, because NumPy doubles the start of a decoder process.
    import numpy as np

    from transforms.core.image.masks import class_numbers
    from transforms.core.image.png import encode_class_png

    numbers = class_numbers(image, source.format, source.bits, policy.mask_classes)
    image = Image.fromarray(numbers)
    if step is not None:
        image = move_pixels(image, step, numbers=True, mask=True)
    data = encode_class_png(np.asarray(image))
    info = ImageInfo("png", image.height, image.width, 1)
    return _finished(data, info, source, step, set())


def _shortfall(info: ImageInfo, policy: ImagePolicy) -> set[ImageNote]:
    """Returns the note on an image that is smaller than the policy asks for."""
    rule = policy.resize
    is_small = rule is not None and rule.asks_more_than(info.height, info.width)
    return {ImageNote.SMALLER_THAN_ASKED} if is_small else set()


def _finished(
    data: bytes,
    info: ImageInfo,
    source: ImageInfo,
    step: ImageStep | None,
    more: set[ImageNote],
) -> PreparedImage:
    """Adds the notes on both, and what maps boxes."""
    notes = tuple(n for n in ImageNote if n in source.notes or n in more)
    if step is None:
        return PreparedImage(data, info, source, notes=notes)
    geometry, upright = step.geometry(step.orientation), step.geometry(1)
    return PreparedImage(data, info, source, geometry, notes, upright)
