"""Indexes and the catalogue of a conversion, and how damage in them is noticed."""

import json
import pathlib
import shutil
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beam_pipeline.commands.index import run as add_indexes
from tests.support.datasets import animals, write_dataset
from tests.support.outputs import contents, dataset, manifest
from tests.support.own_pipelines import write_rows
from tests.support.runs import command, convert, done, failed, refused
from tests.support.segments import IN_FILES
from tests.support.sources import write_csv
from tests.support.stress import sizes
from transforms.core.tfrecord.reader import TFRecordReader
from transforms.publishing import local
from transforms.storage import folders
from transforms.work.store import Store

Folder = pathlib.Path

pytestmark = pytest.mark.usefixtures("without_runner")

# A value is missing now and then. Times before 1970 and in three units come with them.
TABLE = {
    "id": {"kind": "int64"},
    "ratio": {"kind": "float"},
    "flag": {"kind": "bool"},
    "kind": {"kind": "label"},
    "name": {"kind": "text"},
    "seen": {"kind": "timestamp", "unit": "s"},
    "made": {"kind": "timestamp", "unit": "us"},
}
SPLITS = ("--splits", "train=0.7,test=0.3", "--shards", 3, "--key-column", "id")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A table of 900 rows, one of them no row of it, and a spec with its kinds."""
    folder = tmp_path_factory.mktemp("table")
    lines = [
        ",".join(
            (
                str(n),
                f"{n / 8}" if n % 7 else "",
                ("true", "false", "")[n % 3],
                ("ant", "bee", "고양이")[n % 3],
                f"name {n % 11}" if n % 5 else "",
                f"19{60 + n % 40}-01-02T03:04:05Z",
                f"2024-01-02T03:04:05.{n:06}Z" if n % 4 else "",
            )
        )
        for n in range(900)
    ]
    write_csv(folder / "t.csv", ",".join(TABLE), [*lines[:450], "1,2", *lines[450:]])
    spec = {"features": TABLE, "max_reject_rate": 0.1}
    (folder / "spec.yaml").write_text(json.dumps(spec))
    return folder


def shards(out: Folder) -> dict[str, list[Folder]]:
    """Returns split -> the paths of its shards, in order."""
    return {
        split["name"]: [out / shard["file"] for shard in split["shards"]]
        for split in dataset(out)["splits"]
    }


def rows(folder: Folder, split: str) -> pa.Table:
    """Returns the catalogue of a split."""
    parts = sorted((folder / "catalogue").glob(f"{split}-*.pq"))
    return pa.concat_tables([pq.ParquetFile(part).read() for part in parts])


def indexed_again(out: Folder, copy: Folder) -> Folder:
    """Returns a copy of a dataset whose catalogue `index` makes from its shards."""
    shutil.copytree(out, copy)
    shutil.rmtree(copy / "catalogue")
    text = json.loads((copy / "manifest.json").read_text())
    text["derived"] = [f for f in text["derived"] if not f["file"].endswith(".pq")]
    (copy / "manifest.json").write_text(json.dumps(text))
    assert command("index", copy, "--catalogue").code == 0
    return copy


@pytest.mark.parametrize(
    ("compression", "run"), [("gzip", ()), ("none", ("--workers", 2, IN_FILES))]
)
def test_they_say_what_the_shards_say(
    compression: str, run: tuple[Any, ...], table: Folder, tmp_path: Folder
) -> None:
    """Each index has every record, and the catalogue what one made of them has."""
    out = tmp_path / "out"
    options = (*SPLITS, "--compression", compression, "--catalogue", *run)
    convert(table / "t.csv", out, "--spec", table / "spec.yaml", *options)
    if compression == "none":
        assert command("index", out, "--text").code == 0
    for paths in shards(out).values():
        for path in paths:
            index = out / "index" / f"{path.name}.u64"
            for form in (index, index.with_suffix(".idx")):
                assert form.exists() == (compression == "none")
            if compression == "none":
                (batch,) = TFRecordReader(path).batches()
                wanted = [*batch.offsets.tolist(), path.stat().st_size]
                assert np.fromfile(index, "<u8").tolist() == wanted
    made = indexed_again(out, tmp_path / "made")
    for split in ("train", "test"):
        own = rows(out, split)
        assert own.drop_columns(["_origin", "_row", "_key"]).equals(rows(made, split))
        keys = [int(key) for key in own["_key"].to_pylist()]
        assert keys == own["id"].to_pylist()
        assert set(own["_origin"].to_pylist()) == {"t.csv"}
        # The row that is none comes behind the first half.
        assert own["_row"].to_pylist() == [n + 1 + (n >= 450) for n in keys]
    assert command("verify", out).code == 0


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ((), {"u64"}),
        (("--no-index",), set()),
        (("--catalogue",), {"u64", "pq"}),
        (("--catalogue", "--no-index"), {"pq"}),
        (("--no-catalogue",), {"u64"}),
    ],
)
def test_what_is_asked_for(
    options: tuple[str, ...], wanted: set[str], table: Folder, tmp_path: Folder
) -> None:
    """No digest depends on it, and the manifest names each file."""
    out, plain = tmp_path / "out", tmp_path / "plain"
    spec = ("--spec", table / "spec.yaml")
    convert(*options, table / "t.csv", out, *spec)
    convert(table / "t.csv", plain, *spec)
    found = {name.rpartition(".")[2] for name in contents(out) if "/" in name}
    assert found == wanted
    assert dataset(out)["digest"] == dataset(plain)["digest"]
    named = {facts["file"] for facts in manifest(out)["derived"]}
    assert named == {n for n in contents(out) if "/" in n} | {"schema.pbtxt"}
    if "pq" in found:
        assert "name" not in rows(out, "train").schema.names


def test_a_feature_with_a_name_of_its_own_columns(tmp_path: Folder) -> None:
    """It is left out, and a note says so."""
    source = write_csv(tmp_path / "t.csv", "_row,x", ["7,1", "8,2"])
    run = convert(source, tmp_path / "out", "--catalogue")
    assert "'_row' is not in the catalogue" in run.out + run.err
    assert sorted(rows(tmp_path / "out", "train")["_row"].to_pylist()) == [1, 2]
    convert(source, tmp_path / "bare", "--no-index")
    run = command("index", tmp_path / "bare", "--catalogue")
    assert "'_row' is not in the catalogue" in run.err
    assert "_row" not in rows(tmp_path / "bare", "train").schema.names


def test_rows_of_a_pipeline_have_keys(tmp_path: Folder) -> None:
    """Their origin is their key; without one nothing says where they come from."""
    made = [{"id": n, "x": n / 4, "kind": "ab"[n % 2]} for n in range(50)]
    for key in ("id", None):
        out = tmp_path / str(key)
        write_rows(made, out, label="kind", key=key, catalogue=True, num_shards=3)
        found = rows(out, "train")
        assert sorted(found["id"].to_pylist()) == list(range(50))
        assert found["_row"].null_count == 50
        if key:
            assert found["_origin"].to_pylist() == found["_key"].to_pylist()
            assert [*map(int, found["_key"].to_pylist())] == found["id"].to_pylist()
        else:
            assert found["_origin"].null_count == 50
        assert command("verify", out).code == 0


def test_files_of_others_stay(tmp_path: Folder) -> None:
    """`index` writes over nothing that the manifest does not name."""
    write_dataset(tmp_path / "d", {"train": animals(3)})
    foreign = tmp_path / "d/index/animals-train.tfrecord-00000-of-00001.u64"
    foreign.parent.mkdir()
    foreign.write_bytes(b"precious")
    before = (tmp_path / "d/manifest.json").read_bytes()
    run = failed(2, "index", tmp_path / "d")
    assert "--overwrite" in run.err
    assert foreign.read_bytes() == b"precious"
    assert (tmp_path / "d/manifest.json").read_bytes() == before
    run = failed(2, "index", tmp_path / "d", "-o", tmp_path / "d" / "more")
    assert "Name another folder" in run.err
    assert command("index", tmp_path / "d", "--overwrite").code == 0
    assert command("verify", tmp_path / "d").code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d"]


def test_folders_keep_their_rights(tmp_path: Folder) -> None:
    """Whoever could not read a dataset cannot when files are added."""
    out = tmp_path / "d"
    write_dataset(out, {"train": animals(3)})
    assert command("index", out).code == 0
    for folder in (out, out / "index"):
        folder.chmod(0o2750)
    assert command("index", out, "--text").code == 0
    assert {f.stat().st_mode & 0o7777 for f in (out, out / "index")} == {0o2750}


def test_a_dataset_that_a_killed_run_has_moved_aside(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an exchange of folders there is none for a moment; `index` goes on."""
    out = tmp_path / "d"
    write_dataset(out, {"train": animals(3)})

    def dies(source: str, new: str) -> None:
        if new == str(out):
            raise KeyboardInterrupt
        folders.rename(source, new)

    with monkeypatch.context() as patch:
        patch.setattr(folders, "exchange", lambda *_: False)
        patch.setattr(local, "rename", dies)
        patch.setattr(local, "recover", lambda *_: None)
        patch.setattr(Store, "remove_tree", lambda *_: None)
        with pytest.raises(KeyboardInterrupt):
            add_indexes(str(out), "")
    assert not out.exists()
    assert command("index", out).code == 0
    assert command("verify", out).code == 0


