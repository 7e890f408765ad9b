"""Pairs of image and mask, and masks beside other sources, from end to end."""

import io
import os
import pathlib
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.support.coco import box, coco, image, tree
from tests.support.masks import numbers, write_mask, write_pairs, write_photo
from tests.support.outputs import account, records, rejects, split_sizes
from tests.support.runs import convert, refused
from tests.support.voc import annotate, thing

Folder = pathlib.Path
MASK = "image/segmentation/class/encoded"
OBJECT_MASK = "image/object/mask"
TOLERANT = ("--max-reject-rate", "1")


def pixels(png: bytes) -> Any:
    with Image.open(io.BytesIO(png)) as opened:
        assert opened.format == "PNG"
        return np.asarray(opened)


def masks(out: Folder) -> dict[str, Any]:
    """Returns the mask of each record by the image's file name."""
    return {
        row["image/filename"][0].decode().rpartition("/")[2]: pixels(row[MASK][0])
        for row in records(out)
    }


def test_pairs(tmp_path: Folder) -> None:
    """Records have the features of DeepLab and TF-Vision; folders say the split."""
    root, out = tmp_path / "in", tmp_path / "out"
    for split, seed in (("training", 1), ("validation", 2)):
        write_photo(root / f"images/{split}/a{seed}.jpg", seed)
        write_mask(root / f"annotations/{split}/a{seed}.png", numbers(0, seed))
    convert(root, out)
    assert split_sizes(out) == {"train": 1, "validation": 1}
    (first, _) = records(out)
    assert first.keys() == {
        "image/encoded",
        "image/filename",
        "image/source_id",
        "image/height",
        "image/width",
        "image/format",
        "image/key/sha256",
        MASK,
        "image/segmentation/class/format",
    }
    assert first["image/segmentation/class/format"] == [b"png"]
    assert first["image/height"] == [20]
    found = masks(out)
    for seed in (1, 2):
        np.testing.assert_array_equal(found[f"a{seed}.jpg"], numbers(0, seed))


def test_lists_of_voc_say_the_splits(tmp_path: Folder) -> None:
    """Without XML, too; what they do not list is left out, images and masks."""
    root, out = tmp_path / "in/VOC", tmp_path / "out"
    for name, seed in (("a.b", 1), ("b", 2), ("c", 3)):
        write_photo(root / f"JPEGImages/{name}.jpg", seed)
        write_mask(root / f"SegmentationClass/{name}.png", numbers(0, seed))
    lists = root / "ImageSets/Segmentation"
    lists.mkdir(parents=True)
    (lists / "train.txt").write_text("a.b\n")
    (lists / "val.txt").write_text("b\n")
    convert(tmp_path / "in", out)
    assert split_sizes(out) == {"train": 1, "validation": 1}
    assert account(out)["skipped"]["not_selected"] == 2
    found = masks(out)
    assert sorted(found) == ["a.b.jpg", "b.jpg"]
    np.testing.assert_array_equal(found["b.jpg"], numbers(0, 2))
    (lists / "val.txt").write_text("b\na.b\n")
    assert "must be in one split" in refused(4, tmp_path / "in", out, "--overwrite")


@pytest.mark.parametrize("source", ["", "data.yaml"])
def test_a_folder_that_a_yaml_names(tmp_path: Folder, source: str) -> None:
    """`masks_dir` of YOLO's YAML is in the place of `images`, also beside labels."""
    root, out = tmp_path / "in", tmp_path / "out"
    for split, seed in (("train", 1), ("val", 2)):
        write_photo(root / f"images/{split}/a{seed}.jpg", seed)
        write_mask(root / f"m1/{split}/a{seed}.png", numbers(0, seed))
    (root / "labels/train").mkdir(parents=True)
    (root / "labels/train/a1.txt").write_text("0 .5 .5 .2 .2\n")
    splits = "train: images/train\nval: images/val\n"
    config = root / "data.yaml"
    config.write_text(f"names: [c]\n{splits}masks_dir: 'm1/'  # of classes\n")
    convert(root / source, out)
    assert split_sizes(out) == {"train": 1, "validation": 1}
    found = masks(out)
    for seed in (1, 2):
        np.testing.assert_array_equal(found[f"a{seed}.jpg"], numbers(0, seed))
    config.write_text(f"names: [c]\n{splits}masks_dir: m2\n")
    said = refused(4, root, tmp_path / "no")
    assert "--masks FOLDER" in said


