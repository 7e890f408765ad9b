"""Turn and resize: orientations, target sizes, and boxes that move with the pixels.

How the stored picture becomes the shown one, by EXIF's orientation:

    1 as stored       2 mirrored        3 turned by 180     4 flipped
    5 transposed      6 turned by 90    7 transversed       8 turned by 270, clockwise

    source --scale, turn--> scaled --crop or pad--> result

Sizes are whole pixels, rounded half up in integer arithmetic, so that every machine
computes the same ones.

Coordinates of boxes are relative: 0 is the left or top edge, 1 the right or bottom one,
as in the box features of detection datasets. Turning, mirroring, scaling, cropping and
padding combine to one scale and one shift an axis, and an exchange of axes or not.

Settings import this module for its choices, so it loads neither Pillow nor NumPy.
"""

import dataclasses
from typing import TYPE_CHECKING, Literal, NamedTuple

from transforms.core.image.formats import MAX_SIDES, check_pixels
from transforms.errors import SpecError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_Size = tuple[int, int]

Check = Literal["structure", "decode", "none"]
Mode = Literal["shorter", "longer", "exact", "crop", "pad"]
Filter = Literal["hamming", "box", "bilinear", "bicubic", "lanczos"]

MAX_PIXELS = 64_000_000
"""Default limit: 8,000 x 8,000. Decoded as RGB, 192 MB."""

MAX_BYTES = 1 << 28
"""Default limit of an encoded image: 256 MiB, more than 64 megapixels need."""
_MAX_SIDE = MAX_SIDES["jpeg"]


def turns(orientation: int) -> bool:
    """Whether applying the orientation exchanges height and width."""
    return orientation >= 5


class Geometry(NamedTuple):
    """x of the result = x of the source * x's scale + x's shift, and so for y.

    Attributes:
      swapped: whether x and y of the source are exchanged first.
      scale, shift: of x and of y: relative, without unit. A negative scale mirrors.
    """

    swapped: bool = False
    scale: tuple[float, float] = (1.0, 1.0)
    shift: tuple[float, float] = (0.0, 0.0)

    def map_boxes(self, boxes: "npt.ArrayLike") -> "npt.NDArray[np.float64]":
        """Maps boxes of the source to the result.

        Args:
          boxes: n x 4 of xmin, ymin, xmax, ymax, 0 to 1 of the source.

        Returns:
          n x 4 in the same order, minimum below maximum where it was so. Parts below 0
          or above 1 were cropped away.
        """
        import numpy as np  # here: few images have boxes

        corners = np.asarray(boxes, np.float64).reshape(-1, 2, 2)
        if self.swapped:
            corners = corners[:, :, ::-1]
        out = corners * self.scale + self.shift
        for axis, scale in enumerate(self.scale):
            if scale < 0:
                out[:, :, axis] = out[:, ::-1, axis]
        return out.reshape(-1, 4)


AS_STORED = Geometry()


