"""Images as rows with their boxes: the one reader of COCO, Pascal VOC and AutoML.

    a layout -> Annotated, n images and m objects -> image_rows -> RawRows

A layout knows syntax alone. A row is an image. Its boxes, their class names and ids are
lists that run parallel. A bad box is a rejection of its own, or takes its image with
it: see `BoxPolicy`. Fields are named as the TF Object Detection API does.

Source: `TfExampleFields` and research/object_detection/dataset_tools/
create_{coco,pascal}_tf_record.py of tensorflow/models.
"""

import dataclasses
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import numpy_mask
from transforms.core.boxes import (
    TOLERANCE_PIXELS,
    BoxFault,
    BoxForm,
    BoxPolicy,
    box_lists,
    check_boxes,
    describe,
)
from transforms.core.image.masks import Mask as Pixels
from transforms.core.image.png_encode import encode_class_png
from transforms.core.image.policy import ImagePolicy, header_size, too_many_bytes
from transforms.core.image.resize import MAX_PIXELS
from transforms.core.model import Block, Rejection
from transforms.core.reasons import Fault, FaultError, Reason
from transforms.core.schema import Feature, Kind
from transforms.errors import SpecError
from transforms.formats.detection.key_points import POINT_FEATURES, KeyPoints
from transforms.formats.pairs import MASK, MASK_WORDS, mask_features, masks_in
from transforms.formats.table import (
    Complaint,
    RawRows,
    SourceFile,
    TableReader,
    TableSample,
)
from transforms.storage.entries import TooLargeError
from transforms.storage.files import storage
from transforms.storage.paths import spellings
from transforms.storage.visibility import unseen

# Rows are small, and the images themselves are read elsewhere: a block of a few
# thousand is enough work to be worth sending to a worker.
_BLOCK_ROWS = 4096

# Stands for a size that nothing states, in a sample: any box fits.
_ANY_SIZE = (2**31 - 1, 2**31 - 1)

Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]
# The name of these parts of rows in accounts and rejections.
BOXES = "boxes"
CAPTION = "image/caption"
OBJECT_MASK = "image/object/mask"

_ENCODED = "image/encoded"
_LIST = (None,)
_FEATURES = (
    Feature(_ENCODED, Kind.IMAGE),
    Feature("image/filename", Kind.TEXT),
    Feature("image/source_id", Kind.TEXT),
    Feature("image/height", Kind.INT64, derived="height", derived_from=_ENCODED),
    Feature("image/width", Kind.INT64, derived="width", derived_from=_ENCODED),
    Feature("image/format", Kind.TEXT, derived="format", derived_from=_ENCODED),
    Feature("image/key/sha256", Kind.TEXT, derived="sha256", derived_from=_ENCODED),
    # Boxes were made relative with these: they must be the image's own.
    Feature(
        "image/stated_height",
        Kind.INT64,
        internal=True,
        states="height",
        derived_from=_ENCODED,
    ),
    Feature(
        "image/stated_width",
        Kind.INT64,
        internal=True,
        states="width",
        derived_from=_ENCODED,
    ),
    Feature("image/object/bbox", Kind.BOX),
    Feature("image/object/class/text", Kind.TEXT, shape=_LIST),
    Feature("image/object/class/label", Kind.INT64, shape=_LIST),
    Feature("image/object/is_crowd", Kind.INT64, shape=_LIST),
    Feature("image/object/area", Kind.FLOAT, shape=_LIST),
    Feature("image/object/difficult", Kind.INT64, shape=_LIST),
    Feature("image/object/truncated", Kind.INT64, shape=_LIST),
    Feature("image/object/occluded", Kind.INT64, shape=_LIST),
    Feature("image/object/group_of", Kind.INT64, shape=_LIST),
    Feature("image/object/depiction", Kind.INT64, shape=_LIST),
    Feature("image/object/view", Kind.TEXT, shape=_LIST),
    Feature(
        OBJECT_MASK,
        Kind.IMAGE,
        shape=_LIST,
        inline=True,
        mask=True,
        derived_from=_ENCODED,
    ),
    *POINT_FEATURES,
    Feature(CAPTION, Kind.TEXT, shape=_LIST),
    *mask_features(_ENCODED),
)


