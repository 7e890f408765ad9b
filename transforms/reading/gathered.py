"""Records that were read in any order, and what is said once of how they are read."""

import functools
import logging
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from transforms.core.tfrecord.reader import PayloadBatch

_log = logging.getLogger(__name__)


@functools.lru_cache(maxsize=256)
def warn_once(message: str) -> None:
    """Logs a warning, unless this process has said the same before."""
    _log.warning("%s", message)


class Gathered:
    """Some records in any order: taken out of what was read with them one by one.

    A copy of each, made when it was read, would double the memory. That of a record
    which is used at once is used again.

    Attributes:
      order: int64 array: for each record, its number among those added.
      size: bytes of the records added.
    """

    def __init__(self) -> None:
        self._data: list[bytes] = []
        self._starts: list[int] = []
        self._stops: list[int] = []
        self.order: npt.NDArray[np.int64] = np.empty(0, np.int64)
        self.size = 0

    def add(self, batch: PayloadBatch | bytes) -> None:
        """Adds records that were read together, or one."""
        if isinstance(batch, bytes):
            self._data.append(batch)
            self._starts.append(0)
            self._stops.append(len(batch))
            self.size += len(batch)
            return
        self._data += [batch.data] * len(batch)
        self._starts += batch.starts.tolist()
        self._stops += (batch.starts + batch.lengths).tolist()
        self.size += int(batch.lengths.sum())

    def __len__(self) -> int:
        return len(self.order)

    def __iter__(self) -> Iterator[bytes]:
        data, starts, stops = self._data, self._starts, self._stops
        for index in self.order.tolist():
            yield data[index][starts[index] : stops[index]]

    def parts(self, most_records: int, most_bytes: int) -> Iterator[list[bytes]]:
        """Yields the records some at a time: at least one, and not many more bytes."""
        batch: list[bytes] = []
        size = 0
        for record in self:
            batch.append(record)
            size += len(record)
            if len(batch) == most_records or size >= most_bytes:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch
