"""Objects of an image, as layouts read them: checks of their boxes, what is stored.

    image/object/keypoint/x, /y         k an object: 0 to 1; 0 where it is not labelled
    image/object/keypoint/visibility    k an object: 0 not labelled, 1 hidden, 2 visible
    image/object/keypoint/num           how many are labelled
    image/object/keypoint/text          k names an object, where points have any

Source: `TfExampleFields`, data_decoders/tf_example_decoder.py and dataset_tools/
create_{coco,pascal}_tf_record.py of research/object_detection of tensorflow/models.

Boxes in pixels become relative ones:

    x, y, width, height      COCO          -+
    xmin, ymin, xmax, ymax   Pascal VOC    -+->  xmin, ymin, xmax, ymax, 0 to 1, float32

Coordinates are pixels from the left and the top edge of the image, which are 0; the
right edge of an image of 640 columns is 640. Boxes are checked before they are changed:

| fault        | what is true of it                                               |
| ------------ | ---------------------------------------------------------------- |
| not_numbers  | it has a null, a NaN or an infinity                              |
| reversed     | its width or height is negative: xmax < xmin, or ymax < ymin     |
| empty        | its width or height is zero, or too small for float32            |
| normalised   | it is in the first pixel of a larger image: probably fractions   |
| outside      | it is outside the image, or crosses its edge beyond tolerance    |

A box that crosses an edge by at most the tolerance, as after rounding, is cut at the
edge.
"""

import functools
import json
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from transforms.core.image.masks import Mask as Pixels
from transforms.core.image.policy import ImagePolicy, header_size, too_many_bytes
from transforms.core.reasons import Fault, Reason, Rejection
from transforms.core.schema import Feature, Kind
from transforms.errors import InputError
from transforms.formats.pairs import mask_features
from transforms.formats.raw_rows import rejection_of
from transforms.storage.files import storage
from transforms.storage.paths import spellings
from transforms.storage.protocol import TooLargeError
from transforms.storage.visibility import unseen

# The name of these parts of rows in accounts and rejections.
BOXES = "boxes"
OBJECT_MASK = "image/object/mask"
ENCODED, OBJECT, POINT = "image/encoded", "image/object/", "image/object/keypoint/"
SIDES = ("width", "height")
NO_BOX = (np.nan,) * 4
# Stands for a size that is not known in a sample: any box fits.
ANY_SIZE = (2**31 - 1, 2**31 - 1)
MOST_POINTS = 1000
"""Key points of an object: people have 17, faces and hands some hundreds."""
# A list of ten million images takes some three times as much in memory.
_MOST_LIST_BYTES = 128 << 20
# Tools round outwards, and differ in whether the last pixel belongs to a box.
TOLERANCE_PIXELS = 1.0


def _lists(kind: Kind, start: str, *ends: str) -> list[Feature]:
    """Returns features for lists of any length, named `start` and each of `ends`."""
    return [Feature(f"{start}{end}", kind, shape=(None,)) for end in ends]


_of_image = functools.partial(Feature, derived_from=ENCODED)
_FEATURES = (
    Feature(ENCODED, Kind.IMAGE),
    Feature("image/filename", Kind.TEXT),
    Feature("image/source_id", Kind.TEXT),
    _of_image("image/height", Kind.INT64, derived="height"),
    _of_image("image/width", Kind.INT64, derived="width"),
    _of_image("image/format", Kind.TEXT, derived="format"),
    _of_image("image/key/sha256", Kind.TEXT, derived="sha256"),
    # Boxes were made relative with these: they must be the image's own.
    *(
        _of_image(f"image/stated_{side}", Kind.INT64, internal=True, states=side)
        for side in reversed(SIDES)
    ),
    Feature(f"{OBJECT}bbox", Kind.BOX),
    *_lists(Kind.TEXT, OBJECT, "class/text"),
    *_lists(Kind.INT64, OBJECT, "class/label", "is_crowd"),
    *_lists(Kind.FLOAT, OBJECT, "area"),
    *_lists(Kind.INT64, OBJECT, "difficult", "truncated", "occluded", "group_of"),
    *_lists(Kind.INT64, OBJECT, "depiction"),
    *_lists(Kind.TEXT, OBJECT, "view"),
    _of_image(OBJECT_MASK, Kind.IMAGE, shape=(None,), inline=True, mask=True),
    *_lists(Kind.FLOAT, POINT, "x", "y"),
    *_lists(Kind.INT64, POINT, "visibility", "num"),
    *_lists(Kind.TEXT, POINT, "text"),
    *mask_features(ENCODED),
)


