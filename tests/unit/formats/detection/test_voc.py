"""Pascal VOC XML: rows by hand, TensorFlow, every bad box, hostile XML."""

import os
import pathlib
import tracemalloc
from typing import Any

import pytest

from tests.support.detection import inputs, read_all, source_of, write_image
from tests.support.voc import annotate, example, thing, write_xml
from transforms.core.reasons import Reason
from transforms.errors import SourceError, SpecError
from transforms.formats.detection.voc import VocReader

Folder = pathlib.Path


def list_sets(root: Folder, name: str = "Main", **ids: str) -> None:
    folder = root / "ImageSets" / name
    folder.mkdir(parents=True, exist_ok=True)
    for stem, text in ids.items():
        (folder / f"{stem}.txt").write_text("\n".join(text.split()) + "\n")


def read(root: Folder, **options: Any) -> Any:
    return read_all(source_of(root, VocReader(**options), ".xml"))


def splits_of(found: Any) -> dict[str, str]:
    return {
        row["image/filename"].removesuffix(".jpg"): row["split"] for row in found.rows
    }


@pytest.fixture
def root(tmp_path: Folder) -> Folder:
    return tmp_path / "VOC2012"


def test_rows_by_hand(root: Folder) -> None:
    """Boxes, sorted classes from 1, flags and views are parallel; no parts."""
    found = read(example(root))
    assert found.rejections == []
    first, *second = found.rows
    assert [first] == [
        {
            "image/encoded": "JPEGImages/2007_01.jpg",
            "image/filename": "2007_01.jpg",
            "image/source_id": "2007_01.jpg",
            "image/stated_height": 48,
            "image/stated_width": 64,
            "image/object/bbox": [[0.125, 0.25, 0.375, 0.75], [0.5078125, 0, 1, 1]],
            "image/object/class/text": ["dog", "고양이"],
            "image/object/class/label": [1, 2],
            "image/object/difficult": [0, 1],
            "image/object/truncated": [1, 0],
            "image/object/view": ["Left", "Frontal"],
            "split": None,
            "number": 0,
            "origin": "Annotations/2007_01.xml",
        },
    ]
    assert [row["image/object/bbox"] for row in second] == [[], [[0, 0, 1, 0.5]]]
    assert [row["image/object/view"] for row in second] == [[], [""]]
    assert [row["number"] for row in second] == [0, 0]


def test_first_pixel(root: Folder) -> None:
    """Counting from 1, the left and upper edges are one less; the others stay."""
    annotate(root, "a", thing("dog", 1, 1, 64, 48), thing("dog", 9, 13, 24, 36))
    boxes = read(root, first_pixel=1).rows[0]["image/object/bbox"]
    assert boxes == [[0, 0, 1, 1], [0.125, 0.25, 0.375, 0.75]]


@pytest.mark.parametrize(
    ("item", "reason", "shown"),
    [
        (thing("dog", 60, 0, 70, 10), Reason.BAD_BOX, "[60, 0, 70, 10]"),
        (thing("dog", 8, 20, 24, 8), Reason.BAD_BOX, "[8, 20, 24, 8]"),
        (thing("dog", "nan", 1, 2, 3), Reason.BAD_BOX, "'nan', '1', '2', '3'"),
        (thing("dog", 1, "inf", 2, 3), Reason.BAD_BOX, "'1', 'inf', '2', '3'"),
        (thing("dog", 1, "x", 2, 3), Reason.BAD_BOX, "'1', 'x', '2', '3'"),
        (thing("dog", 1, 2, "1_0", 9), Reason.BAD_BOX, "'1', '2', '1_0', '9'"),
        (thing("dog", 1, 2, 3, None), Reason.BAD_BOX, "'1', '2', '3', None"),
        (thing(None), Reason.MISSING_VALUE, ""),
        (thing("  "), Reason.MISSING_VALUE, ""),
        (thing(truncated="Unspecified"), Reason.NOT_A_BOOL, ""),
        (thing(difficult=2), Reason.NOT_A_BOOL, ""),
    ],
)
def test_fault_131_bad_objects(
    root: Folder, item: dict[str, Any], reason: Reason, shown: str
) -> None:
    """A bad box, no name or an invalid flag is a reject that names its object."""
    annotate(root, "a", thing(), item, thing())
    found = read(root)
    (rejection,) = found.rejections
    assert (rejection.reason, rejection.part) == (reason, "boxes")
    assert (rejection.source, rejection.row) == ("Annotations/a.xml", None)
    name = ", 'dog': " if item["name"] == "dog" else ""
    assert rejection.message.startswith(f"object 2{name}")
    assert shown in rejection.message
    assert len(found.rows[0]["image/object/bbox"]) == 2


