"""`schema --as tensorflow`: what is printed runs, and parses every record."""

import pathlib
from typing import Any

import pytest

from beam_pipeline import reader_code
from tests.datasets import ANIMALS, animals, write_dataset, write_records
from transforms.core.schema import Feature, Kind
from transforms.errors import UsageError

Folder = pathlib.Path
reads = pytest.mark.reads_with_tensorflow


def printed(folder: Folder, capsys: pytest.CaptureFixture[str]) -> str:
    assert reader_code.show(str(folder)) == 0
    return capsys.readouterr().out


def run(code: str, split: str = "train") -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Executes the text; returns its names, and the split's rows as plain values."""
    pytest.importorskip("tensorflow")
    names: dict[str, Any] = {}
    exec(code, names)
    rows = [
        {key: value.numpy() for key, value in row.items()}
        for row in names["read"](split)
    ]
    return names, rows


@reads
@pytest.mark.parametrize("compression", ["none", "gzip", "zlib"])
def test_the_text_reads_every_record(
    tmp_path: Folder, capsys: pytest.CaptureFixture[str], compression: str
) -> None:
    """Several shards, one of them empty, every kind of feature, absent values."""
    shards = animals(7, 0, 8)
    write_dataset(tmp_path / "out", {"train": shards, "x": []}, compression=compression)
    names, rows = run(printed(tmp_path / "out", capsys))
    classes = names["CLASSES"]["animal"]
    assert classes == ["dog", "goat", "고양이"]
    for expected, row in zip(animals(15)[0], rows, strict=True):
        assert row == {
            "id": expected["id"],
            "weight": expected["weight"],
            "tame": int(expected["tame"]),
            "note": expected.get("note", "").encode(),
            "raw": expected["raw"],
            "animal": classes.index(expected["animal"]),
        }
    assert run(printed(tmp_path / "out", capsys), "x")[1] == []


@reads
def test_absent_values_become_defaults_that_no_record_holds(
    tmp_path: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    """-1 or below the smallest; NaN; only text cannot be told from a value."""
    features = [
        Feature("positive", Kind.INT64),
        Feature("negative", Kind.INT64),
        Feature("lowest", Kind.INT64),
        Feature("never", Kind.INT64),
        Feature("float", Kind.FLOAT),
        Feature("bool", Kind.BOOL),
        Feature("text", Kind.TEXT),
        Feature("label", Kind.LABEL),
    ]
    row = {
        "positive": 0,
        "negative": -7,
        "lowest": -(2**63),
        "float": 1.0,
        "bool": True,
        "text": "x",
        "label": "a",
    }
    write_dataset(tmp_path / "out", {"train": [[row, {}]]}, features)
    code = printed(tmp_path / "out", capsys)
    _, (_, absent) = run(code)
    assert absent.pop("float") != absent.get("float")
    assert absent == {
        "positive": -1,
        "negative": -8,
        "lowest": 0,
        "never": -1,
        "bool": -1,
        "text": b"",
        "label": -1,
    }
    assert "# in 50.0 % of the records; elsewhere -8, which no record holds" in code
    assert "# in 0 % of the records" in code


@reads
@pytest.mark.parametrize(
    "name", ["이름 있는", 'quote"s and {braces}', "back\\slash", "tab\tand\x1b[31m"]
)
def test_odd_names(
    tmp_path: Folder, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """Of datasets, features and classes: literals that mean them, and print safely."""
    feature = Feature(name, Kind.LABEL)
    rows = [{name: "a"}, {name: name}]
    write_dataset(tmp_path / "out", {"train": [rows]}, [feature], name=name)
    code = printed(tmp_path / "out", capsys)
    assert code.replace("\n", "").isprintable()
    names, found = run(code)
    assert [names["CLASSES"][name][int(row[name])] for row in found] == ["a", name]


def test_text_for_a_small_dataset(
    tmp_path: Folder,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The whole text, as a user sees it."""
    monkeypatch.chdir(tmp_path)
    manifest = write_dataset(Folder("out"), {"train": animals(2, 1)}, ANIMALS)
    assert (
        printed(Folder("out"), capsys)
        == f"""\
# animals: 3 records, digest {manifest.digest[:12]}
import tensorflow as tf

DIRECTORY = "out"
NAME = "animals"
SHARDS = {{"train": 2}}
CLASSES = {{
    "animal": ["dog", "goat", "고양이"],
}}

feature_description = {{
    "id": tf.io.FixedLenFeature([], tf.int64),
    "weight": tf.io.FixedLenFeature([], tf.float32),
    # 0 or 1
    "tame": tf.io.FixedLenFeature([], tf.int64),
    # in 66.7 % of the records; elsewhere empty
    "note": tf.io.FixedLenFeature([], tf.string, default_value=""),
    "raw": tf.io.FixedLenFeature([], tf.string),
    # to predict
    # index in CLASSES["animal"]
    "animal": tf.io.FixedLenFeature([], tf.int64),
}}


def parse(record):
    \"\"\"One serialised record -> feature name -> value.\"\"\"
    return tf.io.parse_single_example(record, feature_description)


def read(split):
    \"\"\"All records of a split, parsed.\"\"\"
    count = SHARDS[split]
    files = [
        f"{{DIRECTORY}}/{{NAME}}-{{split}}.tfrecord-{{i:05d}}-of-{{count:05d}}"
        for i in range(count)
    ]
    return tf.data.TFRecordDataset(files).map(parse)
"""
    )


def test_many_classes_stay_in_the_manifest(
    tmp_path: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    """A comment says where their names are."""
    rows = [{"x": f"class {number:03d}"} for number in range(101)]
    write_dataset(tmp_path / "out", {"train": [rows]}, [Feature("x", Kind.LABEL)])
    code = printed(tmp_path / "out", capsys)
    assert "CLASSES" not in code
    assert "101 classes, whose names are in manifest.json" in code


def test_a_file_of_the_dataset_stands_for_it(
    tmp_path: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its manifest is beside it; a file without one is a usage error."""
    write_dataset(tmp_path / "out", {"train": animals(2)})
    shard = tmp_path / "out" / "animals-train.tfrecord-00000-of-00001"
    assert "feature_description" in printed(shard, capsys)
    write_records(tmp_path / "single", [b""])
    with pytest.raises(UsageError, match="A dataset is needed"):
        reader_code.show(str(tmp_path / "single"))


def test_unknown_style(tmp_path: Folder) -> None:
    """A usage error names the styles there are."""
    with pytest.raises(UsageError, match="tensorflow"):
        reader_code.show(str(tmp_path), "torch")
