"""The stages `stratify` and `leak_check`: what splits need before rows, and after.

stratify      all batches, read beforehand -> where each class is cut
              batch -> Segment of rows by class, Segment of hashes by class
              all of these -> rows by class and split -> bounds
leak_check    fingerprints -> rows and images in two splits, and the next split lock

Stratifying reads what `place` will read again: batches never wait for the answer, only
blocks.
"""

import collections
import dataclasses
import itertools
from collections.abc import Iterator, Sequence

import apache_beam as beam
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core import segment
from transforms.core.arrays import return_freed_memory
from transforms.core.model import Batch, Block
from transforms.core.placing.hashes import LOCK, SPLIT, UInt64s, unit_hashes
from transforms.core.placing.leakage import (
    FINGERPRINT_SCHEMA,
    Fingerprints,
    Leaks,
    Place,
    Shared,
    SplitFindings,
    Subject,
    find_shared,
)
from transforms.core.placing.splitting import (
    Assignments,
    SplitRule,
    check_contents,
    usual_order,
)
from transforms.core.placing.strata import (
    ClassCounts,
    cut_classes,
    pack,
    share_out,
    sum_counts,
    unpack,
)
from transforms.core.segment import Segment
from transforms.shards.shard_job import repeated_key
from transforms.stages.job_plan import JobPlan, LeakRule, PlanInput, Stage
from transforms.work.split_tables import (
    assignments_table,
    new_lock_in,
    open_assignments,
    write_table,
)
from transforms.work.store import Store

# Of a batch: its rows by class, and their hashes by class.
_Hashed = tuple[Segment, Segment]
_PIECE = pa.schema([("class", pa.string()), ("hashes", pa.list_(pa.uint64()))])
# How many leaks are shown, and how many places of each.
_EXAMPLES = 20
_PLACES_EACH = 5
# Keys that share a fingerprint and are compared.
_COMPARED = 1_000


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


@dataclasses.dataclass
class CheckLeaks(Stage):
    """Finds rows and images in two splits, and writes the next split lock.

    Input: the Fingerprints of all batches and shards. Output: one SplitFindings, or
    none where the plan asks for nothing. A retry writes the same lock again. Memory: 25
    bytes a row in one worker, 50 with a lock.

    Attributes:
      plan: of the job; it says what is asked.
    """

    plan: PlanInput

    def expand(
        self, found: beam.PCollection[Fingerprints]
    ) -> beam.PCollection[SplitFindings]:
        """Gathers all descriptors in one place."""
        return (
            found
            | "Gather fingerprints" >> beam.combiners.ToList()
            | "Check leaks" >> beam.FlatMap(_check_leaks_of_job, self.plan)
        )


def _check_leaks_of_job(
    found: list[Fingerprints], plan: JobPlan
) -> list[SplitFindings]:
    """Returns what the leak check finds, in a list; empty where none is asked for."""
    plan.store.check_worker()
    if plan.leaks is None:
        return []
    return [check_leaks(found, plan.leaks, plan.store, lock=plan.lock)]


def check_leaks(
    found: Sequence[Fingerprints], rule: LeakRule, store: Store, *, lock: str = ""
) -> SplitFindings:
    """Returns what the fingerprints of a whole job say; writes the next lock.

    Args:
      found: in any order.
      rule: what is asked.
      store: where fingerprints are, and where the lock is written.
      lock: path of the splits that earlier runs gave; empty for none.

    Raises:
      InputError: a key is in two splits, where that is refused.
    """
    found = sorted(
        found, key=lambda f: (f.subject, f.segment.origin, f.segment.start, f.splits)
    )
    units = [prints for prints in found if prints.subject is Subject.UNIT]
    images = [prints for prints in found if prints.subject is Subject.IMAGE]
    leaks = []
    names, values, splits = _gather(units, store)
    if units and rule.keyed:
        shared = find_shared(values, splits, count=len(names))
        if rule.unique:
            _check_keys(units, shared, store)
        else:
            leaks.append(_leaks_of(Subject.UNIT, shared, units, names, store))
    if rule.make_lock:
        given = Assignments.of(
            values, splits.astype(np.int64), names=names, identity=rule.identity
        )
        if lock:
            given = open_assignments(lock).with_new(given)
        path = new_lock_in(store)
        write_table(assignments_table(given), path, attempts=store.attempts)
        del given
    del values, splits
    if images:
        names, values, splits = _gather(images, store)
        shared = find_shared(values, splits, count=len(names))
        leaks.append(_leaks_of(Subject.IMAGE, shared, images, names, store))
    return SplitFindings(tuple(leaks))


