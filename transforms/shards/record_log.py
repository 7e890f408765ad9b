"""What is known of each record of a shard: derived files need it, and the catalogue.

Where a record is follows from the sizes, which the encoder knows, and its checksum is
in its footer. So nothing is read or computed again.

A part of the catalogue covers a run of shards of some million records, so that no
worker sees a whole split. Shards leave their rows beside their receipts: one that an
earlier run has written is not read again.
"""

import bisect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.arrays import return_freed_memory
from transforms.core.catalogue import (
    PART_RECORDS,
    CataloguePart,
    catalogue_schema,
    own_columns,
    part_file,
    part_ranges,
)
from transforms.core.manifest import FileFacts
from transforms.core.placing.sharding import ShardCounts, ShardRows
from transforms.core.schema import Feature, Kind
from transforms.core.segment import Segment
from transforms.core.tfrecord.frame import FOOTER_BYTES, OVERHEAD_BYTES, unmask_all
from transforms.core.tfrecord.index import index_file, text_index, text_index_file
from transforms.shards.shard_job import ShardLayout
from transforms.storage.drafts import CountedSink
from transforms.storage.files import storage
from transforms.storage.retry import persistently, storing
from transforms.work.store import Store

_Offsets = npt.NDArray[np.int64]
_Words = npt.NDArray[np.uint32]

PartKey = tuple[str, int, int]
"""A part of the catalogue: its split, its number, and how many there are."""


class RecordLog:
    """Notes the records of one shard, in their order, for its derived files.

    log = RecordLog(layout, shard=0)
    log.add(offsets, lambda: footers(buffer, offsets))
    log.add_rows(rows, positions, columns.__getitem__)
    log.indexes("rows-train.tfrecord-00000-of-00001")   # name -> bytes
    log.piece()                                         # an Arrow stream
    """

    def __init__(self, layout: ShardLayout, shard: int) -> None:
        self._layout = layout
        self._settings = layout.derived
        self._shard = shard
        # Of each piece: where its records end in the file before it is compressed.
        self._ends: list[_Offsets] = []
        self._end = 0
        self._crcs: list[_Words] = []
        self._rows: ShardRows | None = None
        self._positions: list[npt.NDArray[np.int64]] = []
        names = [feature.name for feature in layout.catalogue_features]
        if layout.derived.key and layout.derived.key not in names:
            names.append(layout.derived.key)
        self._columns: dict[str, list[pa.Array]] = {name: [] for name in names}

    def add(
        self, offsets: _Offsets, buffer: pa.Buffer | None, crcs: _Words | None = None
    ) -> None:
        """Notes n framed records that are written now.

        Args:
          offsets: n + 1, where each record starts, and the end; from any number on.
          buffer: that the offsets are in; None where `crcs` is given.
          crcs: n CRC32Cs of the payloads, not masked.
        """
        if not self._settings.are_any:
            return
        self._ends.append(offsets[1:] + (self._end - int(offsets[0])))
        self._end += int(offsets[-1] - offsets[0])
        if self._settings.catalogue:
            if crcs is None:
                assert buffer is not None
                crcs = _footers(buffer, offsets[1:])
            self._crcs.append(crcs)

    def add_rows(
        self,
        rows: ShardRows,
        positions: npt.NDArray[np.int64],
        column_of: Callable[[str], pa.Array],
    ) -> None:
        """Notes the rows of the records that `add` was given.

        Args:
          rows: of the shard, without the features' columns: the log keeps them.
          positions: of n rows in their table.
          column_of: returns n values of a feature, by its key in records; labels as
            ids.
        """
        if not self._settings.catalogue:
            return
        self._rows = rows
        self._positions.append(positions)
        for name, parts in self._columns.items():
            parts.append(column_of(name))

    def indexes(self, shard: str) -> dict[str, pa.Buffer]:
        """Returns the indexes of a complete shard, by their names."""
        if not self._settings.index:
            return {}
        offsets = self._starts().view(np.uint64)
        buffers = {index_file(shard): pa.py_buffer(offsets)}
        if self._settings.text_index:
            buffers[text_index_file(shard)] = pa.py_buffer(text_index(offsets))
        return buffers

    def piece(self) -> pa.Buffer | None:
        """Returns the shard's rows of the catalogue as an Arrow stream.

        None for no catalogue, and for a shard without records. Labels are class ids.
        """
        if self._rows is None:
            return None
        starts = self._starts()
        own = own_columns(
            self._shard,
            starts[:-1] if self._layout.compression == "none" else None,
            np.diff(starts) - OVERHEAD_BYTES,
            _concatenated(self._crcs, np.uint32),
        )
        table = pa.table({**own, **self._of_rows(self._rows)})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        return sink.getvalue()

    def _of_rows(self, rows: ShardRows) -> dict[str, pa.Array]:
        """Returns what the rows say of the records, in one piece for a column."""
        origins, numbers = rows.sources(_concatenated(self._positions, np.int64))
        if self._layout.origins_name_rows:
            numbers = pa.nulls(len(numbers), pa.int64())
        columns: dict[str, pa.Array] = {"_origin": origins, "_row": numbers}
        whole = {
            name: pa.concat_arrays(_alike(parts))
            for name, parts in self._columns.items()
        }
        if self._settings.key:
            columns["_key"] = whole[self._settings.key].cast(pa.string())
        for feature in self._layout.catalogue_features:
            columns[feature.name] = _as_stored(whole[feature.name], feature)
        return columns

    def _starts(self) -> _Offsets:
        """Returns where n records begin before compression, and where the last ends."""
        return np.concatenate([np.zeros(1, np.int64), *self._ends])


