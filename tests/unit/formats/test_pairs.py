"""Which folders hold images and their masks, and which mask is whose."""

from typing import Any

import pytest

from transforms.core.reasons import Reason
from transforms.errors import InputError
from transforms.formats.pairs import (
    MASK,
    PairFolders,
    find_layout,
    layout_of,
    pair,
    sort_files,
)
from transforms.storage.file_list import FileList
from transforms.storage.paths import FileEntry

CITY = "train/x/a_{}"


def files(*paths: str) -> FileList:
    return FileList.of([FileEntry(path, 5, 0) for path in sorted(paths)], by_path=True)


def paired(*paths: str, **options: Any) -> Any:
    """Returns the images that are read, their masks, and how many are left out."""
    listed = files(*paths)
    layout = find_layout(listed, **options)
    assert layout is not None
    return pair(*sort_files(listed, layout), layout)


def pairs_of(*paths: str) -> dict[str, str | None] | None:
    """Returns the mask of each image that is read; None for no pairs."""
    if find_layout(files(*paths)) is None:
        return None
    chosen, labels, _ = paired(*paths)
    column = labels.columns[MASK].to_pylist()
    return dict(zip((entry.path for entry in chosen), column, strict=True))


@pytest.mark.parametrize(
    ("images", "masks"),
    [
        (["images/a.jpg", "images/b.jpg"], ["masks/a.png", "masks/b.png"]),
        (["images/training/a.jpg"], ["annotations/training/a.png"]),
        (
            ["images/training/a.jpg", "images/validation/a.jpg"],
            ["annotations/training/a.png", "annotations/validation/a.png"],
        ),
        (["train/images/a.jpg"], ["train/masks/a.png"]),
        (
            ["train/images/a.jpg", "valid/images/b.jpg"],
            ["train/masks/a.png", "valid/masks/b.png"],
        ),
        (
            ["train/a.jpg", "val/b.jpg"],
            ["train_masks/a_seg.gif", "val_masks/b_seg.gif"],
        ),
        (["train/a.jpg", "val/a.jpg"], ["train_masks/a.png", "val_masks/a.png"]),
        (["test/a.jpg", "train/a.jpg"], ["testannot/a.png", "trainannot/a.png"]),
        (["train_images/a.jpg"], ["train_masks/a-mask.png"]),
        (["images/a.jpg"], ["annotations/trimaps/a.png"]),
        (["images/x/a.jpg"], ["labels/a_label.png"]),
        (["images/0.png"], ["images_gt/0.png"]),
        (["data/imgs/a.jpg"], ["data/segmentations/a_seg.png"]),
        (["CamVid/train/a.png"], ["CamVid/train_labels/a_L.png"]),
        (["VOC/JPEGImages/a.jpg"], ["VOC/SegmentationClass/a.png"]),
        (["train/a.jpg", "train/b.jpg"], ["train/a_mask.png", "train/b_mask.png"]),
        (["a.jpg"], ["a_mask.png"]),
        (
            ["leftImg8bit/train/x/a_leftImg8bit.png"],
            ["gtFine/train/x/a_gtFine_labelIds.png"],
        ),
    ],
)
def test_layouts(images: list[str], masks: list[str]) -> None:
    """ADE20K, Roboflow, Carvana, pets, CamVid, Cityscapes, VOC, plain folders."""
    assert pairs_of(*images, *masks) == dict(zip(images, masks, strict=True))


@pytest.mark.parametrize(
    "paths",
    [
        ["mask/a.jpg", "no_mask/a.jpg"],
        ["with_mask/a.jpg", "without_mask/a.jpg"],
        ["cats/1.jpg", "dogs/1.jpg"],
        ["train/cats/1.jpg", "train/masks/1.jpg"],
        ["images_a/a.jpg", "labels/ax.jpg"],
        ["images/a.jpg", "masks/b.jpg"],
        ["images/a.jpg"],
        ["train/a.jpg", "test/a.jpg"],
        ["x/a_L.jpg", "x/a_R.jpg"],
        ["left/a.jpg", "right/a.jpg"],
        [],
    ],
)
def test_no_pairs(paths: list[str]) -> None:
    """Classes, two views, and folders of such names whose files are not alike."""
    assert pairs_of(*paths) is None


