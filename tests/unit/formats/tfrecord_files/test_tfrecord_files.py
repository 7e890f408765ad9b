"""TFRecord files as a source: TensorFlow writes them, protobuf says what they hold."""

import gzip
import hashlib
import json
import pathlib
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.support import datasets, sequences
from tests.support.sequences import RANKING, SEQUENCE, ranking, sequence
from tests.support.table_reading import listed, read_all, read_later, rows_of
from transforms.core.reasons import Reason, Rejection
from transforms.core.schema import Feature, Kind
from transforms.core.tfrecord.frame import frame
from transforms.core.tfrecord.reader import PayloadBatch
from transforms.errors import InputError, SourceError, TFRecordError
from transforms.formats.tfrecord_files import reader as tfrecord_files
from transforms.formats.tfrecord_files.dataset import (
    StatedDataset,
    dataset_beside,
    known_features,
)
from transforms.formats.tfrecord_files.reader import TFRecordFiles


def example(**features: Any) -> bytes:
    """Serialises an Example; None leaves a key out, ... gives `Feature()`."""
    lists = {
        name: value if isinstance(value, list) else None if value is ... else [value]
        for name, value in features.items()
        if value is not None
    }
    return sequences.field(1, sequences.features(lists))


def write(
    path: pathlib.Path,
    payloads: list[bytes],
    pack: Callable[..., Any] | type[Any] = bytes,
) -> None:
    path.write_bytes(pack(b"".join(map(frame, payloads))))


def uniform(count: Any) -> Any:
    return [
        {"f": i / 2, "i": i * 10**15 - 5, "t": b"text %d" % i} for i in range(count)
    ]


def optional(count: Any) -> Any:
    """Rows with features that come and go, and lists."""
    return [
        {
            "i": i,
            "list": [i] * (i % 4),
            "maybe": b"x" * i if i % 3 else None,
            "one": [float(i)],
        }
        for i in range(count)
    ]


def as_read(row: dict[str, Any]) -> dict[str, Any]:
    """A row as expected back: as lists if rows differ in the number of values."""
    row = dict(row)
    if "one" in row:
        row["one"] = row["one"][0]
    return row


@pytest.mark.parametrize("rows", [uniform(300), optional(60)], ids=["same", "optional"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress, zlib.compress])
@pytest.mark.parametrize("block_bytes", [1, 500, 1 << 20])
def test_records_come_back(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    rows: list[dict[str, Any]],
    pack: Callable[..., Any] | type[Any],
    block_bytes: int,
) -> None:
    """Plain files are cut at records, compressed ones come in pieces; all is equal."""
    monkeypatch.setattr(tfrecord_files, "PIECE_BYTES", 1)
    write(tmp_path / "a.tfrecord", [example(**row) for row in rows], pack)
    read = read_all(TFRecordFiles(), tmp_path, ["a.tfrecord"], block_bytes=block_bytes)
    assert rows_of(read) == [as_read(row) for row in rows]
    assert read.sample.total_rows == len(rows)
    if pack is not bytes:
        assert len(read.blocks) == 1
    elif block_bytes == 1:
        assert len(read.blocks) == len(rows)


def planned(tmp_path: pathlib.Path, payloads: list[bytes]) -> Any:
    write(tmp_path / "seen.tfrecord", payloads)
    files = listed(tmp_path, ["seen.tfrecord"])
    reader = TFRecordFiles()
    return reader.plan(files).reader


def reread(
    tmp_path: pathlib.Path, reader: TFRecordFiles, payloads: list[bytes]
) -> tuple[list[Rejection], list[dict[str, Any]]]:
    write(tmp_path / "later.tfrecord", payloads)
    columns = [feature.name for feature in reader.features]
    return read_later(reader, tmp_path, "later.tfrecord", columns)


def test_odd_records_are_refused_by_row(tmp_path: pathlib.Path) -> None:
    """Among records that fit, each other one is named by number, offset and sha256."""
    good = [example(a=i, b=[i] * (i % 3)) for i in range(100)]
    reader = planned(tmp_path, good)
    odd = {
        3: (b"\xff\xff not an Example", Reason.MALFORMED),
        50: (example(a=b"text", b=[1]), Reason.WRONG_TYPE),
        51: (example(a=[1, 2], b=[1]), Reason.WRONG_SHAPE),
        99: (example(a=1) + b"\x12\x00", Reason.MALFORMED),
    }
    payloads = [odd[i][0] if i in odd else each for i, each in enumerate(good)]
    rejections, rows = reread(tmp_path, reader, payloads)
    assert [row["a"] for row in rows] == [i for i in range(100) if i not in odd]
    assert [(r.row, r.reason, r.sha256) for r in rejections] == [
        (i + 1, reason, hashlib.sha256(data).hexdigest())
        for i, (data, reason) in odd.items()
    ]
    offset = sum(len(payload) + 16 for payload in payloads[:50])
    assert f"record 50 at byte {offset:,}: feature 'a'" in rejections[1].message


