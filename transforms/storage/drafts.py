"""Files that are open for writing, how many may be, and how they get their names.

Many written files are made durable at the same time, then get their names: syncing one
small file after another makes each wait for a commit of the file system's journal.
Syncs at the same time share them.
"""

import concurrent.futures
import contextlib
import io
import operator
import resource
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

import google_crc32c

from transforms.storage.retry import is_transient, naming, storing

_Draft = TypeVar("_Draft", bound="Draft")
# Syncs, or uploads, at the same time.
_SYNCS = 8
_FILES = 256


class Sink(Protocol):
    """A file that is open for writing."""

    def write(self, data: bytes | memoryview, /) -> int:
        """Writes all of `data`; returns its length, or raises OSError."""


class Draft(Sink, Protocol):
    """A file that is being written and does not have its name yet.

    The steps are separate so that many files can be synced at the same time, and none
    be renamed before all are durable.

    Attributes:
      path: the final name.
    """

    path: str

    def sync(self) -> None:
        """Ends the file and makes its content durable; raises OSError.

        After a failure the file must be written again: the kernel may have dropped what
        it could not write, and a second sync would succeed.
        """

    def publish(self) -> None:
        """Gives a synced file its name, replacing what has it; raises OSError."""

    def discard(self) -> None:
        """Removes the file unless it has its name."""


@contextlib.contextmanager
def written(draft: _Draft) -> Iterator[_Draft]:
    """Gives a draft to write to; syncs and publishes it, or discards it on an error."""
    with discarded_on_error(draft):
        yield draft
        draft.sync()
        draft.publish()


@contextlib.contextmanager
def discarded_on_error(draft: _Draft) -> Iterator[_Draft]:
    """Gives a draft, and discards it where the block raises.

    A failed write or sync does not say of what: its error gets the path.
    """
    try:
        with naming(draft.path):
            yield draft
    except BaseException:
        draft.discard()
        raise


class CountedSink(io.RawIOBase):
    """Passes bytes on to a sink; knows their number and their CRC32C.

    Attributes:
      crc32c: of the bytes so far.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._size = 0
        self.crc32c = 0

    def writable(self) -> bool:
        """Tells that it takes bytes."""
        return True

    def write(self, data: Any) -> int:
        """Passes bytes on; returns how many were taken."""
        size = self._sink.write(data)
        self._size += size
        self.crc32c = google_crc32c.extend(self.crc32c, bytes(data))
        return size

    def tell(self) -> int:
        """Returns how many bytes were written."""
        return self._size


def most_files() -> int:
    """Returns how many files of one use may be open: a quarter of all that may."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(allowed // 4, 1) if allowed != resource.RLIM_INFINITY else 1 << 16


def most_drafts() -> int:
    """Returns how many files, which stay open, should wait to be published together."""
    return min(_FILES, most_files())


def publish_together(drafts: Sequence[Draft], *, check: Callable[[], None]) -> None:
    """Syncs files that are written, all of them before any gets its name.

    Args:
      drafts: of the files.
      check: called before the first file gets its name.

    Raises:
      OSError: a failure that may pass. All files must be written again.
      StorageError: a file could not be made durable, or not get its name.
    """
    try:
        _for_each(operator.methodcaller("sync"), drafts)
        check()
        _for_each(operator.methodcaller("publish"), drafts)
    except BaseException:
        discard_all(drafts)
        raise


def discard_all(drafts: Sequence[Draft]) -> None:
    """Removes the files that do not have their names."""
    for draft in drafts:
        draft.discard()


def _for_each(step: Callable[[Draft], None], drafts: Sequence[Draft]) -> None:
    """Takes a step for all drafts at the same time; raises the first error."""

    def work(draft: Draft) -> None:
        try:
            with naming(draft.path):
                step(draft)
        except OSError as error:
            if is_transient(error):
                raise
            with storing(draft.path):
                raise

    with concurrent.futures.ThreadPoolExecutor(_SYNCS) as pool:
        list(pool.map(work, drafts))
