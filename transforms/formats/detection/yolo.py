"""YOLO labels as rows of images: boxes, outlines and key points, a text an image.

    data.yaml             names, the folders or lists of each split, perhaps kpt_shape
    train/images/a.jpg    an image: one row; a row without objects where it has no label
    train/labels/a.txt    its objects, a line each

    class x y w h                            a box: its centre and its size
    class x1 y1 x2 y2 x3 y3 ...              an outline; the box is around it
    class x y w h x1 y1 v1 x2 y2 v2 ...      a box with key points, as kpt_shape says

Numbers are fractions of the image. The label of an image has its path, with `labels`
for the last folder `images`, and is beside it where there is no such folder. Class ids
are the numbers of the labels, and one more: 0 is the background.

Darknet has the names in `obj.names`, and lists of images in `train.txt` and so on. A
folder without names has the numbers for names.

Sources: the pages on datasets of Ultralytics; AlexeyAB/darknet, readme; CVAT, Roboflow
and Label Studio, pages on export.
"""

import dataclasses
import functools
import os
import posixpath
import re
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from transforms.core.image.masks import Mask as Pixels
from transforms.core.image.masks import object_mask
from transforms.core.reasons import Fault, Reason
from transforms.errors import BeamTFRecordError, InputError, SpecError
from transforms.formats.detection.listed import ListedReader, listing_of
from transforms.formats.detection.objects import (
    NO_BOX,
    BoxedObject,
    ImageObjects,
)
from transforms.formats.detection.yolo_files import (
    IS_NAMES,
    IS_YAML,
    LOOKED_AT,
    MOST_CLASSES,
    by_depth,
    config_of,
    is_data,
    splits_of,
)
from transforms.formats.file_names import IMAGE_SUFFIXES, is_image_name
from transforms.formats.label_join import SourcePaths
from transforms.formats.pairs import MASK_WORDS, masks_folder
from transforms.formats.table import InputFile, Planned, spread
from transforms.storage.files import read_ahead
from transforms.storage.paths import is_remote

# Labels that are looked into, for outlines and to know a source by, and texts that may
# be labels.
_LABELS, _TEXTS = 16, 32
# Labels whose outlines a note tells of; in a store each is a request.
_LOOKED_INTO = 256
# Folders of images -> those of their labels.
_LABELS_OF = {"images": "labels", "Images": "Labels"}
# The last one on a path.
_IMAGES = re.compile(r"(?s)(.*/|^)(images|Images)(?=/)")
_LINE = re.compile(rb"\s*\d+(\.0*)?(\s+[-+.\deE]+){4,}\s*")
# Of so many labels that are looked at, one may be none.
_FEW = 10
_BOX, _OUTLINE = 4, 6


