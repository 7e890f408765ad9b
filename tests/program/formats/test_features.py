"""Features of every kind from the command line to what TensorFlow reads."""

import csv
import pathlib
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import beam_pipeline
from beam_pipeline.planning.plan import make_plan
from beam_pipeline.running.convert import convert_plan
from beam_pipeline.settings.spec import make_spec
from tests.support import coco
from tests.support.image_sources import image_bytes, write_images
from tests.support.outputs import contents, dataset, features, records
from tests.support.runs import command, convert, refused
from transforms.errors import RaceError
from transforms.storage.folders import exclusive_lock

Folder = pathlib.Path
Row = dict[str, Any]


def spec_file(folder: Folder, settings: Mapping[str, Any]) -> Folder:
    path = folder / "spec.yaml"
    path.write_text(yaml.safe_dump(dict(settings), allow_unicode=True))
    return path


def with_spec(source: object, out: Folder, *options: object, **settings: Any) -> Folder:
    """Converts under a spec with these settings; returns the output."""
    out.parent.mkdir(parents=True, exist_ok=True)
    spec = spec_file(out.parent, settings)
    convert(source, out, "--spec", spec, "--no-shuffle", *options)
    return out


def with_features(source: object, out: Folder, **features: Any) -> Folder:
    return with_spec(source, out, features=features)


def table(path: Folder, *rows: Sequence[object]) -> Folder:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return path


def tree(root: Folder, *names: str) -> Folder:
    write_images(root, names)
    return root


@pytest.mark.parametrize("how", ["bytes", "paths"])
@pytest.mark.parametrize(
    "name", ["photo", "filename", "picture", "image", "photo/encoded"]
)
def test_a_declared_image_takes_the_place_of_its_column(
    tmp_path: Folder, how: str, name: str
) -> None:
    """It is stored once, whether it has the name of its column or another one."""
    tree(tmp_path, "0.png", "1.png")
    paths, data = ["0.png", "1.png"], [image_bytes(0), image_bytes(1)]
    rows = pa.table({"photo": paths if how == "paths" else data})
    pq.write_table(rows, tmp_path / "a.parquet")
    said = (
        {"kind": "image"} if name == "photo" else {"kind": "image", "column": "photo"}
    )
    out = with_features(tmp_path / "a.parquet", tmp_path / "out", **{name: said})
    beside = {"height", "width", "depth"}
    if how == "paths" and name != "filename":
        beside.add("filename")
    for number, row in enumerate(records(out)):
        assert row.keys() == {name, *beside}
        assert row[name] == [image_bytes(number)]


def test_rename_copy_drop_and_constants(tmp_path: Folder) -> None:
    """A column under another name, twice, not at all; and values of no column."""
    source = table(tmp_path / "a.csv", ["age", "zip", "x"], [3, "007", 1], [4, "1", 2])
    out = with_spec(
        source,
        tmp_path / "out",
        drop=["x"],
        features={
            "years": {"column": "age"},
            "zip": {},
            "code": {"column": "zip", "kind": "bytes"},
            "version": {"constant": 2},
            "x": {"constant": "new"},
            "weights": {"constant": 0.5, "shape": [2]},
        },
    )
    assert records(out)[0] == {
        "years": [3],
        "zip": [b"007"],
        "code": [b"007"],
        "version": [2],
        "x": [b"new"],
        "weights": [0.5, 0.5],
    }


def test_two_columns_may_swap_their_names(tmp_path: Folder) -> None:
    """Each declaration applies to its column, in any order."""
    source = table(tmp_path / "a.csv", ["a", "b"], [1, "x"])
    out = with_features(source, tmp_path / "out", a={"column": "b"}, b={"column": "a"})
    assert records(out) == [{"a": [b"x"], "b": [1]}]


def test_derived_from_paths(tmp_path: Folder) -> None:
    """The path of a table's file, of an image, and the text of a column."""
    (tmp_path / "in").mkdir()
    for year in (2023, 2024):
        table(tmp_path / "in" / f"y{year}.csv", ["mail"], [f"{year}@here.org"])
    out = with_features(
        tmp_path / "in",
        tmp_path / "out",
        year={"path": r"y(\d+)\.csv$", "kind": "int64"},
        host={"column": "mail", "path": "@(.+)"},
    )
    assert [row["year"] for row in records(out)] == [[2023], [2024]]
    assert [row["host"] for row in records(out)] == [[b"here.org"]] * 2
    assert records(out)[0]["mail"] == [b"2023@here.org"]
    photos = tree(tmp_path / "photos", "a/1_x.png", "b/2_y.png")
    out = with_features(
        photos, tmp_path / "trees", patient={"path": r"([^/]+)_", "missing": "reject"}
    )
    assert [row["patient"] for row in records(out)] == [[b"1"], [b"2"]]


