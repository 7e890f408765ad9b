"""Files by their paths, wherever they are: on a disk, or in a store."""

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from transforms.errors import SpecError
from transforms.storage.local import LocalPath
from transforms.storage.paths import is_remote
from transforms.storage.protocol import StoredPath
from transforms.storage.read_ahead import read_ahead

if TYPE_CHECKING:
    from transforms.storage.remote import RemotePath


def storage(path: str) -> StoredPath:
    """Returns what can be done with a path, by the storage that it is in."""
    return _remote_path()(path) if is_remote(path) else LocalPath(path)


@functools.cache
def _remote_path() -> "type[RemotePath]":
    # Loaded where a path wants it: most commands are done in half a second.
    from transforms.storage.remote import RemotePath

    return RemotePath


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
    """Steps through files that are read one after another, of which many are small.

    While it is at a small one that is in a store, all of that file is in memory for the
    others that read it, and the next ones are being fetched side by side. A file that
    cannot be fetched is left to whoever reads it. On a disk nothing is fetched.

        for (path, _), _ in zip(sizes, fetched(sizes, limit=1 << 20)):
            data = storage(path).read_bytes()

    Args:
      sizes: the files, all in one storage, and their bytes as they were listed.
      limit: bytes of the largest file that is fetched.
    """
    if sizes and is_remote(sizes[0][0]):
        from transforms.storage import remote

        return remote.fetched(sizes, limit)
    return itertools.repeat(None, len(sizes))
