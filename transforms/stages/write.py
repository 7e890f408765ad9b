"""The stage `write`: the segments of a shard -> its finished file."""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam

from transforms.core.model import Reason, Segment, ShardFile, ShardKey
from transforms.core.placing.shard_rows import ShardCounts
from transforms.core.placing.vocabulary import digest_of
from transforms.core.segment import in_source_order
from transforms.shards.write_shard import ShardLayout, rows_of_segments, write_shard
from transforms.work.receipts import ShardDone, find_shard, keep_shard
from transforms.work.store import Store

__all__ = ["FINGERPRINTS", "REJECTS", "WriteShards"]

FINGERPRINTS = "fingerprints"
REJECTS = "rejects"
# Faults that can be repaired without a change of the file's stamp (permissions, say).
_MAY_HEAL = frozenset((Reason.UNREADABLE, Reason.CHANGED_DURING_RUN))


@dataclasses.dataclass
class WriteShards(beam.PTransform):
    """Writes each shard as one TFRecord file.

    Input: (shard, its segments) after the GroupByKey. Outputs: `shards`, a ShardFile
    for each; `rejects`, a RejectLog for each shard with rejects. A retry writes the
    same bytes under the same name. Counters: rows_written, rows_rejected.

    Attributes:
      layout: what decides the bytes.
      store: where segments and finished shards are.
      shard_counts: the one ShardCounts of the job.
    """

    layout: ShardLayout
    store: Store
    shard_counts: beam.pvalue.AsSingleton

    def __post_init__(self) -> None:
        super().__init__()

    def expand(
        self, shards: beam.PCollection[tuple[ShardKey, Iterable[Segment]]]
    ) -> Any:
        """Writes each shard by itself."""
        return shards | "Write file" >> (
            beam.ParDo(_WriteFile(self.layout, self.store), self.shard_counts)
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
        self, element: tuple[ShardKey, Iterable[Segment]], shard_counts: ShardCounts
    ) -> Iterator[Any]:
        key, segments = element[0], in_source_order(list(element[1]))
        input_digest = _input_digest(key, segments, shard_counts)
        done = find_shard(self.store, input_digest) if input_digest else None
        if done is None:
            shard, rejects, fingerprints = write_shard(
                key,
                functools.partial(rows_of_segments, segments, self.layout, self.store),
                shard_counts,
                layout=self.layout,
                store=self.store,
            )
            if rejects is not None:
                self.rows_rejected.inc(rejects.items)
            done = ShardDone(shard, rejects, fingerprints)
            if input_digest and not (rejects and rejects.counts.keys() & _MAY_HEAL):
                keep_shard(self.store, input_digest, done)
        self.rows_written.inc(done.shard.records)
        if done.rejects is not None:
            yield beam.pvalue.TaggedOutput(REJECTS, done.rejects)
        if done.fingerprints is not None:
            yield beam.pvalue.TaggedOutput(FINGERPRINTS, done.fingerprints)
        yield done.shard


def _input_digest(
    key: ShardKey, segments: Sequence[Segment], shard_counts: ShardCounts
) -> str:
    """Returns a digest of what decides a shard, in one job; empty for unknown."""
    if not all(segment.input_digest for segment in segments):
        return ""
    facts = [
        *(key, shard_counts.numbering(*key)),
        [
            (name, digest_of(names))
            for name, names in sorted(shard_counts.classes.items())
        ],
        [(each.origin, each.start, each.rows, each.input_digest) for each in segments],
    ]
    text = json.dumps(facts).encode()
    return hashlib.blake2b(text, digest_size=16).hexdigest()
