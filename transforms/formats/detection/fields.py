"""Fields that all box formats share, named as the TF Object Detection API does.

Source: `TfExampleFields` and research/object_detection/dataset_tools/
create_{coco,pascal}_tf_record.py of tensorflow/models.
"""

from collections.abc import Collection

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.boxes import BoxPolicy
from transforms.core.schema import Feature, Kind
from transforms.errors import SpecError
from transforms.formats.table import SourceFile

# The name of these parts of rows in accounts and rejections.
BOXES = "boxes"

_ENCODED = "image/encoded"
_LIST = (None,)
_FEATURES = (
    Feature(_ENCODED, Kind.IMAGE),
    Feature("image/filename", Kind.TEXT),
    Feature("image/source_id", Kind.TEXT),
    Feature("image/height", Kind.INT64, derived="height", derived_from=_ENCODED),
    Feature("image/width", Kind.INT64, derived="width", derived_from=_ENCODED),
    Feature("image/format", Kind.TEXT, derived="format", derived_from=_ENCODED),
    Feature("image/key/sha256", Kind.TEXT, derived="sha256", derived_from=_ENCODED),
    # Boxes were made relative with these: they must be the image's own.
    Feature(
        "image/stated_height",
        Kind.INT64,
        internal=True,
        states="height",
        derived_from=_ENCODED,
    ),
    Feature(
        "image/stated_width",
        Kind.INT64,
        internal=True,
        states="width",
        derived_from=_ENCODED,
    ),
    Feature("image/object/bbox", Kind.BOX),
    Feature("image/object/class/text", Kind.TEXT, shape=_LIST),
    Feature("image/object/class/label", Kind.INT64, shape=_LIST),
    Feature("image/object/is_crowd", Kind.INT64, shape=_LIST),
    Feature("image/object/area", Kind.FLOAT, shape=_LIST),
    Feature("image/object/difficult", Kind.INT64, shape=_LIST),
    Feature("image/object/truncated", Kind.INT64, shape=_LIST),
    Feature("image/object/view", Kind.TEXT, shape=_LIST),
    Feature("image/caption", Kind.TEXT, shape=_LIST),
)


def detection_features(columns: Collection[str]) -> tuple[Feature, ...]:
    """Returns the features of these columns, and those derived from the image."""
    return tuple(f for f in _FEATURES if f.derived or f.name in columns)


def box_policy(text: str) -> BoxPolicy:
    """Returns the policy of a setting; raises SpecError."""
    try:
        return BoxPolicy(text)
    except ValueError as error:
        raise SpecError(
            f"bad_box must be one of {', '.join(BoxPolicy)}; found {text!r}."
        ) from error


def root_of(file: SourceFile) -> str:
    """Returns the root of a file's source."""
    return file.path[: len(file.path) - len(file.origin)]


def list_of(values: pa.Array, counts: npt.ArrayLike) -> pa.ListArray:
    """Returns values as lists of this many each; the counts sum to their number."""
    offsets = np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)
