"""Infer the kind of each text column from a sample of its cells.

    every cell true or false                            -> bool
    99 of 100 cells decimal numbers, none like 007      -> int64 or float
    anything else, dates included                       -> text; a label's is a label

Numbers are int64 if all of them are whole, and 99 of 100 cells inside int64. A column
with a whole number written as 7.0 or 1e9 needs one beyond 2^24 for that, up to where
float32 holds every whole number, and all of them inside int64. Else it is float. In a
float, whole numbers up to 2^53 that float32 does not hold do not fit, unless 1 in 100
of the numbers beyond 2^24 has a fraction (`transforms.core.rows.float32`).

Missing cells do not count. NA and its like are missing only where the other cells are
numbers or bools: a column of nothing else is text, and NA a class like any other.
"""

import concurrent.futures
import dataclasses
from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.infer.near_kind import NearKind, Texts
from transforms.core.model import Reason
from transforms.core.rows.coerce import (
    INTEGER,
    ZERO_LED,
    coerce,
    trimmed,
    without_missing,
)
from transforms.core.rows.float32 import (
    FLOAT32_EXACT,
    LargeNumbers,
    doubles_of,
    large_places,
    unheld,
)
from transforms.core.schema import Feature, InexactIntegers, Kind
from transforms.errors import SpecError, nearest

__all__ = [
    "Evidence",
    "Inference",
    "infer_batches",
    "infer_features",
    "with_policy",
]

# Percent of the cells of a numeric column that must be numbers.
_NUMBERS_IN_100 = 99
_EXAMPLES = 3
_EXAMPLE_CHARS = 40
_THREADS = 2
_PIECE_CELLS = 65_536


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
      distinct: of a label: how many class names there are among them; None if they
        were not counted.
      large, told_apart: of a float: how many distinct values of 2^24 and more that
        fit were compared, and how many distinct ones float32 makes of them.
      whole: of a float of a typed source: whether all numbers are whole and inside
        int64.
      numbers: of a float, until `with_policy` has decided by them: its large numbers.
      near: the kind that most cells are of, where some are not.
      few: of texts: how many distinct ones there are, where they are few; else 0.
      remark: of a typed source: what its type means for the feature.
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
        """Returns the facts of both, the examples of the first."""
        lows = [x for x in (self.minimum, other.minimum) if x is not None]
        highs = [x for x in (self.maximum, other.maximum) if x is not None]
        numbers = self.numbers or other.numbers
        if self.numbers is not None and other.numbers is not None:
            numbers = self.numbers.merge(other.numbers)
        return Evidence(
            self.sampled + other.sampled,
            self.missing + other.missing,
            self.misfits + other.misfits,
            min(lows, default=None),
            max(highs, default=None),
            self.examples or other.examples,
            self.misfit_examples or other.misfit_examples,
            whole=self.whole and other.whole,
            numbers=numbers,
            remark=self.remark,
        )

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
        raise SpecError(
            f"the label must be a column of the source; found {label_column!r}"
            f"{nearest(label_column, columns)}"
        )
    # Arrow's kernels run without the interpreter's lock: two columns at a time.
    with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
        inferred = list(pool.map(_infer, columns.values()))
    return _inference(dict(zip(columns, inferred, strict=True)), label_column)


def infer_batches(
    batches: Iterable[Mapping[str, pa.StringArray]],
    *,
    label_column: str | None = None,
) -> Inference:
    """Returns a feature for each column of text, from all cells of all batches.

    Memory does not grow with the number of batches.

    Args:
      batches: name to texts, the same names in each; see `infer_features`.
      label_column: likewise.
    """
    columns: dict[str, _Column] = {}
    with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
        for batch in batches:
            for name in batch:
                columns.setdefault(name, _Column())
            list(pool.map(lambda item: columns[item[0]].add(item[1]), batch.items()))
    found = {name: column.result() for name, column in columns.items()}
    return _inference(found, label_column)


def with_policy(feature: Feature, evidence: Evidence) -> tuple[Feature, Evidence]:
    """Returns a float that rounds or rejects large whole numbers, and its evidence.

    Args:
      feature: any; only a float has a policy.
      evidence: with the large numbers of the column, where they can be inexact.
    """
    numbers = evidence.numbers
    if numbers is None:
        return feature, evidence
    evidence = dataclasses.replace(evidence, numbers=None)
    if feature.kind is not Kind.FLOAT:
        return feature, evidence
    large, apart = numbers.told_apart()
    evidence = dataclasses.replace(evidence, large=large, told_apart=apart)
    if numbers.policy is InexactIntegers.REJECT:
        examples = dict.fromkeys((*evidence.misfit_examples, *numbers.examples))
        evidence = dataclasses.replace(
            evidence,
            misfits=evidence.misfits + numbers.unheld,
            misfit_examples=tuple(examples)[:_EXAMPLES],
        )
    return dataclasses.replace(feature, inexact_integers=numbers.policy), evidence


