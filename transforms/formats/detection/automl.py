"""AutoML manifests as rows of images.

A row is an image. Where every image has one label, that is its class; else a row has a
list of classes, which may be empty. Where a file has boxes, features are those of the
TF Object Detection API; class ids count from 1, by all names that there are, sorted.

TRAIN, VALIDATION and TEST say the split, UNASSIGNED leaves it to shares, and images
that say DISCARD are left out. tfrecorder's manifests without their header,
`split,image_uri,label`, are the same.

Corners are fractions of the image, 0 to 1, from its left and upper edge:

    x_min,y_min,x_max,y_min,x_max,y_max,x_min,y_max    four corners in turn
    x_min,y_min,,,x_max,y_max,,                        two that are across
"""

import dataclasses
import errno
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.boxes import BoxPolicy
from transforms.core.model import Block, Rejection, Skipped
from transforms.core.placing.vocabulary import sorted_names
from transforms.core.reasons import Fault, Reason
from transforms.core.schema import Feature, Kind
from transforms.errors import BeamTFRecordError
from transforms.formats.detection.automl_manifest import (
    DISCARD,
    Item,
    Manifest,
    load_manifest,
)
from transforms.formats.detection.boxed_rows import (
    BOXES,
    Annotated,
    BoxedReader,
    detection_features,
    image_rows,
    list_of,
    root_of,
    row_ranges,
    sample_of,
)
from transforms.formats.table import (
    Complaint,
    InputFile,
    Planned,
    RawRows,
    SourceFile,
    rejecter,
    rejection_of,
    unreadable,
)

_SPLIT = "split"
_IMAGE = "image_uri"
_LABEL = "label"

Numbers = npt.NDArray[np.int64]
# Boxes that cross an edge by less end at the edge: rounding to a few decimals does
# this to boxes that touch it.
_TOLERANCE = 1e-3
_NUMBERS = 8


