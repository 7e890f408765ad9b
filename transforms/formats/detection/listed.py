"""Images as a listing with the objects of each: YOLO, LabelMe, a row a box.

    path, size, position, stamp    of the image, as `InputFiles` draws them
    annotation  string   path of the file with its objects, null for none; where there
                         is no image, `path` is that of this file, too
    stated      string   the image as the annotation calls it; null for nothing
    split       string   null for none
    reason, message      why there is no row; null where there is one

A layout lists the images once, when the job is planned, with columns of its own beside
these. Workers read runs of the listing: `ListedReader.objects_of` gives the objects of
an image, and everything else is the same for all layouts.
"""

import abc
import dataclasses
import functools
import os
import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import numpy as np
import pyarrow as pa

from transforms.core.image.masks import Mask as Pixels
from transforms.core.image.masks import object_mask
from transforms.core.model import Block, Rejection
from transforms.core.reasons import Fault, Reason, Skipped
from transforms.errors import InputError, SpecError
from transforms.formats.detection.boxed_rows import (
    BOXES,
    Annotated,
    BoxedReader,
    detection_features,
    even_rows,
    image_rows,
    sample_of,
    size_of_image,
)
from transforms.formats.detection.key_points import KeyPoints
from transforms.formats.input_files import InputFiles
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
from transforms.storage.entries import FileEntry, TooLargeError
from transforms.storage.files import storage
from transforms.storage.visibility import unseen

SPLIT_COLUMN = "image set"
DISCARDED = "/discarded"
"""The reason of images that the source says are not to be used."""
# Real files have a few KB; a larger one is no annotation.
MAX_BYTES = 16 << 20
_SAMPLE_ROWS = 2000
_OBJECT = "image/object/"
_COLUMNS: Mapping[str, pa.DataType] = {
    "path": pa.string(),
    "size": pa.int64(),
    "position": pa.int64(),
    "stamp": pa.int64(),
    "annotation": pa.string(),
    "stated": pa.string(),
    "split": pa.string(),
    "reason": pa.string(),
    "message": pa.string(),
}

_Parsed = TypeVar("_Parsed")


class BoxedObject(NamedTuple):
    """One object of an image, as a layout reads it.

    Attributes:
      name: of its class; empty for none.
      box: xmin, ymin, xmax, ymax in the unit of the layout.
      place: what messages call it, as "line 3".
      raw: what the source has of it.
      row: 0-based number of its row; None where a file has one image.
      line: 1-based line on which it starts; None where lines say nothing.
      fault: why it is bad whatever its box is.
      values: of lists, by the end of the feature's name, as `difficult`.
      points: x, y and visibility of key points; None for none.
      outline: polygons in the unit of the layout, or what its `mask_of` draws; None
        for none, so that its mask is the box, filled.
    """

    name: str
    box: Sequence[float]
    place: str
    raw: bytes
    row: int | None = None
    line: int | None = None
    fault: Fault | None = None
    values: Mapping[str, Any] = {}
    points: Sequence[float] | None = None
    outline: Sequence[Any] | None = None


class ImageObjects(NamedTuple):
    """The objects of one image, and its size in pixels as stated; None if it is not."""

    objects: Sequence[BoxedObject]
    width: float | None = None
    height: float | None = None


NO_BOX = (np.nan,) * 4
# Of an image in a listing: its objects, or why it is rejected; what the source has.
Found = tuple[ImageObjects | Fault, bytes | None]


