"""The stage `write`: the segments of a shard -> its finished file."""

import dataclasses
from collections.abc import Iterable, Iterator

import apache_beam as beam

from transforms.core.model import RejectLog, Segment, ShardFile, ShardKey
from transforms.core.shard import Census
from transforms.shard_file import ShardLayout, write_shard
from transforms.store import Store

__all__ = ["FINGERPRINTS", "REJECTS", "WriteShards"]

FINGERPRINTS = "fingerprints"
REJECTS = "rejects"


@dataclasses.dataclass
class WriteShards(beam.PTransform):
    """Writes each shard as one TFRecord file.

    Input: (shard, its segments) after the GroupByKey. Outputs: `shards`, a ShardFile
    for each; `rejects`, a RejectLog for each shard with rejects. A retry writes the
    same bytes under the same name. Counters: rows_written, rows_rejected.

    Attributes:
      layout: what decides the bytes.
      store: where segments and finished shards lie.
      census: the one Census of all rows.
    """

    layout: ShardLayout
    store: Store
    census: beam.pvalue.AsSingleton

    def __post_init__(self) -> None:
        super().__init__()

    def expand(
        self, shards: beam.PCollection[tuple[ShardKey, Iterable[Segment]]]
    ) -> beam.pvalue.DoOutputsTuple:
        """Writes each shard by itself."""
        return shards | "Write file" >> (
            beam.ParDo(_WriteFile(self.layout, self.store), self.census)
            .with_output_types(ShardFile)
            .with_outputs(REJECTS, FINGERPRINTS, main="shards")
        )


class _WriteFile(beam.DoFn):
    def __init__(self, layout: ShardLayout, store: Store) -> None:
        super().__init__()
        self.layout = layout
        self.store = store
        self.rows_written = beam.metrics.Metrics.counter("write", "rows_written")
        self.rows_rejected = beam.metrics.Metrics.counter("write", "rows_rejected")

    def process(
        self, element: tuple[ShardKey, Iterable[Segment]], census: Census
    ) -> Iterator[ShardFile | beam.pvalue.TaggedOutput]:
        key, segments = element
        shard, rejections, fingerprints = write_shard(
            key, list(segments), census, layout=self.layout, store=self.store
        )
        self.rows_written.inc(shard.records)
        if rejections:
            self.rows_rejected.inc(len(rejections))
            log: RejectLog = self.store.put_rejects(f"write\0{key}", rejections)
            yield beam.pvalue.TaggedOutput(REJECTS, log)
        if fingerprints is not None:
            yield beam.pvalue.TaggedOutput(FINGERPRINTS, fingerprints)
        yield shard
