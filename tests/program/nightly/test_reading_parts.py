"""A folder of parts is a dataset to what reads: one set of features, all records."""

import json
import os
import pathlib
import pickle
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.testing.util import assert_that, equal_to

from beam_pipeline import ReadDataset, open_dataset
from tests.support.outputs import dataset, flip
from tests.support.runs import command, convert, done, failed
from tests.support.sources import write_csv
from transforms.errors import DamageError, SpecError, UsageError
from transforms.reading.folder import warn_once
from transforms.tfrecord.read import ReadTFRecords

Folder = pathlib.Path
ROWS = 30
Row = dict[str, Any]


def source(folder: Folder, number: int) -> tuple[Folder, list[Row]]:
    """Writes the rows of a day; the third has a new class and a new column."""
    is_new = number == 3
    kinds = ("ant", "dog") if is_new else ("cat", "dog")
    rows: list[Row] = [
        {
            "id": number * 1000 + n,
            "kind": kinds[n % 2],
            "extra": "x" if is_new else None,
        }
        for n in range(ROWS)
    ]
    columns = ["id", "kind", *(["extra"] if is_new else [])]
    lines = [",".join(str(row[name]) for name in columns) for row in rows]
    return write_csv(folder / f"{number}.csv", ",".join(columns), lines), rows


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> tuple[Folder, list[Row]]:
    """Three parts, of which the first was written last; and their rows."""
    folder = tmp_path_factory.mktemp("events")
    rows = []
    for number in (2, 3, 1):
        path, more = source(folder, number)
        convert(
            *(path, folder / "sets", "--part", f"day-{number}"),
            *("--label-column", "kind", "--splits", "train=0.5,test=0.5"),
            *("--key-column", "id", "--allow", "new-classes", "--allow", "new-columns"),
        )
        rows += more
    return folder / "sets", rows


def by_id(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row["id"])


