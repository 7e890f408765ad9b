"""Trees of images: those with class folders, and parts of annotated datasets."""

import re
from collections.abc import Sequence

import pytest
from PIL import Image

from tests.support.image_sources import encoded
from transforms.errors import InputError
from transforms.formats.choose_files import only_texts
from transforms.formats.file_names import is_image_name
from transforms.formats.images import arrange
from transforms.formats.tree_shape import Surroundings
from transforms.storage.entries import FileEntry
from transforms.storage.file_list import FileList
from transforms.storage.row_spool import BATCH_ROWS

YOLO = b"0 0.5 0.5 0.25 0.25\n"
looked_at: list[str] = []


def listed(paths: Sequence[str]) -> FileList:
    return FileList.of(FileEntry(path, 10, 0) for path in paths)


def labels_of(*paths: str, masks: str = "", text: bytes = YOLO) -> tuple[str, ...]:
    """Returns the classes of a tree; images are grey where their paths have `masks`."""
    looked_at.clear()

    def heads(some: Sequence[str]) -> list[bytes]:
        looked_at.extend(some)
        grey, colour = (
            encoded(Image.new(mode, (4, 4)), "PNG") for mode in ("L", "RGB")
        )
        pixels = {path: grey if masks and masks in path else colour for path in some}
        return [pixels[path] if is_image_name(path) else text for path in some]

    around = Surroundings(
        only_texts(listed(paths)), heads, "convert IN OUT", "--unlabelled", "--folders"
    )
    images = listed([path for path in paths if is_image_name(path)])
    return arrange(images, {}, root="IN", around=around).labels


def files(*folders: str, suffix: str = "jpg", count: int = 10) -> list[str]:
    return [f"{folder}/{n:03}.{suffix}" for folder in folders for n in range(count)]


@pytest.mark.parametrize(
    "folders",
    [
        ["images"],
        ["IMAGES"],
        ["imgs"],
        ["JPEGImages"],
        ["train/images", "val/images"],
        ["images/train2017", "images/val2017"],
        ["train_images", "test_images"],
        ["train-jpg"],
        ["obj_train_data"],
        ["training/image_2", "testing/image_2"],
        ["images", "masks"],
        ["train", "train_masks"],
        ["image", "label"],
        ["VOC/JPEGImages", "VOC/SegmentationClass"],
        ["img_dir/train", "ann_dir/train"],
        ["leftImg8bit/train", "gtFine/train"],
    ],
    ids=" ".join,
)
def test_folders_called_like_parts_of_datasets(folders: list[str]) -> None:
    """Where each class folder has such a name, below the split, none is a class."""
    with pytest.raises(InputError, match="images are in folders called"):
        labels_of(*(f"{folder}/{n}.jpg" for n, folder in enumerate(folders)))


@pytest.mark.parametrize(
    ("folders", "classes"),
    [
        (["cat"], ("cat",)),
        (["label"], ("label",)),
        (["label_0", "label_1"], ("label_0", "label_1")),
        (["mask", "no_mask"], ("mask", "no_mask")),
        (["with_mask", "without_mask"], ("with_mask", "without_mask")),
        (["Cat", "Dog"], ("Cat", "Dog")),
        (["train/cat", "train/dog", "test/cat"], ("cat", "dog")),
        (["images", "dog", "cat"], ("cat", "dog", "images")),
        ([f"{n:05}" for n in range(43)], tuple(f"{n:05}" for n in range(43))),
    ],
    ids=lambda value: " ".join(value)[:30],
)
def test_class_folders_stay(folders: list[str], classes: tuple[str, ...]) -> None:
    """Other names are classes, though their files have the same stems."""
    assert labels_of(*files(*folders)) == classes
    assert len(looked_at) <= 64


@pytest.mark.parametrize(
    ("folders", "masks", "left_out"),
    [
        (["photos", "masks"], "", "masks/"),
        (["rgb", "gt_seg"], "", "gt_seg/"),
        (["train/photos", "train/x_labels"], "", "x_labels/"),
        (["shirts", "shirts_mask", "hats"], "", "shirts_mask/"),
        (["photos", "truth"], "truth/", "truth/"),
        (["a", "b"], "a/", "a/"),
    ],
)
def test_two_folders_of_the_same_stems(
    folders: list[str], masks: str, left_out: str
) -> None:
    """One is called like masks, or is grey beside colours: it is left out."""
    paths = [*files(*folders), *files(folders[0], count=1, suffix="png")]
    with pytest.raises(InputError, match="the same stems") as caught:
        labels_of(*paths, masks=masks)
    assert f"--unlabelled --exclude {left_out}" in str(caught.value)
    assert "--folders" in str(caught.value)


@pytest.mark.parametrize(
    "paths",
    [
        [*files("a"), *(f"b/x{n}.jpg" for n in range(10))],
        [*files("a", count=20), *files("b", count=10)],
    ],
    ids=["other stems", "half of the stems"],
)
def test_grey_beside_colours_is_a_class(paths: list[str]) -> None:
    """A folder of grey images is one of masks only if it has the stems of the other."""
    assert labels_of(*paths, masks="b/") == ("a", "b")


def test_few_files_are_looked_at() -> None:
    """Of two large folders, eight files say that both are in colours; then 64."""
    assert labels_of(*files("a", "b", count=900)) == ("a", "b")
    assert len(looked_at) == 8
    # More files than a batch of the list.
    with pytest.raises(InputError):
        labels_of(*files("a", "b", count=BATCH_ROWS), masks="b/")
    assert len(set(looked_at)) == 64


@pytest.mark.parametrize(
    ("suffix", "text", "layout"),
    [
        ("txt", YOLO, "YOLO"),
        ("txt", b"Car 0.0 0 -1.5 1 2 3 4 1 1 1 0 0 0 0\n", "KITTI"),
        ("txt", b"a cat on a mat\n", "captions"),
        ("json", b'{"version": "5", "shapes": []', "LabelMe"),
        ("XML", b"<x>", "XML"),
    ],
)
@pytest.mark.parametrize("folder", ["photos", "notes", "train/cat"])
def test_texts_of_the_images_stems(
    folder: str, suffix: str, text: bytes, layout: str
) -> None:
    """A text for each image, beside it or in a folder, is no class folder's."""
    paths = [*files("photos", "cat"), *files(folder, suffix=suffix)]
    with pytest.raises(InputError, match=f"looks like.*{layout}") as caught:
        labels_of(*paths, text=text)
    assert re.search(rf"{folder}/\d+\.{suffix}", str(caught.value))
    assert len(str(caught.value)) <= 1024


def test_a_few_texts_say_nothing() -> None:
    """Texts of less than half of the images, or of other stems, are no annotations."""
    few = files("cat", suffix="txt", count=4)
    others = [f"cat/note{n}.txt" for n in range(30)]
    assert labels_of(*files("cat"), *few) == ("cat",)
    assert labels_of(*files("cat"), *others) == ("cat",)
