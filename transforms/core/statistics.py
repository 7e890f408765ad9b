"""Facts about the values of one feature, merged over chunks, shards and splits.

Only counts, minima and maxima: they merge to the same result in any order, so the
manifest does not depend on the runner. Sums of floats would.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np

from transforms.core.schema import Feature, Kind

if TYPE_CHECKING:
    import pyarrow as pa

# An integer label of more values than this is a number, not a class.
MAX_CLASSES = 10_000

Number = int | float
# The least and the largest of some numbers; None, None of no numbers.
Extent: TypeAlias = tuple[Any, Any]


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

    def merge(self, other: Self) -> "Statistics":
        """Returns the facts of both."""
        ours, theirs = (self.minimum, self.maximum), (other.minimum, other.maximum)
        lengths = wider((self.fewest, self.most), (other.fewest, other.most))
        return Statistics(
            self.present + other.present,
            *wider(ours, theirs),
            _merged_classes(self.classes, other.classes),
            *lengths,
        )

    def to_json(self) -> dict[str, Any]:
        """Returns plain JSON: infinities as text, class ids left to the caller."""
        out: dict[str, Any] = {"present": self.present}
        if self.minimum is not None and self.maximum is not None:
            out["min"] = _json_number(self.minimum)
            out["max"] = _json_number(self.maximum)
        if self.fewest is not None and self.most is not None:
            out["fewest"], out["most"] = self.fewest, self.most
        return out

    @classmethod
    def pop_json(cls, data: dict[str, Any]) -> Self:
        """Inverse of `to_json`, whose keys go; infinities come back as floats."""
        extremes = (data.pop("min", None), data.pop("max", None))
        low, high = (float(n) if isinstance(n, str) else n for n in extremes)
        lengths = {"fewest": data.pop("fewest", None), "most": data.pop("most", None)}
        return cls(data.pop("present"), low, high, **lengths)


def wider(a: Extent, b: Extent) -> Extent:
    """Returns the least and the largest number of both."""
    if a[0] is None or b[0] is None:
        return b if a[0] is None else a
    return min(a[0], b[0]), max(a[1], b[1])


def _merged_classes(
    mine: Mapping[int, int] | None, others: Mapping[int, int] | None
) -> Mapping[int, int] | None:
    """Returns records by class id of both; None where not counted, or too many."""
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
    """Returns the statistics of each feature, merged over the parts."""
    out: dict[str, Statistics] = {}
    for facts in parts:
        for name, statistics in facts.items():
            out[name] = out[name].merge(statistics) if name in out else statistics
    return out


def counts_by_class(
    merged: Mapping[str, Statistics],
    features: Sequence[Feature],
    classes: Mapping[str, Sequence[str]],
) -> dict[str, dict[str, int]]:
    """Returns label feature -> class name (or integer, as text) -> records."""
    out = {}
    for feature in features:
        counts = merged.get(feature.name, Statistics()).classes
        if counts is None:
            continue
        if feature.kind is Kind.LABEL:
            names = classes.get(feature.name, ())
            out[feature.name] = {name: counts.get(i, 0) for i, name in enumerate(names)}
        elif counts:
            out[feature.name] = {str(value): n for value, n in counts.items()}
    return out


def summarize_columns(
    features: Sequence[Feature], columns: "Mapping[str, pa.Array]"
) -> dict[str, Statistics]:
    """Returns the facts of each feature that has columns, by the feature's name.

    Args:
      features: of the records.
      columns: record key -> n values, as the Example encoder is given them.
    """
    return {
        feature.name: summarize_feature(feature, columns)
        for feature in features
        if feature.record_keys[0] in columns
    }


def summarize(column: "pa.Array", *, count_classes: bool = False) -> Statistics:
    """Returns the facts of one column of records' values; nulls are absent.

    The range of lists, also of nested ones, is that of all their values.

    Args:
      column: n values.
      count_classes: whether integers are counted by value.
    """
    # Imported here, because reading a manifest does not need Arrow.
    import pyarrow as pa
    import pyarrow.compute as pc

    from transforms.core.arrays import is_list

    present = len(column) - column.null_count
    if not present:
        return Statistics()
    fewest = most = None
    if is_list(column.type):
        fewest, most = _extent_of_integers(pc.list_value_length(column))
    while is_list(column.type):
        column = pc.list_flatten(column)
    kind = column.type
    if pa.types.is_floating(kind):
        return Statistics(present, *_extent_of_floats(column), {}, fewest, most)
    if pa.types.is_boolean(kind) or pa.types.is_null(kind):
        column = column.cast(pa.int64())
    elif pa.types.is_dictionary(kind):
        column = pc.binary_length(column.dictionary).take(column.indices)
    elif not pa.types.is_integer(kind):
        column = pc.binary_length(column)
    classes: dict[int, int] | None = {}
    if count_classes and pa.types.is_integer(column.type):
        value_counts = pc.value_counts(column.drop_null())
        classes = None
        if len(value_counts) <= MAX_CLASSES:
            numbers, counts = (array.to_pylist() for array in value_counts.flatten())
            classes = dict(sorted(zip(numbers, counts, strict=True)))
    return Statistics(present, *_extent_of_integers(column), classes, fewest, most)


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
    keys = feature.record_keys
    first = summarize(columns[keys[0]], count_classes=counted)
    if len(keys) == 1:
        return first
    others = [summarize(columns[key], count_classes=counted) for key in keys[1:]]
    if feature.is_ragged:
        (lengths,) = others
        return dataclasses.replace(first, fewest=lengths.fewest, most=lengths.most)
    # Every key of a box is present in the same records.
    merged = functools.reduce(Statistics.merge, others, first)
    return dataclasses.replace(merged, present=first.present)


def _extent_of_integers(integers: "pa.Array") -> Extent:
    """Returns the least and the largest integer; both None of nulls alone."""
    import pyarrow.compute as pc

    extremes = pc.min_max(integers)
    return extremes["min"].as_py(), extremes["max"].as_py()


def _extent_of_floats(floats: "pa.Array") -> Extent:
    """Returns the smallest and the largest number; None of no number but NaN."""
    values = (floats.drop_null() if floats.null_count else floats).to_numpy()
    if not len(values):
        return None, None
    # NumPy takes a tenth of Arrow's time, and these two pass NaN over. Adding 0 makes
    # 0.0 of -0.0: they are equal, so the order of a merge would decide between them.
    low, high = float(np.fmin.reduce(values)), float(np.fmax.reduce(values))
    return (None, None) if math.isnan(low) else (low + 0.0, high + 0.0)


def _json_number(value: Number) -> Number | str:
    """Returns a number for JSON: a float32 in its shortest digits, infinity as text."""
    if isinstance(value, int):
        return value
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    # The shortest text that reads back as the same float32.
    return float(str(np.float32(value)))
