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

A file is parsed as a whole by each process that reads blocks of it, and kept.

Sources: https://cocodataset.org/#format-data; research/object_detection/dataset_tools/
create_coco_tf_record.py of tensorflow/models.
"""

import dataclasses
import math
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from transforms.core.boxes import BoxForm
from transforms.core.image.masks import Mask as Pixels
from transforms.core.image.masks import object_mask
from transforms.core.model import Block, Rejection
from transforms.core.reasons import Fault, FaultError, Reason
from transforms.errors import InputError
from transforms.formats.detection.boxed_rows import BoxedReader, Numbers
from transforms.formats.detection.coco_json import (
    CocoFile,
    image_folder,
    leading_folders,
    load_coco,
)
from transforms.formats.detection.listed import even_rows, root_of, sample_of
from transforms.formats.detection.objects import (
    BOXES,
    CAPTION,
    NO_BOX,
    OBJECT,
    BoxedObject,
    Found,
    ImageObjects,
    detection_features,
    object_rejection,
)
from transforms.formats.file_names import split_in_path
from transforms.formats.table import InputFile, Planned, RawRows, SourceFile

# Rows are small, and the images themselves are read elsewhere: a block of a few
# thousand is enough work to be worth sending to a worker.
_BLOCK_ROWS = 4096
_SAMPLE_ROWS = 2000
# To draw a mask takes a thousand times as long as to read a box.
_DRAWN_ROWS = 200
# Images, and annotations about, that are made rows of at once; of one image at least.
_ROWS_AT_ONCE, _ANNOTATIONS_AT_ONCE, _DRAWN_AT_ONCE = 1024, 1 << 14, 64
# COCO's own names of files that list images which another file lists with its boxes.
_BESIDE = re.compile(r"(captions|person_keypoints|stuff|panoptic|image_info)_")
# An outline in COCO's other form.
_RUNS = re.compile(r'"segmentation": \{')
_MOST_AREA = float(np.finfo(np.float32).max)

_Loaded = tuple[InputFile, CocoFile]


@dataclasses.dataclass(frozen=True, slots=True)
class CocoReader(BoxedReader):
    """Reads COCO JSON files.

    Attributes:
      folders: by file, the folder of its images as `images_root` says it, once it is
        known, and how many folders their names begin with that are not there.
      recognised: whether nobody has said that the files are COCO's.
    """

    title: ClassVar[str] = "COCO JSON"
    form: ClassVar[BoxForm] = BoxForm.XYWH
    captioned: ClassVar[bool] = True

    folders: Mapping[str, tuple[str, int]] = dataclasses.field(default_factory=dict)
    recognised: bool = False
    values: tuple[str, ...] = ("is_crowd", "area")

    def plan(self, files: Sequence[InputFile]) -> Planned:
        """Samples the images of all files evenly; finds the classes and the images.

        Raises:
          InputError: files disagree on a class, list the same images or captions
            alone, or the images are not to be found.
        """
        loaded = self._chosen(files)
        total = sum(len(coco.images) for _, coco in loaded)
        classes = _classes_of(loaded)
        points = max(coco.point_count for _, coco in loaded)
        reader = dataclasses.replace(
            self,
            class_ids={name: number for number, name in classes.items()},
            points=points,
            named_points=points > 0 and any(coco.point_names for _, coco in loaded),
        )
        if not any(coco.outlined for _, coco in loaded) and self.masks == "all":
            reader = dataclasses.replace(reader, masks="auto")
        pieces = []
        sampled = _SAMPLE_ROWS if reader.masks != "all" else _DRAWN_ROWS
        for file, coco in loaded:
            count = len(coco.images)
            quota = max(-(-sampled * count // total), 1)
            pieces += [
                reader._piece(file, coco, rows)
                for rows in reader._runs(coco, even_rows(count, quota))
            ]
        boxed = any(_has_boxes(coco) for _, coco in loaded)
        captioned = any(_has_captions(coco) for _, coco in loaded)
        sample = sample_of(pieces, total_rows=total, complete=total <= sampled)
        columns = {
            name: column
            for name, column in sample.columns.items()
            if (captioned if name == CAPTION else boxed or not name.startswith(OBJECT))
        }
        folders: dict[str, tuple[str, int]] = {}
        if not self.images_root:
            folders = {file.origin: image_folder(file, coco) for file, coco in loaded}
        _check_apart(loaded, folders)
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
            boxed = [pair for pair in loaded if _has_boxes(pair[1])]
            if boxed:
                listed = [pair for pair in boxed if len(pair[1].annotations)]
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
        return load_coco(path, stamp, self.masks == "all")

    def blocks(
        self, file: InputFile, *, block_bytes: int, limit_rows: int | None
    ) -> Iterator[Block]:
        """Yields runs of images; `start` and `stop` count them."""
        total = len(self._load(file.path, file.stamp).images)
        count = total if limit_rows is None else min(total, limit_rows)
        for start in range(0, count, _BLOCK_ROWS):
            rows = min(_BLOCK_ROWS, count - start)
            before = file.size * start // total
            yield file.block(
                start, start + rows, rows=rows, before=before, first_row=start
            )

    def read(
        self, file: SourceFile, block: Block, columns: Sequence[str]
    ) -> Iterator[RawRows]:
        """Yields the images of a block; annotations of no image come with the first."""
        coco = self._load(file.path, block.stamp)
        for rows in self._runs(coco, np.arange(block.start, block.stop)):
            first, count = int(rows[0]), len(rows)
            piece = dataclasses.replace(
                block, start=first, stop=first + count, first_row=first, rows=count
            )
            raw = self._piece(file, coco, rows, piece).only(columns)
            # A file is charged once for annotations of no image: by its first block.
            strays = self._strays(file, coco) if not first else []
            yield dataclasses.replace(
                raw,
                positions=block.positions_of(raw.numbers),
                parts={BOXES: raw.parts[BOXES] + len(strays)},
                part_rejections=[*strays, *raw.part_rejections],
            )

    def split_of(self, origin: str) -> str:
        """Returns the split that a word in the path says."""
        return split_in_path(origin)

    def _runs(self, coco: CocoFile, rows: Numbers) -> list[Numbers]:
        """Returns images in runs that are made rows at once.

        Args:
          coco: the file.
          rows: numbers of images, ascending.
        """
        most = _DRAWN_AT_ONCE if self.masks == "all" else _ROWS_AT_ONCE
        ends = np.cumsum(coco.starts[rows + 1] - coco.starts[rows])
        runs = ends // _ANNOTATIONS_AT_ONCE * len(rows) + np.arange(len(rows)) // most
        return np.split(rows, np.flatnonzero(np.diff(runs)) + 1)

    def _piece(
        self,
        file: SourceFile,
        coco: CocoFile,
        numbers: Numbers,
        block: Block | None = None,
    ) -> RawRows:
        """Returns some images as rows; without a block, as a sample."""
        images = coco.images.take(numbers).to_pylist()
        annotations = coco.annotations_of(numbers)
        rows = [
            {
                "row": number,
                "path": self._path(file, image["file_name"] or ""),
                "annotation": file.origin,
                "stated": None,
                "name": image["file_name"],
                **_reason(image),
                "raw": image,
                "coco": coco,
                "annotations": of_image,
            }
            for number, image, of_image in zip(
                numbers.tolist(), images, annotations, strict=True
            )
        ]
        is_sample = block is None
        block = block or Block(file.origin, 0, 0)
        return self.rows_of(rows, root_of(file), block, is_sample=is_sample)

    def _path(self, file: SourceFile, name: str) -> str:
        """Returns the path of an image, relative to the root where it can be."""
        folder, left_out = self.folders.get(file.origin, ("", 0))
        if left_out:
            name = re.sub(leading_folders(left_out), "", name)
        return posixpath.join(self.images_root or folder, name)

    def objects_of(self, row: Mapping[str, Any], root: str) -> Found:
        """Returns the annotations of an image."""
        coco, image = row["coco"], row["raw"]
        captions = [
            a["caption"] for a in row["annotations"] if a.get("caption") is not None
        ]
        objects = ImageObjects(
            [
                self._object(coco, row["row"], annotation)
                for annotation in row["annotations"]
                if _is_box(annotation)
            ],
            image["width"],
            image["height"],
            name=image["file_name"],
            source_id=image["id"],
            captions=captions,
        )
        return objects, image

    def _object(
        self, coco: CocoFile, row: int, annotation: Mapping[str, Any]
    ) -> BoxedObject:
        where, drawn = f"annotation {annotation['id']}", self.masks == "all"
        category, area = annotation["category_id"], annotation["area"]
        name, points = coco.categories.get(category), annotation.get("keypoints")
        box = annotation["bbox"] or ()
        words = ""
        reason = Reason.BAD_BOX
        if name is None:
            reason = Reason.UNKNOWN_LABEL
            words = f"category {category!r} is not in the file's list"
        elif len(box) != 4:
            words = f"bbox must hold four numbers; found {annotation['bbox']}"
        elif not abs(area) <= _MOST_AREA and all(map(math.isfinite, box)):
            words = f"area must be finite; found {area}"
        elif (
            self.points and points and (len(points) % 3 or any(map(math.isnan, points)))
        ):
            words = "keypoints must hold three numbers of each point"
        if words and (written := annotation.get("written")):
            words += f"; it is {written}"
            if not box and _RUNS.search(words):
                words += ". No box is made of an outline of runs (RLE): add bbox"
        return BoxedObject(
            name or "",
            box if len(box) == 4 else NO_BOX,
            where,
            annotation,
            row,
            fault=Fault(reason, f"{where}: {words}") if words else None,
            values=annotation,
            points=None if words else points,
            point_names=coco.point_names.get(category, ()),
            outline=(coco, annotation["start"], annotation["stop"]) if drawn else None,
        )

    def gone_parts(self, row: Mapping[str, Any]) -> int:
        """Returns how many boxes an image has that is no row."""
        return sum(map(_is_box, row["annotations"]))

    def mask_of(
        self, item: BoxedObject, height: int, width: int, box: Sequence[float]
    ) -> Pixels:
        """Returns the mask of an annotation; raises FaultError."""
        coco, start, stop = item.outline
        try:
            outline = coco.outline_at(start, stop)
        except (ValueError, RecursionError) as error:
            raise FaultError(Reason.BAD_MASK, "its outline is no JSON") from error
        return object_mask(outline, height, width, box)

    def _strays(self, file: SourceFile, coco: CocoFile) -> list[Rejection]:
        """Returns a rejection for each annotation of no image."""
        image = {"annotation": file.origin, "stated": None}
        rejects = []
        for row in coco.strays:
            if not _is_box(row):
                raise InputError(
                    f"Every caption must be of an image of its file; in {file.path!r} "
                    f"caption {row['id']} is of image {row['image_id']}, which is "
                    f"not there."
                )
            message = (
                f"annotation {row['id']}: it is of image {row['image_id']}, which is "
                f"not in the file; its box is {row['bbox']}"
            )
            item = BoxedObject("", NO_BOX, "", row)
            rejects.append(
                object_rejection(item, image, Fault(Reason.BAD_BOX, message))
            )
        return rejects


def _is_box(annotation: Mapping[str, Any]) -> bool:
    return annotation["bbox"] is not None or annotation.get("caption") is None


def _reason(image: Mapping[str, Any]) -> dict[str, str | None]:
    """Returns why an image cannot be a row, as a listing has it."""
    lacking = [field for field in ("id", "file_name") if not image[field]]
    if not lacking:
        return {"reason": None, "message": None}
    message = f"the image has no {lacking[0]}"
    return {"reason": str(Reason.MISSING_VALUE), "message": message}


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
    outlined = sum(coco.outlined for _, coco in loaded)
    objects = sum(len(coco.annotations) for _, coco in loaded)
    if outlined and not drawn:
        plural = "s" if outlined > 1 else ""
        notes.append(
            f"outlines (segmentation) of {outlined:,} annotation{plural} left out: "
            f"--masks all stores them as masks"
        )
    elif 0 < outlined < objects:
        notes.append(
            f"{objects - outlined:,} of {objects:,} annotations have no outline: such "
            f"a mask is the box, filled"
        )
    return tuple(notes)


def _has_captions(coco: CocoFile) -> bool:
    captions = coco.annotations["caption"]
    return captions.null_count < len(captions)


def _has_boxes(coco: CocoFile) -> bool:
    boxes = coco.annotations["bbox"]
    return boxes.null_count < len(boxes) or not _has_captions(coco)


def _ranks(coco: CocoFile) -> Mapping[int, int]:
    """Returns the file's category id -> class id."""
    numbers = [*coco.categories]
    if numbers and numbers[0] < 1:
        return {number: rank for rank, number in enumerate(numbers, start=1)}
    return {number: number for number in numbers}


def _classes_of(loaded: Sequence[_Loaded]) -> dict[int, str]:
    """Returns class id -> name of all files; InputError where they disagree."""
    out: dict[int, str] = {}
    for file, coco in loaded:
        ranks = _ranks(coco)
        for number, name in coco.categories.items():
            rank = ranks[number]
            if out.setdefault(rank, name) != name:
                raise InputError(
                    f"All files must mean the same by a category; {rank} is "
                    f"{out[rank]!r} in others and {name!r} in {file.origin!r}. Convert "
                    f"them one by one, or renumber."
                )
    return dict(sorted(out.items()))
