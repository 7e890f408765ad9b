"""Files in object stores and other remote file systems, over `pyarrow.fs`.

Paths have a scheme; see `transforms.storage.paths`. Failures that pass are tried again,
the others become an OSError with a number.
"""

import concurrent.futures
import errno
import io
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from transforms.errors import SpecError, source_error
from transforms.storage.entries import Draft, FileEntry, Standing, stamp
from transforms.storage.file_systems import CONNECTIONS
from transforms.storage.paths import relative
from transforms.storage.remote_look import expand, look, look_in
from transforms.storage.remote_reads import (
    RemoteFile,
    fetched,
    is_held,
    read_all,
    read_at_once,
    remembered,
)
from transforms.storage.remote_writes import (
    RemoteDraft,
    put,
    remove_file,
    remove_tree,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from transforms.storage.file_list import FileList

__all__ = ["RemoteStorage"]

# Reads of an open file fetch at least this much: each costs a round trip.
_FETCH_BYTES = 8 << 20


class RemoteStorage:
    """Files by paths with a scheme; folders are prefixes where a store has none.

    The methods do what the functions of `transforms.files` say.
    """

    def exists(self, path: str) -> bool:
        return look(path) is not None

    def is_pattern(self, path: str) -> bool:
        return any(c in path for c in "*?[") and not self.exists(path)

    def size_of(self, path: str) -> int:
        return self.stat_entry(path, "").size

    def sizes_of(self, paths: Iterable[str]) -> dict[str, int]:
        def ask(path: str) -> int | None:
            try:
                return self.size_of(path)
            except (OSError, SpecError):
                return None

        named = list(paths)
        # Each waits for a round trip and hardly needs this machine.
        with concurrent.futures.ThreadPoolExecutor(CONNECTIONS) as pool:
            found = zip(named, pool.map(ask, named), strict=True)
            return {path: size for path, size in found if size is not None}

    def standing(self, path: str) -> Standing:
        found = look(path)
        if found is None:
            return ""
        return "folder" if found.is_folder else "file"

    def expand(self, pattern: str) -> list[str]:
        return expand(pattern)

    def list_tree(self, root: str) -> "FileList":
        # Here, because what only checks files is to start without Arrow.
        from transforms.storage.remote_tree import list_below

        try:
            return list_below(root)
        except OSError as error:
            raise source_error(
                f"Every folder of the source must be readable; {root!r} is not: "
                f"{error.strerror}.",
                error,
            ) from error

    def names_in(self, folder: str) -> list[str]:
        return [os.path.basename(found.path) for found in look_in(folder)]

    def entries_in(self, folder: str, root: str) -> list[FileEntry]:
        return [
            FileEntry(relative(found.path, root), found.size, found.modified_ns)
            for found in look_in(folder)
            if not found.is_folder
        ]

    def stat_entry(self, path: str, root: str) -> FileEntry:
        found = look(path)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return FileEntry(relative(path, root), found.size, found.modified_ns)

    def open_unbuffered(self, path: str) -> io.RawIOBase:
        return RemoteFile(path)

    def open_input(self, path: str) -> io.BufferedReader:
        """Of small reads, many are one request."""
        return io.BufferedReader(RemoteFile(path), _FETCH_BYTES)

    def fetched(self, sizes: Sequence[tuple[str, int]], limit: int) -> Iterator[None]:
        return fetched(sizes, limit)

    def mapped(self, path: str) -> "pa.NativeFile":
        """The whole file is fetched."""
        import pyarrow as pa

        return pa.BufferReader(remembered(path))

    def read_stamped(self, path: str, limit: int | None) -> tuple[bytes, int]:
        data, modified_ns = read_all(path, limit)
        return data, stamp(len(data), modified_ns)

    def read_range(self, path: str, start: int, stop: int) -> tuple[bytes, int]:
        is_simple = start < stop and not is_held(path)
        if is_simple and (found := read_at_once(path, (start, stop))):
            return found[0], stamp(*found[1:])
        with RemoteFile(path) as file:
            return file.read_range(start, stop), file.stamp

    def draft(self, path: str, *, attempts: str, durable: bool) -> Draft:
        """`attempts` matters where files are renamed, as in HDFS."""
        return RemoteDraft(path, attempts)

    def write_file(
        self,
        path: str,
        pieces: Sequence[bytes | memoryview],
        *,
        attempts: str,
        durable: bool,
    ) -> None:
        put(path, b"".join(pieces), attempts=attempts)

    def remove_file(self, path: str, *, below: str) -> None:
        remove_file(path)

    def remove_tree(self, path: str, *, below: str) -> None:
        remove_tree(path)

    def sync_directory(self, path: str) -> None:
        """Does nothing: what a store has confirmed is durable."""

    def is_inside(self, path: str, folder: str) -> bool:
        return f"{path}/".startswith(f"{folder.rstrip('/')}/")
