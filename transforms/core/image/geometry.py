"""Map points of the source image to the transformed image.

All coordinates are relative: 0 is the left or top edge, 1 the right or bottom one, as
in the box features of detection datasets. Turning, mirroring, scaling, cropping and
padding combine to one scale and one shift an axis, and an exchange of axes or not.
"""

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@dataclasses.dataclass(frozen=True, slots=True)
class Geometry:
    """x of the result = x of the source * x_scale + x_shift, and so for y.

    Attributes:
      swapped: whether x and y of the source are exchanged first.
      x_scale, x_shift, y_scale, y_shift: relative, without unit. A negative scale
        mirrors.
    """

    swapped: bool = False
    x_scale: float = 1.0
    x_shift: float = 0.0
    y_scale: float = 1.0
    y_shift: float = 0.0

    def then(self, *, x: tuple[float, float], y: tuple[float, float]) -> "Geometry":
        """Returns this geometry followed by a (scale, shift) of each axis."""
        return Geometry(
            self.swapped,
            self.x_scale * x[0],
            self.x_shift * x[0] + x[1],
            self.y_scale * y[0],
            self.y_shift * y[0] + y[1],
        )

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
        out = corners * (self.x_scale, self.y_scale) + (self.x_shift, self.y_shift)
        for axis, scale in enumerate((self.x_scale, self.y_scale)):
            if scale < 0:
                out[:, :, axis] = out[:, ::-1, axis]
        return out.reshape(-1, 4)


AS_STORED = Geometry()

# EXIF orientation -> (exchange x and y, then mirror x, mirror y).
_ORIENTED = {
    1: (False, False, False),
    2: (False, True, False),
    3: (False, True, True),
    4: (False, False, True),
    5: (True, False, False),
    6: (True, True, False),
    7: (True, True, True),
    8: (True, False, True),
}


def oriented(orientation: int) -> Geometry:
    """Returns the geometry of applying an EXIF orientation, 1 to 8."""
    swapped, mirror_x, mirror_y = _ORIENTED[orientation]
    x = (-1.0, 1.0) if mirror_x else (1.0, 0.0)
    y = (-1.0, 1.0) if mirror_y else (1.0, 0.0)
    return Geometry(swapped).then(x=x, y=y)
