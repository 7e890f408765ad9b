"""Trees of images: those with class folders, and parts of annotated datasets."""

from collections.abc import Sequence

import pytest

from transforms.errors import InputError
from transforms.formats.file_names import is_image_name
from transforms.formats.images import list_images
from transforms.formats.tree_shape import Surroundings, only_texts
from transforms.storage.file_list import FileList
from transforms.storage.paths import FileEntry


def listed(paths: Sequence[str]) -> FileList:
    return FileList.of(FileEntry(path, 10, 0) for path in paths)


def labels_of(*paths: str) -> tuple[str, ...]:
    """Returns the classes of a tree."""
    around = Surroundings(only_texts(listed(paths)), "convert IN OUT")
    images = listed([path for path in paths if is_image_name(path)])
    return list_images(images, {}, root="IN", around=around).labels


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


@pytest.mark.parametrize(
    ("folders", "left_out"),
    [
        (["photos", "masks"], "masks/"),
        (["rgb", "gt_seg"], "gt_seg/"),
        (["train/photos", "train/x_labels"], "x_labels/"),
        (["shirts", "shirts_mask", "hats"], "shirts_mask/"),
    ],
)
def test_two_folders_of_the_same_stems(folders: list[str], left_out: str) -> None:
    """One is called like masks: it is left out."""
    paths = [*files(*folders), *files(folders[0], count=1, suffix="png")]
    with pytest.raises(InputError, match="the same stems") as caught:
        labels_of(*paths)
    assert f"--unlabelled --exclude {left_out}" in str(caught.value)
    assert "--format images" in str(caught.value)


def test_masks_of_other_stems_are_a_class() -> None:
    """As are those of half of the images."""
    assert labels_of(*files("a"), *(f"b_mask/x{n}.jpg" for n in range(10)))
    assert labels_of(*files("a", count=20), *files("b_mask", count=10))


@pytest.mark.parametrize("suffix", ["txt", "json", "XML"])
@pytest.mark.parametrize("folder", ["photos", "notes", "train/cat"])
def test_texts_of_the_images_stems(folder: str, suffix: str) -> None:
    """A text for each image, beside it or in a folder, is no class folder's."""
    paths = [*files("photos", "cat"), *files(folder, suffix=suffix)]
    with pytest.raises(InputError, match=rf"{folder}/\d+\.{suffix}") as caught:
        labels_of(*paths)
    assert len(str(caught.value)) <= 1024


def test_a_few_texts_say_nothing() -> None:
    """Texts of less than half of the images, or of other stems, are no annotations."""
    few = files("cat", suffix="txt", count=4)
    others = [f"cat/note{n}.txt" for n in range(30)]
    assert labels_of(*files("cat"), *few) == ("cat",)
    assert labels_of(*files("cat"), *others) == ("cat",)
