"""Whole conversions from and to buckets, and every command that reads one there."""

import json
from pathlib import Path

import pytest

from tests.storage.conftest import MEASURES, PETS, Server
from tests.storage.fault_proxy import FaultProxy
from tests.storage.program import (
    Program,
    assert_same,
    assert_whole,
    manifest_at,
)
from tests.support.outputs import contents, payloads


def _download(server: Server, target: str, folder: Path) -> Path:
    """Copies all objects of a target, as a user would."""
    for key in server.keys(f"{target}/"):
        path = folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(server.read(key))
    return folder / target


def test_images(server: Server, pets: Path, local_pets: Path, tmp_path: Path) -> None:
    """To a bucket, from one, and from one to itself: the same bytes as locally."""
    program = Program(server, tmp_path)
    program.run("convert", pets, f"{server.url}/out", *PETS)
    assert_same(server, "out", local_pets)
    server.write_tree("in/pets", pets)
    program.run("convert", f"{server.url}/in/pets", tmp_path / "here", *PETS)
    assert contents(tmp_path / "here") == contents(local_pets)
    program.run("convert", f"{server.url}/in/pets", f"{server.url}/again", *PETS)
    assert_same(server, "again", local_pets)


def test_tables(
    server: Server, measures: Path, local_measures: Path, tmp_path: Path
) -> None:
    """The same for tables, whose rows wait in segments in the bucket."""
    program = Program(server, tmp_path)
    with FaultProxy(server.endpoint) as proxy:
        through = Program(server.through(proxy.endpoint), tmp_path)
        through.run("convert", measures, f"{server.url}/out", *MEASURES)
        assert proxy.count(contains=".segments") >= 8
    assert_same(server, "out", local_measures)
    server.write_tree("in/measures", measures)
    source = f"{server.url}/in/measures"
    program.run("convert", source, tmp_path / "here", *MEASURES)
    assert contents(tmp_path / "here") == contents(local_measures)
    # A glob, with more than one process.
    flags = (*MEASURES, "--workers", "2")
    program.run("convert", f"{source}/part-*.csv", f"{server.url}/again", *flags)
    assert_same(server, "again", local_measures)


def test_commands_that_read(
    server: Server, measures: Path, local_measures: Path, tmp_path: Path
) -> None:
    """`verify`, `inspect`, `head`, `schema` say of a bucket what they say locally."""
    server.write_tree("measures", local_measures)
    program = Program(server, tmp_path)
    for command in (["inspect"], ["head", "-n", "2"], ["code"]):
        local = program.run(*command, local_measures).out
        found = program.run(*command, f"{server.url}/measures").out
        shown = found.replace(f"{server.url}/measures", str(local_measures))
        assert shown.split() == local.split()
    assert "sound" in program.run("verify", f"{server.url}/measures").out
    page = tmp_path / "measures.html"
    program.run("report", f"{server.url}/measures", "-o", page)
    assert manifest_at(server, "measures").digest in page.read_text()
    shard = sorted(local_measures.glob("*train*"))[0]
    assert program.run("head", f"{server.url}/measures/{shard.name}", "-n", "1").out
    data = bytearray(shard.read_bytes())
    data[100] ^= 1
    server.write(f"measures/{shard.name}", bytes(data))
    done = program.run("verify", f"{server.url}/measures", code=1)
    assert shard.name in done.out + done.err


def test_rejects(server: Server, tmp_path: Path) -> None:
    """Rejects go beside the dataset, or beside its place when there are too many."""
    (tmp_path / "rows.csv").write_text(
        "a,b\n" + "".join(f"{n},{n}\n" for n in range(300)) + "x,1\n"
    )
    (tmp_path / "spec.yaml").write_text("features: {a: {kind: int64}, b: {}}\n")
    program = Program(server, tmp_path)
    flags = ("--spec", "spec.yaml", "--keep-rejected-bytes")
    target = f"{server.url}/out"
    program.run(
        *("convert", "rows.csv", target, *flags, "--max-reject-rate", "0"), code=3
    )
    left = server.keys()
    assert {"out.rejects.items", "out.rejects.jsonl"} < {*left}
    assert "out/manifest.json" not in left
    shown = program.run("rejects", target, "--reason", "not_an_integer").out
    assert "rows.csv" in shown
    done = program.run("clean", target, "--dry-run")
    assert "out.rejects.jsonl" in done.out
    assert "would be removed" in done.out
    assert server.keys() == left
    done = program.run("clean", target, "--older-than", "0")
    assert ".out.beam-tfrecord" in done.out
    assert server.keys() == []
    program.run("convert", "rows.csv", target, *flags)
    assert_whole(server, "out")
    assert (
        "rows.csv" in program.run("rejects", target, "--reason", "not_an_integer").out
    )