@dataclasses.dataclass(frozen=True, slots=True)
class Resize:
    """A rule for the size of the result.

    `Resize("shorter", 224)` keeps the aspect ratio; `Resize("crop", 224, 224)` cuts to
    the given one.

    Attributes:
      mode: "shorter": the shorter side becomes `height`; "longer": the longer one.
        "exact": both sides as given, which may change the aspect ratio.
        "crop": scaled until it covers height x width, then the center is cut out.
        "pad": scaled until it fits into height x width, with black around it, which is
          transparent if the image has alpha.
      height: pixels, 1 to 65,500.
      width: pixels; 0 for "shorter" and "longer", which do not use it.
      filter: Pillow's filter of that name. All of them weigh every source pixel within
        the scale, so none is skipped. "hamming" is the closest to the mean over the
        area of each pixel (OpenCV's INTER_AREA); "box" is the fastest, and rougher. If
        the image grows, these two become "bilinear".
      enlarge: whether small images grow. If not, no side gets more pixels than it has:
        the result may then be smaller than asked, except for "pad".
    """

    mode: Mode
    height: int
    width: int = 0
    filter: Filter = "hamming"
    enlarge: bool = False

    def __post_init__(self) -> None:
        sides = [self.height]
        if self.mode in ("shorter", "longer"):
            if self.width:
                raise SpecError(f"resize {self.mode!r} takes one size, not a width too")
        else:
            sides.append(self.width)
        if not all(1 <= side <= _MAX_SIDE for side in sides):
            raise SpecError(
                f"resize {self.mode!r} needs sides of 1 to {_MAX_SIDE:,} pixels, "
                f"not {self.height} x {self.width}"
            )

    def lay_out(self, height: int, width: int) -> tuple[_Size, _Size]:
        """Returns the sizes of the scaled picture and of the result, (height, width).

        Args:
          height, width: of the image, after turning.
        """
        scaled = self._scaled(height, width)
        if self.mode == "crop":
            return scaled, (min(self.height, scaled[0]), min(self.width, scaled[1]))
        return scaled, (self.height, self.width) if self.mode == "pad" else scaled

    def asks_more_than(self, height: int, width: int) -> bool:
        """Whether an image of this size is smaller than what was asked for."""
        if self.mode in ("shorter", "longer"):
            side = min if self.mode == "shorter" else max
            return side(height, width) < self.height
        return height < self.height or width < self.width

    def _scaled(self, height: int, width: int) -> _Size:
        """Returns the size that keeps the aspect ratio, unless that is "exact"."""
        if self.mode == "exact":
            if self.enlarge:
                return self.height, self.width
            return min(self.height, height), min(self.width, width)
        # The other side follows the one that needs the larger scale, or the smaller
        # one; scales are compared without dividing.
        target_width = self.width or self.height
        height_leads = self.height * width > target_width * height
        by_height = height_leads == (self.mode in ("crop", "shorter"))
        target, side = (self.height, height) if by_height else (target_width, width)
        if target >= side and not self.enlarge:
            return height, width
        other = width if by_height else height
        scaled = max((other * target * 2 + side) // (side * 2), 1)
        return (target, scaled) if by_height else (scaled, target)


class ImageStep(NamedTuple):
    """How the pixels of one image move: scaled, turned, then cropped or padded.

    Sizes are (height, width).

    Attributes:
      source: size as stored.
      scaled: of the whole picture, scaled and turned.
      size: of the result.
      orientation: of EXIF, which is applied; 1 for none.
      filter: by which it is scaled.
    """

    source: _Size
    scaled: _Size
    size: _Size
    orientation: int
    filter: Filter

    @property
    def offset(self) -> _Size:
        """Pixels that are cut off above and at the left; padding if negative."""
        (height, width), (rows, columns) = self.scaled, self.size
        return (height - rows) // 2, (width - columns) // 2

    @property
    def scaled_as_stored(self) -> _Size:
        """Size after scaling and before turning."""
        return self.scaled[::-1] if turns(self.orientation) else self.scaled

    def geometry(self, orientation: int) -> Geometry:
        """Returns what maps boxes of the source to the result.

        Args:
          orientation: of EXIF, that the boxes lack; 1 where they are of the turned
            source.
        """
        (height, width), (top, left) = self.size, self.offset
        x, y = self.scaled[1] / width, self.scaled[0] / height
        dx, dy = -left / width, -top / height
        if orientation in (2, 3, 6, 7):
            x, dx = -x, x + dx
        if orientation in (3, 4, 7, 8):
            y, dy = -y, y + dy
        return Geometry(turns(orientation), (x, y), (dx, dy))


def step_of(
    source: _Size, *, orientation: int, resize: Resize | None, limit: int
) -> ImageStep | None:
    """Returns the step for one image; None if every pixel stays where it is.

    Args:
      source: height and width as stored.
      orientation: of EXIF, to be applied; 1 for none.
      resize: the resize of the turned image; None for none.
      limit: pixels of the result and of every image on the way.

    Raises:
      FaultError: the result would be too large.
    """
    turned = source[::-1] if turns(orientation) else source
    scaled, size = (turned, turned) if resize is None else resize.lay_out(*turned)
    if scaled == size == turned and orientation == 1:
        return None
    for height, width in (scaled, size):
        check_pixels(height, width, limit, how="resized, ")
    filter: Filter = "hamming" if resize is None else resize.filter
    return ImageStep(source, scaled, size, orientation, filter)
