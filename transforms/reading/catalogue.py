"""Read the catalogue of a split: columns of its records without opening a shard."""

import bisect
import dataclasses
import functools
import itertools
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.schema import Feature
from transforms.errors import DamageError
from transforms.formats.tfrecord_files.dataset import Edition
from transforms.reading.folder import replaced
from transforms.reading.positions import Longs
from transforms.reading.rows import by_id, class_names
from transforms.storage.files import storage

if TYPE_CHECKING:
    import pyarrow.parquet as pq

# A part, and a row group of it.
_Place = tuple[int, int]
# Rows of a selection in any other order that are looked up together.
_TOGETHER = 1 << 20


class Catalogue:
    """The catalogue of one split.

        catalogue = Catalogue(["out/photos/catalogue/train-00000-of-00001.pq"])
        for batch in catalogue.batches(["label", "height"], 0, len(catalogue)):
            ...

    Only the files' footers are read at first. They have no checksums, unlike the pages:
    those of whole files are in the manifest.

    Args:
      paths: of its parts, in order; at least one.

    Attributes:
      path: of the first part.
      schema: columns and their types.

    Raises:
      DamageError: a part is no Parquet file, or has other columns than the first.
      OSError: it cannot be read.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = tuple(paths)
        self.path = self._paths[0]
        self._groups: list[_Place] = []
        counts: list[int] = []
        schemas = []
        for index, path in enumerate(self._paths):
            with self._opened(index) as file:
                schemas.append(file.schema_arrow)
                for group in range(file.num_row_groups):
                    self._groups.append((index, group))
                    counts.append(file.metadata.row_group(group).num_rows)
            if not schemas[-1].equals(schemas[0]):
                raise DamageError(
                    f"{path} must have the columns of {self._paths[0]}; found "
                    f"{schemas[-1].names}. Make the catalogue again."
                )
        self.schema: pa.Schema = schemas[0]
        self._starts = [0, *itertools.accumulate(counts)]
        # By columns: copies read two choices in turns.
        self._kept: dict[tuple[str, ...], tuple[int, pa.Table | None]] = {}

    def __len__(self) -> int:
        """Records of the split."""
        return self._starts[-1]

    def check_length(self, records: int) -> None:
        """Raises DamageError unless there is a row for each record of the split."""
        if len(self) != records:
            raise DamageError(
                f"{self.path} and the other parts must have a row for each of the "
                f"{records:,} records of the split; found {len(self):,}. Make the "
                f"catalogue again; 'beam-tfrecord verify' shows all damage."
            )

    def batches(
        self, columns: Sequence[str], start: int, stop: int
    ) -> Iterator[pa.RecordBatch]:
        """Yields columns of the records at `start` to `stop`, in shard order.

        Row groups outside this range are not read. Class names are dictionaries, which
        differ from batch to batch.

        Args:
          columns: their names, each in `schema`, in the order wanted.
          start, stop: 0 <= start <= stop <= n.

        Raises:
          DamageError: a part was damaged or replaced.
        """
        group = bisect.bisect_right(self._starts, start) - 1
        while start < stop:
            first, after = self._starts[group], self._starts[group + 1]
            end = min(stop, after)
            table = self._group(group, (*columns,), is_last=end == after)
            yield from table.slice(start - first, end - start).to_batches()
            start, group = end, group + 1

    def typed_batches(
        self, features: Sequence[Feature], start: int, stop: int
    ) -> Iterator[pa.RecordBatch]:
        """Yields features of the records at `start` to `stop`, as `TypedRows` does.

        Labels are class ids, timestamps in their unit.

        Args:
          features: some of the catalogue's columns; of labels that are names there,
            with the class names as vocabularies.
          start, stop: see `batches`.

        Errors are those of `batches`; also DamageError for a name that is no class.
        """
        names = [feature.name for feature in features]
        types, classes = by_id(features).schema, class_names(features)
        for batch in self.batches(names, start, stop):
            columns = [
                self._ids(name, column, classes.get(name))
                if pa.types.is_dictionary(column.type)
                else column.cast(kind)
                for name, column, kind in zip(
                    names, batch.columns, types.types, strict=True
                )
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=types)

    def _ids(
        self, name: str, column: pa.DictionaryArray, classes: pa.StringArray | None
    ) -> pa.Array:
        """Returns the class ids of a column of class names."""
        names = pa.array([], pa.string()) if classes is None else classes
        ids = pc.index_in(column.dictionary.cast(pa.string()), names)
        if ids.null_count:
            raise self._damage(0, f"a value of {name!r} is none of its classes")
        return ids.cast(pa.int64()).take(column.indices)

    def _group(
        self, place: int, columns: tuple[str, ...], *, is_last: bool
    ) -> pa.Table:
        """Returns a row group; keeps it for the next range in it, unless it `is_last`.

        A group has the rows of many small shards, which are asked for one by one.
        """
        kept, table = self._kept.pop(columns, (-1, None))
        if table is None or kept != place:
            table = self._read(place, columns)
        if not is_last:
            self._kept[columns] = place, table
        return table

    def _read(self, place: int, columns: Sequence[str]) -> pa.Table:
        index, group = self._groups[place]
        expected = self._starts[place + 1] - self._starts[place]
        with self._opened(index) as file:
            try:
                table = file.read_row_group(group, columns=[*columns])
            except (pa.ArrowException, OSError, UnicodeError) as error:
                raise self._damage(index, str(error)) from error
        if len(table) != expected:
            raise self._damage(index, f"{len(table):,} rows, not {expected:,}")
        # One piece, so that any two reads of a group are divided alike.
        return table.select([*columns]).combine_chunks()

    def _opened(self, part: int) -> "pq.ParquetFile":
        # Loaded where a catalogue is read: Parquet takes 0.1 s.
        import pyarrow.parquet as pq

        source = storage(self._paths[part]).mapped()
        try:
            return pq.ParquetFile(source, page_checksum_verification=True)
        except (pa.ArrowException, OSError, UnicodeError) as error:
            raise self._damage(part, str(error)) from error

    def _damage(self, part: int, detail: str) -> DamageError:
        return DamageError(
            f"{self._paths[part]} must be a part of a catalogue, as it was written: "
            f"{detail}. Make the catalogue again."
        )


@dataclasses.dataclass(frozen=True)
class CatalogueRows:
    """Reads features of records from the catalogue of a split.

    It is opened when it is first asked.

    Attributes:
      parts: paths of its files, in order.
      records: of the split.
      features: those whose columns in it have every value of the records.
      edition: of the dataset, which must stay the same.
    """

    parts: tuple[str, ...]
    records: int
    features: frozenset[str]
    edition: Edition

    def has(self, names: Collection[str]) -> bool:
        """Whether the catalogue has all of these features, and there are any."""
        if not names or not self.features.issuperset(names):
            return False
        return set(self._catalogue.schema.names).issuperset(names)

    def batches(
        self, features: Sequence[Feature], start: int, stop: int
    ) -> Iterator[pa.RecordBatch]:
        """Yields features of the records at `start` to `stop`, as `TypedRows` does.

        Labels are class ids.

        Args:
          features: that it has; labels with their class names as vocabularies.
          start, stop: 0 <= start <= stop <= n.

        Raises:
          DamageError: it is damaged, or the dataset was replaced.
        """
        try:
            yield from self._catalogue.typed_batches(features, start, stop)
        except (DamageError, OSError) as error:
            raise replaced(self.edition) or error from error
        if (lost := replaced(self.edition)) is not None:
            raise lost

    def at(
        self, features: Sequence[Feature], positions: Longs
    ) -> Iterator[pa.RecordBatch]:
        """Yields features of the records at positions, in their order.

        Memory is that of a million rows. Arguments and errors are those of `batches`.
        """
        for begin in range(0, len(positions), _TOGETHER):
            chunk = positions[begin : begin + _TOGETHER]
            distinct, places = np.unique(chunk, return_inverse=True)
            batches: list[pa.RecordBatch] = []
            first = int(distinct[0])
            for batch in self.batches(features, first, int(distinct[-1]) + 1):
                low, high = np.searchsorted(distinct, (first, first + batch.num_rows))
                batches.append(batch.take(pa.array(distinct[low:high] - first)))
                first += batch.num_rows
            taken = pa.Table.from_batches(batches).take(pa.array(places))
            yield from taken.combine_chunks().to_batches()

    @functools.cached_property
    def _catalogue(self) -> Catalogue:
        try:
            catalogue = Catalogue(self.parts)
            catalogue.check_length(self.records)
        except (DamageError, OSError) as error:
            raise replaced(self.edition) or error from error
        return catalogue
