"""LabelMe's JSON: shapes, groups, paths of images, what is bad."""

import base64
import io
import json
import pathlib
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.support.detection import (
    Read,
    decoded,
    float32,
    planned,
    read_planned,
    write_image,
    write_json,
)
from transforms.errors import InputError

Folder = pathlib.Path


def shape(points: Any, label: Any = "cat", kind: str | None = None, **more: Any) -> Any:
    return {"label": label, "points": points, "shape_type": kind, **more}


def write(root: Folder, *shapes: Any, name: str = "a", **more: Any) -> Folder:
    """Writes a.jpg of 40 x 20, and its file."""
    content = {
        "version": "5.4.1",
        "flags": {},
        "shapes": shapes,
        "imagePath": f"{name}.jpg",
        "imageData": None,
        "imageHeight": 20,
        "imageWidth": 40,
        **more,
    }
    write_json(root / f"{name}.json", content)
    write_image(root / f"{name}.jpg", (40, 20))
    return root


def boxes(found: Read) -> Any:
    return found.rows[0]["image/object/bbox"]


TRIANGLE = [[4, 2], [20, 2], [12, 10]]


def test_rows_by_hand(tmp_path: Folder) -> None:
    """Boxes around shapes, classes sorted from 1; the row is known by its file."""
    rectangle = shape([[40, 20], [20, 0]], "cat", "rectangle")
    root = write(tmp_path, shape(TRIANGLE, "dog"), rectangle)
    found = read_planned(root)
    assert found.rejections == []
    (row,) = found.rows
    assert row.pop("image/object/bbox") == [float32(0.1, 0.1, 0.5, 0.5), [0.5, 0, 1, 1]]
    assert row == {
        "image/encoded": "a.jpg",
        "image/filename": "a.jpg",
        "image/source_id": "a.jpg",
        "image/stated_height": 20,
        "image/stated_width": 40,
        "image/object/class/text": ["dog", "cat"],
        "image/object/class/label": [2, 1],
        "split": None,
        "number": 0,
        "origin": "a.json",
    }
    plan = planned(root)
    assert plan.label_map == {1: "cat", 2: "dog"}
    assert any("outlines of 1 object" in note for note in plan.notes)


@pytest.mark.parametrize(
    ("kind", "points", "box"),
    [
        ("circle", [[20, 10], [20, 15]], (0.375, 0.25, 0.625, 0.75)),
        ("mask", [[10, 5], [20, 15]], (0.25, 0.25, 0.5, 0.75)),
        (None, [[0, 0], [40.5, 0], [40, 20]], (0, 0, 1, 1)),
    ],
)
def test_kinds(kind: str, points: Any, box: Any, tmp_path: Folder) -> None:
    """A circle is its centre and a point of it; the default is a polygon."""
    found = read_planned(write(tmp_path, shape(points, kind=kind, mask="aGk=")))
    assert boxes(found) == [list(box)]
    assert found.rejections == []


def test_groups(tmp_path: Folder) -> None:
    """Shapes of one label and one group are one object; a bad one is none of it."""
    shapes = [
        shape([[0, 0], [10, 0], [10, 5]], group_id=1),
        shape([[0, 0], [4, 4]], "dog", "rectangle", group_id=1),
        shape([[20, 10], [40, 10], [40, 20]], group_id=1),
        shape([[20, 10]], group_id=1),
        shape([[0, 0], [4, 4]], kind="rectangle", group_id=None),
    ]
    found = read_planned(write(tmp_path, *shapes))
    assert boxes(found) == [
        [0, 0, 1, 1],
        float32(0, 0, 0.1, 0.2),
        float32(0, 0, 0.1, 0.2),
    ]
    assert [r.reason for r in found.rejections] == ["bad_box"]


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        (shape([[1, 1]], kind="point"), "unsupported_format"),
        (shape([[1, 1], [5, 5]], kind="linestrip"), "unsupported_format"),
        (shape([[1, 1], [5, 5]]), "bad_box"),
        (shape([[1, 1], [5, 5], [1]]), "bad_box"),
        (shape([[1, 1], [5, 5], [1, None]]), "bad_box"),
        (shape([[1, 1], [5, 5], [1, float("nan")]]), "bad_box"),
        (shape(None), "bad_box"),
        (shape([[1, 1], [5, 5], [1, 10**400]]), "bad_box"),
        (shape([[1, 1], [5, 5], [1, 90]]), "bad_box"),
        (shape(TRIANGLE, label=None), "missing_value"),
        (shape(TRIANGLE, label=""), "missing_value"),
        ("x", "bad_box"),
        ({}, "bad_box"),
    ],
)
def test_bad_shapes(item: Any, reason: str, tmp_path: Folder) -> None:
    """Each is a rejection of its own that numbers it."""
    found = read_planned(write(tmp_path, shape(TRIANGLE), item))
    assert len(boxes(found)) == 1
    (rejection,) = found.rejections
    assert (rejection.source, rejection.reason) == ("a.json", reason)
    assert "shape 2" in rejection.message


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("..\\images\\a.jpg", "images/a.jpg"),
        ("/home/x/images/a.jpg", "images/a.jpg"),
        ("../a.jpg", "a.jpg"),
        ("gone.jpg", "json/a.png"),
        (None, "json/a.png"),
    ],
)
def test_paths_of_images(path: str | None, expected: str, tmp_path: Folder) -> None:
    """The longest tail that is there, else the image of the file's stem."""
    write(tmp_path / "json", shape(TRIANGLE), imagePath=path)
    (tmp_path / "json/a.jpg").unlink()
    for name in ("images/a.jpg", "a.jpg", "json/a.png"):
        write_image(tmp_path / name, (40, 20))
    for source in (tmp_path, tmp_path / "json/a.json"):
        if source == tmp_path or expected.startswith("json"):
            (row,) = read_planned(source).rows
            found = row["image/encoded"]
            assert expected.endswith(found)


