"""COCO JSON: what pycocotools and TensorFlow see, every bad box, every odd file."""

import copy
import json
import os
import pathlib
import unicodedata
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.coco import EXAMPLE, box, coco, image, tree
from tests.support.detection import (
    POLICIES,
    decoded,
    inputs,
    read_all,
    source_of,
    write_image,
    write_json,
)
from transforms.core.reasons import Reason
from transforms.core.schema import Kind
from transforms.errors import SourceError
from transforms.formats.detection import coco_file
from transforms.formats.detection.coco import CocoReader
from transforms.formats.file_names import split_in_path

Folder = pathlib.Path
Json = dict[str, Any]


def read(root: Folder, **options: Any) -> Any:
    return read_all(source_of(root, CocoReader(**options), ".json"))


@pytest.fixture
def root(tmp_path: Folder) -> Folder:
    return tmp_path / "coco"


def test_rows_by_hand(root: Folder) -> None:
    """Rows are in the file's order; boxes, classes, areas and flags are parallel."""
    found = read(tree(root, EXAMPLE))
    assert found.rejections == []
    first, second, third = found.rows
    assert [first] == [
        {
            "image/encoded": "train2017/000000000009.jpg",
            "image/filename": "000000000009.jpg",
            "image/source_id": "9",
            "image/stated_height": 48,
            "image/stated_width": 64,
            "image/object/bbox": [[0, 0, 1, 1]],
            "image/object/class/text": ["person"],
            "image/object/class/label": [1],
            "image/object/is_crowd": [0],
            "image/object/area": [300.5],
            "split": "train",
            "number": 0,
            "origin": "annotations/instances_train2017.json",
        },
    ]
    name = "image/object/bbox"
    assert second[name] == [[0.125, 0.125, 0.375, 0.375], [0.5, 0.5, 1, 1]]
    assert second["image/object/class/text"] == ["car", "brush"]
    assert second["image/object/class/label"] == [3, 90]
    assert second["image/object/is_crowd"] == [0, 1]
    assert second["image/object/area"] == [300.5, 7.25]
    assert not any(value for key, value in third.items() if "/object/" in key)
    assert [row["number"] for row in (second, third)] == [1, 2]


def test_features(root: Folder) -> None:
    """The names are those of the TF Object Detection API; sizes stated are internal."""
    source = source_of(tree(root, EXAMPLE), CocoReader(), ".json")
    schema = source.schema
    keys = [key for feature in schema.stored for key in feature.record_keys]
    assert keys == [
        "image/encoded",
        "image/filename",
        "image/source_id",
        "image/height",
        "image/width",
        "image/format",
        "image/key/sha256",
        *(f"image/object/bbox/{side}" for side in ("xmin", "ymin", "xmax", "ymax")),
        "image/object/class/text",
        "image/object/class/label",
        "image/object/is_crowd",
        "image/object/area",
    ]
    assert schema["image/encoded"].kind is Kind.IMAGE
    assert schema["image/key/sha256"].derived == "sha256"
    assert schema["image/stated_width"].internal


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_pycocotools_sees_the_same(tmp_path: Folder, data: st.DataObject) -> None:
    """For good files pycocotools has the same boxes, classes, areas, flags by image."""
    tools = pytest.importorskip("pycocotools.coco")
    ids = data.draw(
        st.lists(st.integers(0, 10**6), min_size=1, max_size=5, unique=True)
    )
    corner = st.integers(0, 30).map(lambda n: n / 2)
    annotations = data.draw(
        st.lists(
            st.builds(
                lambda of, x, y, w, h, category, area, crowd: box(
                    0, of, [x, y, w, h], category_id=category, area=area, iscrowd=crowd
                ),
                st.sampled_from(ids),
                corner,
                corner,
                st.integers(2, 40).map(float),
                st.integers(2, 30).map(float),
                st.sampled_from([1, 3, 90]),
                st.floats(0, 1e6, width=32),
                st.integers(0, 1),
            ),
            max_size=12,
        )
    )
    for number, item in enumerate(annotations):
        item["id"] = number
    folder = tmp_path / str(len(list(tmp_path.iterdir())))
    tree(folder, coco([image(i) for i in ids], annotations))
    oracle = tools.COCO(str(folder / "annotations/instances_train2017.json"))
    found = read(folder)
    assert found.rejections == []
    assert [row["image/source_id"] for row in found.rows] == [str(i) for i in ids]
    for row in found.rows:
        number = int(row["image/source_id"])
        wanted = oracle.loadAnns(oracle.getAnnIds(imgIds=[number]))
        names = [c["name"] for a in wanted for c in oracle.loadCats(a["category_id"])]
        assert row["image/object/class/text"] == names
        assert row["image/object/class/label"] == [a["category_id"] for a in wanted]
        assert row["image/object/is_crowd"] == [a["iscrowd"] for a in wanted]
        assert row["image/object/area"] == [a["area"] for a in wanted]
        boxes = [np.array(a["bbox"]) for a in wanted]
        shares = [
            np.concatenate([b[:2], b[:2] + b[2:]]) / [64, 48, 64, 48] for b in boxes
        ]
        got = [np.array(b, np.float32) for b in row["image/object/bbox"]]
        assert [b.tolist() for b in got] == [
            s.astype(np.float32).tolist() for s in shares
        ]


