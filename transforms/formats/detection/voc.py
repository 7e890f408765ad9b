"""Pascal VOC XML as rows of images, under the names of the TF Object Detection API.

A row is an XML file, with lists that run parallel: of boxes, names and ids of
classes, difficult and truncated flags, views. An image without objects has empty
lists. Class ids count from 1, by the given names or by all names that there are,
sorted. Parts of objects and the flag `occluded` are not read. Masks are where they are
asked for: of classes in `SegmentationClass`, of objects in `SegmentationObject`, where
the pixels of the first object of a file are 1.

Coordinates are divided by the image's size as they stand, as the TF Object Detection
API and TFDS do it. The devkit counts pixels from 1; with `first_pixel` 1 the left and
the upper edge of a box are one less before.

Splits are those of `ImageSets/Main` where that is, and XML files that no list has are
skipped; else those that words in the names of folders say.

Files are parsed one by one in Python, which costs most of the time here.

Sources: http://host.robots.ox.ac.uk/pascal/VOC/voc2012/htmldoc/devkit_doc.html;
research/object_detection/dataset_tools/create_pascal_tf_record.py of
tensorflow/models.
"""

import dataclasses
import functools
import math
import os
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np
import pyarrow as pa

from transforms.core.image.masks import Mask as Pixels
from transforms.core.image.masks import object_mask
from transforms.core.image.png import decode_png
from transforms.core.image.policy import ImagePolicy, prepare_image
from transforms.core.model import Block, Rejection
from transforms.core.placing.vocabulary import sorted_names
from transforms.core.reasons import Fault, FaultError, Reason, Skipped
from transforms.errors import InputError, SpecError, first_few
from transforms.formats.detection.boxed_rows import (
    BOXES,
    OBJECT_MASK,
    Annotated,
    BoxedReader,
    detection_features,
    even_rows,
    image_rows,
    root_of,
    sample_of,
    size_of_image,
)
from transforms.formats.detection.listed import load_annotation
from transforms.formats.detection.voc_files import (
    IS_CVAT,
    VocImage,
    VocObject,
    image_path,
    image_sets,
    parse_voc,
)
from transforms.formats.file_names import split_in_path
from transforms.formats.pairs import MASK, MASK_WORDS, MaskIndex, masks_in
from transforms.formats.table import (
    Complaint,
    InputFile,
    Planned,
    RawRows,
    SourceFile,
    rejecter,
    rejection_of,
)
from transforms.formats.table_source import RunReader
from transforms.storage.files import storage

SPLIT_COLUMN = "image set"
_SAMPLE_FILES = 2000
# To read a mask takes far longer than to read boxes.
_DRAWN_FILES = 200
_CLASSES, _OBJECTS = "SegmentationClass", "SegmentationObject"
_ROOT = re.compile(rb"<(annotations?)[\s>]")
# The most names that a message lists.
_SHOWN_NAMES = 10

# Of a file: its split where one is known, and whether it is to be skipped.
_Split = tuple[str | None, bool]


# An image, or why there is none; the bytes of the file.
_Loaded = tuple[VocImage | Fault, bytes | None]
# Lists the masks in a folder.
_Listed = Callable[[str], MaskIndex]


