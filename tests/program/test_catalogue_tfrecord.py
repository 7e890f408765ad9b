"""Faults of TFRecord files that only a command can show, by their numbers.

The numbers are those of a catalogue of faults that are known in this field. Flipped
bits, cuts, hostile lengths and streams that end early are in
`tests/unit/core/tfrecord/` and `tests/proof/test_tfrecord_damage.py`; shards that are
not those of the manifest in `tests/unit/commands/test_verify.py`.
"""

import gzip
import io
import json
import pathlib
import re
import subprocess
import sys
from typing import Any

import pytest

from beam_pipeline.commands import verify
from tests.support.datasets import animals, example, write_dataset
from tests.support.stress import sizes
from tests.support.tfrecords import HOSTILE, needs_proc, run_child
from transforms.core.manifest import MANIFEST_NAME
from transforms.core.tfrecord.frame import frame, header
from transforms.core.tfrecord.reader import TFRecordReader
from transforms.errors import TFRecordError, UsageError

Folder = pathlib.Path
Printed = pytest.CaptureFixture[str]
RECORDS = [example({"n": n, "t": f"text {n}"}) for n in range(10)]
PLAIN = b"".join(map(frame, RECORDS))
SHARD = "animals-train.tfrecord-00001-of-00002"


@pytest.fixture
def folder(tmp_path: Folder) -> Folder:
    """Writes two shards with 4 and 5 records, without a manifest."""
    write_dataset(tmp_path / "out", {"train": animals(4, 5)})
    (tmp_path / "out" / MANIFEST_NAME).unlink()
    return tmp_path / "out"


def verdict(path: Folder, capsys: Printed) -> dict[str, Any]:
    """Verifies; returns the report that `--json` prints, and the exit code in it."""
    capsys.readouterr()
    code = verify.show(str(path), as_json=True)
    return {**json.loads(capsys.readouterr().out), "code": code}


def kinds(report: dict[str, Any]) -> list[tuple[str, bool]]:
    """Returns the findings of a report: kind, and whether it is damage."""
    return [(each["kind"], each["is_damage"]) for each in report["findings"]]


@needs_proc
def test_fault_044_hostile_lengths_cost_no_memory(tmp_path: Folder) -> None:
    """To check, to read and to repair, plain and gzip: 16 MiB at most."""
    (tmp_path / "good").write_bytes(frame(bytes(1000)) * 3000)
    paths = []
    for length in (1 << 29, *HOSTILE):
        data = PLAIN + header(length) + bytes(3_000_000)
        for pack, suffix in ((bytes, ""), (gzip.compress, ".gz")):
            paths.append(tmp_path / f"{length}{suffix}")
            paths[-1].write_bytes(pack(data))
    bomb = tmp_path / "bomb"
    with gzip.open(bomb, "wb", compresslevel=6) as file:
        file.write(header(2**40))
        for _ in range(300):
            file.write(bytes(1 << 20))
    assert bomb.stat().st_size < 350_000
    code = """
        from beam_pipeline.commands.repair import repair_file
        def repaired(path):
            return repair_file(path, path + ".out", overwrite=True)[0]
        good, bomb, *paths = sys.argv[1:]
        repaired(good)
        before = peak_kib()
        for path in (bomb, *paths):
            for use in (TFRecordReader.verify, list):
                try:
                    use(TFRecordReader(path))
                except TFRecordError as error:
                    print(error.kind)
        print(*[repaired(path).records for path in paths])
        print(peak_kib() - before)
    """
    *found, growth_kib = run_child(code, tmp_path / "good", bomb, *paths)
    kinds = ["too-long"] * 2 + ["truncated"] * 4 + ["too-long"] * 4 * len(HOSTILE)
    assert found == [*kinds, *["10"] * len(paths)]
    assert int(growth_kib) < 16 * 1024