@dataclasses.dataclass(frozen=True, slots=True)
class YoloReader(ListedReader):
    """Reads YOLO datasets.

    Attributes:
      names: of classes by their numbers; None for the numbers themselves.
      point_shape: see `YoloConfig`.
    """

    title: ClassVar[str] = "YOLO labels"
    what: ClassVar[str] = "a YOLO label"
    may_be_empty: ClassVar[bool] = True
    by_annotation: ClassVar[bool] = False
    # Tools round coordinates to a few decimals.
    tolerance: ClassVar[float] = 0.01

    names: Mapping[int, str] | None = None
    point_shape: tuple[int, int] = (0, 0)

    def plan(self, files: Sequence[InputFile]) -> Planned:
        """Finds names, splits and labels of all images; samples them evenly.

        Raises:
          InputError: the dataset contradicts itself, or no image has a label.
        """
        if self.images_root:
            raise SpecError(
                f"images_root is not for {self.title}: images and labels are below "
                f"SOURCE; name the folder of both as SOURCE."
            )
        root, images = files[0].root, [file.origin for file in files]
        if self.masks not in MASK_WORDS:
            # Masks among the images are none of these.
            inner = os.path.relpath(self.masks, root) + "/"
            images = [image for image in images if not image.startswith(inner)]
        texts = {e.path: e.stamp for e in self.companions if not e.skipped}
        paths = SourcePaths([*images, *texts])
        config = config_of(root, texts)
        notes: list[str] = []
        split_of = splits_of(root, config, images, paths, notes)
        labels = {image: label_path(image, texts) for image in split_of}
        labelled = {split_of[i] for i, label in labels.items() if label in texts}
        if not labelled:
            raise InputError(
                f"YOLO images must have labels; in {root!r} none of the "
                f"{len(labels):,} images of the dataset has one, such as "
                f"{label_path(images[0])!r:.80} for {images[0]!r:.80}. Add them, or "
                f"convert the images alone with --format images --unlabelled."
            )
        bare = [i for i in labels if split_of[i] not in labelled]
        if bare:
            notes.append(
                f"{len(bare):,} images, such as {bare[0]!r:.80}, are left out: no "
                f"image of their split has a label file"
            )
        listed = [file for file in files if split_of.get(file.origin) in labelled]
        rows: list[dict[str, Any]] = [
            {
                "path": file.origin,
                "size": file.size,
                "position": file.position,
                "stamp": file.stamp,
                "annotation": label if label in texts else None,
                "label_stamp": texts.get(label),
                "split": split_of[file.origin] or None,
            }
            for file in listed
            for label in [labels[file.origin]]
        ]
        if missing := [row["path"] for row in rows if row["annotation"] is None]:
            notes.append(
                f"{len(missing):,} of {len(rows):,} images, such as "
                f"{missing[0]!r:.80}, have no label file: they have no objects"
            )
        used = set(labels.values()) | {label_path(image, texts) for image in images}
        if self.whole:
            rows += _orphans(used, texts, config.path, position=files[-1].position)
        reader = dataclasses.replace(
            self,
            fractions=True,
            names=config.names,
            points=config.point_shape[0],
            point_shape=config.point_shape,
        )
        numbers, objects, outlines = reader._looked_into(rows, root)
        names = config.names
        if names is None:
            names = {number: str(number) for number in sorted(numbers)}
            notes.append(
                "no data.yaml, *.names or classes.txt says the names of the classes: "
                "they are called by their numbers"
            )
        reader = dataclasses.replace(
            reader,
            class_ids={name: number + 1 for number, name in sorted(names.items())},
        )
        return reader.planned(
            [listing_of(rows)],
            root,
            notes=notes,
            left_out=len(files) - len(listed),
            objects=objects,
            outlines=outlines,
            seen=f", classes by {config.path!r:.80}" if config.path else "",
        )

    def _looked_into(
        self, rows: Sequence[Mapping[str, Any]], root: str
    ) -> tuple[set[int], int, int]:
        """Returns the numbers of classes, and counts objects and outlines.

        Where classes have no names, or masks are stored, all labels are read.
        """
        numbers: set[int] = set()
        objects = outlines = 0
        reads_all = self.names is None or self.masks == "all"
        some = rows if reads_all else spread(rows, _LOOKED_INTO)
        labelled = (row for row in some if row["annotation"] and not row.get("reason"))
        read = functools.partial(self.objects_of, root=root)
        for image, _ in read_ahead(read, labelled, far=is_remote(root)):
            if isinstance(image, ImageObjects):
                good = [box for box in image.objects if box.fault is None]
                objects += len(good)
                outlines += sum(len(box.raw.split()) > 1 + _BOX for box in good)
                if self.names is None:
                    numbers.update(int(box.name) for box in good)
        return numbers, objects, 0 if self.points else outlines

    def parse(self, data: bytes) -> ImageObjects:
        """Returns the objects of a label; raises UnicodeDecodeError."""
        lines = enumerate(data.decode("utf-8-sig").split("\n"), start=1)
        objects = [self._object(number, line) for number, line in lines if line.strip()]
        return ImageObjects(objects)

    def _object(self, number: int, line: str) -> BoxedObject:
        where = f"line {number}"
        item = BoxedObject("", NO_BOX, where, line.encode(), line=number)
        try:
            values = [float(cell) for cell in line.split()]
            if "_" in line:
                raise ValueError("numbers have no _ in them")
            name = self._name(values[0], where)
            box, points = self._numbers(values[1:])
        except ValueError as error:
            shown = f"{where}: {error}; it is {line.strip()[:80]!r}"
            return item._replace(fault=Fault(Reason.MALFORMED, shown))
        if isinstance(name, Fault):
            return item._replace(box=box, fault=name)
        if max(map(abs, values[1:])) > 2:
            where += " (pixels, perhaps, where fractions are needed)"
        if len(values) > 1 + _BOX and points is None:
            item = item._replace(draw=functools.partial(_drawn, values[1:]))
        return item._replace(name=name, box=box, place=where, points=points)

    def _name(self, number: float, place: str) -> str | Fault:
        if not 0 <= number < MOST_CLASSES or number % 1:
            raise ValueError("the class must be a whole number from 0")
        if self.names is None:
            return str(int(number))
        if int(number) in self.names:
            return self.names[int(number)]
        words = f"class {int(number)} is not among the {len(self.names):,} with names"
        return Fault(Reason.UNKNOWN_LABEL, f"{place}: {words}")

    def _numbers(
        self, values: Sequence[float]
    ) -> tuple[Sequence[float], Sequence[float] | None]:
        """Returns box and key points of a line, after its class."""
        count, (k, dims) = len(values), self.point_shape
        if count >= _OUTLINE and count % 2 == 0 and not k:
            xs, ys = values[::2], values[1::2]
            return (min(xs), min(ys), max(xs), max(ys)), None
        if count not in (_BOX, _BOX + k * dims):
            rule = "4 numbers of a box, or 6 and more, an even number, of an outline,"
            if k:
                rule = f"4 numbers, or {_BOX + k * dims} with key points,"
            hint = ". Is the sixth a confidence?" if count == _BOX + 1 else ""
            raise ValueError(f"{rule} must follow the class; {count} do{hint}")
        x, y, width, height = values[:_BOX]
        box = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
        if count == _BOX:
            return box, None
        points = values[_BOX:]
        if dims == 2:
            pairs = zip(points[::2], points[1::2], strict=True)
            points = [v for x, y in pairs for v in (x, y, 2.0 if x or y else 0.0)]
        return box, points


