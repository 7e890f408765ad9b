"""Facts about the values of one feature, merged over chunks, shards and splits.

Only counts, minima and maxima: they merge to the same result in any order, so the
manifest does not depend on the runner. Sums of floats would.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from transforms.core.schema import Feature, Kind

if TYPE_CHECKING:
    import pyarrow as pa

# Columns of fewer rows cost more by their number than by their values: all columns of
# floats are then looked at together.
_FEW_ROWS = 8_192
# An integer label of more values than this is a number, not a class.
MAX_CLASSES = 10_000

Number = int | float
Bounds = npt.NDArray[np.int64]


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


class Summaries:
    """Facts about the values of each feature that columns were given of.

    >>> import pyarrow as pa
    >>> summaries = Summaries((Feature("x", Kind.FLOAT),))
    >>> summaries.add({"x": pa.array([2, None, 3], pa.float32())})
    >>> summaries.add({"x": pa.array([1], pa.float32())})
    >>> found = summaries.facts["x"]
    >>> found.present, found.minimum, found.maximum
    (3, 1.0, 3.0)
    """

    def __init__(self, features: Sequence[Feature]) -> None:
        self._features = features
        self._known: dict[str, Statistics] = {}

    def add(self, columns: "Mapping[str, pa.Array]") -> None:
        """Adds a chunk: record key -> n values, as the Example encoder is given them.

        Features without a column here are left out.
        """
        together = _of_short_floats(self._features, columns)
        for feature in self._features:
            if feature.name in together:
                self.add_facts(feature.name, together[feature.name])
            elif feature.record_keys[0] in columns:
                self.add_facts(feature.name, summarize_feature(feature, columns))

    def add_facts(self, name: str, facts: Statistics) -> None:
        """Adds facts about some values of a feature."""
        known = self._known.get(name)
        self._known[name] = facts if known is None else known.merge(facts)

    @property
    def facts(self) -> dict[str, Statistics]:
        """The facts by the feature's name, in the order of the schema."""
        names = [each.name for each in self._features if each.name in self._known]
        return {name: self._known[name] for name in names}


def _of_short_floats(
    features: Sequence[Feature], columns: "Mapping[str, pa.Array]"
) -> dict[str, Statistics]:
    """Returns the facts of all columns of floats, where they are short."""
    import pyarrow as pa

    floats = {
        each.name: columns[each.name]
        for each in features
        if each.kind is Kind.FLOAT and not each.is_list and each.name in columns
    }
    batch = pa.record_batch(floats)
    if not 0 < batch.num_rows < _FEW_ROWS:
        return {}
    cells = batch.to_tensor(null_to_nan=True, row_major=False).to_numpy()
    # NaN is no number: it loses against any.
    ends = (np.fmin.reduce(cells, axis=0), np.fmax.reduce(cells, axis=0))
    lows, highs = (_number(each.tolist()) for each in ends)
    present = [len(column) - column.null_count for column in floats.values()]
    return dict(zip(floats, map(Statistics, present, lows, highs), strict=True))


def summarize(column: "pa.Array", *, count_classes: bool = False) -> Statistics:
    """Returns the facts of one column of records' values; nulls are absent.

    The range of lists, also of nested ones, is that of all their values.
    """
    bounds = np.array([0, len(column)])
    return summarize_parts(column, bounds, count_classes=count_classes)[0]


def summarize_parts(
    column: "pa.Array", bounds: Bounds, *, count_classes: bool = False
) -> list[Statistics]:
    """Returns the facts of k parts of a column, each as `summarize` gives them.

    Args:
      column: n values.
      bounds: k + 1 ascending positions from 0 to n: where each part starts, and n.
      count_classes: whether integers are counted by value.
    """
    # Imported here, because reading a manifest does not need Arrow.
    import pyarrow as pa
    import pyarrow.compute as pc

    from transforms.core.arrays import is_list

    lists = None
    while is_list(column.type):
        lengths = pc.list_value_length(column)
        if lists is None:
            lists = _extremes(lengths, bounds)
        ends = np.cumsum(pc.fill_null(lengths, 0).to_numpy(), dtype=np.int64)
        bounds = np.concatenate(([0], ends))[bounds]
        column = pc.list_flatten(column)
    kind = column.type
    if pa.types.is_boolean(kind) or pa.types.is_null(kind):
        column = column.cast(pa.int64())
    elif pa.types.is_dictionary(kind):
        column = pc.binary_length(column.dictionary).take(column.indices)
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        column = pc.binary_length(column)
    present, lowest, highest = _extremes(column, bounds)
    classes: list[dict[int, int] | None] = [{} for _ in present]
    if count_classes and pa.types.is_integer(column.type):
        classes = _counts(column, bounds)
    fewest: list[Number | None] = [None] * len(present)
    most = fewest
    if lists is not None:
        present, fewest, most = lists
    facts = zip(present, lowest, highest, classes, fewest, most, strict=True)
    return [Statistics(*each) if each[0] else Statistics() for each in facts]


