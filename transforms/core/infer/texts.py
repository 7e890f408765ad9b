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
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import stored_offsets
from transforms.core.infer.evidence import (
    EXAMPLES,
    Evidence,
    Extent,
    Found,
    NearKind,
    Texts,
    extent_of,
    wider,
)
from transforms.core.infer.plain_numbers import (
    Cells,
    PlainNumbers,
    chunks_of,
    plain_numbers,
    with_missing_as_null,
)
from transforms.core.reasons import Reason
from transforms.core.rows.float32 import (
    FLOAT32_EXACT,
    LargeNumbers,
    doubles_of,
    large_places,
    unheld,
)
from transforms.core.rows.text_cells import (
    INTEGER,
    MISSING_WORDS,
    ZERO_LED,
    coerce,
    trimmed,
    without_missing,
)
from transforms.core.schema import Feature, Kind

# Percent of the cells of a numeric column that must be numbers: a few broken cells
# are rejects and do not make a text of the whole column.
_NUMBERS_IN_100 = 99
_EXAMPLE_CHARS = 40
_THREADS = 2
# A column of less text takes less time than handing it to another thread.
_SMALL_BYTES = 64 << 10
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
    rf"|^(?:{'|'.join(MISSING_WORDS)})$"
)
# The first cells of a piece tell most columns not to be bools, nor whole numbers.
_HEAD_CELLS = 8
_BOOLS = ("true", "false")
_NOT_WHOLE = re.compile(r"[+-]?([0-9]*\.[0-9]*[1-9][0-9]*|0[0-9]+)")
# Cells that show most columns of numbers not to be words.
_PROBED = 64
# Cells among which the first few distinct ones are sought, step by step.
_EXAMPLE_CELLS = (8, 64, 1000)


def infer_texts(
    batches: Iterable[Mapping[str, Cells]], *, rows: int | None = None
) -> dict[str, Found]:
    """Returns a feature for each column of text, from all cells of all batches.

    Memory does not grow with the number of batches.

    Args:
      batches: name to texts, the same names in each; null where the cell is blank and
        not quoted.
      rows: the number of rows of all batches, if known: then the rest of a column that
        is certainly text is not looked at.
    """
    columns: dict[str, _Column] = {}
    # Arrow's kernels run without the interpreter's lock: two columns at a time.
    with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
        for batch in batches:
            large = []
            for name, cells in batch.items():
                column = columns.setdefault(name, _Column(rows))
                if cells.nbytes < _SMALL_BYTES:
                    column.add(cells)
                else:
                    large.append((column, cells))
            list(pool.map(lambda item: item[0].add(item[1]), large))
    return {name: column.result(name) for name, column in columns.items()}


class _Column:
    """The cells of one column that were added so far.

    Args:
      expected: the number of all its cells; None if unknown.
    """

    def __init__(self, expected: int | None) -> None:
        self._tally = _Tally(expected)
        self._cells = 0
        self._nulls = 0
        self._first: Cells | None = None

    def add(self, texts: Cells) -> None:
        """Adds cells; null where one is blank and not quoted."""
        self._count(texts)
        tally = self._tally
        if tally.is_settled:
            return
        present = texts
        numbers = plain_numbers(texts)
        if numbers is None and texts.nbytes < _SMALL_BYTES:
            present = with_missing_as_null(texts)
            numbers = None if present is texts else plain_numbers(present)
        if numbers is not None:
            self._add_plain(present, numbers)
            return
        for piece in _pieces(texts):
            if tally.is_settled:
                break
            tally.add(piece)

    def _add_plain(self, with_nulls: Cells, numbers: PlainNumbers) -> None:
        """Adds cells that are plain numbers, or null where one is missing."""
        tally = self._tally
        if tally.first is None and not with_nulls.null_count:
            # A copy of each of thousands of columns would take longer than the rest.
            tally.first = with_nulls.slice(0, _EXAMPLE_CELLS[-1])
        elif tally.first is None:
            present = (piece.drop_null() for piece in _pieces(with_nulls))
            tally.first = next(filter(len, present))
        tally.add_plain(numbers)

    def _count(self, texts: Cells) -> None:
        self._cells += len(texts)
        self._nulls += texts.null_count
        if self._first is None or self._first.null_count == len(self._first):
            self._first = texts

    def result(self, name: str) -> Found:
        """Returns a feature of this name, and the evidence for its kind."""
        tally = self._tally
        kind = tally.kind()
        misfits: list[str] = []
        count = 0
        low, high = tally.extent
        missing = self._cells - tally.present
        if kind is Kind.TEXT:
            missing, low, high = self._nulls, None, None
        elif kind is not Kind.BOOL:
            misfits, count = tally.words, tally.word_count
            if kind is Kind.INT64:
                misfits, count = misfits + tally.large, count + tally.large_count
                low, high = tally.int_extent
            if kind is Kind.FLOAT:
                misfits, count = misfits + tally.beyond, count + tally.beyond_count
                if low is not None and high is not None and not tally.is_whole:
                    # Adding 0.0 gives zero its usual sign.
                    low, high = float(low) + 0.0, float(high) + 0.0
        return Feature(name, kind), Evidence(
            sampled=self._cells,
            missing=missing,
            misfits=count,
            minimum=low,
            maximum=high,
            examples=_examples(tally.first if kind is not Kind.TEXT else self._first),
            misfit_examples=tuple(dict.fromkeys(misfits))[:EXAMPLES],
            near=tally.near(kind),
            few=tally.texts.few if kind is Kind.TEXT else 0,
            numbers=tally.large_numbers,
        )