@dataclasses.dataclass(frozen=True, slots=True)
class ListedReader(BoxedReader, RunReader):
    """Reads listings of images.

    Attributes:
      companions: the files beside those that `plan` is given; none once it is planned.
      whole: whether no file of the format was left out by a pattern.
      class_ids: by the name of the class.
      fractions: whether boxes are fractions of the image, not pixels.
      values: ends of the names of lists that some object has a value for.
      points: the most key points of an object.
      split_column: see `RowReader`.
    """

    tolerance: ClassVar[float] = 1.0
    # The column of splits, and whether it is the reader's own.
    split_name: ClassVar[str] = SPLIT_COLUMN
    says_split: ClassVar[bool] = True
    # Whether images are called as the annotation states them; else by base names.
    as_stated: ClassVar[bool] = False
    # Whether a row is known by its annotation; else by its image.
    by_annotation: ClassVar[bool] = False

    companions: tuple[FileEntry, ...] = ()
    whole: bool = True
    class_ids: Mapping[str, int] = dataclasses.field(default_factory=dict)
    fractions: bool = False
    values: tuple[str, ...] = ()
    points: int = 0
    split_column: str = ""

    def with_companions(self, files: Sequence[FileEntry], *, whole: bool) -> Self:
        """Returns the format that knows what is beside the files that it plans."""
        return dataclasses.replace(self, companions=tuple(files), whole=whole)

    @abc.abstractmethod
    def objects_of(self, row: Mapping[str, Any], root: str) -> Found:
        """Returns the objects of an image of the listing.

        Args:
          row: of the listing.
          root: the source's.
        """

    def mask_of(
        self, item: BoxedObject, height: int, width: int, box: Sequence[float]
    ) -> Pixels:
        """Returns the mask of an object; see `Annotated.mask_of`."""
        polygons = item.outline
        if polygons and self.fractions:
            scale = (width, height)
            polygons = [
                [number * scale[i % 2] for i, number in enumerate(polygon)]
                for polygon in polygons
            ]
        return object_mask(polygons, height, width, box)

    def gone_parts(self, row: Mapping[str, Any]) -> int:
        """Returns how many objects a row of the listing has that is no image's."""
        return 0

    def blocks(
        self, file: InputFile, *, block_bytes: int, limit_rows: int | None
    ) -> Iterator[Block]:
        """Yields nothing: the listing is read in runs."""
        yield from ()

    def read(
        self, file: SourceFile, block: Block, columns: Sequence[str]
    ) -> Iterator[RawRows]:
        """Yields nothing: the listing is read in runs."""
        yield from ()

    def split_of(self, origin: str) -> str:
        """Returns nothing: the listing says the split."""
        return ""

    def read_run(
        self, run: pa.Table, root: str, block: Block, columns: Sequence[str]
    ) -> Iterator[RawRows]:
        """Yields the images of a run of the listing."""
        rows = run.to_pylist()
        raw = self._rows(rows, root, block)
        yield raw.only(columns)

    def planned(
        self,
        table: pa.Table,
        root: str,
        *,
        label_map: Mapping[int, str],
        notes: Sequence[str] = (),
        left_out: int = 0,
        outlines: int = 0,
        sampled: int = _SAMPLE_ROWS,
        seen: str = "",
    ) -> Planned:
        """Returns the plan of a listing, with some of its rows as the sample.

        Args:
          table: the listing.
          root: the source's.
          label_map: class id -> name.
          notes: what a person should know.
          left_out: how many files are not in the listing.
          outlines: how many objects have an outline, of those that were looked at.
          sampled: how many rows the sample has at most.
          seen: see `Planned`.
        """
        if not table.num_rows:
            raise InputError(f"{self.title} must list images; those of {root!r} do not")
        reader = dataclasses.replace(self, companions=())
        if self.masks == "all" and not outlines:
            reader = dataclasses.replace(reader, masks="auto")
        if self.says_split and table["split"].null_count < table.num_rows:
            reader = dataclasses.replace(reader, split_column=self.split_name)
        chosen = even_rows(table.num_rows, sampled)
        rows = table.take(pa.array(chosen)).to_pylist()
        block = Block("", 0, len(rows), rows=len(rows))
        sample = sample_of(
            [reader._rows(rows, root, block, is_sample=True)],
            total_rows=table.num_rows,
            complete=len(rows) == table.num_rows,
        )
        columns = dict(sample.columns)
        if columns[self.split_name].null_count == sample.rows:
            del columns[self.split_name]
            reader = dataclasses.replace(reader, split_column="")
        return Planned(
            reader,
            dataclasses.replace(sample, columns=columns, notes=tuple(notes)),
            detection_features(columns),
            label_map,
            files=InputFiles(table, root=root),
            left_out=left_out,
            seen=seen,
        )

    def _rows(
        self,
        rows: Sequence[Mapping[str, Any]],
        root: str,
        block: Block,
        *,
        is_sample: bool = False,
    ) -> RawRows:
        """Returns images of the listing as rows."""
        discarded = sum(row["reason"] == DISCARDED for row in rows)
        kept = [i for i, row in enumerate(rows) if row["reason"] != DISCARDED]
        found = {i: _refused(rows[i]) or self.objects_of(rows[i], root) for i in kept}
        images = {
            i: image
            for i, (image, _) in found.items()
            if isinstance(image, ImageObjects)
        }
        refused = [
            (i, *image) for i, (image, _) in found.items() if isinstance(image, Fault)
        ]
        read = list(images)
        annotated = self._annotated(rows, images, found, root)
        if not is_sample:

            @functools.cache
            def size_of(i: int) -> tuple[int, int] | Fault:
                return size_of_image(root, rows[read[i]]["path"], self.image_policy)

            annotated = dataclasses.replace(annotated, size_of=size_of)
        raw = image_rows(block, annotated, self.bad_box)
        places = raw.numbers
        of_rows = [rows[i] for i in places.tolist()]
        known_by = "annotation" if self.by_annotation else "path"
        away = [row for i, row in enumerate(rows) if i not in images]
        gone = sum(map(self.gone_parts, away))
        return dataclasses.replace(
            raw,
            # What complaints call a row is its place in the run.
            numbers=np.array([row.get("row") or 0 for row in of_rows], np.int64),
            places=places,
            refused=[*refused, *raw.refused],
            origins=pa.array([row[known_by] for row in of_rows], pa.string()),
            stamps=pa.array([row["stamp"] for row in of_rows], pa.int64()),
            positions=np.array([row["position"] for row in of_rows], np.int64),
            parts={BOXES: raw.parts[BOXES] + gone},
            parts_gone={BOXES: raw.parts_gone[BOXES] + gone},
            skipped={str(Skipped.DISCARDED): discarded} if discarded else {},
        )

    def _annotated(
        self,
        rows: Sequence[Mapping[str, Any]],
        images: Mapping[int, ImageObjects],
        found: Mapping[int, Found],
        root: str,
    ) -> Annotated:
        """Returns images by their places in a run, and their objects."""
        objects = [each for image in images.values() for each in image.objects]
        counts = [len(image.objects) for image in images.values()]
        parents = np.repeat(np.arange(len(images)), counts)
        read = [rows[i] for i in images]
        paths = pa.array([row["path"] for row in read], pa.string())
        names = pa.array(
            [
                row["stated"] if self.as_stated else posixpath.basename(row["path"])
                for row in read
            ],
            pa.string(),
        )

        def explain(index: int, words: str) -> str:
            return f"{objects[index].place}: {words}"

        def reject_object(index: int, fault: Fault) -> Rejection:
            item, row = objects[index], read[parents[index]]
            origin = row["annotation"] or row["path"]
            reason, message = fault
            if row["stated"]:
                message = f"{row['stated']!r}: {message}"
            complaint = item.row or 0, reason, message
            return rejection_of(
                origin,
                complaint,
                item.raw,
                line=item.line,
                part=BOXES,
                numbered=item.row is not None,
            )

        def draw(index: int, height: int, width: int, box: Sequence[float]) -> Pixels:
            return self.mask_of(objects[index], height, width, box)

        said, also = {}, {}
        for i, item in enumerate(objects):
            if item.fault is not None:
                said[i] = item.fault
            elif not item.name:
                words = explain(i, "it has no class")
                also[i] = Fault(Reason.MISSING_VALUE, words)
        sides = [(image.width, image.height) for image in images.values()]
        ids = self.class_ids
        return Annotated(
            columns={
                "image/encoded": paths,
                "image/filename": names,
                "image/source_id": names,
                self.split_name: pa.array([row["split"] for row in read], pa.string()),
                **self.class_masks(root, paths.to_pylist()),
            },
            numbers=np.array(list(images), np.int64),
            reject=rejecter(_rejection, rows, found),
            parents=parents,
            boxes=np.array([item.box for item in objects], np.float64).reshape(-1, 4),
            names=pa.array([item.name for item in objects], pa.string()),
            labels=np.array([ids.get(item.name, 0) for item in objects], np.int64),
            said=said,
            also=also,
            explain=explain,
            reject_object=reject_object,
            sides=None
            if self.fractions
            else (
                pa.array([width for width, _ in sides], pa.float64()),
                pa.array([height for _, height in sides], pa.float64()),
            ),
            lists={
                f"{_OBJECT}{end}": pa.array(
                    [item.values.get(end, 0) for item in objects], pa.int64()
                )
                for end in self.values
            },
            key_points=KeyPoints.of([item.points for item in objects], self.points)
            if self.points
            else None,
            mask_of=draw if self.masks == "all" else None,
            most_pixels=self.image_policy.max_pixels,
            tolerance=self.tolerance,
        )


