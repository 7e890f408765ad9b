"""`export`: rows of a dataset as files; `head` of chosen records."""

import json
import pathlib
import subprocess
import sys

import pyarrow.csv
import pyarrow.parquet
import pytest

from tests.support.datasets import (
    ANIMALS,
    Row,
    animals,
    write_dataset,
)
from tests.support.outputs import contents
from tests.support.runs import command, convert, done, failed
from transforms.core.schema import Feature, Kind

Folder = pathlib.Path

IMAGES = (
    Feature("image", Kind.IMAGE),
    Feature("label", Kind.LABEL, is_label=True),
)


@pytest.fixture(scope="module")
def dataset(photos: Folder, tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """The images of the sample, converted."""
    output = tmp_path_factory.mktemp("export") / "set"
    convert(photos, output)
    return output


def test_images_come_back(photos: Folder, dataset: Folder, tmp_path: Folder) -> None:
    """Byte for byte, in a folder for each split and class."""
    run = done("export", dataset, tmp_path / "out")
    found = contents(tmp_path / "out")
    assert f"{len(found)} images" in run.out
    assert found == contents(photos)


def test_some_of_a_class(dataset: Folder, tmp_path: Folder) -> None:
    """Those that --label, --split, --where and --limit name."""
    choice = ("--label", "circle", "--split", "train", "--where", "height > 0")
    done("export", dataset, tmp_path / "out", *choice, "--limit", "2")
    found = contents(tmp_path / "out")
    assert {path.rpartition("/")[0] for path in found} == {"train/circle"}
    assert len(found) == 2


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_tables(tmp_path: Folder, kind: str) -> None:
    """One file a split; labels by name, missing values empty."""
    write_dataset(tmp_path / "set", {"train": animals(3), "test": animals(2, start=9)})
    names = "id,weight,tame,note,animal".split(",")
    if kind == "csv":
        run = failed(2, "export", tmp_path / "set", tmp_path / "refused")
        assert "'raw' is binary" in run.err
        assert not (tmp_path / "refused").exists()
        assert [path.name for path in tmp_path.iterdir()] == ["set"]
        features = [each for each in ANIMALS if each.name != "raw"]
        rows = [
            [{k: v for k, v in row.items() if k != "raw"} for row in shard]
            for shard in animals(3)
        ]
        write_dataset(tmp_path / "plain", {"train": rows}, features)
        source = tmp_path / "plain"
        read = pyarrow.csv.read_csv
    else:
        source, read = tmp_path / "set", pyarrow.parquet.read_table
    done("export", source, tmp_path / "out", "--format", kind)
    table = read(tmp_path / "out" / f"train.{kind}").select(names)
    assert table.column("id").to_pylist() == [0, 1, 2]
    assert table.column("animal").to_pylist() == ["고양이", "dog", "goat"]
    assert table.column("note").to_pylist()[2] in (None, "")


def test_images_of_numbered_classes(tmp_path: Folder) -> None:
    """An integer to predict is a class, 0 too; a row without one has a folder, too."""
    features = [Feature("image", Kind.IMAGE), Feature("y", Kind.INT64, is_label=True)]
    rows: list[Row] = [{"image": b"\xff\xd8\xff0", "y": n} for n in (0, 7, 0)]
    write_dataset(tmp_path / "set", {"train": [[*rows, {"image": b"x"}]]}, features)
    done("export", tmp_path / "set", tmp_path / "out")
    found = sorted(path.rpartition("/")[0] for path in contents(tmp_path / "out"))
    assert found == ["train/0", "train/0", "train/7", "train/no label"]


def test_nothing_is_overwritten(dataset: Folder, tmp_path: Folder) -> None:
    """The output must not exist."""
    (tmp_path / "out").mkdir()
    run = failed(2, "export", dataset, tmp_path / "out")
    assert "must be a new folder" in run.err
    assert "does not overwrite" in run.err
    run = failed(2, "export", dataset, dataset / "new" / "out")
    assert "outside of the dataset" in run.err
    assert not (dataset / "new").exists()
    run = failed(2, "export", dataset, "s3://bucket/out")
    assert "'s3://bucket/out'" in run.err


def test_names_stay_in_their_folder(tmp_path: Folder) -> None:
    """Also those of classes that look like paths."""
    kinds = ("../up", "/root", ".hidden")
    with_images = [
        {"image": b"\xff\xd8\xff" + bytes([n]), "label": kinds[n]} for n in range(3)
    ]
    write_dataset(tmp_path / "set", {"train": [with_images]}, IMAGES)
    done("export", tmp_path / "set", tmp_path / "out")
    found = {path.parent.name for path in (tmp_path / "out").glob("train/*/*.jpg")}
    assert found == {"%2E.%2Fup", "%2Froot", "%2Ehidden"}


def test_names_of_other_programs(tmp_path: Folder) -> None:
    """Bytes, UTF-8 or not; one that no file system takes is the number of the row."""
    names = [b"a/one.png", b"caf\xe9.png", b"x" * 300, b"b/one.png", b"", b"nul\0"]
    features = [Feature("image", Kind.IMAGE), Feature("filename", Kind.BYTES)]
    rows: list[Row] = [
        {"image": b"\xff\xd8\xff%d" % n, "filename": name}
        for n, name in enumerate(names)
    ]
    write_dataset(tmp_path / "set", {"train": [rows]}, features)
    done("export", tmp_path / "set", tmp_path / "out")
    found = {path.name: path.read_bytes() for path in tmp_path.glob("out/train/*")}
    assert found == {
        "one.jpg": rows[0]["image"],
        "caf%E9.jpg": rows[1]["image"],
        "00000002.jpg": rows[2]["image"],
        "one-00000003.jpg": rows[3]["image"],
        "00000004.jpg": rows[4]["image"],
        "nul%00.jpg": rows[5]["image"],
    }


def test_head_of_chosen_records(dataset: Folder, tmp_path: Folder) -> None:
    """Of a split and a class, by a condition; wrong names are errors."""
    choice = ("--split", "test", "--label", "circle", "-n", "2")
    run = done("head", dataset, *choice)
    assert run.out.count("(circle)") == 2
    assert run.out.startswith("test  ")
    run = command("head", dataset, "--where", "height < 0")
    assert (run.code, run.out) == (0, "no records\n")
    for wrong, said in (
        (("--split", "tset"), "'test'"),
        (("--label", "none"), "must name a class"),
        (("--where", "hight > 3"), "'height'"),
    ):
        run = failed(2, "head", dataset, *wrong)
        assert said in run.err
    (shard, *_) = sorted(dataset.glob("*.tfrecord-*"))
    (tmp_path / "alone.tfrecord").write_bytes(shard.read_bytes())
    run = failed(2, "head", tmp_path / "alone.tfrecord", "--split", "x")
    assert "one file" in run.err


def test_json_of_inspect(dataset: Folder) -> None:
    """What programs ask for is the manifest's dataset."""
    found = json.loads(command("inspect", dataset, "--json").out)
    manifest = json.loads((dataset / "manifest.json").read_text())
    assert found == manifest["dataset"]


@pytest.mark.parametrize("what", ["export", "report"])
def test_a_write_that_fails_names_the_file(
    dataset: Folder, tmp_path: Folder, what: str
) -> None:
    """A full disk, or the limit of a file's size, is reported with what was written."""
    output = tmp_path / "written"
    options = {"export": [str(output)], "report": ["-o", str(output)]}[what]
    program = [sys.executable, "-m", "beam_pipeline", what, str(dataset), *options]
    shell = ["bash", "-c", 'ulimit -f 0; exec "$@"', "-", *program]
    run = subprocess.run(shell, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert str(output) in run.stderr
    assert "None" not in run.stderr
    assert not output.exists()
