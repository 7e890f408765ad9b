"""Raw rows: null words and decimal commas in them, and their rejections."""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import one_array
from transforms.core.model import Block
from transforms.core.reasons import Reason, Rejection
from transforms.core.rows.column import Misfit, python_value
from transforms.core.rows.text_cells import DECIMAL, Texts, nulled, trimmed
from transforms.core.schema import Feature, Kind
from transforms.errors import bounded

STAGE = "read"
# Rejections created at a time: enough to make the fixed cost of a run negligible.
_RUN_ROWS = 16_384
# Numbers with a decimal comma, and perhaps points between thousands. Without a comma
# such a number begins with another digit than 0: 0.217 has a decimal point.
_GROUPED = r"^[+-]?([1-9][0-9]{0,2}(\.[0-9]{3})+|[0-9]{1,3}(\.[0-9]{3})+,[0-9]*)$"
_WITH_COMMA = r"^[+-]?([0-9]+(,[0-9]*)?|,[0-9]+)([eE][+-]?[0-9]+)?$"
_Item = TypeVar("_Item")
_Places = npt.NDArray[np.int64]
# Above this count, rejections are built only when needed.
_MADE_AT_ONCE = 4096
# Of a row: its number in the origin (0-based), the reason, the message.
Complaint = tuple[int, Reason, str]


@dataclasses.dataclass(frozen=True, slots=True)
class RawRows:
    """The rows of a block, or of one piece of it, as the file has them.

    Attributes:
      block: the piece; `rows` counts all of its rows, also those refused.
      columns: the columns asked for, raw; n values each.
      numbers: int64 array of n: each row's 0-based number in its origin.
      refused: rows that are not among the n: they cannot be read at all.
      reject: makes rejections of complaints about any row of the piece; None where
        rows have no text form.
      origins: where a piece spans several origins, each row's own; else None.
      stamps, positions: see `Batch`, where the listing says them of each row.
      skipped: rows left out on purpose, by reason; not among the n either.
      parts, parts_gone, part_rejections: see `Reading`; the rejections have `part`.
      cut: column -> n bools, true where the row has a timestamp in it whose digits
        beyond microseconds are cut off.
      parts_each: by what they are, int64 array of n: how many parts each row has.
      places: int64 array of n: what complaints call each row, for rows whose numbers
        do not tell them apart; None for `numbers`.
    """

    block: Block
    columns: Mapping[str, pa.Array]
    numbers: npt.NDArray[np.int64]
    refused: Sequence[Complaint] = ()
    reject: Callable[[Sequence[Complaint]], list[Rejection]] | None = None
    origins: pa.StringArray | None = None
    skipped: Mapping[str, int] = dataclasses.field(default_factory=dict)
    parts: Mapping[str, int] = dataclasses.field(default_factory=dict)
    parts_gone: Mapping[str, int] = dataclasses.field(default_factory=dict)
    part_rejections: Sequence[Rejection] = ()
    cut: Mapping[str, npt.NDArray[np.bool_]] = dataclasses.field(default_factory=dict)
    parts_each: Mapping[str, npt.NDArray[np.int64]] = dataclasses.field(
        default_factory=dict
    )
    places: npt.NDArray[np.int64] | None = None
    stamps: pa.Int64Array | None = None
    positions: npt.NDArray[np.int64] | None = None

    def rejections(self, complaints: Sequence[Complaint]) -> list[Rejection]:
        """Returns the rejections of rows, by complaints about them."""
        reject = self.reject or rejecter(_reject_typed, self)
        return reject(complaints)


def with_points(
    columns: Mapping[str, Texts], features: Iterable[Feature], decimal: str
) -> Mapping[str, Texts]:
    """Returns the columns with decimal commas in numbers turned into points.

    What has a decimal point gets a comma, and is no number then. Only columns of text
    that become numbers change.

    Args:
      columns: of any types, by name.
      features: what they become.
      decimal: the decimal character of the source, "." or ",".
    """
    if decimal == ".":
        return columns
    out = dict(columns)
    for feature in features:
        column = columns.get(feature.source_column)
        is_number = feature.kind in (Kind.INT64, Kind.FLOAT) and not feature.pattern
        if is_number and column is not None and pa.types.is_string(column.type):
            swapped = _swapped(one_array(column), feature.separator)
            out[feature.source_column] = swapped
    return out


def as_numbers(columns: Mapping[str, Texts], decimal: str) -> Mapping[str, Any]:
    """Returns what `with_points` does where all columns of text become numbers."""
    features = [Feature(name, Kind.FLOAT) for name in columns]
    return with_points(columns, features, decimal)


def _swapped(column: pa.StringArray, separator: str) -> pa.StringArray:
    """Returns texts of numbers with "." for ","; those with "." become no numbers."""
    if separator:
        lists = pc.split_pattern(column, separator)
        items = _swapped(lists.values, "")
        lists = pa.ListArray.from_arrays(lists.offsets, items)
        joined = pc.binary_join(lists, separator)
        return pc.if_else(column.is_valid(), joined, column)
    texts = trimmed(column)
    grouped = pc.match_substring_regex(texts, _GROUPED)
    number = pc.or_(grouped, pc.match_substring_regex(texts, _WITH_COMMA))
    other = pc.match_substring_regex(texts, DECIMAL)
    whole = pc.replace_substring(texts, ".", "")
    whole = pc.replace_substring_regex(whole, r"^([+-]?)0+([0-9])", r"\1\2")
    pointed = pc.replace_substring(pc.if_else(grouped, whole, texts), ",", ".")
    refused = pc.replace_substring(texts, ".", ",")
    return pc.case_when(pc.make_struct(number, other), pointed, refused, column)


