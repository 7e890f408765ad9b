"""COCO JSON as rows of images, under the names of the TF Object Detection API.

    annotations/instances_train2017.json   ids, sizes, boxes, classes: one origin
    train2017/000000000009.jpg             an image: one row

A row is an image of the file's list, in its order, with lists that run parallel: of
boxes, names and ids of classes, areas, crowd flags. An image without annotations has
empty lists. Class ids are those of the file where they are all positive; otherwise they
count from 1 in the order of the file's ids. Outlines become masks where these are asked
for; else a note says how many there are. Key points are stored where any object has
some that are labelled.

A box that is bad (`objects.py`), or of a class that is not there, or of no
image, is a rejection of its own: part "boxes". The account of parts is read = in rows +
rejected + gone with their image.

A file is parsed when the job is planned: the listing has the texts of an image's
annotations, and workers parse these.

Sources: https://cocodataset.org/#format-data; research/object_detection/dataset_tools/
create_coco_tf_record.py of tensorflow/models.
"""

import dataclasses
import json
import math
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from transforms.core.image.masks import Mask as Pixels
from transforms.core.image.masks import object_mask
from transforms.core.model import Block, Rejection
from transforms.core.reasons import Fault, FaultError, Reason
from transforms.errors import InputError
from transforms.formats.detection.coco_json import (
    CocoFile,
    annotations_of,
    box_of,
    image_folder,
    is_box,
    leading_folders,
    load_coco,
)
from transforms.formats.detection.coco_text import (
    id_of,
    integer_of,
    number_of,
    numbers_of,
    text_of,
)
from transforms.formats.detection.listed import (
    SAMPLE_ROWS,
    ListedReader,
    even_rows,
    listing_of,
    root_of,
)
from transforms.formats.detection.objects import (
    BOXES,
    NO_BOX,
    OBJECT,
    BoxedObject,
    BoxForm,
    Found,
    ImageObjects,
    object_rejection,
)
from transforms.formats.file_names import split_in_path
from transforms.formats.table import InputFile, Planned, RawRows

# To draw a mask takes a thousand times as long as to read a box.
_DRAWN_ROWS = 200
# Rows that have one place among the shards.
_AT_ONCE = 4096
# COCO's own names of files that list images which another file lists with its boxes.
_BESIDE = re.compile(r"(captions|person_keypoints|stuff|panoptic|image_info)_")
# An outline in COCO's other form.
_RUNS = re.compile(r'"segmentation": \{')
# Characters of an annotation in a message.
_SHOWN = 300
_MOST_AREA = float(np.finfo(np.float32).max)
_TEXTS = pa.large_list(pa.large_binary())
_COLUMNS = {
    "row": pa.int64(),
    "image": pa.string(),
    "name": pa.string(),
    "source_id": pa.string(),
    "width": pa.float64(),
    "height": pa.float64(),
    "raw": pa.binary(),
}

_Loaded = tuple[InputFile, CocoFile]


