"""Watch a run, and stop it promptly even when its object store does not answer."""

import contextlib
import threading
from collections.abc import Callable

from transforms.errors import StorageError

# How often a run is looked at: for progress, and for dead workers.
_LOOK_SECONDS = 0.1

# A healthy store answers within this; an unreachable one must not delay the stop.
_FIRST_SECONDS = 1.0


def stop(abandon: Callable[[], None], end: Callable[[], None]) -> None:
    """Forbids a run to publish anything more, and ends its workers or its job.

    An unreachable store is retried for seconds before it fails. Neither the delay nor
    that error may hide the error that has stopped the run.

    Args:
      abandon: see `transforms.work.store.Store.abandon`; what it raises is dropped, for
        what is ended publishes nothing either.
      end: cancels the job, or ends the workers.
    """

    def work() -> None:
        with contextlib.suppress(OSError, StorageError):
            abandon()

    thread = threading.Thread(target=work, name="abandon", daemon=True)
    try:
        thread.start()
    except RuntimeError:
        # The system has no thread left, which may be what stops the run.
        end()
        work()
        return
    try:
        thread.join(_FIRST_SECONDS)
    finally:
        end()
        thread.join()


def watched(
    run: Callable[[], object],
    done: threading.Event,
    look: Callable[[], None],
    *,
    abandon: Callable[[], None],
    end: Callable[[], None],
) -> BaseException | None:
    """Runs a job in a thread, so that this one can watch and be interrupted.

    Returns what the job raised; None for nothing. Raises what `look` does, and what a
    signal raises meanwhile, once the run is stopped.

    Args:
      run: submits the job, and waits for its end.
      done: set when it has ended.
      look: called ten times a second.
      abandon, end: see `stop`.
    """
    failures: list[BaseException] = []

    def work() -> None:
        try:
            run()
        except BaseException as error:  # noqa: BLE001 - returned by the watcher
            failures.append(error)
        finally:
            done.set()

    thread = threading.Thread(target=work, name="job", daemon=True)
    thread.start()
    try:
        while not done.wait(_LOOK_SECONDS):
            look()
    except BaseException:
        stop(abandon, end)
        raise
    return failures[0] if failures else None
