"""Which kind of feature each column of text is, from a sample of its cells.

    every cell true or false                            -> bool
    99 of 100 cells decimal numbers, none like 007      -> int64 if all those are whole
                                                           numbers, else float
    anything else, dates included                       -> text; a label's is a label

Missing cells do not count. NA and its like are missing only where the other cells are
numbers or bools: a column of nothing else is text, and NA a class like any other.
"""

import dataclasses
import difflib
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.coerce import (
    ZERO_LED,
    Coerced,
    coerce,
    trimmed,
    without_missing,
)
from transforms.core.schema import Feature, Kind
from transforms.errors import SpecError

__all__ = ["Evidence", "Inference", "infer_features"]

# Of 100 cells of a numeric column, so many at least are numbers.
_NUMBERS_IN_100 = 99
_EXAMPLES = 3
_EXAMPLE_CHARS = 40


@dataclasses.dataclass(frozen=True, slots=True)
class Evidence:
    """What a feature's kind was inferred from.

    Attributes:
      sampled: how many cells were looked at.
      missing: how many of them hold no value, for a feature of this kind.
      misfits: how many of them do not fit the kind: their rows would be rejected.
      minimum: of the numbers that fit, without NaN and infinities; None for no number.
      maximum: likewise.
      examples: the first distinct values, shortened.
      misfit_examples: the first distinct values that do not fit, shortened.
    """

    sampled: int
    missing: int
    misfits: int
    minimum: int | float | None
    maximum: int | float | None
    examples: tuple[str, ...]
    misfit_examples: tuple[str, ...]

    @property
    def present(self) -> float:
        """The share of sampled cells that hold a value; 0 of none."""
        return (self.sampled - self.missing) / self.sampled if self.sampled else 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class Inference:
    """The features of a source, and for each the evidence, in the same order."""

    features: tuple[Feature, ...]
    evidence: tuple[Evidence, ...]


def infer_features(
    columns: Mapping[str, pa.ChunkedArray | pa.StringArray],
    *,
    label_column: str | None = None,
) -> Inference:
    """Returns a feature for each column of text, in the mapping's order.

    Args:
      columns: name to texts; null where the cell is blank and not quoted.
      label_column: the column to predict. It becomes a label if it is text, and keeps
        its kind otherwise.

    Raises:
      SpecError: there is no column of the label's name.
    """
    if label_column is not None and label_column not in columns:
        near = difflib.get_close_matches(label_column, columns, n=1, cutoff=0.0)
        hint = f"; the nearest name is {near[0]!r}" if near else ""
        raise SpecError(
            f"the label must be a column of the source; found {label_column!r}{hint}"
        )
    features, evidence = [], []
    for name, texts in columns.items():
        kind, facts = _infer(texts)
        is_label = name == label_column
        if is_label and kind is Kind.TEXT:
            kind = Kind.LABEL
        features.append(Feature(name, kind, is_label=is_label))
        evidence.append(facts)
    return Inference(tuple(features), tuple(evidence))


def _infer(texts: pa.ChunkedArray | pa.StringArray) -> tuple[Kind, Evidence]:
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    present = without_missing(texts).drop_null()
    kind, coerced = _kind(present)
    if kind is Kind.TEXT:
        present = texts.drop_null()
    misfits = None if coerced is None else coerced.bad
    low, high = (None, None) if coerced is None else _extent(coerced.values)
    evidence = Evidence(
        sampled=len(texts),
        missing=len(texts) - len(present),
        misfits=0 if misfits is None else int(misfits.sum()),
        minimum=low,
        maximum=high,
        examples=_examples(present),
        misfit_examples=(
            () if misfits is None else _examples(present.filter(pa.array(misfits)))
        ),
    )
    return kind, evidence


def _kind(present: pa.StringArray) -> tuple[Kind, Coerced | None]:
    """Returns the kind of cells that are not missing, and the cells coerced to it."""
    text = Kind.TEXT, None
    if not len(present):
        return text
    bools = coerce(present, Feature("", Kind.BOOL))
    if bools.bad is None:
        return Kind.BOOL, bools
    floats = coerce(present, Feature("", Kind.FLOAT))
    finite = pc.is_finite(floats.values).fill_null(False).to_numpy(zero_copy_only=False)
    # Numbers too large for float32 are numbers; a column of nan and inf is not.
    none = np.zeros(len(present), np.bool_)
    beyond = none if floats.out_of_range is None else floats.out_of_range
    words = (none if floats.bad is None else floats.bad) & ~beyond
    numbers = len(present) - int(words.sum())
    if not (finite | beyond).any() or numbers * 100 < len(present) * _NUMBERS_IN_100:
        return text
    if floats.bad is not None:
        others = trimmed(present.filter(pa.array(words)))
        if pc.any(pc.match_substring_regex(others, ZERO_LED)).as_py():
            return text
    integers = coerce(present, Feature("", Kind.INT64))
    if len(present) - integers.values.null_count == numbers:
        return Kind.INT64, integers
    return Kind.FLOAT, floats


def _extent(
    values: pa.Array,
) -> tuple[int | float, int | float] | tuple[None, None]:
    if pa.types.is_boolean(values.type):
        return None, None
    if pa.types.is_floating(values.type):
        values = values.filter(pc.is_finite(values))
    extent = pc.min_max(values).as_py()
    return extent["min"], extent["max"]


def _examples(present: pa.StringArray) -> tuple[str, ...]:
    # Distinct values among the first ones: a whole column is not worth a hash table.
    distinct = dict.fromkeys(present.slice(0, 1000).to_pylist())
    return tuple(value[:_EXAMPLE_CHARS] for value in list(distinct)[:_EXAMPLES])
