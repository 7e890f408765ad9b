"""Changes to the state of a process, for runs that may overlap in its threads."""

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Iterator

_Context = contextlib._GeneratorContextManager[None]


def shared_change(function: Callable[[], Iterator[None]]) -> Callable[[], _Context]:
    """Makes a context manager that the first of several users opens and the last ends.

    Each of them alone would restore what it has found: the last to leave, what another
    one had changed.

        >>> @shared_change
        ... def quiet():
        ...     print("quiet")
        ...     yield
        ...     print("loud")
        >>> with quiet(), quiet():
        ...     pass
        quiet
        loud

    Args:
      function: a generator function, as `contextlib.contextmanager` takes it.
    """
    opened = contextlib.contextmanager(function)
    lock = threading.Lock()
    users = 0
    change = opened()

    @functools.wraps(function)
    @contextlib.contextmanager
    def joined() -> Iterator[None]:
        nonlocal users, change
        with lock:
            if not users:
                change = opened()
                change.__enter__()
            users += 1
        try:
            yield
        finally:
            with lock:
                users -= 1
                if not users:
                    change.__exit__(*sys.exc_info())

    return joined
