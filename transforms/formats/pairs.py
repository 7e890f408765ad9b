"""Pairs of an image and its mask: which folders hold them, and which mask is whose.

    images/training/a.jpg                   annotations/training/a.png
    leftImg8bit/train/x/a_leftImg8bit.png   gtFine/train/x/a_gtFine_labelIds.png
    train/a.jpg                             train_masks/a_mask.gif
    images/a.jpg                            annotations/trimaps/a.png
    a.jpg                                   a_mask.png

The folders of a pair differ in one name, one a word for images and one a word for
masks. A mask has the path of its image below that name, or else a name that no other
mask has, with one of a few suffixes: the same for all of a source, the one with most
pairs. Other files beside masks (`_color`, `_instanceIds`) are not read. An image or a
mask without partner is a reject; a split without any mask is left out: it is not
labelled.

Sources of the names: ADE20K, Cityscapes, Carvana, Oxford-IIIT pets, Roboflow, CamVid.
"""

import os
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import numpy_mask
from transforms.core.reasons import Reason
from transforms.core.schema import Feature, Kind
from transforms.errors import InputError
from transforms.formats.file_names import (
    bare_name,
    in_nfc,
    is_image_name,
    split_in_path,
)
from transforms.formats.label_join import Labels, Orphan
from transforms.formats.tree_shape import folder_counts
from transforms.storage.file_list import FileList
from transforms.storage.files import storage

MASK = "image/segmentation/class/encoded"
# Roles of the features of images: names of the TF Object Detection API, TF-Vision and
# DeepLab.
PAIR_NAMES: Mapping[str, str] = {
    "image": "image/encoded",
    "filename": "image/filename",
    "source_id": "image/source_id",
    "height": "image/height",
    "width": "image/width",
    "format": "image/format",
    "sha256": "image/key/sha256",
}
# Words of --masks that are no folder.
MASK_WORDS = ("auto", "all", "none")

_SPLIT = "(?:train|training|trainval|val|valid|validation|dev|test|testing)"
_IMAGES = re.compile(
    rf"{_SPLIT}?(?:images?|imgs?|jpe?gimages|leftimg8bit|inputs?|frames|rgb|photos?"
    rf"|pictures?)(?:{_SPLIT}|\d+)*|{_SPLIT}"
)
_MASKS = re.compile(
    rf"(?:{_SPLIT}|images?)*(?:masks?|ann|annots?|annotations?|labels?|gt|gtfine"
    rf"|gtcoarse|groundtruths?|segs?|segmentations?|segmentationclass|targets?"
    rf"|trimaps?)(?:images?|pngs?|{_SPLIT}|\d+)*"
)
_SUFFIXES = (
    *("", "_mask", "-mask", "_masks", "_seg", "_label", "_labels", "_gt", "_L"),
    *("_segmentation", "_Segmentation", "_gtFine_labelIds", "_gtCoarse_labelIds"),
)
_LEFT = "_leftImg8bit"
# Images that stand for all of a folder, and how many of 100 have a mask.
_SAMPLED, _PAIRED = 256, 90
# How tools for semantic masks state their folder in the YAML of a dataset.
_FOLDER_KEY = re.compile(rb"(?m)^masks_dir[ \t]*:[ \t]*[\"']?([^\s\"'#][^\"'#\r\n]*)")
_YAMLS = 32
_BESIDE = re.compile(rf"(?:{'|'.join(map(re.escape, _SUFFIXES[1:]))})\.[^./]+$")


class PairFolders(NamedTuple):
    """Where the images and the masks of a source are.

    Attributes:
      folders: of images, and of their masks, as paths with a `/` at the end.
      suffix: of the stems of masks.
      base: of the paths of masks; empty for the source's root.
    """

    folders: tuple[tuple[str, str], ...]
    suffix: str
    base: str = ""


def mask_features(image: str) -> tuple[Feature, ...]:
    """Returns the features of the class mask of an image, by that image's name."""
    return (
        Feature(MASK, Kind.IMAGE, mask=True, derived_from=image),
        Feature(
            "image/segmentation/class/format",
            Kind.TEXT,
            derived="format",
            derived_from=MASK,
        ),
    )


