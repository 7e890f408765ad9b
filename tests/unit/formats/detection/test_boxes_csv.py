"""Tables with a row a box: columns, units, images, splits, what is bad."""

import gzip
import pathlib
import unicodedata
from typing import Any

import pytest

from tests.support.detection import (
    Read,
    float32,
    planned,
    read_planned,
    write_image,
)
from transforms.errors import InputError

Folder = pathlib.Path
TUTORIAL = "filename,width,height,class,xmin,ymin,xmax,ymax\n"


def write(root: Folder, text: str, *images: str, name: str = "boxes.csv") -> Folder:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    for image in images:
        write_image(root / image, (40, 20))
    return root


def boxes(found: Read, name: str = "a.jpg") -> Any:
    return found.by_name[name]["image/object/bbox"]


def reasons(found: Read) -> list[tuple[str, int | None, str, str]]:
    return [(r.source, r.row, r.reason, r.part) for r in found.rejections]


def test_rows_of_an_image_are_one_record(tmp_path: Folder) -> None:
    """They need not be adjacent; the record is at the place of the first."""
    text = (
        "a.jpg,40,20,cat,4,2,20,10\n"
        "b.jpg,40,20,dog,0,0,40,20\n"
        "c.jpg,41,20,dog,0,0,40,20\n"
        "a.jpg,40,20,dog,10,5,5,10\n"
        "a.jpg,40,20,ant,0,0,4,2\n"
    )
    root = write(tmp_path, TUTORIAL + text, "a.jpg", "b.jpg", "c.jpg")
    found = read_planned(root)
    row = found.by_name["a.jpg"]
    assert row.pop("image/object/bbox") == [
        float32(0.1, 0.1, 0.5, 0.5),
        float32(0, 0, 0.1, 0.1),
    ]
    assert row == {
        "image/encoded": "a.jpg",
        "image/filename": "a.jpg",
        "image/source_id": "a.jpg",
        "image/stated_height": 20,
        "image/stated_width": 40,
        "image/object/class/text": ["cat", "ant"],
        "image/object/class/label": [2, 1],
        "split": None,
        "number": 0,
        "origin": "boxes.csv",
    }
    assert [r["number"] for r in found.rows] == [0, 1, 2]
    assert reasons(found) == [("boxes.csv", 4, "bad_box", "boxes")]
    assert planned(root).label_map == {1: "ant", 2: "cat", 3: "dog"}


@pytest.mark.parametrize(
    "text",
    [
        "xmax,ymax,xmin,ymin,label,image\n20,10,4,2,cat,a.jpg\n",
        " X_Min , Y_Min,X_Max,Y_Max,ClassName,Image_Path\n4,2,20,10,cat,./x/a.jpg\n",
        "img,x1,y1,x2,y2,name\na.jpg,4,2,20,10, cat \n",
        'path,left,top,right,bottom,category,n\n"C:\\d\\a.jpg",4,2,20,10,"cat",7\n',
        "path,x1,y1,x2,y2,class\na.jpg,4,2,20,10,cat\n",
        "a.jpg,4,2,20,10,cat\n",
        "/content/images/a.jpg,4,2,20,10,cat\na.jpg,,,,,\n",
    ],
)
def test_columns(text: str, tmp_path: Folder) -> None:
    """Columns are known by name in any case and order; sizes are the files' own."""
    found = read_planned(write(tmp_path, text, "images/a.jpg"))
    assert found.rejections == []
    row = found.rows[0]
    assert row["image/encoded"] == "images/a.jpg"
    assert row["image/object/bbox"] == [float32(0.1, 0.1, 0.5, 0.5)]
    assert row["image/object/class/text"] == ["cat"]


def test_open_images(tmp_path: Folder) -> None:
    """Ids are stems, boxes fractions, and -1 of a flag stays."""
    text = (
        "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,"
        "IsOccluded,IsTruncated,IsGroupOf,IsDepiction,IsInside\n"
        "0001,xclick,/m/01,1,0.25,0.75,0.1,0.9,1,0,-1,0,0\n"
        "0001,xclick,/m/02,1,0,1,0,1,0,0,0,2,0\n"
    )
    found = read_planned(write(tmp_path, text, "train/0001.jpg"))
    row = found.by_name["0001.jpg"]
    assert row["image/object/bbox"] == [float32(0.25, 0.1, 0.75, 0.9)]
    values = {"occluded": 1, "truncated": 0, "group_of": -1, "depiction": 0}
    assert {name: row[f"image/object/{name}"] for name in values} == {
        name: [value] for name, value in values.items()
    }
    assert row["split"] == "train"
    assert reasons(found) == [("boxes.csv", 2, "not_a_bool", "boxes")]
    assert row["image/object/class/text"] == ["/m/01"]
    others = "".join(f"/m/x{n},Dog {n}\n" for n in range(70_000))
    names = f"LabelName,DisplayName\n{others}/m/01,Cat\n".encode()
    path = tmp_path / "oidv7-class-descriptions-boxable.csv.gz"
    path.write_bytes(gzip.compress(names, 1))
    row = read_planned(tmp_path).by_name["0001.jpg"]
    assert row["image/object/class/text"] == ["Cat"]
    assert planned(tmp_path).skipped == {}


