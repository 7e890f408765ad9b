"""A tree of images joined with the table that labels it, end to end."""

import json
import os
import pathlib
import shlex
import unicodedata
from collections.abc import Sequence
from typing import Any, Literal

import pytest

import beam_pipeline
from tests.support.image_sources import write_images
from tests.support.outputs import (
    account,
    features,
    first_values,
    manifest,
    manifest_of,
    rejects,
)
from tests.support.runs import command, convert, refused
from tests.support.sources import write_rows

Folder = pathlib.Path
TOLERANT = ("--max-reject-rate", 0.9)
NAMES = ("서울/탑_01.JPG", "서울/탑_02.JPG", "부산/다리_01.JPG", "부산/다리_02.JPG")


def stems(names: Sequence[str] = NAMES) -> list[str]:
    return [os.path.splitext(os.path.basename(name))[0] for name in names]


def labelled(folder: Folder, rows: Sequence[Sequence[object]], name: str = "id") -> Any:
    """Writes the table of labels; returns the options that name it and its ids."""
    return ("--labels", write_rows(folder / "t.csv", rows), "--id-column", name)


def test_the_tables_own_values_stay(tmp_path: Folder) -> None:
    """Labels are the table's integers and not renumbered; ids are its text."""
    images = write_images(tmp_path / "train", NAMES)
    rows = [("id", "landmark_id"), *zip(stems(), (70, 5, 5, 900), strict=True)]
    labels = write_rows(tmp_path / "train" / "train.csv", rows)
    options = ("--labels", labels, "--id-column", "id", "--label-column", "landmark_id")
    convert(tmp_path / "train", tmp_path / "out", *options)
    found = {r["id"].decode(): r for r in first_values(tmp_path / "out")}
    for (name, data), stem, label in zip(
        images.items(), stems(), (70, 5, 5, 900), strict=True
    ):
        assert found[stem]["image"] == data
        assert found[stem]["landmark_id"] == label
        assert found[stem]["filename"].decode() == name
        assert (found[stem]["height"], found[stem]["depth"]) == (4, 3)
    assert len(found) == len(images)


def test_paths_of_another_machine(tmp_path: Folder) -> None:
    """Folders in front of all ids that are not here do not count."""
    write_images(tmp_path / "in", NAMES)
    paths = [f"/kaggle/input/x/{name}" for name in NAMES]
    options = labelled(tmp_path, [("id", "n"), *zip(paths, stems(), strict=True)])
    convert(tmp_path / "in", tmp_path / "out", *options)
    found = {
        r["id"].decode(): r["filename"].decode() for r in first_values(tmp_path / "out")
    }
    assert found == dict(zip(paths, NAMES, strict=True))
    write_images(tmp_path / "flat", [os.path.basename(name) for name in NAMES])
    convert(tmp_path / "flat", tmp_path / "b", *options)
    assert len(first_values(tmp_path / "b")) == len(NAMES)
    options = labelled(tmp_path, [("id", "n"), *((path, 1) for path in paths * 2)])
    assert paths[0] in refused(4, tmp_path / "in", tmp_path / "c", *options)


@pytest.mark.parametrize("others", [(), ("test/1.jpg",)])
def test_paths_of_another_split(others: tuple[str, ...], tmp_path: Folder) -> None:
    """Their ends, here or in two splits, are not those of images of this one."""
    names = ["1.jpg", "2.jpg"]
    write_images(tmp_path / "test", names)
    ids = [*(f"train/{name}" for name in names), *others]
    options = labelled(tmp_path, [("id", "n"), *((i, 1) for i in ids)])
    message = refused(3, tmp_path / "test", tmp_path / "out", *options)
    assert f"label_without_image: {len(ids)}" in message


