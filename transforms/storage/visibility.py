"""What this process sees: the worker that it is in a job of an engine, and its paths.

Paths of one machine are found in rows, and those that a worker never saw are told from
files that have gone.
"""

import contextlib
import dataclasses
import os
import socket
import sys
from typing import TYPE_CHECKING

from transforms.errors import WorkerError
from transforms.storage.paths import is_remote

if TYPE_CHECKING:
    import pyarrow as pa

# Others are relative, or have the scheme of a store.
_LOCAL = r"^\s*(/|(?i:file):)"


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


def become(*, elsewhere: bool) -> None:
    """Makes this process known as a worker.

    A pipeline may read and write several datasets: where one of them says that this
    machine shares the submitter's disk, it does.

    Args:
      elsewhere: whether its machine shares no disk with the submitter's.
    """
    global _known
    _known = Worker.this(), elsewhere and (here() is None or is_elsewhere())


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


@dataclasses.dataclass(frozen=True, slots=True)
class Witness:
    """A path that workers must see, and a file by which they know it.

    A folder of the same name is on many disks. A file that the submitter puts into a
    source would be part of it, and many sources cannot be written. So the witness is a
    file of the source itself; a copy of the source on each machine has it, too.

    Attributes:
      path: of the submitter's disk.
      file: the path itself, or a file below it; empty where none is known.
      size: of the file.
    """

    path: str
    file: str = ""
    size: int = 0

    @classmethod
    def of(cls, path: str, file: str = "") -> "Witness":
        """Returns that of a path that is there.

        Args:
          path: of this machine's disk.
          file: of the source, below the path; empty for none.
        """
        whole = os.path.join(path, file)
        is_file = os.path.isfile(whole)
        return cls(path, whole, os.stat(whole).st_size) if is_file else cls(path)

    def check(self) -> None:
        """Raises WorkerError unless this process sees the path, and the file there."""
        why = ""
        with contextlib.suppress(OSError):
            if not self.file or os.stat(self.file).st_size == self.size:
                os.stat(self.path)
                return
        if os.path.exists(self.path):
            why = f"what is there has no {self.file!r} of {self.size:,} bytes"
        raise invisible(self.path, why)


def invisible(path: str, why: str, *, place: str = "") -> WorkerError:
    """Returns the error of a path that this process does not see, but the submitter.

    Args:
      path: of the submitter's disk.
      why: it is not seen here; empty where there is nothing.
      place: see `unseen`.
    """
    return WorkerError(
        f"Every worker must see what the job reads and writes; {path!r}"
        f"{f', named in {place},' if place else ''} is not visible to "
        f"{Worker.this().in_words()}{f': {why}' if why else ''}. Put it into an object "
        f"store, or onto a disk that all machines see under this very path and say "
        f"--shared-output; nothing was committed."
    )


def unseen(path: str, root: str = "", *, place: str = "") -> WorkerError | None:
    """Returns the error of a local path that this worker's machine does not have.

    None where the program itself looks, or where the machine is one that sees the
    folder, so that the file has gone.

    Args:
      path: that the submitter has seen; missing here, or of another machine's disk.
      root: the folder above it that was given; by default its own.
      place: where it is named, as in "row 7 of rows.csv"; empty for nowhere.
    """
    if here() is None or is_remote(path):
        return None
    if is_elsewhere():
        why = "the workers are elsewhere, on machines that share no disk with"
    elif not os.path.isdir(root or os.path.dirname(path)):
        why = "not even its folder is there, as it is on"
    else:
        return None
    why = f"{why} the one that has submitted the job"
    return invisible(path, why, place=place)


def first_local(paths: "pa.Array") -> tuple[int, str] | None:
    """Returns the first absolute path of a machine, and its row; None for none.

    Args:
      paths: texts, or lists of texts, one a row. What holds others has no paths.

    Example:
      >>> import pyarrow as pa
      >>> first_local(pa.array([["s3://b/a.jpg"], ["b.jpg", "/data/c.jpg"]]))
      (1, '/data/c.jpg')
    """
    # Here, because `--help` and what only checks paths start without Arrow.
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    texts, rows = paths, np.arange(len(paths))
    if pa.types.is_list(paths.type) or pa.types.is_large_list(paths.type):
        texts, rows = paths.flatten(), pc.list_parent_indices(paths).to_numpy()
    if not (pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type)):
        return None
    at = pc.index(pc.match_substring_regex(texts, _LOCAL), True).as_py()
    return None if at < 0 else (int(rows[at]), texts[at].as_py().strip())
