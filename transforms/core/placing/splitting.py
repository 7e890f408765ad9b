"""Splits: their names, the rule by which rows fall into them, and the split of a row.

A lock takes precedence over the rule; see `SplitSource` for the rules.

A unit of a lock, or of a table of ids, is identified by its 64-bit hash
(`transforms.core.placing.hashes`, purpose LOCK); among ten million, the chance that two
share one is 3 in a million.
"""

import dataclasses
import enum
import fractions
import re
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.model import Batch
from transforms.core.placing.hashes import (
    LOCK,
    SPLIT,
    UInt64s,
    key_hashes,
    unit_hashes,
)
from transforms.core.placing.strata import Strata
from transforms.errors import EncodingError, SpecError

Codes = npt.NDArray[np.int64]

_SPLIT_NAME = re.compile(r"[A-Za-z0-9_-]+")

# What identifies rows that have neither key nor group.
CONTENT = "content"
PLACE = "row"
# The index of a row that no split takes.
NOWHERE = -1


def is_split_name(name: str) -> bool:
    """Whether every reader accepts the name of a split.

    TFDS gives "all" and most punctuation a meaning of their own.
    """
    return bool(_SPLIT_NAME.fullmatch(name)) and name != "all"


def check_split_name(name: str) -> str:
    """Returns the name; raises SpecError if some reader does not accept it."""
    if not is_split_name(name):
        raise SpecError(
            f"A split is named by letters, digits, '_' and '-', and not 'all'; "
            f"found {name!r}. Rename it."
        )
    return name


_USUAL = (
    ("train", "training"),
    ("validation", "valid", "val", "dev"),
    ("test", "eval"),
)


def is_validation(name: str) -> bool:
    """Whether a split's name says that models are validated with it."""
    return name.lower() in _USUAL[1]


def usual_order(names: Iterable[str]) -> list[str]:
    """Returns split names in the usual order: training, validation, test, others."""
    ranks = {word: rank for rank, words in enumerate(_USUAL) for word in words}
    return sorted(names, key=lambda n: (ranks.get(n.lower(), len(_USUAL)), n))


class SplitSource(enum.StrEnum):
    """What decides a row's split.

    Except under STRATIFIED, rows that are added later never move earlier ones.
    """

    SINGLE = "single"
    # The split hash of the row's group, key, content or place.
    SHARES = "shares"
    # The source's own word: a column, a folder.
    COLUMN = "column"
    # A table of keys and splits.
    TABLE = "table"
    # The split hash, among the rows of the same class.
    STRATIFIED = "stratified"


_ALL_SHARED = (SplitSource.SHARES, SplitSource.STRATIFIED)


@dataclasses.dataclass(frozen=True, slots=True)
class SplitRule:
    """How rows fall into splits.

        >>> rule = SplitRule(SplitSource.SHARES, ("train", "test"), ("3", "1"))
        >>> [str(share) for share in rule.proportions()]
        ['3/4', '1/4']

    Attributes:
      source: SINGLE: all rows into `names[0]`; SHARES: by hash, in the proportions
        of `shares`; COLUMN: by the value in the batch (a column of a table, a folder
        of a tree), a null by `shares`; TABLE: by the row's key in a table, a key that
        the table lacks by `shares`, or without shares the row is rejected;
        STRATIFIED: in the proportions of `shares` in every class of `stratify_by`.
      names: the splits, in order; for COLUMN those that were seen when planning.
      shares: one positive share for each of the first names, for all of them with
        SHARES and STRATIFIED; they need not sum to one.
      seed: of the split hash; independent of the order's.
      stratify_by: for STRATIFIED, the feature that holds a row's class.
      by_content: whether shares go by the content of a row, which its batch must
        have; otherwise by its group, key or place.
    """

    source: SplitSource = SplitSource.SINGLE
    names: tuple[str, ...] = ("train",)
    shares: tuple[str, ...] = ()
    seed: int = 0
    stratify_by: str = ""
    by_content: bool = False

    def __post_init__(self) -> None:
        for name in self.names:
            check_split_name(name)
        if (len(self.names) != len(self.shares) and self.source in _ALL_SHARED) or (
            len(self.names) < len(self.shares)
        ):
            raise SpecError("Every split needs a share, as in train=0.9,test=0.1.")

    @property
    def is_closed(self) -> bool:
        """Whether rows can only fall into the splits of `names`."""
        return self.source is not SplitSource.COLUMN

    def proportions(self) -> list[fractions.Fraction]:
        """Returns the shares, summing to one."""
        parts = [fractions.Fraction(share) for share in self.shares]
        return [fraction / sum(parts) for fraction in parts]

    def thresholds(self) -> UInt64s:
        """Returns the upper bounds of all splits but the last, as 64-bit hashes."""
        parts = self.proportions()
        bounds = [sum(parts[: i + 1]) for i in range(len(parts) - 1)]
        return np.array([int(bound * 2**64) for bound in bounds], np.uint64)


