"""The rows of one bundle: Arrow batches as they fill, stored in pieces and counted.

A piece holds rows as they came, of one Arrow schema, with the hash of what each holds.
What columns are to be is known once all rows are counted.
"""

import collections
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from transforms.core.arrays import in_one_piece
from transforms.core.model import Fact, RejectLog
from transforms.core.placing.content import content_hashes
from transforms.core.placing.splitting import NOWHERE, SplitTables, split_rows
from transforms.core.reasons import Fault, Reason, Rejection
from transforms.core.rows.column import Misfit
from transforms.core.rows.column import fault as faults_where
from transforms.core.rows.python_kinds import OddValueError, family_of
from transforms.core.schema import Feature, Kind
from transforms.core.segment import PIECE_BYTES, Segment, spooled_piece
from transforms.errors import EncodingError, ExampleError, bounded
from transforms.rows.row_batches import (
    MOST_CELLS,
    UnusableValueError,
    batches_of,
    mappings_in,
    values_of_row,
)
from transforms.rows.row_batches import table_batch as batch_of_table
from transforms.rows.row_types import as_mapping, refuse, values_as_json
from transforms.rows.tally import (
    Tally,
    count_values,
    file_sizes,
    merge_tallies,
    new_classes,
    row_sizes,
)
from transforms.rows.typed_rows import Bools, RowRule, identified, unplaced

# Elements that wait to become Arrow together.
_BATCH_BYTES = 1 << 22
# What is wrong with elements that cannot become Arrow.
_FAULTS = (EncodingError, ExampleError, OddValueError, pa.ArrowException)
_SHOWN_CHARS = 80
STAGE = "gather"
"""Of rejections."""
MOST_WAITING = 4096
"""Elements become Arrow together: at most so many."""
# Of small elements one of so many is weighed: each would cost as much as to convert it.
# An odd number: of elements that are small and large by turns both are weighed.
_MOST_LIKE_ONE = 61
# Of a text beside its characters: half of what Python takes, for batches of fewer rows
# of thousands of texts would take longer.
_TEXT_BYTES = 24
# A list may hold itself: deeper ones are not looked into.
_WEIGHED_LEVELS = 4


@dataclasses.dataclass(frozen=True, slots=True)
class SpooledBundle(Fact):
    """What one bundle of rows leaves: one element, so that attempts cannot mix.

    Attributes:
      word: of the attempt that has spooled it: drawn anew for each.
      pieces: the rows, as `spooled_piece` stores them.
      tally: what their values are.
      sizes: split -> about how many bytes its rows take.
      refused: how many rows are in no piece, and not in the tally.
      refusal: what is wrong with one of those, the first in the order of the texts.
      rejects: why they are in none, each by itself.
    """

    word: str
    pieces: tuple[Segment, ...]
    tally: Tally
    sizes: Mapping[str, int]
    refused: int = 0
    refusal: str = ""
    rejects: RejectLog | None = None

    @property
    def received(self) -> int:
        """How many rows came."""
        return self.tally.rows + self.refused

    def without_rows(self) -> "SpooledBundle":
        """Returns what the plan needs: no row, and no rejection."""
        pieces = tuple(dataclasses.replace(p, payload=b"") for p in self.pieces)
        return dataclasses.replace(self, pieces=pieces, rejects=None)