def test_ids_in_a_column_named_like_a_feature_of_images(tmp_path: Folder) -> None:
    """Ids called filename find the images, which keep their own file names."""
    images = write_images(tmp_path / "in", NAMES)
    rows = [("filename", "n"), *((stem, n) for n, stem in enumerate(stems()))]
    options = labelled(tmp_path, rows, "filename")
    convert(tmp_path / "in", tmp_path / "out", *options)
    found = {r["filename"].decode(): r["n"] for r in first_values(tmp_path / "out")}
    assert found == {name: n for n, name in enumerate(images)}
    label = ("--label-column", "filename")
    assert "'filename'" in refused(2, tmp_path / "in", tmp_path / "b", *options, *label)


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_fault_126_names_match_in_any_normal_form(
    form: Literal["NFC", "NFD"], tmp_path: Folder
) -> None:
    """The table may be in NFC and the file system in NFD, or the other way round."""
    other: Literal["NFC", "NFD"] = "NFD" if form == "NFC" else "NFC"
    write_images(tmp_path / "in", [unicodedata.normalize(form, name) for name in NAMES])
    ids = [unicodedata.normalize(other, stem) for stem in stems()]
    options = labelled(tmp_path, [("id", "n"), *((i, 1) for i in ids)])
    assert "rejected" not in convert(tmp_path / "in", tmp_path / "out", *options).out
    found = [r["id"].decode() for r in first_values(tmp_path / "out")]
    assert sorted(found) == sorted(ids)


@pytest.mark.parametrize(
    ("names", "ids", "said"),
    [
        (["탑.jpg", unicodedata.normalize("NFD", "탑.jpg")], ["탑"], ["NFC"]),
        (["a/x.jpg", "b/x.jpg"], ["x"], ["a/x.jpg", "b/x.jpg"]),
        (NAMES, [*stems(), "탑_01"], ["'탑_01'", "rows 1 and 5"]),
    ],
    ids=["126 one name in NFC", "128 two images of a stem", "128 an id twice"],
)
def test_fault_126_128_what_is_there_twice(
    names: Sequence[str], ids: list[str], said: list[str], tmp_path: Folder
) -> None:
    """Two images, or two rows of equal labels, of one id are an error naming both."""
    write_images(tmp_path / "in", names)
    options = labelled(tmp_path, [("id", "n"), *((each, 1) for each in ids)])
    message = refused(4, tmp_path / "in", tmp_path / "out", *options)
    assert all(word in message for word in said)


def test_fault_127_orphans_of_both_kinds(tmp_path: Folder) -> None:
    """An image without a label and a label without an image are a reject each."""
    write_images(tmp_path / "in", NAMES)
    rows = [("id", "n"), *((stem, 1) for stem in stems()[:3]), ("nowhere", 2), ("", 3)]
    options = labelled(tmp_path, rows)
    convert(tmp_path / "in", tmp_path / "out", *options, *TOLERANT)
    found = [(r["source"], r["row"], r["reason"]) for r in rejects(tmp_path / "out")]
    assert found == [
        ("t.csv", 4, "label_without_image"),
        ("t.csv", 5, "label_without_image"),
        (NAMES[3], None, "image_without_label"),
    ]
    counts = account(tmp_path / "out")
    assert (counts["read"], counts["written"]) == (6, 3)
    assert counts["rejected"] == {"image_without_label": 1, "label_without_image": 2}


@pytest.mark.parametrize(
    "ids",
    [
        ["a/x.jpg", "b/x.jpg"],
        ["a/x", "b/x"],
    ],
)
def test_ids_may_be_paths(ids: list[str], tmp_path: Folder) -> None:
    """A column of paths, with or without suffix, distinguishes files of one name."""
    images = write_images(tmp_path / "in", ["a/x.jpg", "b/x.jpg"])
    options = labelled(
        tmp_path, [("path", "n"), *zip(ids, (1, 2), strict=True)], "path"
    )
    convert(tmp_path / "in", tmp_path / "out", *options)
    found = {r["n"]: r["image"] for r in first_values(tmp_path / "out")}
    assert found == {1: images["a/x.jpg"], 2: images["b/x.jpg"]}


def test_a_value_that_does_not_fit_rejects_its_image(tmp_path: Folder) -> None:
    """The reject of the image names the table's row, column and value."""
    names = [f"{number:03}.jpg" for number in range(120)]
    write_images(tmp_path / "in", names)
    rows: list[tuple[str, object]]
    rows = [(name[:-4], number) for number, name in enumerate(names)]
    rows[7] = ("007", "many")
    options = labelled(tmp_path, [("id", "count"), *rows])
    convert(tmp_path / "in", tmp_path / "o", *options)
    (reject,) = rejects(tmp_path / "o")
    assert (reject["source"], reject["reason"]) == ("007.jpg", "not_an_integer")
    for part in ("row 8", "'count'", "'many'"):
        assert part in reject["message"]
    # Ids stay what they are, however much they look like numbers.
    assert {r["id"] for r in first_values(tmp_path / "o")} >= {b"000", b"119"}