def test_a_list_of_classes(tmp_path: Folder) -> None:
    """Colours and values become the numbers of their lines, and have names."""
    colours = np.stack([numbers(0, 128), numbers(0, 0), numbers(0, 64)], axis=-1)
    root = write_pairs(tmp_path / "in", a=colours, b=colours)
    listed = tmp_path / "labelmap.txt"
    listed.write_text("background:0,0,0::\ncat:128,0,64::\n")
    convert(root, tmp_path / "out", "--mask-classes", listed)
    np.testing.assert_array_equal(masks(tmp_path / "out")["a.jpg"], numbers(0, 1))
    assert "cat" in (tmp_path / "out/label_map.pbtxt").read_text()
    listed.write_text("background:0,0,0::\ndog:1,1,1::\n")
    convert(
        root, tmp_path / "b", "--mask-classes", listed, *TOLERANT, "--min-records=0"
    )
    assert {each["reason"] for each in rejects(tmp_path / "b")} == {"unknown_label"}
    listed.write_text("cat\n")
    refused(2, root, tmp_path / "c", "--mask-classes", listed)
    refused(2, root, tmp_path / "c", "--mask-classes", tmp_path / "none")
    os.truncate(listed, 1 << 30)
    refused(2, root, tmp_path / "c", "--mask-classes", listed)


def test_masks_of_0_and_255_get_a_note(tmp_path: Folder) -> None:
    """Readers ignore what is 255; a list stores 0 and 1."""
    root = write_pairs(tmp_path / "in", a=numbers(0, 255))
    run = convert(root, tmp_path / "out")
    assert "ignore" in run.out + run.err
    np.testing.assert_array_equal(masks(tmp_path / "out")["a.jpg"], numbers(0, 255))
    listed = tmp_path / "classes.txt"
    listed.write_text("0 background\n255 object\n")
    run = convert(root, tmp_path / "b", "--mask-classes", listed)
    assert "ignore" not in run.out + run.err
    np.testing.assert_array_equal(masks(tmp_path / "b")["a.jpg"], numbers(0, 1))


@pytest.mark.parametrize("resize", ["exact:10x20", "shorter:10", "crop:20x20"])
def test_resized_masks_fit_their_images(tmp_path: Folder, resize: str) -> None:
    """Masks have the size of the image, and no number that was not there.

    The same holds where a dataset is converted again.
    """
    root = write_pairs(tmp_path / "in", a=numbers(0, 200, 7), b=numbers(3, 3))
    convert(root, tmp_path / "out", "--resize", resize)
    convert(root, tmp_path / "large")
    convert(tmp_path / "large", tmp_path / "again", "--resize", resize)
    for row in [*records(tmp_path / "out"), *records(tmp_path / "again")]:
        mask = pixels(row[MASK][0])
        assert mask.shape == (row["image/height"][0], row["image/width"][0])
        assert {*mask.ravel().tolist()} <= {0, 200, 7, 3}


def test_what_masks_are_refused_with(tmp_path: Folder) -> None:
    """EXIF turns no mask; other settings need masks or other sources."""
    root = write_pairs(tmp_path / "in", a=numbers(0, 1))
    refused(2, root, tmp_path / "out", "--exif", "apply")
    convert(root, tmp_path / "out", "--exif", "apply", "--masks", "none")
    assert MASK not in records(tmp_path / "out")[0]
    refused(2, root, tmp_path / "b", "--masks", "nowhere")
    csv = tmp_path / "t.csv"
    csv.write_text("a\n1\n")
    refused(2, csv, tmp_path / "b", "--masks", "all")
    refused(2, csv, tmp_path / "b", "--mask-classes", csv)
    plain = tmp_path / "plain"
    write_photo(plain / "images/a.jpg", 1)
    refused(4, plain, tmp_path / "b", "--format", "pairs")


def test_masks_beside_class_folders(tmp_path: Folder) -> None:
    """A folder that is named gives each image its mask; labels stay."""
    root, beside = tmp_path / "in", tmp_path / "beside"
    for seed, name in enumerate(("cat/1", "dog/1", "dog/2")):
        write_photo(root / f"{name}.jpg", seed)
        if name != "dog/2":
            write_mask(beside / f"{name}_mask.png", numbers(0, seed + 1))
    convert(root, tmp_path / "out", "--masks", beside, *TOLERANT)
    found = {row["filename"][0].decode(): row for row in records(tmp_path / "out")}
    assert [found[f"{n}/1.jpg"]["label"] for n in ("cat", "dog")] == [[0], [1]]
    for number, name in enumerate(("cat", "dog"), start=1):
        mask = pixels(found[f"{name}/1.jpg"][MASK][0])
        np.testing.assert_array_equal(mask, numbers(0, number))
    (reject,) = rejects(tmp_path / "out")
    assert (reject["source"], reject["reason"]) == ("dog/2.jpg", "image_without_label")


