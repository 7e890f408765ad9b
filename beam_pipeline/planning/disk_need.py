"""Estimate the disk space of a job, and check that it is available.

On the output's file system are, at the same time, until the run has committed:

    segments   the rows on their way to their shards, unless they travel in memory
    shards     the finished files

A dataset that is replaced is there all the while, so what it takes is not free
anyway; the unfinished work of an earlier run is taken over or removed, so what that
takes is.
"""

import dataclasses
import os

from beam_pipeline.planning.plan import Plan
from beam_pipeline.terminal.words import size_text
from transforms.errors import StorageError
from transforms.publishing import target
from transforms.storage.paths import is_remote

# Less than this share of what seems to be needed cannot be enough.
_SURE = 0.5
# Records compress to no less than about this ...
_SURE_COMPRESSED = 0.05
# ... and sizes of re-encoded images cannot be estimated from the originals.
_SURE_REMADE = 0.0
# Up to this share of what seems to be needed may yet be too little.
_MARGIN = 1.2


@dataclasses.dataclass(frozen=True, slots=True)
class DiskNeed:
    """How much room a job needs.

    Attributes:
      segments, shards: bytes that they will take, about.
      compressed: whether the shards will take less, by an unknown amount.
      remade: whether images are resized or re-encoded; `shards` is what they take
        unchanged.
    """

    segments: int
    shards: int
    compressed: bool = False
    remade: bool = False

    @property
    def total(self) -> int:
        """Bytes in all."""
        return self.segments + self.shards

    @property
    def least(self) -> int:
        """Bytes without which it cannot be done, however wrong the estimate is."""
        sure = _SURE_COMPRESSED if self.compressed else _SURE
        sure = _SURE_REMADE if self.remade else sure
        return int(self.segments * _SURE + self.shards * sure)

    def is_short_of(self, free: int) -> bool:
        """Whether `free` bytes may be too few."""
        return free < self.total * _MARGIN


def estimate(plan: Plan) -> DiskNeed:
    """Returns what a planned job needs."""
    shards = sum(plan.planned.record_bytes.values())
    segments = 0 if plan.inline else plan.planned.rows_bytes
    if plan.spec.limit is not None:
        # Of a whole source; rows take less than the records they become.
        segments = min(segments, shards)
    spec = plan.spec
    changing = (spec.resize, spec.image_format, spec.channels)
    return DiskNeed(
        segments=segments,
        shards=shards,
        compressed=spec.compression != "none",
        remade=spec.encode != "raw" or any(each is not None for each in changing),
    )


def free_bytes(directory: str) -> int:
    """Returns the room for a job with this output, its unfinished work counted in.

    Raises:
      OSError: the file system does not say.
    """
    folder = os.path.dirname(os.path.abspath(directory))
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize + _bytes_below(
        target.work_folder(directory)
    )


def _bytes_below(folder: str) -> int:
    """Returns how many bytes the files below a folder take."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_size
            except OSError:
                # Another run is at work there, which will be said elsewhere.
                continue
    return total


def check_room(plan: Plan) -> str:
    """Returns a remark where the room may not be enough; empty where it is.

    Raises:
      StorageError: it is not, by far.
    """
    if is_remote(plan.directory):
        # Object stores do not say, and do not run full.
        return ""
    need = estimate(plan)
    try:
        free = free_bytes(plan.directory)
    except OSError:
        # What is not known is no reason to stop.
        return ""
    if free < need.least:
        raise StorageError(
            f"There must be room for the output; {plan.spec.output!r} needs about "
            f"{in_words(need)}, and {size_text(free)} are free on its file system. "
            f"Nothing was read. Make room, or choose another output."
        )
    if need.is_short_of(free):
        return (
            f"the room may be too little: about {in_words(need)}, and "
            f"{size_text(free)} are free"
        )
    return ""


def in_words(need: DiskNeed) -> str:
    """Returns the bytes needed as text: "3.1 GB (2.0 GB of it until the commit)"."""
    words = size_text(need.total)
    if need.remade:
        words = f"{words} if images stay as large as they are"
    elif need.compressed:
        words = f"{words} before compression"
    if need.segments:
        words += f" ({size_text(need.segments)} of it until the commit)"
    return words
