"""A catalogue that is not that of its shards is noticed."""

import pathlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.tfrecords import write
from transforms.core.catalogue import catalogue_schema, write_part
from transforms.core.tfrecord.reader import TFRecordReader
from transforms.errors import DamageError
from transforms.formats.tfrecord_files.dataset import Shard
from transforms.reading.catalogue import Catalogue
from transforms.reading.catalogue_of_shards import comparison, rows_of_shard


def shard(path: pathlib.Path, records: list[bytes], compression: str) -> Shard:
    path.write_bytes(write(records, compression)[0])
    return Shard(str(path), compression, len(records))


@pytest.fixture(params=["none", "gzip", "zlib"])
def shards(tmp_path: pathlib.Path, request: pytest.FixtureRequest) -> list[Shard]:
    """Two of 3 and 2 records, and an empty one between them."""
    found = [[b"a", b"bb", b"ccc"], [], [b"dddd", b"e"]]
    return [
        shard(tmp_path / str(number), records, request.param)
        for number, records in enumerate(found)
    ]


@pytest.fixture
def table(shards: list[Shard]) -> pa.Table:
    """Their catalogue."""
    path = str(pathlib.Path(shards[0].path).with_name("good.pq"))
    rows = (r for n, s in enumerate(shards) for r in rows_of_shard(s.path, n, ()))
    write_part(path, rows, catalogue_schema([], {}), {})
    return pq.read_table(path)


def check(table: pa.Table, shards: list[Shard], group: int = 2) -> None:
    """Checks a catalogue of small row groups."""
    path = str(pathlib.Path(shards[0].path).with_name("part.pq"))
    pq.write_table(table, path, row_group_size=group)
    catalogue, place = Catalogue([path]), 0
    for number, each in enumerate(shards):
        shard = (number, each.path, place, each.records or 0)
        see = comparison(catalogue, *shard, compression=each.compression)
        TFRecordReader(each.path, allow_empty=True).verify(see)
        place += each.records or 0
    catalogue.check_length(place)


def test_the_catalogue_of_the_shards(table: pa.Table, shards: list[Shard]) -> None:
    """Row groups need not end where shards do."""
    for group in range(1, 6):
        check(table, shards, group)


def test_any_other_number(table: pa.Table, shards: list[Shard]) -> None:
    """Of every column of the catalogue's own, in every row; the row is named."""
    for index, name in enumerate(table.schema.names):
        for row in range(5):
            values = table[name].to_pylist()
            values[row] = (values[row] or 0) + 1
            changed = pa.array(values, table.schema.field(name).type)
            with pytest.raises(DamageError, match=rf"record {row}, in .*'{name}'"):
                check(table.set_column(index, name, changed), shards)


def test_rows_too_few_too_many_or_swapped(table: pa.Table, shards: list[Shard]) -> None:
    """Each is damage that names the part."""
    with pytest.raises(DamageError, match=r"part\.pq.*no row for record 4"):
        check(table.slice(0, 4), shards)
    with pytest.raises(DamageError, match="5 records of the split; found 6"):
        check(pa.concat_tables([table, table.slice(4)]), shards)
    with pytest.raises(DamageError, match=r"part\.pq"):
        check(table.take(np.array([1, 0, 2, 3, 4])), shards)


def test_shards_of_another_split(table: pa.Table, shards: list[Shard]) -> None:
    """Records of the same sizes have other checksums."""
    path = pathlib.Path(shards[0].path)
    other = shard(path, [b"A", b"bb", b"ccc"], shards[0].compression)
    with pytest.raises(DamageError, match="_crc32c"):
        check(table, [other, *shards[1:]])
