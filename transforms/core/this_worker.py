"""This process: the worker that it is in a job of an engine, and its interpreter.

Every fact that leaves a worker carries `stamp()`, so that the commit knows which
machines and versions have made the dataset. Local runs have none: their workers are of
the program's own machine and installation.
"""

import dataclasses
import os
import platform
import socket
import sys

_BETWEEN = "\t"


@dataclasses.dataclass(frozen=True, slots=True)
class Worker:
    r"""A worker process, as facts name it.

        >>> Worker.of("pod-7\t12\t0.2.0\t3.11.2\tLinux x86_64\tc0ffee").host
        'pod-7'

    Attributes:
      host: name of its machine.
      process: its number there.
      program: version of this program.
      python: version of the interpreter.
      platform: operating system and processor.
      versions: digests of the versions that decide bytes, with a blank between: one
        for each choice of them that a dataset has asked for.
    """

    host: str
    process: str
    program: str
    python: str
    platform: str
    versions: str

    @classmethod
    def of(cls, stamp: str) -> "Worker":
        """Returns the worker that a fact names.

        Raises:
          ValueError: the text is no stamp.
        """
        parts = stamp.split(_BETWEEN)
        if len(parts) != len(dataclasses.fields(cls)):
            raise ValueError(f"no stamp of a worker: {stamp!r}")
        return cls(*parts)

    @classmethod
    def this(cls, versions: str, program: str) -> "Worker":
        """Returns this process.

        Args:
          versions, program: see the attributes.
        """
        return cls(
            socket.gethostname(),
            str(os.getpid()),
            program,
            platform.python_version(),
            f"{platform.system()} {platform.machine()}",
            versions,
        )

    @property
    def stamp(self) -> str:
        """What facts carry of it."""
        return _BETWEEN.join(
            getattr(self, field.name) for field in dataclasses.fields(self)
        )

    def has(self, versions: str) -> bool:
        """Whether it has the versions of a digest."""
        return versions in self.versions.split()

    def in_words(self) -> str:
        """Returns its name for messages."""
        return f"the worker on host {self.host!r} (process {self.process})"


@dataclasses.dataclass(frozen=True, slots=True)
class _Known:
    process: int
    worker: Worker
    stamp: str
    elsewhere: bool


_known: _Known | None = None


def become(worker: Worker, *, elsewhere: bool = False) -> None:
    """Makes this process known as a worker; its facts carry the stamp from now on.

    A pipeline may read and write several datasets, which ask for other versions each.

    Args:
      worker: this process.
      elsewhere: whether its machine shares no disk with the submitter's.
    """
    global _known
    if (before := _here()) is not None:
        digests = {*before.worker.versions.split(), worker.versions}
        worker = dataclasses.replace(worker, versions=" ".join(sorted(digests)))
        elsewhere = elsewhere and before.elsewhere
    _known = _Known(os.getpid(), worker, worker.stamp, elsewhere)


def here() -> Worker | None:
    """Returns the worker that this process is; None in a run on one machine."""
    known = _here()
    return None if known is None else known.worker


def is_elsewhere() -> bool:
    """Whether this process is a worker that shares no disk with the submitter."""
    known = _here()
    return known is not None and known.elsewhere


def stamp() -> str:
    """Returns the stamp of this process; "" for no worker of an engine."""
    known = _here()
    return "" if known is None else known.stamp


def _here() -> _Known | None:
    known = _known
    return known if known is not None and known.process == os.getpid() else None


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
