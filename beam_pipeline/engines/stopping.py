"""Stop a run promptly, even when its object store does not answer."""

import contextlib
import threading
from collections.abc import Callable

from transforms.errors import StorageError

__all__ = ["stop"]

# A store that works has the word by then; one that does not is not waited for.
_FIRST_SECONDS = 1.0


def stop(abandon: Callable[[], None], end: Callable[[], None]) -> None:
    """Forbids a run to publish anything more, and ends its workers or its job.

    A store that is away is asked for seconds and refuses in the end: that neither holds
    up the end nor takes the place of the error which has stopped the run.

    Args:
      abandon: see `transforms.work.store.Store.abandon`; what it raises is dropped, for
        what is ended publishes nothing either.
      end: cancels the job, or ends the workers.
    """

    def work() -> None:
        with contextlib.suppress(OSError, StorageError):
            abandon()

    thread = threading.Thread(target=work, name="abandon", daemon=True)
    thread.start()
    try:
        thread.join(_FIRST_SECONDS)
    finally:
        end()
        thread.join()