def _refused(row: Mapping[str, Any]) -> Found | None:
    """Returns why a row of the listing is no row, if it is none."""
    if not row["reason"]:
        return None
    return Fault(Reason(row["reason"]), row["message"]), row.get("raw")


def _rejection(
    rows: Sequence[Mapping[str, Any]],
    found: Mapping[int, Found],
    complaint: Complaint,
) -> Rejection:
    """Returns the rejection of an image."""
    place, reason, message = complaint
    row = rows[place]
    number = row.get("row")
    if row["stated"]:
        message = f"{row['stated']!r}: {message}"
    return rejection_of(
        row["annotation"] or row["path"],
        (number or 0, reason, message),
        found[place][1],
        line=row.get("line"),
        numbered=number is not None,
    )


def listing_of(
    rows: Sequence[Mapping[str, Any]], more: Mapping[str, pa.DataType]
) -> pa.Table:
    """Returns rows as a listing; what a row lacks is null, and 0 of a number.

    Args:
      rows: with the columns that the module draws.
      more: the layout's own columns, and their types.
    """
    columns = {}
    for name, kind in {**_COLUMNS, **more}.items():
        absent = 0 if kind == pa.int64() and name in _COLUMNS else None
        columns[name] = pa.array([row.get(name, absent) for row in rows], kind)
    return pa.table(columns)