def find_layout(
    files: FileList, *, least: int = _PAIRED, named: str = ""
) -> PairFolders | None:
    """Returns the layout of images and masks; None where there is none.

    Args:
      files: all images of the source.
      least: of 100 images, so many must have a mask.
      named: the folders of masks, where something says how they are called.
    """
    candidates = _candidates(folder_counts(files), named)
    return _best(files, candidates, least) or _beside(files, least)


def masks_folder(paths: Iterable[str], head: Callable[[str], bytes]) -> str:
    """Returns the name of the folder of masks that a YAML states; empty for none.

    Args:
      paths: of the source; YAMLs that are nearest to its root are looked into.
      head: gives the first bytes of a file, or raises OSError.
    """
    yamls = [path for path in paths if path.lower().endswith((".yaml", ".yml"))]
    nearest = sorted(yamls, key=lambda path: (path.count("/"), path))[:_YAMLS]
    stated = next(filter(None, map(_FOLDER_KEY.search, map(head, nearest))), None)
    folder = stated[1].decode(errors="replace").strip() if stated else ""
    return posixpath.basename(folder.rstrip("/"))


def layout_of(files: FileList, masks: FileList, base: str) -> PairFolders:
    """Returns the layout of masks in a folder that was named.

    Args:
      files: the images.
      masks: the files of that folder.
      base: the folder, to which their paths are relative.

    Raises:
      InputError: no mask is of an image.
    """
    index = MaskIndex("", _under(masks, ""))
    paths = _sample(files, "")
    hits = {s: sum(bool(index.of("", p, s)) for p in paths) for s in _SUFFIXES}
    suffix = max(hits, key=hits.__getitem__)
    if paths and not hits[suffix]:
        raise InputError(
            f"Masks must be called like their images, as in a.png or a_mask.png for "
            f"a.jpg; in {base!r:.200} none is called like {paths[0]!r:.200}."
        )
    return PairFolders((("", ""),), suffix, base)


def sort_files(files: FileList, layout: PairFolders) -> tuple[FileList, FileList]:
    """Returns the images and the masks among the files of a source."""

    def among(place: int, batch: pa.RecordBatch) -> "np.ndarray[Any, Any]":
        paths = batch["path"]
        inside = np.zeros(len(paths), np.bool_)
        for pair in layout.folders:
            inside |= numpy_mask(pc.starts_with(paths, os.fsencode(pair[place])))
        image, mask = layout.folders[0]
        if image == mask:
            ends = rf"{re.escape(layout.suffix)}\.[^./]*$"
            is_mask = numpy_mask(pc.match_substring_regex(paths, ends))
            inside &= is_mask if place else ~is_mask
        return inside

    return files.filter(lambda b: among(0, b)), files.filter(lambda b: among(1, b))