def detection_features(columns: Collection[str]) -> tuple[Feature, ...]:
    """Returns the features of these columns, and those derived from the image."""
    return tuple(
        f
        for f in _FEATURES
        if f.name in columns or (f.derived and f.derived_from in columns)
    )


class BoxedObject(NamedTuple):
    """One object of an image, as a layout reads it.

    Attributes:
      name: of its class; empty for none.
      box: four numbers in the unit and the form of the layout.
      place: what messages call it, as "line 3".
      raw: what the source has of it: bytes, or values that are made JSON.
      row: 0-based number of its row; None where a file has one image.
      line: 1-based line on which it starts; None where lines say nothing.
      fault: why it is bad whatever its box is.
      values: of lists, by the end of the feature's name, as `difficult`.
      points: x, y and visibility of key points; None for none.
      point_names: of its key points.
      draw: gives its mask in an image of a height and a width, by them and by its box
        in pixels, or raises FaultError; None for the box, filled.
    """

    name: str
    box: Sequence[float]
    place: str
    raw: Any
    row: int | None = None
    line: int | None = None
    fault: Fault | None = None
    values: Mapping[str, Any] = {}
    points: Sequence[float] | None = None
    point_names: Sequence[str] = ()
    draw: Callable[[int, int, Sequence[float]], Pixels] | None = None


class ImageObjects(NamedTuple):
    """The objects of one image, and what its annotation says of it.

    Attributes:
      objects: in the order of the annotation.
      width, height: in pixels as stated; None if they are not.
      path: relative to the root or absolute; empty for that of its row.
      name: empty for the base name of the path.
      source_id: empty for the name.
    """

    objects: Sequence[BoxedObject]
    width: float | None = None
    height: float | None = None
    path: str = ""
    name: str = ""
    source_id: str = ""


# Of an image: its objects, or why it is rejected; what the source has, as of an object.
Found = tuple[ImageObjects | Fault, Any]


def number_in(text: str) -> float | None:
    """Returns the number that a text states; None for other texts."""
    try:
        # float() reads 1_0 as ten.
        return None if "_" in text else float(text)
    except ValueError:
        return None


def lines_in(path: str) -> list[str]:
    """Returns the lines of any layout's list of images, but blank ones.

    Raises:
      InputError: it is too large, or no UTF-8.
      OSError: it cannot be read.
    """
    try:
        data, _ = storage(path).read_stamped(_MOST_LIST_BYTES)
        text = data.decode("utf-8-sig")
    except TooLargeError as large:
        raise InputError(
            f"Lists must have at most {_MOST_LIST_BYTES:,} bytes; {path!r} has "
            f"{large.size:,}. Correct it."
        ) from large
    except UnicodeDecodeError as error:
        raise InputError(f"Lists must be UTF-8; {path!r} is not.") from error
    return [*filter(None, map(str.strip, text.splitlines()))]


def about(item: BoxedObject, reason: Reason, words: str) -> Fault:
    """Returns what is wrong with an object, and which one it is."""
    return Fault(reason, f"{item.place}: {words}")


