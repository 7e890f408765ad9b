"""Every input of a job may be in a bucket: the result is that of a local run."""

import gzip
import io
import json
import shutil
import tarfile
import urllib.parse
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import beam_pipeline
from tests.storage.conftest import Server
from tests.storage.program import Program, manifest_at
from transforms.core.manifest import MANIFEST_NAME, Manifest


def _assert_the_same(
    server: Server,
    folder: Path,
    source: str,
    *,
    beside: Mapping[str, str] | None = None,
    **settings: Any,
) -> None:
    """A source in `in/` of the bucket gives the dataset that its copy here gives.

    Args:
      server: it has all files of the folder in `in/`.
      folder: of the source, here.
      source: below the folder.
      beside: setting -> file below the folder, which each run reads there.
      settings: of both runs.
    """
    files = beside or {}
    local: dict[str, Any] = {key: str(folder / file) for key, file in files.items()}
    here = beam_pipeline.convert(
        str(folder / source),
        str(folder.parent / "local"),
        name="same",
        **settings,
        **local,
    )
    place = f"{server.url}/in"
    given = {
        **settings,
        **{key: f"{place}/{file}" for key, file in files.items()},
        "name": "same",
    }
    flags = [
        part
        for key, value in given.items()
        for part in (f"--{key.replace('_', '-')}", value)
    ]
    program = Program(server, folder.parent)
    program.run("convert", f"{place}/{source}", f"{server.url}/out", *flags)
    assert manifest_at(server, "out").digest == here.digest


def _jpeg(number: int) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (8, 8), (number * 9 % 256, 40, 200)).save(out, "JPEG")
    return out.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The sources of one test."""
    folder = tmp_path / "in"
    folder.mkdir()
    return folder


def test_a_table_that_names_images(server: Server, folder: Path) -> None:
    """Its paths are relative to it; changed images are seen by the next run."""
    (folder / "images").mkdir()
    for number in range(12):
        (folder / "images" / f"{number}.jpg").write_bytes(_jpeg(number))
    rows = [f"images/{n}.jpg,{'ab'[n % 2]}" for n in range(12)]
    (folder / "table.csv").write_text("\n".join(["path,label", *rows, ""]))
    server.write_tree("in", folder)
    _assert_the_same(server, folder, "table.csv")
    again = (f"{server.url}/in/table.csv", f"{server.url}/out", "--name", "same")
    program = Program(server, folder.parent)
    assert "up to date" in program.run("convert", *again).out
    server.write("in/images/3.jpg", _jpeg(300) + b"\0" * 10)
    assert "--overwrite" in program.run("convert", *again, code=2).err
    # By whole paths as well, from a table in another folder.
    rows = [f"{server.url}/in/images/{n}.jpg,{'ab'[n % 2]}" for n in range(12)]
    (folder.parent / "whole.csv").write_text("\n".join(["path,label", *rows, ""]))
    program.run("convert", "whole.csv", "whole")
    written = (folder.parent / "whole" / MANIFEST_NAME).read_bytes()
    assert Manifest.from_bytes(written).records == 12


def test_a_table_that_names_images_of_this_machine(
    server: Server, folder: Path
) -> None:
    """Beside those of the bucket: a run on one machine reads both."""
    local = folder / "local.jpg"
    local.write_bytes(_jpeg(1))
    server.write("in/1.jpg", _jpeg(1))
    rows = [f"{local if n == 28 else '1.jpg'},{'ab'[n % 2]}" for n in range(40)]
    server.write("in/table.csv", "\n".join(["path,label", *rows, ""]).encode())
    program = Program(server, folder.parent)
    program.run("convert", f"{server.url}/in/table.csv", f"{server.url}/out")
    assert manifest_at(server, "out").records == 40


def test_a_tree_of_images(server: Server, folder: Path) -> None:
    """Folders that are listed at the same time are the tree that they are here."""
    for split in ("train", "test"):
        for number in range(90):
            path = folder / "tree" / split / f"{number % 40:02}" / f"{number}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(_jpeg(number))
    for name in ("train/.git/a", "train/.git/b", "test/01/.hidden.jpg", "notes.txt"):
        (folder / "tree" / name).parent.mkdir(exist_ok=True)
        (folder / "tree" / name).write_bytes(b"x")
    server.write_tree("in", folder)
    _assert_the_same(server, folder, "tree")


def test_labels_vocabulary_split_ids_and_locks(server: Server, folder: Path) -> None:
    """Files beside the source are read from the bucket, and the lock written there."""
    (folder / "images").mkdir()
    for number in range(12):
        (folder / "images" / f"{number}.jpg").write_bytes(_jpeg(number))
    rows = [f"{n},{'ab'[n % 2]}" for n in range(12)]
    (folder / "labels.csv").write_text("\n".join(["id,kind", *rows, ""]))
    (folder / "kinds.txt").write_text("b\na\nc\n")
    server.write_tree("in", folder)
    _assert_the_same(
        server,
        folder,
        "images",
        id_column="id",
        label_column="kind",
        beside={"labels": "labels.csv", "vocabulary": "kinds.txt"},
    )
    ids = [f"{n},{'train' if n % 3 else 'test'}" for n in range(200)]
    (folder / "ids.csv").write_text("\n".join(["id,split", *ids, ""]))
    rows = [f"{n},{n % 5},{'xyz'[n % 3]}" for n in range(200)]
    (folder / "rows.csv").write_text("\n".join(["id,weight,kind", *rows, ""]))
    server.write_tree("in", folder)
    program = Program(server, folder.parent)
    flags: tuple[str, ...]
    flags = ("--key-column", "id", "--split-ids", f"{server.url}/in/ids.csv")
    rows_in = f"{server.url}/in/rows.csv"
    program.run("convert", rows_in, f"{server.url}/by-ids", *flags)
    splits = {s.name: s.records for s in manifest_at(server, "by-ids").splits}
    assert splits == {"train": 133, "test": 67}
    flags = (
        *("--splits", "train=0.8,test=0.2", "--stratify-column", "kind"),
        *("--split-lock", f"{server.url}/locks/rows.lock"),
    )
    program.run("convert", rows_in, f"{server.url}/locked", *flags)
    lock = server.read("locks/rows.lock")
    assert lock
    program.run("convert", rows_in, f"{server.url}/locked-2", *flags, "--name", "rows")
    assert server.read("locks/rows.lock") == lock
    assert server.keys("locks/") == ["locks/rows.lock"]


def test_a_spec(server: Server, folder: Path) -> None:
    """A job's settings may be read from the bucket and name files there."""
    rows = [f"{n},{n % 7}" for n in range(100)]
    (folder / "rows.csv").write_text("\n".join(["id,weight", *rows, ""]))
    server.write_tree("in", folder)
    settings = {"source": f"{server.url}/in/rows.csv", "output": f"{server.url}/out"}
    server.write("jobs/rows.yaml", json.dumps({**settings, "shards": 2}).encode())
    program = Program(server, folder.parent)
    program.run("convert", "--spec", f"{server.url}/jobs/rows.yaml")
    assert len(manifest_at(server, "out").splits[0].shards) == 2
    # A manifest is such a file too.
    again = ("--spec", f"{server.url}/out/manifest.json")
    source, target = settings["source"], f"{server.url}/again"
    program.run("convert", source, target, *again, "--name", "rows")
    assert manifest_at(server, "again").digest == manifest_at(server, "out").digest


