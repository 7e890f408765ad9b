"""Records by position: where they are, neighbours together, damage."""

import os
import pathlib
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tfrecords import RECORDS, write
from transforms.errors import SourceError, TFRecordError
from transforms.formats.tfrecord_files.dataset import Edition, Shard
from transforms.reading import folder
from transforms.reading.records import Records


def shards(
    directory: pathlib.Path,
    contents: Sequence[Sequence[bytes]],
    compression: str = "none",
    *,
    index: bool = False,
    stated: bool = False,
) -> list[Shard]:
    """Writes shards, with an index beside each and with stated facts if asked for."""
    directory.mkdir(exist_ok=True)
    made = []
    for number, records in enumerate(contents):
        path = directory / f"a.tfrecord-{number:05d}-of-{len(contents):05d}"
        data, facts = write([*records], compression)
        path.write_bytes(data)
        if index:
            lengths = [len(record) + 16 for record in records]
            (directory / "index").mkdir(exist_ok=True)
            offsets = np.cumsum([0, *lengths]).astype("<u8")
            (directory / "index" / f"{path.name}.u64").write_bytes(offsets.tobytes())
        made.append(
            Shard(
                str(path), compression, facts.records, facts.stored_bytes, facts.crc32c
            )
            if stated
            else Shard(str(path))
        )
    return made


def records_of(made: list[Shard], *, check: bool = True) -> Records:
    return Records(made, Edition(), check=check)


THREE = [RECORDS[:4], [], RECORDS[4:]]


def span(found: Records, start: int, stop: int) -> list[bytes]:
    return [each for some in found.batches(start, stop) for each in some.to_list()]


@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("stated", [True, False])
def test_by_position(tmp_path: pathlib.Path, index: bool, stated: bool) -> None:
    """Each record is found, with an index and without, counted beforehand or not."""
    found = records_of(shards(tmp_path / "a", THREE, index=index, stated=stated))
    assert [found[place] for place in range(len(found))] == RECORDS
    assert span(found, 0, len(found)) == RECORDS
    assert span(found, 3, 5) == RECORDS[3:5]
    assert span(found, 5, 5) == []


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> list[Shard]:
    return shards(tmp_path_factory.mktemp("made"), THREE, index=True, stated=True)


@given(st.lists(st.integers(0, len(RECORDS) - 1), max_size=30))
def test_many_at_once(made: list[Shard], positions: list[int]) -> None:
    """Any positions at once give the records one by one, in their order."""
    found = records_of(made)
    assert [*found.many(np.array(positions, np.int64))] == [
        RECORDS[i] for i in positions
    ]


@pytest.mark.parametrize("index", [True, False])
def test_no_flipped_bit_is_silent(tmp_path: pathlib.Path, index: bool) -> None:
    """Whichever bit of a shard is flipped: an error that names file and record."""
    made = shards(tmp_path / "a", [RECORDS], index=index, stated=True)
    path = pathlib.Path(made[0].path)
    whole = path.read_bytes()
    for place in range(len(whole)):
        broken = bytearray(whole)
        broken[place] ^= 1 << place % 8
        path.write_bytes(broken)
        for read in (_one_by_one, _in_sequence, _at_once):
            with pytest.raises(TFRecordError, match=r"record .*repair|repair") as error:
                read(records_of(made))
            assert error.value.path == str(path)


def _one_by_one(found: Records) -> list[bytes]:
    return [found[place] for place in range(len(found))]


def _in_sequence(found: Records) -> list[bytes]:
    return span(found, 0, len(found))


def _at_once(found: Records) -> list[bytes]:
    return [*found.many(np.arange(len(found)))]


def test_unchecked_payloads(tmp_path: pathlib.Path) -> None:
    """Without the check a damaged payload is given; a damaged length is not."""
    made = shards(tmp_path / "a", [RECORDS], index=True, stated=True)
    path = pathlib.Path(made[0].path)
    whole = path.read_bytes()
    # The first record is empty: 16 bytes; the second is one byte behind its header.
    for place, is_payload in [(28, True), (16, False), (24, False)]:
        broken = bytearray(whole)
        broken[place] ^= 1
        path.write_bytes(broken)
        for read in (_one_by_one, _in_sequence, _at_once):
            found = records_of(made, check=False)
            if is_payload:
                assert read(found)[1] == b"`"
                continue
            with pytest.raises(TFRecordError, match="record 1 "):
                read(found)


@pytest.mark.parametrize("cut", [0, 1, 11, 12, 16, 20, 40, -1])
def test_a_shard_that_was_cut(tmp_path: pathlib.Path, cut: int) -> None:
    """A shard that has other bytes than its index says is an error, never a row."""
    made = shards(tmp_path / "a", [RECORDS], index=True)
    path = pathlib.Path(made[0].path)
    path.write_bytes(path.read_bytes()[:cut])
    for read in (_one_by_one, _in_sequence, _at_once):
        with pytest.raises(TFRecordError, match="index"):
            read(records_of(made))


