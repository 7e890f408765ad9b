"""Texts other than the empty cell that mean a missing value, such as `-` and `?`."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.rows.coerce import trimmed

Column = TypeVar("Column", pa.Array, pa.ChunkedArray, pa.Array | pa.ChunkedArray)


def with_nulls(
    columns: Mapping[str, Column], words: Sequence[str]
) -> Mapping[str, Column]:
    """Returns the columns; texts that are one of the words are null.

    Spaces and tabs around them do not count, as around numbers. Columns of another
    type than string stay as they are.

    Args:
      columns: of any types, by name.
      words: the texts; "" is for empty texts that are not null, such as quoted cells.
    """
    if not words:
        return columns
    known = trimmed(pa.array(words, pa.string()))
    return {name: _with_nulls(column, known) for name, column in columns.items()}


def _with_nulls(column: Column, words: pa.StringArray) -> Column:
    if not pa.types.is_string(column.type):
        return column
    found = pc.is_in(trimmed(column), value_set=words)
    if not pc.any(found).as_py():
        return column
    return pc.if_else(found, pa.scalar(None, pa.string()), column)