def no_images_root(images_root: str, title: str) -> None:
    """Raises SpecError where `images_root` is given and is not read."""
    if images_root:
        raise SpecError(
            f"images_root is not for {title}: images and labels are below SOURCE; "
            f"name the folder of both as SOURCE."
        )


def load_annotation(
    file: SourceFile,
    parse: Callable[[bytes], _Parsed],
    *,
    what: str,
    empty: _Parsed | None = None,
    most_bytes: int = MAX_BYTES,
) -> tuple[_Parsed | Fault, bytes | None]:
    """Returns what a file of one image says, or why it cannot be read; its bytes.

    Args:
      file: whose stamp must be the one it has, unless it is 0.
      parse: raises ValueError for what is no such file.
      what: the file should be, in words.
      empty: what an empty file says; None for a fault.
      most_bytes: of a file that is read.

    Raises:
      WorkerError: the file is on the disk of another machine.
    """
    try:
        data, stamp = storage(file.path).read_stamped(most_bytes)
    except FileNotFoundError:
        if never_seen := unseen(file.path):
            raise never_seen from None
        return Fault(Reason.CHANGED_DURING_RUN, "there is no such file"), None
    except TooLargeError as large:
        words = f"it has {large.size:,} bytes; at most {most_bytes:,} are read"
        return Fault(Reason.MALFORMED, f"not {what}: {words}"), None
    except OSError as error:
        return Fault(Reason.UNREADABLE, str(error.strerror)), None
    if file.stamp and stamp != file.stamp:
        message = "it has another size or time than when it was listed"
        return Fault(Reason.CHANGED_DURING_RUN, message), data
    if not data:
        return (empty or Fault(Reason.EMPTY_FILE, "the file is empty")), data
    try:
        return parse(data), data
    except UnicodeDecodeError:
        return Fault(Reason.INVALID_ENCODING, "it must be UTF-8"), data
    except (ValueError, RecursionError) as error:
        words = str(error) or type(error).__name__
        return Fault(Reason.MALFORMED, f"not {what}: {words}"), data


def annotation_file(root: str, path: str, stamp: int = 0) -> SourceFile:
    """Returns a file of the source by its path relative to the root."""
    return SourceFile(path, os.path.join(root, path), stamp=stamp)
