"""Images as rows with their boxes: what COCO, Pascal VOC and AutoML share.

    a format's `judge` -> Judged, its m boxes -> place_boxes -> BoxedRows -> columns

A row is an image. Its boxes, their class names and ids are lists that run parallel. A
bad box is a rejection of its own, or takes its image with it: see `BoxPolicy`. Fields
are named as the TF Object Detection API does.

Source: `TfExampleFields` and research/object_detection/dataset_tools/
create_{coco,pascal}_tf_record.py of tensorflow/models.
"""

import abc
import dataclasses
import os
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.boxes import BoxPolicy, box_lists
from transforms.core.image.policy import ImagePolicy, header_size, too_many_bytes
from transforms.core.reasons import Fault, Reason
from transforms.core.schema import Feature, Kind
from transforms.errors import SpecError
from transforms.formats.table import RawRows, SourceFile, TableSample
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
    Feature("image/object/view", Kind.TEXT, shape=_LIST),
    Feature("image/caption", Kind.TEXT, shape=_LIST),
)


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Judged(abc.ABC):
    """m boxes of some images, checked. Values of bad ones mean nothing.

    Attributes:
      faults: uint8 array of m, 0 for good ones.
      relative: float32 array (m, 4); see `check_boxes`.
      names: class names, string array of m.
      labels: class ids, int64 array of m; 0 for names without one.
    """

    faults: npt.NDArray[np.uint8]
    relative: npt.NDArray[np.float32]
    names: pa.StringArray
    labels: Numbers

    @property
    def is_bad(self) -> Mask:
        """Which boxes cannot go into a row."""
        return np.asarray(self.faults != 0)

    @abc.abstractmethod
    def complaint(self, index: int) -> Fault:
        """Returns why the bad box at `index` is bad, with its values."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class BoxedRows:
    """Which of m boxes go into the rows of n images.

    Attributes:
      found: the boxes.
      refused: why an image is no row, by its position among the n.
      gone: n bools, true for refused images.
      keep: m bools, true for boxes that go into rows.
      each: for each image that is a row, how many boxes it has.
      bad: the bad boxes of images that are rows.
      boxes: how many of the m are boxes; formats may have other annotations.
      boxes_gone: how many of those belong to refused images.
    """

    found: Judged
    refused: Mapping[int, Fault]
    gone: Mask
    keep: Mask
    each: Numbers
    bad: Sequence[int]
    boxes: int
    boxes_gone: int

    def columns(self) -> dict[str, pa.Array]:
        """Returns the boxes of each row, the names and the ids of their classes."""
        names = self.found.names.filter(pa.array(self.keep))
        return {
            "image/object/bbox": box_lists(self.found.relative[self.keep], self.each),
            "image/object/class/text": list_of(names, self.each),
            "image/object/class/label": self.lists(pa.array(self.found.labels)),
        }

    def lists(self, values: pa.Array) -> pa.ListArray:
        """Returns what m boxes have, as a list for each row."""
        return list_of(values.filter(pa.array(self.keep)), self.each)


def place_boxes(
    found: Judged,
    parents: Numbers,
    refused: Mapping[int, Fault],
    *,
    images: int,
    policy: BoxPolicy,
    is_box: Mask | None = None,
) -> BoxedRows:
    """Returns which boxes go into rows.

    Args:
      found: m boxes.
      parents: the position of each one's image.
      refused: images that are no rows whatever their boxes are, by position.
      images: how many there are.
      policy: what becomes of an image with a bad box.
      is_box: m bools, false for annotations that are no boxes; None for all boxes.
    """
    bad = found.is_bad
    boxes = np.ones(len(parents), np.bool_) if is_box is None else is_box
    lost = dict(refused)
    if policy is BoxPolicy.IMAGE:
        for i in np.flatnonzero(bad).tolist():
            if (image := int(parents[i])) not in lost:
                lost[image] = found.complaint(i)
    gone = np.isin(np.arange(images), list(lost))
    has_row = ~gone[parents]
    keep = boxes & ~bad & has_row
    return BoxedRows(
        found,
        lost,
        gone,
        keep,
        each=np.bincount(parents[keep], minlength=images)[~gone],
        bad=np.flatnonzero(bad & has_row).tolist(),
        boxes=int(boxes.sum()),
        boxes_gone=int((boxes & ~has_row).sum()),
    )


def size_of_image(
    root: str, path: str, policy: ImagePolicy | None
) -> tuple[int, int] | Fault:
    """Returns width and height of an image whose size its annotation does not state.

    The shard's writer compares them with those of the file that it reads later.

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
    return tuple(f for f in _FEATURES if f.derived or f.name in columns)


def box_policy(text: str) -> BoxPolicy:
    """Returns the policy of a setting; raises SpecError."""
    try:
        return BoxPolicy(text)
    except ValueError as error:
        raise SpecError(
            f"bad_box must be one of {', '.join(BoxPolicy)}; found {text!r}."
        ) from error


def root_of(file: SourceFile) -> str:
    """Returns the root of a file's source."""
    return file.path[: len(file.path) - len(file.origin)]


def list_of(values: pa.Array, counts: npt.ArrayLike) -> pa.ListArray:
    """Returns values as lists of this many each; the counts sum to their number."""
    offsets = np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)
