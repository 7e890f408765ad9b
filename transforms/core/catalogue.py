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

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.schema import Feature, Kind

MOST_SECONDS = (2**63 - 1) // 1000
"""The seconds that an int64 holds in milliseconds."""
OWN_COLUMNS = frozenset(
    ("_shard", "_offset", "_within", "_size", "_crc32c", "_origin", "_row", "_key")
)
_SCALARS = frozenset((Kind.INT64, Kind.FLOAT, Kind.BOOL, Kind.TIMESTAMP, Kind.LABEL))
PART_RECORDS = 4_000_000
"""The most records of a part of the catalogue that has several shards."""


def part_file(split: str, index: int, parts: int) -> str:
    """Returns the name of a part, below the dataset's folder.

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
    wanted = [f for f in features if f.kind in kinds and not f.is_list]
    notes = tuple(
        f"feature {each.name!r} is not in the catalogue: a column of its own has this "
        f"name"
        for each in wanted
        if each.name in OWN_COLUMNS
    )
    return tuple(f for f in wanted if f.name not in OWN_COLUMNS), notes


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
    text = pa.dictionary(pa.int32(), pa.string())
    own = [
        ("_shard", pa.int32()),
        ("_offset", pa.int64()),
        ("_size", pa.int32()),
        ("_crc32c", pa.uint32()),
        *([("_origin", text), ("_row", pa.int64())] if origins else []),
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
        return pa.dictionary(pa.int32(), pa.string())
    if feature.kind is Kind.TIMESTAMP:
        unit = feature.unit or "s"
        return pa.timestamp("ms" if unit == "s" else unit, "UTC")
    return {
        Kind.FLOAT: pa.float32(),
        Kind.BOOL: pa.bool_(),
        Kind.TEXT: pa.string(),
    }.get(feature.kind, pa.int64())