BAD_BOXES = {
    "[60, 0, 10, 10]": "[60, 0, 10, 10]",
    "[8, 8, 0, 10]": "[8, 8, 0, 10]",
    "[8, 8, 4, -1e3]": "[8, 8, 4, -1000]",
    "[NaN, 1, 2, 3]": "[nan, 1, 2, 3]",
    "[1, Infinity, 2, 3]": "[1, inf, 2, 3]",
    "[1, null, 2, 3]": "[1, nan, 2, 3]",
    "[1, 2, 3]": "[1.0, 2.0, 3.0]",
    "[]": "[]",
    "null": "None",
}


@pytest.mark.parametrize(("text", "shown"), BAD_BOXES.items())
@pytest.mark.parametrize("policy", POLICIES)
def test_fault_131_bad_boxes(root: Folder, text: str, shown: str, policy: str) -> None:
    """A bad box is a reject of its own, or takes its image with it; or is clipped."""
    bad = json.loads(text)
    content = coco([image(1), image(2)], [box(5, 1), box(6, 1, bad), box(7, 2)])
    found = read(tree(root, content), bad_box=policy)
    boxes = [len(row["image/object/bbox"]) for row in found.rows]
    if policy == "clip" and text == "[60, 0, 10, 10]":
        assert boxes == [2, 1]
        assert found.rejections == []
        return
    (rejection,) = found.rejections
    assert rejection.reason is Reason.BAD_BOX
    assert rejection.row == 1
    assert rejection.source == "annotations/instances_train2017.json"
    assert "annotation 6" in rejection.message
    assert shown in rejection.message
    assert ("64 x 48" in rejection.message) == (len(bad or ()) == 4)
    assert len(rejection.sha256) == 64
    if policy == "image":
        assert rejection.part == ""
        assert "000000000001.jpg" in rejection.message
        assert boxes == [1]
        assert [row["number"] for row in found.rows] == [1]
    else:
        assert rejection.part == "boxes"
        assert boxes == [1, 1]


def test_boxes_of_nothing(root: Folder) -> None:
    """A box of an unknown image or class is a reject that names it."""
    content = coco(
        [image(1)],
        [box(5, 4), box(6, 1, category_id=2), box(7, 1), box(8, None)],
    )
    found = read(tree(root, content))
    assert [len(row["image/object/bbox"]) for row in found.rows] == [1]
    assert [(r.part, r.row, r.reason) for r in found.rejections] == [
        ("boxes", None, Reason.BAD_BOX),
        ("boxes", None, Reason.BAD_BOX),
        ("boxes", 1, Reason.UNKNOWN_LABEL),
    ]
    messages = [r.message for r in found.rejections]
    assert "annotation 5" in messages[0]
    assert "image 4" in messages[0]
    assert "category 2" in messages[2]


def test_area_and_crowd_that_are_not_stated(root: Folder) -> None:
    """Crowd is 0 then, the area that of the box; an area that is no number is bad.

    An annotation's id says nothing: two boxes of one id are two boxes.
    """
    content = coco(
        [image(1), image(2, width=None)],
        [
            {"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 2, 3.5, 4]},
            box(1, 1, area=None, iscrowd=None),
            box(3, 1, area=float("inf")),
        ],
    )
    found = read(tree(root, content))
    assert found.rows[0]["image/object/area"] == [14.0, 384.0]
    assert found.rows[0]["image/object/is_crowd"] == [0, 0]
    # Nothing of the second image is divided by its size, so it is not missing.
    assert found.rows[1]["image/stated_width"] is None
    assert ["area" in r.message for r in found.rejections] == [True]


@pytest.mark.parametrize(
    ("change", "reason", "shown"),
    [
        ({"width": -64}, Reason.OUT_OF_RANGE, "width -64"),
        ({"height": 47.5}, Reason.OUT_OF_RANGE, "height 47.5"),
        ({"id": None}, Reason.MISSING_VALUE, "no id"),
        ({"file_name": None}, Reason.MISSING_VALUE, "no file_name"),
        ({"file_name": ""}, Reason.MISSING_VALUE, "no file_name"),
    ],
)
def test_images_that_are_no_rows(
    root: Folder, change: Json, reason: Reason, shown: str
) -> None:
    """An image that lacks a required value is rejected, and its boxes are lost."""
    content = coco([image(1, **change), image(2)], [box(5, 1), box(6, 2)])
    found = read(tree(root, content))
    rejection = next(r for r in found.rejections if not r.part)
    assert (rejection.reason, rejection.row) == (reason, 1)
    assert shown in rejection.message
    assert [row["number"] for row in found.rows] == [1]
    # The box of an image without an id is of no image.
    strays = 1 if "id" in change else 0
    assert sum(bool(r.part) for r in found.rejections) == strays


@pytest.mark.parametrize("stated", [None, 0, "", "0", "?"])
@pytest.mark.parametrize("sides", [("width",), ("width", "height")])
@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "bmp", "tif"])
def test_sizes_of_the_images_themselves(
    root: Folder, sides: tuple[str, ...], stated: Any, suffix: str
) -> None:
    """A size that is not stated is the image's own, in any format."""
    lacking = dict.fromkeys(sides, stated)
    content = coco([image(1, file_name=f"1.{suffix}", **lacking)], [box(5, 1)])
    (row,) = read(tree(root, content)).rows
    assert row["image/object/bbox"] == [[0.125, 0.25, 0.375, 0.75]]
    assert (row["image/stated_width"], row["image/stated_height"]) == (64, 48)


