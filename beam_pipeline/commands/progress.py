"""Progress of a run, and of reading large files: a line on a terminal.

Every runner writes segments and shards into the same work folder, so that is where the
progress of a run shows, whatever runs the job.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from beam_pipeline import terminal
from beam_pipeline.terminal import Line, size_text
from transforms.errors import StorageError
from transforms.storage.files import storage
from transforms.storage.paths import is_remote

if TYPE_CHECKING:  # it loads Arrow, and `verify` starts in 0.14 s
    from beam_pipeline.planning.plan import Plan
    from transforms.work.store import Store

# Share of the time that reading and placing take in a job with segment files; and where
# only the names of images are read, and the images when they are written.
_READ_SHARE, _NAMES_SHARE = 0.5, 0.15
# Seconds between lines where stderr is no terminal, such as a log file.
_LINE_SECONDS = 30.0
# Seconds between looks into an object store, where each costs several requests.
_FAR_SECONDS = 3.0
# Less than this is read within a second: no line is shown.
_MIN_BYTES = 300_000_000


def look(plan: "Plan") -> tuple[float, str]:
    """Returns the share of a plan's run that is done, 0 to 1, and what it is doing.

    That is "reading", "writing" or "committing".
    """
    from transforms.work.store import Store

    store = Store(plan.work_folder)
    read = _share_read(plan, store)
    # Until all blocks are read, unfinished files are segments, not shards.
    done = _share_written(plan, store, unfinished=read is None or read >= 1)
    loaded = plan.planned.schema.loaded
    share = _READ_SHARE if all(feature.inline for feature in loaded) else _NAMES_SHARE
    if plan.inline:
        share = 0.0
    if not done:
        read = read or 0.0
        return share * read, "writing" if read >= 1 else "reading"
    return share + (1 - share) * done, "writing" if done < 1 else "committing"


def _share_read(plan: "Plan", store: "Store") -> float | None:
    """Returns the share of the blocks that are read; None where it cannot be seen."""
    from transforms.formats.file_runs import RunSource

    if plan.inline:
        return None
    source = plan.planned.make(store.listing)
    if isinstance(source, RunSource):
        size, whole = source.block_rows, sum(plan.planned.records.values())
    else:
        size, whole = getattr(source, "block_bytes", 0), plan.inputs.entries.bytes
    if not size or not whole:
        return None
    return min(len(storage(store.segments).names_if_there()) * size / whole, 1.0)


def _share_written(plan: "Plan", store: "Store", *, unfinished: bool) -> float:
    """Returns the share of the shards that is written.

    Args:
      unfinished: whether files in the making are counted.
    """
    from transforms.work.receipts import count_finished

    if is_remote(store.folder):
        # There shards go into the target at once, beside those of an older dataset.
        _, shards = count_finished(store)
        return min(shards / max(sum(plan.sharding.shards.values()), 1), 1.0)
    size = 0
    for folder in (store.dataset, store.attempts) if unfinished else (store.dataset,):
        # A file may be renamed, or the folder published, while it is looked at.
        with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
            size += sum(entry.stat().st_size for entry in entries)
    return min(size / (sum(plan.planned.record_bytes.values()) or 1), 1.0)


@contextlib.contextmanager
def shown_progress(plan: "Plan", *, quiet: bool) -> Iterator[Callable[[], None]]:
    """Yields a function to call while the plan runs; it shows progress on stderr.

    On a terminal that is a line which is drawn again; a log gets one every 30 seconds.
    """
    line = Line(quiet=quiet)
    pause = _FAR_SECONDS if is_remote(plan.work_folder) else 0
    began = time.monotonic()
    due, log_due = began + pause, began + _LINE_SECONDS
    seen = 0.0, "reading"
    # What an earlier run has done does not count for the time that is left.
    first: float | None = None

    def show() -> None:
        nonlocal seen, first, due, log_due
        now = time.monotonic()
        if not line and (quiet or now < log_due):
            return
        log_due = now + _LINE_SECONDS
        # Progress is not worth a failure: the next look may succeed.
        with contextlib.suppress(OSError, StorageError):
            if now >= due:
                due = now + pause
                # What is published is gone from the work folder.
                seen = max(look(plan), seen)
                first = seen[0] if first is None else first
        share, phase = seen
        text = f"{share:4.0%} {phase}"
        if (done := share - (first or 0)) > 0:
            left = round((1 - share) * (now - began) / done)
            text += f", ETA {left // 3600}:{left // 60 % 60:02d}:{left % 60:02d}"
        (line.show if line else terminal.say)(text)

    try:
        yield show
    finally:
        line.clear()


@contextlib.contextmanager
def shown_reading(
    total: int, *, quiet: bool = False
) -> Iterator[Callable[[int], None]]:
    """Yields a function that counts bytes and shows their share on a terminal.

    Args:
      total: bytes to be read.
      quiet: show nothing, as where standard error is no terminal.
    """
    line, done = Line(quiet=quiet), 0

    def add(size: int) -> None:
        nonlocal done
        done += size
        if line and total >= _MIN_BYTES:
            percent = min(100 * done // total, 100)
            line.show(f"reading {size_text(total)}: {percent:3d} %")

    try:
        yield add
    finally:
        line.clear()
