"""YOLO labels: lines, all styles of data.yaml, Darknet, splits, what is bad."""

import os
import pathlib
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.detection import (
    Read,
    decoded,
    float32,
    planned,
    read_planned,
    write_image,
)
from transforms.errors import InputError, SpecError
from transforms.formats.detection import boxed_images, yolo
from transforms.formats.detection.yolo import YoloReader

Folder = pathlib.Path
NAMES = "nc: 2\nnames: [cat, dog]\n"
SPLITS = "train: images/train\nval: images/val\n"
BOX = "0 0.5 0.5 0.5 0.5\n"


def write(root: Folder, labels: Mapping[str, str | bytes], **texts: str) -> Folder:
    """Writes an image for each label, and texts by their names (__ for a point)."""
    for path, label in labels.items():
        write_image(root / path, (40, 20))
        parts = path.rpartition(".")[0].split("/")
        if "images" in parts:
            at = len(parts) - 1 - parts[::-1].index("images")
            parts[at] = "labels"
        text = root / ("/".join(parts) + ".txt")
        text.parent.mkdir(parents=True, exist_ok=True)
        data = label.encode() if isinstance(label, str) else label
        text.write_bytes(data)
    for name, content in texts.items():
        (root / name.replace("__", ".")).write_text(content)
    return root


def one(root: Folder, label: str | bytes, config: str = NAMES + SPLITS) -> Read:
    """Returns what one label gives, beside a good one."""
    labels = {"images/train/a.jpg": label, "images/train/b.jpg": BOX}
    return read_planned(write(root, labels, data__yaml=config), max_reject_rate=1)


def boxes(found: Read, name: str = "a.jpg") -> Any:
    return found.by_name[name]["image/object/bbox"]


def reasons(found: Read) -> list[tuple[str, int | None, str, str]]:
    return [(r.source, r.line, r.reason, r.part) for r in found.rejections]


def splits_of(found: Read) -> dict[str, str | None]:
    return {row["image/encoded"]: row["split"] for row in found.rows}


def test_rows_by_hand(tmp_path: Folder) -> None:
    """Boxes are corners in fractions, class ids the numbers and one more."""
    found = one(tmp_path, "1 0.25 0.5 0.5 1.0\n0 0 0 1 0 1 1\n0.0 .5 .5 1 1")
    assert found.rejections == []
    row = found.by_name["a.jpg"]
    assert row.pop("image/object/bbox") == [[0, 0, 0.5, 1], [0, 0, 1, 1], [0, 0, 1, 1]]
    assert row == {
        "image/encoded": "images/train/a.jpg",
        "image/filename": "a.jpg",
        "image/source_id": "a.jpg",
        "image/object/class/text": ["dog", "cat", "cat"],
        "image/object/class/label": [2, 1, 1],
        "split": "train",
        "number": 0,
        "origin": "images/train/a.jpg",
    }
    assert planned(tmp_path).label_map == {1: "cat", 2: "dog"}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("0 1.5 0.5 0.2 0.2", "bad_box"),
        ("0 nan 0.5 0.1 0.2", "bad_box"),
        ("0 20 10 8 4", "bad_box"),
        ("2 0.5 0.5 0.2 0.2", "unknown_label"),
        ("-1 0.5 0.5 0.2 0.2", "malformed"),
        ("0.5 0.5 0.5 0.2 0.2", "malformed"),
        ("x 0.1 0.1 0.1 0.1", "malformed"),
        ("1e300 0.1 0.1 0.1 0.1", "malformed"),
        ("0 1_0 0.1 0.1 0.1", "malformed"),
        ("0 0.5 0.5 0.2 0.2 0.9", "malformed"),
        ("0 0.5 0.5 0.2", "malformed"),
        ("0 0.1 0.1 0.2 0.2 0.3 0.3 0.4", "malformed"),
    ],
)
def test_bad_lines(line: str, reason: str, tmp_path: Folder) -> None:
    """Each is a rejection of its own, with its file and its line."""
    found = one(tmp_path, f"{BOX}\n{line}\r\n")
    assert boxes(found) == [[0.25, 0.25, 0.75, 0.75]]
    assert reasons(found) == [("labels/train/a.txt", 3, reason, "boxes")]
    (rejection,) = found.rejections
    assert rejection.raw == f"{line}\r".encode()
    assert ("pixels" in rejection.message) == (line == "0 20 10 8 4")
    assert ("confidence" in rejection.message) == line.endswith("0.9")