@dataclasses.dataclass(frozen=True, slots=True)
class VocReader(BoxedReader, RunReader):
    """Reads trees of VOC XML files.

    Attributes:
      labels: the class names by id, from 1; empty for all that there are, sorted,
        once they are known.
      first_pixel: the number of the first pixel of a row or column: 0 or 1.
      split_column: see `TableReader`.
    """

    title: ClassVar[str] = "Pascal VOC XML"

    labels: tuple[str, ...] = ()
    first_pixel: int = 0
    split_column: str = ""

    def __post_init__(self) -> None:
        BoxedReader.__post_init__(self)
        if self.first_pixel not in (0, 1):
            raise SpecError(f"first_pixel must be 0 or 1; found {self.first_pixel!r}.")
        if len(set(self.labels)) < len(self.labels):
            raise SpecError(f"labels must differ; found {list(self.labels)}.")

    def plan(self, files: Sequence[InputFile]) -> Planned:
        """Samples the files evenly; finds all classes, and whether there are splits."""
        sampled = _DRAWN_FILES if self.masks == "all" else _SAMPLE_FILES
        chosen = even_rows(len(files), sampled).tolist()
        kept = frozenset(chosen)
        splits = _splits_of(files)
        loaded: dict[int, _Loaded] = {}
        names: set[str] = set()
        for place in chosen if self.labels else range(len(files)):
            image, data = _load(files[place])
            if isinstance(image, VocImage):
                names.update(item.name for item in image.objects)
            # The rest is not kept: there may be millions of files.
            if place in kept:
                loaded[place] = image, data
        has_splits = any(split for split, _ in splits)
        reader = dataclasses.replace(
            self,
            labels=self.labels or sorted_names(names - {""}),
            split_column=SPLIT_COLUMN if has_splits else "",
        )
        raw = reader._rows_of(
            [files[place] for place in chosen],
            Block("", 0, len(chosen), rows=len(chosen)),
            [splits[place] for place in chosen],
            [loaded[place] for place in chosen],
            is_sample=True,
        )
        sample = sample_of(
            [raw], total_rows=len(files), complete=len(chosen) == len(files)
        )
        columns = dict(sample.columns)
        if columns[SPLIT_COLUMN].null_count == sample.rows:
            del columns[SPLIT_COLUMN]
        folders = {MASK: _CLASSES, OBJECT_MASK: _OBJECTS}
        counts = {n: len(masks_in(_beside(files[0], n))) for n in folders.values()}
        for column, name in folders.items():
            if not counts[name] and self.masks in MASK_WORDS:
                columns.pop(column, None)
        notes = _mask_notes(files, self.masks, counts)
        sample = dataclasses.replace(sample, columns=columns, notes=notes)
        label_map = dict(enumerate(reader.labels, start=1))
        return Planned(reader, sample, detection_features(columns), label_map)

    def blocks(
        self, file: InputFile, *, block_bytes: int, limit_rows: int | None
    ) -> Iterator[Block]:
        """Yields the one row of a file."""
        if limit_rows is None or limit_rows > 0:
            yield file.block(0, 1, rows=1)

    def read(
        self, file: SourceFile, block: Block, columns: Sequence[str]
    ) -> Iterator[RawRows]:
        """Yields the image of a file."""
        yield self._read([file], block, columns)

    def read_run(
        self, run: pa.Table, root: str, block: Block, columns: Sequence[str]
    ) -> Iterator[RawRows]:
        """Yields the images of a run of XML files."""
        files = [
            SourceFile(row["path"], os.path.join(root, row["path"]), stamp=row["stamp"])
            for row in run.select(["path", "stamp"]).to_pylist()
        ]
        yield self._read(files, block, columns)

    def _read(
        self, files: Sequence[SourceFile], block: Block, columns: Sequence[str]
    ) -> RawRows:
        splits = _splits_of(files)
        entries = [
            None if skip else _load(file)
            for file, (_, skip) in zip(files, splits, strict=True)
        ]
        return self._rows_of(files, block, splits, entries).only(columns)

    def _rows_of(
        self,
        files: Sequence[SourceFile],
        block: Block,
        splits: Sequence[_Split],
        entries: Sequence[_Loaded | None],
        *,
        is_sample: bool = False,
    ) -> RawRows:
        """Returns the images of files; entries of files that are skipped are unused."""
        places = [i for i, (_, skip) in enumerate(splits) if not skip]
        loaded = {i: entry for i in places if (entry := entries[i]) is not None}
        images = {i: im for i, (im, _) in loaded.items() if isinstance(im, VocImage)}
        bad = [(i, *im) for i, (im, _) in loaded.items() if isinstance(im, Fault)]
        read = list(images)
        paths = [
            image_path(
                root_of(files[i]), files[i].origin, im.filename, self.images_root
            )
            for i, im in images.items()
        ]
        # Listed anew for each block: the folder may change between runs.
        listed = functools.cache(masks_in)
        found = self._annotated(files, images, paths, loaded, listed)
        columns = {SPLIT_COLUMN: pa.array([splits[i][0] for i in read], pa.string())}
        columns |= self._class_masks([files[i] for i in read], paths, listed)
        found = dataclasses.replace(found, columns={**found.columns, **columns})
        if not is_sample:
            found = dataclasses.replace(
                found,
                size_of=lambda i: size_of_image(
                    root_of(files[read[i]]), paths[i], self.image_policy
                ),
            )
        raw = image_rows(block, found, self.bad_box)
        origins = [files[i].origin for i in raw.numbers.tolist()]
        skipped = len(files) - len(places)
        return dataclasses.replace(
            raw,
            # Each is the first row of its file.
            numbers=np.zeros(len(origins), np.int64),
            places=raw.numbers,
            refused=[*bad, *raw.refused],
            origins=pa.array(origins, pa.string()),
            skipped={str(Skipped.NOT_SELECTED): skipped} if skipped else {},
        )

    def _annotated(
        self,
        files: Sequence[SourceFile],
        images: Mapping[int, VocImage],
        paths: Sequence[str],
        loaded: Mapping[int, _Loaded],
        listed: _Listed,
    ) -> Annotated:
        """Returns images by the places of their files, and their objects."""
        items = [item for image in images.values() for item in image.objects]
        numbers = [n for im in images.values() for n in range(1, len(im.objects) + 1)]
        counts = [len(image.objects) for image in images.values()]
        parents = np.repeat(np.arange(len(images)), counts)
        origins = [files[place].origin for place in images]
        filenames = [
            image.filename or posixpath.basename(path)
            for image, path in zip(images.values(), paths, strict=True)
        ]
        ids = {name: number for number, name in enumerate(self.labels, start=1)}
        names = pa.array(filenames, pa.string())

        def reject_object(index: int, fault: Fault) -> Rejection:
            origin = origins[parents[index]]
            raw = repr(items[index]).encode()
            return rejection_of(origin, (0, *fault), raw, part=BOXES, numbered=False)

        def explain(index: int, words: str) -> str:
            return f"object {numbers[index]}, {items[index].name[:60]!r}: {words}"

        def ints(values: Iterable[int | None]) -> pa.Array:
            return pa.array(values, pa.int64())

        sides = [(image.width, image.height) for image in images.values()]
        return Annotated(
            columns={
                "image/encoded": pa.array(paths, pa.string()),
                "image/filename": names,
                # As TensorFlow's own writer does.
                "image/source_id": names,
            },
            numbers=np.array(list(images), np.int64),
            reject=rejecter(_rejection, files, loaded),
            parents=parents,
            boxes=np.array([item.box for item in items], np.float64).reshape(-1, 4),
            names=pa.array([item.name for item in items], pa.string()),
            labels=np.array([ids.get(item.name, 0) for item in items], np.int64),
            said={
                i: fault
                for i, item in enumerate(items)
                if (fault := self._fault(item, numbers[i], ids)) is not None
            },
            explain=explain,
            reject_object=reject_object,
            sides=(
                pa.array([width for width, _ in sides], pa.float64()),
                pa.array([height for _, height in sides], pa.float64()),
            ),
            lists={
                "image/object/difficult": ints(item.difficult for item in items),
                "image/object/truncated": ints(item.truncated for item in items),
                "image/object/view": pa.array([o.pose for o in items], pa.string()),
            },
            first_pixel=self.first_pixel,
            mask_of=self._drawer(
                [files[place] for place in images], parents.tolist(), numbers, listed
            ),
            most_pixels=self.image_policy.max_pixels,
        )

    def _class_masks(
        self, files: Sequence[SourceFile], paths: Sequence[str], listed: _Listed
    ) -> dict[str, pa.Array]:
        """Returns the column of class masks, where there is one."""
        if self.masks != "all":
            return self.class_masks(root_of(files[0]), paths) if files else {}
        masks = [_mask_beside(file, _CLASSES, listed) for file in files]
        return {MASK: pa.array(masks, pa.string())}

    def _drawer(
        self,
        files: Sequence[SourceFile],
        parents: Sequence[int],
        numbers: Sequence[int],
        listed: _Listed,
    ) -> Callable[[int, int, int, Sequence[float]], Pixels] | None:
        """Returns what draws the masks of objects; None to draw none.

        Args:
          files: of the images.
          parents: of each object: the position of its file.
          numbers: of each object in its file, from 1.
          listed: lists the masks in a folder.
        """
        if self.masks != "all":
            return None

        # Objects come image by image.
        numbers_in = functools.lru_cache(maxsize=1)(_numbers_in)

        def draw(index: int, height: int, width: int, box: Sequence[float]) -> Pixels:
            path = _mask_beside(files[parents[index]], _OBJECTS, listed)
            if path is None:
                return object_mask(None, height, width, box)
            pixels = numbers_in(path, self.image_policy)
            if pixels.shape != (height, width):
                raise FaultError(
                    Reason.SIZE_MISMATCH,
                    f"{path[-200:]!r} has {pixels.shape[1]} x {pixels.shape[0]} "
                    f"pixels, and the image {width} x {height}",
                )
            return (pixels == numbers[index]).astype(np.uint8)

        return draw

    def _fault(
        self, item: VocObject, number: int, ids: Mapping[str, int]
    ) -> Fault | None:
        """Returns what is wrong with an object whatever its box is."""
        about = f"object {number}"
        if not item.name:
            return Fault(Reason.MISSING_VALUE, f"{about} has no <name>")
        about += f", {item.name[:60]!r}: "
        if item.name not in ids:
            shown = first_few(list(map(repr, self.labels)), _SHOWN_NAMES)
            return Fault(Reason.UNKNOWN_LABEL, f"{about}the names are {shown}")
        if item.truncated is None or item.difficult is None:
            wrong = "truncated" if item.truncated is None else "difficult"
            return Fault(Reason.NOT_A_BOOL, f"{about}<{wrong}> must be 0 or 1")
        if not all(map(math.isfinite, item.box)):
            words = "bndbox must hold xmin, ymin, xmax and ymax as finite numbers"
            return Fault(Reason.BAD_BOX, f"{about}{words}; found {list(item.stated)}")
        return None


