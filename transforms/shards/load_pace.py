"""Decide by measured waits how many threads load images.

An image in the page cache takes some 40 microseconds of processor time and no waiting:
threads would only add hand-overs to it. Where each read waits, threads wait side by
side. The decision concerns time alone, never the bytes that are written.
"""

import concurrent.futures
import dataclasses
import math
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from transforms.storage.file_systems import CONNECTIONS

__all__ = ["FAR", "HERE", "NEAR", "LoadTimes", "Pace", "pace_for"]

_Row = TypeVar("_Row")


@dataclasses.dataclass(frozen=True, slots=True)
class Pace:
    """How images are loaded.

    Attributes:
      threads: that load ahead; 0 if the calling thread loads.
      task: rows that a thread takes at a time, because each hand-over costs time.
      first: rows of the first chunk of a shard.
      chunk_bytes: size of the images of each further chunk.
    """

    threads: int
    task: int
    first: int
    chunk_bytes: int


HERE = Pace(threads=0, task=16, first=8, chunk_bytes=8 << 20)
NEAR = Pace(threads=2, task=16, first=8, chunk_bytes=8 << 20)
# Reads from a store wait for the network and hardly need this machine: many threads.
FAR = Pace(threads=CONNECTIONS, task=1, first=128, chunk_bytes=32 << 20)

# Shorter waits cost less than threads: an image in the page cache takes 42 microseconds
# here and 84 with two threads. Some wait 20 to 40 even there, perhaps for the lock of
# the interpreter.
_SHORT_SECONDS = 50e-6
# One wait of this length is reason enough for threads.
_LONG_SECONDS = 1e-3
# After this time other rows are loaded beside the first one.
_TAKES_LONG_SECONDS = 5e-3
# Two threads decode side by side, which images of this processor time are.
_BUSY_SECONDS = 500e-6
# With one thread for this much of each wait, loading takes the least time.
_SECONDS_A_THREAD = 25e-6
# Rows that are measured for the first decision, and in each further chunk.
_FIRST_ROWS = 4
_MORE_ROWS = 16
# While threads load, the next measurement is after this multiple of the time that the
# last one took, and not within a second: where reads wait, it costs 1 part in 100.
# All threads must end before it, so the rest doubles each time it confirms the pace.
_REST = 100
_MIN_REST_SECONDS = 1.0
_MAX_REST_SECONDS = 64.0


def _pauses() -> int:
    """Returns how often this thread has waited for anything but a processor.

    On a busy machine most time in which a thread does not compute is no wait for a
    file: other processes compute. Where the system does not count, all time is a wait.
    """
    if not hasattr(resource, "RUSAGE_THREAD"):
        return time.perf_counter_ns()
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


def pace_for(wait: float, busy: float) -> Pace:
    """Returns the pace for rows that wait and compute for these seconds each.

    Args:
      wait: of a row, in which its thread does nothing.
      busy: of a row, in which its thread computes.
    """
    if wait >= _LONG_SECONDS:
        return FAR
    if wait >= _SHORT_SECONDS:
        threads = 2 ** max(round(math.log2(wait / _SECONDS_A_THREAD)), 1)
        return dataclasses.replace(NEAR, threads=threads, task=8)
    return NEAR if busy >= _BUSY_SECONDS else HERE


class LoadTimes:
    """What loading takes in this process, and the pace that follows from it.

        times = LoadTimes()
        if times.is_due():
            first = times.begin(lambda: load(0))
            if times.is_due():
                rows = times.measure(map(load, range(1, count)))
        threads = times.pace.threads

    Attributes:
      pace: the last decision.
    """

    def __init__(self) -> None:
        self.pace = NEAR
        self._due = -math.inf
        self._rest = _MIN_REST_SECONDS

    def is_due(self) -> bool:
        """Whether the next rows must be measured, while no thread loads others."""
        return self.pace == HERE or time.perf_counter() >= self._due

    def begin(self, load: Callable[[], _Row]) -> concurrent.futures.Future[_Row]:
        """Begins to load a row in a thread of its own, and decides the pace by it.

        Returns when it is loaded, or has taken long: meanwhile others can be loaded,
        as where reads wait. Further rows are due where it did not wait long.

        Args:
          load: loads the row.
        """
        pace, due = self.pace, self._due

        def work() -> _Row:
            begun = time.perf_counter()
            try:
                row, wait, busy = _timed(load)
            finally:
                self.pace, self._due = pace, due
            if wait > _LONG_SECONDS:
                self._decide([wait], [busy], begun)
            return row

        self.pace, self._due = FAR, math.inf
        aside = concurrent.futures.ThreadPoolExecutor(1)
        loading = aside.submit(work)
        aside.shutdown(wait=False)
        concurrent.futures.wait([loading], timeout=_TAKES_LONG_SECONDS)
        return loading

    def measure(self, loading: Iterator[_Row]) -> list[_Row]:
        """Loads some rows in the calling thread, and decides the pace by them.

        The decision is the median's, because a thread may lose the processor at any
        time. It is a single row's only where threads loaded before (or nothing did) and
        the row waits long: then further rows would be too expensive.

        Args:
          loading: loads a row when it is asked for the next one.

        Returns:
          The first rows: 4 at most, or 16 where the calling thread loads anyway.
        """
        here = self.pace == HERE
        rows: list[_Row] = []
        waits: list[float] = []
        busy: list[float] = []
        first = time.perf_counter()
        for _ in range(_MORE_ROWS if here else _FIRST_ROWS):
            try:
                row, waited, computed = _timed(loading.__next__)
            except StopIteration:
                break
            rows.append(row)
            waits.append(waited)
            busy.append(computed)
            if not here and waited > _LONG_SECONDS:
                waits = waits[-1:]
                break
        if rows:
            self._decide(waits, busy, first)
        return rows

    def _decide(self, waits: list[float], busy: list[float], first: float) -> None:
        """Decides by the times of rows, the first of which began at `first`."""
        before = self.pace
        self.pace = pace_for(statistics.median_low(waits), statistics.median_low(busy))
        confirmed = self.pace == before and self._due > -math.inf
        longer = min(2 * self._rest, _MAX_REST_SECONDS)
        self._rest = longer if confirmed else _MIN_REST_SECONDS
        now = time.perf_counter()
        self._due = now + max(_REST * (now - first), self._rest)


def _timed(load: Callable[[], _Row]) -> tuple[_Row, float, float]:
    """Returns a row, and the seconds in which its loading waited and computed."""
    pauses = _pauses()
    begin, computed = time.perf_counter(), time.thread_time()
    row = load()
    busy = time.thread_time() - computed
    wait = time.perf_counter() - begin - busy
    return row, wait if _pauses() != pauses else 0.0, busy
