"""COCO JSON as rows of images, under the names of the TF Object Detection API.

    annotations/instances_train2017.json   ids, sizes, boxes, classes: one origin
    train2017/000000000009.jpg             an image: one row

A row is an image of the file's list, in its order, with lists that run parallel: of
boxes, names and ids of classes, areas, crowd flags. An image without annotations has
empty lists. Class ids are those of the file where they are all positive; otherwise they
count from 1 in the order of the file's ids. Outlines become masks where these are asked
for; else a note says how many there are. Key points are stored where any object has
some that are labelled.

A box that is bad (`transforms.core.boxes`), or of a class that is not there, or of no
image, is a rejection of its own: part "boxes". The account of parts is read = in rows +
rejected + gone with their image.

A file is parsed as a whole by each process that reads blocks of it, and kept. Rows are
made of some ten thousand annotations at a time, however many an image has.

Sources: https://cocodataset.org/#format-data; research/object_detection/dataset_tools/
create_coco_tf_record.py of tensorflow/models.
"""

import collections
import dataclasses
import functools
import json
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import numpy_mask
from transforms.core.boxes import BoxForm
from transforms.core.image.masks import Mask as Pixels
from transforms.core.image.masks import object_mask
from transforms.core.model import Block, Rejection
from transforms.core.reasons import Fault, FaultError, Reason
from transforms.errors import InputError
from transforms.formats.detection.boxed_rows import (
    BOXES,
    CAPTION,
    OBJECT_MASK,
    Annotated,
    BoxedReader,
    Mask,
    Numbers,
    detection_features,
    even_rows,
    image_rows,
    root_of,
    row_ranges,
    sample_of,
    size_of_image,
)
from transforms.formats.detection.coco_json import (
    OUTLINES,
    POINTS,
    CocoFile,
    image_folder,
    leading_folders,
    load_coco,
    load_outlined,
)
from transforms.formats.detection.key_points import KeyPoints
from transforms.formats.file_names import split_in_path
from transforms.formats.table import (
    Complaint,
    InputFile,
    Planned,
    RawRows,
    SourceFile,
    rejecter,
    rejection_of,
)

_SAMPLE_ROWS = 2000
# To draw a mask takes a thousand times as long as to read a box.
_DRAWN_ROWS = 200
# Annotations, about, that are made rows of at once; of one image at least.
_ANNOTATIONS_AT_ONCE = 1 << 16
# With masks: about as many of 1 kB each. Long outlines and large images count for more.
_MASKS_AT_ONCE, _OUTLINE_BYTES, _MASK_PIXELS = 4096, 1 << 10, 1 << 19
# COCO's own names of files that list images which another file lists with its boxes.
_BESIDE = re.compile(r"(captions|person_keypoints|stuff|panoptic|image_info)_")

# An outline in COCO's other form.
_RUNS = re.compile(r'"segmentation": \{')

_REMEDIES = {OUTLINES: "--masks all stores them as masks"}

_Loaded = tuple[InputFile, CocoFile]


