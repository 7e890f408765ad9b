"""COCO JSON as rows of images, under the names of the TF Object Detection API.

    annotations/instances_train2017.json   ids, sizes, boxes, classes: one origin
    train2017/000000000009.jpg             an image: one row

A row is an image of the file's list, in its order, with lists that run parallel: of
boxes, names and ids of classes, areas, crowd flags. An image without annotations has
empty lists. Class ids are those of the file where they are all positive; otherwise they
count from 1 in the order of the file's ids. Outlines, keypoints and panoptic segments
are not read.

A box that is bad (`transforms.core.boxes`), or of a class that is not there, or of no
image, is a rejection of its own: part "boxes". The account of parts is read = in rows +
rejected + gone with their image.

A file is parsed as a whole by each process that reads blocks of it, and kept.

Sources: https://cocodataset.org/#format-data; research/object_detection/dataset_tools/
create_coco_tf_record.py of tensorflow/models.
"""

import dataclasses
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.boxes import BoxPolicy, box_lists
from transforms.core.model import Block, Rejection
from transforms.errors import InputError, bounded
from transforms.formats.detection.coco_annotations import Annotations, judge
from transforms.formats.detection.coco_images import (
    image_folder,
    unusable,
    whole_pixels,
)
from transforms.formats.detection.coco_json import CocoFile, load_coco
from transforms.formats.detection.fields import (
    BOXES,
    box_policy,
    detection_features,
    list_of,
)
from transforms.formats.split_words import split_in_path
from transforms.formats.table import (
    STAGE,
    Complaint,
    InputFile,
    Planned,
    RawRows,
    SourceFile,
    TableReader,
    TableSample,
    rejection_of,
)

__all__ = ["CocoReader", "recognise"]

# Images a block: rows are small, and the images themselves are read elsewhere.
_BLOCK_ROWS = 4096
_SAMPLE_ROWS = 2000
_CAPTION = "image/caption"
# A key that COCO's object has at its top, among the first bytes of a file.
_BEGINNING = re.compile(rb'"(info|images|annotations|categories|licenses)"\s*:\s*[\[{]')