@pytest.mark.parametrize("suffix", ["tar", "zip"])
def test_archives(server: Server, folder: Path, pets: Path, suffix: str) -> None:
    """Members are read directly from the archive."""
    paths = sorted(path for path in pets.rglob("*") if path.is_file())
    if suffix == "tar":
        with tarfile.open(folder / "pets.tar", "w") as tar:
            for path in paths:
                tar.add(path, path.relative_to(pets).as_posix())
    else:
        with zipfile.ZipFile(folder / "pets.zip", "w") as archive:
            for path in paths:
                archive.write(path, path.relative_to(pets).as_posix())
    server.write_tree("in", folder)
    _assert_the_same(server, folder, f"pets.{suffix}")


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "csv.gz", "tfrecord"])
def test_tables(server: Server, folder: Path, kind: str, local_measures: Path) -> None:
    """Files of rows of other formats."""
    rows = [{"id": n, "name": f"n {n}", "tags": ["a"] * (n % 3)} for n in range(300)]
    source = f"rows.{kind}"
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), folder / source, row_group_size=100)
    elif kind == "jsonl":
        (folder / source).write_text("\n".join(map(json.dumps, rows)) + "\n")
    elif kind == "csv.gz":
        text = "\n".join(["id,name", *(f"{r['id']},{r['name']}" for r in rows), ""])
        (folder / source).write_bytes(gzip.compress(text.encode(), mtime=0))
    else:
        # A whole dataset of this program.
        source = "measures"
        shutil.copytree(local_measures, folder / source)
    server.write_tree("in", folder)
    _assert_the_same(server, folder, source)


def test_access_that_two_paths_give_together(s3_server: Server, folder: Path) -> None:
    """Neither path says all of it, and the environment nothing that helps."""
    s3_server.write("in/rows.csv", b"id\n1\n2\n")
    nowhere = dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "wrong")
    program = Program(
        s3_server, folder.parent, **nowhere, AWS_ENDPOINT_URL="http://127.0.0.1:9"
    )
    keys = {"access_key": s3_server.access_key, "secret_key": s3_server.secret_key}
    scheme, _, host = s3_server.endpoint.partition("://")
    program.run(
        "convert",
        f"{s3_server.url}/in/rows.csv?{urllib.parse.urlencode(keys)}",
        f"{s3_server.url}/out?endpoint_override={host}&scheme={scheme}",
    )
    assert manifest_at(s3_server, "out").records == 2


@pytest.mark.parametrize("pattern", ["none/*.csv", "none/**/*.csv", "in/*.tsv"])
def test_patterns_without_files(server: Server, folder: Path, pattern: str) -> None:
    """One in a folder that is not there is refused like one that nothing fits."""
    server.write("in/rows.csv", b"id\n1\n")
    program = Program(server, folder.parent)
    source = f"{server.url}/{pattern}"
    done = program.run("convert", source, folder.parent / "out", code=2)
    assert f"The pattern '{source}' matches no file." in done.err