@pytest.mark.parametrize(
    ("data", "reason"),
    [(None, Reason.UNREADABLE), (b"<html>", Reason.NOT_AN_IMAGE)],
)
def test_sizes_of_images_that_cannot_be_read(
    root: Folder, data: bytes | None, reason: Reason
) -> None:
    """Without a size in either place the image is a reject, for the image's fault."""
    content = coco([image(1, width=None), image(2)], [box(5, 1), box(6, 2)])
    path = tree(root, content) / f"train2017/{1:012}.jpg"
    path.unlink()
    if data is not None:
        path.write_bytes(data)
    found = read(root)
    assert [(r.reason, r.row, r.part) for r in found.rejections] == [(reason, 1, "")]
    assert [row["number"] for row in found.rows] == [1]


@pytest.mark.parametrize("window", [200, 1 << 22])
@pytest.mark.parametrize("absent", [{}, {"bbox": None}, {"bbox": []}])
def test_boxes_around_outlines(
    root: Folder, monkeypatch: pytest.MonkeyPatch, absent: Json, window: int
) -> None:
    """Polygons without bbox give their own box; runs are a reject that says so."""
    monkeypatch.setattr(coco_file, "_WINDOW", window)
    outlines: list[Any] = [
        [[8, 12, 24, 12, 24, 36, 8, 36]],
        [[32, 24, 40, 24, 40, 30], [48, 36, 64, 48.0, 50, 40]],
        {"size": [48, 64], "counts": [0, 40, 3032]},
        [[8, 12, 24]],
        [],
        {"outline": [1]},
    ]
    annotations = []
    for number, outline in enumerate(outlines):
        made = box(number, 1, segmentation=outline)
        del made["bbox"]
        annotations.append(made | absent)
    annotations.append(box(9, 1, [0, 0, 64, 48], segmentation=[[1, 1, 2, 2, 1, 2]]))
    found = read(tree(root, coco([image(1)], annotations)))
    assert found.rows[0]["image/object/bbox"] == [
        [0.125, 0.25, 0.375, 0.75],
        [0.5, 0.5, 1, 1],
        [0, 0, 1, 1],
    ]
    assert [r.reason for r in found.rejections] == [Reason.BAD_BOX] * 4
    assert "RLE" in found.rejections[0].message
    assert "[[8, 12, 24]]" in found.rejections[1].message


@pytest.mark.parametrize(
    "prefix", ["/content/drive/x/", "C:\\\\x\\\\", "../x/", "images/"]
)
def test_paths_of_another_machine(prefix: str, root: Folder) -> None:
    """A name means its longest tail that is there."""
    content = coco([image(1), image(2)], [box(1, 1)])
    tree(root, content)
    for each in content["images"]:
        each["file_name"] = prefix + each["file_name"]
    write_json(root / "annotations/instances_train2017.json", content)
    found = read(root)
    assert [row["image/encoded"] for row in found.rows] == [
        f"train2017/{n:012}.jpg" for n in (1, 2)
    ]


PEOPLE = [
    {"id": 1, "name": "person", "keypoints": ["nose", "eye"]},
    {"id": 3, "name": "cat", "keypoints": ["ear"]},
]
POINT = "image/object/keypoint"