def test_files_that_are_others(tmp_path: Folder) -> None:
    """JSON without shapes is left out with a note; what is no JSON is rejected."""
    root = write(tmp_path / "train", shape(TRIANGLE)).parent
    write(root / "val", name="b", imageHeight=None, imageWidth=None)
    write_json(root / "config.json", {"a": 1})
    (root / "val/c.json").write_text('{"shapes": [')
    (root / "val/d.json").write_text('{"shapes": 3}')
    (root / "val/e.json").write_text("[" * 100_000)
    (root / "val/f.json").write_bytes(b"")
    found = read_planned(root)
    assert [(r["origin"], r["split"]) for r in found.rows] == [
        ("train/a.json", "train"),
        ("val/b.json", "validation"),
    ]
    assert [(r.source, str(r.reason)) for r in found.rejections] == [
        ("val/c.json", "malformed"),
        ("val/d.json", "malformed"),
        ("val/e.json", "malformed"),
        ("val/f.json", "empty_file"),
    ]
    plan = planned(root)
    assert plan.skipped["not_selected"] == 1
    assert any("config.json" in note for note in plan.notes)


def test_no_file_of_labelme(tmp_path: Folder) -> None:
    """`--format labelme` of other JSON is an error."""
    write_json(tmp_path / "a.json", {"a": 1})
    with pytest.raises(InputError, match="LabelMe"):
        planned(tmp_path, format="labelme")


def test_recognised_with_the_image_inside(tmp_path: Folder) -> None:
    """Its data may come before the path, beyond what is looked at."""
    root = write(tmp_path, shape(TRIANGLE, kind="polygon"))
    content = json.loads((root / "a.json").read_text())
    path = content.pop("imagePath")
    content |= {"imageData": "A" * 200_000, "imagePath": path}
    write_json(root / "a.json", content)
    assert len(read_planned(root).rows) == 1


def png(pixels: Any) -> str:
    data = io.BytesIO()
    Image.fromarray(np.array(pixels, np.uint8) * 255).save(data, "PNG")
    return base64.b64encode(data.getvalue()).decode()


def test_masks_of_shapes(tmp_path: Folder) -> None:
    """Polygons, circles, masks and groups are drawn; a rectangle is its pixels."""
    root = write(
        tmp_path,
        shape([[0, 0], [40, 0], [40, 20]]),
        shape([[10, 10], [15, 10]], kind="circle"),
        shape([[2, 3], [4, 4]], kind="mask", mask=png([[0, 1, 1], [1, 0, 0]])),
        shape([[0, 0], [2, 2]], kind="rectangle"),
        shape([[0, 0], [4, 0], [4, 4], [0, 4]], "dog", group_id=1),
        shape([[30, 0], [34, 4]], "dog", "rectangle", group_id=1),
    )
    found = read_planned(root, masks="all")
    masks = [decoded(data) for data in found.rows[0]["image/object/mask"]]
    triangle, circle, mask, rectangle, group = masks
    assert (triangle.shape, triangle.sum()) == ((20, 40), 400)
    assert abs(circle.sum() - np.pi * 25) < 4
    assert np.argwhere(mask).tolist() == [[3, 3], [3, 4], [4, 2]]
    assert rectangle.sum() == 4
    assert (group.sum(), group[:4, 30:34].all()) == (32, True)
    assert "image/object/mask" not in read_planned(root).rows[0]


def claiming(side: int) -> str:
    """Returns a PNG of one pixel whose header claims a square of this side."""
    data = bytearray(base64.b64decode(png([[1]])))
    data[16:24] = struct.pack(">2I", side, side)
    data[29:33] = struct.pack(">I", zlib.crc32(data[12:29]))
    return base64.b64encode(data).decode()


@pytest.mark.parametrize(
    "mask", ["", "?", png([[1] * 50]), "iVBORw0KGgo=", claiming(50_000)]
)
def test_bad_masks(mask: str, tmp_path: Folder) -> None:
    """No PNG, and one beyond the image, reject the object alone, alike in each run."""
    bad = shape([[2, 3], [4, 4]], "dog", "mask", mask=mask)
    root = write(tmp_path, bad, shape(TRIANGLE))
    found = read_planned(root, masks="all", max_reject_rate=1)
    (rejected,) = found.rejections
    assert (rejected.source, rejected.reason) == ("a.json", "bad_mask")
    # An address in it would be another one in each run.
    assert " at 0x" not in rejected.message
    assert found.rows[0]["image/object/class/text"] == ["cat"]
