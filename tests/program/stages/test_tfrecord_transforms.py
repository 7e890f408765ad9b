"""WriteTFRecords and ReadTFRecords: one arrangement, all files or none."""

import collections
import errno
import fcntl
import gzip
import hashlib
import itertools
import os
import pathlib
import re
import shutil
import subprocess
import sys
import textwrap
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam import coders
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms import window
from apache_beam.typehints.decorators import TypeCheckError
from hypothesis import given, settings
from hypothesis import strategies as st

from transforms.core.placing import placement
from transforms.core.tfrecord import TFRecordReader, frame
from transforms.errors import (
    CommitError,
    ConservationError,
    EncodingError,
    SourceError,
    SpecError,
    TargetError,
    TFRecordError,
)
from transforms.storage import retry
from transforms.tfrecord import sorted_run
from transforms.tfrecord import write as tfrecord
from transforms.tfrecord.read import ReadTFRecords
from transforms.tfrecord.sorted_run import SortedRun, cut_run, merge_runs, pack
from transforms.tfrecord.write import WriteTFRecords

Folder = pathlib.Path
RECORDS = [b"record %d" % number for number in range(300)]


def pipeline(*flags: str) -> beam.Pipeline:
    """Plain DirectRunner would first look for another runner on the network."""
    return beam.Pipeline(runner="FnApiRunner", options=PipelineOptions(list(flags)))


def write(
    prefix: Folder | str,
    records: Iterable[Any] = RECORDS,
    *,
    flags: Sequence[str] = (),
    bundles: int = 1,
    **options: Any,
) -> None:
    """Writes the records, divided into this many bundles."""
    records = list(records)
    with pipeline(*flags) as p:
        parts = [
            p
            | f"Part {i}" >> beam.Create(records[i::bundles], reshuffle=False)
            | f"Type {i}" >> beam.Map(lambda x: x).with_output_types(Any)
            for i in range(bundles)
        ]
        parts | beam.Flatten() | WriteTFRecords(str(prefix), **options)


def read(pattern: Folder | str, **options: Any) -> list[Any]:
    """Returns the records in sorted order."""
    found: list[Any] = []
    with pipeline() as p:
        p | ReadTFRecords(str(pattern), **options) | beam.Map(collect)
    found, COLLECTED[:] = sorted(COLLECTED), []
    return found


COLLECTED: list[Any] = []


def collect(record: Any) -> None:
    # The runner is in this process, so this reaches the test.
    COLLECTED.append(record)


def contents(folder: Folder) -> dict[str, bytes]:
    """Returns every file below the folder, hidden ones too; folders end in '/'."""
    return {
        f"{path.relative_to(folder)}{'/' * path.is_dir()}": (
            b"" if path.is_dir() else path.read_bytes()
        )
        for path in sorted(folder.rglob("*"))
    }


def payloads(*paths: Folder) -> list[bytes]:
    """Returns the records of the files, without a pipeline, in sorted order."""
    assert paths
    return sorted(r for p in paths for r in TFRecordReader(p, allow_empty=True))


# In the order that their hashes give them; the first four fall into shard 0 of 2. The
# recipe is in the docstring of `sorted_run`; a change would be one of output bytes.
GOLDEN = [b"a", "한글".encode(), b"b", b"b", b"", b"cc"]
# The second file: b"" and b"cc", framed.
GOLDEN_HEX = "000000000000000029039807d8ea82a2020000000000000078270b346363f15939d8"


def test_golden_files(tmp_path: Folder) -> None:
    """The order, the shards and the frame of six records, byte for byte."""
    write(tmp_path / "x", sorted(GOLDEN), num_shards=2)
    shards = GOLDEN[:4], GOLDEN[4:]
    assert contents(tmp_path) == {
        f"x-0000{index}-of-00002": b"".join(map(frame.frame, records))
        for index, records in enumerate(shards)
    }
    assert contents(tmp_path)["x-00001-of-00002"] == bytes.fromhex(GOLDEN_HEX)


