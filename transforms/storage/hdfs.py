"""HDFS, through Arrow and Hadoop's own client, in Java within this process.

It is no object store: it shows a file while it is written, so that a file gets its name
when it is whole; it has folders, even empty ones; and it knows no conditions.
"""

import contextlib
import errno
import io
import os
import secrets
import urllib.parse
from collections.abc import Mapping
from typing import TYPE_CHECKING, BinaryIO

from transforms.storage import arrow
from transforms.storage.buckets import Bucket
from transforms.storage.entries import Look, OvertakenError

if TYPE_CHECKING:
    import pyarrow.fs as pafs

_COPY_BYTES = 8 << 20
_TOKEN_BYTES = 6
# Processes that have started Java.
_with_java: set[int] = set()


def may_fork() -> bool:
    """Whether this process may fork. It may not where Java runs in it."""
    return os.getpid() not in _with_java


def connected(parameters: Mapping[str, str], place: str) -> "pafs.FileSystem":
    """Returns Hadoop's file system.

    What it must find is in the documentation of `pyarrow.fs.HadoopFileSystem`.
    """
    import pyarrow.fs as pafs

    options = os.environ.get("LIBHDFS_OPTS", "").split()
    if "-Xrs" not in options:
        # Java would take Ctrl-C and SIGTERM for itself.
        os.environ["LIBHDFS_OPTS"] = " ".join([*options, "-Xrs"])
    query = urllib.parse.urlencode(parameters, quote_via=urllib.parse.quote)
    _with_java.add(os.getpid())
    try:
        if not os.environ.get("CLASSPATH"):
            # Without its classes Java ends the process.
            raise OSError("CLASSPATH is empty")
        if place == "hdfs://":
            # The one that Hadoop's own settings name; Arrow makes no URI of that.
            if other := parameters.keys() - {"user"}:
                raise OSError(f"{sorted(other)[0]!r} wants a name node in the path")
            return pafs.HadoopFileSystem("default", 0, user=parameters.get("user"))
        return pafs.FileSystem.from_uri(f"{place}/{'?' if query else ''}{query}")[0]
    except OSError as error:
        found = str(error).partition("\n")[0]
        raise OSError(
            errno.EINVAL,
            f"hdfs:// needs Java and Hadoop: JAVA_HOME, ARROW_LIBHDFS_DIR (the folder "
            f"of libhdfs.so) and CLASSPATH (what 'hadoop classpath --glob' prints) "
            f"must name them; found: {found}",
            place,
        ) from error


class HdfsBucket(Bucket):
    """See `Bucket`. Of two runs that write at the same moment, both may succeed."""

    conditional = False
    flat = False

    def __init__(self, place: str, attempts: str) -> None:
        """Takes the folder of files that are not whole; "" for that of the name."""
        self.place = place
        self._attempts = attempts

    def look(self, key: str) -> Look:
        """See `Bucket`; there is no clock to tell the age by."""
        found = arrow.look(self.path(key))
        if found is None or found.is_folder:
            return Look()
        return Look(f"{found.size}-{found.modified_ns}")

    def put(self, key: str, data: bytes, version: str | None = None) -> None:
        """See `Bucket`."""
        self._write(key, io.BytesIO(data), version)

    def put_file(self, key: str, local: str, *, new: bool = False) -> None:
        """See `Bucket`."""
        with open(local, "rb") as source:
            self._write(key, source, "" if new else None)

    def _write(self, key: str, source: BinaryIO, version: str | None) -> None:
        if version is not None and self.look(key).version != version:
            raise OvertakenError(key)
        path = self.path(key)
        folder, name = os.path.split(path)
        word = secrets.token_hex(_TOKEN_BYTES)
        partial = f"{self._attempts or folder}/.{name}.{word}.tmp"
        (system, new), (_, inside) = arrow.file_system(partial), arrow.file_system(path)
        try:
            with system.open_output_stream(new) as sink:
                while piece := source.read(_COPY_BYTES):
                    sink.write(piece)
            found = arrow.look(partial)
            if found is None or found.size != source.tell():
                raise OSError(errno.EIO, "it is not as long as the file", path)
            system.create_dir(arrow.file_system(folder)[1])
            system.move(new, inside)
        except OSError:
            # Closing it may have published a part.
            with contextlib.suppress(OSError):
                system.delete_file(new)
            raise

    def remove(self, key: str) -> None:
        """See `Bucket`."""
        system, inside = arrow.file_system(self.path(key))
        try:
            system.delete_file(inside)
        except OSError:
            # It fails where there is nothing to remove, too.
            if arrow.look(self.path(key)) is not None:
                raise

    def remove_below(self, folder: str) -> None:
        """See `Bucket`; the folder goes, too."""
        path = self.path(folder)
        if arrow.look(path) is not None:
            system, inside = arrow.file_system(path)
            with contextlib.suppress(FileNotFoundError):
                system.delete_dir(inside)