def test_rows_of_the_table_that_cannot_be_read(tmp_path: Folder) -> None:
    """A row with too many fields is a reject of its own, and its image has no label."""
    write_images(tmp_path / "in", NAMES)
    lines = ["id,n", *(f"{stem},1" for stem in stems()[:3]), f"{stems()[3]},1,2"]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    options = ("--labels", tmp_path / "t.csv", "--id-column", "id", *TOLERANT)
    convert(tmp_path / "in", tmp_path / "out", *options)
    found = [(r["source"], r["row"], r["reason"]) for r in rejects(tmp_path / "out")]
    assert found == [
        ("t.csv", 4, "field_count"),
        (NAMES[3], None, "image_without_label"),
    ]


def test_a_label_table_that_makes_no_sense(tmp_path: Folder) -> None:
    """Missing items are reported before anything is written."""
    write_images(tmp_path / "in", NAMES)
    options = labelled(tmp_path, [("id", "n"), ("x", 1)])
    out = tmp_path / "out"
    message = refused(2, tmp_path / "in", out, *options[:2])
    assert "--id-column" in message
    assert "id, n" in message
    assert "id, n" in refused(2, tmp_path / "in", out, *options[:3], "idd")
    absent = ("--labels", tmp_path / "no.csv", "--id-column", "id")
    assert "no.csv" in refused(2, tmp_path / "in", out, *absent)
    assert "folders of images" in refused(2, tmp_path / "t.csv", out, *options)
    options = labelled(tmp_path, [("id", "height"), ("x", 1)])
    message = refused(2, tmp_path / "in", out, *options)
    assert "'height' (read off each image) and 'height'" in message
    assert "--drop" in message


def test_a_changed_table_is_another_job(tmp_path: Folder) -> None:
    """The table decides bytes, so its state is among the inputs."""
    write_images(tmp_path / "in", NAMES)
    options = ("--labels", tmp_path / "t.csv", "--id-column", "id", "--overwrite")
    digests = []
    for value in (1, 2):
        write_rows(tmp_path / "t.csv", [("id", "n"), *((s, value) for s in stems())])
        convert(tmp_path / "in", tmp_path / "out", *options)
        digests.append(manifest(tmp_path / "out")["run"]["job"])
    assert digests[0] != digests[1]


def labels_of(directory: Folder) -> list[str]:
    """Returns the names of the features that are to be predicted."""
    found = features(directory)
    return [name for name, feature in found.items() if feature.get("is_label")]


@pytest.mark.parametrize("values", [(3, 1, 2, 3), ("a", "b", "a", "c")])
def test_the_only_other_column_is_the_label(
    tmp_path: Folder, values: tuple[object, ...]
) -> None:
    """As if it were named: the same bytes, in `convert`, `schema` and Python."""
    write_images(tmp_path / "in", NAMES)
    rows = zip(stems(), values, strict=True)
    labels = write_rows(tmp_path / "t.csv", [("id", "kind"), *rows])
    options = ("--labels", labels, "--id-column", "id")
    convert(tmp_path / "in", tmp_path / "a", *options)
    convert(tmp_path / "in", tmp_path / "b", *options, "--label-column", "kind")
    assert labels_of(tmp_path / "a") == ["kind"]
    digests = {manifest_of(tmp_path / name).digest for name in "ab"}
    beam_pipeline.convert(
        tmp_path / "in", tmp_path / "c", labels=str(labels), id_column="id"
    )
    assert digests == {manifest_of(tmp_path / "c").digest}
    said = command("spec", tmp_path / "in", *options)
    assert "label: true" in said.out or "kind: label" in said.out


