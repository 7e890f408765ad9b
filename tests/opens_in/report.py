"""What the programs in `readers` print: the rows that they have read, as JSON.

Runs in the environments of the libraries, where only Python's own modules are sure.
"""

import importlib.metadata
import json
import math
import sys
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

ANIMALS = ("cat", "dog", "goat")
"""The names of labels, in the order of their ids."""

PHOTOS = ("image", "label", "filename", "height")
"""The features of images that are compared: bytes by their CRC32."""
TABLE = ("id", "age", "weight", "note", "animal")
"""The features of rows that are compared; age, weight and note may be missing."""

Rows = Callable[[str, tuple[str, ...]], Iterable[Mapping[str, Any]]]

GATHERED: list[Any] = []
"""What the steps of a Beam pipeline have given to `gather`, in this process."""


def gather(element: Any) -> None:
    """Keeps an element of a PCollection."""
    GATHERED.append(element)


def report(rows: Rows, *packages: str) -> None:
    """Prints the rows that a function reads, and the versions of packages.

    Args:
      rows: (folder of a dataset, names of features) -> a mapping for each record of
        the split train, with values of Python or NumPy.
      packages: as pip names them.
    """
    photos, table = sys.argv[1:]
    found = {
        "versions": {name: importlib.metadata.version(name) for name in packages},
        "photos": [_plain(row, PHOTOS) for row in rows(photos, PHOTOS)],
        "table": [_plain(row, TABLE) for row in rows(table, TABLE)],
    }
    sys.stdout.write(json.dumps(found) + "\n")


def _plain(row: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: _value(row[name], is_bytes=name == "image") for name in names}


def _value(value: Any, *, is_bytes: bool) -> Any:
    """Returns a value as JSON has it: bytes by their CRC32, NaN as null."""
    if is_bytes:
        return zlib.crc32(bytes(value))
    for method in (
        ("tobytes",) if getattr(value, "dtype", None) == "uint8" else ("item",)
    ):
        if hasattr(value, method):
            value = getattr(value, method)()
    if isinstance(value, bytes):
        value = value.decode()
    if isinstance(value, float) and math.isnan(value):
        return None
    return value