def test_open_dataset(events: tuple[Folder, list[Row]]) -> None:
    """Parts are in the order of their names, classes are the longest list."""
    folder, rows = events
    opened = open_dataset(folder, labels="names")
    assert opened.parts == ("day-1", "day-2", "day-3")
    assert opened.classes == {"kind": ("cat", "dog", "ant")}
    assert list(opened.features) == ["id", "kind", "extra"]
    found = [dict(row) for split in opened for row in opened[split]]
    assert by_id(found) == by_id(rows)
    days = [row["id"] // 1000 for row in opened["train"]]
    assert days == sorted(days)
    again = pickle.loads(pickle.dumps(opened["train"]))
    assert dict(again[0]) == dict(opened["train"][0])
    ants = opened["train"].where("kind == 'ant' and extra is not None")
    assert {row["id"] // 1000 for row in ants} == {3}


def test_a_part_alone(events: tuple[Folder, list[Row]]) -> None:
    """It is opened as the whole was; a part that is not there is an error."""
    folder, rows = events
    opened = open_dataset(folder, labels="names")
    part = opened.part("day-2")
    found = [dict(row) for split in part for row in part[split]]
    wanted = [row for row in rows if row["id"] // 1000 == 2]
    assert [row["id"] for row in by_id(found)] == [row["id"] for row in by_id(wanted)]
    assert "extra" not in part.features
    assert part.parts == ()
    for name in ("day-4", "../sets"):
        with pytest.raises(SpecError):
            opened.part(name)


def test_what_reads_the_manifest(events: tuple[Folder, list[Row]]) -> None:
    """`inspect` adds up what the parts say."""
    folder, rows = events
    facts = json.loads(done("inspect", folder, "--json").out)
    assert facts["account"]["written"] == len(rows)
    assert [split["name"] for split in facts["splits"]] == ["train", "test"]
    assert sum(split["records"] for split in facts["splits"]) == len(rows)
    features = {each["name"]: each for each in facts["features"]}
    assert features["id"]["min"] == 1000
    assert features["id"]["max"] == 3000 + ROWS - 1
    assert features["extra"]["present"] == ROWS
    assert not features["extra"]["always_present"]
    assert list(features["kind"]["classes"]) == ["cat", "dog", "ant"]
    assert "3 parts: day-1 to day-3" in done("inspect", folder).out


def test_what_reads_records(events: tuple[Folder, list[Row]], tmp_path: Folder) -> None:
    """`head`, `verify`, `export`, `diff`, `report` and the programs of `schema`."""
    folder, rows = events
    ants = done("head", folder, "--where", "kind == 'ant'").out
    assert "(ant)" in ants
    assert "part=day-" in ants
    assert "part=" in command("rejects", folder).err
    assert f"{len(rows)} records" in done("verify", folder).out
    assert f"exported {len(rows)} rows" in done("export", folder, tmp_path / "rows").out
    done("diff", folder, folder)
    done("report", folder, "-o", tmp_path / "report.html")
    for library in ("tensorflow", "torch", "keras", "beam", "grain", "pandas"):
        program = done("schema", folder, "--as", library).out
        compile(program, library, "exec")
        # A pattern of shards also matches what is in no manifest.
        assert "tfrecord-*" not in program
    # A batch for training has records of several parts.
    assert "read(split, mixed=True)" in done("schema", folder, "--as", "tensorflow").out


def test_a_part_beside_all_has_the_ids_of_all(
    events: tuple[Folder, list[Row]],
) -> None:
    """`diff` says that a list of classes goes on, which is no other list."""
    folder, _ = events
    said = command("diff", folder / "part=day-2", folder).out
    assert "1 more class in one; ids agree" in said


def test_a_condition_names_the_parts(
    events: tuple[Folder, list[Row]], caplog: pytest.LogCaptureFixture
) -> None:
    """A catalogue is of one part; the command for the whole folder is refused."""
    folder, _ = events
    warn_once.cache_clear()
    assert len(open_dataset(folder)["train"].where("id > 2000"))
    assert "of a dataset of parts, DIR is each part" in caplog.text


def test_merge_makes_one_folder_of_links(
    events: tuple[Folder, list[Row]], tmp_path: Folder
) -> None:
    """No record is copied, and features that some parts lack are there."""
    folder, rows = events
    done("merge", folder, tmp_path / "one")
    done("verify", tmp_path / "one")
    opened = open_dataset(tmp_path / "one", labels="names")
    assert by_id([dict(r) for split in opened for r in opened[split]]) == by_id(rows)
    shards = [
        s for split in dataset(tmp_path / "one")["splits"] for s in split["shards"]
    ]
    links = [os.stat(tmp_path / "one" / shard["file"]).st_nlink for shard in shards]
    assert min(links) > 1


def test_subset_makes_one_folder_of_chosen_rows(
    events: tuple[Folder, list[Row]], tmp_path: Folder
) -> None:
    """People are erased from all parts; shards without them are links."""
    folder, rows = events
    gone = [1004, 3007]
    (tmp_path / "keys").write_text("".join(f"{key}\n" for key in gone))
    options = ("--drop-keys", tmp_path / "keys")
    done("subset", folder, tmp_path / "one", *options)
    done("verify", tmp_path / "one")
    opened = open_dataset(tmp_path / "one", labels="names")
    assert opened.parts == ()
    assert opened.classes == {"kind": ("cat", "dog", "ant")}
    wanted = [row for row in rows if row["id"] not in gone]
    assert by_id([dict(r) for split in opened for r in opened[split]]) == by_id(wanted)
    facts = dataset(tmp_path / "one")
    assert facts["account"]["skipped"] == {"dropped_key": 2}
    shards = [shard["file"] for split in facts["splits"] for shard in split["shards"]]
    links = [os.stat(tmp_path / "one" / name).st_nlink for name in shards]
    assert sum(count > 1 for count in links) == 4
    failed(2, "subset", folder, folder, *options, "--overwrite")


@pytest.mark.parametrize(
    "arguments",
    [("index",), ("schema", "--as", "dali"), ("repair", "OUT")],
)
def test_what_takes_one_folder_says_so(
    events: tuple[Folder, list[Row]], tmp_path: Folder, arguments: tuple[str, ...]
) -> None:
    """The message names what to do instead."""
    name, *rest = (str(tmp_path / "out") if a == "OUT" else a for a in arguments)
    assert command(name, events[0], *rest).code == 2
    assert not (tmp_path / "out").exists()


def test_rows_of_a_pipeline(events: tuple[Folder, list[Row]]) -> None:
    """`ReadDataset` and `ReadTFRecords` give the records of all parts."""
    folder, rows = events
    with beam.Pipeline() as pipeline:
        found = pipeline | ReadDataset(folder)
        kinds = found | beam.Map(lambda row: (int(row["id"]), row["kind"]))
        assert_that(kinds, equal_to([(row["id"], row["kind"]) for row in rows]))
        records = (
            pipeline | ReadTFRecords(str(folder)) | beam.combiners.Count.Globally()
        )
        assert_that(records, equal_to([len(rows)]), "records")


def test_verify_finds_damage_and_doubled_keys(tmp_path: Folder) -> None:
    """A day that was converted under two names, and a shard that was changed."""
    path, _ = source(tmp_path, 1)
    options = ("--key-column", "id", "--label-column", "kind")
    for name in ("a", "b"):
        convert(path, tmp_path / "sets", "--part", name, *options)
    run = done("verify", tmp_path / "sets")
    assert f"{ROWS} keys of 'id'" in run.out
    shard = next((tmp_path / "sets" / "part=a").glob("sets-train*"))
    flip(shard, 20)
    run = failed(1, "verify", tmp_path / "sets", "--json")
    (finding,) = json.loads(run.out)["findings"]
    assert finding["file"] == f"part=a/{shard.name}"


def test_a_part_that_is_missing_or_in_the_making_is_none(tmp_path: Folder) -> None:
    """What has no manifest is not read; a folder without a part is an error."""
    path, _ = source(tmp_path, 1)
    convert(path, tmp_path / "sets", "--part", "a", "--label-column", "kind")
    (tmp_path / "sets" / "part=b").mkdir()
    assert open_dataset(tmp_path / "sets").parts == ("a",)
    (tmp_path / "sets" / "part=a" / "manifest.json").unlink()
    with pytest.raises(UsageError):
        open_dataset(tmp_path / "sets")


@pytest.mark.parametrize("label", [True, False])
def test_a_dataset_among_parts_that_it_is_not_like(
    tmp_path: Folder, label: bool
) -> None:
    """Its class ids, or its kinds, would be read as those of the others."""
    for name, number in (("a", 1), ("b", 3)):
        given = ("--label-column", "kind") if label or name == "a" else ()
        path, _ = source(tmp_path, number)
        convert(path, tmp_path / name / "sets", "--part", name, "--drop", "id", *given)
    os.rename(tmp_path / "b/sets/part=b", tmp_path / "a/sets/part=b")
    with pytest.raises(DamageError, match=r"parts\.json: .* 'kind' of '.*part=b'"):
        open_dataset(tmp_path / "a/sets")
    # Each of them is sound; what they share is not theirs.
    said = failed(1, "verify", tmp_path / "a/sets").out
    assert said.startswith("damage   parts.json: ")
    assert f"The sound shards hold {2 * ROWS} records" in said
    assert "damaged: 1 of 1 file" not in said
