"""COCO and Pascal VOC from end to end."""

import io
import json
import pathlib
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from tests.support.format_sources import (
    BOXES,
    OBJECT,
    _annotation,
    job_digest,
    marked,
    values,
    write_coco,
)
from tests.support.image_sources import write_images
from tests.support.manifest_sources import write_rows
from tests.support.outputs import account, payloads, rejects, split_sizes
from tests.support.runs import command, convert, refused
from tests.support.sources import write_files

Folder = pathlib.Path
TOLERANT = ("--max-reject-rate", "1")


@pytest.mark.parametrize(
    ("policy", "sums"),
    [
        ("box", {"read": 5, "written": 4, "rejected": 1, "gone": 0}),
        ("image", {"read": 5, "written": 3, "rejected": 0, "gone": 2}),
        ("clip", {"read": 5, "written": 5, "rejected": 0, "gone": 0}),
    ],
)
def test_fault_131_bad_boxes_from_end_to_end(
    tmp_path: Folder, policy: str, sums: dict[str, int]
) -> None:
    """Read = written + rejected + lost with any policy; no box is lost silently."""
    boxes = [*BOXES[:2], (8, 8, 16, 16)]
    root = write_coco(tmp_path / "in", boxes)
    path = root / "annotations/instances_val2017.json"
    content = json.loads(path.read_text())
    content["annotations"].append(_annotation(7, 2, (60, 40, 30, 30)))
    path.write_text(json.dumps(content))
    run = convert(root, tmp_path / "out", "--bad-box", policy, *TOLERANT)
    assert account(tmp_path / "out")["parts"] == {"boxes": sums}
    bad = [] if policy == "clip" else rejects(tmp_path / "out")
    assert [each["reason"] for each in bad] == ["bad_box"] * len(bad)
    assert len(payloads(tmp_path / "out")) == (2 if policy == "image" else 3)
    if policy == "box":
        assert "annotation 7" in bad[0]["message"]
        assert "[60, 40, 30, 30]" in bad[0]["message"]
        assert "rejected 1 of 5 boxes" in run.out
    if policy == "clip":
        found = [row for row in values(tmp_path / "out") if len(row[X_MAX]) == 2]
        assert all(row[X_MAX][-1] == 1 for row in found)


X_MAX = f"{OBJECT}/bbox/xmax"


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


@pytest.mark.parametrize(
    "options", [("--exif", "apply"), ("--resize", "pad:96x80", "--enlarge")]
)
def test_boxes_move_with_their_images(tmp_path: Folder, options: Any) -> None:
    """Where the pixels are turned or padded, the box is still around the white part."""
    root = write_coco(tmp_path / "in", BOXES)
    exif = Image.Exif()
    exif[274] = 6
    for number, box in enumerate(BOXES, start=1):
        turned = marked((64, 48), box, exif=exif)
        (root / f"val2017/{number:012d}.jpg").write_bytes(turned)
    convert(root, tmp_path / "out", *options)
    for row in values(tmp_path / "out"):
        with Image.open(io.BytesIO(row["image/encoded"][0])) as image:
            assert image.getexif().get(274, 1) == 1 or "--exif" not in options
            white = np.array(image.convert("L")) > 128
        ys, xs = np.flatnonzero(white.any(1)), np.flatnonzero(white.any(0))
        height, width = white.shape
        assert [row["image/height"], row["image/width"]] == [[height], [width]]
        sides = [row[f"{OBJECT}/bbox/{s}"][0] for s in ("xmin", "ymin", "xmax", "ymax")]
        seen = [xs[0], ys[0], xs[-1] + 1, ys[-1] + 1]
        assert np.allclose(np.multiply(sides, [width, height] * 2), seen, atol=1.6)