@pytest.mark.parametrize("size", [None, (0, 0), (64, "x"), ("", 48), (0, 48)])
def test_sizes_of_the_images_themselves(root: Folder, size: Any) -> None:
    """A size that is not stated, or is 0 or no number, is the image's own."""
    annotate(root, "a", thing("dog", 8, 12, 24, 36), size=size)
    annotate(root, "b", size=size)
    first, second = read(root).rows
    assert first["image/object/bbox"] == [[0.125, 0.25, 0.375, 0.75]]
    assert (first["image/stated_width"], first["image/stated_height"]) == (64, 48)
    assert second["image/object/bbox"] == []
    (root / "JPEGImages/a.jpg").unlink()
    (rejection,) = read(root).rejections
    assert (rejection.source, rejection.part) == ("Annotations/a.xml", "")
    assert rejection.reason is Reason.UNREADABLE


@pytest.mark.parametrize("size", [(64.5, 48), (-64, 48)])
def test_images_without_size(root: Folder, size: Any) -> None:
    """A size that no image has is a reject if there are boxes."""
    annotate(root, "a", thing(), size=size)
    annotate(root, "b", size=size)
    found = read(root)
    (rejection,) = found.rejections
    assert (rejection.source, rejection.part) == ("Annotations/a.xml", "")
    assert rejection.reason is Reason.OUT_OF_RANGE
    assert [row["image/filename"] for row in found.rows] == ["b.jpg"]


