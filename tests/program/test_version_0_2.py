"""Datasets of version 0.2: read, checked, copied, replaced, and made again.

`tests/data/v0.2/README.md` says how they were made.
"""

import csv
import importlib.util
import json
import os
import pathlib
import shutil
import zipfile
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from beam_pipeline import open_dataset
from tests.support.memory_store import MemoryStore, install
from tests.support.outputs import dataset, flip, manifest, names, rejects
from tests.support.own_pipelines import write_rows
from tests.support.runs import Run, command, done
from tests.support.segments import IN_FILES

pytestmark = pytest.mark.usefixtures("without_runner")

Folder = pathlib.Path
Row = dict[str, Any]
DATA = pathlib.Path(__file__).parents[1] / "data" / "v0.2"


def _make() -> ModuleType:
    """Loads the script that has made the data, whose folder is no package."""
    spec = importlib.util.spec_from_file_location("make_v0_2", DATA / "make.py")
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MAKE = _make()
JOBS: dict[str, tuple[str, ...]] = MAKE.JOBS


def copy_target(name: str, folder: Folder) -> Folder:
    """Copies a dataset, or a target with its work folder, into a folder.

    Returns the folder with the name, which a packed target has in a folder of its own.
    """
    packed = DATA / f"{name}.zip"
    if packed.exists():
        with zipfile.ZipFile(packed) as file:
            file.extractall(folder / name)
    else:
        shutil.copytree(DATA / name, folder / name)
    return folder / name


# Flags that this version lacks, and the arguments of tests that do the same.
GONE: Mapping[tuple[str, str], list[str]] = {
    ("--index", "text"): [],
    ("--catalogue", "full"): [],
    ("--segments", "files"): [IN_FILES],
    ("--vocabulary-lock", "names.lock"): ["--vocabulary", "names.lock"],
}


def flags_of(name: str) -> tuple[str, ...]:
    """Returns the flags of a job of `convert`, without its source, for this version."""
    flags = [*JOBS[name][1:]]
    for gone, instead in GONE.items():
        if gone[0] in flags:
            at = flags.index(gone[0])
            assert tuple(flags[at : at + 2]) == gone
            flags[at : at + 2] = instead
    return tuple(flags)


DATASETS = ("table", "gzip", "locked", "photos", "wide", "rows", "sparse")
BY_CONTENT = ("table", "locked")
BY_TIME = ("gzip", "photos", "wide")
# What tells the rows of each split, in the order of the records.
ORDER: dict[str, dict[str, list[Any]]] = json.loads((DATA / "order.json").read_bytes())
KEYS = {"photos": "filename", "wide": "x000"}
# What a run has left that was killed at a moment -> the seed of the dataset there.
KILLED = {"writing": 0, "publishing": 0, "published": 1}


def expected_rows(name: str) -> dict[Any, Row]:
    """Returns what the sources hold, by what tells the rows."""
    if name in ("rows", "sparse"):
        row = {"rows": MAKE.pipeline_row, "sparse": MAKE.sparse_row}[name]
        return {number: row(number) for number in range(60)}
    if name == "photos":
        return {path: photo(path) for each in ORDER[name].values() for path in each}
    source = "wide.csv" if name == "wide" else "table.csv"
    with open(DATA / "sources" / source, encoding="utf-8", newline="") as file:
        columns, *lines = csv.reader(file)
    cells = [
        dict(zip(columns, line, strict=True))
        for line in lines
        if len(line) == len(columns)
    ]
    if name == "wide":
        found = [{key: float(cell) for key, cell in row.items()} for row in cells]
        return {row["x000"]: row for row in found}
    return {
        int(row["id"]): {
            "id": int(row["id"]),
            "weight": float(row["weight"]),
            "tame": row["tame"] == "true",
            "note": row["note"] or None,
            "kind": row["kind"],
        }
        for row in cells
    }


def photo(path: str) -> Row:
    _, label, file = path.split("/")
    return {
        "image": (DATA / "sources" / "photos" / path).read_bytes(),
        "label": label,
        "filename": path,
        "height": 5,
        "width": 4 + int(file[0]),
        "depth": 3,
    }


def plain(row: Mapping[str, Any]) -> Row:
    """Returns a row in Python's own types, without what it lacks."""
    return {
        name: value.tolist() if isinstance(value, np.ndarray | np.generic) else value
        for name, value in row.items()
        if value is not None
    }


def records(out: object) -> dict[str, list[Row]]:
    opened = open_dataset(str(out), labels="names")
    return {split: [plain(row) for row in opened[split]] for split in opened}


