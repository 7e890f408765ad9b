"""COCO, Pascal VOC, YOLO, tables of boxes and LabelMe from end to end."""

import io
import json
import pathlib
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.support import coco
from tests.support.box_layouts import IMAGES, LAYOUTS, expected_boxes, write_layout
from tests.support.format_sources import (
    BOXES,
    OBJECT,
    job_digest,
    marked,
    write_coco,
)
from tests.support.outputs import account, payloads, records, rejects, split_sizes
from tests.support.runs import command, convert, refused
from tests.support.sources import write_files
from tests.support.voc import example

Folder = pathlib.Path
TOLERANT = ("--max-reject-rate", "1")


def test_coco_images_that_are_missing_or_of_another_size(tmp_path: Folder) -> None:
    """Boxes would be misplaced, so both images are rejected with their boxes."""
    root = write_coco(tmp_path / "in", BOXES)
    (root / f"val2017/{2:012d}.jpg").unlink()
    (root / f"val2017/{3:012d}.jpg").write_bytes(marked((48, 64), (1, 1, 9, 9)))
    convert(root, tmp_path / "out", *TOLERANT)
    assert [(r["row"], r["reason"]) for r in rejects(tmp_path / "out")] == [
        (2, "unreadable"),
        (3, "size_mismatch"),
    ]
    boxes = {"read": 4, "written": 2, "rejected": 0, "gone": 2}
    assert account(tmp_path / "out")["parts"] == {"boxes": boxes}
    message = refused(2, root, tmp_path / "b", "--resize", "crop:32x32")
    assert "crop would cut boxes away" in message
    # Without the images, the rest of what is known can still be had.
    convert(root, tmp_path / "c", "--drop", "image/encoded")
    assert len(payloads(tmp_path / "c")) == 3
    convert(root, tmp_path / "d", "--drop", f"{OBJECT}/bbox", *TOLERANT)
    assert "parts" not in account(tmp_path / "d")


def test_boxes_move_with_their_images(tmp_path: Folder) -> None:
    """Where pixels are turned and padded, the box is still around the white part."""
    root = write_coco(tmp_path / "in", BOXES)
    exif = Image.Exif()
    exif[274] = 6
    for number, box in enumerate(BOXES, start=1):
        turned = marked((64, 48), box, exif=exif)
        (root / f"val2017/{number:012d}.jpg").write_bytes(turned)
    options = ("--exif", "apply", "--resize", "pad:96x80:enlarge")
    convert(root, tmp_path / "out", *options)
    for row in records(tmp_path / "out"):
        with Image.open(io.BytesIO(row["image/encoded"][0])) as image:
            assert image.getexif().get(274, 1) == 1
            white = np.array(image.convert("L")) > 128
        ys, xs = np.flatnonzero(white.any(1)), np.flatnonzero(white.any(0))
        height, width = white.shape
        assert [row["image/height"], row["image/width"]] == [[height], [width]]
        sides = [row[f"{OBJECT}/bbox/{s}"][0] for s in ("xmin", "ymin", "xmax", "ymax")]
        seen = [xs[0], ys[0], xs[-1] + 1, ys[-1] + 1]
        assert np.allclose(np.multiply(sides, [width, height] * 2), seen, atol=1.6)


def test_the_lists_of_voc_are_inputs(tmp_path: Folder) -> None:
    """Another list of the images of a split is another job."""
    root = example(tmp_path / "VOC2007")
    lists = root / "ImageSets/Main/val.txt"
    write_files(root, {"ImageSets/Main/val.txt": b"2007_02\n"})
    before = job_digest(root, tmp_path / "out")
    lists.write_text("2007_03\n")
    assert job_digest(root, tmp_path / "out") != before


def test_too_many_bad_boxes_commit_nothing(tmp_path: Folder) -> None:
    """Each time: the first box and the rate are named, the rejects are left beside."""
    source = write_coco(tmp_path / "in", [*BOXES, (8, 8, 0, 16)])
    out, rate = tmp_path / "out", "0.2"
    report = tmp_path / "report.json"
    for _ in range(2):
        message = refused(3, source, out, "--report-json", report)
        assert message.endswith(f"--max-reject-rate {rate}.\n")
        assert "bad_box: " in message
        assert "instances_val2017.json, row 4: annotation 4" in message
        assert not out.exists()
        found = json.loads(report.read_text())
        boxes = found["parts"]["boxes"]
        assert (boxes["read"], boxes["rejected"]) == (5, 1)
        (left,) = (tmp_path / "out.rejects.jsonl").read_text().splitlines()
        assert json.loads(left)["part"] == "boxes"
    shown = command("rejects", out).out
    assert "1 boxes rejected alone" in shown
    convert(source, out, "--max-reject-rate", rate)
    assert account(out)["parts"] == {"boxes": boxes}
    assert not (tmp_path / "out.rejects.jsonl").exists()
    # The rate is no part of the digest: it is looked at where nothing is done.
    refused(3, source, out, "--max-reject-rate", 0)
    convert(source, out)