def _check_keys(units: Sequence[Fingerprints], shared: Shared, store: Store) -> None:
    """Raises InputError where rows of one key are in two splits.

    Their origins are their keys, and are compared: two keys may have one hash.
    """
    places = _by_value(units, shared, store, _COMPARED)
    splits: dict[str, set[str]] = collections.defaultdict(set)
    for place in itertools.chain.from_iterable(places.values()):
        splits[place.origin].add(place.split)
    twice = [key for key, names in splits.items() if len(names) > 1]
    if twice:
        raise repeated_key(min(twice), len(twice), "in two splits")


def _gather(
    found: Sequence[Fingerprints], store: Store
) -> tuple[tuple[str, ...], UInt64s, npt.NDArray[np.int16]]:
    """Returns the names of the splits, and the fingerprint and split of each item."""
    names = tuple(usual_order({name for prints in found for name in prints.splits}))
    total = sum(prints.segment.rows for prints in found)
    values, splits = np.empty(total, np.uint64), np.empty(total, np.int16)
    at = 0
    for prints in found:
        rows = segment.deserialize(store.get(prints.segment), FINGERPRINT_SCHEMA)
        span = slice(at, at + rows.num_rows)
        values[span] = np.asarray(rows["fingerprint"])
        indices = np.array([names.index(name) for name in prints.splits], np.int16)
        splits[span] = indices[np.asarray(rows["split"])]
        at += rows.num_rows
    return names, values, splits


def _by_value(
    found: Sequence[Fingerprints], shared: Shared, store: Store, limit: int
) -> dict[int, list[Place]]:
    """Returns the sorted places of the first `limit` shared fingerprints."""
    if not len(shared.values):
        return {}
    few = Shared(shared.values[:limit], shared.table[:limit])
    places: dict[int, list[Place]] = collections.defaultdict(list)
    for prints in found:
        rows = segment.deserialize(store.get(prints.segment), FINGERPRINT_SCHEMA)
        is_shared = few.contains(np.asarray(rows["fingerprint"]))
        for row in rows.filter(pa.array(is_shared)).to_pylist():
            origin = row["origin"] or prints.segment.origin
            place = Place(prints.splits[row["split"]], origin, row["row"])
            places[row["fingerprint"]].append(place)
    return {value: sorted(places[value]) for value in sorted(places)}


def _leaks_of(
    subject: Subject,
    shared: Shared,
    found: Sequence[Fingerprints],
    names: tuple[str, ...],
    store: Store,
) -> Leaks:
    """Returns the leaks of shared fingerprints, with some places of each to show."""
    places = _by_value(found, shared, store, _EXAMPLES)
    return Leaks(
        subject,
        items=len(shared.values),
        pairs=shared.pairs(names),
        examples=tuple(_some(group) for group in places.values()),
    )


def _some(places: Sequence[Place]) -> tuple[Place, ...]:
    """Returns a few places; at least one of every split if there is room."""
    first: dict[str, Place] = {}
    for place in places:
        first.setdefault(place.split, place)
    others = [place for place in places if place is not first[place.split]]
    return tuple(sorted([*first.values(), *others][:_PLACES_EACH]))