def test_bad_box_settings(tmp_path: Folder) -> None:
    """`image` rejects the image with its boxes; `clip` keeps what is inside."""
    labels = {"images/train/a.jpg": BOX + "0 1 0.5 0.4 0.2\n", "images/val/b.jpg": BOX}
    root = write(tmp_path, labels, data__yaml=NAMES + SPLITS)
    found = read_planned(root, bad_box="image")
    assert reasons(found) == [("labels/train/a.txt", None, "bad_box", "")]
    assert [row["image/filename"] for row in found.rows] == ["b.jpg"]
    clipped = read_planned(root, bad_box="clip")
    assert boxes(clipped)[1] == float32(0.8, 0.4, 1, 0.6)


def test_boxes_at_the_edge(tmp_path: Folder) -> None:
    """Boxes that cross an edge by up to 0.01 are cut; lines may be twice there."""
    label = "0 0.95 0.5 0.11 0.2\n" * 2 + "0 0 0 1 0 1 1 0 1\n0 .25 .5 .5 .5 "
    found = one(tmp_path, label)
    side = float32(0.895, 0.4, 1, 0.6)
    assert boxes(found) == [side, side, [0, 0, 1, 1], [0, 0.25, 0.5, 0.75]]
    assert found.rejections == []


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("names: [cat, dog]", {1: "cat", 2: "dog"}),
        ("names:\n- cat\n- 'no'\n- yes", {1: "cat", 2: "no", 3: "yes"}),
        ("names:\n  0: cat\n  '1': dog", {1: "cat", 2: "dog"}),
        ("names: {0: cat, 5: dog}", {1: "cat", 6: "dog"}),
        ("names: {0: 1.0, 1: 007}", {1: "1.0", 2: "007"}),
        ("nc: 2", {1: "class_0", 2: "class_1"}),
        ("nc: 2\nnames:", {1: "class_0", 2: "class_1"}),
        ("names: {0: 고양이}", {1: "고양이"}),
    ],
)
def test_names(names: str, expected: dict[int, str], tmp_path: Folder) -> None:
    """Names are a list or a mapping, as they are written; `nc` alone numbers them."""
    root = write(tmp_path, {"images/train/a.jpg": BOX}, data__yaml=f"{names}\n{SPLITS}")
    assert planned(root).label_map == expected


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("nc: 3\nnames: [cat, dog]", "3"),
        ("names: [cat, cat]", "'cat'"),
        ("names: {a: cat}", "data.yaml"),
        ("names: {-1: cat}", "-1"),
        ("names: cat", "names"),
        ("names: [[cat]]", "names"),
        ("nc: many", "data.yaml"),
        ("nc: 99999999999", "nc"),
        ("names: [cat\n", "data.yaml"),
        ("names: [cat]\nkpt_shape: [2, 4]", "kpt_shape"),
        ("names: [cat]\nkpt_shape: 2", "data.yaml"),
        ("names: [cat]\nval: {a: b}", "val"),
        ("names: " + "[" * 5000, "data.yaml"),
    ],
)
def test_yaml_that_is_wrong(config: str, said: str, tmp_path: Folder) -> None:
    """What a YAML contradicts or does not say is an error that names it."""
    text = f"train: images/train\n{config}\n"
    root = write(tmp_path, {"images/train/a.jpg": BOX}, data__yaml=text)
    with pytest.raises(InputError) as error:
        planned(root)
    assert said in str(error.value)
    assert "data.yaml" in str(error.value)


def test_two_yamls(tmp_path: Folder) -> None:
    """Of two that are equally near the root, one must be named as SOURCE."""
    root = write(
        tmp_path,
        {"images/train/a.jpg": BOX, "images/val/b.jpg": BOX},
        a__yaml=f"names: [one]\n{SPLITS}",
        b__yaml=f"names: [two]\n{SPLITS}",
        args__yaml="epochs: 3\n",
    )
    with pytest.raises(InputError) as error:
        planned(root)
    assert "a.yaml" in str(error.value)
    assert "b.yaml" in str(error.value)
    assert planned(root / "b.yaml").label_map == {1: "two"}
    (root / "b.yaml").rename(root / "labels/b.yaml")
    assert planned(root).label_map == {1: "one"}


