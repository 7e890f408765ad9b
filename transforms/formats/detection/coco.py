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
import functools
import heapq
import io
import itertools
import json
import math
import os
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from transforms.core.image.masks import Mask as Pixels
from transforms.core.image.masks import object_mask
from transforms.core.model import Block
from transforms.core.reasons import Fault, FaultError, Reason, Rejection
from transforms.errors import InputError, first_few
from transforms.formats.detection.coco_file import (
    CocoFile,
    JsonLists,
    annotations_of,
    box_of,
    id_of,
    integer_of,
    number_of,
    numbers_of,
    outline_of,
)
from transforms.formats.detection.listed import ListedReader, listing_of
from transforms.formats.detection.objects import (
    BOXES,
    NO_BOX,
    BoxedObject,
    Found,
    ImageObjects,
    rejection,
)
from transforms.formats.file_names import path_parts
from transforms.formats.label_join import SourcePaths
from transforms.formats.raw_rows import RawRows
from transforms.formats.table import InputFile, Planned
from transforms.storage.files import storage
from transforms.storage.paths import spellings

# Rows that have one place among the shards.
_AT_ONCE = 4096
# Rows that are made at once: their texts are in memory.
_LISTED = 512
# COCO's own names of files that list images which another file lists with its boxes.
_BESIDE = re.compile(r"(captions|person_keypoints|stuff|panoptic|image_info)_")
# How many JSON files are looked into, the largest: COCO keeps a dataset in one.
_LOOKED_AT = 64
_KEYS = frozenset(("images", "annotations"))
# Of an item of a list that evaluation tools take.
_RESULT = re.compile(rb'\A\s*\[\s*\{[^{}]*"image_id"\s*:')
# Characters of an annotation in a message.
_SHOWN = 300
_MOST_AREA = float(np.finfo(np.float32).max)
_COLUMNS = {
    "row": pa.int64(),
    "image": pa.string(),
    "name": pa.string(),
    "source_id": pa.string(),
    "width": pa.float64(),
    "height": pa.float64(),
    "raw": pa.binary(),
    "annotations": pa.large_list(pa.large_binary()),
    "strays": pa.large_list(pa.large_binary()),
}
# Look for this many images in each candidate folder: enough to tell folders apart
# even where some files are missing.
_PROBED_IMAGES = 16


