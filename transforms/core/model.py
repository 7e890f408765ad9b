"""What travels between the stages: small frozen values, never dicts.

    list -> Block -> read -> Batch -> place -> (shard, Segment) -> write -> ShardFile
                       |                |                            |
                       +- RejectLog     +- BlockFacts                +- RejectLog

Row numbers (`row`) are 0-based inside the program and 1-based wherever a person
reads them; lines are 1-based everywhere.
"""

import dataclasses
import enum
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.statistics import Statistics
from transforms.errors import bounded

__all__ = [
    "Batch",
    "Block",
    "PlaceFacts",
    "ReadFacts",
    "Reason",
    "RejectLog",
    "Rejection",
    "Segment",
    "ShardFile",
    "ShardKey",
]

# (split, shard) as `place` numbers them; empty shards are left out of the files.
ShardKey = tuple[str, int]


class Reason(enum.StrEnum):
    """Why an item was rejected. The list is closed: reports group by it."""

    FIELD_COUNT = "field_count"
    NOT_AN_INTEGER = "not_an_integer"
    NOT_A_NUMBER = "not_a_number"
    NOT_A_BOOL = "not_a_bool"
    OUT_OF_RANGE = "out_of_range"
    INVALID_ENCODING = "invalid_encoding"
    BAD_SPLIT = "bad_split"
    UNREADABLE = "unreadable"
    EMPTY_FILE = "empty_file"
    NOT_AN_IMAGE = "not_an_image"
    UNSUPPORTED_FORMAT = "unsupported_format"
    DAMAGED_IMAGE = "damaged_image"
    TOO_MANY_PIXELS = "too_many_pixels"
    RECORD_TOO_LARGE = "record_too_large"
    CHANGED_DURING_RUN = "changed_during_run"


@dataclasses.dataclass(frozen=True, slots=True)
class Block:
    """An independently readable piece of one input.

    For a CSV file `start` and `stop` are byte offsets, at true record ends; for a
    tree of files they are positions in the sorted listing, and `origin` is empty.

    Attributes:
      origin: path relative to the source's root, `/` between, NFC.
      start: where the piece begins.
      stop: where it ends, exclusive.
      first_row: 0-based number of its first record in the origin.
      first_line: 1-based physical line on which that record starts.
      rows: how many records it holds.
      position: bytes of input, over all inputs in source order, before it.
      stamp: of the file as it was listed; see `transforms.files.stamp`.
    """

    origin: str
    start: int
    stop: int
    first_row: int = 0
    first_line: int = 1
    rows: int = 0
    position: int = 0
    stamp: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Batch:
    """Typed rows of one block.

    Attributes:
      block: the block they come from.
      rows: an Arrow record batch under `Schema.row_schema`; n rows.
      numbers: int64 array of n: each row's 0-based number in its origin.
      origins: for blocks that span several origins (trees of files), a string
        array of n: each row's own origin. None: all are from `block.origin`.
      stamps: with `origins`, each one's stamp as it was listed; 0 or None for unknown.
      splits: each row's split where the source says it; else None.
      positions: int64 array of n: bytes of input before each row, in its split
        where the source says the split.
    """

    block: Block
    rows: pa.RecordBatch
    numbers: npt.NDArray[np.int64]
    origins: pa.StringArray | None = None
    stamps: pa.Int64Array | None = None
    splits: pa.StringArray | None = None
    positions: npt.NDArray[np.int64] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Rejection:
    """One item that did not become a record, and why.

    Attributes:
      source: the item's origin, relative to the source's root.
      row: 1-based data record (header and blank lines not counted); None for files.
      line: 1-based physical line where the record starts; None for files.
      stage: the stage that refused it.
      reason: from the closed list.
      message: at most 1 KiB, for a person.
      sha256: hex digest of the raw item; None when it could not be read.
    """

    source: str
    row: int | None
    line: int | None
    stage: str
    reason: Reason
    message: str
    sha256: str | None

    def to_json(self) -> str:
        """Returns the line of `rejects.jsonl`, without its line end."""
        data: dict[str, Any] = dataclasses.asdict(self)
        data["reason"] = str(self.reason)
        data["message"] = bounded(self.message)
        return json.dumps(data, ensure_ascii=False, separators=(", ", ": "))


@dataclasses.dataclass(frozen=True, slots=True)
class RejectLog:
    """The rejections of one task: JSON lines, sorted by (source, row).

    Attributes:
      counts: rejected items by reason.
      lines: the JSON lines themselves, or empty when they were spilled.
      path: the file that holds them, or empty when they are inline.
    """

    counts: Mapping[Reason, int]
    lines: bytes = b""
    path: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class ReadFacts:
    """What `read` saw of one block."""

    origin: str
    start: int
    rows: int


@dataclasses.dataclass(frozen=True, slots=True)
class PlaceFacts:
    """What `place` did with one batch.

    Attributes:
      origin, start: of its block.
      rows: rows placed, by shard.
      labels: distinct class names, by label feature.
    """

    origin: str
    start: int
    rows: Mapping[ShardKey, int]
    labels: Mapping[str, frozenset[str]]


@dataclasses.dataclass(frozen=True, slots=True)
class Segment:
    """The rows of one batch that belong to one shard, as one Arrow IPC message.

    Segments of a shard sort by (origin, start): that is source order, and it breaks
    ties between equal order keys.

    Attributes:
      origin, start: of the block.
      rows: how many.
      size: bytes of the message.
      payload: the message itself when it travels inline, else empty.
      path, offset: where it lies otherwise.
    """

    origin: str
    start: int
    rows: int
    size: int
    payload: bytes = b""
    path: str = ""
    offset: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class ShardFile:
    """A finished file.

    Attributes:
      name: its file name.
      split, index: which shard it is.
      records: how many it holds.
      bytes: its size on disk.
      payload_bytes: the sum of its records' lengths, uncompressed.
      crc32c: of the whole file as stored.
      statistics: by feature name; see `transforms.core.statistics`.
    """

    name: str
    split: str
    index: int
    records: int
    bytes: int
    payload_bytes: int
    crc32c: int
    statistics: Mapping[str, Statistics]
