"""Infer the kind of a column of texts by its cells.

    every cell true or false                            -> bool
    99 of 100 cells decimal numbers, none like 007      -> int64 or float
    anything else, dates included                       -> text; a label's is a label

Numbers are int64 if all of them are whole, and 99 of 100 cells inside int64; if fewer
are, the column is text, which holds all digits, unless one has a point. A column
with a whole number written as 7.0 or 1e9 needs one beyond 2^24 for that, up to where
float32 holds every whole number, and all of them inside int64. Else it is float. In a
float, whole numbers up to 2^53 that float32 does not hold do not fit, unless 1 in 100
of the numbers beyond 2^24 has a fraction (`transforms.core.infer.evidence`).

Missing cells do not count. NA and its like are missing only where the other cells are
numbers or bools: a column of nothing else is text, and NA a class like any other.
"""

import collections
import dataclasses
import re
from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import one_array
from transforms.core.infer.evidence import (
    EXAMPLE_CHARS,
    EXAMPLES,
    Cells,
    Evidence,
    Found,
    LargeNumbers,
    NearKind,
    as_float32,
    extent_of,
    first_texts,
)
from transforms.core.reasons import Reason
from transforms.core.rows.column import FLOAT32_EXACT, Column, large_places, unheld
from transforms.core.rows.text_cells import (
    INTEGER,
    MISSING_WORDS,
    ZERO_LED,
    cast_plain,
    cast_together,
    doubles_of,
    exact,
    trimmed,
    without_missing,
)
from transforms.core.schema import Feature, Kind
from transforms.core.statistics import Extent, wider

# Percent of the cells of a numeric column that must be numbers: a few broken cells
# are rejects and do not make a text of the whole column.
_NUMBERS_IN_100 = 99
_EXACT = (
    "whole numbers outside int64 are exact as text; kind: float would round them to "
    "24 bits"
)
# Cells that are cast at once, and bytes of their text: bounds the memory of the cast.
# The first piece is this share of a column: it shows most columns of text to be
# certainly text.
_PIECE_CELLS = 65_536
_PIECE_BYTES = 4 << 20
_FIRST_PIECE, _LEAST_CELLS = 64, 4096
# What the exact rules might take for anything but a word. They ask of each cell what it
# is, kind by kind, which costs thousands of columns of words most of their time.
_NO_WORD = (
    r"^[ \t]*(?i:[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?"
    r"|nan|[+-]?inf|[+-]?infinity|true|false)[ \t]*$"
    rf"|^[ \t]*(?:{'|'.join(MISSING_WORDS)})[ \t]*$"
)
_find_no_word = re.compile(_NO_WORD).search
# The first cells of a piece tell most columns not to be bools, nor whole numbers.
_HEAD_CELLS = 8
_BOOLS = ("true", "false")
_NOT_WHOLE = re.compile(r"[+-]?([0-9]*\.[0-9]*[1-9][0-9]*|0[0-9]+)")
# Cells of each piece that are counted: enough to find frequent texts, and cheap.
_COUNTED = 4096
# The most frequent texts of each piece that are kept.
_KEPT = 16
# Distinct texts are few if each occurs this often on average, and up to this many.
_REPEATS = 10
_FEW = 20
# Percent of cells that must have a kind for it to be near: where the texts in its way
# are few, a person can name them as null values; where they are many, only 9 of 10
# cells of the kind suggest that it was meant.
_NEAR_IN_100, _NEAR_BUT_FOR_MANY_IN_100 = 50, 90
_MOST_STOPS = 4
# Cells that show most columns of numbers not to be words.
_PROBED = 64