def test_images_without_boxes(tmp_path: Folder) -> None:
    """A row without a box and a class says that the image has none."""
    text = "a.jpg,4,2,20,10,cat\nb.jpg,,,,,\n"
    found = read_planned(write(tmp_path, text, "a.jpg", "b.jpg"))
    assert boxes(found, "b.jpg") == []
    assert found.rejections == []


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ("40,20,,4,2,20,10", "missing_value"),
        ("40,20,cat,4,2,x,10", "bad_box"),
        ("40,20,cat,4,2,,10", "bad_box"),
        ("40,20,cat,,,,", "bad_box"),
        ("40,20,cat,4,2,nan,10", "bad_box"),
        ("40,20,cat,4,2,1_0,10", "bad_box"),
        ("40,20,cat,4,2,42,10", "bad_box"),
    ],
)
def test_bad_boxes(cells: str, reason: str, tmp_path: Folder) -> None:
    """Each is a rejection of its own, with its row."""
    text = f"{TUTORIAL}a.jpg,40,20,cat,4,2,20,10\na.jpg,{cells}\n"
    found = read_planned(write(tmp_path, text, "a.jpg"))
    assert len(boxes(found)) == 1
    assert reasons(found) == [("boxes.csv", 2, reason, "boxes")]
    assert found.rejections[0].raw is not None


def test_rows_that_are_no_rows(tmp_path: Folder) -> None:
    """Too many cells, no image, other sizes, two splits: each has its row."""
    text = (
        "filename,width,height,class,xmin,ymin,xmax,ymax,split\n"
        "a.jpg,40,20,cat,4,2,20,10,train\n"
        "a.jpg,40,20,cat,4,2,20,10,train,more\n"
        ",40,20,cat,4,2,20,10,train\n"
        "b.jpg,40,20,cat,4,2,20,10,train\n"
        "b.jpg,41,20,cat,4,2,20,10,train\n"
        "c.jpg,40,20,cat,4,2,20,10,train\n"
        "c.jpg,40,20,cat,4,2,20,10,test\n"
    )
    found = read_planned(write(tmp_path, text, "a.jpg", "b.jpg", "c.jpg"))
    assert [row["image/filename"] for row in found.rows] == ["a.jpg"]
    assert sorted(reasons(found)) == [
        ("boxes.csv", 2, "field_count", ""),
        ("boxes.csv", 3, "missing_value", ""),
        ("boxes.csv", 4, "size_mismatch", ""),
        ("boxes.csv", 6, "bad_split", ""),
    ]


def test_units(tmp_path: Folder) -> None:
    """Fractions are all at most 1 and not all whole; tables must agree."""
    header = "filename,xmin,ymin,xmax,ymax,class\n"
    root = write(tmp_path, f"{header}a.jpg,0,0,1,.5,cat\n", "a.jpg", "b.jpg")
    assert boxes(read_planned(root)) == [[0, 0, 1, 0.5]]
    write(root, f"{header}b.jpg,0,0,20,1,cat\n")
    assert boxes(read_planned(root), "b.jpg") == [float32(0, 0, 0.5, 0.05)]
    write(root, f"{header}a.jpg,0,0,1,.5,cat\n", name="more.csv")
    with pytest.raises(InputError, match=r"more.csv.*boxes.csv"):
        planned(root)


def test_splits(tmp_path: Folder) -> None:
    """A column says them, else the table's path, else the image's folder."""
    header = "filename,xmin,ymin,xmax,ymax,class"
    root = tmp_path / "column"
    text = f"{header},split\na.jpg,0,0,4,4,x,valid\nb.jpg,0,0,4,4,x,\n"
    write(root, text, "a.jpg", "b.jpg")
    found = read_planned(root)
    assert [row["split"] for row in found.rows] == ["validation"]
    assert reasons(found) == [("boxes.csv", 2, "bad_split", "")]
    root = tmp_path / "roboflow"
    for split in ("train", "valid"):
        text = f"{header}\na.jpg,0,0,4,4,x\n"
        write(root, text, f"{split}/a.jpg", name=f"{split}/_annotations.csv")
    found = read_planned(root)
    assert [(row["image/encoded"], row["split"]) for row in found.rows] == [
        ("train/a.jpg", "train"),
        ("valid/a.jpg", "validation"),
    ]
    root = tmp_path / "labels"
    for split in ("train", "test"):
        text = f"{header}\na.jpg,0,0,4,4,x\n"
        write(root, text, f"images/{split}/a.jpg", name=f"data/{split}_labels.csv")
    found = read_planned(root)
    assert [(row["image/encoded"], row["split"]) for row in found.rows] == [
        ("images/test/a.jpg", "test"),
        ("images/train/a.jpg", "train"),
    ]


