"""The catalogue: a Parquet table with a row for each record, in shard order.

    catalogue/SPLIT-00000-of-0000N.pq    runs of consecutive shards of a split

| column    | type          | meaning                                               |
| --------- | ------------- | ----------------------------------------------------- |
| `_shard`  | int32         | number of the shard in its split, from 0              |
| `_offset` | int64         | where the record begins in the file, its header first |
| `_size`   | int32         | bytes of the payload                                  |
| `_crc32c` | uint32        | of the payload, not masked                            |
| `_origin` | dictionary    | where in the source it comes from, as in rejects      |
| `_row`    | int64         | and its row there, from 1; null where that is a file  |
| `_key`    | string        | what identifies its row                               |
| others    | see `_type`   | features of one value, under their own names          |

`_key` is there where rows have keys. A catalogue that was made from the shards alone
lacks `_origin`, `_row` and `_key`. Of a compressed file, `_offset` is null. Version 0.2
wrote `_within` for gzip: where the record begins in the gzip member at `_offset`.
Parquet has no timestamps in seconds: those are in milliseconds, and null beyond their
range, some 292 million years.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import regrouped
from transforms.core.manifest import FileFacts
from transforms.core.model import Fact
from transforms.core.schema import Feature, Kind
from transforms.errors import ExampleError

MOST_SECONDS = (2**63 - 1) // 1000
"""The seconds that an int64 holds in milliseconds."""
OWN_COLUMNS = frozenset(
    ("_shard", "_offset", "_within", "_size", "_crc32c", "_origin", "_row", "_key")
)
_SCALARS = frozenset((Kind.INT64, Kind.FLOAT, Kind.BOOL, Kind.TIMESTAMP, Kind.LABEL))
PART_RECORDS = 4_000_000
"""The most records of a part of the catalogue that has several shards."""
_GROUP_ROWS = 1 << 17
_GROUP_BYTES = 64 << 20
_REPEATED_TEXT = pa.dictionary(pa.int32(), pa.string())


def part_file(split: str, index: int, parts: int) -> str:
    """Returns the file name of a part of the catalogue, below the dataset's folder.

    >>> part_file("train", 0, 2)
    'catalogue/train-00000-of-00002.pq'
    """
    return f"catalogue/{split}-{index:05d}-of-{parts:05d}.pq"


def part_ranges(
    records: Sequence[int], most: int = PART_RECORDS
) -> list[tuple[int, int]]:
    """Returns the first shard of each part and the one behind its last.

        >>> part_ranges([3, 3, 3], most=6)
        [(0, 2), (2, 3)]

    Args:
      records: of each shard of a split, in order.
      most: records of a part, unless one shard alone has more.
    """
    ranges: list[tuple[int, int]] = []
    start = total = 0
    for number, count in enumerate(records):
        if number > start and total + count > most:
            ranges.append((start, number))
            start, total = number, 0
        total += count
    if records:
        ranges.append((start, len(records)))
    return ranges


def catalogue_features(
    features: Iterable[Feature], *, texts: bool = False
) -> tuple[tuple[Feature, ...], tuple[str, ...]]:
    """Returns the features that are columns of the catalogue, and notes on others.

    Args:
      features: of the records.
      texts: whether texts are columns, too.
    """
    kinds = _SCALARS | {Kind.TEXT} if texts else _SCALARS
    eligible = [f for f in features if f.kind in kinds and not f.is_list]
    notes = tuple(
        f"feature {clash.name!r} is not in the catalogue: a column of its own has this "
        f"name"
        for clash in eligible
        if clash.name in OWN_COLUMNS
    )
    return tuple(f for f in eligible if f.name not in OWN_COLUMNS), notes


def catalogue_schema(
    features: Sequence[Feature],
    classes: Mapping[str, pa.StringArray],
    *,
    origins: bool = False,
    keys: bool = False,
) -> pa.Schema:
    """Returns the columns of the catalogue.

    Args:
      features: as `catalogue_features` returns them.
      classes: label feature -> its class names in the order of their ids. Labels
        without names keep their ids.
      origins: whether it is known where in the source each record comes from.
      keys: whether records have keys.
    """
    own = [
        ("_shard", pa.int32()),
        ("_offset", pa.int64()),
        ("_size", pa.int32()),
        ("_crc32c", pa.uint32()),
        *([("_origin", _REPEATED_TEXT), ("_row", pa.int64())] if origins else []),
        *([("_key", pa.string())] if keys else []),
    ]
    return pa.schema([*own, *((f.name, _type(f, f.name in classes)) for f in features)])


def own_columns(
    shard: int,
    offsets: npt.NDArray[np.int64] | None,
    sizes: npt.NDArray[np.int64],
    crcs: npt.NDArray[np.uint32],
) -> dict[str, pa.Array]:
    """Returns the own columns of n records of a shard.

    Args:
      shard: its number in the split.
      offsets: where each record begins in the file; None where that is of no use,
        because the file is compressed.
      sizes: bytes of each payload.
      crcs: CRC32C of each payload, not masked.
    """
    count = len(sizes)
    nulls = pa.nulls(count, pa.int64())
    return {
        "_shard": pa.array(np.full(count, shard, np.int32)),
        "_offset": nulls if offsets is None else pa.array(offsets),
        "_size": pa.array(sizes.astype(np.int32)),
        "_crc32c": pa.array(crcs),
    }


def _type(feature: Feature, named: bool) -> pa.DataType:
    """Returns the type of a feature's column."""
    if feature.kind is Kind.LABEL and named:
        return _REPEATED_TEXT
    if feature.kind is Kind.TIMESTAMP:
        unit = feature.unit or "s"
        return pa.timestamp("ms" if unit == "s" else unit, "UTC")
    return {
        Kind.FLOAT: pa.float32(),
        Kind.BOOL: pa.bool_(),
        Kind.TEXT: pa.string(),
    }.get(feature.kind, pa.int64())


