"""Recognise and parse AutoML Vision manifests: CSV without header, rows by image.

    ML_USE,path,LABEL,LABEL,...                        classification
    ML_USE,path,label,x,y,x,y,x,y,x,y                  detection: the corners in turn,
    ML_USE,path,label,x,y,,,x,y,,                      or two that are across

Rows of one path, by NFC, are one image, at the place of the first: what they say is
joined. They must agree on ML_USE, or the image would be in two splits. A row that
begins with the path has no ML_USE, which says UNASSIGNED.

Rows are of any number of fields and belong together across the file, so a file is
parsed as a whole, row by row in Python, and kept; see `MAX_BYTES`.

Source: the pages "Preparing your training data" and "Formatting a training data CSV"
of AutoML Vision, classification and object detection.
"""

import csv
import dataclasses
import io
import sys
import unicodedata
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence

from transforms.core.model import Reason
from transforms.core.reasons import Fault
from transforms.errors import InputError
from transforms.formats.file_names import is_image_name
from transforms.formats.whole_files import is_packed, open_unpacked
from transforms.storage.files import storage

# A million rows, about; their Python objects take sixteen times that.
MAX_BYTES = 64 << 20
# label, and four pairs of coordinates.
_BOX_FIELDS = 9

_UNASSIGNED = "UNASSIGNED"
DISCARD = "DISCARD"
_USES: Mapping[str, str] = {
    "TRAIN": "TRAIN",
    "TRAINING": "TRAIN",
    "VALIDATION": "VALIDATION",
    "VALIDATE": "VALIDATION",
    "TEST": "TEST",
    _UNASSIGNED: _UNASSIGNED,
    DISCARD: DISCARD,
    "": _UNASSIGNED,
}


@dataclasses.dataclass(frozen=True, slots=True)
class Mention:
    """A row: its 0-based number, its 1-based line, and the fields after the path."""

    row: int
    line: int
    rest: tuple[str, ...]

    @property
    def is_box(self) -> bool:
        """Whether the fields are a label and corners, with a number among them."""
        corners = [text for text in self.rest[1:] if text.strip()]
        return (
            len(self.rest) == _BOX_FIELDS
            and bool(corners)
            and all(_is_number(text) for text in corners)
        )

    @property
    def is_blank(self) -> bool:
        """Whether the row gives no label and no box."""
        return not any(text.strip() for text in self.rest)


@dataclasses.dataclass(slots=True)
class Item:
    """An image, or a row that names none.

    Attributes:
      path: as the first row has it; empty if it has none.
      use: one of TRAIN, VALIDATION, TEST, UNASSIGNED and DISCARD.
      mentions: its rows.
      fault: why it cannot be used; None if it can.
    """

    path: str
    use: str
    mentions: list[Mention]
    fault: Fault | None = None

    @property
    def row(self) -> int:
        """0-based number of its first row."""
        return self.mentions[0].row

    @property
    def labels(self) -> list[str]:
        """The distinct labels of all rows, in their order."""
        texts = (text.strip() for m in self.mentions for text in m.rest)
        return list(dict.fromkeys(text for text in texts if text))

    @property
    def raw(self) -> bytes:
        """Its fields, a NUL between them."""
        fields = [self.use, self.path, *(t for m in self.mentions for t in m.rest)]
        return "\0".join(fields).encode(errors="surrogateescape")


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Manifest:
    """One file.

    Attributes:
      items: by their first rows.
      rows: how many the file has.
      has_boxes: whether it is one of object detection.
    """

    items: Sequence[Item]
    rows: int
    has_boxes: bool


def recognise(
    files: Iterable[tuple[str, int]], head: Callable[[str], bytes]
) -> tuple[str, ...] | None:
    """Returns the CSV files if all of them start like manifests, else None.

    Raises:
      OSError: a file cannot be read.
    """
    names: list[str] = []
    for path, _ in files:
        if path.lower().removesuffix(".gz").removesuffix(".zst").endswith(".csv"):
            # The first of millions says that they are others.
            if not _starts_manifest(_first_line(head(path))):
                return None
            names.append(path)
    return tuple(names) or None