@pytest.mark.parametrize("of_index", ["cut", "empty", "odd", "swapped"])
def test_a_damaged_index(tmp_path: pathlib.Path, of_index: str) -> None:
    """An index that does not fit its shard is an error, and no row is given."""
    made = shards(tmp_path / "a", [RECORDS, RECORDS[1:]], index=True, stated=True)
    one, other = sorted((tmp_path / "a" / "index").iterdir())
    data = one.read_bytes()
    one.write_bytes(
        {
            "cut": data[:-8],
            "empty": b"",
            "odd": data[:-3],
            "swapped": other.read_bytes(),
        }[of_index]
    )
    for read in (_one_by_one, _in_sequence, _at_once):
        with pytest.raises(TFRecordError):
            read(records_of(made))


def test_every_flipped_bit_of_an_index(tmp_path: pathlib.Path) -> None:
    """Whichever bit of an index is flipped: an error, or the right records."""
    made = shards(tmp_path / "a", [RECORDS], index=True, stated=True)
    (path,) = (tmp_path / "a" / "index").iterdir()
    whole = path.read_bytes()
    for place in range(8 * len(whole)):
        broken = bytearray(whole)
        broken[place // 8] ^= 1 << place % 8
        path.write_bytes(broken)
        for read in (_one_by_one, _in_sequence, _at_once):
            with pytest.raises(TFRecordError):
                read(records_of(made))


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
@pytest.mark.parametrize("stated", [True, False])
def test_compressed_shards_are_read_in_sequence(
    tmp_path: pathlib.Path, compression: str, stated: bool
) -> None:
    """Compressed shards give their records one after another."""
    found = records_of(shards(tmp_path / "a", THREE, compression, stated=stated))
    assert len(found) == len(RECORDS)
    assert span(found, 0, len(found)) == RECORDS
    assert span(found, 2, 7) == RECORDS[2:7]


def test_long_records_without_an_index(tmp_path: pathlib.Path) -> None:
    """Records of megabytes are found by their headers, between short ones."""
    records = [b"a" * length for length in (3, 3 << 20, 0, 1 << 20, (1 << 20) - 16, 5)]
    found = records_of(shards(tmp_path / "a", [records * 2]))
    assert [len(found[place]) for place in range(len(found))] == [
        len(record) for record in records * 2
    ]


def test_a_shard_that_is_gone(tmp_path: pathlib.Path) -> None:
    """A file that is not there is an error that names it."""
    made = shards(tmp_path / "a", [RECORDS], stated=True)
    os.unlink(made[0].path)
    with pytest.raises(SourceError, match="00000-of-00001"):
        records_of(made)[0]


def test_a_folder_that_was_moved(tmp_path: pathlib.Path) -> None:
    """Files are those of the folder that was opened, wherever it is by now."""
    made = shards(tmp_path / "a", THREE, index=True, stated=True)
    other = shards(tmp_path / "b", [RECORDS[::-1]] * 3, index=True)
    assert len(other) == 3
    found = records_of(made)
    (tmp_path / "a").rename(tmp_path / "c")
    (tmp_path / "b").rename(tmp_path / "a")
    assert _one_by_one(found) == RECORDS


def test_few_files_are_open(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """16 threads read 100 shards of equal records with two files open at a time."""
    monkeypatch.setattr(folder, "most_files", lambda: 2)
    # Records of equal lengths: a descriptor that now is another file's gives rows
    # whose checksums are right.
    contents = [
        [b"%03d %03d" % (shard, row) for row in range(20)] for shard in range(100)
    ]
    records = [record for content in contents for record in content]
    found = records_of(shards(tmp_path / "a", contents, index=True, stated=True))
    open_before = len(os.listdir("/proc/self/fd"))

    def read(seed: int) -> int:
        places = random.Random(seed).choices(range(len(records)), k=2_000)
        for place in places:
            assert found[place] == records[place]
        positions = np.array(places[:200])
        assert [*found.many(positions)] == [records[place] for place in places[:200]]
        return len(os.listdir("/proc/self/fd"))

    with ThreadPoolExecutor(16) as pool:
        most = max(pool.map(read, range(16)))
    # Two are kept, and each thread may hold one that it reads.
    assert most <= open_before + 2 + 2 * 16
    assert len(os.listdir("/proc/self/fd")) <= open_before + 2


def test_descriptors_are_given_back(tmp_path: pathlib.Path) -> None:
    """A dataset that nobody has any more keeps no file open."""
    made = shards(tmp_path / "a", THREE, index=True, stated=True)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        assert _one_by_one(records_of(made)) == RECORDS
    assert len(os.listdir("/proc/self/fd")) == before