def test_any_order_any_bundles_same_files(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reversed, in bundles, repeated, spilled in many runs, merged in windows."""
    records = [*RECORDS, *RECORDS[::7], b"", b"x" * 5000]
    ways: dict[str, tuple[list[bytes], dict[str, Any]]] = {
        "plain": (records, {}),
        "reversed": (records[::-1], {}),
        "bundles": (records, {"bundles": 5}),
        "repeated": (records, {"flags": ["--direct_runner_bundle_repeat=1"]}),
    }
    for name, (given_records, options) in ways.items():
        write(tmp_path / name / "x", given_records, num_shards=3, **options)
    monkeypatch.setattr(tfrecord, "_INLINE_BYTES", 0)
    monkeypatch.setattr(tfrecord, "_RUN_BYTES", 2000)
    monkeypatch.setattr(sorted_run, "_WINDOW_BYTES", 500)
    for name, (given_records, options) in ways.items():
        write(
            tmp_path / f"spilled {name}" / "x", given_records, num_shards=3, **options
        )
    expected = contents(tmp_path / "plain")
    assert len(expected) == 3
    assert all(expected.values())
    for folder in tmp_path.iterdir():
        assert contents(folder) == expected, folder
    assert payloads(*(tmp_path / "plain").iterdir()) == sorted(records)


@settings(max_examples=60, deadline=None)
@given(
    records=st.lists(st.binary(max_size=6), max_size=40),
    cuts=st.lists(st.integers(0, 40), max_size=4),
    shards=st.integers(1, 5),
    window=st.integers(1, 30),
)
def test_runs_equal_a_plain_sort(
    records: list[bytes], cuts: list[int], shards: int, window: int
) -> None:
    """Packing, cutting and merging give what sorting all records at once gives."""

    def fetch(run: SortedRun, start: int, stop: int) -> bytes:
        return (files[run.path] if run.path else run.data)[start:stop]

    def order(record: bytes) -> tuple[int, bytes]:
        digest = hashlib.blake2b(record, digest_size=8).digest()
        return int.from_bytes(digest, "little"), record

    files: dict[str, bytes] = {}
    parts: dict[int, list[SortedRun]] = {index: [] for index in range(shards)}
    edges = [0, *sorted(cuts), len(records)]
    for number, (start, stop) in enumerate(itertools.pairwise(edges)):
        piece = records[start:stop]
        size = sum(map(len, piece))
        run = SortedRun("", pack(piece), len(piece), 0, len(piece), 0, size)
        if number % 2:
            files[f"run {number}"] = run.data
            run = SortedRun(f"run {number}", b"", len(piece), 0, len(piece), 0, size)
        for shard, part in cut_run(run, shards, fetch):
            parts[shard].append(part)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorted_run, "_WINDOW_BYTES", window)
        merged = {
            shard: [record for part in merge_runs(runs, fetch) for record in part]
            for shard, runs in parts.items()
        }
    expected = sorted(records, key=order)
    keys = np.array([order(record)[0] for record in expected], np.uint64)
    of = placement.shard_of_keys(keys, shards).tolist()
    for shard in range(shards):
        mine = [r for r, s in zip(expected, of, strict=True) if s == shard]
        assert merged[shard] == mine
        assert all(part.size == 0 or part.records for part in parts[shard])


def test_shard_count_follows_the_bytes(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """num_shards=0 chooses the number of files by bytes, whatever the bundles."""
    monkeypatch.setattr(tfrecord, "_SHARD_BYTES", 2000)
    write(tmp_path / "one" / "x", bundles=1)
    write(tmp_path / "many" / "x", bundles=6)
    stored = sum(map(len, RECORDS)) + 16 * len(RECORDS)
    assert len(contents(tmp_path / "one")) == -(-stored // 2000)
    assert contents(tmp_path / "one") == contents(tmp_path / "many")


@pytest.mark.parametrize(("wanted", "count"), [(0, 1), (3, 3)])
def test_no_records(tmp_path: Folder, wanted: int, count: int) -> None:
    """As many empty files as Beam's own sink makes; both readers read them."""
    write(tmp_path / "ours", [], num_shards=wanted)
    with pipeline() as p:
        nothing = p | beam.Create([], reshuffle=False)
        nothing | beam.io.WriteToTFRecord(str(tmp_path / "beam"), num_shards=wanted)
    found = contents(tmp_path)
    for name in ("ours", "beam"):
        for index in range(count):
            assert found.pop(f"{name}-{index:05d}-of-{count:05d}") == b""
    assert not found
    assert read(tmp_path / "ours*") == []


def test_more_files_than_records(tmp_path: Folder) -> None:
    """Exactly the number asked for, some of them empty."""
    write(tmp_path / "x", RECORDS[:3], num_shards=20)
    sizes = [len(data) for data in contents(tmp_path).values()]
    assert len(sizes) == 20
    assert 0 in sizes
    assert payloads(*tmp_path.iterdir()) == sorted(RECORDS[:3])


def test_returns_the_names(tmp_path: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A PCollection of the names, relative ones as they were given."""
    monkeypatch.chdir(tmp_path)
    with pipeline() as p:
        names = p | beam.Create(RECORDS) | WriteTFRecords("out/x", num_shards=2)
        assert_that(names, equal_to(["out/x-00000-of-00002", "out/x-00001-of-00002"]))
    assert sorted(contents(tmp_path)) == [
        "out/",
        "out/x-00000-of-00002",
        "out/x-00001-of-00002",
    ]
    assert payloads(*tmp_path.glob("out/x-*")) == sorted(RECORDS)


def test_read_by_beam_and_back(tmp_path: Folder) -> None:
    """Beam reads what this writes, this reads what Beam writes."""
    write(tmp_path / "ours.gz", num_shards=2, file_name_suffix=".gz")
    with pipeline() as p:
        back = p | beam.io.ReadFromTFRecord(str(tmp_path / "ours.gz-*.gz"))
        assert_that(back, equal_to(RECORDS))
    with pipeline() as p:
        records = p | beam.Create(RECORDS)
        records | beam.io.WriteToTFRecord(
            str(tmp_path / "beam"), file_name_suffix=".deflate"
        )
    assert read(tmp_path / "beam-*") == sorted(RECORDS)


def test_read_by_tensorflow(tmp_path: Folder) -> None:
    """tf.data finds every record, plain, gzip and zlib."""
    tf = pytest.importorskip("tensorflow")
    for suffix, kind in (("", ""), (".gz", "GZIP"), (".zlib", "ZLIB")):
        write(tmp_path / "x", num_shards=2, file_name_suffix=suffix)
        names = [str(tmp_path / f"x-0000{n}-of-00002{suffix}") for n in (0, 1)]
        dataset = tf.data.TFRecordDataset(names, compression_type=kind)
        assert sorted(dataset.as_numpy_iterator()) == sorted(RECORDS)


@pytest.mark.parametrize(
    ("suffix", "asked", "unpack"),
    [
        (".tfrecord", CompressionTypes.AUTO, bytes),
        (".gz", CompressionTypes.AUTO, gzip.decompress),
        (".GZ", CompressionTypes.AUTO, gzip.decompress),
        (".deflate", CompressionTypes.AUTO, zlib.decompress),
        (".zlib", CompressionTypes.AUTO, zlib.decompress),
        (".bz2", CompressionTypes.UNCOMPRESSED, bytes),
        (".gz", CompressionTypes.UNCOMPRESSED, bytes),
        ("", CompressionTypes.GZIP, gzip.decompress),
        ("", CompressionTypes.DEFLATE, zlib.decompress),
    ],
)
def test_compression_by_suffix_or_by_name(
    tmp_path: Folder, suffix: str, asked: str, unpack: Callable[[bytes], bytes]
) -> None:
    """AUTO goes by the suffix; the reader's AUTO by the content alone."""
    write(tmp_path / "x", [b"hello"], file_name_suffix=suffix, compression_type=asked)
    (name,) = contents(tmp_path)
    assert unpack((tmp_path / name).read_bytes()) == frame.frame(b"hello")
    assert read(tmp_path / name, compression_type=asked) == [b"hello"]


@pytest.mark.parametrize(
    ("template", "names"),
    [
        (None, ["x-00000-of-00002.r", "x-00001-of-00002.r"]),
        ("-SSSSS-of-NNNNN", ["x-00000-of-00002.r", "x-00001-of-00002.r"]),
        ("_S", ["x_0.r", "x_1.r"]),
        ("-NN.SSS-S%d", ["x-02.000-S%d.r", "x-02.001-S%d.r"]),
        ("-S*[?]S", ["x-0*[?]0.r", "x-1*[?]1.r"]),
        ("", ["x.r"]),
    ],
)
def test_shard_name_template(
    tmp_path: Folder, template: str | None, names: list[str]
) -> None:
    """Beam's templates; all else in them is plain text. '' is one file."""
    options: dict[str, Any] = {"num_shards": 2, "shard_name_template": template}
    write(tmp_path / "x", file_name_suffix=".r", **options)
    assert sorted(contents(tmp_path)) == names
    assert payloads(*(tmp_path / name for name in names)) == sorted(RECORDS)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"file_path_prefix": ""}, "file_path_prefix"),
        ({"file_path_prefix": 3}, "file_path_prefix"),
        ({"file_path_prefix": "gs://bucket/x"}, "mounted"),
        ({"file_path_prefix": "a\0b"}, "NUL"),
        ({"file_path_prefix": "\udcff"}, "Unicode"),
        ({"file_path_prefix": "folder/", "shard_name_template": ""}, "name"),
        ({"coder": coders.BytesCoder}, "coder"),
        ({"file_name_suffix": "/x"}, "file_name_suffix"),
        ({"file_name_suffix": None}, "file_name_suffix"),
        ({"num_shards": -1}, "num_shards"),
        ({"num_shards": True}, "num_shards"),
        ({"num_shards": 1.5}, "num_shards"),
        ({"shard_name_template": "-of-NNNNN"}, "must hold S"),
        ({"shard_name_template": "-W-SS"}, "may not hold W"),
        ({"shard_name_template": "-U-SS"}, "may not hold U"),
        ({"file_name_suffix": ".bz2"}, "compression"),
        ({"file_name_suffix": ".zst"}, "compression"),
        ({"compression_type": CompressionTypes.BZIP2}, "compression_type"),
        ({"compression_type": CompressionTypes.ZSTD}, "compression_type"),
        ({"compression_type": CompressionTypes.LZMA}, "compression_type"),
        ({"compression_type": "gz"}, "compression_type"),
    ],
)
def test_wrong_parameters(options: dict[str, Any], word: str) -> None:
    """Refused when the transform is made, naming the parameter."""
    with pytest.raises(SpecError, match=word):
        WriteTFRecords(**({"file_path_prefix": "x"} | options))