class Spool:
    """Takes the rows of one bundle; holds some 12 MiB of them."""

    def __init__(
        self,
        word: str,
        rule: RowRule,
        store: Callable[[str, Sequence[pa.Buffer]], str],
        sizes_of: Callable[[Iterable[str]], Mapping[str, int]],
        reject: Callable[[Sequence[Rejection]], None],
    ) -> None:
        """Starts a bundle.

        Args:
          word: of this attempt, that no other one has.
          rule: of the job.
          store: see `spooled_piece`.
          sizes_of: returns path -> bytes of those files that are there.
          reject: takes rejections of rows that no piece holds.
        """
        self._word = word
        self._rule = rule
        self._store = store
        self._sizes_of = sizes_of
        self._reject = reject
        self._refused, self._refusal = 0, ""
        # Mappings, which `_convert` makes of rows of a type.
        self._waiting = Waiting(_BATCH_BYTES)
        self._kind: type[Any] | None = None
        self._convert: Callable[[Any], Any] = dict
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0
        self._pieces: list[Segment] = []
        self._labels = rule.labels() if rule.labels else ()
        self._tables = SplitTables(table=rule.table and rule.table())
        self._tallies: list[Tally] = []
        self._mappings: set[str] = set()
        self._sizes: collections.Counter[str] = collections.Counter()

    def add(self, element: Any) -> None:
        """Takes a row, or a record batch or table of rows; rejects anything else."""
        kind = type(element)
        if kind is not self._kind and not self._start_kind(element):
            return
        waiting = self._waiting
        # A dict is a row as it is.
        waiting.append(element if kind is dict else self._convert(element))
        if len(waiting) >= waiting.next_look and waiting.is_enough():
            self._to_arrow(waiting.take())

    def _start_kind(self, element: Any) -> bool:
        """Prepares for another type; returns whether its elements wait, as rows do."""
        kind = type(element)
        convert = as_mapping(kind)
        if isinstance(element, pa.RecordBatch | pa.Table):
            # It has rows together already.
            self._to_arrow(self._waiting.take())
            is_table = isinstance(element, pa.Table)
            batches = element.to_batches() if is_table else [element]
            self._to_arrow([batch for batch in batches if batch.num_rows])
        elif convert is None:
            shown = bounded(values_as_json(element).decode(), _SHOWN_CHARS)
            no_row = EncodingError(f"no row, but {kind.__name__}: {shown}")
            self._refuse(element, no_row)
        else:
            # Rows of several types may alternate, so they wait together.
            self._kind, self._convert = kind, convert
        return convert is not None

    def _add_refusal(self, values: bytes, fault: Fault, known_by: str = "") -> None:
        """Rejects a row, given its values as JSON, and counts it."""
        rejection = refuse(values, fault, known_by=known_by, stage=STAGE)
        self._refused += 1
        message = rejection.message
        self._refusal = min(self._refusal or message, message)
        self._reject([rejection])

    def finish(self) -> SpooledBundle | None:
        """Returns what the bundle leaves; None of one without rows."""
        self._to_arrow(self._waiting.take())
        self._spool()
        if not self._tallies and not self._refused:
            return None
        return SpooledBundle(
            self._word,
            tuple(self._pieces),
            merge_tallies([*self._tallies, Tally(mappings=frozenset(self._mappings))]),
            dict(self._sizes),
            self._refused,
            self._refusal,
        )

    def _to_arrow(self, elements: list[Any]) -> None:
        """Makes batches of elements of one kind."""
        if elements:
            batches = self._taken(elements)
            self._batches += batches
            self._bytes += sum(batch.nbytes for batch in batches)
        if self._bytes >= PIECE_BYTES:
            self._spool()

    def _taken(self, elements: list[Any]) -> list[pa.RecordBatch]:
        """Returns what elements become; rejects those that become nothing.

        What is wrong with a row is found without any other one, so that no bundling
        decides it.
        """
        rule = self._rule
        # Beside 2.5 the key 1 is no less a whole number.
        whole = rule.integers | {rule.key_column, rule.group_column, rule.split_column}
        try:
            is_table = isinstance(elements[0], pa.RecordBatch)
            batches = list(
                map(batch_of_table, elements)
                if is_table
                else batches_of(elements, images=rule.images, integers=whole)
            )
            for batch in batches:
                self._check_mappings(batch)
        except _FAULTS as error:
            parts = _halves(elements)
            if not parts:
                self._refuse(elements[0], error)
            return [batch for half in parts for batch in self._taken(half)]
        self._mappings.update(*map(mappings_in, batches))
        return [batch.replace_schema_metadata(None) for batch in batches]

    def _check_mappings(self, rows: pa.RecordBatch) -> None:
        """Raises UnusableValueError for a mapping where a value is wanted."""
        if mapped := mappings_in(rows) & self._rule.scalars:
            raise UnusableValueError(
                f"Every value of {min(mapped)!r} must be one that its feature holds; "
                f"found a mapping. Convert it before it is written, or give its parts "
                f"names of their own.",
                Reason.WRONG_TYPE,
            )

    def _refuse(self, element: Any, error: Exception) -> None:
        """Rejects a row, or all rows of a batch, that cannot become Arrow."""
        fault = Fault(getattr(error, "reason", Reason.MALFORMED), bounded(str(error)))
        rows: Iterable[Any] = [element]
        if isinstance(element, pa.RecordBatch):
            rows = (values_of_row(element, row) for row in range(element.num_rows))
        for row in rows:
            self._add_refusal(values_as_json(row), fault, self._key_in(row))

    def _key_in(self, row: Any) -> str:
        """Returns the key of a row as text; empty for none."""
        name = self._rule.key_column
        key = row.get(name) if name and isinstance(row, Mapping) else None
        return str(key) if family_of(type(key)) in ("int", "text") else ""

    def _spool(self) -> None:
        """Stores what has gathered, rows of several types by themselves."""
        groups = _fitting(self._batches)
        self._batches, self._bytes = [], 0
        while groups:
            tables = [pa.Table.from_batches([batch]) for batch in groups.pop(0)]
            table = pa.concat_tables(tables, promote_options="default")
            tables.clear()
            for rows in in_one_piece(table).to_batches():
                self._add_piece(rows)

    def _add_piece(self, rows: pa.RecordBatch) -> None:
        rule = self._rule
        rows = self._with_places(rows)
        if not rows.num_rows:
            return
        batch = identified(rows, rule)
        by_content = batch.contents is not None
        split = dataclasses.replace(rule.split, by_content=by_content)
        splits = split_rows(batch, split, self._tables)
        homeless = splits.index == NOWHERE
        if homeless.any():
            # Of a table of ids: then rows have keys.
            self._refuse_rows(rows, homeless, lambda row: _no_split(batch.keys, row))
            if not homeless.all():
                self._add_piece(rows.filter(pa.array(~homeless)))
            return
        self._tallies += [
            count_values(batch.rows, rule),
            new_classes(batch.rows, self._labels),
        ]
        sizes = row_sizes(batch.rows)
        of_files = file_sizes(batch.rows, rule, self._sizes_of)
        if of_files is not None:
            sizes = sizes + of_files
        for number, name in enumerate(splits.names):
            of_split = sizes[splits.index == number]
            if len(of_split):
                self._sizes[name] += int(of_split.sum())
        name = f"{self._word}-{len(self._pieces)}"
        piece = spooled_piece(name, rows, batch.contents, self._store)
        self._pieces.append(piece)

    def _with_places(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Returns rows that have a key and a split; rejects the others."""
        for name, reason, bad in unplaced(rows, self._rule):
            faults = faults_where(bad, reason)
            if faults is None:
                continue
            is_there = name in rows.schema.names
            column = rows.column(name) if is_there else pa.nulls(rows.num_rows)
            misfit = Misfit(Feature(name, Kind.TEXT), column, faults)
            self._refuse_rows(rows, bad, misfit.complaint)
            rest = rows.filter(pa.array(~bad))
            return self._with_places(rest) if rest.num_rows else rest
        return rows

    def _refuse_rows(
        self, rows: pa.RecordBatch, bad: Bools, fault: Callable[[int], Fault]
    ) -> None:
        """Rejects those rows of n in Arrow that are bad, each with its fault."""
        names = rows.schema.names
        columns = rows.select([n for n in names if n != self._rule.split_column])
        hashes = content_hashes(columns, columns.schema.names, images=True)
        for index in np.flatnonzero(bad).tolist():
            row = values_of_row(rows, index)
            known_by = self._key_in(row) or f"{hashes[index]:016x}"
            self._add_refusal(values_as_json(row), fault(index), known_by)


def _fitting(batches: Iterable[pa.RecordBatch]) -> list[list[pa.RecordBatch]]:
    """Returns batches in groups that have one type for each name.

    Groups stay below `MOST_CELLS`, for batches may have other names each. Empty lists
    may be of mappings, where names that a batch lacks are not missing: batches with
    such are only beside those of the same names.
    """
    groups: list[tuple[dict[str, pa.DataType], list[pa.RecordBatch]]] = []
    for batch in batches:
        types = dict(zip(batch.schema.names, batch.schema.types, strict=True))
        for common, members in groups:
            if common == types or _may_join(common, members, types, batch.num_rows):
                common.update(types)
                members.append(batch)
                break
        else:
            groups.append((types, [batch]))
    return [members for _, members in groups]


def _may_join(
    known: Mapping[str, pa.DataType],
    members: Iterable[pa.RecordBatch],
    types: Mapping[str, pa.DataType],
    rows: int,
) -> bool:
    """Whether n rows of these types fit a group, which may lack a few of the names."""
    empty = pa.list_(pa.null())
    if empty in known.values() or empty in types.values():
        return False
    if any(known.get(name, kind) != kind for name, kind in types.items()):
        return False
    total = sum(member.num_rows for member in members) + rows
    return total * len({**known, **types}) <= MOST_CELLS


def _halves(elements: list[Any]) -> list[list[Any]]:
    """Returns elements in two parts, a single batch by its rows; none for one row."""
    if len(elements) == 1 and isinstance(elements[0], pa.RecordBatch):
        batch = elements[0]
        if batch.num_rows > 1 and _is_sound(batch.slice(0, 0)):
            middle = batch.num_rows // 2
            return [[batch.slice(0, middle)], [batch.slice(middle)]]
    middle = len(elements) // 2
    return [elements[:middle], elements[middle:]] if middle else []


def _is_sound(batch: pa.RecordBatch) -> bool:
    """Whether a batch to spool has names and types that rows can have."""
    try:
        batch_of_table(batch)
    except _FAULTS:
        return False
    return True


def _no_split(keys: pa.StringArray, row: int) -> Fault:
    """Returns the fault of a row whose key the table of ids lacks."""
    message = f"key {keys[row].as_py()!r} has no split in the table of ids"
    return Fault(Reason.BAD_SPLIT, message)


class Waiting(list[Any]):
    """Elements that wait until there are enough to be worked on together.

    Whoever appends one asks `is_enough` once there are `next_look`: no call for each.
    """

    __slots__ = ("_bytes", "_most_bytes", "_size", "_weighed", "next_look")

    def __init__(self, most_bytes: int) -> None:
        """Starts without any; they may take about this much memory."""
        super().__init__()
        self._most_bytes = most_bytes
        self._start()

    def _start(self) -> None:
        self._bytes = self._weighed = self._size = self.next_look = 0

    def is_enough(self) -> bool:
        """Returns whether there are enough.

        Of those between two that are weighed, half count as the one and half as the
        other: small ones with a few large ones among them must not all count as small.
        """
        count, size = len(self), _weight(self[-1])
        before = self._size if self._weighed else size
        self._bytes += (count - self._weighed) * (before + size) // 2
        self._weighed, self._size = count, size
        like_it = self._most_bytes // _MOST_LIKE_ONE // max(size, 1)
        like_it = min(like_it | 1, _MOST_LIKE_ONE)
        self.next_look = min(count + like_it, MOST_WAITING)
        return count >= MOST_WAITING or self._bytes >= self._most_bytes

    def take(self) -> list[Any]:
        """Returns the elements, and waits for others."""
        elements = self[:]
        self.clear()
        self._start()
        return elements


def _weight(value: Any, level: int = 0) -> int:
    """Returns about how much memory a value takes; of a list, by its first item."""
    if isinstance(value, Mapping) and level < _WEIGHED_LEVELS:
        return sum(_weight(item, level + 1) for item in value.values())
    if isinstance(value, tuple | list) and value and level < _WEIGHED_LEVELS:
        return len(value) * _weight(value[0], level + 1)
    if hasattr(value, "nbytes"):
        return int(value.nbytes)
    if type(value).__module__.startswith("PIL."):
        return 4 * int(value.width) * int(value.height)
    if isinstance(value, str | bytes | bytearray):
        return len(value) + _TEXT_BYTES
    return 8