def _concatenated(arrays: Sequence[npt.NDArray[Any]], kind: type) -> npt.NDArray[Any]:
    """Returns all arrays as one; an empty one of `kind` where there are none."""
    return np.concatenate(arrays) if arrays else np.empty(0, kind)


def _footers(buffer: pa.Buffer, ends: _Offsets) -> _Words:
    """Returns the payloads' CRC32Cs of framed records that end at these offsets."""
    if not len(ends):
        return np.empty(0, np.uint32)
    # Overlapping words, one that begins at every byte: footers have any alignment.
    words: _Words = np.ndarray((buffer.size - 3,), "<u4", buffer, 0, (1,))
    return unmask_all(words[ends - FOOTER_BYTES])


def _alike(parts: Sequence[pa.Array]) -> Sequence[pa.Array]:
    """Returns arrays of one type: texts may be in dictionaries in some chunks only."""
    if not pa.types.is_dictionary(parts[0].type):
        return parts
    return [array.cast(array.type.value_type) for array in parts]


def _as_stored(column: pa.Array, feature: Feature) -> pa.Array:
    """Returns a column of one type for all shards."""
    if feature.kind is Kind.TIMESTAMP:
        return column.cast(pa.timestamp(feature.unit or "s", "UTC"))
    if feature.kind is Kind.TEXT:
        return column.cast(pa.string())
    return column


def catalogue_parts(shard_counts: ShardCounts) -> dict[str, list[int]]:
    """Returns split -> the first shard of each part of its catalogue.

    By the rows that were placed in each shard.
    """
    records: dict[str, list[int]] = {}
    for (split, _), rows in sorted(shard_counts.rows.items()):
        records.setdefault(split, []).append(rows)
    return {
        split: [start for start, _ in part_ranges(counts, PART_RECORDS)]
        for split, counts in records.items()
    }


def catalogue_part_of(
    starts: Mapping[str, list[int]], split: str, index: int
) -> PartKey:
    """Returns the part that the rows of a shard are in.

        >>> catalogue_part_of({"train": [0, 2]}, "train", 1)
        ('train', 0, 2)

    Args:
      starts: as `catalogue_parts` gives them.
      split, index: of the shard.
    """
    return split, bisect.bisect(starts[split], index) - 1, len(starts[split])


def write_catalogue_part(
    part: PartKey,
    rows: Iterable[tuple[int, Segment]],
    *,
    layout: ShardLayout,
    store: Store,
    classes: Mapping[str, pa.StringArray],
) -> CataloguePart:
    """Writes one part of the catalogue; memory is that of a shard's rows.

    Args:
      part: its place.
      rows: (number of a shard, its rows), in any order.
      layout: of the shards.
      store: where the rows are, and the part goes.
      classes: label feature -> its class names in the order of their ids.

    Raises:
      StorageError: it could not be written, or the rows not be read.
      DamageError: the rows are not what was written.
    """
    # Loaded where a job has a catalogue: this takes 0.1 s.
    from transforms.core.catalogue import write_part

    # In a local run, shards were written in this process until now.
    return_freed_memory()
    name = part_file(*part)
    path = os.path.join(store.dataset, name)
    ordered = [segment for _, segment in sorted(rows, key=lambda each: each[0])]
    names = {
        each.name: classes[each.name]
        for each in layout.catalogue_features
        if each.name in classes
    }
    schema = catalogue_schema(
        layout.catalogue_features,
        names,
        origins=True,
        keys=bool(layout.derived.key),
    )

    def batches() -> Iterator[Mapping[str, pa.Array]]:
        for segment in ordered:
            with pa.ipc.open_stream(store.get(segment)) as stream:
                for batch in stream:
                    yield dict(zip(batch.schema.names, batch.columns, strict=True))

    def work() -> FileFacts:
        store.announce(name)
        with storage(path).create(attempts=store.attempts) as sink:
            counted = CountedSink(sink)
            write_part(counted, batches(), schema, names)
            store.check_goes_on()
        return FileFacts(name, counted.tell(), counted.crc32c)

    with storing(path):
        return CataloguePart(persistently(work, path=path))