def test_parameters_are_where_beam_has_them(tmp_path: Folder) -> None:
    """By position, each parameter means what it means in Beam."""
    given_all = ("x", coders.StrUtf8Coder(), ".gz", 2, "-S", CompressionTypes.AUTO)
    ours, stock = WriteTFRecords(*given_all), beam.io.WriteToTFRecord(*given_all)
    sink = stock._sink
    assert ours.file_path_prefix == sink.file_path_prefix.get()
    assert ours.coder == sink.coder
    assert ours.file_name_suffix == sink.file_name_suffix.get()
    assert ours.num_shards == sink.num_shards
    assert ours.shard_name_template == sink.shard_name_template
    assert ours.compression_type == sink.compression_type
    reading = (str(tmp_path), coders.BytesCoder(), CompressionTypes.GZIP, False)
    assert ReadTFRecords(*reading).validate is False


def test_types_are_checked(tmp_path: Folder) -> None:
    """A PCollection that the coder cannot take is refused before anything runs."""
    p = pipeline()
    texts = p | beam.Create(["a"])
    with pytest.raises(TypeCheckError, match="bytes"):
        texts | WriteTFRecords(str(tmp_path / "x"))
    names = texts | "Text" >> WriteTFRecords(str(tmp_path / "y"), coders.StrUtf8Coder())
    assert names.element_type is str
    assert (p | ReadTFRecords("z", validate=False)).element_type is bytes
    unbounded = p | "Endless" >> beam.Create([b"x"])
    unbounded.is_bounded = False
    with pytest.raises(SpecError, match="bounded"):
        unbounded | "Unbounded" >> WriteTFRecords(str(tmp_path / "u"))


