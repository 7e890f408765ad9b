"""The values that travel between stages: small and frozen, never dicts.

    list -> Block -> read -> Batch -> place -> (shard, Segment) -> write -> ShardFile
                       |                |                            |
                       +- ReadFacts     +- PlaceFacts                +- RejectLog
                       +- RejectLog     +- RejectLog

Row numbers (`row`) are 0-based inside the program and 1-based in everything that users
read; lines are 1-based everywhere.
"""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.manifest import FileFacts
from transforms.core.reasons import Reason, Rejection
from transforms.core.segment import Segment
from transforms.core.statistics import Statistics
from transforms.errors import ConservationError

# (split, shard) as `place` numbers them; empty shards are left out of the files.
ShardKey = tuple[str, int]


@dataclasses.dataclass(frozen=True, slots=True)
class Block:
    """An independently readable piece of one input.

    For a CSV file `start` and `stop` are byte offsets, at true record ends; for a
    tree of files, and a run of small ones, they are positions in the sorted listing,
    and `origin` is empty.

    The second and third row of a CSV file with the header `id` and three rows:

        >>> Block("a.csv", start=5, stop=9, first_row=1, first_line=3, rows=2).rows
        2

    Attributes:
      origin: path relative to the source's root, `/` between, NFC.
      start: where the piece begins.
      stop: where it ends, exclusive.
      first_row: 0-based number of its first record in the origin.
      first_line: 1-based physical line on which that record starts.
      rows: how many records it holds.
      position: bytes of input, over all inputs in source order, before it.
      stamp: of the file when it was listed; see `transforms.storage.paths.stamp`.
    """

    origin: str
    start: int
    stop: int
    first_row: int = 0
    first_line: int = 1
    rows: int = 0
    position: int = 0
    stamp: int = 0

    def positions_of(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Returns the bytes of input before rows, by their numbers in the origin."""
        share = (numbers - self.first_row) * (self.stop - self.start)
        return self.position + share // max(self.rows, 1)


@dataclasses.dataclass(frozen=True, slots=True)
class Batch:
    """Typed rows of one block.

        >>> rows = pa.record_batch({"id": [7, 8]})
        >>> batch = Batch(Block("a.csv", 3, 7, rows=2), rows, np.arange(2))
        >>> batch.filter(np.array([False, True])).rows.to_pylist()
        [{'id': 8}]

    Attributes:
      block: the block of the rows.
      rows: an Arrow record batch under `Schema.row_schema`; n rows.
      numbers: int64 array of n: each row's 0-based number in its origin.
      origins: for blocks that span several origins (trees of files), a string
        array of n: each row's own origin. None: all are from `block.origin`.
      stamps: with `origins`, each one's stamp when it was listed; 0 or None if unknown.
      splits: each row's split if the source states it; else None. A null among them is
        a row that falls by the rule's shares.
      keys: a string array of n: each row's key, if a column identifies rows instead of
        origin and number; else None.
      groups: a string array of n: rows of equal value share a split; else None.
      contents: uint64 array of n: the hash of each row's content, if splits go by it;
        else None. See `transforms.core.placing.content`.
      positions: int64 array of n: bytes of input before each row, within its split if
        the source states the split.
      piece: resume metadata; None when the run keeps nothing.
    """

    block: Block
    rows: pa.RecordBatch
    numbers: npt.NDArray[np.int64]
    origins: pa.StringArray | None = None
    stamps: pa.Int64Array | None = None
    splits: pa.StringArray | None = None
    keys: pa.StringArray | None = None
    groups: pa.StringArray | None = None
    contents: npt.NDArray[np.uint64] | None = None
    positions: npt.NDArray[np.int64] | None = None
    piece: "Piece | None" = None

    def filter(self, keep: npt.NDArray[np.bool_]) -> "Batch":
        """Returns the batch with only the rows where `keep`, n bools, is true.

        Raises:
          ConservationError: these are no n bools: a null is neither.
        """
        keep = np.asarray(keep)
        if keep.dtype != np.bool_ or keep.shape != (self.rows.num_rows,):
            raise ConservationError(
                f"Batch.filter takes a bool for each of its {self.rows.num_rows:,} "
                f"rows; found {keep.size:,} of type {keep.dtype}. Of an Arrow array, "
                f"say what a null is first: pc.fill_null(mask, False)."
            )
        mask = pa.array(keep)
        return self._with_rows(keep, lambda column: column.filter(mask))

    def take(self, places: npt.NDArray[np.int64]) -> "Batch":
        """Returns the batch with the rows at these places, in their order.

        A row may be taken more than once: then its copies need keys of their own.

            >>> rows = pa.record_batch({"id": [7, 8]})
            >>> batch = Batch(Block("a.csv", 3, 7, rows=2), rows, np.arange(2))
            >>> batch.take(np.array([1, 1])).rows.to_pylist()
            [{'id': 8}, {'id': 8}]
        """
        taken = pa.array(places)
        return self._with_rows(places, lambda column: column.take(taken))

    def _with_rows(
        self, chosen: npt.NDArray[Any], of_arrow: Callable[[Any], Any]
    ) -> "Batch":
        changed = {}
        for name in ("rows", "numbers", "contents", *_PER_ROW):
            values = getattr(self, name)
            if values is not None:
                is_numpy = isinstance(values, np.ndarray)
                changed[name] = values[chosen] if is_numpy else of_arrow(values)
        return dataclasses.replace(self, **changed)

    def check(self, schema: pa.Schema | None = None, *, keyed: bool = True) -> None:
        """Checks what users' steps between reading and writing must keep.

        Args:
          schema: names and types that the columns must have, in order; None for any.
          keyed: whether rows are known by their keys, and not by their places.

        Raises:
          ConservationError: its parts are of different rows, the columns differ, or two
            rows are from one place that they are known by.
        """
        if not isinstance(self.rows, pa.RecordBatch):
            raise ConservationError(
                f"A step between reading and writing must return rows as a "
                f"pa.RecordBatch; it returned a {type(self.rows).__name__}. Give one, "
                f"or use rows_of for dicts."
            )
        rows = self.rows.num_rows
        for name in ("numbers", *_PER_ROW):
            values = getattr(self, name)
            if values is not None and len(values) != rows:
                raise ConservationError(
                    f"A step between reading and writing must return a batch whose "
                    f"parts are of the same rows; of {self.block.origin!r} from byte "
                    f"{self.block.start:,} it returned {rows:,} rows for "
                    f"{len(values):,} {name}. Drop rows with batch.filter(keep), and "
                    f"add some with batch.take(places)."
                )
        if self.keys is not None and (
            self.keys.null_count or not pa.types.is_string(self.keys.type)
        ):
            raise ConservationError(
                f"A step between reading and writing must return `keys` that are "
                f"texts, one for each row; it returned {self.keys.null_count:,} nulls "
                f"among {rows:,} of type {self.keys.type}. Give each row a text."
            )
        # Stored rows are bytes without a schema: others would be read as these types.
        if schema is not None and not self.rows.schema.equals(schema):
            pairs = itertools.zip_longest(schema, self.rows.schema)
            must_be, is_now = next((a, b) for a, b in pairs if a != b)
            raise ConservationError(
                f"A step between reading and writing must keep the columns, their "
                f"order and their types; for {must_be or 'no column'} it returned "
                f"{is_now or 'none'}. Cast it in the step, as in pc.cast(column, "
                f"batch.rows.schema.field(name).type); 'drop' and 'features' of a "
                f"spec change columns."
            )
        if keyed or (self.numbers[1:] > self.numbers[:-1]).all():
            return
        columns = {"number": pa.array(self.numbers)}
        if self.origins is not None:
            columns["origin"] = self.origins
        places = pa.table(columns)
        distinct = places.group_by(places.column_names).aggregate([])
        if distinct.num_rows < len(self.numbers):
            raise ConservationError(
                added_rows(self.block.origin, distinct.num_rows, len(self.numbers))
            )


def added_rows(origin: str, read: int, found: int) -> str:
    """Returns the error of a step that makes more rows, without keys for them."""
    return (
        f"Rows that a step between reading and writing adds must have keys of their "
        f"own, for nothing else tells them apart; of {read:,} rows of {origin!r} it "
        f"returned {found:,}. Name the column of the keys with --key-column, and give "
        f"the batch its `keys`, or drop and change rows only."
    )


# Fields with one value a row, beside the rows and their numbers.
_PER_ROW = ("origins", "stamps", "splits", "keys", "groups", "positions")


@dataclasses.dataclass(frozen=True, slots=True)
class Rounding:
    """How float32 changed the tiny and the large numbers of a column, or its instants.

    Of the values 1e-50 and 16777217:

        >>> Rounding(1, "1e-50", large=1, first_large="16777217", error=1.0).zeros
        1

    Attributes:
      zeros: number of values that are not 0 and became 0.
      first_zero: the first of them, as text.
      large: number of values of 2^24 and more that became another number.
      first_large: the first of them, as text.
      error: the largest distance between one of those and its float32.
      cut: number of rows with a timestamp that is finer than its unit.
      first_cut: the first of them.
    """

    zeros: int = 0
    first_zero: str = ""
    large: int = 0
    first_large: str = ""
    error: float = 0.0
    cut: int = 0
    first_cut: str = ""


class Fact:
    """What a stage says of its work, to the stages behind it and to later runs."""

    __slots__ = ()


def task_of(stage: str, origin: str, start: int) -> str:
    """Returns the text that identifies what a stage does with one piece of a block."""
    return f"{stage}\0{origin}\0{start}"


@dataclasses.dataclass(frozen=True, slots=True)
class RejectLog(Fact):
    """The rejections of one task; `transforms.work.rejects` draws their bytes.

        >>> RejectLog({Reason.NOT_AN_INTEGER: 2, Reason.FIELD_COUNT: 1}).items
        3

    Attributes:
      counts: rejected items by reason.
      examples: one sentence for each reason, and with its reason for each kind of part.
      parts: rejected parts of items, by kind ("boxes").
      task: text that identifies the task; logs are ordered by it where rejections of
        several tasks tie.
      first: the least key of its rows.
      has_items: whether the items are kept.
      payload: the log itself, or empty when it was spilled.
      path: the file that holds it, or empty when it is inline.
      crc32c: of the file.
    """

    counts: Mapping[Reason, int]
    examples: Mapping[str, str] = dataclasses.field(default_factory=dict)
    parts: Mapping[str, int] = dataclasses.field(default_factory=dict)
    task: str = ""
    first: bytes = b""
    has_items: bool = False
    payload: bytes = b""
    path: str = ""
    crc32c: int = 0

    @property
    def items(self) -> int:
        """How many items were rejected; parts are not counted."""
        return sum(self.counts.values())


@dataclasses.dataclass(frozen=True, slots=True)
class Reading:
    """The rows of one block, or of one piece of it: read, rejected and skipped.

        >>> rows = pa.record_batch({"id": [7, 8]})
        >>> batch = Batch(Block("a.csv", 3, 8, rows=3), rows, np.array([0, 2]))
        >>> Reading(batch, skipped={"repeated_header": 1}).rejections
        []

    Attributes:
      batch: the rows that fit; its block is the piece.
      rejections: the rows that do not fit, and parts of rows.
      skipped: rows left out on purpose, by reason (`Skipped`).
      parts: kind of part ("boxes") -> number in all rows of the piece.
      parts_gone: the same, in the rows that were rejected.
      roundings: column -> how its values were rounded, in the rows that fit.
    """

    batch: Batch
    rejections: Sequence[Rejection] = dataclasses.field(default_factory=list)
    skipped: Mapping[str, int] = dataclasses.field(default_factory=dict)
    parts: Mapping[str, int] = dataclasses.field(default_factory=dict)
    parts_gone: Mapping[str, int] = dataclasses.field(default_factory=dict)
    roundings: Mapping[str, Rounding] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class ReadFacts(Fact):
    """The counts of `read` for one block, or for one piece of it; see `Reading`.

    >>> ReadFacts("a.csv", start=3, rows=2, skipped={"repeated_header": 1}).skipped
    {'repeated_header': 1}
    """

    origin: str
    start: int
    rows: int
    skipped: Mapping[str, int] = dataclasses.field(default_factory=dict)
    parts: Mapping[str, int] = dataclasses.field(default_factory=dict)
    parts_gone: Mapping[str, int] = dataclasses.field(default_factory=dict)
    roundings: Mapping[str, Rounding] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Piece:
    """What `read` did with one piece of a block, for later runs that reuse its rows.

    The second piece of a block, without rejections:

        >>> Piece("c0ffee", 1, ReadFacts("a.csv", start=3, rows=2), rejects=None).number
        1

    Attributes:
      input_digest: digest of everything that decides the rows of the whole block.
      number: of the piece in its block, from 0.
      facts: of the piece.
      rejects: of the piece, if it has any.
    """

    input_digest: str
    number: int
    facts: ReadFacts
    rejects: RejectLog | None


@dataclasses.dataclass(frozen=True, slots=True)
class PlaceFacts(Fact):
    """What `place` did with one batch.

        >>> rows = {("train", 0): 5, ("test", 0): 1}
        >>> sum(PlaceFacts("a.csv", 3, rows, labels={}).rows.values())
        6

    Attributes:
      origin, start: of its block.
      rows: rows placed, by shard.
      labels: distinct class names, by label feature, in any order; each a list as
        `transforms.core.segment` stores it.
    """

    origin: str
    start: int
    rows: Mapping[ShardKey, int]
    labels: Mapping[str, Segment]


@dataclasses.dataclass(frozen=True, slots=True)
class ShardFile(Fact):
    """A finished file.

        >>> name = "rows-train.tfrecord-00000-of-00002"
        >>> shard = ShardFile(name, "train", 0, 5, 180, 100, 0xBEEF, statistics={})
        >>> shard.bytes - shard.payload_bytes == 16 * shard.records
        True

    Attributes:
      name: its file name.
      split, index: its split, and its number there.
      records: number of records.
      bytes: its size on disk.
      payload_bytes: the sum of its records' lengths, uncompressed.
      crc32c: of the whole file as stored.
      statistics: by feature name; see `transforms.core.statistics`.
      parts: kind of part ("boxes") -> number in its records.
      parts_gone: the same, in rows that were rejected while it was written.
      image_notes: number of images by `ImageNote`.
      indexes: facts of its indexes; see `transforms.core.tfrecord.index`.
      repeated: in a shuffled job with keys, the number of rows whose key another row
        of the shard has; equal keys share a shard.
      repeated_example: (origin, 0-based row) of two rows of one key.
    """

    name: str
    split: str
    index: int
    records: int
    bytes: int
    payload_bytes: int
    crc32c: int
    statistics: Mapping[str, Statistics]
    parts: Mapping[str, int] = dataclasses.field(default_factory=dict)
    parts_gone: Mapping[str, int] = dataclasses.field(default_factory=dict)
    image_notes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    indexes: tuple[FileFacts, ...] = ()
    repeated: int = 0
    repeated_example: tuple[tuple[str, int | None], ...] = ()