@pytest.mark.parametrize("kind", ["tree", "csv", "zip"])
def test_presets_for_trees_and_tables(tmp_path: Folder, kind: str) -> None:
    """ImageNet's names with ids from 1, the tutorial's names with its five keys."""
    names = ["cat/0.png", "dog/1.png", "cat/2.png"]
    source = tree(tmp_path / "in", *names)
    options: list[object] = []
    if kind == "csv":
        rows = [[name, name.split("/")[0]] for name in names]
        source = table(source / "list.csv", ["file_name", "animal"], *rows)
        options = ["--label-column", "animal"]
    if kind == "zip":
        source = Folder(shutil.make_archive(str(tmp_path / "a"), "zip", source))
    out = tmp_path / "imagenet"
    convert(source, out, "--preset", "imagenet", *options)
    found = {row["image/filename"][0].decode(): row for row in records(out)}
    assert set(found) == set(names)
    assert set(found["dog/1.png"]) == {
        "image/encoded",
        "image/class/label",
        "image/class/text",
        "image/class/synset",
        "image/filename",
        "image/height",
        "image/width",
        "image/channels",
        "image/colorspace",
        "image/format",
    }
    assert found["dog/1.png"]["image/class/label"] == [2]
    assert found["cat/2.png"]["image/class/label"] == [1]
    assert found["dog/1.png"]["image/class/text"] == [b"dog"]
    assert features(out)["image/class/label"]["classes"] == ["background", "cat", "dog"]
    out = tmp_path / "tutorial"
    convert(source, out, "--preset", "tutorial", *options)
    for row in records(out):
        assert set(row) == {"height", "width", "depth", "label", "image_raw"}


def test_imagenet_with_given_class_names(tmp_path: Folder) -> None:
    """A list of classes has the ids from 1 on, in its order."""
    source = tree(tmp_path / "in", "cat/0.png", "dog/1.png")
    out = with_spec(
        source, tmp_path / "out", preset="imagenet", vocabulary=["dog", "cat", "emu"]
    )
    assert features(out)["image/class/label"]["classes"] == [
        *("background", "dog", "cat", "emu")
    ]
    assert [row["image/class/label"] for row in records(out)] == [[2], [1]]


def test_fault_105_class_names_like_nothing(tmp_path: Folder) -> None:
    """NA, None, null, nan and N/A are five classes; only a blank is none."""
    names = ["NA", "None", "null", "nan", "N/A", ""]
    source = table(tmp_path / "a.csv", ["y", "n"], *[[n, 1] for n in names])
    out = tmp_path / "out"
    convert(source, out, "--label-column", "y", "--no-shuffle")
    wanted = sorted(names[:-1])
    assert features(out)["y"]["classes"] == wanted
    found = [row.get("y") for row in records(out)]
    assert found == [*([wanted.index(name)] for name in names[:-1]), None]


def labelled(path: Folder, *names: str) -> Folder:
    return table(path, ["y", "n"], *[[name, i] for i, name in enumerate(names)])


WITH_LOCK = {"key_column": "n", "splits": "train=0.5,test=0.5"}


def test_a_run_that_ended_before_its_lock_goes_on(tmp_path: Folder) -> None:
    """The same command writes the lock that a killed run left as it had read it."""
    source, lock = labelled(tmp_path / "a.csv", "d", "b", "a"), tmp_path / "lock"
    settings: dict[str, Any] = {**WITH_LOCK, "split_lock": str(lock)}
    first = beam_pipeline.convert(source, tmp_path / "out", **settings)
    kept = lock.read_bytes()
    lock.unlink()
    again = beam_pipeline.convert(source, tmp_path / "out", **settings)
    assert (again.digest, lock.read_bytes()) == (first.digest, kept)


