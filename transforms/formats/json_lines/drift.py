"""Check that files of JSON lines agree: one type of rows, no column missing."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.json

from transforms.errors import InputError
from transforms.formats.json_lines.parse import leaves_of
from transforms.formats.json_lines.types import (
    NO_COLUMNS,
    JsonType,
    clashes,
    merged,
)

# With fewer rows, a column that is missing cannot be told from one that is rare.
_TELLING_ROWS = 20


def rows_in(part: dict[str, pa.Array]) -> int:
    """Returns how many rows the columns of a piece have."""
    return len(next(iter(part.values()), ()))


def agreed(kinds: Sequence[tuple[str, JsonType]]) -> JsonType:
    """Returns the type of the rows of all files.

    Raises:
      InputError: a column is of one type in one file and of another in the next, or
        there is none, or two have one name.
    """
    whole = JsonType("null")
    seen: list[tuple[str, JsonType]] = []
    for origin, kind in kinds:
        facts = []
        for before, known in seen:
            facts = [
                f"{path[:60]!r} is {a.name} in {before} and {b.name} in {origin}"
                for path, a, b in clashes(known, kind)
            ]
            if facts:
                raise InputError(
                    f"all files of a source must have the same columns; "
                    f"{'; '.join(facts[:8])}. Convert them one by one, or write them "
                    f"again alike."
                )
        together = merged([whole, kind])
        if together != whole:
            seen.append((origin, kind))
        whole = together
    names = [name for name, _ in leaves_of(whole)]
    for name in names:
        if not name or names.count(name) > 1:
            found = f"{name!r} occurs twice" if name else "one has none"
            raise InputError(
                f"every column must have a name of its own; {found}, once objects are "
                f"flattened to outer/inner. Rename it where the file is written."
            )
    return whole if whole.name == "object" else NO_COLUMNS


def check_presence(
    found: Sequence[tuple[str, Sequence[dict[str, pa.Array]]]],
) -> None:
    """Raises InputError if all rows of one file have a column, and none of another."""
    telling = [
        (origin, parts)
        for origin, parts in found
        if sum(map(rows_in, parts)) >= _TELLING_ROWS
    ]
    for name in telling[0][1][0] if telling else ():
        full, empty = [], []
        for origin, parts in telling:
            nulls = sum(part[name].null_count for part in parts)
            if not nulls:
                full.append(origin)
            elif nulls == sum(map(rows_in, parts)):
                empty.append(origin)
        if full and empty:
            raise InputError(
                f"all files of a source must have the same columns; every row of "
                f"{full[0]} has {name!r}, and none of {empty[0]}. Convert them one by "
                f"one, or write them again alike."
            )
