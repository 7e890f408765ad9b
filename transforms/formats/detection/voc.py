"""Pascal VOC XML as rows of images, under the names of the TF Object Detection API.

A row is an XML file, with lists that run parallel: of boxes, names and ids of
classes, difficult and truncated flags, views. An image without objects has empty
lists. Class ids count from 1, by the given names or by all names that there are,
sorted. Parts of objects, segmentations and the flag `occluded` are not read.

Coordinates are divided by the image's size as they stand, as the TF Object Detection
API and TFDS do it. The devkit counts pixels from 1; with `first_pixel` 1 the left and
the upper edge of a box are one less before.

Splits are those of `ImageSets/Main` where that is, and XML files that no list has are
skipped; else those that words in the names of folders say.

Files are parsed one by one in Python, which costs most of the time here; what they hold
is judged in columns.

Sources: http://host.robots.ox.ac.uk/pascal/VOC/voc2012/htmldoc/devkit_doc.html;
research/object_detection/dataset_tools/create_pascal_tf_record.py of
tensorflow/models.
"""

import dataclasses
import os
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa

from transforms.core.boxes import BoxPolicy
from transforms.core.image.policy import ImagePolicy
from transforms.core.model import Block, Rejection
from transforms.core.placing.vocabulary import sorted_names
from transforms.core.reasons import Fault, Reason, Skipped
from transforms.errors import InputError, SpecError
from transforms.formats.detection.boxed_rows import (
    BOXES,
    BoxedRows,
    box_policy,
    detection_features,
    even_rows,
    place_boxes,
    root_of,
    sample_of,
    size_of_image,
)
from transforms.formats.detection.voc_files import (
    IS_CVAT,
    Objects,
    VocImage,
    image_path,
    image_sets,
    judge,
    parse_voc,
)
from transforms.formats.file_names import is_image_name, split_in_path
from transforms.formats.file_runs import RunReader
from transforms.formats.table import (
    Complaint,
    InputFile,
    Planned,
    RawRows,
    SourceFile,
    TableReader,
    rejecter,
    rejection_of,
)
from transforms.storage.files import storage
from transforms.storage.visibility import unseen

SPLIT_COLUMN = "image set"
_SAMPLE_FILES = 2000
_ROOT = re.compile(rb"<(annotations?)[\s>]")

# Of a file: its split where one is known, and whether it is to be skipped.
_Split = tuple[str | None, bool]


@dataclasses.dataclass(frozen=True, slots=True)
class VocReader(TableReader, RunReader):
    """Reads trees of VOC XML files.

    Attributes:
      bad_box: what becomes of a bad box; see `BoxPolicy`.
      images_root: folder of the images, relative to the source's root or absolute;
        empty to look where they usually are.
      labels: the class names by id, from 1; empty for all that there are, sorted,
        once they are known.
      first_pixel: the number of the first pixel of a row or column: 0 or 1.
      split_column: see `TableReader`.
      image_policy: what the job does to images: turned ones have another size.
    """

    title: ClassVar[str] = "Pascal VOC XML"
    image_base: ClassVar[Literal["file", "root"]] = "root"

    bad_box: str = "box"
    images_root: str = ""
    labels: tuple[str, ...] = ()
    first_pixel: int = 0
    split_column: str = ""
    image_policy: ImagePolicy = dataclasses.field(default_factory=ImagePolicy)

    def __post_init__(self) -> None:
        box_policy(self.bad_box)
        if self.first_pixel not in (0, 1):
            raise SpecError(f"first_pixel must be 0 or 1; found {self.first_pixel!r}.")
        if len(set(self.labels)) < len(self.labels):
            raise SpecError(f"labels must differ; found {list(self.labels)}.")

    def plan(self, files: Sequence[InputFile]) -> Planned:
        """Samples the files evenly; finds all classes, and whether there are splits."""
        chosen = even_rows(len(files), _SAMPLE_FILES).tolist()
        kept = frozenset(chosen)
        splits = _splits_of(files)
        loaded: dict[int, _Loaded] = {}
        names: set[str] = set()
        for place in chosen if self.labels else range(len(files)):
            entry = _load(files[place])
            if isinstance(entry.found, VocImage):
                names.update(item.name for item in entry.found.objects)
            # The rest is not kept: there may be millions of files.
            if place in kept:
                loaded[place] = entry
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
        sample = dataclasses.replace(sample, columns=columns, notes=_mask_notes(files))
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
        entries: Sequence["_Loaded | None"],
        *,
        is_sample: bool = False,
    ) -> RawRows:
        """Returns the images of files; entries of files that are skipped are unused."""
        places = [i for i, (_, skip) in enumerate(splits) if not skip]
        loaded = [entry for i in places if (entry := entries[i]) is not None]
        entry_at = dict(zip(places, loaded, strict=True))
        refused: list[Complaint] = []
        read: list[int] = []
        for place, entry in entry_at.items():
            if isinstance(entry.found, VocImage):
                read.append(place)
            else:
                refused.append((place, *entry.found))
        at = np.array(read, np.int64)
        images = [e.found for e in loaded if isinstance(e.found, VocImage)]
        unread: dict[int, Fault] = {}
        for i, image in enumerate(images):
            if image.lacks_size and image.objects:
                size = self._size_of(image, files[read[i]], is_sample=is_sample)
                if isinstance(size, Fault):
                    unread[i] = size
                else:
                    images[i] = image.with_size(*size)
        counts = [len(image.objects) for image in images]
        parents = np.repeat(np.arange(len(images)), counts)
        policy = box_policy(self.bad_box)
        clip = policy is BoxPolicy.CLIP
        found = judge(images, self.labels, first_pixel=self.first_pixel, clip=clip)
        boxed = place_boxes(
            found,
            parents,
            {**found.unsized, **unread},
            images=len(images),
            policy=policy,
        )
        gone = boxed.gone
        refused += [(int(at[i]), *fault) for i, fault in boxed.refused.items()]
        rows = [(files[place], splits[place][0]) for place in at[~gone].tolist()]
        kept = [image for image, lost in zip(images, gone, strict=True) if not lost]
        skipped = len(files) - len(places)
        return RawRows(
            block,
            {
                **self._image_columns(kept, rows),
                **_object_columns(found, boxed),
            },
            # Each is the first row of its file.
            np.zeros(len(rows), np.int64),
            refused=refused,
            reject=rejecter(_rejection, files, entry_at),
            origins=pa.array([file.origin for file, _ in rows], pa.string()),
            skipped={str(Skipped.NOT_SELECTED): skipped} if skipped else {},
            parts={BOXES: boxed.boxes},
            parts_gone={BOXES: boxed.boxes_gone},
            part_rejections=[
                _part_rejection(files[at[parents[i]]], found, i) for i in boxed.bad
            ],
            parts_each={BOXES: boxed.each},
            places=at[~gone],
        )

    def _size_of(
        self, image: VocImage, file: SourceFile, *, is_sample: bool
    ) -> tuple[int, int] | Fault:
        root = root_of(file)
        path = image_path(root, file.origin, image.filename, self.images_root)
        return size_of_image(root, path, None if is_sample else self.image_policy)

    def _image_columns(
        self, images: Sequence[VocImage], rows: Sequence[tuple[SourceFile, str | None]]
    ) -> dict[str, pa.Array]:
        paths = [
            image_path(root_of(file), file.origin, image.filename, self.images_root)
            for image, (file, _) in zip(images, rows, strict=True)
        ]
        names = [
            image.filename or posixpath.basename(path)
            for image, path in zip(images, paths, strict=True)
        ]
        heights = [image.height for image in images]
        widths = [image.width for image in images]
        return {
            "image/encoded": pa.array(paths, pa.string()),
            "image/filename": pa.array(names, pa.string()),
            # As TensorFlow's own writer does.
            "image/source_id": pa.array(names, pa.string()),
            "image/stated_height": pa.array(heights, pa.int64()),
            "image/stated_width": pa.array(widths, pa.int64()),
            SPLIT_COLUMN: pa.array([split for _, split in rows], pa.string()),
        }


