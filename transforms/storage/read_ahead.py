"""Read from a store side by side: each read waits for the network, not for us."""

import collections
import concurrent.futures
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
# Connections of one process to one place.
CONNECTIONS = 64


def read_ahead(
    read: Callable[[_Item], _Result],
    items: Iterable[_Item],
    *,
    far: bool,
    threads: int = CONNECTIONS,
) -> Iterator[_Result]:
    """Yields what `read` returns for each item, in the items' order.

    An error of `read` is raised where its result would be. Memory: as many results as
    there are threads.

        >>> list(read_ahead(len, ["a", "bc"], far=True))
        [1, 2]

    Args:
      read: called once for each item; by several threads at once where `far` is true.
      items: what to read.
      far: whether each read waits for a network; else the calling thread reads.
      threads: the most that read.
    """
    left = iter(items)
    begun = list(itertools.islice(left, 2)) if far else []
    if len(begun) < 2:
        yield from map(read, itertools.chain(begun, left))
        return
    pending: collections.deque[concurrent.futures.Future[_Result]] = collections.deque()
    pool = concurrent.futures.ThreadPoolExecutor(threads)
    try:
        for item in itertools.chain(begun, left):
            pending.append(pool.submit(read, item))
            if len(pending) >= threads:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        # After an error nobody waits for the rest.
        pool.shutdown(cancel_futures=True)
