"""Assign a split to every row of a batch, under any split rule.

A lock takes precedence over the rule; see `SplitSource` for the rules.

A unit of a lock, or of a table of ids, is identified by its 64-bit hash
(`transforms.core.placing.placement`, purpose LOCK); among ten million, the chance that
two share one is 3 in a million. As an Arrow table, rows ascend by hash and no hash
occurs twice:

    unit   uint64
    split  dictionary of strings, int16 indices

The schema's metadata names the format, its version and what the units are hashes of:
a lock of keys does not apply to rows that are identified by their place.
"""

import dataclasses
import json
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.json_text import parse_json
from transforms.core.model import Batch
from transforms.core.placing.placement import (
    LOCK,
    SPLIT,
    SplitRule,
    SplitSource,
    UInt64s,
    check_split_name,
    key_hashes,
    split_of_keys,
    unit_hashes,
)
from transforms.core.placing.strata import Strata
from transforms.errors import EncodingError, SpecError

Codes = npt.NDArray[np.int64]

_METADATA = b"beam-tfrecord"
_FORMAT = "splits of units"
_VERSION = 1
# What identifies rows that have neither key nor group.
CONTENT = "content"
PLACE = "row"
_IN_WORDS = {CONTENT: "their content", PLACE: "their place (file and row number)"}
# The index of a row that no split takes.
NOWHERE = -1


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Assignments:
    """Units and the split of each.

        >>> units, codes = np.array([9, 7], np.uint64), np.array([0, 1])
        >>> lock = Assignments.of(units, codes, names=("train", "test"), identity="row")
        >>> lock.units.tolist(), lock.find(np.array([7, 8], np.uint64)).tolist()
        ([7, 9], [1, -1])

    Attributes:
      units: n distinct hashes, ascending.
      codes: n indices into `names`.
      names: splits.
      identity: what the units are hashes of: `CONTENT`, `PLACE`, "key column id".
    """

    units: UInt64s
    codes: npt.NDArray[np.int16]
    names: tuple[str, ...]
    identity: str

    def __post_init__(self) -> None:
        for name in self.names:
            check_split_name(name)

    def __len__(self) -> int:
        return len(self.units)

    @classmethod
    def of(
        cls, units: UInt64s, codes: Codes, *, names: Sequence[str], identity: str
    ) -> "Assignments":
        """Sorts units; of a unit with several splits, the first name counts.

        Args:
          units: n hashes in any order.
          codes: n indices into `names`.
          names, identity: see the attributes.
        """
        order = np.lexsort((codes, units))
        units, narrow = units[order], codes[order].astype(np.int16)
        first = np.ones(len(units), bool)
        first[1:] = units[1:] != units[:-1]
        return cls(units[first], narrow[first], tuple(names), identity)

    def find(self, units: UInt64s) -> Codes:
        """Returns the index into `names` of each of n units; -1 for unknown ones."""
        if not len(self.units):
            return np.full(len(units), -1, np.int64)
        # Sorted look-ups walk the table once; in random order each misses the cache.
        order = np.argsort(units)
        asked = units[order]
        at = np.minimum(np.searchsorted(self.units, asked), len(self.units) - 1)
        codes = np.where(self.units[at] == asked, self.codes[at], -1)
        out = np.empty(len(units), np.int64)
        out[order] = codes
        return out

    def with_new(self, other: "Assignments") -> "Assignments":
        """Returns these units, and those of `other` that are not among them."""
        new = self.find(other.units) < 0
        names, code_map = _joined(self.names, other.names)
        return Assignments.of(
            np.concatenate([self.units, other.units[new]]),
            np.concatenate([self.codes, code_map[other.codes[new]]]),
            names=names,
            identity=self.identity,
        )

    def to_table(self) -> pa.Table:
        """Returns the table that the module describes."""
        facts = {"format": _FORMAT, "version": _VERSION, "identity": self.identity}
        splits = pa.DictionaryArray.from_arrays(
            pa.array(self.codes, pa.int16()), pa.array(self.names, pa.string())
        )
        columns = {"unit": pa.array(self.units, pa.uint64()), "split": splits}
        metadata = {_METADATA: json.dumps(facts, sort_keys=True).encode()}
        return pa.table(columns).replace_schema_metadata(metadata)

    @classmethod
    def from_table(cls, table: pa.Table, *, path: str) -> "Assignments":
        """Inverse of `to_table`; `path` is for messages.

        Raises:
          SpecError: the table has another format or a later version.
        """
        try:
            facts = parse_json((table.schema.metadata or {})[_METADATA])
            is_ours = facts["format"] == _FORMAT and facts["version"] == _VERSION
            units = np.asarray(table["unit"].combine_chunks())
            splits = table["split"].combine_chunks()
            codes = np.asarray(splits.indices)
            names = tuple(splits.dictionary.to_pylist())
            identity = str(facts["identity"])
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise _not_ours(path) from error
        inside = not len(codes) or 0 <= codes.min() <= codes.max() < len(names)
        rising = bool((units[1:] > units[:-1]).all())
        if not (is_ours and inside and rising and units.dtype == np.uint64):
            raise _not_ours(path)
        return cls(units, codes, names, identity)


