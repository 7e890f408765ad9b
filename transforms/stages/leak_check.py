"""The stage `leak_check`: rows and images in two splits, and the next split lock."""

import collections
import dataclasses
import itertools
from collections.abc import Sequence

import apache_beam as beam
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core import segment
from transforms.core.placing.hashes import UInt64s
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
from transforms.core.placing.splitting import Assignments, usual_order
from transforms.shards.shard_job import repeated_key
from transforms.stages.job_plan import JobPlan, LeakRule, PlanInput, Stage
from transforms.work.split_tables import (
    assignments_table,
    new_lock_in,
    open_assignments,
    write_table,
)
from transforms.work.store import Store

# How many leaks are shown, and how many places of each.
_EXAMPLES = 20
_PLACES_EACH = 5
# Keys that share a fingerprint and are compared.
_COMPARED = 1_000


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