def test_two_runs_with_one_lock(tmp_path: Folder) -> None:
    """The later one ends: while another has the lock, and where it has written it."""
    source, lock = labelled(tmp_path / "a.csv", "d", "b", "a"), tmp_path / "lock"
    other = labelled(tmp_path / "b.csv", "d", "c", "b", "a")
    more: dict[str, Any] = {**WITH_LOCK, "split_lock": str(lock)}
    plan = make_plan(
        make_spec({"source": str(source), "output": str(tmp_path / "out"), **more})
    )
    with (
        exclusive_lock(str(tmp_path / ".lock.beam-tfrecord")),
        pytest.raises(RaceError, match=str(lock)),
    ):
        convert_plan(plan)
    beam_pipeline.convert(other, tmp_path / "other", **more)
    kept = lock.read_bytes()
    with pytest.raises(RaceError, match=str(lock)):
        convert_plan(plan)
    assert not (tmp_path / "out").exists()
    assert lock.read_bytes() == kept
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "a.csv",
        "b.csv",
        "lock",
        "other",
    ]


def everything(folder: Folder) -> list[tuple[Folder, list[object]]]:
    """Returns small sources of many kinds, with options."""
    count = 12
    rows = pa.table(
        {
            "a/b: c": ["x: y", "#no", "'q'"] * 4,
            "no": pa.array(range(count), pa.uint8()),
            "when": pa.array(range(count), pa.timestamp("ms", "UTC")),
            "lists": [[i] * (i % 3) for i in range(count)],
            "ragged": [[[i], [i, i]] for i in range(count)],
            "fixed": pa.array([[1.0, 2.0]] * count, pa.list_(pa.float32(), 2)),
            "inner": [{"p": i, "q": str(i)} for i in range(count)],
            "y": ["b", "NA", None] * 4,
            "null": pa.nulls(count),
        }
    )
    pq.write_table(rows, folder / "all.parquet")
    images = {
        "left": [image_bytes(i) for i in range(3)],
        "right": [image_bytes(i) for i in range(3)],
    }
    pq.write_table(pa.table(images), folder / "two.parquet")
    photos = tree(folder / "photos", "train/a/0.png", "train/b/1.png", "test/a/2.png")
    named = tree(folder / "named", "0.png", "1.png")
    labels = table(folder / "labels.csv", ["id", "what"], [0, 7], [1, 8])
    manifest = tree(folder / "listed", "0.png", "1.png") / "list.csv"
    table(
        manifest,
        ["split", "image_uri", "label"],
        ["TRAIN", "0.png", "a"],
        ["TEST", "1.png", "b"],
    )
    cifar = folder / "cifar"
    cifar.mkdir()
    (cifar / "data_batch_1.bin").write_bytes(bytes(3073 * 3))
    (cifar / "batches.meta.txt").write_text("\n".join("abcdefghij") + "\n")
    boxes = coco.tree(folder / "coco", coco.coco([coco.image(1)], [coco.box(1, 1)]))
    odd = table(folder / "odd.csv", ["글자 #", "ne\nw"], ["a\nb", 1], ["", 2])
    limits = spec_file(folder, {"features": {"n": {"kind": "int64", "min": 1}}})
    limited = table(folder / "limited.csv", ["n"], *[[n] for n in range(200)])
    joined = ["--labels", labels, "--id-column", "id", "--label-column", "what"]
    return [
        (folder / "all.parquet", ["--label-column", "y"]),
        (folder / "two.parquet", ["--feature-name", "depth="]),
        (photos, []),
        (photos, ["--preset", "imagenet", "--feature-name", "codec="]),
        (named, joined),
        (manifest, []),
        (cifar, []),
        (boxes, []),
        (odd, ["--drop", "ne\nw"]),
        (limited, ["--spec", limits]),
    ]


@pytest.mark.parametrize("number", range(10))
def test_the_printed_schema_is_a_spec_of_the_same_dataset(
    tmp_path: Folder, number: int
) -> None:
    """What `schema` prints converts to the same bytes and the same digest."""
    source, options = everything(tmp_path)[number]
    run = command("spec", source, *options)
    assert run.code == 0, run.err
    (tmp_path / "printed.yaml").write_text(run.out)
    again = command("spec", source, "--spec", tmp_path / "printed.yaml")
    assert again.out == run.out
    convert(source, tmp_path / "one", "--name", "n", *options)
    printed = ("--spec", tmp_path / "printed.yaml")
    convert(source, tmp_path / "two", "--name", "n", *printed)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert dataset(tmp_path / "one") == dataset(tmp_path / "two")


