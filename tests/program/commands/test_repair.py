"""`repair`: what is sound goes to the output, what is not is named, nothing else."""

import gzip
import os
import pathlib
import random
import resource
import time
import zlib
from collections.abc import Callable, Iterator

import pytest

from beam_pipeline.commands import repair as repair_command
from beam_pipeline.commands import verify
from beam_pipeline.commands.repair import repair_file
from tests.conftest import Headline
from tests.support.datasets import animals, write_dataset, write_records
from tests.support.outputs import names
from tests.support.tfrecords import flipped
from transforms.core.tfrecord.frame import frame
from transforms.core.tfrecord.reader import TFRecordReader
from transforms.core.tfrecord.walk import Kept, LostRange, Salvage
from transforms.core.tfrecord.writer import FrameFacts
from transforms.errors import CommitError, TargetError, UsageError

Folder = pathlib.Path
RECORDS = [b"record %d" % number * 9 for number in range(100)]
PLAIN = b"".join(map(frame, RECORDS))
SHARD = "animals-train.tfrecord-00001-of-00003"


def repair(source: Folder, target: Folder, *, overwrite: bool = False) -> int:
    return repair_command.run(str(source), str(target), overwrite=overwrite)


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "none": bytes,
    "gzip": gzip.compress,
    "zlib": zlib.compress,
}