def test_nine_of_ten_images_have_a_mask() -> None:
    """Others are rejects; below that, the folders are not pairs."""
    images = [f"images/{n}.jpg" for n in range(10)]
    masks = [f"masks/{n}.png" for n in range(9)]
    found = pairs_of(*images, *masks)
    assert found is not None
    assert [path for path, mask in found.items() if mask is None] == ["images/9.jpg"]
    assert pairs_of(*images, *masks[1:]) is None
    assert find_layout(files(*images, *masks[1:]), least=0) is not None


def test_partners_are_missing() -> None:
    """An image without mask and a mask without image are rejects with reasons."""
    paths = ("images/a.jpg", "images/b.jpg", "masks/a.png", "masks/c.png")
    _, labels, _ = paired(*paths, least=0)
    assert [fault and fault[0] for fault in labels.faults] == [
        None,
        "image_without_label",
    ]
    orphans = [(each.origin, each.row, each.reason) for each in labels.orphans]
    assert orphans == [("masks/c.png", None, Reason.LABEL_WITHOUT_IMAGE)]


def test_other_files_beside_masks_are_not_read() -> None:
    """Colours and instances of Cityscapes are neither masks nor images."""
    names = ("labelIds", "instanceIds", "color")
    city = [f"gtFine/{CITY.format(f'gtFine_{name}')}.png" for name in names]
    image = f"leftImg8bit/{CITY.format('leftImg8bit')}.png"
    layout = find_layout(files(image, *city))
    assert layout is not None
    assert layout.suffix == "_gtFine_labelIds"
    # Without a suffix, those that begin like a mask belong to it.
    plain = ("images/a.jpg", "masks/a.png", "masks/a_color.png")
    for paths in ((image, *city), plain):
        _, labels, _ = paired(*paths)
        assert labels.orphans == []


def test_splits_without_masks_are_left_out() -> None:
    """They are not labelled, which is no fault of their images."""
    chosen, labels, left_out = paired(
        *(f"images/{s}/{n}.jpg" for s in ("train", "test") for n in range(5)),
        *(f"masks/train/{n}.png" for n in range(5)),
    )
    assert left_out == 5
    assert {entry.path[:13] for entry in chosen} == {"images/train/"}
    assert len(labels.faults) == len(chosen)


def test_a_mask_is_of_one_image() -> None:
    """A base name that fits two images is an error that names both."""
    with pytest.raises(InputError) as caught:
        paired("images/x/1.jpg", "images/y/1.jpg", "masks/1.png")
    assert "images/x/1.jpg" in str(caught.value)
    assert "images/y/1.jpg" in str(caught.value)


def test_a_mask_beside_its_image_is_no_other_ones() -> None:
    """An image of the same name in another folder has none."""
    bad = [f"bad/{n}.png" for n in range(9)]
    masks = [f"bad/{n}_mask.png" for n in range(9)]
    paired = dict(zip(bad, masks, strict=True))
    assert pairs_of(*bad, *masks, "good/1.png") == {**paired, "good/1.png": None}


def test_a_folder_of_masks_that_is_named() -> None:
    """Masks are found by path or name below any folder; some must be."""
    images = files("cats/a.jpg", "dogs/b.jpg")
    masks = files("cats/a_mask.png", "b_mask.png")
    layout = layout_of(images, masks, "/masks")
    assert layout == PairFolders((("", ""),), "_mask", "/masks")
    _, labels, _ = pair(images, masks, layout)
    column = labels.columns[MASK].to_pylist()
    assert column == ["/masks/cats/a_mask.png", "/masks/b_mask.png"]
    with pytest.raises(InputError):
        layout_of(images, files("x.png"), "/masks")


def test_names_are_compared_in_nfc() -> None:
    """A file system may store one of them in NFD."""
    image, mask = "images/\u00e9.jpg", "masks/e\u0301.png"
    assert pairs_of(image, mask) == {image: mask}
