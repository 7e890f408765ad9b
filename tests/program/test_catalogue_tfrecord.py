"""Faults of TFRecord files, from the command line, by their numbers.

The numbers are those of a catalogue of faults that are known in this field. Exhaustive
damage is in `tests/proof/test_tfrecord_damage.py` and
`tests/unit/core/salvage/test_salvage.py`, messages against TensorFlow's parsers in
`tests/readers/core/example/test_example_differential.py`.
"""

import gzip
import io
import math
import os
import pathlib
import struct
import subprocess
import sys
import textwrap
import time
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from beam_pipeline.commands import inspect, verify
from beam_pipeline.commands import repair as repair_command
from tests.support.datasets import animals, example, write_dataset, write_records
from tests.support.stress import sizes
from tests.support.tfrecords import needs_proc, run_child
from transforms.core.example.decoder import decode_examples, parse_example
from transforms.core.example.messages import Example
from transforms.core.manifest import MANIFEST_NAME
from transforms.core.tfrecord import TFRecordReader, verify_file
from transforms.core.tfrecord.frame import frame, header
from transforms.errors import (
    MAX_MESSAGE_BYTES,
    BeamTFRecordError,
    ExampleError,
    SourceError,
    TFRecordError,
)

Folder = pathlib.Path
Printed = pytest.CaptureFixture[str]
RECORDS = [example({"n": n, "t": f"text {n}"}) for n in range(10)]
PLAIN = b"".join(map(frame, RECORDS))
SIZE = len(frame(RECORDS[0]))
HOSTILE = [2**31, 2**32, 2**40, 2**47, 2**62, 2**63, 2**64 - 1]
SHARD = "animals-train.tfrecord-00001-of-00002"


@pytest.fixture
def folder(tmp_path: Folder) -> Folder:
    """A dataset of two shards with 4 and 5 records."""
    write_dataset(tmp_path / "out", {"train": animals(4, 5)})
    return tmp_path / "out"


def flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def verdict(path: Folder, capsys: Printed) -> tuple[int, str]:
    """Verifies; returns the exit code and what is printed."""
    capsys.readouterr()
    code = verify.show(str(path))
    return code, capsys.readouterr().out


def check(
    tmp_path: Folder, data: bytes, capsys: Printed, name: str = "a.tfrecord"
) -> tuple[int, str]:
    """Verifies a file of these bytes."""
    (tmp_path / name).write_bytes(data)
    code, printed = verdict(tmp_path / name, capsys)
    assert all(len(line.encode()) <= MAX_MESSAGE_BYTES for line in printed.splitlines())
    return code, printed


def repaired(tmp_path: Folder, data: bytes, name: str = "a.tfrecord") -> list[bytes]:
    """Returns the records that `repair` keeps of these bytes."""
    (tmp_path / name).write_bytes(data)
    repair_command.run(
        str(tmp_path / name),
        str(tmp_path / f"fixed-{name}"),
        overwrite=True,
        report_json=None,
    )
    return list(TFRecordReader(tmp_path / f"fixed-{name}"))


@pytest.mark.parametrize("within", [12, SIZE - 1])
def test_fault_038_damaged_data_is_named_and_left_out(
    within: int, tmp_path: Folder, capsys: Printed
) -> None:
    """A byte of the payload or of its checksum: that record, and no other."""
    data = flipped(PLAIN, 3 * SIZE + within)
    code, printed = check(tmp_path, data, capsys)
    assert code == 1
    assert f"record 3 at byte {3 * SIZE:,}" in printed
    assert "the checksum of the payload does not match" in printed
    assert repaired(tmp_path, data) == RECORDS[:3] + RECORDS[4:]


@pytest.mark.parametrize("within", [0, 7, 8, 11])
def test_fault_039_a_damaged_length_is_named_and_passed_over(
    within: int, tmp_path: Folder, capsys: Printed
) -> None:
    """A byte of the length or of its checksum; the payload may still be proven."""
    data = flipped(PLAIN, 3 * SIZE + within)
    code, printed = check(tmp_path, data, capsys)
    assert code == 1
    assert f"record 3 at byte {3 * SIZE:,}" in printed
    assert "the checksum of the length does not match" in printed
    assert repaired(tmp_path, data) == RECORDS