def _instances(name: str, *numbers: int, **more: Any) -> tuple[str, str]:
    """Returns the path and the text of a file of one box in each image."""
    images = [coco.image(n, file_name=f"{n}.jpg") for n in numbers]
    boxes = [coco.box(n, n, **more) for n in numbers]
    dogs = [{"id": 1, "name": "dog"}]
    return name, json.dumps(coco.coco(images, boxes, categories=dogs))


def _captions(name: str, *numbers: int) -> tuple[str, str]:
    content = json.loads(_instances(name, *numbers)[1])
    content["annotations"] = [
        {"id": n, "image_id": n, "caption": "a dog"} for n in numbers
    ]
    return name, json.dumps(content)


def _write(root: Folder, *listed: tuple[str, str]) -> Folder:
    """Writes JSON files and three images in a folder that looks like a class."""
    images = {f"images/{n}.jpg": marked((64, 48), (8, 12, 16, 24)) for n in (1, 2, 3)}
    texts = {name: text.encode() for name, text in listed}
    return write_files(root, images | texts)


KEY_POINTS = {"keypoints": [9, 9, 2], "num_keypoints": 1}


def test_the_files_of_cocos_own_folder(tmp_path: Folder) -> None:
    """Of several files of each image those with boxes are read, and the rest named."""
    root = _write(
        tmp_path / "in",
        _captions("annotations/captions_train.json", 1, 2),
        _instances("annotations/instances_train.json", 1, 2),
        _instances("annotations/instances_val.json", 3),
        _instances("annotations/person_keypoints_train.json", 1, 2, **KEY_POINTS),
    )
    run = convert(root, tmp_path / "out")
    assert split_sizes(tmp_path / "out") == {"train": 2, "validation": 1}
    assert account(tmp_path / "out")["skipped"] == {"not_selected": 2}
    assert "captions_train.json" in run.out
    message = refused(4, root / "annotations/captions_train.json", tmp_path / "b")
    assert "captions" in message


@pytest.mark.parametrize(
    "name", ["annotations/person_keypoints_train.json", "x.json", "captions_1.json"]
)
def test_boxes_of_a_file_of_any_name(tmp_path: Folder, name: str) -> None:
    """What a file holds says that it is COCO's; key points are stored."""
    path, text = _instances(name, 1, 2, 3, **KEY_POINTS)
    text = '{"note": {"images": "' + "x" * 9000 + '"}, ' + text[1:]
    convert(_write(tmp_path / "in", (path, text)), tmp_path / "out")
    for row in records(tmp_path / "out"):
        assert row[f"{OBJECT}/bbox/xmax"] == [0.375]
        assert row[f"{OBJECT}/class/text"] == [b"dog"]
        assert row[f"{OBJECT}/keypoint/x"] == [9 / 64]
        assert row[f"{OBJECT}/keypoint/num"] == [1]


OTHER_KINDS = {
    "results": [("a.json", '[{"image_id": 1, "bbox": [1, 2, 3, 4], "score": 0.5}]')],
    "list the same images": [
        _instances("annotations/person_keypoints_train.json", 1, 2, **KEY_POINTS),
        _instances("annotations/stuff_train.json", 1, 2),
    ],
    "CVAT": [("annotations.xml", "<annotations><version>1.1</version></annotations>")],
}


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_annotations_that_are_not_read(tmp_path: Folder, kind: str) -> None:
    """Annotations of other kinds are an error that says what they are."""
    root = _write(tmp_path / "in", *OTHER_KINDS[kind])
    message = refused(4, root, tmp_path / "out")
    assert kind in message
    assert all(path in message for path, _ in OTHER_KINDS[kind])


