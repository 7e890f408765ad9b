"""Facts about the values of one feature, merged over chunks, shards and splits.

Only counts, minima and maxima: they merge to the same result in any order, so the
manifest does not depend on the runner. Sums of floats would.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from transforms.core.schema import Feature, Kind

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["MAX_CLASSES", "Statistics", "merge_all", "summarize", "summarize_feature"]

# An integer label of more values than this is a number, not a class.
MAX_CLASSES = 10_000

Number = int | float


@dataclasses.dataclass(frozen=True, slots=True)
class Statistics:
    """Facts about the values of one feature in one split.

    Attributes:
      present: records that hold the feature.
      minimum, maximum: of the values; for bytes and text of their lengths in bytes.
        None without a value (or with NaN only).
      classes: for class labels and integer labels, records by value (of lists, how
        often each value occurs); None where there are more than `MAX_CLASSES` values.
      fewest, most: of lists, the number of items in a record that has the feature: rows
        of a ragged feature, boxes of a box feature, else values. None for no lists.
    """

    present: int = 0
    minimum: Number | None = None
    maximum: Number | None = None
    classes: Mapping[int, int] | None = dataclasses.field(default_factory=dict)
    fewest: int | None = None
    most: int | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        # A third of the time of what dataclasses do: a table may have 10,000 columns.
        facts = (self.present, self.minimum, self.maximum, self.classes)
        return type(self), (*facts, self.fewest, self.most)

    def merge(self, other: Self) -> "Statistics":
        """Returns the facts of both."""
        return Statistics(
            present=self.present + other.present,
            minimum=_least(self.minimum, other.minimum),
            maximum=_most(self.maximum, other.maximum),
            classes=_merged(self.classes, other.classes),
            fewest=_least(self.fewest, other.fewest),
            most=_most(self.most, other.most),
        )

    def to_json(self) -> dict[str, Any]:
        """Returns plain JSON: infinities as text, class ids left to the caller."""
        out: dict[str, Any] = {"present": self.present}
        if self.minimum is not None and self.maximum is not None:
            out["min"] = _plain(self.minimum)
            out["max"] = _plain(self.maximum)
        if self.fewest is not None and self.most is not None:
            out["fewest"], out["most"] = self.fewest, self.most
        return out


def _least(mine: Any, others: Any) -> Any:
    """Returns the smaller of two numbers, either of which may be None."""
    if mine is None or others is None:
        return others if mine is None else mine
    return others if others < mine else mine


def _most(mine: Any, others: Any) -> Any:
    """Returns the larger of two numbers, either of which may be None."""
    if mine is None or others is None:
        return others if mine is None else mine
    return others if others > mine else mine


def _merged(
    mine: Mapping[int, int] | None, others: Mapping[int, int] | None
) -> Mapping[int, int] | None:
    if mine is None or others is None:
        return None
    if not others:
        return mine
    classes = dict(mine)
    for key, count in others.items():
        classes[key] = classes.get(key, 0) + count
    # A merge never has fewer values, so the limit is exceeded in any order or in none.
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
    """Returns the facts of one column of records' values; nulls are absent.

    The range of lists, also of nested ones, is that of all their values.
    """
    # Imported here, because reading a manifest does not need Arrow.
    import pyarrow as pa
    import pyarrow.compute as pc

    from transforms.core.arrays import is_list

    present = len(column) - column.null_count
    if present == 0:
        return Statistics()
    if not is_list(column.type):
        return _of_values(column, present, count_classes)
    lengths = pc.min_max(pc.list_value_length(column))
    values = column
    while is_list(values.type):
        values = pc.list_flatten(values)
    inner = Statistics()
    if len(values) > values.null_count and not pa.types.is_null(values.type):
        inner = _of_values(values, present, count_classes)
    return dataclasses.replace(
        inner,
        present=present,
        fewest=lengths["min"].as_py(),
        most=lengths["max"].as_py(),
    )


def summarize_feature(
    feature: Feature, columns: "Mapping[str, pa.Array]"
) -> Statistics:
    """Returns the facts of a feature from the columns that records hold of it.

    Args:
      feature: whose `record_keys` are looked at; its classes are counted if it is a
        class label, or what is to be predicted.
      columns: record key -> n values, as the Example encoder is given them.
    """
    counted = feature.is_label or feature.kind is Kind.LABEL
    parts = [
        summarize(columns[key], count_classes=counted) for key in feature.record_keys
    ]
    if feature.is_ragged:
        values, lengths = parts
        return dataclasses.replace(values, fewest=lengths.fewest, most=lengths.most)
    # Every key of a box is present in the same records.
    merged = functools.reduce(Statistics.merge, parts)
    return dataclasses.replace(merged, present=parts[0].present)


def _of_values(column: "pa.Array", present: int, count_classes: bool) -> Statistics:
    """Returns the facts of single values, of which there is at least one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        column = pc.binary_length(column)
    bounds = pc.min_max(column)
    classes: Mapping[int, int] | None = {}
    if count_classes and pa.types.is_integer(column.type):
        ids, counts = np.unique(
            column.drop_null().to_numpy(zero_copy_only=False), return_counts=True
        )
        classes = _merged({}, dict(zip(ids.tolist(), counts.tolist(), strict=True)))
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    if isinstance(low, float):
        if math.isnan(low):
            low = high = None
        else:
            # -0.0 and 0.0 are equal, so the order of a merge would decide between them.
            low, high = low + 0.0, high + 0.0
    return Statistics(present, low, high, classes)


def _plain(value: Number) -> Number | str:
    if isinstance(value, int):
        return value
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    # The shortest text that reads back as the same float32.
    return float(str(np.float32(value)))
