"""WriteTFRecords and ReadTFRecords: one arrangement, all files or none."""

import gzip
import hashlib
import itertools
import os
import pathlib
import re
from collections.abc import Callable
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam import coders
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms import window
from hypothesis import given
from hypothesis import strategies as st

import beam_tfrecord
from tests.support.sources import write_files
from tests.support.tfrecord_pipelines import (
    RECORDS,
    contents,
    given_by,
    payloads,
    pipeline,
    write,
)
from transforms.core import segment
from transforms.core.placing.sharding import shard_of_keys
from transforms.core.tfrecord import frame
from transforms.errors import (
    DamageError,
    SourceError,
    SpecError,
)
from transforms.tfrecord import write as tfrecord
from transforms.tfrecord.read import ReadAllTFRecords, ReadTFRecords
from transforms.tfrecord.write import WriteTFRecords, hashed_rows, in_order

Folder = pathlib.Path


def read(pattern: Folder | str, **options: Any) -> list[Any]:
    """Returns the records in sorted order."""
    return sorted(given_by(ReadTFRecords(str(pattern), **options)))


# In the order that their hashes give them; the first four fall into shard 0 of 2. The
# recipe is in the docstring of `records`; a change would be one of output bytes.
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
    """Reversed, in bundles, repeated, in many pieces, in parts."""
    records = [*RECORDS, *RECORDS[::7], b"", b"x" * 5000]
    ways: dict[str, tuple[list[bytes], dict[str, Any]]] = {
        "plain": (records, {}),
        "reversed": (records[::-1], {"bundles": 5}),
        "repeated": (records, {"flags": ["--direct_runner_bundle_repeat=1"]}),
    }
    for name, (given_records, options) in ways.items():
        write(tmp_path / name / "x", given_records, num_shards=3, **options)
    monkeypatch.setattr(segment, "_INLINE_BYTES", 0)
    monkeypatch.setattr(tfrecord, "PIECE_BYTES", 2000)
    monkeypatch.setattr(tfrecord, "_PART_BYTES", 1000)
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


@given(
    records=st.lists(st.binary(max_size=6), max_size=40),
    cuts=st.lists(st.integers(0, 40), max_size=4),
    shards=st.integers(1, 5),
)
def test_pieces_equal_a_plain_sort(
    records: list[bytes], cuts: list[int], shards: int
) -> None:
    """Cutting and ordering pieces gives what sorting all records at once gives."""

    def order(record: bytes) -> tuple[int, bytes]:
        digest = hashlib.blake2b(record, digest_size=8).digest()
        return int.from_bytes(digest, "little"), record

    parts: dict[int, list[pa.Buffer]] = {index: [] for index in range(shards)}
    edges = [0, *sorted(cuts), len(records)]
    for start, stop in itertools.pairwise(edges):
        rows, hashes = hashed_rows(records[start:stop])
        rows = rows.append_column(segment.KEY_COLUMN, pa.array(hashes))
        numbers = shard_of_keys(hashes, shards)
        for shard, some in segment.cut(rows, numbers):
            parts[shard].append(some.serialize())
    found = {shard: in_order(messages) for shard, messages in parts.items() if messages}
    expected = sorted(records, key=order)
    keys = np.array([order(record)[0] for record in expected], np.uint64)
    of = shard_of_keys(keys, shards).tolist()
    for shard in range(shards):
        mine = [r for r, s in zip(expected, of, strict=True) if s == shard]
        assert found.get(shard, []) == mine


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