def test_key_points(root: Folder) -> None:
    """k is the largest number; the others are padded, and boxes alone have none."""
    content = coco(
        [image(1), image(2)],
        [
            box(1, 1, category_id=1, keypoints=[16, 12, 2, 64, 48, 1], num_keypoints=2),
            box(2, 1, category_id=3, keypoints=[0, 0, 0]),
            box(3, 1, category_id=3, bbox=[0, 0, 99, 99], keypoints=[1, 1, 2]),
            box(4, 1, category_id=3),
        ],
        categories=PEOPLE,
    )
    found = read(tree(root, content))
    row = found.rows[0]
    assert row["image/object/class/text"] == ["person", "cat", "cat"]
    assert row[f"{POINT}/x"] == [0.25, 1, 0, 0, 0, 0]
    assert row[f"{POINT}/y"] == [0.25, 1, 0, 0, 0, 0]
    assert row[f"{POINT}/visibility"] == [2, 1, 0, 0, 0, 0]
    assert row[f"{POINT}/num"] == [2, 0, 0]
    assert row[f"{POINT}/text"] == ["nose", "eye", "ear", "", "ear", ""]
    assert found.rows[1][f"{POINT}/x"] == []
    assert [r.reason for r in found.rejections] == ["bad_box"]


@pytest.mark.parametrize(
    "points",
    [[16, 12], [16, 12, "x"], [99, 12, 2], [16, 12, 3], [16, None, 2], [16, 12, 1.5]],
)
def test_bad_key_points(points: list[Any], root: Folder) -> None:
    """They reject their object; `clip` leaves out those outside of the image."""
    content = coco(
        [image(1)],
        [
            box(1, 1, category_id=1, keypoints=[16, 12, 2]),
            box(2, 1, category_id=1, keypoints=points, num_keypoints=1),
        ],
        categories=PEOPLE[:1],
    )
    found = read(tree(root, content))
    assert [len(row[f"{POINT}/num"]) for row in found.rows] == [1]
    (rejection,) = found.rejections
    assert rejection.reason is Reason.BAD_BOX
    assert "annotation 2" in rejection.message
    clipped = read(root, bad_box="clip").rows[0]
    assert clipped[f"{POINT}/num"] == ([1, 0] if points[0] == 99 else [1])


def test_key_points_of_which_none_is_labelled(root: Folder) -> None:
    """They are no features: the file's bytes stay what they were."""
    content = coco(
        [image(1)],
        [box(1, 1, category_id=1, keypoints=[0, 0, 0], num_keypoints=0)],
        categories=PEOPLE,
    )
    assert f"{POINT}/x" not in read(tree(root, content)).rows[0]


numbers = st.one_of(
    st.integers(-5, 70), st.sampled_from([0.5, float("nan"), float("inf"), None])
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    images=st.lists(
        st.tuples(st.sampled_from([64, 0, None]), st.booleans()), min_size=1, max_size=6
    ),
    annotations=st.lists(
        st.tuples(
            st.integers(-1, 6),
            st.one_of(st.none(), st.lists(numbers, min_size=3, max_size=5)),
            st.sampled_from([1, 3, 4, None]),
            st.sampled_from([1, None, float("inf")]),
        ),
        max_size=12,
    ),
    policy=st.sampled_from(POLICIES),
    block_rows=st.sampled_from([1, 2, 4096]),
    with_limit=st.booleans(),
)
def test_parts_are_conserved(
    tmp_path: Folder,
    images: Any,
    annotations: Any,
    policy: str,
    block_rows: int,
    with_limit: bool,
) -> None:
    """For any file, boxes read = in rows + rejected + lost with their image.

    The account of each reading is checked where it is read; here all of them are.
    """
    folder = tmp_path / str(len(list(tmp_path.iterdir())))
    content = coco(
        [
            image(i, width=width, **({} if named else {"file_name": None}))
            for i, (width, named) in enumerate(images)
        ],
        [
            box(i, of, bbox, category_id=category, area=area)
            for i, (of, bbox, category, area) in enumerate(annotations)
        ],
    )
    tree(folder, content)
    limit = 1 if with_limit else None
    reader = CocoReader(bad_box=policy)
    options = {"limit": limit, "block_rows": block_rows}
    found = read_all(source_of(folder, reader, ".json", **options))
    bad_rows = {r.row for r in found.rejections if not r.part}
    wanted = 1 if with_limit else len(images)
    assert len(found.rows) + len(bad_rows) == wanted
    within = [a for a in annotations if not 0 <= a[0] < len(images) or a[0] < wanted]
    gone = sum(a[0] + 1 in bad_rows for a in within)
    written = sum(len(row["image/object/bbox"]) for row in found.rows)
    parts = sum(r.part == "boxes" for r in found.rejections)
    assert len(within) == written + parts + gone


