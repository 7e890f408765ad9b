"""Runs whole processes and measures them: wall time, and memory of the tree."""

import dataclasses
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

__all__ = [
    "Command",
    "Measured",
    "ProcessFailedError",
    "compile_program",
    "run",
    "run_side_by_side",
]

_SAMPLES_A_SECOND = 20
_KILOBYTE = 1024

Command = Sequence[str | os.PathLike[str]]


class ProcessFailedError(RuntimeError):
    """A measured process ended with an error; its output is the message."""


@dataclasses.dataclass(frozen=True)
class Measured:
    """Time and memory of one run of a process and all its children.

    Attributes:
      seconds: from before the start to after the exit.
      output: what it printed to standard output.
      processor_seconds: of all cores, user and system.
      process_bytes: peak resident memory of its largest process.
      tree_bytes: peak of the sum over its processes, shared pages counted once; 0 if
        not asked for.
    """

    seconds: float
    output: str
    processor_seconds: float = 0
    process_bytes: int = 0
    tree_bytes: int = 0


def run(command: Command, *, memory: bool = False) -> Measured:
    """Runs `command` to its end. Raises ProcessFailedError when it fails.

    With `memory`, that of the whole tree is sampled 20 times a second, which takes a
    little of the time: use the seconds of runs without it. Linux only.
    """
    os.sync()  # the disk must not still be writing the previous run's data
    begun = time.perf_counter()
    process = _Process(command)
    largest, tree = _watch_memory(process.popen.pid) if memory else (0, 0)
    used = process.wait()
    seconds = time.perf_counter() - begun
    processor_seconds = used.ru_utime + used.ru_stime
    largest = max(largest, used.ru_maxrss * _KILOBYTE)
    return Measured(seconds, process.output(), processor_seconds, largest, tree)


def compile_program(python: str) -> None:
    """Compiles the program to bytecode, as pip does with all that it installs.

    It does not with a program that is installed in place; and where
    PYTHONDONTWRITEBYTECODE is set, each process would compile it again.
    """
    folders = ("beam_pipeline", "beam_tfrecord", "transforms")
    root = pathlib.Path(__file__).resolve().parents[1]
    run([python, "-m", "compileall", "-q", *(root / folder for folder in folders)])


def run_side_by_side(commands: Sequence[Command]) -> float:
    """Starts the commands together; returns the seconds until the last has ended."""
    os.sync()
    begun = time.perf_counter()
    processes = [_Process(command) for command in commands]
    for process in processes:
        process.popen.wait()
    seconds = time.perf_counter() - begun
    for process in processes:
        process.output()
    return seconds


class _Process:
    """A started command; it prints to files, since a full pipe would block it."""

    def __init__(self, command: Command) -> None:
        self._command = command
        # Open for as long as the process runs; `output` closes them.
        self._output = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.popen = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._errors,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
        )

    def wait(self) -> resource.struct_rusage:
        """Waits for the end; returns what it and the children it waited for used."""
        _, status, used = os.wait4(self.popen.pid, 0)
        self.popen.returncode = os.waitstatus_to_exitcode(status)
        return used

    def output(self) -> str:
        """Returns the ended process's output. Raises ProcessFailedError on failure."""
        with self._output, self._errors:
            texts = []
            for file in (self._output, self._errors):
                file.seek(0)
                texts.append(file.read())
        if status := self.popen.returncode:
            shown = " ".join(os.fspath(part) for part in self._command)
            text = "".join(texts)[-2_000:]
            raise ProcessFailedError(f"{shown}\nended with {status}:\n{text}")
        return texts[0]


def _watch_memory(root: int) -> tuple[int, int]:
    """Returns the peaks (largest process, whole tree) until the process ends."""
    if not sys.platform.startswith("linux"):
        raise ProcessFailedError("memory is read from /proc, which only Linux has")
    largest = tree = 0
    ended = os.WEXITED | os.WNOHANG | os.WNOWAIT  # who waits for it learns what it used
    while os.waitid(os.P_PID, root, ended) is None:
        total = 0
        for pid in _tree(root):
            total += _field(pid, "smaps_rollup", "Pss:")
            # The kernel's high-water mark also covers peaks between two samples.
            largest = max(largest, _field(pid, "status", "VmHWM:"))
        tree = max(tree, total)
        time.sleep(1 / _SAMPLES_A_SECOND)
    return largest, tree


def _tree(root: int) -> list[int]:
    """Returns the ids of the process and everything below it."""
    children: dict[int, list[int]] = {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            # pid (name, which may hold anything) state parent ...
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            continue  # it has ended meanwhile
        children.setdefault(parent, []).append(int(stat.parent.name))
    tree = [root]
    for pid in tree:
        tree.extend(children.get(pid, ()))
    return tree


def _field(pid: int, file: str, name: str) -> int:
    try:
        lines = pathlib.Path(f"/proc/{pid}/{file}").read_text().splitlines()
    except OSError:
        return 0
    for line in lines:
        if line.startswith(name):
            return int(line.split()[1]) * _KILOBYTE
    return 0
