"""The stage `stratify`: all batches, read beforehand -> where each class is cut.

    batch -> Segment of rows by class, Segment of hashes by class
    all of these -> rows by class and split -> bounds

It reads what `place` will read again: batches never wait for the answer, only blocks.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core import segment
from transforms.core.arrays import return_freed_memory
from transforms.core.model import Batch, Block
from transforms.core.placing.hashes import LOCK, SPLIT, unit_hashes
from transforms.core.placing.splitting import Assignments, SplitRule, check_contents
from transforms.core.placing.strata import (
    ClassCounts,
    cut_classes,
    pack,
    share_out,
    sum_counts,
    unpack,
)
from transforms.core.segment import Segment
from transforms.stages.job_plan import Stage
from transforms.work.split_tables import open_assignments
from transforms.work.store import Store

# Of a batch: its rows by class, and their hashes by class.
_Hashed = tuple[Segment, Segment]
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
    classes again and again. A retry writes the same files again. Memory: 28 bytes a
    row in one worker, and the names of the classes of each batch. Counters:
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
        return (
            batches
            | "Hash classes" >> beam.ParDo(_HashClasses(self.rule, store, self.lock))
            | "Gather hashes" >> beam.combiners.ToList()
            | "Cut classes" >> beam.Map(_cut, self.rule, store)
        )


class _HashClasses(beam.DoFn):
    """Stores the hashes of each class of a batch, and counts its rows."""

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

    def process(self, batch: Batch) -> Iterator[_Hashed]:
        batch.check()
        if not batch.rows.num_rows:
            return
        counts, rows = hash_classes(batch, self.rule, self.lock)
        self.rows_counted.inc(batch.rows.num_rows)
        summed, hashed = self.store.put(
            f"classes\0{batch.block.origin}",
            batch.block.start,
            [
                (len(counts[0]), pack(*counts)),
                (rows.num_rows, rows.serialize()),
            ],
        )
        yield summed, hashed


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


def _cut(parts: Sequence[_Hashed], rule: SplitRule, store: Store) -> Segment:
    """Stores the bounds of all classes as one Strata, which becomes the side input."""
    store.check_worker()
    splits = len(rule.names)
    counts = (unpack(store.get(summed), 1 + splits) for summed, _ in parts)
    classes, wanted = share_out(sum_counts(counts, splits), rule.proportions())
    # That took several times what the hashes will.
    return_freed_memory()
    pieces = [segment.deserialize(store.get(hashed), _PIECE) for _, hashed in parts]
    rows = pa.Table.from_batches(pieces, _PIECE)
    # Chunk by chunk: the names of all batches may be more than Arrow has in one array.
    places = np.asarray(pc.index_in(rows["class"], value_set=classes))
    codes = np.repeat(places, np.asarray(pc.list_value_length(rows["hashes"])))
    hashes = np.asarray(pc.list_flatten(rows["hashes"]))
    del pieces, rows, places
    hashes = hashes[np.lexsort((hashes, codes))]
    thresholds = rule.thresholds() if rule.by_content else None
    strata = pack(classes, cut_classes(hashes, wanted, thresholds))
    (stored,) = store.put("strata\0", 0, [(len(classes), strata)])
    return stored
