"""The kind that a text column almost has, and the texts that prevent it."""

import collections
import dataclasses

import numpy as np
import pyarrow as pa

from transforms.core.rows.coerce import trimmed
from transforms.core.schema import Kind

# Cells of each piece that are counted: enough to find frequent texts, and cheap.
_LOOKED_AT = 4096
# The most frequent texts of each piece that are kept.
_KEPT = 16
_MOST_CHARS = 40
# Distinct texts are few if each occurs this often on average, and up to this many.
_REPEATS = 10
_FEW = 20
# Percent of cells that must have a kind for it to be near: where the texts in its way
# are few, a person can name them as null values; where they are many, only 9 of 10
# cells of the kind suggest that it was meant.
_NEAR_IN_100, _NEAR_BUT_FOR_MANY_IN_100 = 50, 90
_MOST_STOPS = 4
_BOOLS = frozenset(["true", "false"])


@dataclasses.dataclass(frozen=True, slots=True)
class NearKind:
    """A kind that most cells of a column have, and the texts that prevent it.

    Attributes:
      kind: int64, float or bool.
      share: of the kind, among the cells that are not missing; below 1.
      stops: the most frequent other texts, and how often each occurs.
      alone: whether `stops` has all of them.
    """

    kind: Kind
    share: float
    stops: tuple[tuple[str, int], ...]
    alone: bool


class Texts:
    """Counts the texts among the first cells of each piece of a column."""

    def __init__(self) -> None:
        self._counts: collections.Counter[str] = collections.Counter()
        self._cells = 0
        self._many = False

    def add(self, texts: pa.StringArray) -> None:
        """Adds texts that are not numbers, without nulls."""
        part = trimmed(texts.slice(0, _LOOKED_AT))
        found = part.value_counts()
        self._cells += len(part)
        if len(found) > _KEPT:
            self._many = True
            order = np.argsort(-found.field("counts").to_numpy(), kind="stable")
            found = found.take(pa.array(order[:_KEPT]))
        pairs = (found.field(name).to_pylist() for name in ("values", "counts"))
        for text, count in zip(*pairs, strict=True):
            if len(text) > _MOST_CHARS:
                self._many = True
            else:
                self._counts[text] += count

    @property
    def few(self) -> int:
        """The number of distinct texts, if they are few; else 0."""
        count = len(self._counts)
        many = self._many or count > _FEW or count * _REPEATS > self._cells
        return 0 if many else count

    def near_number(self, kind: Kind, share: float) -> NearKind | None:
        """Returns the kind of the column's numbers, if they outnumber these texts."""
        return _near(kind, share, self._counts, self._many)

    def near_bool(self) -> NearKind | None:
        """Returns bool if most of these texts are true or false."""
        bools = {text for text in self._counts if text.lower() in _BOOLS}
        count = sum(self._counts[text] for text in bools)
        others = {t: n for t, n in self._counts.items() if t not in bools}
        if not count or self._many:
            return None
        return _near(Kind.BOOL, count / self._cells, others, False)


def _near(
    kind: Kind, share: float, counts: dict[str, int], many: bool
) -> NearKind | None:
    stops = sorted(counts.items(), key=lambda item: -item[1])
    alone = not many and len(stops) <= _MOST_STOPS
    least = _NEAR_IN_100 if alone else _NEAR_BUT_FOR_MANY_IN_100
    if not stops or share * 100 < least:
        return None
    return NearKind(kind, share, tuple(stops[:_MOST_STOPS]), alone)