@pytest.mark.parametrize(
    ("suffix", "asked", "unpack"),
    [
        (".tfrecord", CompressionTypes.AUTO, bytes),
        (".gz", CompressionTypes.AUTO, gzip.decompress),
        (".GZ", CompressionTypes.AUTO, gzip.decompress),
        (".bz2", CompressionTypes.UNCOMPRESSED, bytes),
        (".gz", CompressionTypes.UNCOMPRESSED, bytes),
        ("", CompressionTypes.GZIP, gzip.decompress),
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
        ({"file_name_suffix": ".deflate"}, "compression"),
        ({"file_name_suffix": ".zlib"}, "compression"),
        ({"compression_type": CompressionTypes.DEFLATE}, "Take GZIP"),
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


def test_types_are_checked(tmp_path: Folder) -> None:
    """Names are texts, and what has no end is refused before anything runs."""
    p = pipeline()
    texts = p | beam.Create(["a"])
    names = texts | "Text" >> WriteTFRecords(str(tmp_path / "y"), coders.StrUtf8Coder())
    assert names.element_type is str
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
    beside = write_files(tmp_path, {neighbour: b"precious"}) / neighbour
    write(tmp_path / written, num_shards=2)
    assert beside.read_bytes() == b"precious"
    folder = (tmp_path / written).parent
    names = [f"train-0000{n}-of-00002" for n in (0, 1)]
    expected = {*names, beside.name} if beside.parent == folder else {*names}
    assert set(os.listdir(folder)) == expected
    assert payloads(*(folder / name for name in names)) == sorted(RECORDS)


@pytest.mark.parametrize(
    "name",
    ["a b#%s", "줄\n바꿈", "가" * 79 + "a", "%(shard_num)05d"],
)
def test_any_name(tmp_path: Folder, name: str) -> None:
    """Signs, spaces and names as long as the file system has them."""
    write(tmp_path / name, num_shards=1)
    assert list(contents(tmp_path)) == [f"{name}-00000-of-00001"]
    assert payloads(tmp_path / f"{name}-00000-of-00001") == sorted(RECORDS)


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


def read_all(patterns: list[str], **options: Any) -> list[Any]:
    """Returns what the elements' files hold, in sorted order."""
    paths = beam.Create(patterns, reshuffle=False)
    return sorted(given_by(paths, ReadAllTFRecords(**options)))


def dataset(folder: Folder, compression: str = "none") -> list[bytes]:
    """Writes a dataset of two splits; returns its records in sorted order."""
    rows = [{"id": n, "name": f"n{n}"} for n in range(40)]
    splits = {"train": 0.7, "test": 0.3}
    options: dict[str, Any] = {"shards": 2, "compression": compression}
    beam_tfrecord.convert(rows, folder, splits=splits, **options)
    found = payloads(*folder.glob("*.tfrecord*-of-*"))
    assert len(found) == 40
    return found


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_datasets_folder_is_its_shards(tmp_path: Folder, compression: str) -> None:
    """All splits, and no other file; each shard is the one that the manifest states."""
    folder = tmp_path / "set"
    records = dataset(folder, compression)
    (folder / "other.tfrecord").write_bytes(frame.frame(b"other"))
    assert read(folder) == records
    assert read(f"{folder}/") == records
    assert read_all([str(folder)]) == records
    first, second = sorted(folder.glob("*-train.tfrecord*-of-*"))
    second.write_bytes(first.read_bytes())
    with pytest.raises(Exception, match="states 15 records"):
        read(folder)
    second.unlink()
    with pytest.raises(Exception, match="cannot be opened"):
        read(folder)


def test_a_damaged_manifest_is_no_dataset(tmp_path: Folder) -> None:
    """It is an error when the step is made, before any shard is read."""
    dataset(tmp_path / "set")
    manifest = tmp_path / "set" / "manifest.json"
    manifest.write_bytes(manifest.read_bytes().replace(b"train", b"brain"))
    with pytest.raises(DamageError, match=r"manifest\.json was changed"):
        ReadTFRecords(str(tmp_path / "set"))


def test_read_all(tmp_path: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names, globs and relative paths, each element by itself, with the file's name."""
    names = ("a/x-1", "a/x-2", "b/x-1", "b/x[1]")
    write_files(tmp_path, {name: frame.frame(name.encode()) for name in names})
    monkeypatch.chdir(tmp_path)
    patterns = [f"{tmp_path}/a/*", "b/x-1", "b/x[1]", "b/x-1"]
    wanted = [b"a/x-1", b"a/x-2", b"b/x-1", b"b/x-1", b"b/x[1]"]
    assert read_all(patterns) == wanted
    pairs = [(str(tmp_path / name.decode()), name) for name in wanted]
    assert read_all(patterns, with_filename=True) == pairs
    coder = coders.StrUtf8Coder()
    assert read_all(["b/x-1"], coder=coder) == ["b/x-1"]


def test_read_all_of_missing_and_damaged_files(tmp_path: Folder) -> None:
    """A pattern without a match is an error, unless that is allowed; damage always."""
    (tmp_path / "x").write_bytes(frame.frame(b"record"))
    (tmp_path / "y").write_bytes(frame.frame(b"record")[:-1])
    absent = str(tmp_path / "z*")
    with pytest.raises(Exception, match="at least one file"):
        read_all([str(tmp_path / "x"), absent])
    assert read_all([str(tmp_path / "x"), absent], validate=False) == [b"record"]
    for pattern, why in (
        (str(tmp_path / "y"), "ends inside a record"),
        ("", ""),
    ):
        with pytest.raises(Exception, match=why or "text that names files"):
            read_all([pattern])


def test_read_all_in_windows(tmp_path: Folder) -> None:
    """Records have the window of the element that named their file."""
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(frame.frame(name.encode()) * 2)
    with pipeline() as p:
        paths = [
            window.TimestampedValue(str(tmp_path / name), at)
            for name, at in (("a", 5), ("b", 25))
        ]
        counts = (
            p
            | beam.Create(paths)
            | beam.Map(lambda path: path).with_output_types(str)
            | beam.WindowInto(window.FixedWindows(10))
            | ReadAllTFRecords()
            | beam.combiners.Count.PerElement()
        )
        assert_that(counts, equal_to([(b"a", 2), (b"b", 2)]))


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
    held = ("a/x-1", "a/x-2", "b/x-1", "[a]/x-1", "[a]/x*")
    write_files(tmp_path, {name: frame.frame(name.encode()) for name in held})
    for pattern, names in {
        "a/x-*": [b"a/x-1", b"a/x-2"],
        "?/x-1": [b"a/x-1", b"b/x-1"],
        "[ab]/x-1": [b"a/x-1", b"b/x-1"],
        "[a]/x-*": [b"[a]/x-1"],
        "[a]/x*": [b"[a]/x*"],
        "**/x-1": [b"[a]/x-1", b"a/x-1", b"b/x-1"],
    }.items():
        assert read(tmp_path / pattern) == names, pattern