Numbers = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, slots=True)
class CocoReader(TableReader):
    """Reads COCO JSON files.

    Attributes:
      bad_box: what becomes of a bad box; see `BoxPolicy`.
      images_root: folder of the images, relative to the source's root or absolute;
        empty to look where they usually are.
      folders: by file, the folder of its images as `images_root` says it, once it is
        known.
    """

    title: ClassVar[str] = "COCO JSON"
    image_base: ClassVar[Literal["file", "root"]] = "root"

    bad_box: str = "box"
    images_root: str = ""
    folders: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        box_policy(self.bad_box)

    def plan(self, files: Sequence[InputFile]) -> Planned:
        """Samples the images of all files evenly; finds the classes and the images.

        Raises:
          InputError: files disagree on a class, or the images are not to be found.
        """
        loaded = [(file, load_coco(file.path, file.stamp)) for file in files]
        total = sum(len(coco.images) for _, coco in loaded)
        pieces = []
        for file, coco in loaded:
            count = len(coco.images)
            wanted = max(-(-_SAMPLE_ROWS * count // total), 1)
            rows = np.unique(np.linspace(0, count - 1, min(wanted, count), dtype=int))
            pieces.append(self._piece(file, coco, rows.astype(np.int64)))
        boxed = any(_has_boxes(coco) for _, coco in loaded)
        captioned = any(_has_captions(coco) for _, coco in loaded)
        columns = {
            name: pa.chunked_array([piece.columns[name] for piece in pieces])
            for name in pieces[0].columns
            if (captioned if name == _CAPTION else boxed or not _is_of_boxes(name))
        }
        sample = TableSample(
            columns,
            sum(len(piece.numbers) for piece in pieces),
            unread=sum(len(piece.refused) for piece in pieces),
            total_rows=total,
            complete=total <= _SAMPLE_ROWS,
        )
        classes = _classes_of(loaded)
        folders = {}
        if not self.images_root:
            folders = {file.origin: image_folder(file, coco) for file, coco in loaded}
        return Planned(
            dataclasses.replace(self, folders=folders),
            sample,
            detection_features(columns),
            classes,
        )

    def blocks(
        self, file: InputFile, *, block_bytes: int, limit_rows: int | None
    ) -> Iterator[Block]:
        """Yields runs of images; `start` and `stop` count them."""
        total = len(load_coco(file.path, file.stamp).images)
        count = total if limit_rows is None else min(total, limit_rows)
        for start in range(0, count, _BLOCK_ROWS):
            stop = min(start + _BLOCK_ROWS, count)
            before = file.size * start // total
            rows = stop - start
            yield file.block(start, stop, rows=rows, before=before, first_row=start)

    def read(
        self, file: SourceFile, block: Block, columns: Sequence[str]
    ) -> Iterator[RawRows]:
        """Yields the images of a block; annotations of no image come with the first."""
        coco = load_coco(file.path, block.stamp)
        raw = self._piece(file, coco, np.arange(block.start, block.stop), block)
        yield raw.only(columns)

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
        policy = box_policy(self.bad_box)
        known = coco.images.take(pa.array(rows))
        chosen, counts = coco.annotations_of(rows)
        parents = np.repeat(np.arange(len(rows)), counts)
        found = judge(coco, chosen, rows[parents], _ranks(coco), policy)
        refused = unusable(known, rows, found, parents)
        if policy is BoxPolicy.IMAGE:
            for i in np.flatnonzero(found.is_bad).tolist():
                row = int(rows[parents[i]])
                refused.setdefault(row, (row, *found.complaint(i)))
        gone = np.isin(rows, list(refused))
        rejections = [
            _part_rejection(file, int(rows[parents[i]]), found, i)
            for i in np.flatnonzero(found.is_bad & ~gone[parents]).tolist()
        ]
        boxes = found.is_box
        parts, parts_gone = int(boxes.sum()), int((boxes & gone[parents]).sum())
        if block is not None and not block.start:
            strays = _strays(file, coco)
            rejections = [*strays, *rejections]
            parts += len(strays)
        keep = boxes & ~found.is_bad & ~gone[parents]
        each = np.bincount(parents[keep], minlength=len(rows))[~gone]
        said = found.has_caption & ~gone[parents]
        captions_each = np.bincount(parents[said], minlength=len(rows))[~gone]
        images = known.filter(pa.array(~gone))
        return RawRows(
            block or Block(file.origin, 0, 0),
            {
                **self._image_columns(file, images),
                **_box_columns(found, keep, each),
                _CAPTION: list_of(found.captions(said), captions_each),
            },
            rows[~gone],
            refused=list(refused.values()),
            reject=_rejecter(file, coco),
            parts={BOXES: parts},
            parts_gone={BOXES: parts_gone},
            part_rejections=rejections,
            parts_each={BOXES: each},
        )

    def _image_columns(
        self, file: SourceFile, images: pa.RecordBatch
    ) -> dict[str, pa.Array]:
        names = images["file_name"]
        folder = self.images_root.rstrip("/") or self.folders.get(file.origin, "")
        prefix = f"{folder}/" if folder else ""
        fixed = pc.starts_with(names, "/")
        paths = pc.binary_join_element_wise(prefix, names, "")
        return {
            "image/encoded": pc.if_else(fixed, names, paths),
            "image/filename": names,
            "image/source_id": images["id"].cast(pa.string()),
            "image/stated_height": whole_pixels(images["height"]),
            "image/stated_width": whole_pixels(images["width"]),
        }


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


def _classes_of(loaded: Sequence[tuple[InputFile, CocoFile]]) -> dict[int, str]:
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


def _box_columns(
    found: Annotations, keep: npt.NDArray[np.bool_], each: Numbers
) -> dict[str, pa.Array]:
    return {
        "image/object/bbox": box_lists(found.relative[keep], each),
        "image/object/class/text": list_of(found.names.filter(pa.array(keep)), each),
        "image/object/class/label": list_of(pa.array(found.labels[keep]), each),
        "image/object/is_crowd": list_of(pa.array(found.crowd[keep]), each),
        "image/object/area": list_of(pa.array(found.areas[keep]), each),
    }


def _as_json(values: Mapping[str, Any]) -> bytes:
    text = json.dumps(values, sort_keys=True, ensure_ascii=False)
    return text.encode(errors="replace")


def _part_rejection(
    file: SourceFile, row: int | None, found: Annotations, index: int
) -> Rejection:
    reason, message = found.complaint(index)
    raw = _as_json(found.raw.slice(index, 1).to_pylist()[0])
    return Rejection(
        source=file.origin,
        row=None if row is None else row + 1,
        line=None,
        stage=STAGE,
        reason=reason,
        message=bounded(message),
        sha256=hashlib.sha256(raw).hexdigest(),
        part=BOXES,
        raw=raw,
    )


def _strays(file: SourceFile, coco: CocoFile) -> list[Rejection]:
    """Returns a rejection for each annotation of no image."""
    rows = np.full(len(coco.strays), -1)
    found = judge(coco, coco.strays, rows, _ranks(coco), BoxPolicy.BOX)
    if not found.is_box.all():
        lost = int(np.flatnonzero(~found.is_box)[0])
        raw = found.raw.slice(lost, 1).to_pylist()[0]
        raise InputError(
            f"Every caption must be of an image of its file; in {file.path!r} caption "
            f"{raw['id']} is of image {raw['image_id']!r}, which is not there."
        )
    return [_part_rejection(file, None, found, i) for i in range(len(rows))]


def _rejecter(
    file: SourceFile, coco: CocoFile
) -> Callable[[Sequence[Complaint]], list[Rejection]]:
    """Returns what makes rejections of complaints about images of the file."""

    def reject(complaints: Sequence[Complaint]) -> list[Rejection]:
        out = []
        for row, reason, message in complaints:
            raw = _as_json(coco.images.slice(row, 1).to_pylist()[0])
            complaint = row, reason, f"{_named(coco, row)}: {message}"
            out.append(rejection_of(file.origin, complaint, raw))
        return out

    return reject


def _named(coco: CocoFile, row: int) -> str:
    image = coco.images.slice(row, 1).to_pylist()[0]
    return f"image {image['id']!r}, {image['file_name']!r}"


def recognise(
    files: Sequence[tuple[str, int]], head: Callable[[str], bytes]
) -> tuple[str, ...] | None:
    """Returns the files that begin like COCO's, None if none do; raises OSError."""
    found = [
        path
        for path, _ in files
        if path.lower().endswith(".json") and _BEGINNING.search(head(path))
    ]
    return tuple(found) or None