@dataclasses.dataclass(frozen=True, slots=True)
class AutomlReader(BoxedReader):
    """Reads AutoML manifests.

    Attributes:
      boxed: whether the files are manifests of object detection.
      most: how many labels an image has at most.
      fewest: and at least.
      names: all labels, sorted; the last four are known once the files are planned.
    """

    title: ClassVar[str] = "AutoML manifest"
    image_base: ClassVar[Literal["file", "root"]] = "file"

    boxed: bool = False
    most: int = 0
    fewest: int = 0
    names: tuple[str, ...] = ()

    def plan(self, files: Sequence[InputFile]) -> Planned:
        """Samples all rows: files are parsed as a whole anyway."""
        loaded = [(file, load_manifest(file.path, file.stamp)) for file in files]
        reader = self._informed([manifest for _, manifest in loaded])
        pieces = [
            reader._rows(file, manifest.items, Block(file.origin, 0, 0))
            for file, manifest in loaded
        ]
        total = sum(len(piece.numbers) + len(piece.refused) for piece in pieces)
        sample = sample_of(pieces, total_rows=total, complete=True)
        label_map = dict(enumerate(reader.names, start=1)) if reader.boxed else {}
        return Planned(reader, sample, reader._features(sample.columns), label_map)

    def content_columns(
        self, names: Sequence[str], wanted: Sequence[str]
    ) -> tuple[str, ...]:
        """Returns the column of the image's path: the other columns are joined."""
        return ("image/source_id",) if self.boxed else (_IMAGE,)

    def blocks(
        self, file: InputFile, *, block_bytes: int, limit_rows: int | None
    ) -> Iterator[Block]:
        """Yields runs of images; `start` and `stop` count them."""
        manifest = load_manifest(file.path, file.stamp)
        for start, stop in row_ranges(len(manifest.items), limit_rows):
            first = manifest.items[start].row
            yield file.block(
                start,
                stop,
                rows=stop - start,
                before=file.size * first // manifest.rows,
                first_row=first,
                first_line=manifest.items[start].mentions[0].line,
            )

    def read(
        self, file: SourceFile, block: Block, columns: Sequence[str]
    ) -> Iterator[RawRows]:
        """Yields the images of a block; their numbers are those of their first rows.

        Raises:
          OSError: the file cannot be read, or has changed since it was listed.
          InputError: it holds what it did not when the job was planned.
        """
        items = load_manifest(file.path, block.stamp).items[block.start : block.stop]
        raw = self._rows(file, items, block)
        yield raw.only(columns)

    def _features(self, columns: Collection[str]) -> tuple[Feature, ...]:
        """Returns the image, and its label, labels or boxes."""
        if self.boxed:
            return detection_features(columns)
        image = Feature(_IMAGE, Kind.IMAGE)
        if not self.most:
            return (image,)
        shape = () if self._is_single else (None,)
        return image, Feature(_LABEL, Kind.LABEL, is_label=True, shape=shape)

    @property
    def _is_single(self) -> bool:
        return self.fewest == self.most == 1

    def _informed(self, manifests: Sequence[Manifest]) -> "AutomlReader":
        """Returns the reader that knows what all files hold."""
        boxed = any(manifest.has_boxes for manifest in manifests)
        usable = [item for each in manifests for item in _usable(each)]
        if boxed:
            # A class of a good box is one even where another box takes the image.
            clips = self.bad_box == BoxPolicy.CLIP
            policy = BoxPolicy.CLIP if clips else BoxPolicy.BOX
            found = _annotated(SourceFile("", ""), usable, ())
            rows = image_rows(Block("", 0, 0), found, policy)
            good = rows.columns["image/object/class/text"].flatten()
            names = sorted_names(set(good.to_pylist()))
            return dataclasses.replace(self, boxed=True, names=names)
        labels = [item.labels for item in usable]
        counts = [len(each) for each in labels]
        return dataclasses.replace(
            self,
            most=max(counts, default=0),
            fewest=min(counts, default=0),
            names=sorted_names({name for each in labels for name in each}),
        )

    def _rows(self, file: SourceFile, items: Sequence[Item], block: Block) -> RawRows:
        refused: list[Complaint] = [
            (item.row, *item.fault) for item in items if item.fault is not None
        ]
        discarded = [
            item for item in items if item.fault is None and item.use == DISCARD
        ]
        rest = [item for item in items if item.fault is None and item.use != DISCARD]
        skipped = {str(Skipped.DISCARDED): len(discarded)} if discarded else {}
        reject = rejecter(_rejection, file, {item.row: item for item in items})
        if not self.boxed:
            if any(not self.fewest <= len(i.labels) <= self.most for i in rest):
                raise _changed(file)
            columns = _columns(rest) | self._labels(rest)
            return RawRows(
                block, columns, _numbers(rest), refused, reject, skipped=skipped
            )
        found = _annotated(file, rest, self.names)
        masks = self.class_masks(root_of(file), [item.path for item in rest])
        found = dataclasses.replace(found, columns={**found.columns, **masks})
        raw = image_rows(block, found, self.bad_box)
        if 0 in raw.columns["image/object/class/label"].flatten().to_pylist():
            raise _changed(file)
        away = [item for item in items if item.fault or item.use == DISCARD]
        parts_away = sum(not m.is_blank for item in away for m in item.mentions)
        return dataclasses.replace(
            raw,
            refused=sorted([*refused, *raw.refused]),
            reject=reject,
            skipped=skipped,
            parts={BOXES: raw.parts[BOXES] + parts_away},
            parts_gone={BOXES: raw.parts_gone[BOXES] + parts_away},
        )

    def _labels(self, items: Sequence[Item]) -> dict[str, pa.Array]:
        if not self.most:
            return {}
        labels = [item.labels for item in items]
        flat = pa.array([name for each in labels for name in each], pa.string())
        if self._is_single:
            return {_LABEL: flat}
        return {_LABEL: list_of(flat, [len(each) for each in labels])}


def _changed(file: SourceFile) -> BeamTFRecordError:
    """Returns the error for a file that no longer holds what planning found."""
    what = "it has changed since the job was planned"
    return unreadable(file.path, OSError(errno.ESTALE, what))


