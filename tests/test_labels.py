"""A tree of images joined with the table that labels it, end to end."""

import csv
import json
import os
import pathlib
import unicodedata
from collections.abc import Sequence
from typing import Any

import pytest

from tests.test_bad_input import picture
from tests.test_convert import command, convert, refused
from transforms.core.example import messages
from transforms.core.tfrecord import TFRecordReader

Folder = pathlib.Path
TOLERANT = ("--max-reject-rate", 0.9)
NAMES = ("서울/탑_01.JPG", "서울/탑_02.JPG", "부산/다리_01.JPG", "부산/다리_02.JPG")


def tree(root: Folder, names: Sequence[str] = NAMES) -> dict[str, bytes]:
    """Writes a JPEG, each another, under every name; returns them by path."""
    images = {}
    for number, name in enumerate(names):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        images[name] = picture("JPEG", (8 + number, 6))
        path.write_bytes(images[name])
    return images


def table(path: Folder, rows: Sequence[Sequence[object]]) -> Folder:
    """Writes a CSV file; the first row is the header."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)
    return path


def records(directory: Folder) -> list[dict[str, Any]]:
    """Returns the records of all shards, each feature's only value by name."""
    return [
        {
            name: getattr(value, str(value.WhichOneof("kind"))).value[0]
            for name, value in messages.Example.FromString(
                payload
            ).features.feature.items()
        }
        for path in sorted(directory.glob("*.tfrecord-*"))
        for payload in TFRecordReader(str(path))
    ]


