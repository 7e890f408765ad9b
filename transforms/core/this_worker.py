"""This process: the worker that it is in a job of an engine, and its interpreter."""

import dataclasses
import os
import socket
import sys


@dataclasses.dataclass(frozen=True, slots=True)
class Worker:
    """A worker process.

    Attributes:
      host: name of its machine.
      process: its number there.
    """

    host: str
    process: str

    @classmethod
    def this(cls) -> "Worker":
        """Returns this process."""
        return cls(socket.gethostname(), str(os.getpid()))

    def in_words(self) -> str:
        """Returns its name for messages."""
        return f"the worker on host {self.host!r} (process {self.process})"


# This process as a worker, and whether its machine shares no disk with the submitter's.
_known: tuple[Worker, bool] | None = None


def become(*, elsewhere: bool = False) -> Worker:
    """Makes this process known as a worker, and returns it.

    A pipeline may read and write several datasets: where one of them says that this
    machine shares the submitter's disk, it does.

    Args:
      elsewhere: whether its machine shares no disk with the submitter's.
    """
    global _known
    _known = Worker.this(), elsewhere and (here() is None or is_elsewhere())
    return _known[0]


def here() -> Worker | None:
    """Returns the worker that this process is; None in a run on one machine."""
    # A fork is another process.
    return _known[0] if _known is not None and _known[0] == Worker.this() else None


def is_elsewhere() -> bool:
    """Whether this process is a worker that shares no disk with the submitter."""
    return _known is not None and _known[1] and here() is not None


def python_command() -> list[str]:
    """Returns the beginning of a command that runs Python as this process does.

    Its first word is "" where no interpreter is known, as where Python is inside
    another program. A frozen program names itself: asked to run code, it would start
    all over, and so would its children.
    """
    path = "" if getattr(sys, "frozen", False) else sys.executable or ""
    ignores = ["-E"] if sys.flags.ignore_environment else []
    # Nothing in the current folder is imported.
    return [path, *ignores, "-P", "-X", f"utf8={sys.flags.utf8_mode}"]
