"""The stage `catalogue`: the rows of each shard -> the parts of the catalogue."""

import dataclasses
from collections.abc import Iterable

import apache_beam as beam

from transforms.core.model import CataloguePart, Segment
from transforms.core.placing.name_lists import load_classes
from transforms.core.placing.shard_rows import ShardCounts
from transforms.shards.catalogue_parts import PartKey, write_catalogue_part
from transforms.shards.shard_job import ShardLayout
from transforms.work.store import Store

__all__ = ["WriteCatalogue"]


@dataclasses.dataclass
class WriteCatalogue(beam.PTransform):
    """Writes the parts of the catalogue.

    Input: (part, (shard, its rows)). Output: a CataloguePart for each part. A retry
    writes the same bytes under the same name.

    Attributes:
      layout: of the shards.
      store: where the rows are, and the parts go.
      shard_counts: the one ShardCounts of the job.
    """

    layout: ShardLayout
    store: Store
    shard_counts: beam.pvalue.AsSingleton

    def __post_init__(self) -> None:
        super().__init__()

    def expand(
        self, rows: beam.PCollection[tuple[PartKey, tuple[int, Segment]]]
    ) -> beam.PCollection[CataloguePart]:
        """Gathers the rows of each part, and writes it."""
        return (
            rows
            | "Group by part" >> beam.GroupByKey()
            | "Write part"
            >> beam.Map(_write, self.layout, self.store, self.shard_counts)
        )


def _write(
    element: tuple[PartKey, Iterable[tuple[int, Segment]]],
    layout: ShardLayout,
    store: Store,
    shard_counts: ShardCounts,
) -> CataloguePart:
    store.check_worker()
    classes = load_classes(shard_counts.classes, store.get)
    return write_catalogue_part(*element, layout=layout, store=store, classes=classes)