@dataclasses.dataclass(frozen=True, slots=True)
class _Loaded:
    """A file that was read, or why it could not be; its bytes."""

    found: VocImage | Fault
    data: bytes | None


def _load(file: SourceFile) -> _Loaded:
    try:
        data, stamp = storage(file.path).read_stamped()
    except FileNotFoundError:
        if never_seen := unseen(file.path):
            raise never_seen from None
        fault = Fault(Reason.CHANGED_DURING_RUN, "there is no such file")
        return _Loaded(fault, None)
    except OSError as error:
        return _Loaded(Fault(Reason.UNREADABLE, str(error.strerror)), None)
    if file.stamp and stamp != file.stamp:
        message = "it has another size or time than when it was listed"
        return _Loaded(Fault(Reason.CHANGED_DURING_RUN, message), data)
    if not data:
        return _Loaded(Fault(Reason.EMPTY_FILE, "the file is empty"), data)
    try:
        return _Loaded(parse_voc(data), data)
    except ValueError as error:
        return _Loaded(Fault(Reason.MALFORMED, f"not a VOC annotation: {error}"), data)


def _mask_notes(files: Sequence[SourceFile]) -> tuple[str, ...]:
    """Returns a note on class masks beside the first file's folder."""
    if not files:
        return ()
    above = posixpath.dirname(posixpath.dirname(files[0].origin))
    folder = posixpath.join(root_of(files[0]), above, "SegmentationClass")
    if not storage(folder).is_folder():
        return ()
    count = sum(map(is_image_name, storage(folder).names_in()))
    what = f"{count:,} class mask{'s' if count > 1 else ''} in {folder!r:.80} left out"
    return (f"{what}: only boxes are read",) if count else ()


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


def _object_columns(found: Objects, boxed: BoxedRows) -> dict[str, pa.Array]:
    def ints(values: Sequence[int | None]) -> pa.Array:
        return boxed.lists(pa.array(values, pa.int64()))

    poses = pa.array([item.pose for item in found.items], pa.string())
    return {
        **boxed.columns(),
        "image/object/difficult": ints([item.difficult for item in found.items]),
        "image/object/truncated": ints([item.truncated for item in found.items]),
        "image/object/view": boxed.lists(poses),
    }


def _part_rejection(file: SourceFile, found: Objects, index: int) -> Rejection:
    """Returns the reject of one box of an image that is kept."""
    complaint = 0, *found.complaint(index)
    raw = repr(found.items[index]).encode()
    return rejection_of(file.origin, complaint, raw, part=BOXES, numbered=False)


def _rejection(
    files: Sequence[SourceFile], loaded: Mapping[int, _Loaded], complaint: Complaint
) -> Rejection:
    """Returns the rejection of a file."""
    place = complaint[0]
    raw = loaded[place].data
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