# Declarations of features, by name.
WRONG_FEATURES: dict[str, tuple[Row, str]] = {
    "kind": ({"a": {"kind": "flaot"}}, "features.a.kind"),
    "setting": ({"a": {"kindd": "text"}}, "kindd"),
    "column": ({"x": {"column": "nmae"}}, "'nmae'"),
    "two labels": ({"a": {"label": True}, "y": {"label": True}}, "One feature"),
    "zero": ({"a": {"shape": [0]}}, "shape"),
    "huge": ({"a": {"shape": [10**30]}}, "2^28"),
    "open": ({"name": {"shape": [None, None, 3]}}, "one size at most"),
    "image shape": (
        {"name": {"kind": "image", "shape": [2, 3]}},
        "several images are a list",
    ),
    "regex": ({"p": {"path": "(["}}, "regular expression"),
    "group": ({"p": {"path": "abc"}}, "needs a group"),
    "fill": ({"a": {"fill": "x"}}, "fill"),
    "fill too large": ({"a": {"fill": 2**63}}, "fill"),
    "no fill": ({"a": {"missing": "fill"}}, "fill"),
    "fill and reject": ({"a": {"missing": "reject", "fill": 1}}, "fill"),
    "constant": ({"q": {"constant": "x", "kind": "int64"}}, "int64"),
    "constant of a column": ({"q": {"constant": 1, "column": "a"}}, "constant"),
    "constant over a column": ({"a": {"constant": 1}}, "'a'"),
    "constant image": ({"q": {"constant": "x", "kind": "image"}}, "im"),
    "unit": ({"a": {"kind": "int64", "unit": "s"}}, "timestamps"),
    "dtype": ({"a": {"kind": "tensor", "shape": [1], "dtype": "float99"}}, "float99"),
    "inexact integers": (
        {"a": {"kind": "int64", "inexact_integers": "reject"}},
        "inexact_integers is for floats",
    ),
    "raw": ({"a": {"kind": "tensor"}}, "shape"),
    "hidden": ({"a": {"column": "name"}}, "'a'"),
    "clash": (
        {"b": {"column": "name", "kind": "box"}, "b/xmin": {"column": "a"}},
        "b/xmin",
    ),
    "separator": ({"name": {"separator": ""}}, "separator"),
    "no name": ({"": {"column": "a"}}, "name"),
}
WRONG: dict[str, tuple[Row, str]] = {
    **{
        name: ({"features": features}, word)
        for name, (features, word) in WRONG_FEATURES.items()
    },
    "drop": ({"drop": ["nam"]}, "'nam'"),
    "strata": ({"stratify_column": "y"}, "needs splits"),
    "image column": ({"image_columns": ["nam"]}, "'name'"),
    "label": ({"label_column": "ys"}, "'ys'"),
    "dropped label": ({"label_column": "y", "drop": ["y"]}, "dropped"),
    "dropped": ({"drop": ["a"], "features": {"a": {"kind": "text"}}}, "drop"),
    "all dropped": ({"drop": ["a", "name", "y"]}, "No feature is left"),
    "vocabulary twice": ({"label_column": "y", "vocabulary": ["a", "a"]}, "'a'"),
    "vocabulary of bools": (
        {"label_column": "y", "vocabulary": ["a", False]},
        "quotes",
    ),
    "vocabulary of none": ({"vocabulary": ["a"]}, "vocabulary"),
    "empty vocabulary": ({"label_column": "y", "vocabulary": []}, "vocabulary"),
    "vocabulary file": (
        {"label_column": "y", "vocabulary": "/nowhere.txt"},
        "/nowhere.txt",
    ),
    "oov": ({"label_column": "y", "unknown_label": "oov"}, "vocabulary"),
    "preset": ({"preset": "imagenet"}, "images"),
}


@pytest.mark.parametrize("case", list(WRONG))
def test_wrong_specs_are_one_clear_error(tmp_path: Folder, case: str) -> None:
    """Exit code 2, one message that names the fault, no traceback, no output."""
    settings, word = WRONG[case]
    source = table(tmp_path / "a.csv", ["a", "name", "y"], [1, "bob", "cat"])
    spec = spec_file(tmp_path, settings)
    message = refused(2, source, tmp_path / "out", "--spec", spec)
    assert word in message, message
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("features", "word"),
    [
        ({"lable": {"kind": "label"}}, "'label'"),
        ({"image": {"kind": "text"}}, "read off an image"),
        ({"height": {"kind": "float"}}, "feature_names"),
        ({"height": {"constant": 3}}, "'height'"),
    ],
)
def test_wrong_features_of_trees(tmp_path: Folder, features: Row, word: str) -> None:
    """What is read off images cannot be declared to be something else."""
    source = tree(tmp_path / "in", "a/0.png", "b/1.png")
    spec = spec_file(tmp_path, {"features": features})
    assert word in refused(2, source, tmp_path / "out", "--spec", spec)