@pytest.mark.parametrize("folder", ["index", "catalogue"])
def test_a_foreign_file_beside_indexes_forbids_an_overwrite(
    folder: str, table: Folder, tmp_path: Folder
) -> None:
    """It is named, and nothing changes."""
    out = tmp_path / "out"
    convert(table / "t.csv", out, "--spec", table / "spec.yaml", "--catalogue")
    (out / folder / "precious").write_bytes(b"precious")
    before = contents(out)
    spec = ("--spec", table / "spec.yaml", "--seed", 5)
    message = refused(2, table / "t.csv", out, *spec, "--overwrite")
    assert f"{folder}/precious" in message
    assert contents(out) == before
    (out / folder / "precious").unlink()
    convert(table / "t.csv", out, *spec, "--overwrite", "--no-index")
    assert not (out / "index").exists()
    assert not (out / "catalogue").exists()


@pytest.mark.parametrize("compression", sizes("gzip", "none"))
def test_a_manifest_does_not_vouch_for_them(
    compression: str, table: Folder, tmp_path: Folder
) -> None:
    """Files that are as it states, but not of their shards, are damage."""
    out, twin = tmp_path / "out", tmp_path / "twin"
    spec = (
        *("--spec", table / "spec.yaml", *SPLITS, "--compression", compression),
        "--catalogue",
    )
    convert(table / "t.csv", out, *spec, "--name", "t")
    convert(table / "t.csv", twin, *spec, "--name", "t", "--seed", 1)
    for folder in (out, twin) if compression == "none" else ():
        assert command("index", folder, "--text").code == 0
    facts = {each["file"]: each for each in manifest(twin)["derived"]}
    whole = json.loads((out / "manifest.json").read_text())
    for name in facts:
        if "/" not in name:
            continue
        text = json.loads(json.dumps(whole))
        for place, each in enumerate(text["derived"]):
            if each["file"] == name:
                text["derived"][place] = facts[name]
        kept = (out / name).read_bytes()
        shutil.copy(twin / name, out / name)
        (out / "manifest.json").write_text(json.dumps(text))
        run = failed(1, "verify", out)
        assert name in run.out
        assert "beam-tfrecord index" in run.out
        (out / name).write_bytes(kept)
    (out / "manifest.json").write_text(json.dumps(whole))
    assert command("verify", out).code == 0