LAUGHS = b"""<?xml version="1.0"?>
<!DOCTYPE lolz [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;">]>
<annotation><filename>&c;</filename></annotation>"""
HOSTILE = {
    "laughs": (LAUGHS, "DOCTYPE"),
    "laughs in UTF-16": (LAUGHS.decode().encode("utf-16"), "DOCTYPE"),
    "outer entity": (
        b'<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]>'
        b"<annotation><filename>&e;</filename></annotation>",
        "DOCTYPE",
    ),
    "outer type": (b'<!DOCTYPE x SYSTEM "http://localhost/x"><annotation/>', "DOCTYPE"),
    "unknown entity": (b"<annotation>&nbsp;</annotation>", "undefined entity"),
    "cut": (b"<annotation><object>", "well-formed"),
    "no XML": (b"\xff\xd8\xff\xe0", "well-formed"),
    "two roots": (b"<annotation/><annotation/>", "well-formed"),
    "no UTF-8": (b"<annotation><filename>\xff</filename></annotation>", "well-formed"),
    "unknown encoding": (b'<?xml version="1.0" encoding="x-y"?><a/>', "encoding"),
    "other root": (b"<html/>", "<html>"),
    "empty": (b"", "empty"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_files_that_are_no_annotations(root: Folder, case: str) -> None:
    """What is no annotation, or might be a trap, is a reject that says why."""
    data, shown = HOSTILE[case]
    annotate(root, "b", thing())
    (root / "Annotations/a.xml").write_bytes(data)
    found = read(root)
    assert len(found.rows) == 1
    (rejection,) = found.rejections
    assert rejection.source == "Annotations/a.xml"
    assert rejection.reason is (Reason.MALFORMED if data else Reason.EMPTY_FILE)
    assert shown in rejection.message
    assert rejection.part == ""
    assert len(rejection.sha256) == 64


def test_a_refused_document_type_is_not_read_on(root: Folder) -> None:
    """What is behind a document type takes no memory, entities least of all."""
    entity = b'<!DOCTYPE x [<!ENTITY e "' + b"e" * 10_000 + b'">]>'
    annotate(root, "b", thing())
    bomb = entity + b'<annotation a="' + b"&e;" * 700 + b'"/>'
    (root / "Annotations/a.xml").write_bytes(bomb)
    read(root)
    tracemalloc.start()
    try:
        (rejection,) = read(root).rejections
        assert tracemalloc.get_traced_memory()[1] < 3_000_000
    finally:
        tracemalloc.stop()
    assert "DOCTYPE" in rejection.message


@pytest.mark.parametrize("said", ['xmlns="http://a.b"', 'x:y="z"'])
def test_namespaces_do_not_count(root: Folder, said: str) -> None:
    """Names of elements are read as they are written, declared prefixes or not."""
    annotate(root, "a", thing())
    path = root / "Annotations/a.xml"
    text = path.read_text()
    path.write_text(text.replace("<annotation>", f"<annotation {said}>"))
    assert path.read_text() != text
    found = read(root)
    assert found.rejections == []
    assert found.rows[0]["image/object/class/text"] == ["dog"]


def test_deep_files(root: Folder) -> None:
    """Depth is no danger."""
    annotate(root, "b", thing())
    deep = b"<annotation>" + b"<a>" * 100_000 + b"</a>" * 100_000 + b"</annotation>"
    (root / "Annotations/a.xml").write_bytes(deep)
    assert read(root).rows[0]["image/object/bbox"] == []


@pytest.mark.parametrize(
    ("where", "filename", "image"),
    [
        ("Annotations/a.xml", "a.jpg", "JPEGImages/a.jpg"),
        ("Annotations/a.xml", "a", "JPEGImages/a.jpg"),
        ("Annotations/a.xml", None, "JPEGImages/a.png"),
        ("Annotations/a.xml", "other.jpg", "JPEGImages/other.jpg"),
        ("annotations/a.xml", r"C:\photos\a.jpg", "images/a.jpg"),
        ("annotations/a.xml", "/home/me/a.jpg", "images/a.jpg"),
        ("Annotations/a.xml", "/home/x/sub/a.jpg", "JPEGImages/sub/a.jpg"),
        ("annotations/xmls/a.xml", "a.jpg", "images/a.jpg"),
        ("train/a.xml", "a.jpg", "train/a.jpg"),
        ("a.xml", "a.jpg", "a.jpg"),
        ("a.xml", "wrong.jpg", "a.jpeg"),
        ("VOC2007/Annotations/a.xml", "a.jpg", "VOC2007/JPEGImages/a.jpg"),
    ],
)
def test_where_images_are(
    root: Folder, where: str, filename: str | None, image: str
) -> None:
    """The stated name comes first, then the XML file's own with another suffix."""
    write_xml(root / where, thing(), filename=filename)
    write_image(root / image)
    found = read(root)
    assert os.path.normpath(found.rows[0]["image/encoded"]) == image
    assert found.rows[0]["image/filename"] == (filename or os.path.basename(image))


def test_images_that_are_missing(root: Folder) -> None:
    """Nothing is decided here: the row points where its image should be."""
    write_xml(root / "Annotations/a.xml", thing())
    write_xml(root / "Annotations/b.xml", thing(), filename="x/c.jpg")
    assert read(root).rows[0]["image/encoded"] == "JPEGImages/a.jpg"
    elsewhere = root.with_name("pictures")
    for name in ("a.png", "x/c.jpg"):
        write_image(elsewhere / name)
    found = read(root, images_root=str(elsewhere)).rows
    places = [f"{elsewhere}/a.png", f"{elsewhere}/x/c.jpg"]
    assert [row["image/encoded"] for row in found] == places
    write_image(root / "JPEGImages/a.jpg")
    found = read(root, images_root=str(elsewhere)).rows
    assert found[0]["image/encoded"] == "JPEGImages/a.jpg"


def test_class_masks_are_counted(root: Folder) -> None:
    """Class masks beside the annotations are left out, and a note says how many."""
    write_image(example(root) / "SegmentationClass/2007_01.png")
    (note,) = VocReader().plan(inputs(root, ".xml")).sample.notes
    assert note.startswith("1 class mask in")


@pytest.mark.parametrize(
    ("lists", "splits", "skipped"),
    [
        (
            {"train": "2007_01", "val": "2007_03", "trainval": "2007_01 2007_03"},
            {"2007_01": "train", "2007_03": "validation"},
            1,
        ),
        # What is in neither half of trainval is for training.
        (
            {"test": "2007_02", "trainval": "2007_01 2007_03"},
            {"2007_01": "train", "2007_02": "test", "2007_03": "train"},
            0,
        ),
    ],
)
def test_image_sets(
    root: Folder, lists: dict[str, str], splits: dict[str, str], skipped: int
) -> None:
    """The lists say the split; files that no list has are skipped and counted."""
    example(root)
    list_sets(root, **lists)
    source = source_of(root, VocReader(), ".xml")
    assert source.reader.split_column == VocReader.split_name
    found = read_all(source)
    assert splits_of(found) == splits
    assert found.skipped == ({"not_selected": skipped} if skipped else {})
    assert VocReader.split_name not in source.schema.names


def test_another_image_set(root: Folder) -> None:
    """The lists of the set that is asked for say the splits; it must be there."""
    example(root)
    list_sets(root, train="2007_01", val="2007_03")
    with pytest.raises(SpecError, match="'Segmentation' is none"):
        read(root, image_set="Segmentation")
    list_sets(root, "Segmentation", val="2007_01", train="2007_02")
    found = read(root, image_set="Segmentation")
    assert splits_of(found) == {"2007_01": "validation", "2007_02": "train"}
    assert found.skipped == {"not_selected": 1}


def test_image_in_two_splits(root: Folder) -> None:
    """An id in the lists of two splits is an error that names it."""
    example(root)
    list_sets(root, train="2007_01 2007_02", val="2007_02")
    with pytest.raises(SourceError, match=r"val\.txt.*'2007_02'.*'train'"):
        read(root)


def test_splits_by_folder(root: Folder) -> None:
    """Without lists, the folders' names say the split, if they do; never the file's."""
    for path in ("train/a.xml", "valid/test.xml", "test/c.xml", "more/d.xml"):
        write_xml(root / path, thing())
    found = read(root)
    splits = {"a": "train", "test": "validation", "c": "test"}
    assert splits_of(found) == splits
    assert [(r.source, r.reason) for r in found.rejections] == [
        ("more/d.xml", Reason.BAD_SPLIT)
    ]


def test_fault_125_files_that_change_or_vanish(root: Folder) -> None:
    """A file that was removed or replaced since the listing is rejected by name."""
    source = source_of(example(root), VocReader(), ".xml")
    write_xml(root / "Annotations/2007_01.xml", thing())
    (root / "Annotations/2007_02.xml").unlink()
    found = read_all(source)
    assert [(r.source, r.reason) for r in found.rejections] == [
        ("Annotations/2007_01.xml", Reason.CHANGED_DURING_RUN),
        ("Annotations/2007_02.xml", Reason.CHANGED_DURING_RUN),
    ]
    assert len(found.rows) == 1