def rejection(
    row: Mapping[str, Any],
    fault: Fault,
    raw: Any,
    number: int | None,
    line: int | None,
    *,
    part: str = "",
) -> Rejection:
    """Returns the rejection of one object that a layout read, or of its whole image.

    Args:
      row: of the image in the listing.
      fault: what is wrong.
      raw: what the source has of it; see `BoxedObject`.
      number, line: where it is in the file that the row names.
      part: see `Rejection`.
    """
    if raw is not None and not isinstance(raw, bytes):
        raw = json.dumps(raw, ensure_ascii=False).encode(errors="replace")
    named = row["stated"] or (None if part else row.get("name"))
    message = f"{named!r}: {fault.message}" if named else fault.message
    return rejection_of(
        row["annotation"] or row["path"],
        (number, fault.reason, message),
        raw,
        line=line,
        part=part,
    )


def size_of_image(root: str, path: str, policy: ImagePolicy) -> tuple[int, int] | Fault:
    """Returns width and height of an image whose size its annotation does not state.

    Args:
      root: the source's.
      path: of the image, relative to it or absolute.
      policy: the job's.

    Raises:
      WorkerError: the path is of another machine's disk.
    """
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
        size = header_size(data, policy)
        if isinstance(size, Fault):
            return Fault(size.reason, f"image {path!r}: {size.message}")
        return size
    if never_seen := unseen(os.path.join(root, path)):
        raise never_seen
    return Fault(Reason.UNREADABLE, f"image {path!r}: there is no such file")


# What must hold of a box, by its fault; see the module's docstring.
RULES = (
    "",
    "four finite numbers are needed",
    "its width and height must not be negative",
    "it has no area",
    "it lies within one pixel; fractions of the image, perhaps, where pixels are "
    "needed",
    "it must lie inside the image",
)
NOT_NUMBERS, REVERSED, EMPTY, NORMALISED, OUTSIDE = range(1, len(RULES))


def check_boxes(
    boxes: npt.ArrayLike,
    sizes: npt.ArrayLike,
    *,
    sized: bool = False,
    tolerance: float = TOLERANCE_PIXELS,
    clip: bool = False,
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int8]]:
    """Returns boxes relative to their images, and the faults of bad ones.

    The first are n times xmin, ymin, xmax, ymax from 0 to 1, minimum below maximum;
    zeros where the box is bad. The faults are indices of `RULES`, 0 of good boxes. For
    boxes that are relative already, give sizes of 1 and a tolerance in that unit.

    Args:
      boxes: n x 4 numbers in pixels; NaN for missing ones.
      sizes: n x 2, width and height in pixels of each box's image; both above 0.
      sized: whether boxes are x, y, width, height; not xmin, ymin, xmax, ymax.
      tolerance: pixels by which a box may cross an edge.
      clip: cut boxes at the edges, however far they cross them; boxes of which nothing
        remains are still `OUTSIDE`.
    """
    given = np.asarray(boxes, np.float64).reshape(-1, 4)
    extents = np.asarray(sizes, np.float64).reshape(-1, 2)
    corners = given.copy()
    with np.errstate(over="ignore", invalid="ignore"):
        if sized:
            corners[:, 2:] += corners[:, :2]
        low, high = corners[:, :2], corners[:, 2:]
        spans = given[:, 2:] if sized else high - low
        cut = np.clip(corners.reshape(-1, 2, 2), 0.0, extents[:, None, :])
        relative = (cut / extents[:, None, :]).reshape(-1, 4).astype(np.float32)
        # In ascending precedence: each rule overwrites the faults of those above it.
        faults = np.zeros(len(given), np.int8)
        faults[~(relative[:, 2:] > relative[:, :2]).all(1)] = EMPTY
        reach = np.inf if clip else tolerance
        crosses = (low < -reach) | (high > extents + reach)
        faults[(crosses | (high <= 0.0) | (low >= extents)).any(1)] = OUTSIDE
        tiny = (corners <= 1.0) & (corners >= 0.0)
        faults[tiny.all(1) & (extents > 1.0).all(1)] = NORMALISED
        faults[(spans == 0.0).any(1)] = EMPTY
        faults[(spans < 0.0).any(1)] = REVERSED
    faults[~np.isfinite(corners).all(1)] = NOT_NUMBERS
    relative[faults != 0] = 0.0
    return relative, faults