@pytest.mark.parametrize("left", [13, SIZE - 4, SIZE - 1])
def test_fault_040_a_cut_inside_of_data(
    left: int, tmp_path: Folder, capsys: Printed
) -> None:
    """In the payload or in its checksum."""
    code, printed = check(tmp_path, PLAIN[: 9 * SIZE + left], capsys)
    assert code == 1
    assert f"record 9 at byte {9 * SIZE:,}: the file ends inside a record" in printed


@pytest.mark.parametrize("left", range(1, 12))
def test_fault_041_a_cut_inside_of_a_header(
    left: int, tmp_path: Folder, capsys: Printed
) -> None:
    """Some readers take it for the end of the file."""
    code, printed = check(tmp_path, PLAIN[: 9 * SIZE + left], capsys)
    assert code == 1
    assert f"record 9 at byte {9 * SIZE:,}: the file ends inside a record" in printed


def test_fault_042_a_cut_at_a_records_end(folder: Folder, capsys: Printed) -> None:
    """The manifest shows it; without one, a note says that it is unknown."""
    data = (folder / SHARD).read_bytes()
    length = int.from_bytes(data[:8], "little") + 16
    (folder / SHARD).write_bytes(data[:length])
    code, printed = verdict(folder, capsys)
    assert code == 1
    assert "4 records are gone" in printed
    (folder / MANIFEST_NAME).unlink()
    for path in (folder, folder / SHARD):
        code, printed = verdict(path, capsys)
        assert code == 0
        assert "records missing at the end of a file" in printed


def test_fault_043_an_empty_file(
    folder: Folder, tmp_path: Folder, capsys: Printed
) -> None:
    """It is valid only if a manifest says so."""
    os.truncate(folder / SHARD, 0)
    assert verdict(folder, capsys)[0] == 1
    assert check(tmp_path, b"", capsys)[0] == 1
    write_dataset(tmp_path / "d", {"train": [*animals(2), []]})
    assert verdict(tmp_path / "d", capsys)[0] == 0


@pytest.mark.parametrize("length", HOSTILE)
def test_fault_044_hostile_lengths(
    length: int, tmp_path: Folder, capsys: Printed
) -> None:
    """Refused before anything is allocated, within a tenth of a second."""
    (tmp_path / "a").write_bytes(header(length) + bytes(1000))
    started = time.process_time()
    code, printed = verdict(tmp_path / "a", capsys)
    assert time.process_time() - started < 0.1
    assert code == 1
    assert "the length is above the limit" in printed
    assert repaired(tmp_path, PLAIN + header(length) + PLAIN) == RECORDS * 2


@needs_proc
def test_fault_044_hostile_lengths_cost_no_memory_to_repair(tmp_path: Folder) -> None:
    """Lengths above and below the limit, plain and gzip: 16 MiB at most."""
    (tmp_path / "good").write_bytes(frame(bytes(1000)) * 3000)
    paths = []
    for length in (1 << 29, *HOSTILE):
        data = PLAIN + header(length) + bytes(3_000_000)
        for pack, suffix in ((bytes, ""), (gzip.compress, ".gz"), (zlib.compress, "z")):
            paths.append(tmp_path / f"{length}{suffix}")
            paths[-1].write_bytes(pack(data))
    code = """
        from beam_pipeline.datasets.repair import repair_file
        def repaired(path):
            return repair_file(path, path + ".out", overwrite=True, skipped=id)
        repaired(sys.argv[1])
        before = peak_kib()
        print(*[repaired(path).facts.records for path in sys.argv[2:]])
        print(peak_kib() - before)
    """
    *kept, growth_kib = run_child(code, tmp_path / "good", *paths)
    assert kept == ["10"] * len(paths)
    assert int(growth_kib) < 16 * 1024


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress])
@pytest.mark.parametrize("length", HOSTILE)
def test_fault_045_hostile_lengths_in_compressed_files(
    length: int, pack: Callable[[bytes], bytes], tmp_path: Folder, capsys: Printed
) -> None:
    """There is no size to compare with; the limit holds."""
    (tmp_path / "a").write_bytes(pack(header(length) + bytes(1 << 20)))
    started = time.process_time()
    code, printed = verdict(tmp_path / "a", capsys)
    assert time.process_time() - started < 0.1
    assert code == 1
    assert "the length is above the limit" in printed


@needs_proc
def test_fault_046_a_high_ratio_is_streamed(tmp_path: Folder) -> None:
    """100 MB of sound records in 100 kB are sound, and never held at once."""
    path = tmp_path / "a.gz"
    record = frame(bytes(1 << 20))
    with gzip.open(path, "wb", compresslevel=6) as file:
        for _ in range(100):
            file.write(record)
    assert path.stat().st_size < 200_000
    code = """
        before = peak_kib()
        print(verify_file(sys.argv[1]).records, peak_kib() - before)
    """
    records, growth_kib = map(int, run_child(code, path))
    assert records == 100
    assert growth_kib < 16 * 1024


