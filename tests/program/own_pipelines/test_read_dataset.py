"""ReadDataset: rows as they were written, from every kind of dataset, or an error."""

import datetime
import gzip
import os
import pathlib
import shutil
from collections.abc import Callable
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pytest

from beam_pipeline.own_pipelines import engine_workers, read_dataset
from beam_tfrecord import (
    DamageError,
    InputError,
    ReadDataset,
    ReadRows,
    ReadTFRecords,
    SpecError,
    TFRecordError,
    UsageError,
    WriteDataset,
    convert,
    encode_examples,
)
from tests.support.outputs import flip
from tests.support.own_pipelines import write_rows
from tests.support.stress import sizes
from tests.support.tfrecord_pipelines import given_by, pipeline
from transforms.core.tfrecord import frame
from transforms.core.tfrecord.reader import TFRecordReader

Folder = pathlib.Path
Row = dict[str, Any]

UTC = datetime.UTC


def read(path: Folder | str, *arguments: Any, **options: Any) -> list[Any]:
    """Returns what ReadDataset gives, on the local runner."""
    return given_by(ReadDataset(path, *arguments, **options))


def read_by(key: str, path: Folder | str, *arguments: Any, **options: Any) -> list[Row]:
    return sorted(read(path, *arguments, **options), key=lambda row: row[key])


def row(number: int) -> Row:
    """Returns a row with a value of every kind; some are missing in some rows."""
    start = datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)
    step = datetime.timedelta(days=number, microseconds=number)
    odd = number % 2
    return {
        "id": number - 5,
        "score": number / 4,
        "whole": None if odd else 2**53 + number,
        "ok": number % 3 == 0,
        "perhaps": None if odd else number % 4 == 0,
        "name": f"이름 {number}",
        "nickname": None if odd else "",
        "raw": bytes([number, 255]),
        "tags": [f"tag {i}" for i in range(number % 3)],
        "flags": [bool(odd), True],
        "three": [number, 1, 2],
        "floats": None if odd else [0.5] * (number % 4),
        "rows": [[float(number), 1.5], [], [2.0]],
        "when": start + step,
        "times": [start, start + step],
        "species": "abc"[number % 3],
    }


ROWS = [row(number) for number in range(40)]


def test_rows_come_back_as_they_were_written(tmp_path: Folder) -> None:
    """Every kind, lists, class names, missing values and times; all splits."""
    splits = {"train": 0.8, "test": 0.2}
    write_rows(ROWS, tmp_path / "out", label="species", splits=splits, key="id")
    found = read_by("id", tmp_path / "out")
    assert found == ROWS
    for got, wanted in zip(found, ROWS, strict=True):
        assert {k: type(v) for k, v in got.items()} == {
            k: type(v) for k, v in wanted.items()
        }
    train = read(tmp_path / "out", split="train")
    test = read(tmp_path / "out", "test")
    assert len(train) > len(test) > 0
    assert sorted([*train, *test], key=lambda each: each["id"]) == ROWS


def test_what_was_read_is_written_to_the_same_bytes(tmp_path: Folder) -> None:
    """Dicts and batches are taken back: one dataset, byte for byte."""
    splits = {"train": 0.5, "test": 0.5}
    options: dict[str, Any] = {"label": "species", "splits": splits, "key": "id"}
    write_rows(ROWS, tmp_path / "a" / "set", **options)
    for name, batches in (("dicts", False), ("batches", True)):
        again = tmp_path / name / "set"
        with pipeline() as p:
            (
                p
                | ReadDataset(tmp_path / "a" / "set", batches=batches)
                | WriteDataset(again, **options)
            )
        for shard in (tmp_path / "a" / "set").glob("*.tfrecord*"):
            assert (again / shard.name).read_bytes() == shard.read_bytes(), name


CSV = "id,height,species,seen\n" + "".join(
    f"{i},{i / 2},{'adelie gentoo'.split()[i % 2]},2024-01-{i + 1:02}T00:00:00\n"
    for i in range(20)
)


