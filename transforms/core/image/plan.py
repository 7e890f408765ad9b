"""The size of an image after rotation and resizing."""

import dataclasses

from transforms.core.image.exif import turns
from transforms.core.image.resize import AS_STORED, Geometry, Layout, Resize, oriented
from transforms.core.reasons import Fault, Reason


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """How the pixels move: turned by `orientation`, then placed by `layout`.

    Attributes:
      orientation, layout: those two.
      geometry: maps boxes of the source, as stored, to the result.
      upright: maps boxes of the turned source to the result.
    """

    orientation: int
    layout: Layout | None
    geometry: Geometry
    upright: Geometry = AS_STORED

    def scaled_as_stored(self) -> tuple[int, int] | None:
        """Returns height and width after scaling and before turning."""
        if self.layout is None:
            return None
        size = self.layout.scaled_height, self.layout.scaled_width
        return size[::-1] if turns(self.orientation) else size


def make_plan(
    stored: tuple[int, int],
    *,
    orientation: int,
    resize: Resize | None,
    max_pixels: int,
) -> Plan | Fault | None:
    """Plans one image.

    Args:
      stored: height and width of the source.
      orientation: of EXIF, to be applied; 1 for none.
      resize: the resize of the turned image; None for none.
      max_pixels: limit of the result and of every image on the way.

    Returns:
      the plan; None if every pixel stays where it is; the fault of a result that would
      be too large.
    """
    height, width = reversed(stored) if turns(orientation) else stored
    layout = None if resize is None else resize.lay_out(height, width)
    if layout == Layout(height, width, height, width):
        layout = None
    geometry = oriented(orientation)
    if layout is None:
        return Plan(orientation, None, geometry) if orientation > 1 else None
    for rows, columns in (
        (layout.scaled_height, layout.scaled_width),
        (layout.height, layout.width),
    ):
        if rows * columns > max_pixels:
            return Fault(
                Reason.TOO_MANY_PIXELS,
                f"resized to {columns} x {rows} it has more than {max_pixels:,} pixels",
            )
    return Plan(orientation, layout, layout.after(geometry), layout.after(AS_STORED))