@dataclasses.dataclass(frozen=True, slots=True)
class CocoReader(ListedReader):
    """Reads COCO JSON files.

    Attributes:
      recognised: whether nobody has said that the files are COCO's.
      boxed: whether there are boxes.
      categories: by file, its names of classes.
      point_names: by file and category, the names of key points.
    """

    title: ClassVar[str] = "COCO JSON"
    form: ClassVar[BoxForm] = BoxForm.XYWH
    by_annotation: ClassVar[bool] = True
    origins_name_rows: ClassVar[bool] = False
    by_file: ClassVar[bool] = True
    run_bytes: ClassVar[int] = 2 << 20

    recognised: bool = False
    boxed: bool = True
    values: tuple[str, ...] = ("is_crowd", "area")
    categories: Mapping[str, Mapping[Any, str]] = dataclasses.field(
        default_factory=dict
    )
    point_names: Mapping[str, Mapping[Any, Sequence[str]]] = dataclasses.field(
        default_factory=dict
    )

    def plan(self, files: Sequence[InputFile]) -> Planned:
        """Parses the files; finds the classes and the images.

        Raises:
          InputError: files disagree on a class, list the same images or captions
            alone, or the images are not to be found.
        """
        loaded = self._chosen(files)
        classes = _classes_of(loaded)
        points = max(coco.point_count for _, coco in loaded)
        reader = dataclasses.replace(
            self,
            recognised=False,
            boxed=any(map(_has_boxes, loaded)),
            captioned=any(coco.has_captions for _, coco in loaded),
            class_ids={name: number for number, name in classes.items()},
            points=points,
            named_points=points > 0 and any(coco.point_names for _, coco in loaded),
            categories={file.origin: coco.categories for file, coco in loaded},
            point_names={file.origin: coco.point_names for file, coco in loaded},
        )
        folders = {f.origin: self._folder(f, coco) for f, coco in loaded}
        _check_apart(loaded, folders)
        listing = [_listed(f, coco, folders[f.origin]) for f, coco in loaded]
        total = sum(map(len, listing))
        most = SAMPLE_ROWS if self.masks != "all" else _DRAWN_ROWS
        chosen, first = [], 0
        for table in listing:
            quota = max(-(-most * len(table) // total), 1)
            chosen.append(first + even_rows(len(table), quota))
            first += len(table)
        return reader.planned(
            pa.concat_tables(listing),
            root_of(files[0]),
            notes=_notes(files, loaded, drawn=self.masks == "all"),
            outlines=sum(coco.outlined for _, coco in loaded),
            chosen=np.concatenate(chosen),
            left_out=len(files) - len(loaded),
        )

    def _chosen(self, files: Sequence[InputFile]) -> list[_Loaded]:
        """Returns the files to read: those that have boxes, if any have.

        COCO's own folder has several files of each image. Those with the usual names of
        the others are not even parsed where a file of another name has boxes.
        """
        beside = [f for f in files if _BESIDE.match(posixpath.basename(f.origin))]
        captioned: list[_Loaded] = []
        outlined = self.masks == "all"
        for some in ([f for f in files if f not in beside], beside):
            loaded = [
                (file, load_coco(file.path, file.stamp, outlined=outlined))
                for file in some
            ]
            boxed = [pair for pair in loaded if _has_boxes(pair)]
            if boxed:
                listed = [pair for pair in boxed if pair[1].count]
                return (listed or boxed) if some is beside else boxed
            captioned += loaded
        if self.recognised:
            raise InputError(
                f"COCO JSON must hold boxes; {captioned[0][0].path!r} holds captions. "
                f"Name a file of instances, or give --format coco to store captions "
                f"as lists of texts."
            )
        return captioned

    def _folder(self, file: InputFile, coco: CocoFile) -> tuple[str, int]:
        if self.images_root:
            return self.images_root, 0
        return image_folder(file, coco)

    def split_of(self, origin: str) -> str:
        """Returns the split that a word in the path says."""
        return split_in_path(origin)

    def rows_of(
        self,
        rows: Sequence[Mapping[str, Any]],
        root: str,
        block: Block,
        *,
        is_sample: bool = False,
    ) -> RawRows:
        """Returns images as rows; the first of a file brings annotations of none."""
        raw = super(CocoReader, self).rows_of(rows, root, block, is_sample=is_sample)
        columns = raw.columns
        if not self.boxed:
            columns = {n: c for n, c in columns.items() if not n.startswith(OBJECT)}
        rejects = [r for row in rows if row["strays"] for r in self._strays(row)]
        return dataclasses.replace(
            raw,
            columns=columns,
            parts={BOXES: raw.parts[BOXES] + len(rejects)},
            part_rejections=[*rejects, *raw.part_rejections],
        )

    def objects_of(self, row: Mapping[str, Any], root: str) -> Found:
        """Returns the annotations of an image."""
        items = annotations_of(row["annotations"])
        captions = [text_of(item.get("caption")) for item in items]
        objects = [self._object(row, item) for item in items if is_box(item)]
        image = ImageObjects(
            objects,
            row["width"],
            row["height"],
            path=row["image"],
            name=row["name"],
            source_id=row["source_id"],
            captions=[text for text in captions if text is not None],
        )
        named = {"id": row["source_id"], "file_name": row["name"]}
        return image, named | {"height": row["height"], "width": row["width"]}

    def _object(self, row: Mapping[str, Any], item: Mapping[str, Any]) -> BoxedObject:
        category, box = integer_of(item.get("category_id")), box_of(item)
        area = number_of(item.get("area"))
        points = numbers_of(item.get("keypoints")) if self.points else None
        name = self.categories[row["path"]].get(category, "")
        has_four = box is not None and len(box) == 4
        if area is None:
            area = box[2] * box[3] if box and has_four else math.nan
        reason, words = Reason.BAD_BOX, ""
        if not name:
            reason = Reason.UNKNOWN_LABEL
            words = f"category {category!r} is not in the file's list"
        elif not box or not has_four:
            words = f"bbox must hold four numbers; found {box}"
        elif not abs(area) <= _MOST_AREA and all(map(math.isfinite, box)):
            words = f"area must be finite; found {area}"
        elif points and (len(points) % 3 or any(map(math.isnan, points))):
            words = "keypoints must hold three numbers of each point"
        where = f"annotation {id_of(item.get('id'))}"
        fault = None
        if words:
            if category is None or not box or any(map(math.isnan, box)):
                words += f"; it is {json.dumps(item)[:_SHOWN]}"
                if not box and _RUNS.search(words):
                    words += ". No box is made of an outline of runs (RLE): add bbox"
            fault = Fault(reason, f"{where}: {words}")
        return BoxedObject(
            name,
            box if box and has_four else NO_BOX,
            where,
            item,
            row["row"],
            fault=fault,
            values={"is_crowd": integer_of(item.get("iscrowd")) or 0, "area": area},
            points=None if fault else points,
            point_names=self.point_names[row["path"]].get(category, ()),
            outline=item.get("segmentation") or None,
        )

    def gone_parts(self, row: Mapping[str, Any]) -> int:
        """Returns how many boxes an image has that is no row."""
        return sum(map(is_box, annotations_of(row["annotations"])))

    def mask_of(
        self, item: BoxedObject, height: int, width: int, box: Sequence[float]
    ) -> Pixels:
        """Returns the mask of an annotation; raises FaultError."""
        outline = item.outline
        try:
            outline = json.loads(outline) if isinstance(outline, str) else outline
        except (ValueError, RecursionError) as error:
            raise FaultError(Reason.BAD_MASK, "its outline is no JSON") from error
        return object_mask(outline, height, width, box)

    def _strays(self, row: Mapping[str, Any]) -> Iterator[Rejection]:
        """Yields a rejection for each annotation of no image."""
        image = {"annotation": row["annotation"], "stated": None}
        for item in annotations_of(row["strays"]):
            of_image, box = id_of(item.get("image_id")), box_of(item)
            if not is_box(item):
                raise InputError(
                    f"Every caption must be of an image of its file; in "
                    f"{row['annotation']!r} caption {id_of(item.get('id'))} is of "
                    f"image {of_image}, which is not there."
                )
            message = (
                f"annotation {id_of(item.get('id'))}: it is of image {of_image}, which "
                f"is not in the file; its box is {box}"
            )
            stray = BoxedObject("", NO_BOX, "", item)
            yield object_rejection(stray, image, Fault(Reason.BAD_BOX, message))


def _listed(file: InputFile, coco: CocoFile, place: tuple[str, int]) -> pa.Table:
    """Returns the images of a file as rows of the listing.

    Args:
      file: it.
      coco: its content.
      place: of the images, as `image_folder` gives it.
    """
    folder, left_out = place
    images, count = coco.images.drop_columns("annotations"), len(coco.images)
    tables = []
    for first in range(0, count, _AT_ONCE):
        position = file.position + file.size * first // count
        rows = []
        for number, image in enumerate(images.slice(first, _AT_ONCE).to_pylist()):
            lacking = [field for field in ("id", "file_name") if not image[field]]
            path = image["file_name"] or ""
            if left_out:
                path = re.sub(leading_folders(left_out), "", path)
            rows.append(
                {
                    "path": file.origin,
                    "size": 0 if first + number else file.size,
                    "position": position + number,
                    "annotation": file.origin,
                    "reason": str(Reason.MISSING_VALUE) if lacking else None,
                    "message": f"the image has no {lacking[0]}" if lacking else None,
                    "raw": json.dumps(image, ensure_ascii=False) if lacking else None,
                    "row": first + number,
                    "image": posixpath.join(folder, path),
                    "name": image["file_name"],
                    "source_id": image["id"],
                    "width": image["width"],
                    "height": image["height"],
                }
            )
        tables.append(listing_of(rows, _COLUMNS))
    strays = pa.array([coco.strays, *[[]] * (count - 1)], _TEXTS)
    table = pa.concat_tables(tables)
    table = table.append_column("annotations", coco.images["annotations"])
    return table.append_column("strays", strays)


def _has_boxes(pair: _Loaded) -> bool:
    return pair[1].has_boxes or not pair[1].has_captions


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
    objects = sum(coco.count for _, coco in loaded)
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