SEEN = {"seen": "timestamp"}
OPTIONS: dict[str, Any] = {
    "label_column": "species",
    "splits": {"train": 0.75, "test": 0.25},
    "shards": 2,
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A folder with a CSV, and with it converted: labels, times, and two splits."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "rows.csv").write_text(CSV)
    convert(folder / "rows.csv", folder / "penguins", **OPTIONS, features=SEEN)
    return folder


@pytest.fixture
def penguins(made: Folder, tmp_path: Folder) -> Folder:
    """The converted CSV, beside which it is."""
    shutil.copytree(made, tmp_path / "copy")
    return tmp_path / "copy" / "penguins"


def test_a_converted_table(penguins: Folder) -> None:
    """Columns in the order asked for, labels as names or ids, typed."""
    rows = read_by("id", penguins)
    assert rows[3] == {
        "id": 3,
        "height": 1.5,
        "species": "gentoo",
        "seen": datetime.datetime(2024, 1, 4, tzinfo=UTC),
    }
    assert [each["id"] for each in rows] == list(range(20))
    few = read(penguins, columns=["species", "id"])
    assert list(few[0]) == ["species", "id"]
    ids = read_by("id", penguins, columns=["id", "species"], labels="ids")
    assert [each["species"] for each in ids] == [i % 2 for i in range(20)]


def test_one_shard_one_pattern_and_the_manifest(penguins: Folder) -> None:
    """Files of a dataset have its features, whatever way they are named."""
    everything = read_by("id", penguins)
    assert read_by("id", penguins / "manifest.json") == everything
    assert read_by("id", f"{penguins}/*.tfrecord-*") == everything
    shards = sorted(penguins.glob("*train*tfrecord*"))
    some = [each for shard in shards for each in read(shard)]
    assert sorted(some, key=lambda each: each["id"]) == read_by(
        "id", penguins, split="train"
    )


def examples(path: Folder, batch: pa.RecordBatch) -> None:
    data = b"".join(map(frame.frame, encode_examples(batch)))
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


BARE = pa.record_batch(
    {
        "class": pa.array([1, 0, None]),
        "height": pa.array([1.5, None, 2.5], pa.float32()),
        "name": pa.array(["a", "b", "ㄷ"]),
        "points": pa.array(
            [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], pa.list_(pa.float32())
        ),
        "seen": pa.array([1, 2, 3]),
    }
)


@pytest.mark.parametrize("name", ["rows.tfrecord", "rows.tfrecord.gz"])
def test_bare_files_with_features(tmp_path: Folder, name: str) -> None:
    """In the words of a spec."""
    examples(tmp_path / name, BARE)
    features = {
        "class": {"kind": "label", "vocabulary": ["cat", "dog"]},
        "name": "text",
        "height": "float",
        "points": {"kind": "float", "shape": [1, 2]},
        "seen": {"kind": "timestamp", "unit": "ms"},
    }
    found = read(tmp_path / name, features=features)
    assert [each["class"] for each in found] == ["dog", "cat", None]
    assert [each["name"] for each in found] == ["a", "b", "ㄷ"]
    assert [each["height"] for each in found] == [1.5, None, 2.5]
    assert found[2]["points"] == [[5.0, 6.0]]
    assert found[1]["seen"] == datetime.datetime(1970, 1, 1, 0, 0, 0, 2000, UTC)
    lists = {"shape": [None]}
    varying = {"points": {"kind": "float", **lists}, "name": {"kind": "bytes", **lists}}
    found = read(f"{tmp_path}/*", features=varying)
    assert found[0] == {"points": [1.0, 2.0], "name": [b"a"]}


def test_bare_folders_are_whole(tmp_path: Folder) -> None:
    """A numbered shard that is missing is an error where a folder was named."""
    for index in (0, 2):
        examples(tmp_path / f"x-{index:05}-of-00003", BARE)
    with pytest.raises(InputError, match="of 3 shards 1 are missing: 00001"):
        read(tmp_path, features={"name": "text"})
    assert len(read(f"{tmp_path}/*-of-00003", features={"name": "text"})) == 6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"split": "tests"}, "no 'tests'; the nearest name is 'test'"),
        ({"columns": ["hieght"]}, "no 'hieght'; the nearest name is 'height'"),
        ({"columns": "height"}, "columns must be a list"),
        ({"columns": []}, "columns must be a list"),
        ({"columns": [5]}, "columns must be a list"),
        ({"split": ["test"]}, r"no \['test'\]"),
        ({"features": ["id"]}, "features must be a mapping"),
        ({"labels": "name"}, "labels must be 'names' or 'ids'; found 'name'"),
        ({"features": {"id": "int64"}}, "features must be left out"),
        ({"features": {"id": "intt"}}, "features.id.kind"),
        ({"features": {"id": {"column": "x"}}}, "found column of 'id'"),
        ({"features": {"t": "timestamp"}}, "must have a unit"),
        ({"features": {"t": object()}}, "features.t"),
    ],
)
def test_wrong_arguments(
    penguins: Folder, arguments: dict[str, Any], message: str
) -> None:
    """Each is refused when the pipeline is built, and says what is there instead."""
    with pytest.raises(SpecError, match=message):
        read(penguins, **arguments)