def test_class_ids_below_one_are_renumbered(root: Folder) -> None:
    """Ids from 0 move up, in their order; positive ones are what they are."""
    content = coco(
        [image(1)],
        [box(1, 1, category_id=0), box(2, 1, category_id=7)],
        categories=[{"id": 7, "name": "b"}, {"id": 0, "name": "z"}],
    )
    source = source_of(tree(root, content), CocoReader(), ".json")
    (row,) = read_all(source).rows
    assert row["image/object/class/label"] == [1, 2]
    assert row["image/object/class/text"] == ["z", "b"]
    assert CocoReader().plan(inputs(root, ".json")).label_map == {1: "z", 2: "b"}
    planned = CocoReader().plan(inputs(tree(root, EXAMPLE), ".json"))
    assert planned.label_map == {1: "person", 3: "car", 90: "brush"}


def test_several_files_are_splits(root: Folder) -> None:
    """Each file is an origin of its own, its split in its name, its images found."""
    tree(root, EXAMPLE)
    tree(root, coco([image(9)], [box(1, 9)]), "val2017")
    found = read(root)
    assert [(r["split"], r["number"], r["image/encoded"]) for r in found.rows] == [
        ("train", 0, "train2017/000000000009.jpg"),
        ("train", 1, "train2017/000000000002.jpg"),
        ("train", 2, "train2017/000000000007.jpg"),
        ("validation", 0, "val2017/000000000009.jpg"),
    ]


def test_files_that_disagree_on_a_class(root: Folder) -> None:
    """One id with two names over the files is an error that shows both."""
    tree(root, EXAMPLE)
    tree(root, coco([image(1)], [], categories=[{"id": 3, "name": "bus"}]), "val2017")
    with pytest.raises(SourceError, match=r"3 is 'car' .* 'bus' in 'annotations/inst"):
        read(root)


@pytest.mark.parametrize(
    ("json_path", "image_folder"),
    [
        ("annotations/instances_train2017.json", "train2017"),
        ("annotations/instances_train2017.json", "images/train2017"),
        ("annotations/instances_train2017.json", "images"),
        ("annotations/custom_train.json", "train"),
        ("train/_annotations.coco.json", "train"),
        ("labels.json", "data"),
        ("labels.json", "images"),
        ("labels.json", ""),
    ],
)
def test_where_images_are(root: Folder, json_path: str, image_folder: str) -> None:
    """Images are found in the usual places, or in the folder that is given."""
    write_json(root / json_path, EXAMPLE)
    for item in EXAMPLE["images"]:
        write_image(root / image_folder / item["file_name"])
    options = {"images_root": f"{root}/data/"} if image_folder == "data" else {}
    found = read(root, **options)
    assert os.path.normpath(root / found.rows[0]["image/encoded"]) == str(
        root / image_folder / "000000000009.jpg"
    )


def test_images_in_two_normal_forms(root: Folder) -> None:
    """Where NFC and NFD of a name are two files, as after a sync, one is the image."""
    names = ["1.jpg", "2.jpg", "3.jpg", "\u00e1.jpg", "\u00e9.jpg"]
    listed = [image(i, file_name=name) for i, name in enumerate(names)]
    write_json(root / "labels.json", coco(listed, []))
    for name in names[:3]:
        write_image(root / name)
    for name in names[3:]:
        for form in ("NFC", "NFD"):
            write_image(root / "images" / unicodedata.normalize(form, name))
    places = [*names[:3], *(f"images/{name}" for name in names[3:])]
    assert [row["image/encoded"] for row in read(root).rows] == places


def test_a_source_that_is_the_annotations_folder(root: Folder) -> None:
    """The images beside the folder that was named are found too."""
    tree(root, EXAMPLE)
    found = read(root / "annotations")
    assert found.rows[0]["image/encoded"] == "../train2017/000000000009.jpg"


def test_images_that_are_nowhere(root: Folder) -> None:
    """No image below the source or beside it is an error before anything is read."""
    write_json(root / "a/b/instances_val.json", EXAMPLE)
    with pytest.raises(SourceError, match=r"000000000009.jpg.*--images-root") as caught:
        read(root)
    assert caught.value.exit_code == 4


@pytest.mark.parametrize("below", [False, True])
def test_images_of_two_places(root: Folder, *, below: bool) -> None:
    """The folder that is given adds to the source; longest tails are found in both."""
    names = ["x/1.jpg", "C:\\data\\2.jpg", "/mnt/y/3.jpg", "../1.jpg", "/etc/hostname"]
    listed = [image(i, file_name=name) for i, name in enumerate(names)]
    write_json(root / "labels.json", coco(listed, []))
    elsewhere = root / "deep/else" if below else root.with_name("elsewhere")
    for name in ("2.jpg", "deep/3.jpg"):
        write_image(root / name)
    write_image(elsewhere / "1.jpg")
    write_image(elsewhere / "y/3.jpg")
    found = read(root, images_root=str(elsewhere))
    place = "deep/else" if below else str(elsewhere)
    assert [row["image/encoded"] for row in found.rows] == [
        f"{place}/1.jpg",
        "2.jpg",
        f"{place}/y/3.jpg",
        f"{place}/1.jpg",
        f"{place}/hostname",
    ]


