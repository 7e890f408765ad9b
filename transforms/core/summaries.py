"""Facts about the values of all features of records, gathered chunk by chunk."""

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.arrays import FEW_ROWS
from transforms.core.schema import Kind, Schema
from transforms.core.statistics import (
    Statistics,
    StatisticsTable,
    summarize_feature,
)


class Summaries:
    """Facts about the values of each feature that columns were given of.

    >>> from transforms.core.schema import Feature
    >>> summaries = Summaries(Schema((Feature("x", Kind.FLOAT),)))
    >>> summaries.add({"x": pa.array([2, None, 3], pa.float32())})
    >>> summaries.add({"x": pa.array([1], pa.float32())})
    >>> found = summaries.facts["x"]
    >>> found.present, found.minimum, found.maximum
    (3, 1.0, 3.0)
    """

    def __init__(self, schema: Schema) -> None:
        self._features = schema.stored
        self._floats = [
            feature.name
            for feature in schema.stored
            if feature.kind is Kind.FLOAT and not feature.is_list
        ]
        self._known: dict[str, Statistics] = {}
        # Of floats in short chunks: whether there were some, how many rows had a value,
        # and the values' range.
        self._present = np.zeros(len(self._floats), np.int64)
        self._low = np.full(len(self._floats), np.nan, np.float32)
        self._high = self._low.copy()
        self._has_short = np.zeros(len(self._floats), np.bool_)

    def add(self, columns: Mapping[str, pa.Array]) -> None:
        """Adds a chunk: record key -> n values, as the Example encoder is given them.

        Features without a column here are left out.
        """
        together: frozenset[str] = frozenset()
        floats = [columns[name] for name in self._floats if name in columns]
        if floats and len(floats) == len(self._floats) and len(floats[0]) < FEW_ROWS:
            together = frozenset(self._floats)
            self._add_short(floats)
        for feature in self._features:
            if feature.name in together:
                continue
            if feature.record_keys[0] in columns:
                self.add_facts(feature.name, summarize_feature(feature, columns))

    def add_facts(self, name: str, facts: Statistics) -> None:
        """Adds facts about some values of a feature."""
        known = self._known.get(name)
        self._known[name] = facts if known is None else known.merge(facts)

    @property
    def facts(self) -> StatisticsTable:
        """The facts by the feature's name, in the order of the schema."""
        rows = {name: facts.row() for name, facts in self._known.items()}
        present, ends = self._present.tolist(), (self._low, self._high)
        ranges = zip(present, *map(_numbers, ends), strict=True)
        has_short = self._has_short.tolist()
        for name, is_short, found in zip(self._floats, has_short, ranges, strict=True):
            if is_short and name in rows:
                rows[name] = self._known[name].merge(Statistics(*found)).row()
            elif is_short:
                rows[name] = (*found, {}, None, None)
        names = [each.name for each in self._features if each.name in rows]
        return StatisticsTable.of_rows(names, [rows[name] for name in names])

    def _add_short(self, columns: list[pa.Array]) -> None:
        """Adds the columns of all floats."""
        batch = pa.RecordBatch.from_arrays(columns, self._floats)
        try:
            values = batch.to_tensor(row_major=False)
            present = np.array(batch.num_rows)
        except pa.ArrowTypeError:
            # Some values are missing.
            values = batch.to_tensor(null_to_nan=True, row_major=False)
            present = np.array([len(column) - column.null_count for column in columns])
        self._has_short[:] = True
        if not batch.num_rows:
            return
        self._present += present
        cells = values.to_numpy()
        # NaN is no number: it loses against any.
        low, high = np.fmin.reduce(cells, axis=0), np.fmax.reduce(cells, axis=0)
        self._low = np.fmin(self._low, low)
        self._high = np.fmax(self._high, high)


def _numbers(values: npt.NDArray[np.float32]) -> list[float | None]:
    """Returns float32 as numbers, NaN as None, and -0.0 as 0.0.

    The zeros are equal, so the order of chunks would decide between them.
    """
    return [None if math.isnan(x) else x + 0.0 for x in values.tolist()]