def test_missing_values(tmp_path: pathlib.Path) -> None:
    """An absent key, `Feature()` and an empty list of a single value are missing."""
    reader = planned(tmp_path, [example(a=1, b=[1, 2]), example(a=2, b=[])])
    rows = [example(b=[3]), example(a=..., b=...), example(a=[], b=[]), example(a=7)]
    rejections, found = reread(tmp_path, reader, rows)
    assert not rejections
    assert found == [
        {"a": None, "b": [3]},
        {"a": None, "b": None},
        {"a": None, "b": []},
        {"a": 7, "b": None},
    ]


@pytest.mark.parametrize("place", ["length", "payload", "end"])
def test_damage_is_an_error_with_file_and_offset(
    tmp_path: pathlib.Path, place: str
) -> None:
    """One flipped bit in a frame, or a file that was cut off, stops the run."""
    payloads = [example(a=i, t=b"x" * 50) for i in range(1000)]
    write(tmp_path / "a.tfrecord", payloads)
    reader = planned(tmp_path, payloads[:10])
    data = bytearray((tmp_path / "a.tfrecord").read_bytes())
    at = sum(len(payload) + 16 for payload in payloads[:700])
    if place == "end":
        data = data[: at + 20]
    else:
        data[at if place == "length" else at + 30] ^= 4
    (tmp_path / "a.tfrecord").write_bytes(data)
    (file,) = listed(tmp_path, ["a.tfrecord"])

    def read() -> None:
        for block in reader.blocks(file, block_bytes=5000, limit_rows=None):
            list(reader.read(file, block, ["a"]))

    with pytest.raises(TFRecordError, match=r"a\.tfrecord") as caught:
        read()
    assert (caught.value.record, caught.value.offset) == (700, at)


@pytest.mark.parametrize("data", [b"", b"id,x\n" * 99, b"\x28\xb5\x2f\xfd" + bytes(99)])
def test_what_is_no_tfrecord_is_an_error(tmp_path: pathlib.Path, data: bytes) -> None:
    """Empty, text and zstd files."""
    (tmp_path / "a.tfrecord").write_bytes(data)
    with pytest.raises((SourceError, TFRecordError)):
        read_all(TFRecordFiles(), tmp_path, ["a.tfrecord"])


def test_lists_of_steps_are_columns(tmp_path: pathlib.Path) -> None:
    """Steps of one value, of k and of any number: by all records of the sample."""
    records = [
        sequence(
            {"id": [i]},
            {
                "one": [[i]] * (i % 3),
                "two": [[i / 2, 1.0]] * (i % 4),
                "any": [[b"a"] if i % 2 else None, None],
                **({} if i % 5 else {"rare": [[i]], "none": [None]}),
            },
        )
        for i in range(40)
    ]
    write(tmp_path / "a.tfrecord", records)
    read = read_all(TFRecordFiles(), tmp_path, ["a.tfrecord"], block_bytes=500)
    types = {name: column.type for name, column in read.sample.columns.items()}
    assert types == {
        "id": pa.int64(),
        "lists/any": pa.list_(pa.list_(pa.large_binary())),
        "lists/one": pa.list_(pa.int64()),
        "lists/rare": pa.list_(pa.int64()),
        "lists/two": pa.list_(pa.list_(pa.float32(), 2)),
    }
    assert rows_of(read) == [
        {
            "id": i,
            "lists/any": [[b"a"] * (i % 2), []],
            "lists/one": [i] * (i % 3),
            "lists/rare": None if i % 5 else [i],
            "lists/two": [[i / 2, 1.0]] * (i % 4),
        }
        for i in range(40)
    ]
    assert not read.rejections


