"""What all views of a split share: its files, and columns of its rows in Arrow.

Columns are decoded one by one:

| feature   | column                                                              |
| --------- | ------------------------------------------------------------------- |
| label     | int64 class ids; with names: dictionary<int32, string>, one for all |
|           | batches, in the order of the ids                                    |
| timestamp | timestamp in its unit and UTC                                       |
| others    | as `transforms.formats.tfrecord_files.typed_rows` says              |
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.schema import Feature
from transforms.core.tfrecord.reader import PayloadBatch
from transforms.errors import ExampleError
from transforms.reading.catalogue import CatalogueRows
from transforms.reading.records import Records
from transforms.reading.rows import Looks, by_id, class_names


@dataclasses.dataclass(slots=True, eq=False)
class Split:
    """What all views of a split share.

    Attributes:
      records: of the split.
      features: of the dataset, by name.
      looks: how values are given.
      again: how another process opens the same split: a function and its arguments.
      path: of the dataset, for people.
      name: of the split; empty where there are none.
      catalogue: of the split; None for none.
    """

    records: Records
    features: Mapping[str, Feature]
    looks: Looks
    again: tuple[Callable[..., "Split"], tuple[Any, ...]]
    path: str
    name: str
    catalogue: CatalogueRows | None = None

    def __reduce__(self) -> tuple[Callable[..., "Split"], tuple[Any, ...]]:
        return self.again


class Columns:
    """Decodes records to record batches of one schema.

    Args:
      features: with the class names of labels as vocabularies.
      named: whether labels are class names.
    """

    def __init__(self, features: Sequence[Feature], *, named: bool) -> None:
        self._rows = by_id(features)
        single = [feature for feature in features if named and not feature.shape]
        self._names = class_names(single)
        fields = [
            pa.field(field.name, pa.dictionary(pa.int32(), pa.string()))
            if field.name in self._names
            else field
            for field in self._rows.schema
        ]
        self.schema = pa.schema(fields)

    def batch(self, payloads: PayloadBatch) -> pa.RecordBatch:
        """Returns n records as n rows.

        Raises:
          ExampleError: a record does not hold what a feature must, or a class id has
            no name.
        """
        return self.of_rows(self._rows.batch(payloads, ""))

    def of_rows(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Returns rows with class ids as rows of the schema. Raises as `batch`."""
        if not self._names:
            return rows
        columns = [
            self._named(name, column) if name in self._names else column
            for name, column in zip(rows.schema.names, rows.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _named(self, name: str, ids: pa.Array) -> pa.DictionaryArray:
        names = self._names[name]
        ends = pc.min_max(ids).as_py()
        if ends["min"] is not None and not 0 <= ends["min"] <= ends["max"] < len(names):
            raise ExampleError(
                f"label {name!r} must be one of {len(names):,} class ids; found "
                f"{ends['min']:,} to {ends['max']:,}. Read it with labels='ids'."
            )
        return pa.DictionaryArray.from_arrays(ids.cast(pa.int32()), names)