@pytest.mark.parametrize(
    "config",
    [
        "train: images/train\nval: images/val",
        "train: ../images/train\nval: ../images/val",
        "train: /content/drive/x/images/train/\nval: C:\\x\\images\\val",
        "path: ../datasets/x\ntrain: images/train\nval: images/val",
        "path: images\ntrain: train\nval: val",
        "path: .\ntrain: [images/train]\nvalidation: ['./images/val']",
        "train: train.txt\nval: val.txt",
        "train: gone/train\nval: gone/val",
    ],
)
def test_splits(config: str, tmp_path: Folder) -> None:
    """Folders, lists of them and lists of images resolve by their longest tail."""
    labels = {"images/train/a.jpg": BOX, "images/val/b.jpg": BOX}
    root = write(
        tmp_path,
        labels,
        data__yaml=f"{NAMES}{config}\n",
        train__txt="./images/train/a.jpg\n",
        val__txt="/data/x/images/val/b.jpg\n\n",
    )
    found = read_planned(root)
    assert splits_of(found) == {
        "images/train/a.jpg": "train",
        "images/val/b.jpg": "validation",
    }
    noted = " ".join(planned(root).notes)
    assert ("gone" in noted) == ("gone" in config)


def test_images_in_two_splits_and_beside_them(tmp_path: Folder) -> None:
    """The first split has it; what no split names is not selected; both are noted."""
    labels = {"images/train/a.jpg": BOX, "images/b.jpg": BOX}
    config = f"{NAMES}train: images/train\nval: images/train\ntest: list.txt\n"
    root = write(tmp_path, labels, data__yaml=config, list__txt="no.jpg\n")
    plan = planned(root)
    assert splits_of(read_planned(root)) == {"images/train/a.jpg": "train"}
    assert plan.skipped == {"not_selected": 1}
    notes = [note for note in plan.notes if "data.yaml" in note]
    assert ["no.jpg" in note for note in notes] == [True, False]
    assert "images/train/a.jpg" in notes[1]


def test_images_beside_the_folders_of_splits(tmp_path: Folder) -> None:
    """They are rejects: no split is theirs."""
    labels = dict.fromkeys(["train/a.jpg", "valid/d.jpg", "obj/b.jpg"], BOX)
    found = read_planned(write(tmp_path, labels, classes__txt="cat\ndog\n"))
    assert splits_of(found) == {"train/a.jpg": "train", "valid/d.jpg": "validation"}
    assert reasons(found) == [("obj/b.txt", None, "bad_split", "")]


def test_images_without_labels(tmp_path: Folder) -> None:
    """They have no objects; a split in which none has a label is left out."""
    labels = {"images/train/a.jpg": BOX, "images/train/empty.jpg": " \n"}
    root = write(tmp_path, labels, data__yaml=f"{NAMES}{SPLITS}test: images/test\n")
    write_image(root / "images/train/bare.jpg")
    write_image(root / "images/test/c.jpg")
    (root / "labels/train/alone.txt").write_text(BOX)
    found = read_planned(root)
    assert boxes(found, "bare.jpg") == boxes(found, "empty.jpg") == []
    assert reasons(found) == [
        ("labels/train/alone.txt", None, "label_without_image", "")
    ]
    plan = planned(root)
    assert plan.skipped == {"not_selected": 1}
    noted = " ".join(plan.notes)
    assert "images/train/bare.jpg" in noted
    assert "images/test/c.jpg" in noted
    # What a pattern leaves out is not missed.
    assert read_planned(root, exclude=["bare.jpg", "a.jpg"]).rejections == []


def test_labels_beside_images_in_capitals(tmp_path: Folder) -> None:
    """They are in Labels only where none is beside the image."""
    labels = {"Images/a.jpg": BOX, "Images/b.jpg": BOX}
    found = read_planned(write(tmp_path, labels, classes__txt="cat\n"))
    assert [len(boxes(found, name)) for name in ("a.jpg", "b.jpg")] == [1, 1]


def test_no_label_at_all(tmp_path: Folder) -> None:
    """A dataset of which no image has a label is an error."""
    write_image(tmp_path / "images/train/a.jpg")
    (tmp_path / "data.yaml").write_text(NAMES + SPLITS)
    with pytest.raises(InputError, match="labels"):
        planned(tmp_path)
    with pytest.raises(SpecError, match="images_root"):
        planned(tmp_path, images_root="images")


def test_key_points(tmp_path: Folder) -> None:
    """k points an object by kpt_shape; without them, none is labelled."""
    config = f"{NAMES}{SPLITS}kpt_shape: [2, 3]\n"
    found = one(tmp_path, "0 .5 .5 .5 .5 .4 .4 2 .9 .9 0\n0 .5 .5 .5 .5\n", config)
    row = found.by_name["a.jpg"]
    at = "image/object/keypoint/"
    expected = float32(0.4, 0, 0, 0)
    assert row[f"{at}x"] == row[f"{at}y"] == expected
    assert row[f"{at}visibility"] == [2, 0, 0, 0]
    assert row[f"{at}num"] == [1, 0]
    assert f"{at}text" not in row
    # Without a visibility, points are not labelled where both numbers are 0.
    config = f"{NAMES}{SPLITS}kpt_shape: [2, 2]\n"
    row = one(tmp_path, "0 .5 .5 .5 .5 .25 .5 0 0\n", config).by_name["a.jpg"]
    assert row[f"{at}x"] == [0.25, 0]
    assert row[f"{at}visibility"] == [2, 0]