def test_records_with_other_steps_are_rejects(tmp_path: pathlib.Path) -> None:
    """What the sample has not shown, two types in a list, and other messages."""
    fine = sequence({"id": [1]}, {"x": [[1, 2], [3, 4]]})
    reader = planned(tmp_path, [fine] * 20)
    odd = [
        (sequence({}, {"x": [[1, 2], [3]]}), Reason.WRONG_SHAPE),
        (sequence({}, {"x": [[1, 2], [1.0]]}), Reason.WRONG_TYPE),
        (sequence({}, {"x": [[1.0, 2.0]]}), Reason.WRONG_TYPE),
        (example(**{"lists/x": [1, 2]}), Reason.WRONG_SHAPE),
        (sequence({"lists/x": [1]}, {"x": []}), Reason.MALFORMED),
        (b"text", Reason.MALFORMED),
    ]
    payloads = [fine, *(record for record, _ in odd), fine]
    rejections, rows = reread(tmp_path, reader, payloads)
    assert [(r.row, r.reason) for r in rejections] == [
        (number, reason) for number, (_, reason) in enumerate(odd, 2)
    ]
    assert [row["lists/x"] for row in rows] == [[[1, 2], [3, 4]]] * 2


@pytest.mark.parametrize("record", [sequence({"a": [1]}, {}), ranking({"a": [1]}, [])])
def test_records_without_lists(record: bytes, tmp_path: pathlib.Path) -> None:
    """Their context is read; a list is null in them, and no column unless sampled."""
    listed_later = [record, sequence({"a": [2]}, {"x": [[3]]})]
    rejections, rows = reread(tmp_path, planned(tmp_path, [record] * 3), listed_later)
    assert (rejections, rows) == ([], [{"a": 1}, {"a": 2}])
    rejections, rows = reread(tmp_path, planned(tmp_path, listed_later), listed_later)
    expected = [{"a": 1, "lists/x": None}, {"a": 2, "lists/x": [3]}]
    assert (rejections, rows) == ([], expected)


def test_other_messages_behind_a_sample_of_examples(tmp_path: pathlib.Path) -> None:
    """Their lists have no column: rejects, and never the context alone."""
    reader = planned(tmp_path, [example(id=i) for i in range(20)])
    rejections, _ = reread(tmp_path, reader, [example(id=1), SEQUENCE, RANKING])
    assert [(r.row, r.reason) for r in rejections] == [
        (2, Reason.MALFORMED),
        (3, Reason.MALFORMED),
    ]


def test_large_records_are_walked_over(tmp_path: pathlib.Path) -> None:
    """Records of several MiB are blocks of their own."""
    rows = [{"a": i, "t": bytes([i]) * (3 << 20)} for i in range(4)]
    write(tmp_path / "a.tfrecord", [example(**row) for row in rows])
    read = read_all(TFRecordFiles(), tmp_path, ["a.tfrecord"], block_bytes=1 << 20)
    assert len(read.blocks) == 4
    assert rows_of(read) == rows


def test_drift_between_files_is_an_error(tmp_path: pathlib.Path) -> None:
    """A feature of another type is named with both files; an absent one is missing."""
    write(tmp_path / "a.tfrecord", [example(x=1, y=b"t")])
    write(tmp_path / "b.tfrecord", [example(x=0.5)])
    write(tmp_path / "c.tfrecord", [example(x=1)])
    with pytest.raises(InputError, match=r"'x' is int64 in a\.tfrecord and float in"):
        TFRecordFiles().plan(listed(tmp_path, ["a.tfrecord", "b.tfrecord"]))
    read = read_all(TFRecordFiles(), tmp_path, ["a.tfrecord", "c.tfrecord"])
    assert read.columns["y"] == [b"t", None]