@dataclasses.dataclass(frozen=True, slots=True)
class CocoReader(ListedReader):
    """Reads COCO JSON files.

    Attributes:
      categories: by file, its names of classes.
      point_names: by file and category, the names of key points.
    """

    title: ClassVar[str] = "COCO JSON"
    sized: ClassVar[bool] = True
    origins_name_rows: ClassVar[bool] = False
    by_file: ClassVar[bool] = True
    run_bytes: ClassVar[int] = 2 << 20
    drawn_rows: ClassVar[int] = 200

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
        points = max(coco.point_count for coco in loaded)
        reader = dataclasses.replace(
            self,
            class_ids={name: number for number, name in _classes_of(loaded).items()},
            points=points,
            named_points=points > 0 and any(coco.point_names for coco in loaded),
            categories={coco.file.origin: coco.categories for coco in loaded},
            point_names={coco.file.origin: coco.point_names for coco in loaded},
        )
        paths = self.source_images(files[0].root)
        places = [self._places(coco, paths) for coco in loaded]
        _check_apart(loaded, places)
        pairs = zip(loaded, places, strict=True)
        notes = [
            f"{coco.file.origin!r:.80} has no list named annotations: its images have "
            f"no objects"
            for coco in loaded
            if not coco.has_annotations
        ]
        read = {coco.file.origin for coco in loaded}
        return reader.planned(
            (table for coco, images in pairs for table in _listed(coco, images)),
            files[0].root,
            notes=notes,
            objects=sum(coco.count for coco in loaded),
            outlines=sum(coco.outlined for coco in loaded),
            others=[file.origin for file in files if file.origin not in read],
            seen=f", of {first_few([repr(origin) for origin in sorted(read)], 2)}",
        )

    def _chosen(self, files: Sequence[InputFile]) -> list[CocoFile]:
        """Returns the files to read: those that have not captions alone.

        COCO's own folder has several files of each image. Those with the usual names of
        the others are not even parsed where a file of another name has boxes.
        """
        beside = [f for f in files if _BESIDE.match(posixpath.basename(f.origin))]
        for some in ([f for f in files if f not in beside], beside):
            parsed = [CocoFile(file, outlined=self.masks == "all") for file in some]
            loaded = [coco for coco in parsed if coco.has_boxes or not coco.captions]
            if loaded:
                listed = [coco for coco in loaded if coco.count]
                return (listed or loaded) if some is beside else loaded
        raise InputError(
            f"COCO JSON must hold boxes; {files[0].path!r} holds captions, which are "
            f"not read. Name a file of instances, or write a metadata.jsonl with "
            f"file_name and the captions beside the images."
        )

    def _places(self, coco: CocoFile, paths: SourcePaths) -> list[str]:
        """Returns the paths of a file's images; likely ones of those that are absent.

        Raises:
          InputError: no image is below the source, or where images usually are.
        """
        folders = _image_folders(coco.file.origin)
        names = [name or "" for name in coco.images["file_name"].to_pylist()]
        places = [paths.file(name, *folders) for name in names]
        if not any(places):
            folder = _folder_beside(coco.file, folders, names)
            paths = self.source_images(coco.file.root, folder)
            places = [paths.file(name) for name in names]
        first = next(filter(None, places), None)
        if first is None and (name := next(filter(None, names), "")):
            raise InputError(
                f"The images of {coco.file.path!r}, such as {name!r:.80}, must be "
                f"below {coco.file.root!r}, or beside it in a folder that is called "
                f"like the file; none is. Say where they are with --images-root FOLDER."
            )
        likely = posixpath.dirname(first or "")
        return [
            place or posixpath.join(likely, *path_parts(name)[-1:])
            for name, place in zip(names, places, strict=True)
        ]

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
        rejects = [r for row in rows if row["strays"] for r in _strays(row)]
        return dataclasses.replace(
            raw,
            parts={BOXES: raw.parts[BOXES] + len(rejects)},
            part_rejections=[*rejects, *raw.part_rejections],
        )

    def objects_of(self, row: Mapping[str, Any], root: str) -> Found:
        """Returns the annotations of an image."""
        image = ImageObjects(
            [self._object(row, item) for item in annotations_of(row["annotations"])],
            row["width"],
            row["height"],
            path=row["image"],
            name=row["name"],
            source_id=row["source_id"],
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
            if not box and isinstance(item.get("segmentation"), dict):
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
            draw=functools.partial(_drawn, item) if item.get("segmentation") else None,
        )

    def gone_parts(self, row: Mapping[str, Any]) -> int:
        """Returns how many boxes an image has that is no row."""
        return len(row["annotations"])


def _drawn(
    item: Mapping[str, Any], height: int, width: int, box: Sequence[float]
) -> Pixels:
    """Returns the mask of an annotation; raises FaultError."""
    try:
        outline = outline_of(item)
    except (ValueError, RecursionError) as error:
        raise FaultError(Reason.BAD_MASK, "its outline is no JSON") from error
    return object_mask(outline, height, width, box)


def _strays(row: Mapping[str, Any]) -> Iterator[Rejection]:
    """Yields a rejection for each of COCO's annotations that is of no image."""
    for item in annotations_of(row["strays"]):
        message = (
            f"annotation {id_of(item.get('id'))}: it is of image "
            f"{id_of(item.get('image_id'))}, which is not in the file; its box is "
            f"{box_of(item)}"
        )
        fault = Fault(Reason.BAD_BOX, message)
        yield rejection(row, fault, item, None, None, part=BOXES)


def _listed(coco: CocoFile, places: Sequence[str]) -> Iterator[pa.Table]:
    """Yields the images of a file, which have these paths, some rows at a time."""
    file, count = coco.file, len(coco.images)
    for start in range(0, count, _LISTED):
        rows: list[dict[str, Any]] = []
        images = coco.images.slice(start, _LISTED).to_pylist()
        for number, image in enumerate(images, start=start):
            name, within = image["file_name"] or "", number % _AT_ONCE
            before = file.size * (number - within) // count
            row = {
                "path": file.origin,
                "size": 0 if number else file.size,
                "position": file.position + before + within,
                "annotation": file.origin,
                "row": number,
                "image": places[number],
                "name": image["file_name"],
                "source_id": image["id"],
                "width": image["width"],
                "height": image["height"],
                "annotations": coco.annotations(number),
                "strays": [] if number else coco.strays(),
            }
            if not (image["id"] and name):
                row["reason"] = str(Reason.MISSING_VALUE)
                lack = "file_name" if image["id"] else "id"
                row["message"] = f"the image has no {lack}"
                row["raw"] = json.dumps(image, ensure_ascii=False).encode()
            rows.append(row)
        yield listing_of(rows, _COLUMNS)