def summarize_feature(
    feature: Feature, columns: "Mapping[str, pa.Array]"
) -> Statistics:
    """Returns the facts of a feature from the columns that records hold of it.

    Args:
      feature: whose `record_keys` are looked at; its classes are counted if it is a
        class label, or what is to be predicted.
      columns: record key -> n values, as the Example encoder is given them.
    """
    bounds = np.array([0, len(columns[feature.record_keys[0]])])
    return summarize_feature_parts(feature, columns, bounds)[0]


def summarize_feature_parts(
    feature: Feature, columns: "Mapping[str, pa.Array]", bounds: Bounds
) -> list[Statistics]:
    """Returns the facts of a feature in k parts; see `summarize_parts`.

    Args:
      feature, columns: see `summarize_feature`.
      bounds: of the parts.
    """
    counted = feature.is_label or feature.kind is Kind.LABEL
    keys = [
        summarize_parts(columns[key], bounds, count_classes=counted)
        for key in feature.record_keys
    ]
    if feature.is_ragged:
        return [
            dataclasses.replace(values, fewest=lengths.fewest, most=lengths.most)
            for values, lengths in zip(*keys, strict=True)
        ]
    if len(keys) == 1:
        return keys[0]
    # Every key of a box is present in the same records.
    return [
        dataclasses.replace(
            functools.reduce(Statistics.merge, parts), present=parts[0].present
        )
        for parts in zip(*keys, strict=True)
    ]


def _extremes(
    column: "pa.Array", bounds: Bounds
) -> tuple[list[int], list[Any], list[Any]]:
    """Returns of each part how many numbers it has, the smallest and the largest.

    They are None for a part without numbers, or with NaN only.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    lows: list[Any]
    highs: list[Any]
    if len(bounds) == 2:
        present = [len(column) - column.null_count]
        found = pc.min_max(column)
        lows, highs = [found["min"].as_py()], [found["max"].as_py()]
    else:
        if column.null_count:
            valid = column.is_valid().to_numpy(zero_copy_only=False)
            bounds = np.concatenate(([0], np.cumsum(valid)))[bounds]
            column = column.drop_null()
        values = column.to_numpy()
        present = np.diff(bounds).tolist()
        lows = [None] * len(present)
        highs = [*lows]
        filled = np.flatnonzero(present)
        if len(filled):
            # These two pass NaN over.
            least = np.fmin.reduceat(values, bounds[filled]).tolist()
            largest = np.fmax.reduceat(values, bounds[filled]).tolist()
            for part, low, high in zip(filled, least, largest, strict=True):
                lows[part], highs[part] = low, high
    if pa.types.is_floating(column.type):
        lows, highs = _number(lows), _number(highs)
    return present, lows, highs


def _number(floats: list[float | None]) -> list[float | None]:
    """Returns None for NaN, and 0.0 for -0.0.

    They are equal, so the order of a merge would decide between them.
    """
    return [None if x is None or math.isnan(x) else x + 0.0 for x in floats]


def _counts(column: "pa.Array", bounds: Bounds) -> list[dict[int, int] | None]:
    """Returns how often each number occurs in each part, in ascending order."""
    import pyarrow.compute as pc

    out: list[dict[int, int] | None] = []
    for start, stop in itertools.pairwise(bounds.tolist()):
        found = pc.value_counts(column.slice(start, stop - start).drop_null())
        if len(found) > MAX_CLASSES:
            out.append(None)
        else:
            numbers, counts = (each.to_pylist() for each in found.flatten())
            out.append(dict(sorted(zip(numbers, counts, strict=True))))
    return out


def _plain(value: Number) -> Number | str:
    if isinstance(value, int):
        return value
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    # The shortest text that reads back as the same float32.
    return float(str(np.float32(value)))
