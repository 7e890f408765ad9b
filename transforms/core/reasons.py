"""Rejects: the reasons why items are rejected or skipped, and what is said of each.

The reasons are two closed lists. The text below each member is its entry in the
documentation.
"""

import dataclasses
import enum
import json
from typing import Any, NamedTuple

from transforms.errors import bounded


class Reason(enum.StrEnum):
    """Why an item was rejected. The list is closed: reports group by it."""

    FIELD_COUNT = "field_count"
    """The row of a CSV has more or fewer cells than the header."""
    NOT_AN_INTEGER = "not_an_integer"
    """The feature is `int64`, and the value is no whole number."""
    NOT_A_NUMBER = "not_a_number"
    """The feature is a number, and the value is not."""
    NOT_A_BOOL = "not_a_bool"
    """The feature is `bool`, and the value is neither true nor false."""
    OUT_OF_RANGE = "out_of_range"
    """The value is a number or a time that the feature's type cannot hold."""
    NOT_FLOAT32 = "not_float32"
    """float32 would round a whole number; see `inexact_integers`."""
    INVALID_ENCODING = "invalid_encoding"
    """The bytes are not text in the source's encoding."""
    NOT_A_TIMESTAMP = "not_a_timestamp"
    """The feature is `timestamp`, and the value is no date or time in ISO 8601."""
    WRONG_TYPE = "wrong_type"
    """The value has another type than the feature, as a list where one text belongs."""
    WRONG_SHAPE = "wrong_shape"
    """The value has another number of elements than the feature's shape."""
    MISSING_VALUE = "missing_value"
    """There is no value, and the feature needs one (`missing: reject`)."""
    UNKNOWN_LABEL = "unknown_label"
    """The class name is not in the vocabulary that was given."""
    MALFORMED = "malformed"
    """The item does not follow the syntax of its format."""
    BAD_SPLIT = "bad_split"
    """The item has no split, or one whose name is not allowed."""
    IMAGE_WITHOUT_LABEL = "image_without_label"
    """The table of `--labels` has no row for this image."""
    LABEL_WITHOUT_IMAGE = "label_without_image"
    """There is no image for this row of the table of `--labels`."""
    BAD_BOX = "bad_box"
    """A bounding box is empty, or outside of its image."""
    BAD_MASK = "bad_mask"
    """The outline of an object is no polygon, or its runs do not fill the image."""
    SIZE_MISMATCH = "size_mismatch"
    """The image has another height or width than the source states."""
    UNREADABLE = "unreadable"
    """The file is not there, or could not be opened."""
    EMPTY_FILE = "empty_file"
    """The file has no bytes."""
    NOT_AN_IMAGE = "not_an_image"
    """The bytes are those of no image format."""
    UNSUPPORTED_FORMAT = "unsupported_format"
    """The image is of a format or a kind that cannot be read here."""
    DAMAGED_IMAGE = "damaged_image"
    """The image is cut, or its structure or its checksums are wrong."""
    TOO_MANY_PIXELS = "too_many_pixels"
    """The image has more pixels than `--max-pixels`."""
    TOO_MANY_BYTES = "too_many_bytes"
    """The image file is larger than `--max-image-bytes`."""
    ANIMATED_IMAGE = "animated_image"
    """The image has several frames, and `--animations` is `reject`."""
    DECODER_CRASH = "decoder_crash"
    """The image's decoder crashed, or needed too much memory."""
    TOO_SLOW = "too_slow"
    """Decoding the image took more than 120 seconds of processor time."""
    CHANGED_DURING_RUN = "changed_during_run"
    """The file changed after it was listed."""
    UNSAFE_PATH = "unsafe_path"
    """The name of an archive's member leads out of the archive."""
    NOT_A_FILE = "not_a_regular_file"
    """The archive's member is a link, a device or a pipe."""
    ENCRYPTED = "encrypted"
    """The archive's member is encrypted."""
    UNSUPPORTED_METHOD = "unsupported_method"
    """The archive's member is packed by a method that cannot be read here."""
    TOO_LARGE = "member_too_large"
    """The archive's member unpacks to far more bytes than it should: a bomb."""
    NESTED_ARCHIVE = "nested_archive"
    """The archive's member is an archive itself."""
    DAMAGED_MEMBER = "damaged_member"
    """The archive's member does not hold what the archive states of it."""
    DUPLICATE_NAME = "duplicate_name"
    """The name was there before, in the archive or among its samples."""
    BELOW_MIN = "below_min"
    """The value is less than the `min` of its feature."""
    ABOVE_MAX = "above_max"
    """The value is more than the `max` of its feature."""
    NOT_ALLOWED = "not_allowed"
    """The value is none of those that are `allowed` for its feature."""
    NO_MATCH = "no_match"
    """The text does not match the `pattern` of its feature."""