@pytest.mark.parametrize("damage", ["empty", "missing"])
def test_damaged_indexes_are_written_again(
    damage: str, table: Folder, tmp_path: Folder
) -> None:
    """Also where the manifest stays as it is."""
    out = tmp_path / "out"
    convert(table / "t.csv", out, "--spec", table / "spec.yaml")
    for path in (out / "index").iterdir():
        path.unlink() if damage == "missing" else path.write_bytes(b"")
    stated = (out / "manifest.json").read_bytes()
    assert command("verify", out).code == 1
    assert command("index", out).code == 0
    assert command("verify", out).code == 0
    assert (out / "manifest.json").read_bytes() == stated


@pytest.mark.parametrize("compression", sizes("gzip", "none"))
def test_copies_have_what_their_sources_have(
    compression: str, table: Folder, tmp_path: Folder
) -> None:
    """Of shards that stay and of others, the catalogue is that of the shards."""
    out, part, rest, both = (tmp_path / n for n in ("out", "part", "rest", "both"))
    options = (*SPLITS, "--catalogue", "--compression", compression)
    convert(table / "t.csv", out, "--spec", table / "spec.yaml", *options)
    first = rows(out, "train")["id"][0].as_py()
    (tmp_path / "gone.txt").write_text(f"{first}\n")
    run = done("subset", out, part, "--drop-keys", tmp_path / "gone.txt")
    assert "1 shard written, 5 taken" in run.out
    both_have = [{each["file"] for each in manifest(f)["derived"]} for f in (out, part)]
    assert both_have[0] == both_have[1]
    done("subset", out, rest, "--where", f"id == {first}")
    done("merge", part, rest, both)
    for folder in (part, rest, both):
        assert command("verify", folder).code == 0
        made = indexed_again(folder, tmp_path / f"{folder.name}-made")
        for split in {split["name"] for split in dataset(folder)["splits"]}:
            own = rows(folder, split)
            known = ["_origin", "_row", "_key"]
            assert own.drop_columns(known).equals(rows(made, split))
            keys = [int(key) for key in own["_key"].to_pylist()]
            assert keys == own["id"].to_pylist()
            assert own["_row"].to_pylist() == [n + 1 + (n >= 450) for n in keys]


def test_an_unchanged_run_says_what_adds_files(table: Folder, tmp_path: Folder) -> None:
    """What is asked for now and was not then; nothing of the dataset changes."""
    spec = ("--spec", table / "spec.yaml")
    convert(table / "t.csv", tmp_path / "out", *spec)
    before = contents(tmp_path / "out")
    assert "note:" not in convert(table / "t.csv", tmp_path / "out", *spec).err
    run = convert(table / "t.csv", tmp_path / "out", *spec, "--catalogue")
    assert f"beam-tfrecord index {tmp_path / 'out'} --catalogue" in run.err
    assert contents(tmp_path / "out") == before
    assert command("index", tmp_path / "out", "--catalogue").code == 0
    run = convert(table / "t.csv", tmp_path / "out", *spec, "--catalogue")
    assert "note:" not in run.err