@dataclasses.dataclass(frozen=True, slots=True)
class CocoReader(BoxedReader):
    """Reads COCO JSON files.

    Attributes:
      folders: by file, the folder of its images as `images_root` says it, once it is
        known, and how many folders their names begin with that are not there.
      recognised: whether nobody has said that the files are COCO's.
      points: the most key points of an object; 0 where none has any.
    """

    title: ClassVar[str] = "COCO JSON"

    folders: Mapping[str, tuple[str, int]] = dataclasses.field(default_factory=dict)
    recognised: bool = False
    points: int = 0

    def plan(self, files: Sequence[InputFile]) -> Planned:
        """Samples the images of all files evenly; finds the classes and the images.

        Raises:
          InputError: files disagree on a class, list the same images or captions
            alone, or the images are not to be found.
        """
        loaded = self._chosen(files)
        total = sum(len(coco.images) for _, coco in loaded)
        points = max(coco.point_count for _, coco in loaded)
        reader = dataclasses.replace(self, points=points)
        pieces = []
        sampled = _SAMPLE_ROWS if self.masks != "all" else _DRAWN_ROWS
        for file, coco in loaded:
            count = len(coco.images)
            wanted = max(-(-sampled * count // total), 1)
            pieces += [
                reader._piece(file, coco, rows)
                for rows in _runs(coco, even_rows(count, wanted))
            ]
        boxed = any(_has_boxes(coco) for _, coco in loaded)
        captioned = any(_has_captions(coco) for _, coco in loaded)
        sample = sample_of(pieces, total_rows=total, complete=total <= sampled)
        columns = {
            name: column
            for name, column in sample.columns.items()
            if (captioned if name == CAPTION else boxed or not _is_of_boxes(name))
        }
        classes = _classes_of(loaded)
        folders: dict[str, tuple[str, int]] = {}
        if not self.images_root:
            folders = {file.origin: image_folder(file, coco) for file, coco in loaded}
        _check_apart(loaded, folders)
        outlined = any(coco.left_out[OUTLINES] for _, coco in loaded)
        if not outlined:
            columns.pop(OBJECT_MASK, None)
        notes = _notes(files, loaded, drawn=self.masks == "all")
        return Planned(
            dataclasses.replace(reader, folders=folders, recognised=False),
            dataclasses.replace(sample, columns=columns, notes=notes),
            detection_features(columns),
            classes,
            files=[file for file, _ in loaded],
        )

    def _chosen(self, files: Sequence[InputFile]) -> list[_Loaded]:
        """Returns the files to read: those that have boxes, if any have.

        COCO's own folder has several files of each image. Those with the usual names of
        the others are not even parsed where a file of another name has boxes.
        """
        beside = [f for f in files if _BESIDE.match(posixpath.basename(f.origin))]
        captioned: list[_Loaded] = []
        for some in ([f for f in files if f not in beside], beside):
            loaded = [(file, self._load(file.path, file.stamp)) for file in some]
            boxed = [each for each in loaded if _has_boxes(each[1])]
            if boxed:
                listed = [each for each in boxed if len(each[1].annotations)]
                return (listed or boxed) if some is beside else boxed
            captioned += loaded
        if self.recognised:
            raise InputError(
                f"COCO JSON must hold boxes; {captioned[0][0].path!r} holds captions. "
                f"Name a file of instances, or give --format coco to store captions "
                f"as lists of texts."
            )
        return captioned

    def _load(self, path: str, stamp: int) -> CocoFile:
        return (load_outlined if self.masks == "all" else load_coco)(path, stamp)

    def blocks(
        self, file: InputFile, *, block_bytes: int, limit_rows: int | None
    ) -> Iterator[Block]:
        """Yields runs of images; `start` and `stop` count them."""
        total = len(self._load(file.path, file.stamp).images)
        for start, stop in row_ranges(total, limit_rows):
            before = file.size * start // total
            rows = stop - start
            yield file.block(start, stop, rows=rows, before=before, first_row=start)

    def read(
        self, file: SourceFile, block: Block, columns: Sequence[str]
    ) -> Iterator[RawRows]:
        """Yields the images of a block; annotations of no image come with the first."""
        coco = self._load(file.path, block.stamp)
        for rows in _runs(coco, np.arange(block.start, block.stop)):
            first, count = int(rows[0]), len(rows)
            piece = dataclasses.replace(
                block, start=first, stop=first + count, first_row=first, rows=count
            )
            raw = self._piece(file, coco, rows, piece).only(columns)
            # A file is charged once for annotations of no image: by its first block.
            strays = _strays(file, coco) if not first else []
            yield dataclasses.replace(
                raw,
                positions=block.positions_of(raw.numbers),
                parts={BOXES: raw.parts[BOXES] + len(strays)},
                part_rejections=[*strays, *raw.part_rejections],
            )

    def split_of(self, origin: str) -> str:
        """Returns the split that a word in the path says."""
        return split_in_path(origin)

    def _piece(
        self,
        file: SourceFile,
        coco: CocoFile,
        rows: Numbers,
        block: Block | None = None,
    ) -> RawRows:
        """Returns some images, and what is wrong with their boxes."""
        images = coco.images.take(pa.array(rows))
        chosen, counts = coco.annotations_of(rows)
        raw = coco.annotations.take(pa.array(chosen))
        parents = np.repeat(np.arange(len(rows)), counts)
        paths = self._paths(file, images)
        boxes, four = _corners(raw["bbox"])
        areas = _areas(raw["area"], boxes)
        is_box = numpy_mask(pc.or_(raw["bbox"].is_valid(), raw["caption"].is_null()))
        labels, names = _classes(coco, raw["category_id"])
        said, also = _faults(raw, is_box, four, areas, names)
        key_points = None
        if self.points:
            key_points, wrong = _key_points(coco, raw, self.points)
            also = wrong | also

        def rejected(index: int, fault: Fault) -> Rejection:
            row = int(rows[parents[index]])
            return _part_rejection(file, raw, index, (row, *fault))

        found = Annotated(
            columns={
                "image/encoded": paths,
                "image/filename": images["file_name"],
                "image/source_id": images["id"].cast(pa.string()),
                **self.class_masks(root_of(file), paths.to_pylist()),
            },
            numbers=rows,
            reject=rejecter(_rejection, file, coco),
            parents=parents,
            boxes=boxes,
            form=BoxForm.XYWH,
            names=names,
            labels=labels,
            said=said,
            also=also,
            explain=functools.partial(_explained, raw),
            reject_object=rejected,
            sides=(images["width"], images["height"]),
            refused=_unnamed(images),
            lists={
                "image/object/is_crowd": pc.fill_null(raw["iscrowd"], 0),
                "image/object/area": pa.array(areas),
            },
            key_points=key_points,
            is_box=is_box,
            captions=raw["caption"],
            mask_of=_drawer(coco, chosen) if self.masks == "all" else None,
            most_pixels=self.image_policy.max_pixels,
        )
        if block is not None:
            found = dataclasses.replace(
                found,
                size_of=lambda i: size_of_image(
                    root_of(file), paths[i].as_py(), self.image_policy
                ),
            )
        return image_rows(block or Block(file.origin, 0, 0), found, self.bad_box)

    def _paths(self, file: SourceFile, images: pa.RecordBatch) -> pa.StringArray:
        """Returns the path of each image, relative to the root where it can be."""
        names = images["file_name"]
        folder, left_out = self.folders.get(file.origin, ("", 0))
        folder = self.images_root.rstrip("/") or folder
        if left_out:
            pattern = leading_folders(left_out)
            names = pc.replace_substring_regex(names, pattern, "")
        prefix = f"{folder}/" if folder else ""
        fixed = pc.starts_with(names, "/")
        return pc.if_else(fixed, names, pc.binary_join_element_wise(prefix, names, ""))


def _drawer(
    coco: CocoFile, chosen: Numbers
) -> Callable[[int, int, int, Sequence[float]], Pixels]:
    """Returns what draws the masks of these annotations."""
    outlines = coco.outlines
    assert outlines is not None

    def draw(index: int, height: int, width: int, box: Sequence[float]) -> Pixels:
        try:
            outline = outlines[int(chosen[index])]
        except (ValueError, RecursionError) as error:
            raise FaultError(Reason.BAD_MASK, "its outline is no JSON") from error
        return object_mask(outline, height, width, box)

    return draw


def _check_apart(
    loaded: Sequence[_Loaded], folders: Mapping[str, tuple[str, int]]
) -> None:
    """Raises InputError where two files list the same images."""
    listed: dict[tuple[str, frozenset[str]], InputFile] = {}
    for file, coco in loaded:
        names = frozenset(coco.images["file_name"].to_pylist())
        folder, _ = folders.get(file.origin, ("", 0))
        first = listed.setdefault((folder, names), file)
        if first is not file:
            raise InputError(
                f"Each image must be in one file; {first.origin!r} and {file.origin!r} "
                f"list the same images. Give one of them as SOURCE, or leave one out "
                f"with --exclude."
            )


def _notes(
    files: Sequence[InputFile], loaded: Sequence[_Loaded], *, drawn: bool
) -> tuple[str, ...]:
    """Returns notes on files that are not read, and on what is not read of others."""
    read = {file.origin for file, _ in loaded}
    others = [file.origin for file in files if file.origin not in read]
    notes = []
    if others:
        notes.append(
            f"{len(others):,} of {len(files):,} JSON files not read, such as "
            f"{others[0]!r:.80}: they have no boxes, or list the same images as "
            f"others; name one as SOURCE to read it instead"
        )
    counts = sum((coco.left_out for _, coco in loaded), collections.Counter())
    del counts[POINTS]
    if drawn and (outlined := counts.pop(OUTLINES, 0)):
        objects = sum(len(coco.annotations) for _, coco in loaded)
        if outlined < objects:
            notes.append(
                f"{objects - outlined:,} of {objects:,} annotations have no outline: "
                f"such a mask is the box, filled"
            )
    notes += [
        f"{what} of {count:,} annotation{'s' if count > 1 else ''} left out: "
        f"{_REMEDIES.get(what, 'only boxes are read')}"
        for what, count in sorted(counts.items())
    ]
    return tuple(notes)


def _runs(coco: CocoFile, rows: Numbers) -> list[Numbers]:
    """Returns images in runs that have about as many annotations as are taken at once.

    Args:
      coco: the file.
      rows: numbers of images, ascending.
    """
    costs, most = coco.starts[rows + 1] - coco.starts[rows], _ANNOTATIONS_AT_ONCE
    if coco.outlines is not None:
        lengths = np.diff(np.array(coco.outlines.ends)) // _OUTLINE_BYTES
        before = np.concatenate(([0], np.cumsum(lengths[coco.order])))
        sides = (pc.fill_null(coco.images[side], 0) for side in ("width", "height"))
        # A file may state anything; more is not drawn anyway.
        sides = (np.clip(np.asarray(side)[rows], 0, 1 << 16) for side in sides)
        pixels = np.prod([np.nan_to_num(side) for side in sides], axis=0)
        pixels = pixels.astype(np.int64)
        costs = costs * (1 + pixels // _MASK_PIXELS)
        costs += before[coco.starts[rows + 1]] - before[coco.starts[rows]]
        most = _MASKS_AT_ONCE
    cuts = np.flatnonzero(np.diff(np.cumsum(costs) // most)) + 1
    return np.split(rows, cuts)


def _has_captions(coco: CocoFile) -> bool:
    captions = coco.annotations["caption"]
    return captions.null_count < len(captions)


def _has_boxes(coco: CocoFile) -> bool:
    boxes = coco.annotations["bbox"]
    return boxes.null_count < len(boxes) or not _has_captions(coco)


def _is_of_boxes(name: str) -> bool:
    return name.startswith("image/object/")


def _ranks(coco: CocoFile) -> Mapping[int, int]:
    """Returns the file's category id -> class id."""
    numbers = [number for number, _ in coco.categories]
    if numbers and numbers[0] < 1:
        return {number: rank for rank, number in enumerate(numbers, start=1)}
    return {number: number for number in numbers}


def _classes_of(loaded: Sequence[_Loaded]) -> dict[int, str]:
    """Returns class id -> name of all files; InputError where they disagree."""
    out: dict[int, str] = {}
    for file, coco in loaded:
        ranks = _ranks(coco)
        for number, name in coco.categories:
            rank = ranks[number]
            if out.setdefault(rank, name) != name:
                raise InputError(
                    f"All files must mean the same by a category; {rank} is "
                    f"{out[rank]!r} in others and {name!r} in {file.origin!r}. Convert "
                    f"them one by one, or renumber."
                )
    return dict(sorted(out.items()))


def _as_json(values: Mapping[str, Any]) -> bytes:
    text = json.dumps(values, sort_keys=True, ensure_ascii=False)
    return text.encode(errors="replace")


def _part_rejection(
    file: SourceFile,
    annotations: pa.RecordBatch,
    index: int,
    complaint: Complaint,
    *,
    numbered: bool = True,
) -> Rejection:
    # The text of an annotation is for messages, and key points are many.
    plain = annotations.drop_columns(["written", "keypoints"])
    item = plain.slice(index, 1).to_pylist()[0]
    raw = _as_json(item)
    return rejection_of(file.origin, complaint, raw, part=BOXES, numbered=numbered)


def _strays(file: SourceFile, coco: CocoFile) -> list[Rejection]:
    """Returns a rejection for each annotation of no image."""
    annotations = coco.annotations.take(pa.array(coco.strays))
    out = []
    for index, row in enumerate(annotations.to_pylist()):
        if row["caption"] is not None and row["bbox"] is None:
            raise InputError(
                f"Every caption must be of an image of its file; in {file.path!r} "
                f"caption {row['id']} is of image {row['image_id']!r}, which is not "
                f"there."
            )
        message = (
            f"annotation {row['id']}: it is of image {row['image_id']!r}, which is not "
            f"in the file; its box is {row['bbox']}"
        )
        complaint = 0, Reason.BAD_BOX, message
        out.append(_part_rejection(file, annotations, index, complaint, numbered=False))
    return out


def _explained(annotations: pa.RecordBatch, index: int, words: str) -> str:
    row = annotations.slice(index, 1).to_pylist()[0]
    written = f"; it is {row['written']}" if row["written"] else ""
    return f"annotation {row['id']}: {words}{written}"


def _faults(
    annotations: pa.RecordBatch,
    is_box: Mask,
    four: Mask,
    areas: npt.NDArray[np.float32],
    names: pa.StringArray,
) -> tuple[dict[int, Fault], dict[int, Fault]]:
    """Returns what is wrong with annotations whatever their boxes are, and beside."""

    def at(index: int, field: str) -> Any:
        return annotations[field][index].as_py()

    said: dict[int, Fault] = {}
    unknown = numpy_mask(names.is_null())
    for i in np.flatnonzero(is_box & (unknown | ~four)).tolist():
        if unknown[i]:
            words = f"category {at(i, 'category_id')!r} is not in the file's list"
            reason = Reason.UNKNOWN_LABEL
        else:
            words = f"bbox must hold four numbers; found {at(i, 'bbox')}"
            reason = Reason.BAD_BOX
        message = _explained(annotations, i, words)
        if not unknown[i] and not at(i, "bbox") and _RUNS.search(message):
            message += ". No box is made of an outline of runs (RLE): add bbox"
        said[i] = Fault(reason, message)
    also: dict[int, Fault] = {}
    for i in np.flatnonzero(is_box & ~np.isfinite(areas)).tolist():
        words = f"area must be finite; found {at(i, 'area')}"
        also[i] = Fault(Reason.BAD_BOX, _explained(annotations, i, words))
    return said, also


def _classes(coco: CocoFile, category_ids: pa.Array) -> tuple[Numbers, pa.StringArray]:
    """Returns class ids and names of annotations; 0 and null for unknown ones."""
    ranks = _ranks(coco)
    ids = pa.array([number for number, _ in coco.categories], pa.int64())
    names = pa.array([name for _, name in coco.categories], pa.string())
    places = pc.index_in(category_ids, value_set=ids, skip_nulls=True)
    ranked = pa.array([ranks[number] for number, _ in coco.categories], pa.int64())
    labels = pc.fill_null(ranked.take(places), 0)
    return np.asarray(labels), names.take(places)


def _key_points(
    coco: CocoFile, annotations: pa.RecordBatch, k: int
) -> tuple[KeyPoints, dict[int, Fault]]:
    """Returns the key points of annotations, k each, and what is wrong with some."""
    lists = annotations["keypoints"].to_pylist()
    wrong: dict[int, Fault] = {}
    for i, numbers in enumerate(lists):
        if numbers and (len(numbers) % 3 or None in numbers):
            words = "keypoints must hold three numbers of each point"
            wrong[i] = Fault(Reason.BAD_BOX, _explained(annotations, i, words))
            lists[i] = None
    names: Sequence[Sequence[str]] = ()
    if coco.point_names:
        ids = annotations["category_id"].to_pylist()
        names = [coco.point_names.get(number, ()) for number in ids]
    return KeyPoints.of(lists, k, names), wrong


def _corners(column: pa.ListArray) -> tuple[npt.NDArray[np.float64], Mask]:
    """Returns the numbers of each box, NaN for null, and which have four."""
    four = numpy_mask(pc.equal(pc.list_value_length(column), 4))
    boxes = np.full((len(column), 4), np.nan)
    values = column.filter(pa.array(four)).flatten()
    boxes[four] = values.to_numpy(zero_copy_only=False).reshape(-1, 4)
    return boxes, four


def _areas(column: pa.Array, boxes: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    absent = numpy_mask(column.is_null())
    stated = column.to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore", invalid="ignore"):
        whole = np.where(absent, boxes[:, 2] * boxes[:, 3], stated)
        return whole.astype(np.float32)


def _unnamed(images: pa.RecordBatch) -> dict[int, Fault]:
    """Returns why images cannot be rows that lack an id or a name, by position."""
    refused: dict[int, Fault] = {}
    for field in ("id", "file_name"):
        lacks = images[field].is_null()
        if field == "file_name":
            lacks = pc.or_kleene(lacks, pc.equal(images[field], ""))
        fault = Fault(Reason.MISSING_VALUE, f"the image has no {field}")
        for i in np.flatnonzero(numpy_mask(lacks)).tolist():
            refused.setdefault(i, fault)
    return refused


def _rejection(file: SourceFile, coco: CocoFile, complaint: Complaint) -> Rejection:
    """Returns the rejection of an image."""
    row, reason, message = complaint
    image = coco.images.slice(row, 1).to_pylist()[0]
    told = f"image {image['id']!r}, {image['file_name']!r}: {message}"
    return rejection_of(file.origin, (row, reason, told), _as_json(image))