def pair(
    images: FileList, masks: FileList, layout: PairFolders
) -> tuple[FileList, Labels, int]:
    """Returns the images to read, a column of their masks, and how many are left out.

    Those are of splits without masks.

    Args:
      images: in source order.
      masks: files of the folders of masks.
      layout: of both.

    Raises:
      InputError: a mask is that of two images.
    """
    indexes = {mask: MaskIndex(mask, _under(masks, mask)) for _, mask in layout.folders}
    mask_paths: list[str | None] = []
    owners: dict[str, str] = {}
    placed = [
        (next(it for it in layout.folders if entry.path.startswith(it[0])), entry.path)
        for entry in images
    ]
    exact = [indexes[m].at(i, path, layout.suffix) for (i, m), path in placed]
    taken = {*exact}
    for mask, ((image_folder, mask_folder), path) in zip(exact, placed, strict=True):
        if mask is None:
            mask = indexes[mask_folder].of(image_folder, path, layout.suffix)
            # One of that path, which is another's, is not this one's by its name.
            mask = None if mask in taken else mask
        if mask is not None:
            first = owners.setdefault(mask, path)
            if first != path:
                raise InputError(
                    f"A mask must be that of one image; {mask!r:.200} is called like "
                    f"{first!r:.200} and {path!r:.200}. Put masks into folders like "
                    f"those of the images."
                )
        mask_paths.append(mask)
    splits = [_split_of(path) for _, path in placed]
    paired = {s for s, mask in zip(splits, mask_paths, strict=True) if mask}
    kept = np.array([split in paired for split in splits], np.bool_)
    places = iter(np.split(kept, np.cumsum([len(b) for b in images.batches()])))
    chosen = images.filter(lambda _: next(places))
    own = [mask for mask, keep in zip(mask_paths, kept.tolist(), strict=True) if keep]
    stored = [mask and posixpath.join(layout.base, mask) for mask in own]
    lack = str(Reason.IMAGE_WITHOUT_LABEL), "the image has no mask"
    orphans = [path for i in indexes.values() for path in i.orphans(owners, layout)]
    labels = Labels(
        table="",
        columns={MASK: pa.array(stored, pa.string())},
        faults=[None if mask else lack for mask in own],
        orphans=[
            Orphan(None, Reason.LABEL_WITHOUT_IMAGE, "the mask has no image", path)
            for path in sorted(orphans)
        ],
    )
    return chosen, labels, int((~kept).sum())


class MaskIndex:
    """The masks of a folder, by their stems; its length is their number."""

    def __init__(self, folder: str, paths: Iterable[str]) -> None:
        """Takes the masks in a folder, whose name ends with a `/` or is empty."""
        self._by_stem: dict[str, str] = {}
        names: dict[str, str] = {}
        twice: set[str] = set()
        for path in paths:
            stem = _stem(path[len(folder) :])
            if self._by_stem.setdefault(stem, path) != path:
                continue
            name = posixpath.basename(stem)
            if names.setdefault(name, path) != path:
                twice.add(name)
        self._by_name = {n: path for n, path in names.items() if n not in twice}

    def __len__(self) -> int:
        return len(self._by_stem)

    def of_any(self, image: str) -> str | None:
        """Returns the mask of an image with the first suffix for which there is one."""
        candidates = (self.of("", image, suffix) for suffix in _SUFFIXES)
        return next(filter(None, candidates), None)

    def at(self, folder: str, image: str, suffix: str) -> str | None:
        """Returns the mask at the path of an image in a folder."""
        found = (self._by_stem.get(s + suffix) for s in _stems(image[len(folder) :]))
        return next(filter(None, found), None)

    def of(self, folder: str, image: str, suffix: str) -> str | None:
        """Returns the mask of an image in a folder, by its path or else its name."""
        if path := self.at(folder, image, suffix):
            return path
        for stem in _stems(image[len(folder) :]):
            path = self._by_name.get(posixpath.basename(stem) + suffix)
            # That of another split is another one's.
            if path and _split_of(path) in ("", _split_of(image)):
                return path
        return None

    def orphans(self, owners: dict[str, str], layout: PairFolders) -> Iterator[str]:
        """Yields the masks that no image has, without files of other suffixes."""
        owned = {stem for stem, path in self._by_stem.items() if path in owners}
        for stem, path in self._by_stem.items():
            if path in owners or not stem.endswith(layout.suffix):
                continue
            begin = stem
            while begin and begin not in owned:
                begin = begin.rpartition("_")[0]
            if layout.suffix or not begin:
                yield path


def _stems(image: str) -> Sequence[str]:
    """Returns the stems that the mask of an image may have, without `_LEFT` too."""
    whole = _stem(image)
    return (whole, whole.removesuffix(_LEFT)) if _LEFT in whole else (whole,)


def _stem(path: str) -> str:
    """Returns a path without suffix in NFC: file systems store either normal form."""
    return in_nfc(os.path.splitext(path)[0])


def _split_of(path: str) -> str:
    """Returns the split that the folders of an image or a mask name, or ""."""
    return split_in_path(posixpath.dirname(path))


def masks_in(folder: str) -> MaskIndex:
    """Returns the masks below a folder, by their paths in it; none where it is not."""
    if not storage(folder).is_folder():
        return MaskIndex("", [])
    listed = storage(folder).list_tree()
    paths = (entry.path for entry in listed if not entry.skipped)
    return MaskIndex("", filter(is_image_name, paths))