def _inference(
    found: Mapping[str, tuple[Kind, Evidence]], label_column: str | None
) -> Inference:
    features, evidence = [], []
    for name, (kind, facts) in found.items():
        is_label = name == label_column
        if is_label and kind is Kind.TEXT:
            kind = Kind.LABEL
        feature, facts = with_policy(Feature(name, kind, is_label=is_label), facts)
        features.append(feature)
        evidence.append(facts)
    return Inference(tuple(features), tuple(evidence))


def _infer(texts: pa.ChunkedArray | pa.StringArray) -> tuple[Kind, Evidence]:
    column = _Column(expected=len(texts))
    column.add(texts)
    return column.result()


class _Column:
    """What is known of one column so far.

    Args:
      expected: how many cells there are in all; None if that is not known.
    """

    def __init__(self, *, expected: int | None = None) -> None:
        self._tally = _Tally(expected)
        self._cells = 0
        self._nulls = 0
        self._first: pa.StringArray | pa.ChunkedArray | None = None

    def add(self, texts: pa.ChunkedArray | pa.StringArray) -> None:
        """Adds cells; null where one is blank and not quoted."""
        self._cells += len(texts)
        self._nulls += texts.null_count
        if self._first is None or self._first.null_count == len(self._first):
            self._first = texts
        for piece in _pieces(texts):
            if self._tally.surely_text:
                break
            self._tally.add(piece)

    def result(self) -> tuple[Kind, Evidence]:
        """Returns the kind, and what speaks for it."""
        tally = self._tally
        kind = tally.kind()
        misfits: list[str] = []
        count = 0
        low, high = tally.low, tally.high
        missing = self._cells - tally.present
        if kind is Kind.TEXT:
            missing, low, high = self._nulls, None, None
        elif kind is not Kind.BOOL:
            misfits, count = tally.words, tally.word_count
            if kind is Kind.INT64:
                misfits, count = misfits + tally.large, count + tally.large_count
                low, high = tally.int_low, tally.int_high
            if kind is Kind.FLOAT:
                misfits, count = misfits + tally.beyond, count + tally.beyond_count
        return kind, Evidence(
            sampled=self._cells,
            missing=missing,
            misfits=count,
            minimum=low,
            maximum=high,
            examples=_examples(tally.first if kind is not Kind.TEXT else self._first),
            misfit_examples=tuple(dict.fromkeys(misfits))[:_EXAMPLES],
            near=tally.near(kind),
            few=tally.texts.few if kind is Kind.TEXT else 0,
            numbers=tally.large_numbers,
        )


def _pieces(texts: pa.ChunkedArray | pa.StringArray) -> Iterator[pa.StringArray]:
    """Yields the cells in pieces: what a cast needs beside the texts is then small."""
    for chunk in texts.chunks if isinstance(texts, pa.ChunkedArray) else [texts]:
        for start in range(0, len(chunk), _PIECE_CELLS):
            yield chunk.slice(start, _PIECE_CELLS)


