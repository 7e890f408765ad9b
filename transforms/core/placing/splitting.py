"""Assign a split to every row of a batch, under any split rule.

A lock takes precedence over the rule; see `SplitSource` for the rules.
"""

import dataclasses

import numpy as np
import numpy.typing as npt

from transforms.core.model import Batch
from transforms.core.placing.identity import LOCK, SPLIT, key_hashes, unit_hashes
from transforms.core.placing.placement import (
    SplitRule,
    SplitSource,
    UInt64s,
    split_of_keys,
)
from transforms.core.placing.split_lock import Assignments
from transforms.core.placing.strata import Strata, class_names
from transforms.errors import EncodingError

# The index of a row that no split takes.
NOWHERE = -1

Index = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, slots=True)
class SplitTables:
    """The tables in which a rule looks up rows.

        >>> keys = Assignments.of(
        ...     np.array([9, 7], np.uint64),
        ...     np.array([0, 1]),
        ...     names=("train", "test"),
        ...     identity="key column id",
        ... )
        >>> SplitTables(table=keys).table.find(np.array([7, 8], np.uint64))
        array([ 1, -1])

    Attributes:
      table: for TABLE, the splits of keys.
      strata: for STRATIFIED, where classes are cut.
      lock: the splits of earlier runs.
    """

    table: Assignments | None = None
    strata: Strata | None = None
    lock: Assignments | None = None


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Splits:
    """The splits of n rows.

    Three rows, the second of which no split takes:

        >>> splits = Splits(("train", "test"), np.array([1, NOWHERE, 0]))
        >>> [splits.names[i] for i in splits.index if i != NOWHERE]
        ['test', 'train']

    Attributes:
      names: splits that may occur.
      index: n indices into `names`, or `NOWHERE`.
      overruled: rows that a lock keeps in another split than the rule's.
    """

    names: tuple[str, ...]
    index: Index
    overruled: int = 0


def split_rows(batch: Batch, rule: SplitRule, tables: SplitTables) -> Splits:
    """Returns the split of each of n rows.

    Raises:
      EncodingError: the rule needs what the batch or the tables do not have.
    """
    check_contents(batch, rule)
    splits = _by_rule(batch, rule, tables)
    if tables.lock is None or not len(tables.lock):
        return splits
    found = tables.lock.find(unit_hashes(batch, purpose=LOCK))
    known = found >= 0
    if not known.any():
        return splits
    names = tuple(dict.fromkeys((*splits.names, *tables.lock.names)))
    place = np.array([names.index(name) for name in tables.lock.names])
    index = np.where(known, place[found], splits.index)
    # Strata are cut for the new rows alone, so they do not apply to rows of the lock.
    says_all = rule.source is not SplitSource.STRATIFIED
    overruled = int((index != splits.index).sum()) if says_all else 0
    return Splits(names, index, overruled)


def check_contents(batch: Batch, rule: SplitRule) -> None:
    """Raises EncodingError unless a batch has contents exactly if the rule needs them.

    Otherwise its rows would silently be split by another identity than the rest.
    """
    found = batch.contents
    if rule.by_content != (found is not None) or (
        found is not None and len(found) != batch.rows.num_rows
    ):
        wanted = "the hash" if rule.by_content else "no hash"
        raise EncodingError(
            f"Every row must have {wanted} of its content in this job; {batch.block} "
            f"differs. A step between reading and placing must keep it."
        )


def _by_rule(batch: Batch, rule: SplitRule, tables: SplitTables) -> Splits:
    match rule.source:
        case SplitSource.SINGLE:
            return Splits(rule.names[:1], np.zeros(batch.rows.num_rows, np.int64))
        case SplitSource.SHARES:
            return Splits(rule.names, split_of_keys(_hashes(batch, rule), rule))
        case SplitSource.COLUMN:
            return _by_column(batch, rule)
        case SplitSource.TABLE:
            return _by_table(batch, rule, tables.table)
        case SplitSource.STRATIFIED:
            return _by_class(batch, rule, tables)


def _hashes(batch: Batch, rule: SplitRule) -> UInt64s:
    return unit_hashes(batch, purpose=SPLIT, seed=rule.seed)


def _by_column(batch: Batch, rule: SplitRule) -> Splits:
    given = batch.splits
    if given is None or (given.null_count and not rule.shares):
        raise EncodingError(
            f"Every row must carry its split; some of {batch.block} do not."
        )
    encoded = given.dictionary_encode()
    names = tuple(encoded.dictionary.to_pylist())
    if not given.null_count:
        return Splits(names, encoded.indices.to_numpy().astype(np.int64))
    index = encoded.indices.fill_null(NOWHERE).to_numpy().astype(np.int64)
    return _filled(Splits(names, index), batch, rule)


def _by_table(batch: Batch, rule: SplitRule, table: Assignments | None) -> Splits:
    if batch.keys is None or table is None:
        raise EncodingError(
            f"A split by a table of ids needs the table and the key of every row; "
            f"{batch.block} came without."
        )
    index = table.find(key_hashes(batch.keys))
    splits = Splits(table.names, index)
    return _filled(splits, batch, rule) if rule.shares else splits


def _filled(splits: Splits, batch: Batch, rule: SplitRule) -> Splits:
    """Assigns rows without a split by the rule's shares."""
    shared = rule.names[: len(rule.shares)]
    names = tuple(dict.fromkeys((*splits.names, *shared)))
    place = np.array([names.index(name) for name in shared])
    by_shares = place[split_of_keys(_hashes(batch, rule), rule)]
    return Splits(names, np.where(splits.index < 0, by_shares, splits.index))


def _by_class(batch: Batch, rule: SplitRule, tables: SplitTables) -> Splits:
    if tables.strata is None:
        raise EncodingError("A stratified split needs the classes to be counted first.")
    classes = class_names(batch.rows.column(rule.stratify_by))
    index = tables.strata.split_of(classes, _hashes(batch, rule))
    return Splits(rule.names, index)