def test_fault_047_gzip_cut_anywhere(tmp_path: Folder, capsys: Printed) -> None:
    """Also in its trailer, and at a flush point on a record's end."""
    stored = gzip.compress(PLAIN, mtime=0)
    for cut in (*range(2, 30), len(stored) // 2, *range(len(stored) - 9, len(stored))):
        assert check(tmp_path, stored[:cut], capsys)[0] == 1, cut
    packer = zlib.compressobj(wbits=31)
    flushed = packer.compress(PLAIN) + packer.flush(zlib.Z_FULL_FLUSH)
    code, printed = check(tmp_path, flushed, capsys)
    assert code == 1
    assert "10 records before it are good" in printed
    assert repaired(tmp_path, flushed) == RECORDS


def test_fault_048_wrong_gzip_trailer(tmp_path: Folder, capsys: Printed) -> None:
    """Checksum and size; what is in front of them is kept."""
    stored = gzip.compress(PLAIN, mtime=0)
    for place in range(1, 9):
        data = flipped(stored, len(stored) - place)
        assert check(tmp_path, data, capsys)[0] == 1
        assert repaired(tmp_path, data) == RECORDS


@pytest.mark.parametrize("bit", range(1, 8))
def test_fault_049_flipped_gzip_flags(
    bit: int, tmp_path: Folder, capsys: Printed
) -> None:
    """Never a file without records."""
    data = bytearray(gzip.compress(PLAIN, mtime=0))
    data[3] ^= 1 << bit
    assert check(tmp_path, bytes(data), capsys)[0] == 1
    assert repaired(tmp_path, bytes(data)) == RECORDS


def test_fault_050_gzip_members_in_a_row(tmp_path: Folder, capsys: Printed) -> None:
    """They are read as one stream, at any cut."""
    for cut in (SIZE, SIZE + 5, 3 * SIZE + 20):
        parts = (PLAIN[:cut], b"", PLAIN[cut:])
        data = b"".join(gzip.compress(part, mtime=0) for part in parts)
        code, printed = check(tmp_path, data, capsys, "a.gz")
        assert code == 0
        assert "10 records" in printed
        assert repaired(tmp_path, data) == RECORDS


def test_fault_051_what_follows_a_gzip_stream(
    tmp_path: Folder, capsys: Printed
) -> None:
    """Zeros are padding and worth a warning, anything else is damage."""
    stored = gzip.compress(PLAIN, mtime=0)
    code, printed = check(tmp_path, stored + bytes(512), capsys, "a.gz")
    assert code == 0
    assert "warning" in printed
    assert "512 zero bytes" in printed
    for tail in (b"x", b"garbage" * 99, bytes(9) + b"x"):
        assert check(tmp_path, stored + tail, capsys)[0] == 1
        assert repaired(tmp_path, stored + tail) == RECORDS


def test_fault_052_names_that_contradict_the_content(
    tmp_path: Folder, capsys: Printed
) -> None:
    """The content decides, and a reader that goes by the name is warned of."""
    stored = gzip.compress(PLAIN, mtime=0)
    for data, name in ((stored, "a.tfrecord"), (PLAIN, "a.tfrecord.gz")):
        code, printed = check(tmp_path, data, capsys, name)
        assert code == 0
        assert "warning" in printed
        assert "its name says" in printed
    assert "warning" not in check(tmp_path, stored, capsys, "a.gz")[1]
    assert "warning" not in check(tmp_path, PLAIN, capsys, "a.tfrecord")[1]
    with pytest.raises(TFRecordError, match="read it with compression gzip"):
        verify_file(io.BytesIO(stored), compression="none")


@pytest.mark.parametrize(
    ("magic", "name"),
    [
        (b"\x28\xb5\x2f\xfd", "zstd"),
        (b"BZh9", "bz2"),
        (b"\xfd7zXZ\x00", "xz"),
        (b"\xff\x06\x00\x00sNaPpY", "snappy"),
    ],
)
def test_fault_053_other_compressions_are_named(
    magic: bytes, name: str, tmp_path: Folder, capsys: Printed
) -> None:
    """zlib is read."""
    code, printed = check(tmp_path, magic + bytes(50), capsys)
    assert code == 1
    assert f"unsupported compression: {name}" in printed
    assert check(tmp_path, zlib.compress(PLAIN), capsys)[0] == 0


def test_fault_054_zeros_are_no_records(tmp_path: Folder, capsys: Printed) -> None:
    """Neither a file of them nor a hole; the records around a hole are kept."""
    assert check(tmp_path, bytes(1024), capsys)[0] == 1
    data = PLAIN[: 3 * SIZE] + bytes(2 * SIZE) + PLAIN[5 * SIZE :]
    code, printed = check(tmp_path, data, capsys)
    assert code == 1
    assert "record 3" in printed
    assert repaired(tmp_path, data) == RECORDS[:3] + RECORDS[5:]
    started = time.process_time()
    assert repaired(tmp_path, PLAIN + bytes(8 << 20)) == RECORDS
    assert time.process_time() - started < 2


@pytest.mark.parametrize("tail", [bytes(5000), b"\xa5garbage" * 700])
def test_fault_055_garbage_behind_the_records(
    tail: bytes, tmp_path: Folder, capsys: Printed
) -> None:
    """How many good ones there are is said."""
    code, printed = check(tmp_path, PLAIN + tail, capsys)
    assert code == 1
    assert "10 records before it are good" in printed
    assert repaired(tmp_path, PLAIN + tail) == RECORDS


def test_fault_056_bytes_in_front_and_text_mode(
    tmp_path: Folder, capsys: Printed
) -> None:
    """Each accident has its hint, and `repair` gets the rest."""
    code, printed = check(tmp_path, b"\n" + PLAIN, capsys)
    assert code == 1
    assert "A header stands 1 bytes later" in printed
    assert repaired(tmp_path, b"\n" + PLAIN) == RECORDS
    records = [b"without that byte", b"a\nb\n", b"nor here either"]
    assert [b"\n" in frame(record) for record in records] == [False, True, False]
    data = b"".join(map(frame, records)).replace(b"\n", b"\r\n")
    code, printed = check(tmp_path, data, capsys)
    assert code == 1
    assert "text-mode transfer" in printed
    assert repaired(tmp_path, data) == [records[0], records[2]]


def test_fault_057_records_without_a_byte(tmp_path: Folder, capsys: Printed) -> None:
    """They are records."""
    code, printed = check(tmp_path, frame(b"") * 3, capsys)
    assert code == 0
    assert "3 records" in printed
    assert repaired(tmp_path, frame(b"") * 3) == [b""] * 3


@pytest.mark.parametrize("change", ["doubled", "missing", "swapped", "shards swapped"])
def test_fault_058_sound_records_that_are_not_those_of_the_manifest(
    change: str, folder: Folder, capsys: Printed
) -> None:
    """Only the count and the checksum of the file show it."""
    data = (folder / SHARD).read_bytes()
    ends = [0]
    while ends[-1] < len(data):
        length = int.from_bytes(data[ends[-1] : ends[-1] + 8], "little")
        ends.append(ends[-1] + length + 16)
    a, b, c = ends[1:4]
    match change:
        case "doubled":
            data = data[:b] + data[a:]
        case "missing":
            data = data[:a] + data[b:]
        case "swapped":
            data = data[:a] + data[b:c] + data[a:b] + data[c:]
        case _:
            other = folder / SHARD.replace("-00001-", "-00000-")
            data, moved = other.read_bytes(), data
            other.write_bytes(moved)
    (folder / SHARD).write_bytes(data)
    code, printed = verdict(folder, capsys)
    assert code == 1
    assert SHARD in printed


def test_fault_059_missing_and_foreign_shards(folder: Folder, capsys: Printed) -> None:
    """By the manifest; without it by their numbers."""
    extra = folder / "animals-train.tfrecord-00000-of-00003"
    extra.write_bytes((folder / SHARD).read_bytes())
    code, printed = verdict(folder, capsys)
    assert code == 1
    assert "looks like a shard of this dataset, but is none" in printed
    (folder / MANIFEST_NAME).unlink()
    code, printed = verdict(folder, capsys)
    assert code == 1
    assert "two generations" in printed
    extra.unlink()
    assert verdict(folder, capsys)[0] == 0
    (folder / SHARD).unlink()
    code, printed = verdict(folder, capsys)
    assert code == 1
    assert "of 2 shards 1 are missing: 00001" in printed


def test_fault_060_files_that_other_programs_leave(
    folder: Folder, capsys: Printed
) -> None:
    """It is never read as records: named with a manifest, passed over without."""
    strays = ("_SUCCESS", ".DS_Store", f".{SHARD}.crc", f"{SHARD}.tmp", "x.json")
    for name in strays:
        (folder / name).write_bytes(b"nothing of the kind")
    code, printed = verdict(folder, capsys)
    assert code == 0
    assert all(name in printed for name in strays)
    (folder / MANIFEST_NAME).unlink()
    code, printed = verdict(folder, capsys)
    assert code == 0
    assert "9 records" in printed


def test_fault_061_records_in_a_payload_stay_there(tmp_path: Folder) -> None:
    """With the outer header intact nothing of it is promoted."""
    inner = b"".join(frame(b"inner %d" % n) for n in range(5))
    outer = [b"first", inner, b"last"]
    data = b"".join(map(frame, outer))
    start = len(frame(outer[0]))
    for place in range(start + 12, start + len(frame(inner))):
        assert repaired(tmp_path, flipped(data, place)) == [b"first", b"last"]
    # The payload's own checksum says where it ends.
    assert repaired(tmp_path, flipped(data, start)) == outer


@pytest.mark.parametrize(
    "payload",
    [
        b"\x0f",
        b"\x0a\x05",
        b"\x0b" * 1000 + b"\x0c" * 1000,
        b"\x1b" * 100_000,
        b"\xff" * 20,
        b"not an Example",
    ],
)
def test_fault_062_payloads_that_are_no_examples(
    payload: bytes, tmp_path: Folder, capsys: Printed
) -> None:
    """`inspect` says which record it is; the framing is sound."""
    write_records(tmp_path / "a.tfrecord", [*RECORDS, payload])
    assert inspect.show(str(tmp_path / "a.tfrecord")) == 0
    printed = capsys.readouterr().out
    assert "1 record cannot be read as a tf.train.Example" in printed
    assert "the first is record 10" in printed
    assert verdict(tmp_path / "a.tfrecord", capsys)[0] == 0


def field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2, len(content)]) + content