@pytest.mark.parametrize(
    ("points", "reason"),
    [
        (".4 .4 2", "malformed"),
        (".4 .4 3 0 0 0", "bad_box"),
        (".4 .4 nan 0 0 0", "bad_box"),
        ("1.2 .4 1 0 0 0", "bad_box"),
        ("nan .4 1 0 0 0", "bad_box"),
        ("7 7 0 1.005 -0.005 1", ""),
    ],
)
def test_bad_key_points(points: str, reason: str, tmp_path: Folder) -> None:
    """Labelled points outside of the image, and other visibilities, reject the box."""
    config = f"{NAMES}{SPLITS}kpt_shape: [2, 3]\n"
    found = one(tmp_path, f"0 .5 .5 .5 .5 {points}\n", config)
    assert [r.reason for r in found.rejections] == [reason][: bool(reason)]
    if not reason:
        row = found.by_name["a.jpg"]
        assert row["image/object/keypoint/x"] == [0, 1]
        assert row["image/object/keypoint/y"] == [0, 0]
    clipped = read_planned(tmp_path, bad_box="clip")
    if points.startswith("1.2"):
        row = clipped.by_name["a.jpg"]
        assert row["image/object/keypoint/visibility"] == [0, 0]


@pytest.mark.parametrize("moved", [{"exif": "apply"}, {"resize": "pad:8x8"}])
def test_key_points_do_not_move(moved: dict[str, str], tmp_path: Folder) -> None:
    """What would move pixels is refused where there are key points."""
    config = f"{NAMES}{SPLITS}kpt_shape: [2, 2]\n"
    root = write(tmp_path, {"images/train/a.jpg": BOX}, data__yaml=config)
    with pytest.raises(SpecError, match="keypoint/x"):
        planned(root, **moved)
    names = ("x", "y", "visibility", "num")
    planned(root, **moved, drop=[f"image/object/keypoint/{name}" for name in names])


def test_darknet(tmp_path: Folder) -> None:
    """CVAT's form: names in obj.names, lists with another machine's paths."""
    labels = {f"obj_train_data/{name}.jpg": BOX for name in "abc"}
    root = write(
        tmp_path,
        labels,
        obj__names="cat\n dog \n\n",
        obj__data="classes = 2\nnames = data/obj.names\n",
        train__txt="data/obj_train_data/a.jpg\ndata/obj_train_data/b.jpg\n",
        valid__txt="data/obj_train_data/c.jpg\n",
    )
    plan = planned(root)
    assert plan.label_map == {1: "cat", 2: "dog"}
    assert list(splits_of(read_planned(root)).values()) == [
        *("train", "train", "validation")
    ]


def test_roboflow_darknet(tmp_path: Folder) -> None:
    """Names in every split, the same; others are an error that names both."""
    root = write(tmp_path, {"train/a.jpg": BOX, "valid/b.jpg": BOX})
    for split in ("train", "valid"):
        (root / split / "_darknet.labels").write_text("cat\ndog\n")
    assert planned(root).label_map == {1: "cat", 2: "dog"}
    assert [*splits_of(read_planned(root)).values()] == ["train", "validation"]
    (root / "valid/_darknet.labels").write_text("cat\ncow\n")
    with pytest.raises(InputError, match=r"train/_darknet.labels.*valid/_darknet"):
        planned(root)


def test_no_names(tmp_path: Folder) -> None:
    """The numbers of all labels are the names, and a note says so."""
    labels = {"images/a.jpg": BOX, "images/b.png": "7 .5 .5 1 1\n9 8 8 8\n"}
    root = write(tmp_path, labels)
    plan = planned(root)
    assert plan.label_map == {1: "0", 8: "7"}
    assert any("numbers" in note for note in plan.notes)
    assert splits_of(read_planned(root)) == {"images/a.jpg": None, "images/b.png": None}


@pytest.mark.parametrize("name", ["classes.txt", "labels/classes.txt", "my.names"])
def test_lists_of_names(name: str, tmp_path: Folder) -> None:
    """LabelImg, Label Studio and others write the names into a text."""
    root = write(tmp_path, {"images/a.jpg": BOX, "images/sub/b.jpg": BOX})
    (root / name).write_text("\ufeffcat\r\ndog\r\n")
    assert planned(root).label_map == {1: "cat", 2: "dog"}
    assert len(read_planned(root).rows) == 2