def with_nulls(
    columns: Mapping[str, Texts], words: Sequence[str]
) -> Mapping[str, Texts]:
    """Returns the columns; texts that are one of the words are null.

    Spaces and tabs around them do not count, as around numbers. Columns of another
    type than string stay as they are.

    Args:
      columns: of any types, by name.
      words: the texts; "" is for empty texts that are not null, such as quoted cells.
    """
    if not words:
        return columns
    null_words = trimmed(pa.array(words, pa.string()))
    return {
        name: nulled(column, trimmed(column), null_words)
        if pa.types.is_string(column.type)
        else column
        for name, column in columns.items()
    }


class RejectedRows(Sequence[Rejection]):
    """Rejections of rows of one origin, created run by run on iteration.

    Half a million at once would take a hundred times the memory of their block.
    """

    def __init__(
        self, count: int, make: Callable[[_Places], Sequence[Rejection]]
    ) -> None:
        """Creates the sequence without its rejections.

        Args:
          count: how many there are.
          make: returns the rejections at some places of 0 to count - 1, which ascend.
        """
        self._make = make
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Rejection]:
        for start in range(0, len(self), _RUN_ROWS):
            yield from self._make(np.arange(start, min(start + _RUN_ROWS, len(self))))

    def __getitem__(self, index: Any) -> Any:
        return [*self][index]


def rejections_of(
    raw: RawRows, misfits: Sequence[Misfit], blamed: npt.NDArray[np.int64]
) -> Sequence[Rejection]:
    """Returns a rejection for each row that was refused or has a cell to blame.

    Args:
      raw: n rows, and those that could not be read.
      misfits: columns with cells that do not fit.
      blamed: for each of the n rows an index into `misfits`; below 0 for none.
    """
    refused = raw.refused
    positions = np.flatnonzero(blamed >= 0)
    if not len(refused) and not len(positions):
        return []
    places = raw.numbers if raw.places is None else raw.places
    unread = np.fromiter((number for number, _, _ in refused), np.int64, len(refused))
    rows = np.concatenate([unread, places[positions]])
    order = np.argsort(rows, kind="stable")

    def complaint(index: int) -> Complaint:
        if index < len(refused):
            return refused[index]
        position = int(positions[index - len(refused)])
        return int(places[position]), *misfits[blamed[position]].complaint(position)

    def make(chosen: npt.NDArray[np.int64]) -> list[Rejection]:
        return raw.rejections([complaint(it) for it in order[chosen].tolist()])

    if len(rows) <= _MADE_AT_ONCE or raw.places is not None or raw.origins is not None:
        return make(np.arange(len(rows)))
    return RejectedRows(len(rows), make)


def _reject_typed(raw: RawRows, complaint: Complaint) -> Rejection:
    """Returns the rejection of a row without a text form.

    The sha256 is that of the row's values as canonical JSON.
    """
    data = None
    index = int(np.searchsorted(raw.numbers, complaint[0]))
    if index < len(raw.numbers) and raw.numbers[index] == complaint[0]:
        row = {name: _json_value(column[index]) for name, column in raw.columns.items()}
        text = json.dumps(row, sort_keys=True, default=repr)
        data = text.encode(errors="replace")
    return rejection_of(raw.block.origin, complaint, data)


def rejection_of(
    origin: str,
    complaint: tuple[int | None, Reason, str],
    raw: bytes | None,
    *,
    line: int | None = None,
    part: str = "",
) -> Rejection:
    """Returns the rejection of a row, or of a part of one.

    Args:
      origin: of its file.
      complaint: its number in the origin, None where that says nothing, as in a file
        of one row; the reason and the message.
      raw: the item as the source has it; None when it could not be read.
      line: 1-based physical line where it starts; None where there are no lines.
      part: see `Rejection`.
    """
    number, reason, message = complaint
    return Rejection(
        source=origin,
        row=None if number is None else number + 1,
        line=line,
        stage=STAGE,
        reason=reason,
        message=bounded(message),
        sha256=None if raw is None else hashlib.sha256(raw).hexdigest(),
        part=part,
        raw=raw,
    )


def rejecter(
    make: Callable[..., Rejection], *known: Any
) -> Callable[[Sequence[Complaint]], list[Rejection]]:
    """Returns what makes rejections of complaints: of each by `make(*known, it)`."""
    return lambda complaints: [make(*known, complaint) for complaint in complaints]


def _json_value(value: pa.Scalar) -> Any:
    """Returns a cell for the JSON of a reject, bytes in hex."""
    plain = python_value(value)
    return plain.hex() if isinstance(plain, bytes) else plain


def grouped(
    items: Iterable[_Item], size_of: Callable[[_Item], int], least: int
) -> Iterator[list[_Item]]:
    """Yields what becomes raw rows at once: items of `least` or more bytes together."""
    waiting: list[_Item] = []
    size = 0
    for item in items:
        waiting.append(item)
        size += size_of(item)
        if size >= least:
            yield waiting
            waiting, size = [], 0
    if waiting:
        yield waiting


def origins_of(raw: RawRows) -> pa.StringArray:
    """Returns the origin of each row: its own, or else that of the block."""
    if raw.origins is not None:
        return raw.origins
    return pa.repeat(pa.scalar(raw.block.origin, pa.string()), len(raw.numbers))