def _load(file: SourceFile) -> _Loaded:
    return load_annotation(file, parse_voc, what="a VOC annotation")


def _beside(file: SourceFile, name: str) -> str:
    """Returns the path of a folder beside that of an XML file."""
    above = posixpath.dirname(posixpath.dirname(file.origin))
    return posixpath.join(root_of(file), above, name)


def _mask_beside(file: SourceFile, name: str, listed: _Listed) -> str | None:
    """Returns the path of an image's mask in a folder beside that of its XML file."""
    folder = _beside(file, name)
    mask = listed(folder).of("", posixpath.basename(file.origin), "")
    return mask and posixpath.join(folder, mask)


def _numbers_in(path: str, policy: ImagePolicy) -> Pixels:
    """Returns the number of each pixel of a mask; raises FaultError."""
    try:
        data, _ = storage(path).read_stamped(policy.max_bytes)
    except OSError as error:
        raise FaultError(Reason.UNREADABLE, f"{path!r}: {error.strerror}") from error
    plain = dataclasses.replace(policy.for_masks(of_image=True), resize=None)
    found = prepare_image(data, plain)
    if isinstance(found, Fault):
        raise FaultError(found.reason, f"{path[-200:]!r}: {found.message}")
    return np.asarray(decode_png(found.data))


