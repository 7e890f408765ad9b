"""Files by their paths, wherever they are: on a disk, or in a store; one, or many.

Many are read from a store side by side: each read waits for the network, not for us.
"""

import collections
import concurrent.futures
import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from transforms.errors import SpecError, StorageError
from transforms.storage.buckets import CONNECTIONS
from transforms.storage.local import LocalPath
from transforms.storage.paths import is_remote
from transforms.storage.protocol import StoredPath

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def storage(path: str) -> StoredPath:
    """Returns what can be done with a path, by the storage that it is in."""
    if not is_remote(path):
        return LocalPath(path)
    # It loads Arrow's file systems.
    from transforms.storage.remote import RemotePath

    return RemotePath(path)


def sizes_of(paths: Iterable[str]) -> dict[str, int]:
    """Returns path -> bytes of those files that can be found; each is asked for once.

    Raises:
      StorageError: a store did not answer, though it was asked again.
    """

    def ask(path: str) -> int | None:
        try:
            return storage(path).size_of()
        except (OSError, SpecError):
            return None

    named = [*dict.fromkeys(paths)]
    sizes = read_ahead(ask, named, far=any(map(is_remote, named)))
    pairs = zip(named, sizes, strict=True)
    return {path: size for path, size in pairs if size is not None}


def fetched(sizes: Sequence[tuple[str, int]], *, limit: int) -> Iterator[None]:
    """Steps through files that are read one after another, many of them small.

    While it is at a small one that is in a store, all of that file is in memory for the
    others that read it, and the next ones are being fetched side by side. A file that
    cannot be fetched is left to whoever reads it. On a disk nothing is fetched.

        for (path, _), _ in zip(sizes, fetched(sizes, limit=1 << 20)):
            data = storage(path).read_bytes()

    Args:
      sizes: the files, all in one storage, and their bytes as they were listed.
      limit: bytes of the largest file that is fetched.
    """
    if not sizes or not is_remote(sizes[0][0]):
        yield from itertools.repeat(None, len(sizes))
        return
    from transforms.storage.remote import held, read_all

    def fetch(file: tuple[str, int]) -> tuple[bytes, int] | None:
        path, size = file
        # Whoever reads it next finds out why it cannot be read.
        with contextlib.suppress(OSError, StorageError):
            return read_all(path, limit) if size <= limit else None
        return None

    contents = read_ahead(fetch, sizes, far=True)
    for (path, _), content in zip(sizes, contents, strict=True):
        if content is not None:
            held[path] = content
        try:
            yield
        finally:
            held.pop(path, None)


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
    if not far:
        yield from map(read, items)
        return
    pending: collections.deque[concurrent.futures.Future[_Result]] = collections.deque()
    pool = concurrent.futures.ThreadPoolExecutor(threads)
    try:
        for item in items:
            pending.append(pool.submit(read, item))
            if len(pending) >= threads:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        # After an error nobody waits for the rest.
        pool.shutdown(cancel_futures=True)
