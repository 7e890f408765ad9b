"""Files that are read when a pipeline is built, for the workers that run it.

What a small one says travels in the pipeline's graph. A large one is read again by the
workers, once a process, and must be as it was.
"""

import dataclasses
import functools
import hashlib
import pickle
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from transforms import files
from transforms.errors import InputError

# Two stages may hold the content, each in base 64: 1 MiB of the graph for three files.
_INLINE_BYTES = 1 << 17

_Content = TypeVar("_Content")


@dataclasses.dataclass(frozen=True)
class HeldFile(Generic[_Content]):
    """A file and what it says.

    Attributes:
      path: of the file.
      sha256: of its bytes when it was looked at.
      read: returns what a file says; a function of a module.
      arguments: of `read`, after the path.
      inline: what the file says; None where workers read it themselves.
    """

    path: str
    sha256: str
    read: Callable[..., _Content]
    arguments: tuple[str, ...]
    inline: _Content | None

    def get(self) -> _Content:
        """Returns what the file says.

        Raises:
          InputError: it is not as it was; or as `read`.
        """
        if self.inline is not None:
            return self.inline
        found: _Content = _read(self.read, self.path, self.arguments, self.sha256)
        return found


def hold(
    read: Callable[..., _Content], path: str, *arguments: str
) -> HeldFile[_Content]:
    """Reads a file; raises what `read` does."""
    sha256 = sha256_of(path)
    found: _Content = _read(read, path, arguments, sha256)
    size = len(pickle.dumps(found, protocol=pickle.HIGHEST_PROTOCOL))
    inline = found if size <= _INLINE_BYTES else None
    return HeldFile(path, sha256, read, arguments, inline)


# Asked for every bundle; a process may work for several pipelines in turn.
@functools.lru_cache(maxsize=4)
def _read(
    read: Callable[..., Any], path: str, arguments: tuple[str, ...], sha256: str
) -> Any:
    if sha256_of(path) != sha256:
        raise InputError(
            f"A file that a pipeline was built with must stay as it is while it runs; "
            f"{path!r} has changed or is gone. Build the pipeline again."
        )
    return read(path, *arguments)


def sha256_of(path: str) -> str:
    """Returns the digest of a file's bytes; empty where there is no file."""
    try:
        return hashlib.sha256(files.read_bytes(path)).hexdigest()
    except FileNotFoundError:
        return ""