def rejects(directory: Folder) -> list[dict[str, Any]]:
    """Returns the lines of the reject file."""
    text = (directory / "rejects.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def stems(names: Sequence[str] = NAMES) -> list[str]:
    return [os.path.splitext(os.path.basename(name))[0] for name in names]


def test_the_tables_own_values_stay(tmp_path: Folder) -> None:
    """Labels are the table's integers and not renumbered; ids are its text."""
    images = tree(tmp_path / "train")
    rows = [("id", "landmark_id"), *zip(stems(), (70, 5, 5, 900), strict=True)]
    labels = table(tmp_path / "train" / "train.csv", rows)
    options = ("--labels", labels, "--id-column", "id", "--label-column", "landmark_id")
    convert(tmp_path / "train", tmp_path / "out", *options)
    found = {r["id"].decode(): r for r in records(tmp_path / "out")}
    for (name, data), stem, label in zip(
        images.items(), stems(), (70, 5, 5, 900), strict=True
    ):
        assert found[stem]["image"] == data
        assert found[stem]["landmark_id"] == label
        assert found[stem]["filename"].decode() == name
        assert (found[stem]["height"], found[stem]["depth"]) == (6, 3)
    assert len(found) == len(images)


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_fault_126_names_match_in_any_normal_form(form: str, tmp_path: Folder) -> None:
    """The table may be in NFC and the file system in NFD, or the other way round."""
    other = {"NFC": "NFD", "NFD": "NFC"}[form]
    tree(tmp_path / "in", [unicodedata.normalize(form, name) for name in NAMES])
    ids = [unicodedata.normalize(other, stem) for stem in stems()]
    labels = table(tmp_path / "t.csv", [("id", "n"), *((i, 1) for i in ids)])
    run = convert(
        tmp_path / "in", tmp_path / "out", "--labels", labels, "--id-column", "id"
    )
    assert "rejected" not in run.out
    assert sorted(r["id"].decode() for r in records(tmp_path / "out")) == sorted(ids)


def test_fault_126_two_names_of_one_normal_form(tmp_path: Folder) -> None:
    """Files whose names differ in their normal form only are an error naming both."""
    both = [unicodedata.normalize(form, "탑.jpg") for form in ("NFC", "NFD")]
    tree(tmp_path / "in", both)
    labels = table(tmp_path / "t.csv", [("id", "n"), ("탑", 1)])
    message = refused(
        4, tmp_path / "in", tmp_path / "out", "--labels", labels, "--id-column", "id"
    )
    assert "NFC" in message


def test_fault_127_orphans_of_both_kinds(tmp_path: Folder) -> None:
    """An image without a label and a label without an image are a reject each."""
    tree(tmp_path / "in")
    rows = [("id", "n"), *((stem, 1) for stem in stems()[:3]), ("nowhere", 2), ("", 3)]
    labels = table(tmp_path / "t.csv", rows)
    convert(
        tmp_path / "in",
        tmp_path / "out",
        *("--labels", labels, "--id-column", "id", *TOLERANT),
    )
    found = [(r["source"], r["row"], r["reason"]) for r in rejects(tmp_path / "out")]
    assert found == [
        ("t.csv", 4, "label_without_image"),
        ("t.csv", 5, "label_without_image"),
        (NAMES[3], None, "image_without_label"),
    ]
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    account = manifest["dataset"]["account"]
    assert (account["read"], account["written"]) == (6, 3)
    assert account["rejected"] == {"image_without_label": 1, "label_without_image": 2}


def test_orphans_count_against_the_tolerated_share(tmp_path: Folder) -> None:
    """With the default share one orphan of five items is too many."""
    tree(tmp_path / "in")
    labels = table(tmp_path / "t.csv", [("id", "n"), *((s, 1) for s in stems()[:3])])
    options = ("--labels", labels, "--id-column", "id")
    message = refused(3, tmp_path / "in", tmp_path / "out", *options)
    assert "image_without_label: 1" in message
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("second", [("탑_01", 1), ("탑_01", 2)])
def test_fault_128_an_id_twice(second: tuple[str, int], tmp_path: Folder) -> None:
    """An id that stands twice is an error naming both rows, whatever they say."""
    tree(tmp_path / "in")
    rows = [("id", "n"), *((stem, 1) for stem in stems()), second]
    labels = table(tmp_path / "t.csv", rows)
    options = ("--labels", labels, "--id-column", "id")
    message = refused(4, tmp_path / "in", tmp_path / "out", *options)
    assert "'탑_01'" in message
    assert "rows 1 and 5" in message


def test_fault_128_two_images_of_one_id(tmp_path: Folder) -> None:
    """Two images of one stem are an error naming both."""
    tree(tmp_path / "in", ["a/x.jpg", "b/x.jpg"])
    labels = table(tmp_path / "t.csv", [("id", "n"), ("x", 1)])
    options = ("--labels", labels, "--id-column", "id")
    message = refused(4, tmp_path / "in", tmp_path / "out", *options)
    assert "a/x.jpg" in message
    assert "b/x.jpg" in message


@pytest.mark.parametrize(
    "ids",
    [
        ["a/x.jpg", "b/x.jpg"],
        ["a/x", "b/x"],
    ],
)
def test_ids_may_be_paths(ids: list[str], tmp_path: Folder) -> None:
    """A column of paths, with suffix or without, tells files of one name apart."""
    images = tree(tmp_path / "in", ["a/x.jpg", "b/x.jpg"])
    labels = table(tmp_path / "t.csv", [("path", "n"), *zip(ids, (1, 2), strict=True)])
    options = ("--labels", labels, "--id-column", "path")
    convert(tmp_path / "in", tmp_path / "out", *options)
    found = {r["n"]: r["image"] for r in records(tmp_path / "out")}
    assert found == {1: images["a/x.jpg"], 2: images["b/x.jpg"]}


def test_ids_may_be_file_names(tmp_path: Folder) -> None:
    """A column of file names matches whatever folder the file lies in."""
    images = tree(tmp_path / "in", ["a/x.jpg", "b/deep/y.jpg"])
    labels = table(tmp_path / "t.csv", [("f", "n"), ("x.jpg", 1), ("y.jpg", 2)])
    convert(tmp_path / "in", tmp_path / "o", "--labels", labels, "--id-column", "f")
    found = {r["n"]: r["image"] for r in records(tmp_path / "o")}
    assert found == {1: images["a/x.jpg"], 2: images["b/deep/y.jpg"]}


def test_a_value_that_does_not_fit_rejects_its_image(tmp_path: Folder) -> None:
    """The reject of the image names the table's row, column and value."""
    names = [f"{number:03}.jpg" for number in range(120)]
    tree(tmp_path / "in", names)
    rows = [(name[:-4], number) for number, name in enumerate(names)]
    rows[7] = ("007", "many")
    labels = table(tmp_path / "t.csv", [("id", "count"), *rows])
    convert(tmp_path / "in", tmp_path / "o", "--labels", labels, "--id-column", "id")
    (reject,) = rejects(tmp_path / "o")
    assert (reject["source"], reject["reason"]) == ("007.jpg", "not_an_integer")
    for part in ("row 8", "'count'", "'many'"):
        assert part in reject["message"]
    # Ids stay what they are, however much they look like numbers.
    assert {r["id"] for r in records(tmp_path / "o")} >= {b"000", b"119"}


def test_class_names_and_split_folders(tmp_path: Folder) -> None:
    """A text column becomes class ids; split folders say the split all the same."""
    names = [f"{part}/{n}.jpg" for part in ("train", "test") for n in ("a", "b", "c")]
    names = [name.replace("test/", "test/t") for name in names]
    tree(tmp_path / "in", names)
    kinds = ("cat", "dog", "cat", "dog", "cat", "dog")
    rows = [("id", "kind"), *zip(stems(names), kinds, strict=True)]
    labels = table(tmp_path / "t.csv", rows)
    options = ("--labels", labels, "--id-column", "id", "--label-column", "kind")
    convert(tmp_path / "in", tmp_path / "out", *options)
    assert (tmp_path / "out" / "kind.labels.txt").read_text() == "cat\ndog\n"
    found = {r["id"].decode(): r["kind"] for r in records(tmp_path / "out")}
    assert found == {"a": 0, "b": 1, "c": 0, "ta": 1, "tb": 0, "tc": 1}
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    splits = {s["name"]: s["records"] for s in manifest["dataset"]["splits"]}
    assert splits == {"train": 3, "test": 3}


def test_rows_of_the_table_that_cannot_be_read(tmp_path: Folder) -> None:
    """A row with too many fields is a reject of its own, and its image has no label."""
    tree(tmp_path / "in")
    lines = ["id,n", *(f"{stem},1" for stem in stems()[:3]), f"{stems()[3]},1,2"]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    options = ("--labels", tmp_path / "t.csv", "--id-column", "id", *TOLERANT)
    convert(tmp_path / "in", tmp_path / "out", *options)
    found = [(r["source"], r["row"], r["reason"]) for r in rejects(tmp_path / "out")]
    assert found == [
        ("t.csv", 4, "field_count"),
        (NAMES[3], None, "image_without_label"),
    ]


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
def test_tables_of_other_formats(suffix: str, tmp_path: Folder) -> None:
    """The table may be of any table format."""
    import pyarrow as pa
    import pyarrow.parquet

    tree(tmp_path / "in")
    path = tmp_path / f"t.{suffix}"
    rows = [{"id": stem, "n": n} for n, stem in enumerate(stems())]
    if suffix == "parquet":
        pyarrow.parquet.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    convert(tmp_path / "in", tmp_path / "out", "--labels", path, "--id-column", "id")
    found = {r["id"].decode(): r["n"] for r in records(tmp_path / "out")}
    assert found == {stem: n for n, stem in enumerate(stems())}


def test_a_label_table_that_makes_no_sense(tmp_path: Folder) -> None:
    """What is missing is told before anything is written."""
    tree(tmp_path / "in")
    labels = table(tmp_path / "t.csv", [("id", "n"), ("x", 1)])
    out = tmp_path / "out"
    assert "id_column" in refused(2, tmp_path / "in", out, "--labels", labels)
    options = ("--labels", labels, "--id-column", "idd")
    assert "id, n" in refused(2, tmp_path / "in", out, *options)
    options = ("--labels", tmp_path / "no.csv", "--id-column", "id")
    assert "no.csv" in refused(2, tmp_path / "in", out, *options)
    options = ("--labels", labels, "--id-column", "id")
    assert "holds tables" in refused(2, labels, out, *options)


def test_a_changed_table_is_another_job(tmp_path: Folder) -> None:
    """The table decides bytes, so its state is among the inputs."""
    tree(tmp_path / "in")
    options = ("--labels", tmp_path / "t.csv", "--id-column", "id", "--overwrite")
    digests = []
    for value in (1, 2):
        table(tmp_path / "t.csv", [("id", "n"), *((s, value) for s in stems())])
        convert(tmp_path / "in", tmp_path / "out", *options)
        text = (tmp_path / "out" / "manifest.json").read_text()
        digests.append(json.loads(text)["run"]["job"])
    assert digests[0] != digests[1]


def test_the_landmarks(tmp_path: Folder) -> None:
    """The walk-through's own shape: Korean names, upper-case suffixes, one in NFD."""
    root = os.environ.get("BEAM_TFRECORD_TEST_DATA")
    if not root or not os.path.isdir(f"{root}/landmarks"):
        pytest.skip("BEAM_TFRECORD_TEST_DATA names no folder")
    source = f"{root}/landmarks/train"
    options = ["--labels", f"{root}/landmarks/train.csv", "--id-column", "id"]
    options += ["--label-column", "landmark_id", "--preset", "tutorial"]
    run = command("convert", source, tmp_path / "out", *options)
    assert run.code == 0, run.err
    with open(f"{root}/landmarks/train.csv", encoding="utf-8") as file:
        wanted = {row["id"]: int(row["landmark_id"]) for row in csv.DictReader(file)}
    files = {
        unicodedata.normalize("NFC", path.stem): path.read_bytes()
        for path in pathlib.Path(source).rglob("*.JPG")
    }
    found = {r["id"].decode(): r for r in records(tmp_path / "out")}
    assert {i: r["landmark_id"] for i, r in found.items()} == wanted
    for name, record in found.items():
        assert record["image_raw"] == files[unicodedata.normalize("NFC", name)]


def test_features_of_the_table_may_be_declared(tmp_path: Folder) -> None:
    """What a spec says of the table's columns holds: names, constants, paths."""
    images = tree(tmp_path / "in")
    rows = [("id", "n"), *((stem, n) for n, stem in enumerate(stems()))]
    labels = table(tmp_path / "t.csv", rows)
    spec = {
        "labels": str(labels),
        "id_column": "id",
        "features": {
            "number": {"column": "n", "kind": "float"},
            "version": {"constant": 2},
            "city": {"path": "^([^/]+)/"},
        },
    }
    (tmp_path / "s.yaml").write_text(json.dumps(spec))
    convert(tmp_path / "in", tmp_path / "o", "--spec", tmp_path / "s.yaml")
    found = {r["id"].decode(): r for r in records(tmp_path / "o")}
    for number, (name, stem) in enumerate(zip(images, stems(), strict=True)):
        assert found[stem]["number"] == float(number)
        assert found[stem]["version"] == 2
        assert found[stem]["city"].decode() == name.partition("/")[0]
        assert "n" not in found[stem]


@pytest.mark.parametrize("classes", [10_000, 10_001, 20_000])
def test_no_class_is_called_empty_that_is_not(classes: int, tmp_path: Folder) -> None:
    """However many classes there are, one with a record is not said to have none."""
    table = tmp_path / "t.csv"
    lines = "".join(f"{n},c{n}\n" for n in range(classes))
    table.write_text(f"x,y\n{lines}")
    run = convert(table, tmp_path / "out", "--label-column", "y")
    assert "have no record" not in run.out + run.err
    text = (tmp_path / "out" / "manifest.json").read_text()
    assert "have no record" not in text
    names = next(f for f in json.loads(text)["dataset"]["features"] if f["name"] == "y")
    assert len(names["classes"]) == classes


def test_classes_without_a_record_among_many(tmp_path: Folder) -> None:
    """Of a large vocabulary of which few names are used the others are named."""
    (tmp_path / "names.txt").write_text("".join(f"c{n}\n" for n in range(20_000)))
    (tmp_path / "t.csv").write_text("x,y\n1,c7\n2,c8\n")
    given = ("--label-column", "y", "--vocabulary", tmp_path / "names.txt")
    run = convert(tmp_path / "t.csv", tmp_path / "out", *given)
    assert "19,998 classes of 'y' have no record" in run.out + run.err
