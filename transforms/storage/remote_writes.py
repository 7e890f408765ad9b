"""Write and remove files in object stores and other remote file systems.

An object appears when its upload is complete, and an Arrow stream that has failed is
completed all the same when it is closed. So a file is first finished and read back in
a temporary file of this machine, and then uploaded: by the store's own client where it
is installed (`transforms.storage.object_clients`), which verifies checksums and gives
up what it has begun. HDFS shows a file while it is written, and can rename: there it
gets its name when it is whole.
"""

import contextlib
import errno
import functools
import io
import os
import secrets
import tempfile
from collections.abc import Callable, Iterator
from typing import IO, BinaryIO

import google_crc32c

from transforms.core.manifest import is_data_folder
from transforms.errors import DamageError, RaceError
from transforms.storage import object_clients
from transforms.storage.file_systems import asked, file_system
from transforms.storage.object_store import OvertakenError
from transforms.storage.paths import is_remote, split_remote
from transforms.storage.remote_look import HDFS, look, look_in
from transforms.storage.remote_reads import RemoteFile

_COPY_BYTES = 8 << 20
_TOKEN_BYTES = 6


def is_frozen(path: str) -> bool:
    """Whether a path is that of a file in a folder of a dataset, in an object store.

    A manifest may name such a file at any time, so it is never replaced: who would
    write another one must find the same bytes there.
    """
    return is_remote(path) and any(map(is_data_folder, path.split("/")[3:-1]))


@contextlib.contextmanager
def _temporary() -> Iterator[tuple[IO[bytes], str]]:
    """Gives a temporary file and a name of it, which is no other process's.

    Where the kernel names open files, it has no name in a folder: a killed process
    leaves nothing.
    """
    if os.path.isdir("/proc/self/fd"):
        with tempfile.TemporaryFile() as file:
            yield file, f"/proc/self/fd/{file.fileno()}"
    else:
        with tempfile.NamedTemporaryFile(prefix="beam-tfrecord-") as named:
            yield named, named.name


class RemoteDraft:
    """A file that is written here, and uploaded when it gets its name."""

    def __init__(self, path: str, attempts: str) -> None:
        self.path = path
        self._attempts = attempts
        self._open = contextlib.ExitStack()
        self._file, self._name = self._open.enter_context(_temporary())
        self._crc32c = 0

    def write(self, data: bytes | memoryview, /) -> int:
        """Writes all of `data`; returns its length, or raises OSError."""
        self._file.write(data)
        self._crc32c = google_crc32c.extend(self._crc32c, bytes(data))
        return memoryview(data).nbytes

    def sync(self) -> None:
        """Raises DamageError unless the file reads as it was written."""
        self._file.flush()
        self._file.seek(0)
        crc = 0
        while piece := self._file.read(_COPY_BYTES):
            crc = google_crc32c.extend(crc, piece)
        if crc != self._crc32c:
            raise DamageError(
                f"What is written must read the same; the temporary file for "
                f"{self.path!r} has the checksum {crc:08x} and not "
                f"{self._crc32c:08x}. Nothing was uploaded; look after the disk and "
                f"the memory, and run again."
            )

    def publish(self) -> None:
        """Uploads the file."""
        with self._open:
            upload(self._name, self.path, crc32c=self._crc32c, attempts=self._attempts)

    def discard(self) -> None:
        """Forgets the file."""
        self._open.close()


def put(path: str, data: bytes, *, attempts: str = "") -> None:
    """Writes a small file, in place of one there.

    Args:
      path: the final name; see `is_frozen` on files of datasets.
      data: the content.
      attempts: see `create`.

    Raises:
      OSError: it could not be done.
      StorageError: nor could it when it was tried again.
      RaceError: a file of a dataset is there with other bytes.
    """
    client, key = object_clients.client_of(path), split_remote(path)[1]
    if is_frozen(path):
        crc = google_crc32c.value(data)
        put_new = (
            None if client is None else functools.partial(client.put_if, key, data, "")
        )
        _put_once(path, len(data), crc, put_new, lambda: io.BytesIO(data), attempts)
    elif client is not None:
        asked(path, lambda: client.put(key, data))
    else:
        asked(path, lambda: _put(io.BytesIO(data), len(data), path, attempts))