@dataclasses.dataclass(frozen=True, slots=True)
class BoxedReader(TableReader):
    """Reads annotated images.

    Attributes:
      bad_box: what becomes of a bad box; see `BoxPolicy`.
      images_root: folder of the images, relative to the source's root or absolute;
        empty to look where they usually are.
      masks: "all" stores a mask of each object, and a folder the masks of classes in
        it; see `--masks`.
      image_policy: what the job does to images: turned ones have another size.
    """

    image_base: ClassVar[Literal["file", "root"]] = "root"

    bad_box: str = "box"
    images_root: str = ""
    masks: str = "auto"
    image_policy: ImagePolicy = dataclasses.field(default_factory=ImagePolicy)

    def __post_init__(self) -> None:
        if self.bad_box not in set(BoxPolicy):
            raise SpecError(
                f"bad_box must be one of {', '.join(BoxPolicy)}; found "
                f"{self.bad_box!r}."
            )

    def class_masks(self, root: str, paths: Sequence[str]) -> dict[str, pa.Array]:
        """Returns the column of masks in the folder of `masks`; none without one.

        Args:
          root: the source's.
          paths: of the images, relative to it or absolute.
        """
        if self.masks in MASK_WORDS:
            return {}
        return class_mask_column(os.path.join(root, self.masks), paths)


def class_mask_column(folder: str, paths: Sequence[str]) -> dict[str, pa.Array]:
    """Returns the masks of images in a folder, null for none, as a column by name."""
    masks = masks_in(folder)
    found = map(masks.of_any, paths)
    named = [mask and os.path.join(folder, mask) for mask in found]
    return {MASK: pa.array(named, pa.string())}


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Annotated:
    """n images, and the m objects in them, as a layout reads them.

    Attributes:
      columns: of the images, n values each.
      numbers: int64 array of n: what complaints call each image.
      reject: makes the rejections of images.
      parents: int64 array of m: the position of each object's image.
      boxes: float64 array (m, 4).
      form: the meaning of the four numbers.
      names: class names, string array of m.
      labels: class ids, int64 array of m; 0 for names without one.
      said: why objects are bad whatever their boxes are, by position.
      also: why objects are bad whose boxes are good, by position.
      explain: makes the message of a bad box, of its position and what is wrong.
      reject_object: makes the rejection of a bad object, of its position.
      sides: width and height of each image as stated, float64 arrays of n, null where
        none is; None for boxes in fractions of the image.
      size_of: gives the size of the image at a position, or why there is none; asked
        where no size is stated, and where masks are drawn of boxes in fractions.
      refused: why images are no rows whatever their objects are, by position.
      lists: by feature, what objects have, m values each.
      key_points: of the objects; None where there are none.
      is_box: m bools, false for objects that are no boxes; None for all boxes.
      captions: texts of the images, string array of m, null for none; None for all.
      first_pixel: the number of the first pixel of a row or column of boxes.
      tolerance: by how much boxes may cross an edge.
      mask_of: draws the mask of an object in an image of a height and a width, given
        its box in pixels; raises FaultError. None to draw none.
      most_pixels: of an image whose masks are drawn.
    """

    columns: Mapping[str, pa.Array]
    numbers: Numbers
    reject: Callable[[Sequence[Complaint]], list[Rejection]]
    parents: Numbers
    boxes: npt.NDArray[np.float64]
    form: BoxForm = BoxForm.XYXY
    names: pa.StringArray
    labels: Numbers
    said: Mapping[int, Fault] = dataclasses.field(default_factory=dict)
    also: Mapping[int, Fault] = dataclasses.field(default_factory=dict)
    explain: Callable[[int, str], str]
    reject_object: Callable[[int, Fault], Rejection]
    sides: tuple[pa.Array, pa.Array] | None = None
    size_of: Callable[[int], tuple[int, int] | Fault] = lambda _: _ANY_SIZE
    refused: Mapping[int, Fault] = dataclasses.field(default_factory=dict)
    lists: Mapping[str, pa.Array] = dataclasses.field(default_factory=dict)
    key_points: KeyPoints | None = None
    is_box: Mask | None = None
    captions: pa.StringArray | None = None
    first_pixel: int = 0
    tolerance: float = TOLERANCE_PIXELS
    mask_of: Callable[[int, int, int, Sequence[float]], Pixels] | None = None
    most_pixels: int = MAX_PIXELS