def test_of_several_columns_one_is_named(tmp_path: Folder) -> None:
    """Without a word they are listed; ids, groups and what is dropped are no labels."""
    write_images(tmp_path / "in", NAMES)
    rows = [(stem, "x", n, n % 2) for n, stem in enumerate(stems())]
    options = labelled(tmp_path, [("id", "kind", "age", "who"), *rows])
    message = refused(2, tmp_path / "in", tmp_path / "out", *options)
    assert "'kind', 'age', 'who'" in message
    assert "--label-column" in message
    assert "--unlabelled" in message
    more = ("--group-column", "who", "--drop", "age", "--splits", "train=0.5,test=0.5")
    convert(tmp_path / "in", tmp_path / "a", *options, *more)
    assert labels_of(tmp_path / "a") == ["kind"]
    convert(tmp_path / "in", tmp_path / "b", *options, "--unlabelled")
    assert labels_of(tmp_path / "b") == []
    assert {"kind", "age", "who"} <= set(features(tmp_path / "b"))
    (tmp_path / "s.yaml").write_text("features: {age: {kind: label, label: true}}\n")
    convert(tmp_path / "in", tmp_path / "c", *options, "--spec", tmp_path / "s.yaml")
    assert labels_of(tmp_path / "c") == ["age"]
    ids = write_rows(tmp_path / "ids.csv", [("id",), *((stem,) for stem in stems())])
    message = refused(
        2, tmp_path / "in", tmp_path / "out", "--labels", ids, "--id-column", "id"
    )
    assert "it has none" in message


@pytest.mark.parametrize("place", ["in", ".", "in/meta"])
@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_a_table_that_fits_is_pointed_at(
    place: str, suffix: str, tmp_path: Folder
) -> None:
    """In the folder, beside or below: the command that is printed does it."""
    write_images(
        tmp_path / "in", [f"x y/{name}" for name in ("a.jpg", "b.jpg", "c.jpg")]
    )
    (tmp_path / "in" / "x y" / "a.jpg").rename(tmp_path / "in" / "a.jpg")
    (tmp_path / place).mkdir(exist_ok=True)
    other = write_rows(tmp_path / place / "aaa.csv", [("id", "n"), ("z", 1), ("y", 2)])
    path = tmp_path / place / f"its labels.{suffix}"
    if suffix == "csv":
        write_rows(path, [("n", "name"), (1, "a"), (2, "b"), (3, "c"), (4, "gone")])
    else:
        lines = [{"n": n, "name": name} for n, name in enumerate("abc")]
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    message = refused(4, tmp_path / "in", tmp_path / "out")
    assert str(other) not in message
    words = shlex.split(message.partition("try: beam-tfrecord ")[2])
    assert words[-4:] == ["--id-column", "name", "--label-column", "n"]
    run = command(*words, "--max-reject-rate", "0.5")
    assert run.code == 0, run.err
    assert len(first_values(tmp_path / "out")) == 3


def test_no_table_is_pointed_at_where_none_fits(tmp_path: Folder) -> None:
    """Other ids, no ids, what is damaged and what is no file are no hints."""
    write_images(tmp_path / "in", ["a.jpg", "b.jpg"])
    write_rows(tmp_path / "other.csv", [("id", "n"), ("z", 1)])
    (tmp_path / "empty.csv").write_bytes(b"")
    (tmp_path / "header.csv").write_bytes(b"id,n\n")
    rows = [("id", "late"), *((number, "") for number in range(2500)), (1, 7)]
    write_rows(tmp_path / "late.csv", rows)
    (tmp_path / "damaged.parquet").write_bytes(b"PAR1")
    (tmp_path / "latin.csv").write_bytes(b"id,n\na,\xe9\n")
    (tmp_path / "folder.csv").mkdir()
    os.mkfifo(tmp_path / "pipe.csv")
    assert "try:" not in refused(4, tmp_path / "in", tmp_path / "out")


