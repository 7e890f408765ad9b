"""Evidence for inferred features, and what is decided by all of it.

    evidence of parts -> merge -> evidence of a column -> inference: label and policy

`texts` and `typed` give the evidence of a column in their own ways; from there on both
take the same way.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import is_list
from transforms.core.infer.near_kind import NearKind
from transforms.core.rows.float32 import FLOAT32_EXACT, FLOAT32_MAX, LargeNumbers
from transforms.core.schema import Feature, InexactIntegers, Kind

EXAMPLES = 3
"""How many example values a message shows."""

# The least and the largest of some numbers; None, None of no numbers.
Extent: TypeAlias = tuple[int | float | None, int | float | None]


@dataclasses.dataclass(frozen=True, slots=True)
class Evidence:
    """What a feature's kind was inferred from.

    Attributes:
      sampled: number of cells that were looked at.
      missing: number of cells without a value, for a feature of this kind.
      misfits: number of cells that do not fit the kind: their rows would be rejected.
      minimum: of the numbers that fit, without NaN and infinities; None for no number.
      maximum: likewise.
      examples: the first distinct values, shortened.
      misfit_examples: the first distinct values that do not fit, shortened.
      distinct: for a label, the number of class names; None if they were not counted.
      large, told_apart: for a float, the number of distinct values of 2^24 and more
        that were compared, and the number of distinct float32 values they become.
      whole: for a float of a typed source, whether all numbers are whole and inside
        int64.
      numbers: the large numbers of a float; None once `inference` has used them.
      near: the kind that most cells have, where other cells prevent it.
      few: for text, the number of distinct texts if they are few; else 0.
      remark: for a typed source, what its type means for the feature.
    """

    sampled: int
    missing: int
    misfits: int
    minimum: int | float | None
    maximum: int | float | None
    examples: tuple[str, ...]
    misfit_examples: tuple[str, ...]
    distinct: int | None = None
    large: int = 0
    told_apart: int = 0
    whole: bool = False
    numbers: LargeNumbers | None = None
    near: NearKind | None = None
    few: int = 0
    remark: str = ""

    def merge(self, other: "Evidence") -> "Evidence":
        """Returns the evidence of both parts, with the examples of the first."""
        low, high = wider((self.minimum, self.maximum), (other.minimum, other.maximum))
        numbers = self.numbers or other.numbers
        if self.numbers is not None and other.numbers is not None:
            numbers = self.numbers.merge(other.numbers)
        return Evidence(
            self.sampled + other.sampled,
            self.missing + other.missing,
            self.misfits + other.misfits,
            low,
            high,
            self.examples or other.examples,
            self.misfit_examples or other.misfit_examples,
            whole=self.whole and other.whole,
            numbers=numbers,
            remark=self.remark,
        )

    @property
    def present(self) -> float:
        """The share of sampled cells that hold a value; 0 if there are no cells."""
        return (self.sampled - self.missing) / self.sampled if self.sampled else 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class Inference:
    """The features of a source, and for each the evidence, in the same order."""

    features: tuple[Feature, ...]
    evidence: tuple[Evidence, ...]


Found: TypeAlias = tuple[Feature, Evidence]
"""A feature as one column alone suggests it, and the evidence."""


def inference(found: Mapping[str, Found], label_column: str | None) -> Inference:
    """Returns the features of a source, decided by all of their evidence.

    Args:
      found: column to what it suggests, in the source's order.
      label_column: the column to predict, if there is one. It becomes a label if it is
        text, and keeps its kind otherwise.
    """
    features, evidence = [], []
    for name, (feature, facts) in found.items():
        if name == label_column:
            is_text = feature.kind is Kind.TEXT and not feature.shape
            kind = Kind.LABEL if is_text else feature.kind
            feature = dataclasses.replace(feature, kind=kind, is_label=True)
        feature, facts = _with_policy(*_with_large_integers(feature, facts))
        features.append(feature)
        evidence.append(facts)
    return Inference(tuple(features), tuple(evidence))


def _with_large_integers(feature: Feature, evidence: Evidence) -> Found:
    """Returns int64 in place of a float64 column of whole numbers beyond 2^24."""
    least, most = evidence.minimum, evidence.maximum
    if not evidence.whole or least is None or most is None:
        return feature, evidence
    if max(-least, most) <= FLOAT32_EXACT:
        return feature, evidence
    evidence = dataclasses.replace(evidence, minimum=int(least), maximum=int(most))
    return dataclasses.replace(feature, kind=Kind.INT64), evidence


def _with_policy(feature: Feature, evidence: Evidence) -> Found:
    """Returns a float with its policy on large whole numbers, and its evidence."""
    numbers = evidence.numbers
    if numbers is None:
        return feature, evidence
    if feature.kind is not Kind.FLOAT:
        return feature, dataclasses.replace(evidence, numbers=None)
    large, apart = numbers.told_apart()
    misfits, examples = evidence.misfits, evidence.misfit_examples
    if numbers.policy is InexactIntegers.REJECT:
        misfits += numbers.unheld
        distinct = dict.fromkeys((*examples, *numbers.examples))
        examples = tuple(distinct)[:EXAMPLES]
    evidence = dataclasses.replace(
        evidence,
        misfits=misfits,
        misfit_examples=examples,
        large=large,
        told_apart=apart,
        numbers=None,
    )
    return dataclasses.replace(feature, inexact_integers=numbers.policy), evidence


def extent_of(values: pa.Array) -> Extent:
    """Returns the least and the largest number; None, None of no numbers.

    NaN, infinities and what is beyond float32 do not count.

    Args:
      values: numbers, or lists of them; values of another type are no numbers.
    """
    while is_list(values.type):
        values = values.flatten()
    if pa.types.is_floating(values.type):
        # False of NaN, too.
        values = values.filter(pc.less_equal(pc.abs(values), FLOAT32_MAX))
    elif not pa.types.is_integer(values.type):
        return None, None
    found = pc.min_max(values).as_py()
    return found["min"], found["max"]


def wider(a: Extent, b: Extent) -> Extent:
    """Returns the extent of the numbers of both."""
    least = [n for n in (a[0], b[0]) if n is not None]
    most = [n for n in (a[1], b[1]) if n is not None]
    return min(least, default=None), max(most, default=None)


def first_distinct(
    values: Iterable[pa.Scalar], text: Callable[[pa.Scalar], str]
) -> tuple[str, ...]:
    """Returns the first distinct values as texts; nulls are passed over."""
    distinct: dict[str, None] = {}
    for value in values:
        if value.is_valid:
            distinct[text(value)] = None
        if len(distinct) == EXAMPLES:
            break
    return tuple(distinct)