class Skipped(enum.StrEnum):
    """Why an item of the source is left out on purpose. The list is closed."""

    HIDDEN = "hidden"
    """The name begins with a dot, or is one that operating systems leave behind."""
    OTHER_SUFFIX = "other_suffix"
    """The file's suffix is not one of the source's format."""
    NOT_INCLUDED = "not_included"
    """No pattern of `--include` fits the path."""
    EXCLUDED = "excluded"
    """A pattern of `--exclude` fits the path."""
    BEYOND_LIMIT = "beyond_limit"
    """The item comes after the first `--limit` items."""
    DISCARDED = "discarded"
    """The source says that the item is not to be used (`DISCARD`)."""
    NOT_SELECTED = "not_selected"
    """The source's own lists leave the item out, as ImageSets of VOC do."""
    REPEATED_HEADER = "repeated_header"
    """The row of a CSV is its header again, as in files that were joined."""
    FILTERED = "filtered"
    """The condition of `--where` does not hold for the row, or is unknown."""
    END_MARK = "end_mark"
    """The row holds nothing but the old end-of-file mark, Ctrl-Z."""


class Fault(NamedTuple):
    """Why a row, an image or a part of one is refused.

        >>> Fault(Reason.MALFORMED, "the member 'id' has no value").reason.value
        'malformed'

    Attributes:
      reason: from the closed list, for reports.
      message: a sentence of at most 1 KiB.
    """

    reason: Reason
    message: str


class FaultError(Exception):
    """A row is refused; its reader catches this and keeps the fault."""

    def __init__(self, reason: Reason, message: str = "") -> None:
        super().__init__(message)
        self.fault = Fault(reason, message)


@dataclasses.dataclass(frozen=True, slots=True)
class Rejection:
    """One item that did not become a record, and why.

        >>> message = "column 'id': 'x' is not an integer"
        >>> reason = Reason.NOT_AN_INTEGER
        >>> one = Rejection("a.csv", 3, 4, "read", reason, message, sha256=None)
        >>> one.in_words()
        "a.csv, row 3, line 4: column 'id': 'x' is not an integer"

    Attributes:
      source: the item's origin, relative to the source's root.
      row: 1-based data record (header and blank lines not counted); None for files.
      line: 1-based physical line where the record starts; None for files.
      stage: the stage that refused it.
      reason: from the closed list.
      message: at most 1 KiB, for a person.
      sha256: hex digest of the raw item; None when it could not be read.
      part: for a part of an item, its kind ("boxes"): the item itself is kept. Empty
        for whole items.
      raw: the item's bytes in its source, or JSON if it has none of its own; None when
        it could not be read. `to_json` leaves it out.
    """

    source: str
    row: int | None
    line: int | None
    stage: str
    reason: Reason
    message: str
    sha256: str | None
    part: str = ""
    raw: bytes | None = dataclasses.field(default=None, repr=False, compare=False)

    def in_words(self) -> str:
        """Returns its place and the message."""
        return reject_in_words(self.source, self.row, self.line, self.message)

    def to_json(self) -> str:
        """Returns the line of `rejects.jsonl`, without its line end."""
        data: dict[str, Any] = {
            "source": self.source,
            "row": self.row,
            "line": self.line,
            "stage": self.stage,
            "reason": str(self.reason),
            "message": bounded(self.message),
            "sha256": self.sha256,
        }
        if self.part:
            data["part"] = self.part
        return _as_json(data)


_as_json = json.JSONEncoder(ensure_ascii=False).encode


def reject_in_words(
    source: str, row: int | None, line: int | None, message: str
) -> str:
    """Returns place and message, as "rows.csv, row 3, line 4: column ..."."""
    places = [("row", row), ("line", line)]
    where = [source, *(f"{name} {number:,}" for name, number in places if number)]
    return f"{', '.join(where)}: {message}"