def _candidates(folders: Iterable[str], named: str) -> dict[str, list[str]]:
    """Returns folders that may hold images, each with those that may hold masks."""
    children: dict[str, set[str]] = {}
    for folder in folders:
        above = ""
        for name in folder.split("/")[:-1]:
            children.setdefault(above, set()).add(name)
            above += f"{name}/"
    out = {}
    for above, names in sorted(children.items()):
        masks = sorted(name for name in names if _MASKS.fullmatch(bare_name(name)))
        masks = [named] if named in names else masks
        for name in sorted(names - {*masks}):
            # Masks of another split are those of other images, perhaps of equal names.
            own = [m for m in masks if len({*_split_words(name), *_split_words(m)}) < 2]
            if own and _IMAGES.fullmatch(bare_name(name)):
                out[f"{above}{name}/"] = [f"{above}{mask}/" for mask in own]
    return out


def _split_words(name: str) -> list[str]:
    """Returns the word for a split in the name of a folder of pairs, one at most."""
    return re.findall(_SPLIT, bare_name(name))[:1]


def _best(
    files: FileList, candidates: dict[str, list[str]], least: int
) -> PairFolders | None:
    """Returns the layout with most pairs among samples; None below the least share."""
    indexes = {
        mask: MaskIndex(mask, _under(files, mask))
        for mask in {mask for masks in candidates.values() for mask in masks}
    }
    hits: dict[str, dict[str, tuple[float, str]]] = {suffix: {} for suffix in _SUFFIXES}
    for image, masks in candidates.items():
        paths = _sample(files, image)
        for suffix in _SUFFIXES:
            shares = [
                (_share(indexes[mask], image, paths, suffix), mask) for mask in masks
            ]
            best = max(shares, key=lambda share: share[0])
            if best[0] and best[0] * 100 >= least:
                hits[suffix][image] = best
    suffix = max(_SUFFIXES, key=lambda suffix: sum(s for s, _ in hits[suffix].values()))
    folders = tuple((image, mask) for image, (_, mask) in hits[suffix].items())
    return PairFolders(folders, suffix) if folders else None


def _share(index: MaskIndex, folder: str, paths: Sequence[str], suffix: str) -> float:
    """Returns the share of images with a mask; splits without any do not count."""
    by_split: dict[str, list[bool]] = {}
    for path in paths:
        hit = bool(index.of(folder, path, suffix))
        by_split.setdefault(_split_of(path), []).append(hit)
    counted = [hit for hits in by_split.values() if any(hits) for hit in hits]
    return sum(counted) / len(counted) if counted else 0.0


def _beside(files: FileList, least: int) -> PairFolders | None:
    """Returns the layout of masks that are beside their images."""
    first = next(iter(files.batches()), None)
    if first is None:
        return None
    ends = pc.match_substring_regex(first["path"], _BESIDE.pattern)
    # Nearly no source has any: names of others are looked at once.
    if not 30 <= 100 * numpy_mask(ends).mean() <= 70:
        return None
    for suffix in _SUFFIXES[1:]:
        layout = PairFolders((("", ""),), suffix)
        images, masks = sort_files(files, layout)
        if not masks:
            continue
        index = MaskIndex("", _under(masks, ""))
        if _share(index, "", _sample(images, ""), suffix) * 100 >= least:
            return layout
    return None


def _under(files: FileList, folder: str) -> Iterator[str]:
    """Yields the paths below a folder, which ends with "/", or is "" for all."""
    for batch in files.batches():
        paths = batch["path"]
        inside = paths.filter(pc.starts_with(paths, os.fsencode(folder)))
        yield from map(os.fsdecode, inside.to_pylist())


def _sample(files: FileList, folder: str) -> list[str]:
    """Returns some images of a folder, spread evenly."""
    paths = [path for path in _under(files, folder) if is_image_name(path)]
    return paths[:: -(-len(paths) // _SAMPLED) or 1]
