"""Progress of a run, and of reading large files: a line on a terminal.

Every runner writes segments and shards into the same work folder, so that is where the
progress of a run shows, whatever runs the job.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from beam_pipeline.terminal import printing
from beam_pipeline.terminal.printing import Line
from beam_pipeline.terminal.words import count_text, size_text
from transforms.errors import StorageError
from transforms.storage.files import storage
from transforms.storage.local import listed_so_far
from transforms.storage.paths import is_remote

if TYPE_CHECKING:  # it loads Arrow, and `verify` starts in 0.14 s
    from beam_pipeline.planning.plan import Plan
    from transforms.work.store import Store

# Share of the time that reading and placing take in a job with segment files; and where
# only the names of images are read, and the images when they are written.
_READ_SHARE, _NAMES_SHARE = 0.5, 0.15
# Seconds between lines where stderr is no terminal, such as a log file.
_LINE_SECONDS = 30.0
# Seconds between looks at a disk, on a terminal.
_LOOK_SECONDS = 0.2
# Seconds between looks into an object store, where each costs several requests.
_FAR_SECONDS = 3.0
# Less than this is read within a second: no line is shown.
_MIN_BYTES = 300_000_000


class Progressed(NamedTuple):
    """How far a run has come.

    Attributes:
      phase: what is being done: "reading", "writing" or "committing".
      share: of the whole job that is done, 0 to 1.
      written: bytes of shards so far.
    """

    phase: str
    share: float
    written: int = 0


def look(plan: "Plan") -> Progressed:
    """Returns how far the run of a plan has come."""
    from transforms.work.store import Store

    store = Store(plan.work_folder)
    read = _share_read(plan, store)
    # Until all blocks are read, unfinished files are segments, not shards.
    done, written = _share_written(plan, store, unfinished=read is None or read >= 1)
    loaded = plan.planned.schema.loaded
    share = _READ_SHARE if all(feature.inline for feature in loaded) else _NAMES_SHARE
    if plan.inline:
        share = 0.0
    if not done:
        read = read or 0.0
        return Progressed("writing" if read >= 1 else "reading", share * read)
    phase = "writing" if done < 1 else "committing"
    return Progressed(phase, share + (1 - share) * done, written)


def _share_read(plan: "Plan", store: "Store") -> float | None:
    """Returns the share of the blocks that are read; None where it cannot be seen."""
    from transforms.formats.table_source import RunSource

    if plan.inline:
        return None
    source = plan.planned.make(store.listing)
    if isinstance(source, RunSource):
        size, whole = source.block_rows, sum(plan.planned.records.values())
    else:
        size, whole = getattr(source, "block_bytes", 0), plan.inputs.bytes
    if not size or not whole:
        return None
    with contextlib.suppress(FileNotFoundError):
        return min(len(storage(store.segments).names_in()) * size / whole, 1.0)
    return 0.0


def _share_written(
    plan: "Plan", store: "Store", *, unfinished: bool
) -> tuple[float, int]:
    """Returns the share of the shards that is written, and its bytes if known.

    Args:
      unfinished: whether files in the making are counted.
    """
    from transforms.work.receipts import count_finished

    if is_remote(store.folder):
        # There shards go into the target at once, beside those of an older dataset.
        _, shards = count_finished(store)
        return min(shards / max(sum(plan.sharding.shards.values()), 1), 1.0), 0
    size = 0
    for folder in (store.dataset, store.attempts) if unfinished else (store.dataset,):
        # A file may be renamed, or the folder published, while it is looked at.
        with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
            size += sum(entry.stat().st_size for entry in entries)
    return min(size / (sum(plan.planned.record_bytes.values()) or 1), 1.0), size


class _Shown:
    """Shows texts on standard error: on a terminal in a line that is drawn again.

    A log gets one every 30 seconds.
    """

    def __init__(self, *, quiet: bool) -> None:
        self._line = Line(quiet=quiet)
        self._is_quiet = quiet
        self._next = time.monotonic() + _LINE_SECONDS
        self.seconds = _LOOK_SECONDS if self._line else _LINE_SECONDS
        self.clear = self._line.clear

    def tell(self, text: Callable[[], str]) -> None:
        """Shows what a function returns, if it is time."""
        if self._line:
            self._line.show(text())
        elif not self._is_quiet and time.monotonic() >= self._next:
            self._next = time.monotonic() + _LINE_SECONDS
            printing.say(text())


@contextlib.contextmanager
def shown_planning(*, quiet: bool) -> Iterator[None]:
    """Shows that the source is being listed and sampled, and how many files it has."""
    shown, ended = _Shown(quiet=quiet), threading.Event()

    def listing() -> str:
        count = listed_so_far()
        counted = f": {count_text(count, 'file')}" if count else ""
        return f"listing and sampling the source{counted}"

    def watch() -> None:
        while not ended.wait(shown.seconds):
            shown.tell(listing)

    thread = threading.Thread(target=watch, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        shown.clear()


@contextlib.contextmanager
def shown_progress(plan: "Plan", *, quiet: bool) -> Iterator[Callable[[], None]]:
    """Yields a function to call while the plan runs; it shows progress on stderr."""
    shown = _Shown(quiet=quiet)
    seconds = _FAR_SECONDS if is_remote(plan.work_folder) else 0
    began = time.monotonic()
    due = began + seconds
    seen = Progressed("reading", 0.0)
    # What an earlier run has done does not count for the time that is left.
    first: float | None = None

    def progress() -> str:
        nonlocal seen, first, due
        now = time.monotonic()
        # Progress is not worth a failure: the next look may succeed.
        with contextlib.suppress(OSError, StorageError):
            if now >= due:
                due = now + seconds
                # What is published is gone from the work folder.
                seen = max(look(plan), seen, key=lambda progressed: progressed.share)
                first = seen.share if first is None else first
        parts = [f"{seen.share:4.0%} {seen.phase}"]
        if (done := seen.share - (first or 0)) > 0:
            left = round((1 - seen.share) * (now - began) / done)
            parts.append(f"ETA {left // 3600}:{left // 60 % 60:02d}:{left % 60:02d}")
        parts += [f"{size_text(seen.written)} written"] if seen.written else []
        return ", ".join(parts)

    try:
        yield lambda: shown.tell(progress)
    finally:
        shown.clear()


@contextlib.contextmanager
def shown_reading(
    total: int, word: str = "verifying", *, quiet: bool = False
) -> Iterator[Callable[[int], None]]:
    """Yields a function that counts bytes and shows their share on a terminal.

    Args:
      total: bytes to be read.
      word: for what is done.
      quiet: show nothing, as where standard error is no terminal.
    """
    line, done = Line(quiet=quiet), 0

    def add(size: int) -> None:
        nonlocal done
        done += size
        if line and total >= _MIN_BYTES:
            percent = min(100 * done // total, 100)
            line.show(f"{word} {size_text(total)}: {percent:3d} %")

    try:
        yield add
    finally:
        line.clear()