def test_captions(root: Folder) -> None:
    """A file of captions is an error, or left out; those among boxes are bad."""
    captions = [{"id": 8 + n, "image_id": n, "caption": f"{n}"} for n in (1, 2)]
    content = {"images": [image(2), image(1)], "annotations": captions}
    write_json(root / "annotations/captions_train2017.json", content)
    with pytest.raises(SourceError, match=r"captions_train2017.json.* captions"):
        read(root)
    tree(root, EXAMPLE)
    assert len(read(root).rows) == 3
    images = [image(1, width=-64), image(2)]
    found = read(tree(root, coco(images, [box(5, 1), box(7, 2), *captions])))
    assert [(r.reason, r.row, r.part) for r in found.rejections] == [
        (Reason.OUT_OF_RANGE, 1, ""),
        (Reason.UNKNOWN_LABEL, 2, "boxes"),
    ]


ODD: dict[str, Callable[[Json], object]] = {
    "texts for numbers": lambda c: c["annotations"][0].update(bbox=["8 px", 1, 2, 3]),
    "ids that are numbers in quotes": lambda c: (
        [
            a.update(
                bbox=[str(n) for n in a["bbox"]],
                area=str(a["area"]),
                iscrowd=str(a["iscrowd"]),
                category_id=str(a["category_id"]),
            )
            for a in c["annotations"]
        ]
        + [i.update(width=str(i["width"])) for i in c["images"] + c["categories"][:0]]
        + [c.update(id=str(c["id"])) for c in c["categories"]]
    ),
    "ids that are texts": lambda c: [
        *(i.update(id=str(i["id"])) for i in c["images"]),
        *(a.update(image_id=str(a["image_id"])) for a in c["annotations"]),
    ],
    "ids that are floats": lambda c: [
        a.update(image_id=float(a["image_id"]), category_id=float(a["category_id"]))
        for a in c["annotations"]
    ],
    "crowd as bool": lambda c: c["annotations"][0].update(iscrowd=True),
    "null items": lambda c: c["annotations"].append(None),
    "no json number": lambda c: c["annotations"][0].update(bbox=[10**400, 1, 2, 3]),
}


@pytest.mark.parametrize("case", ODD)
def test_odd_files(root: Folder, case: str) -> None:
    """What other tools write is read where its meaning is plain, else rejected."""
    content = copy.deepcopy(EXAMPLE)
    ODD[case](content)
    plain = read(tree(root.with_name("plain"), EXAMPLE)).rows
    found = read(tree(root, content))
    if case.startswith("ids"):
        assert found.rows == plain
        assert found.rejections == []
    elif case == "crowd as bool":
        assert [r["image/object/is_crowd"] for r in found.rows] == [[0], [1, 1], []]
    else:
        (rejection,) = found.rejections
        assert rejection.part == "boxes"
        assert found.rows[0] == plain[0]