def test_masks_of_voc(tmp_path: Folder) -> None:
    """Object i is the pixels of value i; an image without masks has boxes, filled."""
    root = tmp_path / "in"
    annotate(root, "a", thing("dog", 0, 0, 32, 48), thing("cat", 32, 0, 64, 48))
    annotate(root, "b", thing("dog", 0, 0, 64, 24))
    objects = np.zeros((48, 64), np.uint8)
    objects[5:15, 10:20], objects[5:15, 20:30], objects[4, 4] = 1, 2, 255
    write_mask(root / "SegmentationObject/a.png", objects, palette=True)
    write_mask(root / "SegmentationClass/a.png", objects // 2, palette=True)
    run = convert(root, tmp_path / "plain")
    assert "--masks all" in run.out + run.err
    assert OBJECT_MASK not in records(tmp_path / "plain")[0]
    convert(root, tmp_path / "out", "--masks", "all")
    found = {row["image/filename"][0]: row for row in records(tmp_path / "out")}
    for number, mask in enumerate(found[b"a.jpg"][OBJECT_MASK], start=1):
        np.testing.assert_array_equal(pixels(mask), objects == number)
    np.testing.assert_array_equal(pixels(found[b"a.jpg"][MASK][0]), objects // 2)
    (mask,) = found[b"b.jpg"][OBJECT_MASK]
    assert pixels(mask).sum() == 64 * 24
    assert MASK not in found[b"b.jpg"]
    convert(root, tmp_path / "c", "--masks", root / "SegmentationClass")
    found = {row["image/filename"][0]: row for row in records(tmp_path / "c")}
    np.testing.assert_array_equal(pixels(found[b"a.jpg"][MASK][0]), objects // 2)
    assert OBJECT_MASK not in found[b"a.jpg"]


def test_trimaps_beside_voc(tmp_path: Folder) -> None:
    """As of Oxford-IIIT pets: a note names the option that stores them."""
    root = tmp_path / "in"
    annotate(root, "a", thing())
    (root / "JPEGImages").rename(root / "images")
    (root / "annotations").mkdir()
    (root / "Annotations").rename(root / "annotations/xmls")
    trimap = np.ones((48, 64), np.uint8)
    write_mask(root / "annotations/trimaps/a.png", trimap)
    said = convert(root, tmp_path / "out").out
    option = "--masks annotations/trimaps"
    assert f"1 class mask in 'annotations/trimaps' left out; {option} stores" in said
    said = convert(root, tmp_path / "masks", *option.split()).out
    assert "left out" not in said
    np.testing.assert_array_equal(masks(tmp_path / "masks")["a.jpg"], trimap)


def test_voc_masks_of_another_size(tmp_path: Folder) -> None:
    """Of objects, they are bad parts; of classes, they take the image."""
    root = tmp_path / "in"
    annotate(root, "a", thing("dog", 0, 0, 32, 48))
    write_mask(root / "SegmentationObject/a.png", numbers(0, 1))
    convert(root, tmp_path / "out", "--masks", "all", *TOLERANT)
    (reject,) = rejects(tmp_path / "out")
    assert (reject["reason"], reject["part"]) == ("size_mismatch", "boxes")
    write_mask(root / "SegmentationClass/a.png", numbers(0, 1))
    convert(
        *(root, tmp_path / "b", "--masks", "all", *TOLERANT, "--min-records=0"),
    )
    assert "size_mismatch" in {
        each["reason"] for each in rejects(tmp_path / "b") if "part" not in each
    }


def test_masks_of_coco_are_resized(tmp_path: Folder) -> None:
    """Boxes are fractions, and masks have the size of the image that is stored."""
    outline = [[8, 12, 24, 12, 24, 36, 8, 36]]
    root = tree(tmp_path / "in", coco([image(1)], [box(1, 1, segmentation=outline)]))
    convert(root, tmp_path / "out", "--masks", "all", "--resize", "exact:24x32")
    (row,) = records(tmp_path / "out")
    mask = pixels(row[OBJECT_MASK][0])
    wanted = np.zeros((24, 32), np.uint8)
    wanted[6:18, 4:12] = 1
    np.testing.assert_array_equal(mask, wanted)
    refused(2, root, tmp_path / "b", "--masks", "all", "--exif", "apply")
    refused(2, root, tmp_path / "b", "--masks", "all", "--resize", "crop:8x8")
