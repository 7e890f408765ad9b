"""Compare the indexes of a shard with the shard, while that is read."""

import dataclasses
import re
from typing import Self

import numpy as np
import numpy.typing as npt

from transforms.core.tfrecord import PayloadBatch

__all__ = ["IndexCheck"]

_Longs = npt.NDArray[np.int64]
_LINES = re.compile(rb"([0-9]{1,18} [0-9]{1,18}\n)*")


@dataclasses.dataclass(slots=True)
class IndexCheck:
    """Compares what an index says of the records of one file with the records.

        check = IndexCheck.of(data, "a.u64", size=180)
        reader.verify(check.see)
        fault = check.fault(reader.records)     # "" where it is the file's

    Attributes:
      offsets: where each of n records begins, and the end of the last, as the index
        says.
      ends_there: whether the index ends where the file does.
    """

    offsets: _Longs
    ends_there: bool
    _fault: str = ""

    @classmethod
    def of(cls, data: bytes, name: str, *, size: int) -> Self:
        """Returns the check of an index.

        Args:
          data: its content.
          name: of its file, which says whether it is text.
          size: bytes of the file that it is of.
        """
        if name.endswith(".idx"):
            numbers = [*map(int, data.split())] if _is_text(data) else []
            pairs = np.array(numbers, np.int64).reshape(-1, 2)
            ends = pairs.sum(axis=1)[-1:] if len(pairs) else np.zeros(1, np.int64)
            return cls(np.append(pairs[:, 0], ends), bool(ends[0] == size))
        found = np.frombuffer(data[: len(data) // 8 * 8], "<u8").view(np.int64)
        return cls(found, len(found) > 0 and int(found[-1]) == size)

    def see(self, batch: PayloadBatch) -> None:
        """Compares the next records of the file."""
        if self._fault:
            return
        first = batch.first_record
        said = self.offsets[first : first + len(batch)]
        # Offsets that the index lacks are found at the end.
        differs = np.flatnonzero(said != batch.offsets[: len(said)])
        if len(differs):
            place = int(differs[0])
            self._fault = (
                f"record {first + place:,} begins at byte {batch.offsets[place]:,}, "
                f"not at {said[place]:,}"
            )

    def fault(self, records: int) -> str:
        """Returns what is wrong with the index; empty for nothing.

        Args:
          records: of the file, all of which `see` was given.
        """
        if not self._fault and len(self.offsets) != records + 1:
            return f"there are {records:,} records, not {len(self.offsets) - 1:,}"
        if not self._fault and not self.ends_there:
            return "the file ends elsewhere"
        return self._fault


def _is_text(data: bytes) -> bool:
    """Whether an index as text is lines of two numbers."""
    return _LINES.fullmatch(data) is not None