def expected_records(name: str) -> dict[str, list[Row]]:
    rows = expected_rows(name)
    return {
        split: [plain(rows[key]) for key in keys] for split, keys in ORDER[name].items()
    }


def convert_again(name: str, folder: Folder, *options: object) -> Run:
    """Runs the job of a dataset in its folder, as it was run then."""
    return command("convert", *JOBS[name][:1], name, *flags_of(name), *options)


def check_refusal(run: Run, out: Folder, code: int = 2) -> None:
    """Checks that stderr is one line, an error, that names the output."""
    assert (run.code, run.out) == (code, "")
    (line,) = run.err.splitlines()
    assert line.startswith("error: ")
    assert out.name in line


@pytest.fixture
def folder(tmp_path: Folder, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """The folder that the jobs are run in, with the sources and their old times."""
    MAKE.copy_sources(tmp_path / "in")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", DATASETS)
def test_all_records_are_read_and_verified(name: str, tmp_path: Folder) -> None:
    """The rows of the source, in the order of 0.2, until a byte is another one."""
    out = copy_target(name, tmp_path)
    assert records(out) == expected_records(name)
    run = command("verify", out)
    assert (run.code, run.err) == (0, "")
    shard = out / dataset(out)["splits"][0]["shards"][0]["file"]
    flip(shard, -9)
    assert command("verify", out).code == 1


def test_rejects_are_listed(tmp_path: Folder) -> None:
    """The two short rows of the table and the damaged image, by source and reason."""
    table, photos = (copy_target(name, tmp_path) for name in ("table", "photos"))
    found = [(r["source"], r["row"], r["reason"]) for r in rejects(table)]
    assert found == [("table.csv", n, "field_count") for n in (13, 26)]
    assert [r["reason"] for r in rejects(photos)] == ["damaged_image"]
    for out, source in ((table, "table.csv"), (photos, "bad.png")):
        run = done("rejects", out)
        assert source in run.out


@pytest.mark.parametrize(
    ("name", "condition", "chosen"),
    [
        ("gzip", "kind == 'goat'", [n for n in ORDER["gzip"]["train"] if n % 3 == 2]),
        ("photos", "width > 8", ["train/cat/6.jpg", "train/dog/7.jpg"]),
    ],
)
def test_the_catalogue_is_used(
    name: str, condition: str, chosen: list[Any], tmp_path: Folder
) -> None:
    """It has a row for each record, and rows are chosen by it."""
    out = copy_target(name, tmp_path)
    (path,) = (out / "catalogue").glob("train-*")
    assert pq.read_metadata(path).num_rows == len(ORDER[name]["train"])
    view = open_dataset(out)["train"].where(condition)
    assert [row[KEYS.get(name, "id")] for row in view] == chosen


@pytest.mark.parametrize("name", ["table", "gzip"])
def test_a_dataset_is_merged_with_a_new_one(name: str, folder: Folder) -> None:
    """Rows of this version come beside those of 0.2, their classes joined by name."""
    out = copy_target(name, folder)
    done("convert", "in/more.csv", "more", *flags_of(name))
    done("merge", out, "more", "merged")
    assert command("verify", "merged").code == 0
    found = [row for rows in records("merged").values() for row in rows]
    assert sorted(row["id"] for row in found) == [*range(24), *range(100, 106)]
    assert all(row["kind"] == MAKE.kind(row["id"]) for row in found)


# One has a file of every kind, one is of a pipeline.
@pytest.mark.parametrize("name", ["photos", "sparse"])
def test_a_dataset_is_replaced(name: str, folder: Folder) -> None:
    """`convert --overwrite` leaves what a fresh run leaves, and nothing beside it."""
    out = copy_target(name, folder / "there")
    flags = (*flags_of("table"), "--seed", "3")
    assert command("convert", "in/table.csv", folder / "fresh", *flags).code == 0
    run = command("convert", "in/table.csv", out, *flags)
    check_refusal(run, out)
    done("convert", "in/table.csv", out, *flags, "--overwrite")
    assert dataset(out)["digest"] == dataset(folder / "fresh")["digest"]
    assert names(out) == names(folder / "fresh")
    assert os.listdir(out.parent) == [name]


def test_a_pipeline_replaces_its_dataset(tmp_path: Folder) -> None:
    """`WriteDataset` with overwrite: the same rows as before, and then more of them."""
    out = copy_target("rows", tmp_path)
    rows = [MAKE.pipeline_row(number) for number in range(40)]
    write_rows(rows[:30], out, key="id", overwrite=True, **MAKE.SPLIT)
    assert records(out) == expected_records("rows")
    write_rows(rows, out, key="id", overwrite=True, **MAKE.SPLIT)
    assert sum(len(each) for each in records(out).values()) == 40
    assert command("verify", out).code == 0
    assert os.listdir(tmp_path) == ["rows"]


def copy_locks(folder: Folder) -> None:
    for name in ("split.lock", "names.lock"):
        (folder / name).write_bytes((DATA / name).read_bytes())


@pytest.mark.parametrize("name", [*BY_CONTENT, *BY_TIME])
def test_it_is_said_why_a_dataset_is_not_up_to_date(name: str, folder: Folder) -> None:
    """One line names the version that made it; with --overwrite the job is done."""
    out = copy_target(name, folder)
    copy_locks(folder)
    run = convert_again(name, folder)
    check_refusal(run, out)
    assert "0.2.0" in run.err
    run = convert_again(name, folder, "--overwrite")
    assert run.code == 0, run.err
    (note,) = run.err.splitlines()
    assert "0.2.0" in note
    assert records(out) == expected_records(name)


def test_locks_are_kept(folder: Folder) -> None:
    """Other shares and more rows: rows and class ids of the locks stay as they were.

    The names of a vocabulary lock are a vocabulary now.
    """
    out = copy_target("locked", folder)
    copy_locks(folder)
    held = (folder / "names.lock").read_bytes()
    source = folder / "in" / "table.csv"
    more = (folder / "in" / "more.csv").read_text().splitlines()[1:]
    source.write_text("\n".join([*source.read_text().splitlines(), *more, ""]))
    flags = [
        each.replace("train=0.7,test=0.3", "train=0.1,test=0.9")
        for each in flags_of("locked")
    ]
    done("convert", source, "locked", *flags, "--overwrite")
    found = {
        split: {row["id"] for row in rows if row["id"] < 24}
        for split, rows in records(out).items()
    }
    assert found == {split: {*ids} for split, ids in ORDER["locked"].items()}
    assert (folder / "names.lock").read_bytes() == held
    assert sum(len(rows) for rows in records(out).values()) == 30


def test_a_bucket_is_read_and_replaced(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Objects of a dataset that replaced one: read, verified, and replaced by one."""
    store = install(MemoryStore(), monkeypatch)
    root = DATA / "bucket"
    for path in root.rglob("*"):
        if path.is_file():
            store.write(path.relative_to(root).as_posix(), path.read_bytes())
    out, before = "s3://b/bucket", store.keys
    rows = {split: {row["id"] for row in rows} for split, rows in records(out).items()}
    assert rows == {split: {*ids} for split, ids in ORDER["table"].items()}
    assert command("verify", out).code == 0
    run = command("convert", "in/table.csv", out, *flags_of("table"), "--seed", 3)
    check_refusal(run, Folder(out))
    assert store.keys == before
    flags = (*flags_of("table"), "--seed", 3, "--overwrite")
    done("convert", "in/table.csv", out, *flags)
    assert command("verify", out).code == 0
    folders = {key.split("/")[1] for key in store.keys if key.count("/") > 1}
    assert len(folders) == 1
    assert not folders & {key.split("/")[1] for key in before}


def killed(moment: str, folder: Folder) -> Folder:
    """Puts what a kill has left into the folder; returns the target."""
    at = copy_target(moment, folder / "killed")
    for path in at.iterdir():
        path.rename(folder / path.name)
    shutil.rmtree(at.parent)
    return folder / "parts"


@pytest.mark.parametrize("moment", KILLED)
def test_clean_removes_what_a_killed_run_has_left(moment: str, folder: Folder) -> None:
    """The dataset, and files of others in the work folder, stay."""
    out = killed(moment, folder)
    work = folder / ".parts.beam-tfrecord"
    (work / "mine.txt").write_text("mine")
    run = command("clean", out)
    assert (run.code, run.err) == (0, "")
    assert set(names(work)) <= {"mine.txt", "made-by-beam-tfrecord"}
    assert (work / "mine.txt").read_text() == "mine"
    assert manifest(out)["run"]["spec"]["seed"] == KILLED[moment]
    assert command("verify", out).code == 0


@pytest.mark.parametrize("moment", KILLED)
def test_a_killed_job_is_run_again(moment: str, folder: Folder) -> None:
    """It ends with the dataset of a fresh run, and nothing beside that."""
    out = killed(moment, folder)
    flags = (*flags_of("parts"), "--seed", 1, "--name", "parts", "--overwrite")
    for target in ("fresh", "parts"):
        done("convert", JOBS["parts"][0], target, *flags)
    assert dataset(out)["digest"] == dataset(folder / "fresh")["digest"]
    assert command("verify", out).code == 0
    assert sorted(os.listdir(folder)) == ["fresh", "in", "parts"]
