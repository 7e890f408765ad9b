"""Make many written files durable at the same time, then give them their names.

Syncing one small file after another makes each wait for a commit of the file system's
journal. Syncs at the same time share them.
"""

import concurrent.futures
import contextlib
import resource
from collections.abc import Callable, Iterator, Sequence

from transforms.storage.entries import Draft
from transforms.storage.retry import is_transient, naming, storing

# Syncs, or uploads, at the same time.
_SYNCS = 8
_FILES = 256


def most_drafts() -> int:
    """Returns how many files should wait to be published together.

    Each keeps a descriptor open: a quarter of those that the process may have.
    """
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed == resource.RLIM_INFINITY:
        return _FILES
    return max(min(_FILES, allowed // 4), 1)


def publish_together(
    drafts: Sequence[Draft], *, check: Callable[[], None] = lambda: None
) -> None:
    """Syncs files that are written, all of them before any gets its name.

    Args:
      drafts: of the files.
      check: called before the first file gets its name.

    Raises:
      OSError: a failure that may pass. All files must be written again.
      StorageError: a file could not be made durable, or not get its name.
    """
    try:
        _for_each(_sync, drafts)
        check()
        _for_each(_publish, drafts)
    except BaseException:
        discard_all(drafts)
        raise


def discard_all(drafts: Sequence[Draft]) -> None:
    """Removes the files that do not have their names."""
    for draft in drafts:
        draft.discard()


def _for_each(work: Callable[[Draft], None], drafts: Sequence[Draft]) -> None:
    """Does the work for all drafts at the same time; raises the first error."""
    if len(drafts) < 2:
        for draft in drafts:
            work(draft)
        return
    with concurrent.futures.ThreadPoolExecutor(_SYNCS) as pool:
        for _ in pool.map(work, drafts):
            pass


def _sync(draft: Draft) -> None:
    with _reported(draft):
        draft.sync()


def _publish(draft: Draft) -> None:
    with _reported(draft):
        draft.publish()


@contextlib.contextmanager
def _reported(draft: Draft) -> Iterator[None]:
    """Gives an error the path of the file; one that will last is a StorageError."""
    try:
        with naming(draft.path):
            yield
    except OSError as error:
        if is_transient(error):
            raise
        with storing(draft.path):
            raise