def _first_line(head: bytes) -> str:
    if head.startswith(b"\x1f\x8b"):
        try:
            head = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(head)
        except zlib.error:
            return ""
    lines = head.decode("utf-8-sig", errors="replace").lstrip("\r\n").splitlines()
    return lines[0] if lines else ""


def load_manifest(path: str, stamp: int) -> Manifest:
    """Returns a file's content.

    Args:
      path: of the file, which may be compressed.
      stamp: of the file as it was listed; 0 for unknown.

    Raises:
      InputError: it is no CSV, or too large.
      OSError: it cannot be read, or has changed since it was listed.
    """
    if is_packed(path):
        with open_unpacked(path, path, stamp=stamp) as stream:
            # A raw stream may return less than asked for. Reading stops just beyond the
            # limit, so that a compression bomb does not fill memory.
            content = bytearray()
            while len(content) <= MAX_BYTES and (part := stream.read(1 << 20)):
                content += part
            data = bytes(content)
    else:
        data = storage(path).read_bytes(stamp=stamp)
    if len(data) > MAX_BYTES:
        raise InputError(
            f"An AutoML manifest is parsed as a whole, up to {MAX_BYTES:,} bytes; "
            f"{path!r} has more. Cut it into several files, by images."
        )
    return _parse(data, path)


def _parse(data: bytes, path: str) -> Manifest:
    # Surrogates keep bytes that are not UTF-8, so that their rows alone are refused.
    text = data.decode("utf-8-sig", errors="surrogateescape")
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    images: dict[str, Item] = {}
    items: list[Item] = []
    row = line = 0
    has_boxes = False
    try:
        for fields in reader:
            line, first_line = reader.line_num, line + 1
            if not fields:
                continue
            item = _item(fields, row, first_line)
            row += 1
            has_boxes = has_boxes or item.mentions[0].is_box
            _join(item, images, items)
    except csv.Error as error:
        raise InputError(
            f"{path!r} must be CSV; in line {reader.line_num}: {error}. Correct it."
        ) from error
    return Manifest(items, row, has_boxes)


def _item(fields: Sequence[str], row: int, line: int) -> Item:
    """Returns what one row says."""
    first = fields[0].strip()
    known = first.upper() in _USES
    if not known and _is_path(first):
        fields = ["", *fields]
        first, known = "", True
    rest = tuple(sys.intern(field) for field in fields[2:])
    path = fields[1] if len(fields) > 1 else ""
    use = _USES.get(first.upper(), _UNASSIGNED)
    item = Item(path, use, [Mention(row, line, rest)])
    if not all(_is_utf8(field) for field in fields):
        item.path = ""
        item.fault = Fault(Reason.INVALID_ENCODING, "it must be UTF-8")
    elif not known:
        words = ", ".join(word for word in _USES if word)
        item.fault = Fault(
            Reason.BAD_SPLIT,
            f"the first field must be one of {words}, or the path; found "
            f"{first[:60]!r}",
        )
    elif not path.strip():
        item.fault = Fault(Reason.MISSING_VALUE, "the path of the image is empty")
    return item


def _join(item: Item, images: dict[str, Item], items: list[Item]) -> None:
    """Adds a row to the image that it names."""
    if item.fault is not None:
        items.append(item)
        return
    key = unicodedata.normalize("NFC", item.path)
    image = images.setdefault(key, item)
    if image is item:
        items.append(item)
        return
    image.mentions += item.mentions
    if image.use != item.use and image.fault is None:
        image.fault = Fault(
            Reason.BAD_SPLIT,
            f"all rows of an image must say one split; row {image.row + 1} says "
            f"{image.use} and row {item.row + 1} says {item.use}",
        )


def _starts_manifest(line: str) -> bool:
    """Whether a file's first line is a row: ML_USE or nothing, and an image's path."""
    try:
        fields = next(csv.reader([line], strict=True), [])
    except csv.Error:
        return False
    use = fields[0].strip() if fields else "-"
    return len(fields) > 1 and use.upper() in _USES and _is_path(fields[1])


def _is_path(text: str) -> bool:
    """Whether a cell is a URI, or a path of an image by its suffix."""
    return "://" in text or is_image_name(text.strip())


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_utf8(text: str) -> bool:
    return text.isascii() or not any("\udc80" <= c <= "\udcff" for c in text)
