"""The stages `place` and `count`: a batch -> a segment for every shard that it touches.

All of these -> the rows of every shard, and the class names.
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core import segment
from transforms.core.arrays import return_freed_memory
from transforms.core.model import Batch, PlaceFacts, RejectLog, ShardKey, task_of
from transforms.core.placing.hashes import LOCK, UInt64s, order_hashes, unit_hashes
from transforms.core.placing.leakage import Fingerprints, Subject, pack_fingerprints
from transforms.core.placing.sharding import (
    ShardCounts,
    Sharding,
    shard_of_keys,
    shard_of_positions,
)
from transforms.core.placing.splitting import NOWHERE, Splits, SplitTables, split_rows
from transforms.core.placing.strata import Strata
from transforms.core.placing.strata import unpack as unpack_strata
from transforms.core.reasons import Reason, Rejection
from transforms.core.schema import Kind, Schema
from transforms.core.segment import NO_RECORD, Segment
from transforms.core.vocabulary import (
    Vocabulary,
    distinct_names,
    merged_lists,
    put_classes,
    put_names,
)
from transforms.errors import EncodingError
from transforms.rows.typed_rows import read_piece
from transforms.stages.job_plan import JobPlan, PlanInput, Stage
from transforms.work.receipts import PieceDone, keep_piece
from transforms.work.split_tables import open_assignments
from transforms.work.store import Store

FACTS = "facts"
FINGERPRINTS = "fingerprints"
REJECTS = "rejects"


def _order_keys(batch: Batch, sharding: Sharding) -> UInt64s:
    """Returns the hash of each row by which a shard is sorted; checks that keys fit."""
    if sharding.keyed != (batch.keys is not None):
        expected, got = ("a", "none") if sharding.keyed else ("no", "some")
        raise EncodingError(
            f"Every row must have {expected} key in this job; a batch of "
            f"{batch.block.origin!r} has {got}. Keep the batch's `keys` in own steps."
        )
    return order_hashes(batch, seed=sharding.seed, placeless=sharding.placeless)


def _shards_of_rows(
    batch: Batch, sharding: Sharding, splits: Splits, keys: UInt64s
) -> tuple[list[ShardKey], npt.NDArray[np.int64]]:
    """Returns all shards of all splits, and for each row the index of its shard."""
    shards: list[ShardKey] = []
    index = np.empty(batch.rows.num_rows, np.int64)
    for number, name in enumerate(splits.names):
        mine = slice(None) if len(splits.names) == 1 else splits.index == number
        count = sharding.shards.get(name, 1)
        if sharding.shuffle:
            shard = shard_of_keys(keys[mine], count)
        else:
            positions = batch.positions
            if positions is None:
                positions = batch.block.positions_of(batch.numbers)
            shard = shard_of_positions(
                positions[mine], sharding.total_bytes.get(name, 1), count
            )
        index[mine] = shard + len(shards)
        shards += [(name, i) for i in range(count)]
    return shards, index


def cut_batch(
    batch: Batch, sharding: Sharding, splits: Splits
) -> Iterator[tuple[ShardKey, pa.RecordBatch]]:
    """Returns the rows of each shard touched, in source order, as `segment` has them.

    Args:
      batch: n rows under `Schema.row_schema`.
      sharding: where rows go.
      splits: of the rows, none of them `NOWHERE`.
    """
    keys = _order_keys(batch, sharding)
    shards, index = _shards_of_rows(batch, sharding, splits, keys)
    columns = [*batch.rows.columns, pa.array(batch.numbers)]
    if batch.origins is not None:
        unknown = pa.array(np.zeros(len(batch.origins), np.int64))
        columns += [
            batch.origins,
            unknown if batch.stamps is None else batch.stamps,
        ]
    if sharding.stores_order:
        columns.append(pa.array(keys))
    schema = segment.segment_schema(
        batch.rows.schema,
        many_origins=batch.origins is not None,
        ordered=sharding.stores_order,
    )
    rows = pa.record_batch(columns, schema=schema)
    return ((shards[i], shard_rows) for i, shard_rows in segment.cut(rows, index))


def _taken(batch: Batch, splits: Splits) -> tuple[Batch, Splits, list[Rejection]]:
    """Returns the rows that have a split, and rejections of those that have none."""
    homeless = splits.index == NOWHERE
    if not homeless.any():
        return batch, splits, []
    lost = np.flatnonzero(homeless).tolist()
    rejections = [_homeless_rejection(batch, row) for row in lost]
    index = splits.index[~homeless]
    rest = batch.filter(~homeless)
    return rest, dataclasses.replace(splits, index=index), rejections


def _homeless_rejection(batch: Batch, row: int) -> Rejection:
    """Returns the rejection of a row whose key the table of ids gives no split."""
    origin = batch.block.origin if batch.origins is None else batch.origins[row].as_py()
    key = None if batch.keys is None else batch.keys[row].as_py()
    values = batch.rows.slice(row, 1).to_pylist()[0]
    raw = json.dumps(values, sort_keys=True, default=repr).encode()
    return Rejection(
        source=origin,
        row=int(batch.numbers[row]) + 1,
        line=None,
        stage="place",
        reason=Reason.BAD_SPLIT,
        message=f"key {key!r} has no split in the table of ids, and no share says "
        f"where others go",
        sha256=hashlib.sha256(raw).hexdigest(),
        raw=raw,
    )


@dataclasses.dataclass
class PlaceRows(Stage):
    """Stores the rows of each batch as one segment for every shard touched.

    Input: batches; at most one a piece of a block. Of rows of a pipeline, spooled
    pieces, whose rows are read here: engines break fusion before a side input, and
    each row would cross to the engine and back. Outputs: `segments`, as bytes and
    keyed by shard; `facts`, a PlaceFacts a batch; `rejects`, a RejectLog for each
    batch with rows that no split takes, or that do not fit; `fingerprints`, of the
    rows' units, where asked for. A retry writes the same files again. Counters:
    rows_placed, rows_rejected.

    Attributes:
      plan: of the job.
      strata: for a stratified split, where the Strata of all rows are stored.
    """

    plan: PlanInput
    strata: beam.pvalue.AsSingleton | None = None

    def expand(self, batches: beam.PCollection[Batch | Segment]) -> Any:
        """Places each batch by itself."""
        beside = () if self.strata is None else (self.strata,)
        return batches | "Cut by shard" >> (
            beam.ParDo(CutByShard(), self.plan, *beside)
            .with_output_types(tuple[ShardKey, bytes])
            .with_outputs(FACTS, REJECTS, FINGERPRINTS, main="segments")
        )


class CutByShard(beam.DoFn):
    """Places one batch, or one spooled piece; see `PlaceRows`."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: SplitTables | None = None
        # The part of a block's input digest that only a stratified split adds.
        self.cut = ""
        self.rows_placed = beam.metrics.Metrics.counter("place", "rows_placed")
        self.rows_rejected = beam.metrics.Metrics.counter("place", "rows_rejected")

    def process(
        self, element: Batch | Segment, plan: JobPlan, strata: Segment | None = None
    ) -> Iterator[Any]:
        """Gives (shard, its packed segment), and the other outputs."""
        store, sharding = plan.store, plan.layout.sharding
        store.check_worker()
        if self.tables is None:
            self.tables = _tables_of(plan, strata)
            if self.tables.strata is not None:
                self.cut = f"-{self.tables.strata.digest}"
        if isinstance(element, Batch):
            batch = element
        else:
            assert plan.spooled is not None, "only then are elements pieces"
            schema, message = plan.layout.schema, store.get(element)
            reading = read_piece(element, message, plan.spooled, schema, sharding.seed)
            batch = reading.batch
            task = f"write\0{batch.block.origin}"
            misfits = store.put_rejects(task, reading.rejections)
            if misfits is not None:
                self.rows_rejected.inc(misfits.items)
                yield beam.pvalue.TaggedOutput(REJECTS, misfits)
        batch.check(plan.layout.schema.row_schema)
        block = batch.block
        splits = split_rows(batch, sharding.rule, self.tables)
        piece = batch.piece
        batch, splits, rejections = _taken(batch, splits)
        log: RejectLog | None = None
        if rejections:
            self.rows_rejected.inc(len(rejections))
            task = task_of("place", block.origin, block.start)
            log = store.put_rejects(task, rejections)
            yield beam.pvalue.TaggedOutput(REJECTS, log)
        counts: dict[ShardKey, int] = {}
        parts = []
        for key, rows in cut_batch(batch, sharding, splits):
            counts[key] = rows.num_rows
            parts.append((rows.num_rows, rows.serialize()))
        # What has come inside its descriptor goes on in it.
        inline = isinstance(element, Segment) and not element.file
        at = dataclasses.replace(store, inline=True) if inline else store
        stored = at.put(block.origin, block.start, parts) if parts else []
        labels = [feature.name for feature in plan.layout.schema.of_kind(Kind.LABEL)]
        facts = PlaceFacts(
            origin=block.origin,
            start=block.start,
            rows=counts,
            labels={
                name: put_names(_class_names(batch, name), store.put_pieces)
                for name in labels
            },
        )
        self.rows_placed.inc(batch.rows.num_rows)
        yield beam.pvalue.TaggedOutput(FACTS, facts)
        prints = None
        if plan.with_fingerprints and batch.rows.num_rows:
            prints = _store_fingerprints(batch, splits, store)
            yield beam.pvalue.TaggedOutput(FINGERPRINTS, prints)
        input_digests = _input_digests(batch, parts, plan.layout.schema, self.cut)
        segments = tuple(
            (key, dataclasses.replace(output, input_digest=input_digest))
            for key, output, input_digest in zip(
                counts, stored, input_digests, strict=True
            )
        )
        for key, output in segments:
            yield key, segment.pack(output)
        if piece is not None and strata is None and not store.inline:
            logs = tuple(
                output for output in (piece.rejects, log) if output is not None
            )
            done = PieceDone(piece.facts, facts, segments, logs, prints)
            keep_piece(store, piece, done)