@pytest.mark.parametrize("compression", ["none", "gzip", "zlib"])
def test_a_sound_file_is_copied_byte_for_byte(
    compression: str, tmp_path: Folder
) -> None:
    """Also one that another program deflated at another level."""
    (tmp_path / "a").write_bytes(PACKERS[compression](PLAIN))
    assert repair(tmp_path / "a", tmp_path / "b") == 0
    assert (tmp_path / "b").read_bytes() == (tmp_path / "a").read_bytes()
    assert names(tmp_path) == ["a", "b"]


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_damaged_file_gives_what_is_sound(
    compression: str, tmp_path: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every record but one; its range is printed."""
    damaged = flipped(PLAIN, len(frame(RECORDS[0])) + 30)
    start, end = len(frame(RECORDS[0])), len(frame(RECORDS[0] + RECORDS[1])) + 16
    (tmp_path / "a").write_bytes(PACKERS[compression](damaged))
    assert repair(tmp_path / "a", tmp_path / "b") == 0
    assert list(TFRecordReader(tmp_path / "b", compression=compression)) == [
        RECORDS[0],
        *RECORDS[2:],
    ]
    printed = capsys.readouterr().out
    where = "" if compression == "none" else " of its content"
    assert f"{tmp_path / 'a'}: bytes {start} to {end}{where}: data-crc" in printed
    assert "99 records in 1 file, 1 of them repaired" in printed


def test_a_gzip_stream_cut_off_or_damaged(tmp_path: Folder) -> None:
    """The content that can be recovered, and the stored bytes that cannot."""
    noise = [random.Random(n).randbytes(200) for n in range(300)]
    stored = gzip.compress(b"".join(map(frame, noise)), mtime=0)
    (tmp_path / "a.gz").write_bytes(stored[: len(stored) // 2])
    source, target = str(tmp_path / "a.gz"), str(tmp_path / "b.gz")
    _, found = repair_file(source, target, overwrite=False)
    kept = list(TFRecordReader(tmp_path / "b.gz", compression="gzip"))
    assert kept == noise[: len(kept)]
    assert 145 <= len(kept) <= 150
    assert [each.kind for each in found] == ["truncated", "truncated"]
    assert {each.of for each in found} == {"file", "content"}


def test_a_damaged_zlib_stream_is_an_error(
    tmp_path: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says what to do, and nothing is written."""
    (tmp_path / "a").write_bytes(zlib.compress(PLAIN)[:-3])
    assert repair(tmp_path / "a", tmp_path / "b") == 1
    assert "Unpack what can be" in capsys.readouterr().out
    assert names(tmp_path) == ["a"]


def test_zeros_behind_a_gzip_stream_are_left_out(tmp_path: Folder) -> None:
    """Some readers fail on them; the output has none."""
    (tmp_path / "a.gz").write_bytes(gzip.compress(PLAIN) + bytes(512))
    assert repair(tmp_path / "a.gz", tmp_path / "b.gz") == 0
    reader = TFRecordReader(tmp_path / "b.gz")
    assert list(reader) == RECORDS
    assert reader.padding_bytes == 0


def test_nothing_sound_is_an_error(
    tmp_path: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    """No empty file appears: it would look like a dataset of none."""
    for name, data in {"a": b"", "b": b"no records " * 99, "c": bytes(999)}.items():
        (tmp_path / name).write_bytes(data)
        assert repair(tmp_path / name, tmp_path / "out") == 1
        assert "nothing was written" in capsys.readouterr().out
    assert names(tmp_path) == ["a", "b", "c"]


def test_nothing_is_overwritten_by_default(tmp_path: Folder) -> None:
    """Neither a file nor the damaged one itself, and never a dataset."""
    (tmp_path / "a").write_bytes(PLAIN)
    (tmp_path / "b").write_bytes(b"mine")
    with pytest.raises(TargetError, match="--overwrite"):
        repair(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == b"mine"
    assert repair(tmp_path / "a", tmp_path / "b", overwrite=True) == 0
    assert (tmp_path / "b").read_bytes() == PLAIN
    with pytest.raises(UsageError):
        repair(tmp_path / "a", tmp_path / "a", overwrite=True)
    write_dataset(tmp_path / "d", {"train": animals(3)})
    with pytest.raises(TargetError):
        repair(tmp_path / "a", tmp_path / "d" / "new", overwrite=True)


def test_a_target_that_appears_meanwhile_is_kept(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while the file is synced. No temporary file is left."""
    source, target, sync = tmp_path / "a", tmp_path / "b", os.fsync
    source.write_bytes(flipped(PLAIN, 40))

    def meddle_and_sync(descriptor: int) -> None:
        target.write_bytes(b"mine")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", meddle_and_sync)
    with pytest.raises(CommitError):
        repair_file(str(source), str(target), overwrite=False)
    assert target.read_bytes() == b"mine"
    assert names(tmp_path) == ["a", "b"]


def test_a_file_that_changes_meanwhile_is_an_error(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is written of it."""
    source = tmp_path / "a"
    source.write_bytes(flipped(PLAIN, 40))

    class Meddled(Salvage):
        def __iter__(self) -> Iterator[Kept | LostRange]:
            os.utime(source, (1, 1))
            yield from super().__iter__()

    monkeypatch.setattr(repair_command, "Salvage", Meddled)
    with pytest.raises(OSError, match="has changed"):
        repair_file(str(source), str(tmp_path / "b"), overwrite=False)
    assert names(tmp_path) == ["a"]


def test_a_folder_and_a_glob(tmp_path: Folder) -> None:
    """Each file goes to the same name; what is no TFRecord file stays behind."""
    source = tmp_path / "in"
    source.mkdir()
    write_records(source / "a.tfrecord", RECORDS)
    (source / "b.tfrecord").write_bytes(PLAIN[:-3])
    (source / "notes.txt").write_text("x")
    assert repair(source, tmp_path / "one") == 0
    assert repair(source / "*.tfrecord", tmp_path / "two") == 0
    for out in (tmp_path / "one", tmp_path / "two"):
        assert names(out) == ["a.tfrecord", "b.tfrecord"]
        assert list(TFRecordReader(out / "b.tfrecord")) == RECORDS[:-1]


def test_a_damaged_dataset_loses_its_manifest(
    tmp_path: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is put beside the shards, as it may not be true of them."""
    write_dataset(tmp_path / "d", {"train": animals(4, 5, 3), "test": animals(2)})
    shard = tmp_path / "d" / SHARD
    shard.write_bytes(flipped(shard.read_bytes(), 150))
    assert repair(tmp_path / "d", tmp_path / "out") == 0
    assert "has no manifest.json" in capsys.readouterr().out
    assert names(tmp_path / "out") == [
        name for name in names(tmp_path / "d") if ".tfrecord-" in name
    ]
    assert verify.show(str(tmp_path / "out")) == 0


def test_nothing_there(tmp_path: Folder) -> None:
    """Usage errors that say what is wrong."""
    (tmp_path / "empty").mkdir()
    write_dataset(tmp_path / "no shards", {})
    for source in ("none", "empty", "*.tfrecord", "no shards"):
        with pytest.raises(UsageError):
            repair(tmp_path / source, tmp_path / "out")
    assert names(tmp_path) == ["empty", "no shards"]


@pytest.mark.stress
@pytest.mark.parametrize("size", [100, 1_000, 20_000])
def test_throughput_and_memory(size: int, tmp_path: Folder, headline: Headline) -> None:
    """Good data with scattered damage, in CPU time; nothing grows with the file."""
    rng = random.Random(8)
    payload = rng.randbytes(2 * size)
    megabytes = 160
    sizes = [rng.randrange(2 * size) for _ in range(400)]
    block = b"".join(frame(payload[:each]) for each in sizes)
    data = bytearray(block * ((megabytes << 20) // len(block) + 1))
    for _ in range(megabytes):
        data[rng.randrange(len(data))] ^= 1
    (tmp_path / "a").write_bytes(data)

    def repaired(target: str) -> tuple[FrameFacts, list[LostRange]]:
        source = str(tmp_path / "a")
        return repair_file(source, str(tmp_path / target), overwrite=True)

    repaired("b")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = verifying = float("inf")
    for _ in range(3):
        started = time.process_time()
        _, ranges = repaired("b")
        seconds = min(seconds, time.process_time() - started)
        started = time.process_time()
        TFRecordReader(tmp_path / "b").verify()
        verifying = min(verifying, time.process_time() - started)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert len(ranges) > megabytes // 2
    assert grown < 16 * 1024
    speed, bare = (len(data) / each / 1e6 for each in (seconds, verifying))
    # Half of what is aimed at, as other processes share the caches; of small records
    # the checksum of each one is what takes the time, here as in `verify`.
    assert speed > min(150, bare / 3)
    headline(
        "H3",
        f"{len(data) / 1e6:,.0f} MB, {size:,} B a record, {len(ranges)} damages: "
        f"{speed:,.0f} MB/s; verify: {bare:,.0f} MB/s",
    )


def test_a_folder_is_not_repaired_into_another_thing(tmp_path: Folder) -> None:
    """Not into itself, nor a dataset."""
    folder = tmp_path / "in"
    write_dataset(folder, {"train": animals(3, 2)})
    shard = folder / "animals-train.tfrecord-00001-of-00002"
    shard.write_bytes(flipped(shard.read_bytes(), 40))
    (tmp_path / "link").symlink_to(folder)
    for source in (folder, tmp_path / "in" / "*.tfrecord-*"):
        for target in (folder / "sub", folder, tmp_path / "link"):
            if source != folder and target == folder / "sub":
                continue
            before = {path: path.lstat().st_mtime_ns for path in tmp_path.rglob("*")}
            for overwrite in (False, True):
                with pytest.raises(TargetError):
                    repair(source, target, overwrite=overwrite)
            after = {path: path.lstat().st_mtime_ns for path in tmp_path.rglob("*")}
            assert after == before