def entry(name: bytes, feature: bytes) -> bytes:
    return field(1, field(1, name) + field(2, feature))


def test_fault_063_odd_examples_are_read_as_protobuf_reads_them() -> None:
    """Unpacked and mixed lists, doubled keys, no kind, an empty key; not bad UTF-8."""
    one, two = field(3, field(1, b"\x01")), field(3, field(1, b"\x02"))
    for data, expected in (
        (entry(b"a", field(3, b"\x08\x01\x0a\x01\x02")), {"a": [1, 2]}),
        (entry(b"a", one) + entry(b"a", two), {"a": [2]}),
        (entry(b"a", field(1, field(1, b"x")) + one), {"a": [1]}),
        (entry(b"a", b""), {"a": []}),
        (entry(b"", one), {"": [1]}),
    ):
        assert parse_example(field(1, data)) == expected
    with pytest.raises(ExampleError):
        parse_example(field(1, entry(b"\xff", one)))


def test_fault_064_lengths_and_varints_that_overflow() -> None:
    """Clean errors."""
    for values in (b"\x0a\x7f\x01", field(1, b"\xff" * 10 + b"\x01"), b"\x0a\xff\xff"):
        with pytest.raises(ExampleError, match=r"are not a tf\.train\.Example"):
            parse_example(field(1, entry(b"a", field(3, values))))