def test_images_of_two_places_and_none(tmp_path: Folder) -> None:
    """A name that fits two files is an error with both; no image at all is one."""
    text = f"{TUTORIAL}a.jpg,40,20,cat,4,2,20,10\ngone.jpg,40,20,cat,4,2,20,10\n"
    root = write(tmp_path / "two", text, "x/a.jpg", "y/a.jpg")
    with pytest.raises(InputError, match=r"x/a.jpg.*y/a.jpg"):
        planned(root)
    (root / "boxes.csv").rename(root / "x/boxes.csv")
    found = read_planned(root)
    assert [row["image/encoded"] for row in found.rows] == ["x/a.jpg", "x/gone.jpg"]
    root = write(tmp_path / "none", text, "x/b.jpg")
    with pytest.raises(InputError, match="--images-root"):
        planned(root)
    write_image(tmp_path / "elsewhere/a.jpg", (40, 20))
    images = str(tmp_path / "elsewhere")
    found = read_planned(root, images_root=images)
    assert found.rows[0]["image/encoded"] == f"{images}/a.jpg"
    # That folder is one more: images of the source are found all the same.
    rows = "y/a.jpg,40,20,cat,4,2,20,10\nb.jpg,40,20,cat,4,2,20,10\n"
    write(root, TUTORIAL + rows, "x/b.jpg")
    found = read_planned(root, images_root=images)
    places = [row["image/encoded"] for row in found.rows]
    assert places == [f"{images}/a.jpg", "x/b.jpg"]


def test_a_plan_shows_boxes_where_no_size_is_stated(tmp_path: Folder) -> None:
    """The first images are looked into."""
    text = "filename,class,xmin,ymin,xmax,ymax\na.jpg,cat,4,2,20,10\n"
    plan = planned(write(tmp_path, text, "a.jpg"))
    assert plan.evidence["image/object/bbox"].examples == ("[[0.1, 0.1, 0.5, ...]]",)


def test_a_column_of_classes_that_is_named(tmp_path: Folder) -> None:
    """`--label-column` names it, also in place of a usual one; a message says so."""
    text = "filename,width,xmin,ymin,xmax,ymax,species\na.jpg,40,4,2,20,10,cat\n"
    root = write(tmp_path, text, "a.jpg")
    with pytest.raises(InputError, match=r"--label-column species$"):
        planned(root)
    with pytest.raises(InputError, match="--label-column"):
        planned(root, format="boxes_csv")
    for source in (root, root / "boxes.csv"):
        found = read_planned(source, label_column="Species")
        assert boxes(found) == [float32(0.1, 0.1, 0.5, 0.5)]
        assert found.rows[0]["image/object/class/text"] == ["cat"]
    write(root, f"class,{text}".replace("\na", "\nx,a"))
    (row,) = read_planned(root, label_column="species").rows
    assert row["image/object/class/text"] == ["cat"]


@pytest.mark.parametrize("packed", [False, True])
def test_a_table_as_source(packed: bool, tmp_path: Folder) -> None:
    """The file itself, also packed, finds images in the folders below it."""
    text = f"\ufeff{TUTORIAL}a.jpg,40,20,cat,4,2,20,10\r\n"
    path = write(tmp_path, text, "images/deep/a.jpg") / "boxes.csv"
    if packed:
        path.with_name("boxes.csv.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
        path = path.with_name("boxes.csv.gz")
    found = read_planned(path)
    assert found.rows[0]["image/encoded"] == "images/deep/a.jpg"


def test_other_tables_are_left_out(tmp_path: Folder) -> None:
    """A note names them; they are not selected."""
    root = write(tmp_path, f"{TUTORIAL}a.jpg,40,20,cat,4,2,20,10\n", "a.jpg")
    write(root, "cat,0\n", name="classes.csv")
    plan = planned(root)
    assert plan.skipped == {"not_selected": 1}
    assert any("classes.csv" in note for note in plan.notes)
    assert len(read_planned(root).rows) == 1


def test_names_that_are_equal_in_nfc(tmp_path: Folder) -> None:
    """They are one image, as it is called first."""
    one, other = (unicodedata.normalize(form, "é.jpg") for form in ("NFC", "NFD"))
    text = f"{TUTORIAL}{one},40,20,cat,4,2,20,10\n{other},40,20,dog,0,0,40,20\n"
    (row,) = read_planned(write(tmp_path, text, one)).rows
    assert row["image/filename"] == one
    assert row["image/object/class/text"] == ["cat", "dog"]