def _folder_beside(
    file: InputFile, folders: Sequence[str], names: Sequence[str]
) -> str | None:
    """Returns the folder with most of the images that COCO's file names, or None.

    Nothing is listed there: the source is a file, or the folder of annotations alone.
    """
    probed = np.linspace(0, len(names) - 1, min(_PROBED_IMAGES, len(names)))
    tails = [
        ["/".join(parts[first:]) for first in range(len(parts))]
        for parts in (path_parts(names[int(i)]) for i in probed)
    ]
    hits = {
        folder: sum(
            any(
                storage(os.path.join(file.root, folder, spelled)).exists()
                for spelled in itertools.chain(*map(spellings, of_image))
            )
            for of_image in tails
        )
        for folder in folders
    }
    best = max(folders, key=hits.__getitem__)
    return best if hits[best] else None


def _image_folders(origin: str) -> list[str]:
    """Returns folders that may hold the images, relative to the root, likely first.

    Those of `annotations/instances_train2017.json` are in `train2017` as a rule.
    """
    folder, name = posixpath.split(origin)
    stem = name.rpartition(".")[0]
    tails = [t for t in (stem.partition("_")[2], stem.rpartition("_")[2], stem) if t]
    inner = ["", *tails, *(f"images/{tail}" for tail in tails), "images"]
    paths = [posixpath.join(folder, up, name) for up in ("", "..") for name in inner]
    plain = map(posixpath.normpath, paths)
    return list(dict.fromkeys("" if path == "." else path for path in plain))


def _check_apart(loaded: Sequence[CocoFile], places: Sequence[Sequence[str]]) -> None:
    """Raises InputError where two files list the same images."""
    listed: dict[frozenset[str], str] = {}
    for coco, images in zip(loaded, places, strict=True):
        first = listed.setdefault(frozenset(images), coco.file.origin)
        if first != coco.file.origin:
            raise InputError(
                f"Each image must be in one file; {first!r} and {coco.file.origin!r} "
                f"list the same images. Give one of them as SOURCE, or leave one out "
                f"with --exclude."
            )


def _classes_of(loaded: Sequence[CocoFile]) -> dict[int, str]:
    """Returns class id -> name of all files; InputError where they disagree."""
    out: dict[int, str] = {}
    for coco in loaded:
        is_from_one = min(coco.categories, default=1) >= 1
        for rank, (number, name) in enumerate(coco.categories.items(), start=1):
            label = number if is_from_one else rank
            if out.setdefault(label, name) != name:
                raise InputError(
                    f"All files must mean the same by a category; {label} is "
                    f"{out[label]!r} in others and {name!r} in {coco.file.origin!r}. "
                    f"Convert them one by one, or renumber."
                )
    return dict(sorted(out.items()))


def recognise(files: Iterable[tuple[str, int]], head: Callable[[str], bytes]) -> bool:
    """Whether one of the largest files begins like COCO's; raises OSError."""
    named = [each for each in files if each[0].lower().endswith(".json")]
    looked_at = heapq.nlargest(_LOOKED_AT, named, key=lambda each: each[1])
    return any(_is_coco(head(path)) for path, _ in looked_at)


def _is_coco(start: bytes) -> bool:
    """Whether JSON has one of COCO's lists at its top, or is a list of results."""
    has_classes = False
    # The start may end inside a character.
    text = start.decode(errors="ignore").encode()
    try:
        for key, _ in JsonLists(io.BufferedReader(io.BytesIO(text))).lists():
            if key in _KEYS:
                return True
            has_classes |= key == "categories"
    except (ValueError, RecursionError):
        # Where the file goes on behind them, these are no other layout's list.
        return has_classes or _RESULT.match(start) is not None
    return False