def _tables_of(plan: JobPlan, strata: Segment | None) -> SplitTables:
    """Returns what decides splits of rows: a table of ids, a lock, cuts of classes."""
    table, lock = (
        open_assignments(path) if path else None for path in (plan.table, plan.lock)
    )
    if strata is None:
        return SplitTables(table=table, lock=lock)
    message = plan.store.get(strata)
    names = plan.layout.sharding.rule.names
    cuts = Strata(*unpack_strata(message, len(names) - 1))
    return SplitTables(table=table, lock=lock, strata=cuts)


def _input_digests(
    batch: Batch, parts: Sequence[tuple[int, pa.Buffer]], schema: Schema, cut: str
) -> Iterator[str]:
    """Yields a digest of the inputs of each segment's rows; empty for unknown."""
    piece, stamps = batch.piece, batch.stamps
    stamped = stamps is not None and 0 not in stamps.to_numpy(zero_copy_only=False)
    with_files = any(not feature.inline for feature in schema.loaded)
    if piece is None or (with_files and not stamped):
        # A file that is read by its path alone may have changed in between.
        yield from [""] * len(parts)
    elif stamped:
        # What the rows say decides everything, and a file that has changed
        # touches its own shard instead of all those of its block.
        for _, message in parts:
            yield hashlib.blake2b(message, digest_size=16).hexdigest()
    else:
        yield from [f"{piece.input_digest}-{piece.number}{cut}"] * len(parts)


