"""What the encoders of rows share: a row, none, and what is wrong with one."""

from collections.abc import Mapping
from typing import Any

Row = Mapping[str, Any]

# An Example without features.
NOTHING = b"\n\x00"


class RowError(Exception):
    """What is wrong with one row.

    Attributes:
      index: of the row.
    """

    def __init__(self, message: str, index: int) -> None:
        super().__init__(message)
        self.index = index
