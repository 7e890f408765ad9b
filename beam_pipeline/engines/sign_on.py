"""Processes that the worker file has started on this machine, and whether they live.

Prism does not notice that a worker has died, and waits for ever. Reports do not show it
either where it has died before its first bundle. So the worker file leaves the number
of its process first of all.
"""

import os

__all__ = ["SIGN_ON", "absent"]

SIGN_ON = ".worker"
"""Suffix of the files by which workers sign on; the process id comes before it."""


def absent(folder: str) -> list[int]:
    """Returns the process ids of workers that have signed on and ended."""
    names = [name for name in os.listdir(folder) if name.endswith(SIGN_ON)]
    pids = sorted(int(name.removesuffix(SIGN_ON)) for name in names)
    return [pid for pid in pids if not _runs(pid)]


def _runs(pid: int) -> bool:
    """Whether a process is alive."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
