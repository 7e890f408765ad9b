"""Estimate the disk space of a job, and refuse one for which far too little is free.

On the output's file system are, at the same time, until the run has committed:

    segments   the rows on their way to their shards, unless they travel in memory
    shards     the finished files

A dataset that is replaced is there all the while, so what it takes is not free
anyway; the unfinished work of an earlier run is taken over or removed, so what that
takes is.
"""

import os

from beam_pipeline.planning.plan import Plan
from beam_pipeline.settings.spec import Spec
from beam_pipeline.terminal.words import size_text
from transforms.errors import StorageError
from transforms.publishing import target
from transforms.storage.paths import is_remote

# Less than this share of the estimate cannot be enough, however wrong it is; records
# compress to no less than about the second.
_SURE, _SURE_COMPRESSED = 0.5, 0.05


def estimate(plan: Plan) -> int:
    """Returns the bytes that a job needs, images unchanged and before compression."""
    shards = sum(plan.planned.record_bytes.values())
    segments = 0 if plan.inline else plan.planned.rows_bytes
    if plan.spec.limit is not None:
        # Of a whole source; rows take less than the records they become.
        segments = min(segments, shards)
    return segments + shards


def need_text(plan: Plan) -> str:
    """Returns the estimate as text: "3.1 GB before compression"."""
    words = size_text(estimate(plan))
    if _remakes_images(plan.spec):
        return f"{words} if images stay as large as they are"
    return words if plan.spec.compression == "none" else f"{words} before compression"


def free_bytes(directory: str) -> int:
    """Returns the room for a job with this output, its unfinished work counted in.

    Raises:
      OSError: the file system does not say.
    """
    folder = os.path.dirname(os.path.abspath(directory))
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    status = os.statvfs(folder)
    total = status.f_bavail * status.f_frsize
    for parent, _, names in os.walk(target.work_folder(directory)):
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_size
            except OSError:
                # Another run is at work there, which will be said elsewhere.
                continue
    return total


def check_room(plan: Plan) -> None:
    """Raises StorageError where the room is not enough, by far."""
    # Object stores do not say what is free, and images of another size may be small.
    if is_remote(plan.directory) or _remakes_images(plan.spec):
        return
    try:
        free = free_bytes(plan.directory)
    except OSError:
        # What is not known is no reason to stop.
        return
    sure = _SURE if plan.spec.compression == "none" else _SURE_COMPRESSED
    if free < estimate(plan) * sure:
        raise StorageError(
            f"There must be room for the output; {plan.spec.output!r} needs about "
            f"{need_text(plan)}, and {size_text(free)} are free on its file system. "
            f"Nothing was read. Make room, or choose another output."
        )


def _remakes_images(spec: Spec) -> bool:
    changing = (spec.resize, spec.image_format, spec.channels)
    return spec.encode != "raw" or any(each is not None for each in changing)
