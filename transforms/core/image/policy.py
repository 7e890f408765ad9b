"""Image policy: keep an image, transform it, or reject it.

    bytes -> limits -> check -> nothing has to change? -> the same bytes
                             -> decode -> channels, scale, turn, crop -> encode

The default policy changes no JPEG, PNG or BMP that TensorFlow reads, and re-encodes
other formats as PNG. The result depends on the bytes and the policy alone.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

from PIL import Image

from transforms.core.image import foreign as image_foreign
from transforms.core.image import pixels as image_pixels
from transforms.core.image.check import (
    TENSORFLOW_MAX_PIXELS,
    ImageFacts,
    ImageInfo,
    check_image,
)
from transforms.core.image.exif import turns
from transforms.core.image.notes import (
    ImageNote,
    SourceImage,
    notes_of,
    source_notes,
)
from transforms.core.image.resize import (
    AS_STORED,
    MAX_BYTES,
    MAX_PIXELS,
    Check,
    Geometry,
    Plan,
    Resize,
    make_plan,
)
from transforms.core.reasons import Fault, Reason
from transforms.errors import DamageError, SpecError, bounded

# The longest side that libjpeg writes, and that libpng reads by default.
_MAX_SIDES = {"jpeg": 65_500, "png": 1_000_000}


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
    output: Literal["jpeg", "png"] | None = None
    quality: int = 95
    max_pixels: int = MAX_PIXELS
    max_bytes: int = MAX_BYTES
    is_passive: bool = dataclasses.field(init=False, repr=False, compare=False)
    """Whether every upright still image that TensorFlow reads stays as it is."""

    def __post_init__(self) -> None:
        passive = self.channels is None and self.resize is None and self.output is None
        object.__setattr__(self, "is_passive", passive)
        for name, allowed in _ALLOWED.items():
            if getattr(self, name) not in allowed:
                choices = ", ".join(str(choice) for choice in allowed)
                raise SpecError(
                    f"images: {name} must be one of {choices}, "
                    f"not {getattr(self, name)!r}"
                )
        if not 1 <= self.quality <= 100:
            raise SpecError(f"images: quality must be 1 to 100, not {self.quality}")
        for name in ("max_pixels", "max_bytes"):
            if getattr(self, name) < 1:
                raise SpecError(
                    f"images: {name} must be at least 1, not {getattr(self, name)}"
                )
        if self.channels == 4 and self.output == "jpeg":
            raise SpecError(
                "images: JPEG has no fourth channel; ask for 3 channels, or for PNG"
            )

    def for_masks(self) -> "ImagePolicy":
        """Returns the policy for images of class numbers beside those of this one."""
        output = None if self.output == "jpeg" else self.output
        return dataclasses.replace(self, mask=True, channels=None, output=output)


_ALLOWED = {
    "check": ("structure", "decode", "none"),
    "foreign": ("png", "reject"),
    "animation": ("reject", "first"),
    "exif": ("keep", "apply"),
    "channels": (None, 1, 3, 4),
    "output": (None, "jpeg", "png"),
}


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
    source: SourceImage
    geometry: Geometry = AS_STORED
    notes: tuple[ImageNote, ...] = ()
    upright: Geometry = AS_STORED


Prepare = Callable[[bytes, ImagePolicy], PreparedImage | Fault]

_DEFAULT = ImagePolicy()
# Why an image is refused, by what is raised.
_REASONS: Mapping[type[Exception], Reason] = {
    image_foreign.TooManyPixelsError: Reason.TOO_MANY_PIXELS,
    image_foreign.UnsupportedKindError: Reason.UNSUPPORTED_FORMAT,
    image_pixels.UnsupportedPixelsError: Reason.UNSUPPORTED_FORMAT,
    DamageError: Reason.DAMAGED_IMAGE,
}


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
    found = check_image(data, policy.check, policy.max_pixels)
    try:
        if isinstance(found, ImageFacts):
            info = found.info
            source = SourceImage(
                info.format, info.height, info.width, found.orientation, found.bits
            )
            if found.has_palette:
                return _prepare_foreign(data, policy, _palette_fault(), foreign)
            notes = notes_of(found, len(data))
            if policy.is_passive and not notes:
                return PreparedImage(data, info, source)
            return _prepare_native(
                data, policy, facts=found, source=source, notes=notes
            )
        if found.reason is not Reason.UNSUPPORTED_FORMAT:
            return found
        return _prepare_foreign(data, policy, found, foreign)
    except tuple(_REASONS) as error:
        return _fault_of(error)


def _fault_of(error: Exception) -> Fault:
    reason = next(r for kind, r in _REASONS.items() if isinstance(error, kind))
    return Fault(reason, bounded(str(error)))


def header_size(data: bytes, policy: ImagePolicy) -> tuple[int, int] | Fault:
    """Returns width and height as the policy's `exif` has them, from the header alone.

    Args:
      data: the whole encoded file.
      policy: whether the image is turned, and its limit of pixels.
    """
    found = check_image(data, "none", policy.max_pixels)
    try:
        if isinstance(found, ImageFacts):
            size = found.info.width, found.info.height
            orientation = found.orientation
        elif name := image_foreign.name_format(data):
            opened = image_foreign.open_lazily(data, name, policy.max_pixels)
            size, orientation = (opened.width, opened.height), opened.orientation
        else:
            return found
    except tuple(_REASONS) as error:
        return _fault_of(error)
    is_turned = policy.exif == "apply" and turns(orientation)
    return size[::-1] if is_turned else size


def too_many_bytes(size: int, limit: int) -> Fault:
    """Returns the fault of an image of more bytes than `limit`."""
    return Fault(
        Reason.TOO_MANY_BYTES,
        f"{size:,} bytes are more than {limit:,}; --max-image-bytes allows more",
    )


def _prepare_native(
    data: bytes,
    policy: ImagePolicy,
    *,
    facts: ImageFacts,
    source: SourceImage,
    notes: tuple[ImageNote, ...],
) -> PreparedImage | Fault:
    """Prepares a JPEG, PNG or BMP that may have to change."""
    info = facts.info
    if facts.frames > 1 and policy.animation == "reject":
        return _animated("PNG")
    plan = _plan(policy, source)
    if isinstance(plan, Fault):
        return plan
    output = policy.output or info.format
    if (
        plan is None
        and (policy.channels is None or policy.channels == info.depth)
        and output == info.format
    ):
        if _is_smaller(info.height, info.width, policy.resize):
            notes += (ImageNote.SMALLER_THAN_ASKED,)
        return PreparedImage(data, info, source, AS_STORED, notes)
    if policy.check == "none":
        # No decoder gets an unchecked file, even if the policy trusts the source.
        checked = check_image(data, "structure", policy.max_pixels)
        if isinstance(checked, Fault):
            return checked
    image = image_pixels.decode(
        data,
        info.format,
        gray=policy.channels == 1,
        at_least=None if plan is None or policy.mask else plan.scaled_as_stored(),
    )
    return _finish(image, policy, source=source, plan=plan, notes=notes)


def _prepare_foreign(
    data: bytes, policy: ImagePolicy, refusal: Fault, elsewhere: Prepare | None
) -> PreparedImage | Fault:
    """Re-encodes an image that TensorFlow does not read, or returns `refusal`."""
    name = image_foreign.name_format(data)
    if name is None or policy.foreign == "reject":
        return refusal
    if elsewhere is not None:
        return elsewhere(data, policy)
    if not image_foreign.is_available(name):
        return Fault(
            Reason.UNSUPPORTED_FORMAT,
            f"{name}: this installation has no decoder for it"
            + ("; install beam-tfrecord[heif]" if name == "heic" else ""),
        )
    limit = min(policy.max_pixels, TENSORFLOW_MAX_PIXELS)
    opened = image_foreign.open_lazily(data, name, limit)
    if opened.frames > 1 and policy.animation == "reject":
        return _animated(name.upper())
    source = SourceImage(
        name, opened.height, opened.width, opened.orientation, opened.bits
    )
    plan = _plan(policy, source)
    if isinstance(plan, Fault):
        return plan
    image = image_foreign.load(opened)
    notes = source_notes(source, several=opened.frames > 1, cmyk=image.mode == "CMYK")
    notes += (ImageNote.REENCODED,)
    return _finish(image, policy, source=source, plan=plan, notes=notes)


def _plan(policy: ImagePolicy, source: SourceImage) -> Plan | Fault | None:
    return make_plan(
        (source.height, source.width),
        orientation=source.orientation if policy.exif == "apply" else 1,
        resize=policy.resize,
        max_pixels=min(policy.max_pixels, TENSORFLOW_MAX_PIXELS),
    )


def _finish(
    image: Image.Image,
    policy: ImagePolicy,
    *,
    source: SourceImage,
    plan: Plan | None,
    notes: tuple[ImageNote, ...],
) -> PreparedImage | Fault:
    """Applies channels and plan to decoded pixels, and encodes them."""
    output = policy.output or _kept_format(source, policy)
    numbers = policy.mask or image.mode == "P"
    keeps_palette = output == "png" and (policy.mask or plan is not None)
    if policy.channels not in (None, image_pixels.depth_of(image)):
        keeps_palette = False
    image = image_pixels.normalize(
        image, format=source.format, keep_palette=keeps_palette
    )
    channels: int | None = policy.channels
    if channels is None and output == "jpeg" and image.mode in ("LA", "RGBA"):
        channels = image_pixels.DEPTHS[image.mode] - 1
    had_alpha = image.mode in ("LA", "RGBA")
    if (plan is not None or output == "jpeg") and not policy.mask:
        image = image_pixels.to_eight_bits(image)
    image = image_pixels.to_channels(image, channels)
    geometry = upright = AS_STORED
    if plan is not None:
        geometry, upright = plan.geometry, plan.upright
        image = image_pixels.place(
            image,
            layout=plan.layout,
            resize=policy.resize,
            orientation=plan.orientation,
            stored=(source.height, source.width),
            nearest=numbers,
            fill_is_number=policy.mask,
        )
    if max(image.size) > _MAX_SIDES[output]:
        return Fault(
            Reason.TOO_MANY_PIXELS,
            f"{output.upper()} holds sides of up to {_MAX_SIDES[output]:,} pixels, "
            f"not {image.width} x {image.height}",
        )
    if had_alpha and image.mode not in ("LA", "RGBA"):
        notes += (ImageNote.FLATTENED,)
    if source.bits > 8 and image.mode != "I;16":
        notes += (ImageNote.LOST_PRECISION,)
    if _is_smaller(image.height, image.width, policy.resize):
        notes += (ImageNote.SMALLER_THAN_ASKED,)
    depth = image_pixels.depth_of(image)
    info = ImageInfo(output, image.height, image.width, depth)
    data = image_pixels.encode(
        image,
        output,
        policy.quality,
        orientation=source.orientation if policy.exif == "keep" else 1,
    )
    return PreparedImage(data, info, source, geometry, notes, upright)


def _kept_format(source: SourceImage, policy: ImagePolicy) -> Literal["jpeg", "png"]:
    keeps_jpeg = policy.channels != 4 and not policy.mask
    return "jpeg" if source.format == "jpeg" and keeps_jpeg else "png"


def _is_smaller(height: int, width: int, resize: Resize | None) -> bool:
    """Whether a resize that may not enlarge left less than was asked for."""
    if resize is None:
        return False
    if resize.mode == "shorter":
        return min(height, width) < resize.height
    if resize.mode == "longer":
        return max(height, width) < resize.height
    return height < resize.height or width < resize.width


def _animated(name: str) -> Fault:
    return Fault(
        Reason.ANIMATED_IMAGE,
        f"{name}: there are several images in it, one is expected; "
        "--animations first takes the first",
    )


def _palette_fault() -> Fault:
    return Fault(
        Reason.UNSUPPORTED_FORMAT,
        "BMP with a palette: TensorFlow would show the palette's numbers as grays; "
        "convert it to baseline JPEG or PNG",
    )