@pytest.mark.parametrize("step", [ReadDataset, ReadRows, ReadTFRecords])
def test_a_start_behind_another_step(penguins: Folder, step: Any) -> None:
    """It reads what its argument names, not what comes in; `Create` asserts that."""
    rows = beam.Pipeline() | beam.Create([1])
    with pytest.raises(SpecError, match=f"{step.__name__} must begin a pipeline"):
        _ = rows | step(str(penguins))


def test_nothing_is_there(tmp_path: Folder) -> None:
    """No folder, no dataset, no files: an error that names the path."""
    for path in (tmp_path / "none", tmp_path, tmp_path / "*.tfrecord"):
        with pytest.raises(UsageError, match=str(tmp_path)):
            read(path)


def first_shard(folder: Folder) -> Folder:
    return min(folder.glob("*train*tfrecord*"))


def reverse(path: Folder) -> None:
    """Lets records of one size change places: the checksum of the whole file tells."""
    records = list(TFRecordReader(path))
    path.write_bytes(b"".join(map(frame.frame, reversed(records))))


def second_record(path: Folder) -> int:
    reader = TFRecordReader(path)
    return int(next(iter(reader.batches())).starts[1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: flip(path, second_record(path) + 3), "record 1 at byte "),
        (lambda path: flip(path, second_record(path) - 2), "record 1 at byte "),
        (lambda path: flip(path, 0), "record 0 at byte 0"),
        (lambda path: os.truncate(path, second_record(path) + 3), "record 1 at byte "),
        (lambda path: os.truncate(path, second_record(path) - 12), "1 in "),
        (lambda path: os.truncate(path, 0), "no record"),
        (lambda path: path.write_bytes(path.read_bytes() + frame.frame(b"")), "found "),
        (reverse, "CRC32C"),
    ],
)
@pytest.mark.parametrize("batches", sizes(True, False))
def test_damage_names_file_and_record(
    penguins: Folder, change: Callable[[Folder], None], message: str, batches: bool
) -> None:
    """A flipped bit, a cut file, a record too many: never a short or a wrong answer."""
    shard = first_shard(penguins)
    change(shard)
    with pytest.raises(TFRecordError) as caught:
        read(penguins, batches=batches, columns=["id"])
    assert str(shard) in str(caught.value)
    assert message in str(caught.value)


def test_a_record_that_is_no_example(tmp_path: Folder) -> None:
    """It is named, as is one that holds other values than the feature has."""
    path = tmp_path / "rows.tfrecord"
    good = encode_examples(BARE)
    path.write_bytes(b"".join(map(frame.frame, [*good, b"\xff\xff"])))
    with pytest.raises(
        DamageError, match=r"rows.tfrecord: record 3 at byte \d+: .*Exa"
    ):
        read(path, features={"name": "text"})
    path.write_bytes(b"".join(map(frame.frame, good)))
    with pytest.raises(DamageError, match=r"record 0 .*'height' holds a float_list"):
        read(path, features={"height": "int64"})


@pytest.mark.parametrize(
    ("rows", "words"),
    [(19, "its digest was"), (20, "its digest was"), (0, "its manifest is gone")],
)
def test_a_dataset_replaced_while_open(penguins: Folder, rows: int, words: str) -> None:
    """After the pipeline was built: an error, whether sizes differ or not."""
    other = penguins.parent / "other" / "penguins"
    if rows:
        source = penguins.parent / "rows.csv"
        changed = CSV.replace("adelie", "chinst").splitlines(keepends=True)[: rows + 1]
        source.write_text("".join(changed))
        convert(source, other, **OPTIONS, features=SEEN | {"height": "text"})
    p = pipeline()
    p | ReadDataset(penguins)
    shutil.rmtree(penguins)
    if rows:
        shutil.move(other, penguins)
    with pytest.raises(InputError, match=f"replaced while open: {words}"):
        p.run().wait_until_finish()


def test_a_large_plan_is_made_again(
    penguins: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers find the same shards, or that the dataset is another one."""
    expected = read_by("id", penguins)
    monkeypatch.setattr(read_dataset, "_PLAN_BYTES", 0)
    assert read_by("id", penguins) == expected
    waiting = pipeline()
    waiting | ReadDataset(penguins)
    shutil.rmtree(penguins)
    write_rows(ROWS, penguins)
    # As in a process that starts now.
    engine_workers._made_once.cache_clear()
    with pytest.raises(InputError, match="has changed or is gone"):
        waiting.run().wait_until_finish()


def test_types_are_checked(penguins: Folder) -> None:
    """Beam sees dicts or batches, and refuses a step for something else."""

    def of_text(text: str) -> str:
        return text

    for batches in (False, True):
        with pytest.raises(beam.typehints.TypeCheckError):
            pipeline() | ReadDataset(penguins, batches=batches) | beam.Map(of_text)