def test_sample_is_spread_and_bounded(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records are found inside a file too, by the checksum of a length."""
    monkeypatch.setattr(tfrecord_files, "SAMPLE_BYTES", 1 << 20)
    payloads = [example(a=i, t=bytes(range(256))) for i in range(30_000)]
    write(tmp_path / "a.tfrecord", payloads)
    sample = TFRecordFiles().plan(listed(tmp_path, ["a.tfrecord"])).sample
    values = np.array(sample.columns["a"])
    assert values.max() > 25_000
    assert len(values) < 12_000
    assert not sample.complete
    size = (tmp_path / "a.tfrecord").stat().st_size
    assert abs(size * sample.rows / sample.sampled_bytes - 30_000) < 600


def test_images_are_declared_by_their_bytes(tmp_path: pathlib.Path) -> None:
    """Encoded images become image features; numbers beside them stay numbers."""
    png = b"\x89PNG\r\n\x1a\n" + bytes(9)
    rows = [{"image/encoded": png, "image/height": 3, "raw": b"no image"}] * 3
    write(tmp_path / "a.tfrecord", [example(**row) for row in rows])
    planned = TFRecordFiles().plan(listed(tmp_path, ["a.tfrecord"]))
    assert planned.features == (Feature("image/encoded", Kind.IMAGE, inline=True),)


def test_a_dataset_of_ours_keeps_its_features_labels_and_splits(
    tmp_path: pathlib.Path,
) -> None:
    """Features as the manifest declares them, class names for ids, splits by file."""
    tmp_path = tmp_path / "animals"
    splits = {"train": datasets.animals(4, 3), "test": datasets.animals(2, start=7)}
    datasets.write_dataset(tmp_path, splits)
    names = sorted(path.name for path in tmp_path.iterdir() if "-of-" in path.name)
    (tmp_path / "stray.tfrecord").write_bytes(frame(b""))
    files = listed(tmp_path, [*names, "stray.tfrecord"])
    inputs = TFRecordFiles().plan(files).files
    assert [file.origin for file in inputs] == names
    read = read_all(TFRecordFiles(), tmp_path, names)
    declared = {f.name: f for f in read.planned.features}
    assert {name: f.kind for name, f in declared.items()} == {
        feature.name: feature.kind for feature in datasets.ANIMALS
    }
    assert declared["animal"].vocabulary == tuple(sorted(("고양이", "dog", "goat")))
    expected = {number: datasets.animal(number) for number in range(9)}
    assert sorted(read.columns["id"]) == list(range(9))
    for row in rows_of(read):
        want = expected[row["id"]]
        assert row["animal"] == want["animal"]
        assert row["tame"] is want["tame"]
        note = None if row["note"] is None else row["note"].decode()
        assert note == want.get("note")
    assert {read.reader.split_of(name) for name in names} == {"train", "test"}
    assert all(f"-{read.reader.split_of(name)}." in name for name in names)


def test_a_shard_that_is_not_what_the_manifest_states_is_an_error(
    tmp_path: pathlib.Path,
) -> None:
    """A dataset with a shard that is missing or cut between records is not whole."""
    tmp_path = tmp_path / "animals"
    datasets.write_dataset(tmp_path, {"train": datasets.animals(4, 3)})
    names = sorted(path.name for path in tmp_path.iterdir() if "-of-" in path.name)
    first = tmp_path / names[0]
    data = first.read_bytes()
    length = int.from_bytes(data[:8], "little") + 16
    first.write_bytes(data[length:])
    with pytest.raises(TFRecordError, match="must have 4 records, as stated"):
        read_all(TFRecordFiles(), tmp_path, names)
    first.unlink()
    with pytest.raises(SourceError, match="every shard that is stated"):
        TFRecordFiles().plan(listed(tmp_path, names[1:]))


def test_a_dataset_of_tfds_is_known_by_its_files(tmp_path: pathlib.Path) -> None:
    """Without a manifest, TFDS's files give classes, images, texts and splits."""
    tmp_path = tmp_path / "animals"
    datasets.write_dataset(
        tmp_path,
        {"train": datasets.animals(4), "test": datasets.animals(2, start=4)},
    )
    (tmp_path / "manifest.json").unlink()
    names = sorted(path.name for path in tmp_path.iterdir() if "-of-" in path.name)
    read = read_all(TFRecordFiles(), tmp_path, names)
    declared = {f.name: f for f in read.planned.features}
    assert declared["animal"].kind is Kind.LABEL
    by_id = dict(zip(read.columns["id"], read.columns["animal"], strict=True))
    assert by_id == {n: datasets.animal(n)["animal"] for n in range(6)}
    assert [read.reader.split_of(name) for name in names] == ["test", "train"]


def test_two_datasets_with_other_vocabularies_merge_by_name(
    tmp_path: pathlib.Path,
) -> None:
    """Ids of the first dataset stay, and new classes of the other follow."""
    for folder, rows in (("a", (0, 1)), ("b", (1, 2))):
        shard = [datasets.animal(number) for number in rows]
        datasets.write_dataset(tmp_path / folder, {"train": [shard]})
    names = [
        f"{folder}/{path.name}"
        for folder in "ab"
        for path in sorted((tmp_path / folder).iterdir())
        if "-of-" in path.name
    ]
    read = read_all(TFRecordFiles(), tmp_path, names)
    assert read.columns["animal"] == ["고양이", "dog", "dog", "goat"]
    declared = {f.name: f for f in read.planned.features}
    assert declared["animal"].vocabulary == ("dog", "고양이", "goat")


def test_features_that_differ_are_named_on_both_sides() -> None:
    """As `merge` names them: the kind in either folder."""
    one, other = Feature("x", Kind.INT64), Feature("x", Kind.FLOAT, shape=(2,))
    found = [StatedDataset("a", (one,), ()), StatedDataset("b", (other,), ())]
    with pytest.raises(
        InputError, match=r"'x' is int64 in 'a' and float \(shape: \[2\]\) in 'b'"
    ):
        known_features(found)


def test_ragged_bools_and_labels_keep_their_rows() -> None:
    """Values get their meaning, and stay in the lists that they are in."""
    from transforms.formats.tfrecord_files.stored_features import composed, record_types

    def lists(feature: Feature, values: list[int], lengths: list[int]) -> Any:
        columns = [pa.array([each], pa.list_(pa.int64())) for each in (values, lengths)]
        keys = record_types(feature)
        return composed(feature, dict(zip(keys, columns, strict=True)))

    shape = (None, None)
    bools = Feature("b", Kind.BOOL, shape=shape)
    assert lists(bools, [1, 0], [1, 0, 1]).column.to_pylist() == [[[True], [], [False]]]
    names = Feature("l", Kind.LABEL, shape=shape, vocabulary=("cat", "dog"))
    assert lists(names, [1, 0], [2]).column.to_pylist() == [[["dog", "cat"]]]
    assert lists(bools, [2, 0], [2]).faults[0].reason is Reason.NOT_A_BOOL
    assert lists(names, [2], [1]).faults[0].reason is Reason.UNKNOWN_LABEL
    assert lists(bools, [1], [2]).faults[0].reason is Reason.WRONG_SHAPE


def test_faults_of_ragged_values_are_those_of_their_own_record() -> None:
    """Another record's fault in its values is not that of one with wrong lengths."""
    from transforms.formats.tfrecord_files.stored_features import read_features

    feature = Feature("b", Kind.BOOL, shape=(None, None))
    values, lengths = feature.record_keys
    records = [([1, 0], [2]), ([2, 0], [2]), ([1], [2])]
    payloads = [example(**{values: v, lengths: n}) for v, n in records]
    read = read_features(PayloadBatch.of(payloads), [feature])
    assert read.columns["b"].to_pylist() == [[[True, False]]]
    assert [(index, reason) for index, reason, _ in read.refused] == [
        (1, Reason.NOT_A_BOOL),
        (2, Reason.WRONG_SHAPE),
    ]


def test_a_manifest_of_another_program_is_no_dataset(tmp_path: pathlib.Path) -> None:
    """A foreign manifest.json beside the files says nothing about them."""
    write(tmp_path / "a.tfrecord", [example(a=1)])
    (tmp_path / "manifest.json").write_text(json.dumps({"name": "web app"}))
    files = listed(tmp_path, ["a.tfrecord"])
    assert TFRecordFiles().plan(files).files == files
    assert read_all(TFRecordFiles(), tmp_path, ["a.tfrecord"]).columns == {"a": [1]}


def test_a_manifest_that_was_replaced_is_parsed_again(tmp_path: pathlib.Path) -> None:
    """What a manifest says is kept by the stamp of the file."""
    folder = tmp_path / "animals"
    datasets.write_dataset(folder, {"train": datasets.animals(2)})
    (shard,) = folder.glob("*-of-*")
    assert dataset_beside(str(shard), shard.name) is not None
    (folder / "dataset_info.json").unlink(missing_ok=True)
    (folder / "manifest.json").write_text("{}")
    assert dataset_beside(str(shard), shard.name) is None


def test_a_full_pass_finds_late_features(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `full`, a feature of one record and a longer list are known beforehand."""
    monkeypatch.setattr(tfrecord_files, "SAMPLE_BYTES", 1 << 14)
    payloads = [example(a=i, t=bytes(200)) for i in range(2000)]
    payloads[901] = example(a=[1, 2], late=0.5)
    write(tmp_path / "a.tfrecord", payloads)
    read = read_all(TFRecordFiles(full=True), tmp_path, ["a.tfrecord"])
    assert read.columns["a"][900:902] == [[900], [1, 2]]
    assert read.columns["late"][901] == 0.5