def test_fault_051_zeros_behind_a_gzip_stream(
    tmp_path: Folder, capsys: Printed
) -> None:
    """512 zeros are a finding of the kind `stored`, and no damage."""
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(PLAIN, mtime=0) + bytes(512))
    report = verdict(path, capsys)
    assert (report["code"], report["records"]) == (0, 10)
    assert kinds(report) == [("stored", False)]
    assert "512" in report["findings"][0]["message"]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", ["a.tfrecord", "a.gz"])
def test_fault_052_names_that_contradict_the_content(
    packed: bool, name: str, tmp_path: Folder, capsys: Printed
) -> None:
    """The content decides; a name that says otherwise is a finding, and no damage."""
    data = gzip.compress(PLAIN, mtime=0) if packed else PLAIN
    (tmp_path / name).write_bytes(data)
    report = verdict(tmp_path / name, capsys)
    assert (report["code"], report["records"]) == (0, 10)
    agrees = packed == name.endswith(".gz")
    assert kinds(report) == ([] if agrees else [("stored", False)])


def test_fault_059_shards_of_two_numberings(folder: Folder, capsys: Printed) -> None:
    """A shard of 3 beside shards of 2, without a manifest, is damage."""
    extra = folder / "animals-train.tfrecord-00000-of-00003"
    extra.write_bytes((folder / SHARD).read_bytes())
    report = verdict(folder, capsys)
    assert report["code"] == 1
    assert set(kinds(report)) == {("shards", True)}


def test_fault_059_a_shard_that_its_number_misses(
    folder: Folder, capsys: Printed
) -> None:
    """Shard 1 of 2 is gone, without a manifest: damage that names its number."""
    assert verdict(folder, capsys)["code"] == 0
    (folder / SHARD).unlink()
    report = verdict(folder, capsys)
    assert report["code"] == 1
    assert kinds(report) == [("shards", True)]
    assert "00001" in report["findings"][0]["message"]


def test_fault_060_files_that_other_programs_leave(
    folder: Folder, capsys: Printed
) -> None:
    """Without a manifest too, none of them is read as records."""
    for name in ("_SUCCESS", ".DS_Store", f".{SHARD}.crc", f"{SHARD}.tmp", "x.json"):
        (folder / name).write_bytes(b"nothing of the kind")
    report = verdict(folder, capsys)
    assert (report["code"], report["records"], report["files"]) == (0, 9, 2)


def test_fault_068_a_loop_of_links_is_a_usage_error(tmp_path: Folder) -> None:
    """`verify` of a link to itself names it."""
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(UsageError, match=re.escape(str(tmp_path / "loop"))):
        verify.show(str(tmp_path / "loop"))


def test_fault_068_standard_input_streams() -> None:
    """`verify /dev/stdin` counts the ten records of a pipe."""
    done = subprocess.run(
        [sys.executable, "-m", "beam_pipeline", "verify", "/dev/stdin", "--json"],
        input=PLAIN,
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["records"] == 10


class Repeated(io.RawIOBase):
    """A stream of the same bytes again and again, with one more at its end."""

    def __init__(self, data: bytes, times: int) -> None:
        self._data = data
        self._times = times
        self._place = 0

    def read(self, size: int = -1) -> bytes:
        turn, begin = divmod(self._place, len(self._data))
        data = self._data[begin : begin + size] if turn < self._times else b""
        if not data and not begin:
            data = b"x"
        self._place += len(data)
        return data


@pytest.mark.parametrize("mebibytes", sizes(50, 5 << 10))
def test_fault_069_more_than_4_gib(mebibytes: int) -> None:
    """Offsets and counts are exact behind a stream of 5 GiB (less in every run)."""
    stream = Repeated(frame(bytes((1 << 20) - 16)), mebibytes)
    with pytest.raises(TFRecordError) as caught:
        TFRecordReader(stream).verify()  # type: ignore[arg-type]
    assert caught.value.kind == "truncated"
    assert (caught.value.record, caught.value.offset) == (mebibytes, mebibytes << 20)