def test_images_without_labels(tmp_path: Folder) -> None:
    """A flat folder, and one of any depth; the features but the label, and splits."""
    images = write_images(tmp_path / "flat", ["a.jpg", "b.jpg", "c.jpg"])
    assert "--unlabelled" in refused(4, tmp_path / "flat", tmp_path / "out")
    convert(tmp_path / "flat", tmp_path / "out", "--unlabelled")
    found = {r["filename"].decode(): r for r in first_values(tmp_path / "out")}
    assert {name: record["image"] for name, record in found.items()} == images
    assert list(features(tmp_path / "out")) == [
        *("image", "filename", "height", "width", "depth")
    ]
    assert command("verify", tmp_path / "out").code == 0
    write_images(tmp_path / "deep", ["a.jpg", "x/y/z/b.jpg", "x/c.jpg"])
    convert(tmp_path / "deep", tmp_path / "deeper", "--unlabelled", "--splits", "a=1")
    assert len(first_values(tmp_path / "deeper")) == 3
    write_images(tmp_path / "split", ["train/a.jpg", "train/x/b.jpg", "test/c.jpg"])
    beam_pipeline.convert(tmp_path / "split", tmp_path / "s", unlabelled=True)
    names = [path.name for path in sorted((tmp_path / "s").glob("*.tfrecord-*"))]
    assert [name.split(".")[0] for name in names] == ["split-test", "split-train"]
    both = ("--unlabelled", "--label-column", "x")
    assert "exclude" in refused(2, tmp_path / "flat", tmp_path / "out2", *both)
    labels = write_rows(tmp_path / "t.csv", [("id", "n"), ("x", 1)])
    message = refused(2, labels, tmp_path / "out2", "--unlabelled")
    assert "folders of images" in message


@pytest.mark.parametrize("place", ["inside", "above"])
def test_one_folder_beside_its_label_table(place: str, tmp_path: Folder) -> None:
    """It is no class: the table is proposed, and the command that is shown works."""
    own = tmp_path / "own"
    write_images(own / "pics", ["1.jpg", "2.jpg"])
    write_rows(
        own / "labels.csv", [("id", "rank", "kind"), ("1", 7, "x"), ("2", 8, "y")]
    )
    source = own if place == "inside" else own / "pics"
    message = refused(4, source, tmp_path / "out")
    words = shlex.split(message[message.rindex("beam-tfrecord") :].partition(" (or")[0])
    assert words[2] == str(own / "pics")
    convert(*words[2:])
    found = {r["id"]: r["kind"] for r in first_values(tmp_path / "out")}
    assert found == {b"1": b"x", b"2": b"y"}
    if place == "inside":
        convert(source, tmp_path / "class", "--format", "images")
        assert [r["label"] for r in first_values(tmp_path / "class")] == [0, 0]


@pytest.mark.parametrize(
    ("form", "between", "name"),
    [
        ("{}.JPEG", " ", "val.txt"),
        ("{}.JPEG", ";", "val_labels.csv"),
        ("{}", ",", "val.tsv"),
        ("{}", "\t", "val.txt"),
    ],
)
def test_a_list_of_images_and_labels(
    form: str, between: str, name: str, tmp_path: Folder
) -> None:
    """Its first line is an image of the tree, and so no header; all rows are read."""
    write_images(tmp_path / "val", ["v_01.JPEG", "v_02.JPEG"])
    lines = [f"{form.format(f'v_0{n}')}{between}{n * 37}\n" for n in (1, 2)]
    (tmp_path / name).write_text("".join(lines))
    convert(tmp_path / "val", tmp_path / "out", "--labels", tmp_path / name)
    found = {r["filename"]: r["label"] for r in first_values(tmp_path / "out")}
    assert found == {b"v_01.JPEG": 37, b"v_02.JPEG": 74}


def test_a_list_has_the_names_that_are_given(tmp_path: Folder) -> None:
    """A header that is no image stays one; without it columns are named by options."""
    write_images(tmp_path / "in", ["id.jpg", "b.jpg"])
    options = ("--id-column", "id", "--label-column", "n", "--labels")
    listed = write_rows(tmp_path / "a.csv", [("id", 5), ("b", 6)])
    headed = write_rows(tmp_path / "b.csv", [("id", "n"), ("id", 5), ("b", 6)])
    convert(tmp_path / "in", tmp_path / "a", "--labels", listed, "--label-column", "n")
    convert(tmp_path / "in", tmp_path / "b", *options, headed)
    for out in ("a", "b"):
        found = {r["id"]: r["n"] for r in first_values(tmp_path / out)}
        assert found == {b"id": 5, b"b": 6}
