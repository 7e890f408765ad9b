"""COCO JSON as rows of images, under the names of the TF Object Detection API.

    annotations/instances_train2017.json   ids, sizes, boxes, classes: one origin
    train2017/000000000009.jpg             an image: one row

A row is an image of the file's list, in its order, with lists that run parallel: of
boxes, names and ids of classes, areas, crowd flags. An image without annotations has
empty lists. Class ids are those of the file where they are all positive; otherwise they
count from 1 in the order of the file's ids. Outlines and key points are not read: notes
say how many there are.

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
import heapq
import json
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import numpy_mask
from transforms.core.boxes import BoxPolicy
from transforms.core.image.policy import ImagePolicy
from transforms.core.model import Block, Rejection
from transforms.errors import InputError
from transforms.formats.detection.boxed_rows import (
    BOXES,
    box_policy,
    detection_features,
    even_rows,
    list_of,
    place_boxes,
    root_of,
    row_ranges,
    sample_of,
    size_of_image,
)
from transforms.formats.detection.coco_json import CocoFile, load_coco
from transforms.formats.detection.coco_rows import (
    Annotations,
    image_folder,
    judge,
    sized,
    unusable,
    whole_pixels,
)
from transforms.formats.file_names import split_in_path
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

_SAMPLE_ROWS = 2000
# Annotations, about, that are made rows of at once; of one image at least.
_ANNOTATIONS_AT_ONCE = 1 << 16
_CAPTION = "image/caption"
# COCO's lists of objects, which come in any order.
_KEYS = frozenset((b"images", b"annotations", b"categories"))
# Strings, those that name a list with its bracket, and brackets of JSON. A string that
# is cut goes to the end: else each quote in it would be tried as a beginning.
_TOKEN = re.compile(
    rb'"((?:[^"\\]|\\.)*+)(?:"(\s*:\s*\[)?|\\?\Z)|[\[{]|[\]}]', re.DOTALL
)
# Of an item of a list that evaluation tools take.
_RESULT = re.compile(rb'\A\s*\[\s*\{[^{}]*"image_id"\s*:')
# How many JSON files are looked into, the largest: COCO keeps a dataset in one.
_LOOKED_AT = 64
# COCO's own names of files that list images which another file lists with its boxes.
_BESIDE = re.compile(r"(captions|person_keypoints|stuff|panoptic|image_info)_")

Numbers = npt.NDArray[np.int64]
_Loaded = tuple[InputFile, CocoFile]


@dataclasses.dataclass(frozen=True, slots=True)
class CocoReader(TableReader):
    """Reads COCO JSON files.

    Attributes:
      bad_box: what becomes of a bad box; see `BoxPolicy`.
      images_root: folder of the images, relative to the source's root or absolute;
        empty to look where they usually are.
      folders: by file, the folder of its images as `images_root` says it, once it is
        known.
      recognised: whether nobody has said that the files are COCO's.
      image_policy: what the job does to images: turned ones have another size.
    """

    title: ClassVar[str] = "COCO JSON"
    image_base: ClassVar[Literal["file", "root"]] = "root"

    bad_box: str = "box"
    images_root: str = ""
    folders: Mapping[str, str] = dataclasses.field(default_factory=dict)
    recognised: bool = False
    image_policy: ImagePolicy = dataclasses.field(default_factory=ImagePolicy)

    def __post_init__(self) -> None:
        box_policy(self.bad_box)

    def plan(self, files: Sequence[InputFile]) -> Planned:
        """Samples the images of all files evenly; finds the classes and the images.

        Raises:
          InputError: files disagree on a class, list the same images or captions
            alone, or the images are not to be found.
        """
        loaded = self._chosen(files)
        total = sum(len(coco.images) for _, coco in loaded)
        pieces = []
        for file, coco in loaded:
            count = len(coco.images)
            wanted = max(-(-_SAMPLE_ROWS * count // total), 1)
            pieces += [
                self._piece(file, coco, rows)
                for rows in _runs(coco, even_rows(count, wanted))
            ]
        boxed = any(_has_boxes(coco) for _, coco in loaded)
        captioned = any(_has_captions(coco) for _, coco in loaded)
        sample = sample_of(pieces, total_rows=total, complete=total <= _SAMPLE_ROWS)
        columns = {
            name: column
            for name, column in sample.columns.items()
            if (captioned if name == _CAPTION else boxed or not _is_of_boxes(name))
        }
        classes = _classes_of(loaded)
        folders = {}
        if not self.images_root:
            folders = {file.origin: image_folder(file, coco) for file, coco in loaded}
        _check_apart(loaded, folders)
        notes = _notes(files, loaded)
        return Planned(
            dataclasses.replace(self, folders=folders, recognised=False),
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
            loaded = [(file, load_coco(file.path, file.stamp)) for file in some]
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

    def blocks(
        self, file: InputFile, *, block_bytes: int, limit_rows: int | None
    ) -> Iterator[Block]:
        """Yields runs of images; `start` and `stop` count them."""
        total = len(load_coco(file.path, file.stamp).images)
        for start, stop in row_ranges(total, limit_rows):
            before = file.size * start // total
            rows = stop - start
            yield file.block(start, stop, rows=rows, before=before, first_row=start)

    def read(
        self, file: SourceFile, block: Block, columns: Sequence[str]
    ) -> Iterator[RawRows]:
        """Yields the images of a block; annotations of no image come with the first."""
        coco = load_coco(file.path, block.stamp)
        for rows in _runs(coco, np.arange(block.start, block.stop)):
            first, count = int(rows[0]), len(rows)
            piece = dataclasses.replace(
                block, start=first, stop=first + count, first_row=first, rows=count
            )
            raw = self._piece(file, coco, rows, piece)
            places = block.positions_of(raw.numbers)
            yield dataclasses.replace(raw.only(columns), positions=places)

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
        paths = self._paths(file, known)
        named = numpy_mask(pc.fill_null(pc.not_equal(known["file_name"], ""), False))
        known, unread = sized(
            known,
            (counts > 0) & named,
            lambda i: size_of_image(
                root_of(file), paths[i].as_py(), self.image_policy if block else None
            ),
        )
        parents = np.repeat(np.arange(len(rows)), counts)
        found = judge(coco, chosen, known, parents, _ranks(coco), policy)
        boxed = place_boxes(
            found,
            parents,
            unusable(known, found, parents) | unread,
            images=len(rows),
            policy=policy,
            is_box=found.is_box,
        )
        rejections = [
            _part_rejection(file, int(rows[parents[i]]), found, i) for i in boxed.bad
        ]
        # A file is charged once for annotations of no image: by its first block.
        strays = []
        if block is not None and not block.start:
            strays = _strays(file, coco)
        said = found.has_caption & ~boxed.gone[parents]
        captions_each = np.bincount(parents[said], minlength=len(rows))[~boxed.gone]
        images = known.filter(pa.array(~boxed.gone))
        return RawRows(
            block or Block(file.origin, 0, 0),
            {
                **self._image_columns(file, images),
                **boxed.columns(),
                "image/object/is_crowd": boxed.lists(pa.array(found.crowd)),
                "image/object/area": boxed.lists(pa.array(found.areas)),
                _CAPTION: list_of(found.captions(said), captions_each),
            },
            rows[~boxed.gone],
            refused=[(int(rows[i]), *fault) for i, fault in boxed.refused.items()],
            reject=rejecter(_rejection, file, coco),
            parts={BOXES: boxed.boxes + len(strays)},
            parts_gone={BOXES: boxed.boxes_gone},
            part_rejections=[*strays, *rejections],
            parts_each={BOXES: boxed.each},
        )

    def _image_columns(
        self, file: SourceFile, images: pa.RecordBatch
    ) -> dict[str, pa.Array]:
        return {
            "image/encoded": self._paths(file, images),
            "image/filename": images["file_name"],
            "image/source_id": images["id"].cast(pa.string()),
            "image/stated_height": whole_pixels(images["height"]),
            "image/stated_width": whole_pixels(images["width"]),
        }

    def _paths(self, file: SourceFile, images: pa.RecordBatch) -> pa.StringArray:
        """Returns the path of each image, relative to the root where it can be."""
        names = images["file_name"]
        folder = self.images_root.rstrip("/") or self.folders.get(file.origin, "")
        prefix = f"{folder}/" if folder else ""
        fixed = pc.starts_with(names, "/")
        return pc.if_else(fixed, names, pc.binary_join_element_wise(prefix, names, ""))


def _check_apart(loaded: Sequence[_Loaded], folders: Mapping[str, str]) -> None:
    """Raises InputError where two files list the same images."""
    listed: dict[tuple[str, frozenset[str]], InputFile] = {}
    for file, coco in loaded:
        names = frozenset(coco.images["file_name"].to_pylist())
        first = listed.setdefault((folders.get(file.origin, ""), names), file)
        if first is not file:
            raise InputError(
                f"Each image must be in one file; {first.origin!r} and {file.origin!r} "
                f"list the same images. Give one of them as SOURCE, or leave one out "
                f"with --exclude."
            )


def _notes(files: Sequence[InputFile], loaded: Sequence[_Loaded]) -> tuple[str, ...]:
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
    notes += [
        f"{what} of {count:,} annotation{'s' if count > 1 else ''} left out: only "
        f"boxes are read"
        for what, count in sorted(counts.items())
    ]
    return tuple(notes)


def _runs(coco: CocoFile, rows: Numbers) -> list[Numbers]:
    """Returns images in runs that have about as many annotations as are taken at once.

    Args:
      coco: the file.
      rows: numbers of images, ascending.
    """
    ends = np.cumsum(coco.starts[rows + 1] - coco.starts[rows])
    cuts = np.flatnonzero(np.diff(ends // _ANNOTATIONS_AT_ONCE)) + 1
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
    file: SourceFile, row: int | None, found: Annotations, index: int
) -> Rejection:
    # The text of an annotation is for messages: most have none.
    raw = _as_json(found.raw.drop_columns("written").slice(index, 1).to_pylist()[0])
    return rejection_of(
        file.origin,
        (row or 0, *found.complaint(index)),
        raw,
        part=BOXES,
        numbered=row is not None,
    )


def _strays(file: SourceFile, coco: CocoFile) -> list[Rejection]:
    """Returns a rejection for each annotation of no image."""
    rows = np.full(len(coco.strays), -1)
    found = judge(coco, coco.strays, coco.images, rows, _ranks(coco), BoxPolicy.BOX)
    if not found.is_box.all():
        lost = int(np.flatnonzero(~found.is_box)[0])
        raw = found.raw.slice(lost, 1).to_pylist()[0]
        raise InputError(
            f"Every caption must be of an image of its file; in {file.path!r} caption "
            f"{raw['id']} is of image {raw['image_id']!r}, which is not there."
        )
    return [_part_rejection(file, None, found, i) for i in range(len(rows))]


def _rejection(file: SourceFile, coco: CocoFile, complaint: Complaint) -> Rejection:
    """Returns the rejection of an image."""
    row, reason, message = complaint
    image = coco.images.slice(row, 1).to_pylist()[0]
    told = f"image {image['id']!r}, {image['file_name']!r}: {message}"
    return rejection_of(file.origin, (row, reason, told), _as_json(image))


def recognise(
    files: Iterable[tuple[str, int]], head: Callable[[str], bytes]
) -> tuple[str, ...] | None:
    """Returns files that begin like COCO's, None if none do; raises OSError."""
    named = [each for each in files if each[0].lower().endswith(".json")]
    looked_at = heapq.nlargest(_LOOKED_AT, named, key=lambda each: each[1])
    found = [path for path, _ in looked_at if _is_coco(head(path))]
    return tuple(found) or None


def _is_coco(start: bytes) -> bool:
    """Whether JSON has one of COCO's lists at its top, or is a list of results."""
    depth = 0
    for token in _TOKEN.finditer(start):
        if token[0] in (b"[", b"{"):
            depth += 1
        elif token[0] in (b"]", b"}"):
            depth -= 1
        elif token[2]:
            if depth == 1 and token[1] in _KEYS:
                return True
            depth += 1
    return _RESULT.match(start) is not None
