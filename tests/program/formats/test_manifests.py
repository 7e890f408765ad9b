"""Manifests of images, of every kind the field writes, to records for TensorFlow.

Images are Pillow's, manifests are written by csv, json, pandas and pyarrow under the
conventions of tfrecorder, AutoML and Hugging Face; records are read by TensorFlow.
"""

import functools
import gzip
import pathlib
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beam_pipeline.planning.inputs import find_inputs
from beam_pipeline.planning.plan import make_plan
from beam_pipeline.settings.spec import make_spec
from tests.support.detection import read_planned
from tests.support.image_sources import (
    image_bytes,
    write_images,
    write_metadata,
)
from tests.support.manifest_sources import split_names, write_rows
from tests.support.outputs import account, dataset, rejects, rows
from tests.support.runs import command, convert, refused
from transforms.core.schema import Feature, Kind
from transforms.formats.csv import sample as csv_sample
from transforms.formats.detection.automl import recognise
from transforms.formats.file_names import split_of_table

# The stages' own code: what is tested here is not up to Beam.
Folder = pathlib.Path
Row = dict[str, Any]
TOLERANT = ("--max-reject-rate", 1)


# tfrecorder and AutoML, one label


def test_shares_over_a_manifest_split_it_again(tmp_path: Folder) -> None:
    """--splits overrules what the rows say, and DISCARD stays out."""
    names = [f"{i}.png" for i in range(60)]
    write_images(tmp_path, names)
    uses = ["TRAIN", "TEST", "DISCARD"]
    rows = [[uses[i % 3], name, "x"] for i, name in enumerate(names)]
    source = write_rows(tmp_path / "m.csv", [["split", "image_uri", "label"], *rows])
    convert(source, tmp_path / "out", "--splits", "p=0.5,q=0.5")
    sizes = split_names(tmp_path / "out")
    assert sorted(sizes) == ["p", "q"]
    assert sum(sizes.values()) == 40
    assert account(tmp_path / "out")["skipped"] == {"discarded": 20}
    assert "split" not in {f["name"] for f in dataset(tmp_path / "out")["features"]}
    plain = write_rows(tmp_path / "plain.csv", rows)
    shares = {"p": "0.5", "q": "0.5"}
    spec = make_spec({"source": str(plain), "output": "-", "splits": shares})
    planned = make_plan(spec).planned
    assert planned.rule.names == ("p", "q")
    assert "split" not in planned.schema.names