def label_path(image: str, texts: Container[str] = ()) -> str:
    """Returns where the YOLO label of an image is.

    Args:
      image: its path.
      texts: of the source; one beside an image in `Images` is its label.
    """
    beside = posixpath.splitext(image)[0] + ".txt"
    if beside in texts and "images" not in image.split("/")[:-1]:
        return beside
    return _IMAGES.sub(lambda match: match[1] + _LABELS_OF[match[2]], beside, count=1)


def _drawn(
    fractions: Sequence[float], height: int, width: int, box: Sequence[float]
) -> Pixels:
    """Returns the mask of a YOLO outline; raises FaultError."""
    polygon = [n * (height if i % 2 else width) for i, n in enumerate(fractions)]
    return object_mask([polygon], height, width, box)


def _orphans(
    used: Collection[str], texts: Mapping[str, int], config: str, *, position: int
) -> list[dict[str, Any]]:
    """Returns rows for labels without an image: texts in the folders of labels."""
    folders = {posixpath.dirname(label) for label in used if label in texts}
    return [
        {
            "path": path,
            "annotation": path,
            "position": position,
            "reason": str(Reason.LABEL_WITHOUT_IMAGE),
            "message": "no image has this name",
        }
        for path in texts
        if path.endswith(".txt")
        and path not in used
        and posixpath.dirname(path) in folders
        and "labels" in path.split("/")
        and path != config
        and not IS_NAMES.search(path)
    ]


def recognise(files: Iterable[tuple[str, int]], head: Callable[[str], bytes]) -> bool:
    """Whether a source is YOLO's; raises OSError.

    It has the YAML of a dataset, or texts with the names of images, of which 9 of 10
    look like labels: a broken one becomes a reject. With a folder of masks in the YAML
    it is of pairs.
    """
    suffixes = (".yaml", ".yml", ".txt")
    named = [path for path, _ in files if path.lower().endswith(suffixes)]
    yamls = [path for path in named if IS_YAML.search(path)]
    if masks_folder(yamls, head):
        return False
    if any(is_data(head(p)) for p in sorted(yamls, key=by_depth)[:LOOKED_AT]):
        return True
    texts = [p for p in named if not (IS_YAML.search(p) or IS_NAMES.search(p))]
    image = next((path for path, _ in files if is_image_name(path)), "")
    # Texts of numbers, and others, which are no labels where images have them.
    labels: list[str] = []
    prose: list[str] = []
    for text in spread(texts, _TEXTS) if image else ():
        if start := head(text).strip():
            # The last line may be cut.
            lines = start.split(b"\n")[:20]
            is_label = all(map(_LINE.fullmatch, lines[:-1] or lines))
            (labels if is_label else prose).append(text)
    strange = [text for text in prose[:_LABELS] if _has_image(text, image, head)]
    return len(strange) * _FEW <= len(labels) and any(
        _has_image(text, image, head) for text in labels[:_LABELS]
    )


def _has_image(text: str, image: str, head: Callable[[str], bytes]) -> bool:
    """Whether there is an image that a text file would label.

    Args:
      text: the path of the text.
      image: any image of the source, whose suffix is tried first.
      head: see `recognise`.
    """
    parts = posixpath.splitext(text)[0].split("/")
    stems = [
        [*parts[:at], images, *parts[at + 1 :]]
        for images, labels in _LABELS_OF.items()
        for at, name in enumerate(parts[:-1])
        if name == labels
    ] + [parts]
    for suffix in (posixpath.splitext(image)[1], *IMAGE_SUFFIXES[:6]):
        for stem in stems:
            try:
                head("/".join(stem) + suffix)
            except (OSError, BeamTFRecordError):
                continue
            return True
    return False