def test_fault_065_extreme_numbers_come_back_exactly() -> None:
    """The ends of int64, -0.0, denormals; uint64 above them has no place."""
    numbers = [-(2**63), 2**63 - 1, 0, -1]
    fractions = [-0.0, 1e-45, math.inf, -math.inf, 3.4028234663852886e38]
    message = Example()
    message.features.feature["i"].int64_list.value.extend(numbers)
    message.features.feature["f"].float_list.value.extend(fractions)
    rows = decode_examples([message.SerializeToString()])
    (row,) = rows.to_pylist()
    packed = struct.pack("<5f", *fractions)
    assert row["i"] == numbers
    assert struct.pack("<5f", *row["f"]) == packed
    with pytest.raises(ValueError, match="out of range"):
        message.features.feature["i"].int64_list.value.append(2**63)


def test_fault_066_shards_that_disagree(tmp_path: Folder, capsys: Printed) -> None:
    """`inspect` shows the first record of each variant."""
    rows: list[dict[str, Any]]
    rows = [{"a": 1, "b": "x"}, {"a": 2}, {"a": 0.5, "b": "y"}]
    write_records(tmp_path / "x.tfrecord", [example(row) for row in rows])
    assert inspect.show(str(tmp_path / "x.tfrecord")) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    variants = [" ".join(line) for line in lines if line[:1] == ["a"]]
    assert variants == [
        "a float 33.3 % 0.5 (first in record 2)",
        "a int64 66.7 % 1 to 2 (first in record 0)",
    ]