def _store_fingerprints(batch: Batch, splits: Splits, store: Store) -> Fingerprints:
    """Stores hash and split of each row for `leak_check`; returns where."""
    units = unit_hashes(batch, purpose=LOCK)
    rows = pack_fingerprints(units, splits.index, batch.numbers, batch.origins)
    (piece,) = store.put(
        f"units\0{batch.block.origin}",
        batch.block.start,
        [(rows.num_rows, rows.serialize())],
    )
    return Fingerprints(
        Subject.UNIT,
        splits.names,
        dataclasses.replace(piece, origin=batch.block.origin),
    )


def _class_names(batch: Batch, name: str) -> pa.StringArray:
    """Returns the distinct names in a column of names, or of lists of them."""
    labels = batch.rows[name]
    are_none = batch.numbers == NO_RECORD
    if are_none.any():
        labels = labels.filter(pa.array(~are_none))
    while pa.types.is_list(labels.type):
        labels = labels.flatten()
    return labels.unique().drop_null()


# Rows of each shard, and lists of the class names of each feature.
_Sums = tuple[dict[ShardKey, int], dict[str, list[Segment]]]


@dataclasses.dataclass
class CountShards(Stage):
    """Counts the rows of every shard and collects the class names.

    Input: PlaceFacts. Output: one ShardCounts, empty for no input.

    Attributes:
      plan: of the job.
    """

    plan: PlanInput

    def expand(
        self, facts: beam.PCollection[PlaceFacts]
    ) -> beam.PCollection[ShardCounts]:
        """Merges the facts of all batches."""
        return (
            facts
            | "Take counts" >> beam.Map(counts_of)
            | "Merge" >> beam.CombineGlobally(merged_sums)
            | "Settle names" >> beam.Map(count_shards, self.plan)
        )


def counts_of(facts: PlaceFacts) -> _Sums:
    """Returns the sums of one batch."""
    return dict(facts.rows), {name: [names] for name, names in facts.labels.items()}


def merged_sums(parts: Iterable[_Sums]) -> _Sums:
    """Returns the sums of several batches as those of one."""
    rows: dict[ShardKey, int] = {}
    labels: dict[str, list[Segment]] = {}
    for more, lists in parts:
        for key, count in more.items():
            rows[key] = rows.get(key, 0) + count
        for feature, names in lists.items():
            labels.setdefault(feature, []).extend(names)
    return rows, {name: merged_lists(lists) for name, lists in labels.items()}


def count_shards(sums: _Sums, plan: JobPlan) -> ShardCounts:
    """Returns the rows of every shard, and the class names with their ids."""
    plan.store.check_worker()
    rows, labels = sums
    classes = {}
    for feature in sorted(labels.keys() | plan.vocabularies.keys()):
        names = distinct_names(labels.get(feature, []), plan.store.get)
        vocabulary = plan.vocabularies.get(feature, Vocabulary())
        settled = vocabulary.settled(names)
        classes[feature] = put_classes(settled, plan.store.put_pieces)
        del names, settled
    return_freed_memory()
    return ShardCounts(dict(sorted(rows.items())), classes)