@pytest.mark.parametrize("boxes", [0, 3])
@pytest.mark.parametrize("window", [7, 300])
@pytest.mark.parametrize(
    "options",
    [{}, {"indent": 2}, {"separators": (",", ":")}, {"ensure_ascii": False}],
)
def test_windows_change_no_row(
    monkeypatch: pytest.MonkeyPatch,
    root: Folder,
    options: dict[str, Any],
    window: int,
    boxes: int,
) -> None:
    """A file gives the same rows however its text is laid out and cut."""
    content = copy.deepcopy(EXAMPLE)
    content["images"][0]["file_name"] = "사진 😀.jpg"
    content["annotations"] += [
        box(100 + number, 9, [number % 7, 1, 2, 2 + boxes], iscrowd=number % 2)
        | {"segmentation": [[1, 2.5, 3, 4, 5, 6]] * (number % 3)}
        | {"segments_info": [{"id": 1, "note": '"}, {"id": 2], "b": ['}] * boxes}
        for number in range(40)
    ]
    content["annotations"] += [box(999, 12345, [1, 1, 2, 2]), box(998, 7, [9, 9, 0, 9])]
    tree(root, content)
    write_json(root / "annotations/instances_train2017.json", content, **options)
    whole = read(root)
    assert whole.rows[0]["image/filename"] == "사진 😀.jpg"
    assert [row["number"] for row in whole.rows] == [0, 1, 2]
    assert {(each.row, each.part) for each in whole.rejections} >= {
        (None, "boxes"),
        (3, "boxes"),
    }
    monkeypatch.setattr(coco_file, "_WINDOW", window)
    monkeypatch.setattr(coco_file, "_ITEMS", 3)
    monkeypatch.setattr(CocoReader, "run_bytes", 1000)
    assert read(root) == whole
    source = source_of(root, CocoReader(), ".json", block_rows=2)
    assert read_all(source) == whole


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"{", "Expecting property name"),
        (b"[]", "no object with a list of images"),
        (b'[{"image_id": 1, "bbox": [1, 2, 3, 4], "score": 0.5}]', "results"),
        (
            b'{"images": [{"id": 1}], "annotations": [{"image_id": 1, '
            b'"file_name": "a.png", "segments_info": [{"id": 7}]}]}',
            "panoptic",
        ),
        (b'{"images": {}}', "no object with a list of images"),
        (b'{"images": [{"id": 1}], "annotations": 5}', "annotations is no list"),
        (b'{"images": [{"id": 1}]} {}', "Extra data"),
        (b'{"images": [{"id": 1, "file_name": "\xff"}]}', "codec can't decode"),
        (b'{"images": []}', "list is empty"),
        (b'{"images": [{"id": 1}], "a": ' + b"[" * 200_000, "must be COCO JSON"),
        (
            b'{"images": [{"id": 1, "file_name": "a"}, {"id": 1, "file_name": "b"}]}',
            "2 images have '1'",
        ),
        (
            b'{"images": [{"id": 1}], "categories": [{"id": 1, "name": "a"},'
            b'{"id": 1, "name": "b"}]}',
            "1: 'a' and 1: 'b'",
        ),
        (
            b'{"images": [{"id": 1}], "categories": [{"id": 1, "name": "a"},'
            b'{"id": 2, "name": "a"}]}',
            "1: 'a' and 2: 'a'",
        ),
        (
            b'{"images": [{"id": 1}], "categories": [{"id": "x", "name": "a"}]}',
            "None: 'a'",
        ),
    ],
)
def test_files_that_are_no_coco(root: Folder, data: bytes, found: str) -> None:
    """Anything else is an error that names the file and what was found."""
    root.mkdir()
    (root / "bad.json").write_bytes(data)
    with pytest.raises(SourceError) as caught:
        CocoReader().plan(inputs(root, ".json"))
    assert found in str(caught.value)
    assert "bad.json" in str(caught.value)


def test_a_file_that_changes_after_planning(root: Folder) -> None:
    """The rows are those of the file that was planned."""
    source = source_of(tree(root, EXAMPLE), CocoReader(), ".json")
    whole = read_all(source)
    write_json(root / "annotations/instances_train2017.json", coco([image(1)], []))
    assert read_all(source) == whole


@pytest.mark.parametrize(
    ("path", "split"),
    [
        ("annotations/instances_train2017.json", "train"),
        ("annotations/instances_val2017.json", "validation"),
        ("annotations/image_info_test-dev2017.json", "test"),
        ("valid/_annotations.coco.json", "validation"),
        ("Training/labels.JSON", "train"),
        ("train/val.json", "validation"),
        ("trainval.json", ""),
        ("contest/latest.json", ""),
        ("annotations/instances.json", ""),
    ],
)
def test_splits_in_paths(path: str, split: str) -> None:
    """The name of a split counts if no letter adjoins it."""
    assert split_in_path(path) == split
    assert CocoReader().split_of(path) == split


RUNS = {"size": [20, 40], "counts": [0, 40, 760]}
OUTLINED = {
    **coco(
        [image(7, width=40, height=20), image(8, width=40, height=20)],
        [
            box(1, 7, [10, 5, 20, 10], segmentation=[[10, 5, 30, 5, 30, 15, 10, 15]]),
            box(2, 7, [0, 0, 2, 20], segmentation=RUNS, iscrowd=1),
            box(3, 8, [0, 0, 2, 20], segmentation={**RUNS, "counts": "0X1hg0"}),
            box(4, 8, [4, 4, 2, 2]),
            box(5, 8, [4, 4, 2, 2], segmentation=[[4, 4, 6, 6]]),
            box(6, 8, [4, 4, 2, 2], segmentation={**RUNS, "counts": [0, 10**12]}),
        ],
    )
}
COLUMNS = np.s_[:, :2]
MASKS = [[np.s_[5:15, 10:30], COLUMNS], [COLUMNS, np.s_[4:6, 4:6]]]


