"""Decide from its first line whether a CSV is an AutoML manifest.

Kept apart from the reader, which is expensive to import: every CSV passes here.
"""

import csv
import zlib
from collections.abc import Callable, Iterable, Mapping

from transforms.formats.image_suffixes import is_image_name

UNASSIGNED = "UNASSIGNED"
DISCARD = "DISCARD"
USES: Mapping[str, str] = {
    "TRAIN": "TRAIN",
    "TRAINING": "TRAIN",
    "VALIDATION": "VALIDATION",
    "VALIDATE": "VALIDATION",
    "TEST": "TEST",
    UNASSIGNED: UNASSIGNED,
    DISCARD: DISCARD,
    "": UNASSIGNED,
}


def starts_manifest(line: str) -> bool:
    """Whether a file's first line is a row: ML_USE or nothing, and an image's path."""
    try:
        fields = next(csv.reader([line], strict=True), [])
    except csv.Error:
        return False
    use = fields[0].strip() if fields else "-"
    return len(fields) > 1 and use.upper() in USES and is_path(fields[1])


def is_path(text: str) -> bool:
    """Whether a cell is a URI, or a path of an image by its suffix."""
    return "://" in text or is_image_name(text.strip())


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
            if not starts_manifest(_first_line(head(path))):
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