def test_coder(tmp_path: Folder) -> None:
    """Elements are encoded on the way in and decoded on the way out."""
    write(tmp_path / "x", ["가", "b"], coder=coders.StrUtf8Coder())
    assert payloads(tmp_path / "x-00000-of-00001") == [b"b", "가".encode()]
    assert read(tmp_path / "x-*", coder=coders.StrUtf8Coder()) == ["b", "가"]


def test_windows_are_dropped(tmp_path: Folder) -> None:
    """Windowed input gives the same files."""
    write(tmp_path / "plain" / "x")
    with pipeline() as p:
        windowed = (
            p
            | beam.Create(RECORDS)
            | beam.Map(lambda r: window.TimestampedValue(r, len(r)))
            | beam.WindowInto(window.FixedWindows(1)).with_output_types(bytes)
        )
        windowed | WriteTFRecords(str(tmp_path / "windowed" / "x"))
    assert contents(tmp_path / "plain") == contents(tmp_path / "windowed")


@pytest.mark.parametrize(
    ("written", "neighbour"),
    [
        ("train", "train-aug-00000-of-00002"),
        ("train", "train-00000-of-00002-backup"),
        ("train", "train-00000-of-00003"),
        ("run[1]/train", "run1/train-00000-of-00002"),
        ("run?/train", "run7/train-00000-of-00002"),
        ("*/train", "other/train-00000-of-00002"),
        ("{a,b}/train", "a/train-00000-of-00002"),
    ],
)
def test_neighbours_stay(tmp_path: Folder, written: str, neighbour: str) -> None:
    """Names that start alike, or that the path would match as a pattern."""
    beside = tmp_path / neighbour
    beside.parent.mkdir(exist_ok=True)
    beside.write_bytes(b"precious")
    write(tmp_path / written, num_shards=2)
    assert beside.read_bytes() == b"precious"
    folder = (tmp_path / written).parent
    names = [f"train-0000{n}-of-00002" for n in (0, 1)]
    expected = {*names, beside.name} if beside.parent == folder else {*names}
    assert set(os.listdir(folder)) == expected
    assert payloads(*(folder / name for name in names)) == sorted(RECORDS)


