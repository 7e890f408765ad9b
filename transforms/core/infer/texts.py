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


class Texts:
    """Counts the texts that are no numbers, among the first cells of pieces."""

    def __init__(self) -> None:
        self._counts: collections.Counter[str] = collections.Counter()
        self._cells = 0
        self._many = False

    def add(self, texts: pa.StringArray) -> None:
        """Adds texts that are not numbers, without nulls."""
        sample = trimmed(texts.slice(0, _COUNTED))
        value_counts = sample.value_counts()
        self._cells += len(sample)
        if len(value_counts) > _KEPT:
            self._many = True
            order = np.argsort(-value_counts.field("counts").to_numpy(), kind="stable")
            value_counts = value_counts.take(pa.array(order[:_KEPT]))
        pairs = (value_counts.field(name).to_pylist() for name in ("values", "counts"))
        for text, count in zip(*pairs, strict=True):
            if len(text) > EXAMPLE_CHARS:
                self._many = True
            else:
                self._counts[text] += count

    @property
    def few(self) -> int:
        """The number of distinct texts, if they are few; else 0."""
        count = len(self._counts)
        many = self._many or count > _FEW or count * _REPEATS > self._cells
        return 0 if many else count

    def near(self, kind: Kind, share: float) -> NearKind | None:
        """Returns a kind that `share` of the cells have, and these texts have not.

        None where too few or all cells have it.
        """
        stops = sorted(self._counts.items(), key=lambda item: -item[1])
        alone = not self._many and len(stops) <= _MOST_STOPS
        least = _NEAR_IN_100 if alone else _NEAR_BUT_FOR_MANY_IN_100
        if not stops or share * 100 < least:
            return None
        return NearKind(kind, share, tuple(stops[:_MOST_STOPS]), alone)

    def near_bool(self) -> NearKind | None:
        """Returns bool if most of these texts are true or false."""
        others = Texts()
        others._counts = collections.Counter(
            {t: n for t, n in self._counts.items() if t.lower() not in _BOOLS}
        )
        count = self._counts.total() - others._counts.total()
        if not count or self._many:
            return None
        return others.near(Kind.BOOL, count / self._cells)


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
class Tally:
    """Counts of the cells of one column, added up over its pieces.

    Attributes:
      total: number of cells of the whole column, with missing ones; None if unknown.
      cells, nulls: of those added.
      present: cells that are not missing for a number or bool.
      bools: those that are true or false.
      numbers: those that are decimal numbers, `nan` or an infinity.
      finite: whether a decimal number was among them.
      whole: whether all numbers are whole, inside int64 or not.
      pointed: whether a whole one has a point or an exponent.
      zero_led: whether one has a leading zero, which a number would lose.
      words: those that are no numbers; `texts` counts some of them.
      beyond: numbers beyond float32.
      large: whole numbers outside int64, without point and exponent.
      large_numbers: those of 2^24 and more that float32 may not hold.
      extent, int_extent: of the finite numbers, and of integers, exact.
      first, first_present: the first cells, and those that are present.
    """

    total: int | None
    cells: int = 0
    nulls: int = 0
    present: int = 0
    bools: int = 0
    numbers: int = 0
    finite: bool = False
    whole: bool = True
    pointed: bool = False
    zero_led: bool = False
    words: _Some = dataclasses.field(default_factory=_Some)
    texts: Texts = dataclasses.field(default_factory=Texts)
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
        examples: tuple[str, ...] = ()
        if not (self.first and self.first_present):
            examples = first_texts(texts)
        self.first = self.first or examples
        if self.is_settled:
            return
        if plain is not None and (self.first_present or examples):
            self.first_present = self.first_present or examples
            if pa.types.is_integer(plain.type):
                self.int_extent = wider(self.int_extent, extent_of(plain))
            else:
                self.whole = False
            self._add_numbers(one_array(texts), plain, len(plain) - plain.null_count)
            return
        for piece in _pieces(texts):
            if self.is_settled:
                break
            if _are_words(piece):
                self._add_words(piece.drop_null())
            else:
                self._add_piece(piece.drop_null())

    @property
    def is_settled(self) -> bool:
        """Whether nothing that is said of the column needs its other cells.

        Of one that is text for a few words among numbers, a note says how many.
        """
        if self.zero_led or self.bools == self.present or self.total is None:
            return self.zero_led
        words = self.words.count
        many = words * 100 > self.total * (100 - _NUMBERS_IN_100)
        return many and self.numbers <= words

    def kind(self, *, words: int | None = None) -> Kind:
        """Returns the kind of the column, by the rules of the module."""
        words = self.words.count if words is None else words
        present = self.numbers + words
        if words and self.bools == present:
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
        if not words or self.zero_led or self.bools == self.present:
            return None
        if not self.numbers:
            return self.texts.near_bool()
        kind = self.kind(words=0) if kind is Kind.TEXT else kind
        share = self.numbers / (self.numbers + words)
        return None if kind is Kind.TEXT else self.texts.near(kind, share)

    def found(self, name: str) -> Found:
        """Returns a feature of this name, and the evidence for its kind."""
        kind = self.kind()
        misfits: list[_Some] = []
        missing, extent = self.cells - self.present, self.extent
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
            few=self.texts.few if kind is Kind.TEXT else 0,
            remark=_EXACT if is_exact else "",
            exact_text=is_exact,
            numbers=self.large_numbers,
        )

    def _add_numbers(self, texts: pa.StringArray, values: pa.Array, count: int) -> None:
        """Adds `count` numbers that texts hold; the other values are null."""
        extent = extent_of(values)
        # A column of nothing but nan and inf is text.
        self.finite = self.finite or extent[0] is not None
        self.extent = wider(self.extent, extent)
        self.present += count
        self.numbers += count
        places = large_places(values)
        if not len(places):
            return
        numbers = doubles_of(texts, places)
        lost = places[unheld(numbers)]
        first = first_texts(texts.take(pa.array(lost[:EXAMPLES])))
        large = LargeNumbers.of(numbers, unheld=len(lost), examples=first)
        self.large_numbers = self.large_numbers.merge(large)

    def _add_words(self, words: pa.StringArray) -> None:
        if len(words):
            self.first_present = self.first_present or first_texts(words)
            self.present += len(words)
            self.words.add(words)
            self.texts.add(words)

    def number_kind(self, texts: Cells) -> Kind:
        """Returns the kind that cells with these in front may have, if numbers."""
        head = filter(None, texts.slice(0, _HEAD_CELLS).to_pylist())
        as_whole = self.whole and not any(map(_NOT_WHOLE.fullmatch, head))
        return Kind.INT64 if as_whole else Kind.FLOAT

    def _add_piece(self, present: pa.StringArray) -> None:
        """Adds cells that are not null; some may be words for missing values."""
        kind = self.number_kind(present)
        plain = cast_plain(present, kind)
        if plain is None:
            present = without_missing(present).drop_null()
        if not len(present):
            return
        self.first_present = self.first_present or first_texts(present)
        if present[0].as_py().lower() in _BOOLS and (
            exact(present, Kind.BOOL).faults is None
        ):
            self.bools += len(present)
            self._add_words(present)
            return
        cells = exact(present, kind) if plain is None else Column(plain)
        wholes = -1
        if kind is Kind.INT64:
            wholes = self._add_whole(present, cells)
            if cells.faults is not None:
                cells = exact(present, Kind.FLOAT)
        # A number too large for float32 is a number.
        beyond = _cells_of(present, cells, Reason.OUT_OF_RANGE)
        self.beyond.add(beyond)
        self.finite = self.finite or len(beyond) > 0
        words = _cells_of(present, cells, Reason.NOT_A_NUMBER)
        numbers = len(present) - len(words)
        self.whole = self.whole and wholes == numbers
        self._add_numbers(present, cells.values, numbers)
        if len(words):
            bools = exact(words, Kind.BOOL).values
            self.bools += len(bools) - bools.null_count
            led = pc.match_substring_regex(trimmed(words), ZERO_LED)
            self.zero_led = self.zero_led or pc.any(led).as_py()
            self._add_words(words)

    def _add_whole(self, present: pa.StringArray, found: Column) -> int:
        """Adds what texts are as int64; returns how many of them are whole numbers."""
        self.int_extent = wider(self.int_extent, extent_of(found.values))
        self.pointed = self.pointed or found.pointed
        outside = _cells_of(present, found, Reason.OUT_OF_RANGE)
        if len(outside):
            integers = pc.match_substring_regex(trimmed(outside), INTEGER)
            outside = outside.filter(integers)
            self.large.add(outside)
        return len(outside) + len(present) - int(found.values.null_count)


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
    columns: Mapping[str, Cells], tallies: dict[str, Tally], rows: int | None
) -> None:
    """Adds the cells of text columns to their tallies; makes those that are lacking.

    Args:
      columns: name to cells.
      tallies: by name.
      rows: see `infer_batches`.
    """
    for name in columns.keys() - tallies.keys():
        tallies[name] = Tally(rows)
    plain = _plain_numbers(columns, tallies)
    for name, cells in columns.items():
        tallies[name].add(cells, plain.get(name))


def _plain_numbers(
    columns: Mapping[str, Cells], tallies: Mapping[str, Tally]
) -> dict[str, pa.Array]:
    """Returns text columns that are all numbers, cast in groups of small ones."""
    by_kind: dict[Kind, dict[str, Cells]] = {Kind.INT64: {}, Kind.FLOAT: {}}
    for name, cells in columns.items():
        head = cells.slice(0, _HEAD_CELLS).to_pylist()
        if _find_no_word(next(filter(None, head), "")):
            by_kind[tallies[name].number_kind(cells)][name] = cells
    out: dict[str, pa.Array] = {}
    for kind, alike in by_kind.items():
        for names, values in cast_together(alike, kind):
            rows = len(values) // len(names)
            for at, name in enumerate(names):
                out[name] = values.slice(at * rows, rows)
    return out