def image_rows(block: Block, found: Annotated, bad_box: str) -> RawRows:
    """Returns images as rows with those of their boxes that are good.

    Args:
      block: what the rows are of.
      found: the images and their objects.
      bad_box: what becomes of a bad box; see `BoxPolicy`.
    """
    policy = BoxPolicy(bad_box)
    images, objects = len(found.numbers), len(found.parents)
    is_box = np.ones(objects, np.bool_) if found.is_box is None else found.is_box
    columns = dict(found.columns)
    sizes = np.ones((images, 2))
    lost = dict(found.refused)
    if found.sides is not None:
        stated, sizes, unsized = _sizes(found, is_box)
        columns |= stated
        lost = unsized | lost
    checked = check_boxes(
        found.boxes - np.array([found.first_pixel] * 2 + [0, 0]),
        sizes[found.parents],
        form=found.form,
        tolerance=found.tolerance,
        clip=policy is BoxPolicy.CLIP,
    )
    also = dict(found.also)
    if found.key_points is not None:
        wrong = found.key_points.faults(
            sizes[found.parents], found.tolerance, clip=policy is BoxPolicy.CLIP
        )
        also |= {
            i: Fault(Reason.BAD_BOX, found.explain(i, words))
            for i, words in wrong.items()
        }
    bad = checked.faults != BoxFault.NONE
    bad[[*found.said, *also]] = True
    bad &= is_box
    drawn: dict[int, bytes | Fault] = {}
    if found.mask_of is not None:
        gone = np.isin(found.parents, list(lost))
        drawable = np.flatnonzero(is_box & ~bad & ~gone).tolist()
        drawn = {i: _drawn(found, i, sizes, checked.relative[i]) for i in drawable}
        bad[[i for i, png in drawn.items() if isinstance(png, Fault)]] = True

    def fault(index: int) -> Fault:
        if isinstance(mask := drawn.get(index), Fault):
            return Fault(mask.reason, found.explain(index, mask.message))
        box_fault = BoxFault(checked.faults[index])
        if index in found.said or box_fault is BoxFault.NONE:
            return found.said.get(index) or also[index]
        size = None if found.sides is None else sizes[found.parents[index]]
        words = describe(box_fault, found.boxes[index], size, found.form)
        return Fault(Reason.BAD_BOX, found.explain(index, words))

    if policy is BoxPolicy.IMAGE:
        for index in np.flatnonzero(bad).tolist():
            if (image := int(found.parents[index])) not in lost:
                lost[image] = fault(index)
    gone = np.isin(np.arange(images), list(lost))
    has_row = ~gone[found.parents]
    keep = is_box & ~bad & has_row
    counts = np.bincount(found.parents[keep], minlength=images)[~gone]

    def lists(values: pa.Array) -> pa.ListArray:
        return list_of(values.filter(pa.array(keep)), counts)

    columns = {name: values.filter(pa.array(~gone)) for name, values in columns.items()}
    columns |= {
        "image/object/bbox": box_lists(checked.relative[keep], counts),
        "image/object/class/text": lists(found.names),
        "image/object/class/label": lists(pa.array(found.labels)),
        **{name: lists(values) for name, values in found.lists.items()},
    }
    if found.mask_of is not None:
        masks = [drawn[i] for i in np.flatnonzero(keep).tolist()]
        columns[OBJECT_MASK] = list_of(pa.array(masks, pa.large_binary()), counts)
    if found.key_points is not None:
        points = found.key_points.lists(sizes[found.parents], found.tolerance, keep)
        columns |= {
            name: list_of(values, counts * each)
            for name, (values, each) in points.items()
        }
    if found.captions is not None:
        told = numpy_mask(found.captions.is_valid()) & has_row
        texts_each = np.bincount(found.parents[told], minlength=images)[~gone]
        columns[CAPTION] = list_of(found.captions.filter(pa.array(told)), texts_each)
    return RawRows(
        block,
        columns,
        found.numbers[~gone],
        refused=[(int(found.numbers[i]), *why) for i, why in lost.items()],
        reject=found.reject,
        parts={BOXES: int(is_box.sum())},
        parts_gone={BOXES: int((is_box & ~has_row).sum())},
        part_rejections=[
            found.reject_object(i, fault(i))
            for i in np.flatnonzero(bad & has_row).tolist()
        ],
        parts_each={BOXES: counts},
    )


def _drawn(
    found: Annotated,
    index: int,
    sizes: npt.NDArray[np.float64],
    box: npt.NDArray[np.float64],
) -> bytes | Fault:
    """Returns the mask of an object as PNG; nothing where a sample knows no size."""
    parent = int(found.parents[index])
    size: tuple[int, int] | Fault = (int(sizes[parent][0]), int(sizes[parent][1]))
    if found.sides is None:
        size = found.size_of(parent)
    if isinstance(size, Fault):
        return size
    if size == _ANY_SIZE:
        return b""
    width, height = size
    if width * height > found.most_pixels:
        words = f"masks of {width} x {height} pixels: more than {found.most_pixels:,}"
        return Fault(Reason.TOO_MANY_PIXELS, words)
    assert found.mask_of is not None
    corners = (box * (width, height, width, height)).tolist()
    try:
        return encode_class_png(found.mask_of(index, height, width, corners))
    except FaultError as error:
        return error.fault