@pytest.mark.parametrize(
    "name",
    ["a b#%s", "-x", "줄\n바꿈", "😀", "가" * 79 + "a", "[x", "..x", "%(shard_num)05d"],
)
def test_any_name(tmp_path: Folder, name: str) -> None:
    """Signs, spaces and names as long as the file system has them."""
    write(tmp_path / name, num_shards=1)
    assert list(contents(tmp_path)) == [f"{name}-00000-of-00001"]
    assert payloads(tmp_path / f"{name}-00000-of-00001") == sorted(RECORDS)


def test_overwrites_exactly_its_names(tmp_path: Folder) -> None:
    """Old files of these names are replaced, links too, and not what they point to."""
    (tmp_path / "elsewhere").write_bytes(b"precious")
    (tmp_path / "x-00000-of-00002").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "x-00001-of-00002").write_bytes(b"old")
    write(tmp_path / "x", num_shards=2)
    assert (tmp_path / "elsewhere").read_bytes() == b"precious"
    assert payloads(*tmp_path.glob("x-*")) == sorted(RECORDS)
    assert len(contents(tmp_path)) == 3


def test_refuses_what_it_cannot_replace(tmp_path: Folder) -> None:
    """A folder under a file's name, a file where the folder should be: no write."""
    (tmp_path / "x-00001-of-00002").mkdir()
    (tmp_path / "file").write_bytes(b"")
    before = contents(tmp_path)
    with pytest.raises(TargetError, match="x-00001-of-00002"):
        write(tmp_path / "x", num_shards=2)
    with pytest.raises(TargetError, match="file"):
        write(tmp_path / "file" / "x")
    with pytest.raises(TargetError, match="too long"):
        write(tmp_path / ("가" * 90))
    assert contents(tmp_path) == before


def _old_files(folder: Folder) -> dict[str, bytes]:
    """Makes files under two of the three names that a test will write."""
    (folder / "x-00000-of-00003").write_bytes(b"old 0")
    (folder / "x-00002-of-00003").write_bytes(b"old 2")
    return contents(folder)


@pytest.mark.parametrize("spilled", [False, True])
@pytest.mark.parametrize("element", ["text", None, {"a": 1}])
def test_wrong_element(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch, element: object, spilled: bool
) -> None:
    """What is not bytes fails the run, named by type and place; nothing is left."""
    if spilled:
        monkeypatch.setattr(tfrecord, "_INLINE_BYTES", 0)
        monkeypatch.setattr(tfrecord, "_RUN_BYTES", 2000)
    before = _old_files(tmp_path)
    records = [*RECORDS[:200], element, *RECORDS[200:]]
    with pytest.raises(EncodingError, match=rf"{type(element).__name__}.*element 200"):
        write(tmp_path / "x", records, num_shards=3)
    assert contents(tmp_path) == before