def _usable(manifest: Manifest) -> list[Item]:
    return [i for i in manifest.items if i.fault is None and i.use != DISCARD]


def _numbers(items: Sequence[Item]) -> Numbers:
    return np.array([item.row for item in items], np.int64)


def _columns(items: Sequence[Item]) -> dict[str, pa.Array]:
    return {
        _SPLIT: pa.array([item.use for item in items], pa.string()),
        _IMAGE: pa.array([item.path for item in items], pa.string()),
    }


def _rejection(
    file: SourceFile, by_row: Mapping[int, Item], complaint: Complaint
) -> Rejection:
    """Returns the rejection of an image."""
    row, reason, message = complaint
    item = by_row[row]
    told = f"{item.path!r}: {message}" if item.path else message
    line = item.mentions[0].line
    return rejection_of(file.origin, (row, reason, told), item.raw, line=line)


def _annotated(
    file: SourceFile, items: Sequence[Item], classes: Sequence[str]
) -> Annotated:
    """Returns images and their boxes; a blank row has no box.

    Args:
      file: that names the images.
      items: the images.
      classes: their names by id, from 1.
    """
    found = [
        (position, mention)
        for position, item in enumerate(items)
        for mention in item.mentions
        if not mention.is_blank
    ]
    mentions = [mention for _, mention in found]
    parents = np.array([position for position, _ in found], np.int64)
    names = [mention.rest[0].strip() for mention in mentions]
    ids = {name: number for number, name in enumerate(classes, start=1)}
    columns = _columns(items)
    paths = columns.pop(_IMAGE)
    corners = [_corners(mention.rest[1:]) for mention in mentions]

    def explain(index: int, words: str) -> str:
        return f"row {mentions[index].row + 1}: box of {names[index]!r}: {words}"

    def reject_object(index: int, fault: Fault) -> Rejection:
        mention, item = mentions[index], items[parents[index]]
        raw = "\0".join(mention.rest).encode()
        complaint = item.row, fault.reason, f"{item.path!r}: {fault.message}"
        return rejection_of(file.origin, complaint, raw, line=mention.line, part=BOXES)

    said = {}
    for index, (_, wrong) in enumerate(corners):
        if wrong:
            shown = ",".join(mentions[index].rest[1:])[:120]
            said[index] = Fault(Reason.BAD_BOX, explain(index, f"[{shown}]: {wrong}"))
    return Annotated(
        columns={
            **columns,
            **dict.fromkeys(
                ("image/encoded", "image/filename", "image/source_id"), paths
            ),
        },
        numbers=_numbers(items),
        reject=rejecter(_rejection, file, {item.row: item for item in items}),
        parents=parents,
        boxes=np.array([box for box, _ in corners], np.float64).reshape(-1, 4),
        names=pa.array(names, pa.string()),
        labels=np.array([ids.get(name, 0) for name in names], np.int64),
        said=said,
        also={
            index: Fault(Reason.MISSING_VALUE, explain(index, "it has no label"))
            for index, name in enumerate(names)
            if not name
        },
        explain=explain,
        reject_object=reject_object,
        tolerance=_TOLERANCE,
    )


def _corners(texts: Sequence[str]) -> tuple[list[float], str]:
    """Returns two opposite corners, or NaNs and what is wrong in words."""
    texts = [text.strip() for text in texts]
    nothing = [math.nan] * 4
    if any(texts[_NUMBERS:]):
        return nothing, f"at most {_NUMBERS} coordinates are needed"
    texts = [*texts[:_NUMBERS], *[""] * (_NUMBERS - len(texts))]
    across = [*texts[0:2], *texts[4:6]]
    others = [*texts[2:4], *texts[6:8]]
    try:
        xmin, ymin, xmax, ymax = (float(text) for text in across)
        if any(others):
            right, top, left, bottom = (float(text) for text in others)
            turned = (right, top, left, bottom) != (xmax, ymin, xmin, ymax)
            if turned:
                return nothing, "its corners must be those of an upright rectangle"
    except ValueError:
        return nothing, "two corners, or four, of two numbers each are needed"
    return [xmin, ymin, xmax, ymax], ""