def _pieces(texts: Cells) -> Iterator[pa.StringArray]:
    """Yields the cells in pieces of up to 65,536 or some 4 MiB, a smaller one first."""
    fitting = _PIECE_BYTES * len(texts) // max(texts.nbytes, 1)
    most = min(max(fitting, 1), _PIECE_CELLS)
    size = min(max(len(texts) // _FIRST_PIECE, _LEAST_CELLS), most)
    first = 0
    while first < len(texts):
        # A copy of the whole column would double the memory of a sample.
        piece = texts.slice(first, size)
        first += len(piece)
        yield one_array(piece)
        size = most


@dataclasses.dataclass
class _Some:
    """Cells of one sort: how many, and the first distinct ones."""

    count: int = 0
    first: tuple[str, ...] = ()

    def add(self, texts: pa.StringArray) -> None:
        """Adds all of these cells."""
        self.count += len(texts)
        if len(self.first) < EXAMPLES and len(texts):
            self.first = tuple(dict.fromkeys((*self.first, *first_texts(texts))))


@dataclasses.dataclass
class _Words(_Some):
    """Cells that are no numbers, and the frequent ones of the first of each piece.

    Attributes:
      counts: how often each frequent one occurs.
      counted: cells among which they were counted.
      many: whether there are others.
    """

    counts: collections.Counter[str] = dataclasses.field(
        default_factory=collections.Counter
    )
    counted: int = 0
    many: bool = False

    def add(self, texts: pa.StringArray) -> None:
        """Adds all of these cells, without nulls."""
        super().add(texts)
        sample = trimmed(texts.slice(0, _COUNTED))
        value_counts = sample.value_counts()
        self.counted += len(sample)
        if len(value_counts) > _KEPT:
            self.many = True
            order = np.argsort(-value_counts.field("counts").to_numpy(), kind="stable")
            value_counts = value_counts.take(pa.array(order[:_KEPT]))
        pairs = (value_counts.field(name).to_pylist() for name in ("values", "counts"))
        for text, count in zip(*pairs, strict=True):
            if len(text) > EXAMPLE_CHARS:
                self.many = True
            else:
                self.counts[text] += count

    @property
    def few(self) -> int:
        """The number of distinct texts, if they are few; else 0."""
        count = len(self.counts)
        many = self.many or count > _FEW or count * _REPEATS > self.counted
        return 0 if many else count

    def near(
        self, kind: Kind, share: float, stops: Mapping[str, int] | None = None
    ) -> NearKind | None:
        """Returns a kind that `share` of the cells have, and these texts have not.

        None where too few or all cells have it. Of these texts, `stops` are the ones
        that have it not; None for all.
        """
        found = self.counts if stops is None else stops
        ranked = sorted(found.items(), key=lambda item: -item[1])
        alone = not self.many and len(ranked) <= _MOST_STOPS
        least = _NEAR_IN_100 if alone else _NEAR_BUT_FOR_MANY_IN_100
        if not ranked or share * 100 < least:
            return None
        return NearKind(kind, share, tuple(ranked[:_MOST_STOPS]), alone)

    def near_bool(self) -> NearKind | None:
        """Returns bool if most of these texts are true or false."""
        others = {t: n for t, n in self.counts.items() if t.lower() not in _BOOLS}
        count = self.counts.total() - sum(others.values())
        if not count or self.many:
            return None
        return self.near(Kind.BOOL, count / self.counted, others)


@dataclasses.dataclass
class TextTally:
    """Counts of the cells of one column, added up over its pieces.

    Attributes:
      total: number of cells of the whole column, with missing ones; None if unknown.
      cells, nulls: of those added.
      only_bools: whether all that are present are true or false.
      numbers: those that are decimal numbers, `nan` or an infinity.
      finite: whether a decimal number was among them.
      whole: whether all numbers are whole, inside int64 or not.
      pointed: whether a whole one has a point or an exponent.
      zero_led: whether one has a leading zero, which a number would lose.
      words: those that are no numbers.
      beyond: numbers beyond float32.
      large: whole numbers outside int64, without point and exponent.
      large_numbers: those of 2^24 and more that float32 may not hold.
      extent, int_extent: of the finite numbers, and of integers, exact.
      first, first_present: the first cells, and those that are present.
    """

    total: int | None
    cells: int = 0
    nulls: int = 0
    only_bools: bool = True
    numbers: int = 0
    finite: bool = False
    whole: bool = True
    pointed: bool = False
    zero_led: bool = False
    words: _Words = dataclasses.field(default_factory=_Words)
    beyond: _Some = dataclasses.field(default_factory=_Some)
    large: _Some = dataclasses.field(default_factory=_Some)
    large_numbers: LargeNumbers = dataclasses.field(default_factory=LargeNumbers)
    extent: Extent = (None, None)
    int_extent: Extent = (None, None)
    first: tuple[str, ...] = ()
    first_present: tuple[str, ...] = ()

    def add(self, texts: Cells, plain: pa.Array | None = None) -> None:
        """Adds cells; null where one is blank and not quoted.

        Args:
          texts: the cells.
          plain: the same as int64 or float32, where `cast_plain` takes them all.
        """
        self.cells += len(texts)
        self.nulls += texts.null_count
        self.first = self.first or first_texts(texts)
        if plain is not None and not self.is_settled:
            self._add_numbers(one_array(texts), Column(plain))
            return
        for piece in _pieces(texts):
            if self.is_settled:
                break
            self._add_piece(piece.drop_null())

    @property
    def is_settled(self) -> bool:
        """Whether nothing that is said of the column needs its other cells.

        Of one that is text for a few words among numbers, a note says how many.
        """
        if self.zero_led or self.only_bools or self.total is None:
            return self.zero_led
        words = self.words.count
        many = words * 100 > self.total * (100 - _NUMBERS_IN_100)
        return many and self.numbers <= words

    def kind(self, *, words: int | None = None) -> Kind:
        """Returns the kind of the column, by the rules of the module."""
        words = self.words.count if words is None else words
        present = self.numbers + words
        if words and self.only_bools:
            return Kind.BOOL
        enough = self.numbers * 100 >= present * _NUMBERS_IN_100
        if self.zero_led or not enough or not self.finite:
            return Kind.TEXT
        # As float, all large numbers would lose digits: rather reject the few that are
        # outside int64, and keep ids of 64 bits without a sign as text.
        large = self.large.count
        few = (words + large) * 100 <= present * (100 - _NUMBERS_IN_100)
        if not self.whole or (large and not few):
            return Kind.FLOAT if self.pointed or not self.whole else Kind.TEXT
        low, high = self.int_extent[0] or 0, self.int_extent[1] or 0
        is_large = large > 0 or max(-low, high) > FLOAT32_EXACT
        return Kind.INT64 if is_large or not self.pointed else Kind.FLOAT

    def near(self, kind: Kind) -> NearKind | None:
        """Returns the kind of most cells, where the other cells prevent it."""
        words = self.words.count
        if not words or self.zero_led or self.only_bools:
            return None
        if not self.numbers:
            return self.words.near_bool()
        kind = self.kind(words=0) if kind is Kind.TEXT else kind
        share = self.numbers / (self.numbers + words)
        return None if kind is Kind.TEXT else self.words.near(kind, share)

    def found(self, name: str) -> Found:
        """Returns a feature of this name, and the evidence for its kind."""
        kind = self.kind()
        misfits: list[_Some] = []
        missing, extent = self.cells - self.numbers - self.words.count, self.extent
        if kind is Kind.TEXT:
            missing, extent = self.nulls, (None, None)
        elif kind is Kind.INT64:
            misfits, extent = [self.words, self.large], self.int_extent
        elif kind is Kind.FLOAT:
            # As they are stored, whatever was known of the column when they came.
            misfits, extent = [self.words, self.beyond], as_float32(extent)
        examples = dict.fromkeys(text for some in misfits for text in some.first)
        is_exact = kind is Kind.TEXT and self.large.count > self.words.count
        return Feature(name, kind), Evidence(
            sampled=self.cells,
            missing=missing,
            misfits=sum(some.count for some in misfits),
            minimum=extent[0],
            maximum=extent[1],
            examples=self.first if kind is Kind.TEXT else self.first_present,
            misfit_examples=tuple(examples)[:EXAMPLES],
            near=self.near(kind),
            few=self.words.few if kind is Kind.TEXT else 0,
            remark=_EXACT if is_exact else "",
            exact_text=is_exact,
            numbers=self.large_numbers,
        )

    def number_kind(self, texts: Cells) -> Kind:
        """Returns the kind that cells with these in front may have, if numbers."""
        head = filter(None, texts.slice(0, _HEAD_CELLS).to_pylist())
        as_whole = self.whole and not any(map(_NOT_WHOLE.fullmatch, head))
        return Kind.INT64 if as_whole else Kind.FLOAT

    def _add_piece(self, present: pa.StringArray) -> None:
        """Adds cells that are not null; some may be words for missing values."""
        if _are_words(present):
            self._add_words(present)
            return
        kind = self.number_kind(present)
        plain = cast_plain(present, kind)
        if plain is not None:
            self._add_numbers(present, Column(plain))
            return
        present = without_missing(present).drop_null()
        if not len(present):
            return
        if present[0].as_py().lower() in _BOOLS and (
            exact(present, Kind.BOOL).faults is None
        ):
            self._add_words(present, are_bools=True)
        else:
            self._add_numbers(present, exact(present, kind))

    def _add_words(self, words: pa.StringArray, *, are_bools: bool = False) -> None:
        """Adds cells that are no numbers, and not missing."""
        if len(words):
            self.first_present = self.first_present or first_texts(words)
            self.only_bools = self.only_bools and are_bools
            self.words.add(words)

    def _add_numbers(self, texts: pa.StringArray, cells: Column) -> None:
        """Adds cells as int64 or float32, and as words what is none of these.

        Args:
          texts: the cells; null where one is missing.
          cells: the same, converted.
        """
        self.first_present = self.first_present or first_texts(texts)
        numbers = wholes = len(texts) - cells.values.null_count
        extent = extent_of(cells.values)
        if pa.types.is_integer(cells.values.type):
            self.int_extent = wider(self.int_extent, extent)
            self.pointed = self.pointed or cells.pointed
            outside = _cells_of(texts, cells, Reason.OUT_OF_RANGE)
            if len(outside):
                outside = outside.filter(pc.match_substring_regex(outside, INTEGER))
                self.large.add(outside)
                wholes += len(outside)
            if cells.faults is not None:
                cells = exact(texts, Kind.FLOAT)
                extent = extent_of(cells.values)
                numbers = len(texts) - cells.values.null_count
        else:
            wholes = -1
        if cells.faults is not None:
            # A number too large for float32 is a number.
            beyond = _cells_of(texts, cells, Reason.OUT_OF_RANGE)
            self.beyond.add(beyond)
            numbers += len(beyond)
            self.finite = self.finite or len(beyond) > 0
            words = _cells_of(texts, cells, Reason.NOT_A_NUMBER)
            if len(words):
                led = pc.match_substring_regex(words, ZERO_LED)
                self.zero_led = self.zero_led or pc.any(led).as_py()
                self._add_words(words)
        self.numbers += numbers
        self.whole = self.whole and wholes == numbers
        self.only_bools = self.only_bools and not numbers
        # A column of nothing but nan and inf is text.
        self.finite = self.finite or extent[0] is not None
        self.extent = wider(self.extent, extent)
        places = large_places(cells.values)
        if len(places):
            doubles = doubles_of(texts, places)
            lost = places[unheld(doubles)]
            first = first_texts(texts.take(pa.array(lost[:EXAMPLES])))
            large = LargeNumbers.of(doubles, len(lost), first)
            self.large_numbers = self.large_numbers.merge(large)


def _cells_of(texts: pa.StringArray, cells: Column, reason: Reason) -> pa.StringArray:
    """Returns the texts of the cells that do not fit for a reason."""
    if cells.faults is None:
        return texts.slice(0, 0)
    return texts.filter(pa.array(cells.cells_with(reason)))


def _are_words(cells: pa.StringArray) -> bool:
    """Whether no cell is a number, a bool or a word for a missing value."""
    if any(map(_find_no_word, filter(None, cells.slice(0, _PROBED).to_pylist()))):
        return False
    return not pc.any(pc.match_substring_regex(cells, _NO_WORD)).as_py()


def add_texts(
    columns: Mapping[str, Cells], tallies: dict[str, TextTally], rows: int | None
) -> None:
    """Adds the cells of text columns to their tallies; makes those that are lacking.

    Args:
      columns: name to cells.
      tallies: by name.
      rows: see `infer_batches`.
    """
    for name in columns.keys() - tallies.keys():
        tallies[name] = TextTally(rows)
    # Small columns that look like numbers are cast in groups.
    numbers: dict[Kind, dict[str, Cells]] = {Kind.INT64: {}, Kind.FLOAT: {}}
    for name, cells in columns.items():
        head = cells.slice(0, _HEAD_CELLS).to_pylist()
        if _find_no_word(next(filter(None, head), "")):
            numbers[tallies[name].number_kind(cells)][name] = cells
    plain: dict[str, pa.Array] = {}
    for kind, alike in numbers.items():
        plain |= cast_together(alike, kind)
    for name, cells in columns.items():
        tallies[name].add(cells, plain.get(name))