def test_failure_in_front(tmp_path: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error in the user's own step leaves nothing of the bundle it broke off."""
    monkeypatch.setattr(tfrecord, "_INLINE_BYTES", 0)
    monkeypatch.setattr(tfrecord, "_RUN_BYTES", 2000)
    before = _old_files(tmp_path)

    def fail(number: int) -> bytes:
        if number == 200:
            raise ValueError("mine")
        return RECORDS[number]

    p = pipeline()
    records = p | beam.Create(range(300), reshuffle=False) | beam.Map(fail)
    records | WriteTFRecords(str(tmp_path / "x"), num_shards=3)
    with pytest.raises(ValueError, match="mine"):
        p.run()
    assert contents(tmp_path) == before


@pytest.mark.parametrize("broken", [0, 1, 2])
@pytest.mark.parametrize("call", ["replace", "link"])
def test_failing_rename(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch, call: str, broken: int
) -> None:
    """Old files are unchanged, no new one stays, the hidden folder is removed."""
    before = _old_files(tmp_path)
    real = getattr(os, call)

    def failing(source: str, target: str, **options: Any) -> None:
        names = os.path.basename(source), os.path.basename(target)
        if f"x-0000{broken}-of-00003" in names:
            raise OSError(errno.ENOSPC, "no room", target)
        real(source, target, **options)

    monkeypatch.setattr(os, call, failing)
    if call == "link":
        # Without hard links, old files are renamed aside.
        monkeypatch.setattr(os, "rename", failing)
        if broken == 1:
            return write_and_check(tmp_path, before)
    with pytest.raises(CommitError, match=r"no room.*None of this run's files stays"):
        write(tmp_path / "x", num_shards=3)
    assert contents(tmp_path) == before
    monkeypatch.undo()
    write_and_check(tmp_path, before)


def write_and_check(folder: Folder, before: dict[str, bytes]) -> None:
    write(folder / "x", num_shards=3)
    assert payloads(*folder.iterdir()) == sorted(RECORDS)
    assert len(contents(folder)) == 3
    assert contents(folder) != before


def test_old_files_renamed_aside(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a file system without hard links old files come back too."""
    before = _old_files(tmp_path)
    real = os.replace

    def no_link(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EPERM, "no links here")

    def failing(source: str, target: str) -> None:
        if target.endswith("x-00002-of-00003"):
            raise OSError(errno.EIO, "broken")
        real(source, target)

    monkeypatch.setattr(os, "link", no_link)
    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(CommitError, match="broken"):
        write(tmp_path / "x", num_shards=3)
    assert contents(tmp_path) == before
    monkeypatch.setattr(os, "replace", real)
    write_and_check(tmp_path, before)


@pytest.mark.parametrize("spilled", [False, True])
def test_failing_write(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch, spilled: bool
) -> None:
    """A full disk: nothing is left, and the error says where."""
    if spilled:
        monkeypatch.setattr(tfrecord, "_INLINE_BYTES", 0)
    before = _old_files(tmp_path)
    real = os.replace

    def full(source: str, target: str) -> None:
        if os.path.basename(os.path.dirname(target)) == "shards":
            raise OSError(errno.ENOSPC, "No space left on device", target)
        real(source, target)

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(CommitError, match=r"No space left on device.*shards"):
        write(tmp_path / "x", num_shards=3)
    assert contents(tmp_path) == before


def test_transient_errors_are_survived(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two input/output errors while storing change nothing."""
    monkeypatch.setattr(retry, "POLICY", retry.RetryPolicy(first_pause=0.0))
    monkeypatch.setattr(tfrecord, "_INLINE_BYTES", 0)
    write(tmp_path / "calm" / "x", num_shards=2)
    failures = collections.Counter[str]()
    real = os.replace

    def flaky(source: str, target: str) -> None:
        place = os.path.basename(os.path.dirname(target))
        failures[place] += 1
        if place in ("runs", "shards") and failures[place] <= 2:
            raise OSError(errno.EIO, "flaky")
        real(source, target)

    monkeypatch.setattr(os, "replace", flaky)
    write(tmp_path / "flaky" / "x", num_shards=2)
    assert failures["runs"] == 3
    assert contents(tmp_path / "calm") == contents(tmp_path / "flaky")


def test_sums_are_checked(tmp_path: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record lost on the way is found before anything is published."""
    real = sorted_run.merge_runs

    def losing(*given_all: Any) -> Iterable[list[bytes]]:
        return [records[1:] for records in real(*given_all)]

    monkeypatch.setattr(tfrecord, "merge_runs", losing)
    before = _old_files(tmp_path)
    with pytest.raises(ConservationError, match="300 records"):
        write(tmp_path / "x", num_shards=3)
    assert contents(tmp_path) == before


KILLED = """
    import os, shutil, sys
    import apache_beam as beam
    from transforms.tfrecord.write import WriteTFRecords

    def write(folder, letter, shards):
        with beam.Pipeline(runner="FnApiRunner") as p:
            records = p | beam.Create([letter * (1 + n % 9) for n in range(90)])
            records | WriteTFRecords(folder + "/x", num_shards=shards)

    def in_child(work):
        # Forked before any pipeline has run, so no thread is lost.
        child = os.fork()
        if not child:
            work()
            os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def dying(folder, point):
        calls = 0
        def counted(real):
            def call(*paths, **options):
                nonlocal calls
                if any("-of-00003" in str(p) or str(p).endswith("journal")
                       for p in paths):
                    calls += 1
                    if calls > point:
                        os._exit(9)
                return real(*paths, **options)
            return call
        for name in ("link", "replace", "rename", "unlink"):
            setattr(os, name, counted(getattr(os, name)))
        write(folder, b"new", 3)

    root = sys.argv[1]
    in_child(lambda: write(f"{root}/old", b"old", 3))
    for point in range(20):
        folder = f"{root}/{point}"
        shutil.copytree(f"{root}/old", folder)
        status = in_child(lambda: dying(folder, point))
        names = sorted(os.listdir(folder))
        assert [n for n in names if n[0] != "."] == [
            f"x-0000{n}-of-00003" for n in range(3)
        ], names
        # Other names of the same prefix: only what the killed run left is undone.
        assert in_child(lambda: write(folder, b"new", 2)) == 0
        print(point, status)
        if status == 0:
            break
"""


def test_killed_while_renaming(tmp_path: Folder) -> None:
    """The next run puts back what a killed one had half replaced, all or nothing."""
    script = textwrap.dedent(KILLED)
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=pathlib.Path(__file__).parents[3],
    )
    assert done.returncode == 0, done.stderr
    statuses = [line.split()[1] for line in done.stdout.splitlines()]
    # Journal, three links, three renames, the journal's end; then nothing to kill.
    assert statuses == ["9"] * 8 + ["0"]
    seen = []
    for point in range(len(statuses)):
        found = contents(tmp_path / str(point))
        assert len(found) == 5, sorted(found)
        records = payloads(*(tmp_path / str(point)).glob("x-*3"))
        assert len(records) == 90
        assert len({record[:3] for record in records}) == 1
        seen.append(records[0][:3])
    assert seen == [b"old"] * 7 + [b"new"] * 2


def test_files_left_by_other_runs_are_removed(tmp_path: Folder) -> None:
    """What a killed run left goes with the next one of the same names, no other's."""
    mine = tmp_path / ".x-SSSSS-of-NNNNN.beam-tfrecord" / "0123456789abcdef" / "runs"
    other = tmp_path / ".y-SSSSS-of-NNNNN.beam-tfrecord" / "456789abcdef0123" / "runs"
    for folder in (mine, other):
        folder.mkdir(parents=True)
        (folder / "left").write_bytes(b"left")
    write(tmp_path / "x")
    assert [name for name in contents(tmp_path) if name[-1] != "/"] == [
        ".y-SSSSS-of-NNNNN.beam-tfrecord/456789abcdef0123/runs/left",
        "x-00000-of-00001",
    ]
    assert not mine.parent.parent.exists()


def test_one_renames_at_a_time(tmp_path: Folder) -> None:
    """While another run renames its files, this one fails and leaves it alone."""
    hidden = tmp_path / ".x-SSSSS-of-NNNNN.beam-tfrecord"
    (hidden / "0123456789abcdef").mkdir(parents=True)
    (hidden / "made-by-beam-tfrecord").write_bytes(b"")
    with open(hidden / "lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = contents(tmp_path)
        with pytest.raises(TargetError, match="Only one run"):
            write(tmp_path / "x")
        assert contents(tmp_path) == before
    write(tmp_path / "x")
    assert list(contents(tmp_path)) == ["x-00000-of-00001"]


def test_a_run_that_another_one_overtakes(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run whose work a later one has cleared away fails and publishes nothing."""
    before = _old_files(tmp_path)
    real = tfrecord._write_file

    def overtaken(target: Any, *rest: Any) -> Any:
        facts = real(target, *rest)
        shutil.rmtree(target.hidden)
        return facts

    monkeypatch.setattr(tfrecord, "_write_file", overtaken)
    with pytest.raises(CommitError, match="Run again"):
        write(tmp_path / "x", num_shards=3)
    assert contents(tmp_path) == before


def test_two_sinks_in_one_pipeline(tmp_path: Folder) -> None:
    """Writes of one prefix and two suffixes do not meet."""
    with pipeline() as p:
        records = p | beam.Create(RECORDS)
        for suffix in (".a", ".b.gz"):
            records | suffix >> WriteTFRecords(
                str(tmp_path / "x"), file_name_suffix=suffix
            )
    for suffix in ("a", "gz"):
        assert payloads(*tmp_path.glob(f"x-*.{suffix}")) == sorted(RECORDS)
    assert len(contents(tmp_path)) == 2


def test_counters(tmp_path: Folder) -> None:
    """Written and read records are counted."""
    p = pipeline()
    p | beam.Create(RECORDS) | WriteTFRecords(str(tmp_path / "x"), num_shards=2)
    q = pipeline()
    q | ReadTFRecords(str(tmp_path / "x-*"), validate=False)
    found = {}
    for run in (p.run(), q.run()):
        run.wait_until_finish()
        for counter in run.metrics().query()["counters"]:
            if counter.key.metric.namespace == "tfrecord":
                found[counter.key.metric.name] = counter.committed
    assert found == {"records_written": 300, "records_read": 300}


def test_a_folder_is_no_pattern(tmp_path: Folder) -> None:
    """For a dataset's folder the patterns of its shards are named, and they work."""
    folder = tmp_path / "set"
    folder.mkdir()
    with pytest.raises(SourceError, match="is a folder") as caught:
        read(folder)
    shown = re.findall(r"'([^']*\*[^']*)'", str(caught.value))
    assert shown == [f"{folder}/*.tfrecord-*", f"{folder}/*-train.tfrecord-*"]
    assert read(folder, validate=False) == []


def test_missing_files(tmp_path: Folder) -> None:
    """An error when the transform is made; without validation, no records."""
    for pattern in ("x-*", "x", "no folder/x-*", ""):
        with pytest.raises((SourceError, SpecError), match="file_pattern"):
            ReadTFRecords(f"{tmp_path}/{pattern}" if pattern else "")
    assert read(tmp_path / "x-*", validate=False) == []
    with pytest.raises(SpecError, match="compression_type"):
        ReadTFRecords("x", compression_type=CompressionTypes.BZIP2)
    with pytest.raises(SpecError, match="coder"):
        ReadTFRecords("x", "bytes")  # type: ignore[arg-type]


def test_patterns(tmp_path: Folder) -> None:
    """Globs are expanded; names that exist literally are not."""
    for name in ("a/x-1", "a/x-2", "b/x-1", "[a]/x-1", "[a]/x*"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(frame.frame(name.encode()))
    for pattern, names in {
        "a/x-*": [b"a/x-1", b"a/x-2"],
        "?/x-1": [b"a/x-1", b"b/x-1"],
        "[ab]/x-1": [b"a/x-1", b"b/x-1"],
        "[a]/x-*": [b"[a]/x-1"],
        "[a]/x*": [b"[a]/x*"],
        "**/x-1": [b"[a]/x-1", b"a/x-1", b"b/x-1"],
    }.items():
        assert read(tmp_path / pattern) == names, pattern


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data[:-1], "record 9 at byte 153: the file ends inside"),
        (lambda data: data[:5], "record 0 at byte 0: the file ends inside"),
        (
            lambda data: data[:30] + b"?" + data[31:],
            "record 1 at byte 17: the checksum of the payload",
        ),
        (
            lambda data: b"?" + data[1:],
            "record 0 at byte 0: the checksum of the length",
        ),
        (lambda data: gzip.compress(data)[:-9], "gzip: the stream ends early"),
        (lambda data: b"BZh" + data, "unsupported compression: bz2"),
    ],
)
def test_damage_is_named(
    tmp_path: Folder, change: Callable[[bytes], bytes], message: str
) -> None:
    """A damaged file fails the read with its name, the record and the offset."""
    path = tmp_path / "x"
    path.write_bytes(change(b"".join(frame.frame(b"%d" % n) for n in range(10))))
    with pytest.raises(TFRecordError, match=re.escape(f"{path}: {message}")):
        read(path)
    COLLECTED.clear()