@pytest.mark.parametrize("window", [1, 100, 4 << 20])
def test_masks_of_outlines(
    root: Folder, monkeypatch: pytest.MonkeyPatch, window: int
) -> None:
    """Polygons, runs and boxes are drawn; bad outlines are bad parts."""
    monkeypatch.setattr(coco_file, "_WINDOW", window)
    found = read(tree(root, OUTLINED), masks="all")
    for row, wanted in zip(found.rows, MASKS, strict=True):
        masks = [decoded(png) for png in row["image/object/mask"]]
        for mask, inside in zip(masks, wanted, strict=True):
            expected = np.zeros((20, 40), np.uint8)
            expected[inside] = 1
            np.testing.assert_array_equal(mask, expected)
    bad = [(each.reason, each.part) for each in found.rejections]
    assert bad == [(Reason.BAD_MASK, "boxes")] * 2
    found_images = read(root, masks="all", bad_box="image")
    assert [row["image/source_id"] for row in found_images.rows] == ["7"]
    assert ["annotation 5" in each.message for each in found.rejections] == [
        True,
        False,
    ]


HOLLOW = [
    [[1, 1, 9, 1, 9, 9], None],
    [[1, 1, 9, 1, 9, 9], [1, None, 3, 4, 5, 6]],
    [None, [1, 1, 9, 1, 9, 9]],
    [[1, 1, 9, 1, 9, 9], {}],
    [1, 1, 9, None, 9, 9],
]


@pytest.mark.parametrize("outline", HOLLOW)
def test_outlines_that_hold_null(root: Folder, outline: Any) -> None:
    """They are bad parts, as other outlines; nothing else in the file is."""
    bad = [box(2, 1, segmentation=outline), box(3, 1, segmentation=outline)]
    del bad[1]["bbox"]
    good = box(1, 1, segmentation=[[1, 1, 9, 1, 9, 9], [2, 2, 4, 2, 4, 4]])
    tree(root, coco([image(1)], [*bad, good]))
    found = read(root, masks="all")
    assert [each.reason for each in found.rejections] == ["bad_mask", "bad_box"]
    assert len(found.rows[0]["image/object/mask"]) == 1
    found = read(root)
    assert [each.reason for each in found.rejections] == ["bad_box"]
    assert len(found.rows[0]["image/object/bbox"]) == 2


def test_outlines_are_left_out_with_a_note(root: Folder) -> None:
    """A note says how many there are, or how many objects have none."""
    tree(root, OUTLINED)
    left_out = "outlines of 5 objects"
    for masks, note in {"auto": left_out, "none": left_out, "all": "1 of 6"}.items():
        planned = CocoReader(masks=masks).plan(inputs(root, ".json"))
        assert any(text.startswith(note) for text in planned.sample.notes)
        names = {feature.name for feature in planned.features}
        assert ("image/object/mask" in names) is (masks == "all")
    # Masks of boxes alone say nothing.
    tree(root, coco([image(1)], [box(1, 1)]))
    planned = CocoReader(masks="all").plan(inputs(root, ".json"))
    assert "image/object/mask" not in {feature.name for feature in planned.features}


def test_the_last_of_two_lists_counts(root: Folder) -> None:
    """What an earlier list of a file has is neither read nor counted."""
    tree(root, OUTLINED)
    (path,) = root.rglob("*.json")
    text = json.dumps({"annotations": [box(2, 1)]})
    path.write_text(f"{text[:-1]}, {path.read_text()[1:]}")
    planned = CocoReader(masks="all").plan(inputs(root, ".json"))
    assert [text[:6] for text in planned.sample.notes] == ["1 of 6"]


def test_a_file_without_annotations(root: Folder) -> None:
    """Its images have no objects, and a note says why: a key may be misspelt."""
    content = coco([image(1)], [box(1, 1)])
    content["annotatioos"] = content.pop("annotations")
    planned = CocoReader().plan(inputs(tree(root, content), ".json"))
    assert "no list named annotations" in planned.sample.notes[0]


def test_items_without_an_end(root: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """What never ends, as NULs of a hole in a file, is not held in memory."""
    monkeypatch.setattr(coco_file, "_MOST_ITEM", 1 << 16)
    (path,) = tree(root, EXAMPLE).rglob("*.json")
    os.truncate(path, path.stat().st_size - 9)
    os.truncate(path, 1 << 24)
    with pytest.raises(SourceError, match="an item of more than 65,536 characters"):
        CocoReader().plan(inputs(root, ".json"))


def test_more_key_points_than_any_object_has(root: Folder) -> None:
    """All objects have room for as many as one has: a list of them must end."""
    tree(root, coco([image(1)], [box(1, 1, keypoints=[1, 1, 2] * 1001)]))
    with pytest.raises(SourceError, match="more than 1,000 key points"):
        CocoReader().plan(inputs(root, ".json"))


def test_masks_of_too_many_pixels_are_bad_parts(root: Folder) -> None:
    """The size that a file states decides what is drawn: it may be anything."""
    large = coco(
        [image(1, width=50_000, height=50_000)],
        [box(1, 1, segmentation=[[1, 1, 9, 1, 9, 9]])],
    )
    found = read(tree(root, large), masks="all")
    assert [each.reason for each in found.rejections] == [Reason.TOO_MANY_PIXELS]
