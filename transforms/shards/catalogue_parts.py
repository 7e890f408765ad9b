"""The parts of the catalogue: which shards each has, and how one is written.

A part covers a run of shards of some million records, so that no worker sees a whole
split. Shards leave their rows beside their receipts: one that an earlier run has
written is not read again.
"""

import bisect
import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Self

import pyarrow as pa

from transforms import files
from transforms.core.catalogue import (
    PART_RECORDS,
    catalogue_schema,
    part_file,
    part_ranges,
)
from transforms.core.manifest import FileFacts
from transforms.core.model import CataloguePart, Segment
from transforms.core.placing.shard_rows import ShardCounts
from transforms.shards.allocation import return_freed_memory
from transforms.shards.shard_job import ShardLayout
from transforms.storage.counted_sink import CountedSink
from transforms.storage.retry import persistently, storing
from transforms.work.store import Store

PartKey = tuple[str, int, int]
"""A part of the catalogue: its split, its number, and how many there are."""


@dataclasses.dataclass(frozen=True)
class CatalogueParts:
    """Which part of the catalogue the rows of each shard are in.

        >>> parts = CatalogueParts({"train": [0, 2]})
        >>> parts.of_shard("train", 1)
        ('train', 0, 2)

    Attributes:
      starts: split -> the first shard of each part.
    """

    starts: Mapping[str, list[int]]

    @classmethod
    def of(cls, shard_counts: ShardCounts) -> Self:
        """Returns the parts of a job, by the rows that were placed in each shard."""
        records: dict[str, list[int]] = {}
        for (split, _), rows in sorted(shard_counts.rows.items()):
            records.setdefault(split, []).append(rows)
        return cls(
            {
                split: [start for start, _ in part_ranges(found, PART_RECORDS)]
                for split, found in records.items()
            }
        )

    def of_shard(self, split: str, index: int) -> PartKey:
        """Returns the part of a shard, by its number among the split's."""
        starts = self.starts[split]
        return split, bisect.bisect(starts, index) - 1, len(starts)


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
        with files.create(path, attempts=store.attempts) as sink:
            counted = CountedSink(sink)
            write_part(counted, batches(), schema, names)
            store.check_goes_on()
        return FileFacts(name, counted.tell(), counted.crc32c)

    with storing(path):
        return CataloguePart(persistently(work, path=path))
