"""Facts about the values of one feature, merged over chunks, shards and splits.

Only counts, minima and maxima: their merge does not depend on its order, so the
manifest is the same whatever the runner did. Sums of floats would not be.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["MAX_CLASSES", "Statistics", "merge_all", "summarize"]

# An integer label of more values than this is a number, not a class.
MAX_CLASSES = 10_000

Number = int | float


@dataclasses.dataclass(frozen=True, slots=True)
class Statistics:
    """Attributes:
    present: records that hold the feature.
    minimum, maximum: of the values; for bytes and text of their lengths in bytes.
      None when there is no value (or only NaN).
    classes: for class labels and integer labels, records by value; None where there
      are more than `MAX_CLASSES` values.
    """

    present: int = 0
    minimum: Number | None = None
    maximum: Number | None = None
    classes: Mapping[int, int] | None = dataclasses.field(default_factory=dict)

    def merge(self, other: Self) -> "Statistics":
        """Returns the facts of both."""
        classes = _merged(self.classes, other.classes)
        lows = [x for x in (self.minimum, other.minimum) if x is not None]
        highs = [x for x in (self.maximum, other.maximum) if x is not None]
        return Statistics(
            present=self.present + other.present,
            minimum=min(lows, default=None),
            maximum=max(highs, default=None),
            classes=classes,
        )

    def to_json(self) -> dict[str, Any]:
        """Returns plain JSON: infinities as text, class ids left to the caller."""
        out: dict[str, Any] = {"present": self.present}
        if self.minimum is not None and self.maximum is not None:
            out["min"] = _plain(self.minimum)
            out["max"] = _plain(self.maximum)
        return out


def _merged(
    mine: Mapping[int, int] | None, others: Mapping[int, int] | None
) -> dict[int, int] | None:
    if mine is None or others is None:
        return None
    classes = dict(mine)
    for key, count in others.items():
        classes[key] = classes.get(key, 0) + count
    # More values never become fewer: whether they are too many has no order either.
    return dict(sorted(classes.items())) if len(classes) <= MAX_CLASSES else None


def merge_all(
    parts: Sequence[Mapping[str, Statistics]],
) -> dict[str, Statistics]:
    """Returns the merged facts by feature name."""
    out: dict[str, Statistics] = {}
    for part in parts:
        for name, statistics in part.items():
            out[name] = out[name].merge(statistics) if name in out else statistics
    return out


def summarize(column: "pa.Array", *, count_classes: bool = False) -> Statistics:
    """Returns the facts of one column of records' values; nulls are absent."""
    # Here, because reading a manifest does without Arrow.
    import pyarrow as pa
    import pyarrow.compute as pc

    present = len(column) - column.null_count
    if present == 0:
        return Statistics()
    kind = column.type
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        column = pc.binary_length(column)
    bounds = pc.min_max(column)
    classes: dict[int, int] | None = {}
    if count_classes and pa.types.is_integer(column.type):
        ids, counts = np.unique(
            column.drop_null().to_numpy(zero_copy_only=False), return_counts=True
        )
        classes = _merged(dict(zip(ids.tolist(), counts.tolist(), strict=True)), {})
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    if isinstance(low, float):
        if math.isnan(low):
            low = high = None
        else:
            # -0.0 and 0.0 are equal: which of them is kept would be left to chance.
            low, high = low + 0.0, high + 0.0
    return Statistics(present, low, high, classes)


def _plain(value: Number) -> Number | str:
    if isinstance(value, int):
        return value
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    # The shortest text that reads back as the same float32.
    return float(str(np.float32(value)))