@pytest.mark.parametrize("size", ["stored", "turned", "absent", "square"])
@pytest.mark.parametrize("apply", [False, True])
def test_boxes_and_exif(tmp_path: Folder, size: str, apply: bool) -> None:
    """Boxes are of the view whose size is stated; else of the one that is stored."""
    stored = (48, 48) if size == "square" else (64, 48)
    exif = Image.Exif()
    exif[274] = 6
    root = tmp_path / "in"
    content = json.loads(_instances("", 1)[1])
    stated = stored[::-1] if size == "turned" else stored
    if size != "absent":
        content["images"][0].update(width=stated[0], height=stated[1])
    else:
        del content["images"][0]["width"]
    turned = marked(stored, (8, 12, 16, 24), exif=exif)
    tree = {"1.jpg": turned, "a.json": json.dumps(content).encode()}
    write_files(root, tree)
    options = ("--exif", "apply") if apply else ()
    if size == "turned" and not apply:
        message = refused(3, root, tmp_path / "out", *options)
        assert "size_mismatch" in message
        assert "orientation 6" in message
        assert "--exif apply" in message
        return
    run = convert(root, tmp_path / "out", *options)
    (row,) = records(tmp_path / "out")
    sides = [row[f"{OBJECT}/bbox/{s}"][0] for s in ("xmin", "ymin", "xmax", "ymax")]
    width, height = stored[::-1] if apply else stored
    if apply and size == "stored":
        # Turned with the pixels: x of the result counts from the lower edge before.
        expected = [(48 - 36) / 48, 8 / 64, (48 - 12) / 48, 24 / 64]
    else:
        expected = [8 / width, 12 / height, 24 / width, 36 / height]
    assert np.allclose(sides, expected, atol=1e-6)
    assert "EXIF turns 1 image" in run.out


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", _instances("", 1)[1].replace("1.jpg", r"images\\1.jpg")),
        ("a.csv", "image,width\nimages\\1.jpg,5\n"),
        ("a.csv", "TRAIN,images\\1.jpg,dog,.1,.1,,,.5,.5,,\n"),
        ("a.jsonl", '{"image": "images\\\\1.jpg", "n": 1}\n'),
        ("l.csv", "id,label\nimages\\1.jpg,dog\n"),
    ],
)
def test_backslashes_between_folders(tmp_path: Folder, name: str, text: str) -> None:
    """A path as Windows writes it names the image, wherever the path comes from."""
    root = _write(tmp_path / "in", (name, text))
    for number in (2, 3):
        (root / f"images/{number}.jpg").unlink()
    options = []
    if "width\n" in text or name == "a.jsonl":
        options = ["--format", name.partition(".")[2]]
    if name == "l.csv":
        options = ["--labels", str(root / name), "--id-column", "id"]
    convert(root, tmp_path / "out", *options)
    (row,) = records(tmp_path / "out")
    key = next(key for key in row if key in ("image", "image/encoded", "image_raw"))
    assert row[key] == [(root / "images/1.jpg").read_bytes()]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout: str, tmp_path: Folder) -> None:
    """Images come as they are, with boxes, classes from 1 and a label map."""
    root = write_layout(tmp_path / "in", layout)
    run = convert(root, tmp_path / "out")
    found = records(tmp_path / "out")
    assert len(found) == len(IMAGES)
    for row in found:
        name = row["image/filename"][0].decode()
        assert row["image/encoded"] == [next(root.rglob(name)).read_bytes()]
        assert (row["image/width"], row["image/height"]) == ([40], [20])
        sides = [row[f"{OBJECT}/bbox/{s}"] for s in ("xmin", "ymin", "xmax", "ymax")]
        assert [list(box) for box in zip(*sides, strict=True)] == expected_boxes(name)
        texts = [name.decode() for name in row[f"{OBJECT}/class/text"]]
        labels = {"cat": 1, "dog": 2}
        assert row[f"{OBJECT}/class/label"] == [labels[text] for text in texts]
    map_text = (tmp_path / "out/label_map.pbtxt").read_text()
    assert "id: 1\n  name: 'cat'" in map_text
    assert run.err == ""
    assert account(tmp_path / "out")["parts"]["boxes"]["written"] == 3


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_change_of_an_annotation_is_seen(layout: str, tmp_path: Folder) -> None:
    """A second run reads it; else the dataset would be old without a word."""
    root = write_layout(tmp_path / "in", layout)
    before = job_digest(root, tmp_path / "out")
    kinds = (".txt", ".csv", ".json")
    path = next(p for p in sorted(root.rglob("*")) if p.suffix in kinds)
    text = path.read_text()
    if layout == "labelme":
        text = json.dumps(json.loads(text) | {"shapes": []})
    else:
        first, _, *others = text.splitlines()
        text = "\n".join([first, *others]) + "\n"
    path.write_text(text)
    assert job_digest(root, tmp_path / "out") != before