def _pieces(texts: Cells) -> Iterator[pa.StringArray]:
    """Yields the cells in pieces of up to 65,536 or 4 MiB, a smaller one first."""
    if isinstance(texts, pa.ChunkedArray) and texts.num_chunks > 1:
        texts = texts.combine_chunks()
    for chunk in chunks_of(texts):
        ends = stored_offsets(chunk)
        most = np.iinfo(ends.dtype).max
        start = 0
        size = min(max(len(chunk) // _FIRST_PIECE, _LEAST_CELLS), _PIECE_CELLS)
        while start < len(chunk):
            # The last cell that ends within the bytes, but one cell at least.
            limit = ends.dtype.type(min(int(ends[start]) + _PIECE_BYTES, most))
            fits = int(np.searchsorted(ends, limit, "right")) - 1
            stop = min(start + size, max(fits, start + 1))
            yield chunk.slice(start, stop - start)
            start = stop
            size = _PIECE_CELLS


@dataclasses.dataclass
class _Tally:
    """Counts of the cells of one column, added up over its pieces.

    Attributes:
      total: number of cells of the column, with missing ones; None if unknown.
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
      extent: of the finite numbers.
      int_extent: of the integers, exact.
      first: the first cells that are present, at least as many as are examples.
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
    int_extent: Extent = (None, None)
    extent: Extent = (None, None)
    first: Cells | None = None

    @property
    def surely_text(self) -> bool:
        """Whether the column is text whatever its other cells are."""
        if self.bools:
            return False
        if self.zero_led or self.total is None:
            return self.zero_led
        return self.word_count * 100 > self.total * (100 - _NUMBERS_IN_100)

    @property
    def is_settled(self) -> bool:
        """Whether nothing that is said of the column needs its other cells.

        Of one that is text for a few words among numbers, a note says how many.
        """
        near = not self.zero_led and self.numbers > self.word_count
        return self.surely_text and not near

    def kind(self) -> Kind:
        """Returns the kind of the column, by the rules of the module."""
        if not self.present:
            return Kind.TEXT
        if self.bools:
            return Kind.BOOL
        enough = self.numbers * 100 >= self.present * _NUMBERS_IN_100
        if self.zero_led or not enough or not self.finite:
            return Kind.TEXT
        # As float, all large numbers would lose digits: rather reject the few that are
        # outside int64.
        few = (self.word_count + self.large_count) * 100 <= self.present * (
            100 - _NUMBERS_IN_100
        )
        if not self.is_whole or (self.large_count and not few):
            return Kind.FLOAT
        low, high = self.int_extent[0] or 0, self.int_extent[1] or 0
        is_large = self.large_count > 0 or max(-low, high) > FLOAT32_EXACT
        return Kind.INT64 if is_large or not self.pointed else Kind.FLOAT

    def near(self, kind: Kind) -> NearKind | None:
        """Returns the kind of most cells, where the other cells prevent it."""
        if not self.word_count or self.zero_led or self.bools:
            return None
        if not self.numbers:
            return self.texts.near_bool()
        if kind is Kind.TEXT:
            kind = dataclasses.replace(self, present=self.numbers, word_count=0).kind()
        share = self.numbers / (self.numbers + self.word_count)
        return None if kind is Kind.TEXT else self.texts.near_number(kind, share)

    @property
    def is_whole(self) -> bool:
        """Whether all numbers so far are whole, inside int64 or not."""
        return self.integers + self.large_count == self.numbers

    def add(self, chunk: pa.StringArray) -> None:
        """Adds the cells of a chunk."""
        if _are_words(chunk):
            self._add_words(chunk.drop_null())
            return
        present = without_missing(chunk).drop_null()
        if not len(present):
            return
        if self.first is None:
            self.first = present
        self.present += len(present)
        head = present.slice(0, _HEAD_CELLS).to_pylist()
        if self.bools:
            self.bools = head[0].lower() in _BOOLS and (
                coerce(present, Feature("", Kind.BOOL)).faults is None
            )
            if self.bools:
                # If a later piece holds numbers, these are words among them.
                self.word_count += len(present)
                self.words += _examples(present)
                self.texts.add(present)
                return
        if not self.is_whole or any(map(_NOT_WHOLE.fullmatch, head)):
            self._add_floats(present)
            return
        integers = coerce(present, Feature("", Kind.INT64))
        self.pointed = self.pointed or integers.pointed
        extent = extent_of(integers.values)
        self.int_extent = wider(self.int_extent, extent)
        if integers.faults is None:
            self.numbers += len(present)
            self.integers += len(present)
            self.finite = True
            self.extent = wider(self.extent, extent)
            # The column may still become float, by its later cells.
            self._add_large(present, integers.values)
            return
        outside = present.filter(pa.array(integers.cells_with(Reason.OUT_OF_RANGE)))
        outside = outside.filter(pc.match_substring_regex(trimmed(outside), INTEGER))
        self.large_count += len(outside)
        self.large += _examples(outside)
        self._add_floats(present)
        self.integers += len(present) - integers.values.null_count

    def _add_words(self, present: pa.StringArray) -> None:
        """Adds cells of which each is a word, and none is missing."""
        if not len(present):
            return
        if self.first is None:
            self.first = present
        self.present += len(present)
        self.bools = False
        self.word_count += len(present)
        self.words += _examples(present)
        self.texts.add(present)

    def add_plain(self, numbers: PlainNumbers) -> None:
        """Adds what is known of cells that are all plain numbers."""
        extent = numbers.low, numbers.high
        self.present += numbers.count
        self.bools = False
        self.finite = True
        self.extent = wider(self.extent, extent)
        if numbers.whole and self.is_whole:
            self.integers += numbers.count
            self.int_extent = wider(self.int_extent, extent)
            self.pointed = self.pointed or numbers.pointed
        self.numbers += numbers.count

    def _add_floats(self, present: pa.StringArray) -> None:
        floats = coerce(present, Feature("", Kind.FLOAT))
        finite = pc.any(pc.is_finite(floats.values)).as_py()
        # A column of nothing but nan and inf is text, but a number too large for
        # float32 is a number.
        beyond = floats.cells_with(Reason.OUT_OF_RANGE)
        words = floats.cells_with(Reason.NOT_A_NUMBER)
        count = int(words.sum())
        self.numbers += len(present) - count
        self.finite = self.finite or bool(finite) or bool(beyond.any())
        self.extent = wider(self.extent, extent_of(floats.values))
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
        """Adds the numbers of 2^24 and more, and how many float32 cannot hold."""
        places = large_places(values)
        if not len(places):
            return
        numbers = doubles_of(present, places)
        lost = places[unheld(numbers)]
        first = _examples(present.take(pa.array(lost[:EXAMPLES])))
        found = LargeNumbers.of(numbers, unheld=len(lost), examples=first)
        self.large_numbers = self.large_numbers.merge(found)


def _are_words(cells: pa.StringArray) -> bool:
    """Whether no cell is a number, a bool or a word for a missing value."""
    for part in (cells.slice(0, _PROBED), cells.slice(_PROBED)):
        if pc.any(pc.match_substring_regex(part, _NO_WORD)).as_py():
            return False
    return True


def _examples(texts: Cells | None) -> tuple[str, ...]:
    distinct: dict[str | None, None] = {}
    if texts is not None:
        # The first 1,000 cells suffice; finding distinct texts of millions would cost
        # more than the inference.
        for start, stop in itertools.pairwise((0, *_EXAMPLE_CELLS)):
            distinct |= dict.fromkeys(texts.slice(start, stop - start).to_pylist())
            distinct.pop(None, None)
            if len(distinct) >= EXAMPLES or stop >= len(texts):
                break
    return tuple(str(value)[:_EXAMPLE_CHARS] for value in list(distinct)[:EXAMPLES])