def test_fault_066_shards_that_disagree_with_one_another(
    tmp_path: Folder, capsys: Printed
) -> None:
    """Of a folder without a manifest: type, number of values and absence, by file."""
    shards: list[list[dict[str, Any]]] = [
        [{"a": 1, "b": "x"}] * 3,
        [{"a": 2, "b": "y"}, {"a": 3}],
        [{"a": 0.5, "b": "z"}] * 2,
        [{"a": 1}],
    ]
    for number, rows in enumerate(shards):
        path = tmp_path / f"x.tfrecord-{number:05d}-of-00004"
        write_records(path, [example(row) for row in rows])
    assert inspect.show(str(tmp_path)) == 0
    printed = capsys.readouterr().out
    assert "8 records" in printed
    assert "in 4 files" in printed
    lines = [" ".join(line.split()) for line in printed.splitlines()]
    assert [line for line in lines if line[:2] in ("a ", "b ")] == [
        "a float 1 x.tfrecord-00002-of-00004, record 0",
        "a int64 3 x.tfrecord-00000-of-00004, record 0",
        "b absent 1 x.tfrecord-00003-of-00004, record 0",
        "b bytes 2 x.tfrecord-00000-of-00004, record 0",
        "b bytes, not in every record 1 x.tfrecord-00001-of-00004, record 0",
    ]


def test_fault_067_files_that_change_while_they_are_read(tmp_path: Folder) -> None:
    """An error at the end, and no output."""
    path = tmp_path / "a"
    path.write_bytes(frame(bytes(1000)) * 3000)
    batches = TFRecordReader(path).batches()
    next(batches)
    os.utime(path, (1, 1))
    with pytest.raises(SourceError, match="changed while it was read"):
        list(batches)


def test_fault_068_pipes_and_paths_that_cannot_be_read(
    tmp_path: Folder, capsys: Printed
) -> None:
    """Standard input streams; pipes, loops and missing files are clear errors."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BeamTFRecordError, match="not a regular file"):
        verify.show(str(tmp_path / "pipe"))
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "empty").mkdir()
    for name in ("loop", "missing", "empty"):
        with pytest.raises(BeamTFRecordError):
            verify.show(str(tmp_path / name))
    done = subprocess.run(
        [sys.executable, "-m", "beam_pipeline", "verify", "/dev/stdin"],
        input=PLAIN,
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    assert b"10 records" in done.stdout


def test_fault_068_a_file_without_permission(tmp_path: Folder, capsys: Printed) -> None:
    """Named, with the reason."""
    (tmp_path / "a.tfrecord").write_bytes(PLAIN)
    (tmp_path / "a.tfrecord").chmod(0)
    if os.access(tmp_path / "a.tfrecord", os.R_OK):
        pytest.skip("this user may read everything")
    with pytest.raises(BeamTFRecordError, match="Permission denied"):
        verify.show(str(tmp_path / "a.tfrecord"))


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
        verify_file(stream)  # type: ignore[arg-type]
    assert caught.value.kind == "truncated"
    assert (caught.value.record, caught.value.offset) == (mebibytes, mebibytes << 20)


def test_fault_070_messages_never_hold_a_payload(
    tmp_path: Folder, capsys: Printed
) -> None:
    """50 MB of damaged record and a name of 200 characters make a short line."""
    code, printed = check(
        tmp_path, flipped(frame(b"secret" * 8_000_000), 1000), capsys, "n" * 200
    )
    assert code == 1
    assert "secret" not in printed
    assert "record 0 at byte 0" in printed
    assert len(printed.splitlines()[0].encode()) <= MAX_MESSAGE_BYTES + 400


def test_readers_of_the_catalogue_do_not_need_tensorflow() -> None:
    """Verifying and repairing come before TensorFlow, and without it."""
    code = """
        import sys
        import beam_pipeline.commands.repair
        import beam_pipeline.commands.verify
        heavy = {"tensorflow", "apache_beam", "pandas", "pyarrow"}
        print(sorted(heavy & set(sys.modules)))
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
