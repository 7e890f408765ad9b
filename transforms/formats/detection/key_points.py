"""Key points of objects as lists that run parallel to their boxes.

    image/object/keypoint/x, /y         k an object: 0 to 1; 0 where it is not labelled
    image/object/keypoint/visibility    k an object: 0 not labelled, 1 hidden, 2 visible
    image/object/keypoint/num           how many are labelled
    image/object/keypoint/text          k names an object, where points have any

Source: research/object_detection/dataset_tools/create_coco_tf_record.py and
data_decoders/tf_example_decoder.py of tensorflow/models.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.schema import Feature, Kind

_NAME = "image/object/keypoint/"
POINT_FEATURES = (
    Feature(f"{_NAME}x", Kind.FLOAT, shape=(None,)),
    Feature(f"{_NAME}y", Kind.FLOAT, shape=(None,)),
    Feature(f"{_NAME}visibility", Kind.INT64, shape=(None,)),
    Feature(f"{_NAME}num", Kind.INT64, shape=(None,)),
    Feature(f"{_NAME}text", Kind.TEXT, shape=(None,)),
)
HIDDEN, VISIBLE = 1, 2


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class KeyPoints:
    """The key points of m objects, k each.

    Attributes:
      points: float64 array (m, k, 3): x and y in the unit of the boxes, visibility.
      names: by position, the names of an object's points; k or fewer each.
    """

    points: npt.NDArray[np.float64]
    names: Sequence[Sequence[str]] = ()

    @classmethod
    def of(
        cls,
        objects: Sequence[Sequence[float] | None],
        k: int,
        names: Sequence[Sequence[str]] = (),
    ) -> "KeyPoints":
        """Returns the points of objects; what lacks to k of them is not labelled.

        Args:
          objects: x, y, visibility, x, y ... of each; None for none.
          k: the most that an object has.
          names: see the attribute.
        """
        points = np.zeros((len(objects), k * 3))
        for row, numbers in zip(points, objects, strict=True):
            if numbers is not None:
                row[: len(numbers)] = numbers
        return cls(points.reshape(-1, k, 3), names)

    def _inside(
        self, sizes: npt.NDArray[np.float64], tolerance: float
    ) -> npt.NDArray[np.bool_]:
        place = self.points[:, :, :2]
        inside = (place >= -tolerance) & (place <= sizes[:, None, :] + tolerance)
        return np.asarray(inside.all(axis=2))

    def faults(
        self, sizes: npt.NDArray[np.float64], tolerance: float, *, clip: bool
    ) -> Mapping[int, str]:
        """Returns what is wrong with points, by the position of their object.

        Args:
          sizes: (m, 2), width and height of each object's image.
          tolerance: by how much points may be outside.
          clip: whether points outside are no fault.
        """
        seen = self.points[:, :, 2]
        outside = (seen > 0) & ~self._inside(sizes, tolerance) & (not clip)
        odd = ~np.isin(seen, (0, HIDDEN, VISIBLE))
        faults = {}
        for index in np.flatnonzero((odd | outside).any(axis=1)).tolist():
            number = int(np.flatnonzero((odd | outside)[index])[0])
            x, y, visibility = self.points[index, number].tolist()
            rule = "the visibility of key points must be 0, 1 or 2"
            if not odd[index, number]:
                rule = "labelled key points must be inside of the image"
            faults[index] = (
                f"{rule}; point {number + 1} is {x:.10g}, {y:.10g}, {visibility:.10g}"
            )
        return faults

    def lists(
        self,
        sizes: npt.NDArray[np.float64],
        tolerance: float,
        keep: npt.NDArray[np.bool_],
    ) -> dict[str, tuple[pa.Array, int]]:
        """Returns the values of objects that are kept, by feature, and how many each.

        Points outside of the image are not labelled.

        Args:
          sizes, tolerance: see `faults`.
          keep: m bools.
        """
        points, k = self.points[keep], self.points.shape[1]
        labelled = (points[:, :, 2] > 0) & self._inside(sizes, tolerance)[keep]
        with np.errstate(invalid="ignore"):
            relative = np.clip(points[:, :, :2] / sizes[keep][:, None, :], 0, 1)
        relative = np.where(labelled[:, :, None], relative, 0).astype(np.float32)
        seen = np.where(labelled, points[:, :, 2], 0).astype(np.int64)
        columns = {
            f"{_NAME}x": (pa.array(relative[:, :, 0].ravel()), k),
            f"{_NAME}y": (pa.array(relative[:, :, 1].ravel()), k),
            f"{_NAME}visibility": (pa.array(seen.ravel()), k),
            f"{_NAME}num": (pa.array(labelled.sum(axis=1)), 1),
        }
        if self.names:
            texts = [
                [*self.names[index], *[""] * (k - len(self.names[index]))]
                for index in np.flatnonzero(keep).tolist()
            ]
            flat = [text for each in texts for text in each]
            columns[f"{_NAME}text"] = (pa.array(flat, pa.string()), k)
        return columns