def _mask_notes(
    files: Sequence[SourceFile], masks: str, counts: Mapping[str, int]
) -> tuple[str, ...]:
    """Returns notes on masks that are left out, or that not all images have."""
    notes = []
    for what, name in (("class", _CLASSES), ("object", _OBJECTS)):
        count, folder = counts[name], _beside(files[0], name)
        if not count:
            continue
        if masks != "all":
            plural = "s" if count > 1 else ""
            notes.append(
                f"{count:,} {what} mask{plural} in {folder!r:.80} left out; --masks "
                f"all stores them"
            )
        elif count < len(files):
            lack = (
                "DeepLab and TF-Vision cannot read records without one"
                if name == _CLASSES
                else "the mask of their objects is the box, filled"
            )
            notes.append(
                f"{len(files) - count:,} of {len(files):,} images have no {what} mask: "
                f"{lack}"
            )
    return tuple(notes)


def _splits_of(files: Sequence[SourceFile]) -> list[_Split]:
    """Returns the split of each file, and whether it is to be skipped."""
    sets: dict[str, Mapping[str, str] | None] = {}
    out: list[_Split] = []
    for file in files:
        folder, name = posixpath.split(file.origin)
        if folder not in sets:
            sets[folder] = image_sets(root_of(file), folder)
        known = sets[folder]
        if known is None:
            out.append((split_in_path(folder) or None, False))
        else:
            split = known.get(name.rpartition(".")[0])
            out.append((split, split is None))
    return out


def _rejection(
    files: Sequence[SourceFile], loaded: Mapping[int, _Loaded], complaint: Complaint
) -> Rejection:
    """Returns the rejection of a file."""
    place = complaint[0]
    _, raw = loaded[place]
    return rejection_of(files[place].origin, complaint, raw, numbered=False)


def recognise(
    files: Iterable[tuple[str, int]], head: Callable[[str], bytes]
) -> tuple[str, ...] | None:
    """Returns the first file if it begins like VOC's, else None.

    Raises:
      InputError: it begins like one of CVAT.
      OSError: it cannot be read.
    """
    first = next((path for path, _ in files if path.lower().endswith(".xml")), None)
    found = _ROOT.search(head(first)) if first else None
    if first is None or found is None:
        return None
    if found[1] == b"annotations":
        raise InputError(f"XML must be Pascal VOC's; {first!r} is {IS_CVAT}.")
    return (first,)