@dataclasses.dataclass
class _Tally:
    """What the cells of one column are, added up over its chunks.

    Attributes:
      total: cells of the column, missing ones included; None where more may come.
      present: cells that are not missing for a number or bool.
      numbers: those that are decimal numbers, `nan` or an infinity.
      integers: those that are integers in range.
      finite: whether a decimal number was among them.
      zero_led: whether one has a leading zero, which a number would lose.
      bools: whether all of them are true or false.
      word_count, words: those that are no numbers, and the first of them.
      texts: counts of some of those.
      beyond_count, beyond: numbers beyond float32, likewise.
      large_count, large: whole numbers outside int64, without point and exponent,
        likewise.
      pointed: whether one of the integers has a point or an exponent.
      large_numbers: those of 2^24 and more that float32 may not hold.
      low, high: of the finite numbers.
      int_low, int_high: of the integers, exact.
      first: the first chunk's cells that are present.
    """

    total: int | None
    present: int = 0
    numbers: int = 0
    integers: int = 0
    finite: bool = False
    zero_led: bool = False
    bools: bool = True
    word_count: int = 0
    words: list[str] = dataclasses.field(default_factory=list)
    texts: Texts = dataclasses.field(default_factory=Texts)
    beyond_count: int = 0
    beyond: list[str] = dataclasses.field(default_factory=list)
    large_count: int = 0
    large: list[str] = dataclasses.field(default_factory=list)
    pointed: bool = False
    large_numbers: LargeNumbers = dataclasses.field(default_factory=LargeNumbers)
    int_low: int | None = None
    int_high: int | None = None
    low: int | float | None = None
    high: int | float | None = None
    first: pa.Array | None = None

    @property
    def surely_text(self) -> bool:
        """Whether no further chunk can make it anything else."""
        if self.bools:
            return False
        if self.zero_led or self.total is None:
            return self.zero_led
        return self.word_count * 100 > self.total * (100 - _NUMBERS_IN_100)

    def kind(self) -> Kind:
        """Returns the kind of the column, by the rules of the module."""
        if not self.present:
            return Kind.TEXT
        if self.bools:
            return Kind.BOOL
        enough = self.numbers * 100 >= self.present * _NUMBERS_IN_100
        if self.zero_led or not enough or not self.finite:
            return Kind.TEXT
        # A few whole numbers too large must not cost all others their last digits.
        few = (self.word_count + self.large_count) * 100 <= self.present * (
            100 - _NUMBERS_IN_100
        )
        if not self._is_whole or (self.large_count and not few):
            return Kind.FLOAT
        low, high = self.int_low or 0, self.int_high or 0
        is_large = self.large_count > 0 or max(-low, high) > FLOAT32_EXACT
        return Kind.INT64 if is_large or not self.pointed else Kind.FLOAT

    def near(self, kind: Kind) -> NearKind | None:
        """Returns what most cells of a column of this kind are, where not all are."""
        if not self.word_count or self.zero_led or self.bools:
            return None
        if not self.numbers:
            return self.texts.near_bool()
        if kind is Kind.TEXT:
            kind = dataclasses.replace(self, present=self.numbers, word_count=0).kind()
        share = self.numbers / (self.numbers + self.word_count)
        return None if kind is Kind.TEXT else self.texts.near_number(kind, share)

    @property
    def _is_whole(self) -> bool:
        """Whether all numbers so far are integers, or are so without the range."""
        return self.integers + self.large_count == self.numbers

    def add(self, chunk: pa.StringArray) -> None:
        """Adds the cells of a chunk."""
        present = without_missing(chunk).drop_null()
        if not len(present):
            return
        if self.first is None:
            self.first = present
        self.present += len(present)
        if self.bools:
            self.bools = coerce(present, Feature("", Kind.BOOL)).faults is None
            if self.bools:
                # Words all the same, should a later chunk hold numbers.
                self.word_count += len(present)
                self.words += _examples(present)
                self.texts.add(present)
                return
        if not self._is_whole:
            self._add_floats(present)
            return
        integers = coerce(present, Feature("", Kind.INT64))
        self.pointed = self.pointed or integers.pointed
        low, high = _extent(integers.values)
        if low is not None and high is not None:
            lowest = low if self.int_low is None else min(low, self.int_low)
            highest = high if self.int_high is None else max(high, self.int_high)
            self.int_low, self.int_high = int(lowest), int(highest)
        if integers.faults is None:
            self.numbers += len(present)
            self.integers += len(present)
            self.finite = True
            self._extend(low, high)
            # Later cells may make them floats.
            self._add_large(present, integers.values)
            return
        outside = present.filter(pa.array(integers.cells_with(Reason.OUT_OF_RANGE)))
        outside = outside.filter(pc.match_substring_regex(trimmed(outside), INTEGER))
        self.large_count += len(outside)
        self.large += _examples(outside)
        self._add_floats(present)
        self.integers += len(present) - integers.values.null_count

    def _add_floats(self, present: pa.StringArray) -> None:
        floats = coerce(present, Feature("", Kind.FLOAT))
        finite = pc.any(pc.is_finite(floats.values)).as_py()
        # Numbers too large for float32 are numbers; a column of nan and inf is not.
        beyond = floats.cells_with(Reason.OUT_OF_RANGE)
        words = floats.cells_with(Reason.NOT_A_NUMBER)
        count = int(words.sum())
        self.numbers += len(present) - count
        self.finite = self.finite or bool(finite) or bool(beyond.any())
        self._extend(*_extent(floats.values))
        self._add_large(present, floats.values)
        if count:
            texts = present.filter(pa.array(words))
            self.word_count += count
            self.words += _examples(texts)
            self.texts.add(texts)
            pattern = pc.match_substring_regex(trimmed(texts), ZERO_LED)
            self.zero_led = self.zero_led or pc.any(pattern).as_py()
        if beyond.any():
            self.beyond_count += int(beyond.sum())
            self.beyond += _examples(present.filter(pa.array(beyond)))

    def _add_large(self, present: pa.StringArray, values: pa.Array) -> None:
        """Adds what float32 makes of the cells of 2^24 and more."""
        places = large_places(values)
        if not len(places):
            return
        numbers = doubles_of(present, places)
        lost = places[unheld(numbers)]
        first = _examples(present.take(pa.array(lost[:_EXAMPLES])))
        found = LargeNumbers.of(numbers, unheld=len(lost), examples=first)
        self.large_numbers = self.large_numbers.merge(found)

    def _extend(self, low: int | float | None, high: int | float | None) -> None:
        if low is not None and high is not None:
            self.low = low if self.low is None else min(self.low, low)
            self.high = high if self.high is None else max(self.high, high)


def _extent(
    values: pa.Array,
) -> tuple[int | float, int | float] | tuple[None, None]:
    if pa.types.is_boolean(values.type):
        return None, None
    if pa.types.is_floating(values.type):
        values = values.filter(pc.is_finite(values))
    extent = pc.min_max(values).as_py()
    return extent["min"], extent["max"]


def _examples(
    texts: pa.StringArray | pa.ChunkedArray | None,
) -> tuple[str, ...]:
    if texts is None:
        return ()
    # Distinct values among the first ones: a whole column is not worth a hash table.
    distinct = dict.fromkeys(texts.slice(0, 1000).to_pylist())
    distinct.pop(None, None)
    return tuple(value[:_EXAMPLE_CHARS] for value in list(distinct)[:_EXAMPLES])
