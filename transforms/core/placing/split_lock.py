"""The splits that units already have, from a split lock or a table of ids.

A unit is identified by its 64-bit hash (`transforms.core.placing.identity`, purpose
LOCK); among ten million, the chance that two share one is 3 in a million. As an Arrow
table, rows ascend by hash and no hash occurs twice:

    unit   uint64
    split  dictionary of strings, int16 indices
    key    string; only in a table of ids that a job keeps for its own reports

The schema's metadata names the format, its version and what the units are hashes of:
a lock of keys does not apply to rows that are identified by their place.
"""

import dataclasses
import json
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.nesting import parse_json
from transforms.core.placing.placement import SplitRule, UInt64s, check_split_name
from transforms.errors import SpecError

Codes = npt.NDArray[np.int64]

_METADATA = b"beam-tfrecord"
_FORMAT = "splits of units"
_VERSION = 1
# What identifies rows that have neither key nor group.
CONTENT = "content"
PLACE = "row"
_IN_WORDS = {CONTENT: "their content", PLACE: "their place (file and row number)"}


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Assignments:
    """Units and the split of each.

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
        names = tuple(dict.fromkeys((*self.names, *other.names)))
        place = np.array([names.index(name) for name in other.names], np.int64)
        codes = place[other.codes[new]] if len(place) else np.zeros(0, np.int64)
        return Assignments.of(
            np.concatenate([self.units, other.units[new]]),
            np.concatenate([self.codes, codes]),
            names=names,
            identity=self.identity,
        )

    def to_table(self, keys: pa.StringArray | None = None) -> pa.Table:
        """Returns the table that the module describes; `keys` in its order."""
        facts = {"format": _FORMAT, "version": _VERSION, "identity": self.identity}
        splits = pa.DictionaryArray.from_arrays(
            pa.array(self.codes, pa.int16()), pa.array(self.names, pa.string())
        )
        columns = {"unit": pa.array(self.units, pa.uint64()), "split": splits}
        if keys is not None:
            columns["key"] = keys
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
            known = facts["format"] == _FORMAT and facts["version"] == _VERSION
            units = np.asarray(table["unit"].combine_chunks())
            splits = table["split"].combine_chunks()
            codes = np.asarray(splits.indices)
            names = tuple(splits.dictionary.to_pylist())
            identity = str(facts["identity"])
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise _not_ours(path) from error
        inside = not len(codes) or 0 <= codes.min() <= codes.max() < len(names)
        rising = bool((units[1:] > units[:-1]).all())
        if not (known and inside and rising and units.dtype == np.uint64):
            raise _not_ours(path)
        return cls(units, codes, names, identity)


def _not_ours(path: str) -> SpecError:
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
        ours, theirs = (_IN_WORDS.get(each, each) for each in (identity, lock.identity))
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
