"""The stage `stratify`: all batches, read beforehand -> where each class is cut.

    batches -+- (bucket of classes, Segment of hashes by class) -> group -> bounds
             +- Segment of rows by class -> summed -> rows by class and split -^

It reads what `place` will read again: batches never wait for the answer, only blocks.
"""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core import segment
from transforms.core.model import Batch, Block, Segment
from transforms.core.placing.placement import (
    LOCK,
    SPLIT,
    SplitRule,
    UInt64s,
    hash_texts,
    unit_hashes,
)
from transforms.core.placing.splitting import Assignments, check_contents
from transforms.core.placing.strata import (
    ClassCounts,
    Strata,
    cut_classes,
    pack,
    share_out,
    sum_counts,
    unpack,
)
from transforms.stages.job_plan import Stage
from transforms.work.split_tables import open_assignments
from transforms.work.store import Store

COUNTS = "counts"

# log2 of the number of groups of classes: with 200,000 classes a batch still sends few
# pieces, and no group holds a large part of all.
_BUCKET_BITS = 4
_PIECE = pa.schema([("class", pa.string()), ("hashes", pa.list_(pa.uint64()))])


def await_strata(block: Block, _strata: Segment) -> Block:
    """Returns the block, once the strata of all rows are known.

    Only blocks wait in the runner for this side input; without this step it would keep
    the batches that are read of them.
    """
    return block


@dataclasses.dataclass
class TakeStrata(Stage):
    """Finds where every class is to be cut for the rule's shares.

    Input: the batches that `place` will be given, read beforehand. Output: one
    Segment, which holds the Strata: as a side input a runner would copy a million
    classes again and again. A retry writes the same files again. Counters:
    rows_counted.

    Attributes:
      rule: a stratified one.
      store: where hashes are meanwhile, 8 bytes a row.
      lock: path of the splits that earlier runs gave; empty for none.
    """

    rule: SplitRule
    store: Store
    lock: str = ""

    def expand(self, batches: beam.PCollection[Batch]) -> beam.PCollection[Segment]:
        """Counts and hashes each batch, then cuts each class."""
        # In files, however few rows there are: there may be as many classes.
        store = dataclasses.replace(self.store, inline=False)
        hashed = batches | "Hash classes" >> (
            beam.ParDo(_HashClasses(self.rule, store, self.lock))
            .with_output_types(tuple[int, Segment])
            .with_outputs(COUNTS, main="pieces")
        )
        splits = len(self.rule.names)
        quotas = (
            hashed.counts
            | "Gather counts" >> beam.combiners.ToList()
            | "Share out" >> beam.Map(_share_out, self.rule, store)
        )
        return (
            hashed.pieces
            # (bucket, segment) -> (bucket, [segment, ...]), in any order
            | "Group by class" >> beam.GroupByKey()
            | "Cut classes"
            >> beam.Map(_cut, store, beam.pvalue.AsSingleton(quotas), self.rule)
            | "Gather bounds" >> beam.combiners.ToList()
            | "Join bounds" >> beam.Map(_join_strata, store, splits)
        )


class _HashClasses(beam.DoFn):
    """Stores the hashes of each class of a batch by bucket, and counts its rows."""

    def __init__(self, rule: SplitRule, store: Store, lock: str) -> None:
        super().__init__()
        self.rule = rule
        self.store = store
        self.lock_path = lock
        self.lock: Assignments | None = None
        self.rows_counted = beam.metrics.Metrics.counter("stratify", "rows_counted")

    def setup(self) -> None:
        self.store.check_worker()
        if self.lock_path:
            self.lock = open_assignments(self.lock_path)

    def process(self, batch: Batch) -> Iterator[Any]:
        batch.check()
        if not batch.rows.num_rows:
            return
        counts, rows = hash_classes(batch, self.rule, self.lock)
        self.rows_counted.inc(batch.rows.num_rows)
        buckets = _buckets(rows["class"])
        cut = [*segment.cut(rows, buckets)]
        summed, *stored = self.store.put(
            f"classes\0{batch.block.origin}",
            batch.block.start,
            [
                (len(counts[0]), pack(*counts)),
                *((chunk.num_rows, segment.serialize(chunk)) for _, chunk in cut),
            ],
        )
        yield beam.pvalue.TaggedOutput(COUNTS, summed)
        for (bucket, _), piece in zip(cut, stored, strict=True):
            yield bucket, piece