def upload(local: str, path: str, *, crc32c: int, attempts: str = "") -> None:
    """Puts a local file where `path` says, in place of what is there.

    Args:
      local: path of the file.
      path: the final name; see `is_frozen` on files of datasets.
      crc32c: of the file.
      attempts: see `create`.

    Raises:
      OSError: it could not be done; nothing has appeared.
      StorageError: nor could it when it was tried again.
      RaceError: a file of a dataset is there with other bytes.
    """
    client, key = object_clients.client_of(path), split_remote(path)[1]

    def opened() -> BinaryIO:
        return open(local, "rb")

    if is_frozen(path):
        size = os.stat(local).st_size
        put_new = (
            None
            if client is None
            else functools.partial(client.put_file, key, local, new=True)
        )
        _put_once(path, size, crc32c, put_new, opened, attempts)
    elif client is not None:
        asked(path, lambda: client.put_file(key, local))
    else:
        asked(path, functools.partial(_put_file, local, path, attempts))


def _put_once(
    path: str,
    size: int,
    crc32c: int,
    put_new: Callable[[], None] | None,
    opened: Callable[[], BinaryIO],
    attempts: str,
) -> None:
    """Writes a file that is never replaced; one there must be equal.

    Args:
      path: the final name.
      size, crc32c: of the content.
      put_new: writes it on the condition that nothing is there; None where the store
        is reached without its own client.
      opened: gives the content.
      attempts: see `create`.
    """
    if put_new is not None:
        try:
            asked(path, put_new)
        except OvertakenError:
            pass
        else:
            return
    elif look(path) is None:

        def work() -> None:
            with opened() as source:
                _put(source, size, path, attempts)

        asked(path, work)
        return
    found = 0
    with RemoteFile(path) as file:
        while piece := file.read(_COPY_BYTES):
            found = google_crc32c.extend(found, piece)
    if found != crc32c:
        raise RaceError(
            f"A file of a dataset is never replaced; {path!r} has the CRC32C "
            f"{found:08x}, and this run has made {crc32c:08x}. Another run has put it "
            f"there, whose inputs or libraries were others, though nothing tells them "
            f"apart. Nothing was committed. If no run is at work there, remove what "
            f"is left with 'beam-tfrecord clean --older-than 0', and run again."
        )


def _put_file(local: str, path: str, attempts: str) -> None:
    with open(local, "rb") as source:
        _put(source, os.fstat(source.fileno()).st_size, path, attempts)


def _put(source: BinaryIO, size: int, path: str, attempts: str) -> None:
    """Writes a file without the store's client; may be repeated after a failure.

    Args:
      source: positioned anywhere.
      size: bytes in it.
      path, attempts: see `create`.
    """
    source.seek(0)
    if not path.startswith(HDFS):
        _stream_up(source, size, path)
        return
    folder, name = os.path.split(path)
    partial = f"{attempts or folder}/.{name}.{secrets.token_hex(_TOKEN_BYTES)}.tmp"
    _stream_up(source, size, partial)
    (system, new), (_, inside) = file_system(partial), file_system(path)
    try:
        system.create_dir(file_system(folder)[1])
        system.move(new, inside)
    except OSError:
        with contextlib.suppress(OSError):
            system.delete_file(new)
        raise


def _stream_up(source: BinaryIO, size: int, path: str) -> None:
    system, inside = file_system(path)
    try:
        with system.open_output_stream(inside) as sink:
            while piece := source.read(_COPY_BYTES):
                sink.write(piece)
    except OSError:
        # Closing it may have published a part.
        with contextlib.suppress(OSError):
            system.delete_file(inside)
        raise
    if (found := look(path)) is None or found.size != size:
        raise OSError(errno.EIO, "the upload is not as long as the file", path)


def remove_file(path: str) -> None:
    """Removes exactly this file; it may be gone already."""
    client = object_clients.client_of(path)
    if client is not None:
        # Arrow would put an object in place of a folder that is empty now.
        asked(path, lambda: client.remove(split_remote(path)[1]))
        return
    with contextlib.suppress(FileNotFoundError):
        asked(path, functools.partial(_delete, path))


def _delete(path: str) -> None:
    system, inside = file_system(path)
    try:
        system.delete_file(inside)
    except OSError:
        # HDFS fails where there is nothing to remove.
        if look(path) is not None:
            raise


def remove_tree(folder: str) -> None:
    """Removes exactly what is below this folder; it may be gone already."""
    client = object_clients.client_of(folder)
    if client is not None:
        asked(folder, lambda: client.remove_below(split_remote(folder)[1]))
        return
    with contextlib.suppress(FileNotFoundError):
        found = look(folder)
        if found is not None and not found.is_folder:
            remove_file(folder)
            return
        inner = [
            each.path for each in look_in(folder, recursive=True) if each.is_folder
        ]
        # Some servers keep folders, and remove only empty ones.
        for each in sorted([*inner, folder], key=len, reverse=True):
            system, inside = file_system(each)
            asked(each, functools.partial(system.delete_dir_contents, inside))
            asked(each, functools.partial(system.delete_dir, inside))
