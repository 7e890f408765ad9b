"""The shape of a tree of images: `label/file`, `split/label/file`, or an annotated one.

Taken for classes, the folders of an annotated dataset would give records without their
boxes, and masks as records of their own. One of these signs refuses a tree:

    (a) all images are in one folder called images, train_images, JPEGImages or so
    (b) every class folder is called like that, or masks, labels, annotations or so
    (c) two folders hold the same stems, and one of them is called masks or so
    (d) at least half of the images have a .txt, .json or .xml file of their stem

Folders are compared below the split: `train/images` and `images/train` are `images`.
Stems are compared only where folder words ask for it. No file is opened.

Sources of the names: Ultralytics, Darknet, Roboflow, CVAT, KITTI, Pascal VOC,
Cityscapes, Supervisely, MMSegmentation, LabelMe, competitions on Kaggle.
"""

import collections
import dataclasses
import itertools
import os
import re
import shlex
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import numpy_mask
from transforms.errors import InputError, bounded, first_few
from transforms.formats.file_names import bare_name, is_split_word
from transforms.storage.file_list import FileList

SPLIT_WORDS = frozenset("train training val valid validation dev eval test".split())
# How many files of each kind an error shows.
_SHOWN = 3
# Stems that stand for all of a folder.
_SAMPLED = 64
# Of 100 stems, so many are in both folders, and so many have a text.
_SHARED, _WITH_TEXT = 90, 50
_IMAGES = r"(?:images?|imgs?|jpe?gs?|pngs?|tiff?s?|bmps?|obj(?:train|valid|test)data)"
# With a number behind, as in label_0, these are names of classes.
_MARKS = (
    r"(?:labels?|labelids?|anns?|annotations?|masks?|segs?|segmentations?|trimaps?"
    r"|gts?|groundtruths?)(?!\d)"
)
_AROUND = (
    r"(?:train|training|trainval|valid|val|validation|dev|test|testing|eval|data"
    r"|dataset|dir|folder|raw|resized|original|left|bit|fine|class|object|tr|ts|txt|v)"
)
_PART = re.compile(
    rf"(?:{_AROUND}\d*)*(?:{_IMAGES}|{_MARKS})"
    rf"(?:{_IMAGES}|{_MARKS}|{_AROUND}|\d)*"
)
_MARK = re.compile(_MARKS)
_NEGATED = re.compile("no|non|not|without|un")
_WORD = re.compile(r"[A-Z]*[^\W\d_A-Z]+|[A-Z]+|\d+")
# What leaves the stem of a path: its folders, its suffix, and how names of masks end.
_BUT_STEM = (
    r"(?is)^.*/|([_-](masks?|segs?|segmentations?|labels?|labelids|gt|gtfine"
    r"|leftimg8bit))*\.[^./]*$"
)
# What names of annotations match that are for one image each.
_TEXT = r"(?i)[^/]\.(txt|json|xml)$"

_Class = tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Surroundings:
    """What is beside the images of a tree, and what the refusal of the tree proposes.

    Attributes:
      texts: the files of `only_texts`.
      command: converts the source; empty for archives, which have images alone.
    """

    texts: FileList
    command: str = ""