def test_names_that_are_no_utf_8(tmp_path: Folder) -> None:
    """They are an error that names the file, not names with marks in them."""
    root = write(tmp_path, {"images/a.jpg": BOX})
    (root / "classes.txt").write_bytes(b"caf\xe9\ndog\n")
    with pytest.raises(InputError, match=r"classes\.txt"):
        planned(root)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\xff\xfe0 .5 .5 1 1", "invalid_encoding"),
        (b"\0" * (17 << 20), "malformed"),
    ],
)
def test_labels_that_cannot_be_read(data: bytes, reason: str, tmp_path: Folder) -> None:
    """The image is rejected, with the label as its source."""
    found = one(tmp_path, data)
    assert reasons(found) == [("labels/train/a.txt", None, reason, "")]


def test_masks_of_outlines(tmp_path: Folder) -> None:
    """Outlines are drawn in pixels of the image; of a box its pixels; notes say so."""
    labels = {"images/train/a.jpg": "0 0 0 1 0 1 1\n1 0.25 0.5 0.5 1.0\n"}
    root = write(tmp_path, labels, data__yaml=NAMES + "train: images/train\n")
    found = read_planned(root, masks="all")
    triangle, box = map(decoded, found.rows[0]["image/object/mask"])
    assert triangle.shape == (20, 40)
    assert (triangle.sum(), box.sum()) == (400, 400)
    assert box[:, :20].all()
    assert "image/object/mask" not in read_planned(root).rows[0]
    assert any("--masks all" in note for note in planned(root).notes)


def test_labels_of_a_store_are_read_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Folder
) -> None:
    """Where each is a request, several are on their way."""
    labels = {f"images/train/{name}.jpg": BOX for name in "ab"}
    root = write(tmp_path, labels, data__yaml=NAMES + "train: images/train\n")
    both, load = threading.Barrier(2, timeout=10), YoloReader.load

    def loaded(*args: Any) -> Any:
        both.wait()
        return load(*args)

    with monkeypatch.context() as patched:
        for module in (yolo, boxed_images):
            patched.setattr(module, "is_remote", lambda path: True)
        patched.setattr(YoloReader, "load", loaded)
        plan = planned(root, masks="all")
    assert plan.notes == ()
    assert not both.broken


def test_masks_of_classes_in_a_folder(tmp_path: Folder) -> None:
    """They are beside the boxes; an image without one has none."""
    labels = {f"images/train/{name}.jpg": BOX for name in "ab"}
    root = write(tmp_path, labels, data__yaml=NAMES + "train: images/train\n")
    write_image(root / "masks/a.png", (40, 20))
    found = read_planned(root, masks="masks").by_name
    masks = [found[f"{n}.jpg"]["image/segmentation/class/encoded"] for n in "ab"]
    assert masks == [str(root / "masks/a.png"), None]
    (note,) = planned(root, masks="masks").notes
    assert note.startswith("1 of 2 sampled images have no class mask")


def test_masks_in_a_folder_of_the_source(tmp_path: Folder) -> None:
    """They are no images of the dataset, which nothing else describes."""
    root = write(tmp_path, {"images/a.jpg": BOX})
    write_image(root / "seg/a.png", (40, 20))
    (row,) = read_planned(root, masks="seg").rows
    assert row["image/encoded"] == "images/a.jpg"
    assert row["image/segmentation/class/encoded"] == str(root / "seg/a.png")


def test_one_outline_among_boxes(tmp_path: Folder) -> None:
    """Wherever it is, masks are stored, and notes count those without one."""
    labels = {f"images/{number:03}.jpg": BOX for number in range(40)}
    labels["images/001.jpg"] = "0 .1 .1 .5 .1 .5 .5\n"
    root = write(tmp_path, labels, data__yaml=NAMES + "train: images\n")
    assert "outlines of 1 object, or more" in planned(root).notes[0]
    (note,) = planned(root, masks="all").notes
    assert note.startswith("39 of 40 objects have no outline")
    assert all(row["image/object/mask"] for row in read_planned(root, masks="all").rows)


def test_a_list_of_a_gigabyte(tmp_path: Folder) -> None:
    """It is refused by its size, not read."""
    root = write(tmp_path, {"images/a.jpg": BOX}, obj__names="cat\n", train__txt="")
    os.truncate(root / "train.txt", 1 << 30)
    with pytest.raises(InputError, match=r"train\.txt.* has 1,073,741,824"):
        planned(root)