def _sizes(
    found: Annotated, is_box: Mask
) -> tuple[dict[str, pa.Array], npt.NDArray[np.float64], dict[int, Fault]]:
    """Returns the stated sizes as columns, those to divide by, and why some lack one.

    A size that is not stated, or 0, is that of the image itself; only images with
    objects need one. The shard's writer compares it with that of the file.
    """
    assert found.sides is not None
    sides = [side.to_pylist() for side in found.sides]
    counts = np.bincount(found.parents, minlength=len(found.numbers))
    lost: dict[int, Fault] = {}
    unstated = [pc.fill_null(pc.equal(side, 0), True) for side in found.sides]
    for i in np.flatnonzero(numpy_mask(pc.or_(*unstated)) & (counts > 0)).tolist():
        if i in found.refused:
            continue
        size = found.size_of(i)
        if isinstance(size, Fault):
            lost[i] = size
        else:
            sides[0][i], sides[1][i] = size
    width, height = (_whole_pixels(pa.array(side, pa.float64())) for side in sides)
    lacks = numpy_mask(pc.or_(width.is_null(), height.is_null()))
    boxed = np.bincount(found.parents[is_box], minlength=len(found.numbers)) > 0
    for i in np.flatnonzero(lacks & boxed).tolist():
        message = (
            f"its boxes in pixels need the image's size, two positive whole numbers; "
            f"stated are height {sides[1][i]}, width {sides[0][i]}"
        )
        lost.setdefault(i, Fault(Reason.OUT_OF_RANGE, message))
    columns = {"image/stated_height": height, "image/stated_width": width}
    sizes = [np.asarray(pc.fill_null(side, 1), np.float64) for side in (width, height)]
    return columns, np.stack(sizes, axis=1), lost


def _whole_pixels(sizes: pa.Array) -> pa.Array:
    """Returns pixels as int64; null where they are no positive whole number."""
    whole = pc.and_(pc.equal(sizes, pc.floor(sizes)), pc.greater(sizes, 0))
    whole = pc.and_(whole, pc.less(sizes, 2.0**31))
    return pc.if_else(whole, sizes, pa.scalar(None, pa.float64())).cast(pa.int64())


def size_of_image(
    root: str, path: str, policy: ImagePolicy | None
) -> tuple[int, int] | Fault:
    """Returns width and height of an image whose size its annotation does not state.

    Args:
      root: the source's.
      path: of the image, relative to it or absolute.
      policy: the job's; None for a sample, which looks into no image.

    Raises:
      WorkerError: the path is of another machine's disk.
    """
    if policy is None:
        return _ANY_SIZE
    for spelling in spellings(path):
        try:
            full = os.path.join(root, spelling)
            data, _ = storage(full).read_stamped(policy.max_bytes)
        except FileNotFoundError:
            continue
        except TooLargeError as large:
            return too_many_bytes(large.size, policy.max_bytes)
        except OSError as error:
            return Fault(Reason.UNREADABLE, f"image {path!r}: {error.strerror}")
        found = header_size(data, policy)
        if isinstance(found, Fault):
            return Fault(found.reason, f"image {path!r}: {found.message}")
        return found
    if never_seen := unseen(os.path.join(root, path)):
        raise never_seen
    return Fault(Reason.UNREADABLE, f"image {path!r}: there is no such file")


def even_rows(count: int, wanted: int) -> Numbers:
    """Returns at most `wanted` of `count` rows, spread evenly, first and last too."""
    spread = np.linspace(0, count - 1, min(wanted, count), dtype=np.int64)
    return np.unique(spread)


def row_ranges(count: int, limit_rows: int | None) -> Iterator[tuple[int, int]]:
    """Yields the first and the end of each block of rows, up to a limit."""
    if limit_rows is not None:
        count = min(count, limit_rows)
    for start in range(0, count, _BLOCK_ROWS):
        yield start, min(start + _BLOCK_ROWS, count)


def sample_of(
    pieces: Sequence[RawRows], *, total_rows: int, complete: bool
) -> TableSample:
    """Returns pieces of rows, all with the same columns, as a sample."""
    return TableSample(
        {
            name: pa.chunked_array([piece.columns[name] for piece in pieces])
            for name in pieces[0].columns
        },
        sum(len(piece.numbers) for piece in pieces),
        unread=sum(len(piece.refused) for piece in pieces),
        total_rows=total_rows,
        complete=complete,
    )


def detection_features(columns: Collection[str]) -> tuple[Feature, ...]:
    """Returns the features of these columns, and those derived from the image."""
    return tuple(
        f
        for f in _FEATURES
        if f.name in columns or (f.derived and f.derived_from in columns)
    )


def root_of(file: SourceFile) -> str:
    """Returns the root of a file's source."""
    return file.path[: len(file.path) - len(file.origin)]


def list_of(values: pa.Array, counts: npt.ArrayLike) -> pa.ListArray:
    """Returns values as lists of this many each; the counts sum to their number."""
    offsets = np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)