def write_voc(root: Folder) -> dict[str, tuple[str, tuple[int, int, int, int]]]:
    """Writes a tree as the devkit has it; returns the object of each image."""
    things = {
        "2007_000001": ("dog", (8, 12, 24, 36)),
        "2007_000002": ("고양이", (20, 4, 50, 14)),
        "2007_000003": ("dog", (0, 0, 64, 48)),
        "2007_000004": ("dog", (1, 1, 2, 2)),
    }
    for stem, (name, box) in things.items():
        top = ElementTree.Element("annotation")
        ElementTree.SubElement(top, "filename").text = f"{stem}.jpg"
        size = ElementTree.SubElement(top, "size")
        for key, value in {"width": 64, "height": 48, "depth": 3}.items():
            ElementTree.SubElement(size, key).text = str(value)
        thing = ElementTree.SubElement(top, "object")
        for key, text in {"name": name, "pose": "Left", "difficult": "1"}.items():
            ElementTree.SubElement(thing, key).text = text
        sides = ElementTree.SubElement(thing, "bndbox")
        for key, value in zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True):
            ElementTree.SubElement(sides, key).text = str(value)
        made = marked((64, 48), (1, 1, 9, 9))
        xml = ElementTree.tostring(top, encoding="utf-8")
        tree = {f"JPEGImages/{stem}.jpg": made, f"Annotations/{stem}.xml": xml}
        write_files(root, tree)
    sets = {"train": "2007_000001\n2007_000003\n", "val": "2007_000002\n"}
    lists = {f"ImageSets/Main/{name}.txt": text for name, text in sets.items()}
    write_files(root, {name: text.encode() for name, text in lists.items()})
    return things


def test_voc_with_its_image_sets(tmp_path: Folder) -> None:
    """Splits are those of ImageSets, class ids count from 1 in sorted order."""
    things = write_voc(tmp_path / "VOC2007")
    out = tmp_path / "out"
    convert(tmp_path / "VOC2007", out)
    assert split_sizes(out) == {"train": 2, "validation": 1}
    assert account(out)["skipped"] == {"not_selected": 1}
    for row in values(out):
        name, box = things[row["image/filename"][0].decode().partition(".")[0]]
        assert row[f"{OBJECT}/class/text"] == [name.encode()]
        assert row[f"{OBJECT}/class/label"] == [{"dog": 1, "고양이": 2}[name]]
        assert row[f"{OBJECT}/difficult"] == [1]
        assert row[f"{OBJECT}/view"] == [b"Left"]
        for side, value, size in zip(
            ("xmin", "ymin", "xmax", "ymax"), box, (64, 48, 64, 48), strict=True
        ):
            assert row[f"{OBJECT}/bbox/{side}"] == [pytest.approx(value / size)]
    assert "name: '고양이'" in (out / "label_map.pbtxt").read_text()
    # The lists are among the inputs: another list is another job.
    before = job_digest(tmp_path / "VOC2007", out)
    lists = tmp_path / "VOC2007/ImageSets/Main/val.txt"
    lists.write_text("2007_000004\n")
    assert job_digest(tmp_path / "VOC2007", out) != before


def bad_coco(root: Folder) -> Folder:
    return write_coco(root, [*BOXES, (8, 8, 0, 16)])


def bad_voc(root: Folder) -> Folder:
    write_voc(root)
    path = root / "Annotations/2007_000001.xml"
    path.write_text(path.read_text("utf-8").replace("<xmax>24<", "<xmax>8<"), "utf-8")
    return root


def bad_rows(root: Folder) -> Folder:
    write_images(root, ["a.png", "b.png"])
    rows = [
        ["TRAIN", name, "car", 0.1, 0.1, "", "", right, 0.2, "", ""]
        for name, right in (("a.png", 0.1), ("b.png", 0.2))
    ]
    return write_rows(root / "m.csv", rows)


@pytest.mark.parametrize(
    ("write", "counts", "place", "rate"),
    [
        (bad_coco, (5, 1), "instances_val2017.json, row 4: annotation 4", "0.2"),
        (bad_voc, (3, 1), "Annotations/2007_000001.xml: ", "0.34"),
        (bad_rows, (2, 1), "m.csv, row 1, line 1: ", "0.5"),
    ],
)
def test_too_many_bad_boxes_commit_nothing(
    tmp_path: Folder, write: Any, counts: tuple[int, int], place: str, rate: str
) -> None:
    """Each time: the first box and the rate are named, the rejects are left beside."""
    source, out = write(tmp_path / "in"), tmp_path / "out"
    report = tmp_path / "report.json"
    for _ in range(2):
        message = refused(3, source, out, "--report-json", report)
        assert message.endswith(f"--max-reject-rate {rate}.\n")
        assert "bad_box: " in message
        assert place in message
        assert not out.exists()
        found = json.loads(report.read_text())
        boxes = found["parts"]["boxes"]
        assert (boxes["read"], boxes["rejected"]) == counts
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