def write_part(
    sink: Any,
    batches: Iterable[Mapping[str, pa.Array]],
    schema: pa.Schema,
    classes: Mapping[str, pa.StringArray],
) -> int:
    """Writes one part; returns how many rows it has.

    Memory is that of one row group: 131,072 rows, or about 64 MiB.

    Args:
      sink: a path, or a binary file.
      batches: columns of consecutive records, at least those of the schema; labels
        are class ids.
      schema: as `catalogue_schema` returns it.
      classes: that it was made with.

    Raises:
      ExampleError: a class id has no name.
    """
    # Loaded where it is needed: most of those who ask here write nothing.
    import pyarrow.parquet as pq

    chosen = (
        pa.record_batch([b[n] for n in schema.names], schema.names) for b in batches
    )
    texts = [f.name for f in schema if f.type in (pa.string(), _REPEATED_TEXT)]
    rows = 0
    with pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        use_dictionary=["_shard", *texts],
        write_page_checksum=True,
    ) as writer:
        for group in regrouped(chosen, _GROUP_ROWS, _GROUP_BYTES):
            columns = [
                _named(name, group[name], classes[name])
                if name in classes
                else _storable(group[name], kind)
                for name, kind in zip(schema.names, schema.types, strict=True)
            ]
            table = pa.Table.from_arrays(columns, schema=schema)
            writer.write_table(table, row_group_size=_GROUP_ROWS)
            rows += len(table)
            del group, columns, table
            # What Arrow keeps of one row group does not fit the next: it grew to the
            # size of three within a part.
            pa.default_memory_pool().release_unused()
    return rows


def _named(name: str, ids: pa.Array, classes: pa.StringArray) -> pa.DictionaryArray:
    """Returns class names; the dictionary has those that occur, in order of ids."""
    unique_ids = pc.unique(ids).drop_null().sort()
    for end in unique_ids[:1].to_pylist() + unique_ids[-1:].to_pylist():
        if not 0 <= end < len(classes):
            raise ExampleError(
                f"label {name!r} must be one of {len(classes):,} class ids; found "
                f"{end:,}. Verify the dataset, and convert it again."
            )
    places = pc.index_in(ids, unique_ids)
    return pa.DictionaryArray.from_arrays(places, classes.take(unique_ids))


def _storable(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Returns a column in its type of the catalogue; times beyond it become null."""
    if column.type == kind:
        return column
    if pa.types.is_timestamp(column.type):
        seconds = column.cast(pa.int64())
        fits = pc.and_(
            pc.greater_equal(seconds, -MOST_SECONDS),
            pc.less_equal(seconds, MOST_SECONDS),
        )
        column = pc.if_else(fits, column, pa.scalar(None, column.type))
    return column.cast(kind)


@dataclasses.dataclass(frozen=True, slots=True)
class CataloguePart(Fact):
    """A finished part of the catalogue.

    >>> facts = FileFacts("catalogue/train-00000-of-00001.pq", 900, 0xBEEF)
    >>> CataloguePart(facts).file.bytes
    900
    """

    file: FileFacts


@dataclasses.dataclass(frozen=True, slots=True)
class DerivedSettings:
    """Whether a catalogue and indexes are written, for readers that look records up.

        >>> DerivedSettings(index=True, text_index=True).files_per_shard
        3

    Attributes:
      index: `index/SHARD.u64` for each shard.
      text_index: `index/SHARD.idx`, too.
      catalogue: the parts of `catalogue/`.
      key: the feature that identifies rows, for the column `_key`; empty for none.
    """

    index: bool = False
    text_index: bool = False
    catalogue: bool = False
    key: str = ""

    @property
    def are_any(self) -> bool:
        """Whether there is any such file."""
        return self.index or self.catalogue

    @property
    def files_per_shard(self) -> int:
        """How many files a shard is written as: itself and its indexes."""
        return 1 + self.index + self.text_index