def _joined(
    first: Sequence[str], others: Sequence[str]
) -> tuple[tuple[str, ...], Codes]:
    """Returns all names, and the index among them of each of the others."""
    names = tuple(dict.fromkeys((*first, *others)))
    return names, np.array([names.index(name) for name in others], np.int64)


def _not_ours(path: str) -> SpecError:
    """Returns the error of a split lock that no run of this version has written."""
    return SpecError(
        f"A split lock must be a file that an earlier run wrote; {path!r} is not one, "
        f"or of a later version. Name a file that does not exist to begin a new one."
    )


def check_lock(lock: Assignments, rule: SplitRule, *, identity: str, path: str) -> None:
    """Raises unless the splits of a lock apply under a rule.

    Args:
      lock: from `path`.
      rule: of this run.
      identity: what identifies rows in this run.
      path: for messages.

    Raises:
      SpecError: the lock identifies rows by something else, or has splits that the
        rule lacks.
    """
    if lock.identity != identity:
        ours, theirs = (_IN_WORDS.get(name, name) for name in (identity, lock.identity))
        advice = "Use the same key and group columns, or another lock."
        if {lock.identity, identity} <= _IN_WORDS.keys():
            advice = (
                "No row of it can be found by the other. Begin a new lock: name a file "
                "that does not exist; the splits are then those of the shares."
            )
        raise SpecError(
            f"The split lock {path!r} must know rows as this run does, by {ours}; it "
            f"was made of rows known by {theirs}. {advice}"
        )
    used = {lock.names[code] for code in np.unique(lock.codes).tolist()}
    strange = sorted(used - set(rule.names))
    if rule.is_closed and strange:
        raise SpecError(
            f"Every split of the split lock {path!r} must be one of {rule.names}; "
            f"found {strange[:5]}. Name them in --splits, or use another lock."
        )


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
    """

    names: tuple[str, ...]
    index: Codes


def split_rows(batch: Batch, rule: SplitRule, tables: SplitTables) -> Splits:
    """Returns the split of each of n rows.

    Raises:
      EncodingError: the rule needs what the batch or the tables do not have.
    """
    check_contents(batch, rule)
    splits = _by_rule(batch, rule, tables)
    if tables.lock is None or not len(tables.lock):
        return splits
    positions = tables.lock.find(unit_hashes(batch, purpose=LOCK))
    is_locked = positions >= 0
    if not is_locked.any():
        return splits
    names, code_map = _joined(splits.names, tables.lock.names)
    index = np.where(is_locked, code_map[positions], splits.index)
    return Splits(names, index)


def check_contents(batch: Batch, rule: SplitRule) -> None:
    """Raises EncodingError unless a batch has contents exactly if the rule needs them.

    Otherwise its rows would silently be split by another identity than the rest.
    """
    contents = batch.contents
    if rule.by_content != (contents is not None) or (
        contents is not None and len(contents) != batch.rows.num_rows
    ):
        expected = "the hash" if rule.by_content else "no hash"
        raise EncodingError(
            f"Every row must have {expected} of its content in this job; {batch.block} "
            f"differs. A step between reading and placing must keep it."
        )


def _by_rule(batch: Batch, rule: SplitRule, tables: SplitTables) -> Splits:
    """Returns the split of each row without the lock, which is asked later."""
    match rule.source:
        case SplitSource.SINGLE:
            return Splits(rule.names[:1], np.zeros(batch.rows.num_rows, np.int64))
        case SplitSource.SHARES:
            return Splits(rule.names, split_of_keys(_split_hashes(batch, rule), rule))
        case SplitSource.COLUMN:
            return _by_column(batch, rule)
        case SplitSource.TABLE:
            return _by_table(batch, rule, tables.table)
        case SplitSource.STRATIFIED:
            return _by_class(batch, rule, tables)


def _split_hashes(batch: Batch, rule: SplitRule) -> UInt64s:
    """Returns the hash of each row's group, or of itself, by which shares are cut."""
    return unit_hashes(batch, purpose=SPLIT, seed=rule.seed)


def _by_column(batch: Batch, rule: SplitRule) -> Splits:
    """Returns the splits that rows state; shares decide for rows without one."""
    given = batch.splits
    if given is None or (given.null_count and not rule.shares):
        raise EncodingError(
            f"Every row must carry its split; some of {batch.block} do not."
        )
    encoded = given.dictionary_encode()
    names = tuple(encoded.dictionary.to_pylist())
    index = encoded.indices.fill_null(NOWHERE).to_numpy().astype(np.int64)
    splits = Splits(names, index)
    return _filled(splits, batch, rule) if given.null_count else splits


def _by_table(batch: Batch, rule: SplitRule, table: Assignments | None) -> Splits:
    """Returns the splits that a table gives to keys; shares may decide for others."""
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
    names, code_map = _joined(splits.names, shared)
    by_shares = code_map[split_of_keys(_split_hashes(batch, rule), rule)]
    return Splits(names, np.where(splits.index < 0, by_shares, splits.index))


def _by_class(batch: Batch, rule: SplitRule, tables: SplitTables) -> Splits:
    """Returns the splits by shares that hold within the class of each row."""
    if tables.strata is None:
        raise EncodingError("A stratified split needs the classes to be counted first.")
    classes = batch.rows.column(rule.stratify_by).cast(pa.string())
    index = tables.strata.split_of(classes, _split_hashes(batch, rule))
    return Splits(rule.names, index)