def split_of_keys(keys: UInt64s, rule: SplitRule) -> npt.NDArray[np.int64]:
    """Returns each row's index into `rule.names`, for a rule with shares."""
    return np.searchsorted(rule.thresholds(), keys, side="right")


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


def _joined(
    first: Sequence[str], others: Sequence[str]
) -> tuple[tuple[str, ...], Codes]:
    """Returns the names of splits, and the index among them of each of the others."""
    names = tuple(dict.fromkeys((*first, *others)))
    return names, np.array([names.index(name) for name in others], np.int64)


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

    def filled(self, others: "Splits") -> "Splits":
        """Returns these splits, and those of `others` for rows without one."""
        names, code_map = _joined(self.names, others.names)
        # The last element is that of `NOWHERE`.
        codes = np.append(code_map, NOWHERE)[others.index]
        return Splits(names, np.where(self.index < 0, codes, self.index))


def split_rows(batch: Batch, rule: SplitRule, tables: SplitTables) -> Splits:
    """Returns the split of each of n rows.

    Raises:
      EncodingError: the rule needs what the batch or the tables do not have.
    """
    check_contents(batch, rule)
    splits, lock = _by_rule(batch, rule, tables), tables.lock
    if lock is None or not len(lock):
        return splits
    locked = Splits(lock.names, lock.find(unit_hashes(batch, purpose=LOCK)))
    return locked.filled(splits) if (locked.index >= 0).any() else splits


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
            return _by_shares(batch, rule)
        case SplitSource.COLUMN:
            return _by_column(batch, rule)
        case SplitSource.TABLE:
            return _by_table(batch, rule, tables.table)
        case SplitSource.STRATIFIED:
            return _by_class(batch, rule, tables)


def _by_shares(batch: Batch, rule: SplitRule) -> Splits:
    """Returns the splits that shares give, by the hashes of rows or their groups."""
    hashes = unit_hashes(batch, purpose=SPLIT, seed=rule.seed)
    return Splits(rule.names[: len(rule.shares)], split_of_keys(hashes, rule))


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
    return splits.filled(_by_shares(batch, rule)) if given.null_count else splits


def _by_table(batch: Batch, rule: SplitRule, table: Assignments | None) -> Splits:
    """Returns the splits that a table gives to keys; shares may decide for others."""
    if batch.keys is None or table is None:
        raise EncodingError(
            f"A split by a table of ids needs the table and the key of every row; "
            f"{batch.block} came without."
        )
    splits = Splits(table.names, table.find(key_hashes(batch.keys)))
    return splits.filled(_by_shares(batch, rule)) if rule.shares else splits


def _by_class(batch: Batch, rule: SplitRule, tables: SplitTables) -> Splits:
    """Returns the splits by shares that hold within the class of each row."""
    if tables.strata is None:
        raise EncodingError("A stratified split needs the classes to be counted first.")
    classes = batch.rows.column(rule.stratify_by).cast(pa.string())
    hashes = unit_hashes(batch, purpose=SPLIT, seed=rule.seed)
    return Splits(rule.names, tables.strata.split_of(classes, hashes))