def only_texts(files: FileList) -> FileList:
    """Returns the files beside images that may hold annotations, each of one image."""

    def are_texts(batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        named = pc.match_substring_regex(batch["path"], _TEXT)
        return numpy_mask(named) & ~numpy_mask(batch["hidden"])

    return files.filter(are_texts)


def check_tree(
    images: FileList, folders: Mapping[str, int], around: Surroundings, *, root: str
) -> None:
    """Refuses a tree of images whose folders seem to say no class.

    Args:
      images: the files.
      folders: of all images, with a `/` behind each name, and how many are in each.
      around: what is beside them.
      root: named in errors.

    Raises:
      InputError: it has one of the signs that the module lists.
    """
    classes: dict[_Class, list[str]] = {}
    for folder in folders:
        classes.setdefault(_class_of(folder), []).append(folder)
    classes.pop((), None)
    names = sorted({names[-1] for names in classes})
    masks = [name for name in names if _MARK.fullmatch(bare_name(name))]
    seen = []
    is_one_place = len({names[:-1] for names in classes}) == 1
    are_parts = all(_PART.fullmatch(bare_name(name)) for name in names)
    # Who follows `label/file` to the letter has one class of that name.
    if is_one_place and are_parts and names != ["label"]:
        few = first_few([repr(name) for name in names], 4)
        seen.append(f"all {len(images):,} images are in folders called {few}")
    elif pair := _images_and_masks(images, folders, classes):
        masks = [pair[1]]
        seen.append(f"{pair[0]!r} and {pair[1]!r} hold files of the same stems")
    text = ""
    about_as_many = len(around.texts) * 100 >= len(images) * _WITH_TEXT
    if about_as_many:
        text = _partner(images, "", len(images), around.texts, "", _WITH_TEXT)
    if text:
        seen.append(f"files like {text!r} have the stems of images")
    if not seen:
        return
    layout, remedy = _layout(text, has_masks=bool(masks))
    left_out = "".join(f" --exclude {shlex.quote(f'{m}/')}" for m in masks[:2])
    advice = (
        f"{remedy}. Try: {around.command} --unlabelled{left_out} for the images alone; "
        f"{around.command} --format images where the folders are classes all the same."
    )
    if not around.command:
        advice = "Where the folders are classes all the same, say --format archive."
    raise InputError(
        bounded(
            f"Folders must say the class of their images; below {root!r} "
            f"{', and '.join(seen)}. This looks like {layout}. {advice}"
        )
    )


def first_folder(folder: str) -> str:
    """Returns the first folder of a path, which is the split in `split/label/file`."""
    return folder.partition("/")[0]


def has_splits(
    entries: FileList, folders: Mapping[str, int], root: str, *, by_folders: bool
) -> bool:
    """Whether the first level says the split; raises where no rule fits.

    Args:
      entries: the files.
      folders: of all files, as `folder_counts` has them, and how many are in each.
      root: named in errors.
      by_folders: whether folders say the label.
    """
    depths: collections.Counter[int] = collections.Counter()
    for folder, count in folders.items():
        depths[folder.count("/") + 1] += count
    first = {folder.partition("/")[0] for folder in folders if folder}
    with_splits = bool(first) and {n.lower() for n in first} <= SPLIT_WORDS
    if not by_folders:
        return with_splits and 1 not in depths
    if not set(depths) - {3 if with_splits else 2}:
        return with_splits
    examples = []
    for depth, count in sorted(depths.items()):
        paths = (e.path for e in entries if e.path.count("/") + 1 == depth)
        examples.append(f"{count} like {', '.join(itertools.islice(paths, _SHOWN))}")
    rule = "split/label/file" if with_splits else "label/file or split/label/file"
    if set(depths) == {3} and not with_splits:
        # It looks like the rule, but for the name.
        unknown = [repr(n) for n in sorted(first) if n.lower() not in SPLIT_WORDS]
        words = ", ".join(sorted(SPLIT_WORDS))
        examples.append(f"{first_few(unknown, _SHOWN)}: splits are called {words}")
    raise InputError(
        f"Images, and other files, must be arranged as {rule} below {root!r}; found "
        f"{'; '.join(examples)}. Point at the folder that holds the labels (or the "
        f"splits), leave files out with --exclude, or use --unlabelled where they have "
        f"no labels."
    )


def folder_counts(files: FileList) -> collections.Counter[str]:
    """Returns how many files each folder holds, with a `/` behind each name."""
    counts: collections.Counter[str] = collections.Counter()
    for batch in files.batches():
        folders = pc.replace_substring_regex(batch["path"], "[^/]*$", "")
        for item in folders.value_counts().to_pylist():
            counts[os.fsdecode(item["values"])] += item["counts"]
    return counts


def _class_of(folder: str) -> _Class:
    """Returns the names on a folder's path that are not splits: its class."""
    return tuple(name for name in folder.split("/")[:-1] if not _is_split(name))


def _split_of(folder: str) -> tuple[str, ...]:
    """Returns the names on a folder's path that are splits."""
    return tuple(name for name in folder.split("/") if _is_split(name))


def _is_split(name: str) -> bool:
    """Whether a folder's name is a word for a split, without digits and marks."""
    return is_split_word(re.sub(r"[\W\d_]+", "", name))


def _images_and_masks(
    images: FileList,
    folders: Mapping[str, int],
    classes: Mapping[_Class, Sequence[str]],
) -> tuple[str, str] | None:
    """Returns the names of a tree's folders of images and of their masks, if any."""
    # Of mask and no_mask, neither is a folder of masks.
    negated = any(_NEGATED.match(bare_name(names[-1])) for names in classes)
    masks = [names for names in classes if not negated and _is_marked(names[-1])]
    others = [names for names in classes if names not in masks]
    for image, mask in itertools.product(others[:16], masks[:4]):
        one = max(classes[image], key=lambda folder: folders[folder])
        other = next((f for f in classes[mask] if _split_of(f) == _split_of(one)), one)
        less, more = sorted([folders[one], folders[other]])
        # To compare the stems of 500,000 files takes 0.3 s.
        if (
            other != one
            and less * 100 >= more * _SHARED
            and _partner(images, one, folders[one], images, other, _SHARED)
        ):
            return image[-1], mask[-1]
    return None


def _is_marked(name: str) -> bool:
    """Whether a word in the name of a tree's folder says that it holds masks."""
    return any(_MARK.fullmatch(word.lower()) for word in _WORD.findall(name))


def _partner(
    images: FileList, folder: str, count: int, files: FileList, other: str, share: int
) -> str:
    """Returns a file of a tree's folder that has the stem of an image in another one.

    Empty unless `share` of 100 sampled images have such a file.

    Args:
      images: of which `count` are in `folder`.
      files: of which those in the folder `other` are looked for.
    """
    stems = _stems(_sample(images, folder, count)).unique()
    by_stem: dict[bytes, bytes] = {}
    for batch in files.batches():
        inside = batch["path"].filter(pc.starts_with(batch["path"], other))
        inside = inside.filter(pc.is_in(_stems(inside), value_set=stems))
        by_stem |= zip(_stems(inside).to_pylist(), inside.to_pylist(), strict=True)
    enough = by_stem and len(by_stem) * 100 >= len(stems) * share
    return os.fsdecode(min(by_stem.values())) if enough else ""


def _sample(files: FileList, folder: str, count: int) -> pa.BinaryArray:
    """Returns the paths of some of the `count` files in a folder, spread evenly."""
    step, seen = -(-count // _SAMPLED) or 1, 0
    out = [pa.array([], pa.binary())]
    for batch in files.batches():
        inside = batch["path"].filter(pc.starts_with(batch["path"], folder))
        places = pa.array(range(-seen % step, len(inside), step), pa.int64())
        out.append(inside.take(places))
        seen += len(inside)
    return pa.concat_arrays(out)


def _stems(paths: pa.BinaryArray) -> pa.BinaryArray:
    """Returns file names without folder, suffix and endings such as _mask."""
    return pc.replace_substring_regex(paths, _BUT_STEM, "")


def _layout(text: str, *, has_masks: bool) -> tuple[str, str]:
    """Returns what a tree probably is, and what its annotations can be converted from.

    Args:
      text: a file of an image's stem; empty where there are none.
      has_masks: whether some folders are of masks.
    """
    layouts = {
        ".json": "LabelMe, or a JSON file for each image",
        ".xml": "an XML file for each image",
        ".txt": "YOLO, KITTI or captions",
    }
    if text:
        return layouts[os.path.splitext(text)[1].lower()], (
            "Boxes are read from folders with COCO JSON, Pascal VOC XML, YOLO labels, "
            "LabelMe JSON or CSV: export one of these; captions from a table with the "
            "columns image and text"
        )
    if has_masks:
        remedy = "Name the folder of the masks: --format pairs --masks FOLDER"
        return "images and their masks", remedy
    remedy = "If a table has the labels, use --labels TABLE --id-column COLUMN"
    return "images without class folders", remedy