def test_tfds_reads_what_was_downloaded(
    server: Server, pets: Path, tmp_path: Path
) -> None:
    """Also after an overwrite, when the files are in a folder of their own."""
    tfds = pytest.importorskip("tensorflow_datasets")
    program = Program(server, tmp_path)
    target = f"{server.url}/pets"
    program.run("convert", pets, target, *PETS)
    program.run("convert", pets, target, *PETS, "--seed", "1", "--overwrite")
    manifest = assert_whole(server, "pets")
    assert manifest.folder.startswith("data-")
    folder = _download(server, "pets", tmp_path / "copy")
    assert "sound" in program.run("verify", folder).out
    builder = tfds.builder_from_directory(str(folder))
    assert len(payloads(folder, "train")) == 24
    rows = list(builder.as_dataset(split="train").as_numpy_iterator())
    assert len(rows) == 24
    names = builder.info.features["label"].names
    assert sorted({names[row["label"]] for row in rows}) == ["dog", "고양이"]


def test_an_unchanged_run_writes_nothing(
    server: Server, measures: Path, tmp_path: Path
) -> None:
    """It says "up to date", and no request but reads is made."""
    server.write_tree("in", measures)
    target = f"{server.url}/out"
    arguments = ("convert", f"{server.url}/in", target, *MEASURES)
    Program(server, tmp_path).run(*arguments)
    before = manifest_at(server, "out").to_bytes()
    with FaultProxy(server.endpoint) as proxy:
        program = Program(server.through(proxy.endpoint), tmp_path)
        report = tmp_path / "report.json"
        done = program.run(*arguments, "--report-json", report)
        assert "up to date" in done.out
        assert json.loads(report.read_text())["status"] == "up to date"
        assert proxy.changes == []
        assert proxy.count() < 45
    assert manifest_at(server, "out").to_bytes() == before


def test_an_overwrite_is_built_beside_and_then_moved_in_place(
    server: Server, measures: Path, local_measures: Path, tmp_path: Path
) -> None:
    """Old files stay until the new manifest is there, then each is removed by name."""
    program = Program(server, tmp_path)
    target = f"{server.url}/out"
    program.run("convert", measures, target, *MEASURES)
    manifest = manifest_at(server, "out")
    first = [manifest.path("out", name) for name in manifest.file_names[:-1]]
    done = program.run("convert", measures, target, *MEASURES, "--seed", "4", code=2)
    assert "--overwrite" in done.err
    again = ("convert", measures, target, *MEASURES, "--overwrite")
    with FaultProxy(server.endpoint) as proxy:
        Program(server.through(proxy.endpoint), tmp_path).run(*again, "--seed", "4")
        made = proxy.changes
        changes = [each for each in proxy.requests if each in made]
    put = next(
        i
        for i, each in enumerate(changes)
        if each.method != "DELETE" and "out/manifest.json" in each.target
    )
    for name in first:
        gone = [
            i
            for i, each in enumerate(changes)
            if each.method == "DELETE"
            # Google's client appends how the answer is to be laid out.
            and each.target.partition("?")[0].endswith(name)
        ]
        assert gone
        assert all(i > put for i in gone)
    second = assert_whole(server, "out")
    program.run(*again, "--seed", "5")
    third = assert_whole(server, "out")
    assert len({second.folder, third.folder, ""}) == 3
    program.run(*again)
    assert_same(server, "out", local_measures)