def hash_classes(
    batch: Batch, rule: SplitRule, lock: Assignments | None
) -> tuple[ClassCounts, pa.RecordBatch]:
    """Returns the rows of each class of a batch: their numbers, and their hashes.

    Args:
      batch: n rows.
      rule: a stratified one.
      lock: rows that it knows are counted, and not hashed.
    """
    classes = batch.rows.column(rule.stratify_by).cast(pa.string())
    encoded = classes.dictionary_encode(null_encoding="encode")
    names, codes = encoded.dictionary, np.asarray(encoded.indices).astype(np.int64)
    check_contents(batch, rule)
    hashes = unit_hashes(batch, purpose=SPLIT, seed=rule.seed)
    locked = np.zeros((len(names), len(rule.names)), np.int64)
    if lock is not None:
        matches = lock.find(unit_hashes(batch, purpose=LOCK))
        is_locked = matches >= 0
        indices = np.array([rule.names.index(name) for name in lock.names], np.int64)
        if is_locked.any():
            np.add.at(locked, (codes[is_locked], indices[matches[is_locked]]), 1)
        codes, hashes = codes[~is_locked], hashes[~is_locked]
    new = np.bincount(codes, minlength=len(names))
    numbers = np.column_stack([new, locked]).astype(np.uint64)
    lists = pa.ListArray.from_arrays(
        pa.array(np.concatenate([[0], np.cumsum(new)]), pa.int32()),
        pa.array(hashes[np.argsort(codes, kind="stable")]),
    )
    return (names, numbers), pa.RecordBatch.from_arrays([names, lists], schema=_PIECE)


def _buckets(classes: pa.StringArray) -> npt.NDArray[np.int64]:
    """Returns the bucket of each class: the first bits of its name's hash."""
    hashes = hash_texts(classes, "class", purpose="stratify")
    return (hashes >> np.uint64(64 - _BUCKET_BITS)).astype(np.int64)


def _share_out(parts: list[Segment], rule: SplitRule, store: Store) -> list[Segment]:
    """Stores how many rows of each class go to each split, in buckets of classes."""
    store.check_worker()
    splits = len(rule.names)
    counts = (unpack(store.get(piece), 1 + splits) for piece in parts)
    classes, quotas = share_out(sum_counts(counts, splits), rule.proportions())
    buckets = _buckets(classes)
    out = []
    for bucket in range(1 << _BUCKET_BITS):
        mine = np.flatnonzero(buckets == bucket)
        names, numbers = classes.take(pa.array(mine)), quotas[mine].astype(np.uint64)
        out.append(_put_numbers(store, "wanted\0", bucket, names, numbers))
    return out


def _cut(
    element: tuple[int, Iterable[Segment]],
    store: Store,
    wanted: list[Segment],
    rule: SplitRule,
) -> Segment:
    """Stores the bounds of the classes in one bucket."""
    store.check_worker()
    bucket, segments = element
    splits = len(rule.names)
    classes, numbers = unpack(store.get(wanted[bucket]), splits)
    pieces = [segment.deserialize(store.get(piece), _PIECE) for piece in segments]
    rows = pa.Table.from_batches(pieces)
    lists = rows["hashes"].combine_chunks()
    places = np.asarray(pc.index_in(rows["class"].combine_chunks(), value_set=classes))
    codes = np.repeat(places, np.asarray(lists.value_lengths()))
    hashes = np.asarray(lists.flatten())
    hashes = hashes[np.lexsort((hashes, codes))]
    thresholds = rule.thresholds() if rule.by_content else None
    bounds = cut_classes(hashes, numbers, thresholds)
    return _put_numbers(store, "bounds\0", bucket, classes, bounds)


def _join_strata(parts: list[Segment], store: Store, splits: int) -> Segment:
    """Stores the bounds of all buckets as one Strata, which becomes the side input."""
    store.check_worker()
    unpacked = [unpack(store.get(piece), splits - 1) for piece in parts]
    strata = Strata.of(unpacked, splits)
    return _put_numbers(store, "strata\0", 0, strata.classes, strata.bounds)


def _put_numbers(
    store: Store, origin: str, start: int, classes: pa.StringArray, numbers: UInt64s
) -> Segment:
    """Stores numbers for each class (rows a split, or bounds) as one segment."""
    (stored,) = store.put(origin, start, [(len(classes), pack(classes, numbers))])
    return stored
