"""Records of gzip shards, read at random from their members."""

import gzip
import pathlib
import random

import numpy as np
import pytest

from tests.support.tfrecords import write
from transforms.core.tfrecord.gzip_members import scan_members
from transforms.core.tfrecord.record_index import index_file
from transforms.errors import SpecError, TFRecordError
from transforms.formats.tfrecord_files.shards import Edition, Shard
from transforms.reading.records import Records

_noise = random.Random(4)
MANY = [_noise.randbytes(_noise.choice([0, 900, 30_000])) for _ in range(60)]


def shard(
    folder: pathlib.Path, *, index: bool = False, compression: str = "gzip"
) -> tuple[pathlib.Path, Shard]:
    data, facts = write(MANY, compression)
    path = folder / "a.tfrecord-00000-of-00001.gz"
    path.write_bytes(data)
    if index:
        (folder / "index").mkdir()
        found = scan_members(lambda a, b: data[a:b], len(data), path="")
        (folder / index_file(path.name)).write_bytes(found.tobytes())
    return path, Shard(
        str(path), compression, facts.records, facts.stored_bytes, facts.crc32c
    )


def opened(*made: Shard) -> Records:
    return Records(made, Edition(), check=True)


@pytest.mark.parametrize("index", [True, False])
def test_by_position(tmp_path: pathlib.Path, index: bool) -> None:
    """Single ones, runs and lists, with an index and without."""
    path, made = shard(tmp_path, index=index)
    records = opened(made)
    assert [records[place] for place in range(60)] == MANY
    assert [*records.span(7, 50)] == MANY[7:50]
    places = np.array([50, 3, 4, 5, 3, 59])
    assert [*records.many(places)] == [MANY[place] for place in places]
    assert [*records.span(0, 60)] == MANY
    bare = opened(Shard(str(path)))
    assert len(bare) == 60
    assert bare[31] == MANY[31]


def test_only_the_members_of_a_record_are_read(tmp_path: pathlib.Path) -> None:
    """Damage elsewhere is not seen, and damage in its member is an error."""
    path, made = shard(tmp_path, index=True)
    data = bytearray(path.read_bytes())
    data[20:40] = bytes(20)
    path.write_bytes(data)
    records = opened(made)
    assert records[59] == MANY[59]
    for read in (lambda: records[0], lambda: [*records.span(0, 60)]):
        with pytest.raises(TFRecordError, match="00000-of-00001"):
            read()


def test_every_flipped_bit_of_an_index_is_noticed(tmp_path: pathlib.Path) -> None:
    """No wrong record is ever given."""
    _, made = shard(tmp_path, index=True)
    (index,) = (tmp_path / "index").iterdir()
    whole = index.read_bytes()
    for bit in range(0, 8 * len(whole), 5):
        broken = bytearray(whole)
        broken[bit // 8] ^= 1 << bit % 8
        index.write_bytes(broken)
        with pytest.raises(TFRecordError):
            [opened(made)[place] for place in range(60)]


def test_one_stream_says_what_to_choose(tmp_path: pathlib.Path) -> None:
    """zlib files, and gzip files of other programs."""
    _, made = shard(tmp_path, compression="zlib")
    assert [*opened(made).span(3, 9)] == MANY[3:9]
    with pytest.raises(SpecError, match="compression='gzip'"):
        opened(made)[3]
    path = tmp_path / "b.tfrecord.gz"
    path.write_bytes(gzip.compress(write(MANY, "none")[0]))
    records = opened(Shard(str(path)))
    assert [*records.span(3, 9)] == MANY[3:9]
    with pytest.raises(SpecError, match="compression='gzip'"):
        records[3]
