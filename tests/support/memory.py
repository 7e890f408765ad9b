"""Measures the peak memory of a program and its workers from outside."""

import contextlib
import dataclasses
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

_LOOK_SECONDS = 0.05
_PROC = pathlib.Path("/proc")

# Waits for the program and prints its largest resident size in KiB. The tests cannot
# ask for that themselves: a process that they start counts their own memory until it
# becomes the program.
_WAIT = """
import os, sys
silent = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
pid = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ, file_actions=silent)
_, status, used = os.wait4(pid, 0)
print(used.ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status))
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Peak:
    """Figures of one run.

    Attributes:
      process: bytes resident in the largest process of the tree, at its peak; pages
        that it shares with others count in full.
      tree: the largest sum over all processes alive at a time, each at its present
        size, shared pages counted once for each.
      processes: how many there were in all.
      code: exit code.
      errors: what was printed to stderr.
    """

    process: int
    tree: int
    processes: int
    code: int
    errors: str


def run_measured(
    command: Sequence[str],
    *,
    cwd: str | os.PathLike[str],
    env: Mapping[str, str] | None = None,
    timeout: float = 600,
) -> Peak:
    """Runs a program to its end and samples its process tree meanwhile.

    The peak of a process is the kernel's own high-water mark (VmHWM), so that what
    lies between two looks is seen too. What lies behind the last look is seen by the
    kernel's account of the program and of each process that it has waited for.

    Args:
      command: program and arguments.
      cwd: its folder.
      env: its environment.
      timeout: seconds after which it is killed, with all it has started.
    """
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _WAIT, *command],
        cwd=cwd,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        highest: dict[int, int] = {}
        tree = 0
        deadline = time.monotonic() + timeout
        try:
            while process.poll() is None and time.monotonic() < deadline:
                now = 0
                for pid in _tree(process.pid)[1:]:
                    resident, peak = _resident(pid)
                    now += resident
                    highest[pid] = max(highest.get(pid, 0), peak)
                tree = max(tree, now)
                time.sleep(_LOOK_SECONDS)
        finally:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        account, errors = process.communicate()
    largest = max([int(account or 0) << 10, *highest.values()])
    return Peak(largest, tree, len(highest), process.returncode, errors)


def _tree(root: int) -> list[int]:
    """Returns the ids of a process and of all that come from it."""
    found, pending = [], [root]
    while pending:
        pid = pending.pop()
        found.append(pid)
        try:
            for task in (_PROC / str(pid) / "task").iterdir():
                pending += map(int, (task / "children").read_text().split())
        except OSError:
            # It has ended meanwhile.
            continue
    return found


def _resident(pid: int) -> tuple[int, int]:
    """Returns the resident bytes of a process now, and at its peak."""
    try:
        text = (_PROC / str(pid) / "status").read_text()
    except OSError:
        return 0, 0
    sizes = {
        name: int(rest.split()[0]) << 10
        for name, _, rest in (line.partition(":") for line in text.splitlines())
        if name in ("VmRSS", "VmHWM")
    }
    return sizes.get("VmRSS", 0), sizes.get("VmHWM", 0)


Folder = pathlib.Path
ROOT = pathlib.Path(__file__).parents[2]
LIMIT = 500_000_000


def converted(source: Folder, folder: Folder, *options: str) -> Peak:
    command = [sys.executable, "-m", "beam_pipeline", "convert", str(source), "out"]
    return run_measured(
        [*command, "--quiet", *options],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        timeout=3_000,
    )