def test_unassigned_beyond_the_sample(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A word that no sampled row had is understood anyway."""
    small = functools.partial(csv_sample.sample_of, sample_bytes=4096)
    monkeypatch.setattr(csv_sample, "sample_of", small)
    (tmp_path / "i.png").write_bytes(image_bytes(1))
    rows = [["TRAIN", "i.png", "x"]] * 3000
    rows[1700] = ["UNASSIGNED", "i.png", "x"]
    source = write_rows(tmp_path / "m.csv", [["split", "image_uri", "label"], *rows])
    planned = make_plan(make_spec({"source": str(source), "output": "-"})).planned
    assert planned.rule.shares
    assert planned.rule.names == ("train", "validation", "test")
    convert(source, tmp_path / "out", "--image-check", "none")
    assert sum(split_names(tmp_path / "out").values()) == 3000


# AutoML, other forms


def label_of(source: Folder) -> Feature | None:
    spec = make_spec({"source": str(source), "output": "-"})
    return make_plan(spec).planned.schema.label


def test_one_label_each_is_a_class(tmp_path: Folder) -> None:
    """One label per image is a class, even a number; without labels there is none."""
    one = [["TRAIN", "a.png", "7"], ["TRAIN", "b.png", "10"], ["TEST", "a.png", "7"]]
    source = write_rows(tmp_path / "one.csv", one[:2])
    label = label_of(source)
    assert label is not None
    assert (label.kind, label.shape) == (Kind.LABEL, ())
    some = write_rows(tmp_path / "some.csv", [*one, ["TRAIN", "c.png"]])
    label = label_of(some)
    assert label is not None
    assert label.shape == (None,)
    assert label_of(write_rows(tmp_path / "none.csv", [row[:2] for row in one])) is None


def test_a_bad_box_may_cost_the_image(tmp_path: Folder) -> None:
    """--bad-box image rejects the whole image; clip keeps the part inside."""
    write_images(tmp_path, ["a.png", "b.png"])
    rows = [
        ["TRAIN", "a.png", "car", 0.5, 0.5, "", "", 1.5, 1, "", ""],
        ["TRAIN", "a.png", "car", 0.1, 0.1, "", "", 0.2, 0.2, "", ""],
        ["TRAIN", "b.png", "car", 0.1, 0.1, "", "", 0.2, 0.2, "", ""],
    ]
    source = write_rows(tmp_path / "m.csv", rows)
    convert(source, tmp_path / "image", "--bad-box", "image", *TOLERANT)
    found = account(tmp_path / "image")
    assert found["rejected"] == {"bad_box": 1}
    assert found["written"] == 1
    assert found["parts"]["boxes"]["gone"] == 2
    clipped = read_planned(source, bad_box="clip")
    assert not clipped.rejections
    assert clipped.by_name["a.png"]["image/object/bbox"][0] == [0.5, 0.5, 1, 1]


def test_rows_that_name_no_image_or_two_splits(tmp_path: Folder) -> None:
    """Each is a reject with its row, line and what must hold."""
    write_images(tmp_path, ["a.png", "b.png", "c.png"])
    rows = [
        ["TRAIN", "a.png", "x"],
        ["TRAIN", "b.png", "x\ny"],
        ["trian", "c.png", "x"],
        ["TEST", "", "x"],
        ["TEST", "b.png", "z"],
        ["TRAIN", "gone.png", "x"],
    ]
    source = write_rows(tmp_path / "m.csv", rows)
    with open(source, "ab") as file:
        file.write(b"TRAIN,\xff.png,x\n\n")
    out = tmp_path / "out"
    convert(source, out, *TOLERANT)
    found = [(r["row"], r["line"], r["reason"]) for r in rejects(out)]
    assert found == [
        (2, 2, "bad_split"),
        (3, 4, "bad_split"),
        (4, 5, "missing_value"),
        (6, None, "unreadable"),
        (7, 8, "invalid_encoding"),
    ]
    messages = [r["message"] for r in rejects(out)]
    assert "row 2" in messages[0]
    assert "row 5" in messages[0]
    assert "trian" in messages[1]
    assert "UNASSIGNED" in messages[1]
    assert "gone.png" in messages[3]
    assert account(out)["read"] == 6
    assert account(out)["written"] == 1


def test_broken_quotes_are_an_error(tmp_path: Folder) -> None:
    """A quote that is never closed would swallow the rest of the file."""
    write_images(tmp_path, ["a.png"])
    source = tmp_path / "m.csv"
    source.write_text('TRAIN,a.png,x\nTRAIN,"a.png,x\nTRAIN,a.png,x\n')
    message = refused(4, source, tmp_path / "out")
    assert "m.csv" in message
    assert "line" in message


@pytest.mark.parametrize(
    ("line", "taken"),
    [
        (b"TRAIN,gs://bucket/a,cat\n", True),
        (b'\xef\xbb\xbfUNASSIGNED,"x, y.JPG"\r\nz', True),
        (b"training,gs://bucket/a.jpg,cat\n", True),
        (b",a.png\n", True),
        (b"\nTEST,a.png,b", True),
        (b"split,image_uri,label\nTRAIN,a.png,b\n", False),
        (b"TRAIN,VALIDATION,TEST\n1,2,3\n", False),
        (b"TRAIN\n", False),
        (b"name,photo.png\n", False),
        (b"\xff\xfe\n", False),
        (b'"TRAIN,a.png\n', False),
        (b"", False),
    ],
)
def test_recognised_by_the_first_line(line: bytes, *, taken: bool) -> None:
    """The first line must say a use and the path of an image."""
    found = recognise([("m.csv", len(line))], lambda _: line)
    assert (found is not None) is taken


def test_recognised_among_files(tmp_path: Folder) -> None:
    """A folder with images is the manifest's; tables beside a named file are not."""
    write_images(tmp_path / "d", ["images/a.png"])
    source = write_rows(tmp_path / "d/m.csv", [["TRAIN", "images/a.png", "x"]])

    def format_of(path: Folder) -> str:
        spec = make_spec({"source": str(path), "output": "-"})
        return find_inputs(spec).format

    assert format_of(tmp_path / "d") == "automl"
    write_rows(tmp_path / "d/other.csv", [["a", "b"], [1, 2]])
    assert format_of(source) == "automl"
    assert format_of(tmp_path / "d/other.csv") == "csv"
    assert format_of(tmp_path / "d") == "images"


# Hugging Face


def test_metadata_of_unequal_features(tmp_path: Folder) -> None:
    """All splits must have the same columns; the error names both files."""
    for folder, column in (("train", "text"), ("test", "caption")):
        write_images(tmp_path / "data" / folder, ["a.png"])
        rows = [{"file_name": "a.png", column: "x"}]
        write_metadata(tmp_path / "data" / folder / "metadata.csv", rows)
    message = refused(4, tmp_path / "data", tmp_path / "out")
    assert "caption" in message


def test_metadata_of_two_kinds(tmp_path: Folder) -> None:
    """One kind of metadata file a source, as Hugging Face has it."""
    write_images(tmp_path / "data", ["train/a.png", "test/a.png"])
    rows = [{"file_name": "a.png", "text": "x"}]
    write_metadata(tmp_path / "data/train/metadata.csv", rows)
    write_metadata(tmp_path / "data/test/metadata.jsonl", rows)
    message = refused(4, tmp_path / "data", tmp_path / "out")
    assert "one kind" in message


@pytest.mark.parametrize(
    ("path", "split"),
    [
        ("data/train-00000-of-00002-4e1f.parquet", "train"),
        ("validation-00000-of-00001.csv", "validation"),
        ("dev/metadata.jsonl", "validation"),
        ("Test/deep/x.parquet", "test"),
        ("test/train-0-of-1.parquet", "train"),
        ("photo of test tubes.csv", ""),
        ("test.csv", ""),
        ("trainers/a.csv", ""),
        ("my-train-00000-of-00001.parquet", ""),
        ("train-set/a.csv", ""),
        ("train-00000-of-00001", ""),
    ],
)
def test_splits_in_paths_of_tables(path: str, split: str) -> None:
    """Only the start of a numbered file, and whole names of folders, say a split."""
    assert split_of_table(path) == split


# Tables that are called train and test


def write_tables(folder: Folder, names: Iterable[str]) -> Folder:
    """Writes a table of one row, its place among the names, for each name."""
    for number, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".parquet"):
            pq.write_table(pa.table({"n": [number], "s": ["x"]}), path)
        elif name.endswith(".jsonl"):
            path.write_text(f'{{"n": {number}, "s": "x"}}\n')
        else:
            text = f"n,s\n{number},x\n".encode()
            path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return folder


def splits_planned(source: object, **settings: object) -> dict[str, int]:
    spec = make_spec({"source": str(source), "output": "-", **settings})
    return dict(make_plan(spec).planned.records)


@pytest.mark.parametrize(
    ("names", "splits"),
    [
        (("train.csv", "test.csv"), "train test"),
        (("Train.csv", "val.csv.gz"), "train validation"),
        (("train.jsonl", "valid.jsonl", "test.jsonl"), "train validation test"),
        (("train.parquet", "dev.parquet"), "train validation"),
        (("d/training.csv", "e/testing.csv"), "train test"),
        (("train-00000-of-00001.csv", "test.csv"), "train test"),
        (("train.csv", "test.csv", "more.csv"), "train"),
        (("train.csv", "test set.csv"), "train"),
        (("train.v2.csv", "test.v2.csv"), "train"),
        (("test.csv",), "train"),
    ],
)
def test_tables_called_train_and_test_are_splits(
    names: tuple[str, ...], splits: str, tmp_path: Folder
) -> None:
    """Where every file is called by such a word, and there are two at least."""
    source = write_tables(tmp_path / "s", names)
    found = splits_planned(source)
    assert list(found) == splits.split()
    assert sum(found.values()) == len(names)


def test_rows_of_tables_called_train_and_test(tmp_path: Folder) -> None:
    """They are in the split of their file; the plan says why; options overrule it."""
    source = write_tables(tmp_path / "s", ["test.csv", "train.csv", "val.csv"])
    run = command("plan", f"{source}/*.csv", tmp_path / "out")
    why = "test.csv: test"
    assert "split by the paths of files (train.csv: train; val.csv: valid" in run.out
    assert why in run.out
    convert(source, tmp_path / "out")
    assert split_names(tmp_path / "out") == {"train": 1, "validation": 1, "test": 1}
    for number, split in enumerate(["test", "train", "validation"]):
        (row,) = rows(tmp_path / "out", split)
        assert row == {"n": number, "s": b"x"}
    shares = splits_planned(source, splits={"a": "1/2", "b": "1/2"})
    assert list(shares) == ["a", "b"]
    run = command("plan", source, tmp_path / "o", "--splits", "a=0.5,b=0.5")
    assert "split by" not in run.out
    assert list(splits_planned(source, split_column="n")) == ["0", "1", "2"]
    assert splits_planned(source / "test.csv") == {"train": 1}


# Any table
